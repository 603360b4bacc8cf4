//! Who is there: leases, streams, hellos, and what gateways report to each other. The clock is the test's.

use std::time::Duration;

use bus::memory::{self, MemoryOptions};
use bytes::Bytes;
use gateway::keys::{KeyAlgorithm, SigningKey};
use gateway::{Credentials, Ingress, Transport};
use schemas::record::Pinned;
use schemas::{Code, Lane, Refusal, subject};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::admission::loop_until;
use crate::rig::{Rig, agent, cfp, code, offer, open_registration};
use crate::streams::opened;

/// The shortest lease there is.
const LEASE: Duration = Duration::from_secs(10);
/// Longer than a lease, and than what a gateway needs to notice.
const AFTER_LEASE: Duration = Duration::from_millis(10_100);

#[tokio::test]
async fn calls_to_topics_and_groups_reach_the_present_and_the_durable_and_addresses_reach_everybody() {
    let rig = rig_without_listener().await;
    for (name, more) in [("bob", json!({})), ("dora", json!({ "durable": true })), ("gone", json!({}))] {
        register(&rig, name, &more).await;
    }
    let crew = json!({ "id": "crew", "members": ["bob", "dora", "gone"] });
    rig.bus.key_value.put(bus::Bucket::Groups, "crew".to_owned(), crew.to_string().into()).await.unwrap();
    pass(LEASE / 2).await;
    hello(&rig, "bob").await;
    pass(AFTER_LEASE - LEASE / 2).await;

    let to = |address: &str| cfp("alice", &format!("m-{}", address.replace("://", "-")), &[address]);
    assert_eq!(reached(&rig, &to("topic://courier")).await, (vec!["bob".into(), "dora*".into()], 1));
    assert_eq!(reached(&rig, &to("group://crew")).await, (vec!["bob".into(), "dora*".into()], 1));
    assert_eq!(reached(&rig, &to("agent://gone")).await, (vec!["gone".into()], 0));
    let both = cfp("alice", "both", &["topic://courier", "group://crew", "topic://courier", "agent://gone"]);
    assert_eq!(reached(&rig, &both).await, (vec!["bob".into(), "dora*".into(), "gone".into()], 0));
    let mut everybody = cfp("alice", "everybody", &["topic://courier"]);
    everybody["envelope"]["scope"]["absent"] = json!(true);
    assert_eq!(reached(&rig, &everybody).await, (vec!["bob".into(), "dora*".into(), "gone".into()], 0));
}

#[tokio::test]
async fn an_absent_agent_counts_once_however_many_topics_and_groups_address_it() {
    let rig = rig_without_listener().await;
    let both = json!({ "topics": ["courier", "mover"] });
    for (name, more) in [("bob", &both), ("carol", &both), ("dan", &json!({ "topics": ["mover"] })), ("gone", &both)] {
        register(&rig, name, more).await;
    }
    register(&rig, "dora", &json!({ "durable": true, "topics": ["courier", "mover"] })).await;
    let crew = json!({ "id": "crew", "members": ["bob", "dan"] });
    rig.bus.key_value.put(bus::Bucket::Groups, "crew".to_owned(), crew.to_string().into()).await.unwrap();
    pass(AFTER_LEASE).await;
    let (courier, mover) = ("topic://courier", "topic://mover");
    for (own, to, left_out) in [
        ("one", vec![courier], 3),
        ("two", vec![courier, mover], 4),
        ("again", vec![courier, mover, courier, "group://crew"], 4),
        ("no-such", vec![courier, mover, "topic://nobody"], 4),
    ] {
        assert_eq!(reached(&rig, &cfp("alice", own, &to)).await, (vec!["dora*".into()], left_out), "{to:?}");
    }
    let but_gone = cfp("alice", "but-gone", &[courier, mover, "agent://gone"]);
    assert_eq!(reached(&rig, &but_gone).await, (vec!["dora*".into(), "gone".into()], 3));
    let refused = admit_as(&rig, "dora", &cfp("dora", "own", &[courier, mover])).await.unwrap_err();
    assert!(refused.detail.contains(": 4 registered but absent"), "{}", refused.detail);
}

#[tokio::test]
async fn the_absent_of_several_large_topics_are_counted_for_each_and_the_refusal_says_at_most() {
    let rig = rig_without_listener().await;
    for number in 0..65 {
        register(&rig, &format!("a{number}"), &json!({ "topics": ["courier", "mover"] })).await;
    }
    // Until all are on the lists of the absent.
    pass(2 * AFTER_LEASE).await;
    let (courier, mover) = ("topic://courier", "topic://mover");
    for (to, expected) in [(vec![courier], ": 65 registered"), (vec![courier, mover], ": at most 130 registered")] {
        let refused = admit(&rig, &cfp("alice", "job", &to)).await.unwrap_err();
        assert!(refused.detail.contains(expected), "{}", refused.detail);
    }
    rig.bus.key_value.delete(bus::Bucket::Agents, "a64".to_owned()).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let refused = admit(&rig, &cfp("alice", "job", &[courier, mover])).await.unwrap_err();
    assert!(refused.detail.contains(": 64 registered"), "{}", refused.detail);
}

#[tokio::test]
async fn when_all_are_absent_the_refusal_says_how_many_and_the_remedy() {
    let rig = rig_without_listener().await;
    for name in ["bob", "carol"] {
        register(&rig, name, &json!({})).await;
    }
    pass(AFTER_LEASE).await;
    let refused = admit(&rig, &cfp("alice", "m1", &["topic://courier"])).await.unwrap_err();
    assert_eq!(refused.code, Code::NoRecipient);
    assert!(refused.detail.contains("2 registered but absent"), "{}", refused.detail);
    assert!(refused.expected.unwrap().contains("`scope.absent`: true"));
    register(&rig, "cat", &json!({ "consent": { "default": "deny" } })).await;
    let refused = admit(&rig, &cfp("alice", "m2", &["topic://courier"])).await.unwrap_err();
    assert_eq!(refused.code, Code::NoConsent);
    assert!(refused.detail.contains("2 more registered but absent"), "{}", refused.detail);
}

#[tokio::test]
async fn who_acknowledges_too_little_is_invited_no_more_until_its_engine_names_it_no_more_or_falls_silent() {
    let rig = rig_without_listener().await;
    for name in ["bob", "carol"] {
        register(&rig, name, &json!({})).await;
    }
    report_backlog(&rig, "engine-1", br#"["bob"]"#).await;
    assert_eq!(reached(&rig, &cfp("alice", "m1", &["topic://courier"])).await, (vec!["carol".into()], 1));
    let refused = admit(&rig, &cfp("alice", "m2", &["agent://bob"])).await.unwrap_err();
    assert_eq!((refused.code, refused.code.as_str()), (Code::Unresponsive, "unresponsive"));
    assert!(refused.detail.contains("1 have too many deliveries"), "{}", refused.detail);
    assert!(admit_as(&rig, "bob", &cfp("bob", "own", &["agent://carol"])).await.is_ok(), "its own calls still work");
    report_backlog(&rig, "engine-1", b"[]").await;
    assert_eq!(reached(&rig, &cfp("alice", "m3", &["agent://bob"])).await, (vec!["bob".into()], 0));
    report_backlog(&rig, "engine-1", br#"["bob"]"#).await;
    report_backlog(&rig, "engine-1", b"nonsense").await;
    assert!(admit(&rig, &cfp("alice", "m4", &["agent://bob"])).await.is_err());
    pass(Duration::from_millis(5_100)).await;
    assert_eq!(reached(&rig, &cfp("alice", "m5", &["agent://bob"])).await, (vec!["bob".into()], 0));
}

#[tokio::test]
async fn who_is_behind_is_called_later_and_never_unresponsive() {
    let rig = rig_without_listener().await;
    for name in ["bob", "carol"] {
        register(&rig, name, &json!({})).await;
    }
    rig.bus.pub_sub.publish(subject::behind("engine-1"), Bytes::from_static(br#"["bob"]"#)).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let both = cfp("alice", "m1", &["agent://bob", "agent://carol"]);
    assert_eq!(reached(&rig, &both).await, (vec!["carol".into()], 1));
    let refused = admit(&rig, &cfp("alice", "m2", &["agent://bob"])).await.unwrap_err();
    assert_eq!((refused.code, refused.retry_after_ms), (Code::Overloaded, Some(1000)));
    report_backlog(&rig, "engine-1", br#"["carol"]"#).await;
    let refused = admit(&rig, &cfp("alice", "m3", &["agent://bob", "agent://carol"])).await.unwrap_err();
    assert_eq!(refused.code, Code::Overloaded, "one of them only needs time");
}

#[tokio::test]
async fn calls_beyond_the_rate_of_their_lane_are_refused_for_now_and_all_else_is_taken() {
    let rig = rig_without_listener().await;
    register(&rig, "bob", &json!({})).await;
    let call = |msg_id: &str| cfp("alice", msg_id, &["agent://bob"]);
    admit(&rig, &call("before")).await.unwrap();
    admit_rate(&rig, br#"{"rate_per_s":0,"gateways":1,"wait_ms":70,"epoch":1,"sent_us":0,"queue":"register"}"#).await;
    let mut refused = Vec::new();
    // Until every lane has nothing left.
    for number in 0..2000 {
        match admit(&rig, &call(&format!("flood-{number}"))).await {
            Ok(()) => refused.clear(),
            Err(refusal) => refused.push(refusal),
        }
        if refused.len() == 64 {
            break;
        }
    }
    assert!(refused.len() == 64 && refused.iter().all(|refused| refused.code == Code::Overloaded));
    let refused = refused.pop().unwrap();
    assert!(refused.retry_after_ms.is_some_and(|ms| ms > 0) && refused.detail.contains("register"), "{refused:?}");
    assert!(rig.metric("exchange_admission_shed_total", &[("reason", "lane")]) >= 64.0);
    let stored = rig.logged().await.len();
    assert!(admit(&rig, &call("m1")).await.is_err());
    assert_eq!(rig.logged().await.len(), stored, "nothing was stored");
    let bargain = json!({ "issues": [{ "name": "price", "min": 1, "max": 9 }] });
    for (member, rules) in [("bargain", bargain), ("team", json!({})), ("panel", json!({}))] {
        let mut opening = call(&format!("m-{member}"));
        opening["payload"][member] = rules;
        assert_eq!(admit(&rig, &opening).await.unwrap_err().code, Code::Overloaded, "{member}");
    }
    admit_as(&rig, "bob", &offer("bob", "o1", "alice~before")).await.unwrap();
    admit(&rig, &call("before")).await.unwrap();

    admit_rate(&rig, b"nonsense").await;
    assert!(admit(&rig, &call("m1")).await.is_err(), "what no engine writes changes nothing");
    admit_rate(&rig, br#"{"rate_per_s":4000000,"gateways":1,"wait_ms":0,"epoch":1,"sent_us":0}"#).await;
    sleep(Duration::from_millis(200)).await;
    let mut other = call("m1");
    other["payload"]["task"] = json!("what was not stored stands in the way of no other body");
    admit(&rig, &other).await.unwrap();
}

#[tokio::test]
async fn an_admitted_message_renews_the_lease_and_a_refused_one_does_not() {
    let rig = rig_without_listener().await;
    for name in ["bob", "carol"] {
        register(&rig, name, &json!({})).await;
    }
    pass(LEASE / 2).await;
    assert!(admit_as(&rig, "bob", &cfp("bob", "m", &["agent://carol"])).await.is_ok());
    assert!(admit_as(&rig, "carol", &cfp("carol", "m", &["agent://nobody"])).await.is_err());
    pass(LEASE / 2 + Duration::from_millis(100)).await;
    assert_eq!(reached(&rig, &cfp("alice", "m", &["topic://courier"])).await, (vec!["bob".into()], 1));
}

#[tokio::test]
async fn two_gateways_learn_of_each_others_agents_and_one_that_has_just_started_finds_nobody_absent() {
    let bus = memory::open(MemoryOptions::default());
    let key = || SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let one = Rig::on(bus.clone(), key(), |config| config.listen = None).await;
    let other = Rig::on(bus.clone(), key(), |config| config.listen = None).await;
    tokio::time::pause();
    for name in ["bob", "carol"] {
        register(&one, name, &json!({})).await;
    }
    // bob speaks to one gateway alone, often enough for its lease; both have the same name, as an operator may leave it.
    for round in 0..6 {
        assert!(admit_as(&one, "bob", &cfp("bob", &format!("m{round}"), &["agent://carol"])).await.is_ok());
        pass(LEASE / 2).await;
    }
    for rig in [&one, &other] {
        assert_eq!(reached(rig, &cfp("alice", "m", &["topic://courier"])).await, (vec!["bob".into()], 1));
    }
    tokio::time::resume();
    let late = Rig::on(bus, key(), |config| config.listen = None).await;
    tokio::time::pause();
    assert_eq!(reached(&late, &cfp("alice", "m", &["topic://courier"])).await, (vec!["bob".into(), "carol".into()], 0));
    pass(AFTER_LEASE).await;
    let refused = admit(&late, &cfp("alice", "later", &["topic://courier"])).await.unwrap_err();
    assert!(refused.detail.contains("2 registered but absent"), "{}", refused.detail);
}

#[tokio::test]
async fn the_list_says_who_is_present_and_can_be_asked_for_either() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    let (_, own) = rig.call("GET", "/v1/agents/bob", Some(&rig.token("bob")), None).await;
    assert_eq!((&own["present"], &own["durable"], &own["lease_ms"]), (&json!(true), &json!(false), &json!(30_000)));
    let (_, public) = rig.call("GET", "/v1/agents/bob", Some(&rig.token("alice")), None).await;
    assert_eq!(
        (&public["present"], &public["durable"], &public["lease_ms"]),
        (&json!(true), &json!(false), &json!(30_000))
    );
    for (query, names) in [("", vec!["bob"]), ("?present=true", vec!["bob"]), ("?present=false", vec![])] {
        let (status, page) = rig.call("GET", &format!("/v1/agents{query}"), Some(&rig.token("alice")), None).await;
        let found: Vec<&str> =
            page["agents"].as_array().unwrap().iter().map(|agent| agent["agent"].as_str().unwrap()).collect();
        assert_eq!((status, found), (200, names), "{query}");
    }
    let (status, body) = rig.call("GET", "/v1/agents?present=perhaps", Some(&rig.token("alice")), None).await;
    assert_eq!((status, code(&body)), (422, "bad_format"));
    assert_eq!(rig.metric("exchange_agents_present", &[]), 1.0);
}

#[tokio::test]
async fn an_agent_with_a_stream_or_an_acknowledgement_is_reported_to_other_gateways() {
    let rig = Rig::start().await;
    for name in ["streaming", "acking", "silent"] {
        rig.register(name).await;
    }
    use futures_util::StreamExt as _;
    let mut reports = rig.bus.pub_sub.subscribe(subject::ALL_PRESENCE.to_owned(), None).await.unwrap();
    reports.next().await.unwrap();
    let _socket = opened(&rig, "streaming").await;
    let ack = json!({ "delivery_ids": ["00000000000000000000000000000001"] });
    assert_eq!(rig.call("POST", "/v1/acks", Some(&rig.token("acking")), Some(&ack)).await.0, 204);
    let heard = |report: bus::Received| serde_json::from_slice::<Vec<String>>(&report.payload).unwrap();
    let mut first = heard(reports.next().await.unwrap());
    first.sort();
    assert_eq!(first, ["acking", "streaming"]);
    assert_eq!(heard(reports.next().await.unwrap()), ["streaming"], "the stream is still open");
}

/// What 9,900 absent agents cost a call: `cargo test -p gateway --test gateway -- --ignored --nocapture cost_of_a_call`.
#[tokio::test]
#[ignore = "a measurement; it prints the ratio"]
async fn cost_of_a_call_with_9900_absent_agents_is_that_of_100_present_ones() {
    for to in [&["topic://courier"][..], &["topic://courier", "topic://mover"]] {
        let few = measured(100, to).await;
        tokio::time::resume();
        let many = measured(10_000, to).await;
        tokio::time::resume();
        let ratio = many.as_secs_f64() / few.as_secs_f64();
        eprintln!(
            "median of a call to 100 present agents of {to:?}: {few:?}; with 9,900 absent beside them: {many:?}; ratio {ratio:.3}"
        );
        assert!(ratio <= 1.1, "{to:?}: {ratio}");
    }
}

/// The median time of a call to these topics that reaches 100 present agents of so many that are registered for all of them.
async fn measured(registered: usize, to: &[&str]) -> Duration {
    const PRESENT: usize = 100;
    const CALLS: usize = 401;
    let rig = rig_without_listener().await;
    for number in 0..registered {
        register(&rig, &format!("a{number:05}"), &json!({ "topics": ["courier", "mover"] })).await;
    }
    pass(LEASE / 2).await;
    for number in 0..PRESENT {
        hello(&rig, &format!("a{number:05}")).await;
    }
    pass(AFTER_LEASE - LEASE / 2).await;
    let mut times = Vec::new();
    for number in 0..CALLS {
        let message = cfp("alice", &format!("m{number}"), to);
        let began = std::time::Instant::now();
        admit(&rig, &message).await.unwrap();
        times.push(began.elapsed());
    }
    assert_eq!(reached(&rig, &cfp("alice", "last", to)).await.0.len(), PRESENT);
    times.sort_unstable();
    times[CALLS / 2]
}

/// A gateway whose clock the test moves: without a listener nothing in it waits for the system.
async fn rig_without_listener() -> Rig {
    let rig = Rig::with(|config| {
        config.listen = None;
        config.limits.burst = 100_000;
    })
    .await;
    tokio::time::pause();
    rig
}

/// Lets time pass in steps, so that whatever is due in between happens in between.
async fn pass(time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        sleep(Duration::from_millis(100).min(end - tokio::time::Instant::now())).await;
    }
}

async fn report_backlog(rig: &Rig, engine: &str, agents: &'static [u8]) {
    rig.bus.pub_sub.publish(subject::backlog(engine), Bytes::from_static(agents)).await.unwrap();
    sleep(Duration::from_millis(1)).await;
}

/// What the engines of all lanes say.
async fn admit_rate(rig: &Rig, word: &'static [u8]) {
    for lane in 0..rig.bus.log.lanes() {
        rig.bus.pub_sub.publish(subject::admission(Lane(lane)), Bytes::from_static(word)).await.unwrap();
    }
    sleep(Duration::from_millis(1)).await;
}

async fn hello(rig: &Rig, name: &str) {
    rig.bus.pub_sub.publish(subject::hello(&agent(name)), Bytes::new()).await.unwrap();
    tokio::task::yield_now().await;
}

/// Registers where the control plane ends: in the store.
async fn register(rig: &Rig, name: &str, more: &Value) {
    let mut registration = open_registration();
    registration["lease_ms"] = json!(10_000);
    registration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rig.bus.key_value.put(bus::Bucket::Agents, name.to_owned(), registration.to_string().into()).await.unwrap();
    // The watch sees it while this waits.
    sleep(Duration::from_millis(1)).await;
}

async fn admit(rig: &Rig, message: &Value) -> Result<(), Refusal> {
    admit_as(rig, "alice", message).await
}

async fn admit_as(rig: &Rig, from: &str, message: &Value) -> Result<(), Refusal> {
    let token = rig.token(from);
    let bytes = Bytes::from(message.to_string());
    let credentials = Credentials::Token(Some(&token));
    let ingress = Ingress { transport: Transport::InProcess, credentials, named_sender: None, peer: None, bytes };
    rig.handle.admission().admit(ingress).await.map(|_| ())
}

/// Whom a call invites, the durable with a star, and how many it leaves out.
async fn reached(rig: &Rig, message: &Value) -> (Vec<String>, u32) {
    admit(rig, message).await.unwrap();
    let name = format!("alice~{}", message["envelope"]["msg_id"].as_str().unwrap());
    let pinned = loop_until(|| async {
        let logged = rig.logged().await;
        let found = logged.into_iter().rev().find(|message| message.negotiation.to_string() == name);
        found.and_then(|message| message.pinned)
    })
    .await;
    let Pinned { invited, left_out, .. } = &*pinned;
    let mark = |is_durable| if is_durable { "*" } else { "" };
    (invited.iter().map(|one| format!("{}{}", one.agent, mark(one.durable))).collect(), *left_out)
}
