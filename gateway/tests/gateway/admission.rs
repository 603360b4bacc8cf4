//! Messages in: who is reached, what is pinned, what is refused and with which code.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bus::memory::{self, MemoryOptions};
use bus::{BusError, Log, LogRecord, LogStream};
use bytes::Bytes;
use gateway::keys::{KeyAlgorithm, SigningKey};
use gateway::{Credentials, Ingress, Transport};
use schemas::{Act, Lane};
use serde_json::{Value, json};

use crate::rig::{Rig, cfp, code, offer, policy};

#[tokio::test]
async fn an_accepted_call_is_in_the_log_with_its_policy_and_its_invited() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    rig.register("carol").await;
    let (status, body) = rig.send("alice", &cfp("alice", "job1", &["agent://carol", "agent://bob"])).await;
    assert_eq!(
        (status, body["negotiation"].as_str(), body["msg_id"].as_str()),
        (202, Some("alice~job1"), Some("job1"))
    );

    let logged = rig.logged().await;
    let [message] = logged.as_slice() else { panic!("{logged:?}") };
    let pinned = message.pinned.as_ref().unwrap();
    assert_eq!((message.act, message.from.as_str()), (Act::Cfp, "alice"));
    assert_eq!(pinned.policy.id, "medium@1");
    assert_eq!(pinned.policy_digest, policy("medium@1").digest().unwrap());
    assert_eq!(invited(&rig).await, [["bob", "carol"]]);
    assert_eq!(message.digest, schemas::Digest::of_bytes(message.body.get().as_bytes()));
}

#[tokio::test]
async fn what_an_agent_registered_for_receipts_is_noted_in_each_of_its_messages_as_it_is_then() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    let mut expected = Vec::new();
    for (number, receipts) in [None, Some("all"), Some("exceptions"), Some("all")].into_iter().enumerate() {
        let mut registration = json!({});
        if let Some(receipts) = receipts {
            registration["receipts"] = receipts.into();
        }
        rig.register_as("alice", &registration).await;
        let call = cfp("alice", &format!("job{number}"), &["agent://bob"]);
        assert_eq!(rig.send("alice", &call).await.0, 202);
        expected.push((format!("alice~job{number}"), receipts == Some("all")));
    }
    let logged = rig.logged().await;
    let mut noted: Vec<_> = logged.iter().map(|one| (one.negotiation.to_string(), one.receipts_all)).collect();
    noted.sort();
    assert_eq!(noted, expected);
}

#[tokio::test]
async fn gates_of_a_call_are_pinned_behind_those_of_its_policy_under_a_digest_of_their_own() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    let mut call = cfp("alice", "job1", &["agent://bob"]);
    call["payload"]["gates"] = json!([{ "attr": "price", "max": 90_000_000, "required": true }]);
    assert_eq!(rig.send("alice", &call).await.0, 202);
    let logged = rig.logged().await;
    let pinned = logged[0].pinned.as_ref().unwrap();
    let mut expected = policy("medium@1");
    expected.gates.push(serde_json::from_value(call["payload"]["gates"][0].clone()).unwrap());
    assert_eq!(*pinned.policy, expected);
    assert_eq!(pinned.policy_digest, expected.digest().unwrap());
    assert_ne!(pinned.policy_digest, policy("medium@1").digest().unwrap());

    let mut bad = cfp("alice", "job2", &["agent://bob"]);
    bad["payload"]["gates"] = json!([{ "attr": "price", "min": 2, "max": 1 }]);
    let (status, body) = rig.send("alice", &bad).await;
    assert_eq!((status, code(&body), &body["pointer"]), (422, "invalid_policy", &json!("/payload/gates")), "{body}");
}

#[tokio::test]
async fn every_state_free_refusal_has_its_code_and_leaves_nothing_in_the_log() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    rig.register_as("deaf", &json!({ "capabilities": ["haul"], "topics": ["quiet"] })).await;
    for (name, message, status, expected, pointer) in refused_calls().into_iter().chain(refused_messages()) {
        let (found, body) = rig.send("alice", &message).await;
        assert_eq!((found, code(&body)), (status, expected), "{name}: {body}");
        assert_eq!(body["pointer"].as_str(), Some(pointer), "{name}: {body}");
    }
    assert!(rig.logged().await.is_empty());
}

/// Name, message of `alice`, status, code, pointer.
type Refused = (&'static str, Value, u16, &'static str, &'static str);

/// Calls that reach nobody, or nobody who consents.
fn refused_calls() -> Vec<Refused> {
    let to = |address| cfp("alice", "job", &[address]);
    let no_recipient = |name, message| (name, message, 422, "no_recipient", "/envelope/to");
    let no_consent = |name, message| (name, message, 403, "no_consent", "/envelope/to");
    vec![
        no_recipient("nobody", cfp("alice", "job", &[])),
        no_recipient("no such agent", to("agent://nobody")),
        no_recipient("only itself", to("agent://alice")),
        no_recipient("no such topic", to("topic://empty")),
        no_recipient("no such group", to("group://empty")),
        no_recipient("no common capability", call(|m| m["envelope"]["capabilities"] = json!(["paint"]))),
        no_recipient("not all that is required", call(|m| m["payload"]["requires"] = json!(["haul", "paint"]))),
        no_consent("not to the agent", to("agent://deaf")),
        no_consent("not by the topic", to("topic://quiet")),
    ]
}

fn refused_messages() -> Vec<Refused> {
    let own_id = |id: &'static str| call(move |m| m["envelope"]["negotiation"] = json!(id));
    let policy = |id: &'static str| call(move |m| m["payload"]["policy"] = json!(id));
    let ttl = |seconds: i64| call(move |m| m["envelope"]["scope"]["ttl"] = json!(seconds));
    let from_topic = call(|m| m["envelope"]["from"] = json!("topic://alice"));
    vec![
        ("from of another", cfp("bob", "job", &["agent://alice"]), 403, "unauthorized", "/envelope/from"),
        ("from a topic", from_topic, 422, "bad_format", "/envelope/from"),
        ("unknown policy", policy("nonsense"), 422, "unknown_policy", "/payload/policy"),
        ("unknown version", policy("medium@9"), 422, "unknown_policy", "/payload/policy"),
        ("no time", ttl(0), 422, "out_of_range", "/envelope/scope/ttl"),
        ("negative time", ttl(-1), 422, "out_of_range", "/envelope/scope/ttl"),
        ("another's id", own_id("bob~job"), 422, "bad_format", "/envelope/negotiation"),
        ("offer without id", without_negotiation(), 422, "missing_field", "/envelope/negotiation"),
        ("offer to half an id", offer("alice", "m", "job"), 422, "bad_format", "/envelope/negotiation"),
    ]
}

/// A call of `alice` that would be accepted, changed.
fn call(change: impl FnOnce(&mut Value)) -> Value {
    let mut message = cfp("alice", "job", &["agent://bob"]);
    change(&mut message);
    message
}

#[tokio::test]
async fn an_append_without_an_answer_is_told_as_unknown_and_may_be_repeated() {
    let mut bus = memory::open(MemoryOptions::default());
    let silent = Arc::new(Silent { log: bus.log.clone(), is_silent: AtomicBool::new(true) });
    bus.log = silent.clone();
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(bus, key, |config| config.limits.append_ms = 500).await;
    let message = offer("bob", "m1", "alice~job");
    let (status, body) = rig.send("bob", &message).await;
    assert_eq!((status, code(&body)), (503, "log_unavailable"), "{body}");
    silent.is_silent.store(false, Ordering::Relaxed);
    let mut other = message.clone();
    other["payload"]["terms"]["price"] = json!(1);
    let (status, body) = rig.send("bob", &other).await;
    assert_eq!((status, code(&body)), (409, "conflict"), "the first may stand: {body}");
    assert_eq!(rig.send("bob", &message).await.0, 202);
}

#[tokio::test]
async fn while_the_log_does_not_answer_one_append_waits_and_the_others_are_refused_at_once() {
    let mut bus = memory::open(MemoryOptions::default());
    let silent = Arc::new(Silent { log: bus.log.clone(), is_silent: AtomicBool::new(true) });
    bus.log = silent.clone();
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(bus, key, |config| config.limits.append_ms = 1000).await;
    let offers: Vec<_> = (0..8).map(|number| offer("bob", &format!("m{number}"), "alice~job")).collect();
    assert_eq!(code(&rig.send("bob", &offers[0]).await.1), "log_unavailable");
    let began = Instant::now();
    let outcomes = futures_util::future::join_all(offers.iter().map(|message| async {
        let (status, body) = rig.send("bob", message).await;
        (status, code(&body).to_owned(), began.elapsed() < Duration::from_millis(800))
    }))
    .await;
    let waited = outcomes
        .iter()
        .filter(|(status, code, is_fast)| (*status, code.as_str(), *is_fast) == (503, "log_unavailable", false));
    assert_eq!(waited.count(), 1, "{outcomes:?}");
    let refused = outcomes
        .iter()
        .filter(|(status, code, is_fast)| (*status, code.as_str(), *is_fast) == (503, "unavailable", true));
    assert_eq!(refused.count(), 7, "{outcomes:?}");
    silent.is_silent.store(false, Ordering::Relaxed);
    for message in &offers {
        assert_eq!(rig.send("bob", message).await.0, 202);
    }
}

#[tokio::test]
async fn what_waits_behind_an_append_without_an_answer_is_told_in_its_own_time() {
    let mut bus = memory::open(MemoryOptions::default());
    bus.log = Arc::new(Silent { log: bus.log.clone(), is_silent: AtomicBool::new(true) });
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(bus, key, |config| config.limits.append_ms = 1000).await;
    let began = Instant::now();
    let (first, second) = (offer("bob", "m1", "alice~job"), offer("bob", "m2", "alice~job"));
    let behind = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        rig.send("bob", &second).await
    };
    let (_, (_, body)) = tokio::join!(rig.send("bob", &first), behind);
    assert_eq!(code(&body), "log_unavailable");
    assert!(began.elapsed() < Duration::from_millis(1800), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_gateway_that_hears_no_owner_or_finds_the_store_full_says_that_it_is_degraded() {
    let options = MemoryOptions { log_bytes_max: 64, ..MemoryOptions::default() };
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(memory::open(options), key, |config| config.limits.engine_silence_ms = 1).await;
    rig.send("bob", &offer("bob", "m1", "alice~job")).await;
    let (status, body) = rig.call("GET", "/readyz", None, None).await;
    assert_eq!(
        (status, body["status"].as_str()),
        (200, Some("degraded")),
        "no other gateway would serve better: {body}"
    );
    let faults = body["faults"].to_string();
    assert!(faults.contains("no owner is heard of lanes 0, 1") && faults.contains("start an engine"), "{faults}");
    assert!(faults.contains("the store is full"), "{faults}");
}

/// A log that stores and does not say so.
pub(crate) struct Silent {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) is_silent: AtomicBool,
}

#[bus::async_trait]
impl Log for Silent {
    fn lanes(&self) -> u8 {
        self.log.lanes()
    }

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        let stored = self.log.append(lane, record).await;
        if self.is_silent.load(Ordering::Relaxed) { Err(BusError::Unknown("silence".to_owned())) } else { stored }
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        self.log.read(lane, from_seq).await
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        self.log.last_seq(lane).await
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        self.log.record(lane, seq).await
    }

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        self.log.trim(lane, below_seq).await
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        self.log.trimmed(lane).await
    }
}

#[tokio::test]
async fn another_body_under_a_known_id_is_a_conflict_and_the_same_body_is_not() {
    let rig = Rig::start().await;
    let first = offer("bob", "m1", "alice~job");
    let mut other = first.clone();
    other["payload"]["terms"]["price"] = json!(1);
    let mut respelled = first.to_string();
    respelled.insert(1, ' ');
    assert_eq!(rig.send("bob", &first).await.0, 202);
    let (status, body) = rig.send("bob", &other).await;
    assert_eq!((status, code(&body)), (409, "conflict"));
    assert_eq!(rig.post(&rig.token("bob"), respelled).await.0, 202, "white space does not make another body");
    assert_eq!(rig.send("carol", &offer("carol", "m1", "alice~job")).await.0, 202, "another sender's id is its own");
    assert_eq!(rig.send("bob", &offer("bob", "m1", "alice~other")).await.0, 202, "as is another negotiation's");
    let digests: Vec<_> = rig.logged().await.iter().map(|message| message.digest).collect();
    assert_eq!(digests.len(), 4);
}

#[tokio::test]
async fn the_same_message_at_two_gateways_at_once_is_accepted_by_both() {
    let bus = memory::open(MemoryOptions::default());
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let one = Rig::on(bus.clone(), key.clone(), |config| config.id = "gateway-1".to_owned()).await;
    let two = Rig::on(bus, key, |config| config.id = "gateway-2".to_owned()).await;
    let message = offer("bob", "m1", "alice~job");
    let (left, right) = tokio::join!(one.send("bob", &message), two.send("bob", &message));
    assert_eq!((left.0, right.0), (202, 202));
    let logged = one.logged().await;
    assert_eq!(logged.len(), 2, "the fold drops the second");
    assert_eq!(logged[0].digest, logged[1].digest);
}

#[tokio::test]
async fn a_log_that_is_full_stores_nothing_and_names_the_remedy() {
    let options = MemoryOptions { log_bytes_max: 64, ..MemoryOptions::default() };
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(memory::open(options), key, |_| {}).await;
    let (status, body) = rig.send("bob", &offer("bob", "m1", "alice~job")).await;
    assert_eq!((status, code(&body)), (503, "unavailable"), "{body}");
    let detail = body["detail"].as_str().unwrap();
    for words in ["full", "nothing was stored", "checkpoint", "max_bytes", "max_file_store", "same msg_id"] {
        assert!(detail.contains(words), "{words} in {detail}");
    }
    assert_eq!(body["retry_after_ms"], 5000);
    assert!(rig.logged().await.is_empty());
    let mut other = offer("bob", "m1", "alice~job");
    other["payload"]["terms"]["price"] = json!(1);
    let (status, body) = rig.send("bob", &other).await;
    assert_eq!((status, code(&body)), (503, "unavailable"), "what was not stored does not make a conflict");
}

#[tokio::test]
async fn the_rate_of_an_agent_is_its_own_and_refused_messages_count() {
    let rig = Rig::with(|config| {
        config.limits.requests_per_s = 1;
        config.limits.burst = 3;
    })
    .await;
    for _ in 0..3 {
        let (status, body) = rig.post(&rig.token("bob"), "not json").await;
        assert_eq!((status, code(&body)), (422, "malformed_json"));
    }
    let (status, body) = rig.post(&rig.token("bob"), "not json").await;
    assert_eq!((status, code(&body)), (429, "rate_limited"));
    assert!(body["retry_after_ms"].as_u64().unwrap() > 0);
    assert_eq!(rig.send("carol", &offer("carol", "m1", "alice~job")).await.0, 202);
}

#[tokio::test]
async fn a_gateway_that_tracks_no_further_agent_fails_closed_for_newcomers_only() {
    let rig = Rig::with(|config| {
        config.limits.rate_keys_max = 1;
        config.limits.burst = 100_000;
        config.limits.requests_per_s = 1;
    })
    .await;
    assert_eq!(rig.send("bob", &offer("bob", "m1", "alice~job")).await.0, 202);
    let (status, body) = rig.send("carol", &offer("carol", "m1", "alice~job")).await;
    assert_eq!((status, code(&body)), (503, "overloaded"));
    assert_eq!(rig.send("bob", &offer("bob", "m2", "alice~job")).await.0, 202);
}

#[tokio::test]
async fn a_caller_in_the_process_goes_through_the_same_admission() {
    let rig = Rig::start().await;
    let admission = rig.handle.admission();
    let token = rig.token("bob");
    let ingress = |credentials| Ingress {
        transport: Transport::InProcess,
        credentials,
        named_sender: None,
        peer: None,
        bytes: offer("bob", "m1", "alice~job").to_string().into_bytes().into(),
    };
    let accepted = admission.admit(ingress(Credentials::Token(Some(&token)))).await.unwrap();
    assert_eq!(accepted.negotiation.as_str(), "alice~job");
    let refusal = admission.admit(ingress(Credentials::Token(None))).await.unwrap_err();
    assert_eq!(refusal.code, schemas::Code::Unauthenticated);
}

#[tokio::test]
async fn metrics_tell_messages_by_way_act_and_outcome_and_rejections_by_stage_and_code() {
    let rig = Rig::start().await;
    rig.send("bob", &offer("bob", "m1", "alice~job")).await;
    rig.send("bob", &offer("carol", "m2", "alice~job")).await;
    let counted = |kind, outcome| {
        rig.metric("exchange_messages_total", &[("transport", "http"), ("kind", kind), ("outcome", outcome)])
    };
    assert_eq!((counted("offer", "accepted"), counted("offer", "rejected")), (1.0, 1.0));
    let rejections = rig.metric("exchange_message_rejections_total", &[("stage", "auth"), ("reason", "unauthorized")]);
    assert_eq!(rejections, 1.0);
}

fn without_negotiation() -> Value {
    let mut message = offer("alice", "m", "alice~job");
    message["envelope"].as_object_mut().unwrap().remove("negotiation");
    message
}

async fn invited(rig: &Rig) -> Vec<Vec<String>> {
    let names = |message: schemas::record::AdmittedMessage| {
        message.pinned.unwrap().invited.iter().map(|invitation| invitation.agent.to_string()).collect()
    };
    rig.logged().await.into_iter().map(names).collect()
}

/// Polls until there is something, for at most as long as tests are patient.
pub(crate) async fn loop_until<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::rig::PATIENCE, looking).await.unwrap()
}
