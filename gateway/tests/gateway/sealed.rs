//! A mandate is told to nobody: it goes into the log, and nowhere else.

use serde_json::json;

use crate::bargains::{call, join, mandate, said, start};
use crate::told::told;

/// What stands in every mandate here, and must not be found anywhere but in the log.
const CANARY: &str = "canary-6b1f";

#[tokio::test]
async fn a_mandate_goes_into_the_log_and_nowhere_else() {
    let told = told();
    let rig = start().await;
    let mut answers = Vec::new();
    let sealed = |policy: &str| {
        let mut mandate = mandate(policy);
        mandate["limits"] = json!([{ "attr": "price", "op": "ne", "value": CANARY }]);
        mandate
    };
    let open = |policy: &str| call(|m| m["payload"]["mandate"] = sealed(policy));
    let mut misspelt = sealed("bargain-low");
    misspelt[CANARY] = json!(CANARY);
    let mut misplaced = sealed("bargain-low");
    misplaced["limits"] = json!({ CANARY: CANARY });
    let sent = [
        ("alice", open("bargain-low")),
        ("alice", open(CANARY)),
        ("alice", open("medium")),
        ("alice", call(|m| m["payload"]["mandate"] = json!(CANARY))),
        ("bob", said("bob", "j1", join(sealed("bargain-low")))),
        ("bob", said("bob", "j1", join(json!({ "limits": [{ "attr": "price", "op": "ne", "value": CANARY }] })))),
        ("bob", said("bob", "j2", join(sealed(CANARY)))),
        ("bob", said("bob", "j3", join(misplaced))),
        ("carol", said("bob", "j4", join(sealed("bargain-low")))),
    ];
    for (from, message) in &sent {
        answers.push(rig.send(from, message).await.1.to_string());
    }
    // The sender is told which of its own members is unknown; nobody else is.
    assert!(rig.send("bob", &said("bob", "j5", join(misspelt))).await.1["pointer"].as_str().unwrap().contains(CANARY));
    for path in ["/v1/policies", "/v1/agents", "/v1/agents/bob", "/v1/agents/bob/consent/requests", "/readyz"] {
        answers.push(rig.call("GET", path, Some(&rig.token("bob")), None).await.1.to_string());
    }
    answers.push(rig.request("GET", "/metrics").send().await.unwrap().text().await.unwrap());

    for answer in &answers {
        assert!(!answer.contains(CANARY), "{answer}");
    }
    let told = told.text();
    assert!(told.contains("refused") && told.contains("/payload/mandate"), "the audit was not captured");
    assert!(!told.contains(CANARY), "{told}");
    let stored = rig.logged().await;
    assert_eq!(stored.iter().filter(|message| message.body.get().contains(CANARY)).count(), 2, "as it was sent");
}
