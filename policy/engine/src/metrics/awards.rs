//! Who the awards of the last minutes went to, by rank: how unequal they are, without naming anybody.

use std::collections::VecDeque;

use ahash::{HashMap, HashMapExt as _};
use parking_lot::Mutex;
use policy_core::Event;
use prometheus::{Error, Registry};
use schemas::{AgentId, Timestamp};
use serde::Serialize;

/// Minutes that are looked back at, the present one included.
const MINUTES: usize = 5;
const MINUTE_US: u64 = 60_000_000;
/// Contractors that are told apart within one minute, in at most 2 MiB for all minutes. What goes to others in it is left
/// out.
const CONTRACTORS_MAX: usize = 4096;
/// Ranks with a share of their own; the paper's largest population.
const RANKS: usize = 12;
/// How the ranks are called, and all below them.
const LABELS: [&str; RANKS + 1] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "rest"];
/// Gap between two computations, in microseconds.
const GAP_US: u64 = 1_000_000;

telemetry::metrics! {
    /// How awards spread over contractors.
    struct Shares {
        /// Share of this engine's binding awards of the last five minutes that went to the contractor with the most, the
        /// second most and so on; to all below the twelfth under `rest`. 0 without awards.
        by_rank: Ratio[rank: &'static str = LABELS] = "exchange_award_share";
        /// Jain's index over this engine's binding awards of the last five minutes and all contractors that made a valid
        /// offer: 1 when all win alike, 1/n when one of n wins all. Read it against exchange_award_jain_null, never against
        /// 1. 0 without awards.
        jain: Ratio = "exchange_award_jain";
        /// The index a fair draw of as many awards among as many contractors gives on average. 0 without awards.
        null: Ratio = "exchange_award_jain_null";
        /// Binding awards of the last five minutes on which this engine's shares are computed.
        awards: Ratio = "exchange_award_window_awards";
    }
}

pub(super) struct AwardMetrics {
    shown: Shares,
    window: Mutex<Window>,
}

impl AwardMetrics {
    pub(super) fn try_new(registry: &Registry) -> Result<Self, Error> {
        Ok(Self { shown: Shares::try_new(registry)?, window: Mutex::default() })
    }

    /// Takes note of a fact that was folded at `at`.
    pub(super) fn handle(&self, event: &Event, at: Timestamp) {
        if let Event::Committed { contractor, .. } = event {
            self.window.lock().add(contractor, 1, at);
        }
        // The seats of a team are no awards.
        if let Event::Decided(decision) = event
            && decision.seats.is_none()
        {
            let mut window = self.window.lock();
            decision.offers.iter().for_each(|offer| window.add(&offer.contractor, 0, at));
        }
    }

    /// Shows what the last minutes come to, at most once a second of log time.
    pub(super) fn show(&self, now: Timestamp) {
        let Some(wins) = self.window.lock().wins(now) else { return };
        let (shown, inequality) = (&self.shown, Inequality::of(wins));
        shown.by_rank.iter().zip(inequality.shares).for_each(|(gauge, share)| gauge.set(share));
        shown.jain.set(inequality.jain);
        shown.null.set(inequality.null);
        shown.awards.set(inequality.awards);
    }
}

/// Awards by contractor, of each of the last minutes.
#[derive(Debug, Default)]
struct Window {
    minutes: VecDeque<(u64, HashMap<AgentId, u32>)>,
    computed_at: Timestamp,
}

impl Window {
    fn add(&mut self, contractor: &AgentId, awards: u32, at: Timestamp) {
        self.advance(at);
        // Lanes differ by moments: what is older than the newest minute counts in that.
        let Some((_, minute)) = self.minutes.back_mut() else { return };
        if let Some(known) = minute.get_mut(contractor) {
            *known += awards;
        } else if minute.len() < CONTRACTORS_MAX {
            minute.insert(contractor.clone(), awards);
        }
    }

    /// Begins the minute of `at` unless a later one has begun, and forgets those that are too old.
    fn advance(&mut self, at: Timestamp) {
        let minute = at.0 / MINUTE_US;
        if self.minutes.back().is_none_or(|(newest, _)| *newest < minute) {
            self.minutes.push_back((minute, HashMap::new()));
        }
        let newest = self.minutes.back().map_or(minute, |(newest, _)| *newest);
        while self.minutes.front().is_some_and(|(oldest, _)| oldest + (MINUTES as u64) <= newest) {
            self.minutes.pop_front();
        }
    }

    /// Awards of each contractor that made an offer; nothing when that was asked less than a second ago.
    fn wins(&mut self, now: Timestamp) -> Option<Vec<u64>> {
        if now.since_us(self.computed_at) < GAP_US {
            return None;
        }
        self.computed_at = now;
        self.advance(now);
        let mut wins: HashMap<&AgentId, u64> = HashMap::new();
        for (contractor, awards) in self.minutes.iter().flat_map(|(_, minute)| minute) {
            *wins.entry(contractor).or_default() += u64::from(*awards);
        }
        Some(wins.into_values().collect())
    }
}

/// How unequal awards are.
#[derive(Debug, Default, PartialEq)]
struct Inequality {
    /// In the order of [`LABELS`].
    shares: [f64; LABELS.len()],
    jain: f64,
    null: f64,
    awards: f64,
}

impl Inequality {
    /// Of the awards of each contractor, losers included as 0.
    fn of(mut wins: Vec<u64>) -> Self {
        let Some(Jain { index, null, awards }) = Jain::of(&wins) else { return Self::default() };
        let awards = awards as f64;
        wins.sort_unstable_by(|one, other| other.cmp(one));
        let mut shares = [0.0; LABELS.len()];
        for (rank, won) in wins.into_iter().enumerate() {
            shares[rank.min(RANKS)] += won as f64 / awards;
        }
        Self { shares, jain: index, null, awards }
    }
}

/// Jain's index over wins, beside what perfect fairness would give after as many awards.
///
/// With few awards even a perfectly fair draw has a low index: read `index` against `null`, never against 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Jain {
    /// (sum of wins)^2 / (contractors x sum of squared wins); 1/n when one wins all, 1 when all win alike.
    pub index: f64,
    /// Expected index under a fair draw: 1 / (1 + (n - 1) / awards).
    pub null: f64,
    /// Awards counted.
    pub awards: u64,
}

impl Jain {
    /// The index over the wins of each contractor, losers included as 0. `None` without contractors or awards.
    #[must_use]
    pub fn of(wins: &[u64]) -> Option<Self> {
        let awards: u64 = wins.iter().sum();
        if awards == 0 {
            return None;
        }
        let contractors = wins.len() as f64;
        let total = awards as f64;
        let squares: f64 = wins.iter().map(|&won| (won as f64).powi(2)).sum();
        Some(Self {
            index: total * total / (contractors * squares),
            null: 1.0 / (1.0 + (contractors - 1.0) / total),
            awards,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPSILON: f64 = 1e-9;

    #[test]
    fn shares_go_by_rank_and_the_index_by_how_unequal_they_are() {
        assert_eq!(Inequality::of(vec![0, 0, 0]), Inequality::default(), "without awards");
        let one = Inequality::of(vec![0, 20, 0, 0]);
        assert!((one.jain - 0.25).abs() < EPSILON && (one.shares[0] - 1.0).abs() < EPSILON, "{one:?}");
        let even = Inequality::of(vec![5; 4]);
        assert!((even.jain - 1.0).abs() < EPSILON && (even.shares[3] - 0.25).abs() < EPSILON, "{even:?}");
        let many = Inequality::of((1..=20).collect());
        assert!((many.shares[0] - 20.0 / 210.0).abs() < EPSILON && (many.shares[RANKS] - 36.0 / 210.0).abs() < EPSILON);
        assert!((many.shares.iter().sum::<f64>() - 1.0).abs() < EPSILON);
    }

    #[test]
    fn awards_are_forgotten_after_five_minutes_and_who_offered_in_vain_counts() {
        let mut window = Window::default();
        let minute = |number: u64| Timestamp(number * MINUTE_US);
        window.add(&agent("bob"), 1, minute(10));
        window.add(&agent("carol"), 0, minute(10));
        window.add(&agent("bob"), 1, minute(13));
        window.add(&agent("dave"), 1, minute(12));
        let mut wins = window.wins(minute(14)).unwrap();
        wins.sort_unstable();
        assert_eq!(wins, [0, 1, 2], "an older record counts in the newest minute");
        assert_eq!(window.wins(Timestamp(minute(14).0 + GAP_US - 1)), None, "once a second");
        let mut wins = window.wins(minute(15)).unwrap();
        wins.sort_unstable();
        assert_eq!(wins, [1, 1]);
        assert_eq!(window.wins(minute(18)), Some(Vec::new()));
    }

    #[test]
    fn the_table_of_a_minute_and_of_all_is_bounded() {
        let mut window = Window::default();
        for minute in 0..20 {
            for number in 0..=CONTRACTORS_MAX {
                window.add(&agent(&format!("c{number}")), 1, Timestamp(minute * MINUTE_US));
            }
        }
        assert_eq!(window.minutes.len(), MINUTES);
        assert!(window.minutes.iter().all(|(_, minute)| minute.len() == CONTRACTORS_MAX));
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    #[test]
    fn equal_wins_give_one_and_a_monopoly_gives_one_over_n() {
        assert!((Jain::of(&[5, 5, 5, 5]).unwrap().index - 1.0).abs() < 1e-12);
        assert!((Jain::of(&[20, 0, 0, 0]).unwrap().index - 0.25).abs() < 1e-12);
        assert_eq!(Jain::of(&[0, 0]), None);
    }

    /// Under a fair draw, n = 12.
    #[test]
    fn the_null_expectation_matches_the_table() {
        for (awards, expected) in [(3_u64, 0.21), (30, 0.73), (806, 0.987)] {
            let mut wins = [0; 12];
            wins[0] = awards;
            assert!((Jain::of(&wins).unwrap().null - expected).abs() < 0.005, "{awards}");
        }
    }
}
