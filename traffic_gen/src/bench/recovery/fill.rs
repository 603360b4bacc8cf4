//! Open negotiations with their offers, written to the log as a gateway would.

use std::sync::Arc;

use bus::Bus;
use bus::appender::{Appender, AppenderOptions};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, Entry, Invitation, Pinned, Qos};
use schemas::{AgentId, Digest, Lane, NegotiationId, Payload, subject};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::EngineProcess;
use crate::bench::rounds::BenchError;
use crate::live::{contractor_name, initiator_name};

/// Contractors invited to each negotiation.
const CONTRACTORS: u32 = 12;
/// Negotiations written before it is looked whether the engine keeps up.
const CHUNK: u32 = 200;
/// Deliveries that may wait meanwhile: far below what an engine gives up for one agent.
const OUTBOX_MAX: u64 = 10_000;
/// Tasks that acknowledge.
const ACKERS: usize = 2;

/// The little of a delivery that is needed to acknowledge it.
#[derive(Deserialize)]
struct Delivered {
    envelope: DeliveredEnvelope,
}

#[derive(Deserialize)]
struct DeliveredEnvelope {
    msg_id: String,
}

/// Acknowledges every delivery to anyone, until it is dropped.
pub(super) async fn acknowledge_all(bus: &Bus) -> Result<JoinSet<()>, BenchError> {
    let mut ackers = JoinSet::new();
    for _ in 0..ACKERS {
        let pub_sub = Arc::clone(&bus.pub_sub);
        let inboxes = pub_sub.subscribe(subject::ALL_INBOXES.to_owned(), Some("ackers".to_owned())).await?;
        ackers.spawn(inboxes.for_each(move |message| {
            let pub_sub = Arc::clone(&pub_sub);
            async move {
                let Some((subject, body)) = acknowledgement(&message.subject, &message.payload) else { return };
                // What is lost here is sent again by the engine.
                let _ = pub_sub.publish(subject, body).await;
            }
        }));
    }
    Ok(ackers)
}

/// One acknowledgement for all deliveries of an inbox message.
fn acknowledgement(inbox: &str, payload: &Bytes) -> Option<(String, Bytes)> {
    let agent = subject::agent_of(inbox)?;
    let deliveries: Vec<Delivered> = serde_json::from_slice(payload).ok()?;
    let mut ids = deliveries.into_iter().map(|delivery| delivery.envelope.msg_id);
    let first = schemas::DeliveryId::try_new(&ids.next()?).ok()?;
    let others: Vec<String> = ids.collect();
    let body = if others.is_empty() { Bytes::new() } else { Bytes::from(serde_json::to_vec(&others).ok()?) };
    Some((subject::ack(&agent, first), body))
}

/// Opens `open` negotiations, each with an offer of every contractor but one, so that none closes.
pub(super) async fn fill(bus: &Bus, engine: &EngineProcess, open: u32) -> Result<(), BenchError> {
    let lanes = bus.log.lanes();
    let appenders: Vec<Appender> = (0..lanes)
        .map(|lane| Appender::spawn(Arc::clone(&bus.log), Lane(lane), "bench", AppenderOptions::default()))
        .collect();
    let pinned = Arc::new(pinned()?);
    let mut next = 0;
    while next < open {
        let numbers = next..open.min(next + CHUNK);
        next = numbers.end;
        let mut calls = Vec::new();
        let mut offers = Vec::new();
        for number in numbers {
            let id = NegotiationId::form(&initiator_name(), &format!("bench-{number}")).map_err(stuck)?;
            let appender = &appenders[usize::from(id.lane(lanes).0)];
            calls.push((appender, call(&id, &pinned)?));
            for contractor in 0..CONTRACTORS - 1 {
                offers.push((appender, offer(&id, contractor)?));
            }
        }
        // Offers of a negotiation must stand behind its call.
        for entries in [calls, offers] {
            let appended = entries.iter().map(|(appender, entry)| appender.append(entry));
            try_join_all(appended).await.map_err(stuck)?;
        }
        engine.until_below(OUTBOX_MAX).await?;
    }
    // A call that opened nothing would make an easy recovery.
    engine.until_idle(u64::from(open)).await
}

fn pinned() -> Result<Pinned, BenchError> {
    let mut policy = policy_core::preset("high").expect("`high` is a preset");
    policy.timers_ms.hard = schemas::policy::TIMER_MS_MAX;
    let policy_digest = policy.digest().map_err(stuck)?;
    let invited = (0..CONTRACTORS)
        .map(|n| Invitation { agent: contractor_name(n), qos: Qos::AtLeastOnce, durable: false, reputation: None })
        .collect();
    Ok(Pinned { policy: Arc::new(policy), policy_digest, invited, left_out: 0, task_policy: None, panel: None })
}

fn call(id: &NegotiationId, pinned: &Arc<Pinned>) -> Result<Entry, BenchError> {
    let reply_within_ms = schemas::policy::TIMER_MS_MAX / 2;
    let payload = json!({"act": "cfp", "task": "deliver one parcel", "reply_within_ms": reply_within_ms});
    entry(&initiator_name(), id, &payload, Some(Arc::clone(pinned)))
}

fn offer(id: &NegotiationId, contractor: u32) -> Result<Entry, BenchError> {
    let price = 50_000_000 + i64::from(contractor) * 1_000_003;
    let payload = json!({"act": "offer", "terms": {"price": price, "delivery_ms": 1500}});
    entry(&contractor_name(contractor), id, &payload, None)
}

fn entry(
    from: &AgentId,
    id: &NegotiationId,
    payload: &Value,
    pinned: Option<Arc<Pinned>>,
) -> Result<Entry, BenchError> {
    let act = payload["act"].clone();
    let document = json!({
        "envelope": {
            "msg_id": "first", "ts": "2026-11-20T21:00:00.000Z", "from": format!("agent://{from}"),
            "negotiation": id.as_str(),
        },
        "payload": payload,
    });
    let body = String::from_utf8(canonical(&document).map_err(stuck)?).map_err(stuck)?;
    let digest = Digest::of_bytes(body.as_bytes());
    let body = RawValue::from_string(body).map_err(stuck)?.into();
    let act = serde_json::from_value(act).map_err(stuck)?;
    // A body no payload decodes from would be a message nobody answers.
    Payload::decode(act, &payload.to_string()).map_err(stuck)?;
    Ok(Entry::Message(AdmittedMessage {
        from: from.clone(),
        negotiation: id.clone(),
        act,
        digest,
        body,
        pinned,
        receipts_all: false,
        capabilities: Vec::new(),
    }))
}

fn stuck(error: impl std::fmt::Display) -> BenchError {
    BenchError::Stuck(error.to_string())
}
