//! M13 to M19: what was chosen, against what could have been.

use super::group::Weighted;
use super::{Sheet, Wording};

const AWARDED: &str = "nothing was awarded; needs a policy that awards";

/// Adds M13 to M19.
pub fn put(sheet: &mut Sheet<'_>) {
    let range = sheet.group.uniform_range();
    let is_free = !sheet.group.is_threshold();
    let theory = |name: &'static str| sheet.group.whole(|seeds| seeds.mean(name)).filter(|_| is_free);
    let (expected_regret, expected_best, expected_rank) =
        (theory("theory regret"), theory("theory best chosen"), theory("theory rank"));
    let expected_regret = expected_regret.and_then(|expected| Some(expected * range?));
    for (key, name, unit, definition, sum, expected) in [
        ("M13", "chosen cost", "cost", "cost of the first award", "chosen cost", None),
        (
            "M14",
            "regret",
            "cost",
            "cost of the first award less the lowest of all valid offers, late ones included; theory, for uniform costs: the range \
             times (n - k) / ((k + 1)(n + 1))",
            "regret",
            expected_regret,
        ),
        (
            "M15",
            "price ratio",
            "ratio",
            "cost of the first award in parts of the lowest of all valid offers",
            "price ratio",
            None,
        ),
        (
            "M16",
            "best-chosen rate",
            "share",
            "first awards to the lowest cost of all valid offers; theory: k / n",
            "best chosen",
            expected_best,
        ),
        (
            "M17",
            "rank of the chosen",
            "rank",
            "place of the first award among all valid offers by cost, from 1; theory: (n + 1) / (k + 1)",
            "rank",
            expected_rank,
        ),
    ] {
        sheet.mean(&Wording { key, name, unit, definition, needs: AWARDED }, sum).theory = expected;
    }
    let frontier = Wording {
        key: "M18",
        name: "distance to the frontier",
        unit: "share of the cost range",
        definition: "regret above the least that waiting for a fixed number of offers reaches in the same time to decision",
        needs: "needs uniform costs and scripted exponential delays of every invited contractor, late offers included",
    };
    let scales = range.zip(sheet.group.exponential_delay());
    sheet.put(&frontier, |seeds: Weighted<'_>| scales.and_then(|(range, delay)| seeds.above_frontier(range, delay)));
    let payment = Wording {
        key: "M19",
        name: "payment less cost",
        unit: "cost",
        definition: "what the first award pays above its contractor's own cost",
        needs: "needs contractors whose script says their own cost",
    };
    sheet.mean(&payment, "payment less cost");
}
