//! Entries of the log on their way to a negotiation: messages (decoding, opening, the one answer for unknown senders) and what
//! engines append (docs/spec/log.md#lg-12).

use std::sync::Arc;

use schemas::delivery::{Disposition, Notification, Receipt};
use schemas::ids::{FamilyPlace, Position};
use schemas::payload::Cfp;
use schemas::protocols::Protocol;
use schemas::record::{AdmittedMessage, EngineEvent, Message};
use schemas::{Act, AgentId, MsgId, NegotiationId, Payload};
use serde::Deserialize;

use super::LaneState;
use super::table::Key;
use crate::effect::{Deliver, Effect, Event};
use crate::lane::family::carry_out;
use crate::negotiation::disposition::Incoming;
use crate::negotiation::family::SubTeamGrant;
use crate::negotiation::misunderstanding::{ActSet, NotUnderstoodReason};
use crate::negotiation::protocols::{Negotiation, TableEntry};
use crate::negotiation::{InputContext, Opening, Refusal};

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
                    let refusal = Refusal::silent(Disposition::Malformed);
                    self.answer_unknown_sender(position, admitted, &partial.envelope.msg_id, refusal);
                }
                return;
            }
        };
        let msg_id = message.envelope.msg_id.clone();
        if message.envelope.sender() != Some(&admitted.from) {
            return self.answer_unknown_sender(position, admitted, &msg_id, Refusal::silent(Disposition::Unauthorized));
        }
        let key = Key::of(&admitted.negotiation);
        let answer = match self.table.entry(key) {
            Some(_) => self.pass_on(key, position, admitted, message),
            None if admitted.act == Act::Cfp => self.open(key, position, admitted, &message),
            None => Err(Refusal::silent(Disposition::Unauthorized)),
        };
        if let Err(refusal) = answer {
            self.answer_unknown_sender(position, admitted, &msg_id, refusal);
        }
    }

    /// Passes a message to its negotiation, or to the tombstone of one that has ended.
    fn pass_on(
        &mut self,
        key: Key,
        position: Position,
        admitted: &AdmittedMessage,
        message: Message,
    ) -> Result<(), Refusal> {
        if self.table.has_left_above(&admitted.negotiation, &admitted.from) {
            return Err(Refusal::silent(Disposition::Unauthorized));
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
        let now = self.now();
        let is_party = self.with_entry(key, position, now, |entry, context| match entry {
            TableEntry::Open(open) => open.handle_message(&incoming, context),
            TableEntry::Ended(tombstone) => tombstone.handle_message(&incoming, context),
        });
        if is_party == Some(true) { Ok(()) } else { Err(Refusal::silent(Disposition::Unauthorized)) }
    }

    /// A call (docs/spec/contract-net.md#cn-1). The first record's pinned policy and invitations count, whatever later
    /// ones say.
    fn open(
        &mut self,
        key: Key,
        position: Position,
        admitted: &AdmittedMessage,
        message: &Message,
    ) -> Result<(), Refusal> {
        let (Payload::Cfp(cfp), Some(pinned)) = (&message.payload, &admitted.pinned) else {
            return Err(Refusal::silent(Disposition::Malformed));
        };
        let grant = self.authorize_call(admitted, cfp)?;
        if self.table.expired.contains(key) {
            return Err(Refusal::silent(Disposition::Closed));
        }
        if self.table.open_count() >= self.context.limits.open_max {
            return Err(Refusal::silent(Disposition::RateLimited));
        }
        let policies = &self.table.policies;
        let policy = policies
            .share(&pinned.policy, pinned.policy_digest)
            .ok_or_else(|| Refusal::unfit(NotUnderstoodReason::InvalidPolicy))?;
        let initiator = self.context.names.share(&admitted.from);
        let task_policy = pinned.task_policy.as_ref().and_then(|pinned| policies.share(&pinned.policy, pinned.digest));
        let policies = (policy, task_policy);
        let opening = Opening::new(admitted, &message.envelope, cfp, pinned, policies, initiator);
        let now = self.now();
        let protocol = Protocol::of_call(cfp);
        let table = &mut self.table;
        self.context.with_context(position, now, |context, names| {
            if context.rules < protocol.rules_since() {
                return Err(Refusal::unfit(NotUnderstoodReason::UnsupportedRules));
            }
            if cfp.round.is_some_and(|round| round != 1) {
                return Err(Refusal::unfit(NotUnderstoodReason::BadRound));
            }
            let share = |name: &AgentId| names.share(name);
            table.add(key, Negotiation::open(opening, grant, context, share)?);
            carry_out(table, context);
            Ok(())
        })
    }

    /// Whether a call may be its sender's: a root bears its name, and a sub-team is that of its award. What a sub-team is
    /// called with.
    fn authorize_call(&self, admitted: &AdmittedMessage, cfp: &Cfp) -> Result<Option<SubTeamGrant>, Refusal> {
        let of = cfp.team.as_ref().and_then(|team| team.of.as_ref());
        match (of, admitted.negotiation.place()) {
            (None, FamilyPlace::Root) if admitted.negotiation.initiator() == admitted.from.as_str() => Ok(None),
            (Some(of), FamilyPlace::SubTeam { .. })
                if of.task.sub_team(of.award_no).as_ref() == Some(&admitted.negotiation) =>
            {
                self.table.grant_sub_team(of, &admitted.from).map(Some)
            }
            (_, _) => Err(Refusal::silent(Disposition::Unauthorized)),
        }
    }

    fn answer_unknown_sender(
        &mut self,
        position: Position,
        admitted: &AdmittedMessage,
        msg_id: &MsgId,
        refusal: Refusal,
    ) {
        let Refusal { disposition, reply, .. } = refusal.expecting(|| ActSet::of(&[Act::Cfp]));
        let now = self.now();
        self.context.with_context(position, now, |context, _| {
            let receipt = Receipt::new(msg_id.clone(), disposition);
            send(admitted, msg_id, Notification::Ack(receipt), context);
            if let Some(told) = reply.misunderstanding() {
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
        let progress = &mut self.context.progress;
        let is_current = epoch >= progress.epoch;
        match event {
            EngineEvent::Claim { engine } => {
                if epoch > progress.epoch {
                    let engine: Arc<str> = Arc::from(engine.as_str());
                    progress.epoch = epoch;
                    progress.owner = Some(Arc::clone(&engine));
                    let first_effect = self.context.effects.len();
                    self.context.effects.push_back(Effect::Event(Event::Claimed { engine, epoch }));
                    self.context.note_cause(position, first_effect);
                }
            }
            EngineEvent::Rules { version } if is_current => self.context.rules = *version,
            EngineEvent::DeliveryFailed { id, negotiation, to, attempts: _, may_answer } if is_current => {
                self.with_open(position, negotiation, |open, context| {
                    open.handle_delivery_failure(*id, to, *may_answer, context)
                });
            }
            EngineEvent::Abort { negotiation, code } if is_current => {
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
            self.with_entry(key, position, self.now(), |entry, context| {
                if let TableEntry::Open(open) = entry {
                    input(open, context);
                }
            });
        }
    }
}

fn send(admitted: &AdmittedMessage, msg_id: &MsgId, told: Notification, context: &mut InputContext<'_>) {
    let expires = context.now.plus_ms(context.limits.stranger_receipt_ms);
    let negotiation: &NegotiationId = &admitted.negotiation;
    let delivery = context.delivery(negotiation, &admitted.from, told, expires);
    context.deliver(Deliver { in_reply_to: Some(msg_id.clone()), ..delivery });
}
