use std::sync::Arc;

use schemas::bargain::{BargainSpec, Mandate};
use schemas::delivery::{Agreement, BargainCall, DeliveryEnvelope, EXCHANGE, Outcome, Standing};
use schemas::payload::{Accept, Confirm, Offer, Terms};
use schemas::{AwardNo, DeliveryId, Digest, Lane, Lot, MsgId, OfferId, Position, Refusal, WireTime};
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TryRecvError;

use super::*;
use crate::bargain::strategy::Scripted;
use crate::bargain::{BargainPlan, Fallback, Move, OfferMade, Preferences};
use crate::strategy::Way;

mod opening;
mod referee;
mod refusals;

const T0: Timestamp = Timestamp::from_ms(1_000_000);

#[test]
fn an_invited_agent_joins_with_its_mandate_or_says_why_not() {
    let mandate = Mandate { reservation: 7, ..Mandate::default() };
    for (result, expected) in [
        (Ok(None), json!({"act": "join"})),
        (Ok(Some(mandate)), json!({"act": "join", "mandate": {"reservation": 7}})),
        (Err("no time"), json!({"act": "refuse", "reason": "no time"})),
    ] {
        let is_joining = result.is_ok();
        let (mut bargainer, mut events) = bargainer(move |_: &NegotiationId, _: &BargainCall, party: usize| {
            assert_eq!(party, 1);
            let mandate = result.clone().map_err(str::to_owned)?;
            let plan = BargainPlan::new(ramp(), Box::new(Scripted::new([])));
            Ok(mandate.into_iter().fold(plan, BargainPlan::with_mandate))
        });
        let message = only(bargainer.handle(T0, &call(json!({}))));
        assert_eq!(serde_json::to_value(&message.payload).unwrap(), expected);
        assert_eq!(bargainer.open_count(), usize::from(is_joining));
        let news = events.try_recv().unwrap().report;
        assert_eq!(news.is_last(), !is_joining, "{news:?}");
    }
}

#[test]
fn calls_it_cannot_follow_are_refused() {
    let large = json!([{"name": "a", "min": 0, "max": 1_000_000}]);
    let small = json!([{"name": "a", "min": 0, "max": 1}]);
    for (change, reason) in [
        (json!({"bargain": null}), "takes part in bargains only"),
        (json!({"bargain": {"parties": ["alice", "carol"], "rules": rules()}}), "is no party of this bargain"),
        (
            json!({"bargain": {"parties": ["alice", "bob"], "rules": {"issues": large, "rounds": 1}}}),
            "cannot list the outcomes: /issues: 1000001 outcomes; an agent lists at most 1000000: use fewer or smaller issues",
        ),
        (
            json!({"bargain": {"parties": ["alice", "bob"], "rules": {"issues": small, "rounds": 1}}}),
            "has no utility for this outcome space",
        ),
    ] {
        let (mut bargainer, _events) = scripted(&[]);
        let refusal = Reasoned { reason: Some(reason.to_owned()), round: None };
        assert_eq!(only(bargainer.handle(T0, &call(change))).payload, Payload::Refuse(refusal));
        assert_eq!(bargainer.open_count(), 0);
    }
}

#[test]
fn it_acts_once_in_each_of_its_turns() {
    let (mut bargainer, _events) = joined(&[Move::Offer(9), Move::Accept]);
    assert_eq!(bargainer.handle(T0, &turn(0, "alice", None)), []);
    let offer = only(bargainer.handle(T0, &turn(1, "bob", Some((1, "alice", 2)))));
    assert_eq!(offer.payload, Payload::Offer(Offer { terms: terms(9), ..Offer::default() }));
    assert_eq!(bargainer.handle(T0, &turn(1, "bob", None)), [], "the same step, told again");
    assert_eq!(bargainer.handle(T0, &turn(0, "alice", None)), [], "an earlier step");
    let accept = only(bargainer.handle(T0, &turn(3, "bob", Some((3, "alice", 5)))));
    let expected = Accept { offer_id: offer_id(3), terms_digest: Some(Digest::of(&terms(5)).unwrap()) };
    assert_eq!(accept.payload, Payload::Accept(expected));
    assert_ne!(offer.once, accept.once);
}

#[test]
fn a_notice_of_an_earlier_step_does_not_make_it_forget_its_turn() {
    let (mut bargainer, _events) = joined(&[Move::Offer(9)]);
    bargainer.handle(T0, &turn(1, "bob", None));
    bargainer.handle(T0, &turn(0, "alice", None));
    assert_eq!(only(bargainer.handle(T0, &not_understood("mandate_violation"))).payload.act(), Act::Offer);
}

#[test]
fn a_standing_offer_that_cannot_be_accepted_now_is_not_shown_to_the_strategy() {
    let change = |change: Value| {
        let mut told = turn(1, "bob", Some((1, "alice", 5)));
        let Notification::Turn(turn) = &mut told.payload else { panic!("no turn") };
        let mut standing = serde_json::to_value(turn.standing.as_ref().unwrap()).unwrap();
        standing.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        turn.standing = Some(serde_json::from_value(standing).unwrap());
        told
    };
    let (past, future) = (WireTime(T0), WireTime(T0.plus_ms(1)));
    for (told, is_shown) in [
        (change(json!({})), true),
        (change(json!({"by": "bob"})), false),
        (change(json!({"accepted_by": ["bob"]})), false),
        (change(json!({"valid_until": past})), false),
        (change(json!({"valid_until": future})), true),
        (change(json!({"valid_from": future})), false),
        (change(json!({"valid_from": past})), true),
        (change(json!({"conditions": [{"attr": "round", "op": "le", "value": 1}]})), true),
        (change(json!({"conditions": [{"attr": "round", "op": "gt", "value": 1}]})), false),
        (change(json!({"conditions": [{"attr": "elapsed_ms", "op": "gt", "value": 1}]})), true),
    ] {
        let (mut bargainer, _events) = joined(&[Move::Accept]);
        let said = only(bargainer.handle(T0, &told));
        assert_eq!(said.payload.act() == Act::Accept, is_shown, "{told:?}");
    }
}

#[test]
fn what_nobody_answered_is_said_again_as_long_as_its_turn_lasts() {
    let (mut bargainer, _events) = joined(&[Move::Offer(9)]);
    let offer = only(bargainer.handle(T0, &turn(1, "bob", None)));
    let unanswered = sent(Act::Offer, SendOutcome::Unanswered);
    assert_eq!(only(bargainer.handle_sent(T0, &unanswered)), offer, "same act, same `once`: the same bytes");
    let overloaded = sent(Act::Offer, SendOutcome::Refused(Refusal::new(Code::Overloaded, "")));
    assert_eq!(only(bargainer.handle_sent(T0, &overloaded)), offer.after_ms(OVERLOADED_PAUSE_MS));
    assert_eq!(bargainer.handle_sent(T0.plus_ms(10_000), &unanswered), []);
}

#[test]
fn a_join_that_is_refused_becomes_a_refusal() {
    let refusal = Payload::Refuse(Reasoned { reason: Some("cannot join".to_owned()), round: None });
    let (mut bargainer, _events) = joined(&[]);
    assert_eq!(only(bargainer.handle(T0, &not_understood("mandate"))).payload, refusal);

    let (mut bargainer, mut events) = joined(&[]);
    let refused = SendOutcome::Refused(Refusal::new(Code::UnknownPolicy, "no such policy"));
    let actions = bargainer.handle_sent(T0, &sent(Act::Join, refused));
    assert_eq!(actions[0], Action::Release(negotiation()));
    assert_eq!(only(actions[1..].to_vec()).payload, refusal);
    assert!(matches!(last(&mut events), BargainReport::Refused(refusal) if refusal.code == Code::UnknownPolicy));
}

#[test]
fn an_agreement_is_confirmed_if_it_may_be_agreed_to() {
    let good = Digest::of(&terms(5)).unwrap();
    for (outcome, digest, is_confirmed) in
        [(5, good, true), (1, Digest::of(&terms(1)).unwrap(), false), (6, good, false)]
    {
        let (mut bargainer, _events) = joined(&[]);
        let award = award(outcome, digest);
        let confirm = Payload::Confirm(Confirm { award_no: AwardNo(1), terms_digest: Some(digest) });
        let said = only(bargainer.handle(T0, &award)).payload;
        assert_eq!(said == confirm, is_confirmed, "{said:?}");
        assert!(is_confirmed || said.act() == Act::Refuse);
    }
    let (mut stranger, _events) = scripted(&[]);
    assert_eq!(only(stranger.handle(T0, &award(5, good))).payload.act(), Act::Refuse);
}

#[test]
fn the_end_is_reported_with_what_it_is_worth() {
    let (mut bargainer, mut events) = joined(&[Move::Offer(9), Move::Accept]);
    bargainer.handle(T0, &turn(1, "bob", Some((1, "alice", 2))));
    bargainer.handle(T0, &turn(3, "bob", Some((3, "alice", 5))));
    let agreement = Agreement {
        offer_id: offer_id(3),
        by: agent("alice"),
        terms: terms(5),
        terms_digest: Digest::of(&terms(5)).unwrap(),
        round: 2,
        step: 4,
    };
    let closing = closing(Outcome::Agreement, Some(agreement.clone()));
    assert_eq!(bargainer.handle(T0, &closing), [Action::Release(negotiation())]);
    let offer = |step, party, outcome| OfferMade { step, round: step / 2 + 1, party, outcome };
    let expected = BargainOutcome {
        outcome: Outcome::Agreement,
        detail: None,
        party: 1,
        parties: 2,
        agreement: Some(agreement),
        agreed: Some(5),
        utility: Some(0.5),
        steps: 4,
        round: 2,
        offers: vec![offer(0, 0, 2), offer(1, 1, 9), offer(2, 0, 5)],
    };
    assert_eq!(last(&mut events), BargainReport::Ended(Box::new(expected)));
    assert_eq!(bargainer.open_count(), 0);
    assert_eq!(bargainer.handle(T0, &closing), [Action::Release(negotiation())], "and is reported once");
}

#[test]
fn an_offer_accepted_in_its_name_is_part_of_the_course() {
    let (mut bargainer, mut events) = joined(&[]);
    let agreement = Agreement {
        offer_id: offer_id(1),
        by: agent("alice"),
        terms: terms(5),
        terms_digest: Digest::of(&terms(5)).unwrap(),
        round: 1,
        step: 2,
    };
    bargainer.handle(T0, &closing(Outcome::Agreement, Some(agreement)));
    let BargainReport::Ended(outcome) = last(&mut events) else { panic!("no end") };
    assert_eq!(outcome.offers, [OfferMade { step: 0, round: 1, party: 0, outcome: 5 }]);
}

#[test]
fn without_an_agreement_the_last_move_counts_only_if_it_was_applied() {
    for (made, confirmation, steps, offers) in [
        (Move::Offer(9), Some(Some(offer_id(2))), 2, 2),
        (Move::Offer(9), Some(None), 1, 1),
        (Move::Offer(9), None, 1, 1),
        (Move::Accept, Some(None), 2, 1),
        (Move::Accept, None, 1, 1),
    ] {
        let (mut bargainer, mut events) = joined(&[made]);
        bargainer.handle(T0, &turn(1, "bob", Some((1, "alice", 5))));
        if let Some(offer_id) = confirmation {
            bargainer.handle(T0, &receipt(Disposition::Ok, None, offer_id));
        }
        bargainer.handle(T0, &closing(Outcome::NoAgreement, None));
        let BargainReport::Ended(outcome) = last(&mut events) else { panic!("no end") };
        assert_eq!((outcome.steps, outcome.offers.len(), outcome.utility), (steps, offers, None), "{made:?}");
    }
}

#[test]
fn a_bargain_whose_end_nobody_tells_is_given_up() {
    let (mut bargainer, mut events) = joined(&[]);
    let late = T0.plus_ms(120_000 + 60_001);
    let other = Delivery { payload: Notification::Turn(told_turn(0, "alice")), ..turn(0, "alice", None) };
    assert_eq!(bargainer.handle(late, &other), [Action::Release(negotiation())]);
    assert_eq!((last(&mut events), bargainer.open_count()), (BargainReport::Lost, 0));
}

#[test]
fn a_bargain_that_has_ended_is_not_given_up_later() {
    let (mut bargainer, mut events) = joined(&[]);
    bargainer.handle(T0, &closing(Outcome::Cancelled, None));
    assert_eq!(bargainer.handle(T0.plus_ms(1_000_000), &turn(1, "alice", None)), []);
    assert!(matches!(last(&mut events), BargainReport::Ended(_)));
}

#[test]
fn events_nobody_reads_are_counted() {
    let (sender, receiver) = mpsc::channel(1);
    drop(receiver);
    let mut bargainer = Bargainer::new(agent("bob"), planner(&[], Fallback::NextBest), sender);
    bargainer.handle(T0, &call(json!({})));
    assert_eq!(bargainer.dropped_events(), 1);
}

type Events = mpsc::Receiver<BargainEvent>;

fn bargainer(planner: impl Planner + 'static) -> (Bargainer, Events) {
    let (sender, receiver) = mpsc::channel(64);
    (Bargainer::new(agent("bob"), planner, sender), receiver)
}

fn scripted(moves: &[Move]) -> (Bargainer, Events) {
    bargainer(planner(moves, Fallback::NextBest))
}

/// Bob, as party 1 of a bargain with alice.
fn joined(moves: &[Move]) -> (Bargainer, Events) {
    joined_with(moves, Fallback::NextBest)
}

fn joined_with(moves: &[Move], fallback: Fallback) -> (Bargainer, Events) {
    let (mut bargainer, events) = bargainer(planner(moves, fallback));
    assert_eq!(only(bargainer.handle(T0, &call(json!({})))).payload.act(), Act::Join);
    (bargainer, events)
}

fn planner(moves: &[Move], fallback: Fallback) -> impl Planner + 'static {
    let moves = moves.to_vec();
    move |_: &NegotiationId, _: &BargainCall, _: usize| {
        let strategy = Box::new(Scripted::new(moves.clone()));
        Ok(BargainPlan { fallback, ..BargainPlan::new(ramp(), strategy) })
    }
}

/// Ten outcomes, number n worth n tenths; from 2 on they are acceptable.
fn ramp() -> Arc<Preferences> {
    let utilities = (0..10).map(|outcome| f64::from(outcome) / 10.0).collect();
    Arc::new(Preferences::try_new(utilities, 0.2, |_| true).unwrap())
}

fn rules() -> Value {
    json!({"issues": [{"name": "a", "min": 0, "max": 9}], "rounds": 10})
}

fn terms(outcome: usize) -> Terms {
    serde_json::from_value(json!({ "a": outcome })).unwrap()
}

fn call(change: Value) -> Delivery {
    let mut call = json!({
        "round": 1,
        "reply_by": WireTime(T0.plus_ms(500)),
        "ends_by": WireTime(T0.plus_ms(120_000)),
        "policy": "high",
        "policy_digest": Digest([0; 32]),
        "lots": 1,
        "bargain": {"parties": ["alice", "bob"], "rules": rules()},
    });
    call.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    delivery(Notification::Cfp(serde_json::from_value(call).unwrap()))
}

/// A turn of two parties; of the standing offer: id, proposer, outcome.
fn turn(step: u32, party: &str, standing: Option<(u64, &str, usize)>) -> Delivery {
    let standing = standing.map(|(id, by, outcome)| Standing {
        offer_id: offer_id(id),
        by: agent(by),
        terms: terms(outcome),
        terms_digest: Digest::of(&terms(outcome)).unwrap(),
        valid_from: None,
        valid_until: None,
        conditions: Vec::new(),
        accepted_by: Vec::new(),
    });
    delivery(Notification::Turn(Turn { standing, ..told_turn(step, party) }))
}

fn told_turn(step: u32, party: &str) -> Turn {
    Turn {
        party: agent(party),
        round: step / 2 + 1,
        step,
        act_by: WireTime(T0.plus_ms(10_000)),
        ends_by: WireTime(T0.plus_ms(120_000)),
        t_ppm: 0,
        standing: None,
    }
}

fn not_understood(reason: &str) -> Delivery {
    let why = Misunderstanding { reason: reason.to_owned(), expected: Vec::new(), pointer: None };
    delivery(Notification::NotUnderstood(why))
}

fn receipt(disposition: Disposition, invited: Option<u32>, offer_id: Option<OfferId>) -> Delivery {
    let ack_of = MsgId::try_new("m").unwrap();
    delivery(Notification::Ack(Receipt { offer_id, invited, ..Receipt::new(ack_of, disposition) }))
}

fn award(outcome: usize, terms_digest: Digest) -> Delivery {
    delivery(Notification::Accept(Award {
        offer_id: offer_id(3),
        lot: Lot(0),
        award_no: AwardNo(1),
        terms: terms(outcome),
        terms_digest,
        payment: None,
        document: None,
        confirm_by: WireTime(T0.plus_ms(100)),
        brief: None,
    }))
}

fn closing(outcome: Outcome, agreement: Option<Agreement>) -> Delivery {
    let agreement = agreement.map(Box::new);
    delivery(Notification::Closed(Closing {
        outcome,
        digest: Digest([0; 32]),
        detail: None,
        agreement,
        conclusion: None,
        tasks: Vec::new(),
    }))
}

fn delivery(payload: Notification) -> Delivery {
    let envelope = DeliveryEnvelope {
        msg_id: DeliveryId::new(Lane(0), [7; 16]),
        ts: WireTime(T0),
        from: EXCHANGE.to_owned(),
        to: ["agent://bob".to_owned()],
        negotiation: negotiation(),
        in_reply_to: None,
        traceparent: None,
    };
    Delivery { envelope, payload, receipts: Vec::new() }
}

fn sent(act: Act, outcome: SendOutcome) -> Sent {
    let msg_id = MsgId::try_new("m").unwrap();
    Sent { negotiation: negotiation(), msg_id, act, outcome, way: Way::default() }
}

fn offer_id(seq: u64) -> OfferId {
    OfferId(Position { seq, index: 0 })
}

fn negotiation() -> NegotiationId {
    NegotiationId::try_new("alice~n1").unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

/// The one message among the actions.
fn only(actions: Vec<Action>) -> Outgoing {
    match <[Action; 1]>::try_from(actions) {
        Ok([Action::Send(message)]) => *message,
        other => panic!("not one message: {other:?}"),
    }
}

/// The latest news.
fn last(events: &mut Events) -> BargainReport {
    let mut latest = None;
    loop {
        match events.try_recv() {
            Ok(event) => latest = Some(event.report),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return latest.expect("there is news"),
        }
    }
}
