//! Open streams of real gateways on a real nats-server, when their key goes or an administrator ends them.

use std::future::ready;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agents::transport::http::HttpTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::transport::{Connection, Transport};
use agents::{Agent, Identity, Token};
use bus::nats::{self, NatsOptions};
use futures_util::StreamExt as _;
use gateway::keys::{Claims, KeyAlgorithm, SigningKey, key_set};
use nats_server::{LocalServer, LocalServerOptions};
use schemas::presence::Hello;
use schemas::{AgentId, subject};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

/// Longest a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a gateway reads a key file, and what streams may take beyond it.
const REFRESH_AND_GRACE: Duration = Duration::from_secs(2 + 5);
const ISSUER: &str = "llmx-local";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_soon_after_their_key_has_left_the_file_and_agents_come_back_with_a_fresh_token() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let jwks = folder.path().join("jwks.json");
    let (old, new) = (generate(), generate());
    std::fs::write(&jwks, key_set(&[&old, &new])).unwrap();
    let gateway = Gateway::start(&server.url(), "gateway-1", &jwks).await;
    let url = gateway.url.as_str();

    let mut over_sse = open(&HttpTransport::try_new(url).unwrap(), &old, "sse").await;
    let mut over_websocket = open(&WebSocketTransport::new(url), &old, "ws").await;
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let mut hellos = bus.pub_sub.subscribe(subject::hello(&agent("bob")), None).await.unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let (first, later, times) = (token(&old, "bob"), token(&new, "bob"), asked.clone());
    // The fresh token is a moment late, as it is where another process writes it.
    let renewed =
        Token::renewed(move || if times.fetch_add(1, Ordering::Relaxed) < 2 { first.clone() } else { later.clone() });
    let strategy = |_, _: &schemas::delivery::Delivery| Vec::new();
    let identity = Identity { agent: agent("bob"), token: renewed };
    let running = Agent::new(WebSocketTransport::new(url), identity, strategy).spawn(CancellationToken::new());
    hellos.next().await.unwrap();

    std::fs::write(&jwks, key_set(&[&new])).unwrap();
    let removed = Instant::now();
    ended(&mut over_sse).await;
    ended(&mut over_websocket).await;
    assert!(removed.elapsed() <= REFRESH_AND_GRACE, "{:?}", removed.elapsed());
    // The stream that ended says so; what follows is the new one.
    let connected = hellos.filter(|hello| ready(matches!(Hello::parse(&hello.payload), Hello::Connected(_))));
    tokio::time::timeout(PATIENCE, pin!(connected).next()).await.unwrap().unwrap();
    assert!(asked.load(Ordering::Relaxed) >= 3, "one connection, one refusal of the old token, one with the fresh one");
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_ends_streams_that_another_gateway_holds() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let jwks = folder.path().join("jwks.json");
    let key = generate();
    std::fs::write(&jwks, key_set(&[&key])).unwrap();
    let here = Gateway::start(&server.url(), "gateway-1", &jwks).await;
    let there = Gateway::start(&server.url(), "gateway-2", &jwks).await;
    let mut one = open(&WebSocketTransport::new(&here.url), &key, "bob").await;
    let mut two = open(&HttpTransport::try_new(&there.url).unwrap(), &key, "bob").await;

    let admin = key.sign(&Claims::new(&agent("root"), ISSUER, "llmx", 60).admin()).unwrap();
    let ordered = Instant::now();
    let order = reqwest::Client::new().delete(format!("{}/v1/agents/bob/streams", here.url)).bearer_auth(admin);
    assert_eq!(order.send().await.unwrap().status(), 204);
    ended(&mut one).await;
    ended(&mut two).await;
    assert!(ordered.elapsed() < Duration::from_secs(5), "at once: {:?}", ordered.elapsed());
}

fn generate() -> SigningKey {
    SigningKey::generate(KeyAlgorithm::EdDsa).unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

/// A token for an hour.
fn token(key: &SigningKey, name: &str) -> String {
    key.sign(&Claims::new(&agent(name), ISSUER, "llmx", 3600)).unwrap()
}

/// A gateway's process.
struct Gateway {
    _child: Child,
    _said: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Gateway {
    /// Returns when it serves.
    async fn start(nats: &str, id: &str, jwks: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmx"));
        command.args(["gateway", "--id", id, "--listen", "127.0.0.1:0", "--nats", nats, "--issuer", ISSUER]);
        command.arg("--jwks").arg(jwks).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(PATIENCE, said.next_line()).await.unwrap().unwrap().unwrap();
        let url = line.strip_prefix("gateway: ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { _child: child, _said: said, url }
    }
}

/// A stream of an agent, which stays open.
async fn open(transport: &dyn Transport, key: &SigningKey, name: &str) -> Connection {
    let identity = Identity { agent: agent(name), token: Token::fixed(token(key, name)) };
    let mut connection = transport.connect(&identity).await.unwrap();
    let is_open = tokio::time::timeout(Duration::from_millis(200), connection.inbox.next()).await.is_err();
    assert!(is_open, "{name}");
    connection
}

/// Waits for the end of a stream on which nothing else comes.
async fn ended(connection: &mut Connection) {
    assert!(tokio::time::timeout(PATIENCE, connection.inbox.next()).await.unwrap().is_none());
}
