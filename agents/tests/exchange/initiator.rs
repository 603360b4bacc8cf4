//! The initiator over the bus.

use std::time::Duration;

use agents::transport::bus::BusTransport;
use agents::{AgentOptions, CallEvent, CallReport, CallRequest, Initiator};
use schemas::delivery::{Closing, Disposition, Misunderstanding, Notification, Outcome};
use schemas::payload::Cfp;
use schemas::{Address, Code, Digest};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::fake::{FakeExchange, agent, delivery, identity, in_time, receipt};

#[tokio::test(start_paused = true)]
async fn a_call_is_heard_from_acceptance_to_end() {
    let mut exchange = FakeExchange::start().await;
    let initiator = initiator(&exchange);
    let (sender, mut events) = mpsc::channel(16);
    let id = initiator.call(request("n1"), sender).await.unwrap();
    assert_eq!(id.as_str(), "alice~n1");
    let cfp = exchange.message().await;
    let envelope = &cfp.document["envelope"];
    assert_eq!(envelope["to"], json!(["agent://bob"]));
    assert_eq!(envelope["scope"], json!({"consent": "opt-in"}));
    let msg_id = envelope["msg_id"].as_str().unwrap();
    exchange.accept(&cfp, 7).await;
    assert_eq!(next(&mut events).await, CallReport::Accepted { seq: Some(7) });
    let opened = receipt(msg_id, Disposition::Ok, Some(3));
    exchange.deliver(&agent("alice"), &[delivery(1, "n1", opened), delivery(2, "n1", closed())]).await;
    assert_eq!(next(&mut events).await, CallReport::Opened { invited: 3, left_out: 0, seats: None });
    assert_eq!(initiator.open_count(), 0, "the end was handled before the events were read");
    assert!(matches!(next(&mut events).await, CallReport::Closed(_)));
    assert!(in_time(events.recv()).await.is_none());
    assert_eq!(initiator.dropped_events(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_for_the_absent_says_so_in_its_scope() {
    let mut exchange = FakeExchange::start().await;
    let initiator = initiator(&exchange);
    initiator.call(CallRequest { absent: true, ..request("n1") }, mpsc::channel(16).0).await.unwrap();
    let cfp = exchange.message().await;
    assert_eq!(cfp.document["envelope"]["scope"], json!({"consent": "opt-in", "absent": true}));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_or_turned_down_or_not_answered_ends() {
    let mut exchange = FakeExchange::start().await;
    let initiator = initiator(&exchange);
    let (sender, mut events) = mpsc::channel(16);

    initiator.call(request("refused"), sender.clone()).await.unwrap();
    let cfp = exchange.message().await;
    exchange.answer(&cfp, &json!({"refused": {"code": "no_consent", "detail": "nobody"}})).await;
    let refused = next(&mut events).await;
    assert!(matches!(&refused, CallReport::Refused(refusal) if refusal.code == Code::NoConsent), "{refused:?}");

    // Whichever comes first: why is told before the end.
    for (own, is_reversed) in [("down", false), ("down-again", true)] {
        initiator.call(request(own), sender.clone()).await.unwrap();
        let cfp = exchange.message().await;
        exchange.accept(&cfp, 1).await;
        assert!(matches!(next(&mut events).await, CallReport::Accepted { .. }));
        let msg_id = cfp.document["envelope"]["msg_id"].as_str().unwrap();
        let turned_down = receipt(msg_id, Disposition::Malformed, None);
        let why = Misunderstanding { reason: "bad_deadline".to_owned(), expected: Vec::new(), pointer: None };
        let place = u8::from(is_reversed) * 2;
        let mut told = [turned_down, Notification::NotUnderstood(why.clone())];
        if is_reversed {
            told.reverse();
        }
        for (n, told) in (place + 1..).zip(told) {
            exchange.deliver(&agent("alice"), &[delivery(n, own, told)]).await;
        }
        assert_eq!(next(&mut events).await, CallReport::Misunderstood(why));
        assert_eq!(next(&mut events).await, CallReport::TurnedDown(Disposition::Malformed));
    }

    initiator.call(request("unread"), sender.clone()).await.unwrap();
    let cfp = exchange.message().await;
    exchange.accept(&cfp, 1).await;
    assert!(matches!(next(&mut events).await, CallReport::Accepted { .. }));
    let unread = receipt(cfp.document["envelope"]["msg_id"].as_str().unwrap(), Disposition::Malformed, None);
    exchange.deliver(&agent("alice"), &[delivery(5, "unread", unread)]).await;
    assert_eq!(next(&mut events).await, CallReport::TurnedDown(Disposition::Malformed), "no reason comes");

    initiator.call(request("silent"), sender.clone()).await.unwrap();
    assert_eq!(next(&mut events).await, CallReport::Unanswered);
    assert_eq!(initiator.open_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_id_in_use_is_refused_and_the_open_call_is_left_alone() {
    let mut exchange = FakeExchange::start().await;
    let initiator = initiator(&exchange);
    let (first, mut first_events) = mpsc::channel(16);
    let (second, mut second_events) = mpsc::channel(16);
    initiator.call(request("n1"), first).await.unwrap();
    initiator.call(request("n1"), second).await.unwrap();
    let refused = next(&mut second_events).await;
    assert!(matches!(&refused, CallReport::Refused(refusal) if refusal.code == Code::Conflict), "{refused:?}");
    let cfp = exchange.message().await;
    exchange.accept(&cfp, 1).await;
    assert!(matches!(next(&mut first_events).await, CallReport::Accepted { .. }));
    assert!(initiator.call(request("not a name"), mpsc::channel(1).0).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_forgotten_takes_no_room_and_tells_nothing() {
    let mut exchange = FakeExchange::start().await;
    let initiator = initiator(&exchange);
    let (sender, mut events) = mpsc::channel(16);
    let id = initiator.call(request("n1"), sender).await.unwrap();
    let cfp = exchange.message().await;
    exchange.accept(&cfp, 1).await;
    assert!(matches!(next(&mut events).await, CallReport::Accepted { .. }));
    assert_eq!(initiator.open_count(), 1);
    initiator.forget(id).await.unwrap();
    assert!(in_time(events.recv()).await.is_none(), "nobody listens any more");
    exchange.deliver(&agent("alice"), &[delivery(1, "n1", closed())]).await;
    assert_eq!(exchange.ack().await, (agent("alice"), vec![crate::fake::delivery_id(1)]));
    assert_eq!((initiator.open_count(), initiator.dropped_events()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_leaves_at_its_absolute_time() {
    let mut exchange = FakeExchange::start().await;
    let initiator = initiator(&exchange);
    let start = Instant::now();
    for (own, after_ms) in [("late", 900), ("soon", 300)] {
        let start_at = Some(start + Duration::from_millis(after_ms));
        initiator.call(CallRequest { start_at, ..request(own) }, mpsc::channel(16).0).await.unwrap();
    }
    for (own, after_ms) in [("soon", 300), ("late", 900)] {
        let cfp = exchange.message().await;
        assert_eq!(cfp.document["envelope"]["negotiation"], own);
        let elapsed = start.elapsed();
        let range = Duration::from_millis(after_ms)..Duration::from_millis(after_ms + 5);
        assert!(range.contains(&elapsed), "{own}: {elapsed:?}");
        exchange.accept(&cfp, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_its_end_gives_all_its_events() {
    let mut exchange = FakeExchange::start().await;
    let initiator = initiator(&exchange);
    let answer = async {
        let cfp = exchange.message().await;
        exchange.accept(&cfp, 1).await;
        exchange.deliver(&agent("alice"), &[delivery(1, "n1", closed())]).await;
    };
    let (events, ()) = tokio::join!(in_time(initiator.call_to_end(request("n1"))), answer);
    let events = events.unwrap();
    assert!(matches!(events.last(), Some(CallEvent { report: CallReport::Closed(_), .. })), "{events:?}");
}

fn initiator(exchange: &FakeExchange) -> Initiator {
    Initiator::spawn(BusTransport::new(&exchange.bus), identity("alice"), AgentOptions::default())
}

fn request(own: &str) -> CallRequest {
    CallRequest::new(own, vec![Address::Agent(agent("bob"))], Cfp::default())
}

fn closed() -> Notification {
    Notification::Closed(Closing {
        outcome: Outcome::NoOffers,
        digest: Digest([0; 32]),
        detail: None,
        agreement: None,
        conclusion: None,
        tasks: Vec::new(),
    })
}

async fn next(events: &mut mpsc::Receiver<CallEvent>) -> CallReport {
    in_time(events.recv()).await.unwrap().report
}
