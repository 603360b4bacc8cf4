//! Whether a document suits a task, as far as is known: a default, and what differs with one counterpart.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Characters at the end of a model's reply in which its verdict stands.
const VERDICT_CHARS: usize = 10;

/// What is known of a document for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suitability {
    /// It was checked, or agreed on for this task.
    Adequate,
    /// It was checked and does not serve.
    Inadequate,
    /// Its name and description say so; checked before those of which nothing is known.
    ProbablyAdequate,
    /// Its name and description say so; not worth a check.
    ProbablyInadequate,
    /// Nothing is known.
    #[default]
    Unknown,
}

impl Suitability {
    /// What a model's reply to a check means: a `yes` within its last ten characters, as the package `agora-protocol` reads
    /// it.
    #[must_use]
    pub fn of_verdict(reply: &str) -> Self {
        let reply = reply.to_lowercase();
        let last = reply.trim().char_indices().rev().nth(VERDICT_CHARS - 1).map_or(0, |(at, _)| at);
        if reply.trim()[last..].contains("yes") { Self::Adequate } else { Self::Inadequate }
    }
}

/// What is known of one document for one task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskSuitability {
    default: Suitability,
    by_counterpart: BTreeMap<String, Suitability>,
}

impl TaskSuitability {
    /// For whoever has no value of its own.
    #[must_use]
    pub fn by_default(&self) -> Suitability {
        self.default
    }

    /// With this counterpart.
    #[must_use]
    pub fn with(&self, counterpart: &str) -> Suitability {
        self.by_counterpart.get(counterpart).copied().unwrap_or(self.default)
    }

    /// Sets the default.
    pub fn set_default(&mut self, suitability: Suitability) {
        self.default = suitability;
    }

    /// Sets what differs with one counterpart.
    pub fn set_override(&mut self, counterpart: &str, suitability: Suitability) {
        self.by_counterpart.insert(counterpart.to_owned(), suitability);
    }
}
