//! The last pulse of each engine, and what changed over the last seconds. Pure: time comes as an argument, counted from
//! any one moment.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use schemas::pulse::{NAMED_MAX, Pulse, Spread};
use schemas::subject;

/// Engines remembered; the pulses of further ones are dropped. An exchange has a handful.
pub(super) const ENGINES_MAX: usize = 64;
/// An engine unheard for this long is forgotten: it tells something every second.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);
/// An engine unheard for this long has no rates any more: another may already do its work, and would be counted with it.
const QUIET_MAX: Duration = Duration::from_millis(2500);
/// Rates are means over at most this long.
const WINDOW: Duration = Duration::from_secs(5);
/// Points of the history, one a second.
pub(super) const HISTORY_MAX: usize = 120;
/// Largest pulse that is read, in bytes: twice what the longest names make of one.
const PULSE_BYTES_MAX: usize = 256 * 1024;
/// Outcomes counted apart; the protocol has ten.
const OUTCOMES_MAX: usize = 32;

/// The engines, by id.
#[derive(Default)]
pub(super) struct Pulses {
    engines: BTreeMap<String, Heard>,
    history: VecDeque<Point>,
}

/// One engine.
pub(super) struct Heard {
    /// What it said last.
    pub(super) pulse: Pulse,
    /// When.
    pub(super) at: Duration,
    marks: VecDeque<Mark>,
}

/// Counters of one engine as they stood once.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Duration,
    counts: [u64; 4],
}

/// Changes a second: of one engine or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub(super) struct Rates {
    pub(super) started: f64,
    pub(super) ended: f64,
    pub(super) awards: f64,
    pub(super) offers: f64,
}

/// Counts over every engine that is heard.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Totals {
    pub(super) open: u64,
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) ended_by_outcome: BTreeMap<String, u64>,
    pub(super) awards: u64,
    pub(super) offers: u64,
    pub(super) unacknowledged: u64,
    /// Engines that are gone have counted more.
    pub(super) lower_bound: bool,
}

/// One second of the past.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(super) struct Point {
    /// Negotiations ended per second.
    pub(super) ended_per_s: f64,
    /// From call to end, 95 of 100.
    pub(super) p95_us: u64,
}

impl Pulses {
    /// Takes what came on a subject; false when it is no pulse of the engine the subject names, or one engine too many.
    pub(super) fn handle_pulse(&mut self, on: &str, payload: &[u8], now: Duration) -> bool {
        if payload.len() > PULSE_BYTES_MAX {
            return false;
        }
        let Ok(mut pulse) = serde_json::from_slice::<Pulse>(payload) else { return false };
        if !is_engine_name(&pulse.engine) || subject::pulse(&pulse.engine) != on {
            return false;
        }
        self.forget_silent(now);
        if self.engines.len() >= ENGINES_MAX && !self.engines.contains_key(&pulse.engine) {
            return false;
        }
        pulse.newest.truncate(NAMED_MAX);
        pulse.latest.truncate(NAMED_MAX);
        pulse.owned.truncate(usize::from(u8::MAX));
        let marks = self.engines.remove(&pulse.engine).map(|heard| heard.marks).unwrap_or_default();
        let marks = marked(marks, Mark { at: now, counts: counts(&pulse) });
        self.engines.insert(pulse.engine.clone(), Heard { pulse, at: now, marks });
        true
    }

    /// Notes one point of the history.
    pub(super) fn handle_second(&mut self, now: Duration) {
        self.forget_silent(now);
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(Point { ended_per_s: self.rates(now).ended, p95_us: self.round().p95_us });
    }

    /// Drops engines that said nothing for [`SILENCE_MAX`].
    pub(super) fn forget_silent(&mut self, now: Duration) {
        self.engines.retain(|_, heard| now.saturating_sub(heard.at) <= SILENCE_MAX);
    }

    /// Every engine, in the order of the ids.
    pub(super) fn engines(&self) -> impl Iterator<Item = &Heard> {
        self.engines.values()
    }

    /// The past, oldest first.
    pub(super) fn history(&self) -> impl Iterator<Item = &Point> {
        self.history.iter()
    }

    /// Sums.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for Heard { pulse, .. } in self.engines() {
            add(&mut totals.open, pulse.open);
            add(&mut totals.started, pulse.started);
            add(&mut totals.awards, pulse.awards);
            add(&mut totals.offers, pulse.offers);
            add(&mut totals.unacknowledged, pulse.unacknowledged);
            totals.lower_bound |= pulse.lower_bound;
            for (outcome, &count) in &pulse.ended {
                add(&mut totals.ended, count);
                let by_outcome = &mut totals.ended_by_outcome;
                if by_outcome.len() < OUTCOMES_MAX || by_outcome.contains_key(outcome) {
                    add(by_outcome.entry(outcome.clone()).or_default(), count);
                }
            }
        }
        totals
    }

    /// What all engines together do in a second.
    pub(super) fn rates(&self, now: Duration) -> Rates {
        self.engines().map(|heard| heard.rates(now)).fold(Rates::default(), |sum, rates| Rates {
            started: sum.started + rates.started,
            ended: sum.ended + rates.ended,
            awards: sum.awards + rates.awards,
            offers: sum.offers + rates.offers,
        })
    }

    /// From call to end. Quantiles of several engines cannot be joined exactly: the largest of each is told, and the
    /// true one is at most that.
    pub(super) fn round(&self) -> Spread {
        let spreads = self.engines().map(|heard| heard.pulse.round).filter(|spread| spread.count > 0);
        spreads.fold(Spread::default(), |one, other| Spread {
            count: one.count.saturating_add(other.count),
            p50_us: one.p50_us.max(other.p50_us),
            p95_us: one.p95_us.max(other.p95_us),
            p99_us: one.p99_us.max(other.p99_us),
        })
    }
}

impl Heard {
    /// What this engine does in a second; 0 until it has been heard twice, and from [`QUIET_MAX`] of silence on.
    pub(super) fn rates(&self, now: Duration) -> Rates {
        if now.saturating_sub(self.at) > QUIET_MAX {
            return Rates::default();
        }
        let (Some(first), Some(last)) = (self.marks.front(), self.marks.back()) else { return Rates::default() };
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        if seconds <= 0.0 {
            return Rates::default();
        }
        let rate = |index: usize| {
            let change = last.counts[index].saturating_sub(first.counts[index]) as f64 / seconds;
            (change * 10.0).round() / 10.0
        };
        Rates { started: rate(0), ended: rate(1), awards: rate(2), offers: rate(3) }
    }
}

fn marked(mut marks: VecDeque<Mark>, mark: Mark) -> VecDeque<Mark> {
    let fell = |last: &Mark| last.counts.iter().zip(mark.counts).any(|(&before, after)| after < before);
    if marks.back().is_some_and(fell) {
        // A counter that fell is a new process under the old name.
        marks.clear();
    }
    // One pulse a second is what a window holds; a flood of them replaces the last instead of growing.
    if marks.len() as u64 > WINDOW.as_secs() * 2 {
        marks.pop_back();
    }
    marks.push_back(mark);
    while marks.len() > 2 && marks.front().is_some_and(|first| mark.at.saturating_sub(first.at) > WINDOW) {
        marks.pop_front();
    }
    marks
}

fn counts(pulse: &Pulse) -> [u64; 4] {
    let ended = pulse.ended.values().fold(0, |sum: u64, &count| sum.saturating_add(count));
    [pulse.started, ended, pulse.awards, pulse.offers]
}

fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

fn is_engine_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests;
