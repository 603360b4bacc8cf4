//! The documents in `tests/data`: what each published schema accepts, and what it refuses with which code and where.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use schemas::delivery::Delivery;
use schemas::validate::{
    Kind, check_document, check_group, check_message, check_policy, check_registration, check_search,
};
use schemas::{Act, Code, Refusal};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Fewest invalid documents per schema.
const INVALID_MIN: usize = 5;

#[test]
fn valid_documents_are_accepted() {
    for kind in Kind::ALL {
        for case in load::<Valid>(kind, "valid") {
            let result = check_document(kind, &bytes(&case.document));
            assert_eq!(result, Ok(()), "{}: {}", kind.name(), case.name);
        }
    }
}

#[test]
fn invalid_documents_are_refused_with_their_code_and_place() {
    for kind in Kind::ALL {
        let cases = load::<Invalid>(kind, "invalid");
        assert!(cases.len() >= INVALID_MIN, "{}", kind.name());
        for case in cases {
            let refused = check_document(kind, &bytes(&case.document)).unwrap_err();
            assert_refused(&refused, case.code, &case.pointer, &format!("{}: {}", kind.name(), case.name));
        }
    }
}

#[test]
fn payloads_are_judged_inside_a_message_and_inside_a_request_as_they_are_alone() {
    let requested = |payload: &Value| check_document(Kind::Request, &bytes(&json!({ "payload": payload })));
    for act in Act::FROM_AGENTS {
        let kind = Kind::from_name(act.as_str()).unwrap();
        for case in load::<Valid>(kind, "valid") {
            let checked = check_message(&bytes(&message(&case.document))).unwrap();
            assert_eq!((checked.act, checked.message.payload.act()), (act, act), "{act}: {}", case.name);
            assert_eq!(requested(&case.document), Ok(()), "{act}: {}", case.name);
        }
        for case in load::<Invalid>(kind, "invalid") {
            // A document that names another act is judged as that act.
            let named = case.document.get("act");
            if named.is_some_and(|named| named != act.as_str()) {
                continue;
            }
            let refused = check_message(&bytes(&message(&case.document))).unwrap_err();
            assert_refused(&refused, case.code, &format!("/payload{}", case.pointer), &format!("{act}: {}", case.name));
            assert_eq!(requested(&case.document), Err(refused), "{act}: {}", case.name);
        }
    }
}

#[test]
fn an_alternating_offer_is_selected_by_its_schema() {
    let select = |mut payload: Value| {
        let members = payload.as_object_mut().unwrap();
        members.entry("$schema").or_insert_with(|| "https://llmx.dev/schemas/1/alternating_offer.json".into());
        message(&payload)
    };
    for case in load::<Valid>(Kind::AlternatingOffer, "valid") {
        assert_eq!(check_message(&bytes(&select(case.document))).unwrap().act, Act::Offer, "{}", case.name);
    }
    for case in load::<Invalid>(Kind::AlternatingOffer, "invalid") {
        // A document that names another schema or act is judged as that.
        let names_another = |member: &str| case.pointer == format!("/{member}");
        if names_another("$schema") || names_another("act") {
            continue;
        }
        let refused = check_message(&bytes(&select(case.document))).unwrap_err();
        assert_refused(&refused, case.code, &format!("/payload{}", case.pointer), &case.name);
    }
}

#[test]
fn messages_are_judged_alike_by_the_typed_check_and_the_published_schema() {
    for case in load::<Valid>(Kind::Message, "valid") {
        assert!(check_message(&bytes(&case.document)).is_ok(), "{}", case.name);
    }
    for case in load::<Invalid>(Kind::Message, "invalid") {
        let refused = check_message(&bytes(&case.document)).unwrap_err();
        assert_refused(&refused, case.code, &case.pointer, &case.name);
    }
}

#[test]
fn the_papers_envelope_is_accepted_and_normalised() {
    let bytes = fs::read(data().join("paper_envelope.json")).unwrap();
    let checked = check_message(&bytes).unwrap();
    assert_eq!(checked.act, Act::Cfp);
    assert_eq!(checked.message.envelope.ts.to_string(), "2025-08-21T18:45:00.000Z");
    assert_eq!(checked.message.envelope.scope.as_ref().and_then(|scope| scope.ttl), Some(120));
    let body: Value = serde_json::from_str(checked.body.get()).unwrap();
    assert_eq!(body["envelope"]["ts"], "2025-08-21T18:45:00.000Z");
    assert_eq!(body["payload"], json!({"$schema": "Negotiation.json", "act": "cfp"}));
}

#[test]
fn the_papers_names_of_deadline_and_value_are_rewritten() {
    let call = json!({"$schema": "Negotiation.json", "deadline": "2025-08-21T18:47Z", "round": 1});
    let offer = json!({"$schema": "Negotiation.json", "act": "offer", "value": 100, "timestamp": "2025-08-21T18:46Z"});
    let body = |payload: &Value| -> Value {
        let checked = check_message(&bytes(&message(payload))).unwrap();
        serde_json::from_str::<Value>(checked.body.get()).unwrap()["payload"].clone()
    };
    assert_eq!(
        body(&call),
        json!({"$schema": "Negotiation.json", "act": "cfp", "reply_by": "2025-08-21T18:47Z", "round": 1})
    );
    assert_eq!(body(&offer)["terms"], json!({"price": 100}));
    assert_eq!(body(&offer)["timestamp"], "2025-08-21T18:46Z");
    let bid = |member: &str, time: &str| {
        let mut bid =
            json!({"$schema": "AlternatingOffer.json", "terms": {"price": 100}, "deadline": "2025-08-21T18:47Z"});
        bid.as_object_mut().unwrap().insert(member.to_owned(), time.into());
        body(&bid)
    };
    assert_eq!(
        bid("valid_from", "2025-08-21T18:46Z"),
        json!({
            "$schema": "AlternatingOffer.json", "act": "offer", "terms": {"price": 100},
            "valid_from": "2025-08-21T18:46Z", "valid_until": "2025-08-21T18:47Z"
        })
    );
    assert_eq!(bid("valid_until", "2025-08-21T20:46:59+02:00")["valid_until"], "2025-08-21T20:46:59+02:00");
    assert_eq!(bid("valid_until", "2025-08-21T19:00Z")["valid_until"], "2025-08-21T18:47Z");
}

#[test]
fn every_spelling_of_a_documents_hash_is_rewritten_and_counts_once() {
    let spellings =
        ["Kc42bNOrSX-s82LLvEs5X6XSK24", "29ce366cd3ab497facf362cbbc4b395fa5d22b6e", "2jmj7l5rSw0yVb/vlWAYkK/YBwk"];
    let written = json!(["Kc42bNOrSX+s82LLvEs5X6XSK24=", "2jmj7l5rSw0yVb/vlWAYkK/YBwk="]);
    let body = |payload: Value| -> Value {
        let checked = check_message(&bytes(&message(&payload))).unwrap();
        serde_json::from_str::<Value>(checked.body.get()).unwrap()["payload"].clone()
    };
    let call = body(json!({"act": "cfp", "documents": {"hashes": spellings, "require": false}}));
    assert_eq!(call["documents"], json!({"hashes": written, "require": false}));
    assert_eq!(body(json!({"act": "offer", "terms": {}, "documents": spellings}))["documents"], written);
    let report = body(json!({"act": "inform", "kind": "done", "routine": {"kind": "http", "hash": spellings[1]}}));
    assert_eq!(report["routine"], json!({"kind": "http", "hash": written[0]}));
}

#[test]
fn typed_documents_survive_the_way_there_and_back() {
    survive(Kind::Policy, check_policy);
    survive(Kind::Registration, check_registration);
    survive(Kind::Group, check_group);
    survive(Kind::Search, check_search);
    for case in load::<Valid>(Kind::Delivery, "valid") {
        let delivery: Delivery = serde_json::from_value(case.document.clone()).unwrap();
        assert_eq!(serde_json::to_value(&delivery).unwrap(), case.document, "{}", case.name);
    }
}

#[test]
fn there_is_a_file_for_every_schema_and_none_besides() {
    let expected: BTreeSet<String> = Kind::ALL
        .iter()
        .flat_map(|kind| ["valid", "invalid"].map(|which| format!("{}.{which}.json", kind.name())))
        .chain(["paper_envelope.json".to_owned()])
        .collect();
    let found: BTreeSet<String> =
        fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, expected);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Valid {
    name: String,
    document: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invalid {
    name: String,
    code: Code,
    pointer: String,
    document: Value,
}

fn survive<T, F>(kind: Kind, check: F)
where
    T: serde::Serialize + PartialEq + std::fmt::Debug,
    F: Fn(&[u8]) -> Result<T, Refusal>,
{
    for case in load::<Valid>(kind, "valid") {
        let typed = check(&bytes(&case.document)).unwrap();
        let written = serde_json::to_vec(&typed).unwrap();
        assert_eq!(check(&written).unwrap(), typed, "{}: {}", kind.name(), case.name);
    }
    for case in load::<Invalid>(kind, "invalid") {
        let refused = check(&bytes(&case.document)).unwrap_err();
        assert_refused(&refused, case.code, &case.pointer, &case.name);
    }
}

fn assert_refused(refused: &Refusal, code: Code, pointer: &str, case: &str) {
    assert_eq!((refused.code, refused.pointer.as_deref()), (code, Some(pointer)), "{case}: {refused:?}");
    assert!(refused.expected.is_some() && !refused.detail.is_empty(), "{case} does not say what was expected");
}

fn message(payload: &Value) -> Value {
    let envelope = json!({
        "msg_id": "m1", "ts": "2026-11-20T21:00:00.000Z", "from": "agent://alice", "negotiation": "alice~job"
    });
    json!({"envelope": envelope, "payload": payload})
}

fn bytes(document: &Value) -> Vec<u8> {
    serde_json::to_vec(document).unwrap()
}

fn load<T: DeserializeOwned>(kind: Kind, which: &str) -> Vec<T> {
    let path = data().join(format!("{}.{which}.json", kind.name()));
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}
