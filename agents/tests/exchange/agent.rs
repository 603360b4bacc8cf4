//! The agent's loop over the bus.

use std::time::Duration;

use agents::transport::bus::BusTransport;
use agents::{Action, Agent, AgentError, Contractor, ContractorConfig, Strategy};
use schemas::delivery::{Delivery, Disposition};
use schemas::payload::Reasoned;
use schemas::{Payload, Timestamp, subject};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fake::{FakeExchange, agent, call, delivery, delivery_id, identity, in_time, receipt};

#[tokio::test(start_paused = true)]
async fn an_agent_says_hello_once_it_hears_its_inbox() {
    let mut exchange = FakeExchange::start().await;
    let handle = contractor(&exchange).spawn(CancellationToken::new());
    assert_eq!(exchange.hello().await, agent("bob"));
    // Delivered right after the hello, nothing is lost.
    exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
    assert_eq!(exchange.message().await.document["payload"]["act"], "offer");
    handle.connected().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn deliveries_that_came_together_are_acknowledged_together() {
    let mut exchange = FakeExchange::start().await;
    let _handle = contractor(&exchange).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[call(1, "n1"), call(2, "n2"), call(3, "n3")]).await;
    assert_eq!(exchange.ack().await, (agent("bob"), vec![delivery_id(1), delivery_id(2), delivery_id(3)]));
    exchange.deliver(&agent("bob"), &[call(4, "n4")]).await;
    assert_eq!(exchange.ack().await, (agent("bob"), vec![delivery_id(4)]));
}

#[tokio::test(start_paused = true)]
async fn on_the_bus_acknowledgements_leave_together_after_60_ms_and_wait_for_no_message() {
    let mut exchange = FakeExchange::start().await;
    let silent = |_now: Timestamp, delivery: &Delivery| -> Vec<Action> {
        match delivery.envelope.negotiation.as_str() {
            "alice~answered" => vec![agents::Outgoing::reply(delivery, refuse()).into()],
            _ => Vec::new(),
        }
    };
    let _handle = agent_with(&exchange, silent).spawn(CancellationToken::new());
    exchange.hello().await;
    let start = Instant::now();
    for (number, own) in [(1, "n1"), (2, "n2"), (3, "n3")] {
        exchange.deliver(&agent("bob"), &[call(number, own)]).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(exchange.ack().await.1, [delivery_id(1), delivery_id(2), delivery_id(3)]);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(60) && waited < Duration::from_millis(65), "{waited:?}");

    exchange.deliver(&agent("bob"), &[call(4, "n4")]).await;
    exchange.deliver(&agent("bob"), &[call(5, "answered")]).await;
    let start = Instant::now();
    assert_eq!(exchange.message().await.document["payload"]["act"], "refuse");
    assert_eq!(start.elapsed(), Duration::ZERO, "the message waits for nothing");
    assert_eq!(exchange.ack().await.1, [delivery_id(4), delivery_id(5)]);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(60) && waited < Duration::from_millis(65), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ends_acknowledges_what_it_has_received() {
    let mut exchange = FakeExchange::start().await;
    let silent = |_now: Timestamp, _delivery: &Delivery| -> Vec<Action> { Vec::new() };
    let handle = agent_with(&exchange, silent).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let start = Instant::now();
    let summary = handle.shutdown().await.unwrap();
    assert_eq!((summary.deliveries, summary.acks_lost, start.elapsed()), (1, 0, Duration::ZERO));
    assert_eq!(exchange.ack().await.1, [delivery_id(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_whose_answer_waits_for_room_is_acknowledged_once_that_left_or_after_300_ms() {
    let mut exchange = FakeExchange::start().await;
    let answers = |_now: Timestamp, delivery: &Delivery| -> Vec<Action> {
        let count = if delivery.envelope.negotiation.as_str() == "alice~quiet" { 0 } else { 2 };
        (0..count).map(|_| agents::Outgoing::reply(delivery, refuse()).into()).collect()
    };
    let _handle = agent_with(&exchange, answers).spawn(CancellationToken::new());
    exchange.hello().await;
    // Two answers each: those of 128 calls have room.
    let calls: Vec<_> = (1..=130).map(|number| call(number, &format!("n{number}"))).collect();
    exchange.deliver(&agent("bob"), &calls).await;
    exchange.deliver(&agent("bob"), &[call(200, "quiet")]).await;
    let start = Instant::now();
    let acked = exchange.ack().await.1;
    assert_eq!((acked.len(), acked.last()), (129, Some(&delivery_id(200))), "nothing waits that is not answered");
    assert_eq!(exchange.ack().await.1, [delivery_id(129), delivery_id(130)]);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(300) && waited < Duration::from_millis(370), "{waited:?}");

    exchange.deliver(&agent("bob"), &[call(131, "n131")]).await;
    let start = Instant::now();
    for _ in 0..20 {
        let message = exchange.message().await;
        exchange.accept(&message, 1).await;
    }
    assert_eq!(exchange.ack().await.1, [delivery_id(131)]);
    assert!(start.elapsed() < Duration::from_millis(70), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_delivery_is_acknowledged_each_time_and_acted_upon_once() {
    let mut exchange = FakeExchange::start().await;
    let handle = contractor(&exchange).spawn(CancellationToken::new());
    exchange.hello().await;
    for _ in 0..3 {
        exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
        assert_eq!(exchange.ack().await.1, [delivery_id(1)]);
    }
    let offer = exchange.message().await;
    exchange.accept(&offer, 1).await;
    assert!(exchange.is_silent_for(Duration::from_secs(60)).await);
    let summary = handle.shutdown().await.unwrap();
    assert_eq!((summary.deliveries, summary.repeats, summary.transmitted, summary.accepted), (1, 2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_nobody_answers_is_repeated_byte_for_byte() {
    let mut exchange = FakeExchange::start().await;
    let _handle = contractor(&exchange).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
    let first = exchange.message().await;
    let second = exchange.message().await;
    assert_eq!(second.received.payload, first.received.payload);
    assert_eq!(second.received.token.as_deref(), Some("token"));
    assert_eq!(second.received.subject, subject::gateway_in(&agent("bob")));
    exchange.answer(&second, &json!({"refused": {"code": "log_unavailable", "detail": "retry"}})).await;
    let third = exchange.message().await;
    assert_eq!(third.received.payload, first.received.payload);
    exchange.accept(&third, 1).await;
    assert!(exchange.is_silent_for(Duration::from_secs(60)).await);
}

#[tokio::test(start_paused = true)]
async fn a_receipt_stops_the_repeats_of_a_message_whose_answer_was_lost() {
    let mut exchange = FakeExchange::start().await;
    let handle = contractor(&exchange).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
    let offer = exchange.message().await;
    let msg_id = offer.document["envelope"]["msg_id"].as_str().unwrap();
    exchange.deliver(&agent("bob"), &[delivery(2, "n1", receipt(msg_id, Disposition::Ok, None))]).await;
    assert!(exchange.is_silent_for(Duration::from_secs(60)).await);
    assert_eq!(handle.shutdown().await.unwrap().accepted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_action_leaves_at_its_time_and_an_unscheduled_one_never() {
    let mut exchange = FakeExchange::start().await;
    let strategy = |_now: Timestamp, delivery: &Delivery| -> Vec<Action> {
        match delivery.envelope.negotiation.as_str() {
            "alice~stop" => vec![Action::Unschedule(crate::fake::negotiation("n1"))],
            _ => vec![agents::Outgoing::reply(delivery, refuse()).after_ms(250).into()],
        }
    };
    let _handle = agent_with(&exchange, strategy).spawn(CancellationToken::new());
    exchange.hello().await;
    let start = Instant::now();
    exchange.deliver(&agent("bob"), &[call(1, "n1"), call(2, "n2"), call(3, "stop")]).await;
    let message = exchange.message().await;
    assert_eq!(message.document["envelope"]["negotiation"], "alice~n2");
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(250) && elapsed < Duration::from_millis(255), "{elapsed:?}");
    exchange.accept(&message, 1).await;
    assert!(exchange.is_silent_for(Duration::from_secs(60)).await);
}

#[tokio::test(start_paused = true)]
async fn a_strategys_timer_fires_in_log_time() {
    struct Alarmed(Option<Timestamp>);
    impl Strategy for Alarmed {
        fn handle(&mut self, now: Timestamp, _delivery: &Delivery) -> Vec<Action> {
            self.0 = Some(now.plus_ms(40));
            Vec::new()
        }
        fn poll_timer(&self) -> Option<Timestamp> {
            self.0
        }
        fn handle_timer(&mut self, now: Timestamp) -> Vec<Action> {
            assert!(self.0.take().is_some_and(|at| at <= now));
            vec![agents::Outgoing::new(crate::fake::negotiation("n1"), refuse()).into()]
        }
    }
    let mut exchange = FakeExchange::start().await;
    let _handle = agent_with(&exchange, Alarmed(None)).spawn(CancellationToken::new());
    exchange.hello().await;
    let start = Instant::now();
    // The delivery's log time lies decades before this machine's clock: only the difference counts.
    exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
    exchange.message().await;
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(40) && elapsed < Duration::from_millis(45), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_answers_but_not_for_ever() {
    for is_answered in [true, false] {
        let mut exchange = FakeExchange::start().await;
        let strategy = |_now: Timestamp, delivery: &Delivery| vec![Action::reply(delivery, refuse()), Action::Stop];
        let handle = agent_with(&exchange, strategy).spawn(CancellationToken::new());
        exchange.hello().await;
        exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
        let message = exchange.message().await;
        if is_answered {
            exchange.accept(&message, 1).await;
        }
        let summary = in_time(handle.join()).await.unwrap();
        assert_eq!(summary.accepted, u64::from(is_answered));
        assert_eq!(exchange.ack().await.1, [delivery_id(1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_its_room_for_delays_the_strategy_is_told() {
    struct Late(u32);
    impl Strategy for Late {
        fn handle(&mut self, _now: Timestamp, delivery: &Delivery) -> Vec<Action> {
            (0..3).map(|_| agents::Outgoing::reply(delivery, refuse()).after_ms(1).into()).collect()
        }
        fn handle_sent(&mut self, _now: Timestamp, sent: &agents::strategy::Sent) -> Vec<Action> {
            self.0 += u32::from(matches!(sent.outcome, agents::strategy::SendOutcome::Refused(_)));
            if self.0 == 2 { vec![Action::Stop] } else { Vec::new() }
        }
    }
    let mut exchange = FakeExchange::start().await;
    let options = agents::AgentOptions { delayed_max: 1, ..agents::AgentOptions::default() };
    let handle = agent_with(&exchange, Late(0)).with_options(options).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
    assert_eq!(in_time(handle.join()).await.unwrap().refused, 2);
}

#[tokio::test(start_paused = true)]
async fn a_handle_reaches_into_the_loop_until_it_ends() {
    let exchange = FakeExchange::start().await;
    let cancel = CancellationToken::new();
    let handle = contractor(&exchange).spawn(cancel.clone());
    let (sender, counts) = tokio::sync::oneshot::channel();
    handle
        .command(move |contractor, _now| {
            sender.send(contractor.counts()).unwrap();
            Vec::new()
        })
        .await
        .unwrap();
    assert_eq!(counts.await.unwrap().calls, 0);
    cancel.cancel();
    in_time(async {
        // The loop takes commands until it sees the cancellation.
        while handle.command(|_, _| Vec::new()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(handle.connected().await, Err(AgentError::Ended)));
}

fn contractor(exchange: &FakeExchange) -> Agent<Contractor> {
    agent_with(exchange, Contractor::try_new(&agent("bob"), ContractorConfig::default()).unwrap())
}

fn agent_with<S: Strategy + 'static>(exchange: &FakeExchange, strategy: S) -> Agent<S> {
    Agent::new(BusTransport::new(&exchange.bus), identity("bob"), strategy)
}

fn refuse() -> Payload {
    Payload::Refuse(Reasoned::default())
}
