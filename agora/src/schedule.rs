//! When two agents stop talking in natural language: after how many calls documents are looked at, one is negotiated, and a
//! routine is written.
//!
//! Both sides are machines without input or output. The initiator begins a call, asks for the next step, does it, says how it
//! went, and asks again until the step is [`CallStep::Send`]:
//!
//! ```
//! use agora::schedule::{CallStep, InitiatorMemory, Means, Thresholds};
//!
//! let mut memory = InitiatorMemory::new(Thresholds::PYPI);
//! let mut call = memory.begin("weather", "https://weather.example");
//! assert_eq!(memory.step(&mut call), CallStep::Send { document: None, means: Means::Model });
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::DocumentHash;
use crate::suitability::{Suitability, TaskSuitability};

/// Pairs of task and counterpart that are counted. Whoever meets more goes on in natural language with the further ones.
pub const PAIRS_MAX: usize = 65_536;
/// Documents that one agent remembers.
pub const REMEMBERED_MAX: usize = 4096;

/// After how much something is worth its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// The initiator looks whether a document it knows suits the task in the first call beyond so many with a counterpart.
    pub documents: u32,
    /// It negotiates a document in the first call beyond so many.
    pub negotiation: u32,
    /// It writes a routine in the first use of a document beyond so many.
    pub routine: u32,
    /// The responder writes a routine when a document is used for this time.
    pub responder_routine: u32,
    /// The responder asks for a negotiation once it has had so many conversations in natural language since the last, with
    /// anybody; none: never.
    pub responder_negotiation: Option<u32>,
}

impl Thresholds {
    /// Those of the paper's network of 100 agents: 3, 5 and 10. It names none for routines: they are written at the first use,
    /// as its calculation of the break-even assumes.
    pub const PAPER: Self =
        Self { documents: 3, negotiation: 5, routine: 0, responder_routine: 1, responder_negotiation: Some(10) };
    /// The defaults of the package `agora-protocol`: 5, 10 and 5.
    pub const PYPI: Self =
        Self { documents: 5, negotiation: 10, routine: 5, responder_routine: 5, responder_negotiation: None };
}

/// Who does the work of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// A language model.
    #[default]
    Model,
    /// A routine that was written for the document.
    Routine,
}

/// What the initiator does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStep {
    /// Let a model check whether the document suits the task; then [`InitiatorMemory::handle_check`].
    Check(DocumentHash),
    /// Negotiate a document with the counterpart; then [`InitiatorMemory::handle_agreement`].
    Negotiate,
    /// Let a model write a routine for the document; then [`InitiatorMemory::handle_routine`].
    Write(DocumentHash),
    /// Send the request: this is the last step.
    Send {
        /// The document it is under; none is natural language.
        document: Option<DocumentHash>,
        /// Who writes and reads the messages.
        means: Means,
    },
}

/// A call under way.
#[derive(Debug, Clone)]
pub struct TaskCall {
    task: String,
    counterpart: String,
    /// Calls of this task to this counterpart, this one included.
    number: u32,
    chosen: Option<DocumentHash>,
    /// Whether the counterpart asks for a document.
    is_asked: bool,
    has_negotiated: bool,
    has_written: bool,
}

/// What is remembered of a document.
#[derive(Debug, Clone, Default)]
struct RememberedDocument {
    suitability: BTreeMap<String, TaskSuitability>,
    uses: u32,
    has_routine: bool,
}

impl RememberedDocument {
    fn by_default(&self, task: &str) -> Suitability {
        self.suitability.get(task).map_or(Suitability::Unknown, TaskSuitability::by_default)
    }

    fn with(&self, task: &str, counterpart: &str) -> Suitability {
        self.suitability.get(task).map_or(Suitability::Unknown, |known| known.with(counterpart))
    }

    fn of_task(&mut self, task: &str) -> &mut TaskSuitability {
        self.suitability.entry(task.to_owned()).or_default()
    }
}

/// What an initiator remembers of documents and counterparts.
#[derive(Debug, Clone)]
pub struct InitiatorMemory {
    thresholds: Thresholds,
    /// Calls by task and counterpart.
    calls: BTreeMap<(String, String), u32>,
    documents: BTreeMap<DocumentHash, RememberedDocument>,
    /// In the order in which they became known.
    order: Vec<DocumentHash>,
    /// What counterparts say that they support.
    supported: BTreeMap<String, BTreeSet<DocumentHash>>,
}

impl InitiatorMemory {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            calls: BTreeMap::new(),
            documents: BTreeMap::new(),
            order: Vec::new(),
            supported: BTreeMap::new(),
        }
    }

    /// A document became known; false when there is no room for it.
    pub fn learn(&mut self, hash: DocumentHash) -> bool {
        if self.documents.contains_key(&hash) {
            return true;
        }
        if self.documents.len() >= REMEMBERED_MAX {
            return false;
        }
        self.documents.insert(hash, RememberedDocument::default());
        self.order.push(hash);
        true
    }

    /// A counterpart says which documents it supports. Of documents that suit, these are preferred.
    pub fn handle_supported(&mut self, counterpart: &str, hashes: impl IntoIterator<Item = DocumentHash>) {
        let known: BTreeSet<_> = hashes.into_iter().filter(|&hash| self.learn(hash)).collect();
        if self.supported.len() < PAIRS_MAX || self.supported.contains_key(counterpart) {
            self.supported.insert(counterpart.to_owned(), known);
        }
    }

    /// What is known by default of a document for a task, from its name and description or from elsewhere.
    pub fn set_suitability(&mut self, hash: DocumentHash, task: &str, suitability: Suitability) {
        if let Some(document) = self.documents.get_mut(&hash) {
            document.of_task(task).set_default(suitability);
        }
    }

    /// What is known of a document for a task with a counterpart.
    #[must_use]
    pub fn suitability(&self, hash: DocumentHash, task: &str, counterpart: &str) -> Suitability {
        self.documents.get(&hash).map_or(Suitability::Unknown, |document| document.with(task, counterpart))
    }

    /// Begins a call, and counts it.
    pub fn begin(&mut self, task: &str, counterpart: &str) -> TaskCall {
        let pair = (task.to_owned(), counterpart.to_owned());
        let number = if self.calls.len() < PAIRS_MAX || self.calls.contains_key(&pair) {
            let number = self.calls.entry(pair).or_default();
            *number = number.saturating_add(1);
            *number
        } else {
            0
        };
        TaskCall {
            task: task.to_owned(),
            counterpart: counterpart.to_owned(),
            number,
            chosen: None,
            is_asked: false,
            has_negotiated: false,
            has_written: false,
        }
    }

    /// The counterpart asks for a document ([`ResponderMemory::asks_for_negotiation`]): in this call documents are looked
    /// at, and one is negotiated if none suits, whatever the thresholds are.
    pub fn handle_asked(&self, call: &mut TaskCall) {
        call.is_asked = true;
    }

    /// What to do next in a call.
    pub fn step(&mut self, call: &mut TaskCall) -> CallStep {
        if call.chosen.is_none()
            && let Some(hash) = self.preferred(call)
        {
            self.choose(call, hash);
        }
        if let Some(hash) = call.chosen {
            return self.under(call, hash);
        }
        if (call.is_asked || call.number > self.thresholds.documents)
            && let Some(hash) = self.worth_checking(call)
        {
            return CallStep::Check(hash);
        }
        if (call.is_asked || call.number > self.thresholds.negotiation) && !call.has_negotiated {
            return CallStep::Negotiate;
        }
        CallStep::Send { document: None, means: Means::Model }
    }

    /// A model said whether a document suits the task. The verdict holds with every counterpart that has no other.
    pub fn handle_check(&mut self, call: &mut TaskCall, hash: DocumentHash, verdict: Suitability) {
        self.set_suitability(hash, &call.task, verdict);
        if verdict == Suitability::Adequate {
            self.choose(call, hash);
        }
    }

    /// The negotiation came to this document, or to none. It suits this task with this counterpart; of others nothing is
    /// known.
    pub fn handle_agreement(&mut self, call: &mut TaskCall, agreed: Option<DocumentHash>) {
        call.has_negotiated = true;
        let Some(hash) = agreed.filter(|&hash| self.learn(hash)) else { return };
        if let Some(document) = self.documents.get_mut(&hash) {
            document.of_task(&call.task).set_override(&call.counterpart, Suitability::Adequate);
        }
        self.choose(call, hash);
    }

    /// The routine is written, or could not be. Then the model goes on in this call, and the next use tries again.
    pub fn handle_routine(&mut self, call: &mut TaskCall, is_written: bool) {
        call.has_written = true;
        if let Some(document) = call.chosen.and_then(|hash| self.documents.get_mut(&hash)) {
            document.has_routine = is_written;
        }
    }

    /// The call is under this document, which counts as a use.
    fn choose(&mut self, call: &mut TaskCall, hash: DocumentHash) {
        if let Some(document) = self.documents.get_mut(&hash) {
            document.uses = document.uses.saturating_add(1);
            call.chosen = Some(hash);
        }
    }

    fn under(&self, call: &TaskCall, hash: DocumentHash) -> CallStep {
        let (uses, has_routine) =
            self.documents.get(&hash).map_or((0, false), |document| (document.uses, document.has_routine));
        if !has_routine && uses > self.thresholds.routine && !call.has_written {
            return CallStep::Write(hash);
        }
        CallStep::Send { document: Some(hash), means: if has_routine { Means::Routine } else { Means::Model } }
    }

    /// Of the documents that suit: what the counterpart supports first, then what has a routine, then what was known first.
    fn preferred(&self, call: &TaskCall) -> Option<DocumentHash> {
        let adequate = self
            .in_order()
            .filter(|(_, document)| document.with(&call.task, &call.counterpart) == Suitability::Adequate);
        adequate
            .min_by_key(|(hash, document)| (!self.is_common(call, *hash), !document.has_routine))
            .map(|(hash, _)| hash)
    }

    /// Of the documents of which it is not known whether they suit: what the counterpart supports first, then what probably
    /// suits. What does not serve with this counterpart is left out.
    fn worth_checking(&self, call: &TaskCall) -> Option<DocumentHash> {
        let is_open = |document: &RememberedDocument| {
            let [default, own] = [document.by_default(&call.task), document.with(&call.task, &call.counterpart)];
            matches!(default, Suitability::Unknown | Suitability::ProbablyAdequate) && own != Suitability::Inadequate
        };
        let open = self.in_order().filter(|(_, document)| is_open(document));
        let is_probable =
            |document: &RememberedDocument| document.by_default(&call.task) == Suitability::ProbablyAdequate;
        open.min_by_key(|(hash, document)| (!self.is_common(call, *hash), !is_probable(document))).map(|(hash, _)| hash)
    }

    fn in_order(&self) -> impl Iterator<Item = (DocumentHash, &RememberedDocument)> {
        self.order.iter().filter_map(|hash| Some((*hash, self.documents.get(hash)?)))
    }

    fn is_common(&self, call: &TaskCall, hash: DocumentHash) -> bool {
        self.supported.get(&call.counterpart).is_some_and(|supported| supported.contains(&hash))
    }
}

/// What the responder does next with a request under a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseStep {
    /// Let a model check whether it can serve under the document; then [`ResponderMemory::handle_check`].
    Check,
    /// Refuse: the document does not serve.
    Reject,
    /// Let a model write a routine; then [`ResponderMemory::handle_routine`].
    Write,
    /// Answer: this is the last step.
    Answer(Means),
}

/// What a responder remembers of a document.
#[derive(Debug, Clone, Default)]
struct ServedDocument {
    suitability: Suitability,
    uses: u32,
    has_routine: bool,
    /// In the request under way.
    has_written: bool,
}

/// What a responder remembers of documents and conversations.
#[derive(Debug, Clone)]
pub struct ResponderMemory {
    thresholds: Thresholds,
    documents: BTreeMap<DocumentHash, ServedDocument>,
    /// Conversations in natural language since the last negotiation.
    in_language: u32,
}

impl ResponderMemory {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, documents: BTreeMap::new(), in_language: 0 }
    }

    /// A conversation in natural language began, with anybody.
    pub fn handle_language(&mut self) {
        self.in_language = self.in_language.saturating_add(1);
    }

    /// A negotiation began: the count starts anew.
    pub fn handle_negotiation(&mut self) {
        self.in_language = 0;
    }

    /// Whether the responder wants a document to be negotiated.
    #[must_use]
    pub fn asks_for_negotiation(&self) -> bool {
        self.thresholds.responder_negotiation.is_some_and(|after| self.in_language >= after)
    }

    /// A request under a document, and what to do with it first. Where there is no room to remember the document, it is
    /// rejected.
    pub fn handle_request(&mut self, hash: DocumentHash) -> ResponseStep {
        if !self.documents.contains_key(&hash) && self.documents.len() >= REMEMBERED_MAX {
            return ResponseStep::Reject;
        }
        let document = self.documents.entry(hash).or_default();
        document.uses = document.uses.saturating_add(1);
        document.has_written = false;
        self.step(hash)
    }

    /// A model said whether the document serves.
    pub fn handle_check(&mut self, hash: DocumentHash, verdict: Suitability) -> ResponseStep {
        self.documents.entry(hash).or_default().suitability = verdict;
        self.step(hash)
    }

    /// The routine is written, or could not be.
    pub fn handle_routine(&mut self, hash: DocumentHash, is_written: bool) -> ResponseStep {
        let document = self.documents.entry(hash).or_default();
        (document.has_routine, document.has_written) = (is_written, true);
        self.step(hash)
    }

    fn step(&self, hash: DocumentHash) -> ResponseStep {
        let Some(document) = self.documents.get(&hash) else { return ResponseStep::Reject };
        match document.suitability {
            Suitability::Unknown | Suitability::ProbablyAdequate | Suitability::ProbablyInadequate => {
                ResponseStep::Check
            }
            Suitability::Inadequate => ResponseStep::Reject,
            Suitability::Adequate if document.has_routine => ResponseStep::Answer(Means::Routine),
            Suitability::Adequate if document.uses >= self.thresholds.responder_routine && !document.has_written => {
                ResponseStep::Write
            }
            Suitability::Adequate => ResponseStep::Answer(Means::Model),
        }
    }
}
