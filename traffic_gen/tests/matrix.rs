//! The matrix of the acceptance: sizes x policies x buses, each cell a short run under Poisson load that is judged from what
//! the agents sent and received.
//!
//! All cells of a bus share it: every cell after the first runs on a log that is kept, with agents that come back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agents::control::ControlClient;
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use bus::Bus;
use bus::memory::{self, MemoryOptions};
use bus::nats::{self, NatsOptions};
use nats_server::{LocalServer, LocalServerOptions};
use schemas::AgentId;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::{Invariant, Verdict, recompute};
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::{Counts, Recorder};
use traffic_gen::trace::TraceFile;

/// Contractors per call, ascending: who registered for a smaller cell is part of every larger one.
const SIZES: [u32; 4] = [5, 9, 12, 50];
const POLICIES: [&str; 3] = ["low", "medium", "high"];
/// What agents can see broken, each to be checked in every cell.
const INVARIANTS: [Invariant; 12] = [
    Invariant::OneAward,
    Invariant::NoLostAdmission,
    Invariant::Recomputable,
    Invariant::Idempotent,
    Invariant::NoLateWinner,
    Invariant::FinalNotice,
    Invariant::Absorbing,
    Invariant::Terminates,
    Invariant::Sealed,
    Invariant::Pinned,
    Invariant::Authentic,
    Invariant::Bounded,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_size_and_policy_keeps_every_invariant_on_the_embedded_bus() {
    run_all(memory::open(MemoryOptions::default())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_size_and_policy_keeps_every_invariant_on_nats() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    run_all(nats::open(NatsOptions::new(server.url())).await.unwrap()).await;
}

async fn run_all(bus: Bus) {
    let exchange = Exchange::start(bus, ExchangeOptions::default()).await.unwrap();
    for contractors in SIZES {
        for policy in POLICIES {
            let cell = format!("{contractors} contractors, policy {policy}");
            let scenario = CallScenario {
                contractors,
                policy: Some(policy.to_owned()),
                rate: 50.0,
                duration: Duration::from_millis(160),
                run: format!("{policy}-{contractors}"),
                // Far above what a busy machine needs: under `high` the deadline must not be what closes.
                reply_within_ms: 30_000,
                ..CallScenario::default()
            };
            let folder = tempfile::tempdir().unwrap();
            let trace = folder.path().join("trace.jsonl");
            let (counts, verdict) = run(&exchange, &scenario, &trace).await;
            judge(&cell, &scenario, &counts, &verdict);
            judge_awards(&cell, &scenario, &trace);
        }
    }
    exchange.shutdown().await;
}

async fn run(exchange: &Exchange, scenario: &CallScenario, trace: &Path) -> (Counts, Verdict) {
    let control = ControlClient::try_new(exchange.url()).unwrap();
    let bus = exchange.bus.clone();
    let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
    let identity = |name: &AgentId| exchange.identity(name).unwrap();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let recorder = Arc::new(Recorder::start(Instant::now(), true, Some(TraceFile::create(trace).unwrap())));
    let population = Population::start(&access, scenario, Some(&recorder)).await.unwrap();
    live::call(&access, scenario, &recorder, &CancellationToken::new()).await.unwrap();
    population.stop().await.unwrap();
    let (counts, mut verdict) = recorder.finish().unwrap();
    recompute(&exchange.bus, &mut verdict).await.unwrap();
    exchange.check_bounds(&mut verdict);
    (counts, verdict)
}

fn judge(cell: &str, scenario: &CallScenario, counts: &Counts, verdict: &Verdict) {
    assert!(counts.cfps > 0, "{cell}");
    assert_eq!((counts.rounds, counts.awarded), (counts.cfps, counts.cfps), "{cell}: {:?}", counts.outcomes);
    assert_eq!(verdict.violated(), 0, "{cell}: {:?}", verdict.examples);
    for invariant in INVARIANTS {
        assert!(verdict.by_name.get(&invariant).is_some_and(|tally| tally.checked > 0), "{cell}: {invariant:?}");
    }
    assert!(counts.rejected.is_empty(), "{cell}: {:?}", counts.rejected);
    if scenario.policy.as_deref() == Some("high") {
        assert_eq!(counts.offers, counts.cfps * u64::from(scenario.contractors), "{cell}: completion 100 %");
    }
}

/// What the trace of the agents' own messages shows of each call.
#[derive(Default)]
struct Seen {
    reason: String,
    offers_at_close: u64,
    /// Per contractor: offers accepted by a gateway, and notices that are final for one.
    offered: BTreeMap<String, u32>,
    told: BTreeMap<String, u32>,
}

/// Under each policy the award comes when the policy says, and every offer ends in one final notice.
fn judge_awards(cell: &str, scenario: &CallScenario, trace: &Path) {
    let text = std::fs::read_to_string(trace).unwrap();
    let mut calls: BTreeMap<String, Seen> = BTreeMap::new();
    for line in text.lines() {
        note(&serde_json::from_str(line).unwrap(), &mut calls);
    }
    for (negotiation, seen) in calls {
        let expected = match scenario.policy.as_deref().unwrap() {
            "low" => ("k_valid", 1..=1),
            "high" => ("all_responded", u64::from(scenario.contractors)..=u64::from(scenario.contractors)),
            // Everybody, or whoever answered within the window.
            _ if seen.reason == "window" => ("window", 1..=u64::from(scenario.contractors)),
            _ => ("all_responded", u64::from(scenario.contractors)..=u64::from(scenario.contractors)),
        };
        assert_eq!(seen.reason, expected.0, "{cell}: {negotiation}");
        assert!(expected.1.contains(&seen.offers_at_close), "{cell}: {negotiation} {}", seen.offers_at_close);
        assert!(!seen.offered.is_empty() && seen.told == seen.offered, "{cell}: {negotiation} {:?}", seen.told);
    }
}

fn note(line: &Value, calls: &mut BTreeMap<String, Seen>) {
    let agent = || line["agent"].as_str().unwrap().to_owned();
    if line["event"] == "accepted" && line["act"] == "offer" {
        let negotiation = line["negotiation"].as_str().unwrap().to_owned();
        *calls.entry(negotiation).or_default().offered.entry(agent()).or_default() += 1;
    }
    if line["event"] != "received" || line["repeat"] == true {
        return;
    }
    let (envelope, payload) = (&line["delivery"]["envelope"], &line["delivery"]["payload"]);
    let seen = calls.entry(envelope["negotiation"].as_str().unwrap().to_owned()).or_default();
    match payload["act"].as_str().unwrap() {
        "inform" if payload["kind"] == "awarded" => {
            seen.reason = payload["reason"].as_str().unwrap().to_owned();
            seen.offers_at_close = payload["offers"].as_u64().unwrap();
        }
        "reject" => *seen.told.entry(agent()).or_default() += 1,
        // Final for a committed offer; the initiator has made none.
        "closed" if agent() != live::INITIATOR => *seen.told.entry(agent()).or_default() += 1,
        _ => {}
    }
}
