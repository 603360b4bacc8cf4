//! What is logged: every refusal with what is known of it, and nothing that is secret.

use bytes::Bytes;
use gateway::{Credentials, Ingress, Transport};
use schemas::{NegotiationId, subject};
use serde_json::json;
use telemetry::{TraceId, Tracer};

use crate::rig::{ISSUER, PATIENCE, Rig, agent, cfp, offer};
use crate::spans::Kept;
use crate::streams::{frame, opened, send};
use crate::told::told;

#[tokio::test]
async fn a_refusal_is_told_with_its_agent_its_negotiation_and_its_trace() {
    let told = told();
    let rig = Rig::with(|config| config.tracer = Tracer::new(0.0, Kept::default().sink())).await;
    rig.send("ulla", &cfp("ulla", "a-job-nobody-hears-of", &["agent://nobody"])).await;
    let negotiation = NegotiationId::try_new("ulla~a-job-nobody-hears-of").unwrap();
    let text = told.text();
    let line = text.lines().find(|line| line.contains(negotiation.as_str())).unwrap();
    for part in ["llmx::audit", "code=\"no_recipient\"", "agent=\"ulla\"", "transport=\"http\""] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(line.contains(&format!("trace_id={}", TraceId::of(&negotiation))), "{line}");
}

#[tokio::test]
async fn who_asks_too_often_is_named_by_its_token() {
    let told = told();
    let rig = Rig::with(|config| (config.limits.requests_per_s, config.limits.burst) = (1, 1)).await;
    let token = rig.token("hasty");
    let url = format!("http://{}/v1/whoami", rig.handle.local_addr().unwrap());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    while client.get(&url).bearer_auth(&token).send().await.unwrap().status() != 429 {}
    let text = told.text();
    let is_it = |line: &&str| line.contains("code=\"rate_limited\"") && line.contains("agent=\"hasty\"");
    assert!(text.lines().find(is_it).is_some_and(|line| !line.contains("peer=")), "{text}");
}

#[tokio::test]
async fn no_token_and_nothing_of_a_payload_is_ever_told() {
    const CANARY: &str = "canary-e2b7";
    let told = told();
    let rig = Rig::start().await;
    rig.register("bob").await;
    let secret = |mut message: serde_json::Value| {
        message["payload"]["conditions"] = json!(CANARY);
        message
    };
    let mut call = cfp("alice", "logs", &["agent://bob"]);
    call["payload"]["task"] = json!(CANARY);
    let good = rig.token("bob");
    let long_ago = json!({ "sub": "bob", "iss": ISSUER, "aud": "llmx", "iat": 1_000_000_000, "exp": 1_000_000_060 });
    let expired = rig.key.sign(&long_ago).unwrap();
    let cut = good[..good.len() - 4].to_owned();

    assert_eq!(rig.send("alice", &call).await.0, 202);
    call["payload"]["policy"] = json!("none-of-this-name");
    assert_eq!(rig.send("alice", &call).await.0, 422);
    for (token, status) in [(&good, 202), (&expired, 401), (&cut, 401)] {
        let message = secret(offer("bob", "m1", "alice~logs"));
        assert_eq!(rig.post(token, message.to_string()).await.0, status);
        let subject = subject::gateway_in(&agent("bob"));
        let bytes = Bytes::from(message.to_string());
        rig.bus.pub_sub.request(subject, Some(token.clone()), bytes.clone(), PATIENCE).await.unwrap();
        let credentials = Credentials::Token(Some(token));
        let ingress = Ingress { transport: Transport::InProcess, credentials, named_sender: None, peer: None, bytes };
        assert_eq!(rig.handle.admission().admit(ingress).await.is_ok(), status == 202);
    }
    let mut socket = opened(&rig, "bob").await;
    for message in [secret(offer("bob", "m2", "alice~logs")), secret(offer("carol", "m3", "alice~logs"))] {
        send(&mut socket, json!({ "type": "message", "message": message })).await;
        frame(&mut socket).await;
    }
    send(&mut socket, json!({ "type": CANARY, "message": CANARY })).await;
    assert_eq!(frame(&mut socket).await["type"], "refused");
    rig.post(&good, format!("{{\"{CANARY}\": ")).await;

    let text = told.text();
    assert!(text.contains("llmx::audit") && text.contains("token_expired"), "the audit was not heard");
    assert!(!text.contains(CANARY), "something of a payload was told");
    let header = good.split('.').next().unwrap();
    assert!(!text.contains(header), "a token was told: every one of this key begins so");
}
