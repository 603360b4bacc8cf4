//! One exchange of real processes, and what a load costs each of them.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::time::Duration;

use nats_server::{LocalServer, LocalServerOptions};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    AgentsVia, MeasuredBuild, NATS_PER_ROUND, OFFERED, P95, P99, ProcessFigures, ProcessPlan, REACHED,
    SWITCHES_PER_ROUND, UNENDED, US_PER_ROUND,
};
use crate::rounds::{BenchError, UNLIMITED, stuck};
use crate::service::{Launcher, POLL, Service, get, usage_of};
use crate::usage::{ProcessUsage, open_files};

/// How a round ends whose award was carried out.
const COMPLETED: &str = "completed";
/// Longest wait for a process to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest an initiator may take beyond the time calls arrive: its own waits for what is open are shorter.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(90);
/// Agents of which each one's part of the gateway's memory can be told.
const AGENTS_MANY: u32 = 1000;
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
    servers: Servers,
    via: AgentsVia,
    plan: ProcessPlan,
    /// The gateway's resident memory before agents connected.
    gateway_bytes: u64,
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

/// The kinds of processes of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerKind {
    Engine,
    Gateway,
    NatsServer,
}

impl Servers {
    /// Starts so many engines and gateways, and waits until they are ready. Without an engine a gateway is `llmx serve`, which is
    /// one.
    pub(super) async fn start(build: &MeasuredBuild, engines: u8, gateways: u8) -> Result<Self, BenchError> {
        let launcher = Launcher::new(&build.binary)?;
        let options =
            LocalServerOptions { threads: NonZeroU8::new(build.nats_threads), ..LocalServerOptions::default() };
        let nats = LocalServer::start(options).await?;
        let mut keys = launcher.start("keys", &["keys", "--out", "run/keys"])?;
        keys.until_well_ended(READY_TIMEOUT).await?;
        let mut started = Self { gateways: Vec::new(), urls: Vec::new(), engines: Vec::new(), nats, launcher };
        for number in 1..=engines {
            let engine = started.start_engine(&format!("engine-{number}")).await?;
            started.engines.push(engine);
        }
        std::fs::write(started.launcher.folder.path().join(GATEWAY_CONFIG_FILE), gateway_config()).map_err(stuck)?;
        for number in 1..=gateways {
            let name = if number == 1 { "gateway".to_owned() } else { format!("gateway-{number}") };
            let (gateway, url) = started.start_gateway(&name, "127.0.0.1:0").await?;
            started.urls.push(url);
            started.gateways.push(gateway);
        }
        for url in &started.urls {
            until_ready(url).await?;
        }
        Ok(started)
    }

    async fn start_engine(&self, name: &str) -> Result<Service, BenchError> {
        let mut engine = self.launcher.start(name, &["engine", "--id", name, "--nats", &self.nats.url()])?;
        engine.until_said("engine: ", READY_TIMEOUT).await?;
        Ok(engine)
    }

    /// Starts a gateway that listens on an address of this machine; its URL.
    async fn start_gateway(&self, name: &str, address: &str) -> Result<(Service, String), BenchError> {
        let (command, mark) = if self.engines.is_empty() {
            (["serve", "--data", name], "exchange: ")
        } else {
            (["gateway", "--id", name], "gateway: ")
        };
        let ways = ["--config", GATEWAY_CONFIG_FILE, "--nats", &self.nats.url(), "--listen", address];
        let mut gateway = self.launcher.start(name, &[&command[..], &ways].concat())?;
        let url = gateway.until_said(mark, READY_TIMEOUT).await?;
        Ok((gateway, url))
    }

    /// The processes that fold the log.
    pub(super) fn folding(&self) -> &[Service] {
        if self.engines.is_empty() { &self.gateways } else { &self.engines }
    }

    /// Kills the first process of a kind, starts it again, and waits until it is ready.
    pub(super) async fn restart(&mut self, kind: ServerKind) -> Result<(), BenchError> {
        match kind {
            ServerKind::Engine if !self.engines.is_empty() => {
                // A process is killed when it is dropped.
                let name = self.engines.remove(0).name.clone();
                let engine = self.start_engine(&name).await?;
                self.engines.insert(0, engine);
            }
            ServerKind::Engine | ServerKind::Gateway => {
                let name = self.gateways.remove(0).name.clone();
                let address = self.urls[0].trim_start_matches("http://").to_owned();
                let (gateway, url) = self.start_gateway(&name, &address).await?;
                until_ready(&url).await?;
                self.gateways.insert(0, gateway);
            }
            ServerKind::NatsServer => self.nats.resume().await?,
        }
        Ok(())
    }
}

impl MeasuredExchange {
    /// Starts everything but the initiator, and waits until it is ready.
    pub(super) async fn start(build: &MeasuredBuild, plan: &ProcessPlan, via: AgentsVia) -> Result<Self, BenchError> {
        let servers = Servers::start(build, plan.engines, 1).await?;
        let (gateway_bytes, nats) = (servers.gateways[0].resident_bytes(), servers.nats.url());
        let ways = [&["--gateway", &servers.urls[0]][..], &way(via, &nats)[..]].concat();
        let count = plan.contractors.to_string();
        let contractors = [&["agents", "--count", &count], &ways[..]].concat();
        let contractors = connected(&servers.launcher, "contractors", &contractors).await?;
        let (started, count) = (Instant::now(), plan.idle_agents.to_string());
        let idle_agents = ["contractors", "--count", &count, "--prefix", "idle-", "--topic", "idle"];
        let idle_agents = match plan.idle_agents {
            0 => None,
            _ => Some(connected(&servers.launcher, "idle-agents", &[&idle_agents, &ways[..]].concat()).await?),
        };
        Ok(Self {
            #[cfg(feature = "wasm")]
            guests: Vec::new(),
            idle_agents,
            contractors,
            servers,
            via,
            plan: plan.clone(),
            gateway_bytes,
            connecting: started.elapsed(),
        })
    }

    /// Offers `rate` calls per second for `calling`, and says what became of them and what that cost.
    pub(super) async fn measure(&mut self, rate: f64, calling: Duration) -> Result<ProcessFigures, BenchError> {
        let (before, counted) = (self.usage()?, self.nats_counters().await?);
        let (rate_text, seconds, url) =
            (format!("{rate:.3}"), calling.as_secs_f64().to_string(), self.servers.nats.url());
        let mut arguments = vec!["traffic", "--json", "--rate", &rate_text, "--duration", &seconds];
        arguments.extend(["--gateway", &self.servers.urls[0], "--policy", &self.plan.policy]);
        arguments.extend(way(self.via, &url));
        let initiator = self.servers.launcher.start("initiator", &arguments)?;
        let initiator = measured(initiator, calling + DRAIN_TIMEOUT).await?;
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
            (US_PER_ROUND, (|used| used.cpu_us) as fn(&ProcessCost) -> f64),
            (SWITCHES_PER_ROUND, |used| used.switches),
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
        sleep(self.plan.idling).await;
        let (before, started) = (self.usage()?, Instant::now());
        sleep(self.plan.idling).await;
        let (after, elapsed_us) = (self.usage()?, started.elapsed().as_secs_f64() * 1e6);
        let mut figures = ProcessFigures::default();
        for ((name, before), (_, after)) in before.iter().zip(&after) {
            figures.add(format!("idle_cores.{name}"), (after.cpu_us - before.cpu_us) / elapsed_us.max(1.0));
        }
        let (gateway, agents) = (&self.servers.gateways[0], self.plan.contractors + self.plan.idle_agents);
        figures.add("agents", f64::from(agents));
        figures.add("gateway_handles", open_files(gateway.id()) as f64);
        // Of a dozen agents it would be the gateway's own memory.
        if agents >= AGENTS_MANY {
            let grown = gateway.resident_bytes().saturating_sub(self.gateway_bytes);
            figures.add("gateway_bytes_per_agent", grown as f64 / f64::from(agents));
        }
        if self.idle_agents.is_some() {
            let connecting_s = self.connecting.as_secs_f64().max(f64::EPSILON);
            figures.add("connections_per_s", f64::from(self.plan.idle_agents) / connecting_s);
        }
        Ok(figures)
    }

    /// Starts one more contractor, in a process of its own that no call of [`Self::measure`] reaches; its routines and what they
    /// need are files. The address at which it takes transactions of Agora.
    #[cfg(feature = "wasm")]
    pub(super) async fn host(&mut self, routines: &str, files: &[(&str, &[u8])]) -> Result<String, BenchError> {
        for (name, content) in files {
            std::fs::write(self.servers.launcher.folder.path().join(name), content).map_err(stuck)?;
        }
        let mut arguments = vec!["contractors", "--count", "1", "--prefix", "guest-", "--topic", "guests"];
        let gateway = &self.servers.urls[0];
        arguments.extend(["--routines", routines, "--gateway", gateway, "--transport", "websocket"]);
        self.guests.push(connected(&self.servers.launcher, "guest", &arguments).await?);
        Ok(format!("{gateway}/agora/guest-contractor-0"))
    }

    /// A token of an agent.
    #[cfg(feature = "wasm")]
    pub(super) async fn token(&self, agent: &str) -> Result<String, BenchError> {
        let mut token = self.servers.launcher.start("token", &["token", agent])?;
        Ok(token.until_well_ended(READY_TIMEOUT).await?.trim().to_owned())
    }

    /// What each process has used so far, by its name.
    fn usage(&self) -> Result<Vec<(String, ProcessUsage)>, BenchError> {
        let Servers { engines, gateways, nats, .. } = &self.servers;
        let nats = nats.pid().ok_or_else(|| stuck("nats-server is stopped"))?;
        let mut usage = vec![("nats-server".to_owned(), usage_of("nats-server", nats)?)];
        for service in engines.iter().chain(gateways).chain([&self.contractors]).chain(&self.idle_agents) {
            usage.push((service.name.clone(), service.usage()?));
        }
        Ok(usage)
    }

    async fn nats_counters(&self) -> Result<[f64; 4], BenchError> {
        let answer = get(&format!("{}/varz", self.servers.nats.monitor_url())).await.map_err(stuck)?;
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
    [vec!["--transport", via.into()], nats].concat()
}

/// Starts a process of agents, and waits until all of them are connected.
async fn connected(launcher: &Launcher, name: &str, arguments: &[&str]) -> Result<Service, BenchError> {
    let mut agents = launcher.start(name, arguments)?;
    agents.until_said("connected", READY_TIMEOUT).await?;
    Ok(agents)
}

/// Follows an initiator to its end. Its processor time is read between its end and the moment it is waited for, so it
/// is exact; of its context switches what each thread did after the last look at it is left out.
async fn measured(initiator: Service, limit: Duration) -> Result<MeasuredInitiator, BenchError> {
    let deadline = Instant::now() + limit;
    let mut followed = ProcessUsage::default();
    loop {
        followed.update(initiator.usage()?);
        if followed.has_ended {
            break;
        }
        if Instant::now() >= deadline {
            return Err(initiator.failed(&format!("did not end within {} s", limit.as_secs())));
        }
        sleep(POLL).await;
    }
    // One that fails because calls did not end has printed what became of the others.
    let summary = serde_json::from_str(&initiator.printed()?);
    let summary = summary.map_err(|_| initiator.failed("ended without a summary"))?;
    Ok(MeasuredInitiator { summary, cost: ProcessCost::between(&ProcessUsage::default(), &followed) })
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

async fn until_ready(gateway: &str) -> Result<(), BenchError> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let answer = get(&format!("{gateway}/readyz")).await;
        match answer {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(_) | Err(_) if Instant::now() < deadline => sleep(POLL).await,
            Ok(answer) => return Err(stuck(format!("the gateway is not ready: {}", answer.status()))),
            Err(error) => return Err(stuck(format!("the gateway does not answer: {error}"))),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// A build whose `keys` and `engine` do as they should, and whose gateway ends. Each process notes its number and its
    /// folder in `notes`.
    const BROKEN: &str = "#!/bin/sh\necho $$ >> NOTES/pids\npwd >> NOTES/folders\ncase $1 in\n  keys) ;;\n  \
        engine) echo 'engine: engine-1, 4 lanes'; exec sleep 100 ;;\n  *) echo 'no such table' >&2; exit 2 ;;\nesac\n";

    fn plan(binary: &Path) -> ProcessPlan {
        ProcessPlan {
            build: MeasuredBuild { binary: binary.to_owned(), nats_threads: 1 },
            engines: 2,
            contractors: 1,
            policy: "high".to_owned(),
            ..ProcessPlan::default()
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
