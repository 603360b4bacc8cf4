//! How cases are drawn. The weights are chosen so that most negotiations get as far as an award (see `coverage.rs`),
//! and so that what shrinks first is what matters least.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;
use schemas::Policy;
use schemas::payload::{FailurePhase, InformKind};

use crate::case::{
    ActPlan, Action, AwardPlan, CONTRACTORS, Case, DOCUMENTS, Move, OfferPlan, Plan, Price, RoundPlan, RoutinePlan,
    SeqPlan, TimeStep, Validity, Who,
};
use crate::policies::any_policy;

/// Most moves before the lane is left to its timers.
const MOVES_MAX: usize = 80;
/// A pause of the exchange that outlasts every deadline and the default grace.
const LONG_PAUSE_US: u64 = 300_000_000;

/// Any case.
pub(crate) fn any_case() -> impl Strategy<Value = Case> {
    case(plans(any_policy()), any_move())
}

/// One negotiation more often than several, so that most of them get far.
fn plans(policy: impl Strategy<Value = Policy> + Clone) -> impl Strategy<Value = Vec<Plan>> {
    let several = (vec(plan(policy.clone()), 2..4), any::<bool>()).prop_map(|(mut plans, is_shared)| {
        let first = plans[0].policy.clone();
        plans.iter_mut().filter(|_| is_shared).for_each(|plan| plan.policy = first.clone());
        plans
    });
    prop_oneof![3 => vec(plan(policy), 1), 2 => several]
}

/// Cases of the given negotiations and moves.
pub(crate) fn case(
    plans: impl Strategy<Value = Vec<Plan>>,
    any_move: impl Strategy<Value = Move> + Clone,
) -> impl Strategy<Value = Case> {
    let grace = prop_oneof![3 => Just(60_000_u64), 1 => 1_u64..400];
    let remembered = prop_oneof![4 => Just(64_usize), 1 => Just(5_usize)];
    let lag = prop_oneof![2 => Just(1_u64), 1 => 1_u64..400_000, 1 => Just(LONG_PAUSE_US)];
    let moves = (vec(offer(), 0..8), vec(any_move.clone(), 5..MOVES_MAX)).prop_map(|(offers, moves)| {
        let early = offers.into_iter().enumerate().map(|(index, offer)| early_offer(index, offer));
        early.chain(moves).collect()
    });
    (plans, moves, vec(any_move, 0..8), remembered, grace, any::<bool>(), lag).prop_map(
        |(plans, moves, epilogue, messages_per_party_max, tombstone_grace_ms, has_early_ticks, lag_us)| Case {
            plans,
            moves,
            epilogue,
            messages_per_party_max,
            tombstone_grace_ms,
            has_early_ticks,
            lag_us,
        },
    )
}

/// One of the offers that follow the calls at once, so that there is something to choose from.
fn early_offer(index: usize, offer: OfferPlan) -> Move {
    let action = Action::Sensible(Who::Contractor(index), offer);
    Move { joins: false, time: TimeStep::Us(1), negotiation: index, action }
}

/// One negotiation under one of the policies.
pub(crate) fn plan(policy: impl Strategy<Value = Policy>) -> impl Strategy<Value = Plan> {
    let contractors = subsequence((0..CONTRACTORS).collect::<Vec<_>>(), 1..=usize::from(CONTRACTORS));
    let reply = option::weighted(0.3, prop_oneof![16 => 20_u64..120, 1 => Just(0_u64), 1 => Just(1_000_000_u64)]);
    let when = prop_oneof![6 => Just(0_usize), 1 => 0_usize..20];
    let ttl = option::weighted(0.1, 1_u64..3);
    let asks = (any::<bool>(), option::weighted(0.4, (documents(1), prop::bool::weighted(0.3))));
    (policy, contractors, prop::bool::weighted(0.1), when, reply, ttl, asks, prop::bool::weighted(0.2)).prop_map(
        |(
            policy,
            contractors,
            invites_first_initiator,
            called_before,
            reply_within_ms,
            ttl_s,
            (has_currency, documents),
            is_public,
        )| {
            Plan {
                policy,
                contractors,
                invites_first_initiator,
                called_before,
                reply_within_ms,
                ttl_s,
                has_currency,
                documents,
                is_public,
            }
        },
    )
}

/// Any move.
pub(crate) fn any_move() -> impl Strategy<Value = Move> + Clone {
    (prop::bool::weighted(0.15), time_step(), 0_usize..3, action())
        .prop_map(|(joins, time, negotiation, action)| Move { joins, time, negotiation, action })
        .boxed()
}

/// Moves that leave the time as it is more often than not, and only speak.
pub(crate) fn crowded_move() -> impl Strategy<Value = Move> + Clone {
    let time = prop_oneof![3 => Just(TimeStep::Same), 1 => time_step()];
    let speech = prop_oneof![
        6 => (who(), plain_offer()).prop_map(|(who, offer)| Action::Sensible(who, offer)),
        2 => (who(), act(), seq()).prop_map(|(who, act, seq)| Action::Say(who, act, seq)),
    ];
    (prop::bool::weighted(0.3), time, Just(0_usize), speech)
        .prop_map(|(joins, time, negotiation, action)| Move { joins, time, negotiation, action })
        .boxed()
}

fn time_step() -> impl Strategy<Value = TimeStep> {
    prop_oneof![
        12 => Just(TimeStep::Same),
        3 => (1_u64..1000).prop_map(TimeStep::Us),
        6 => (1_u64..20).prop_map(TimeStep::Ms),
        1 => (1_u64..100).prop_map(TimeStep::BackMs),
        1 => Just(TimeStep::Deadline),
        1 => Just(TimeStep::PastDeadline),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let cancel = Action::Say(Who::Initiator, ActPlan::Cancel(RoundPlan::Unnamed), SeqPlan::Habit);
    prop_oneof![
        40 => (who(), offer()).prop_map(|(who, offer)| Action::Sensible(who, offer)),
        8 => (who(), act(), seq()).prop_map(|(who, act, seq)| Action::Say(who, act, seq)),
        3 => renege().prop_map(|act| Action::Say(Who::Winner(0), act, SeqPlan::Habit)),
        2 => routine().prop_map(|routine| {
            Action::Say(Who::Winner(0), ActPlan::Inform(InformKind::Result, routine), SeqPlan::Habit)
        }),
        2 => (0_usize..64).prop_map(Action::Repeat),
        1 => (0_usize..64).prop_map(Action::Conflict),
        1 => (0_usize..64).prop_map(Action::Garble),
        1 => who().prop_map(Action::Nowhere),
        3 => (0_usize..8, -1_i8..2).prop_map(|(which, epoch)| Action::Undelivered(which, epoch)),
        2 => (-1_i8..2).prop_map(Action::Claim),
        1 => prop_oneof![2 => Just(Action::Delivered), 2 => Just(Action::Abort(-1)), 1 => Just(Action::Abort(0))],
        1 => prop_oneof![2 => Just(Action::Tick), 1 => (-1_i8..2).prop_map(Action::Rules), 1 => Just(cancel)],
    ]
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        14 => (0_usize..8).prop_map(Who::Contractor),
        9 => prop_oneof![4 => Just(0_usize), 1 => 1_usize..3].prop_map(Who::Winner),
        2 => Just(Who::Initiator),
        1 => (0..CONTRACTORS).prop_map(Who::Outsider),
    ]
}

fn act() -> impl Strategy<Value = ActPlan> {
    let beside = (-1_i32..2).prop_map(AwardPlan::Beside);
    let award = prop_oneof![2 => Just(AwardPlan::Latest), 2 => Just(AwardPlan::First), 1 => beside];
    let inform = prop_oneof![Just(InformKind::Done), Just(InformKind::Result), Just(InformKind::Cancelled)];
    let phase =
        prop_oneof![Just(FailurePhase::Perform), Just(FailurePhase::Decommit), Just(FailurePhase::CannotCancel)];
    prop_oneof![
        1 => Just(ActPlan::Cfp),
        6 => offer().prop_map(ActPlan::Offer),
        3 => round().prop_map(ActPlan::Refuse),
        1 => round().prop_map(ActPlan::NotUnderstood),
        3 => round().prop_map(ActPlan::Withdraw),
        2 => (0_usize..6).prop_map(ActPlan::Accept),
        3 => award.prop_map(ActPlan::Confirm),
        2 => (inform, routine()).prop_map(|(kind, routine)| ActPlan::Inform(kind, routine)),
        2 => phase.prop_map(ActPlan::Failure),
        1 => round().prop_map(ActPlan::Cancel),
    ]
}

/// How a contractor gets rid of an award, or misses it.
fn renege() -> impl Strategy<Value = ActPlan> {
    prop_oneof![
        Just(ActPlan::Refuse(RoundPlan::Unnamed)),
        Just(ActPlan::Withdraw(RoundPlan::Unnamed)),
        Just(ActPlan::NotUnderstood(RoundPlan::Unnamed)),
        Just(ActPlan::Failure(FailurePhase::Decommit)),
        (-1_i32..2).prop_map(|by| ActPlan::Confirm(AwardPlan::Beside(by))),
    ]
}

fn offer() -> impl Strategy<Value = OfferPlan> {
    let price = prop_oneof![
        20 => (0_i64..10).prop_map(Price::Tenths),
        2 => (-400_i64..400).prop_map(Price::Off),
        1 => Just(Price::Absent),
        1 => Just(Price::Text),
    ];
    let validity = prop_oneof![
        10 => Just(Validity::Always),
        4 => (0_u64..300).prop_map(Validity::ForMs),
        1 => Just(Validity::UntilDeadline),
        1 => Just(Validity::Past),
    ];
    let colour = prop_oneof![8 => Just(Some(true)), 1 => Just(Some(false)), 1 => Just(None)];
    let currency = option::weighted(0.2, prop::bool::weighted(0.7));
    let documents = prop_oneof![1 => Just(Vec::new()), 4 => documents(0)];
    (price, (0_i64..5).prop_map(|k| k * 250), colour, validity, currency, round(), documents).prop_map(
        |(price, delivery_ms, colour, validity, currency, round, documents)| OfferPlan {
            price,
            delivery_ms,
            colour,
            validity,
            currency,
            round,
            documents,
        },
    )
}

/// An offer that is in order, and as good as every other, or as bad.
fn plain_offer() -> impl Strategy<Value = OfferPlan> {
    (3_i64..5).prop_map(|tenths| OfferPlan {
        price: Price::Tenths(tenths),
        delivery_ms: 0,
        colour: Some(true),
        validity: Validity::Always,
        currency: None,
        round: RoundPlan::Unnamed,
        documents: (0..DOCUMENTS).collect(),
    })
}

/// Some of the documents in any order, so many at least.
fn documents(min: usize) -> impl Strategy<Value = Vec<u8>> {
    subsequence((0..DOCUMENTS).collect::<Vec<_>>(), min..=usize::from(DOCUMENTS)).prop_shuffle()
}

fn routine() -> impl Strategy<Value = RoutinePlan> {
    prop_oneof![
        2 => Just(RoutinePlan::Unnamed),
        1 => Just(RoutinePlan::Language),
        2 => Just(RoutinePlan::Pinned),
        2 => Just(RoutinePlan::Foreign),
    ]
}

fn round() -> impl Strategy<Value = RoundPlan> {
    prop_oneof![
        12 => Just(RoundPlan::Unnamed),
        3 => Just(RoundPlan::Current),
        1 => Just(RoundPlan::Earlier),
        1 => Just(RoundPlan::Later),
    ]
}

fn seq() -> impl Strategy<Value = SeqPlan> {
    prop_oneof![10 => Just(SeqPlan::Habit), 1 => Just(SeqPlan::Low), 1 => Just(SeqPlan::Absent)]
}
