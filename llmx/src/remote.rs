//! Options of commands whose agents reach an exchange that runs elsewhere.

use std::cell::RefCell;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::agents::transport::Transport;
use ::agents::transport::bus::BusTransport;
use ::agents::transport::failover::FailoverTransport;
use ::agents::transport::host::AgentHost;
use ::agents::transport::http::HttpTransport;
use ::agents::transport::websocket::{AGENTS_PER_CONNECTION, WebSocketTransport};
use ::agents::{AgentError, Identity, Token};
use ::gateway::keys::{Claims, SigningKey};
use agents::control::ControlClient;
use anyhow::Context;
use bus::Bus;
use schemas::{AgentId, GatewayId};
use traffic_gen::live::LiveError;

use crate::arguments::http_url;
use crate::healthcheck;
use crate::keys::{AUDIENCE_DEFAULT, ISSUER_DEFAULT, read_key};
use crate::nats::NatsSource;
use crate::output::{Failure, announced, innermost, proxy_note};

/// Lifetime of the tokens signed here, in seconds; renewed long before.
const TOKEN_LIFETIME_S: u64 = 3600;

/// Longest wait for a gateway, in seconds, unless said otherwise: a gateway that waits for NATS starts within 20.
const WAIT_S_DEFAULT: u64 = 30;
/// Longest wait for one answer of a gateway that is waited for.
pub const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Pause between two questions whether gateways are ready.
const READINESS_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);
/// Where the gateway is when nothing else is said.
pub const GATEWAY_DEFAULT: &str = "http://127.0.0.1:8080";

/// How agents reach the exchange.
#[derive(Debug, clap::Args)]
pub struct RemoteArgs {
    /// Gateways' addresses, separated by commas, for agents over WebSocket or HTTP: they spread over them and move on
    /// when one is lost. The first one that answers registers them
    #[arg(
        long,
        env = "LLMX_GATEWAY",
        default_value = GATEWAY_DEFAULT,
        value_name = "URLS",
        value_delimiter = ',',
        value_parser = http_url
    )]
    gateway: Vec<String>,
    /// Longest wait for a gateway that answers, and then for an agent's first connection, in seconds
    #[arg(long, default_value_t = WAIT_S_DEFAULT, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
    /// How agents send and receive
    #[arg(long, value_enum, default_value = "websocket")]
    transport: TransportKind,
    /// Agents of this process that share a WebSocket connection; 1: each has its own
    #[arg(long, env = "LLMX_AGENTS_PER_CONNECTION", default_value_t = AGENTS_PER_CONNECTION, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    agents_per_connection: u16,
    #[command(flatten)]
    nats: NatsSource,
    /// Signing key for the agents' tokens, as `llmx keys` writes it
    #[arg(long, env = "LLMX_SIGNING_KEY", default_value = crate::keys::KEY_DEFAULT)]
    key: PathBuf,
    /// Issuer of the tokens
    #[arg(long, env = "LLMX_ISSUER", default_value = ISSUER_DEFAULT)]
    issuer: String,
    /// Audience of the tokens; of several, separated by commas, the first
    #[arg(long, env = "LLMX_AUDIENCE", default_value = AUDIENCE_DEFAULT)]
    audience: ::gateway::Audiences,
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

/// A way to an exchange. All agents share one HTTP client or NATS connection, and some a WebSocket.
pub struct Remote {
    /// Its control plane.
    pub control: ControlClient,
    /// What agents connect by, each over all of them.
    ways: Vec<Arc<dyn Transport>>,
    key: Arc<SigningKey>,
    issuer: String,
    audience: String,
    /// Longest wait for an agent's first connection.
    pub connect_within: Duration,
    /// Where it is sought, in words.
    pub place: String,
    /// Gateways the agents go over; none where that is NATS.
    gateways: Vec<String>,
}

/// NATS for all agents of this process together, under an id that no other process draws.
async fn hosted(bus: &Bus, name: &str) -> Result<BusTransport, Failure> {
    let drawn = RandomState::new().build_hasher().finish();
    let id = GatewayId::try_new(&format!("{name}-{drawn:016x}")).map_err(Failure::failed)?;
    Ok(BusTransport::new(bus).hosted_by(AgentHost::start(bus, id).await?))
}

/// A client that follows no redirect: what is asked of these gateways, they answer themselves.
///
/// # Errors
/// The library's, for want of what TLS needs.
pub fn client(timeout: Duration, gateways: &[String]) -> reqwest::Result<reqwest::Client> {
    agents::control::client(timeout, gateways.iter().map(String::as_str))
}

impl RemoteArgs {
    /// Which NATS, where agents or an exchange go over one.
    pub fn nats(&self) -> &NatsSource {
        &self.nats
    }

    /// Reads the key, waits for a gateway that answers, or connects to NATS.
    pub async fn open(&self, name: &str) -> Result<Remote, Failure> {
        self.open_lingering(name, Duration::ZERO).await
    }

    /// The same, for agents that let frames wait over WebSocket ([`WebSocketTransport::lingering`]).
    pub async fn open_lingering(&self, name: &str, linger: Duration) -> Result<Remote, Failure> {
        let key = Arc::new(read_key(&self.key)?);
        let ways = match self.transport {
            TransportKind::Nats => vec![Arc::new(hosted(&self.nats.in_force()?.open(name).await?, name).await?) as _],
            TransportKind::Websocket | TransportKind::Http => {
                self.gateway.iter().map(|url| self.way(url, linger)).collect::<Result<Vec<_>, Failure>>()?
            }
        };
        let gateways = self.gateway.join(", ");
        let (control, place) = match self.transport {
            TransportKind::Nats => {
                let first = self.gateway.first().ok_or_else(|| Failure::configuration("--gateway names no address"))?;
                (first, format!("NATS; registrations go to {first}"))
            }
            TransportKind::Websocket | TransportKind::Http => (self.answering(&gateways).await?, gateways),
        };
        Ok(Remote {
            control: ControlClient::try_new(control.as_str())?,
            ways,
            key,
            issuer: self.issuer.clone(),
            audience: self.audience.first().to_owned(),
            connect_within: Duration::from_secs(self.wait),
            place,
            gateways: if self.transport == TransportKind::Nats { Vec::new() } else { self.gateway.clone() },
        })
    }

    /// The first gateway that answers, whatever it says.
    async fn answering(&self, gateways: &str) -> Result<&String, Failure> {
        let client = client(ANSWER_MAX, &self.gateway)?;
        let limit = Duration::from_secs(self.wait);
        let silence = RefCell::new(None);
        let asking = async {
            loop {
                for gateway in &self.gateway {
                    match client.get(format!("{}/healthz", gateway.trim_end_matches('/'))).send().await {
                        Ok(_) => return gateway,
                        Err(error) => *silence.borrow_mut() = Some(error.without_url()),
                    }
                }
                tokio::time::sleep(ATTEMPT_PAUSE).await;
            }
        };
        let why = || silence.borrow().as_ref().map(|error| format!(" ({})", innermost(error))).unwrap_or_default();
        let what = || Some(format!("a gateway at {gateways}{}", why()));
        let answer = announced(what, limit, tokio::time::timeout(limit, asking)).await;
        answer.map_err(|_| {
            let remedy = "start one (`llmx gateway`), name another with --gateway, or wait longer with --wait";
            let told = format!("no gateway answers at {gateways} within {} s: {remedy}", self.wait);
            match silence.take() {
                Some(error) => {
                    let proxies = self.gateway.iter().map(|url| proxy_note(url)).find(|note| !note.is_empty());
                    let told = format!("{told}{}", proxies.unwrap_or_default());
                    Failure::failed(anyhow::Error::new(error).context(told))
                }
                None => Failure::failed(anyhow::anyhow!(told)),
            }
        })
    }

    fn way(&self, url: &str, linger: Duration) -> Result<Arc<dyn Transport>, Failure> {
        Ok(match self.transport {
            TransportKind::Http => Arc::new(HttpTransport::try_new(url)?),
            TransportKind::Websocket | TransportKind::Nats => {
                let agents = usize::from(self.agents_per_connection);
                Arc::new(WebSocketTransport::new(url).lingering(linger).shared_by(agents))
            }
        })
    }
}

impl Remote {
    /// Awaits agents' first connections, which are bounded by [`Self::connect_within`], and says where they were sought.
    pub async fn connected<T>(&self, connecting: impl Future<Output = Result<T, LiveError>>) -> Result<T, Failure> {
        let fault = RefCell::new(None);
        let why = || fault.borrow().as_ref().map(|fault| format!(" ({fault})")).unwrap_or_default();
        let what = || Some(format!("the first connection to {}{}", self.place, why()));
        let connecting = async {
            tokio::select! {
                biased;
                outcome = connecting => outcome,
                never = self.watch_readiness(&fault) => match never {},
            }
        };
        let outcome = announced(what, self.connect_within, connecting).await;
        Ok(outcome.with_context(|| format!("no agent can work over {}{}", self.place, why()))?)
    }

    /// Awaits the first connection of one agent, a bounded time.
    ///
    /// # Errors
    /// The agent's, or [`LiveError::NotConnected`].
    pub async fn first_connection(
        &self,
        agent: &AgentId,
        connecting: impl Future<Output = Result<(), AgentError>>,
    ) -> Result<(), LiveError> {
        let waited = self.connect_within;
        let late = |_| LiveError::NotConnected { agent: agent.clone(), waited };
        Ok(tokio::time::timeout(waited, connecting).await.map_err(late)??)
    }

    /// Asks the gateways in turn whether they are ready, and notes what the last one that is not says.
    async fn watch_readiness(&self, fault: &RefCell<Option<String>>) -> Infallible {
        let client = client(ANSWER_MAX, &self.gateways);
        loop {
            for gateway in &self.gateways {
                let Ok(client) = &client else { continue };
                let unready = healthcheck::unready(client, gateway).await;
                *fault.borrow_mut() = unready;
            }
            tokio::time::sleep(READINESS_PAUSE).await;
        }
    }

    /// The transport of one agent.
    ///
    /// # Panics
    /// Never: there is at least one address.
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(FailoverTransport::try_new(self.ways.clone()).expect("opening checked that there is an address"))
    }

    /// An agent whose token is signed anew whenever it is asked for.
    pub fn identity(&self, agent: &AgentId) -> Identity {
        let token = renewed(Arc::clone(&self.key), &self.issuer, &self.audience, agent, Claims::new);
        Identity { agent: agent.clone(), token }
    }
}

/// A token of `agent` that is signed anew long before it expires; `claims` says what for agent, issuer, audience and
/// lifetime stands in it.
pub fn renewed(
    key: Arc<SigningKey>,
    issuer: &str,
    audience: &str,
    agent: &AgentId,
    claims: fn(&AgentId, &str, &str, u64) -> Claims,
) -> Token {
    let (issuer, audience, subject) = (issuer.to_owned(), audience.to_owned(), agent.clone());
    let cached = parking_lot::Mutex::new((std::time::Instant::now(), String::new()));
    Token::renewed(move || {
        let mut cached = cached.lock();
        if cached.1.is_empty() || cached.0.elapsed().as_secs() > TOKEN_LIFETIME_S / 2 {
            let claims = claims(&subject, &issuer, &audience, TOKEN_LIFETIME_S);
            // An empty token is refused with a clear answer, which is all that could be done here.
            *cached = (std::time::Instant::now(), key.sign(&claims).unwrap_or_default());
        }
        cached.1.clone()
    })
}
