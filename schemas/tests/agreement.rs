//! Three readings of one document must agree: the published schema, the typed decode, and what the log gives back.
//!
//! Valid documents are damaged at random; the damaged ones are the interesting neighbours of the contract.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use schemas::record::Message;
use schemas::validate::{
    Checked, Kind, check_document, check_group, check_message, check_policy, check_registration, check_search,
};
use schemas::{Code, Digest, Refusal};
use serde_json::{Map, Value, json};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_message_is_accepted_by_the_schema_and_by_the_types_or_by_neither(damages in damages(), start in any::<Index>()) {
        let document = damaged(start.get(&messages()).clone(), &damages);
        let bytes = serde_json::to_vec(&document).unwrap();
        match check_message(&bytes) {
            Ok(checked) => {
                prop_assert_eq!(check_document(Kind::Message, &bytes), Ok(()));
                read_back(&checked)?;
            }
            Err(refused) => {
                prop_assert_ne!(refused.code, Code::Internal, "{}", document);
                prop_assert_eq!(check_document(Kind::Message, &bytes), Err(refused));
            }
        }
    }

    #[test]
    fn an_offer_in_canonical_form_is_checked_like_one_written_otherwise(damages in damages(), start in any::<Index>()) {
        let document = damaged(start.get(&plain_offers()).clone(), &damages);
        let canonical = serde_json::to_vec(&document).unwrap();
        let otherwise = [b" ", &canonical[..]].concat();
        let seen = |bytes: &[u8]| {
            let checked = check_message(bytes)?;
            Ok::<_, Refusal>((checked.message, checked.act, checked.body.get().to_owned(), checked.digest))
        };
        prop_assert_eq!(seen(&canonical), seen(&otherwise));
    }

    #[test]
    fn a_control_document_is_accepted_by_the_schema_and_by_the_types_or_by_neither(damages in damages(), start in any::<Index>()) {
        let (kind, check, document) = start.get(&control_documents()).clone();
        let bytes = serde_json::to_vec(&damaged(document, &damages)).unwrap();
        let typed = check(&bytes);
        match typed {
            Ok(written) => {
                let again = check_document(kind, &serde_json::to_vec(&written).unwrap());
                prop_assert_eq!(again, Ok(()), "what was read and written again departs from its schema");
            }
            Err(refused) => {
                prop_assert_ne!(refused.code, Code::Internal);
                prop_assert_eq!(check_document(kind, &bytes), Err(refused));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_answered_with_a_refusal_and_never_with_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(check_message(&bytes).is_err());
    }
}

#[test]
fn damage_leaves_a_fair_share_of_documents_valid_and_makes_a_fair_share_invalid() {
    // Otherwise the properties above would see one side only.
    let mut runner = TestRunner::deterministic();
    let starts = messages();
    let accepted = (0..1000).filter(|case| {
        let damages = damages().new_tree(&mut runner).unwrap().current();
        let document = damaged(starts[case % starts.len()].clone(), &damages);
        check_message(&serde_json::to_vec(&document).unwrap()).is_ok()
    });
    assert!((200..800).contains(&accepted.count()));
}

/// The log stores the body alone: decoded from there it must be the same message, and checked again the same body.
fn read_back(checked: &Checked) -> Result<(), TestCaseError> {
    let body = checked.body.get();
    prop_assert_eq!(Digest::of_bytes(body.as_bytes()), checked.digest);
    let value: Value = serde_json::from_str(body).unwrap();
    prop_assert_eq!(serde_json_canonicalizer::to_vec(&value).unwrap(), body.as_bytes(), "not RFC 8785");
    prop_assert_eq!(&Message::decode(checked.act, body).unwrap(), &checked.message);
    let again = check_message(body.as_bytes());
    prop_assert_eq!(again.map(|again| again.digest), Ok(checked.digest));
    Ok(())
}

#[derive(Debug, Clone)]
struct Damage {
    at: Index,
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    Replace(Value),
    Remove,
    Add(String, Value),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let how = prop_oneof![
        4 => values().prop_map(How::Replace),
        2 => Just(How::Remove),
        3 => (names(), values()).prop_map(|(name, value)| How::Add(name, value)),
    ];
    proptest::collection::vec((any::<Index>(), how).prop_map(|(at, how)| Damage { at, how }), 0..4)
}

fn names() -> impl Strategy<Value = String> {
    let known = "act $schema terms value price round reason offer_id award_no kind phase code penalty retryable task \
                 policy reply_by deadline reply_within_ms requires constraints gates currency valid_for_ms valid_until scope ttl \
                 seq to capabilities negotiation in_reply_to traceparent extend lottery start end exponent enum min \
                 topics consent rules members qos bargain mandate issues name values rounds deadline_ms step_ms \
                 confirm_ms forbid_repeat max_strikes conditions attr op valid_from terms_digest utility linear table \
                 documents hashes require routine hash issue weight worth at_min at_max limits concession boulware conceder any next combi \
                 panel domain answer answer_ms asking consensus_from rate select review choose min_seats evidence options ignore_case of \
                 separator at_least_permille after_round keep if_more_than recheck ranker agent rank_ms by review_ms from agents \
                 min_runs newcomers order reviews text ratings usage calls prompt_tokens completion_tokens \
                 team members turns speak_ms ends_within_ms depth tasks task_policy at_conclusion vote of vote_ms attempts \
                 on_repeat repeat_ppm task turn text next mode title owner perform_ms triggers";
    let known: Vec<String> = known.split_whitespace().map(str::to_owned).collect();
    prop_oneof![8 => select(known), 1 => "[a-z~/.\u{e9}\u{10348}\u{ff21}]{0,4}"]
}

const TEXTS: &[&str] = &[
    "",
    "x",
    "cfp",
    "offer",
    "confirm",
    "done",
    "opt-in",
    "agent://bob",
    "topic://t",
    "alice~job",
    "a~b~c",
    "o1-0",
    "o18446744073709551616-0",
    "o1-4294967296",
    "2026-11-20T21:00Z",
    "2026-11-20t21:00:00.123456789+23:59",
    "2026-11-20T24:00:00Z",
    "2026-13-01T00:00:00Z",
    "1970-01-01T00:00:00+14:00",
    "9998-12-31T23:59:59-23:59",
    "2016-12-31T23:59:60Z",
    "Negotiation.json",
    "AlternatingOffer.json",
    "EUR",
    "medium@1",
    "deny",
    "hash",
    "join",
    "end",
    "turn",
    "answer",
    "quorum_first",
    "choice",
    "set",
    "bleu",
    "number",
    "exact",
    "agent",
    "support",
    "own",
    "any",
    "linear",
    "round",
    "elapsed_ms",
    "ge",
    "abababababababababababababababababababababababababababababababab",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "Kc42bNOrSX+s82LLvEs5X6XSK24=",
    "Kc42bNOrSX-s82LLvEs5X6XSK24",
    "29ce366cd3ab497facf362cbbc4b395fa5d22b6e",
    "Kc42bNOrSX+s82LLvEs5X6XSK25=",
    "native",
    "language",
    "\u{202e}x",
    "m\u{0}1",
    "x\n",
];

fn numbers() -> Vec<Value> {
    vec![
        json!(0),
        json!(-1),
        json!(1),
        json!(64),
        json!(65),
        json!(1000),
        json!(1001),
        json!(1_000_000),
        json!(1_000_001),
        json!(86_400_000),
        json!(u32::MAX),
        json!(u64::from(u32::MAX) + 1),
        json!(9_007_199_254_740_991_i64),
        json!(-9_007_199_254_740_991_i64),
        json!(9_007_199_254_740_992_i64),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(5.0),
        json!(-0.0),
        json!(0.5),
        json!(1e300),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        3 => select(TEXTS.to_vec()).prop_map(Value::from),
        3 => select(numbers()),
        1 => any::<Option<bool>>().prop_map(|value| value.map_or(Value::Null, Value::Bool)),
        1 => any::<String>().prop_map(Value::from),
    ];
    scalar.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec((names(), inner), 0..3)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

fn damaged(mut document: Value, damages: &[Damage]) -> Value {
    for damage in damages {
        let mut places = Vec::new();
        collect_places(&document, &mut String::new(), &mut places);
        let place = damage.at.get(&places);
        match &damage.how {
            How::Replace(value) => *document.pointer_mut(place).unwrap() = value.clone(),
            How::Remove => remove(&mut document, place),
            How::Add(name, value) => match document.pointer_mut(place).unwrap() {
                Value::Object(members) => drop(members.insert(name.clone(), value.clone())),
                Value::Array(items) => items.push(value.clone()),
                scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                    *scalar = value.clone()
                }
            },
        }
    }
    document
}

fn collect_places(value: &Value, path: &mut String, places: &mut Vec<String>) {
    places.push(path.clone());
    let mut below = |token: String, child: &Value| {
        let length = path.len();
        path.push('/');
        path.push_str(&token.replace('~', "~0").replace('/', "~1"));
        collect_places(child, path, places);
        path.truncate(length);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, child)| below(name.clone(), child)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, child)| below(index.to_string(), child)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn remove(document: &mut Value, place: &str) {
    let Some((parent, token)) = place.rsplit_once('/') else { return };
    match document.pointer_mut(parent) {
        Some(Value::Object(members)) => drop(members.remove(&token.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(items)) => drop(items.remove(token.parse().unwrap())),
        _ => {}
    }
}

fn messages() -> Vec<Value> {
    let mut all: Vec<Value> = documents(include_str!("data/message.valid.json"));
    let envelope = json!({
        "msg_id": "m1", "ts": "2026-11-20T21:00:00.000Z", "from": "agent://bob", "to": ["agent://alice"], "seq": 3,
        "negotiation": "alice~job", "in_reply_to": "m0", "scope": {"consent": "opt-in", "ttl": 120}
    });
    let payloads = [
        include_str!("data/cfp.valid.json"),
        include_str!("data/offer.valid.json"),
        include_str!("data/say.valid.json"),
        include_str!("data/assign.valid.json"),
        include_str!("data/pause.valid.json"),
        include_str!("data/conclude.valid.json"),
        include_str!("data/refuse.valid.json"),
        include_str!("data/not_understood.valid.json"),
        include_str!("data/withdraw.valid.json"),
        include_str!("data/accept.valid.json"),
        include_str!("data/confirm.valid.json"),
        include_str!("data/inform.valid.json"),
        include_str!("data/failure.valid.json"),
        include_str!("data/cancel.valid.json"),
        include_str!("data/join.valid.json"),
        include_str!("data/end.valid.json"),
        include_str!("data/answer.valid.json"),
    ];
    let wrap = |payload: Value| json!({"envelope": envelope, "payload": payload});
    all.extend(payloads.into_iter().flat_map(documents).map(wrap));
    let alternating = documents(include_str!("data/alternating_offer.valid.json")).into_iter();
    all.extend(alternating.filter(|payload| payload.get("$schema").is_some()).map(wrap));
    let rules = documents(include_str!("data/bargain.valid.json")).into_iter();
    all.extend(rules.map(|rules| wrap(json!({"act": "cfp", "bargain": rules, "mandate": {}}))));
    let mandates = documents(include_str!("data/mandate.valid.json")).into_iter();
    let panels = documents(include_str!("data/panel.valid.json")).into_iter();
    all.extend(panels.map(|panel| wrap(json!({"act": "cfp", "panel": panel}))));
    all.extend(mandates.map(|mandate| wrap(json!({"act": "join", "mandate": mandate}))));
    all
}

/// Offers, most of which need no look at their schema.
fn plain_offers() -> Vec<Value> {
    let offers = documents(include_str!("data/offer.valid.json")).into_iter();
    let usual = json!({"act": "offer", "terms": {"price": 85, "time_ms": 3, "colour": "red"}, "currency": "EUR", "round": 1, "valid_for_ms": 9,
        "conditions": "payment within thirty days"});
    let envelope = json!({
        "msg_id": "m1", "ts": "2026-11-20T21:00:00.000Z", "from": "agent://bob", "seq": 3, "negotiation": "alice~job",
        "in_reply_to": "m0"
    });
    let mut full = envelope.clone();
    full["scope"] = json!({"consent": "opt-in", "ttl": 120, "absent": true});
    full["capabilities"] = json!(["haul"]);
    let wrap = |payload: Value| [&envelope, &full].map(|around| json!({"envelope": around, "payload": payload}));
    offers.chain(std::iter::repeat_n(usual, 8)).flat_map(wrap).collect()
}

/// Checks, decodes and writes again.
type Check = fn(&[u8]) -> Result<Value, Refusal>;

fn control_documents() -> Vec<(Kind, Check, Value)> {
    let policy: Check = |bytes| check_policy(bytes).map(|typed| serde_json::to_value(typed).unwrap());
    let registration: Check = |bytes| check_registration(bytes).map(|typed| serde_json::to_value(typed).unwrap());
    let search: Check = |bytes| check_search(bytes).map(|typed| serde_json::to_value(typed).unwrap());
    let group: Check = |bytes| check_group(bytes).map(|typed| serde_json::to_value(typed).unwrap());
    [
        (Kind::Policy, policy, include_str!("data/policy.valid.json")),
        (Kind::Registration, registration, include_str!("data/registration.valid.json")),
        (Kind::Group, group, include_str!("data/group.valid.json")),
        (Kind::Search, search, include_str!("data/search.valid.json")),
    ]
    .into_iter()
    .flat_map(|(kind, check, text)| documents(text).into_iter().map(move |document| (kind, check, document)))
    .collect()
}

fn documents(text: &str) -> Vec<Value> {
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    cases.into_iter().map(|case| case["document"].clone()).collect()
}
