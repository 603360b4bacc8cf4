//! The whole suite, in the order it is printed.

use std::time::Duration;

use bus::Bus;
use bus::memory::MemoryOptions;
use bus::nats::NatsOptions;
use bus::nats::server::{LocalServer, LocalServerOptions};

use super::bare::{self, Pace};
use super::rounds::{self, BenchError, Way};
use super::{Row, admission, fold};

/// Contractors per round, as in the paper's largest population.
const CONTRACTORS: u32 = 12;
/// Rounds open at once in the closed loops.
const OPEN: usize = 256;
/// Calls per second of the latency rows.
const LATENCY_RATE: f64 = 10.0;
/// Populations of the linearity rows.
const POPULATIONS: [u32; 5] = [5, 12, 50, 200, 1000];

/// How long each part takes.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Each closed loop.
    pub closed_loop: Duration,
    /// Each latency run.
    pub latency: Duration,
    /// Most open negotiations in the core.
    pub open_max: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { closed_loop: Duration::from_secs(6), latency: Duration::from_secs(12), open_max: 1_000_000 }
    }
}

impl Plan {
    /// A shorter plan, for a look rather than a figure.
    #[must_use]
    pub fn quick() -> Self {
        Self { closed_loop: Duration::from_secs(2), latency: Duration::from_secs(3), open_max: 100_000 }
    }
}

fn memory() -> Bus {
    bus::memory::open(MemoryOptions::default())
}

/// Deliveries and acknowledgements over NATS, the log and the register in this process.
fn without_log(nats: &Bus) -> Bus {
    Bus { pub_sub: nats.pub_sub.clone(), ..memory() }
}

/// Runs everything; `tell` hears each row as it comes.
///
/// # Errors
/// [`BenchError`]: the rows told before stand.
pub async fn run(plan: Plan, mut tell: impl FnMut(&Row)) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        tell(&row);
        rows.push(row);
    };
    in_memory(plan, &mut add).await?;
    // The servers run until the end: their clients would report their loss in the middle of other measurements.
    let _servers = on_nats(plan, &mut add).await?;
    let cost = admission::measure().await?;
    add(Row::new("admission", cost.admit_us, "us/message").under(cost.parse_us).aiming_at("<= 8 us"));
    add(Row::new("admission.check_message", cost.check_us, "us/message").under(cost.parse_us));
    core(plan, &mut add)?;
    populations(plan, &mut add).await?;
    Ok(rows)
}

async fn in_memory(plan: Plan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let ceiling = bare::run(memory().pub_sub, CONTRACTORS as usize, Pace::Closed(OPEN), plan.closed_loop / 2).await?;
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

async fn on_nats(plan: Plan, add: &mut impl FnMut(Row)) -> Result<[LocalServer; 2], BenchError> {
    let server = LocalServer::start(LocalServerOptions::default()).await?;
    let nats = bus::nats::open(NatsOptions::new(server.url())).await?;
    let contractors = CONTRACTORS as usize;
    let ceiling = bare::run(nats.pub_sub.clone(), contractors, Pace::Closed(OPEN), plan.closed_loop).await?;
    add(Row::new("rounds.bare.nats", ceiling.rounds_per_s(), "rounds/s"));
    let ceiling = ceiling.rounds_per_s();
    let ours = rounds::closed_loop(without_log(&nats), CONTRACTORS, OPEN, plan.closed_loop, Way::Bus, "nolog").await?;
    add(Row::new("rounds.nats.without_log", ours.rounds_per_s(), "rounds/s").under(ceiling).aiming_at(">= 0.50"));
    let ours = rounds::closed_loop(nats.clone(), CONTRACTORS, OPEN, plan.closed_loop, Way::Bus, "log").await?;
    add(Row::new("rounds.nats.log", ours.rounds_per_s(), "rounds/s").under(ceiling).aiming_at(">= 0.35"));
    latency(plan, &nats, add).await?;
    let options = LocalServerOptions { sync_always: true, ..LocalServerOptions::default() };
    let always = LocalServer::start(options).await?;
    let nats = bus::nats::open(NatsOptions::new(always.url())).await?;
    let ours = rounds::closed_loop(nats, CONTRACTORS, OPEN, plan.closed_loop, Way::Bus, "sync").await?;
    add(Row::new("rounds.nats.log_sync_always", ours.rounds_per_s(), "rounds/s").under(ceiling).aiming_at(">= 0.12"));
    Ok([server, always])
}

async fn latency(plan: Plan, nats: &Bus, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let pace = Pace::Every(Duration::from_secs_f64(1.0 / LATENCY_RATE));
    let bare = bare::run(nats.pub_sub.clone(), CONTRACTORS as usize, pace, plan.latency / 2).await?;
    let ours = rounds::at_rate(nats.clone(), CONTRACTORS, LATENCY_RATE, plan.latency, "latency").await?;
    for quantile in [0.50, 0.95] {
        let name = format!("latency.nats.decision.p{:.0}", quantile * 100.0);
        // The bare pattern's decision is its second exchange of messages: call to last acknowledgement.
        let (decision, ceiling) = (ours.decision.quantile_ms(quantile), bare.to_last_ack.quantile_ms(quantile));
        add(Row::new(name, decision, "ms").under(ceiling).aiming_at("<= 2"));
    }
    Ok(())
}

fn core(plan: Plan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
    let base = fold::measure(100)?;
    add(Row::new("core.message.open_100", base.us_per_message, "us/message"));
    for open in [10_000, plan.open_max] {
        let cost = fold::measure(open)?;
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

/// Cost per offer at growing populations: linear traffic keeps it constant.
async fn populations(plan: Plan, add: &mut impl FnMut(Row)) -> Result<(), BenchError> {
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
