//! An exchange in this process, a key to sign tokens with, and the program beside it.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agents::ContractorConfig;
use agents::control::ControlClient;
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use bus::memory::MemoryOptions;
use gateway::keys::Claims;
use schemas::AgentId;
use schemas::TopicName;
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::ids::Capability;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::{Access, CallScenario, Population};

use crate::program::program;

/// Longest a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) exchange: Exchange,
    pub(crate) control: ControlClient,
    folder: TempDir,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let bus = bus::memory::open(MemoryOptions::default());
        let exchange = Exchange::start(bus, ExchangeOptions::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key.pem"), exchange.signing_key().to_pem()).unwrap();
        let control = ControlClient::try_new(exchange.url()).unwrap();
        Self { exchange, control, folder }
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn token(&self, name: &str) -> String {
        self.exchange.identity(&agent(name)).unwrap().token.current()
    }

    /// A token that ran out an hour ago.
    pub(crate) fn expired_token(&self, name: &str) -> String {
        let mut claims: Claims = Exchange::claims(&agent(name));
        (claims.iat, claims.exp) = (claims.iat - 7200, claims.iat - 3600);
        self.exchange.signing_key().sign(&claims).unwrap()
    }

    pub(crate) async fn register(&self, name: &str, topic: &str, capability: &str) {
        self.register_for(name, topic, capability, Registration::default().lease_ms).await;
    }

    /// The same with a lease.
    pub(crate) async fn register_for(&self, name: &str, topic: &str, capability: &str, lease_ms: u32) {
        let registration = Registration {
            lease_ms,
            capabilities: vec![Capability::try_new(capability).unwrap()],
            topics: vec![TopicName::try_new(topic).unwrap()],
            consent: Consent { default: ConsentEffect::Allow, rules: Vec::new() },
            ..Registration::default()
        };
        self.control.register(&agent(name), &self.token(name), &registration).await.unwrap();
    }

    /// Contractors that offer, confirm and report.
    pub(crate) async fn population(&self, count: u32, contractor: ContractorConfig) -> Population {
        let transport = |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&self.exchange.bus)) };
        let identity = |name: &AgentId| self.exchange.identity(name).unwrap();
        let access = Access { control: &self.control, transport: &transport, identity: &identity };
        let scenario = CallScenario { contractors: count, contractor, ..CallScenario::default() };
        Population::start(&access, &scenario, None).await.unwrap()
    }

    /// The program, told where the exchange is and which key it signs with.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program(args));
        command.args(args).env("LLMX_GATEWAY", self.exchange.url()).env("LLMX_SIGNING_KEY", self.key());
        command.env_remove("LLMX_TOKEN").env_remove("LLMX_LOG").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output()).await
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }
}

/// What the program said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) async fn of(output: impl Future<Output = std::io::Result<Output>>) -> Self {
        let output = tokio::time::timeout(PATIENCE, output).await.expect("it ends by itself").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Standard output, which must be one JSON document.
    pub(crate) fn document(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

/// Sends a signal, as a shell does.
pub(crate) fn signal(child: &Child, name: &str) {
    let id = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args([name, &id]).status().unwrap().success());
}
