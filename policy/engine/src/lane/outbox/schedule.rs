//! When which delivery is sent again. Timers are kept in slots: a busy lane arms hundreds of thousands of timers a second, nearly
//! all of which are answered before they fire.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use retry::Backoff;
use schemas::{AgentId, DeliveryId};
use tokio::time::Instant;

use crate::config::OutboxConfig;

/// Width of a slot. Repeats come after 500 ms and more, so this much imprecision is not felt.
const SLOT_MS: u64 = 8;

/// A gap is lengthened by up to a quarter; less than a doubling, so that gaps always grow.
const JITTER_PARTS: u64 = 1024;

/// Gap after the latest attempt: base * 2^(attempts - 1), capped, plus jitter.
///
/// The jitter is a hash of recipient and attempt: it spreads recipients that fell silent together, repeats in a test,
/// and lets one recipient's deliveries stay in one message.
pub(super) fn retry_gap(config: &OutboxConfig, to: &AgentId, attempts: u32) -> Duration {
    let [base, max] = [config.retry_base_ms, config.retry_ms_max].map(Duration::from_millis);
    let gap_ms = u64::try_from(Backoff::exact(base, max).ceiling(attempts).as_millis()).unwrap_or(config.retry_ms_max);
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((to, attempts));
    Duration::from_millis(gap_ms + gap_ms.saturating_mul(hash % (JITTER_PARTS / 4)) / JITTER_PARTS)
}

/// A slot: everything in it is due at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RetrySlot(u64);

impl RetrySlot {
    fn after_start(self) -> Duration {
        Duration::from_millis(self.0.saturating_mul(SLOT_MS))
    }
}

/// Timers by slot. A delivery that was acknowledged stays in its slot until that is due; the owner of the schedule
/// compares the slot with the one it noted and ignores what no longer holds.
#[derive(Debug)]
pub(crate) struct RetrySchedule {
    start: Instant,
    ids_by_slot: BTreeMap<RetrySlot, Vec<DeliveryId>>,
}

impl RetrySchedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self { start: now, ids_by_slot: BTreeMap::new() }
    }

    /// Arms a timer and returns its slot: the first that ends at or after `at`.
    pub(crate) fn arm(&mut self, id: DeliveryId, at: Instant) -> RetrySlot {
        let after_ms = at.saturating_duration_since(self.start).as_micros().div_ceil(1000);
        let slot = RetrySlot(u64::try_from(after_ms).unwrap_or(u64::MAX).div_ceil(SLOT_MS));
        self.ids_by_slot.entry(slot).or_default().push(id);
        slot
    }

    /// Forgets every timer.
    pub(crate) fn clear(&mut self) {
        self.ids_by_slot.clear();
    }

    /// The end of the first slot.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.ids_by_slot.keys().next().map(|slot| self.start + slot.after_start())
    }

    /// Takes the first slot if it is due.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(RetrySlot, Vec<DeliveryId>)> {
        let entry = self.ids_by_slot.first_entry()?;
        let slot = *entry.key();
        (self.start + slot.after_start() <= now).then(|| entry.remove_entry())
    }
}

#[cfg(test)]
mod tests {
    use schemas::Lane;

    use super::*;

    #[test]
    fn a_timer_never_fires_before_its_time_and_at_most_a_slot_later() {
        let start = Instant::now();
        let mut schedule = RetrySchedule::new(start);
        let id = DeliveryId::new(Lane(0), [1; 16]);
        for after_us in [1_u64, 7_999, 8_000, 8_001, 500_000, 512_345] {
            let at = start + Duration::from_micros(after_us);
            let slot = schedule.arm(id, at);
            let end = schedule.next().unwrap();
            assert!(end >= at && end <= at + Duration::from_millis(SLOT_MS), "{after_us}");
            assert_eq!(schedule.poll(end - Duration::from_micros(1)), None);
            assert_eq!(schedule.poll(end), Some((slot, vec![id])));
        }
        assert_eq!(schedule.next(), None);
    }
}
