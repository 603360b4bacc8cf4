//! The most an exchange can do: at which rate decisions still come in time, how many rounds it ends at most, and what it
//! does of more than that.

use super::exchange::MeasuredExchange;
use super::{AgentsVia, MeasuredBuild, OFFERED, P95, ProcessFigures, ProcessPlan, REACHED, UNENDED};
use crate::rounds::BenchError;

/// Decisions of a rate that counts as served: their p95, in milliseconds.
const P95_MS_MAX: f64 = 20.0;
/// Of the most that was reached, so much is offered as overload.
const OVERLOAD: f64 = 1.5;
/// The first rate offered.
const RATE_FIRST: f64 = 100.0;
/// The lowest; what does not serve it serves nothing.
const RATE_MIN: f64 = 5.0;
/// No search goes beyond.
const RATE_MAX: f64 = 50_000.0;
/// Each rate is so many times the one before, until one is not served.
const RUNG: f64 = 1.5;
/// A search ends when what is served and what is not are as close as this.
const CLOSE: f64 = 1.11;
/// More is done only when it is so many times as much.
const IMPROVEMENT_MIN: f64 = 1.03;
/// Rungs without more, until there is no more: one may be a hiccup.
const MISSES_MAX: u32 = 2;

/// The highest rate that is served with p95 below [`P95_MS_MAX`]; the most that is done of what is offered; and what is
/// done of half as much again.
pub(super) async fn limits(
    build: &MeasuredBuild,
    plan: &ProcessPlan,
    via: AgentsVia,
    on_progress: &impl Fn(&str),
) -> Result<[ProcessFigures; 3], BenchError> {
    let mut trials = Trials { build, plan, via, on_progress, exchange: None };
    let mut search = CapacitySearch::default();
    let (mut capacity, mut tried) = (ProcessFigures::default(), Vec::new());
    while let Some(rate) = search.next_rate() {
        let mut figures = trials.at(rate).await?;
        if !is_served(&figures) {
            // One hiccup of the machine is forgiven.
            tried.push(figures);
            figures = trials.at(rate).await?;
        }
        search.note(rate, is_served(&figures));
        if is_served(&figures) {
            capacity = figures.clone();
        }
        tried.push(figures);
    }
    let mut search = MostSearch::beyond(&tried);
    while let Some(rate) = search.next_rate() {
        let figures = trials.at(rate).await?;
        search.note(rate, reached(&figures));
        tried.push(figures);
    }
    let most = most_reached(&tried).unwrap_or_default();
    let mut overload = trials.at((reached(&most) * OVERLOAD).max(1.0)).await?;
    let share = reached(&overload) / reached(&most).max(f64::EPSILON);
    overload.add("share_of_most", share);
    Ok([capacity, most, overload])
}

fn is_served(figures: &ProcessFigures) -> bool {
    // Of nothing decided the p95 is 0.
    figures.value(P95).is_some_and(|p95| p95 > 0.0 && p95 <= P95_MS_MAX) && figures.value(UNENDED) == Some(0.0)
}

/// The measurements of one search: they share an exchange as long as it is not left behind by what is offered.
struct Trials<'a, P: Fn(&str)> {
    build: &'a MeasuredBuild,
    plan: &'a ProcessPlan,
    via: AgentsVia,
    on_progress: &'a P,
    exchange: Option<MeasuredExchange>,
}

impl<P: Fn(&str)> Trials<'_, P> {
    async fn at(&mut self, rate: f64) -> Result<ProcessFigures, BenchError> {
        (self.on_progress)(&format!("{}, up to {rate:.0} rounds/s: {}", <&str>::from(self.via), self.build.name()));
        let mut exchange = match self.exchange.take() {
            Some(exchange) => exchange,
            None => MeasuredExchange::start(self.build, self.plan, self.via).await?,
        };
        let figures = exchange.measure(rate, self.plan.searching).await?;
        self.exchange = is_served(&figures).then_some(exchange);
        Ok(figures)
    }
}

/// Looks for the highest rate that is served: up in rungs, then between the last two.
#[derive(Debug, Default)]
struct CapacitySearch {
    served: Option<f64>,
    refused: Option<f64>,
}

impl CapacitySearch {
    /// The rate to try, none when the search is over.
    fn next_rate(&self) -> Option<f64> {
        match (self.served, self.refused) {
            (None, None) => Some(RATE_FIRST),
            (Some(served), None) => Some(served * RUNG).filter(|rate| *rate <= RATE_MAX),
            (None, Some(refused)) => Some(refused / 2.0).filter(|rate| *rate >= RATE_MIN),
            (Some(served), Some(refused)) => (refused / served > CLOSE).then(|| (served * refused).sqrt()),
        }
    }

    /// Takes in how a rate was served.
    fn note(&mut self, rate: f64, is_served: bool) {
        *(if is_served { &mut self.served } else { &mut self.refused }) = Some(rate);
    }
}

/// Looks for the most per second, whatever it takes: each rate is so many times the one before, until more offered is no more
/// done.
#[derive(Debug)]
pub(super) struct MostSearch {
    next: f64,
    rung: f64,
    pub(super) best: f64,
    misses: u32,
}

impl MostSearch {
    pub(super) fn new(first: f64, rung: f64) -> Self {
        Self { next: first, rung, best: 0.0, misses: 0 }
    }

    fn beyond(tried: &[ProcessFigures]) -> Self {
        let offered = tried.iter().filter_map(|figures| figures.value(OFFERED)).fold(RATE_FIRST, f64::max);
        Self { best: most_reached(tried).as_ref().map_or(0.0, reached), ..Self::new(offered * RUNG, RUNG) }
    }

    /// The rate to try, none when the search is over.
    pub(super) fn next_rate(&self) -> Option<f64> {
        (self.misses < MISSES_MAX && self.next <= RATE_MAX).then_some(self.next)
    }

    /// Takes in what a rate gave.
    pub(super) fn note(&mut self, offered: f64, reached: f64) {
        self.next = offered * self.rung;
        self.misses = if reached > IMPROVEMENT_MIN * self.best { 0 } else { self.misses + 1 };
        self.best = self.best.max(reached);
    }
}

/// The measurement with the most rounds.
fn most_reached(tried: &[ProcessFigures]) -> Option<ProcessFigures> {
    tried.iter().max_by(|a, b| reached(a).total_cmp(&reached(b))).cloned()
}

fn reached(figures: &ProcessFigures) -> f64 {
    figures.value(REACHED).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the search finds when every rate up to `limit` is served, and how many rates it tried.
    fn found(limit: f64) -> (Option<f64>, usize) {
        let mut search = CapacitySearch::default();
        let mut tries = 0;
        while let Some(rate) = search.next_rate() {
            tries += 1;
            search.note(rate, rate <= limit);
        }
        (search.served, tries)
    }

    #[test]
    fn a_search_ends_within_an_eighth_of_the_limit() {
        for limit in [7.0, 37.0, 99.0, 100.0, 230.0, 1_200.0, 8_000.0, 40_000.0] {
            let (served, tries) = found(limit);
            let served = served.unwrap();
            assert!(served <= limit && served * 1.13 > limit, "{limit}: {served}");
            assert!(tries <= 20, "{limit}: {tries} tries");
        }
    }

    #[test]
    fn a_search_ends_where_nothing_or_everything_is_served() {
        assert_eq!(found(0.0).0, None);
        assert!(found(f64::INFINITY).0.is_some_and(|served| served > RATE_MAX / RUNG));
    }

    /// What the search for the most finds beyond one rate that was missed for its latency, of an exchange that does so
    /// much of what it is offered.
    fn most_found(does: impl Fn(f64) -> f64) -> f64 {
        let of = |offered| figures(&[(OFFERED, offered), (REACHED, does(offered))]);
        let mut tried = vec![of(100.0), of(50.0), of(71.0), of(59.0)];
        let mut search = MostSearch::beyond(&tried);
        while let Some(rate) = search.next_rate() {
            assert!(rate > 100.0, "{rate} was done before");
            search.note(rate, does(rate));
            tried.push(of(rate));
        }
        assert!(tried.len() < 24, "{tried:?}");
        most_reached(&tried).as_ref().map_or(0.0, reached)
    }

    #[test]
    fn the_most_is_found_beyond_what_comes_in_time() {
        let is_near = |found: f64, most: f64| found <= most && found > most / RUNG;
        assert!(is_near(most_found(|offered| offered.min(650.0)), 650.0));
        // Overload costs a part of what it could do, and one measurement is disturbed.
        assert!(is_near(most_found(|offered| if offered > 900.0 { 600.0 } else { offered }), 900.0));
        assert!(is_near(
            most_found(|offered| if (offered - 150.0).abs() < 1.0 { 90.0 } else { offered.min(500.0) }),
            501.0
        ));
        assert!(most_found(|_| 0.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_rate_is_served_when_decisions_came_in_time_and_every_call_ended() {
        let served = |p95, unended| is_served(&figures(&[(P95, p95), (UNENDED, unended)]));
        assert!(served(20.0, 0.0));
        assert!(!served(20.1, 0.0) && !served(5.0, 1.0) && !served(0.0, 0.0) && !is_served(&ProcessFigures::default()));
    }

    fn figures(values: &[(&str, f64)]) -> ProcessFigures {
        ProcessFigures(values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
    }
}
