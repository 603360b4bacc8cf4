//! What engines send to a gateway for the streams it holds, and how they learn of these.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use schemas::presence::Hello;
use schemas::{DeliveryId, GatewayId, routed, subject};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::rig::{PATIENCE, Rig, agent};
use crate::streams::{delivery, frame, opened, publish_inbox};

/// What the rig's gateway is called.
const ID: &str = "gate-one";

#[tokio::test]
async fn a_hello_names_the_gateway_and_the_end_of_an_agents_last_stream_is_said() {
    let rig = rig().await;
    let mut hellos = rig.bus.pub_sub.subscribe("hello.bob".to_owned(), None).await.unwrap();
    let gateway = GatewayId::try_new(ID).unwrap();
    let mut first = opened(&rig, "bob").await;
    assert_eq!(said(&mut hellos).await, Hello::Connected(Some(gateway.clone())));
    let mut second = opened(&rig, "bob").await;
    assert_eq!(said(&mut hellos).await, Hello::Connected(Some(gateway.clone())));
    rig.register("bob").await;
    assert_eq!(said(&mut hellos).await, Hello::Renewal(Some(gateway.clone())), "registered over HTTP");
    first.close(None).await.unwrap();
    assert!(timeout(Duration::from_millis(200), hellos.next()).await.is_err(), "one is still open");
    second.close(None).await.unwrap();
    assert_eq!(said(&mut hellos).await, Hello::Closed(gateway.clone()));

    let _open = opened(&rig, "bob").await;
    assert_eq!(said(&mut hellos).await, Hello::Connected(Some(gateway.clone())));
    rig.handle.shutdown().await;
    assert_eq!(said(&mut hellos).await, Hello::Closed(gateway), "a gateway that stops says so too");
}

#[tokio::test]
async fn deliveries_sent_to_the_gateway_reach_every_stream_of_their_agent_and_nobody_elses() {
    let rig = rig().await;
    let (mut bob, mut bob_again) = (opened(&rig, "bob").await, opened(&rig, "bob").await);
    let mut carol = opened(&rig, "carol").await;
    let mut events = rig.request("GET", "/v1/inbox").bearer_auth(rig.token("dan")).send().await.unwrap().bytes_stream();
    let mut message = Vec::new();
    for (to, number) in [("bob", 1), ("carol", 2), ("nobody", 3), ("bob", 4), ("dan", 5)] {
        routed::push_line(&mut message, &agent(to), document(number).as_bytes());
    }
    message.extend_from_slice(b"nonsense\nbob \xff\n");
    publish(&rig, message).await;
    for socket in [&mut bob, &mut bob_again] {
        assert_eq!([told(socket).await, told(socket).await], [delivery(1), delivery(4)], "in their order");
    }
    assert_eq!(told(&mut carol).await, delivery(2));
    let mut text = String::new();
    while !text.contains("event: delivery") {
        let chunk = timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(text.contains(&format!("id: {}\n", delivery(5))) && text.contains(&document(5)), "{text}");
    let counted = |result| rig.metric("exchange_routed_deliveries_total", &[("result", result)]);
    assert_eq!([counted("handed"), counted("nobody"), counted("unreadable"), counted("full")], [8.0, 1.0, 1.0, 0.0]);

    // A repeat comes on the inbox, whatever was routed.
    publish_inbox(&rig, "carol", &[delivery(2)]).await;
    assert_eq!(told(&mut carol).await, delivery(2));
    let unreadable = [("transport", "ws"), ("result", "unreadable")];
    assert_eq!(rig.metric("exchange_stream_events_total", &unreadable), 2.0, "what is no text is given to no client");
}

#[tokio::test]
async fn a_stream_that_does_not_keep_up_loses_what_comes_again_and_holds_up_no_other() {
    let rig = rig().await;
    let (mut deaf, mut bob) = (stream(&rig, "deaf").await, stream(&rig, "bob").await);
    const ROOM: usize = 16_384;
    for first in (0..ROOM).step_by(ROOM / 4) {
        let mut message = Vec::new();
        for _ in first..first + ROOM / 4 {
            routed::push_line(&mut message, &agent("deaf"), b"{}");
        }
        publish(&rig, message).await;
    }
    publish(&rig, b"deaf {\"late\":1}\nbob {\"on\":\"time\"}\n".to_vec()).await;
    assert_eq!(next(&mut bob).await, br#"{"on":"time"}"#.as_slice());
    assert_eq!(rig.metric("exchange_routed_deliveries_total", &[("result", "full")]), 1.0);
    for _ in 0..ROOM {
        assert_eq!(next(&mut deaf).await, b"{}".as_slice());
    }
    publish(&rig, b"deaf {\"again\":1}\n".to_vec()).await;
    assert_eq!(next(&mut deaf).await, br#"{"again":1}"#.as_slice());
}

#[tokio::test]
async fn a_gateway_lists_whose_streams_it_holds_for_engines_that_started_later() {
    let rig = Rig::with(|config| (config.id, config.listen) = (ID.to_owned(), None)).await;
    tokio::time::pause();
    let mut lists = rig.bus.pub_sub.subscribe(subject::ALL_STREAMS.to_owned(), None).await.unwrap();
    let (bob, ann) = (stream(&rig, "bob").await, stream(&rig, "ann").await);
    let list = async |lists: &mut BoxStream<'static, bus::Received>| {
        let list = lists.next().await.unwrap();
        assert_eq!(subject::streams_gateway_of(&list.subject), Some(GatewayId::try_new(ID).unwrap()));
        serde_json::from_slice::<Vec<String>>(&list.payload).unwrap()
    };
    assert_eq!(list(&mut lists).await, ["ann", "bob"]);
    drop(ann);
    assert_eq!(list(&mut lists).await, ["bob"]);
    drop(bob);
    assert!(timeout(Duration::from_secs(60), lists.next()).await.is_err(), "nobody is worth no message");
}

async fn rig() -> Rig {
    Rig::with(|config| config.id = ID.to_owned()).await
}

async fn stream(rig: &Rig, name: &str) -> gateway::AgentStream {
    rig.handle.streams().open(&agent(name)).await.unwrap()
}

async fn next(stream: &mut gateway::AgentStream) -> Bytes {
    timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap()
}

async fn said(hellos: &mut BoxStream<'static, bus::Received>) -> Hello {
    Hello::parse(&timeout(PATIENCE, hellos.next()).await.unwrap().unwrap().payload)
}

async fn publish(rig: &Rig, message: Vec<u8>) {
    let gateway = GatewayId::try_new(ID).unwrap();
    rig.bus.pub_sub.publish(subject::gateway_deliveries(&gateway), Bytes::from(message)).await.unwrap();
}

fn document(number: u8) -> String {
    json!({ "envelope": { "msg_id": delivery(number) }, "payload": { "act": "closed", "text": "a b" } }).to_string()
}

/// The id of the delivery that comes next.
async fn told(socket: &mut crate::streams::Socket) -> DeliveryId {
    let frame: Value = frame(socket).await;
    assert_eq!(frame["type"], "delivery");
    serde_json::from_value(frame["delivery"]["envelope"]["msg_id"].clone()).unwrap()
}
