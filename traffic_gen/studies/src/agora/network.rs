//! The network of 100 agents: who talks in natural language, negotiates, checks and programs is decided by the machines of
//! [`agora::schedule`]; documents are kept by three registries in a chain, which are synchronised by [`agora::propagation`].
//!
//! What models would answer comes from the stub: a document suits a task when it bears its name, and one negotiation and one
//! routine in twenty come to nothing, drawn from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agora::propagation::Propagation;
use agora::registry::{DocumentRegistry, Unobserved};
use agora::schedule::{CallStep, InitiatorMemory, Means, ResponderMemory, ResponseStep, TaskCall, Thresholds};
use agora::suitability::Suitability;
use agora::{DocumentHash, Origin, ProtocolDocument};
use bus::memory::{self, MemoryOptions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::AgentId;

use super::conversation::{InitiatorWork, QueryMessages, ResponderWork};
use super::query::QueryRecord;
use super::workload::{Assistant, Query, REGISTRIES, TaskServer, Workload};
use crate::study::StudyError;

/// Queries between two rounds of the registries.
const SYNCHRONISED_EVERY: usize = 10;
/// Of so many negotiations, and of so many routines, one comes to nothing.
const FAILS_ONE_IN: u32 = 20;
/// Where among the streams of a seed the stub draws.
const STREAM: u64 = 2;

/// Whether the stub's negotiations and routines come to nothing at times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubFaults {
    /// Never.
    None,
    /// Each with a chance of one in twenty.
    Some,
}

/// An assistant with what it remembers.
struct AssistantState {
    agent: Assistant,
    memory: InitiatorMemory,
    /// Documents it can read, in the order of their hashes.
    known: BTreeSet<DocumentHash>,
    /// Of which it knows by kind of task whether they suit.
    classified: BTreeMap<&'static str, BTreeSet<DocumentHash>>,
}

/// A server with what it remembers.
struct ServerState {
    agent: TaskServer,
    memory: ResponderMemory,
    /// The description of its tool.
    tools: String,
    supported: BTreeSet<DocumentHash>,
}

/// Registries in a chain.
struct RegistryChain {
    registries: Vec<Arc<DocumentRegistry>>,
    /// Positions in the chain, from and to.
    links: Vec<(usize, usize, Propagation)>,
}

/// The network while it runs.
struct Network {
    assistants: Vec<AssistantState>,
    servers: Vec<ServerState>,
    chain: RegistryChain,
    texts: BTreeMap<DocumentHash, ProtocolDocument>,
    faults: StubFaults,
    random: ChaCha12Rng,
}

/// Plays the queries of a workload in their order.
///
/// # Errors
/// [`StudyError::Registry`] when a registry refuses a document.
pub async fn play(
    workload: Workload,
    thresholds: Thresholds,
    faults: StubFaults,
    seed: u64,
) -> Result<Vec<QueryRecord>, StudyError> {
    let (chain, driving) = RegistryChain::open().await;
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    random.set_stream(STREAM);
    let assistant = |agent| AssistantState::new(agent, thresholds);
    let server = |agent| ServerState::new(agent, thresholds);
    let mut network = Network {
        assistants: workload.assistants.into_iter().map(assistant).collect(),
        servers: workload.servers.into_iter().map(server).collect(),
        chain,
        texts: BTreeMap::new(),
        faults,
        random,
    };
    let mut records = Vec::with_capacity(workload.queries.len());
    for (number, query) in (1..).zip(&workload.queries) {
        let Some(mut record) = network.handle_query(number, query).await? else { continue };
        if number % SYNCHRONISED_EVERY == 0 {
            record.synchronised = network.chain.synchronise().await?;
        }
        records.push(record);
    }
    drop(driving);
    Ok(records)
}

impl RegistryChain {
    /// Empty registries, and the tasks that follow their stores for as long as they are kept.
    async fn open() -> (Self, tokio::task::JoinSet<()>) {
        let mut driving = tokio::task::JoinSet::new();
        let mut registries = Vec::new();
        for _ in 0..REGISTRIES {
            let store = memory::open(MemoryOptions::default()).key_value;
            let registry = Arc::new(DocumentRegistry::new(store, Arc::new(Unobserved)));
            let driven = Arc::clone(&registry);
            driving.spawn(async move { driven.drive().await });
            registry.until(|_| true).await;
            registries.push(registry);
        }
        // The farther link comes first in both directions: a document goes one link in a round.
        let down = (1..REGISTRIES).rev().map(|to| (to - 1, to));
        let up = (1..REGISTRIES).map(|from| (from, from - 1));
        let links = down.chain(up).map(|(from, to)| (from, to, Propagation::default())).collect();
        (Self { registries, links }, driving)
    }

    /// One round of every link; how many documents were stored.
    async fn synchronise(&mut self) -> Result<usize, StudyError> {
        let mut stored = 0;
        for (from, to, propagation) in &mut self.links {
            let (Some(from), Some(to)) = (self.registries.get(*from), self.registries.get(*to)) else { continue };
            stored += propagation.synchronise(from, to).await?.stored;
        }
        Ok(stored)
    }
}

impl AssistantState {
    fn new(agent: Assistant, thresholds: Thresholds) -> Self {
        let memory = InitiatorMemory::new(thresholds);
        Self { agent, memory, known: BTreeSet::new(), classified: BTreeMap::new() }
    }

    fn learn(&mut self, hash: DocumentHash) {
        if self.memory.learn(hash) {
            self.known.insert(hash);
        }
    }

    fn classify(&mut self, task: &'static str, hash: DocumentHash) {
        self.classified.entry(task).or_default().insert(hash);
    }

    /// Documents of which it is not known whether they suit.
    fn unclassified(&self, task: &str) -> Vec<DocumentHash> {
        let classified = self.classified.get(task);
        let is_open = |hash: &&DocumentHash| !classified.is_some_and(|known| known.contains(*hash));
        self.known.iter().filter(is_open).copied().collect()
    }
}

impl ServerState {
    fn new(agent: TaskServer, thresholds: Thresholds) -> Self {
        let memory = ResponderMemory::new(thresholds);
        Self { tools: agent.kind.tool_described(), memory, supported: BTreeSet::new(), agent }
    }
}

impl Network {
    /// One query from its first step to its answer; none for agents that do not exist.
    async fn handle_query(&mut self, number: usize, query: &Query) -> Result<Option<QueryRecord>, StudyError> {
        let (Some(assistant), Some(server)) =
            (self.assistants.get_mut(query.assistant), self.servers.get_mut(query.server))
        else {
            return Ok(None);
        };
        let Some(registry) = self.chain.registries.get(assistant.agent.registry) else { return Ok(None) };
        let published: Vec<DocumentHash> = registry.read().following(None).map(|document| document.hash()).collect();
        published.into_iter().chain(server.supported.iter().copied()).for_each(|hash| assistant.learn(hash));
        assistant.memory.handle_supported(&server.agent.name, server.supported.iter().copied());
        let call = assistant.memory.begin(&server.agent.kind.name, &server.agent.name);
        let record = record(number, assistant, server, query);
        let mut conversation = Conversation {
            assistant,
            server,
            query,
            texts: &mut self.texts,
            faults: self.faults,
            random: &mut self.random,
            call,
            agreed: None,
            record,
        };
        conversation.play();
        let Conversation { agreed, mut record, assistant, .. } = conversation;
        if let Some(document) = agreed {
            registry.put(&AgentId::try_new(&assistant.agent.name)?, &document, &[]).await?;
        }
        record.documents = self.texts.len();
        Ok(Some(record))
    }
}

/// What is known of a query before it begins.
fn record(number: usize, assistant: &AssistantState, server: &ServerState, query: &Query) -> QueryRecord {
    let in_language = QueryMessages::new(server.agent.kind, &query.data, None);
    let initiator = InitiatorWork { model: assistant.agent.model, kind: server.agent.kind };
    let responder = ResponderWork { model: server.agent.model, tools: &server.tools };
    QueryRecord {
        query: number,
        initiator: assistant.agent.name.clone(),
        responder: server.agent.name.clone(),
        task: server.agent.kind.name.clone(),
        language_cost: initiator.talk(&in_language) + responder.talk(&in_language),
        ..QueryRecord::default()
    }
}

/// One query under way.
struct Conversation<'a> {
    assistant: &'a mut AssistantState,
    server: &'a mut ServerState,
    query: &'a Query,
    texts: &'a mut BTreeMap<DocumentHash, ProtocolDocument>,
    faults: StubFaults,
    random: &'a mut ChaCha12Rng,
    call: TaskCall,
    /// The document that was negotiated, which the assistant publishes.
    agreed: Option<ProtocolDocument>,
    record: QueryRecord,
}

impl Conversation<'_> {
    fn initiator(&self) -> InitiatorWork<'static> {
        InitiatorWork { model: self.assistant.agent.model, kind: self.server.agent.kind }
    }

    fn responder(&self) -> ResponderWork<'_> {
        ResponderWork { model: self.server.agent.model, tools: &self.server.tools }
    }

    fn text(&self, hash: DocumentHash) -> String {
        self.texts.get(&hash).map(|document| document.text().to_owned()).unwrap_or_default()
    }

    /// What the stub says of a document for the task.
    fn verdict(&self, hash: DocumentHash) -> Suitability {
        let kind = self.server.agent.kind;
        let suits = self.texts.get(&hash).is_some_and(|document| document.front_matter().name == kind.name);
        Suitability::of_verdict(&kind.considered(suits))
    }

    fn fails(&mut self) -> bool {
        self.faults == StubFaults::Some && self.random.random_ratio(1, FAILS_ONE_IN)
    }

    fn play(&mut self) {
        loop {
            match self.assistant.memory.step(&mut self.call) {
                CallStep::Check(hash) => self.check(hash),
                CallStep::Negotiate => self.negotiate(),
                CallStep::Write(hash) => self.write(hash),
                CallStep::Send { document: None, .. } if self.is_to_be_asked() => {
                    self.record.is_asked = true;
                    self.server.memory.handle_negotiation();
                    self.assistant.memory.handle_asked(&mut self.call);
                }
                CallStep::Send { document: None, .. } => return self.talk(),
                CallStep::Send { document: Some(hash), means } => return self.send(hash, means),
            }
        }
    }

    /// Whether the server asks for a document instead of a conversation: once in a query, and then it counts anew.
    fn is_to_be_asked(&self) -> bool {
        !self.record.is_asked && self.server.memory.asks_for_negotiation()
    }

    fn check(&mut self, hash: DocumentHash) {
        let task = &self.server.agent.kind.name;
        let open = self.assistant.unclassified(task);
        if open.len() > 1 && open.contains(&hash) && !self.server.supported.contains(&hash) {
            return self.pick(&open);
        }
        let verdict = self.verdict(hash);
        let reply = self.server.agent.kind.considered(verdict == Suitability::Adequate);
        self.record.cost.checks += self.initiator().check(&self.text(hash), &reply);
        self.record.checks += 1;
        self.assistant.classify(task, hash);
        self.assistant.memory.handle_check(&mut self.call, hash, verdict);
    }

    /// Looks at the names and descriptions of several documents at once, so that few are read.
    fn pick(&mut self, open: &[DocumentHash]) {
        let task = &self.server.agent.kind.name;
        let (mut list, mut picked) = (String::new(), Vec::new());
        for (number, &hash) in (1_usize..).zip(open) {
            let is_likely = self.verdict(hash) == Suitability::Adequate;
            let probably = if is_likely { Suitability::ProbablyAdequate } else { Suitability::ProbablyInadequate };
            if let Some(document) = self.texts.get(&hash) {
                let front_matter = document.front_matter();
                list += &format!("{number}. {}: {}\n", front_matter.name, front_matter.description);
            }
            if is_likely {
                picked.push(number.to_string());
            }
            self.assistant.memory.set_suitability(hash, task, probably);
            self.assistant.classify(task, hash);
        }
        let picked = if picked.is_empty() { "NONE".to_owned() } else { picked.join(", ") };
        self.record.cost.checks += self.initiator().pick(&list, &picked);
        self.record.checks += 1;
    }

    fn negotiate(&mut self) {
        let kind = self.server.agent.kind;
        self.server.memory.handle_negotiation();
        self.record.negotiations += 1;
        let text = kind.document(&self.assistant.agent.name, &self.server.agent.name);
        self.record.cost.negotiation += self.initiator().negotiate(&text) + self.responder().negotiate(&text);
        let agreed = if self.fails() { None } else { ProtocolDocument::try_new(&text, Origin::Own).ok() };
        let hash = agreed.as_ref().map(ProtocolDocument::hash);
        if let Some(document) = &agreed {
            self.texts.insert(document.hash(), document.clone());
            self.assistant.known.insert(document.hash());
            self.assistant.classify(&kind.name, document.hash());
        }
        self.agreed = agreed;
        self.assistant.memory.handle_agreement(&mut self.call, hash);
    }

    fn write(&mut self, hash: DocumentHash) {
        self.record.cost.implementing += self.initiator().program(&self.text(hash));
        let is_written = self.is_written();
        self.assistant.memory.handle_routine(&mut self.call, is_written);
    }

    fn is_written(&mut self) -> bool {
        let is_written = !self.fails();
        if is_written {
            self.record.routines += 1;
        } else {
            self.record.routine_failures += 1;
        }
        is_written
    }

    /// Request and answer in natural language.
    fn talk(&mut self) {
        let messages = QueryMessages::new(self.server.agent.kind, &self.query.data, None);
        self.record.cost.language += self.initiator().talk(&messages) + self.responder().talk(&messages);
        self.server.memory.handle_language();
    }

    /// Request and answer under a document; in natural language after all if the responder rejects it.
    fn send(&mut self, hash: DocumentHash, means: Means) {
        let Some(answering) = self.answering(hash) else {
            self.assistant.memory.handle_check(&mut self.call, hash, Suitability::Inadequate);
            return self.talk();
        };
        let (kind, text) = (self.server.agent.kind, self.text(hash));
        let messages = QueryMessages::new(kind, &self.query.data, Some(&text));
        if means == Means::Model {
            self.record.cost.messages += self.initiator().talk(&messages);
        }
        if answering == Means::Model {
            self.record.cost.messages += self.responder().talk(&messages);
        }
        self.server.supported.insert(hash);
        self.record.document = Some(hash.to_string());
        (self.record.initiator_means, self.record.responder_means) = (means, answering);
    }

    /// What the responder does before it answers, and who answers; none: it rejects the document.
    fn answering(&mut self, hash: DocumentHash) -> Option<Means> {
        let (kind, text) = (self.server.agent.kind, self.text(hash));
        let mut step = self.server.memory.handle_request(hash);
        loop {
            step = match step {
                ResponseStep::Check => {
                    let verdict = self.verdict(hash);
                    let reply = kind.considered(verdict == Suitability::Adequate);
                    self.record.cost.checks += self.responder().check(&text, &reply);
                    self.record.checks += 1;
                    self.server.memory.handle_check(hash, verdict)
                }
                ResponseStep::Write => {
                    self.record.cost.implementing += self.responder().program(kind, &text);
                    let is_written = self.is_written();
                    self.server.memory.handle_routine(hash, is_written)
                }
                ResponseStep::Reject => return None,
                ResponseStep::Answer(means) => return Some(means),
            };
        }
    }
}
