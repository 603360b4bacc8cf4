//! Policies of a run: presets, and random ones with ranges small enough for ties, lost awards, new rounds and every way
//! to close. Timers are as long as an engine takes to be missed, so that takeovers fall between any two of them.

use policy_core::{check, presets};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use schemas::Policy;
use schemas::policy::{
    Close, Decider, Direction, FallingThreshold, Gate, HoldUntil, OfferRevision, OnIncomplete, Payment, SCORE_MAX,
    Threshold, TieBreak, Timers, Weight, WindowAnchor,
};

use super::attr_name;

/// Draws a policy under this id: a preset with timers fit for the run in one case of three.
pub(super) fn draw(rng: &mut ChaCha8Rng, id: &str) -> Policy {
    let mut policy = if chance(rng, 33) {
        let presets: Vec<Policy> = presets().into_iter().filter(is_drawn).collect();
        presets[rng.random_range(0..presets.len())].clone()
    } else {
        random(rng)
    };
    id.clone_into(&mut policy.id);
    policy.timers_ms = timers(rng);
    policy.decide_ms = rng.random_range(200..1000);
    check(&policy).expect("the ranges keep to what `check` allows");
    policy
}

/// Draws a policy for the tasks of teams under this id: one award, decided by the exchange, in times that a team has.
pub(super) fn draw_for_tasks(rng: &mut ChaCha8Rng, id: &str) -> Policy {
    let collect = rng.random_range(100..400);
    let policy = Policy {
        id: id.to_owned(),
        award: true,
        awards: 1,
        decider: Decider::Engine,
        decide_ms: rng.random_range(200..1000),
        timers_ms: Timers {
            collect,
            confirm: rng.random_range(100..400),
            perform: rng.random_range(150..1200),
            cancel: rng.random_range(50..300),
            hard: collect + rng.random_range(600..5000),
        },
        ..random(rng)
    };
    check(&policy).expect("the ranges keep to what `check` allows");
    policy
}

/// Whether contract nets are drawn under a preset: those that score offers, but for those of teams, and for `patient`, which is
/// `high` but for times, and these are drawn.
fn is_drawn(policy: &Policy) -> bool {
    !policy.weights.is_empty() && !policy.id.starts_with("team-") && policy.name() != "patient"
}

fn random(rng: &mut ChaCha8Rng) -> Policy {
    let is_asked = chance(rng, 20);
    Policy {
        id: String::new(),
        close: close(rng),
        on_incomplete: on_incomplete(rng),
        sealed: chance(rng, 80),
        gates: gates(rng),
        weights: weights(rng),
        eps_band: if chance(rng, 30) { rng.random_range(1..300_000) } else { 0 },
        tie_break: tie_break(rng),
        payment: if chance(rng, 30) { Payment::SecondPrice } else { Payment::FirstPrice },
        awards: if is_asked { 1 } else { [1, 1, 1, 2, 3][rng.random_range(0..5)] },
        standby: rng.random_range(0..4),
        hold_until: if chance(rng, 40) { HoldUntil::Done } else { HoldUntil::Confirm },
        max_awards: rng.random_range(1..4),
        max_rounds: rng.random_range(1..4),
        offer_revision: if chance(rng, 20) { OfferRevision::Refuse } else { OfferRevision::Replace },
        require_confirm: chance(rng, 85),
        award: chance(rng, 95),
        decider: if is_asked { Decider::Initiator } else { Decider::Engine },
        decide_ms: 1,
        timers_ms: Timers::default(),
        max_strikes: rng.random_range(1..4),
        bargain: None,
        reputation: None,
    }
}

fn timers(rng: &mut ChaCha8Rng) -> Timers {
    let collect = rng.random_range(200..1800);
    Timers {
        collect,
        confirm: rng.random_range(150..1500),
        perform: rng.random_range(150..2000),
        cancel: rng.random_range(50..600),
        hard: collect + rng.random_range(100..5000),
    }
}

fn close(rng: &mut ChaCha8Rng) -> Close {
    let threshold = if chance(rng, 50) {
        Threshold::Constant(rng.random_range(0..=SCORE_MAX))
    } else {
        let (one, other) = (rng.random_range(0..=SCORE_MAX), rng.random_range(0..=SCORE_MAX));
        let exponent = rng.random_range(1..=4);
        Threshold::Falling(FallingThreshold { start: one.max(other), end: one.min(other), exponent })
    };
    Close {
        min_valid: rng.random_range(1..4),
        k_valid: chance(rng, 30).then(|| rng.random_range(1..5)),
        all_responded: chance(rng, 50),
        window_ms: chance(rng, 50).then(|| rng.random_range(20..900)),
        window_anchor: if chance(rng, 50) { WindowAnchor::Cfp } else { WindowAnchor::FirstValid },
        score_at_least: chance(rng, 25).then_some(threshold),
    }
}

fn on_incomplete(rng: &mut ChaCha8Rng) -> OnIncomplete {
    match rng.random_range(0..5) {
        0 => OnIncomplete::Fail,
        1 => OnIncomplete::Extend { ms: rng.random_range(50..500), max: rng.random_range(1..3) },
        _ => OnIncomplete::Decide,
    }
}

fn gates(rng: &mut ChaCha8Rng) -> Vec<Gate> {
    let mut gates =
        vec![Gate { attr: attr_name("price"), min: Some(0), max: Some(1000), one_of: None, required: false }];
    if chance(rng, 30) {
        gates.push(Gate { attr: attr_name("delivery_ms"), min: None, max: Some(900), one_of: None, required: true });
    }
    gates
}

fn weights(rng: &mut ChaCha8Rng) -> Vec<Weight> {
    let of_price = |w| Weight { attr: attr_name("price"), dir: Direction::Lower, lo: 0, hi: 1000, w };
    if chance(rng, 50) {
        return vec![of_price(1000)];
    }
    let of_delivery = Weight { attr: attr_name("delivery_ms"), dir: Direction::Lower, lo: 0, hi: 1000, w: 300 };
    vec![of_price(700), of_delivery]
}

fn tie_break(rng: &mut ChaCha8Rng) -> TieBreak {
    match rng.random_range(0..6) {
        0 => TieBreak::Lottery { seed: rng.random_range(0..1000) },
        1 => TieBreak::LeastRecentWinner,
        2 => TieBreak::Arrival,
        _ => TieBreak::Hash,
    }
}

fn chance(rng: &mut ChaCha8Rng, percent: u32) -> bool {
    rng.random_range(0..100) < percent
}
