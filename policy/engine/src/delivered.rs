//! Acknowledged deliveries on their way into the log, so that a restart does not send them again.

use std::time::Duration;

use schemas::DeliveryId;
use tokio::time::Instant;

use crate::config::BatchConfig;

/// Most ids in one `delivered` entry: about 70 KiB, a quarter of the largest record.
const ENTRY_IDS_MAX: usize = 2048;
/// Most ids that wait. Beyond it the oldest are forgotten, which only means that a restart would repeat them.
const WAITING_MAX: usize = 64 * ENTRY_IDS_MAX;

/// Collects ids and says when an entry is worth appending. One entry is outstanding at a time, so a slow log gets
/// larger entries instead of more.
#[derive(Debug)]
pub(crate) struct DeliveredBatch {
    ids_min: usize,
    wait_max: Duration,
    waiting: Vec<DeliveryId>,
    oldest: Option<Instant>,
    is_outstanding: bool,
}

impl DeliveredBatch {
    pub(crate) fn new(config: &BatchConfig) -> Self {
        Self {
            ids_min: config.delivered_ids.clamp(1, ENTRY_IDS_MAX),
            wait_max: Duration::from_millis(config.delivered_ms),
            waiting: Vec::new(),
            oldest: None,
            is_outstanding: false,
        }
    }

    pub(crate) fn add(&mut self, id: DeliveryId, now: Instant) {
        self.oldest.get_or_insert(now);
        self.waiting.push(id);
        if self.waiting.len() > WAITING_MAX {
            self.waiting.drain(..ENTRY_IDS_MAX);
        }
    }

    /// The next entry, when there are enough ids or the oldest has waited long enough.
    pub(crate) fn poll_entry(&mut self, now: Instant) -> Option<Vec<DeliveryId>> {
        let is_worth = self.waiting.len() >= self.ids_min || self.wake_at().is_some_and(|at| at <= now);
        if self.is_outstanding || !is_worth { None } else { self.take(now) }
    }

    /// The next entry whatever its size: the lane shuts down.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Vec<DeliveryId>> {
        if self.waiting.is_empty() {
            return None;
        }
        self.is_outstanding = true;
        let rest = self.waiting.split_off(self.waiting.len().min(ENTRY_IDS_MAX));
        self.oldest = (!rest.is_empty()).then_some(now);
        Some(std::mem::replace(&mut self.waiting, rest))
    }

    /// The entry was answered; ids that could not be stored wait again.
    pub(crate) fn handle_append(&mut self, unstored: Option<Vec<DeliveryId>>, now: Instant) {
        self.is_outstanding = false;
        for id in unstored.unwrap_or_default() {
            self.add(id, now);
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if self.is_outstanding { None } else { self.oldest.map(|oldest| oldest + self.wait_max) }
    }
}

#[cfg(test)]
mod tests {
    use schemas::Lane;

    use super::*;

    fn batch(ids_min: usize) -> DeliveredBatch {
        DeliveredBatch::new(&BatchConfig { delivered_ids: ids_min, delivered_ms: 1000, ..BatchConfig::default() })
    }

    fn id(number: u8) -> DeliveryId {
        DeliveryId::new(Lane(0), [number; 16])
    }

    #[test]
    fn an_idle_batch_asks_for_nothing() {
        let mut batch = batch(2);
        assert_eq!((batch.wake_at(), batch.poll_entry(Instant::now())), (None, None));
    }

    #[test]
    fn enough_ids_make_an_entry_at_once_and_few_ids_after_the_wait() {
        let (mut batch, now) = (batch(2), Instant::now());
        batch.add(id(1), now);
        assert_eq!(batch.poll_entry(now), None);
        batch.add(id(2), now);
        assert_eq!(batch.poll_entry(now), Some(vec![id(1), id(2)]));
        batch.handle_append(None, now);
        batch.add(id(3), now);
        let later = now + Duration::from_secs(1);
        assert_eq!(batch.wake_at(), Some(later));
        assert_eq!(batch.poll_entry(later), Some(vec![id(3)]));
    }

    #[test]
    fn one_entry_is_outstanding_and_ids_that_were_not_stored_wait_again() {
        let (mut batch, now) = (batch(1), Instant::now());
        batch.add(id(1), now);
        let first = batch.poll_entry(now);
        batch.add(id(2), now);
        assert_eq!(batch.poll_entry(now), None);
        batch.handle_append(first, now);
        assert_eq!(batch.poll_entry(now), Some(vec![id(2), id(1)]));
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut batch, now) = (batch(1), Instant::now());
        (0..=WAITING_MAX).for_each(|_| batch.add(id(1), now));
        assert!(batch.waiting.len() <= WAITING_MAX);
    }
}
