//! The gauges each lane keeps; how long agents take for their turns, which deadlines they miss, and which negotiations stand
//! still. All in log time.

use std::sync::Arc;
use std::time::Duration;

use ahash::HashMap;
use policy_core::{AskKind, AwardLoss, Cause, Event, Phase, Protocol};
use prometheus::{Gauge, IntGauge};
use schemas::admission::LaneAdmission;
use schemas::delivery::{CloseReason, Disposition};
use schemas::{Act, AgentId, Lane, NegotiationId, Timestamp};

use super::protocols::{Deadline, missed_at_end, passes_turn, role_of};
use super::rounds::{OTHER_POLICY, policy_index};
use super::{EngineMetrics, Noticed, open_phases, seconds};

/// Gap between two looks for negotiations that stand still, in microseconds: each looks at every open one.
const LOOK_GAP_US: u64 = 1_000_000;

/// What one lane adds to the gauges; taken back when the lane stops. Negotiations are shown by the lane's owner only, so
/// that the sum over all engines is what there is.
pub(crate) struct LaneGauges {
    lane: Lane,
    outbox: IntGauge,
    position: IntGauge,
    overdue: Gauge,
    owned: IntGauge,
    checkpoint: IntGauge,
    evidence: IntGauge,
    admission_rate: IntGauge,
    admission_wait: Gauge,
    /// Open negotiations by state, in the order of [`open_phases`].
    open: Vec<((Protocol, Phase), i64)>,
    is_owned: bool,
    turns: Turns,
    stalled: i64,
    looked_at: Timestamp,
    metrics: Arc<EngineMetrics>,
}

impl LaneGauges {
    pub(super) fn new(metrics: &Arc<EngineMetrics>, lane: Lane) -> Self {
        let label = lane.to_string();
        Self {
            lane,
            outbox: metrics.lanes.outbox.with_label_values(&[&label]),
            position: metrics.lanes.position.with_label_values(&[&label]),
            overdue: metrics.lanes.overdue.with_label_values(&[&label]),
            owned: metrics.lanes.owned.with_label_values(&[&label]),
            checkpoint: metrics.lanes.checkpoint.with_label_values(&[&label]),
            evidence: metrics.lanes.evidence.with_label_values(&[&label]),
            admission_rate: metrics.lanes.admission_rate.with_label_values(&[&label]),
            admission_wait: metrics.lanes.admission_wait.with_label_values(&[&label]),
            open: none_open(),
            is_owned: false,
            turns: Turns::default(),
            stalled: 0,
            looked_at: Timestamp(0),
            metrics: Arc::clone(metrics),
        }
    }

    /// Follows the state of negotiations, during catch-up as well; what `counts` is counted.
    pub(crate) fn follow(&mut self, event: &Event, at: Timestamp, counts: bool) {
        if let Some(noticed) = self.turns.follow(event, at).filter(|_| counts) {
            self.metrics.negotiations.count_turn(noticed);
        }
        if counts {
            self.metrics.awards.handle(event, at);
        }
        if let Event::Started { protocol, phase, .. } = event {
            self.add((*protocol, *phase), 1);
        }
        if let Event::Transition { protocol, from, to, .. } = event {
            self.add((*protocol, *from), -1);
            self.add((*protocol, *to), 1);
        }
        if let Event::Closed { negotiation, expected, offers, elapsed_us, .. } = event
            && counts
        {
            self.metrics.rounds.count(self.turns.policy(negotiation), *expected, *offers, *elapsed_us);
        }
    }

    pub(crate) fn set(&mut self, outbox: usize, position: u64, is_owned: bool) {
        self.set_owned(is_owned);
        self.outbox.set(i64::try_from(outbox).unwrap_or(i64::MAX));
        self.position.set(i64::try_from(position).unwrap_or(i64::MAX));
    }

    /// Looks for negotiations that stand still, at most once a second of log time, and for a deadline that has passed.
    pub(crate) fn look(&mut self, now: Timestamp, deadline: Option<Timestamp>) {
        let overdue_us = deadline.filter(|_| self.is_owned).map_or(0, |deadline| now.since_us(deadline));
        self.overdue.set(seconds(overdue_us));
        // What this engine awarded is forgotten in time, whoever owns the lane by then.
        self.metrics.awards.show(now);
        if self.is_owned && now.since_us(self.looked_at) >= LOOK_GAP_US {
            self.looked_at = now;
            self.set_stalled(i64::try_from(self.turns.still(now)).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn set_evidence(&self, entries: usize) {
        self.evidence.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    /// What gateways are told; nothing where another engine owns the lane.
    pub(crate) fn set_admission(&self, told: Option<&LaneAdmission>) {
        let (rate_per_s, wait_ms) = told.map_or((0, 0), |told| (told.rate_per_s, told.wait_ms));
        self.admission_rate.set(i64::from(rate_per_s));
        self.admission_wait.set(Duration::from_millis(wait_ms.into()).as_secs_f64());
    }

    pub(crate) fn set_checkpoint(&self, position: u64) {
        self.checkpoint.set(i64::try_from(position).unwrap_or(i64::MAX));
    }

    /// Starts over from a state: protocol and phase of each negotiation it holds open.
    pub(crate) fn restart(&mut self, phases: impl Iterator<Item = (Protocol, Phase)>) {
        self.set_owned(false);
        self.open = none_open();
        self.turns.clear();
        phases.for_each(|phase| self.add(phase, 1));
    }

    /// Shows nothing of a state: the lane is not folded here.
    pub(crate) fn hide(&mut self) {
        self.restart(std::iter::empty());
        let (lanes, label) = (&self.metrics.lanes, self.lane.to_string());
        for gauge in [&lanes.outbox, &lanes.position, &lanes.checkpoint, &lanes.evidence, &lanes.admission_rate] {
            // One that is not shown already.
            let _ = gauge.remove_label_values(&[&label]);
        }
        for gauge in [&lanes.overdue, &lanes.admission_wait] {
            let _ = gauge.remove_label_values(&[&label]);
        }
    }

    fn set_owned(&mut self, is_owned: bool) {
        if self.is_owned != is_owned {
            self.is_owned = is_owned;
            self.set_stalled(0);
            self.set_admission(None);
            self.owned.set(i64::from(is_owned));
            for (gauge, (_, open)) in self.metrics.negotiations.open.iter().zip(&self.open) {
                gauge.add(if is_owned { *open } else { -open });
            }
        }
    }

    fn set_stalled(&mut self, stalled: i64) {
        self.metrics.negotiations.stalled.add(stalled - self.stalled);
        self.stalled = stalled;
    }

    fn add(&mut self, state: (Protocol, Phase), by: i64) {
        let Some((_, open)) = self.open.iter_mut().find(|(of, _)| *of == state) else { return };
        *open += by;
        debug_assert!(*open >= 0, "a negotiation leaves the state it is in");
        if self.is_owned {
            self.metrics.negotiations.open.of(state.0, state.1).add(by);
        }
    }
}

fn none_open() -> Vec<((Protocol, Phase), i64)> {
    open_phases().into_iter().map(|state| (state, 0)).collect()
}

impl Drop for LaneGauges {
    fn drop(&mut self) {
        self.outbox.set(0);
        self.overdue.set(0.0);
        self.set_owned(false);
    }
}

/// Open negotiations of a lane that are followed, in at most 8 MiB; beyond, turns are not measured.
const FOLLOWED_MAX: usize = 65_536;
/// A negotiation in which nothing has happened for so long stands still, in milliseconds: twice the longest default timer.
const STILL_MS: u64 = 120_000;

/// The open negotiations of one lane. At most [`FOLLOWED_MAX`].
#[derive(Debug, Default)]
struct Turns(HashMap<NegotiationId, Turn>);

#[derive(Debug, Clone, Copy)]
struct Turn {
    protocol: Protocol,
    /// Where the policy it is conducted under stands in `POLICIES` of `rounds.rs`.
    policy: usize,
    phase: Phase,
    /// When those whose turn it is were asked.
    asked_at: Timestamp,
    /// When something happened last.
    moved_at: Timestamp,
    /// Of a panel: the round that runs, once its first ask was seen.
    round: Option<RunningRound>,
}

/// A round of a panel.
#[derive(Debug, Clone, Copy)]
struct RunningRound {
    number: u32,
    /// Its first ask.
    began_at: Timestamp,
}

impl Turns {
    /// Follows a fact that was folded at `at`; tells what is to be counted.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest moves no deadline")]
    fn follow(&mut self, event: &Event, at: Timestamp) -> Option<Noticed> {
        match event {
            Event::Started { negotiation, protocol, phase, policy, .. } => {
                self.begin(negotiation, *protocol, *phase, at);
                if let Some(turn) = self.0.get_mut(negotiation) {
                    turn.policy = policy_index(policy);
                }
                None
            }
            Event::Transition { negotiation, to: Phase::Ended, .. } => {
                self.0.get_mut(negotiation)?.moved_at = at;
                None
            }
            Event::Transition { negotiation, protocol, to, .. } => {
                self.begin(negotiation, *protocol, *to, at);
                None
            }
            Event::Disposed { negotiation, from, act, disposition, .. } => {
                self.0.get_mut(negotiation)?.handle(negotiation, from, *act, *disposition, at)
            }
            Event::Closed { negotiation, protocol, reason, complete, .. } => {
                self.ask_again(negotiation, at);
                let is_missed = *reason == CloseReason::Deadline && !complete && *protocol == Protocol::ContractNet;
                is_missed.then_some(Noticed::Miss(Protocol::ContractNet, Deadline::Collecting))
            }
            Event::Decided(decision) => {
                self.ask_again(&decision.negotiation, at);
                (decision.cause == Cause::InitiatorSilent)
                    .then_some(Noticed::Miss(Protocol::ContractNet, Deadline::Deciding))
            }
            Event::AwardLost { negotiation, loss, .. } => {
                self.ask_again(negotiation, at);
                match loss {
                    AwardLoss::ConfirmTimeout => Some(Noticed::Miss(Protocol::ContractNet, Deadline::Awarding)),
                    AwardLoss::PerformTimeout => Some(Noticed::Miss(Protocol::ContractNet, Deadline::Performing)),
                    AwardLoss::Refused
                    | AwardLoss::Failed
                    | AwardLoss::PerformFailed
                    | AwardLoss::Undelivered
                    | AwardLoss::Cancelled
                    | AwardLoss::Timeout
                    | AwardLoss::Aborted => None,
                }
            }
            Event::Ended { negotiation, outcome, .. } => {
                let turn = self.0.remove(negotiation)?;
                missed_at_end(*outcome, turn.phase).or_else(|| turn.round.map(|round| round.ended(at)))
            }
            Event::Committed { negotiation, .. } => {
                self.0.get_mut(negotiation)?.moved_at = at;
                None
            }
            Event::Asked { negotiation, kind, round, .. } => {
                self.ask_again(negotiation, at);
                self.0.get_mut(negotiation).filter(|_| *kind == AskKind::Answer)?.begin_round(*round, at)
            }
            Event::TurnTaken { negotiation, .. } => {
                self.ask_again(negotiation, at);
                None
            }
            _ => None,
        }
    }

    /// How many have stood still for long.
    fn still(&self, now: Timestamp) -> usize {
        self.0.values().filter(|turn| turn.moved_at.plus_ms(STILL_MS) < now).count()
    }

    /// Where the policy of a negotiation stands in `POLICIES` of `rounds.rs`; the last where that is not known.
    fn policy(&self, negotiation: &NegotiationId) -> usize {
        self.0.get(negotiation).map_or(OTHER_POLICY, |turn| turn.policy)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn begin(&mut self, negotiation: &NegotiationId, protocol: Protocol, phase: Phase, at: Timestamp) {
        let policy = self.policy(negotiation);
        let round = self.0.get(negotiation).and_then(|turn| turn.round);
        let turn = Turn { protocol, policy, phase, asked_at: at, moved_at: at, round };
        if let Some(known) = self.0.get_mut(negotiation) {
            *known = turn;
        } else if self.0.len() < FOLLOWED_MAX {
            self.0.insert(negotiation.clone(), turn);
        }
    }

    fn ask_again(&mut self, negotiation: &NegotiationId, at: Timestamp) {
        if let Some(turn) = self.0.get_mut(negotiation) {
            (turn.asked_at, turn.moved_at) = (at, at);
        }
    }
}

impl RunningRound {
    fn ended(self, at: Timestamp) -> Noticed {
        Noticed::Round(at.since_us(self.began_at))
    }
}

impl Turn {
    /// Seats of a panel are asked in this round: with its first ask the round before it is over.
    fn begin_round(&mut self, number: u32, at: Timestamp) -> Option<Noticed> {
        if self.round.is_some_and(|running| running.number == number) {
            return None;
        }
        self.round.replace(RunningRound { number, began_at: at }).map(|before| before.ended(at))
    }

    /// A message of a party: was it its turn?
    fn handle(
        &mut self,
        negotiation: &NegotiationId,
        from: &AgentId,
        act: Act,
        disposition: Disposition,
        at: Timestamp,
    ) -> Option<Noticed> {
        if !matches!(disposition, Disposition::Ok | Disposition::Committed) {
            return None;
        }
        self.moved_at = at;
        let is_initiator = negotiation.initiator() == from.as_str();
        let role = role_of(self.protocol, self.phase, act, is_initiator)?;
        let took_us = at.since_us(self.asked_at);
        if passes_turn(self.protocol, act) {
            self.asked_at = at;
        }
        Some(Noticed::Turn(self.protocol, role, took_us))
    }
}

#[cfg(test)]
mod tests;
