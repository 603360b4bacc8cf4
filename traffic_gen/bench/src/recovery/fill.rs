//! Open negotiations with what was said in them, written to the log as a gateway would.

use std::sync::Arc;

use bus::Bus;
use bus::appender::{Appender, AppenderOptions};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use policy_core::preset;
use schemas::policy::TIMER_MS_MAX;
use schemas::record::{AdmittedMessage, Entry, Pinned};
use schemas::{Act, AgentId, NegotiationId, Payload, subject};
use scripted::bargain::in_memory::{admitted, pinned};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::EngineProcess;
use crate::durability::appenders;
use crate::rounds::{BenchError, stuck};
use traffic_gen::live::{contractor_name, initiator_name};

/// Contractors invited to each negotiation.
const CONTRACTORS: u32 = 12;
/// Seats of each panel.
const SEATS: u32 = 4;
/// Characters of an answer.
const ANSWER_LEN: usize = 64;
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
pub(crate) async fn acknowledge_all(bus: &Bus) -> Result<JoinSet<()>, BenchError> {
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

/// Which negotiations are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillKind {
    /// Calls to twelve contractors, with an offer of each but one, so that none closes.
    ContractNets,
    /// Bargains of two, each of which has made an offer.
    Bargains,
    /// Panels of four seats, of which three have answered.
    Panels,
}

impl FillKind {
    /// The call, and who is invited.
    fn call(self) -> (Value, u32) {
        match self {
            Self::ContractNets => {
                let reply_within_ms = TIMER_MS_MAX / 2;
                let call = json!({"act": "cfp", "task": "deliver one parcel", "reply_within_ms": reply_within_ms});
                (call, CONTRACTORS)
            }
            Self::Bargains => {
                let time_ms = TIMER_MS_MAX / 4;
                let issues = json!([{"name": "price", "min": 0, "max": 1000}]);
                let rules = json!({"issues": issues, "rounds": 50, "deadline_ms": time_ms, "step_ms": time_ms});
                (json!({"act": "cfp", "bargain": rules, "reply_within_ms": time_ms}), 1)
            }
            Self::Panels => {
                let answer_ms = TIMER_MS_MAX / 4;
                let rules = json!({"domain": "bench", "rounds": 3, "answer_ms": answer_ms, "asking": "all"});
                (json!({"act": "cfp", "task": "which?", "panel": rules}), SEATS)
            }
        }
    }

    /// What follows the call: of each step all is in the log before the next one begins.
    fn steps(self) -> Vec<Vec<(AgentId, Value)>> {
        match self {
            Self::ContractNets => {
                let price = |contractor: u32| 50_000_000 + i64::from(contractor) * 1_000_003;
                let offer =
                    |contractor| json!({"act": "offer", "terms": {"price": price(contractor), "delivery_ms": 1500}});
                vec![(0..CONTRACTORS - 1).map(|number| (contractor_name(number), offer(number))).collect()]
            }
            Self::Bargains => {
                let offer = |price: u32| json!({"act": "offer", "terms": {"price": price}});
                vec![
                    vec![(contractor_name(0), json!({"act": "join"}))],
                    vec![(initiator_name(), offer(900))],
                    vec![(contractor_name(0), offer(100))],
                ]
            }
            Self::Panels => {
                let answer =
                    |seat: u32| json!({"act": "answer", "round": 1, "answer": format!("{seat:0>ANSWER_LEN$}")});
                vec![(0..SEATS - 1).map(|seat| (contractor_name(seat), answer(seat))).collect()]
            }
        }
    }
}

/// Opens `open` negotiations.
pub(super) async fn fill(bus: &Bus, engine: &EngineProcess, kind: FillKind, open: u32) -> Result<(), BenchError> {
    let appenders = appenders(bus, &AppenderOptions::default());
    let (call, invited) = kind.call();
    let pinned = Arc::new(pinned_to(invited));
    let steps = kind.steps();
    let mut next = 0;
    while next < open {
        let numbers = next..open.min(next + CHUNK);
        next = numbers.end;
        let negotiation = |number| NegotiationId::form(&initiator_name(), &format!("bench-{number}")).map_err(stuck);
        let ids = numbers.map(negotiation).collect::<Result<Vec<_>, _>>()?;
        let mut entries = Vec::new();
        for id in &ids {
            entries.push((id, entry(&initiator_name(), id, &call, Some(Arc::clone(&pinned)))?));
        }
        append(&appenders, entries).await?;
        for step in &steps {
            let mut entries = Vec::new();
            for id in &ids {
                for (from, payload) in step {
                    entries.push((id, entry(from, id, payload, None)?));
                }
            }
            append(&appenders, entries).await?;
        }
        engine.until_below(OUTBOX_MAX).await?;
    }
    // A call that opened nothing would make an easy recovery.
    engine.until_idle(u64::from(open)).await
}

async fn append(appenders: &[Appender], entries: Vec<(&NegotiationId, Entry)>) -> Result<(), BenchError> {
    let lanes = u8::try_from(appenders.len()).map_err(stuck)?;
    let appended = entries.iter().map(|(id, entry)| appenders[usize::from(id.lane(lanes).0)].append(entry));
    try_join_all(appended).await.map_err(stuck)?;
    Ok(())
}

fn pinned_to(invited: u32) -> Pinned {
    let mut policy = preset("high").expect("`high` is a preset");
    policy.timers_ms.hard = TIMER_MS_MAX;
    pinned(&policy, &(0..invited).map(contractor_name).collect::<Vec<_>>())
}

fn entry(
    from: &AgentId,
    id: &NegotiationId,
    payload: &Value,
    pinned: Option<Arc<Pinned>>,
) -> Result<Entry, BenchError> {
    let act: Act = serde_json::from_value(payload["act"].clone()).map_err(stuck)?;
    // A body no payload decodes from would be a message nobody answers.
    let payload = Payload::decode(act, &payload.to_string()).map_err(stuck)?;
    let message = admitted(from, id, (act.as_str(), None), payload).map_err(stuck)?;
    Ok(Entry::Message(AdmittedMessage { pinned, receipts_all: false, ..message }))
}
