//! What each population did, where not all contractors of a group behave alike, and how the negotiations went that awarded
//! nothing to it. Keys are `P1` to `P8` with the population's name, and `P12` to `P15` where it
//! asks a model; `P9` to `P11` are of all populations together, against the group whose contractors behave.

use super::group::Weighted;
use super::{Sheet, Wording};

const OFFERED: &str = "none of them offered";
const AWARDED: &str = "nothing was awarded to them";
const BESIDE: &str = "every negotiation awarded something to them";

const OF_OTHERS: &str =
    "of the negotiations that awarded nothing to a named population, in parts of that of the calm group";
const OF_ALL: &str = "of all negotiations, in parts of that of the calm group";

/// A statistic of what was counted under a name.
type Statistic = fn(Weighted<'_>, &str) -> Option<f64>;
const P99: Statistic = |seeds, name| seeds.quantile(name, 0.99);
const MEAN: Statistic = |seeds, name| seeds.mean(name);

/// Adds the figures of every population.
pub fn put(sheet: &mut Sheet<'_>) {
    let populations = &sheet.group.cell().populations;
    let names: Vec<(String, bool)> =
        populations.iter().map(|population| (population.name.clone(), population.model.is_some())).collect();
    for (name, asks_model) in &names {
        own(sheet, name);
        beside(sheet, name);
        if *asks_model {
            asked(sheet, name);
        }
    }
    if !names.is_empty() {
        against_calm(sheet);
    }
}

/// The negotiations that awarded nothing to a population, and all of them, against those of the group whose contractors
/// behave.
fn against_calm(sheet: &mut Sheet<'_>) {
    let needs = "needs a group that differs in nothing but that its contractors behave, and negotiations that awarded nothing to a population";
    for (key, name, definition, of, own, of_calm) in [
        ("P9d", "others' time to decision, p99, against calm", OF_OTHERS, P99, "decision of others", "decision"),
        ("P9c", "others' time to confirmation, p99, against calm", OF_OTHERS, P99, "confirm of others", "confirm"),
        ("P10d", "time to decision, p99, against calm", OF_ALL, P99, "decision", "decision"),
        ("P10c", "time to confirmation, p99, against calm", OF_ALL, P99, "confirm", "confirm"),
        ("P11o", "others' completion against calm", OF_OTHERS, MEAN, "completed of others", "completed"),
        ("P11a", "completion against calm", OF_ALL, MEAN, "completed", "completed"),
    ] {
        let ratio = |calm| sheet.group.ratio_to(calm, |seeds| of(seeds, own), |seeds| of(seeds, of_calm));
        let ratio = sheet.calm.and_then(ratio);
        sheet.put_estimate(&Wording { key, name, unit: "ratio", definition, needs }, ratio);
    }
}

impl Sheet<'_> {
    fn mean_of_population(&mut self, entry: &Wording, population: &str, sum: &str) {
        self.mean(entry, &format!("{sum} {population}")).specify([population]);
    }

    fn latency_of_population(&mut self, entry: &Wording, population: &str, sum: &str) {
        self.latency(entry, &format!("{sum} {population}"), Some(population));
    }
}

fn own(sheet: &mut Sheet<'_>, population: &str) {
    let means = [
        ("P1", "offers", "offers", "offers per call and contractor of the population", "offers of", OFFERED),
        (
            "P2",
            "refused offers",
            "share",
            "of its offers those that a gateway refused or that did not come to count, late ones included",
            "refused offers of",
            OFFERED,
        ),
        ("P4", "first awards", "share", "of the calls that awarded anything", "first awards of", "nothing was awarded"),
        (
            "P5",
            "binding awards",
            "share",
            "of the awards to the population those that became binding",
            "bound awards of",
            AWARDED,
        ),
        (
            "P6",
            "refusals",
            "refusals",
            "of calls and awards, per call and contractor of the population",
            "refusals of",
            OFFERED,
        ),
    ];
    for (key, name, unit, definition, sum, needs) in means {
        sheet.mean_of_population(&Wording { key, name, unit, definition, needs }, population, sum);
    }
    let offer = Wording {
        key: "P3",
        name: "time to offer",
        unit: "ms",
        definition: "from the intended time of the call to the admission of each of its offers",
        needs: OFFERED,
    };
    sheet.latency_of_population(&offer, population, "offer of");
}

/// What its model was asked, the warm-up with it.
fn asked(sheet: &mut Sheet<'_>, population: &str) {
    let needs = "its model was asked nothing";
    for (key, name, unit, definition, sum) in [
        ("P12", "calls per question", "calls", "calls of the model, repairs and repeats included", "calls"),
        ("P13", "tokens per question", "tokens", "tokens in and out", "tokens"),
        ("P14", "cost per question", "micro-units", "what its tokens cost", "cost"),
        ("P15", "without an answer", "share", "questions to the model that were answered without it", "fallbacks"),
    ] {
        let sum = format!("model {sum} of");
        sheet.mean_of_population(&Wording { key, name, unit, definition, needs }, population, &sum);
    }
}

fn beside(sheet: &mut Sheet<'_>, population: &str) {
    let completed = Wording {
        key: "P7",
        name: "completion beside",
        unit: "share",
        definition: "completed, of the negotiations that awarded nothing to the population",
        needs: BESIDE,
    };
    sheet.mean_of_population(&completed, population, "completed beside");
    for (key, name, definition, sum) in [
        (
            "P8d",
            "time to decision beside",
            "from the intended time to the decision, of the negotiations that awarded nothing to the population",
            "decision beside",
        ),
        (
            "P8c",
            "time to confirmation beside",
            "from the intended time to a binding award, of the negotiations that awarded nothing to the population",
            "confirm beside",
        ),
    ] {
        sheet.latency_of_population(&Wording { key, name, unit: "ms", definition, needs: BESIDE }, population, sum);
    }
}
