//! The bargains of a run: small outcome spaces, few rounds, short times, so that they end in every way there is.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::Address;
use schemas::bargain::{BargainSpec, Issue, IssueValues};
use schemas::payload::{AttrValue, Cfp};

use super::{CONTRACTORS, agent, attr_name};
use crate::{CallPlan, Scenario};

/// Bargains one initiator calls to, at most.
const BARGAINS_MAX: u32 = 3;
/// Parties beside the initiator, at most.
const INVITED_MAX: usize = 3;

/// Adds the bargains. They draw from a generator of their own: everything else stays as it is without them.
pub(super) fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let contractors = scenario.agents.iter().filter(|plan| CONTRACTORS.contains(&plan.id.as_str())).count();
    for plan in scenario.agents.iter_mut().filter(|plan| !plan.calls.is_empty()) {
        for n in 0..rng.random_range(0..=BARGAINS_MAX) {
            let first = rng.random_range(0..contractors);
            let count = rng.random_range(1..=INVITED_MAX.min(contractors));
            let invited = (0..count).map(|n| agent(CONTRACTORS[(first + n) % contractors]));
            let at_ms = rng.random_range(100..scenario.troubled_ms * 3 / 4);
            let cfp = Cfp {
                task: Some("a price for a parcel".to_owned()),
                bargain: Some(Box::new(rules(rng))),
                reply_within_ms: Some(rng.random_range(250..1200)),
                ..Cfp::default()
            };
            let to = invited.map(Address::Agent).collect();
            plan.calls.push(CallPlan::new(&plan.id, &format!("b{n}"), at_ms, to, cfp));
        }
    }
}

fn rules(rng: &mut ChaCha8Rng) -> BargainSpec {
    let price = Issue { name: attr_name("price"), values: IssueValues::Range { min: 0, max: rng.random_range(1..30) } };
    let colours = ["red", "green", "blue"].map(|colour| AttrValue::Text(colour.to_owned()));
    let colour = Issue { name: attr_name("colour"), values: IssueValues::Discrete { values: colours.to_vec() } };
    let issues = match rng.random_range(0..3) {
        0 => vec![price],
        1 => vec![colour],
        _ => vec![price, colour],
    };
    let is_timed = rng.random_range(0..2) == 0;
    let is_counted = !is_timed || rng.random_range(0..2) == 0;
    BargainSpec {
        issues,
        rounds: is_counted.then(|| rng.random_range(1..8)),
        deadline_ms: is_timed.then(|| rng.random_range(200..3000)),
        step_ms: rng.random_range(150..1200),
        confirm_ms: (rng.random_range(0..3) == 0).then(|| rng.random_range(150..1000)),
        forbid_repeat: rng.random_range(0..4) == 0,
        max_strikes: rng.random_range(1..4),
    }
}
