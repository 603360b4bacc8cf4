//! The log fills up in the middle of a run, an engine dies while it is full, and then there is room again: senders are
//! told the remedy, nothing acknowledged is lost, and everything goes on without anybody's help.

use std::sync::Arc;
use std::time::Duration;

use agents::ContractorConfig;
use agents::contractor::Distribution;
use agents::control::ControlClient;
use agents::transport::Transport;
use agents::transport::websocket::WebSocketTransport;
use archive::audit::{self, LoggedRecord};
use bus::nats::{self, LOG_STREAM, NatsOptions};
use bus::{Bus, BusError};
use bytes::Bytes;
use nats_server::{LocalServer, LocalServerOptions};
use policy_engine::{Engine, EngineConfig, EngineHandle, EngineMetrics, LanePhase};
use prometheus::Registry;
use reqwest::{Client, Response};
use schemas::{AgentId, Lane};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::{Invariant, recompute};
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::{Counts, Recorder};

/// The run takes some 15 s; hanging is failing.
const TEST_MAX: Duration = Duration::from_secs(60);
/// Room for some 70 calls, half of the load.
const LOG_BYTES_MAX: u64 = 384 * 1024;
/// How long the store stays full: longer than an engine that died counts as alive.
const FULL_FOR: Duration = Duration::from_secs(2);
/// Ids tried for the second engine.
const IDS_MAX: u32 = 8;
/// Negotiations called for while the store is full, over all lanes.
const JOBS: u32 = 16;
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_fills_up_loses_nothing_and_goes_on_once_there_is_room() {
    timeout(TEST_MAX, Box::pin(negotiate_through_a_full_store())).await.expect("the run ends in time");
}

async fn negotiate_through_a_full_store() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let limited = NatsOptions { log_bytes_max: Some(LOG_BYTES_MAX), ..NatsOptions::new(server.url()) };
    let bus = nats::open(limited).await.unwrap();
    let exchange = Exchange::start(bus.clone(), ExchangeOptions::default()).await.unwrap();
    let doomed = second_engine(&bus).await;

    let scenario = scenario();
    let recorder = Arc::new(Recorder::start(Instant::now(), true, None));
    let control = ControlClient::try_new(exchange.url()).unwrap();
    let transport = |_: &AgentId| Arc::new(WebSocketTransport::new(exchange.url())) as Arc<dyn Transport>;
    let identity = |name: &AgentId| exchange.identity(name).unwrap();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let population = Population::start(&access, &scenario, Some(&recorder)).await.unwrap();
    let cancel = CancellationToken::new();
    let calling = live::call(&access, &scenario, &recorder, &cancel);
    let filling = fill_and_make_room(&server, &exchange, &recorder, doomed);
    let (shed, (kept, when_full)) = tokio::join!(calling, filling);
    assert_eq!(shed.unwrap(), 0);
    population.stop().await.unwrap();

    let (counts, mut verdict) = recorder.finish().unwrap();
    recompute(&bus, &mut verdict).await.unwrap();
    exchange.check_bounds(&mut verdict);
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    for invariant in [Invariant::NoLostAdmission, Invariant::Recomputable, Invariant::FinalNotice] {
        assert!(verdict.by_name.get(&invariant).is_some_and(|tally| tally.checked > 0), "{invariant:?}");
    }
    assert_eq!(logged_until(&bus, &kept).await, as_text(&kept), "what was in the full log still stands in it");
    assert_went_on(&when_full, &counts);
    assert!(exchange.engine().is_ready(), "{:?}", exchange.engine().status());
    exchange.shutdown().await;
}

/// Every call was heard in the end and ended; many were made and completed only after there was room.
fn assert_went_on(when_full: &Counts, counts: &Counts) {
    assert!(when_full.cfps > 0 && when_full.rounds < when_full.cfps, "nothing was open: {when_full:?}");
    assert_eq!(counts.rounds, counts.cfps, "{counts:?}");
    assert_eq!((counts.unanswered, counts.rejected.len()), (0, 0), "{counts:?}");
    let completed = |counts: &Counts| counts.outcomes.get("completed").copied().unwrap_or_default();
    assert!(completed(counts) >= completed(when_full) + 30, "{:?} after {:?}", counts.outcomes, when_full.outcomes);
}

/// Waits until the log is full, looks what that is like, and makes room. Returns what the log then held, and the counts.
async fn fill_and_make_room(
    server: &LocalServer,
    exchange: &Exchange,
    recorder: &Recorder,
    doomed: EngineHandle,
) -> (Vec<LoggedRecord>, Counts) {
    until_full(&exchange.bus).await;
    doomed.abort();
    assert_names_the_remedy(post(exchange, "job-0").await).await;
    sleep(FULL_FOR).await;

    let (kept, counts) = (audit::read_bus(&exchange.bus).await.unwrap().records, recorder.counts());
    // Some are of the dead engine's lanes, of which no owner is heard: the full store is the cause there, too.
    for number in 0..JOBS {
        assert_names_the_remedy(post(exchange, &format!("job-{number}")).await).await;
    }
    let lanes = exchange.engine().status().lanes;
    let orphans = lanes.iter().filter(|lane| matches!(lane.phase, LanePhase::Claiming)).count();
    assert!(orphans > 0, "no lane of the dead engine waits for its claim: {lanes:?}");
    raise_limit(server).await;

    while !exchange.engine().status().lanes.iter().all(|lane| lane.phase == LanePhase::Owner) {
        sleep(POLL).await;
    }
    // Gateways hear of a new owner within a tenth of a second.
    for number in 0..JOBS {
        while post(exchange, &format!("job-{number}")).await.status() != 202 {
            sleep(POLL).await;
        }
    }
    (kept, counts)
}

/// Fills what is left with bytes that are no record, which every reader skips; the smallest record no longer fits.
async fn until_full(bus: &Bus) {
    loop {
        match bus.log.append(Lane(0), Bytes::from_static(b"x")).await {
            Err(BusError::Full(_)) => return,
            Ok(_) => sleep(POLL).await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn raise_limit(server: &LocalServer) {
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let mut config = context.get_stream(LOG_STREAM).await.unwrap().cached_info().config.clone();
    config.max_bytes = 1 << 30;
    context.update_stream(config).await.unwrap();
}

/// A call by an agent that no recorder watches, each time the same bytes.
async fn post(exchange: &Exchange, negotiation: &str) -> Response {
    let carol = exchange.identity(&AgentId::try_new("carol").unwrap()).unwrap();
    let call = json!({
        "envelope": {
            "msg_id": negotiation, "ts": "2026-11-20T20:00:00Z", "from": "agent://carol", "to": ["topic://courier"],
            "negotiation": negotiation, "scope": {"consent": "opt-in", "ttl": 3600}
        },
        "payload": {"act": "cfp"}
    });
    let request = Client::builder().no_proxy().build().unwrap().post(format!("{}/v1/messages", exchange.url()));
    request.bearer_auth(carol.token.current()).json(&call).send().await.unwrap()
}

async fn assert_names_the_remedy(response: Response) {
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let problem: Value = response.json().await.unwrap();
    assert_eq!((status, &problem["code"]), (503, &json!("unavailable")), "{problem}");
    assert_eq!(retry_after.as_deref(), Some("5"));
    let detail = problem["detail"].as_str().unwrap();
    for words in ["the store is full", "nothing was stored", "archive and checkpoint", "max_bytes", "same msg_id"] {
        assert!(detail.contains(words), "{words} in {detail}");
    }
}

/// The beginning of the log, as far as `kept` goes.
async fn logged_until(bus: &Bus, kept: &[LoggedRecord]) -> Vec<String> {
    let is_kept = |record: &LoggedRecord| {
        kept.iter().rev().find(|last| last.lane == record.lane).is_some_and(|last| record.seq <= last.seq)
    };
    let mut records = audit::read_bus(bus).await.unwrap().records;
    records.retain(is_kept);
    as_text(&records)
}

fn as_text(records: &[LoggedRecord]) -> Vec<String> {
    records.iter().map(|record| format!("{record:?}")).collect()
}

/// An engine that has taken at least one lane over. Ids decide which lanes are whose; one in sixteen has none.
async fn second_engine(bus: &Bus) -> EngineHandle {
    for number in 0..IDS_MAX {
        let metrics = Arc::new(EngineMetrics::new(&Registry::new()).unwrap());
        let config = EngineConfig::new(format!("doomed-{number}"));
        let engine = Engine::start(bus.clone(), config, metrics, None).await.unwrap();
        if engine.status().lanes.iter().any(|lane| lane.phase == LanePhase::Owner) {
            return engine;
        }
        engine.shutdown().await;
    }
    panic!("none of {IDS_MAX} engines was given a lane");
}

fn scenario() -> CallScenario {
    CallScenario {
        contractors: 5,
        policy: Some("high".to_owned()),
        rate: 20.0,
        duration: Duration::from_secs(7),
        reply_within_ms: 20_000,
        contractor: ContractorConfig {
            confirm_delay_ms: Distribution::Uniform { lo: 0, hi: 500 },
            perform_ms: Distribution::Uniform { lo: 0, hi: 500 },
            ..ContractorConfig::default()
        },
        ..CallScenario::default()
    }
}
