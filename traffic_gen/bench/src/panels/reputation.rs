//! A call to twelve contractors under a policy that weighs their reputation, beside one that does not: the gateway's checks and
//! pins, then the fold of the call and of eleven offers.

use std::time::{Duration, Instant};

use bus::Bus;
use bus::memory::MemoryOptions;
use bytes::Bytes;
use futures_util::FutureExt;
use policy_core::panel::reputation::REPUTATION_AVERAGE_PPM;
use schemas::control::Registration;
use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceRole, EvidenceSubject, LaneEvidence};
use schemas::ids::{AttrName, DomainName};
use schemas::policy::{Direction, Weight};
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{AgentId, Code, Lane, Policy, Refusal, subject};
use serde_json::json;

use crate::admission::ingress;
use crate::fold::{FoldBench, as_read};
use crate::overhead::median;
use crate::recovery::acknowledge_all;
use crate::rounds::{BenchError, stuck, unlimited};
use agents::control::ControlClient;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::{contractor_name, initiator_name};

/// Contractors invited to each call.
const CONTRACTORS: u32 = 12;
/// Offers to each: one that is missing keeps the negotiation open, so that no award is measured.
const OFFERS: u32 = CONTRACTORS - 1;
/// Calls after which the appender gets a chance to empty its queue.
const BATCH: usize = 64;
/// The policies of the calls, without and with reputation; those with even numbers are without.
const POLICIES: [&str; 2] = ["plain", "weighing"];
/// The domain whose panels count.
const DOMAIN: &str = "college-mathematics";
/// Panels that have shown something about each contractor.
const RUNS: u64 = 20;
/// Longest wait for the gateway to know of the evidence, or for the log to hold the calls.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(20);

/// Microseconds of a call and its offers, the median.
#[derive(Debug, Clone, Copy)]
pub struct CallCost {
    /// Checks and pins of the call.
    pub admit_us: f64,
    /// Its fold, and that of eleven offers.
    pub fold_us: f64,
}

impl CallCost {
    /// Both together.
    pub fn us(&self) -> f64 {
        self.admit_us + self.fold_us
    }
}

/// Measures as many calls without and with reputation, in turn.
///
/// # Errors
/// [`BenchError`]; also when what was logged holds no reputation where it should, or one where it should not.
pub async fn measure(calls: usize) -> Result<[CallCost; 2], BenchError> {
    let bus = bus::memory::open(MemoryOptions::default());
    store_evidence(&bus).await?;
    let options = ExchangeOptions { policies: policies()?, ..ExchangeOptions::default() };
    let exchange = unlimited(bus.clone(), options).await?;
    // A gateway invites nobody who leaves too many deliveries unacknowledged.
    let ackers = acknowledge_all(&bus).await?;
    let admitted = admit(&bus, &exchange, calls).await;
    exchange.shutdown().await;
    drop(ackers);
    let (admit_us, records) = admitted?;
    let fold_us = tokio::task::spawn_blocking(move || fold(&records)).await.map_err(stuck)??;
    Ok([0, 1].map(|policy| CallCost { admit_us: median(&admit_us[policy]), fold_us: median(&fold_us[policy]) }))
}

/// Puts calls through the gateway's checks: microseconds of each by policy, and the calls as they were logged, each a record of
/// its own, by number.
async fn admit(bus: &Bus, exchange: &Exchange, calls: usize) -> Result<([Vec<f64>; 2], Vec<Record>), BenchError> {
    let control = ControlClient::try_new(exchange.url())?;
    for contractor in (0..CONTRACTORS).map(contractor_name) {
        let identity = exchange.identity(&contractor)?;
        control.register(&contractor, &identity.token.current(), &Registration::open_to_all()).await?;
    }
    let token = exchange.identity(&initiator_name())?.token.current();
    let admission = exchange.gateway().admission();
    // The first has the signature checked, and shows when the gateway knows of the evidence.
    let mut probes = calls * 2;
    let deadline = Instant::now() + PATIENCE;
    loop {
        admission.admit(ingress(&token, call(probes + 1))).await.map_err(stuck)?;
        let logged = logged(bus).await?;
        if logged
            .iter()
            .any(|message| reputations(message).any(|one| one.is_some_and(|ppm| ppm != REPUTATION_AVERAGE_PPM)))
        {
            break;
        }
        if Instant::now() > deadline {
            return Err(stuck("the gateway does not know of the evidence"));
        }
        probes += 2;
        tokio::time::sleep(LOOK).await;
    }
    let mut admit_us = [Vec::with_capacity(calls), Vec::with_capacity(calls)];
    for number in 0..calls * 2 {
        let took = loop {
            let ingress = ingress(&token, call(number));
            let started = Instant::now();
            let answer = admission.admit(ingress).now_or_never();
            let took = started.elapsed();
            match answer {
                // More than has shown to be possible: not what is measured.
                Some(Err(Refusal { code: Code::Overloaded, retry_after_ms, .. })) => {
                    tokio::time::sleep(Duration::from_millis(retry_after_ms.unwrap_or_default())).await;
                }
                Some(Err(refusal)) => return Err(stuck(refusal)),
                Some(Ok(_)) | None => break took,
            }
        };
        admit_us[number % 2].push(took.as_secs_f64() * 1e6);
        if number % BATCH == BATCH - 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    Ok((admit_us, measured(bus, calls * 2).await?))
}

/// The measured calls as they were logged, by number.
async fn measured(bus: &Bus, calls: usize) -> Result<Vec<Record>, BenchError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut found: Vec<Option<AdmittedMessage>> = vec![None; calls];
        for message in logged(bus).await? {
            let number =
                message.negotiation.as_str().rsplit('-').next().and_then(|number| number.parse::<usize>().ok());
            if let Some(place) = number.and_then(|number| found.get_mut(number)) {
                *place = Some(message);
            }
        }
        if let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() {
            return found.into_iter().enumerate().map(|(number, message)| record(number, message)).collect();
        }
        if Instant::now() > deadline {
            return Err(stuck("calls that were admitted are not in the log"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn record(number: usize, message: AdmittedMessage) -> Result<Record, BenchError> {
    let expected = number % 2 == 1;
    if reputations(&message).count() != CONTRACTORS as usize
        || reputations(&message).any(|one| one.is_some() != expected)
    {
        return Err(stuck(format!("call {number} is pinned to other reputations than its policy asks for")));
    }
    as_read(message)
}

fn reputations(message: &AdmittedMessage) -> impl Iterator<Item = Option<u64>> {
    message.pinned.iter().flat_map(|pinned| &pinned.invited).map(|invitation| invitation.reputation)
}

/// The calls in the log.
async fn logged(bus: &Bus) -> Result<Vec<AdmittedMessage>, BenchError> {
    let mut messages = Vec::new();
    for lane in (0..bus.log.lanes()).map(Lane) {
        for seq in 1..=bus.log.last_seq(lane).await? {
            let Some(record) = bus.log.record(lane, seq).await? else { continue };
            let record = Record::decode(&record.bytes).map_err(stuck)?;
            messages.extend(record.entries.into_iter().filter_map(|entry| match entry {
                Entry::Message(message) => Some(message),
                Entry::Tick | Entry::Engine { .. } => None,
            }));
        }
    }
    Ok(messages)
}

/// Folds each call and its offers: microseconds by policy.
fn fold(calls: &[Record]) -> Result<[Vec<f64>; 2], BenchError> {
    let mut bench = FoldBench::new()?;
    let mut fold_us = [Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len())];
    for (number, call) in calls.iter().enumerate() {
        let offers: Vec<Record> =
            (0..OFFERS).map(|contractor| bench.offer(number, contractor)).collect::<Result<_, _>>()?;
        let started = Instant::now();
        for record in std::iter::once(call).chain(&offers) {
            bench.fold(record, drop);
        }
        fold_us[number % 2].push(started.elapsed().as_secs_f64() * 1e6);
    }
    match bench.open_count() {
        open if open == calls.len() => Ok(fold_us),
        open => Err(stuck(format!("{open} of {} negotiations are open", calls.len()))),
    }
}

/// The n-th call.
fn call(number: usize) -> Bytes {
    let to: Vec<String> = (0..CONTRACTORS).map(|n| format!("agent://{}", contractor_name(n))).collect();
    let document = json!({
        "envelope": {
            "msg_id": "call", "ts": "2026-11-20T21:00:00.000Z", "from": format!("agent://{}", initiator_name()), "to": to,
            "negotiation": format!("{}~bench-{number}", initiator_name()),
        },
        "payload": {
            "act": "cfp", "task": "deliver one parcel", "policy": POLICIES[number % 2], "reply_within_ms": 60_000,
        },
    });
    Bytes::from(document.to_string())
}

/// `high`, and the same with three tenths of the weight on reputation.
fn policies() -> Result<Vec<Policy>, BenchError> {
    let mut plain = policy_core::preset("high").ok_or_else(|| stuck("high is no preset"))?;
    plain.timers_ms.hard = schemas::policy::TIMER_MS_MAX;
    plain.id = format!("{}@1", POLICIES[0]);
    let mut weighing = plain.clone();
    weighing.id = format!("{}@1", POLICIES[1]);
    weighing.reputation = serde_json::from_value(json!({"domain": DOMAIN})).map_err(stuck)?;
    let attr = AttrName::try_new("reputation").map_err(stuck)?;
    let reputation = Weight { attr, dir: Direction::Higher, lo: 500_000, hi: 1_500_000, w: 300 };
    if let Some(price) = weighing.weights.first_mut() {
        price.w -= reputation.w;
    }
    weighing.weights.push(reputation);
    Ok(vec![plain, weighing])
}

/// What panels of the initiator have shown about each contractor, as an engine would have stored it.
async fn store_evidence(bus: &Bus) -> Result<(), BenchError> {
    let domain = DomainName::try_new(DOMAIN).map_err(stuck)?;
    let entry = |agent: AgentId| EvidenceEntry {
        subject: EvidenceSubject {
            domain: domain.clone(),
            agent,
            role: EvidenceRole::Panelist,
            initiator: initiator_name(),
        },
        counts: EvidenceCounts { runs: RUNS, total_e12: 2 * RUNS, fair_e12: RUNS, ..EvidenceCounts::default() },
    };
    let evidence = LaneEvidence { position: 1, entries: (0..CONTRACTORS).map(contractor_name).map(entry).collect() };
    let document = Bytes::from(serde_json::to_vec(&evidence).map_err(stuck)?);
    bus.blobs.put(subject::evidence_document(Lane(0)), evidence.position, document).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_without_and_with_reputation_are_pinned_and_folded() {
        let costs = measure(20).await.unwrap();
        assert!(costs.iter().all(|cost| cost.admit_us > 0.0 && cost.fold_us > 0.0), "{costs:?}");
    }
}
