//! `llmx gateway`: one gateway, on NATS.

pub mod settings;

use std::path::PathBuf;
use std::sync::Arc;

use ::gateway::{ConsoleAccess, Gateway, GatewayConfig, GatewayError, GatewayHandle, GatewayMetrics};
use anyhow::Context;
use bus::Bus;
use prometheus::Registry;
use serde_json::{Value, json};

use self::settings::Settings;
pub use self::settings::console;
use crate::nats::NatsArgs;
use crate::output::{Failure, Outcome, print};
use crate::runtime::ThreadsArgs;
use crate::settings::{File, Given, Section};
use crate::signals::asked_to_end;

/// Arguments of `llmx gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx keys\n  \
    llmx gateway --nats nats://127.0.0.1:4222 --jwks llmx-data/jwks.json --issuer llmx-local\n\n\
    A configuration file holds what llmx.example.toml explains, under [gateway] and [nats],\n\
    all of it or some: a flag wins over a variable, that over the file, that over the default. `llmx config show gateway`\n\
    with the same flags tells what is in force.")]
pub struct GatewayArgs {
    #[command(flatten)]
    nats: NatsArgs,
    /// Configuration file (TOML, tables `gateway` and `nats`)
    #[arg(long, env = "LLMX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Members of `[gateway]`.
    #[command(flatten)]
    pub settings: Settings,
    /// The threads it runs on.
    #[command(flatten)]
    pub threads: ThreadsArgs,
}

/// Who may look at the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Console {
    /// Totals for everybody, names and journals for administrators (the default)
    Token,
    /// Everything for everybody who reaches the port
    Open,
    /// Nothing for anybody
    Off,
}

crate::same_variants!(Console => ConsoleAccess: Token, Open, Off);

/// Tables of `[gateway]` that are merged member by member.
pub const GROUPS: [&str; 2] = ["auth", "limits"];

/// The sections a gateway is configured by.
pub struct Sections {
    /// `[nats]`.
    pub nats: Section,
    /// `[gateway]`.
    pub gateway: Section,
}

impl Sections {
    /// Of a command line, its environment, and the file it names.
    pub fn of(given: &Given<GatewayArgs>) -> Result<Self, Failure> {
        let file = given.args.config.as_deref().map(File::read).transpose()?;
        Ok(Self {
            nats: Section::new("nats", &[], file.as_ref(), given, &given.args.nats)?,
            gateway: Section::new("gateway", &GROUPS, file.as_ref(), given, &given.args.settings)?,
        })
    }

    /// How NATS is reached.
    pub fn nats_in_force(&self) -> Result<Value, Failure> {
        NatsArgs::of(&self.nats)?.in_force()
    }

    /// The configuration in force.
    pub fn config(&self) -> Result<GatewayConfig, Failure> {
        // A file whose table is misspelt holds its keys where nobody looks: its own faults are the better answer.
        let config = self.config_with(json!({"inline": ""}))?;
        if self.gateway.has("auth.keys") {
            return Ok(config);
        }
        Err(Failure::configuration(
            "no key set: give --jwks FILE or URL (`llmx keys` makes one), LLMX_JWKS, or `keys` under [gateway.auth] \
             of --config",
        ))
    }

    /// The same, with these keys where none are given.
    pub fn config_with(&self, keys: Value) -> Result<GatewayConfig, Failure> {
        let config: GatewayConfig = if self.gateway.has("auth.keys") {
            self.gateway.read()?
        } else {
            self.gateway.with_default("auth", "keys", keys).read()?
        };
        match config.fault() {
            Some(fault) => Err(self.gateway.fault(fault.member, &fault.expected)),
            None => Ok(config),
        }
    }

    /// Starts a gateway of this configuration.
    pub async fn start(&self, bus: Bus, config: GatewayConfig, registry: &Registry) -> Result<GatewayHandle, Failure> {
        let mut config = config;
        config.policies.extend(policy_core::presets());
        config.tracer = crate::output::tracer();
        let metrics = Arc::new(GatewayMetrics::new(registry)?);
        match Gateway::start(bus, config, metrics).await {
            Err(GatewayError::Setting(fault)) => Err(self.gateway.fault(fault.member, &fault.expected)),
            started => Ok(started.context("the gateway does not start")?),
        }
    }
}

/// Runs until asked to end.
pub async fn run(given: Given<GatewayArgs>) -> Outcome {
    let sections = Sections::of(&given)?;
    let config = sections.config()?;
    let registry = crate::ops::registry()?;
    let bus = NatsArgs::of(&sections.nats)?.open_counted(&config.id, &registry).await?;
    let alike = GatewayConfig { id: String::new(), listen: None, ..config.clone() };
    telemetry::metrics::process::register_config(&registry, &alike)?;
    let gateway = sections.start(bus, config, &registry).await?;
    if let Some(address) = gateway.local_addr() {
        print(format_args!("gateway: http://{address}"));
    }
    asked_to_end().await;
    gateway.shutdown().await;
    Ok(())
}
