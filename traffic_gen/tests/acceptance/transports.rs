//! One round, three ways in: an agent over WebSocket, one over NATS, one over HTTP with server-sent events; and what a
//! plain NATS client sees of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::transport::http::HttpTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::{Agent, AgentOptions, CallReport, CallRequest, Contractor, ContractorConfig, Initiator};
use bus::nats::{self, NatsOptions};
use futures_util::stream::select;
use futures_util::{Stream, StreamExt};
use nats_server::{LocalServer, LocalServerOptions};
use schemas::delivery::{Notice, Notification, Outcome};
use schemas::payload::Cfp;
use schemas::{Address, routed, subject};
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::ExchangeOptions;

use crate::rig::{PATIENCE, Rig, agent, open_registration};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_over_websocket_nats_and_sse_offer_in_one_round_that_a_plain_nats_client_sees() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let rig = Rig::on(open(&server).await, ExchangeOptions::default()).await;
    let plain = async_nats::connect(server.url()).await.unwrap();
    let inboxes = plain.subscribe(schemas::subject::ALL_INBOXES).await.unwrap();
    let mut sent = select(inboxes, plain.subscribe(schemas::subject::ALL_GATEWAY_DELIVERIES).await.unwrap());
    let mut notices = plain.subscribe("topic.*").await.unwrap();
    let mut acks = plain.subscribe(schemas::subject::ALL_ACKS).await.unwrap();
    let mut collected = plain.subscribe(schemas::subject::ALL_COLLECTED_ACKS).await.unwrap();
    plain.flush().await.unwrap();

    // An agent that speaks NATS has a connection of its own, to the server and not to the exchange.
    let ways: [(&str, Arc<dyn Transport>); 3] = [
        ("over-websocket", Arc::new(WebSocketTransport::new(rig.exchange.url()))),
        ("over-nats", Arc::new(BusTransport::new(&open(&server).await))),
        ("over-sse", Arc::new(HttpTransport::try_new(rig.exchange.url()).unwrap())),
    ];
    let mut contractors = Vec::new();
    for (name, transport) in ways {
        rig.register(name, &open_registration()).await;
        let strategy = Contractor::try_new(&agent(name), ContractorConfig::default()).unwrap();
        let contractor = Agent::new(transport, rig.identity(name), strategy).spawn(CancellationToken::new());
        contractor.connected().await.unwrap();
        contractors.push(contractor);
    }
    let transport = WebSocketTransport::new(rig.exchange.url());
    let initiator = Initiator::spawn(transport, rig.identity("alice"), AgentOptions::default());
    let cfp = Cfp { policy: Some("high".to_owned()), reply_within_ms: Some(10_000), ..Cfp::default() };
    let topic = Address::try_new("topic://courier").unwrap();
    let call = initiator.call_to_end(CallRequest::new("round", vec![topic], cfp));
    let events = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();

    let awards: Vec<_> = events
        .iter()
        .filter_map(|event| if let CallReport::Awarded(news) = &event.report { Some(news) } else { None })
        .collect();
    assert_eq!(awards.len(), 1);
    assert_eq!((awards[0].offers, awards[0].complete), (3, true), "all three have offered in this round");
    let Some(CallReport::Closed(closing)) = events.last().map(|event| &event.report) else { panic!("{events:?}") };
    assert_eq!(closing.outcome, Outcome::Completed);

    let everyone: BTreeSet<String> = ["alice", "over-websocket", "over-nats", "over-sse"].map(String::from).into();
    let mut called = BTreeSet::new();
    let mut addressed = BTreeSet::new();
    while addressed != everyone || called.len() < 3 {
        let message = next(&mut sent).await;
        for (owner, delivery) in routed::read_deliveries(&message.subject, &message.payload) {
            assert_eq!(delivery.envelope.to, [format!("agent://{owner}")]);
            if matches!(delivery.payload, Notification::Cfp(_)) {
                called.insert(owner.clone());
            }
            addressed.insert(owner.to_string());
        }
    }
    let message = next(&mut acks).await;
    let mut acknowledging = BTreeSet::from([subject::parse_ack(&message.subject).unwrap().0.to_string()]);
    assert_eq!(acknowledging, ["over-nats".to_owned()].into(), "the others' acknowledgements are collected");
    while acknowledging != everyone {
        let message = next(&mut collected).await;
        let acks = schemas::acknowledgement::decode_collected(&message.payload).unwrap();
        acknowledging.extend(acks.into_iter().map(|(agent, _)| agent.to_string()));
    }
    let notices = [next(&mut notices).await, next(&mut notices).await].map(|message| {
        assert_eq!(message.subject.as_str(), "topic.courier");
        assert!(!String::from_utf8_lossy(&message.payload).contains("price"), "a public notice carries no terms");
        serde_json::from_slice::<Notice>(&message.payload).unwrap()
    });
    assert!(matches!(&notices[0], Notice::Called { invited: 3, .. }), "{notices:?}");
    assert!(matches!(&notices[1], Notice::Closed { outcome: Outcome::Completed, .. }), "{notices:?}");
}

async fn open(server: &LocalServer) -> bus::Bus {
    nats::open(NatsOptions::new(server.url())).await.unwrap()
}

async fn next(messages: &mut (impl Stream<Item = async_nats::Message> + Unpin)) -> async_nats::Message {
    tokio::time::timeout(PATIENCE, messages.next()).await.expect("nothing more was published").unwrap()
}
