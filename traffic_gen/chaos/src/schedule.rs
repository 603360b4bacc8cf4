//! Which fault comes when: drawn from a seed, so that a run can be made again with the same faults.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

/// Between two faults.
const GAP_MS: std::ops::RangeInclusive<u64> = 2_000..=5_000;
/// How long a killed process stays down: what a supervisor takes.
const DOWN_MS: std::ops::RangeInclusive<u64> = 100..=1_000;
/// How long a paused process stays paused.
const PAUSED_MS: std::ops::RangeInclusive<u64> = 1_000..=30_000;
/// How long a nats-server stays paused. Alone it stops the whole exchange, and an award must not run out before its
/// ACCEPT could leave: shorter than the time the run's policy gives to confirm.
const NATS_PAUSED_MS: std::ops::RangeInclusive<u64> = 1_000..=8_000;
/// How long a link stays cut or half open: past every heartbeat, and at times past every patience.
const LINK_MS: std::ops::RangeInclusive<u64> = 500..=8_000;

/// What may be hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FaultKind {
    /// An engine's process.
    Engine,
    /// A gateway's process.
    Gateway,
    /// A nats-server's process.
    Nats,
    /// The connections of one engine or gateway to its nats-server.
    Link,
    /// A process that runs agents.
    Agents,
}

/// What happens to it, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FaultAction {
    /// SIGKILL; started again afterwards.
    Kill,
    /// SIGSTOP; SIGCONT afterwards.
    Pause,
    /// Connections are closed, new ones too; healed afterwards.
    Cut,
    /// Nothing flows, nothing closes; healed afterwards.
    HalfOpen,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledFault {
    /// What is hit.
    pub kind: FaultKind,
    /// Which of its kind, from 0.
    pub number: usize,
    /// How.
    pub action: FaultAction,
    /// For how long.
    pub lasting: Duration,
}

/// Draws faults.
#[derive(Debug)]
pub struct Schedule {
    random: ChaCha12Rng,
    kinds: Vec<FaultKind>,
    pauses: bool,
}

impl Schedule {
    /// Faults for these kinds; `pauses` stops processes instead of killing them.
    pub fn new(kinds: Vec<FaultKind>, pauses: bool, seed: u64) -> Self {
        Self { random: ChaCha12Rng::seed_from_u64(seed), kinds, pauses }
    }

    /// How long until the next fault.
    pub fn gap(&mut self) -> Duration {
        Duration::from_millis(self.random.random_range(GAP_MS))
    }

    /// What the next fault hits.
    pub fn kind(&mut self) -> Option<FaultKind> {
        let place = self.below(self.kinds.len())?;
        Some(self.kinds[place])
    }

    /// A fault for one of the numbers of a kind that may be hit; none when there is none.
    pub fn fault(&mut self, kind: FaultKind, may_be_hit: &[usize]) -> Option<ScheduledFault> {
        let number = may_be_hit[self.below(may_be_hit.len())?];
        let (action, range) = match kind {
            FaultKind::Link if self.random.random_bool(0.5) => (FaultAction::Cut, LINK_MS),
            FaultKind::Link => (FaultAction::HalfOpen, LINK_MS),
            FaultKind::Nats if self.pauses => (FaultAction::Pause, NATS_PAUSED_MS),
            FaultKind::Engine | FaultKind::Gateway | FaultKind::Agents if self.pauses => {
                (FaultAction::Pause, PAUSED_MS)
            }
            FaultKind::Engine | FaultKind::Gateway | FaultKind::Nats | FaultKind::Agents => {
                (FaultAction::Kill, DOWN_MS)
            }
        };
        Some(ScheduledFault { kind, number, action, lasting: Duration::from_millis(self.random.random_range(range)) })
    }

    fn below(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.random.random_range(0..len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_schedule() {
        let draw = |seed| {
            let mut schedule = Schedule::new(vec![FaultKind::Engine, FaultKind::Nats], false, seed);
            let mut draw = || {
                let (gap, kind) = (schedule.gap(), schedule.kind().unwrap());
                (gap, schedule.fault(kind, &[0, 1, 2]))
            };
            (0..50).map(|_| draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn faults_keep_to_what_may_be_hit() {
        let mut schedule = Schedule::new(vec![FaultKind::Engine, FaultKind::Link], true, 1);
        for _ in 0..200 {
            assert!((2..=5).contains(&schedule.gap().as_secs()));
            assert!(matches!(schedule.kind(), Some(FaultKind::Engine | FaultKind::Link)));
            let fault = schedule.fault(FaultKind::Engine, &[2]).unwrap();
            assert_eq!((fault.kind, fault.number, fault.action), (FaultKind::Engine, 2, FaultAction::Pause));
            assert!((1..=30).contains(&fault.lasting.as_secs()));
        }
        assert_eq!(schedule.fault(FaultKind::Engine, &[]), None);
        assert_eq!(Schedule::new(Vec::new(), false, 1).kind(), None);
    }
}
