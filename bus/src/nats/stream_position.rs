//! Where a message stands in its stream: written by the server into the reply subject (NATS ADR-15).

use schemas::Timestamp;

const PREFIX: &str = "$JS.ACK.";
/// Tokens after the prefix in the older form: stream, consumer, deliveries, stream and consumer sequence, nanoseconds,
/// pending.
const TOKENS: usize = 7;
/// The newer form has the domain and a hash of the account before them, and may have more behind.
const TOKENS_BEFORE: usize = 2;

/// A message's position, as one consumer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamPosition {
    /// Its sequence in the stream.
    pub(super) seq: u64,
    /// Its number among the messages sent to this consumer, from 1 without a gap.
    pub(super) consumer_seq: u64,
    /// When the stream's leader took it.
    pub(super) time: Timestamp,
    /// Messages that were waiting behind it when it was sent.
    pub(super) pending: u64,
}

impl StreamPosition {
    /// Parses a reply subject.
    pub(super) fn parse(reply: &str) -> Option<Self> {
        let tail = reply.strip_prefix(PREFIX)?;
        let skipped = if tail.split('.').count() > TOKENS { TOKENS_BEFORE } else { 0 };
        let mut tokens = tail.split('.').skip(skipped);
        let (_stream, _consumer, _deliveries) = (tokens.next()?, tokens.next()?, tokens.next()?);
        let mut number = || tokens.next()?.parse::<u64>().ok();
        let (seq, consumer_seq, nanoseconds, pending) = (number()?, number()?, number()?, number()?);
        Some(Self { seq, consumer_seq, time: Timestamp(nanoseconds / 1000), pending })
    }
}

/// Counts what came of what one consumer was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConsumerCount {
    last: u64,
}

impl ConsumerCount {
    /// Counts a message, or refuses it because one before it is missing.
    pub(super) fn count(&mut self, position: StreamPosition) -> bool {
        let is_next = position.consumer_seq == self.last + 1;
        if is_next {
            self.last = position.consumer_seq;
        }
        is_next
    }

    /// Whether everything came, when the server says which number it sent last.
    pub(super) fn is_complete(self, sent: u64) -> bool {
        sent == self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_behind_a_gap_and_one_that_came_before_are_refused() {
        let mut received = ConsumerCount::default();
        let outcomes = [1, 2, 4, 3, 3, 2, 4].map(|consumer_seq| {
            received.count(StreamPosition { seq: 100, consumer_seq, time: Timestamp(0), pending: 0 })
        });
        assert_eq!(outcomes, [true, true, false, true, false, false, true]);
        assert!(received.is_complete(4));
        assert!(!received.is_complete(5), "the last message is missing");
    }

    #[test]
    fn both_forms_of_a_place_are_read_and_others_are_not() {
        let position = StreamPosition { seq: 17, consumer_seq: 3, time: Timestamp(1_700_000_000_123_456), pending: 9 };
        let numbers = "1.17.3.1700000000123456789.9";
        for (reply, expected) in [
            (format!("$JS.ACK.LLMX_LOG.abc.{numbers}"), Some(position)),
            (format!("$JS.ACK._.h4sh.LLMX_LOG.abc.{numbers}"), Some(position)),
            (format!("$JS.ACK.hub.h4sh.LLMX_LOG.abc.{numbers}.token"), Some(position)),
            ("$JS.ACK.LLMX_LOG.abc.1.17.3.1700000000123456789".to_owned(), None),
            ("$JS.ACK.LLMX_LOG.abc.1.x.3.1700000000123456789.9".to_owned(), None),
            ("$JS.FC.LLMX_LOG.abc.1".to_owned(), None),
            ("_INBOX.1".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(StreamPosition::parse(&reply), expected, "{reply}");
        }
    }
}
