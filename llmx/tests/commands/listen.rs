//! `llmx listen`.

use std::time::Duration;

use agents::transport::bus::BusTransport;
use agents::{AgentOptions, CallRequest, Initiator};
use schemas::payload::Cfp;
use schemas::{Address, TopicName};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::rig::{PATIENCE, Ran, Rig, agent, signal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_shows_each_delivery_once_and_leaves_it_unacknowledged_unless_asked() {
    let rig = Rig::start().await;
    rig.register("bob", "courier", "bicycle").await;
    let (first, initiator) = (rig.spawn(&["listen", "bob", "--count", "1", "--for", "30"]), call(&rig, "job-1").await);
    let seen = Ran::of(first.wait_with_output()).await;
    assert_eq!(seen.code, Some(0), "{seen:?}");
    assert_eq!(seen.stdout.lines().count(), 1, "{seen:?}");
    assert!(seen.stdout.contains("cfp            alice~job-1  alice calls: \"a parcel\", policy high@1, reply by "));
    assert!(seen.stderr.contains("listening as bob"), "{seen:?}");

    // Nobody acknowledged it, so it is there for whoever connects next; and for the one after only without --ack.
    let again = rig.run(&["listen", "bob", "--ack", "--json", "--count", "1", "--for", "30"]).await;
    let delivery: Value = serde_json::from_str(again.stdout.trim()).unwrap();
    assert_eq!(
        (&delivery["payload"]["act"], &delivery["envelope"]["negotiation"]),
        (&"cfp".into(), &"alice~job-1".into())
    );
    let gone = rig.run(&["listen", "bob", "--count", "1", "--for", "2"]).await;
    assert_eq!((gone.code, gone.stdout.as_str()), (Some(1), ""), "{gone:?}");
    assert!(gone.stderr.contains("0 of 1 deliveries"), "{gone:?}");
    initiator.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_ends_on_a_signal_and_after_its_time_with_exit_code_0() {
    let rig = Rig::start().await;
    for name in ["-INT", "-TERM"] {
        let mut child = rig.spawn(&["listen", "ann"]);
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = Vec::new();
        while !lines.iter().any(|line: &String| line.starts_with("listening as ann")) {
            lines.push(tokio::time::timeout(PATIENCE, said.next_line()).await.unwrap().unwrap().unwrap());
        }
        assert!(lines.iter().any(|line| line.contains("ann is not registered")), "{lines:?}");
        signal(&child, name);
        let ended = tokio::time::timeout(Duration::from_secs(10), child.wait()).await.unwrap().unwrap();
        assert_eq!(ended.code(), Some(0), "{name}");
    }
    let timed = rig.run(&["listen", "ann", "--for", "0.5"]).await;
    assert_eq!((timed.code, timed.stdout.as_str()), (Some(0), ""));
}

async fn call(rig: &Rig, own_id: &str) -> Initiator {
    let alice = agent("alice");
    let transport = BusTransport::new(&rig.exchange.bus);
    let initiator = Initiator::spawn(transport, rig.exchange.identity(&alice).unwrap(), AgentOptions::default());
    initiator.connected().await.unwrap();
    let cfp = Cfp {
        task: Some("a parcel".to_owned()),
        policy: Some("high".to_owned()),
        reply_within_ms: Some(60_000),
        ..Cfp::default()
    };
    let couriers = Address::Topic(TopicName::try_new("courier").unwrap());
    let (events, _receiver) = tokio::sync::mpsc::channel(64);
    initiator.call(CallRequest::new(own_id, vec![couriers], cfp), events).await.unwrap();
    initiator
}
