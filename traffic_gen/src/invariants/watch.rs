//! What any agent can judge of what it is told, for ever and in bounded memory: the invariants that need neither what other
//! processes saw nor the end of a run. A [`super::Witness`] judges the others.

use std::hash::Hash;

use agents::observer::{Observed, Observer};
use ahash::RandomState;
use parking_lot::Mutex;
use prometheus::{Error, IntCounter, Registry};
use retry::RecentMap;
use schemas::delivery::{Delivery, Notification, Outcome, ProgressReport};
use schemas::ids::FamilyPlace;
use schemas::{AgentId, DeliveryId, NegotiationId};
use tokio::time::Instant;

use super::Invariant;

/// At least this many of the latest deliveries, and of the latest ends, are remembered, at most twice as many: repeats come
/// within seconds. Some 3 MB.
const REMEMBERED: usize = 16_384;
/// What is judged.
const WATCHED: [Invariant; 3] = [Invariant::Idempotent, Invariant::Absorbing, Invariant::Sealed];

telemetry::metrics! {
    /// What must never happen.
    struct WatchMetrics {
        /// Broken invariants; any but 0 is a fault.
        violations: Counter[invariant: Invariant = WATCHED] = "exchange_invariant_violations_total";
    }
}

/// Judges what the agents of a process are told, and counts what must never happen.
pub struct Watch {
    known: Mutex<Known>,
    /// Tells contents apart.
    fingerprints: RandomState,
    metrics: WatchMetrics,
}

struct Known {
    contents: RecentMap<DeliveryId, u64>,
    outcomes: RecentMap<NegotiationId, Outcome>,
}

impl Watch {
    /// Registers its counters.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn try_new(registry: &Registry) -> Result<Self, Error> {
        let metrics = WatchMetrics::try_new(registry)?;
        let known = Known { contents: RecentMap::new(REMEMBERED), outcomes: RecentMap::new(REMEMBERED) };
        Ok(Self { known: Mutex::new(known), fingerprints: RandomState::new(), metrics })
    }

    /// Violations so far.
    pub fn violated(&self) -> u64 {
        self.metrics.violations.iter().map(IntCounter::get).sum()
    }

    fn judge(&self, agent: &AgentId, delivery: &Delivery) {
        let (id, negotiation) = (delivery.envelope.msg_id, &delivery.envelope.negotiation);
        let content = self.fingerprints.hash_one(delivery);
        let mut known = self.known.lock();
        let is_same = first(&mut known.contents, id, content) == content;
        let outcome = if let Notification::Closed(closing) = &delivery.payload { Some(closing.outcome) } else { None };
        let is_same_end =
            outcome.is_none_or(|outcome| first(&mut known.outcomes, negotiation.clone(), outcome) == outcome);
        drop(known);
        let is_others_offer =
            matches!(delivery.payload, Notification::Inform(ProgressReport::Offers(_) | ProgressReport::Awarded(_)));
        // Who assigned the task of a team does not show in its id.
        let is_root = negotiation.place() == FamilyPlace::Root;
        let is_sealed = !is_others_offer || !is_root || negotiation.initiator() == agent.as_str();
        let held = [is_same, is_same_end, is_sealed];
        for (invariant, holds) in WATCHED.into_iter().zip(held) {
            if !holds {
                self.metrics.violations.of(invariant).inc();
                let invariant = invariant.as_str();
                tracing::error!(%agent, %negotiation, delivery = %id, invariant, "an invariant is broken");
            }
        }
    }
}

impl Observer for Watch {
    fn handle(&self, agent: &AgentId, _at: Instant, event: Observed<'_>) {
        if let Observed::Delivered { delivery, .. } = event {
            self.judge(agent, delivery);
        }
    }
}

/// The value this key had first, as far as that is remembered; otherwise this one.
fn first<K: Eq + Hash, V: Copy>(known: &mut RecentMap<K, V>, key: K, value: V) -> V {
    if let Some(first) = known.value(&key) {
        return *first;
    }
    known.insert(key, value);
    value
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn repeats_and_equal_ends_are_no_violation() {
        let watch = Watch::try_new(&Registry::new()).unwrap();
        for (agent, id) in [("alice", 1), ("alice", 1), ("bob", 2)] {
            tell(&watch, agent, id, closed("completed"));
        }
        tell(&watch, "alice", 3, offers());
        assert_eq!(watch.violated(), 0);
    }

    #[test]
    fn another_content_another_end_and_anothers_offers_are_violations() {
        for (invariant, told) in [
            ("idempotent", [("alice", 1, receipt("ok")), ("alice", 1, receipt("late"))]),
            ("absorbing", [("alice", 1, closed("completed")), ("bob", 2, closed("timeout"))]),
            ("sealed", [("alice", 1, offers()), ("bob", 2, offers())]),
        ] {
            let registry = Registry::new();
            let watch = Watch::try_new(&registry).unwrap();
            for (agent, id, payload) in told {
                tell(&watch, agent, id, payload);
            }
            assert_eq!(watch.violated(), 1, "{invariant}");
            let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            let line = format!("exchange_invariant_violations_total{{invariant=\"{invariant}\"}} 1");
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }

    #[test]
    fn the_latest_keys_keep_their_first_value_and_memory_is_bounded() {
        let mut latest = RecentMap::new(100);
        for key in 0..10_000_u32 {
            assert_eq!(first(&mut latest, key, key), key);
            assert_eq!(first(&mut latest, key.saturating_sub(99), u32::MAX), key.saturating_sub(99));
            assert!(latest.len() <= 200);
        }
        assert_eq!(first(&mut latest, 0, 7), 7, "forgotten long ago");
    }

    fn tell(watch: &Watch, agent: &str, id: u8, payload: Value) {
        let json = json!({
            "envelope": {"msg_id": format!("{id:032x}"), "ts": "2026-11-20T00:00:00Z", "from": "exchange://llmx",
                "to": [format!("agent://{agent}")], "negotiation": "alice~n1"},
            "payload": payload,
        });
        let delivery: Delivery = serde_json::from_value(json).unwrap();
        let agent = AgentId::try_new(agent).unwrap();
        watch.handle(&agent, Instant::now(), Observed::Delivered { delivery: &delivery, is_repeat: false });
    }

    fn closed(outcome: &str) -> Value {
        json!({"act": "closed", "outcome": outcome, "digest": "0".repeat(64)})
    }

    fn receipt(disposition: &str) -> Value {
        json!({"act": "ack", "ack_of": "m1", "disposition": disposition})
    }

    fn offers() -> Value {
        json!({"act": "inform", "kind": "awarded", "contractor": "bob", "offer_id": "o1-0", "lot": 1, "award_no": 1,
               "terms": {}, "score": 1, "reason": "deadline", "complete": true, "offers": 1, "decision": "0".repeat(64)})
    }
}
