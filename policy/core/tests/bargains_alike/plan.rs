//! What a case is: one bargain, and what everybody says. Moves name things by index and are resolved while the case is
//! played, so that a shorter case is still a sensible one.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::alike::{self, any_time};

/// One bargain.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Parties beside the initiator; one too few in rare cases.
    pub(crate) invited: u8,
    /// The rules, as the call carries them.
    pub(crate) rules: Value,
    pub(crate) join_ms: Option<u64>,
    /// Of each party, what it declares and whether a policy accepts for it.
    pub(crate) mandates: Vec<Option<Mandated>>,
    /// Whether the lane's rules know bargains.
    pub(crate) is_new: bool,
    pub(crate) moves: Vec<Move>,
}

/// A mandate, and the rule of the policy a gateway pins to it.
#[derive(Debug, Clone)]
pub(crate) struct Mandated {
    pub(crate) mandate: Value,
    pub(crate) rule: Option<Value>,
}

/// One move.
pub(crate) type Move = alike::Move<Who, Action>;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// Whose turn it is.
    Turn,
    Party(usize),
    Stranger,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Join,
    Offer(OfferPlan),
    Accept(AcceptPlan),
    Withdraw(Option<u32>),
    End,
    Refuse,
    NotUnderstood,
    Cancel,
    Confirm(u32, bool),
    Inform,
    Failure,
    Repeat(usize),
    Conflict(usize),
    Abort,
    Undelivered,
    Tick,
}

#[derive(Debug, Clone)]
pub(crate) struct OfferPlan {
    pub(crate) terms: Value,
    pub(crate) valid_for_ms: Option<u64>,
    /// From the present on, in milliseconds.
    pub(crate) valid_from_ms: Option<i64>,
    pub(crate) conditions: Option<Value>,
    pub(crate) round: Option<u32>,
    pub(crate) currency: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum AcceptPlan {
    Standing,
    WithoutDigest,
    OtherDigest,
    /// The n-th offer there was.
    Earlier(usize),
}

/// Any case.
pub(crate) fn any_case() -> impl Strategy<Value = Case> {
    let invited = prop_oneof![12 => Just(1_u8), 8 => Just(2_u8), 4 => Just(3_u8), 1 => Just(0_u8)];
    let join_ms = option::weighted(0.95, prop_oneof![12 => 20_u64..200, 1 => Just(0_u64), 1 => Just(86_400_000_u64)]);
    let mandates = vec(option::weighted(0.5, mandated()), 4);
    let early = vec(prop::bool::weighted(0.97), 4).prop_map(|joins| {
        let join = |(index, joins): (usize, bool)| {
            Move::at_once(Who::Party(index), if joins { Action::Join } else { Action::Tick })
        };
        joins.into_iter().enumerate().skip(1).map(join).collect::<Vec<_>>()
    });
    let moves = (early, vec(any_move(), 5..60)).prop_map(|(early, later)| [early, later].concat());
    (invited, rules(), join_ms, mandates, prop::bool::weighted(0.97), moves).prop_map(
        |(invited, rules, join_ms, mandates, is_new, moves)| Case { invited, rules, join_ms, mandates, is_new, moves },
    )
}

fn rules() -> impl Strategy<Value = Value> {
    let rounds = option::weighted(0.7, 1_u32..7);
    let deadline_ms = option::weighted(0.5, 20_u64..400);
    let confirm_ms = option::weighted(0.3, 20_u64..200);
    let fault = option::weighted(0.04, 0_usize..4);
    (rounds, deadline_ms, 20_u64..200, confirm_ms, any::<bool>(), 1_u32..5, fault).prop_map(
        |(rounds, deadline_ms, step_ms, confirm_ms, forbid_repeat, max_strikes, fault)| {
            let mut rules = json!({
                "issues": [{"name": "price", "min": 0, "max": 10}, {"name": "colour", "values": ["red", "blue", 3]}],
                "step_ms": step_ms, "max_strikes": max_strikes, "forbid_repeat": forbid_repeat});
            let rounds = if deadline_ms.is_none() { rounds.or(Some(3)) } else { rounds };
            let members = [("deadline_ms", deadline_ms), ("confirm_ms", confirm_ms), ("rounds", rounds.map(u64::from))];
            for (name, value) in members {
                value.into_iter().for_each(|value| rules[name] = json!(value));
            }
            match fault {
                Some(0) => rules["issues"][1]["name"] = json!("price"),
                Some(1) => rules["issues"][0]["max"] = json!(-1),
                Some(2) => rules["issues"][1]["values"][2] = json!("red"),
                Some(_) => rules["max_strikes"] = json!(0),
                None => {}
            }
            rules
        },
    )
}

fn mandated() -> impl Strategy<Value = Mandated> {
    let ppm = || prop_oneof![1 => Just(0_u32), 1 => Just(1_000_000_u32), 3 => 0_u32..=1_000_000];
    let linear = (0_u32..=1000, ppm(), ppm(), vec(ppm(), 3)).prop_map(|(weight, at_min, at_max, worth)| {
        json!({"linear": [{"issue": "price", "weight": weight, "at_min": at_min, "at_max": at_max},
                          {"issue": "colour", "weight": 1000 - weight, "worth": worth}]})
    });
    let table = vec(ppm(), 33).prop_map(|table| json!({"table": table}));
    let utility = prop_oneof![3 => linear, 1 => table];
    let limit = prop_oneof![
        (select(vec!["le", "lt", "ge", "gt", "eq", "ne"]), 0_i64..11)
            .prop_map(|(op, value)| json!({"attr": "price", "op": op, "value": value})),
        select(vec![json!("red"), json!(3)]).prop_map(|value| json!({"attr": "colour", "op": "ne", "value": value})),
    ];
    let concession = prop_oneof![
        2 => Just(None),
        1 => Just(Some(json!("linear"))),
        1 => (2_u32..9).prop_map(|e| Some(json!({"boulware": e}))),
        1 => (2_u32..9).prop_map(|e| Some(json!({"conceder": e}))),
    ];
    let rule = prop_oneof![
        2 => Just(json!("any")),
        3 => (1_u32..9).prop_map(|round| json!({"next": {"any_from_round": round}})),
        3 => (0_u32..1_000_000, 0_u32..600_000)
            .prop_map(|(late, window)| json!({"combi": {"late_ppm": late, "window_ppm": window}})),
    ];
    let reservation = prop_oneof![2 => Just(0_u32), 3 => 0_u32..700_000];
    let fault = option::weighted(0.05, 0_usize..4);
    (utility, reservation, vec(limit, 0..2), concession, option::weighted(0.6, rule), fault).prop_map(
        |(utility, reservation, limits, concession, rule, fault)| {
            let mut mandate = json!({"utility": utility, "reservation": reservation, "limits": limits});
            concession.into_iter().for_each(|concession| mandate["concession"] = concession);
            if rule.is_some() {
                mandate["policy"] = json!("delegate");
            }
            match fault {
                Some(0) => mandate["limits"] = json!([{"attr": "size", "op": "eq", "value": 1}]),
                Some(1) => mandate["policy"] = json!("another"),
                Some(2) => mandate["utility"] = json!({"table": [1, 2]}),
                Some(_) => {
                    mandate["utility"] =
                        json!({"linear": [{"issue": "price", "weight": 999, "at_min": 1, "at_max": 2}]})
                }
                None => {}
            }
            Mandated { mandate, rule }
        },
    )
}

fn any_move() -> impl Strategy<Value = Move> {
    let sensible = (
        Just(Who::Turn),
        prop_oneof![
            5 => offer().prop_map(Action::Offer),
            2 => Just(Action::Accept(AcceptPlan::Standing)),
        ],
    );
    let any_who = prop_oneof![8 => (0_usize..4).prop_map(Who::Party), 1 => Just(Who::Stranger)];
    let speech = prop_oneof![8 => sensible, 3 => (any_who, action())];
    (prop::bool::weighted(0.15), any_time(6, 1), speech, prop::bool::weighted(0.03))
        .prop_map(|(joins, time, (who, action), is_stale)| Move { joins, time, who, action, is_stale })
}

fn action() -> impl Strategy<Value = Action> {
    let accept = prop_oneof![
        3 => Just(AcceptPlan::Standing),
        1 => Just(AcceptPlan::WithoutDigest),
        1 => Just(AcceptPlan::OtherDigest),
        2 => (0_usize..8).prop_map(AcceptPlan::Earlier),
    ];
    prop_oneof![
        4 => offer().prop_map(Action::Offer),
        5 => accept.prop_map(Action::Accept),
        3 => option::weighted(0.2, 1_u32..4).prop_map(Action::Withdraw),
        6 => (1_u32..3, prop::bool::weighted(0.8)).prop_map(|(no, is_right)| Action::Confirm(no, is_right)),
        2 => Just(Action::Join),
        1 => select(vec![Action::End, Action::Refuse, Action::NotUnderstood, Action::Cancel]),
        1 => select(vec![Action::Inform, Action::Failure, Action::Abort, Action::Undelivered, Action::Tick]),
        2 => (0_usize..32).prop_map(Action::Repeat),
        1 => (0_usize..32).prop_map(Action::Conflict),
    ]
}

fn offer() -> impl Strategy<Value = OfferPlan> {
    let colour = select(vec![json!("red"), json!("blue"), json!(3)]);
    let terms = (0_i64..11, colour).prop_map(|(price, colour)| json!({"price": price, "colour": colour}));
    let outside = select(vec![
        json!({"price": 3}),
        json!({"price": 11, "colour": "red"}),
        json!({"price": "3", "colour": "red"}),
        json!({"price": 3, "colour": "red", "size": 1}),
    ]);
    let terms = prop_oneof![16 => terms, 1 => outside];
    let condition = prop_oneof![
        (select(vec!["le", "ge", "ne"]), 1_i64..5).prop_map(|(op, n)| json!({"attr": "round", "op": op, "value": n})),
        (select(vec!["lt", "gt"]), 0_i64..100).prop_map(|(op, n)| json!({"attr": "elapsed_ms", "op": op, "value": n})),
        (0_i64..11).prop_map(|n| json!({"attr": "price", "op": "ge", "value": n})),
        Just(json!({"attr": "size", "op": "ne", "value": 1})),
    ];
    let conditions = prop_oneof![
        6 => Just(None),
        2 => vec(condition, 1..3).prop_map(|all| Some(json!(all))),
        1 => Just(Some(json!("as is"))),
    ];
    let validity = prop_oneof![6 => Just(None), 3 => (0_u64..60).prop_map(Some)];
    let currency = prop_oneof![16 => Just(None), 2 => Just(Some("EUR")), 1 => Just(Some("USD"))];
    (terms, validity, option::weighted(0.1, -20_i64..60), conditions, option::weighted(0.1, 1_u32..4), currency)
        .prop_map(|(terms, valid_for_ms, valid_from_ms, conditions, round, currency)| OfferPlan {
            terms,
            valid_for_ms,
            valid_from_ms,
            conditions,
            round,
            currency,
        })
}
