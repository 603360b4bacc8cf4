//! The invariants of DESIGN.md section 6, checked from what agents sent, were told and received: never from the
//! engine's own state, so a fault of the engine cannot hide itself.
//!
//! Each check counts how often it was made: an invariant that was never checked has not been shown.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Delivery, Disposition, News, Outcome, Told};
use schemas::{Act, AgentId, AwardNo, DeliveryId, Digest, Lot, MsgId, NegotiationId, OfferId};
use serde::Serialize;

/// The names of the invariants that agents can see broken, as in DESIGN.md section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Invariant {
    /// At most one live award per lot.
    OneAward,
    /// What was answered 202 gets a disposition.
    NoLostAdmission,
    /// Every decision can be recomputed from the log.
    Recomputable,
    /// A repeated delivery repeats its content.
    Idempotent,
    /// Only an offer that was applied, and not withdrawn before, wins.
    NoLateWinner,
    /// Every accepted offer ends in exactly one final notice.
    FinalNotice,
    /// All that are told the outcome are told the same.
    Absorbing,
    /// Every negotiation ends.
    Terminates,
    /// No contractor receives another's offer or terms.
    Sealed,
    /// What is passed on as an agent's act was sent by that agent.
    Authentic,
    /// No queue or map passed its limit.
    Bounded,
}

/// How often an invariant was checked, and how often it did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Checks made.
    pub checked: u64,
    /// Checks that failed.
    pub violated: u64,
}

/// The verdict over a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verdict {
    /// By invariant.
    pub by_name: BTreeMap<Invariant, Tally>,
    /// The first few violations, in words.
    pub examples: Vec<String>,
}

/// Violations described in words; the rest is only counted.
const EXAMPLES_MAX: usize = 20;

impl Verdict {
    /// Counts one check; `describe` is asked for words only when it failed.
    pub fn check(&mut self, invariant: Invariant, holds: bool, describe: impl FnOnce() -> String) {
        let tally = self.by_name.entry(invariant).or_default();
        tally.checked += 1;
        if !holds {
            tally.violated += 1;
            if self.examples.len() < EXAMPLES_MAX {
                self.examples.push(format!("{invariant:?}: {}", describe()));
            }
        }
    }

    /// Violations of all invariants.
    #[must_use]
    pub fn violated(&self) -> u64 {
        self.by_name.values().map(|tally| tally.violated).sum()
    }
}

#[derive(Debug, Clone, Default)]
struct OfferSeen {
    contractor: Option<AgentId>,
    rejects: BTreeSet<DeliveryId>,
}

#[derive(Debug, Clone)]
struct AwardSeen {
    contractor: AgentId,
    offer: OfferId,
    lot: Lot,
    committed: bool,
    cancelled: bool,
}

#[derive(Debug, Clone, Default)]
struct NegotiationSeen {
    admitted: BTreeSet<(AgentId, MsgId)>,
    disposed: BTreeSet<(AgentId, MsgId)>,
    offers: BTreeMap<OfferId, OfferSeen>,
    awards: BTreeMap<AwardNo, AwardSeen>,
    called: bool,
    told_closed: BTreeMap<AgentId, Outcome>,
    outcomes: BTreeSet<Outcome>,
    senders: BTreeSet<AgentId>,
    failed: BTreeSet<AgentId>,
}

/// Collects what agents saw and judges it at the end.
#[derive(Debug, Clone, Default)]
pub struct Witness {
    negotiations: BTreeMap<NegotiationId, NegotiationSeen>,
    contents: BTreeMap<DeliveryId, Digest>,
    verdict: Verdict,
}

impl Witness {
    /// An agent was told by a gateway that its message is in the log (202).
    pub fn accepted(&mut self, agent: &AgentId, msg_id: &MsgId, negotiation: &NegotiationId) {
        let seen = self.negotiations.entry(negotiation.clone()).or_default();
        seen.admitted.insert((agent.clone(), msg_id.clone()));
    }

    /// An agent sent a message, for the first time or again.
    pub fn sent(&mut self, agent: &AgentId, negotiation: &NegotiationId, act: Act) {
        let seen = self.negotiations.entry(negotiation.clone()).or_default();
        seen.senders.insert(agent.clone());
        if act == Act::Failure {
            seen.failed.insert(agent.clone());
        }
    }

    /// An agent received a delivery, for the first time or again.
    pub fn received(&mut self, agent: &AgentId, delivery: &Delivery) {
        let id = delivery.envelope.msg_id;
        let content = Digest::of_bytes(&serde_json::to_vec(delivery).unwrap_or_default());
        let first = self.contents.insert(id, content);
        self.verdict.check(Invariant::Idempotent, first.is_none_or(|first| first == content), || {
            format!("delivery {id} to {agent} changed its content")
        });
        if first.is_some() {
            return;
        }
        let seen = self.negotiations.entry(delivery.envelope.negotiation.clone()).or_default();
        if let Some(sender) = delivery.envelope.from.strip_prefix("agent://") {
            let known = AgentId::try_new(sender).is_ok_and(|sender| seen.senders.contains(&sender));
            self.verdict.check(Invariant::Authentic, known, || {
                format!("{id} says it is from {sender}, who sent nothing in {}", delivery.envelope.negotiation)
            });
        }
        seen.told(agent, delivery, &mut self.verdict);
    }

    /// Judges everything seen. Call it when traffic has stopped and every outbox has had time to drain.
    #[must_use]
    pub fn finish(mut self) -> Verdict {
        for (id, seen) in &self.negotiations {
            seen.judge(id, &mut self.verdict);
        }
        self.verdict
    }
}

impl NegotiationSeen {
    fn told(&mut self, agent: &AgentId, delivery: &Delivery, verdict: &mut Verdict) {
        let negotiation = &delivery.envelope.negotiation;
        match &delivery.payload {
            Told::Ack(receipt) => {
                // It may well arrive before the gateway's 202.
                self.disposed.insert((agent.clone(), receipt.ack_of.clone()));
                if receipt.invited.is_some() {
                    self.called = true;
                }
                if let (Disposition::Ok, Some(offer)) = (receipt.disposition, receipt.offer_id) {
                    self.offers.entry(offer).or_default().contractor = Some(agent.clone());
                }
                if let (Disposition::Committed, Some(award_no)) = (receipt.disposition, receipt.award_no)
                    && let Some(award) = self.awards.get_mut(&award_no)
                {
                    award.committed = true;
                }
            }
            Told::Accept(award) => {
                let known = self.awards.get(&award.award_no);
                verdict.check(Invariant::OneAward, known.is_none_or(|known| known.contractor == *agent), || {
                    format!("award {} of {negotiation} was given to two contractors", award.award_no)
                });
                self.awards.entry(award.award_no).or_insert_with(|| AwardSeen {
                    contractor: agent.clone(),
                    offer: award.offer_id,
                    lot: award.lot,
                    committed: false,
                    cancelled: false,
                });
            }
            Told::Reject(rejection) => {
                if let Some(offer) = rejection.offer_id {
                    self.offers.entry(offer).or_default().rejects.insert(delivery.envelope.msg_id);
                }
            }
            Told::Cancel(cancellation) => {
                if let Some(award) = self.awards.get_mut(&cancellation.award_no) {
                    award.cancelled = true;
                }
            }
            Told::Closed(closing) => {
                self.told_closed.insert(agent.clone(), closing.outcome);
                self.outcomes.insert(closing.outcome);
            }
            Told::Inform(News::Offers(_) | News::Awarded(_)) => {
                let initiator = negotiation.initiator() == agent.as_str();
                verdict.check(Invariant::Sealed, initiator, || format!("{agent} was told offers of {negotiation}"));
            }
            Told::Cfp(_) | Told::Inform(_) | Told::Failure(_) | Told::NotUnderstood(_) => {}
        }
    }

    fn judge(&self, id: &NegotiationId, verdict: &mut Verdict) {
        for message in &self.admitted {
            verdict.check(Invariant::NoLostAdmission, self.disposed.contains(message), || {
                format!("{}'s {} in {id} got no disposition", message.0, message.1)
            });
        }
        if !self.called {
            return;
        }
        let ended = self.told_closed.keys().any(|agent| agent.as_str() == id.initiator());
        verdict.check(Invariant::Terminates, ended, || format!("{id} did not end"));
        verdict.check(Invariant::Absorbing, self.outcomes.len() <= 1, || format!("{id} ended as {:?}", self.outcomes));
        self.judge_offers(id, verdict);
        self.judge_awards(id, verdict);
    }

    fn judge_offers(&self, id: &NegotiationId, verdict: &mut Verdict) {
        for (offer, seen) in &self.offers {
            let Some(contractor) = &seen.contractor else { continue };
            let award = self.awards.values().find(|award| award.offer == *offer);
            let cancels = usize::from(award.is_some_and(|award| award.cancelled));
            let closings = usize::from(
                cancels == 0 && award.is_some_and(|award| award.committed) && self.told_closed.contains_key(contractor),
            );
            let notices = seen.rejects.len() + cancels + closings;
            verdict.check(Invariant::FinalNotice, notices == 1, || {
                format!("{contractor}'s {offer} in {id} got {notices} final notices (award: {award:?})")
            });
            for other in self.awards.values().filter(|award| award.offer == *offer) {
                verdict.check(Invariant::Sealed, other.contractor == *contractor, || {
                    format!("{}'s award in {id} carries {contractor}'s offer", other.contractor)
                });
            }
        }
    }

    fn judge_awards(&self, id: &NegotiationId, verdict: &mut Verdict) {
        for (award_no, award) in &self.awards {
            let applied = self.offers.get(&award.offer).is_some_and(|offer| offer.contractor.is_some());
            verdict.check(Invariant::NoLateWinner, applied, || {
                format!("award {award_no} of {id} accepts {}, which was never applied", award.offer)
            });
        }
        let lots: BTreeSet<Lot> = self.awards.values().map(|award| award.lot).collect();
        for lot in lots {
            let live = self.awards.values().filter(|award| award.lot == lot && award.committed && !award.cancelled);
            let live = live.filter(|award| !self.failed.contains(&award.contractor)).count();
            verdict.check(Invariant::OneAward, live <= 1, || format!("lot {lot} of {id} has {live} live awards"));
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::delivery::{
        Award, Cancellation, Closing, DeliveryEnvelope, EXCHANGE, Receipt, RejectReason, Rejection,
    };
    use schemas::{Lane, Position, Timestamp, WireTime};

    use super::*;

    #[test]
    fn a_complete_round_violates_nothing() {
        let verdict = judged(&round());
        assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
        for invariant in [Invariant::OneAward, Invariant::FinalNotice, Invariant::Terminates, Invariant::NoLateWinner] {
            assert!(verdict.by_name[&invariant].checked > 0, "{invariant:?} was never checked");
        }
    }

    #[test]
    fn each_mutation_of_a_round_trips_its_invariant() {
        let drop_nth = |index: usize| {
            let mut script = round();
            script.remove(index);
            script
        };
        let plus = |agent: &str, number: u8, told: Told| {
            let mut script = round();
            script.push(received(agent, number, told));
            script
        };
        let rejected = |reason| Told::Reject(Rejection { offer_id: Some(offer(2)), reason, code: None });
        for (name, script, broken) in [
            ("no disposition", drop_nth(3), Invariant::NoLostAdmission),
            ("no reject", drop_nth(7), Invariant::FinalNotice),
            ("two rejects", plus("bob", 60, rejected(RejectReason::Outscored)), Invariant::FinalNotice),
            ("no end", drop_nth(9), Invariant::Terminates),
            ("two outcomes", plus("bob", 61, closed(Outcome::Cancelled)), Invariant::Absorbing),
            ("award to two", plus("bob", 62, accept(1, 1)), Invariant::OneAward),
            ("award of an unknown offer", plus("bob", 63, accept(2, 9)), Invariant::NoLateWinner),
            ("same id, other content", plus("bob", 8, closed(Outcome::Completed)), Invariant::Idempotent),
        ] {
            let verdict = judged(&script);
            assert!(verdict.by_name.get(&broken).is_some_and(|tally| tally.violated > 0), "{name}: {verdict:?}");
        }
    }

    #[test]
    fn two_live_commitments_on_one_lot_are_two_awards() {
        let mut script = round();
        script.push(received("bob", 70, accept(2, 2)));
        script.push(received("bob", 71, committed(2)));
        assert!(judged(&script).by_name[&Invariant::OneAward].violated > 0);
        script.push(received(
            "carl",
            72,
            Told::Cancel(Cancellation { award_no: AwardNo(1), reason: "perform_timeout".to_owned() }),
        ));
        assert_eq!(judged(&script).by_name[&Invariant::OneAward].violated, 0);
    }

    type Script = Vec<(AgentId, Observation)>;

    #[derive(Clone)]
    enum Observation {
        Accepted(MsgId),
        Received(Box<Delivery>),
    }

    /// alice calls; carl (offer 1) wins and commits, bob (offer 2) is outscored; all is well.
    fn round() -> Script {
        vec![
            accepted("alice", "call"),
            received("alice", 1, Told::Ack(Receipt { invited: Some(2), ..receipt("call", Disposition::Ok) })),
            accepted("carl", "c1"),
            received("carl", 3, Told::Ack(Receipt { offer_id: Some(offer(1)), ..receipt("c1", Disposition::Ok) })),
            accepted("bob", "b1"),
            received("bob", 4, Told::Ack(Receipt { offer_id: Some(offer(2)), ..receipt("b1", Disposition::Ok) })),
            received("carl", 5, accept(1, 1)),
            received(
                "bob",
                8,
                Told::Reject(Rejection { offer_id: Some(offer(2)), reason: RejectReason::Outscored, code: None }),
            ),
            received("carl", 6, committed(1)),
            received("alice", 7, closed(Outcome::Completed)),
            received("carl", 9, closed(Outcome::Completed)),
        ]
    }

    fn judged(script: &Script) -> Verdict {
        let mut witness = Witness::default();
        for (agent, observation) in script {
            match observation {
                Observation::Accepted(msg_id) => witness.accepted(agent, msg_id, &negotiation()),
                Observation::Received(delivery) => witness.received(agent, delivery),
            }
        }
        witness.finish()
    }

    fn negotiation() -> NegotiationId {
        NegotiationId::try_new("alice~job").unwrap()
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    fn offer(number: u64) -> OfferId {
        OfferId(Position { seq: number, index: 0 })
    }

    fn receipt(msg_id: &str, disposition: Disposition) -> Receipt {
        Receipt {
            ack_of: MsgId::try_new(msg_id).unwrap(),
            disposition,
            first: None,
            offer_id: None,
            invited: None,
            left_out: None,
            award_no: None,
        }
    }

    fn committed(award_no: u32) -> Told {
        Told::Ack(Receipt { award_no: Some(AwardNo(award_no)), ..receipt("confirm", Disposition::Committed) })
    }

    fn closed(outcome: Outcome) -> Told {
        Told::Closed(Closing { outcome, digest: Digest([0; 32]), detail: None })
    }

    fn accept(award_no: u32, number: u64) -> Told {
        Told::Accept(Award {
            offer_id: offer(number),
            lot: Lot(0),
            award_no: AwardNo(award_no),
            terms: schemas::payload::Terms::new(),
            terms_digest: Digest([0; 32]),
            payment: None,
            confirm_by: WireTime(Timestamp(0)),
        })
    }

    fn accepted(name: &str, msg_id: &str) -> (AgentId, Observation) {
        (agent(name), Observation::Accepted(MsgId::try_new(msg_id).unwrap()))
    }

    fn received(name: &str, number: u8, payload: Told) -> (AgentId, Observation) {
        let envelope = DeliveryEnvelope {
            msg_id: DeliveryId::new(Lane(0), [number; 16]),
            ts: WireTime(Timestamp(0)),
            from: EXCHANGE.to_owned(),
            to: [format!("agent://{name}")],
            negotiation: negotiation(),
            in_reply_to: None,
            traceparent: None,
        };
        (agent(name), Observation::Received(Box::new(Delivery { envelope, payload })))
    }
}
