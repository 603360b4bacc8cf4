//! Acknowledged deliveries on their way into the log, so that a restart does not send them again.

use std::time::Duration;

use schemas::DeliveryId;
use tokio::time::Instant;

use super::Batch;
use crate::config::BatchConfig;

/// Most ids in one `delivered` entry: about 70 KiB, a quarter of the largest record.
const ENTRY_IDS_MAX: usize = 2048;
/// Most ids that wait. Beyond it the oldest are forgotten, which only means that a restart would repeat them.
const WAITING_MAX: usize = 64 * ENTRY_IDS_MAX;

/// Collects ids and says when an entry is worth appending. One entry is outstanding at a time, so a slow log gets
/// larger entries instead of more.
#[derive(Debug, Default)]
pub(crate) struct DeliveredBatch {
    ids_min: usize,
    wait_max: Duration,
    waiting: Vec<DeliveryId>,
    oldest: Option<Instant>,
    is_outstanding: bool,
    /// How far the register has answered.
    registered: u64,
    /// How far the log says it has, or is about to.
    registered_logged: u64,
}

impl DeliveredBatch {
    pub(crate) fn new(config: &BatchConfig) -> Self {
        Self {
            ids_min: config.delivered_ids.clamp(1, ENTRY_IDS_MAX),
            wait_max: Duration::from_millis(config.delivered_ms),
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, id: DeliveryId, now: Instant) {
        self.oldest.get_or_insert(now);
        self.waiting.push(id);
        if self.waiting.len() > WAITING_MAX {
            self.waiting.drain(..ENTRY_IDS_MAX);
        }
    }

    /// Every register write caused by records up to `seq` is answered.
    pub(crate) fn note_registered(&mut self, seq: u64, now: Instant) {
        self.registered = self.registered.max(seq);
        if self.has_registered() {
            self.oldest.get_or_insert(now);
        }
    }

    /// The log says how far the register has answered.
    pub(crate) fn handle_logged(&mut self, registered: u64) {
        self.registered_logged = self.registered_logged.max(registered);
    }

    /// The next entry, when there are enough ids or the oldest news has waited long enough.
    pub(crate) fn poll_entry(&mut self, now: Instant) -> Option<Batch> {
        let is_worth = self.waiting.len() >= self.ids_min || self.wake_at().is_some_and(|at| at <= now);
        if self.is_outstanding || !is_worth { None } else { self.take(now) }
    }

    /// The next entry whatever its size: the lane is handed over or shuts down.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Batch> {
        self.oldest = None;
        if self.waiting.is_empty() && !self.has_registered() {
            return None;
        }
        self.is_outstanding = true;
        let rest = self.waiting.split_off(self.waiting.len().min(ENTRY_IDS_MAX));
        self.oldest = (!rest.is_empty()).then_some(now);
        let ids = std::mem::replace(&mut self.waiting, rest);
        let registered = if self.has_registered() { self.registered } else { 0 };
        self.handle_logged(registered);
        Some(Batch { ids, registered })
    }

    /// The entry was answered; what could not be stored waits again.
    pub(crate) fn handle_append(&mut self, unstored: Option<Batch>, now: Instant) {
        self.is_outstanding = false;
        let Some(Batch { ids, registered }) = unstored else { return };
        if registered > 0 {
            self.registered_logged = self.registered_logged.min(registered - 1);
            self.note_registered(registered, now);
        }
        for id in ids {
            self.add(id, now);
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if self.is_outstanding { None } else { self.oldest.map(|oldest| oldest + self.wait_max) }
    }

    fn has_registered(&self) -> bool {
        self.registered > self.registered_logged
    }
}

#[cfg(test)]
mod tests {
    use schemas::Lane;

    use super::*;

    fn batch(ids_min: usize) -> DeliveredBatch {
        DeliveredBatch::new(&BatchConfig { delivered_ids: ids_min, delivered_ms: 1000, ..BatchConfig::default() })
    }

    fn ids(numbers: &[u8]) -> Option<Batch> {
        Some(Batch { ids: numbers.iter().map(|number| id(*number)).collect(), registered: 0 })
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
        assert_eq!(batch.poll_entry(now), ids(&[1, 2]));
        batch.handle_append(None, now);
        batch.add(id(3), now);
        let later = now + Duration::from_secs(1);
        assert_eq!(batch.wake_at(), Some(later));
        assert_eq!(batch.poll_entry(later), ids(&[3]));
    }

    #[test]
    fn one_entry_is_outstanding_and_ids_that_were_not_stored_wait_again() {
        let (mut batch, now) = (batch(1), Instant::now());
        batch.add(id(1), now);
        let first = batch.poll_entry(now);
        batch.add(id(2), now);
        assert_eq!(batch.poll_entry(now), None);
        batch.handle_append(first, now);
        assert_eq!(batch.poll_entry(now), ids(&[2, 1]));
    }

    #[test]
    fn what_the_register_answered_is_logged_once_alone_or_with_ids() {
        let (mut batch, now) = (batch(2), Instant::now());
        let later = now + Duration::from_secs(1);
        batch.note_registered(7, now);
        assert_eq!((batch.poll_entry(now), batch.wake_at()), (None, Some(later)));
        let alone = batch.poll_entry(later);
        assert_eq!(alone, Some(Batch { ids: vec![], registered: 7 }));
        batch.handle_append(None, later);
        batch.note_registered(7, later);
        assert_eq!((batch.wake_at(), batch.take(later)), (None, None), "nothing new");
        batch.note_registered(9, later);
        batch.add(id(1), later);
        batch.add(id(2), later);
        let both = batch.poll_entry(later);
        assert_eq!(both, Some(Batch { ids: vec![id(1), id(2)], registered: 9 }));
        batch.handle_append(both.clone(), later);
        assert_eq!(batch.poll_entry(later), both, "not stored: again");
        batch.handle_append(None, later);
        batch.handle_logged(12);
        batch.note_registered(11, later);
        assert_eq!(batch.take(later), None, "an earlier owner has said more");
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut batch, now) = (batch(1), Instant::now());
        (0..=WAITING_MAX).for_each(|_| batch.add(id(1), now));
        assert!(batch.waiting.len() <= WAITING_MAX);
    }
}
