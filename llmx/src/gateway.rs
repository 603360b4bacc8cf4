//! `llmx gateway`: one gateway, on NATS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ::gateway::{AuthConfig, ConsoleAccess, Gateway, GatewayConfig, GatewayMetrics, KeySource};
use anyhow::Context;

use crate::nats::NatsArgs;
use crate::output::{Failure, Outcome, print};
use crate::signals::asked_to_end;

/// Arguments of `llmx gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  llmx keys --out run/keys\n  \
    llmx gateway --nats nats://127.0.0.1:4222 --jwks run/keys/jwks.json --issuer llmx-local\n\n\
    A configuration file holds what llmx.example.toml explains, under [gateway]; flags win over it.")]
pub struct Args {
    #[command(flatten)]
    nats: NatsArgs,
    /// Configuration file (TOML, section [gateway])
    #[arg(long, env = "LLMX_CONFIG")]
    config: Option<PathBuf>,
    /// Name in records and logs: 1 to 64 of A-Z a-z 0-9 _ -; gateways that run at once must differ
    #[arg(long, env = "LLMX_GATEWAY_ID", value_name = "NAME", value_parser = crate::ops::instance_id)]
    id: Option<String>,
    /// Address to listen on
    #[arg(long, env = "LLMX_LISTEN")]
    listen: Option<SocketAddr>,
    /// Key set that verifies tokens: a file, or an https URL
    #[arg(long, env = "LLMX_JWKS")]
    jwks: Option<String>,
    /// Issuer every token must name
    #[arg(long, env = "LLMX_ISSUER")]
    issuer: Option<String>,
    /// Audience every token must name
    #[arg(long, env = "LLMX_AUDIENCE")]
    audience: Option<String>,
    /// Who may look at the console at `/`; changing something takes an administrator's token in any case
    #[arg(long, env = "LLMX_CONSOLE", value_enum)]
    console: Option<Console>,
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

impl From<Console> for ConsoleAccess {
    fn from(console: Console) -> Self {
        match console {
            Console::Token => Self::Token,
            Console::Open => Self::Open,
            Console::Off => Self::Off,
        }
    }
}

#[derive(serde::Deserialize)]
struct File {
    gateway: GatewayConfig,
}

impl Args {
    /// Its name, where the command line gives one.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn config(&self) -> Result<GatewayConfig, Failure> {
        let mut config = match &self.config {
            Some(path) => read(path)?,
            None => {
                let jwks = self.jwks.as_deref().ok_or_else(|| {
                    Failure::configuration("no key set: give --jwks FILE or URL (`llmx keys` makes one), or --config")
                })?;
                let issuer = self.issuer.as_deref().unwrap_or("llmx-local");
                let mut config = GatewayConfig::new(AuthConfig::new(key_source(jwks), issuer));
                config.listen = Some(SocketAddr::from(([127, 0, 0, 1], 8080)));
                config
            }
        };
        if let Some(id) = &self.id {
            config.id.clone_from(id);
        }
        if let Some(listen) = self.listen {
            config.listen = Some(listen);
        }
        if let Some(jwks) = &self.jwks {
            config.auth.keys = key_source(jwks);
        }
        if let Some(issuer) = &self.issuer {
            config.auth.issuer.clone_from(issuer);
        }
        if let Some(audience) = &self.audience {
            config.auth.audience.clone_from(audience);
        }
        if let Some(console) = self.console {
            config.console = console.into();
        }
        config.policies.extend(policy_core::presets());
        config.check().map_err(Failure::configuration)?;
        Ok(config)
    }
}

fn key_source(text: &str) -> KeySource {
    if text.starts_with("https://") || text.starts_with("http://") {
        KeySource::Url(text.to_owned())
    } else {
        KeySource::File(PathBuf::from(text))
    }
}

fn read(path: &PathBuf) -> Result<GatewayConfig, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::configuration(format_args!("cannot read {}: {error}", path.display())))?;
    let file: File =
        toml::from_str(&text).map_err(|error| Failure::configuration(format_args!("{}: {error}", path.display())))?;
    Ok(file.gateway)
}

/// Runs until asked to end.
pub async fn run(args: Args) -> Outcome {
    let mut config = args.config()?;
    config.tracer = crate::output::tracer();
    let registry = crate::ops::registry()?;
    let bus = args.nats.open_counted(&config.id, &registry).await?;
    let alike = GatewayConfig { id: String::new(), listen: None, ..config.clone() };
    telemetry::metrics::process::register_config(&registry, &alike)?;
    let metrics = Arc::new(GatewayMetrics::new(&registry)?);
    let gateway = Gateway::start(bus, config, metrics).await.context("the gateway does not start")?;
    if let Some(address) = gateway.local_addr() {
        print(format_args!("gateway: http://{address}"));
    }
    asked_to_end().await;
    gateway.shutdown().await;
    Ok(())
}
