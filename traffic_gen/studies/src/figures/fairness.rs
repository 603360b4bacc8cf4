//! M20 to M25, M30 and M37 to M40: who wins, and what hints at an arrangement.

use std::cmp::Ordering;

use super::group::{WINS, WINS_EXPECTED, Weighted};
use super::tally::ContractorTally;
use super::{Sheet, metrics, theory};

/// Adds M20 to M25, M30 and M37 to M40.
pub fn put(sheet: &mut Sheet<'_>) {
    jain(sheet);
    shares(sheet);
    order(sheet);
    sheet.put_set("fairness", None);
    let rotation = sheet.put("M39", |seeds| {
        let (sum, count) = seeds.over_seeds(super::tally::Tally::runs);
        (count > 0.0).then(|| sum / count.sqrt())
    });
    rotation.theory = Some(0.0);
}

fn jain(sheet: &mut Sheet<'_>) {
    let rates = |seeds: Weighted<'_>| -> Vec<f64> {
        let opportunities = seeds.by_contractor(|contractor| contractor.offers as f64);
        let wins = seeds.by_contractor(|contractor| contractor.wins as f64);
        wins.iter().zip(opportunities).map(|(wins, opportunities)| wins / opportunities.max(1.0)).collect()
    };
    let awards =
        sheet.group.whole(|seeds| seeds.by_contractor(|contractor| contractor.wins as f64).iter().sum::<f64>());
    let n = sheet.group.whole(|seeds| rates(seeds).len()) as f64;
    let is_enough = n >= 2.0 && awards >= theory::jain_rounds_min(n);
    let figure = sheet.put("M20", |seeds| is_enough.then(|| jain_index(&rates(seeds)))?);
    figure.theory = is_enough.then(|| theory::jain_null(n, awards));
    let limit = is_enough.then(|| theory::jain_null_low(n, awards)).flatten();
    sheet.put("M20n", |_| limit).interval = None;
}

fn jain_index(rates: &[f64]) -> Option<f64> {
    let (sum, squares): (f64, f64) = (rates.iter().sum(), rates.iter().map(|rate| rate * rate).sum());
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

fn shares(sheet: &mut Sheet<'_>) {
    let expected = sheet.group.whole(|seeds| seeds.mean("theory rank")).filter(|_| !sheet.group.is_threshold());
    sheet.put("M21", |seeds| Some(seeds.mean("rank")? - 1.0)).theory = expected.map(|rank| rank - 1.0);
    sheet.put("M22", |seeds| {
        let share = |of: fn(&ContractorTally) -> f64| -> Option<Vec<f64>> {
            let counts: Vec<f64> = seeds.by_contractor(of);
            let total: f64 = counts.iter().sum();
            (total > 0.0).then(|| counts.iter().map(|count| count / total).collect())
        };
        let (wins, best) = (share(|contractor| contractor.wins as f64)?, share(|contractor| contractor.best as f64)?);
        Some(wins.iter().zip(&best).map(|(wins, best)| (wins - best).abs()).sum::<f64>() / 2.0)
    });
}

fn order(sheet: &mut Sheet<'_>) {
    let expected = sheet.group.whole(|seeds| seeds.first_proposal_advantage(WINS_EXPECTED));
    let is_free = !sheet.group.is_threshold();
    sheet.put("M23", |seeds| seeds.first_proposal_advantage(WINS)).theory = expected.filter(|_| is_free);
    sheet.put("M24", speed_and_awards);
    metrics::models(sheet);
}

fn speed_and_awards(seeds: Weighted<'_>) -> Option<f64> {
    let of = |figure: fn(&ContractorTally) -> f64| seeds.by_contractor(figure);
    let offers = of(|contractor| contractor.offers as f64);
    let per_offer =
        |sums: Vec<f64>| -> Vec<f64> { sums.iter().zip(&offers).map(|(sum, offers)| sum / offers.max(1.0)).collect() };
    let wins = per_offer(of(|contractor| contractor.wins as f64));
    let costs = per_offer(of(|contractor| contractor.cost));
    let stored = of(|contractor| contractor.stored as f64);
    let taken = of(|contractor| contractor.taken_us);
    let speeds: Vec<f64> = taken.iter().zip(stored).map(|(taken, stored)| -taken / stored.max(1.0)).collect();
    if wins.len() < 3 {
        return None;
    }
    let tau = |a: &[f64], b: &[f64]| {
        let order = |a: &f64, b: &f64| a.partial_cmp(b).unwrap_or(Ordering::Equal);
        kendalls::tau_b_with_comparator(a, b, order).ok().map(|(tau, _)| tau).filter(|tau| tau.is_finite())
    };
    let (together, own, other) = (tau(&wins, &speeds)?, tau(&wins, &costs)?, tau(&speeds, &costs)?);
    let held = (1.0 - own * own) * (1.0 - other * other);
    (held > 0.0).then(|| (together - own * other) / held.sqrt())
}
