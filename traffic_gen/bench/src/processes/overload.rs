//! What an exchange does of more than it can: plain clients call at a rate that no answer changes, from half of the most to ten
//! times as much, while one agent in a process of its own calls little.
//!
//! nats-server, engines and gateways share one core, the clients have another (Linux, `taskset`). The most is the best of a ramp
//! in the same run. Each rate has an exchange of its own.

mod plain_client;
mod workload;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gateway::keys::{Claims, SigningKey};
use schemas::AgentId;
use serde_json::json;
use tokio::time::{Instant, sleep};

pub use self::plain_client::{PlainLoad, PlainSummary, run as run_plain_clients};
pub use self::workload::Workload;
use super::exchange::Servers;
use super::search::MostSearch;
use super::{MeasuredBuild, ProcessFigures, ProcessRow};
use crate::rounds::{BenchError, stuck};
use crate::service::{Launcher, Service};

/// Callers, the WebSockets they share, and contractors.
const CALLERS: usize = 60;
const CONNECTIONS: usize = 3;
const CONTRACTORS: usize = 20;
/// Calls per second of the agent that calls little, and its name.
const CALM_PER_S: f64 = 5.0;
const CALM: &str = "calm";
const CALM_CONTRACTOR: &str = "calm-contractor";
/// The first rate of a ramp, and by how much it rises.
const RAMP_FIRST: f64 = 200.0;
const RAMP: f64 = 1.3;
/// How long ends are waited for, in seconds: the calm agent's as long as a call may take.
const DRAIN_S: f64 = 5.0;
const CALM_DRAIN_S: f64 = 30.0;
/// The calm agent goes on so many seconds behind the load: the last of its calls show when it is over.
const CALM_BEHIND_S: f64 = 3.0;
/// Longest that a process of clients takes beyond its load.
const CLIENTS_TIMEOUT: Duration = Duration::from_secs(90);
/// Between two looks at the memory of processes.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
const BYTES_PER_MB: f64 = 1_048_576.0;
/// Tokens live as long as the longest run.
const TOKEN_LIFETIME_S: u64 = 6 * 3600;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct OverloadPlan {
    /// What is measured.
    pub build: MeasuredBuild,
    /// This program: plain clients are processes of it (`llmx-lab bench --plain-clients`).
    pub clients: std::path::PathBuf,
    /// Engines.
    pub engines: u8,
    /// Gateways.
    pub gateways: u8,
    /// Loads, one after another; each has workloads in turn.
    pub loads: Vec<Vec<Workload>>,
    /// How long calls are made at each rate.
    pub calling: Duration,
    /// The same in a step of the ramp.
    pub ramping: Duration,
    /// What is offered, in parts of the most.
    pub factors: Vec<f64>,
    /// Whether five times as much is offered for the last five of every twenty seconds.
    pub bursts: bool,
}

/// Measures everything the plan asks for.
///
/// # Errors
/// [`BenchError`]: the rows given before stand. No process is left behind in any case.
pub async fn run(
    plan: &OverloadPlan,
    mut on_row: impl FnMut(&ProcessRow),
    on_progress: impl Fn(&str),
) -> Result<Vec<ProcessRow>, BenchError> {
    let mut rows = Vec::new();
    for load in &plan.loads {
        let name = match load.as_slice() {
            [only] => only.into(),
            _ => "mixed",
        };
        let most = most(plan, load, |rate| on_progress(&format!("{name}, ramp, {rate:.0} calls/s"))).await?;
        for &factor in &plan.factors {
            on_progress(&format!("{name}, {factor} of {most:.0} calls/s"));
            let exchange = OverloadedExchange::start(plan).await?;
            let mut figures = ProcessFigures::default();
            figures.add("factor", factor);
            exchange.measure(load, factor * most, plan, most, &mut figures).await?;
            let situation = if plan.bursts { "offered, and five times as much in bursts" } else { "offered" };
            rows.push(ProcessRow { via: name, situation, figures, against: None, ratio: None });
            rows.last().into_iter().for_each(&mut on_row);
        }
    }
    Ok(rows)
}

/// The most that is completed per second, of rising rates on one exchange.
async fn most(plan: &OverloadPlan, load: &[Workload], on_step: impl Fn(f64)) -> Result<f64, BenchError> {
    let exchange = OverloadedExchange::start(plan).await?;
    let mut search = MostSearch::new(RAMP_FIRST, RAMP);
    while let Some(rate) = search.next_rate() {
        on_step(rate);
        let mut flood = exchange.flood(load, rate, plan.ramping, false)?;
        search.note(rate, summary(&mut flood, plan.ramping).await?.completed_per_s);
    }
    Ok(search.best)
}

/// An exchange on one core, and clients that may use another.
struct OverloadedExchange {
    servers: Servers,
    clients: Launcher,
    key: SigningKey,
}

impl OverloadedExchange {
    async fn start(plan: &OverloadPlan) -> Result<Self, BenchError> {
        let servers = Servers::start(&plan.build, plan.engines, plan.gateways).await?;
        let pem = servers.launcher.folder.path().join("run/keys/signing-key.pem");
        let key = SigningKey::from_pem(&std::fs::read_to_string(pem).map_err(stuck)?).map_err(stuck)?;
        let exchange = Self { servers, clients: Launcher::new(&plan.clients)?, key };
        exchange.register().await?;
        let nats = exchange.servers.nats.pid().ok_or_else(|| stuck("nats-server is stopped"))?;
        let others = exchange.servers.engines.iter().chain(&exchange.servers.gateways).map(Service::id);
        [nats].into_iter().chain(others).try_for_each(|pid| pin(pid, 0))?;
        Ok(exchange)
    }

    async fn register(&self) -> Result<(), BenchError> {
        let client = reqwest::Client::builder().no_proxy().build().map_err(stuck)?;
        let registration = json!({"topics": ["plain"], "consent": {"default": "allow"}});
        let agents = names("contractor", CONTRACTORS).chain([CALM_CONTRACTOR.to_owned()]);
        for agent in agents.chain(names("caller", CALLERS)).chain([CALM.to_owned()]) {
            let url = format!("{}/v1/agents/{agent}", self.servers.urls[0]);
            let request = client.put(url).bearer_auth(self.token(&agent)?).json(&registration);
            request.send().await.and_then(reqwest::Response::error_for_status).map_err(stuck)?;
        }
        Ok(())
    }

    fn token(&self, agent: &str) -> Result<String, BenchError> {
        let agent = AgentId::try_new(agent).map_err(stuck)?;
        self.key.sign(&Claims::new(&agent, "llmx-local", "llmx", TOKEN_LIFETIME_S)).map_err(stuck)
    }

    /// Starts the clients that call much.
    fn flood(&self, load: &[Workload], rate: f64, calling: Duration, bursts: bool) -> Result<Service, BenchError> {
        let agents = [names("caller", CALLERS).collect(), names("contractor", CONTRACTORS).collect()];
        self.clients("flood", agents, load, (rate, bursts), (calling.as_secs_f64(), DRAIN_S))
    }

    fn calm(&self, calling: Duration) -> Result<Service, BenchError> {
        let agents = [vec![CALM.to_owned()], vec![CALM_CONTRACTOR.to_owned()]];
        let seconds = (calling.as_secs_f64() + CALM_BEHIND_S, CALM_DRAIN_S);
        self.clients(CALM, agents, &[Workload::NetOfOne], (CALM_PER_S, false), seconds)
    }

    fn clients(
        &self,
        name: &str,
        agents: [Vec<String>; 2],
        workloads: &[Workload],
        (rate, bursts): (f64, bool),
        (seconds, drain_seconds): (f64, f64),
    ) -> Result<Service, BenchError> {
        let with_tokens = |agents: Vec<String>| -> Result<Vec<_>, BenchError> {
            agents.into_iter().map(|agent| self.token(&agent).map(|token| (agent, token))).collect()
        };
        let [callers, contractors] = agents.map(with_tokens);
        let (callers, contractors, gateways) = (callers?, contractors?, self.servers.urls.clone());
        let (connections, workloads, run) = (CONNECTIONS, workloads.to_vec(), format!("{name}{rate:.0}"));
        let load = PlainLoad {
            gateways,
            callers,
            contractors,
            connections,
            workloads,
            rate,
            bursts,
            seconds,
            drain_seconds,
            run,
        };
        let file = self.clients.folder.path().join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_vec(&load).map_err(stuck)?).map_err(stuck)?;
        let started = self.clients.start(name, &["bench", "--plain-clients", &file.display().to_string()])?;
        pin(started.id(), 1)?;
        Ok(started)
    }

    async fn measure(
        self,
        load: &[Workload],
        rate: f64,
        &OverloadPlan { calling, bursts, .. }: &OverloadPlan,
        most: f64,
        figures: &mut ProcessFigures,
    ) -> Result<(), BenchError> {
        let mut calm = self.calm(calling)?;
        let mut flood = self.flood(load, rate, calling, bursts)?;
        let (mut engine_bytes, ends_at) = (0, Instant::now() + calling);
        while Instant::now() < ends_at {
            sleep(LOOK_PERIOD).await;
            engine_bytes = self.servers.engines.iter().map(Service::resident_bytes).fold(engine_bytes, u64::max);
        }
        let (flood, calm) = (summary(&mut flood, calling).await?, summary(&mut calm, calling).await?);
        let seconds = calling.as_secs_f64();
        let ends = |summary: &PlainSummary, of: fn(&str) -> bool| -> f64 {
            summary.ended.iter().filter(|(outcome, _)| of(outcome)).map(|(_, number)| *number).sum::<u64>() as f64
        };
        let refused = |of_running| -> u64 {
            let of_kind =
                flood.refused.iter().filter(|(code, _)| code.starts_with(plain_client::RUNNING) == of_running);
            of_kind.map(|(_, number)| number).sum()
        };
        for (name, value) in [
            ("offered_per_s", rate),
            ("not_sent_per_s", flood.held_back as f64 / seconds),
            ("completed_per_s", flood.completed_per_s),
            ("share_of_most", flood.completed_per_s / most.max(f64::EPSILON)),
            ("taken_in_per_s", flood.taken as f64 / seconds),
            ("refused_per_s", refused(false) as f64 / seconds),
            ("refused_of_running", refused(true) as f64),
            ("other_ends_per_s", ends(&flood, |outcome| !Workload::is_success(outcome)) / seconds),
            ("completed_p50_ms", flood.completed_ms[0]),
            ("completed_p99_ms", flood.completed_ms[1]),
            ("without_end", flood.unended as f64),
            ("refused_p50_ms", flood.refused_ms[0]),
            ("refused_p99_ms", flood.refused_ms[1]),
            ("engine_memory_mb", engine_bytes as f64 / BYTES_PER_MB),
            ("calm_calls", calm.calls as f64),
            ("calm_completed", ends(&calm, Workload::is_success)),
            ("calm_p50_ms", calm.completed_ms[0]),
            ("calm_p99_ms", calm.completed_ms[1]),
            ("calm_loop_lag_p99_ms", calm.loop_lag_ms[1]),
        ] {
            figures.add(name, value);
        }
        if bursts {
            figures.add("refused_between_bursts", flood.refused_between_bursts as f64);
        }
        Ok(())
    }
}

/// Waits for clients to end, and reads what they saw.
async fn summary(clients: &mut Service, calling: Duration) -> Result<PlainSummary, BenchError> {
    let printed = clients.until_well_ended(calling + CLIENTS_TIMEOUT).await?;
    serde_json::from_str(&printed).map_err(stuck)
}

/// Makes the names of so many agents.
fn names(kind: &'static str, number: usize) -> impl Iterator<Item = String> {
    (0..number).map(move |number| format!("{kind}-{number}"))
}

/// Leaves a process, with all its threads, one core; a machine with one core only has that.
fn pin(pid: u32, core: usize) -> Result<(), BenchError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let core = (core % cores).to_string();
    let mut command = Command::new("taskset");
    command.args(["-a", "-p", "-c", &core, &pid.to_string()]).stdout(Stdio::null());
    match command.status() {
        Ok(status) if status.success() || !Path::new(&format!("/proc/{pid}")).exists() => Ok(()),
        Ok(status) => Err(stuck(format!("taskset does not leave process {pid} one core: {status}"))),
        Err(error) => Err(stuck(format!("taskset (util-linux) cannot be started: {error}"))),
    }
}
