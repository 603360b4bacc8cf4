//! Messages reach who subscribes, once per subscription or queue group, and requests are answered or refused.

use std::time::Duration;

use bus::{Bus, BusError, Received};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use crate::{Backend, contract, next};

contract!(
    wildcards_match_whole_tokens,
    messages_of_one_publisher_keep_their_order,
    members_of_a_queue_group_share_and_others_see_everything,
    a_request_is_answered_and_carries_its_token,
    a_request_nobody_listens_to_is_refused_at_once,
    a_request_nobody_answers_is_unknown_after_its_time,
    a_dropped_subscription_no_longer_answers,
    a_malformed_subject_is_refused,
    a_payload_too_large_is_refused,
);

const TIMEOUT: Duration = Duration::from_secs(10);

async fn wildcards_match_whole_tokens(backend: Backend) {
    let opened = backend.open().await;
    let mut literal = subscribe(&opened.bus, "agent.a.inbox", None).await;
    let mut star = subscribe(&opened.bus, "agent.*.inbox", None).await;
    let mut rest = subscribe(&opened.bus, "agent.>", None).await;
    for subject in ["agent.a.inbox", "agent.b.inbox", "agent.a.b.inbox", "agents.a.inbox", "agent.a"] {
        publish(&opened.bus, subject).await;
    }
    for subject in ["agent.a.inbox", "agent.b.inbox", "agent.z.inbox"] {
        publish(&opened.bus, subject).await;
    }
    publish(&opened.bus, "agent.a.inbox").await;
    assert_eq!(subjects(&mut literal, 3).await, ["agent.a.inbox"; 3]);
    let expected = ["agent.a.inbox", "agent.b.inbox", "agent.a.inbox", "agent.b.inbox", "agent.z.inbox"];
    assert_eq!(subjects(&mut star, 5).await, expected);
    let expected = ["agent.a.inbox", "agent.b.inbox", "agent.a.b.inbox", "agent.a", "agent.a.inbox"];
    assert_eq!(subjects(&mut rest, 5).await, expected);
}

async fn messages_of_one_publisher_keep_their_order(backend: Backend) {
    let opened = backend.open().await;
    let mut inbox = subscribe(&opened.bus, "agent.a.inbox", None).await;
    for n in 0..2000_u32 {
        opened.bus.pub_sub.publish("agent.a.inbox".to_owned(), Bytes::from(n.to_string())).await.unwrap();
    }
    opened.bus.pub_sub.flush().await.unwrap();
    for n in 0..2000_u32 {
        assert_eq!(next(&mut inbox).await.payload, n.to_string());
    }
    assert_eq!(opened.bus.pub_sub.dropped(), 0);
}

async fn members_of_a_queue_group_share_and_others_see_everything(backend: Backend) {
    let opened = backend.open().await;
    let one = subscribe(&opened.bus, "gw.in.*", Some("gateways")).await;
    let two = subscribe(&opened.bus, "gw.in.*", Some("gateways")).await;
    let mut witness = subscribe(&opened.bus, "gw.in.*", None).await;
    for n in 0..200 {
        publish(&opened.bus, &format!("gw.in.a{n}")).await;
    }
    let seen_by_witness = subjects(&mut witness, 200).await;
    let mut shared = futures_util::stream::select(one.map(|message| (1, message)), two.map(|message| (2, message)));
    let mut seen_by_group = Vec::new();
    let mut by_one = 0;
    for _ in 0..200 {
        let (member, message) = next(&mut shared).await;
        by_one += usize::from(member == 1);
        seen_by_group.push(message.subject);
    }
    let sorted = |mut subjects: Vec<String>| {
        subjects.sort();
        subjects
    };
    assert_eq!(sorted(seen_by_group), sorted(seen_by_witness));
    assert!((20..=180).contains(&by_one), "one member got {by_one} of 200");
}

async fn a_request_is_answered_and_carries_its_token(backend: Backend) {
    let opened = backend.open().await;
    let mut service = subscribe(&opened.bus, "gw.in.*", Some("gateways")).await;
    let bus = opened.bus.clone();
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let asked = next(&mut service).await;
            let answer = format!("{:?} {}", asked.token, std::str::from_utf8(&asked.payload).unwrap());
            bus.pub_sub.publish(asked.reply.unwrap(), Bytes::from(answer)).await.unwrap();
        }
    });
    let ask = |token: Option<&str>| {
        let payload = Bytes::from_static(b"hello");
        opened.bus.pub_sub.request("gw.in.alice".to_owned(), token.map(str::to_owned), payload, TIMEOUT)
    };
    assert_eq!(ask(Some("ey.J.x")).await.unwrap(), "Some(\"ey.J.x\") hello");
    assert_eq!(ask(None).await.unwrap(), "None hello");
    server.await.unwrap();
}

async fn a_request_nobody_listens_to_is_refused_at_once(backend: Backend) {
    let opened = backend.open().await;
    let request = opened.bus.pub_sub.request("view.0".to_owned(), None, Bytes::new(), Duration::from_secs(3600));
    let outcome = tokio::time::timeout(crate::PATIENCE, request).await.expect("it should not wait for its timeout");
    assert!(matches!(&outcome, Err(BusError::NoResponder(subject)) if subject == "view.0"), "{outcome:?}");
}

async fn a_request_nobody_answers_is_unknown_after_its_time(backend: Backend) {
    let opened = backend.open().await;
    let _silent = subscribe(&opened.bus, "view.0", None).await;
    let outcome = opened.bus.pub_sub.request("view.0".to_owned(), None, Bytes::new(), Duration::from_millis(50)).await;
    assert!(matches!(outcome, Err(BusError::Unknown(_))), "{outcome:?}");
}

async fn a_dropped_subscription_no_longer_answers(backend: Backend) {
    let opened = backend.open().await;
    drop(subscribe(&opened.bus, "view.0", None).await);
    // Dropping only announces the end to a server; it is certain once a later subscription is active.
    let _later = subscribe(&opened.bus, "view.1", None).await;
    let outcome = opened.bus.pub_sub.request("view.0".to_owned(), None, Bytes::new(), TIMEOUT).await;
    assert!(matches!(outcome, Err(BusError::NoResponder(_))), "{outcome:?}");
}

async fn a_malformed_subject_is_refused(backend: Backend) {
    let opened = backend.open().await;
    for bad in ["", "a b", "a..b", "a.*", "a.>", "a\r\nPUB b 0\r\n"] {
        let outcome = opened.bus.pub_sub.publish(bad.to_owned(), Bytes::new()).await;
        assert!(matches!(outcome, Err(BusError::Invalid(_))), "{bad:?}: {outcome:?}");
    }
    let outcome = opened.bus.pub_sub.subscribe("a.>.b".to_owned(), None).await.map(|_| ());
    assert!(matches!(outcome, Err(BusError::Invalid(_))), "{outcome:?}");
}

async fn a_payload_too_large_is_refused(backend: Backend) {
    let opened = backend.open().await;
    let payload = Bytes::from(vec![b'x'; 1024 * 1024 + 1]);
    let outcome = opened.bus.pub_sub.publish("a".to_owned(), payload).await;
    assert!(matches!(outcome, Err(BusError::TooLarge { limit: 1_048_576, .. })), "{outcome:?}");
}

async fn subscribe(bus: &Bus, subject: &str, queue: Option<&str>) -> BoxStream<'static, Received> {
    bus.pub_sub.subscribe(subject.to_owned(), queue.map(str::to_owned)).await.unwrap()
}

async fn publish(bus: &Bus, subject: &str) {
    bus.pub_sub.publish(subject.to_owned(), Bytes::new()).await.unwrap();
}

async fn subjects(stream: &mut BoxStream<'static, Received>, count: usize) -> Vec<String> {
    let mut subjects = Vec::new();
    for _ in 0..count {
        subjects.push(next(stream).await.subject);
    }
    subjects
}
