//! M20 to M25, M30 and M37 to M40: who wins, and what hints at an arrangement.

use std::cmp::Ordering;

use super::group::Weighted;
use super::tally::ContractorTally;
use super::{Sheet, Wording, models, theory};

const AWARDED: &str = "nothing was awarded; needs a policy that awards";

/// Adds M20 to M25, M30 and M37 to M40.
pub fn put(sheet: &mut Sheet<'_>) {
    jain(sheet);
    shares(sheet);
    order(sheet);
    collusion(sheet);
}

fn jain(sheet: &mut Sheet<'_>) {
    let entry = Wording {
        key: "M20",
        name: "Jain's index of awards",
        unit: "index",
        definition: "(sum of win rates)^2 / (n times the sum of their squares); theory: its mean where each is as likely",
        needs: "needs awards to at least two contractors, and 800 of them where there are 12: fewer say nothing of fairness",
    };
    let rates = |seeds: Weighted<'_>| -> Vec<f64> {
        let opportunities = seeds.by_contractor(|contractor| contractor.offers as f64);
        let wins = seeds.by_contractor(|contractor| contractor.wins as f64);
        wins.iter().zip(opportunities).map(|(wins, opportunities)| wins / opportunities.max(1.0)).collect()
    };
    let awards =
        sheet.group.whole(|seeds| seeds.by_contractor(|contractor| contractor.wins as f64).iter().sum::<f64>());
    let n = sheet.group.whole(|seeds| rates(seeds).len()) as f64;
    let is_enough = n >= 2.0 && awards >= theory::jain_rounds_min(n);
    let figure = sheet.put(&entry, |seeds| is_enough.then(|| jain_index(&rates(seeds)))?);
    figure.theory = is_enough.then(|| theory::jain_null(n, awards));
    let low = Wording {
        key: "M20n",
        name: "Jain's index, fair runs above it",
        unit: "index",
        definition: "what the index of 19 in 20 fair runs of as many awards is above",
        needs: entry.needs,
    };
    let limit = is_enough.then(|| theory::jain_null_low(n, awards)).flatten();
    sheet.put(&low, |_| limit).interval = None;
}

fn jain_index(rates: &[f64]) -> Option<f64> {
    let (sum, squares): (f64, f64) = (rates.iter().sum(), rates.iter().map(|rate| rate * rate).sum());
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

fn shares(sheet: &mut Sheet<'_>) {
    let envy = Wording {
        key: "M21",
        name: "justified envy",
        unit: "contractors",
        definition: "contractors whose valid offer, in time or late, was better than the first award; theory: (n - k) / (k + 1)",
        needs: AWARDED,
    };
    let expected = sheet.group.whole(|seeds| seeds.mean("theory rank")).filter(|_| !sheet.group.is_threshold());
    sheet.put(&envy, |seeds| Some(seeds.mean("rank")? - 1.0)).theory = expected.map(|rank| rank - 1.0);
    let distance = Wording {
        key: "M22",
        name: "awards against merit",
        unit: "share",
        definition: "half the sum of the differences between each contractor's share of the awards and of the best offers",
        needs: AWARDED,
    };
    sheet.put(&distance, |seeds| {
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
    let first = Wording {
        key: "M23",
        name: "first-proposal advantage",
        unit: "ratio",
        definition: "how many times more often the first to offer is chosen than any one other; theory: (n - 1) / (k - 1)",
        needs: "nobody but the first was ever chosen; needs a policy that waits for more than one offer",
    };
    let expected = sheet.group.whole(|seeds| {
        let another = seeds.mean("theory another wins").filter(|another| *another > 0.0)?;
        Some(seeds.mean("theory first wins")? / another)
    });
    let is_free = !sheet.group.is_threshold();
    sheet.put(&first, |seeds| seeds.first_proposal_advantage()).theory = expected.filter(|_| is_free);
    let speed = Wording {
        key: "M24",
        name: "speed and awards",
        unit: "tau",
        definition: "Kendall's partial rank correlation of win share and speed among contractors, with their mean cost held still",
        needs: "needs at least three contractors that differ in awards, speed and cost",
    };
    sheet.put(&speed, speed_and_awards);
    models::put(sheet);
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

fn collusion(sheet: &mut Sheet<'_>) {
    let needs = "needs rounds with at least two valid offers in time";
    let identical = Wording {
        key: "M37",
        name: "identical offers",
        unit: "share",
        definition: "pairs of offers of one round with the same cost",
        needs,
    };
    sheet.mean(&identical, "identical");
    let variation = Wording {
        key: "M38",
        name: "variation of offers",
        unit: "ratio",
        definition: "standard deviation of the costs of one round in parts of their mean, averaged",
        needs,
    };
    sheet.mean(&variation, "variation");
    let rotation = Wording {
        key: "M39",
        name: "rotation of winners",
        unit: "standard deviations",
        definition: "Wald-Wolfowitz runs of one winner against a random order, over all seeds: below 0 winners repeat, above 0 they take turns; theory: 0",
        needs: "needs rounds won by at least two contractors",
    };
    sheet
        .put(&rotation, |seeds| {
            let (sum, count) = seeds.over_seeds(super::tally::Tally::runs);
            (count > 0.0).then(|| sum / count.sqrt())
        })
        .theory = Some(0.0);
    let gap = Wording {
        key: "M40",
        name: "losers' gap",
        unit: "cost",
        definition: "mean cost of the valid offers in time that lost, less that of the first award",
        needs,
    };
    sheet.mean(&gap, "gap");
}
