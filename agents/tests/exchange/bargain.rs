//! Bargaining over the bus.

use std::time::Duration;

use agents::bargain::{
    BargainEvent, BargainReport, BargainRequest, BargainRules, Bargainer, Domain, DomainPlanner, OfferMade,
    StrategyKind,
};
use agents::transport::bus::BusTransport;
use agents::{Agent, AgentHandle, Contractor, ContractorConfig};
use schemas::delivery::{
    Agreement, Award, BargainCall, Closing, Delivery, Disposition, Misunderstanding, Notification, Outcome, Receipt,
    Standing, Turn,
};
use schemas::payload::Terms;
use schemas::{Address, AwardNo, Digest, Lot, MsgId, NegotiationId, OfferId, Position, Timestamp, WireTime};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::fake::{FakeExchange, agent, call, delivery, identity, in_time, receipt};

type Events = mpsc::Receiver<BargainEvent>;

#[tokio::test(start_paused = true)]
async fn an_invited_agent_bargains_from_join_to_confirmation() {
    let mut exchange = FakeExchange::start().await;
    let (_handle, mut events) = spawn(&exchange, "bob", 1, StrategyKind::Linear);
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[called(1)]).await;
    let join = exchange.message().await;
    assert_eq!(join.document["payload"]["act"], "join");
    assert_eq!(join.document["payload"]["mandate"]["reservation"], 200_000);
    assert_eq!(join.document["envelope"]["negotiation"], "alice~n1");
    exchange.accept(&join, 1).await;
    assert_eq!(next(&mut events).await, BargainReport::Joined { party: 1, parties: 2 });

    // Told twice, acted upon once.
    let turn = turn(2, 1, "bob", Some(("alice", 9)));
    exchange.deliver(&agent("bob"), std::slice::from_ref(&turn)).await;
    exchange.deliver(&agent("bob"), &[turn]).await;
    let offer = exchange.message().await;
    assert_eq!(offer.document["payload"], json!({"act": "offer", "terms": {"i0": 1}}));
    exchange.accept(&offer, 2).await;
    exchange.deliver(&agent("bob"), &[delivery(3, "n1", offered(msg_id(&offer.document), 1))]).await;
    assert!(exchange.is_silent_for(Duration::from_secs(5)).await);

    exchange.deliver(&agent("bob"), &[self::turn(4, 3, "bob", Some(("alice", 3)))]).await;
    let accept = exchange.message().await;
    let digest = Digest::of(&terms(3)).unwrap().to_string();
    assert_eq!(
        accept.document["payload"],
        json!({"act": "accept", "offer_id": offer_id(3).to_string(), "terms_digest": digest})
    );
    exchange.accept(&accept, 3).await;

    exchange.deliver(&agent("bob"), &[delivery(5, "n1", awarded(3))]).await;
    let confirm = exchange.message().await;
    assert_eq!(confirm.document["payload"], json!({"act": "confirm", "award_no": 1, "terms_digest": digest}));
    exchange.accept(&confirm, 4).await;

    exchange.deliver(&agent("bob"), &[delivery(6, "n1", closed(Some(3)))]).await;
    let BargainReport::Ended(outcome) = next(&mut events).await else { panic!("no end") };
    assert_eq!((outcome.agreed, outcome.utility, outcome.steps), (Some(3), Some(0.7), 4));
    let made = |step, party, outcome| OfferMade { step, round: step / 2 + 1, party, outcome };
    assert_eq!(outcome.offers, [made(0, 0, 9), made(1, 1, 1), made(2, 0, 3)]);
}

#[tokio::test(start_paused = true)]
async fn an_initiator_calls_and_plays() {
    let mut exchange = FakeExchange::start().await;
    let (handle, mut events) = spawn(&exchange, "alice", 0, StrategyKind::Boulware);
    exchange.hello().await;
    let bob = Address::Agent(agent("bob"));
    let planner = planner(0, StrategyKind::Boulware);
    let plan = planner.plan_for(&NegotiationId::try_new("alice~n1").unwrap());
    let request = BargainRequest::new("n1", vec![bob], domain().bargain(), plan);
    assert_eq!(handle.bargain(request).await.unwrap().as_str(), "alice~n1");
    let cfp = exchange.message().await;
    let payload = &cfp.document["payload"];
    assert_eq!((&payload["act"], &payload["bargain"]["rounds"]), (&json!("cfp"), &json!(4)));
    assert_eq!(payload["mandate"]["reservation"], 200_000);
    exchange.accept(&cfp, 1).await;

    let opened = receipt(msg_id(&cfp.document), Disposition::Ok, Some(1));
    exchange.deliver(&agent("alice"), &[delivery(1, "n1", opened), turn(2, 0, "alice", None)]).await;
    assert_eq!(next(&mut events).await, BargainReport::Opened { invited: 1, left_out: 0 });
    let offer = exchange.message().await;
    assert_eq!(offer.document["payload"], json!({"act": "offer", "terms": {"i0": 9}}));
    exchange.accept(&offer, 2).await;
    exchange.deliver(&agent("alice"), &[delivery(3, "n1", closed(None))]).await;
    let BargainReport::Ended(outcome) = next(&mut events).await else { panic!("no end") };
    assert_eq!((outcome.outcome, outcome.agreed, outcome.utility), (Outcome::NoAgreement, None, None));
    assert_eq!(outcome.detail.as_deref(), Some("rounds"));
}

#[tokio::test(start_paused = true)]
async fn a_move_whose_answer_is_lost_is_repeated_byte_for_byte() {
    let mut exchange = FakeExchange::start().await;
    let (_handle, _events) = spawn(&exchange, "bob", 1, StrategyKind::Linear);
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[called(1)]).await;
    let join = exchange.message().await;
    exchange.accept(&join, 1).await;
    exchange.deliver(&agent("bob"), &[turn(2, 1, "bob", None)]).await;
    let first = exchange.message().await;
    // Beyond the session's own repeats, which end sooner than this turn: still the same bytes.
    for _ in 0..30 {
        assert_eq!(exchange.message().await.received.payload, first.received.payload);
    }
    let again = exchange.message().await;
    exchange.accept(&again, 2).await;
    assert!(exchange.is_silent_for(Duration::from_secs(600)).await);
}

#[tokio::test(start_paused = true)]
async fn an_offer_outside_the_mandate_is_followed_by_the_next_best() {
    let mut exchange = FakeExchange::start().await;
    let (_handle, mut events) = spawn(&exchange, "bob", 1, StrategyKind::Boulware);
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[called(1)]).await;
    let join = exchange.message().await;
    exchange.accept(&join, 1).await;
    exchange.deliver(&agent("bob"), &[turn(2, 1, "bob", None)]).await;
    let offer = exchange.message().await;
    assert_eq!(offer.document["payload"]["terms"], json!({"i0": 0}));
    exchange.accept(&offer, 2).await;
    let why = Misunderstanding { reason: "mandate_violation".to_owned(), expected: Vec::new(), pointer: None };
    let refused = receipt(msg_id(&offer.document), Disposition::MandateViolation, None);
    let notices = [delivery(3, "n1", refused), delivery(4, "n1", Notification::NotUnderstood(why.clone()))];
    exchange.deliver(&agent("bob"), &notices).await;
    let next_best = exchange.message().await;
    assert_eq!(next_best.document["payload"]["terms"], json!({"i0": 1}));
    assert_ne!(next_best.document["envelope"]["msg_id"], offer.document["envelope"]["msg_id"]);
    assert_eq!(next(&mut events).await, BargainReport::Joined { party: 1, parties: 2 });
    assert_eq!(next(&mut events).await, BargainReport::Misunderstood(why));
}

#[tokio::test(start_paused = true)]
async fn contractors_do_not_bargain_and_bargainers_do_nothing_else() {
    let mut exchange = FakeExchange::start().await;
    let (_bargainer, _events) = spawn(&exchange, "bob", 1, StrategyKind::Linear);
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
    let refusal = exchange.message().await;
    assert_eq!(refusal.document["payload"], json!({"act": "refuse", "reason": "takes part in bargains only"}));

    let contractor = Contractor::try_new(&agent("carol"), ContractorConfig::default()).unwrap();
    let transport = BusTransport::new(&exchange.bus);
    let _contractor = Agent::new(transport, identity("carol"), contractor).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("carol"), &[called(2)]).await;
    let refusal = exchange.message().await;
    assert_eq!(refusal.document["payload"], json!({"act": "refuse", "reason": "does not bargain"}));
}

fn spawn(exchange: &FakeExchange, name: &str, party: usize, kind: StrategyKind) -> (AgentHandle<Bargainer>, Events) {
    let (sender, events) = mpsc::channel(64);
    let bargainer = Bargainer::new(agent(name), planner(party, kind), sender);
    let agent = Agent::new(BusTransport::new(&exchange.bus), identity(name), bargainer);
    (agent.spawn(CancellationToken::new()), events)
}

/// Outcome n of ten is worth n tenths to alice, and 1 - n tenths to bob.
fn domain() -> Domain {
    let rising: Vec<f64> = (0..10).map(|outcome| f64::from(outcome) / 10.0).collect();
    let falling = (0..10).map(|outcome| f64::from(10 - outcome) / 10.0).collect();
    Domain::tabular("ten", &[10], vec![(rising, 0.2), (falling, 0.2)], BargainRules::with_rounds(4)).unwrap()
}

fn planner(party: usize, kind: StrategyKind) -> DomainPlanner {
    DomainPlanner::try_new(&domain(), party, kind, 1).unwrap()
}

fn called(n: u8) -> Delivery {
    let mut called = call(n, "n1");
    if let Notification::Cfp(call) = &mut called.payload {
        let parties = vec![agent("alice"), if n == 1 { agent("bob") } else { agent("carol") }];
        call.bargain = Some(Box::new(BargainCall { parties, rules: domain().bargain() }));
    }
    called
}

fn turn(n: u8, step: u32, party: &str, standing: Option<(&str, usize)>) -> Delivery {
    let standing = standing.map(|(by, outcome)| Standing {
        offer_id: offer_id(u64::from(step)),
        by: agent(by),
        terms: terms(outcome),
        terms_digest: Digest::of(&terms(outcome)).unwrap(),
        valid_from: None,
        valid_until: None,
        conditions: Vec::new(),
        accepted_by: Vec::new(),
    });
    let ends_by = WireTime(Timestamp::from_ms(1_000_000).plus_ms(900_000));
    let round = step / 2 + 1;
    let turn = Turn { party: agent(party), round, step, act_by: ends_by, ends_by, t_ppm: round * 200_000, standing };
    delivery(n, "n1", Notification::Turn(turn))
}

fn offered(ack_of: &str, id: u64) -> Notification {
    let ack_of = MsgId::try_new(ack_of).unwrap();
    let offer_id = Some(offer_id(id));
    let disposition = Disposition::Ok;
    Notification::Ack(Receipt { offer_id, ..Receipt::new(ack_of, disposition) })
}

fn awarded(outcome: usize) -> Notification {
    Notification::Accept(Award {
        offer_id: offer_id(3),
        lot: Lot(0),
        award_no: AwardNo(1),
        terms: terms(outcome),
        terms_digest: Digest::of(&terms(outcome)).unwrap(),
        payment: None,
        document: None,
        confirm_by: WireTime(Timestamp::from_ms(1_001_000)),
        brief: None,
    })
}

fn closed(agreed: Option<usize>) -> Notification {
    let agreement = agreed.map(|outcome| Agreement {
        offer_id: offer_id(3),
        by: agent("alice"),
        terms: terms(outcome),
        terms_digest: Digest::of(&terms(outcome)).unwrap(),
        round: 2,
        step: 4,
    });
    let (outcome, detail) = match agreed {
        Some(_) => (Outcome::Agreement, None),
        None => (Outcome::NoAgreement, Some("rounds".to_owned())),
    };
    Notification::Closed(Closing {
        outcome,
        digest: Digest([0; 32]),
        detail,
        agreement: agreement.map(Box::new),
        conclusion: None,
        tasks: Vec::new(),
    })
}

fn terms(outcome: usize) -> Terms {
    serde_json::from_value(json!({ "i0": outcome })).unwrap()
}

fn offer_id(seq: u64) -> OfferId {
    OfferId(Position { seq, index: 0 })
}

fn msg_id(document: &Value) -> &str {
    document["envelope"]["msg_id"].as_str().unwrap()
}

async fn next(events: &mut Events) -> BargainReport {
    in_time(events.recv()).await.unwrap().report
}
