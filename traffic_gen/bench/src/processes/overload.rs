//! What an exchange does of more than it can: plain clients call at a rate that no answer changes, from half of the most to ten
//! times as much, while one agent in a process of its own calls little, and another process probes how soon calls are answered.
//!
//! nats-server, engines and gateways share one core, the clients have another (Linux, `taskset`). The most is what they go on with
//! beyond the best of a ramp in the same run. Each rate has an exchange of its own.

mod plain_client;
mod plain_load;
mod workload;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use gateway::keys::{Claims, SigningKey};
use schemas::AgentId;
use serde_json::json;
use tokio::time::{Instant, sleep};

pub use self::plain_client::run as run_plain_clients;
pub use self::plain_load::{PlainLoad, PlainSummary};
pub use self::workload::Workload;
use super::exchange::{ServerKind, Servers};
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
/// Calls per second of the probe, which is one of the callers once more: what it is refused is what they are.
const PROBES_PER_S: f64 = 10.0;
const PROBE: &str = "probe";
/// The first rate of a ramp, and by how much it rises.
const RAMP_FIRST: f64 = 200.0;
const RAMP: f64 = 1.3;
/// Steps of the ramp that the last one lasts, so that a collection of nats-server falls into it.
const SUSTAINED: u32 = 6;
/// How long ends are waited for, in seconds: the calm agent's as long as a call may take.
const DRAIN_S: f64 = 5.0;
const CALM_DRAIN_S: f64 = 30.0;
/// The same where processes are killed: as long as a call may take that meets all three.
const KILLED_DRAIN_S: f64 = 60.0;
/// Calm agent and probe go on so many seconds behind the load: the last of their calls show that it is over.
const BEHIND_S: f64 = 4.0;
/// Behind a kill, and the return, figures of so many milliseconds are left out of those that are to hold.
const DISTURBED_MS: u64 = 5000;
/// Longest that a process of clients takes beyond its load.
const CLIENTS_TIMEOUT: Duration = Duration::from_secs(120);
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
    /// Whether calls go over HTTP instead of WebSockets.
    pub http: bool,
    /// Whether an engine, a gateway and nats-server are killed meanwhile, one after another.
    pub kills: bool,
}

/// Calls completed and refused, and microseconds of processor time that gateways used, each per second.
type GatewayUse = [f64; 3];

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
        let name = if let [only] = load.as_slice() { only.into() } else { "mixed" };
        let most = most(plan, load, |rate| on_progress(&format!("{name}, ramp, {rate:.0} calls/s"))).await?;
        let mut before = None;
        for &factor in &plan.factors {
            on_progress(&format!("{name}, {factor} of {most:.0} calls/s"));
            let exchange = OverloadedExchange::start(plan).await?;
            let mut figures = ProcessFigures::default();
            figures.add("factor", factor);
            let series = exchange.measure(load, factor * most, plan, most, &mut before, &mut figures).await?;
            on_progress(&series);
            let situation = if plan.bursts { "offered, and five times as much in bursts" } else { "offered" };
            rows.push(ProcessRow { via: name, situation, figures, against: None, ratio: None });
            rows.last().into_iter().for_each(&mut on_row);
        }
    }
    Ok(rows)
}

/// The most completed per second: measured in a longer step at the first rate beyond the best of a ramp, on one exchange.
async fn most(plan: &OverloadPlan, load: &[Workload], on_step: impl Fn(f64)) -> Result<f64, BenchError> {
    let exchange = OverloadedExchange::start(plan).await?;
    let completed = async |rate: f64, calling: Duration| {
        on_step(rate);
        let plain = OverloadPlan { bursts: false, kills: false, ..plan.clone() };
        let mut flood = exchange.flood(load, rate, calling, &plain)?;
        summary(&mut flood, calling).await.map(|summary| summary.completed_per_s)
    };
    let mut search = MostSearch::new(RAMP_FIRST, RAMP);
    while let Some(rate) = search.next_rate() {
        search.note(rate, completed(rate, plan.ramping).await?);
    }
    completed(search.best * RAMP, plan.ramping * SUSTAINED).await
}

/// An exchange on one core, and clients that may use another.
struct OverloadedExchange {
    servers: Servers,
    clients: Launcher,
    key: SigningKey,
}

impl OverloadedExchange {
    async fn start(plan: &OverloadPlan) -> Result<Self, BenchError> {
        // The removal of what the exchange before has stored holds up the disk for a second, and with it this one.
        Command::new("sync").status().map_err(stuck)?;
        let servers = Servers::start(&plan.build, plan.engines, plan.gateways).await?;
        let pem = servers.launcher.folder.path().join("run/keys/signing-key.pem");
        let key = SigningKey::from_pem(&std::fs::read_to_string(pem).map_err(stuck)?).map_err(stuck)?;
        let exchange = Self { servers, clients: Launcher::new(&plan.clients)?, key };
        exchange.register().await?;
        exchange.pin()?;
        Ok(exchange)
    }

    /// Leaves all of the exchange one core.
    fn pin(&self) -> Result<(), BenchError> {
        let nats = self.servers.nats.pid().ok_or_else(|| stuck("nats-server is stopped"))?;
        let others = self.servers.engines.iter().chain(&self.servers.gateways).map(Service::id);
        [nats].into_iter().chain(others).try_for_each(|pid| pin(pid, 0))
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
    fn flood(
        &self,
        load: &[Workload],
        rate: f64,
        calling: Duration,
        plan: &OverloadPlan,
    ) -> Result<Service, BenchError> {
        let agents = [names("caller", CALLERS).collect(), names("contractor", CONTRACTORS).collect()];
        let drain_seconds = if plan.kills { KILLED_DRAIN_S } else { DRAIN_S };
        let (bursts, http, seconds) = (plan.bursts, plan.http, calling.as_secs_f64());
        let load = PlainLoad { workloads: load.to_vec(), rate, bursts, http, seconds, drain_seconds, ..self.clients() };
        self.start_clients("flood", agents, load)
    }

    fn calm(&self, calling: Duration) -> Result<Service, BenchError> {
        let agents = [vec![CALM.to_owned()], vec![CALM_CONTRACTOR.to_owned()]];
        let (rate, seconds, drain_seconds) = (CALM_PER_S, calling.as_secs_f64() + BEHIND_S, CALM_DRAIN_S);
        self.start_clients(CALM, agents, PlainLoad { rate, seconds, drain_seconds, ..self.clients() })
    }

    fn probe(&self, calling: Duration) -> Result<Service, BenchError> {
        let agents = [names("caller", 1).collect(), names("contractor", 1).collect()];
        let (rate, seconds) = (PROBES_PER_S, calling.as_secs_f64() + BEHIND_S);
        let load = PlainLoad { rate, seconds, drain_seconds: 1.0, http: true, connections: 0, ..self.clients() };
        self.start_clients(PROBE, agents, load)
    }

    /// Clients without agents, that call for nets of one.
    fn clients(&self) -> PlainLoad {
        PlainLoad {
            gateways: self.servers.urls.clone(),
            connections: CONNECTIONS,
            workloads: vec![Workload::NetOfOne],
            ..PlainLoad::default()
        }
    }

    fn start_clients(&self, name: &str, agents: [Vec<String>; 2], mut load: PlainLoad) -> Result<Service, BenchError> {
        let with_tokens = |agents: Vec<String>| -> Result<Vec<_>, BenchError> {
            agents.into_iter().map(|agent| self.token(&agent).map(|token| (agent, token))).collect()
        };
        let [callers, contractors] = agents.map(with_tokens);
        (load.callers, load.contractors, load.run) = (callers?, contractors?, format!("{name}{:.0}", load.rate));
        let file = self.clients.folder.path().join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_vec(&load).map_err(stuck)?).map_err(stuck)?;
        let started = self.clients.start(name, &["bench", "--plain-clients", &file.display().to_string()])?;
        pin(started.id(), 1)?;
        Ok(started)
    }

    /// The most memory of an engine meanwhile, in bytes; and, where processes are to be killed, from when until when each was
    /// gone, in milliseconds of Unix time.
    async fn watch(
        &mut self,
        began: Instant,
        calling: Duration,
        kills: bool,
    ) -> Result<(u64, Vec<[u64; 2]>), BenchError> {
        let kinds =
            [ServerKind::Engine, ServerKind::Gateway, ServerKind::NatsServer].into_iter().zip(1..).filter(|_| kills);
        let mut next = kinds.map(|(kind, at)| (kind, began + calling * at / 4)).peekable();
        let (mut engine_bytes, mut gone) = (0, Vec::new());
        while Instant::now() < began + calling {
            sleep(LOOK_PERIOD).await;
            engine_bytes = self.servers.folding().iter().map(Service::resident_bytes).fold(engine_bytes, u64::max);
            if let Some((kind, _)) = next.next_if(|(_, at)| *at <= Instant::now()) {
                let killed_ms = unix_ms();
                self.servers.restart(kind).await?;
                self.pin()?;
                gone.push([killed_ms, unix_ms()]);
            }
        }
        Ok((engine_bytes, gone))
    }

    async fn measure(
        mut self,
        load: &[Workload],
        rate: f64,
        plan: &OverloadPlan,
        most: f64,
        before: &mut Option<GatewayUse>,
        figures: &mut ProcessFigures,
    ) -> Result<String, BenchError> {
        let &OverloadPlan { calling, bursts, kills, .. } = plan;
        let (mut calm, mut probe) = (self.calm(calling)?, self.probe(calling)?);
        let mut flood = self.flood(load, rate, calling, plan)?;
        let (began, used) = (Instant::now(), self.gateways_us()?);
        let (engine_bytes, gone) = self.watch(began, calling, kills).await?;
        let gateway_us = (self.gateways_us()? - used) / began.elapsed().as_secs_f64();
        let flood = summary(&mut flood, calling).await?;
        let (calm, probe) = (summary(&mut calm, calling).await?, summary(&mut probe, calling).await?);
        let seconds = calling.as_secs_f64();
        let ends = |summary: &PlainSummary, of: fn(&str) -> bool| -> f64 {
            summary.ended.iter().filter(|(outcome, _)| of(outcome)).map(|(_, number)| *number).sum::<u64>() as f64
        };
        for (name, value) in [
            ("offered_per_s", rate),
            ("not_sent_per_s", flood.held_back as f64 / seconds),
            ("completed_per_s", flood.completed_per_s),
            ("share_of_most", flood.completed_per_s / most.max(f64::EPSILON)),
            ("taken_in_per_s", flood.taken as f64 / seconds),
            ("refused_per_s", flood.refusals(false) as f64 / seconds),
            ("refused_of_running", flood.refusals(true) as f64),
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
            ("probe_answered_p99_ms", probe.answered_ms[1]),
            ("probe_behind_longest_ms", probe.answered_ms[2]),
        ] {
            figures.add(name, value);
        }
        let used = [flood.completed_per_s, flood.refusals(false) as f64 / seconds, gateway_us];
        if kills {
            figures.add("unanswered", flood.unanswered as f64);
            figures.add("lost", flood.lost as f64);
            let [share, longest] = steady_figures(&flood, &calm, &gone, calling);
            figures.add("steady_share_of_most", share / most.max(f64::EPSILON));
            figures.add("steady_calm_longest_ms", longest);
        } else if let Some(us) = before.replace(used).and_then(|before| us_per_refusal(before, used)) {
            figures.add("gateway_us_per_refusal", us);
        }
        if bursts {
            figures.add("refused_between_bursts", flood.refused_between_bursts as f64);
        }
        let (completed, longest) = (&flood.completed_by_s, &calm.longest_ms_by_s);
        Ok(format!("by seconds: completed {completed:?}, longest of the calm agent's in ms {longest:?}"))
    }

    /// Processor time of all gateways so far, in microseconds.
    fn gateways_us(&self) -> Result<f64, BenchError> {
        self.servers.gateways.iter().map(|gateway| Ok(gateway.usage()?.cpu_us)).sum()
    }
}

/// What a refusal costs a gateway, where a round costs it the same at two loads.
fn us_per_refusal(
    [rounds_before, refused_before, us_before]: GatewayUse,
    [rounds, refused, us]: GatewayUse,
) -> Option<f64> {
    let more = rounds_before * refused - rounds * refused_before;
    (refused_before > 0.0 && refused > 2.0 * refused_before).then(|| (rounds_before * us - rounds * us_before) / more)
}

/// What is completed per second, and the longest of the calm agent's in milliseconds, where nothing was gone, nor lately.
fn steady_figures(flood: &PlainSummary, calm: &PlainSummary, gone: &[[u64; 2]], calling: Duration) -> [f64; 2] {
    let completed = steady(flood.began_ms, &flood.completed_by_s[..calling.as_secs() as usize], gone);
    let longest = steady(calm.began_ms, &calm.longest_ms_by_s, gone).into_iter().max();
    let sum = completed.iter().map(|number| f64::from(*number)).sum::<f64>();
    [sum / completed.len().max(1) as f64, f64::from(longest.unwrap_or_default())]
}

/// Of figures of each second, those of seconds in which nothing was gone, nor lately.
fn steady(began_ms: u64, by_s: &[u32], gone: &[[u64; 2]]) -> Vec<u32> {
    let is_steady = |at: usize| {
        let from = began_ms + 1000 * at as u64;
        gone.iter().all(|[killed, back]| from + 1000 <= *killed || from >= back + DISTURBED_MS)
    };
    by_s.iter().enumerate().filter(|(at, _)| is_steady(*at)).map(|(_, number)| *number).collect()
}

fn unix_ms() -> u64 {
    let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
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
