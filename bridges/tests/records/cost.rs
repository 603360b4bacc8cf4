//! What an export of many awards costs: `cargo test -p bridges --test records -- --ignored --nocapture many_awards`. With
//! `KEEP=DIR` the archive stays there, so that `llmx award export` can be measured in a process of its own.

use std::time::Instant;

use policy_core::preset;
use schemas::Digest;
use schemas::digest::canonical;
use serde_json::{Value, json};

use crate::rig::Rig;

/// Awards of the measured archive, unless `AWARDS` says otherwise.
const AWARDS: u64 = 100_000;

fn message(from: &str, id: &str, number: u32, payload: Value, pinned: &Value) -> Value {
    let body = json!({
        "envelope": {
            "msg_id": format!("m{number}"), "ts": "2026-01-01T00:00:00Z", "from": format!("agent://{from}"),
            "negotiation": id, "seq": number,
        },
        "payload": payload,
    });
    let digest = Digest::of(&body).unwrap();
    json!({"message": {"from": from, "negotiation": id, "act": payload["act"], "digest": digest, "body": body, "pinned": pinned}})
}

fn record(entries: Vec<Value>) -> String {
    String::from_utf8(canonical(&json!({"v": 1, "by": "cost", "entries": entries})).unwrap()).unwrap()
}

/// A contract net from its call to the report of its one contractor.
async fn negotiate(rig: &Rig, number: u64, pinned: &Value) {
    let (id, time) = (format!("alice~job-{number}"), 1_800_000_000_000_000 + number * 10_000);
    let say = |number, payload: Value| message("bob", &id, number, payload, &Value::Null);
    let call = message("alice", &id, 1, json!({"act": "cfp", "task": "carry a parcel", "currency": "EUR"}), pinned);
    let offer = say(1, json!({"act": "offer", "terms": {"price": 85_000_000 + number, "delivery_ms": 2000}}));
    let confirm = say(2, json!({"act": "confirm", "award_no": 1}));
    let report = say(3, json!({"act": "inform", "kind": "done"}));
    for (step, entries) in [vec![call], vec![offer], vec![confirm, json!("tick"), report]].into_iter().enumerate() {
        rig.append(time + step as u64 * 1000, &record(entries)).await;
    }
}

#[tokio::test]
#[ignore = "measures"]
async fn many_awards() {
    let awards = std::env::var("AWARDS").ok().and_then(|text| text.parse().ok()).unwrap_or(AWARDS);
    let policy = preset("low").unwrap();
    let pinned = json!({"policy": policy, "policy_digest": policy.digest().unwrap(), "invited": [{"agent": "bob"}]});
    let (rig, began) = (Rig::new(), Instant::now());
    for number in 0..awards {
        negotiate(&rig, number, &pinned).await;
    }
    rig.archive(archive::SEGMENT_BYTES_DEFAULT).await;
    let bytes: u64 = rig.segments().iter().map(|file| file.metadata().unwrap().len()).sum();
    println!("{awards} awards, {} MB of archive, made in {:?}", bytes >> 20, began.elapsed());
    let began = Instant::now();
    let report = archive::verify(&rig.path("archive"), &archive::VerifyOptions::default()).unwrap();
    println!("verified {} negotiations in {:?}", report.total.negotiations, began.elapsed());
    let began = Instant::now();
    let exported = rig.try_export(&rig.options("out")).unwrap();
    println!("exported {exported:?} in {:?}", began.elapsed());
    assert_eq!(exported.records, awards);
    if let Some(folder) = std::env::var_os("KEEP") {
        std::fs::rename(rig.path("archive"), folder).unwrap();
    }
}
