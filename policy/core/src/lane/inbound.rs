//! Entries of the log on their way to a negotiation: messages (decoding, opening, the one answer for unknown senders) and what
//! engines append (docs/spec/log.md#lg-12).

use std::sync::Arc;

use schemas::delivery::{Disposition, Misunderstanding, Notification, Receipt};
use schemas::ids::{FamilyPlace, Position};
use schemas::payload::Cfp;
use schemas::record::{AdmittedMessage, EngineEvent, Message};
use schemas::{Act, AgentId, MsgId, NegotiationId, Payload};
use serde::Deserialize;

use super::LaneState;
use super::table::{Key, TableEntry};
use crate::effect::{Deliver, Effect, Event};
use crate::lane::family::carry_out;
use crate::lane::negotiation::Negotiation;
use crate::negotiation::alternating_offers::opening::Unfit;
use crate::negotiation::disposition::Incoming;
use crate::negotiation::family::{SubTeamGrant, SubTeamRefusal};
use crate::negotiation::panel;
use crate::negotiation::phase::NotUnderstoodReason;
use crate::negotiation::team::opening::open_team;
use crate::negotiation::{InputContext, Opening};
use crate::protocol::Protocol;

/// What can be said to the sender of a message that reached no negotiation. Nothing of it is stored.
#[derive(Debug)]
enum UnknownSender {
    /// Unknown negotiation, or not a party: the same answer for both.
    Unauthorized,
    /// Not readable.
    Malformed,
    /// A call for a negotiation that has been.
    Closed,
    /// The lane is full.
    Full,
    /// A call to a sub-team for an award that is taken back.
    Revoked,
    /// A call to a sub-team for an award that is not committed yet.
    NotAwarded,
    /// A call that cannot be followed.
    NotUnderstood(NotUnderstoodReason, Option<String>),
}

impl From<SubTeamRefusal> for UnknownSender {
    fn from(refusal: SubTeamRefusal) -> Self {
        let at_award = |reason| Self::NotUnderstood(reason, Some("/payload/team/of".to_owned()));
        match refusal {
            SubTeamRefusal::Unauthorized => Self::Unauthorized,
            SubTeamRefusal::Revoked => Self::Revoked,
            SubTeamRefusal::NotAwarded => Self::NotAwarded,
            SubTeamRefusal::Depth => at_award(NotUnderstoodReason::Depth),
            SubTeamRefusal::Closed => Self::Closed,
            SubTeamRefusal::Full => at_award(NotUnderstoodReason::TooManyTasks),
        }
    }
}

impl UnknownSender {
    fn not_understood(reason: NotUnderstoodReason) -> Self {
        Self::NotUnderstood(reason, None)
    }
}

/// The little of an unreadable message that is needed to answer it.
#[derive(Deserialize)]
struct PartialMessage {
    envelope: PartialEnvelope,
}

#[derive(Deserialize)]
struct PartialEnvelope {
    msg_id: MsgId,
}

impl LaneState {
    pub(super) fn handle_message(&mut self, position: Position, admitted: &AdmittedMessage) {
        let message = match admitted.message() {
            Ok(message) => message,
            Err(_) => {
                // Gateways validate, so this is a foreign writer's. Without even an id there is nobody to answer.
                if let Ok(partial) = serde_json::from_str::<PartialMessage>(admitted.body.get()) {
                    self.answer_unknown_sender(position, admitted, &partial.envelope.msg_id, UnknownSender::Malformed);
                }
                return;
            }
        };
        let msg_id = message.envelope.msg_id.clone();
        if message.envelope.sender() != Some(&admitted.from) {
            return self.answer_unknown_sender(position, admitted, &msg_id, UnknownSender::Unauthorized);
        }
        let key = Key::of(&admitted.negotiation);
        let answer = match self.table.entry(key) {
            Some(_) => self.pass_on(key, position, admitted, message),
            None if admitted.act == Act::Cfp => self.open(key, position, admitted, &message),
            None => Err(UnknownSender::Unauthorized),
        };
        if let Err(sender) = answer {
            self.answer_unknown_sender(position, admitted, &msg_id, sender);
        }
    }

    /// To the negotiation, or to its tombstone.
    fn pass_on(
        &mut self,
        key: Key,
        position: Position,
        admitted: &AdmittedMessage,
        message: Message,
    ) -> Result<(), UnknownSender> {
        if self.table.has_left_above(&admitted.negotiation, &admitted.from) {
            return Err(UnknownSender::Unauthorized);
        }
        // A repeated call pins a policy too, but only the first one counts.
        let pinned = admitted.pinned.as_deref().filter(|_| matches!(admitted.act, Act::Join | Act::Assign));
        let incoming = Incoming {
            from: admitted.from.clone(),
            digest: admitted.digest,
            msg_id: message.envelope.msg_id,
            seq: message.envelope.seq,
            payload: message.payload,
            wants_receipt: admitted.receipts_all || message.envelope.receipt,
            policy: pinned.and_then(|pinned| self.table.policies.share(&pinned.policy, pinned.policy_digest)),
            capabilities: admitted.capabilities.clone(),
            room: if admitted.act == Act::Assign {
                self.table.family_room(&admitted.negotiation, self.context.limits.open_max)
            } else {
                0
            },
            leads: admitted.act == Act::Cancel && self.table.leads_above(&admitted.negotiation, &admitted.from),
        };
        let now = self.context.now;
        let is_party = self.with_entry(key, position, now, |entry, context| match entry {
            TableEntry::Open(open) => open.handle_message(&incoming, context),
            TableEntry::Ended(tombstone) => tombstone.handle_message(&incoming, context),
        });
        if is_party == Some(true) { Ok(()) } else { Err(UnknownSender::Unauthorized) }
    }

    /// A call (docs/spec/contract-net.md#cn-1). The first record's pinned policy and invitations count, whatever later
    /// ones say.
    fn open(
        &mut self,
        key: Key,
        position: Position,
        admitted: &AdmittedMessage,
        message: &Message,
    ) -> Result<(), UnknownSender> {
        let (Payload::Cfp(cfp), Some(pinned)) = (&message.payload, &admitted.pinned) else {
            return Err(UnknownSender::Malformed);
        };
        let grant = self.may_call(admitted, cfp)?;
        if self.table.expired.contains(key) {
            return Err(UnknownSender::Closed);
        }
        if self.table.open_count() >= self.context.limits.open_max {
            return Err(UnknownSender::Full);
        }
        let policies = &self.table.policies;
        let policy = policies
            .share(&pinned.policy, pinned.policy_digest)
            .ok_or(UnknownSender::NotUnderstood(NotUnderstoodReason::InvalidPolicy, None))?;
        let initiator = self.context.names.share(&admitted.from);
        let opening = Opening::new(admitted, &message.envelope, cfp, pinned, policy, initiator);
        let now = self.context.now;
        let task_policy = pinned.task_policy.as_ref().and_then(|pinned| policies.share(&pinned.policy, pinned.digest));
        let protocol = protocol_of(cfp);
        let table = &mut self.table;
        self.context.with_context(position, now, |context, names| {
            if context.rules < protocol.rules_since() {
                return Err(UnknownSender::not_understood(NotUnderstoodReason::UnsupportedRules));
            }
            let share = |name: &AgentId| names.share(name);
            let unfit = |unfit: Unfit| UnknownSender::NotUnderstood(unfit.reason, unfit.pointer);
            let opened = match (&cfp.panel, &cfp.bargain, &cfp.team) {
                (Some(rules), ..) => panel::opening::open(&opening, rules, context, share)
                    .map(Box::new)
                    .map(Negotiation::Panel)
                    .map_err(unfit),
                (None, Some(rules), _) => {
                    opening.open_bargain(rules, context, share).map(Box::new).map(Negotiation::Bargain).map_err(unfit)
                }
                (None, None, Some(spec)) => {
                    let spec = (&**spec, grant.as_ref());
                    open_team(&opening, spec, task_policy, &admitted.capabilities, context, share)
                        .map(Box::new)
                        .map(Negotiation::Team)
                        .map_err(unfit)
                }
                (None, None, None) => opening
                    .open(context, share)
                    .map(Box::new)
                    .map(Negotiation::ContractNet)
                    .map_err(UnknownSender::not_understood),
            };
            table.add(key, opened?);
            carry_out(table, context);
            Ok(())
        })
    }

    /// Whether a call may be its sender's: a root bears its name, and a sub-team is that of its award. What a sub-team is
    /// called with.
    fn may_call(&self, admitted: &AdmittedMessage, cfp: &Cfp) -> Result<Option<SubTeamGrant>, UnknownSender> {
        let of = cfp.team.as_ref().and_then(|team| team.of.as_ref());
        match (of, admitted.negotiation.place()) {
            (None, FamilyPlace::Root) if admitted.negotiation.initiator() == admitted.from.as_str() => Ok(None),
            (Some(of), FamilyPlace::SubTeam { .. })
                if of.task.sub_team(of.award_no).as_ref() == Some(&admitted.negotiation) =>
            {
                self.table.grant_sub_team(of, &admitted.from).map(Some).map_err(UnknownSender::from)
            }
            (_, _) => Err(UnknownSender::Unauthorized),
        }
    }

    fn answer_unknown_sender(
        &mut self,
        position: Position,
        admitted: &AdmittedMessage,
        msg_id: &MsgId,
        sender: UnknownSender,
    ) {
        let now = self.context.now;
        self.context.with_context(position, now, |context, _| {
            let disposition = match sender {
                UnknownSender::Unauthorized => Disposition::Unauthorized,
                UnknownSender::Malformed | UnknownSender::NotUnderstood(..) => Disposition::Malformed,
                UnknownSender::Closed => Disposition::Closed,
                UnknownSender::Revoked => Disposition::Revoked,
                UnknownSender::NotAwarded => Disposition::OutOfTurn,
                UnknownSender::Full => Disposition::RateLimited,
            };
            let receipt = Receipt::new(msg_id.clone(), disposition);
            send(admitted, msg_id, Notification::Ack(receipt), context);
            let misread = match sender {
                UnknownSender::NotUnderstood(reason, pointer) => Some((reason, pointer)),
                UnknownSender::NotAwarded => Some((NotUnderstoodReason::NotAwarded, None)),
                UnknownSender::Unauthorized
                | UnknownSender::Malformed
                | UnknownSender::Closed
                | UnknownSender::Full
                | UnknownSender::Revoked => None,
            };
            if let Some((reason, pointer)) = misread {
                let told = Misunderstanding { reason: reason.as_str().to_owned(), expected: vec![Act::Cfp], pointer };
                send(admitted, msg_id, Notification::NotUnderstood(told), context);
            }
            context.event(Event::Disposed {
                negotiation: admitted.negotiation.clone(),
                from: admitted.from.clone(),
                act: admitted.act,
                disposition,
                score: None,
                at: context.now,
            });
        });
    }

    /// Engine records of an older epoch are ignored: a zombie, woken after another engine claimed the lane, changes nothing.
    ///
    /// Only a claim of a higher epoch takes the lane; of two with the same epoch the first in the log counts, and the same
    /// claim again (an append whose outcome was unknown, and was repeated) changes nothing. An engine appends under an
    /// epoch only once it has folded its own claim of it, so records of an epoch beyond the lane's do not occur; they
    /// count as the lane's own, and take nothing.
    pub(super) fn handle_engine_event(&mut self, position: Position, epoch: u64, event: &EngineEvent) {
        match event {
            EngineEvent::Claim { engine } => {
                if epoch > self.epoch {
                    let engine: Arc<str> = Arc::from(engine.as_str());
                    self.epoch = epoch;
                    self.owner = Some(Arc::clone(&engine));
                    let first_effect = self.context.effects.len();
                    self.context.effects.push_back(Effect::Event(Event::Claimed { engine, epoch }));
                    self.context.note_cause(position, first_effect);
                }
            }
            EngineEvent::Rules { version } if epoch >= self.epoch => self.context.rules = *version,
            EngineEvent::DeliveryFailed { id, negotiation, to, attempts: _, may_answer } if epoch >= self.epoch => {
                self.with_open(position, negotiation, |open, context| {
                    open.handle_delivery_failure(*id, to, *may_answer, context)
                });
            }
            EngineEvent::Abort { negotiation, code } if epoch >= self.epoch => {
                self.with_open(position, negotiation, |open, context| open.handle_abort(code, context));
            }
            // Acknowledgements concern the outbox; they change nothing here.
            EngineEvent::Delivered { .. }
            | EngineEvent::Rules { .. }
            | EngineEvent::DeliveryFailed { .. }
            | EngineEvent::Abort { .. } => {}
        }
    }

    /// Runs an input against an open negotiation; nothing happens when there is none.
    fn with_open(
        &mut self,
        position: Position,
        negotiation: &NegotiationId,
        input: impl FnOnce(&mut Negotiation, &mut InputContext<'_>),
    ) {
        let key = Key::of(negotiation);
        if matches!(self.table.entry(key), Some(TableEntry::Open(..))) {
            self.with_entry(key, position, self.context.now, |entry, context| {
                if let TableEntry::Open(open) = entry {
                    input(open, context);
                }
            });
        }
    }
}

/// What a call is the call to.
fn protocol_of(cfp: &Cfp) -> Protocol {
    match (&cfp.panel, &cfp.bargain, &cfp.team) {
        (Some(_), ..) => Protocol::Panel,
        (None, Some(_), _) => Protocol::AlternatingOffers,
        (None, None, Some(_)) => Protocol::Team,
        (None, None, None) => Protocol::ContractNet,
    }
}

fn send(admitted: &AdmittedMessage, msg_id: &MsgId, told: Notification, context: &mut InputContext<'_>) {
    let expires = context.now.plus_ms(context.limits.stranger_receipt_ms);
    let negotiation: &NegotiationId = &admitted.negotiation;
    let delivery = context.delivery(negotiation, &admitted.from, told, expires);
    context.deliver(Deliver { in_reply_to: Some(msg_id.clone()), ..delivery });
}
