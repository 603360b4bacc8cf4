//! The order in which messages are judged (docs/spec/messages.md#ms-32 to #ms-38): every message that reaches an open
//! negotiation, of whichever protocol, is judged in one order, gets exactly one disposition, and is answered alike when
//! it comes again.
//!
//! Who takes part is found before, ended negotiations answer by their tombstones; repeats, order and the limit of messages are
//! judged here, and the rest is each protocol's: `judge` finds the verdict and changes nothing, `follow` does what follows from it.

use std::sync::Arc;

use schemas::delivery::{Cancellation, Disposition, Notification, Outcome, Receipt, RejectReason, Rejection};
use schemas::ids::Capability;
use schemas::panel::SeatChoice;
use schemas::payload::{INTEGER_MAX, Offer};
use schemas::record::Qos;
use schemas::{Act, AgentId, AwardNo, DeliveryId, Digest, MsgId, OfferId, Payload, RegisterKey, Timestamp};

use crate::acceptance::gate::GateFault;
use crate::effect::{Deliver, Effect, Event};
use crate::limits::Limits;
use crate::negotiation::Header;
use crate::negotiation::misunderstanding::ActSet;
use crate::negotiation::protocols::{Timer, TimerKind};
use crate::negotiation::tombstone::Tombstone;
use crate::negotiation::view::NegotiationView;
use crate::negotiation::{BesideReceipt, FollowUp, Party, Repeat, SeenMessage};
use crate::negotiation::{InputContext, Opening, Refusal, Ruling};
use crate::policy::PinnedPolicy;
use schemas::protocols::{Phase, Protocol};

/// A message on its way to a negotiation.
pub(crate) struct Incoming {
    pub(crate) from: AgentId,
    pub(crate) digest: Digest,
    pub(crate) msg_id: MsgId,
    pub(crate) seq: Option<u64>,
    pub(crate) payload: Payload,
    /// Whether its sender asked for a receipt even if it says no more than `ok`.
    pub(crate) wants_receipt: bool,
    /// The policy a gateway pinned to it, if it is one that can be followed.
    pub(crate) policy: Option<Arc<PinnedPolicy>>,
    /// The sender's capabilities, as a gateway knew them.
    pub(crate) capabilities: Vec<Capability>,
    /// Of an ASSIGN: how many more negotiations its family may open.
    pub(crate) room: usize,
    /// Of a CANCEL: whether its sender leads the team whose task it is for.
    pub(crate) leads: bool,
}

/// What the receipt of a message says of the change it made.
pub(crate) struct ReceiptChange {
    pub(crate) step: u32,
    pub(crate) turn: u32,
    pub(crate) tasks: Vec<u32>,
}

/// The accessors of a state with the fields `header` and `phase`, or of one whose field named has them.
macro_rules! header_and_phase {
    ($($field:ident)?) => {
        fn header(&self) -> &Header {
            &self.$($field.)?header
        }

        fn header_mut(&mut self) -> &mut Header {
            &mut self.$($field.)?header
        }

        fn phase(&self) -> Phase {
            self.$($field.)?phase
        }

        fn phase_mut(&mut self) -> &mut Phase {
            &mut self.$($field.)?phase
        }
    };
}
pub(crate) use header_and_phase;

/// A negotiation as the order of judgement sees it.
pub(crate) trait ProtocolRules {
    /// Which party speaks.
    type Speaker: Copy;
    /// What follows from a message; by default nothing.
    type Action: Default;

    const PROTOCOL: Protocol;
    /// What follows from a strike.
    const STRIKE: Self::Action;

    fn header(&self) -> &Header;
    fn header_mut(&mut self) -> &mut Header;
    fn phase(&self) -> Phase;
    fn phase_mut(&mut self) -> &mut Phase;
    /// What a participant may see at an instant of log time; absent for whoever takes no part.
    fn view(&self, viewer: &AgentId, now: Timestamp) -> Option<NegotiationView>;
    /// The timer that is due first.
    fn next_timer(&self) -> Option<Timer>;
    /// What a timer of its own does.
    fn fire(&mut self, timer: TimerKind, context: &mut InputContext<'_>);
    /// `T_hard`: whatever it waits for has not come in time.
    fn handle_hard_deadline(&mut self, context: &mut InputContext<'_>);
    /// An engine met a register conflict, or a panic: nothing more may be awarded, agreed on or found.
    fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>);
    /// What is left of it, once it has ended.
    fn tombstone(&self, limits: &Limits) -> Tombstone;
    fn header_and_parties(&mut self) -> (&mut Header, Vec<&mut Party>);
    /// What the fold relies on between the fields, and a snapshot might not keep.
    fn check(&self) -> Result<(), &'static str>;
    /// The party an agent is; absent when it takes no part.
    fn speaker(&self, agent: &AgentId) -> Option<Self::Speaker>;
    fn party(&self, speaker: Self::Speaker) -> &Party;
    fn party_mut(&mut self, speaker: Self::Speaker) -> &mut Party;
    /// Parties but the initiator.
    fn invited(&self) -> usize;
    /// Most messages of one party that are remembered; further ones are answered `rate_limited`.
    fn messages_max(&self, limits: &Limits) -> usize {
        limits.messages_per_party_max
    }
    /// Whether a message ends the negotiation whatever state it is in: such a one is taken beyond
    /// [`ProtocolRules::messages_max`], because no other can follow it.
    fn leaves(&self, speaker: Self::Speaker, payload: &Payload) -> bool;
    /// Whether an offer with this disposition was given an id its sender may refer to. Where there are no offers, none has
    /// such a one.
    fn is_numbered(disposition: Disposition) -> bool {
        matches!(disposition, Disposition::Ok | Disposition::Late | Disposition::PolicyReject)
    }
    /// What a gate of its policy is called, where there are gates.
    fn gate_code(&self, _: GateFault) -> String {
        Self::PROTOCOL.as_str().to_owned()
    }
    /// Something was heard of a party, whatever it is.
    fn hear(&mut self, _: Self::Speaker, _: &InputContext<'_>) {}
    /// What the message meets in the table of acts and states.
    fn judge(
        &self,
        speaker: Self::Speaker,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<Ruling<Self::Action>, Refusal>;
    /// What a party could legally have said: `expected` of a NOT_UNDERSTOOD.
    fn expected_acts(&self, speaker: Self::Speaker) -> ActSet;
    /// What must be registered before the receipt leaves: the award it is for, and the key it then waits for.
    fn register(&mut self, _: &Self::Action, _: &mut InputContext<'_>) -> Option<(AwardNo, Option<RegisterKey>)> {
        None
    }
    /// The key the receipt of a CONFIRM waits for.
    fn commitment_key(&self, _: AwardNo) -> Option<RegisterKey> {
        None
    }
    /// Whether the receipt of what leads to this tells its sender of the change, so that it leaves at once.
    fn tells_by_receipt(&self, _: &Self::Action) -> bool {
        false
    }
    /// The change that was just made; absent where the negotiation is over.
    fn receipt_change(&self) -> Option<ReceiptChange> {
        None
    }
    /// What choosing its seats came to, of a panel that does.
    fn seat_choice(&self) -> Option<SeatChoice> {
        None
    }
    /// Does what follows.
    fn follow(&mut self, speaker: Self::Speaker, action: Self::Action, context: &mut InputContext<'_>);
    /// The policies it shares with others.
    fn policies(&self) -> Vec<&Arc<PinnedPolicy>> {
        Vec::new()
    }
    /// A delivery was given up; its recipient may still answer, or not.
    fn handle_delivery_failure(&mut self, _: DeliveryId, _: &AgentId, _: bool, _: &mut InputContext<'_>) {}

    fn protocol(&self) -> Protocol {
        Self::PROTOCOL
    }

    /// The state changes.
    fn enter(&mut self, phase: Phase, context: &mut InputContext<'_>) {
        let from = self.phase();
        debug_assert!(from != Phase::Ended, "a negotiation that has ended never changes");
        if from != phase {
            let (negotiation, protocol) = (self.header().id.clone(), context.protocol);
            context.event(Event::Transition { negotiation, protocol, from, to: phase });
            *self.phase_mut() = phase;
        }
    }

    /// Tells everybody who is to know that it has begun.
    fn announce(&self, policy: &Arc<str>, reply_by: Timestamp, context: &mut InputContext<'_>) {
        let (header, invited) = (self.header(), u32::try_from(self.invited()).unwrap_or(u32::MAX));
        header.announce(invited, reply_by, context);
        context.event(Event::Started {
            negotiation: header.id.clone(),
            protocol: context.protocol,
            phase: self.phase(),
            policy: Arc::clone(policy),
            invited,
            left_out: header.left_out,
            at: context.now,
        });
    }

    /// Enters the terminal state, once everybody is told.
    fn finish(
        &mut self,
        outcome: Outcome,
        policy: Arc<str>,
        (rounds, offers, awards): (u32, u32, u32),
        context: &mut InputContext<'_>,
    ) {
        self.enter(Phase::Ended, context);
        context.event(Event::Ended {
            negotiation: self.header().id.clone(),
            protocol: context.protocol,
            policy,
            invited: u32::try_from(self.invited()).unwrap_or(u32::MAX),
            outcome,
            rounds,
            offers,
            awards,
            at: context.now,
            elapsed_us: context.now.since_us(self.header().started_at),
        });
    }

    /// The ruling on a message that is not followed.
    fn refused(&self, speaker: Self::Speaker, refusal: Refusal) -> Ruling<Self::Action> {
        let Refusal { disposition, reply, is_strike } = refusal.expecting(|| self.expected_acts(speaker));
        let action = if is_strike { Self::STRIKE } else { Self::Action::default() };
        Ruling { action, ..Ruling::refused(disposition, reply) }
    }

    /// Folds one message. False when its sender takes no part; nothing has changed then.
    fn handle_message(&mut self, incoming: &Incoming, context: &mut InputContext<'_>) -> bool {
        let Some(speaker) = self.speaker(&incoming.from) else { return false };
        self.header_mut().link(&incoming.digest.0, context);
        self.hear(speaker, context);
        let party = self.party(speaker);
        let repeat = party.repeat(&incoming.msg_id, incoming.digest, incoming.seq);
        let is_last = repeat == Repeat::New && self.leaves(speaker, &incoming.payload);
        let is_over = party.seen.len() >= self.messages_max(context.limits) && !is_last;
        match repeat {
            Repeat::Duplicate(first) => self.answer_again(speaker, first, Disposition::Duplicate, context),
            Repeat::Conflict(first) => self.answer_again(speaker, first, Disposition::Conflict, context),
            Repeat::Stale | Repeat::New if is_over => {
                let seen = seen_of(incoming, Disposition::RateLimited, None, context);
                self.answer(speaker, &seen, context);
            }
            Repeat::Stale => {
                self.settle(speaker, incoming, Ruling::refused(Disposition::StaleSeq, FollowUp::None), context);
            }
            Repeat::New => {
                let judged = self.judge(speaker, incoming, context);
                let verdict = judged.unwrap_or_else(|refusal| self.refused(speaker, refusal));
                self.settle(speaker, incoming, verdict, context);
            }
        }
        true
    }

    /// Remembers the message, answers it, and does what follows.
    fn settle(
        &mut self,
        speaker: Self::Speaker,
        incoming: &Incoming,
        verdict: Ruling<Self::Action>,
        context: &mut InputContext<'_>,
    ) {
        let Ruling { disposition, reply, action, score } = verdict;
        // `committed` may leave only once the end entry stands in the register, so that write comes first.
        let (award_no, after) = self.register(&action, context).unzip();
        let award_no = award_no.or(reply.revoked_award());
        let seen = seen_of(incoming, disposition, BesideReceipt::of(reply, award_no), context);
        let receipt = self.receipt(&seen, seen.disposition, None);
        let is_telling = self.tells_by_receipt(&action);
        let mut told_at = None;
        if receipt.is_bare() && !incoming.wants_receipt && !is_telling {
            let party = self.party_mut(speaker);
            party.remember(seen.clone(), incoming.seq);
            party.waiting += 1;
            // Its ordinal is not given to another delivery: no id depends on who asks for receipts.
            context.ordinal += 1;
        } else {
            // Those that wait are of the last messages remembered, so they leave before another is.
            let receipts = self.take_waiting(speaker);
            self.party_mut(speaker).remember(seen.clone(), incoming.seq);
            told_at = is_telling.then_some(context.out.len());
            self.send_receipt(speaker, receipt, receipts, after.flatten(), context);
        }
        self.reply(speaker, &seen, context);
        self.note(speaker, &seen, score, context);
        self.follow(speaker, action, context);
        if let (Some(index), Some(change)) = (told_at, self.receipt_change()) {
            complete_receipt(context.out.get_mut(index), change);
        }
    }

    /// Answers a message that is not remembered.
    fn answer(&self, speaker: Self::Speaker, seen: &SeenMessage, context: &mut InputContext<'_>) {
        let receipt = self.receipt(seen, seen.disposition, None);
        self.send_receipt(speaker, receipt, Box::default(), None, context);
        self.note(speaker, seen, None, context);
    }

    /// A duplicate: its disposition names the first one's, whose reply is repeated. A conflict: the first stands.
    fn answer_again(
        &mut self,
        speaker: Self::Speaker,
        first: usize,
        disposition: Disposition,
        context: &mut InputContext<'_>,
    ) {
        let seen = self.party(speaker).seen[first].clone();
        let receipt = self.receipt(&seen, disposition, Some(seen.disposition));
        let after = match (seen.disposition, seen.award_no()) {
            (Disposition::Committed, Some(award_no)) => self.commitment_key(award_no),
            _ => None,
        };
        self.send_receipt(speaker, receipt, Box::default(), after, context);
        if disposition == Disposition::Duplicate {
            self.reply(speaker, &seen, context);
        }
        self.note(speaker, &SeenMessage { disposition, ..seen }, None, context);
    }

    /// The receipt of a message.
    fn receipt(&self, seen: &SeenMessage, disposition: Disposition, first: Option<Disposition>) -> Receipt {
        let is_call = seen.act == Act::Cfp && seen.disposition == Disposition::Ok;
        let is_offer = seen.act == Act::Offer && Self::is_numbered(seen.disposition);
        Receipt {
            first,
            offer_id: is_offer.then_some(OfferId(seen.position())),
            invited: is_call.then(|| u32::try_from(self.invited()).unwrap_or(u32::MAX)),
            left_out: is_call.then_some(self.header().left_out),
            seats: self.seat_choice().filter(|_| is_call),
            award_no: seen.award_no(),
            ..Receipt::new(seen.msg_id.clone(), disposition)
        }
    }

    /// Remembers the call that opened the negotiation, and answers it.
    fn acknowledge_call(&mut self, initiator: Self::Speaker, opening: &Opening<'_>, context: &mut InputContext<'_>) {
        let seen = SeenMessage {
            msg_id: opening.envelope.msg_id.clone(),
            digest: opening.admitted.digest.short(),
            act: Act::Cfp,
            disposition: Disposition::Ok,
            beside: None,
            seq: context.position.seq,
            index: context.position.index,
            at: context.now,
        };
        let receipt = self.receipt(&seen, Disposition::Ok, None);
        self.send_receipt(initiator, receipt, Box::default(), None, context);
        self.party_mut(initiator).remember(seen, opening.envelope.seq);
    }

    fn send_receipt(
        &self,
        speaker: Self::Speaker,
        receipt: Receipt,
        receipts: Box<[Receipt]>,
        after: Option<RegisterKey>,
        context: &mut InputContext<'_>,
    ) {
        let in_reply_to = Some(receipt.ack_of.clone());
        let delivery = self.header().delivery(context, &self.party(speaker).agent, Notification::Ack(receipt));
        context.deliver(Deliver { in_reply_to, after, receipts, ..delivery });
    }

    /// The receipts that wait for a party: none does any longer.
    fn take_waiting(&mut self, speaker: Self::Speaker) -> Box<[Receipt]> {
        let waiting = self.party(speaker).waiting().iter();
        let receipts = waiting.map(|seen| self.receipt(seen, seen.disposition, None)).collect();
        self.party_mut(speaker).waiting = 0;
        receipts
    }

    /// Lets receipts that wait leave with the first delivery to their party that the input has made; not with one that is
    /// sent only once (docs/spec/messages.md#ms-56). `first_effect` is where the effects of the input begin.
    fn attach_receipts(&mut self, first_effect: usize, context: &mut InputContext<'_>) {
        for effect in context.out.range_mut(first_effect..) {
            if let Effect::Deliver(deliver) = effect
                && deliver.qos == Qos::AtLeastOnce
                && let Some(speaker) = self.speaker(&deliver.to)
                && self.party(speaker).waiting > 0
            {
                deliver.receipts = self.take_waiting(speaker);
            }
        }
    }

    fn reply(&self, speaker: Self::Speaker, seen: &SeenMessage, context: &mut InputContext<'_>) {
        let reject =
            |reason, code| Notification::Reject(Rejection { offer_id: Some(OfferId(seen.position())), reason, code });
        let told = match seen.reply() {
            // In a negotiation that goes on, `closed` concerns collection only: there is no outcome to tell.
            FollowUp::None | FollowUp::Closed => None,
            FollowUp::Late => Some(reject(RejectReason::Late, None)),
            FollowUp::Policy(fault) => Some(reject(RejectReason::Policy, Some(self.gate_code(*fault)))),
            misread @ (FollowUp::NotUnderstood(..) | FollowUp::Pointed(_)) => {
                misread.misunderstanding().map(Notification::NotUnderstood)
            }
            FollowUp::Revoked(award_no) => {
                Some(Notification::Cancel(Cancellation { award_no: *award_no, reason: "revoked".to_owned() }))
            }
        };
        let Some(told) = told else { return };
        let delivery = self.header().delivery(context, &self.party(speaker).agent, told);
        context.deliver(Deliver { in_reply_to: Some(seen.msg_id.clone()), ..delivery });
    }

    fn note(&self, speaker: Self::Speaker, seen: &SeenMessage, score: Option<u32>, context: &mut InputContext<'_>) {
        context.event(Event::Disposed {
            negotiation: self.header().id.clone(),
            from: self.party(speaker).agent.clone(),
            act: seen.act,
            disposition: seen.disposition,
            score,
            at: context.now,
        });
    }
}

/// Says in a receipt that was queued before what the message has changed.
fn complete_receipt(queued: Option<&mut Effect>, change: ReceiptChange) {
    if let Some(Effect::Deliver(deliver)) = queued
        && let Notification::Ack(receipt) = Arc::make_mut(&mut deliver.told)
    {
        let ReceiptChange { step, turn, tasks } = change;
        (receipt.step, receipt.turn, receipt.tasks) = (Some(step), Some(turn), tasks);
    }
}

fn seen_of(
    incoming: &Incoming,
    disposition: Disposition,
    beside: Option<Box<BesideReceipt>>,
    context: &InputContext<'_>,
) -> SeenMessage {
    SeenMessage {
        msg_id: incoming.msg_id.clone(),
        digest: incoming.digest.short(),
        act: incoming.payload.act(),
        disposition,
        beside,
        seq: context.position.seq,
        index: context.position.index,
        at: context.now,
    }
}

/// Until when an offer stands. What lies beyond the integers of a JSON document stands for the whole negotiation.
pub(crate) fn valid_until(offer: &Offer, now: Timestamp) -> Timestamp {
    let until = match (offer.valid_for_ms, offer.valid_until) {
        (Some(ms), _) => now.plus_ms(ms),
        (None, Some(until)) => until.0,
        (None, None) => Timestamp::MAX,
    };
    if until.0 > INTEGER_MAX.unsigned_abs() { Timestamp::MAX } else { until }
}
