//! Which input caused which effect: for traces. No part of the state.

use std::collections::VecDeque;

use schemas::NegotiationId;
use schemas::ids::Position;

use super::table::{Key, TableEntry};
use super::{LaneContext, LaneState};
use crate::effect::Effect;

/// The positions of the inputs that caused the effects still queued, each with how many are left of them.
#[derive(Debug, Default)]
pub(super) struct Causes(VecDeque<(Position, usize)>);

impl LaneContext {
    /// The effects from `first_effect` on were caused by the input at `position`.
    pub(super) fn note_cause(&mut self, position: Position, first_effect: usize) {
        let caused = self.effects.len() - first_effect;
        if caused > 0 {
            self.causes.0.push_back((position, caused));
        }
    }

    pub(super) fn pop_effect(&mut self) -> Option<(Option<Position>, Effect)> {
        let causes = &mut self.causes.0;
        let Some(effect) = self.effects.pop_front() else {
            // An input that panicked has left effects without saying so: what follows is not to be blamed on others.
            causes.clear();
            return None;
        };
        let cause = causes.front_mut().map(|(position, left)| {
            *left -= 1;
            *position
        });
        if causes.front().is_some_and(|(_, left)| *left == 0) {
            causes.pop_front();
        }
        Some((cause, effect))
    }
}

impl LaneState {
    /// The W3C trace context the call of an open negotiation carried.
    #[must_use]
    pub fn traceparent(&self, negotiation: &NegotiationId) -> Option<&str> {
        match self.table.entry(Key::of(negotiation))? {
            TableEntry::Open(open, _) => open.header().traceparent.as_deref(),
            TableEntry::Ended(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::record::{EngineEvent, Entry, Record};
    use schemas::{Lane, Timestamp};

    use super::*;
    use crate::Limits;

    #[test]
    fn an_effect_names_the_entry_that_caused_it() {
        let claim = |epoch| Entry::Engine { epoch, event: EngineEvent::Claim { engine: format!("engine-{epoch}") } };
        let mut lane_state = LaneState::new(Lane(0), Limits::default());
        lane_state.handle_record(
            7,
            Timestamp(1),
            &Record::new("test", vec![Entry::Tick, claim(2), claim(1), claim(3)]),
        );
        let mut causes = Vec::new();
        while let Some((cause, _)) = lane_state.poll_effect_at() {
            causes.push(cause);
        }
        let at = |index| Some(Position { seq: 7, index });
        assert_eq!(causes, [at(1), at(3)], "the outdated claim leads to nothing");
        assert!(lane_state.poll_effect().is_none());
    }
}
