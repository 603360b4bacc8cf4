//! The exchange under test: real processes of `llmx` and of nats-server, and of this very program where agents have processes of their own, on one machine.

mod rig;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bus::nats::NatsOptions;
use bus::{Bus, BusError};
use gateway::keys::{Claims, KeyAlgorithm, SigningKey, key_set};
use schemas::AgentId;
use tempfile::TempDir;
use tokio::time::Instant;

use super::process::{Service, port};
use super::proxy::{Mode, Proxy};
use super::schedule::{FaultAction, FaultKind, ScheduledFault};
use super::servers::Servers;
use super::{ChaosError, ChaosPlan};

pub use rig::{ProcessRig, Signer};

/// Issuer and audience of the tokens of a run.
const ISSUER: &str = "llmx-local";
const AUDIENCE: &str = "llmx";
/// Lifetime of those tokens, in seconds: longer than any run.
const TOKEN_LIFETIME_S: u64 = 86_400;
/// Records of a lane between two checkpoints: a few in every minute, so that restarts use them.
const CHECKPOINT_EVERY: &str = "1000";
/// Longest wait for every process to be ready, and then for every agent to be connected.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at whether they are.
const READY_POLL: Duration = Duration::from_millis(50);
/// Longest a process may take to end when asked to: it hands over, logs and drains.
const END_TIMEOUT: Duration = Duration::from_secs(15);
/// What an engine prints once it serves its lanes.
const ENGINE_READY: &str = "engine: ";
/// What a gateway prints once it serves, and what `llmx serve` does.
const GATEWAY_READY: &str = "gateway: ";
const SERVED_READY: &str = "exchange: ";
/// What a process of agents prints once they are connected.
const AGENTS_READY: &str = "agents: ";
/// Where gateways listen.
const LOOPBACK: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The running exchange. Every process ends with it.
pub(super) struct TestCluster {
    engines: Vec<Service>,
    gateways: Vec<Service>,
    /// Processes of agents; empty unless agents are to be hit.
    agents: Vec<Service>,
    /// One before each engine, then one before each gateway; empty unless links are to be hit.
    links: Vec<Proxy>,
    nats: Servers,
    gateway_urls: Vec<String>,
    engine_urls: Vec<String>,
    key: SigningKey,
    folder: TempDir,
    binary: PathBuf,
}

impl TestCluster {
    pub(super) async fn start(plan: &ChaosPlan, binary: &Path) -> Result<Self, ChaosError> {
        let folder = TempDir::with_prefix("llmx-chaos-")?;
        let nats = if plan.is_served {
            Servers::Served { folder: folder.path().to_owned() }
        } else {
            Servers::start(plan.replicas).await?
        };
        let key = SigningKey::generate(KeyAlgorithm::EdDsa)?;
        let jwks = folder.path().join("jwks.json");
        std::fs::write(&jwks, key_set(&[&key]))?;
        std::fs::write(folder.path().join("signing-key.pem"), key.to_pem())?;
        let mut cluster = Self {
            engines: Vec::new(),
            gateways: Vec::new(),
            agents: Vec::new(),
            links: Vec::new(),
            nats,
            gateway_urls: Vec::new(),
            engine_urls: Vec::new(),
            key,
            folder,
            binary: binary.to_owned(),
        };
        for number in 0..plan.engines {
            let name = engine_name(number);
            let nats = cluster.way_to_nats(plan).await?;
            let (standbys, listen) = (plan.standbys.to_string(), SocketAddr::new(LOOPBACK, port()?).to_string());
            let mut arguments = vec!["engine", "--id", &name, "--nats", &nats, "--standbys", &standbys];
            arguments.extend(["--listen", &listen, "--checkpoint-every", CHECKPOINT_EVERY]);
            let register_keep_s = plan.register_keep_s.map(|seconds| seconds.to_string());
            arguments.extend(register_keep_s.iter().flat_map(|seconds| ["--register-keep-s", seconds]));
            let arguments = arguments.into_iter().map(str::to_owned).collect();
            cluster.engines.push(cluster.service(&name, arguments, plan));
            cluster.engine_urls.push(format!("http://{listen}"));
        }
        for number in 0..plan.gateways {
            let name = format!("gateway-{number}");
            let listen = SocketAddr::new(LOOPBACK, port()?).to_string();
            let arguments = if plan.is_served {
                let data = cluster.folder.path().display().to_string();
                ["serve", "--listen", &listen, "--data", &data].map(str::to_owned).to_vec()
            } else {
                let (nats, jwks) = (cluster.way_to_nats(plan).await?, jwks.display().to_string());
                let arguments = ["gateway", "--id", &name, "--nats", &nats, "--listen", &listen, "--jwks", &jwks];
                arguments.map(str::to_owned).to_vec()
            };
            cluster.gateways.push(cluster.service(&name, arguments, plan));
            cluster.gateway_urls.push(format!("http://{listen}"));
        }
        cluster.start_all().await?;
        Ok(cluster)
    }

    fn service(&self, name: &str, mut arguments: Vec<String>, plan: &ChaosPlan) -> Service {
        let (lanes, replicas) = (plan.lanes.to_string(), plan.replicas.to_string());
        arguments.extend(["--lanes", &lanes, "--replicas", &replicas].map(str::to_owned));
        Service::new(name, &self.binary, arguments, self.folder.path())
    }

    /// Starts one more process of agents, which is told who they are.
    pub(super) fn add_agents(&mut self, told: &[u8]) -> io::Result<()> {
        let name = format!("agents-{}", self.agents.len());
        let path = self.folder.path().join(format!("{name}.json"));
        std::fs::write(&path, told)?;
        let arguments = ["chaos".to_owned(), "--host".to_owned(), path.display().to_string()].to_vec();
        let mut service = Service::new(&name, &std::env::current_exe()?, arguments, self.folder.path());
        service.start()?;
        self.agents.push(service);
        Ok(())
    }

    /// The address one process is given: nats-server's, or that of a link of its own before it.
    async fn way_to_nats(&mut self, plan: &ChaosPlan) -> Result<String, ChaosError> {
        if !plan.kinds().contains(&FaultKind::Link) {
            return Ok(self.nats.urls());
        }
        let target = self.nats.urls().trim_start_matches("nats://").parse().map_err(io::Error::other)?;
        let link = Proxy::start(target).await?;
        let url = format!("nats://{}", link.address());
        self.links.push(link);
        Ok(url)
    }

    async fn start_all(&mut self) -> Result<(), ChaosError> {
        for service in self.engines.iter_mut().chain(&mut self.gateways) {
            service.start()?;
        }
        self.ready().await
    }

    /// Waits until every process is ready, those too that were started again.
    pub(super) async fn ready(&mut self) -> Result<(), ChaosError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let is_served = matches!(self.nats, Servers::Served { .. });
        let gateway_ready = if is_served { SERVED_READY } else { GATEWAY_READY };
        loop {
            let mut late = Vec::new();
            for (service, ready) in self
                .engines
                .iter_mut()
                .map(|service| (service, ENGINE_READY))
                .chain(self.gateways.iter_mut().map(|service| (service, gateway_ready)))
                .chain(self.agents.iter_mut().map(|service| (service, AGENTS_READY)))
            {
                if let Some(status) = service.ended() {
                    return Err(ChaosError::NotReady(format!(
                        "{} ended, {status}: {}",
                        service.name(),
                        service.tail()
                    )));
                }
                if !service.has_said(ready) {
                    late.push(service.name().to_owned());
                }
            }
            if late.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(ChaosError::NotReady(format!("not ready within {READY_TIMEOUT:?}: {}", late.join(", "))));
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    /// A bus of the checker's own.
    pub(super) async fn open_bus(&self, plan: &ChaosPlan) -> Result<Bus, BusError> {
        let mut options = NatsOptions::new(self.nats.urls());
        options.name = "llmx-chaos".to_owned();
        options.lanes = Some(plan.lanes);
        options.replicas = usize::from(plan.replicas);
        bus::nats::open(options).await
    }

    pub(super) fn gateway_urls(&self) -> &[String] {
        &self.gateway_urls
    }

    /// Where each process serves its metrics, by its name.
    fn metrics_urls(&self) -> Vec<(String, String)> {
        let services = self.engines.iter().zip(&self.engine_urls).chain(self.gateways.iter().zip(&self.gateway_urls));
        services.map(|(service, url)| (service.name().to_owned(), format!("{url}/metrics"))).collect()
    }

    /// What signs tokens of agents.
    pub(super) fn signer(&self) -> Signer {
        let key = self.key.clone();
        Arc::new(move |agent| key.sign(&Claims::new(agent, ISSUER, AUDIENCE, TOKEN_LIFETIME_S)).unwrap_or_default())
    }

    pub(super) fn admin_token(&self) -> Result<String, ChaosError> {
        let operator = AgentId::try_new("operator").expect("the constant is a name");
        Ok(self.key.sign(&Claims::new(&operator, ISSUER, AUDIENCE, TOKEN_LIFETIME_S).admin())?)
    }

    /// The numbers of a kind that may be hit now: never the last that is up, unless there is only one at all.
    pub(super) async fn may_be_hit(&self, kind: FaultKind) -> Vec<usize> {
        let (up, total) = match kind {
            FaultKind::Nats => return self.nats.may_be_hit().await,
            FaultKind::Engine => (up(&self.engines), self.engines.len()),
            FaultKind::Gateway => (up(&self.gateways), self.gateways.len()),
            FaultKind::Agents => (up(&self.agents), self.agents.len()),
            FaultKind::Link => {
                let links = self.links.iter().enumerate();
                let up = links.filter(|(_, link)| link.mode() == Mode::Forward).map(|(number, _)| number);
                (up.collect(), self.links.len())
            }
        };
        if up.len() > 1 || total == 1 { up } else { Vec::new() }
    }

    /// How what is hit is called in logs and reports.
    pub(super) fn name(&self, kind: FaultKind, number: usize) -> String {
        match kind {
            FaultKind::Engine => self.engines[number].name().to_owned(),
            FaultKind::Gateway => self.gateways[number].name().to_owned(),
            FaultKind::Agents => self.agents[number].name().to_owned(),
            FaultKind::Nats => format!("nats-{number}"),
            FaultKind::Link => format!("link-{number}"),
        }
    }

    /// Does what a fault says.
    pub(super) fn inject(&mut self, fault: &ScheduledFault) -> Result<(), ChaosError> {
        let number = fault.number;
        match (fault.kind, fault.action) {
            (FaultKind::Link, FaultAction::HalfOpen) => self.links[number].set(Mode::HalfOpen),
            (FaultKind::Link, _) => self.links[number].set(Mode::Cut),
            (FaultKind::Nats, FaultAction::Pause) => self.nats.pause(number)?,
            (FaultKind::Nats, _) => self.nats.kill(number),
            (FaultKind::Engine, FaultAction::Pause) => self.engines[number].pause()?,
            (FaultKind::Gateway, FaultAction::Pause) => self.gateways[number].pause()?,
            (FaultKind::Agents, FaultAction::Pause) => self.agents[number].pause()?,
            (FaultKind::Engine, _) => self.engines[number].kill(),
            (FaultKind::Gateway, _) => self.gateways[number].kill(),
            (FaultKind::Agents, _) => self.agents[number].kill(),
        }
        Ok(())
    }

    /// Ends what a fault did.
    pub(super) async fn mend(&mut self, fault: &ScheduledFault) -> Result<(), ChaosError> {
        let number = fault.number;
        match (fault.kind, fault.action) {
            (FaultKind::Link, _) => self.links[number].set(Mode::Forward),
            (FaultKind::Nats, FaultAction::Pause) => self.nats.unpause(number)?,
            (FaultKind::Nats, _) => self.nats.resume(number).await?,
            (FaultKind::Engine, FaultAction::Pause) => self.engines[number].unpause()?,
            (FaultKind::Gateway, FaultAction::Pause) => self.gateways[number].unpause()?,
            (FaultKind::Agents, FaultAction::Pause) => self.agents[number].unpause()?,
            (FaultKind::Engine, _) => self.engines[number].start()?,
            (FaultKind::Gateway, _) => self.gateways[number].start()?,
            (FaultKind::Agents, _) => self.agents[number].start()?,
        }
        Ok(())
    }

    /// Processes that ended by themselves since the last call, each with its last words; they are started again, as a
    /// supervisor would.
    pub(super) fn supervise(&mut self) -> io::Result<Vec<String>> {
        let mut ended = Vec::new();
        for service in self.engines.iter_mut().chain(&mut self.gateways).chain(&mut self.agents) {
            if let Some(status) = service.ended() {
                ended.push(format!("{} ended by itself, {status}: {}", service.name(), service.tail()));
                service.start()?;
            }
        }
        Ok(ended)
    }

    /// Asks the processes of agents to end; the names of those that did not end well in time.
    pub(super) async fn end_agents(&mut self) -> io::Result<Vec<String>> {
        end_all(self.agents.iter_mut()).await
    }

    /// Asks every other process to end; the names of those that did not end well in time. `llmx serve` starts once more: its
    /// nats-server, which ended with it, holds what is judged.
    pub(super) async fn end(&mut self) -> Result<Vec<String>, ChaosError> {
        let unwilling = end_all(self.gateways.iter_mut().chain(&mut self.engines)).await?;
        if matches!(self.nats, Servers::Served { .. }) {
            self.start_all().await?;
        }
        Ok(unwilling)
    }

    /// Processes besides nats-servers.
    pub(super) fn processes(&self) -> usize {
        self.engines.len() + self.gateways.len() + self.agents.len()
    }

    /// Where everything of the run lies.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves the folder with the processes' output behind; where it is.
    pub(super) fn keep_output(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }
}

async fn end_all(services: impl Iterator<Item = &mut Service>) -> io::Result<Vec<String>> {
    let ends = services.map(async |service| Ok((service.end(END_TIMEOUT).await?, service.name().to_owned())));
    let ends: Vec<io::Result<(bool, String)>> = futures_util::future::join_all(ends).await;
    let mut failed = Vec::new();
    for end in ends {
        let (ended_well, name) = end?;
        if !ended_well {
            failed.push(name);
        }
    }
    Ok(failed)
}

/// The id of an engine, in claims too.
fn engine_name(number: usize) -> String {
    format!("engine-{number}")
}

fn up(services: &[Service]) -> Vec<usize> {
    services.iter().enumerate().filter(|(_, service)| service.is_up()).map(|(number, _)| number).collect()
}
