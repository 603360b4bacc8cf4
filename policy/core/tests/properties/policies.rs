//! Any policy document that passes `check`: the presets as they are, and random ones with ranges small enough for ties,
//! lost awards, new rounds and every way to close.

use policy_core::{check, presets};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use schemas::ids::AttrName;
use schemas::policy::{
    Close, Decider, Direction, FallingThreshold, Gate, HoldUntil, OfferRevision, OnIncomplete, Payment, Policy,
    SCORE_MAX, Threshold, TieBreak, Timers, Weight, WindowAnchor,
};

/// A preset in one case of five, otherwise a random document.
pub(crate) fn any_policy() -> impl Strategy<Value = Policy> + Clone {
    prop_oneof![
        1 => select(presets().into_iter().filter(|policy| policy.bargain.is_none()).collect::<Vec<_>>()),
        4 => random_policy(),
    ]
    .boxed()
}

/// A policy that keeps collecting for a while, so that things happen before the close.
pub(crate) fn patient_policy() -> impl Strategy<Value = Policy> {
    (random_policy(), option::of(extension())).prop_map(|(mut policy, extension)| {
        (policy.close.k_valid, policy.close.score_at_least) = (None, None);
        (policy.award, policy.timers_ms.collect) = (true, policy.timers_ms.collect.max(100));
        policy.timers_ms.hard += 1000;
        policy.on_incomplete = extension.unwrap_or(policy.on_incomplete);
        policy
    })
}

fn random_policy() -> impl Strategy<Value = Policy> {
    let flags = (any::<bool>(), prop::bool::weighted(0.25));
    (close(), on_incomplete(), gates(), weights(), ranking(), awards(), timers(), flags).prop_map(
        |(close, on_incomplete, gates, weights, ranking, awards, timers_ms, (sealed, is_weighed))| {
            let (eps_band, tie_break, payment) = ranking;
            let decider = if awards.asks { Decider::Initiator } else { Decider::Engine };
            let policy = Policy {
                id: "random@1".to_owned(),
                close,
                on_incomplete,
                sealed,
                gates,
                weights,
                eps_band,
                tie_break,
                payment,
                awards: if awards.asks { 1 } else { awards.lots },
                standby: awards.standby,
                hold_until: awards.hold_until,
                max_awards: awards.tries,
                max_rounds: awards.rounds,
                offer_revision: awards.revision,
                require_confirm: awards.confirm,
                award: awards.any,
                decider,
                decide_ms: timers_ms.confirm,
                timers_ms,
                max_strikes: awards.strikes,
                bargain: None,
                reputation: None,
            };
            let policy = if is_weighed { weighing(policy) } else { policy };
            check(&policy).expect("the ranges above keep to what `check` allows");
            policy
        },
    )
}

/// The same with a gate on reputation, and with a weight on it in place of some of the price's.
fn weighing(mut policy: Policy) -> Policy {
    let rule = r#"{"domain": "algebra", "min_runs": 1}"#;
    policy.reputation = serde_json::from_str(rule).expect("a rule");
    policy.gates.push(gate("reputation", Some(600_000), None, None));
    if let Some(price) = policy.weights.first_mut() {
        price.w -= 200;
        let dir = Direction::Higher;
        policy.weights.push(Weight { attr: name("reputation"), dir, lo: 500_000, hi: 1_500_000, w: 200 });
    }
    policy
}

fn close() -> impl Strategy<Value = Close> {
    let threshold = prop_oneof![
        (0..=SCORE_MAX).prop_map(Threshold::Constant),
        (0..=SCORE_MAX, 0..=SCORE_MAX, 1_u32..=8).prop_map(|(one, other, exponent)| {
            Threshold::Falling(FallingThreshold { start: one.max(other), end: one.min(other), exponent })
        }),
    ];
    let anchor = prop_oneof![Just(WindowAnchor::Cfp), Just(WindowAnchor::FirstValid)];
    (
        1_u32..4,
        option::weighted(0.3, 1_u32..8),
        any::<bool>(),
        option::of(5_u64..150),
        anchor,
        option::weighted(0.25, threshold),
    )
        .prop_map(|(min_valid, k_valid, all_responded, window_ms, window_anchor, score_at_least)| Close {
            min_valid,
            k_valid,
            all_responded,
            window_ms,
            window_anchor,
            score_at_least,
        })
}

fn on_incomplete() -> impl Strategy<Value = OnIncomplete> {
    prop_oneof![
        3 => Just(OnIncomplete::Decide),
        1 => Just(OnIncomplete::Fail),
        1 => extension(),
    ]
}

fn extension() -> impl Strategy<Value = OnIncomplete> {
    (10_u64..100, 1_u32..3).prop_map(|(ms, max)| OnIncomplete::Extend { ms, max })
}

fn gates() -> impl Strategy<Value = Vec<Gate>> {
    let price =
        (option::of(0_i64..200), option::of(600_i64..1200)).prop_map(|(min, max)| gate("price", min, max, None));
    let delivery = option::weighted(0.3, (800_i64..1200).prop_map(|max| gate("delivery_ms", None, Some(max), None)));
    let colour = option::weighted(0.2, Just(gate("colour", None, None, Some(vec!["red".to_owned()]))));
    (price, delivery, colour)
        .prop_map(|(price, delivery, colour)| [Some(price), delivery, colour].into_iter().flatten().collect())
}

fn gate(attr: &str, min: Option<i64>, max: Option<i64>, one_of: Option<Vec<String>>) -> Gate {
    let required = min.is_none() && max.is_none() && one_of.is_none();
    Gate { attr: name(attr), min, max, one_of, required }
}

fn weights() -> impl Strategy<Value = Vec<Weight>> {
    (any::<bool>(), any::<bool>(), 0_i64..30, 70_i64..150).prop_map(|(is_alone, is_rising, lo, hi)| {
        let (lo, hi) = (lo * 10, hi * 10);
        let dir = if is_rising { Direction::Higher } else { Direction::Lower };
        let price = Weight { attr: name("price"), dir, lo, hi, w: if is_alone { 1000 } else { 700 } };
        let delivery = Weight { attr: name("delivery_ms"), dir: Direction::Lower, lo: 0, hi: 1000, w: 300 };
        if is_alone { vec![price] } else { vec![price, delivery] }
    })
}

fn ranking() -> impl Strategy<Value = (u32, TieBreak, Payment)> {
    let tie_break = prop_oneof![
        3 => Just(TieBreak::Hash),
        1 => (0_u64..1000).prop_map(|seed| TieBreak::Lottery { seed }),
        2 => Just(TieBreak::LeastRecentWinner),
        1 => Just(TieBreak::Arrival),
    ];
    let payment = prop_oneof![Just(Payment::FirstPrice), Just(Payment::SecondPrice)];
    // A tenth of the price's range is a difference of 100 000 or 70 000 points: some bands end exactly there.
    let eps_band = prop_oneof![3 => Just(0_u32), 1 => 1_u32..300_000, 1 => select(vec![70_000_u32, 100_000, 140_000])];
    (eps_band, tie_break, payment)
}

/// The members about awards.
#[derive(Debug, Clone)]
struct Awards {
    asks: bool,
    lots: u32,
    standby: u32,
    hold_until: HoldUntil,
    tries: u32,
    rounds: u32,
    revision: OfferRevision,
    confirm: bool,
    any: bool,
    strikes: u32,
}

fn awards() -> impl Strategy<Value = Awards> {
    let hold_until = prop_oneof![Just(HoldUntil::Confirm), Just(HoldUntil::Done)];
    let revision = prop_oneof![4 => Just(OfferRevision::Replace), 1 => Just(OfferRevision::Refuse)];
    let counts = (1_u32..4, 0_u32..4, 1_u32..4, 1_u32..4, 1_u32..4);
    let switches = (prop::bool::weighted(0.25), prop::bool::weighted(0.85), prop::bool::weighted(0.95));
    (counts, switches, hold_until, revision).prop_map(
        |((lots, standby, tries, rounds, strikes), (asks, confirm, any), hold_until, revision)| Awards {
            asks,
            lots,
            standby,
            hold_until,
            tries,
            rounds,
            revision,
            confirm,
            any,
            strikes,
        },
    )
}

fn timers() -> impl Strategy<Value = Timers> {
    let more = prop_oneof![2 => 100_u64..1500, 1 => 0_u64..100];
    (60_u64..300, 20_u64..200, 20_u64..300, 5_u64..50, more).prop_map(|(collect, confirm, perform, cancel, more)| {
        Timers { collect, confirm, perform, cancel, hard: collect + more }
    })
}

fn name(attr: &str) -> AttrName {
    AttrName::try_new(attr).expect("an attribute's name")
}
