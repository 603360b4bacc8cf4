//! When the default policy changed, as this gateway has seen it.

use std::collections::VecDeque;

use schemas::Timestamp;
use serde::Serialize;

/// Changes remembered: the newest.
const SWITCHES_MAX: usize = 8;

/// See the module.
#[derive(Default)]
pub(super) struct DefaultPolicyHistory {
    current: Option<String>,
    newest: VecDeque<DefaultPolicyChange>,
}

/// One change.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct DefaultPolicyChange {
    at: Timestamp,
    from: String,
    to: String,
}

impl DefaultPolicyHistory {
    /// Takes note of the default that is in force; the first one is no change.
    pub(super) fn handle_default(&mut self, policy: &str, at: Timestamp) {
        if self.current.as_deref() == Some(policy) {
            return;
        }
        let Some(from) = self.current.replace(policy.to_owned()) else { return };
        if self.newest.len() == SWITCHES_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back(DefaultPolicyChange { at, from, to: policy.to_owned() });
    }

    /// The newest changes, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DefaultPolicyChange> {
        self.newest.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_noted_once_each_and_only_the_newest_are_kept() {
        let mut changes = DefaultPolicyHistory::default();
        for number in 0..20_u64 {
            let policy = format!("p{number}");
            changes.handle_default(&policy, Timestamp(number));
            changes.handle_default(&policy, Timestamp(number));
        }
        let seen: Vec<(u64, &str, &str)> =
            changes.iter().map(|change| (change.at.0, change.from.as_str(), change.to.as_str())).collect();
        assert_eq!(seen.len(), SWITCHES_MAX);
        assert_eq!((seen[0], seen[7]), ((12, "p11", "p12"), (19, "p18", "p19")));
    }
}
