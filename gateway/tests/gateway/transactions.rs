//! Transactions of Agora: what a client posts becomes a call, and what the engine tells the caller becomes the answer. The
//! engine is played by the tests; `traffic_gen/tests/acceptance/transactions.rs` has a real one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agora::table::document_key;
use agora::{DocumentSource, Origin, ProtocolDocument};
use bus::Bucket;
use bus::memory::{self, MemoryOptions};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use gateway::keys::{KeyAlgorithm, SigningKey};
use gateway::{Gateway, GatewayError, GatewayMetrics};
use schemas::acknowledgement::decode_collected;
use schemas::presence::Hello;
use schemas::record::AdmittedMessage;
use schemas::{Act, DeliveryId, Lane, subject};
use serde_json::{Value, json};

use crate::admission::loop_until;
use crate::rig::{PATIENCE, Rig, agent, claims, code};
use crate::streams::{frame, opened};

const DIGEST: &str = "e78f4aa1ff8422bb2f73efacdbcc25e60a535f130699c06aafac09f0a41e6a7c";

/// A gateway with the policy of transactions, and an agent bob.
async fn rig() -> Arc<Rig> {
    let rig = Rig::with(|config| config.policies.extend(policy_core::presets())).await;
    rig.register("bob").await;
    Arc::new(rig)
}

fn text(name: &str) -> String {
    format!("---\nname: {name}\ndescription: About {name}.\nmultiround: false\n---\nSend JSON.\n")
}

/// Posts as alice, in the background.
fn posted(rig: &Arc<Rig>, path: &str, body: &Value) -> tokio::task::JoinHandle<(u16, Value)> {
    let (rig, path, body) = (rig.clone(), path.to_owned(), body.clone());
    tokio::spawn(async move { rig.call("POST", &path, Some(&rig.token("alice")), Some(&body)).await })
}

/// What is in the log, in the order in which a test looks.
#[derive(Default)]
struct Seen(BTreeSet<String>);

impl Seen {
    /// A message that was not there before.
    async fn look(&mut self, rig: &Rig) -> Option<(AdmittedMessage, Value)> {
        let found = rig.logged().await.into_iter().find(|message| !self.0.contains(message.body.get()))?;
        self.0.insert(found.body.get().to_owned());
        let body = serde_json::from_str(found.body.get()).unwrap();
        Some((found, body))
    }

    /// The next one, once it is there; its sender is told nothing.
    async fn next_untold(&mut self, rig: &Rig) -> (AdmittedMessage, Value) {
        let looking = async {
            loop {
                if let Some(found) = self.look(rig).await {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.unwrap()
    }

    /// The next one, once it is there; of a call the sender is told that it was taken.
    async fn next(&mut self, rig: &Rig) -> (AdmittedMessage, Value) {
        let found = self.next_untold(rig).await;
        if found.0.act == Act::Cfp {
            take(rig, &found.0, "ok").await;
        }
        found
    }
}

/// Tells alice something about one of her negotiations.
async fn tell(rig: &Rig, negotiation: &str, number: u8, payload: &Value) -> DeliveryId {
    let id = DeliveryId::new(Lane(0), [number; 16]);
    let delivery = json!([{
        "envelope": {
            "msg_id": id, "ts": "2026-11-20T20:00:00.000Z", "from": "exchange://llmx", "to": ["agent://alice"],
            "negotiation": negotiation,
        },
        "payload": payload,
    }]);
    rig.bus.pub_sub.publish("agent.alice.inbox".to_owned(), Bytes::from(delivery.to_string())).await.unwrap();
    id
}

/// Gives alice the receipt of a call.
async fn take(rig: &Rig, call: &AdmittedMessage, disposition: &str) -> DeliveryId {
    let body: Value = serde_json::from_str(call.body.get()).unwrap();
    let receipt =
        json!({ "act": "ack", "ack_of": body["envelope"]["msg_id"], "disposition": disposition, "invited": 1 });
    tell(rig, call.negotiation.as_str(), 255, &receipt).await
}

fn result(text: &str) -> Value {
    json!({ "act": "inform", "kind": "result", "contractor": "bob", "award_no": 1, "lot": 1, "result": text })
}

fn closed(outcome: &str) -> Value {
    json!({ "act": "closed", "outcome": outcome, "digest": DIGEST })
}

#[tokio::test]
async fn a_transaction_is_a_call_to_one_agent_and_its_report_the_answer() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let mut acks = rig.bus.pub_sub.subscribe("acks.*".to_owned(), None).await.unwrap();
    let asked = json!({ "protocolHash": null, "protocolSources": [], "body": "How warm is Oxford?" });
    let answer = posted(&rig, "/agora/bob", &asked);
    let (call, body) = seen.next(&rig).await;
    assert_eq!((call.act, call.from.as_str()), (Act::Cfp, "alice"));
    assert_eq!(body["envelope"]["to"], json!(["agent://bob"]));
    let payload = json!({
        "act": "cfp", "task": "How warm is Oxford?", "policy": "agora", "reply_within_ms": 10_000, "constraints": {},
    });
    assert_eq!(body["payload"], payload);
    let pinned = call.pinned.unwrap();
    assert_eq!((pinned.policy.id.as_str(), pinned.invited.len()), ("agora@1", 1));

    let negotiation = call.negotiation.as_str();
    let told =
        [tell(&rig, negotiation, 1, &result("25")).await, tell(&rig, negotiation, 2, &closed("completed")).await];
    assert_eq!(answer.await.unwrap(), (200, json!({ "status": "success", "body": "25" })));
    let mut acknowledged = Vec::new();
    while acknowledged.len() < 3 {
        let collected = tokio::time::timeout(PATIENCE, acks.next()).await.unwrap().unwrap();
        acknowledged.extend(decode_collected(&collected.payload).unwrap().into_iter().flat_map(|(_, ids)| ids));
    }
    assert_eq!(acknowledged, [&[DeliveryId::new(Lane(0), [255; 16])], &told[..]].concat(), "the receipt first");
    assert_eq!(rig.metric("exchange_agora_transactions_total", &[("status", "success")]), 1.0);
}

#[tokio::test]
async fn what_the_caller_is_told_becomes_the_status_of_the_answer() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let failure = |code: &str| {
        json!({
            "act": "failure", "contractor": "bob", "award_no": 1, "phase": "perform", "code": code, "retryable": false,
        })
    };
    let done = json!({ "act": "inform", "kind": "done", "contractor": "bob", "award_no": 1, "lot": 1 });
    let rows = [
        (vec![closed("no_offers")], "rejected", "", Some("Request rejected")),
        (vec![closed("no_candidate")], "rejected", "", Some("Request rejected")),
        (vec![failure("declined_by_refuse"), closed("no_candidate")], "rejected", "", Some("Request rejected")),
        (
            vec![failure("confirm_timeout"), closed("no_candidate")],
            "error",
            "",
            Some("the agent did not answer in time"),
        ),
        (
            vec![failure("perform_timeout"), closed("no_candidate")],
            "error",
            "",
            Some("the agent did not answer in time"),
        ),
        (vec![failure("no_model"), closed("no_candidate")], "error", "", Some("the agent failed: no_model")),
        (vec![closed("timeout")], "error", "", Some("the agent did not answer in time")),
        (vec![closed("cancelled")], "error", "", Some("the call ended without an answer: cancelled")),
        (vec![done], "success", "", None),
        (vec![closed("completed"), result("25")], "success", "25", None),
    ];
    for (number, (told, status, body, words)) in rows.into_iter().enumerate() {
        let asked = json!({ "body": "x", "multiround": true });
        let answer = posted(&rig, "/agora/bob/", &asked);
        let (call, _) = seen.next(&rig).await;
        for (index, payload) in told.iter().enumerate() {
            tell(&rig, call.negotiation.as_str(), u8::try_from(10 * number + index).unwrap(), payload).await;
        }
        let (code, answer) = answer.await.unwrap();
        let found = (code, answer["status"].as_str(), answer["body"].as_str(), answer["message"].as_str());
        assert_eq!(found, (200, Some(status), Some(body), words), "{number}: {answer}");
        assert!(answer["conversationId"].is_string() && answer["conversationExpires"].is_u64(), "{answer}");
    }
}

#[tokio::test]
async fn further_messages_of_a_conversation_are_further_calls() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let opening = json!({ "protocolHash": "negotiation", "protocolSources": null, "body": "Hi", "multiround": true });
    let answer = posted(&rig, "/agora/bob/", &opening);
    let (call, body) = seen.next(&rig).await;
    let conversation = body["payload"]["constraints"]["agora_conversation"].as_str().unwrap().to_owned();
    let constraints =
        |number: u32| json!({ "agora_conversation": conversation, "agora_message": number, "agora_negotiation": 1 });
    assert_eq!(body["payload"]["constraints"], constraints(1));
    assert_eq!(call.negotiation.as_str(), format!("alice~{conversation}-1"));
    tell(&rig, call.negotiation.as_str(), 1, &result("Hello")).await;
    let (_, first) = answer.await.unwrap();
    assert_eq!((&first["body"], &first["conversationId"]), (&json!("Hello"), &json!(conversation)));

    for (number, path) in [(2, "/agora/bob//conversations/"), (3, "/agora/bob/conversations/")] {
        let answer = posted(&rig, &format!("{path}{conversation}"), &json!({ "body": "More", "multiround": 7 }));
        let (call, body) = seen.next(&rig).await;
        assert_eq!(call.negotiation.as_str(), format!("alice~{conversation}-{number}"));
        assert_eq!(
            (&body["payload"]["task"], &body["payload"]["constraints"]),
            (&json!("More"), &constraints(number as u32))
        );
        tell(&rig, call.negotiation.as_str(), u8::try_from(number).unwrap(), &result("So")).await;
        assert_eq!(answer.await.unwrap(), (200, json!({ "status": "success", "body": "So" })));
    }

    let path = format!("/agora/bob//conversations/{conversation}");
    let success = (200, json!({ "status": "success" }));
    assert_eq!(rig.call("DELETE", &path, Some(&rig.token("eve")), None).await, success, "of nobody else");
    let elsewhere = format!("/agora/carol/conversations/{conversation}");
    assert_eq!(rig.call("DELETE", &elsewhere, Some(&rig.token("alice")), None).await, success, "with nobody else");
    assert_eq!(rig.metric("exchange_agora_conversations", &[]), 1.0);
    for _ in 0..2 {
        assert_eq!(rig.call("DELETE", &path, Some(&rig.token("alice")), None).await, success);
    }
    assert_eq!(rig.metric("exchange_agora_conversations", &[]), 0.0);
    let gone = rig.call("POST", &path, Some(&rig.token("alice")), Some(&json!({ "body": "Still there?" }))).await;
    let expected = json!({ "status": "error", "body": "", "message": "Conversation not found.", "code": "not_found" });
    assert_eq!(gone, (200, expected));
}

#[tokio::test]
async fn an_answer_is_only_what_answers_the_gateways_own_call() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let answer = posted(&rig, "/agora/bob", &json!({ "body": "Hi", "multiround": true }));
    let (call, _) = seen.next(&rig).await;
    let of_another = json!({
        "act": "inform", "kind": "result", "contractor": "mallory", "award_no": 1, "lot": 1, "result": "stolen",
    });
    tell(&rig, call.negotiation.as_str(), 1, &of_another).await;
    tell(&rig, call.negotiation.as_str(), 2, &result("Hello")).await;
    let (_, first) = answer.await.unwrap();
    assert_eq!(first["body"], "Hello", "the answer of the agent that was called");

    let path = format!("/agora/bob/conversations/{}", first["conversationId"].as_str().unwrap());
    for (number, disposition) in [(2_u8, "duplicate"), (3, "conflict"), (4, "out_of_turn"), (5, "closed")] {
        // The caller has begun the negotiation of this message before: bob answers that, before the receipt or behind it.
        let answer = posted(&rig, &path, &json!({ "body": "More" }));
        let (call, _) = seen.next_untold(&rig).await;
        tell(&rig, call.negotiation.as_str(), 2 * number, &result("stolen")).await;
        take(&rig, &call, disposition).await;
        tell(&rig, call.negotiation.as_str(), 2 * number + 1, &result("stolen")).await;
        let (status, answer) = answer.await.unwrap();
        assert_eq!((status, &answer["status"], &answer["body"]), (200, &json!("error"), &json!("")), "{answer}");
        let words = answer["message"].as_str().unwrap();
        assert!(words.contains(disposition) && words.contains("open another conversation"), "{answer}");
    }

    let answer = posted(&rig, &path, &json!({ "body": "More" }));
    let (call, _) = seen.next_untold(&rig).await;
    tell(&rig, call.negotiation.as_str(), 30, &closed("completed")).await;
    tell(&rig, call.negotiation.as_str(), 31, &result("So")).await;
    take(&rig, &call, "ok").await;
    assert_eq!(answer.await.unwrap().1["body"], "So", "deliveries may come in another order than they were sent");
}

#[tokio::test]
async fn a_request_that_cannot_be_followed_is_an_answer_with_a_code_and_a_pointer() {
    let rig = rig().await;
    let known = ProtocolDocument::try_new(&text("weather"), Origin::Own).unwrap();
    let hash = known.hash().to_string();
    let other = DocumentSource::of_text(&text("other"));
    let unframed = DocumentSource::of_text("no front matter");
    let rows = [
        ("/agora/bob", json!([]), "wrong_type", None),
        ("/agora/bob", json!({}), "missing_field", Some("/body")),
        ("/agora/bob", json!({ "body": 7 }), "wrong_type", Some("/body")),
        ("/agora/bob", json!({ "body": "x".repeat(4097) }), "out_of_range", Some("/body")),
        ("/agora/bob", json!({ "body": "x", "multiround": "yes" }), "wrong_type", Some("/multiround")),
        ("/agora/bob", json!({ "body": "x", "protocolHash": "nonsense" }), "bad_format", Some("/protocolHash")),
        ("/agora/bob", json!({ "body": "x", "protocolSources": ["data:x"] }), "not_allowed", Some("/protocolSources")),
        (
            "/agora/bob",
            json!({ "body": "x", "protocolHash": hash, "protocolSources": null }),
            "wrong_type",
            Some("/protocolSources"),
        ),
        ("/agora/bob", json!({ "body": "x", "protocolHash": hash }), "not_found", Some("/protocolSources")),
        (
            "/agora/bob",
            json!({ "body": "x", "protocolHash": hash, "protocolSources": [other] }),
            "not_allowed",
            Some("/protocolSources"),
        ),
        (
            "/agora/bob",
            json!({ "body": "x", "protocolHash": hash, "protocolSources": [unframed] }),
            "missing_field",
            Some("/protocolSources"),
        ),
        (
            "/agora/bob",
            json!({ "body": "x", "protocolHash": hash, "protocolSources": vec!["data:x"; 9] }),
            "out_of_range",
            Some("/protocolSources"),
        ),
        ("/agora/nobody", json!({ "body": "x" }), "no_recipient", None),
        ("/agora/alice", json!({ "body": "x" }), "no_recipient", None),
        ("/agora/a.b", json!({ "body": "x" }), "not_found", None),
        ("/agora/bob/conversations/none", json!({ "body": "x" }), "not_found", None),
        ("/agora/bob/conversations/none", json!({}), "missing_field", Some("/body")),
    ];
    for (path, body, refused, pointer) in rows {
        let (status, answer) = rig.call("POST", path, Some(&rig.token("alice")), Some(&body)).await;
        let found = (status, answer["status"].as_str(), answer["body"].as_str(), answer["code"].as_str());
        assert_eq!(found, (200, Some("error"), Some(""), Some(refused)), "{path} {body}: {answer}");
        assert_eq!(answer["pointer"].as_str(), pointer, "{path} {body}: {answer}");
        assert!(answer["message"].as_str().is_some_and(|words| !words.is_empty()));
        assert!(answer.get("conversationId").is_none());
        if let (Value::Object(mut body), false) = (body, path.contains("conversations")) {
            body.entry("multiround").or_insert(true.into());
            let body = Value::Object(body);
            let (_, answer) = rig.call("POST", path, Some(&rig.token("alice")), Some(&body)).await;
            let is_named = answer["conversationId"].is_string();
            assert_eq!(is_named, body["multiround"] == true, "its client relies on an id: {answer}");
        }
    }
    assert!(rig.logged().await.is_empty());
}

#[tokio::test]
async fn access_and_form_are_refused_as_everywhere() {
    let rig = rig().await;
    let alice = rig.token("alice");
    let post = |token: Option<&str>, media: &str, body: String| {
        let mut request = rig.request("POST", "/agora/bob").header("content-type", media).body(body);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        crate::rig::answer(request)
    };
    let json = "application/json";
    for (token, media, body, status, refused) in [
        (None, json, "{}".to_owned(), 401, "unauthenticated"),
        (Some("nonsense"), json, "{}".to_owned(), 401, "unauthenticated"),
        (Some(alice.as_str()), "text/plain", "{}".to_owned(), 415, "unsupported_media_type"),
        (Some(alice.as_str()), json, "{".to_owned(), 422, "malformed_json"),
        (Some(alice.as_str()), json, r#"{"body":"a","body":"b"}"#.to_owned(), 422, "duplicate_key"),
        (Some(alice.as_str()), json, format!(r#"{{"body":"{}"}}"#, "x".repeat(163_840)), 413, "too_large"),
    ] {
        let (found, answer) = post(token, media, body).await;
        assert_eq!((found, code(&answer)), (status, refused), "{answer}");
    }
    for method in ["POST", "DELETE"] {
        let (found, answer) = rig.call(method, "/agora/bob/conversations/x", None, Some(&json!({ "body": "x" }))).await;
        assert_eq!((found, code(&answer)), (401, "unauthenticated"), "{method}");
    }
}

#[tokio::test]
async fn a_document_that_comes_with_a_request_is_known_to_the_exchange_from_then_on() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let document = ProtocolDocument::try_new(&text("weather"), Origin::Own).unwrap();
    let source = DocumentSource::of_text(document.text());
    let asked = |sources: Value| json!({ "protocolHash": document.hash(), "protocolSources": sources, "body": "x" });
    for (number, sources) in [json!([source]), json!([])].into_iter().enumerate() {
        // Nothing is stored before the gateway has read the documents: 503 until then.
        let mut answer = posted(&rig, "/agora/bob", &asked(sources.clone()));
        let (call, body) = loop {
            if let Some(found) = seen.look(&rig).await {
                take(&rig, &found.0, "ok").await;
                break found;
            }
            if answer.is_finished() {
                assert_eq!(answer.await.unwrap().0, 503);
                answer = posted(&rig, "/agora/bob", &asked(sources.clone()));
            }
            tokio::task::yield_now().await;
        };
        let documents = json!({ "hashes": [document.hash()], "require": true });
        assert_eq!(body["payload"]["documents"], documents);
        tell(&rig, call.negotiation.as_str(), u8::try_from(number).unwrap(), &closed("no_offers")).await;
        let (_, answer) = answer.await.unwrap();
        let rejected = json!({ "status": "rejected", "body": "", "message": "Protocol rejected" });
        assert_eq!(answer, rejected, "the paper's word, and the package's");
    }
    let (status, held) =
        rig.call("GET", &format!("/v1/documents/{}", document.hash().key()), Some(&rig.token("bob")), None).await;
    assert_eq!((status, held["document"].as_str(), &held["agents"]), (200, Some(document.text()), &json!([])));
}

#[tokio::test]
async fn under_a_document_words_and_another_text_than_its_own_are_an_error() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let document = ProtocolDocument::try_new(&text("weather"), Origin::Own).unwrap();
    let token = rig.token("bob");
    loop_until(|| async {
        let put = rig.call("PUT", "/v1/documents", Some(&token), Some(&json!({ "document": document.text() }))).await;
        (put.0 != 503).then_some(())
    })
    .await;
    let asked = |sources: Value| json!({ "protocolHash": document.hash(), "protocolSources": sources, "body": "x" });
    let in_words = json!({ "kind": "language" });
    let by_document = json!({ "kind": "native", "hash": document.hash() });
    for (number, (routine, status)) in [(in_words, "error"), (by_document, "success")].into_iter().enumerate() {
        let answer = posted(&rig, "/agora/bob", &asked(json!([DocumentSource::of_text(document.text())])));
        let (call, _) = seen.next(&rig).await;
        let mut told = result("Some 25 degrees");
        told["routine"] = routine;
        tell(&rig, call.negotiation.as_str(), u8::try_from(number).unwrap(), &told).await;
        let (_, answer) = answer.await.unwrap();
        assert_eq!(answer["status"], status, "{answer}");
    }
    let other = DocumentSource::of_text(&text("songs"));
    let (_, answer) = rig.call("POST", "/agora/bob", Some(&rig.token("alice")), Some(&asked(json!([other])))).await;
    let found = (&answer["status"], &answer["code"], &answer["pointer"]);
    assert_eq!(found, (&json!("error"), &json!("not_allowed"), &json!("/protocolSources")), "{answer}");
}

#[tokio::test]
async fn any_number_of_documents_comes_with_the_requests_of_one_caller() {
    let rig = rig().await;
    for number in 0..40 {
        let document = ProtocolDocument::try_new(&text(&format!("n{number}")), Origin::Own).unwrap();
        let source = DocumentSource::of_text(document.text());
        let body = json!({ "protocolHash": document.hash(), "protocolSources": [source], "body": "x" });
        let path = format!("/v1/documents/{}", document.hash().key());
        // Nothing is stored before the gateway has read the documents: 503 until then.
        loop_until(|| async {
            let (status, answer) = rig.call("POST", "/agora/nobody", Some(&rig.token("alice")), Some(&body)).await;
            assert!(status == 200 || answer["code"] == "unavailable", "{number}: {answer}");
            (status == 200).then_some(())
        })
        .await;
        assert_eq!(rig.call("GET", &path, Some(&rig.token("alice")), None).await.1["supporters"], 0);
    }
    let (_, supported) = rig.call("GET", "/agora/alice/.wellknown", Some(&rig.token("alice")), None).await;
    assert_eq!(code(&supported), "not_found", "alice supports none");
}

#[tokio::test]
async fn a_conversation_goes_on_when_its_document_has_given_way() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let document = ProtocolDocument::try_new(&text("weather"), Origin::Own).unwrap();
    let path = format!("/v1/documents/{}", document.hash().key());
    let token = rig.token("bob");
    loop_until(|| async {
        let put = rig.call("PUT", "/v1/documents", Some(&token), Some(&json!({ "document": document.text() }))).await;
        (put.0 != 503).then_some(())
    })
    .await;
    let opening = json!({ "protocolHash": document.hash(), "body": "x", "multiround": true });
    let answer = posted(&rig, "/agora/bob", &opening);
    let (call, _) = seen.next(&rig).await;
    tell(&rig, call.negotiation.as_str(), 1, &result("25")).await;
    let conversation = answer.await.unwrap().1["conversationId"].as_str().unwrap().to_owned();

    rig.bus.key_value.delete(Bucket::Documents, document_key(document.hash())).await.unwrap();
    loop_until(|| async { (rig.call("GET", &path, Some(&token), None).await.0 == 404).then_some(()) }).await;
    let answer = posted(&rig, &format!("/agora/bob/conversations/{conversation}"), &json!({ "body": "y" }));
    let (call, body) = seen.next(&rig).await;
    assert_eq!(body["payload"]["documents"]["hashes"], json!([document.hash()]));
    tell(&rig, call.negotiation.as_str(), 2, &result("26")).await;
    assert_eq!(answer.await.unwrap().1["body"], "26");
}

#[tokio::test]
async fn the_callers_own_streams_hear_everything_and_its_other_deliveries_are_left_to_it() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let mut acks = rig.bus.pub_sub.subscribe("acks.*".to_owned(), None).await.unwrap();
    let mut socket = opened(&rig, "alice").await;
    let answer = posted(&rig, "/agora/bob", &json!({ "body": "x" }));
    let (call, _) = seen.next(&rig).await;
    let other = tell(&rig, "alice~other", 1, &closed("no_offers")).await;
    let own = tell(&rig, call.negotiation.as_str(), 2, &result("25")).await;
    let receipt = DeliveryId::new(Lane(0), [255; 16]);
    for id in [receipt, other, own] {
        assert_eq!(frame(&mut socket).await["delivery"]["envelope"]["msg_id"], json!(id));
    }
    assert_eq!(answer.await.unwrap().1["body"], "25");
    let mut acknowledged = Vec::new();
    while acknowledged.len() < 2 {
        let collected = tokio::time::timeout(PATIENCE, acks.next()).await.unwrap().unwrap();
        acknowledged.extend(decode_collected(&collected.payload).unwrap().into_iter().flat_map(|(_, ids)| ids));
    }
    assert_eq!(acknowledged, [receipt, own]);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_a_cancelled_call_and_no_stream_behind() {
    let rig = rig().await;
    let mut seen = Seen::default();
    let mut hellos = rig.bus.pub_sub.subscribe(subject::hello(&agent("alice")), None).await.unwrap();
    let mut said = async || {
        let hello = tokio::time::timeout(PATIENCE, hellos.next()).await.unwrap().unwrap();
        Hello::parse(&hello.payload)
    };
    let answer = posted(&rig, "/agora/bob", &json!({ "body": "x" }));
    assert!(matches!(said().await, Hello::Connected(_)));
    let (call, _) = seen.next(&rig).await;
    answer.abort();
    let (cancel, body) = seen.next(&rig).await;
    assert_eq!((cancel.act, &cancel.negotiation, cancel.from.as_str()), (Act::Cancel, &call.negotiation, "alice"));
    assert_eq!(body["payload"]["act"], "cancel");
    tell(&rig, call.negotiation.as_str(), 1, &closed("cancelled")).await;
    while !matches!(said().await, Hello::Closed(_)) {}
}

#[tokio::test]
async fn transactions_at_once_share_one_stream_of_their_caller() {
    let rig = rig().await;
    let answers: Vec<_> = (0..40).map(|_| posted(&rig, "/agora/bob", &json!({ "body": "x" }))).collect();
    let calls = loop_until(|| async {
        let calls = rig.logged().await;
        (calls.len() == 40).then_some(calls)
    })
    .await;
    assert_eq!(rig.handle.streams().agents_len(), 1);
    for (number, call) in calls.iter().enumerate() {
        let own = call.negotiation.as_str();
        take(&rig, call, "ok").await;
        tell(&rig, own, u8::try_from(number).unwrap(), &result(own)).await;
    }
    let mut bodies = Vec::new();
    for answer in answers {
        bodies.push(answer.await.unwrap().1["body"].as_str().unwrap().to_owned());
    }
    bodies.sort();
    let mut own: Vec<_> = calls.iter().map(|call| call.negotiation.as_str().to_owned()).collect();
    own.sort();
    assert_eq!(bodies, own, "each its own");
}

#[tokio::test]
async fn a_gateway_that_stops_answers_whoever_waits() {
    let (bus, key) = (memory::open(MemoryOptions::default()), SigningKey::generate(KeyAlgorithm::EdDsa).unwrap());
    let rig = Rig::on(bus, key, |config| config.policies.extend(policy_core::presets())).await;
    rig.register("bob").await;
    let mut seen = Seen::default();
    let request = rig.request("POST", "/agora/bob").bearer_auth(rig.token("alice")).json(&json!({ "body": "x" }));
    let answer = tokio::spawn(crate::rig::answer(request));
    seen.next(&rig).await;
    tokio::time::timeout(Duration::from_secs(9), rig.handle.shutdown()).await.unwrap();
    let (status, answer) = answer.await.unwrap();
    assert_eq!((status, code(&answer)), (503, "unavailable"));
}

#[tokio::test]
async fn a_gateway_that_stops_hears_the_ends_of_its_calls_and_acknowledges_them() {
    let (bus, key) = (memory::open(MemoryOptions::default()), SigningKey::generate(KeyAlgorithm::EdDsa).unwrap());
    let with_presets = |id: &'static str| {
        let policies = policy_core::presets();
        Rig::on(bus.clone(), key.clone(), move |config| {
            config.id = id.to_owned();
            config.policies.extend(policies);
        })
    };
    let (rig, other) = (with_presets("stops").await, with_presets("stays").await);
    rig.register("bob").await;
    let mut seen = Seen::default();
    let mut acks = rig.bus.pub_sub.subscribe("acks.stops".to_owned(), None).await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..2 {
        let request = rig.request("POST", "/agora/bob").bearer_auth(rig.token("alice")).json(&json!({ "body": "x" }));
        tokio::spawn(crate::rig::answer(request));
        calls.push(seen.next(&other).await.0.negotiation);
    }
    let began = tokio::time::Instant::now();
    let stopping = tokio::spawn(rig.handle.shutdown());
    let mut told = Vec::new();
    for number in 1..=2_u8 {
        let (cancel, _) = seen.next_untold(&other).await;
        assert_eq!(cancel.act, Act::Cancel);
        assert!(calls.contains(&cancel.negotiation));
        // Engines send it to the gateway that has the stream, or to the inbox.
        let id = tell(&other, cancel.negotiation.as_str(), number, &closed("cancelled")).await;
        told.push(id);
    }
    stopping.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "it does not wait for more");
    let mut acknowledged = Vec::new();
    while let Some(collected) = acks.next().now_or_never().flatten() {
        acknowledged.extend(decode_collected(&collected.payload).unwrap().into_iter().flat_map(|(_, ids)| ids));
    }
    assert!(told.iter().all(|id| acknowledged.contains(id)), "{acknowledged:?}");
}

#[tokio::test]
async fn a_body_that_is_too_long_for_a_call_is_kept_for_the_agent_until_it_has_answered() {
    let rig = rig().await;
    let takes_all = json!({ "capabilities": ["long-body"], "topics": [], "consent": { "default": "allow" } });
    rig.register_as("carol", &takes_all).await;
    let mut seen = Seen::default();
    let body = "\u{e9}".repeat(32 * 1024);
    let answer = posted(&rig, "/agora/carol", &json!({ "body": body }));
    let (call, message) = seen.next(&rig).await;
    let digest = schemas::Digest::of_bytes(body.as_bytes()).to_string();
    assert_eq!(message["payload"].get("task"), None);
    assert_eq!(message["payload"]["constraints"], json!({ "agora_body": digest }));
    let path = format!("/v1/negotiations/{}/body", call.negotiation);
    let read = async |name: &str| rig.call("GET", &path, Some(&rig.token(name)), None).await;
    assert_eq!(read("carol").await, (200, json!({ "sha256": digest, "body": body })));
    for other in ["alice", "bob"] {
        let (status, answer) = read(other).await;
        assert_eq!((status, code(&answer)), (404, "not_found"), "{other}");
    }
    let done =
        json!({ "act": "inform", "kind": "result", "contractor": "carol", "award_no": 1, "lot": 1, "result": "25" });
    tell(&rig, call.negotiation.as_str(), 1, &done).await;
    assert_eq!(answer.await.unwrap(), (200, json!({ "status": "success", "body": "25" })));
    loop_until(|| async { (read("carol").await.0 == 404).then_some(()) }).await;

    let longer = format!("{body}x");
    for (agent, body, expected) in [("carol", &longer, "too_large"), ("bob", &body, "out_of_range")] {
        let path = format!("/agora/{agent}");
        let (status, answer) = rig.call("POST", &path, Some(&rig.token("alice")), Some(&json!({ "body": body }))).await;
        assert_eq!(
            (status, &answer["status"], &answer["code"], &answer["pointer"]),
            (200, &json!("error"), &json!(expected), &json!("/body")),
            "{agent}"
        );
    }
    let (_, answer) =
        rig.call("POST", "/agora/nobody", Some(&rig.token("alice")), Some(&json!({ "body": body }))).await;
    assert_eq!(answer["code"], "no_recipient");
}

fn expired(key: &SigningKey) -> String {
    let claims = json!({ "sub": "visitor", "iss": crate::rig::ISSUER, "aud": "llmx", "exp": 1_000_000_000 });
    key.sign(&claims).unwrap()
}

#[tokio::test]
async fn a_gateway_does_not_start_with_a_token_for_transactions_that_nobody_could_use() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("visitor.token");
    let [key, other] = [(); 2].map(|()| SigningKey::generate(KeyAlgorithm::EdDsa).unwrap());
    let start = async |admins: &[&str]| {
        let mut config = crate::rig::config(&key);
        config.agora_token_file = Some(file.clone());
        config.admins = admins.iter().map(|name| agent(name)).collect();
        let metrics = Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
        Gateway::start(memory::open(MemoryOptions::default()), config, metrics).await.map(drop)
    };
    let rows: [(Option<String>, &[&str], &str); 8] = [
        (None, &[], "cannot be read: "),
        (Some(" \n".to_owned()), &[], "the file is empty"),
        (Some("nonsense".to_owned()), &[], "the token does not have three parts"),
        (Some("x".repeat(5000)), &[], "longer than any this gateway reads"),
        (Some(expired(&key)), &[], "the token has expired"),
        (Some(other.sign(&claims("visitor")).unwrap()), &[], ""),
        (Some(key.sign(&claims("visitor").admin()).unwrap()), &[], "visitor is an administrator"),
        (Some(key.sign(&claims("visitor")).unwrap()), &["visitor"], "visitor is an administrator"),
    ];
    for (text, admins, what) in rows {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let fault = match start(admins).await {
            Err(GatewayError::Setting(fault)) => fault,
            other => panic!("{what}: it starts, or fails otherwise: {other:?}"),
        };
        assert_eq!(fault.member, "agora_token_file");
        assert!(fault.expected.contains(what) && fault.expected.contains("llmx token NAME > FILE"), "{fault:?}");
    }
    std::fs::write(&file, key.sign(&claims("visitor")).unwrap()).unwrap();
    start(&["alice"]).await.unwrap();
}

#[tokio::test]
async fn the_longest_document_comes_with_a_request_in_its_longest_form() {
    let rig = rig().await;
    let head = text("weather");
    let document = format!("{head}{}", "#".repeat(32 * 1024 - head.len()));
    let document = ProtocolDocument::try_new(&document, Origin::Own).unwrap();
    let source = DocumentSource::of_text(document.text()).to_string();
    assert!(source.len() > 96 * 1024 - 200, "each byte takes three");
    let body = json!({ "protocolHash": document.hash(), "protocolSources": [source], "body": "x".repeat(4096) });
    loop_until(|| async {
        let (status, answer) = rig.call("POST", "/agora/nobody", Some(&rig.token("alice")), Some(&body)).await;
        assert!(status == 503 || answer["code"] == "no_recipient", "{status} {answer}");
        (status == 200).then_some(())
    })
    .await;
    let path = format!("/v1/documents/{}", document.hash().key());
    assert_eq!(rig.call("GET", &path, Some(&rig.token("alice")), None).await.1["document"], document.text());
}

#[tokio::test]
async fn a_request_without_a_token_enters_as_the_agent_whose_token_the_gateway_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("visitor.token");
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let write = |text: String| std::fs::write(&file, text).unwrap();
    write(format!("{}\n", key.sign(&claims("visitor")).unwrap()));
    let rig = Rig::on(memory::open(MemoryOptions::default()), key, |config| {
        config.policies.extend(policy_core::presets());
        config.agora_token_file = Some(file.clone());
    })
    .await;
    rig.register("bob").await;
    let rig = Arc::new(rig);
    let mut seen = Seen::default();
    let body = json!({ "body": "x" });
    for text in ["nonsense", "", &rig.admin_token(), &expired(&rig.key)] {
        write(text.to_owned());
        let (status, answer) = rig.call("POST", "/agora/bob", None, Some(&body)).await;
        assert_eq!((status, code(&answer)), (503, "unavailable"), "{text}: the client has sent no token");
        assert!(answer["detail"].as_str().unwrap().contains("the gateway's token"), "{answer}");
    }
    std::fs::remove_file(&file).unwrap();
    let (status, answer) = rig.call("POST", "/agora/bob", None, Some(&body)).await;
    assert_eq!((status, code(&answer)), (503, "unavailable"), "no file");

    write(rig.token("visitor"));
    let near = |token: Option<String>| {
        let (rig, body) = (rig.clone(), body.clone());
        async move { rig.call("POST", "/agora/bop", token.as_deref(), Some(&body)).await.1 }
    };
    let (told, of_visitor) = (near(Some(rig.token("alice"))).await, near(None).await);
    assert!(told["message"].as_str().unwrap().contains("nearest to that: bob"), "{told}");
    assert_eq!(
        (&of_visitor["code"], &of_visitor["message"]),
        (&json!("no_recipient"), &json!("nobody is registered as agent://bop; start that agent, or name one that is"))
    );
    for (token, caller) in [(None, "visitor"), (Some(rig.token("alice")), "alice")] {
        let (asking, body) = (rig.clone(), body.clone());
        let answer =
            tokio::spawn(async move { asking.call("POST", "/agora/bob", token.as_deref(), Some(&body)).await });
        let (call, _) = seen.next(&rig).await;
        assert_eq!(call.from.as_str(), caller);
        answer.abort();
        assert_eq!(seen.next(&rig).await.0.act, Act::Cancel);
    }
    let success = (200, json!({ "status": "success" }));
    assert_eq!(rig.call("DELETE", "/agora/bob/conversations/x", None, None).await, success);
    assert_eq!(rig.call("GET", "/agora/bob/.wellknown", None, None).await, (200, json!({})));
    let of_the_demo = json!({ "status": "success", "protocols": {} });
    assert_eq!(rig.call("GET", "/agora/bob/wellknown", None, None).await, (200, of_the_demo));
    let (status, answer) = rig.call("GET", "/v1/whoami", None, None).await;
    assert_eq!((status, code(&answer)), (401, "unauthenticated"), "it is no transaction");

    // As a page of another site would that is open in a browser on this network.
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example")] {
        for (method, path) in
            [("POST", "/agora/bob"), ("DELETE", "/agora/bob/conversations/x"), ("GET", "/agora/bob/wellknown")]
        {
            let request = rig.request(method, path).header(name, value).json(&body);
            let (status, answer) = crate::rig::answer(request).await;
            assert_eq!((status, code(&answer)), (403, "unauthorized"), "{method} {path} {name}");
        }
    }
    let request = rig.request("GET", "/agora/bob/wellknown").header("host", "evil.example");
    assert_eq!(crate::rig::answer(request.bearer_auth(rig.token("alice"))).await.0, 200, "a token is enough");
}

#[tokio::test]
async fn a_document_is_fetched_from_no_host_that_is_not_listed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inside = format!("http://{}/x", listener.local_addr().unwrap());
    let rig = Rig::with(|config| config.document_hosts = vec!["documents.example".to_owned()]).await;
    rig.register("bob").await;
    let document = ProtocolDocument::try_new(&text("weather"), Origin::Own).unwrap();
    let sources = json!([inside, "https://evil.example/x", "https://good@documents.example/x"]);
    let body = json!({ "protocolHash": document.hash(), "protocolSources": sources, "body": "x" });
    let (_, answer) = rig.call("POST", "/agora/bob", Some(&rig.token("alice")), Some(&body)).await;
    assert_eq!((&answer["status"], &answer["code"]), (&json!("error"), &json!("not_found")), "{answer}");
    assert!(answer["message"].as_str().unwrap().starts_with("Failed to download protocol"), "{answer}");
    assert_eq!(rig.metric("exchange_document_fetches_total", &[("result", "not_allowed")]), 3.0);
    assert!(listener.accept().now_or_never().is_none(), "nobody came");
    assert!(rig.logged().await.is_empty());
}

#[tokio::test]
async fn a_gateway_does_not_start_with_a_host_that_is_none() {
    for host in ["127.0.0.1", "Documents.example", "https://documents.example", "documents.example:443", ""] {
        let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
        let mut config = crate::rig::config(&key);
        config.document_hosts = vec![host.to_owned()];
        assert_eq!(config.fault().unwrap().member, "document_hosts", "{host}");
    }
}
