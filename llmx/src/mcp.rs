//! `llmx mcp` and `llmx bridge`: the exchange as tools, for one agent over standard input and output, and for the bearer
//! of each request over HTTP (docs/mcp.md).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::gateway::TOKEN_BYTES_MAX;
use ::gateway::server::ServerOptions;
use agents::{Identity, Token};
use bridges::http::{self, BridgeOptions, Participants, PublicAddress};
use bridges::mcp::{McpServer, serve_stdio};
use bridges::micro;
use bridges::micro::prompt::{self, AgentSession};
use bridges::tools::ToolSet;
use bridges::{BridgeMetrics, Gateways, Limits, Participant, ToolService};
use schemas::{Address, AgentId};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::access::{AccessArgs, Bearer};
use crate::arguments::{http_url, listen_address, micros, new_id, read_text};
use crate::call::address;
use crate::keys::read_record_key;
use crate::nats::{connect, options_at};
use crate::ops::{self, HealthReport};
use crate::output::{Failure, Outcome, print};
use crate::remote::GATEWAY_DEFAULT;
use crate::signals::asked_to_end;

/// How often presence is looked at.
const PRESENCE_TICK: Duration = Duration::from_secs(2);
/// Connections of clients of a bridge.
const CONNECTIONS_MAX: usize = 8192;
/// Longest wait for what NATS clients are told at the end.
const END_MAX: Duration = Duration::from_secs(2);
/// How long a client of a bridge may take to send a header, and to read what waits for it.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Which tools, within which limits.
#[derive(Debug, clap::Args)]
struct ToolArgs {
    /// Sets of tools: call, answer, bargain, team, panel, documents
    #[arg(long, value_name = "SETS", value_delimiter = ',', default_value = "call,answer,bargain", value_parser = ToolSet::try_new)]
    tools: Vec<ToolSet>,
    /// Highest price of every call, in units such as 90 or 89.50
    #[arg(long, value_name = "AMOUNT", value_parser = micros)]
    price_max: Option<i64>,
    /// Currency of every call, three letters; an offer in another cannot win
    #[arg(long, value_name = "CODE")]
    currency: Option<String>,
    /// Refuse to open or join a bargain without a mandate
    #[arg(long)]
    require_mandate: bool,
}

impl ToolArgs {
    fn limits(&self) -> Limits {
        let (price_max, currency) = (self.price_max, self.currency.clone());
        Limits { price_max, currency, requires_mandate: self.require_mandate }
    }
}

/// Arguments of `llmx mcp`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx mcp --as alice\n  llmx mcp --token-file alice.jwt --gateway https://exchange.example\n  \
    llmx mcp --as alice --tools call,answer,team --price-max 90\n  claude mcp add llmx -- llmx mcp --as alice\n\n\
    A host of language models starts it and speaks the Model Context Protocol with it; how, for each host: docs/mcp.md.\n\
    --price-max and --require-mandate hold whatever a model was told.\n\
    Exit codes: 0 the host has ended it; 1 no gateway answers, or the token is refused; 2 usage or configuration."
)]
pub struct McpArgs {
    /// Who negotiates, where the token is signed here
    #[arg(long = "as", value_name = "AGENT", default_value = "caller", value_parser = AgentId::try_new)]
    agent: AgentId,
    /// File with the token, read anew whenever one is needed
    #[arg(long, value_name = "FILE", conflicts_with = "agent")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tools: ToolArgs,
    #[command(flatten)]
    access: AccessArgs,
}

/// Arguments of `llmx bridge`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx bridge\n  llmx bridge --listen 127.0.0.1:8090 --gateway http://127.0.0.1:8080\n  \
    llmx bridge --public-url https://exchange.example --authorization-server https://login.example\n  \
    llmx bridge --nats nats://bridge:change-me-three@127.0.0.1:4222 --agents-service acme.main\n\n\
    Serves the tools of `llmx mcp` at /mcp by the Model Context Protocol, and negotiations as tasks of A2A at /a2a, to whoever\n\
    shows a token that the gateways take; /healthz, /readyz, /metrics. It holds no keys. docs/mcp.md, docs/a2a.md\n\
    Exit codes: 1 an address that is taken; 2 usage or configuration."
)]
pub struct ToolBridgeArgs {
    /// Address to listen on
    #[arg(long, env = "LLMX_LISTEN", default_value = "127.0.0.1:8090", value_name = "ADDRESS", value_parser = listen_address)]
    listen: SocketAddr,
    /// Gateways' addresses, separated by commas; the first that answers is used
    #[arg(long, env = "LLMX_GATEWAY", default_value = GATEWAY_DEFAULT, value_name = "URLS", value_delimiter = ',', value_parser = http_url)]
    gateway: Vec<String>,
    /// Address under which clients know it (default: that it listens on)
    #[arg(long, value_name = "URL", value_parser = http_url)]
    public_url: Option<String>,
    /// NATS on which the tools are a service, too: `nats req llmx.follow`
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// Also answer prompts of the Synadia Agent Protocol there, at agents.prompt.llmx.OWNER.SESSION
    #[arg(long, value_name = "OWNER.SESSION", requires = "nats")]
    agents_service: Option<AgentSession>,
    /// Credentials file of NATS
    #[arg(long, value_name = "FILE", requires = "nats")]
    nats_creds: Option<PathBuf>,
    /// Authorization server that issues tokens, for clients to find
    #[arg(long, value_name = "URL", value_parser = http_url)]
    authorization_server: Option<String>,
    /// Key that signs the agent card, made by `llmx keys --purpose records`
    #[arg(long, value_name = "FILE")]
    card_key: Option<PathBuf>,
    /// Whom a text without a request calls over A2A: agent://, topic://, group://
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', value_parser = address)]
    text_to: Vec<Address>,
    #[command(flatten)]
    tools: ToolArgs,
}

/// Serves the host until it ends its side, or a signal comes.
pub async fn run(args: McpArgs) -> Outcome {
    let identity = args.identity().await?;
    let instance = new_id("mcp");
    let participant = Participant::open(identity, args.access.transport()?, Arc::default());
    let gateways = Gateways::try_new(&args.access.gateway)?;
    let sets = args.tools.tools.clone();
    let service = ToolService::new(participant, gateways, sets.clone(), args.tools.limits(), instance);
    let service = Arc::new(service);
    let server = McpServer::new(service.clone(), sets, crate::VERSION);
    let served = tokio::select! {
        served = serve_stdio(server, tokio::io::stdin(), tokio::io::stdout()) => served,
        () = keep_presence(&service) => Ok(()),
        () = asked_to_end() => Ok(()),
    };
    service.close().await;
    served.map_err(Failure::failed)
}

/// Takes a registration back that nobody attends to.
async fn keep_presence(service: &ToolService) {
    let mut tick = tokio::time::interval(PRESENCE_TICK);
    loop {
        tick.tick().await;
        service.deregister_absent().await;
    }
}

impl McpArgs {
    async fn identity(&self) -> Result<Identity, Failure> {
        if let Some(path) = self.token_file.clone() {
            read_token(&path)?;
            let token = Token::renewed(move || read_token(&path).unwrap_or_default());
            return self.access.identity(Bearer { token, is_signed_here: false }).await;
        }
        let bearer = self.access.bearer(&self.agent)?;
        if bearer.is_signed_here {
            return Ok(Identity { agent: self.agent.clone(), token: bearer.token });
        }
        self.access.identity(bearer).await
    }
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let fault = |error| Failure::configuration(format_args!("{}: {error}", path.display()));
    read_text(path, TOKEN_BYTES_MAX as u64).map(|text| text.trim().to_owned()).map_err(fault)
}

/// Serves until a signal comes.
pub async fn bridge(args: ToolBridgeArgs) -> Outcome {
    args.nats.as_deref().map_or(Ok(()), bus::nats::check_servers).map_err(Failure::configuration)?;
    let nats = args.nats.as_deref().map(|servers| options_at(servers, args.nats_creds.as_deref(), "llmx bridge"));
    let registry = ops::registry()?;
    let agents = args.gateway.clone();
    let ways = crate::access::transport(&agents)?;
    let transport = Box::new(move || crate::access::transport(&agents).unwrap_or_else(|_| ways.clone()));
    let gateways = Gateways::try_new(&args.gateway)?;
    let (sets, limits) = (args.tools.tools.clone(), args.tools.limits());
    let metrics = BridgeMetrics::try_new(&registry)?;
    let options = BridgeOptions { gateways, transport, sets, limits, instance: new_id("bridge"), metrics };
    let (participants, stop) = (Arc::new(Participants::new(options)), CancellationToken::new());
    let listen = args.listen.to_string();
    let address = PublicAddress {
        url: args.public_url.unwrap_or_else(|| format!("http://{listen}")),
        hosts: vec![listen, "localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()],
        authorization_server: args.authorization_server,
        card_key: args.card_key.as_deref().map(read_record_key).transpose()?,
        text_to: args.text_to.iter().map(ToString::to_string).collect(),
    };
    let url = address.url.clone();
    let routes =
        http::router(participants.clone(), address, crate::VERSION, stop.clone()).map_err(Failure::configuration)?;
    let port =
        ops::open_with(args.listen, None, &registry, (routes, ServerOptions::new(CONNECTIONS_MAX, CLIENT_TIMEOUT)))?;
    let (reported, status) = (participants.clone(), nats.as_ref().map(|options| Arc::clone(&options.status)));
    port.report(move || {
        let of_nats = status.as_ref().and_then(|status| status.service_fault());
        let faults: Vec<_> = reported.fault().map(|fault| fault.to_string()).into_iter().chain(of_nats).collect();
        HealthReport { is_ready: faults.is_empty(), faults, state: json!({}) }
    });
    print(format_args!("bridge: {url}/mcp and {url}/a2a for {}", args.gateway.join(", ")));
    let micro = async {
        let Some(options) = &nats else { return std::future::pending().await };
        let client = connect(options).await?;
        let place = bus::nats::shown(&options.servers);
        let fault = |error| Failure::failed(anyhow::anyhow!("NATS at {place}: {error}"));
        let prompts = args.agents_service.as_ref().map(|name| format!(", prompts at {}", name.prompts()));
        print(format_args!("bridge: service llmx on NATS at {place}{}", prompts.unwrap_or_default()));
        let prompts = async {
            let Some(name) = args.agents_service else { return Ok(()) };
            prompt::serve(client.clone(), participants.clone(), name, stop.clone()).await
        };
        let tools = micro::serve(client.clone(), participants.clone(), &url, stop.clone());
        tokio::try_join!(tools, prompts).map(drop).map_err(fault)
    };
    let mut micro = std::pin::pin!(micro);
    let served = tokio::select! {
        served = micro.as_mut() => Some(served),
        () = participants.tend() => None,
        () = asked_to_end() => None,
    };
    stop.cancel();
    // Who waits on NATS is told that the bridge ends.
    let ends = async {
        if nats.is_some() && served.is_none() {
            drop(tokio::time::timeout(END_MAX, micro).await)
        }
    };
    tokio::join!(port.close(), ends);
    served.transpose()?;
    participants.close().await;
    Ok(())
}
