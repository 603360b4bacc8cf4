//! The latest statistics of each engine, and what changed over the last seconds. Pure: time comes as an argument, counted from
//! any one moment.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use schemas::statistics::{
    AGENTS_MAX, BUCKETS_MAX, FAULTS_MAX, Histogram, NAMED_MAX, POLICIES_MAX, Quantiles, Statistics,
};
use schemas::subject;

use super::{EngineStatistics, Mark, RatePoint, Rates, ReceivedStatistics, Totals, is_token, largest};

/// Engines remembered; the statistics of further ones are dropped. An exchange has a handful.
const ENGINES_MAX: usize = 64;
/// An engine unheard for this long is forgotten: it tells something every second.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// An engine unheard for this long has no rates any more: another may already do its work, and would be counted with it.
const QUIET_MAX: Duration = Duration::from_millis(2500);
/// Rates are means over at most this long.
const WINDOW: Duration = Duration::from_secs(5);
/// Points of the history, one a second.
const HISTORY_MAX: usize = 120;
/// Largest statistics that are read, in bytes: twice what the longest names make of one.
const STATISTICS_BYTES_MAX: usize = 256 * 1024;
/// Outcomes counted apart; the protocol has ten.
const OUTCOMES_MAX: usize = 32;

/// Longest fault that is kept, in bytes.
const FAULT_BYTES_MAX: usize = 512;

impl EngineStatistics {
    /// Takes what came on a subject; false when they are no statistics of the engine the subject names, or one engine too many.
    pub(super) fn handle_statistics(&mut self, on: &str, payload: &[u8], now: Duration) -> bool {
        if payload.len() > STATISTICS_BYTES_MAX {
            return false;
        }
        let Ok(mut statistics) = serde_json::from_slice::<Statistics>(payload) else { return false };
        if !is_token(&statistics.engine) || subject::statistics(&statistics.engine) != on {
            return false;
        }
        self.forget_silent(now);
        if self.engines.len() >= ENGINES_MAX && !self.engines.contains_key(&statistics.engine) {
            return false;
        }
        bound(&mut statistics);
        let marks = self.engines.remove(&statistics.engine).map(|heard| heard.marks).unwrap_or_default();
        let ended = |policy: &schemas::statistics::PolicyActivity| (policy.policy.clone(), policy.ended);
        let mark = Mark {
            at: now,
            counts: counts(&statistics),
            ended_by_policy: statistics.policies.iter().map(ended).collect(),
        };
        self.has_lost_counts |= marks.back().is_some_and(|last| mark.has_fallen(last));
        let marks = marked(marks, mark);
        self.engines.insert(statistics.engine.clone(), ReceivedStatistics { latest: statistics, at: now, marks });
        true
    }

    /// Notes one point of the history.
    pub(super) fn handle_second(&mut self, now: Duration) {
        self.forget_silent(now);
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        let recent = self.recent();
        self.history.push_back(RatePoint {
            ended_per_s: self.rates(now).ended,
            p95_us: self.round().p95_us,
            recent_p50_us: recent.p50_us,
            recent_p95_us: recent.p95_us,
            ended_per_s_by_policy: self.ended_per_s_by_policy(now),
        });
    }

    /// Drops engines that said nothing for [`SILENCE_MAX`].
    pub(super) fn forget_silent(&mut self, now: Duration) {
        let mut has_lost_counts = self.has_lost_counts;
        self.engines.retain(|_, heard| {
            let is_heard = now.saturating_sub(heard.at) <= SILENCE_MAX;
            has_lost_counts |= !is_heard && counts(&heard.latest) != [0; 4];
            is_heard
        });
        self.has_lost_counts = has_lost_counts;
    }

    /// Sums.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals { lower_bound: self.has_lost_counts, ..Totals::default() };
        for ReceivedStatistics { latest: statistics, .. } in self.engines.values() {
            add(&mut totals.open, statistics.open);
            add(&mut totals.started, statistics.started);
            add(&mut totals.awards, statistics.awards);
            add(&mut totals.binding, statistics.binding);
            add(&mut totals.offers, statistics.offers);
            add(&mut totals.unacknowledged, statistics.unacknowledged);
            totals.lower_bound |= statistics.lower_bound;
            for (outcome, &count) in &statistics.ended {
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
        self.engines.values().map(|heard| heard.rates(now)).fold(Rates::default(), |sum, rates| Rates {
            started: sum.started + rates.started,
            ended: sum.ended + rates.ended,
            awards: sum.awards + rates.awards,
            offers: sum.offers + rates.offers,
        })
    }

    /// Negotiations ended per second under each policy, over the last seconds.
    pub(super) fn ended_per_s_by_policy(&self, now: Duration) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for heard in self.engines.values().filter(|heard| heard.is_counted(now)) {
            for policy in &heard.latest.policies {
                let ended = |mark: &Mark| mark.ended_by_policy.get(&policy.policy).copied().unwrap_or(0);
                *sums.entry(policy.policy.clone()).or_default() += heard.per_s(ended);
            }
        }
        sums
    }

    /// From call to end, of the last minute.
    pub(super) fn round(&self) -> Quantiles {
        let is_measured = |heard: &&ReceivedStatistics| heard.latest.round.count > 0;
        // Of an engine that tells no histogram only the quantiles are known.
        if self.engines.values().filter(is_measured).all(|heard| !heard.latest.durations.0.is_empty()) {
            return self.durations().spread();
        }
        largest(self.engines.values().map(|heard| heard.latest.round))
    }

    /// The durations of the last minute.
    pub(super) fn durations(&self) -> Histogram {
        let mut all = Histogram::default();
        self.engines.values().for_each(|heard| all.merge(&heard.latest.durations));
        all
    }

    /// From call to end, of the last five seconds.
    fn recent(&self) -> Quantiles {
        largest(self.engines.values().map(|heard| heard.latest.recent))
    }
}

/// Holds statistics to the bounds engines keep to.
fn bound(statistics: &mut Statistics) {
    statistics.newest.truncate(NAMED_MAX);
    statistics.latest.truncate(NAMED_MAX);
    statistics.owned.truncate(usize::from(u8::MAX));
    statistics.policies.truncate(POLICIES_MAX + 1);
    statistics.agents.truncate(AGENTS_MAX);
    statistics.faults.retain(|fault| fault.len() <= FAULT_BYTES_MAX);
    statistics.faults.truncate(FAULTS_MAX);
    let histograms = statistics.policies.iter_mut().map(|policy| &mut policy.durations);
    for histogram in histograms.chain([&mut statistics.durations]) {
        while histogram.0.len() > BUCKETS_MAX {
            histogram.0.pop_last();
        }
    }
}

impl Mark {
    /// A counter that fell is a new process under the old name.
    fn has_fallen(&self, before: &Self) -> bool {
        before.counts.iter().zip(self.counts).any(|(&before, after)| after < before)
    }
}

impl ReceivedStatistics {
    /// What this engine does in a second; 0 until it has been heard twice, and from [`QUIET_MAX`] of silence on.
    pub(super) fn rates(&self, now: Duration) -> Rates {
        if !self.is_counted(now) {
            return Rates::default();
        }
        let rate = |index: usize| self.per_s(|mark| mark.counts[index]);
        Rates { started: rate(0), ended: rate(1), awards: rate(2), offers: rate(3) }
    }

    fn is_counted(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) <= QUIET_MAX
    }

    /// How much a counter rises in a second, to a tenth.
    fn per_s(&self, counter: impl Fn(&Mark) -> u64) -> f64 {
        let (Some(first), Some(last)) = (self.marks.front(), self.marks.back()) else { return 0.0 };
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        if seconds <= 0.0 {
            return 0.0;
        }
        let change = counter(last).saturating_sub(counter(first)) as f64 / seconds;
        (change * 10.0).round() / 10.0
    }
}

fn marked(mut marks: VecDeque<Mark>, mark: Mark) -> VecDeque<Mark> {
    if marks.back().is_some_and(|last| mark.has_fallen(last)) {
        marks.clear();
    }
    // One message a second is what a window holds; a flood of them replaces the last instead of growing.
    if marks.len() as u64 > WINDOW.as_secs() * 2 {
        marks.pop_back();
    }
    let now = mark.at;
    marks.push_back(mark);
    while marks.len() > 2 && marks.front().is_some_and(|first| now.saturating_sub(first.at) > WINDOW) {
        marks.pop_front();
    }
    marks
}

fn counts(statistics: &Statistics) -> [u64; 4] {
    let ended = statistics.ended.values().fold(0, |sum: u64, &count| sum.saturating_add(count));
    [statistics.started, ended, statistics.awards, statistics.offers]
}

fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

#[cfg(test)]
mod tests;
