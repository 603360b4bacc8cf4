//! The whole suite, in the order it is printed.

use std::path::PathBuf;
use std::time::Duration;

use bus::Bus;
use bus::memory::MemoryOptions;
use clap::ValueEnum as _;
use nats_server::{LocalCluster, LocalServer, LocalServerOptions};
use schemas::record::RECORD_ENTRIES_MAX;

use super::bare::{self, Pace};
use super::durability::{self, LogPlace};
#[cfg(feature = "wasm")]
use super::processes;
use super::rounds::{self, BenchError, Way, on_server, stuck};
use super::{Row, admission, agora, budget, fold, overhead, panels, recovery, search, steps, teams};

/// Contractors per round, as in the paper's largest population.
pub(super) const CONTRACTORS: u32 = 12;
/// Rounds open at once in the closed loops.
pub(super) const OPEN: usize = 256;
/// Bargains open at once in the closed loops.
pub(super) const BARGAINS: usize = 128;
/// Calls, panels and bargains per second of the latency rows.
pub(super) const LATENCY_RATE: f64 = 10.0;
/// Populations of the linearity rows.
const POPULATIONS: [u32; 5] = [5, 12, 50, 200, 1000];

/// A part of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Whole rounds, embedded and on NATS, beside the bare pattern.
    Rounds,
    /// What each stage of an offer costs, beside what it must cost at least.
    Budget,
    /// The gateway's checks.
    Admission,
    /// The fold.
    Core,
    /// Cost per offer with growing populations.
    Populations,
    /// Steps of bargains, embedded and on NATS, beside bare request and reply.
    Bargains,
    /// The log alone, in every mode of durability.
    Log,
    /// Recovery of a killed engine.
    Recovery,
    /// Whole rounds, embedded, with metrics read and traces exported, beside the same without.
    Telemetry,
    /// Transactions of Agora by kind of routine, beside a bare HTTP service; one run of a routine. With the feature wasm:
    /// modules as well, and decisions of others beside modules that have to be stopped.
    Agora,
    // Before searches: of what they free, teams would be seen to take nothing.
    /// Teams in the fold, and through everything beside rounds and bargains.
    Teams,
    /// Searches for agents, among few and among many.
    Search,
    /// Answers of panels in the fold and through everything, beside steps of bargains; what panels keep, and what their results
    /// take to compute.
    Panels,
}

impl Part {
    /// Whether it starts processes of the exchange.
    pub fn starts_processes(&self) -> bool {
        matches!(self, Self::Recovery | Self::Panels) || (cfg!(feature = "wasm") && matches!(self, Self::Agora))
    }
}

/// How long each part takes, and whose processes it starts.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    /// A build of `llmx`: engines that are killed, and contractors of their own process.
    pub exchange: PathBuf,
    /// Each closed loop.
    pub closed_loop: Duration,
    /// Each latency run.
    pub latency: Duration,
    /// Most open negotiations in the core.
    pub open_max: usize,
    /// Open negotiations an engine recovers.
    pub recovered: u32,
    /// Pairs of closed loops, without and with telemetry.
    pub telemetry_pairs: usize,
    /// Agents among whom is searched at most.
    pub searched_max: usize,
    /// Pairs of loads, without and with modules that do what their limits are for.
    pub isolation_pairs: usize,
}

impl BenchPlan {
    /// What figures are measured with; recovered engines are those of `exchange`, a build of `llmx`.
    pub fn full(exchange: PathBuf) -> Self {
        Self {
            exchange,
            closed_loop: Duration::from_secs(6),
            latency: Duration::from_secs(12),
            open_max: 1_000_000,
            recovered: 100_000,
            telemetry_pairs: 10,
            searched_max: 1_000_000,
            isolation_pairs: 6,
        }
    }

    /// A shorter plan, for a look rather than a figure.
    pub fn quick(exchange: PathBuf) -> Self {
        Self {
            exchange,
            closed_loop: Duration::from_secs(2),
            latency: Duration::from_secs(3),
            open_max: 100_000,
            recovered: 10_000,
            telemetry_pairs: 3,
            searched_max: 100_000,
            isolation_pairs: 3,
        }
    }
}

fn memory() -> Bus {
    bus::memory::open(MemoryOptions::default())
}

/// Deliveries and acknowledgements over NATS, the log and the register in this process.
fn without_log(nats: &Bus) -> Bus {
    Bus { pub_sub: nats.pub_sub.clone(), ..memory() }
}

/// Runs the parts asked for; `tell` hears each row as it comes.
///
/// # Errors
/// [`BenchError`]: the rows told before stand.
pub async fn run(plan: &BenchPlan, parts: &[Part], mut tell: impl FnMut(&Row)) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        tell(&row);
        rows.push(row);
    };
    // The servers run until the end: their clients would report their loss in the middle of other measurements.
    let mut servers = Vec::new();
    for part in Part::value_variants().iter().filter(|part| parts.contains(part)) {
        match part {
            Part::Rounds => {
                in_memory(plan, &mut add).await?;
                servers.extend(on_nats(plan, &mut add).await?);
            }
            Part::Budget => servers.push(staged(plan, &mut add).await?),
            Part::Admission => {
                let cost = admission::measure().await?;
                add(Row::new("admission", cost.admit_us, "us/message").under(cost.parse_us).aiming_at("<= 8 us"));
                add(Row::new("admission.check_message", cost.check_us, "us/message").under(cost.parse_us));
            }
            Part::Core => core(plan, &mut add).await?,
            Part::Populations => populations(plan, &mut add).await?,
            Part::Bargains => servers.push(bargains(plan, &mut add).await?),
            Part::Log => durable(plan, &mut add).await?,
            Part::Recovery => recovered(plan, &mut add).await?,
            Part::Telemetry => told(plan, &mut add).await?,
            Part::Agora => {
                agora::measure(plan.closed_loop / 2, &mut add).await?;
                #[cfg(feature = "wasm")]
                isolated(plan, &mut add).await?;
            }
            Part::Search => searched(plan, &mut add).await?,
            Part::Teams => servers.push(teams::measure(plan, &mut add).await?),
            Part::Panels => servers.push(panels::measure(plan, &mut add).await?),
        }
    }
    Ok(rows)
}

/// Decisions of others beside a contractor whose modules do what their limits are for.
#[cfg(feature = "wasm")]
async fn isolated(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let rows = processes::isolation::measure(&plan.exchange, plan.isolation_pairs, plan.closed_loop).await?;
    rows.into_iter().for_each(add);
    Ok(())
}

async fn in_memory(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let contractors = CONTRACTORS as usize;
    let (ceiling, _) = bare::run(memory().pub_sub, contractors, Pace::Closed(OPEN), plan.closed_loop / 2).await?;
    add(Row::new("rounds.bare.memory", ceiling.rounds_per_s(), "rounds/s"));
    let ours = rounds::closed_loop(memory(), CONTRACTORS, OPEN, plan.closed_loop, Way::Bus, "memory").await?;
    add(Row::new("rounds.memory", ours.rounds_per_s(), "rounds/s")
        .under(ceiling.rounds_per_s())
        .aiming_at(">= 8000 rounds/s"));
    let ours = rounds::closed_loop(memory(), CONTRACTORS, OPEN, plan.closed_loop, Way::WebSocket, "websocket").await?;
    add(Row::new("rounds.memory.websocket", ours.rounds_per_s(), "rounds/s")
        .under(ceiling.rounds_per_s())
        .aiming_at(">= 1500 rounds/s"));
    Ok(())
}

async fn on_nats(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<[LocalServer; 2], BenchError> {
    let (server, nats) = on_server(LocalServerOptions::default()).await?;
    let contractors = CONTRACTORS as usize;
    let (ceiling, _) = bare::run(nats.pub_sub.clone(), contractors, Pace::Closed(OPEN), plan.closed_loop).await?;
    add(Row::new("rounds.bare.nats", ceiling.rounds_per_s(), "rounds/s"));
    let ceiling = ceiling.rounds_per_s();
    let ours = rounds::closed_loop(without_log(&nats), CONTRACTORS, OPEN, plan.closed_loop, Way::Bus, "nolog").await?;
    add(Row::new("rounds.nats.without_log", ours.rounds_per_s(), "rounds/s").under(ceiling).aiming_at(">= 0.50"));
    let ours = rounds::closed_loop(nats.clone(), CONTRACTORS, OPEN, plan.closed_loop, Way::Bus, "log").await?;
    add(Row::new("rounds.nats.log", ours.rounds_per_s(), "rounds/s").under(ceiling).aiming_at(">= 0.35"));
    latency(plan, &nats, add).await?;
    let options = LocalServerOptions { sync_always: true, ..LocalServerOptions::default() };
    let (always, nats) = on_server(options).await?;
    let ours = rounds::closed_loop(nats, CONTRACTORS, OPEN, plan.closed_loop, Way::Bus, "sync").await?;
    add(Row::new("rounds.nats.log_sync_always", ours.rounds_per_s(), "rounds/s").under(ceiling).aiming_at(">= 0.12"));
    Ok([server, always])
}

async fn staged(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<LocalServer, BenchError> {
    let (server, nats) = on_server(LocalServerOptions::default()).await?;
    for cost in budget::measure(&nats).await? {
        let row = Row::new(format!("budget.{}", cost.stage), cost.us, "us/message");
        let row = Row { allocations: cost.allocations, ..row };
        add(match cost.floor_us {
            Some(floor) => row.under(floor),
            None => row,
        });
    }
    let round = budget::whole_round(plan.closed_loop / 2).await?;
    add(Row::new("budget.whole_round_embedded", round, "us/round"));
    Ok(server)
}

async fn latency(plan: &BenchPlan, nats: &Bus, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let pace = Pace::Every(Duration::from_secs_f64(1.0 / LATENCY_RATE));
    let (_, bare) = bare::run(nats.pub_sub.clone(), CONTRACTORS as usize, pace, plan.latency / 2).await?;
    let ours = rounds::at_rate(nats.clone(), CONTRACTORS, LATENCY_RATE, plan.latency, "latency").await?;
    for quantile in [0.50, 0.95] {
        let name = format!("latency.nats.decision.p{:.0}", quantile * 100.0);
        // The bare pattern's decision is its second exchange of messages: call to last acknowledgement.
        let (decision, ceiling) = (ours.decision.quantile_ms(quantile), bare.quantile_ms(quantile));
        add(Row::new(name, decision, "ms").under(ceiling).aiming_at("<= 2"));
    }
    Ok(())
}

/// Measures what only computes, on a thread of its own: the suite can be dropped meanwhile.
pub(super) async fn computed<T: Send + 'static>(
    measure: impl FnOnce() -> Result<T, BenchError> + Send + 'static,
) -> Result<T, BenchError> {
    let measured = tokio::task::spawn_blocking(measure).await;
    measured.map_err(|error| stuck(format!("a measurement did not end: {error}")))?
}

async fn core(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let base = computed(|| fold::measure(100)).await?;
    add(Row::new("core.message.open_100", base.us_per_message, "us/message"));
    for open in [10_000, plan.open_max] {
        let cost = computed(move || fold::measure(open)).await?;
        let row = Row::new(format!("core.message.open_{open}"), cost.us_per_message, "us/message");
        add(row.under(base.us_per_message).aiming_at("<= 1.5"));
        if open == plan.open_max {
            let row = Row::new("core.bytes_per_open_negotiation", cost.bytes_per_negotiation, "bytes");
            add(row.under(4096.0).aiming_at("<= 4096 bytes"));
        } else {
            let row = Row::new("core.bytes_per_offer", cost.bytes_per_offer, "bytes");
            add(row.under(512.0).aiming_at("<= 512 bytes"));
        }
    }
    Ok(())
}

/// Searches among growing numbers of agents, with the times the project set itself.
async fn searched(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let targets_ms = [(1_000, 1), (100_000, 5), (1_000_000, 20)];
    for (agents, target_ms) in targets_ms.into_iter().filter(|(agents, _)| *agents <= plan.searched_max) {
        let cost = computed(move || search::measure(agents)).await?;
        let row = |what: &str, value, unit| Row::new(format!("search.{what}.agents_{agents}"), value, unit);
        add(row("p50", cost.p50_ms, "ms"));
        add(row("p99", cost.p99_ms, "ms").aiming_at(format!("<= {target_ms} ms")));
        let registering = row("p99_registering", cost.p99_registering_ms, "ms").under(cost.p99_ms);
        add(registering.aiming_at("<= 2 times"));
        add(row("built", cost.built_per_s, "agents/s").aiming_at(">= 20000 agents/s"));
        // Among few, what the process holds anyhow is more than the index.
        if agents >= 100_000 {
            add(row("bytes_per_agent", cost.bytes_per_agent, "bytes").under(1024.0).aiming_at("<= 1024 bytes"));
        }
    }
    Ok(())
}

/// Cost per offer at growing populations: linear traffic keeps it constant.
async fn populations(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let mut base = None;
    for contractors in POPULATIONS {
        let open = (OPEN * CONTRACTORS as usize / contractors as usize).clamp(2, OPEN);
        let run = format!("n{contractors}");
        let ours = rounds::closed_loop(memory(), contractors, open, plan.closed_loop / 2, Way::Bus, &run).await?;
        let us_per_offer = 1e6 / (ours.rounds_per_s() * f64::from(contractors)).max(f64::EPSILON);
        let base = *base.get_or_insert(us_per_offer);
        add(Row::new(format!("population.{contractors}"), us_per_offer, "us/offer").under(base));
    }
    Ok(())
}

/// Steps of bargains; the ceiling is as many pairs that answer each other on the bare bus.
async fn bargains(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<LocalServer, BenchError> {
    let core = computed(|| steps::core(BARGAINS, 50)).await?;
    add(Row::new("steps.core", core, "steps/s"));
    let ceiling = steps::bare(memory().pub_sub, BARGAINS, plan.closed_loop / 2).await?;
    add(Row::new("steps.bare.memory", ceiling, "steps/s"));
    let ours = steps::closed_loop(memory(), BARGAINS, plan.closed_loop, "memory").await?;
    add(Row::new("steps.memory", ours, "steps/s").under(ceiling));
    let (server, nats) = on_server(LocalServerOptions::default()).await?;
    let ceiling = steps::bare(nats.pub_sub.clone(), BARGAINS, plan.closed_loop / 2).await?;
    add(Row::new("steps.bare.nats", ceiling, "steps/s"));
    let ours = steps::closed_loop(nats, BARGAINS, plan.closed_loop, "nats").await?;
    add(Row::new("steps.nats.log", ours, "steps/s").under(ceiling));
    Ok(server)
}

/// The log alone, as safe as the operator asks it to be: see docs/durability.md.
async fn durable(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    for sync_always in [false, true] {
        let options = LocalServerOptions { sync_always, ..LocalServerOptions::default() };
        let mode = if sync_always { ".sync_always" } else { "" };
        let server = LocalServer::start(options.clone()).await?;
        let place = LogPlace { servers: server.url(), replicas: 1 };
        appended(plan, &format!("log.r1{mode}"), &place, add).await?;
        drop(server);
        let cluster = LocalCluster::start(options).await?;
        let place = LogPlace { servers: cluster.urls(), replicas: 3 };
        appended(plan, &format!("log.r3{mode}"), &place, add).await?;
    }
    Ok(())
}

async fn appended(plan: &BenchPlan, name: &str, place: &LogPlace, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let pipelined = durability::pipelined(place, plan.closed_loop / 2).await?;
    add(Row::new(format!("{name}.bare_pipelined"), pipelined, "entries/s"));
    for (kind, entries_max) in [("single", 1), ("grouped", RECORD_ENTRIES_MAX)] {
        let ours = durability::append(place, entries_max, plan.closed_loop / 2).await?;
        add(Row::new(format!("{name}.{kind}"), ours.entries_per_s, "entries/s").under(ours.ceiling));
        if entries_max > 1 {
            add(Row::new(format!("{name}.{kind}.entries_per_record"), ours.entries_per_record, "entries"));
        }
    }
    Ok(())
}

async fn recovered(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    const MIB: f64 = 1024.0 * 1024.0;
    let took = recovery::measure(&plan.exchange, plan.recovered).await?;
    let name = format!("recovery.open_{}", plan.recovered);
    add(Row::new(format!("{name}.from_checkpoint"), took.from_checkpoint_s, "s").aiming_at("<= 10 s"));
    add(Row::new(format!("{name}.from_log"), took.from_log_s, "s"));
    add(Row::new(format!("{name}.cold_takeover"), took.cold_takeover_s, "s").aiming_at("<= 3 s"));
    let (before, after) = (took.resident_before as f64 / MIB, took.resident_after as f64 / MIB);
    add(Row::new(format!("{name}.memory"), after, "MiB").under(before).aiming_at("<= 1.10"));
    Ok(())
}

/// What telling costs. The ceiling is the same exchange that tells nobody.
async fn told(plan: &BenchPlan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let cost = overhead::measure(memory, (CONTRACTORS, OPEN), plan.telemetry_pairs, plan.closed_loop / 2).await?;
    let [without, with] = cost.rounds_per_s();
    let row = Row::new("telemetry.metrics_and_1_percent_traced", with, "rounds/s");
    add(row.under(without).aiming_at(">= 0.95"));
    let [without, with] = cost.cpu_us();
    add(Row::new("telemetry.processor_time", with, "us/round").under(without).aiming_at("<= 1.05"));
    add(Row::new("telemetry.spans_exported", cost.spans as f64, "spans"));
    add(Row::new("telemetry.spans_lost", cost.lost as f64, "spans").aiming_at("0"));
    add(Row::new("telemetry.scrape", cost.scrape_bytes as f64 / 1024.0, "KiB"));
    Ok(())
}
