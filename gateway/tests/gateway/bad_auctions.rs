//! Auctions that cannot be: each is refused where its fault is, and none is logged; of those that can, the reserve stays sealed.

use serde_json::{Value, json};

use crate::bargains::{call, start};
use crate::rig::code;
use crate::told::told;

/// Name, payload of the call, code, pointer.
type Row = (&'static str, Value, &'static str, &'static str);

/// A reserve that stands nowhere else.
const RESERVE: i64 = 987_654_321_098;

fn rules() -> Value {
    json!({ "direction": "ascending", "start": 40_000_000, "step": 1_000_000 })
}

fn cfp(member: &str, value: Value) -> Value {
    let mut payload = json!({ "act": "cfp", "auction": rules() });
    payload[member] = value;
    payload
}

fn with(member: &str, value: Value) -> Value {
    let mut rules = rules();
    rules[member] = value;
    cfp("auction", rules)
}

/// A call without a lifetime.
fn timeless(payload: Value) -> Value {
    call(|m| {
        m["payload"] = payload;
        m["envelope"].as_object_mut().unwrap().remove("scope");
    })
}

#[tokio::test]
async fn auctions_that_cannot_be_are_refused_where_the_fault_is_and_never_logged() {
    let rig = start().await;
    let extended = |latest_ms: u64| {
        let mut payload = with("extend", json!({ "ms": 10, "latest_within_ms": latest_ms }));
        payload["reply_within_ms"] = json!(2_000);
        payload
    };
    let latest = "/payload/auction/extend/latest_within_ms";
    let bargain = json!({ "issues": [{ "name": "price", "min": 0, "max": 9 }], "rounds": 3 });
    let rows: [Row; 12] = [
        ("text for rules", cfp("auction", json!("english")), "wrong_type", "/payload/auction"),
        ("no rules", cfp("auction", json!({})), "missing_field", "/payload/auction/direction"),
        ("a direction there is not", with("direction", json!("dutch")), "not_allowed", "/payload/auction/direction"),
        ("no step", with("step", Value::Null), "wrong_type", "/payload/auction/step"),
        ("a step of nothing", with("step", json!(0)), "out_of_range", "/payload/auction/step"),
        ("two steps", with("step_permille", json!(5)), "not_allowed", "/payload/auction/step"),
        ("a negative reserve", with("reserve", json!(-1)), "out_of_range", "/payload/auction/reserve"),
        ("a bargain beside it", cfp("bargain", bargain), "not_allowed", "/payload/bargain"),
        ("a panel beside it", cfp("panel", json!({})), "not_allowed", "/payload/panel"),
        ("a policy for bargains", cfp("policy", json!("bargain-low")), "not_allowed", "/payload/policy"),
        ("an extension to before the end", extended(1_999), "out_of_range", latest),
        ("an extension beyond the auction", extended(120_001), "out_of_range", latest),
    ];
    for (name, payload, expected, pointer) in rows {
        let (status, body) = rig.send("alice", &timeless(payload)).await;
        assert_eq!((status, code(&body)), (422, expected), "{name}: {body}");
        assert_eq!(body["pointer"].as_str(), Some(pointer), "{name}: {body}");
        assert!(body["expected"].is_string(), "{name} does not say what was expected");
    }
    assert!(rig.logged().await.is_empty());
    let (status, body) = rig.send("alice", &timeless(extended(2_000))).await;
    assert_eq!(status, 202, "{body}");
}

#[tokio::test]
async fn a_reserve_goes_into_the_log_and_nowhere_else() {
    let told = told();
    let rig = start().await;
    let open = call(|m| m["payload"] = with("reserve", json!(RESERVE)));
    let misplaced = call(|m| m["payload"] = with("reserve", json!({ "at_least": RESERVE })));
    let mut answers = Vec::new();
    for message in [open, misplaced] {
        answers.push(rig.send("alice", &message).await.1.to_string());
    }
    answers.push(rig.request("GET", "/metrics").send().await.unwrap().text().await.unwrap());
    let reserve = RESERVE.to_string();
    assert!(!answers.concat().contains(&reserve) && !told.text().contains(&reserve));
    let logged = rig.logged().await;
    assert_eq!(logged.iter().filter(|message| message.body.get().contains(&reserve)).count(), 1, "as it was sent");
}
