//! What is kept of each query: a line of `queries.jsonl`, from which every figure follows.

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
    #[must_use]
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

/// What one side did for its message of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryMeans {
    /// A model.
    #[default]
    Model,
    /// A routine.
    Routine,
}

impl QueryMeans {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Routine => "routine",
        }
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
    pub initiator_means: QueryMeans,
    /// Who read the request and wrote the answer.
    pub responder_means: QueryMeans,
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
    /// The columns of `queries.csv`, each with its value; costs are in nano-dollars.
    #[must_use]
    pub fn columns(&self) -> [(&'static str, String); 21] {
        [
            ("query", self.query.to_string()),
            ("initiator", self.initiator.clone()),
            ("responder", self.responder.clone()),
            ("task", self.task.clone()),
            ("document", self.document.clone().unwrap_or_default()),
            ("initiator_means", self.initiator_means.as_str().to_owned()),
            ("responder_means", self.responder_means.as_str().to_owned()),
            ("is_asked", self.is_asked.to_string()),
            ("checks", self.checks.to_string()),
            ("negotiations", self.negotiations.to_string()),
            ("routines", self.routines.to_string()),
            ("routine_failures", self.routine_failures.to_string()),
            ("cost_language", self.cost.language.to_string()),
            ("cost_messages", self.cost.messages.to_string()),
            ("cost_checks", self.cost.checks.to_string()),
            ("cost_implementing", self.cost.implementing.to_string()),
            ("cost_negotiation", self.cost.negotiation.to_string()),
            ("cost", self.cost.total().to_string()),
            ("language_cost", self.language_cost.to_string()),
            ("documents", self.documents.to_string()),
            ("synchronised", self.synchronised.to_string()),
        ]
    }

    /// Whether a model had any part in it.
    #[must_use]
    pub const fn needs_model(&self) -> bool {
        self.cost.total() > 0
    }
}
