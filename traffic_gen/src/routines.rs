//! What routines ran in a run, and how often they failed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use agents::routine::{RoutineRunner, RoutineTally};
use schemas::document::RoutineKind;
use serde::Serialize;

/// Runs of routines by what ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct RoutineSummary {
    by_kind: BTreeMap<RoutineKind, RoutineTally>,
}

impl RoutineSummary {
    /// What these have run so far, together. One that is named more than once counts once.
    pub fn of(runners: &[Arc<RoutineRunner>]) -> Self {
        let mut by_kind: BTreeMap<RoutineKind, RoutineTally> = BTreeMap::new();
        for (index, runner) in runners.iter().enumerate() {
            if runners.iter().take(index).any(|earlier| Arc::ptr_eq(earlier, runner)) {
                continue;
            }
            for (kind, tally) in runner.tallies() {
                let runs = by_kind.entry(kind).or_default();
                runs.answered += tally.answered;
                runs.failed += tally.failed;
            }
        }
        Self { by_kind }
    }

    /// Whether nothing has run.
    pub fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }

    /// Runs of one kind.
    pub fn runs(&self, kind: RoutineKind) -> RoutineTally {
        self.by_kind.get(&kind).copied().unwrap_or_default()
    }
}

impl fmt::Display for RoutineSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut answered = 0;
        for (index, (kind, runs)) in self.by_kind.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", kind.as_str(), runs.answered)?;
            if runs.failed > 0 {
                write!(f, " ({} failed)", runs.failed)?;
            }
            answered += runs.answered;
        }
        write!(f, "; awards carried out {answered}")
    }
}
