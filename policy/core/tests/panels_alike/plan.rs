//! What a case is: one panel, and what everybody says. Moves name things by index and are resolved while the case is played.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::alike::{self, any_time};

/// Most seats.
pub(crate) const SEATS_MAX: usize = 8;
/// Reviewers there may be.
pub(crate) const REVIEWERS: [&str; 3] = ["v", "o", "w"];

/// One panel.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Seats; too few in rare cases.
    pub(crate) seats: usize,
    /// What evidence says of each seat.
    pub(crate) reputations: Vec<Option<u64>>,
    /// The rules, as the call carries them.
    pub(crate) rules: Value,
    /// Whether a gateway has pinned the ranker and the reviewers.
    pub(crate) is_pinned: bool,
    pub(crate) reply_ms: Option<u64>,
    /// Whether the lane's rules know panels.
    pub(crate) is_new: bool,
    pub(crate) moves: Vec<Move>,
}

/// One move.
pub(crate) type Move = alike::Move<Who, Action>;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// One of those that were asked and have not replied.
    Asked(usize),
    Seat(usize),
    Reviewer(usize),
    Ranker,
    Initiator,
    Stranger,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// Of a reviewer that was asked to review: its reviews.
    Answer(AnswerPlan),
    /// So many texts, or as many as it was shown.
    Review(Option<usize>, AnswerPlan),
    Order(Vec<u32>),
    Refuse,
    NotUnderstood,
    Cancel(Option<u32>),
    Offer,
    Repeat(usize),
    Conflict(usize),
    Undelivered(usize),
    Abort,
    Tick,
}

#[derive(Debug, Clone)]
pub(crate) struct AnswerPlan {
    pub(crate) answer: Option<&'static str>,
    pub(crate) text: Option<&'static str>,
    pub(crate) ratings: RatingsPlan,
    /// Added to the round that was asked about.
    pub(crate) shift: i32,
    pub(crate) usage: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) enum RatingsPlan {
    None,
    /// As many as are shown.
    Fitting(Vec<u32>),
    Any(Vec<u32>),
}

/// Any case.
pub(crate) fn any_case() -> impl Strategy<Value = Case> {
    let seats = prop_oneof![1 => Just(0), 2 => 1..3_usize, 20 => 3..=SEATS_MAX];
    let reply_ms = option::weighted(0.15, prop_oneof![8 => 20_u64..600, 1 => Just(0_u64)]);
    let flags = (prop::bool::weighted(0.95), prop::bool::weighted(0.97));
    let reputation = option::weighted(0.7, prop_oneof![2 => Just(1_000_000), 3 => 0_u64..2_000_000]);
    let choice = (vec(reputation, SEATS_MAX), option::weighted(0.2, (1_u32..6, 0_u32..3)));
    (seats, rules(), flags, reply_ms, (vec(any_move(), 5..70), choice)).prop_map(
        |(seats, mut rules, (is_pinned, is_new), reply_ms, (moves, (reputations, choose)))| {
            if let Some((keep, newcomers)) = choose {
                rules["choose"] = json!({"keep": keep, "newcomers": newcomers});
            }
            Case { seats, reputations, rules, is_pinned, reply_ms, is_new, moves }
        },
    )
}

fn rules() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        4 => Just(json!({"kind": "exact"})),
        2 => Just(json!({"kind": "number"})),
        1 => Just(json!({"kind": "choice", "options": ["1", "2", "3"]})),
    ];
    let ranker = prop_oneof![
        Just(json!({"kind": "support"})),
        Just(json!({"kind": "rating"})),
        Just(json!({"kind": "hash"})),
        (20_u64..100).prop_map(|ms| json!({"kind": "agent", "agent": "q", "rank_ms": ms})),
        (20_u64..100).prop_map(|ms| json!({"kind": "agent", "agent": "q", "rank_ms": ms})),
        (20_u64..100).prop_map(|ms| json!({"kind": "agent", "agent": "p0", "rank_ms": ms})),
        (20_u64..100).prop_map(|ms| json!({"kind": "agent", "agent": "p1", "rank_ms": ms})),
    ];
    let selection = (1_u32..4, 1_u32..5, 0_u32..5, any::<bool>(), ranker).prop_map(
        |(after_round, keep, if_more_than, recheck, ranker)| {
            json!({"after_round": after_round, "keep": keep, "if_more_than": if_more_than, "recheck": recheck,
                "ranker": ranker})
        },
    );
    let selection = option::weighted(0.7, selection);
    let reviewer = prop_oneof![40 => (1..=REVIEWERS.len()).prop_map(|count| json!(REVIEWERS[..count])),
        1 => select(vec![json!(["p0"]), json!(["v", "p1"]), json!(["v", "q"]), json!(["v", "stranger"])])];
    let review = option::weighted(0.4, (reviewer, 20_u64..200));
    let review = review.prop_map(|review| review.map(|(by, ms)| json!({"by": by, "review_ms": ms})));
    let selection = (selection, review);
    let rounds = prop_oneof![1 => Just(1_u32), 8 => 2_u32..5];
    let asking = select(vec!["quorum_first", "quorum_first", "all"]);
    let answer_ms = prop_oneof![30 => 20_u64..200, 1 => Just(86_400_000)];
    let limits = (1_u32..4, 1_u32..3, prop::bool::weighted(0.8), 0_u32..3, prop::bool::weighted(0.03));
    (kind, rounds, answer_ms, asking, selection, limits).prop_map(
        |(kind, rounds, answer_ms, asking, (selection, review), (max_strikes, min_seats, rate, from, is_faulty))| {
            let mut rules = json!({"answer": kind, "rounds": rounds, "answer_ms": answer_ms, "asking": asking,
                "max_strikes": max_strikes, "min_seats": min_seats, "rate": rate, "consensus_from": from.min(rounds)});
            if let Some(mut selection) = selection.filter(|_| rounds > 1) {
                let after = selection["after_round"].as_u64().unwrap_or(1).min(u64::from(rounds) - 1);
                selection["after_round"] = json!(after);
                rules["select"] = selection;
            }
            if min_seats > 1 {
                rules["evidence"] = json!(rounds % 2 == 0);
            }
            review.into_iter().filter(|_| rounds > 1).for_each(|review| rules["review"] = review);
            if is_faulty {
                rules["consensus_from"] = json!(rounds + 1);
            }
            rules
        },
    )
}

fn any_move() -> impl Strategy<Value = Move> {
    let sensible = ((0..SEATS_MAX).prop_map(Who::Asked), answer().prop_map(Action::Answer));
    let ranks = (select(vec![Who::Ranker, Who::Ranker, Who::Initiator]), order());
    let reviews = ((0..REVIEWERS.len()).prop_map(Who::Reviewer), review());
    let any_who = prop_oneof![
        8 => (0..SEATS_MAX).prop_map(Who::Seat),
        3 => (0..REVIEWERS.len()).prop_map(Who::Reviewer),
        2 => Just(Who::Ranker),
        1 => Just(Who::Initiator),
        1 => Just(Who::Stranger),
    ];
    let speech = prop_oneof![20 => sensible, 3 => ranks, 2 => reviews, 4 => (any_who, action())];
    (prop::bool::weighted(0.15), any_time(20, 1), speech, prop::bool::weighted(0.03))
        .prop_map(|(joins, time, (who, action), is_stale)| Move { joins, time, who, action, is_stale })
}

fn order() -> impl Strategy<Value = Action> {
    vec(prop_oneof![10 => 1_u32..5, 1 => 0_u32..9], 0..4).prop_map(Action::Order)
}

fn review() -> impl Strategy<Value = Action> {
    let texts = option::weighted(0.1, 0..SEATS_MAX);
    (texts, answer()).prop_map(|(texts, plan)| Action::Review(texts, plan))
}

fn answer() -> impl Strategy<Value = AnswerPlan> {
    let words = select(vec!["1", "1", "1", " 1", "1.0", "2", "2", "3", "none"]);
    let ratings = prop_oneof![
        3 => Just(RatingsPlan::None),
        6 => vec(1_u32..6, SEATS_MAX).prop_map(RatingsPlan::Fitting),
        1 => vec(0_u32..7, 0..4).prop_map(RatingsPlan::Any),
    ];
    let shift = prop_oneof![30 => Just(0), 1 => Just(1), 1 => Just(-1)];
    let text = option::weighted(0.3, select(vec!["because", "[[5, 5, 5]]"]));
    (option::weighted(0.92, words), text, ratings, shift, option::weighted(0.2, 0_u64..1000))
        .prop_map(|(answer, text, ratings, shift, usage)| AnswerPlan { answer, text, ratings, shift, usage })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => answer().prop_map(Action::Answer),
        2 => order(),
        2 => review(),
        3 => select(vec![Action::Refuse, Action::Refuse, Action::NotUnderstood, Action::Offer, Action::Offer]),
        1 => option::weighted(0.5, 1_u32..4).prop_map(Action::Cancel),
        1 => select(vec![Action::Abort, Action::Tick]),
        2 => (0_usize..8).prop_map(Action::Undelivered),
        2 => (0_usize..32).prop_map(Action::Repeat),
        1 => (0_usize..32).prop_map(Action::Conflict),
    ]
}
