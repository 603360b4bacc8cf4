//! `llmx ioa`: the published code of the Internet of Agents on this exchange.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::agents::transport::Transport;
use ::agents::transport::websocket::WebSocketTransport;
use ::agents::{AgentOptions, Identity, Token};
use ::gateway::TOKEN_BYTES_MAX;
use ::gateway::server::{self, ServerOptions};
use agents::control::{ControlClient, ControlError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ioa_bridge::FoundClient;
use ioa_bridge::{Bridge, BridgeOptions, ExchangeDirectory, NameBook, NamedAgent};
use schemas::control::{AgentKind, Registration};
use schemas::search::SearchRequest;
use schemas::{AgentId, Code, Refusal};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arguments::{http_url, listen_address, read_text, since_epoch};
use crate::output::{Failure, Outcome, note, print, tracer};
use crate::remote::GATEWAY_DEFAULT;
use crate::signals::asked_to_end;

/// Largest file of names, in bytes.
const NAMES_BYTES_MAX: u64 = 1 << 20;
/// Connections open at once: a socket for each name, and requests.
const CONNECTIONS_MAX: usize = 1024;
/// How long a client may take to send a request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for requests under way at the end.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// Arguments of `llmx ioa`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx ioa bridge --agents names.toml\n\nWhat teams are: docs/teams.md")]
pub struct IoaArgs {
    #[command(subcommand)]
    command: IoaCommand,
}

#[derive(Debug, clap::Subcommand)]
enum IoaCommand {
    /// Clients of the published code, unchanged, as agents of this exchange
    #[command(after_help = "Examples:\n  llmx ioa bridge --agents names.toml\n  \
        llmx ioa bridge --listen 127.0.0.1:7788 --agents names.toml --gateway http://127.0.0.1:8080\n\n\
        The file says which agent of the exchange each name is, and where its token is (from `llmx token`):\n  \
        [[agent]]\n  name = \"Trip Planner\"\n  agent = \"alice\"\n  token_file = \"alice.token\"\n\n\
        Such clients carry no token: whoever reaches the address speaks for every name of the file. Keep it on loopback.\n\
        At its end it says how many frames were dropped, and why. docs/teams.md\n\
        Exit codes: 2 a file that does not fit, or an address that is taken.")]
    Bridge(BridgeArgs),
}

/// Arguments of `llmx ioa bridge`.
#[derive(Debug, clap::Args)]
struct BridgeArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:7788", value_name = "ADDRESS", value_parser = listen_address)]
    listen: SocketAddr,
    /// The names, in TOML
    #[arg(long, value_name = "FILE")]
    agents: PathBuf,
    /// A gateway's address
    #[arg(long, env = "LLMX_GATEWAY", default_value = GATEWAY_DEFAULT, value_name = "URL", value_parser = http_url)]
    gateway: String,
}

/// The document of `--agents`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamesFile {
    agent: Vec<NamedAgent>,
}

/// Runs the subcommand.
pub async fn run(args: IoaArgs) -> Outcome {
    match args.command {
        IoaCommand::Bridge(args) => serve(args).await,
    }
}

async fn serve(args: BridgeArgs) -> Outcome {
    let names = read_names(&args.agents)?;
    let unbound = |error| Failure::configuration(format_args!("cannot listen on {}: {error}", args.listen));
    let listener = server::bind(args.listen).map_err(unbound)?;
    let address = listener.local_addr().map_err(unbound)?;
    let directory = GatewayDirectory { control: ControlClient::try_new(args.gateway.as_str())?, names: names.clone() };
    let gateway = args.gateway.clone();
    let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(WebSocketTransport::new(&gateway)) };
    let options = BridgeOptions {
        agents: AgentOptions { tracer: tracer(), ..AgentOptions::default() },
        run: u64::try_from(since_epoch().as_micros()).unwrap_or_default(),
        ..BridgeOptions::default()
    };
    let bridge = Arc::new(Bridge::new(names, Arc::new(directory), transport, options));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let router = ioa_bridge::http::router(Arc::clone(&bridge), stop.clone());
    let options = ServerOptions::new(CONNECTIONS_MAX, CLIENT_TIMEOUT);
    tasks.spawn(server::drive(listener, router, options, tasks.clone(), stop.clone()));
    print(format_args!("bridge: http://{address} for {}", args.gateway));
    asked_to_end().await;
    stop.cancel();
    tasks.close();
    // Whoever still waits for an answer loses it.
    let _ = tokio::time::timeout(CLOSE_MAX, tasks.wait()).await;
    bridge.shutdown().await;
    let dropped: Vec<String> = bridge.hub().dropped().iter().map(|(why, count)| format!("{why} {count}")).collect();
    note(format_args!("frames dropped: {}", dropped.join(", ")));
    Ok(())
}

/// Reads the names, and the token of each from the file beside them.
fn read_names(path: &Path) -> Result<NameBook, Failure> {
    let fault = |what: &dyn std::fmt::Display| Failure::configuration(format_args!("{}: {what}", path.display()));
    let text = read_text(path, NAMES_BYTES_MAX).map_err(|error| fault(&error))?;
    let file: NamesFile = toml::from_str(&text).map_err(|error| fault(&error))?;
    let mut named = Vec::new();
    for NamedAgent { name, agent, token_file } in file.agent {
        let beside = path.parent().unwrap_or(Path::new("")).join(&token_file);
        let token = read_text(&beside, TOKEN_BYTES_MAX as u64);
        let token = token.map_err(|error| fault(&format_args!("token of {agent}, {}: {error}", beside.display())))?;
        named.push((name, Identity { agent, token: Token::fixed(token.trim()) }));
    }
    NameBook::try_new(named).map_err(|error| fault(&error))
}

/// A gateway's control plane, as the bridge asks it.
struct GatewayDirectory {
    control: ControlClient,
    names: NameBook,
}

impl GatewayDirectory {
    fn ask<T: Send + 'static>(
        &self,
        agent: &AgentId,
        ask: impl FnOnce(ControlClient, String) -> BoxFuture<'static, Result<T, ControlError>>,
    ) -> BoxFuture<'static, Result<T, Refusal>> {
        let token = self.names.identity(agent).map(|identity| identity.token.current()).unwrap_or_default();
        ask(self.control.clone(), token).map(|asked| asked.map_err(Refusal::from)).boxed()
    }
}

/// What the bridge reads of an agent at a gateway.
#[derive(Deserialize)]
struct ShownAgent {
    #[serde(default)]
    kind: AgentKind,
    description: Option<String>,
}

impl ExchangeDirectory for GatewayDirectory {
    fn register(&self, agent: AgentId, document: Registration) -> BoxFuture<'static, Result<(), Refusal>> {
        let id = agent.clone();
        self.ask(&agent, move |control: ControlClient, token: String| {
            async move { control.register(&id, &token, &document).await }.boxed()
        })
    }

    fn search(&self, agent: AgentId, texts: Vec<String>) -> BoxFuture<'static, Result<Vec<FoundClient>, Refusal>> {
        self.ask(&agent, move |control: ControlClient, token: String| {
            async move {
                let found = control.search(&token, &SearchRequest::of_texts(texts)).await?;
                let client = |hit: schemas::search::SearchHit| FoundClient {
                    agent: hit.agent,
                    kind: hit.kind,
                    description: hit.description.unwrap_or_default(),
                };
                Ok(found.hits.into_iter().map(client).collect())
            }
            .boxed()
        })
    }

    fn show(&self, agent: AgentId, wanted: AgentId) -> BoxFuture<'static, Result<Option<FoundClient>, Refusal>> {
        self.ask(&agent, move |control: ControlClient, token: String| {
            async move {
                match control.read::<ShownAgent>(&format!("/v1/agents/{wanted}"), &token).await {
                    Ok(ShownAgent { kind, description }) => {
                        Ok(Some(FoundClient { agent: wanted, kind, description: description.unwrap_or_default() }))
                    }
                    Err(ControlError::Refused(refusal)) if refusal.code == Code::NotFound => Ok(None),
                    Err(error) => Err(error),
                }
            }
            .boxed()
        })
    }
}
