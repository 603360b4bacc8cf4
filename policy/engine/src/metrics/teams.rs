//! What teams do: how large and how deep they are, and how their turns are taken.

use policy_core::{Decision, Event, TurnKind};
use schemas::team::TaskMode;

/// Buckets of members; a team has at most 64.
const MEMBERS: [f64; 9] = [2.0, 3.0, 4.0, 5.0, 8.0, 12.0, 16.0, 32.0, 64.0];
/// Buckets of levels.
const DEPTHS: [f64; 5] = [0.0, 1.0, 2.0, 3.0, 4.0];

/// Whether a team waited for a task.
const MODES: [&str; 2] = ["sync", "async"];
/// How the owner of a task was found.
const WAYS: [&str; 2] = ["award", "direct"];
/// How a task ended.
const ENDS: [&str; 2] = ["done", "failed"];

telemetry::metrics! {
    /// Teams and their turns.
    pub(super) struct TeamMetrics {
        /// Turns of teams, by how they were taken.
        turns: Counter[kind: TurnKind] = "exchange_team_turns_total";
        /// Tasks of teams that ended, by whether the team waited, by how their owner was found, and by how they ended.
        tasks: Counter[mode: &'static str = MODES, by: &'static str = WAYS, outcome: &'static str = ENDS]
            = "exchange_team_tasks_total";
        /// Members of teams when they formed, the lead among them.
        members: Histogram(MEMBERS) = "exchange_team_members";
        /// Levels above teams when they formed: 0 at the root.
        depth: Histogram(DEPTHS) = "exchange_team_depth";
    }
}

impl TeamMetrics {
    pub(super) fn count(&self, event: &Event) {
        if let Event::TurnTaken { kind, .. } = event {
            self.turns.of(*kind).inc();
        } else if let Event::TaskEnded { mode, is_direct, is_done, .. } = event {
            let mode = match mode {
                TaskMode::Sync => "sync",
                TaskMode::Async => "async",
            };
            let by = if *is_direct { "direct" } else { "award" };
            self.tasks.of(mode, by, if *is_done { "done" } else { "failed" }).inc();
        } else if let Event::Decided(decision) = event {
            self.count_formed(decision);
        }
    }

    /// A decision that gives seats forms a team.
    fn count_formed(&self, decision: &Decision) {
        if let Some(seats) = decision.seats {
            self.members.observe(f64::from(seats.saturating_add(1)));
            self.depth.observe(f64::from(decision.negotiation.depth()));
        }
    }
}

#[cfg(test)]
mod tests {
    use policy_core::Cause;
    use prometheus::Registry;
    use schemas::delivery::CloseReason;
    use schemas::ids::Position;
    use schemas::{Digest, NegotiationId, Timestamp};

    use super::*;

    #[test]
    fn a_team_counts_when_it_forms_and_its_turns_by_how_they_were_taken() {
        let registry = Registry::new();
        let metrics = TeamMetrics::try_new(&registry).unwrap();
        let root = NegotiationId::try_new("alice~job").unwrap();
        let sub_team = NegotiationId::try_new("alice~job~s1-1").unwrap();
        metrics.count(&Event::Decided(decision(root.clone(), Some(3)).into()));
        metrics.count(&Event::Decided(decision(sub_team, Some(1)).into()));
        metrics.count(&Event::Decided(decision(root.clone(), None).into()));
        for kind in [TurnKind::Say, TurnKind::Say, TurnKind::Silence] {
            metrics.count(&Event::TurnTaken { negotiation: root.clone(), kind });
        }
        let task = root.task(1).unwrap();
        for (mode, is_direct, is_done) in [(TaskMode::Sync, true, true), (TaskMode::Async, false, false)] {
            metrics.count(&Event::TaskEnded { negotiation: task.clone(), mode, is_direct, is_done });
        }
        let tasks = [("sync", "direct", "done"), ("async", "award", "failed"), ("sync", "award", "done")];
        assert_eq!(tasks.map(|(mode, by, outcome)| metrics.tasks.of(mode, by, outcome).get()), [1, 1, 0]);
        let sums = (metrics.members.get_sample_count(), metrics.members.get_sample_sum());
        assert_eq!(sums, (2, 6.0), "four and two members");
        assert_eq!((metrics.depth.get_sample_count(), metrics.depth.get_sample_sum()), (2, 1.0));
        let turns = [TurnKind::Say, TurnKind::Silence, TurnKind::Conclude].map(|kind| metrics.turns.of(kind).get());
        assert_eq!(turns, [2, 1, 0]);
    }

    fn decision(negotiation: NegotiationId, seats: Option<u32>) -> Decision {
        Decision {
            at: Timestamp(1),
            awards: Vec::new(),
            cause: Cause::Score,
            chain: Digest([0; 32]),
            closed: CloseReason::AllResponded,
            complete: true,
            expected: 3,
            negotiation,
            offers: Vec::new(),
            policy: Digest([0; 32]),
            position: Position { seq: 1, index: 0 },
            previous: None,
            responded: 3,
            round: 1,
            seats,
        }
    }
}
