//! What a case is: one auction, and what everybody says. Moves name things by index and are resolved while the case is played, so
//! that a shorter case is still a sensible one.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::alike::{self, any_time};

/// One auction.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Bidders; none in rare cases.
    pub(crate) invited: u8,
    /// The rules, as the call carries them.
    pub(crate) rules: Value,
    pub(crate) beside: Option<(&'static str, Value)>,
    pub(crate) reply_ms: Option<u64>,
    pub(crate) standby: u32,
    pub(crate) requires_confirm: bool,
    pub(crate) payment_of_second: bool,
    /// Scores that count as equal.
    pub(crate) eps_band: u32,
    /// Whether the lane's rules know auctions.
    pub(crate) is_new: bool,
    pub(crate) moves: Vec<Move>,
}

pub(crate) type Move = alike::Move<Who, Action>;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    Leader,
    Bidder(usize),
    Initiator,
    Stranger,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// So much beyond the next price.
    Bid(i64),
    OddBid(Value),
    Refuse(Option<u32>),
    Withdraw,
    NotUnderstood,
    Failure,
    Cancel,
    Accept,
    Confirm(u32),
    Done,
    Repeat(usize),
    Conflict(usize),
    Abort,
    Undelivered(usize, bool),
    Tick,
}

pub(crate) fn any_case() -> impl Strategy<Value = Case> {
    let rare = || prop::bool::weighted(0.03);
    let invited = prop_oneof![40 => 2_u8..6, 2 => Just(1_u8), 1 => Just(0_u8)];
    let beside = prop_oneof![
        30 => Just(None),
        1 => Just(Some(("bargain", json!({"issues": [{"name": "price", "min": 0, "max": 9}], "rounds": 3})))),
    ];
    let head = (
        invited,
        any_rules(),
        beside,
        option::weighted(0.9, prop_oneof![9 => 50_u64..200, 1 => Just(0), 1 => 265_u64..300]),
    );
    let eps_band = prop_oneof![30 => Just(0_u32), 1 => Just(3)];
    let policy = (0_u32..3, prop::bool::weighted(0.8), (rare(), eps_band), prop::bool::weighted(0.97));
    (head, policy, vec(any_move(), 0..40)).prop_map(|(head, policy, moves)| {
        let (invited, rules, beside, reply_ms) = head;
        let (standby, requires_confirm, (payment_of_second, eps_band), is_new) = policy;
        Case { invited, rules, beside, reply_ms, standby, requires_confirm, payment_of_second, eps_band, is_new, moves }
    })
}

fn any_rules() -> impl Strategy<Value = Value> {
    let step = prop_oneof![
        (1_i64..30).prop_map(|step| ("step", step)),
        select(vec![1_i64, 50, 1000]).prop_map(|permille| ("step_permille", permille)),
    ];
    let times = (option::of(1_u64..60), option::of((1_u64..80, 40_u64..400)));
    (any::<bool>(), 0_i64..400, step, times, option::of(0_i64..500)).prop_map(|(rises, start, step, times, reserve)| {
        let mut rules = json!({"direction": if rises { "ascending" } else { "descending" }, "start": start});
        rules[step.0] = json!(step.1);
        let (quiet, extend) = times;
        quiet.into_iter().for_each(|ms| rules["quiet_ms"] = json!(ms));
        extend.into_iter().for_each(|(ms, latest)| rules["extend"] = json!({"ms": ms, "latest_within_ms": latest}));
        reserve.into_iter().for_each(|reserve| rules["reserve"] = json!(reserve));
        rules
    })
}

fn any_move() -> impl Strategy<Value = Move> {
    let who = prop_oneof![
        12 => (0_usize..6).prop_map(Who::Bidder),
        5 => Just(Who::Leader),
        1 => Just(Who::Initiator),
        1 => Just(Who::Stranger),
    ];
    (prop::bool::weighted(0.1), any_time(4, 1), who, any_action(), prop::bool::weighted(0.03))
        .prop_map(|(joins, time, who, action, is_stale)| Move { joins, time, who, action, is_stale })
}

fn any_action() -> impl Strategy<Value = Action> {
    let odd = select(vec![
        json!({"terms": {}}),
        json!({"terms": {"price": "much"}}),
        json!({"terms": {"price": 9_007_199_254_740_991_i64}}),
        json!({"terms": {"price": -1}}),
        json!({"terms": {"price": 250}, "valid_for_ms": 5}),
        json!({"terms": {"price": 250}, "valid_until": "2099-01-01T00:00:00Z"}),
        json!({"terms": {"price": 250}, "round": 2}),
        json!({"terms": {"price": 250}, "round": 1, "currency": "USD"}),
        json!({"terms": {"price": 250}, "conditions": [{"attr": "round", "op": "eq", "value": 1}]}),
    ]);
    prop_oneof![
        24 => prop_oneof![6 => Just(0_i64), 3 => 1_i64..40, 2 => -20_i64..0].prop_map(Action::Bid),
        3 => odd.prop_map(Action::OddBid),
        3 => option::weighted(0.3, 0_u32..3).prop_map(Action::Refuse),
        1 => Just(Action::Withdraw),
        1 => Just(Action::NotUnderstood),
        1 => Just(Action::Failure),
        1 => Just(Action::Cancel),
        1 => Just(Action::Accept),
        5 => (1_u32..3).prop_map(Action::Confirm),
        3 => Just(Action::Done),
        2 => any::<usize>().prop_map(Action::Repeat),
        1 => any::<usize>().prop_map(Action::Conflict),
        1 => Just(Action::Abort),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, may_answer)| Action::Undelivered(which, may_answer)),
        4 => Just(Action::Tick),
    ]
}
