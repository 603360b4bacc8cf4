//! Messages of the log on their way to a negotiation: decoding, opening, and the one answer for strangers.

use schemas::delivery::{Disposition, Misunderstanding, Notification, Receipt};
use schemas::ids::Position;
use schemas::record::{AdmittedMessage, Message};
use schemas::{Act, AgentId, MsgId, NegotiationId, Payload};
use serde::Deserialize;

use super::open::Open;
use super::table::{Key, TableEntry};
use super::{LaneState, RULES_WITH_BARGAINS};
use crate::contract_net::opening::Opening;
use crate::effect::{Deliver, Event};
use crate::ladder::Incoming;
use crate::state::Misread;
use crate::step::Step;

/// What can be said to the sender of a message that reached no negotiation. Nothing of it is stored.
#[derive(Debug)]
enum Stranger {
    /// Unknown negotiation, or not a party: the same answer for both.
    Unauthorized,
    /// Not readable.
    Malformed,
    /// A call for a negotiation that has been.
    Closed,
    /// The lane is full.
    Full,
    /// A call that cannot be followed.
    Misread(Misread, Option<String>),
}

impl Stranger {
    fn misread(misread: Misread) -> Self {
        Self::Misread(misread, None)
    }
}

/// The little of an unreadable message that is needed to answer it.
#[derive(Deserialize)]
struct Torso {
    envelope: TorsoEnvelope,
}

#[derive(Deserialize)]
struct TorsoEnvelope {
    msg_id: MsgId,
}

impl LaneState {
    pub(super) fn handle_message(&mut self, position: Position, admitted: &AdmittedMessage) {
        let message = match admitted.message() {
            Ok(message) => message,
            Err(_) => {
                // Gateways validate, so this is a foreign writer's. Without even an id there is nobody to answer.
                if let Ok(torso) = serde_json::from_str::<Torso>(admitted.body.get()) {
                    self.answer_stranger(position, admitted, &torso.envelope.msg_id, Stranger::Malformed);
                }
                return;
            }
        };
        let msg_id = message.envelope.msg_id.clone();
        if message.envelope.sender() != Some(&admitted.from) {
            return self.answer_stranger(position, admitted, &msg_id, Stranger::Unauthorized);
        }
        let key = Key::of(&admitted.negotiation);
        let answer = match self.table.entry(key) {
            Some(_) => self.pass_on(key, position, admitted, message),
            None if admitted.act == Act::Cfp => self.open(key, position, admitted, &message),
            None => Err(Stranger::Unauthorized),
        };
        if let Err(stranger) = answer {
            self.answer_stranger(position, admitted, &msg_id, stranger);
        }
    }

    /// To the negotiation, or to its tombstone.
    fn pass_on(
        &mut self,
        key: Key,
        position: Position,
        admitted: &AdmittedMessage,
        message: Message,
    ) -> Result<(), Stranger> {
        // A repeated call pins a policy too, but only the first one counts.
        let pinned = admitted.pinned.as_deref().filter(|_| admitted.act == Act::Join);
        let incoming = Incoming {
            from: admitted.from.clone(),
            digest: admitted.digest,
            msg_id: message.envelope.msg_id,
            seq: message.envelope.seq,
            payload: message.payload,
            policy: pinned.and_then(|pinned| self.table.policies.share(pinned)),
        };
        let now = self.context.now;
        let is_party = self.table.with_entry(key, |entry| {
            self.context.with_step(position, now, |step, _| match entry {
                TableEntry::Open(open, _) => open.handle_message(&incoming, step),
                TableEntry::Ended(tombstone) => tombstone.handle_message(&incoming, step),
            })
        });
        if is_party == Some(true) { Ok(()) } else { Err(Stranger::Unauthorized) }
    }

    /// Row 1. The first record's pinned policy and invitations count, whatever later ones say.
    fn open(
        &mut self,
        key: Key,
        position: Position,
        admitted: &AdmittedMessage,
        message: &Message,
    ) -> Result<(), Stranger> {
        let (Payload::Cfp(cfp), Some(pinned)) = (&message.payload, &admitted.pinned) else {
            return Err(Stranger::Malformed);
        };
        if admitted.negotiation.initiator() != admitted.from.as_str() {
            return Err(Stranger::Unauthorized);
        }
        if self.table.expired.contains(key) {
            return Err(Stranger::Closed);
        }
        if self.table.open_count() >= self.context.limits.open_max {
            return Err(Stranger::Full);
        }
        let policy = self.table.policies.share(pinned).ok_or(Stranger::Misread(Misread::InvalidPolicy, None))?;
        let opening = Opening {
            id: admitted.negotiation.clone(),
            initiator: self.context.names.share(&admitted.from),
            digest: admitted.digest,
            envelope: &message.envelope,
            cfp,
            policy,
            pinned,
        };
        let now = self.context.now;
        let opened = self.context.with_step(position, now, |step, names| {
            let share = |name: &AgentId| names.share(name);
            match &cfp.bargain {
                None => opening.open(step, share).map(Box::new).map(Open::ContractNet).map_err(Stranger::misread),
                Some(_) if step.rules < RULES_WITH_BARGAINS => Err(Stranger::misread(Misread::UnsupportedRules)),
                Some(rules) => opening
                    .open_bargain(rules, step, share)
                    .map(Box::new)
                    .map(Open::Bargain)
                    .map_err(|unfit| Stranger::Misread(unfit.misread, unfit.pointer)),
            }
        });
        self.table.add(key, opened?);
        Ok(())
    }

    fn answer_stranger(&mut self, position: Position, admitted: &AdmittedMessage, msg_id: &MsgId, stranger: Stranger) {
        let now = self.context.now;
        self.context.with_step(position, now, |step, _| {
            let disposition = match stranger {
                Stranger::Unauthorized => Disposition::Unauthorized,
                Stranger::Malformed | Stranger::Misread(..) => Disposition::Malformed,
                Stranger::Closed => Disposition::Closed,
                Stranger::Full => Disposition::RateLimited,
            };
            let receipt = Receipt {
                ack_of: msg_id.clone(),
                disposition,
                first: None,
                offer_id: None,
                invited: None,
                left_out: None,
                award_no: None,
            };
            send(admitted, msg_id, Notification::Ack(receipt), step);
            if let Stranger::Misread(misread, pointer) = stranger {
                let told = Misunderstanding { reason: misread.as_str().to_owned(), expected: vec![Act::Cfp], pointer };
                send(admitted, msg_id, Notification::NotUnderstood(told), step);
            }
            step.event(Event::Disposed {
                negotiation: admitted.negotiation.clone(),
                from: admitted.from.clone(),
                act: admitted.act,
                disposition,
                score: None,
                at: step.now,
            });
        });
    }
}

fn send(admitted: &AdmittedMessage, msg_id: &MsgId, told: Notification, step: &mut Step<'_>) {
    let expires = step.now.plus_ms(step.limits.stranger_receipt_ms);
    let negotiation: &NegotiationId = &admitted.negotiation;
    let letter = step.letter(negotiation, &admitted.from, told, expires);
    step.post(Deliver { in_reply_to: Some(msg_id.clone()), ..letter });
}
