//! How long agents take for their turns, which deadlines they miss, and which negotiations stand still. All in log time.

use std::collections::HashMap;

use policy_core::{AwardLoss, Cause, Event, Phase, Protocol};
use schemas::delivery::{CloseReason, Disposition, Outcome};
use schemas::{Act, AgentId, NegotiationId, Timestamp};

use super::{Deadline, Noticed, OTHER_POLICY, Role, policy_index};

/// Open negotiations of a lane that are followed, in at most 6 MiB; beyond, turns are not measured.
const FOLLOWED_MAX: usize = 65_536;
/// A negotiation in which nothing has happened for so long stands still, in milliseconds: twice the longest default timer.
const STILL_MS: u64 = 120_000;

/// The open negotiations of one lane. At most [`FOLLOWED_MAX`].
#[derive(Debug, Default)]
pub(super) struct Turns(HashMap<NegotiationId, Turn>);

#[derive(Debug, Clone, Copy)]
struct Turn {
    protocol: Protocol,
    /// Where the policy it is conducted under stands in [`POLICIES`](super::POLICIES).
    policy: usize,
    phase: Phase,
    /// When those whose turn it is were asked.
    asked_at: Timestamp,
    /// When something happened last.
    moved_at: Timestamp,
}

impl Turns {
    /// Follows a fact that was folded at `at`; tells what is to be counted.
    pub(super) fn follow(&mut self, event: &Event, at: Timestamp) -> Option<Noticed> {
        match event {
            Event::Started { negotiation, protocol, policy, .. } => {
                self.begin(negotiation, *protocol, protocol.phases()[0], at);
                if let Some(turn) = self.0.get_mut(negotiation) {
                    turn.policy = policy_index(policy);
                }
                None
            }
            Event::Transition { negotiation, to: Phase::Ended, .. } => {
                self.0.get_mut(negotiation)?.moved_at = at;
                None
            }
            Event::Transition { negotiation, to, .. } => {
                let protocol = Protocol::of_phase(*to)?;
                self.begin(negotiation, protocol, *to, at);
                None
            }
            Event::Disposed { negotiation, from, act, disposition, .. } => {
                self.0.get_mut(negotiation)?.handle(negotiation, from, *act, *disposition, at)
            }
            Event::Closed { negotiation, reason, complete, .. } => {
                self.ask_again(negotiation, at);
                (*reason == CloseReason::Deadline && !complete)
                    .then_some(Noticed::Miss(Protocol::ContractNet, Deadline::Collecting))
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
            Event::Ended { negotiation, outcome, .. } => missed_at_end(self.0.remove(negotiation)?, *outcome),
            Event::Committed { negotiation, .. } => {
                self.0.get_mut(negotiation)?.moved_at = at;
                None
            }
            Event::Excluded { .. } | Event::Claimed { .. } | Event::InvariantViolated { .. } => None,
        }
    }

    /// How many have stood still for long.
    pub(super) fn still(&self, now: Timestamp) -> usize {
        self.0.values().filter(|turn| turn.moved_at.plus_ms(STILL_MS) < now).count()
    }

    /// Where the policy of a negotiation stands in [`POLICIES`](super::POLICIES); the last where that is not known.
    pub(super) fn policy(&self, negotiation: &NegotiationId) -> usize {
        self.0.get(negotiation).map_or(OTHER_POLICY, |turn| turn.policy)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn begin(&mut self, negotiation: &NegotiationId, protocol: Protocol, phase: Phase, at: Timestamp) {
        let policy = self.policy(negotiation);
        let turn = Turn { protocol, policy, phase, asked_at: at, moved_at: at };
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

impl Turn {
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
        let role =
            match (self.protocol, self.phase, act) {
                (Protocol::ContractNet, Phase::Collecting, Act::Offer | Act::Refuse) => Role::Contractor,
                (Protocol::ContractNet, Phase::Deciding, Act::Accept) => Role::Initiator,
                (Protocol::ContractNet, Phase::Awarding, Act::Confirm) => Role::Contractor,
                (Protocol::AlternatingOffers, _, Act::Join | Act::Offer | Act::Accept | Act::Confirm) => {
                    if is_initiator { Role::Initiator } else { Role::Party }
                }
                _ => return None,
            };
        let took_us = at.since_us(self.asked_at);
        // An offer, or an acceptance, makes it the next party's turn.
        if self.protocol == Protocol::AlternatingOffers && matches!(act, Act::Offer | Act::Accept) {
            self.asked_at = at;
        }
        Some(Noticed::Turn(self.protocol, role, took_us))
    }
}

/// Which deadline a negotiation ended by, if by one; `turn` is how it stood before.
fn missed_at_end(turn: Turn, outcome: Outcome) -> Option<Noticed> {
    match (outcome, turn.phase) {
        (Outcome::Timeout, _) => Some(Noticed::Miss(Protocol::ContractNet, Deadline::Hard)),
        (Outcome::NoAgreement, Phase::Joining) => Some(Noticed::Miss(Protocol::AlternatingOffers, Deadline::Joining)),
        (Outcome::NoAgreement, Phase::Confirming) => {
            Some(Noticed::Miss(Protocol::AlternatingOffers, Deadline::Confirming))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_a_contract_net_count_from_when_their_state_began() {
        let mut turns = Turns::default();
        let mut follow = |event: Event, ms| turns.follow(&event, Timestamp::from_ms(ms));
        assert_eq!(follow(started(Protocol::ContractNet), 1_000), None);
        assert_eq!(
            follow(message("bob", Act::Offer, Disposition::Ok), 1_250),
            Some(Noticed::Turn(Protocol::ContractNet, Role::Contractor, 250_000))
        );
        assert_eq!(follow(message("bob", Act::Offer, Disposition::Duplicate), 1_300), None);
        assert_eq!(
            follow(message("carol", Act::Refuse, Disposition::Ok), 1_500),
            Some(Noticed::Turn(Protocol::ContractNet, Role::Contractor, 500_000))
        );
        assert_eq!(follow(moved(Phase::Collecting, Phase::Deciding), 2_000), None);
        assert_eq!(
            follow(message("alice", Act::Accept, Disposition::Ok), 2_100),
            Some(Noticed::Turn(Protocol::ContractNet, Role::Initiator, 100_000))
        );
        assert_eq!(follow(moved(Phase::Deciding, Phase::Awarding), 2_100), None);
        let confirm = message("bob", Act::Confirm, Disposition::Committed);
        assert_eq!(follow(confirm, 2_400), Some(Noticed::Turn(Protocol::ContractNet, Role::Contractor, 300_000)));
        assert_eq!(follow(ended(Protocol::ContractNet, Outcome::Completed), 3_000), None);
        assert_eq!(follow(message("bob", Act::Offer, Disposition::Ok), 3_100), None, "it is over");
    }

    #[test]
    fn each_turn_of_a_bargain_counts_from_the_one_before() {
        let mut turns = Turns::default();
        let mut follow = |event: Event, ms| turns.follow(&event, Timestamp::from_ms(ms));
        follow(started(Protocol::AlternatingOffers), 1_000);
        assert_eq!(
            follow(message("bob", Act::Join, Disposition::Ok), 1_100),
            Some(Noticed::Turn(Protocol::AlternatingOffers, Role::Party, 100_000))
        );
        follow(moved(Phase::Joining, Phase::Bargaining), 1_100);
        assert_eq!(
            follow(message("alice", Act::Offer, Disposition::Ok), 1_150),
            Some(Noticed::Turn(Protocol::AlternatingOffers, Role::Initiator, 50_000))
        );
        assert_eq!(follow(message("bob", Act::Offer, Disposition::OutOfTurn), 1_200), None);
        assert_eq!(
            follow(message("bob", Act::Accept, Disposition::Ok), 1_350),
            Some(Noticed::Turn(Protocol::AlternatingOffers, Role::Party, 200_000))
        );
    }

    #[test]
    fn a_missed_deadline_is_counted_where_it_was_waited_for() {
        let net = Protocol::ContractNet;
        let bargain = Protocol::AlternatingOffers;
        let lost = |loss| Event::AwardLost {
            negotiation: id("job"),
            lot: schemas::Lot(0),
            award_no: schemas::AwardNo(1),
            contractor: agent("bob"),
            loss,
        };
        for (protocol, before, event, expected) in [
            (net, None, closed(CloseReason::Deadline, false), Some("collecting")),
            (net, None, closed(CloseReason::Deadline, true), None),
            (net, None, closed(CloseReason::KValid, false), None),
            (net, Some(Phase::Awarding), lost(AwardLoss::ConfirmTimeout), Some("awarding")),
            (net, Some(Phase::Performing), lost(AwardLoss::PerformTimeout), Some("performing")),
            (net, Some(Phase::Awarding), lost(AwardLoss::Refused), None),
            (net, Some(Phase::Performing), ended(net, Outcome::Timeout), Some("hard")),
            (bargain, None, ended(bargain, Outcome::NoAgreement), Some("joining")),
            (bargain, Some(Phase::Bargaining), ended(bargain, Outcome::NoAgreement), None),
            (bargain, Some(Phase::Confirming), ended(bargain, Outcome::NoAgreement), Some("confirming")),
        ] {
            let mut turns = Turns::default();
            turns.follow(&started(protocol), Timestamp(1));
            if let Some(phase) = before {
                turns.follow(&moved(protocol.phases()[0], phase), Timestamp(2));
            }
            turns.follow(&moved(protocol.phases()[0], Phase::Ended), Timestamp(3));
            let missed = match turns.follow(&event, Timestamp(3)) {
                Some(Noticed::Miss(protocol, deadline)) => Some((protocol, deadline.into())),
                Some(Noticed::Turn(..)) | None => None,
            };
            assert_eq!(missed, expected.map(|phase| (protocol, phase)), "{event:?}");
        }
    }

    #[test]
    fn a_negotiation_stands_still_after_two_minutes_without_a_move_and_what_is_followed_is_bounded() {
        let mut turns = Turns::default();
        turns.follow(&started(Protocol::ContractNet), Timestamp::from_ms(1_000));
        assert_eq!(turns.still(Timestamp::from_ms(121_000)), 0);
        assert_eq!(turns.still(Timestamp::from_ms(121_001)), 1);
        turns.follow(&message("bob", Act::Offer, Disposition::Ok), Timestamp::from_ms(60_000));
        assert_eq!(turns.still(Timestamp::from_ms(121_001)), 0);
        for number in 0..=FOLLOWED_MAX {
            turns.begin(&id(&number.to_string()), Protocol::ContractNet, Phase::Collecting, Timestamp(1));
        }
        assert_eq!(turns.0.len(), FOLLOWED_MAX);
    }

    fn started(protocol: Protocol) -> Event {
        let (invited, left_out, at) = (2, 0, Timestamp(1));
        Event::Started { negotiation: id("job"), protocol, policy: "low@1".into(), invited, left_out, at }
    }

    fn message(from: &str, act: Act, disposition: Disposition) -> Event {
        let (from, score, at) = (agent(from), None, Timestamp(1));
        Event::Disposed { negotiation: id("job"), from, act, disposition, score, at }
    }

    fn moved(from: Phase, to: Phase) -> Event {
        Event::Transition { negotiation: id("job"), from, to }
    }

    fn closed(reason: CloseReason, complete: bool) -> Event {
        let (round, offers, responded, expected, at, elapsed_us) = (1, 1, 1, 2, Timestamp(1), 1);
        let negotiation = id("job");
        Event::Closed { negotiation, round, reason, complete, offers, responded, expected, at, elapsed_us }
    }

    fn ended(protocol: Protocol, outcome: Outcome) -> Event {
        let (rounds, offers, awards, at, elapsed_us) = (1, 1, 1, Timestamp(1), 1);
        let (policy, invited) = ("low@1".into(), 1);
        Event::Ended {
            negotiation: id("job"),
            protocol,
            policy,
            invited,
            outcome,
            rounds,
            offers,
            awards,
            at,
            elapsed_us,
        }
    }

    fn id(own: &str) -> NegotiationId {
        NegotiationId::form(&agent("alice"), own).unwrap()
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }
}
