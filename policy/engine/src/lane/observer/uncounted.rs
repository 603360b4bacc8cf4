//! What happened while nobody owned the lane, so that whoever takes it counts it.
//!
//! An owner counts what it folds. While there is none (all engines are down, or the next one has not noticed yet), gateways
//! go on appending, and deadlines pass as of the records' times: without this, an outage would leave no trace in what is
//! counted. A record that an engine appended shows that somebody owned the lane, who has counted what came before it; from
//! then on an engine keeps what it folds without owning the lane. Where it then takes the lane from one that is gone, it
//! counts that. What the one before folded behind its own last record is counted twice: about a second of work.

use policy_core::Event;
use schemas::record::{EngineEvent, Entry, Record};

/// Facts kept; beyond them an outage is not counted whole.
const FACTS_MAX: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UncountedEvents {
    events: Vec<Event>,
    left_out: u64,
    /// The record being folded was appended by an owner, who counts it.
    is_counted: bool,
}

impl UncountedEvents {
    /// A record is about to be folded by `own`.
    pub(super) fn handle_record(&mut self, record: &Record, own: &str) {
        let (mut is_engines, mut is_own_claim) = (false, false);
        for entry in &record.entries {
            match entry {
                Entry::Message(_) => {}
                Entry::Engine { event: EngineEvent::Claim { engine }, .. } if engine == own => is_own_claim = true,
                Entry::Engine { .. } | Entry::Tick => is_engines = true,
            }
        }
        self.is_counted = is_engines && !is_own_claim;
        if self.is_counted {
            self.forget();
        }
    }

    /// A fact folded without owning the lane.
    pub(super) fn add(&mut self, event: &Event) {
        if self.is_counted {
            return;
        }
        if self.events.len() < FACTS_MAX {
            self.events.push(event.clone());
        } else {
            self.left_out += 1;
        }
    }

    /// What is to be counted, and how much was left out.
    pub(super) fn take(&mut self) -> (Vec<Event>, u64) {
        (std::mem::take(&mut self.events), std::mem::take(&mut self.left_out))
    }

    /// Somebody else has counted it.
    pub(super) fn forget(&mut self) {
        self.events = Vec::new();
        self.left_out = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_came_before_a_record_of_an_owner_is_counted_already() {
        let mut uncounted = UncountedEvents::default();
        let fold = |uncounted: &mut UncountedEvents, entries: Vec<Entry>| {
            uncounted.handle_record(&Record::new("somebody", entries), "engine-2");
            uncounted.add(&fact());
        };
        fold(&mut uncounted, vec![]);
        fold(&mut uncounted, vec![]);
        fold(&mut uncounted, vec![Entry::Tick]);
        assert_eq!(count(&mut uncounted), 0, "the owner that appended the tick counts what it led to as well");
        fold(&mut uncounted, vec![]);
        fold(&mut uncounted, vec![claim("engine-1")]);
        assert_eq!(count(&mut uncounted), 0, "another takes the lane, and counts");
        fold(&mut uncounted, vec![]);
        fold(&mut uncounted, vec![claim("engine-2")]);
        assert_eq!(count(&mut uncounted), 2, "its own claim is a record like a gateway's");
        assert_eq!(count(&mut uncounted), 0, "once");
    }

    #[test]
    fn no_outage_is_remembered_without_a_bound() {
        let mut uncounted = UncountedEvents::default();
        (0..FACTS_MAX + 3).for_each(|_| uncounted.add(&fact()));
        let (events, left_out) = uncounted.take();
        assert_eq!((events.len(), left_out), (FACTS_MAX, 3));
    }

    fn count(uncounted: &mut UncountedEvents) -> usize {
        uncounted.take().0.len()
    }

    fn claim(engine: &str) -> Entry {
        Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: engine.to_owned() } }
    }

    fn fact() -> Event {
        Event::Claimed { engine: Arc::from("engine-1"), epoch: 1 }
    }
}
