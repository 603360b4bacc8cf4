//! Options of commands whose agents reach an exchange that runs elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use ::agents::transport::Transport;
use ::agents::transport::bus::BusTransport;
use ::agents::transport::failover::FailoverTransport;
use ::agents::transport::http::HttpTransport;
use ::agents::transport::websocket::WebSocketTransport;
use ::agents::{Identity, Token};
use ::gateway::keys::{Claims, SigningKey};
use schemas::AgentId;
use traffic_gen::control::ControlClient;

use crate::keys::read_key;
use crate::nats::NatsArgs;
use crate::output::Failure;

/// Lifetime of the tokens signed here, in seconds; renewed long before.
const TOKEN_LIFETIME_S: u64 = 3600;

/// How agents reach the exchange.
#[derive(Debug, clap::Args)]
pub struct RemoteArgs {
    /// Gateways' addresses, separated by commas, for agents over WebSocket or HTTP: they spread over them and move on
    /// when one is lost. The first one registers them
    #[arg(
        long,
        env = "LLMX_GATEWAY",
        default_value = "http://127.0.0.1:8080",
        value_name = "URLS",
        value_delimiter = ','
    )]
    gateway: Vec<String>,
    /// How agents send and receive
    #[arg(long, value_enum, default_value = "websocket")]
    transport: TransportKind,
    #[command(flatten)]
    nats: NatsArgs,
    /// Signing key for the agents' tokens, as `llmx keys` writes it
    #[arg(long, env = "LLMX_SIGNING_KEY", default_value = "run/keys/signing-key.pem")]
    key: PathBuf,
    /// Issuer of the tokens
    #[arg(long, env = "LLMX_ISSUER", default_value = "llmx-local")]
    issuer: String,
    /// Audience of the tokens
    #[arg(long, env = "LLMX_AUDIENCE", default_value = "llmx")]
    audience: String,
}

/// How agents send and receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TransportKind {
    /// WebSocket
    Websocket,
    /// HTTP and server-sent events
    Http,
    /// NATS
    Nats,
}

/// A way to an exchange. All agents share one HTTP client or NATS connection; each has its own stream.
pub struct Remote {
    /// Its control plane.
    pub control: ControlClient,
    /// What agents connect by, each over all of them.
    ways: Vec<Arc<dyn Transport>>,
    key: Arc<SigningKey>,
    issuer: String,
    audience: String,
}

impl RemoteArgs {
    /// Reads the key and, for NATS, connects.
    pub async fn open(&self, name: &str) -> Result<Remote, Failure> {
        let ways = match self.transport {
            TransportKind::Nats => vec![Arc::new(BusTransport::new(&self.nats.open(name).await?)) as _],
            TransportKind::Websocket | TransportKind::Http => {
                self.gateway.iter().map(|url| self.way(url)).collect::<Result<Vec<_>, Failure>>()?
            }
        };
        let first = self.gateway.first().ok_or_else(|| Failure::configuration("--gateway names no address"))?;
        Ok(Remote {
            control: ControlClient::try_new(first.as_str())?,
            ways,
            key: Arc::new(read_key(&self.key)?),
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
        })
    }

    fn way(&self, url: &str) -> Result<Arc<dyn Transport>, Failure> {
        Ok(match self.transport {
            TransportKind::Http => Arc::new(HttpTransport::try_new(url)?),
            TransportKind::Websocket | TransportKind::Nats => Arc::new(WebSocketTransport::new(url)),
        })
    }
}

impl Remote {
    /// The transport of one agent.
    ///
    /// # Panics
    /// Never: there is at least one address.
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(FailoverTransport::try_new(self.ways.clone()).expect("opening checked that there is an address"))
    }

    /// An agent whose token is signed anew whenever it is asked for.
    pub fn identity(&self, agent: &AgentId) -> Identity {
        let token = renewed(Arc::clone(&self.key), &self.issuer, &self.audience, agent);
        Identity { agent: agent.clone(), token }
    }
}

/// A token of `agent` that is signed anew long before it expires.
pub fn renewed(key: Arc<SigningKey>, issuer: &str, audience: &str, agent: &AgentId) -> Token {
    let (issuer, audience, subject) = (issuer.to_owned(), audience.to_owned(), agent.clone());
    let cached = std::sync::Mutex::new((std::time::Instant::now(), String::new()));
    Token::renewed(move || {
        let mut cached = cached.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if cached.1.is_empty() || cached.0.elapsed().as_secs() > TOKEN_LIFETIME_S / 2 {
            let claims = Claims::new(&subject, &issuer, &audience, TOKEN_LIFETIME_S);
            // An empty token is refused with a clear answer, which is all that could be done here.
            *cached = (std::time::Instant::now(), key.sign(&claims).unwrap_or_default());
        }
        cached.1.clone()
    })
}
