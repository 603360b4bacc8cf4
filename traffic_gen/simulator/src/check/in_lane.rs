//! One lane, record by record: the lane's state against the naive reference, and what the fold's effects say in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use policy_core::{Deliver, Effect, Event, LaneState, Limits, NegotiationView};
use policy_reference::{Reference, fact};
use schemas::delivery::{Call, Disposition, Notification, ProgressReport};
use schemas::evidence::LaneEvidence;
use schemas::ids::FamilyPlace;
use schemas::record::{AdmittedMessage, Entry, Qos, Record};
use schemas::team::{AtConclusion, WRAP_TIMES};
use schemas::{Act, AgentId, AwardNo, Digest, Lane, Lot, MsgId, NegotiationId, Policy, Timestamp};

use super::{Caused, Collection, FoldedLog, NegotiationHistory};
use traffic_gen::invariants::{Invariant, Verdict};

/// How often a lane state is written down and read back: often enough that most runs do it, seldom enough to be free.
const RESTORE_EVERY_RECORDS: u64 = 97;

/// A lane while it is folded.
pub(super) struct InLane {
    lane_state: LaneState,
    reference: Reference,
    limits: Limits,
    lane: Lane,
    records: u64,
    live: BTreeMap<(NegotiationId, Lot), AwardNo>,
    open: BTreeMap<NegotiationId, Timestamp>,
    owed: OwedReceipts,
}

impl InLane {
    pub(super) fn new(lane: Lane, limits: &Limits) -> Self {
        Self {
            lane_state: LaneState::new(lane, limits.clone()),
            reference: Reference::new(limits),
            limits: limits.clone(),
            lane,
            records: 0,
            live: BTreeMap::new(),
            open: BTreeMap::new(),
            owed: OwedReceipts::default(),
        }
    }

    pub(super) fn digest(&self) -> Digest {
        self.lane_state.digest()
    }

    /// What panels have shown so far.
    pub(super) fn evidence(&self) -> LaneEvidence {
        self.lane_state.evidence().published(u64::MAX)
    }

    pub(super) fn view(&self, negotiation: &NegotiationId, viewer: &AgentId) -> Option<NegotiationView> {
        self.lane_state.view(negotiation, viewer)
    }

    pub(super) fn fold(
        &mut self,
        seq: u64,
        time: Timestamp,
        record: &Record,
        folded: &mut FoldedLog,
        verdict: &mut Verdict,
    ) {
        self.lane_state.handle_record(seq, time, record);
        let effects: Vec<Effect> = std::iter::from_fn(|| self.lane_state.poll_effect()).collect();
        self.compare(seq, time, record, &effects, verdict);
        self.owed.check(seq, record, &effects, verdict);
        for effect in &effects {
            self.check_absorbed(seq, effect, folded, verdict);
            self.take(seq, effect, record, folded, verdict);
        }
        self.records += 1;
        if self.records.is_multiple_of(RESTORE_EVERY_RECORDS) {
            self.restore(seq, verdict);
        }
        let (now, seen) =
            (self.lane_state.now(), self.open.iter().find(|(_, ends_by)| **ends_by < self.lane_state.now()));
        verdict.check(Invariant::Terminates, seen.is_none(), || format!("record {seq}, at {now:?}: open is {seen:?}"));
        // Tasks are bounded by their teams.
        let tasks = self.open.keys().filter(|id| matches!(id.place(), FamilyPlace::Task(_))).count();
        let bounds = self.lane_state.open_count().saturating_sub(tasks) <= self.limits.open_max
            && self.lane_state.tombstone_count() <= self.limits.tombstones_max;
        verdict.check(Invariant::Bounded, bounds, || {
            format!("lane {}: {} are open", self.lane, self.lane_state.open_count())
        });
    }

    /// Goes on with a lane state read back from a snapshot: everything that follows checks it, too.
    fn restore(&mut self, seq: u64, verdict: &mut Verdict) {
        match LaneState::restore(&self.lane_state.snapshot(), self.lane, self.limits.clone()) {
            Ok(lane_state) => {
                let is_same = lane_state.state_digest_full() == self.lane_state.state_digest_full();
                verdict.check(Invariant::Recomputable, is_same, || format!("record {seq}: restored is another state"));
                self.lane_state = lane_state;
            }
            Err(error) => verdict.check(Invariant::Recomputable, false, || format!("record {seq}: {error}")),
        }
    }

    /// What holds once everything has been folded.
    pub(super) fn finish(self, is_at_rest: bool, folded: &FoldedLog, verdict: &mut Verdict) {
        if is_at_rest {
            for (negotiation, history) in
                folded.histories.iter().filter(|(_, history)| history.ends_by > Timestamp::default())
            {
                let is_here = !self.open.contains_key(negotiation);
                verdict.check(Invariant::Terminates, is_here, || {
                    format!("{negotiation} is open in the log, to end by {:?}", history.ends_by)
                });
            }
        }
    }

    /// The lane's state against the reference.
    fn compare(&mut self, seq: u64, time: Timestamp, record: &Record, effects: &[Effect], verdict: &mut Verdict) {
        let expected = self.reference.fold(seq, time, record);
        self.reference.note(effects);
        let found = fact::facts(effects);
        verdict.check(Invariant::Recomputable, found == expected, || difference(seq, &found, &expected));
        let (open, ended) = self.reference.counts();
        let (state, wanted) = (
            (self.lane_state.open_count(), self.lane_state.tombstone_count(), self.lane_state.poll_deadline()),
            (open, ended, self.reference.deadline()),
        );
        verdict.check(Invariant::Recomputable, state == wanted, || {
            format!("record {seq}: open, ended, deadline are {state:?}, the reference says {wanted:?}")
        });
    }

    /// After the end only answers.
    fn check_absorbed(&self, seq: u64, effect: &Effect, folded: &FoldedLog, verdict: &mut Verdict) {
        let (negotiation, is_answer) = match effect {
            Effect::Deliver(deliver) => (&deliver.negotiation, deliver.in_reply_to.is_some()),
            Effect::Register(write) => (write.key.negotiation(), false),
            Effect::Event(Event::Started { negotiation, .. } | Event::Ended { negotiation, .. }) => {
                (negotiation, false)
            }
            Effect::Event(_) | Effect::Notice(_) => return,
        };
        let Some(ended_by) = folded.history(negotiation).and_then(|history| history.ended_by) else { return };
        verdict.check(Invariant::Absorbing, is_answer || seq == ended_by, || {
            format!("record {seq}, after the end of {negotiation} by record {ended_by}: {effect:?}")
        });
    }

    fn take(&mut self, seq: u64, effect: &Effect, record: &Record, folded: &mut FoldedLog, verdict: &mut Verdict) {
        match effect {
            Effect::Deliver(deliver) => {
                if let Notification::Cfp(call) = &*deliver.told {
                    let of_task = folded.policies.get(&call.policy_digest).filter(|_| call.brief.is_some()).cloned();
                    let history = folded.histories.entry(deliver.negotiation.clone()).or_default();
                    history.note_call(seq, deliver, call, record, of_task);
                    self.open.insert(deliver.negotiation.clone(), history.ends_by);
                }
                if let Notification::Inform(ProgressReport::Bid(bid)) = &*deliver.told {
                    let history = folded.histories.entry(deliver.negotiation.clone()).or_default();
                    history.reply_by.insert(1, bid.reply_by.0);
                }
                if let Notification::Floor(floor) = &*deliver.told {
                    let history = folded.histories.entry(deliver.negotiation.clone()).or_default();
                    history.seats.extend(floor.members.iter().cloned());
                }
                if let Notification::Ask(ask) = &*deliver.told {
                    let history = folded.histories.entry(deliver.negotiation.clone()).or_default();
                    history.ends_by = ask.ends_by.0;
                    self.open.insert(deliver.negotiation.clone(), history.ends_by);
                }
                let caused = Caused { seq, deliver: deliver.clone() };
                let is_new = folded.deliveries.insert(deliver.id, caused).is_none();
                verdict.check(Invariant::Idempotent, is_new, || format!("two deliveries have the id {}", deliver.id));
            }
            Effect::Register(write) => folded.writes.push((seq, write.clone())),
            Effect::Event(event) => self.happened(seq, event, folded, verdict),
            Effect::Notice(_) => {}
        }
    }

    /// A task has no call where its owner is named: it ends when its team bounds it.
    fn started(&mut self, negotiation: &NegotiationId, folded: &mut FoldedLog) {
        let FamilyPlace::Task(_) = negotiation.place() else { return };
        let above = negotiation.parent().and_then(|team| folded.histories.get(&team));
        let ends_by = above.map(|team| team.tasks_end_by).unwrap_or_default();
        folded.histories.entry(negotiation.clone()).or_default().ends_by = ends_by;
        self.open.insert(negotiation.clone(), ends_by);
    }

    fn happened(&mut self, seq: u64, event: &Event, folded: &mut FoldedLog, verdict: &mut Verdict) {
        if let Event::Closed { negotiation, .. } = event {
            folded.histories.entry(negotiation.clone()).or_default().close(seq);
        } else if let Event::Decided(decision) = event {
            folded.decisions.push(decision.clone());
            for award in &decision.awards {
                let before = self.live.insert((decision.negotiation.clone(), award.lot), award.award_no);
                verdict.check(Invariant::OneAward, before.is_none(), || {
                    format!("record {seq}: {} {award:?} while award {before:?} lives", decision.negotiation)
                });
            }
        } else if let Event::AwardLost { negotiation, lot, .. } = event {
            self.live.remove(&(negotiation.clone(), *lot));
        } else if let Event::Ended { negotiation, at, .. } = event {
            self.open.remove(negotiation);
            self.live.retain(|(of, _), _| of != negotiation);
            let history = folded.histories.entry(negotiation.clone()).or_default();
            history.close(seq);
            history.ended_by = Some(seq);
            let ends_by = history.ends_by;
            verdict.check(Invariant::Terminates, *at <= ends_by, || {
                format!("{negotiation} ended at {at:?}, its hard deadline was {ends_by:?}")
            });
        } else if let Event::InvariantViolated { negotiation, invariant, offer } = event {
            let named = match invariant {
                policy_core::Invariant::OneAward => Invariant::OneAward,
                policy_core::Invariant::NoLateWinner => Invariant::NoLateWinner,
                policy_core::Invariant::FinalNotice => Invariant::FinalNotice,
                policy_core::Invariant::TurnOrder => Invariant::TurnOrder,
            };
            verdict
                .check(named, false, || format!("record {seq}: the fold itself says so of {negotiation}, {offer:?}"));
        } else if let Event::Started { negotiation, .. } = event {
            self.started(negotiation, folded);
        }
    }
}

impl NegotiationHistory {
    fn note_call(&mut self, seq: u64, deliver: &Deliver, call: &Call, record: &Record, of_task: Option<Arc<Policy>>) {
        if self.policy.is_none() {
            let of_call = || {
                record.entries.iter().find_map(|entry| match entry {
                    Entry::Message(message) if message.negotiation == deliver.negotiation => {
                        message.pinned.as_ref().map(|pinned| pinned.policy.clone())
                    }
                    Entry::Message(_) | Entry::Tick | Entry::Engine { .. } => None,
                })
            };
            self.policy = of_task.or_else(of_call);
            self.currency = call.currency.as_ref().map(ToString::to_string);
            self.documents.clone_from(&call.documents);
            self.ends_by = call.ends_by.0;
        }
        if let Some(team) = &call.team {
            self.tasks_end_by = match team.rules.at_conclusion {
                AtConclusion::Leave => self.ends_by,
                AtConclusion::Settle | AtConclusion::Cancel => {
                    Timestamp(self.ends_by.0.saturating_sub(WRAP_TIMES * team.rules.speak_ms * 1000))
                }
            };
        }
        (self.is_bargain, self.is_team) = (call.bargain.is_some(), call.team.is_some());
        self.is_auction = call.auction.is_some();
        if call.round > self.round && !self.is_bargain && !self.is_team {
            self.round = call.round;
            self.collections.push(Collection { from_seq: seq, to_seq: u64::MAX });
        }
        self.contractors.insert(deliver.to.clone());
        let reply_by = self.reply_by.entry(call.round).or_insert(call.reply_by.0);
        *reply_by = (*reply_by).max(call.reply_by.0);
    }

    fn close(&mut self, seq: u64) {
        if let Some(collection) = self.collections.last_mut().filter(|collection| collection.to_seq == u64::MAX) {
            collection.to_seq = seq;
        }
    }
}

/// The receipts that wait, of each party of each negotiation.
#[derive(Default)]
struct OwedReceipts(BTreeMap<(NegotiationId, AgentId), Vec<MsgId>>);

impl OwedReceipts {
    /// Every logged message gets exactly one disposition: at once, unless that is a bare `ok` nobody asked for; such a one
    /// comes along with the next delivery of the negotiation.
    fn check(&mut self, seq: u64, record: &Record, effects: &[Effect], verdict: &mut Verdict) {
        let mut told: BTreeMap<(NegotiationId, AgentId, MsgId), i64> = BTreeMap::new();
        // A repeat of the message may follow the end of its negotiation in the same record, and has a receipt of its own.
        let mut told_ok = BTreeSet::new();
        for deliver in effects.iter().filter_map(delivered) {
            for receipt in deliver.receipts_told() {
                let key = (deliver.negotiation.clone(), deliver.to.clone(), receipt.ack_of.clone());
                if receipt.disposition == Disposition::Ok {
                    told_ok.insert(key.clone());
                }
                *told.entry(key).or_default() += 1;
            }
        }
        for ((negotiation, agent), owed) in &mut self.0 {
            // An ended negotiation may answer in the same record what follows its end.
            let has_ended = effects.iter().any(|effect| {
                matches!(effect, Effect::Event(Event::Ended { negotiation: ended, .. }) if ended == negotiation)
            });
            let is_told_something = effects.iter().filter_map(delivered).any(|deliver| {
                (&deliver.negotiation, &deliver.to) == (negotiation, agent)
                    && takes_receipts_along(deliver)
                    && !(has_ended && deliver.in_reply_to.is_some())
            });
            owed.retain(|msg_id| {
                let key = (negotiation.clone(), agent.clone(), msg_id.clone());
                let is_told = told_ok.contains(&key);
                if is_told && let Some(count) = told.get_mut(&key) {
                    *count -= 1;
                }
                verdict.check(Invariant::NoLostAdmission, is_told || !is_told_something, || {
                    format!("record {seq}: {agent} is told something in {negotiation}, and not that {msg_id} is ok")
                });
                !is_told
            });
        }
        self.check_messages(seq, record, effects, told, verdict);
        for effect in effects {
            if let Effect::Event(Event::Ended { negotiation, .. }) = effect {
                self.0.retain(|(of, _), _| of != negotiation);
            }
        }
        self.0.retain(|_, owed| !owed.is_empty());
    }

    /// The messages of the record against what was told beside what was owed.
    fn check_messages(
        &mut self,
        seq: u64,
        record: &Record,
        effects: &[Effect],
        mut told: BTreeMap<(NegotiationId, AgentId, MsgId), i64>,
        verdict: &mut Verdict,
    ) {
        for entry in &record.entries {
            let Entry::Message(message) = entry else { continue };
            let Ok(decoded) = message.message() else { continue };
            let msg_id = decoded.envelope.msg_id;
            let key = (message.negotiation.clone(), message.from.clone(), msg_id.clone());
            let count = told.entry(key).or_default();
            *count -= 1;
            let is_asked = message.receipts_all || decoded.envelope.receipt;
            if *count < 0 && !is_asked && effects.iter().any(|effect| is_bare_ok(effect, message)) {
                *count += 1;
                self.0.entry((message.negotiation.clone(), message.from.clone())).or_default().push(msg_id);
            }
        }
        for ((_, agent, msg_id), surplus) in told {
            verdict.check(Invariant::NoLostAdmission, surplus == 0, || {
                format!("record {seq}: {agent}'s {msg_id} got {surplus:+} dispositions too many")
            });
        }
    }
}

pub(super) fn delivered(effect: &Effect) -> Option<&Deliver> {
    if let Effect::Deliver(deliver) = effect { Some(deliver) } else { None }
}

/// Whether it is of the negotiation itself, and sure to arrive: not the answer to what cannot be read or is a stranger's.
fn takes_receipts_along(deliver: &Deliver) -> bool {
    let answers_nobody = deliver
        .told
        .receipt()
        .is_some_and(|receipt| matches!(receipt.disposition, Disposition::Malformed | Disposition::Unauthorized));
    deliver.qos == Qos::AtLeastOnce && !answers_nobody
}

/// Whether a message of this kind was applied in the record. A confirmation's receipt always names its award.
fn is_bare_ok(effect: &Effect, message: &AdmittedMessage) -> bool {
    matches!(effect, Effect::Event(Event::Disposed { negotiation, from, act, disposition: Disposition::Ok, .. })
        if (negotiation, from, *act) == (&message.negotiation, &message.from, message.act) && *act != Act::Confirm)
}

fn difference(seq: u64, found: &[String], expected: &[String]) -> String {
    let missing: Vec<_> = expected.iter().filter(|fact| !found.contains(fact)).collect();
    let surplus: Vec<_> = found.iter().filter(|fact| !expected.contains(fact)).collect();
    format!("record {seq}: the reference also says {missing:?}, and does not say {surplus:?}")
}
