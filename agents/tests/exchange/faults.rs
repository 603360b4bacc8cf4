//! Faults to order do what they say.

use std::collections::BTreeSet;
use std::time::Duration;

use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::transport::faulty::{Faults, FaultyTransport};
use agents::{Agent, Contractor, ContractorConfig};
use tokio_util::sync::CancellationToken;

use crate::fake::{FakeExchange, agent, call, delivery_id, identity};

#[tokio::test(start_paused = true)]
async fn the_first_k_acknowledgements_of_each_delivery_are_dropped() {
    let mut exchange = FakeExchange::start().await;
    let transport = faulty(&exchange, Faults { drop_acks: 2, ..Faults::default() });
    let connection = transport.connect(&identity("bob")).await.unwrap();
    for round in 0..3 {
        let ids = if round == 0 { vec![delivery_id(1)] } else { vec![delivery_id(1), delivery_id(2)] };
        connection.link.ack(ids).await.unwrap();
    }
    assert_eq!(exchange.ack().await.1, [delivery_id(1)], "the third for the first, the second for the other");
    connection.link.ack(vec![delivery_id(2)]).await.unwrap();
    assert_eq!(exchange.ack().await.1, [delivery_id(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_duplicated_message_arrives_twice_and_a_lost_answer_makes_the_agent_repeat() {
    for faults in [
        Faults { duplicate_sends: 1.0, hold_ms_max: 100, ..Faults::default() },
        Faults { lose_answers: 1.0, ..Faults::default() },
    ] {
        let mut exchange = FakeExchange::start().await;
        let contractor = Contractor::try_new(&agent("bob"), ContractorConfig::default()).unwrap();
        let transport = faulty(&exchange, faults);
        let _handle = Agent::new(transport, identity("bob"), contractor).spawn(CancellationToken::new());
        exchange.hello().await;
        exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
        let first = exchange.message().await;
        exchange.accept(&first, 1).await;
        let second = exchange.message().await;
        assert_eq!(first.received.payload, second.received.payload);
    }
}

#[tokio::test(start_paused = true)]
async fn held_messages_are_overtaken_and_the_same_seed_gives_the_same_order() {
    let mut orders = Vec::new();
    for seed in [1, 1, 2] {
        let mut exchange = FakeExchange::start().await;
        let transport = faulty(&exchange, Faults { seed, hold_sends: 0.5, hold_ms_max: 1000, ..Faults::default() });
        let contractor = Contractor::try_new(&agent("bob"), ContractorConfig::default()).unwrap();
        let _handle = Agent::new(transport, identity("bob"), contractor).spawn(CancellationToken::new());
        exchange.hello().await;
        let calls: Vec<_> = (0..20).map(|n| call(n, &format!("n{n:02}"))).collect();
        exchange.deliver(&agent("bob"), &calls).await;
        let mut order = Vec::new();
        for seq in 0..20 {
            let message = exchange.message().await;
            exchange.accept(&message, seq).await;
            order.push(message.document["envelope"]["negotiation"].as_str().unwrap().to_owned());
        }
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 20);
        assert!(!order.is_sorted());
        orders.push(order);
    }
    assert_eq!(orders[0], orders[1]);
    assert_ne!(orders[0], orders[2]);
}

#[tokio::test(start_paused = true)]
async fn duplicated_and_shuffled_deliveries_are_acted_upon_once() {
    let mut exchange = FakeExchange::start().await;
    let faults = Faults { duplicate_deliveries: 1.0, shuffle_deliveries: true, ..Faults::default() };
    let contractor = Contractor::try_new(&agent("bob"), ContractorConfig::default()).unwrap();
    let handle = Agent::new(faulty(&exchange, faults), identity("bob"), contractor).spawn(CancellationToken::new());
    exchange.hello().await;
    let calls: Vec<_> = (0..5).map(|n| call(n, &format!("n{n}"))).collect();
    exchange.deliver(&agent("bob"), &calls).await;
    let mut seen = BTreeSet::new();
    for seq in 0..5 {
        let message = exchange.message().await;
        exchange.accept(&message, seq).await;
        seen.insert(message.document["envelope"]["negotiation"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen.len(), 5);
    assert!(exchange.is_silent_for(Duration::from_secs(60)).await);
    let summary = handle.shutdown().await.unwrap();
    assert_eq!((summary.deliveries, summary.repeats), (5, 5));
}

fn faulty(exchange: &FakeExchange, faults: Faults) -> FaultyTransport {
    FaultyTransport::new(BusTransport::new(&exchange.bus), faults)
}
