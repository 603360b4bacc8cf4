//! What the log says of deliveries that were given up: one line an agent and minute, with the number of them. Holds no
//! socket and reads no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::{AgentId, DeliveryId, NegotiationId};
use telemetry::TraceId;
use tokio::time::Instant;

use crate::metrics::DeadLetterReason;

/// Gap between two lines about one agent.
const LINE_GAP: Duration = Duration::from_secs(60);
/// Agents spoken of apart; those beyond share a line.
const AGENTS_MAX: usize = 1024;

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadLetter {
    pub(crate) id: DeliveryId,
    pub(crate) to: AgentId,
    pub(crate) negotiation: NegotiationId,
    pub(crate) trace_id: TraceId,
    pub(crate) attempts: u32,
    pub(crate) reason: DeadLetterReason,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    by_agent: BTreeMap<AgentId, UnreportedLetters>,
    others: UnreportedLetters,
}

#[derive(Debug, Default)]
struct UnreportedLetters {
    /// Since the last line.
    count: u64,
    last: Option<DeadLetter>,
    said_at: Option<Instant>,
}

/// A line for the log: how many were given up since the line before, and the last of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) count: u64,
    pub(crate) last: DeadLetter,
    /// It is about several agents, of which the last letter names one.
    pub(crate) is_of_others: bool,
}

impl DeadLetters {
    /// A delivery was given up.
    pub(crate) fn note(&mut self, letter: DeadLetter) {
        let has_room = self.by_agent.len() < AGENTS_MAX || self.by_agent.contains_key(&letter.to);
        let unreported = if has_room { self.by_agent.entry(letter.to.clone()).or_default() } else { &mut self.others };
        unreported.count += 1;
        unreported.last = Some(letter);
    }

    /// Whether there is nothing left to say.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_agent.values().all(|unreported| unreported.count == 0) && self.others.count == 0
    }

    /// The lines that are due; agents of which there was nothing to say for a while are forgotten.
    pub(crate) fn poll_lines(&mut self, now: Instant) -> Vec<Line> {
        let own = self.by_agent.values_mut().filter_map(|unreported| unreported.poll_line(now, false));
        let lines = own.collect::<Vec<_>>().into_iter().chain(self.others.poll_line(now, true)).collect();
        self.by_agent.retain(|_, unreported| unreported.count > 0 || !unreported.is_due(now));
        lines
    }
}

impl UnreportedLetters {
    fn is_due(&self, now: Instant) -> bool {
        self.said_at.is_none_or(|at| now.saturating_duration_since(at) >= LINE_GAP)
    }

    fn poll_line(&mut self, now: Instant, is_of_others: bool) -> Option<Line> {
        if !self.is_due(now) {
            return None;
        }
        let last = self.last.take()?;
        self.said_at = Some(now);
        Some(Line { count: std::mem::take(&mut self.count), last, is_of_others })
    }
}

impl Line {
    pub(crate) fn log(&self) {
        let DeadLetter { id, to, negotiation, trace_id, attempts, reason } = &self.last;
        let (count, reason) = (self.count, reason.as_str());
        if self.is_of_others {
            tracing::warn!(count, %negotiation, %trace_id, %id, %to, attempts, reason, "dead letters of several agents; this is the last");
        } else {
            tracing::warn!(count, %negotiation, %trace_id, %id, %to, attempts, reason, "dead letters of an agent; this is the last");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::fixture::id;

    #[test]
    fn an_agent_has_one_line_a_minute_with_the_number() {
        let (mut letters, start) = (DeadLetters::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        for _ in 0..3 {
            letters.note(letter("bob", 1));
        }
        letters.note(letter("carol", 2));
        assert_eq!(said(&letters.poll_lines(at(0))), [("bob".to_owned(), 3), ("carol".to_owned(), 1)]);
        for second in 1..60 {
            (0..360).for_each(|_| letters.note(letter("bob", 3)));
            assert!(letters.poll_lines(at(second)).is_empty(), "{second}");
        }
        assert_eq!(said(&letters.poll_lines(at(60))), [("bob".to_owned(), 59 * 360)]);
        assert!(letters.poll_lines(at(61)).is_empty());
    }

    #[test]
    fn agents_beyond_the_bound_share_a_line_and_silent_ones_are_forgotten() {
        let (mut letters, start) = (DeadLetters::default(), Instant::now());
        for number in 0..2 * AGENTS_MAX {
            letters.note(letter(&format!("a{number}"), 1));
        }
        let lines = letters.poll_lines(start);
        assert_eq!(lines.len(), AGENTS_MAX + 1);
        let last = lines.last().unwrap();
        assert!(last.is_of_others && last.count == AGENTS_MAX as u64, "{last:?}");
        assert!(letters.poll_lines(start + LINE_GAP).is_empty());
        assert!(letters.by_agent.is_empty());
    }

    fn letter(to: &str, number: u128) -> DeadLetter {
        DeadLetter {
            id: id(number),
            to: AgentId::try_new(to).unwrap(),
            negotiation: NegotiationId::try_new("alice~job").unwrap(),
            trace_id: TraceId::of(&NegotiationId::try_new("alice~job").unwrap()),
            attempts: 3,
            reason: DeadLetterReason::Attempts,
        }
    }

    fn said(lines: &[Line]) -> Vec<(String, u64)> {
        lines.iter().map(|line| (line.last.to.to_string(), line.count)).collect()
    }
}
