//! What is kept of each query: a line of `queries.jsonl`, from which every figure follows.

use agora::schedule::Means;
use serde::{Deserialize, Serialize};

/// What models cost in one query, in nano-dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryCost {
    /// Messages in natural language.
    pub language: u64,
    /// Messages under a document that a model writes or reads.
    pub messages: u64,
    /// Whether documents suit, on both sides.
    pub checks: u64,
    /// Writing routines, on both sides.
    pub implementing: u64,
    /// Agreeing on documents.
    pub negotiation: u64,
}

impl QueryCost {
    /// All together.
    pub const fn total(&self) -> u64 {
        self.language + self.messages + self.checks + self.implementing + self.negotiation
    }

    /// Adds another.
    pub const fn add(&mut self, other: &Self) {
        self.language += other.language;
        self.messages += other.messages;
        self.checks += other.checks;
        self.implementing += other.implementing;
        self.negotiation += other.negotiation;
    }
}

/// One query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryRecord {
    /// Number in the run, from 1.
    pub query: usize,
    /// Who asked.
    pub initiator: String,
    /// Who answered.
    pub responder: String,
    /// The kind of task.
    pub task: String,
    /// The document that the request was under; none: natural language.
    pub document: Option<String>,
    /// Who wrote the request and read the answer.
    pub initiator_means: Means,
    /// Who read the request and wrote the answer.
    pub responder_means: Means,
    /// Whether the responder had asked for a document.
    pub is_asked: bool,
    /// Documents that a model looked at, on both sides.
    pub checks: usize,
    /// Negotiations, of which each may have come to nothing.
    pub negotiations: usize,
    /// Routines that were written, on both sides.
    pub routines: usize,
    /// Routines that could not be written.
    pub routine_failures: usize,
    /// What it cost.
    pub cost: QueryCost,
    /// What it would cost in natural language.
    pub language_cost: u64,
    /// Documents that have been agreed on until then.
    pub documents: usize,
    /// Documents that registries took from each other behind the query.
    pub synchronised: usize,
}

impl QueryRecord {
    /// The columns of `queries.csv`; costs are in nano-dollars.
    pub const COLUMNS: &str = "query,initiator,responder,task,document,initiator_means,responder_means,is_asked,checks,\
                               negotiations,routines,routine_failures,cost_language,cost_messages,cost_checks,\
                               cost_implementing,cost_negotiation,cost,language_cost,documents,synchronised";

    /// A line of `queries.csv`.
    pub fn row(&self) -> impl Serialize {
        let QueryCost { language, messages, checks, implementing, negotiation } = self.cost;
        (
            (self.query, &self.initiator, &self.responder, &self.task, &self.document),
            (self.initiator_means, self.responder_means, self.is_asked, self.checks, self.negotiations),
            (self.routines, self.routine_failures),
            [language, messages, checks, implementing, negotiation, self.cost.total(), self.language_cost],
            (self.documents, self.synchronised),
        )
    }

    /// Whether a model had any part in it.
    pub const fn needs_model(&self) -> bool {
        self.cost.total() > 0
    }
}
