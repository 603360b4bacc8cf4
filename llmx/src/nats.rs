//! Options of every command that connects to NATS, in layers: flag, variable, table `nats` of a configuration file, default.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bus::memory::MemoryOptions;
use bus::nats::{Client, Credentials, NatsOptions, SyncMode};
use bus::{Bus, BusError};
use nats_server::{LocalServer, LocalServerOptions};
use prometheus::Registry;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ops;
use crate::output::{Failure, announced};
use crate::settings::{File, Given, Section};

/// How to reach NATS.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatsArgs {
    /// NATS servers, separated by commas
    #[arg(id = "url", long = "nats", env = "LLMX_NATS", value_name = "URL", hide_env_values = true)]
    #[serde(rename = "url")]
    pub nats: Option<String>,
    /// Credentials file of the NATS user
    #[arg(id = "creds", long = "nats-creds", hide_short_help = true, env = "LLMX_NATS_CREDS", value_name = "FILE")]
    #[serde(rename = "creds")]
    nats_creds: Option<PathBuf>,
    /// Authorities whose NATS servers are trusted over TLS, in PEM (default: the system's)
    #[arg(long = "nats-ca", hide_short_help = true, env = "LLMX_NATS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate to show to NATS servers, in PEM; TLS is used where the URL has tls:// or the server asks for it
    #[arg(long = "nats-cert", hide_short_help = true, env = "LLMX_NATS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM
    #[arg(long = "nats-key", hide_short_help = true, env = "LLMX_NATS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Lanes of a new log (default 4); a log that exists must have as many
    #[arg(long, hide_short_help = true, value_parser = clap::value_parser!(u8).range(1..=64))]
    lanes: Option<u8>,
    /// Copies of each stream in a NATS cluster (default 1)
    #[arg(long, hide_short_help = true, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub replicas: Option<u8>,
    /// Size in bytes after which the log is full (default: no limit for a new log)
    #[arg(long, hide_short_help = true)]
    log_bytes_max: Option<u64>,
    /// When the servers must flush to disk: `always` is before they acknowledge, and is refused unless `--monitor` shows it
    #[arg(long, hide_short_help = true, value_enum)]
    sync: Option<Sync>,
    /// Monitoring ports of the NATS servers, separated by commas
    #[arg(long, hide_short_help = true, env = "LLMX_NATS_MONITOR", value_name = "URL")]
    monitor: Option<String>,
}

/// The same with a configuration file, for commands that read no other table of it.
#[derive(Debug, Clone, clap::Args)]
pub struct Layered {
    /// What flags and variables say.
    #[command(flatten)]
    pub flags: NatsArgs,
    /// Configuration file (TOML) whose table `nats` lies below flags and variables
    #[arg(long, env = "LLMX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// [`Layered`], and where each of its values comes from.
pub type NatsSource = Given<Layered>;

impl NatsSource {
    /// The same without an address that only a variable names.
    pub fn typed(&self) -> Self {
        let mut typed = self.clone();
        if !typed.is_typed("url") {
            typed.args.flags.nats = None;
        }
        typed
    }

    /// What flags, variables and the file say together. The file is read only here.
    pub fn in_force(&self) -> Result<NatsArgs, Failure> {
        let file = self.args.config.as_deref().map(File::read).transpose()?;
        NatsArgs::of(&Section::new("nats", &[], file.as_ref(), self, &self.args.flags)?)
    }
}

/// When NATS servers flush to disk.
#[derive(Debug, Clone, Copy, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sync {
    /// Every two minutes, or more often
    Default,
    /// Before every acknowledgement
    Always,
}

crate::same_variants!(Sync => SyncMode: Default, Always);

/// Opens a bus.
async fn open(options: NatsOptions) -> Result<Bus, Failure> {
    awaited(&options, bus::nats::open(options.clone())).await
}

/// Connects; a server that cannot be reached is waited for, and said to be missing.
async fn awaited<T>(options: &NatsOptions, opening: impl Future<Output = Result<T, BusError>>) -> Result<T, Failure> {
    let (status, limit) = (Arc::clone(&options.status), options.open_timeout);
    let name = format!("NATS at {} (--nats, LLMX_NATS)", bus::nats::shown(&options.servers));
    let why = || status.fault().map(|fault| format!(" ({fault})")).unwrap_or_default();
    let what = || (status.read().connections == 0).then(|| format!("{name}{}", why()));
    Ok(announced(what, limit, opening).await?)
}

/// Opens the bus of an exchange by the address of its servers alone.
pub async fn open_at(servers: &str, credentials: Option<&Path>, name: &str) -> Result<Bus, Failure> {
    open(options_at(servers, credentials, name)).await
}

/// Connects a service beside the exchange.
pub async fn connect(options: &NatsOptions) -> Result<Client, Failure> {
    awaited(options, bus::nats::connect(options)).await
}

/// Options by the address of servers alone.
pub fn options_at(servers: &str, credentials: Option<&Path>, name: &str) -> NatsOptions {
    let mut options = NatsOptions::new(servers);
    options.name = name.to_owned();
    if let Some(file) = credentials {
        options.credentials = Credentials::File(file.to_owned());
    }
    options
}

/// Where NATS is when nothing else is said.
pub const NATS_DEFAULT: &str = "nats://127.0.0.1:4222";

/// Copies of each stream unless said otherwise.
const REPLICAS_DEFAULT: u8 = 1;

impl NatsArgs {
    /// What `[nats]` of a file, variables and flags say together.
    pub fn of(section: &Section) -> Result<Self, Failure> {
        let mut args: Self = section.read()?;
        // A variable that is set to nothing is a way to unset it.
        args.nats = args.nats.filter(|url| !(url.is_empty() && section.is_of_variable("url")));
        // Not checked by clap, which prints what it refuses: there may be a password in it.
        if let Some(Err(error)) = args.nats.as_deref().map(bus::nats::check_servers) {
            return Err(section.fault("url", &error.to_string()));
        }
        if args.lanes.is_some_and(|lanes| !(1..=64).contains(&lanes)) {
            return Err(section.fault("lanes", "must be 1 to 64"));
        }
        if args.tls_cert.is_some() != args.tls_key.is_some() {
            let given = if args.tls_cert.is_some() { "tls_cert" } else { "tls_key" };
            return Err(
                section.fault(given, "needs the other one: `tls_cert` (--nats-cert) and `tls_key` (--nats-key)")
            );
        }
        if args.replicas.is_some_and(|replicas| !(1..=5).contains(&replicas)) {
            return Err(section.fault("replicas", "must be 1 to 5"));
        }
        Ok(args)
    }

    /// Every member with its default, without what may be secret.
    pub fn in_force(&self) -> Result<Value, Failure> {
        let shown = |urls: &String| bus::nats::shown(urls);
        Ok(serde_json::to_value(Self {
            nats: Some(self.nats.as_ref().map_or_else(|| NATS_DEFAULT.to_owned(), shown)),
            replicas: Some(self.replicas.unwrap_or(REPLICAS_DEFAULT)),
            monitor: self.monitor.as_ref().map(shown),
            ..self.clone()
        })?)
    }

    /// The address, if one is given, without what may be secret.
    pub fn shown(&self) -> Option<String> {
        self.nats.as_deref().map(bus::nats::shown)
    }

    /// Whether anything is asked of a server or its log.
    pub fn wants_server(&self) -> bool {
        let Self { nats, replicas, lanes, log_bytes_max, sync, .. } = self;
        nats.is_some() || replicas.is_some() || lanes.is_some() || log_bytes_max.is_some() || sync.is_some()
    }

    /// Whether the servers must flush before every acknowledgement.
    pub fn syncs_always(&self) -> bool {
        matches!(self.sync, Some(Sync::Always))
    }

    /// Names a server of the run's own.
    pub fn reach(&mut self, url: String, monitor: String) {
        self.nats = Some(url);
        self.monitor = Some(monitor);
    }

    /// Connects, and checks that server and streams fit.
    pub async fn open(&self, name: &str) -> Result<Bus, Failure> {
        open(self.options(name)).await
    }

    /// The same; what the connections do, and what is stored through them, is in `registry`.
    pub async fn open_counted(&self, name: &str, registry: &Registry) -> Result<Bus, Failure> {
        let options = self.options(name);
        ops::bus::register_nats(registry, Arc::clone(&options.status))?;
        Ok(ops::bus::counted(open(options).await?, registry)?)
    }

    fn options(&self, name: &str) -> NatsOptions {
        let mut options = NatsOptions::new(self.nats.as_deref().unwrap_or(NATS_DEFAULT));
        options.name = name.to_owned();
        options.lanes = self.lanes;
        options.replicas = usize::from(self.replicas.unwrap_or(REPLICAS_DEFAULT));
        options.log_bytes_max = self.log_bytes_max;
        options.sync = self.sync.map(SyncMode::from);
        options.monitor.clone_from(&self.monitor);
        if let Some(file) = &self.nats_creds {
            options.credentials = Credentials::File(file.clone());
        }
        options.tls.authorities.clone_from(&self.tls_ca);
        options.tls.identity = self.tls_cert.clone().zip(self.tls_key.clone());
        options
    }
}

/// A nats-server of the run's own; it ends when this is dropped.
pub type Server = LocalServer;

/// The bus of an exchange of the run's own, and what it is: over a nats-server, which has to outlive it, or in memory.
pub async fn open_own(nats_local: bool, name: &str) -> Result<(Option<Server>, Bus, &'static str), Failure> {
    if !nats_local {
        return Ok((None, bus::memory::open(MemoryOptions::default()), "memory"));
    }
    let (server, url) = start_server().await?;
    Ok((Some(server), open_at(&url, None, name).await?, "nats"))
}

/// A nats-server of the run's own, and its URL.
pub async fn start_server() -> Result<(Server, String), Failure> {
    let server = LocalServer::start(LocalServerOptions::default()).await?;
    let url = server.url();
    Ok((server, url))
}
