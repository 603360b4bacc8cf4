//! What engines append (docs/spec/log.md#lg-12).

use std::sync::Arc;

use schemas::NegotiationId;
use schemas::ids::Position;
use schemas::record::EngineEvent;

use super::LaneState;
use super::table::{Key, TableEntry};
use crate::effect::{Effect, Event};
use crate::negotiation::Negotiation;
use crate::negotiation::context::InputContext;

impl LaneState {
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
        self.table.with_entry(Key::of(negotiation), |entry| {
            if let TableEntry::Open(open, _) = entry {
                let now = self.context.now;
                self.context.with_context(position, now, |context, _| input(open, context));
            }
        });
    }
}
