//! Judges a run by what it leaves behind: the log, the register, and what agents sent, were told and received.
//!
//! Three independent witnesses are set against each other. The log is folded anew, by a fresh lane state and by the naive
//! reference, which must agree at every record. The register, the digests that engines announced and every delivery that
//! an agent received must be what that fold says. And the agents' journals must hold by themselves, whatever any fold
//! says.
//!
//! | invariant | how it is checked |
//! |---|---|
//! | one_award | in the log (no second award of a lot while one lives), in the register (no next award before the end of the one before; no ACCEPT and no `committed` received before it is registered), in inboxes (an award number names one contractor) |
//! | no_lost_admission | what was answered 202 stands in the log at that place; every logged message has one disposition: told at once, or, where it is a bare `ok` nobody asked for, with the next delivery of its negotiation; at rest each was received or given up in the log; nothing counts as acknowledged that its agent did not acknowledge |
//! | recomputable | fold = reference after every record; register = replay, byte for byte; announced digests = fold's; every delivery received = fold's; every view = the fold's at a moment between question and answer; a lane state restored in the middle ends in the same state |
//! | idempotent | a delivery id has one content; a message is applied at most once |
//! | no_late_winner | an accepted offer is the contractor's own, in time, within the gates, unexpired, not withdrawn or replaced |
//! | final_notice | at most one per accepted offer at any time, exactly one at rest and in every ended negotiation of the log |
//! | absorbing | after the end only answers, and each party is told so once; everybody is told the same outcome |
//! | terminates | no negotiation is open after its hard deadline in log time; at rest nothing is open and its initiator was told |
//! | sealed | before the close nobody receives what another's terms change; nobody reads another contractor's name, in views neither; nothing of a mandate is told, published or registered |
//! | turn_order | every standing that is told follows from strict rotation; nobody accepts its own offer; the agreement is the offer that stood last, the same for everybody, registered before it is told, within every mandate |
//! | pinned | an award pins the first of the call's protocol documents that its offer names, as both were sent; a report that is passed on names no other |
//! | authentic | every logged message was sent, byte for byte, by its sender with its own token |
//! | invited | a logged call to a topic or group invites whoever had been heard by its gateway within the lease, is durable or was asked for; and nobody else |
//! | acknowledged | whatever a gateway was told is acknowledged it passes on soon, under the agent's name, and nothing else; no engine sends again what it has heard acknowledged |
//! | bounded | queues within their limits; records within theirs |
//! | round_sealed | with another answer of a seat, everybody else is told the same until its round is over |
//! | own_rating_inert | with other ratings of a seat, its own importance in the round it rates is the same |
//! | order_free | with two answers of a wave in each other's place, a panel asks the same and finds the same |
//! | ledger_once | every ledger, the fold's and those that engines stored, is the sum of the findings told until then, and of what was said in their panels |
//! | reputation_pinned | what a call pins was said by ledgers stored before it; decisions weigh that, and panels choose their seats by it; no contractor is told |
//! | ends_by_policy | where more is called for than can be done and nothing else goes wrong, every call that ends is completed |
//! | sheds_openings | there `overloaded` is told of opening acts of who calls too much alone, and of none that was answered 202 |
//!
//! The other invariants of teams and panels, `one_floor` to `importance_conserved`, are checked by the witness alone, in inboxes and
//! in the log.
//!
//! Panics are no invariant's; [`report`](super::report) counts each as a violation of its own.
//!
//! A safety run ends amid faults, so only what must hold at any time is asked of it.

mod acknowledged;
mod admitted;
mod altered;
mod awarded;
mod evidence;
mod in_lane;
mod mandated;
mod panels;
mod received;
mod registered;
mod sealed;
mod viewed;
mod witnessed;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bus::LogRecord;
use policy_core::{Decision, Deliver, Limits, RegisterWrite};
use schemas::delivery::{Delivery, DeliveryEnvelope, Disposition, EXCHANGE, Finding, Notification, ProgressReport};
use schemas::document::CallDocuments;
use schemas::evidence::LaneEvidence;
use schemas::panel::{PanelAnswer, PanelSpec};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, RECORD_BYTES_MAX, RECORD_ENTRIES_MAX, Record};
use schemas::{
    Act, AgentId, DeliveryId, Digest, Lane, MsgId, NegotiationId, Payload, Policy, Position, RegisterKey, Timestamp,
    WireTime,
};
use traffic_gen::invariants::{Invariant, Verdict, judge_mandates_by};

use self::in_lane::InLane;
use self::viewed::Viewed;
use super::trace::{Invited, Trace};

/// The code of an abort because of another entry in the register.
const REGISTER_CONFLICT: &str = "register_conflict";

/// Judges a run.
pub fn check(trace: &Trace) -> Verdict {
    judge_mandates_by(policy_reference::is_inside);
    let mut verdict = Verdict::default();
    let folded = FoldedLog::of(trace, &mut verdict);
    admitted::check(trace, &folded, &mut verdict);
    registered::check(trace, &folded, &mut verdict);
    received::check(trace, &folded, &mut verdict);
    awarded::check(trace, &folded, &mut verdict);
    sealed::check(trace, &folded, &mut verdict);
    mandated::check(trace, &folded, &mut verdict);
    panels::check(trace, &folded, &mut verdict);
    evidence::check(trace, &folded, &mut verdict);
    check_invited(trace, &mut verdict);
    acknowledged::check(trace, &mut verdict);
    viewed::check(trace, &folded, &mut verdict);
    witnessed::check(trace, &folded, &mut verdict);
    for (what, load) in &trace.loads {
        let limit = load.limit + if load.is_asked_between_records { folded.deliveries_per_record_max() } else { 0 };
        verdict.check(Invariant::Bounded, load.seen_max <= limit, || {
            format!("{what} held {}, at most {limit} are allowed", load.seen_max)
        });
    }
    for what in &trace.unfinished {
        verdict.check(Invariant::Terminates, false, || what.clone());
    }
    verdict
}

/// Checks of every call that was logged to a topic or group whom it invited, against what had arrived at its gateway.
fn check_invited(trace: &Trace, verdict: &mut Verdict) {
    for Invited { seq, negotiation, found, must, must_not } in &trace.invited {
        let missing: Vec<_> = must.difference(found).collect();
        let surplus: Vec<_> = must_not.intersection(found).collect();
        verdict.check(Invariant::Invited, missing.is_empty() && surplus.is_empty(), || {
            format!("record {seq}: {negotiation} left out {missing:?}, and invited {surplus:?}")
        });
    }
}

/// A message as it stands in the log.
#[derive(Debug, Clone)]
struct Logged {
    message: AdmittedMessage,
    /// Absent when the body cannot be read.
    msg_id: Option<MsgId>,
    time: Timestamp,
}

/// A delivery the log leads to.
#[derive(Debug, Clone)]
struct Caused {
    /// Sequence of the record that causes it.
    seq: u64,
    deliver: Deliver,
}

impl Caused {
    /// What its recipient is to receive.
    fn delivery(&self) -> Delivery {
        let deliver = &self.deliver;
        let envelope = DeliveryEnvelope {
            msg_id: deliver.id,
            ts: WireTime(deliver.at),
            from: deliver.from.as_ref().map_or(EXCHANGE.to_owned(), |agent| format!("agent://{agent}")),
            to: [format!("agent://{}", deliver.to)],
            negotiation: deliver.negotiation.clone(),
            in_reply_to: deliver.in_reply_to.clone(),
            traceparent: deliver.traceparent.as_deref().map(str::to_owned),
        };
        Delivery { envelope, payload: (*deliver.told).clone(), receipts: deliver.receipts.to_vec() }
    }
}

/// When offers were collected: from the record that called to the one that closed, or ended.
#[derive(Debug, Clone, Copy)]
struct Collection {
    from_seq: u64,
    to_seq: u64,
}

/// One negotiation, as the fold has it.
#[derive(Debug, Clone, Default)]
struct NegotiationHistory {
    /// The policy its first record pinned.
    policy: Option<Arc<Policy>>,
    contractors: BTreeSet<AgentId>,
    currency: Option<String>,
    documents: Option<CallDocuments>,
    /// Whether parties make offers in turn, instead of contractors to be chosen from: nothing is collected then.
    is_bargain: bool,
    /// Whether its members speak in turn: nothing is collected then.
    is_team: bool,
    /// Those members, also when they have left.
    seats: BTreeSet<AgentId>,
    /// Whether bids are told to everybody.
    is_auction: bool,
    round: u32,
    ends_by: Timestamp,
    /// Of a team: when its tasks have ended at the latest.
    tasks_end_by: Timestamp,
    /// Until when an offer of each round may come.
    reply_by: BTreeMap<u32, Timestamp>,
    collections: Vec<Collection>,
    /// Sequence of the record that ended it.
    ended_by: Option<u64>,
}

/// The whole log, folded anew: what it holds and everything it leads to.
#[derive(Debug, Default)]
struct FoldedLog {
    messages: BTreeMap<Position, Logged>,
    deliveries: BTreeMap<DeliveryId, Caused>,
    /// Each write the log leads to, in the order of each lane, with the sequence of its record.
    writes: Vec<(u64, RegisterWrite)>,
    decisions: Vec<Arc<Decision>>,
    histories: BTreeMap<NegotiationId, NegotiationHistory>,
    /// Every policy that a record pins, by its digest.
    policies: BTreeMap<Digest, Arc<Policy>>,
    /// Epoch of each lane, as far as its log has been read.
    epochs: BTreeMap<Lane, u64>,
    /// Deliveries the log says were given up, by the engine that owned the lane then.
    given_up: BTreeSet<DeliveryId>,
    /// Negotiations the log says were stopped because the register holds another value, by the lane's owner then.
    conflicted: BTreeSet<NegotiationId>,
    /// Keys of writes that the register refuses: another history has written there, or under the key they wait for.
    refused: BTreeSet<RegisterKey>,
    /// Deliveries the log says were acknowledged.
    acknowledged: BTreeSet<DeliveryId>,
    /// State digests after the records for which engines announced one.
    digests: BTreeMap<(Lane, u64), Digest>,
    /// What panels have shown, when the whole log of a lane has been folded.
    ledgers: BTreeMap<Lane, LaneEvidence>,
}

impl FoldedLog {
    /// The most deliveries that one record leads to.
    fn deliveries_per_record_max(&self) -> u64 {
        let mut count_by_seq: BTreeMap<u64, u64> = BTreeMap::new();
        self.deliveries.values().for_each(|caused| *count_by_seq.entry(caused.seq).or_default() += 1);
        count_by_seq.into_values().max().unwrap_or_default()
    }

    /// Folds every lane of a trace, and checks what can be checked record by record.
    fn of(trace: &Trace, verdict: &mut Verdict) -> Self {
        let mut folded = Self::default();
        let announced: BTreeSet<(Lane, u64)> =
            trace.digests.iter().map(|announced| (announced.lane, announced.position)).collect();
        for lane in (0..trace.lanes).map(Lane) {
            let mut in_lane = InLane::new(lane, &trace.limits);
            let mut viewed = Viewed::of(trace, lane);
            viewed.compare(0, &in_lane, verdict);
            for found in trace.records.iter().filter(|record| record.lane == lane) {
                let Some(record) = readable(found, verdict) else { continue };
                folded.note_entries(found, &record, trace.lanes, verdict);
                in_lane.fold(found.seq, found.time, &record, &mut folded, verdict);
                viewed.compare(found.seq, &in_lane, verdict);
                if announced.contains(&(lane, found.seq)) {
                    folded.digests.insert((lane, found.seq), in_lane.digest());
                }
            }
            viewed.finish(verdict);
            folded.ledgers.insert(lane, in_lane.evidence());
            in_lane.finish(trace.is_liveness, &folded, verdict);
        }
        folded.note_refused(trace);
        folded
    }

    fn note_refused(&mut self, trace: &Trace) {
        for (_, RegisterWrite { key, after, .. }) in &self.writes {
            if trace.foreign.contains(key) || after.as_ref().is_some_and(|after| self.refused.contains(after)) {
                self.refused.insert(key.clone());
            }
        }
    }

    fn note_entries(&mut self, found: &LogRecord, record: &Record, lanes: u8, verdict: &mut Verdict) {
        for (index, entry) in (0..).zip(&record.entries) {
            match entry {
                Entry::Message(message) => {
                    let computed = Digest::of_bytes(message.body.get().as_bytes());
                    verdict.check(Invariant::Recomputable, computed == message.digest, || {
                        format!(
                            "the body of {}.{index} has digest {computed}, recorded is {}",
                            found.seq, message.digest
                        )
                    });
                    let family = family_lane(&message.negotiation, lanes);
                    verdict.check(Invariant::Recomputable, family == Some(found.lane), || {
                        format!("{} stands in lane {}, its family in {family:?}", message.negotiation, found.lane)
                    });
                    if let Some(pinned) = &message.pinned {
                        self.policies.insert(pinned.policy_digest, Arc::clone(&pinned.policy));
                        let of_tasks = pinned.task_policy.iter();
                        self.policies.extend(of_tasks.map(|tasks| (tasks.digest, Arc::clone(&tasks.policy))));
                    }
                    let msg_id = message.message().ok().map(|decoded| decoded.envelope.msg_id);
                    let logged = Logged { message: message.clone(), msg_id, time: found.time };
                    self.messages.insert(Position { seq: found.seq, index }, logged);
                }
                Entry::Engine { epoch, event } => self.note_engine(found.lane, *epoch, event),
                Entry::Tick => {}
            }
        }
    }

    fn note_engine(&mut self, lane: Lane, epoch: u64, event: &EngineEvent) {
        let current = self.epochs.entry(lane).or_default();
        match event {
            EngineEvent::Claim { .. } => *current = epoch.max(*current),
            EngineEvent::Delivered { ids, .. } => self.acknowledged.extend(ids),
            EngineEvent::DeliveryFailed { id, .. } if epoch >= *current => {
                self.given_up.insert(*id);
            }
            EngineEvent::Abort { negotiation, code } if epoch >= *current && code == REGISTER_CONFLICT => {
                self.conflicted.insert(negotiation.clone());
            }
            EngineEvent::DeliveryFailed { .. } | EngineEvent::Abort { .. } | EngineEvent::Rules { .. } => {}
        }
    }

    /// Whether a negotiation is known to be a bargain.
    fn is_bargain(&self, negotiation: &NegotiationId) -> bool {
        self.history(negotiation).is_some_and(|history| history.is_bargain)
    }

    /// Whether what a delivery answers is known again when it is said again: of an ended negotiation, only so many messages
    /// of each party are remembered.
    fn remembers(&self, agent: &AgentId, caused: &Caused, limits: &Limits) -> bool {
        let negotiation = &caused.deliver.negotiation;
        let has_ended =
            self.history(negotiation).and_then(|history| history.ended_by).is_some_and(|end| end < caused.seq);
        let said = |logged: &&Logged| logged.message.from == *agent && logged.message.negotiation == *negotiation;
        !has_ended || self.messages.values().filter(said).count() <= limits.messages_per_party_max
    }

    /// The findings of panels, with the record that ends each.
    fn findings(&self) -> impl Iterator<Item = (u64, &NegotiationId, &Finding)> {
        self.deliveries.values().filter_map(|Caused { seq, deliver }| {
            let Notification::Inform(ProgressReport::Finding(finding)) = &*deliver.told else { return None };
            Some((*seq, &deliver.negotiation, &**finding))
        })
    }

    /// The answers in panels that were taken, in the order of the log.
    fn taken_answers(&self) -> Vec<(Position, &Logged, PanelAnswer)> {
        let mut taken: BTreeSet<(&NegotiationId, &AgentId, &MsgId)> = BTreeSet::new();
        for Caused { deliver, .. } in self.deliveries.values() {
            let receipts = deliver.receipts_told();
            let receipts = receipts.filter(|told| told.first.unwrap_or(told.disposition) == Disposition::Ok);
            taken.extend(receipts.map(|receipt| (&deliver.negotiation, &deliver.to, &receipt.ack_of)));
        }
        let answers = self.messages.iter().filter(|(_, logged)| logged.message.act == Act::Answer);
        let taken = answers.filter_map(|(position, logged)| {
            let AdmittedMessage { negotiation, from, .. } = &logged.message;
            // What is said again under the same id is nothing new.
            let is_new = taken.remove(&(negotiation, from, logged.msg_id.as_ref()?));
            let message = logged.message.message().ok().filter(|_| is_new)?;
            let Payload::Answer(said) = message.payload else { return None };
            Some((*position, logged, *said))
        });
        taken.collect()
    }

    /// The rules of the panels that were called.
    fn panel_rules(&self) -> BTreeMap<&NegotiationId, PanelSpec> {
        let calls = self.messages.values().filter(|logged| logged.message.act == Act::Cfp);
        let rules = calls.filter_map(|logged| {
            let Payload::Cfp(call) = logged.message.message().ok()?.payload else { return None };
            Some((&logged.message.negotiation, *call.panel?))
        });
        rules.collect()
    }

    /// What a record tells in a negotiation.
    fn told(&self, seq: u64, negotiation: &NegotiationId) -> impl Iterator<Item = &Deliver> {
        let here = self.deliveries.values().filter(move |caused| caused.seq == seq).map(|caused| &caused.deliver);
        here.filter(move |deliver| deliver.negotiation == *negotiation)
    }

    /// The history of a negotiation that is known.
    fn history(&self, negotiation: &NegotiationId) -> Option<&NegotiationHistory> {
        self.histories.get(negotiation)
    }
}

impl NegotiationHistory {
    /// Whether a record lies strictly within a collection: after its call and before its close.
    fn is_collecting(&self, seq: u64) -> bool {
        self.collections.iter().any(|collection| collection.from_seq < seq && seq < collection.to_seq)
    }
}

/// The lane of whoever is at the root of a family.
fn family_lane(negotiation: &NegotiationId, lanes: u8) -> Option<Lane> {
    let root: Vec<&str> = negotiation.as_str().split('~').take(2).collect();
    NegotiationId::try_new(&root.join("~")).ok().map(|root| root.lane(lanes))
}

/// A record that engines can read; they skip the others.
fn readable(found: &LogRecord, verdict: &mut Verdict) -> Option<Record> {
    let record = Record::decode(&found.bytes).ok()?;
    // An entry larger than a record should be stands alone.
    let fits = record.entries.len() <= 1 || found.bytes.len() <= RECORD_BYTES_MAX;
    verdict.check(Invariant::Bounded, fits && record.entries.len() <= RECORD_ENTRIES_MAX, || {
        format!("record {} has {} entries in {} bytes", found.seq, record.entries.len(), found.bytes.len())
    });
    Some(record)
}
