//! Acknowledgements that wait: they leave with the next message, after a while, or when one is full.

use schemas::{DeliveryId, Timestamp};

/// Most deliveries acknowledged together: what a gateway takes.
const ACKS_TOGETHER_MAX: usize = 256;
/// Longest an acknowledgement waits for a message, in milliseconds: a twenty-fifth of the gap before a repeat.
const ACK_WAIT_MS: u64 = 20;

/// Deliveries that are not acknowledged yet. Fewer than [`ACKS_TOGETHER_MAX`] stay behind [`WaitingAcks::poll`].
#[derive(Debug, Default)]
pub(super) struct WaitingAcks {
    ids: Vec<DeliveryId>,
    due: Option<Timestamp>,
}

impl WaitingAcks {
    /// A delivery was received, for the first time or again.
    pub(super) fn handle_delivery(&mut self, now: Timestamp, id: DeliveryId) {
        self.ids.push(id);
        self.due.get_or_insert(now.plus_ms(ACK_WAIT_MS));
    }

    /// When [`WaitingAcks::poll`] wants to be asked.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.due
    }

    /// What leaves now, in the order it came: a full acknowledgement, and all when something else leaves or the time is
    /// over. Ask until there is none.
    pub(super) fn poll(&mut self, now: Timestamp, is_leaving: bool) -> Option<Vec<DeliveryId>> {
        let is_due = is_leaving || self.due.is_some_and(|due| due <= now);
        if self.ids.is_empty() || !(is_due || self.ids.len() >= ACKS_TOGETHER_MAX) {
            return None;
        }
        let rest = self.ids.split_off(self.ids.len().min(ACKS_TOGETHER_MAX));
        if rest.is_empty() {
            self.due = None;
        }
        Some(std::mem::replace(&mut self.ids, rest))
    }
}

#[cfg(test)]
mod tests {
    use schemas::Lane;

    use super::*;

    fn id(number: u32) -> DeliveryId {
        DeliveryId::new(Lane(0), u128::from(number).to_be_bytes())
    }

    fn waiting(numbers: std::ops::Range<u32>, now: Timestamp) -> WaitingAcks {
        let mut acks = WaitingAcks::default();
        numbers.for_each(|number| acks.handle_delivery(now, id(number)));
        acks
    }

    #[test]
    fn an_acknowledgement_waits_20_ms_from_its_first_delivery_or_for_a_message() {
        let begin = Timestamp::from_ms(1000);
        let mut acks = waiting(0..2, begin);
        acks.handle_delivery(begin.plus_ms(15), id(2));
        assert_eq!((acks.poll_timeout(), acks.poll(begin.plus_ms(19), false)), (Some(begin.plus_ms(20)), None));
        assert_eq!(acks.poll(begin.plus_ms(20), false), Some(vec![id(0), id(1), id(2)]));
        assert_eq!((acks.poll_timeout(), acks.poll(begin.plus_ms(99), true)), (None, None));
        let mut acks = waiting(3..4, begin);
        assert_eq!(acks.poll(begin, true), Some(vec![id(3)]));
    }

    #[test]
    fn a_full_acknowledgement_leaves_at_once_and_what_is_left_when_it_is_due() {
        let begin = Timestamp::from_ms(1000);
        let mut acks = waiting(0..600, begin);
        for first in [0, 256] {
            assert_eq!(acks.poll(begin, false), Some((first..first + 256).map(id).collect()));
        }
        assert_eq!(acks.poll(begin, false), None);
        assert_eq!(acks.poll(begin.plus_ms(20), false), Some((512..600).map(id).collect()));
    }
}
