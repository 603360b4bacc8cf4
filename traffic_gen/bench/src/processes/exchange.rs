//! One exchange of real processes, and what a load costs each of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nats_server::{GuardedProcess, LocalServer, LocalServerOptions};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{
    AgentsVia, MeasuredBuild, NATS_PER_ROUND, OFFERED, P95, P99, ProcessFigures, ProcessPlan, REACHED,
    SWITCHES_PER_ROUND, UNENDED, US_PER_ROUND,
};
use crate::rounds::{BenchError, UNLIMITED};
use crate::usage::{ProcessUsage, open_files, resident_bytes};

/// How a round ends whose award was carried out.
const COMPLETED: &str = "completed";
/// Longest wait for a process to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at a process that starts, or at the initiator.
const POLL: Duration = Duration::from_millis(50);
/// Longest an initiator may take beyond the time calls arrive: its own waits for what is open are shorter.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(90);
/// Longest wait for an answer of nats-server or the gateway.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of a process's output repeated when it failed.
const TAIL_LEN: usize = 1500;
/// Agents of which each one's part of the gateway's memory can be told.
const AGENTS_MANY: u32 = 1000;
/// Variables that would change what the processes do.
const VARIABLES: [&str; 2] = ["LLMX_", "OTEL_"];
/// One that they are left: how many agents share a connection is part of what is measured.
const KEPT_VARIABLE: &str = "LLMX_AGENTS_PER_CONNECTION";
/// The gateway's configuration, in the folder of the processes.
const GATEWAY_CONFIG_FILE: &str = "gateway.toml";
/// What nats-server counts of its clients' messages.
const NATS_COUNTERS: [&str; 4] = ["in_msgs", "out_msgs", "in_bytes", "out_bytes"];

/// The running processes. All end with it, and nothing of them is left.
pub(super) struct MeasuredExchange {
    // In the order in which they end.
    #[cfg(feature = "wasm")]
    guests: Vec<Service>,
    idle_agents: Option<Service>,
    contractors: Service,
    gateway: Service,
    engines: Vec<Service>,
    nats: LocalServer,
    launcher: Launcher,
    gateway_url: String,
    via: AgentsVia,
    policy: String,
    idling: Duration,
    agents: u32,
    /// The gateway's resident memory before agents connected.
    gateway_bytes: u64,
    idle_count: u32,
    /// How long the agents that are never called took to connect, one process opening all connections.
    connecting: Duration,
}

/// The processes that users run to have an exchange.
pub(super) struct Servers {
    // In the order in which they end.
    pub(super) gateways: Vec<Service>,
    pub(super) urls: Vec<String>,
    pub(super) engines: Vec<Service>,
    pub(super) nats: LocalServer,
    pub(super) launcher: Launcher,
}

impl Servers {
    /// Starts so many engines and gateways, and waits until they are ready.
    pub(super) async fn start(build: &MeasuredBuild, engines: u8, gateways: u8) -> Result<Self, BenchError> {
        let launcher = Launcher::new(&build.binary)?;
        let options =
            LocalServerOptions { threads: NonZeroU8::new(build.nats_threads), ..LocalServerOptions::default() };
        let nats = LocalServer::start(options).await?;
        let url = nats.url();
        let mut keys = launcher.start("keys", &["keys"])?;
        keys.until_well_ended().await?;
        let mut started = Self { gateways: Vec::new(), urls: Vec::new(), engines: Vec::new(), nats, launcher };
        for number in 1..=engines {
            let name = format!("engine-{number}");
            started.engines.push(started.launcher.start(&name, &["engine", "--id", &name, "--nats", &url])?);
        }
        for engine in &mut started.engines {
            engine.until_said("engine: ").await?;
        }
        std::fs::write(started.launcher.folder.path().join(GATEWAY_CONFIG_FILE), gateway_config()).map_err(stuck)?;
        for number in 1..=gateways {
            let name = if number == 1 { "gateway".to_owned() } else { format!("gateway-{number}") };
            let arguments = ["gateway", "--id", &name, "--config", GATEWAY_CONFIG_FILE, "--nats", &url];
            let arguments = [&arguments[..], &["--listen", "127.0.0.1:0"]].concat();
            let mut gateway = started.launcher.start(&name, &arguments)?;
            started.urls.push(gateway.until_said("gateway: ").await?);
            started.gateways.push(gateway);
        }
        for url in &started.urls {
            until_ready(url).await?;
        }
        Ok(started)
    }
}

impl MeasuredExchange {
    /// Starts everything but the initiator, and waits until it is ready.
    pub(super) async fn start(build: &MeasuredBuild, plan: &ProcessPlan, via: AgentsVia) -> Result<Self, BenchError> {
        let Servers { mut gateways, mut urls, engines, nats, launcher } =
            Servers::start(build, plan.engines, 1).await?;
        let (gateway, gateway_url, url) = (gateways.remove(0), urls.remove(0), nats.url());
        let gateway_bytes = gateway.resident_bytes();
        let agents = plan.contractors;
        let contractors = agents.to_string();
        let mut arguments = vec!["agents", "--count", &contractors, "--gateway", &gateway_url];
        arguments.extend(way(via, &url));
        let mut contractors = launcher.start("contractors", &arguments)?;
        contractors.until_said("connected").await?;
        let started = Instant::now();
        let idle_agents = launcher.connect_idle(plan.idle_agents, &gateway_url, &way(via, &url)).await?;
        let (policy, idling, connecting) = (plan.policy.clone(), plan.idling, started.elapsed());
        Ok(Self {
            #[cfg(feature = "wasm")]
            guests: Vec::new(),
            idle_agents,
            contractors,
            gateway,
            engines,
            nats,
            launcher,
            gateway_url,
            via,
            policy,
            idling,
            agents: agents + plan.idle_agents,
            gateway_bytes,
            idle_count: plan.idle_agents,
            connecting,
        })
    }

    /// Offers `rate` calls per second for `calling`, and says what became of them and what that cost.
    pub(super) async fn measure(&mut self, rate: f64, calling: Duration) -> Result<ProcessFigures, BenchError> {
        let (before, counted) = (self.usage()?, self.nats_counters().await?);
        let (rate_text, seconds, url) = (format!("{rate:.3}"), calling.as_secs_f64().to_string(), self.nats.url());
        let mut arguments = vec!["traffic", "--json", "--rate", &rate_text, "--duration", &seconds];
        arguments.extend(["--gateway", &self.gateway_url, "--policy", &self.policy]);
        arguments.extend(way(self.via, &url));
        let initiator = self.launcher.start("initiator", &arguments)?.until_measured(calling + DRAIN_TIMEOUT).await?;
        let (after, counts) = (self.usage()?, self.nats_counters().await?);
        let summary = &initiator.summary;
        // Under overload many end without an offer, which costs little and is no round.
        let completed = summary.outcomes.get(COMPLETED).copied().unwrap_or_default();
        let rounds = completed.max(1) as f64;
        let mut figures = ProcessFigures::default();
        figures.add(OFFERED, rate);
        figures.add(REACHED, completed as f64 / summary.elapsed_s.max(f64::EPSILON));
        figures.add("decision_p50_ms", summary.latency_ms.decision.p50);
        figures.add(P95, summary.latency_ms.decision.p95);
        figures.add(P99, summary.latency_ms.decision.p99);
        figures.add(UNENDED, (summary.cfps.saturating_sub(summary.rounds) + summary.shed) as f64);
        let used = before.into_iter().zip(after);
        let used = used.map(|((name, before), (_, after))| (name, ProcessCost::between(&before, &after)));
        let used: Vec<(String, ProcessCost)> = used.chain([("initiator".to_owned(), initiator.cost)]).collect();
        for (group, cost) in [
            (US_PER_ROUND, ProcessCost::cpu_us as fn(&ProcessCost) -> f64),
            (SWITCHES_PER_ROUND, ProcessCost::switches),
        ] {
            for (name, used) in &used {
                figures.add(format!("{group}.{name}"), cost(used) / rounds);
            }
            figures.add(format!("{group}.total"), used.iter().map(|(_, used)| cost(used)).sum::<f64>() / rounds);
        }
        for ((name, before), after) in NATS_COUNTERS.iter().zip(counted).zip(counts) {
            figures.add(format!("{NATS_PER_ROUND}.{name}"), (after - before) / rounds);
        }
        Ok(figures)
    }

    /// What each process uses while nothing is asked for, and what an agent that is connected costs the gateway.
    pub(super) async fn idle(&self) -> Result<ProcessFigures, BenchError> {
        sleep(self.idling).await;
        let (before, started) = (self.usage()?, Instant::now());
        sleep(self.idling).await;
        let (after, elapsed_us) = (self.usage()?, started.elapsed().as_secs_f64() * 1e6);
        let mut figures = ProcessFigures::default();
        for ((name, before), (_, after)) in before.iter().zip(&after) {
            figures.add(format!("idle_cores.{name}"), (after.cpu_us - before.cpu_us) / elapsed_us.max(1.0));
        }
        let grown = self.gateway.resident_bytes().saturating_sub(self.gateway_bytes);
        figures.add("agents", f64::from(self.agents));
        figures.add("gateway_handles", open_files(self.gateway.process.id()) as f64);
        // Of a dozen agents it would be the gateway's own memory.
        if self.agents >= AGENTS_MANY {
            figures.add("gateway_bytes_per_agent", grown as f64 / f64::from(self.agents));
        }
        if self.idle_agents.is_some() {
            figures
                .add("connections_per_s", f64::from(self.idle_count) / self.connecting.as_secs_f64().max(f64::EPSILON));
        }
        Ok(figures)
    }

    /// Starts one more contractor, in a process of its own that no call of [`Self::measure`] reaches; its routines and what they
    /// need are files. The address at which it takes transactions of Agora.
    #[cfg(feature = "wasm")]
    pub(super) async fn host(&mut self, routines: &str, files: &[(&str, &[u8])]) -> Result<String, BenchError> {
        for (name, content) in files {
            std::fs::write(self.launcher.folder.path().join(name), content).map_err(stuck)?;
        }
        let mut arguments = vec!["contractors", "--count", "1", "--prefix", "guest-", "--topic", "guests"];
        arguments.extend(["--routines", routines, "--gateway", &self.gateway_url, "--transport", "websocket"]);
        let mut guest = self.launcher.start("guest", &arguments)?;
        guest.until_said("connected").await?;
        self.guests.push(guest);
        Ok(format!("{}/agora/guest-contractor-0", self.gateway_url))
    }

    /// A token of an agent.
    #[cfg(feature = "wasm")]
    pub(super) async fn token(&self, agent: &str) -> Result<String, BenchError> {
        let mut token = self.launcher.start("token", &["token", agent])?;
        token.until_well_ended().await?;
        Ok(std::fs::read_to_string(&token.out).map_err(stuck)?.trim().to_owned())
    }

    /// What each process has used so far, by its name.
    fn usage(&self) -> Result<Vec<(String, ProcessUsage)>, BenchError> {
        let nats = self.nats.pid().ok_or_else(|| BenchError::Stuck("nats-server is stopped".to_owned()))?;
        let mut usage = vec![("nats-server".to_owned(), read_usage("nats-server", nats)?)];
        for service in self.engines.iter().chain([&self.gateway, &self.contractors]).chain(&self.idle_agents) {
            usage.push((service.name.clone(), read_usage(&service.name, service.process.id())?));
        }
        Ok(usage)
    }

    async fn nats_counters(&self) -> Result<[f64; 4], BenchError> {
        let answer = get(&format!("{}/varz", self.nats.monitor_url())).await.map_err(stuck)?;
        Ok(nats_counters(&answer.json().await.map_err(stuck)?))
    }
}

/// What nats-server counts in its answer to `/varz`, in the order of [`NATS_COUNTERS`].
fn nats_counters(varz: &Value) -> [f64; 4] {
    NATS_COUNTERS.map(|name| varz[name].as_f64().unwrap_or(0.0))
}

/// The processor time and context switches of one process during a load.
struct ProcessCost {
    cpu_us: f64,
    switches: f64,
}

impl ProcessCost {
    fn between(before: &ProcessUsage, after: &ProcessUsage) -> Self {
        Self { cpu_us: after.cpu_us - before.cpu_us, switches: after.switches_since(before) as f64 }
    }

    fn cpu_us(&self) -> f64 {
        self.cpu_us
    }

    fn switches(&self) -> f64 {
        self.switches
    }
}

/// The limiter is on, and never the limit. The rest is what a gateway has without a file; builds from before files could
/// hold a part ask for these tables.
fn gateway_config() -> String {
    format!(
        "[gateway.auth]\nkeys = {{ file = \"run/keys/jwks.json\" }}\nissuer = \"llmx-local\"\naudience = \"llmx\"\n\
         [gateway.limits]\nrequests_per_s = {UNLIMITED}\nburst = {UNLIMITED}\n"
    )
}

/// Arguments that say how agents reach the exchange.
fn way(via: AgentsVia, nats: &str) -> Vec<&str> {
    let nats = if via == AgentsVia::Nats { vec!["--nats", nats] } else { Vec::new() };
    [vec!["--transport", via.as_str()], nats].concat()
}

/// Starts processes of one build in a folder of their own.
pub(super) struct Launcher {
    binary: PathBuf,
    pub(super) folder: TempDir,
}

impl Launcher {
    pub(super) fn new(binary: &Path) -> Result<Self, BenchError> {
        let folder = TempDir::with_prefix("llmx-bench-").map_err(stuck)?;
        Ok(Self { binary: binary.to_owned(), folder })
    }

    pub(super) fn start(&self, name: &str, arguments: &[&str]) -> Result<Service, BenchError> {
        let cannot = |error: std::io::Error| {
            BenchError::Stuck(format!("{name} cannot be started from {}: {error}", self.binary.display()))
        };
        let file = |kind: &str| self.folder.path().join(format!("{name}.{kind}"));
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(File::create(file("out")).map_err(cannot)?);
        command.stderr(File::create(file("err")).map_err(cannot)?);
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if name != KEPT_VARIABLE && VARIABLES.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&variable);
            }
        }
        let process = GuardedProcess::spawn(&mut command, self.folder.path()).map_err(cannot)?;
        Ok(Service { name: name.to_owned(), process, out: file("out"), err: file("err") })
    }

    /// Starts so many agents of a topic that nobody calls, in one process, and waits until all are connected.
    async fn connect_idle(&self, count: u32, gateway: &str, way: &[&str]) -> Result<Option<Service>, BenchError> {
        if count == 0 {
            return Ok(None);
        }
        let count = count.to_string();
        let arguments =
            ["contractors", "--count", &count, "--prefix", "idle-", "--topic", "idle", "--gateway", gateway];
        let mut agents = self.start("idle-agents", &[&arguments, way].concat())?;
        agents.until_said("connected").await?;
        Ok(Some(agents))
    }
}

/// One process, ended with its handle.
pub(super) struct Service {
    name: String,
    pub(super) process: GuardedProcess,
    out: PathBuf,
    err: PathBuf,
}

impl Service {
    /// Resident memory.
    pub(super) fn resident_bytes(&self) -> u64 {
        resident_bytes(&self.process.id().to_string())
    }

    /// What stands behind `mark` in the first line of its output that holds it, once there is one.
    async fn until_said(&mut self, mark: &str) -> Result<String, BenchError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            // A line is whole only with its end.
            let output = std::fs::read_to_string(&self.out).map_err(stuck)?;
            let lines = output.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            if let Some((_, behind)) = lines.filter_map(|line| line.split_once(mark)).next() {
                return Ok(behind.to_owned());
            }
            if let Some(status) = self.process.ended() {
                return Err(self.failed(&format!("ended before it was ready, {}", status.map_err(stuck)?)));
            }
            if Instant::now() >= deadline {
                return Err(self.failed(&format!("was not ready within {} s", READY_TIMEOUT.as_secs())));
            }
            sleep(POLL).await;
        }
    }

    /// Waits until it has ended by itself, with exit code 0.
    async fn until_well_ended(&mut self) -> Result<(), BenchError> {
        self.until_well_ended_within(READY_TIMEOUT).await
    }

    async fn until_well_ended_within(&mut self, limit: Duration) -> Result<(), BenchError> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.process.ended() {
                Some(Ok(status)) if status.success() => return Ok(()),
                Some(ended) => return Err(self.failed(&format!("ended, {}", ended.map_err(stuck)?))),
                None => sleep(POLL).await,
            }
        }
        Err(self.failed("does not end"))
    }

    /// What it printed, once it has ended by itself, with exit code 0.
    pub(super) async fn printed_within(&mut self, limit: Duration) -> Result<String, BenchError> {
        self.until_well_ended_within(limit).await?;
        std::fs::read_to_string(&self.out).map_err(stuck)
    }

    /// Follows an initiator to its end. Its processor time is read between its end and the moment it is waited for, so it
    /// is exact; of its context switches what each thread did after the last look at it is left out.
    async fn until_measured(mut self, limit: Duration) -> Result<MeasuredInitiator, BenchError> {
        let deadline = Instant::now() + limit;
        let mut followed = ProcessUsage::default();
        loop {
            followed.update(read_usage(&self.name, self.process.id())?);
            if followed.has_ended {
                let cost = ProcessCost::between(&ProcessUsage::default(), &followed);
                return self.summary().map(|summary| MeasuredInitiator { summary, cost });
            }
            if Instant::now() >= deadline {
                return Err(self.failed(&format!("did not end within {} s", limit.as_secs())));
            }
            sleep(POLL).await;
        }
    }

    /// What an initiator printed. One that fails because calls did not end has printed what became of the others.
    fn summary(&mut self) -> Result<InitiatorSummary, BenchError> {
        let text = std::fs::read_to_string(&self.out).map_err(stuck)?;
        serde_json::from_str(&text).map_err(|_| self.failed("ended without a summary"))
    }

    fn failed(&self, how: &str) -> BenchError {
        let said = [&self.out, &self.err].map(|file| std::fs::read_to_string(file).unwrap_or_default()).concat();
        let skipped = said.chars().count().saturating_sub(TAIL_LEN);
        let tail: String = said.trim_end().chars().skip(skipped).collect();
        BenchError::Stuck(format!("{} {how}: {tail}", self.name))
    }
}

/// An initiator that has ended.
struct MeasuredInitiator {
    summary: InitiatorSummary,
    cost: ProcessCost,
}

/// What is read of the summary of `llmx traffic --json`.
#[derive(Deserialize)]
struct InitiatorSummary {
    rounds: u64,
    outcomes: BTreeMap<String, u64>,
    cfps: u64,
    shed: u64,
    elapsed_s: f64,
    latency_ms: InitiatorLatency,
}

#[derive(Deserialize)]
struct InitiatorLatency {
    decision: DecisionLatency,
}

#[derive(Deserialize)]
struct DecisionLatency {
    p50: f64,
    p95: f64,
    p99: f64,
}

fn read_usage(name: &str, pid: u32) -> Result<ProcessUsage, BenchError> {
    ProcessUsage::read(pid).map_err(|error| BenchError::Stuck(format!("{name} cannot be measured: {error}")))
}

async fn until_ready(gateway: &str) -> Result<(), BenchError> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let answer = get(&format!("{gateway}/readyz")).await;
        match answer {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(_) | Err(_) if Instant::now() < deadline => sleep(POLL).await,
            Ok(answer) => return Err(BenchError::Stuck(format!("the gateway is not ready: {}", answer.status()))),
            Err(error) => return Err(BenchError::Stuck(format!("the gateway does not answer: {error}"))),
        }
    }
}

async fn get(url: &str) -> reqwest::Result<reqwest::Response> {
    reqwest::Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).build()?.get(url).send().await
}

pub(super) fn stuck(error: impl std::fmt::Display) -> BenchError {
    BenchError::Stuck(error.to_string())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A build whose `keys` and `engine` do as they should, and whose gateway ends. Each process notes its number and its
    /// folder in `notes`.
    const BROKEN: &str = "#!/bin/sh\necho $$ >> NOTES/pids\npwd >> NOTES/folders\ncase $1 in\n  keys) ;;\n  \
        engine) echo 'engine: engine-1, 4 lanes'; exec sleep 100 ;;\n  *) echo 'no such table' >&2; exit 2 ;;\nesac\n";

    fn plan(binary: &Path) -> ProcessPlan {
        ProcessPlan {
            build: MeasuredBuild { binary: binary.to_owned(), nats_threads: 1 },
            against: None,
            engines: 2,
            contractors: 1,
            idle_agents: 0,
            policy: "high".to_owned(),
            via: vec![AgentsVia::Websocket],
            rates: vec![1],
            searches: false,
            runs: 1,
            calling: Duration::from_secs(1),
            searching: Duration::from_secs(1),
            idling: Duration::ZERO,
        }
    }

    #[tokio::test]
    async fn a_process_that_does_not_start_leaves_no_other_and_no_file() {
        let notes = tempfile::tempdir().unwrap();
        let binary = notes.path().join("broken");
        std::fs::write(&binary, BROKEN.replace("NOTES", &notes.path().display().to_string())).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        let plan = plan(&binary);
        let error = MeasuredExchange::start(&plan.build, &plan, AgentsVia::Websocket).await.err().unwrap().to_string();
        assert!(error.contains("gateway ended before it was ready") && error.contains("no such table"), "{error}");
        let lines = |name: &str| std::fs::read_to_string(notes.path().join(name)).unwrap();
        let (pids, folders) = (lines("pids"), lines("folders"));
        assert_eq!(pids.lines().count(), 4, "keys, two engines, the gateway");
        for pid in pids.lines() {
            let is_there = Command::new("sh").args(["-c", "kill -0 \"$0\" 2>&1", pid]).output().unwrap();
            assert!(!is_there.status.success(), "{pid} goes on");
        }
        for folder in folders.lines() {
            assert!(!Path::new(folder).exists(), "{folder} is left");
        }
    }

    #[tokio::test]
    async fn a_build_that_is_not_there_is_named() {
        let plan = plan(Path::new("/nowhere/llmx"));
        let error = MeasuredExchange::start(&plan.build, &plan, AgentsVia::Nats).await.err().unwrap().to_string();
        assert!(error.starts_with("keys cannot be started from /nowhere/llmx: "), "{error}");
    }

    #[test]
    fn what_nats_counts_is_read_by_name() {
        let varz = serde_json::json!({"in_msgs": 8129, "out_msgs": 8514, "in_bytes": 4_515_740, "out_bytes": 2_553_216,
            "in_client_msgs": 1, "slow_consumers": 0});
        assert_eq!(nats_counters(&varz).map(|count| count as u64), [8129, 8514, 4_515_740, 2_553_216]);
    }

    #[test]
    fn agents_on_nats_know_where_it_is() {
        assert_eq!(way(AgentsVia::Nats, "nats://x"), ["--transport", "nats", "--nats", "nats://x"]);
        assert_eq!(way(AgentsVia::Websocket, "nats://x"), ["--transport", "websocket"]);
    }
}
