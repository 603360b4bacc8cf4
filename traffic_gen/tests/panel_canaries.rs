//! Nothing of a panel's running round reaches anybody but the log (docs/spec/panel.md#pn-21): canaries in answers, texts and ratings,
//! looked for in everything that agents on three transports, strangers, the open console, plain NATS clients, logs and metrics are
//! told, while the round runs; and where it may be told afterwards, found there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "acceptance/log.rs"]
mod log;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agents::control::ControlClient;
use agents::transport::bus::BusTransport;
use agents::transport::http::HttpTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::transport::{Connection, SendReply, Transport};
use bus::Bus;
use bus::nats::{self, NatsOptions};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::select_all;
use gateway::ConsoleAccess;
use nats_server::{LocalServer, LocalServerOptions};
use parking_lot::Mutex;
use reqwest::Client;
use schemas::control::{Consent, ConsentEffect, ReceiptPreference, Registration};
use schemas::delivery::{Ask, Delivery, Notification, ProgressReport};
use schemas::record::Entry;
use schemas::{AgentId, subject};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::Metadata;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use traffic_gen::exchange::{Exchange, ExchangeOptions};

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// The panel.
const PANEL: &str = "alice~primes";
/// Its seats, the last of which is the last to answer.
const SEATS: [&str; 4] = ["ann", "bob", "cyd", "dan"];
/// How the beginning of every canary reads.
const CANARY: &str = "canary-5d31";
/// Over which subjects anything is told or stored. Not the log, where answers belong; nor what agents hand in, which is their own;
/// nor lanes' states, which engines store for each other.
const TOLD: [&str; 16] = [
    subject::ALL_INBOXES,
    subject::ALL_GATEWAY_DELIVERIES,
    subject::ALL_ACKS,
    subject::ALL_COLLECTED_ACKS,
    subject::ALL_HELLOS,
    subject::ALL_PRESENCE,
    subject::ALL_STREAMS,
    subject::ALL_HEARTBEATS,
    subject::ALL_STATISTICS,
    subject::ALL_BACKLOGS,
    subject::ALL_EVIDENCE,
    subject::ALL_REGISTER[0],
    subject::ALL_REGISTER[1],
    "topic.*",
    "group.*",
    MARKER,
];
/// Where a client of the server tells itself how far it has heard.
const MARKER: &str = "marker";
/// Ratings, as nobody else rates.
const RATINGS: [u32; 3] = [5, 1, 4];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_running_round_reaches_anybody_over_any_way_out_and_afterwards_what_may_does() {
    let captured = Captured::default();
    let everything = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(captured.clone());
    tracing_subscriber::registry().with(everything.with_filter(filter_fn(may_be_told))).init();
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let site = Site::start(&server, captured).await;
    let mut alice = site.member("alice", site.over_nats().await).await;
    let mut zoe = site.member("zoe", site.over_websocket()).await;
    let ways = [site.over_websocket(), site.over_nats().await, site.over_http(), site.over_websocket()];
    let mut seats = Vec::new();
    for (name, way) in SEATS.into_iter().zip(ways) {
        seats.push(site.member(name, way).await);
    }
    let to: Vec<String> = SEATS.iter().map(|name| format!("agent://{name}")).collect();
    let rules = json!({"answer": {"kind": "exact"}, "rounds": 3, "asking": "all", "answer_ms": 60_000});
    alice.say("primes", Some(&to), json!({"act": "cfp", "task": "Which is prime?", "panel": rules})).await;
    for seat in &mut seats {
        assert_eq!(seat.asked(1).await.peers, None);
    }

    for seat in &mut seats[..3] {
        seat.answer(1, &format!("{CANARY}-{}", seat.name), None).await;
    }
    site.must_not_know(CANARY, &[&alice, &zoe, &seats[0], &seats[1], &seats[2], &seats[3]]).await;
    site.must_not_be_published(CANARY).await;
    seats[3].answer(1, &format!("{CANARY}-dan"), None).await;
    for seat in &mut seats {
        let asked = seat.asked(2).await;
        let peers = serde_json::to_string(&asked.peers).unwrap();
        let others = SEATS.iter().filter(|name| **name != seat.name);
        assert!(others.into_iter().all(|name| peers.contains(&format!("{CANARY}-{name}"))), "{peers}");
    }
    site.must_be_published(&format!("{CANARY}-ann")).await;
    site.must_not_know(CANARY, &[&alice, &zoe]).await;

    let ending = format!("{CANARY}-the-end");
    for seat in &mut seats[..3] {
        seat.answer(2, &ending, Some(&RATINGS)).await;
    }
    let members = [&alice, &zoe, &seats[0], &seats[1], &seats[2], &seats[3]];
    site.must_not_know(&ending, &members).await;
    site.must_not_be_published(&ending).await;
    seats[3].answer(2, &ending, Some(&RATINGS)).await;
    let found = alice.until("the finding", |told| {
        let Notification::Inform(ProgressReport::Finding(finding)) = told else { return None };
        Some(finding.answer.to_string())
    });
    assert_eq!(found.await, ending);
    let members = [&alice, &zoe, &seats[0], &seats[1], &seats[2], &seats[3]];
    for rated in ["[5,1,4]", "[5, 1, 4]"] {
        site.must_not_know(rated, &members).await;
        site.must_not_be_published(rated).await;
    }
    zoe.until_nothing_more().await;
    assert!(zoe.heard.is_empty(), "a stranger hears nothing of a panel: {:?}", zoe.heard);
    let logged = site.logged().await;
    assert!(logged.contains(&ending) && logged.contains("\"ratings\":[5,1,4]"), "what was said stands in the log");
}

/// An exchange on a server of its own, and what is told there.
struct Site {
    exchange: Exchange,
    control: ControlClient,
    http: Client,
    /// A client of the server that is nobody's agent.
    plain: async_nats::Client,
    url: String,
    captured: Captured,
    /// What passed over NATS to anybody, or is stored for anybody.
    published: Captured,
}

impl Site {
    async fn start(server: &LocalServer, captured: Captured) -> Self {
        let published = Captured::default();
        let plain = async_nats::connect(server.url()).await.unwrap();
        let mut subscriptions = Vec::new();
        for subject in TOLD {
            subscriptions.push(plain.subscribe(subject).await.unwrap());
        }
        plain.flush().await.unwrap();
        let mut all = select_all(subscriptions);
        let kept = published.clone();
        tokio::spawn(async move {
            while let Some(message) = all.next().await {
                kept.keep(format!("{} ", message.subject).as_bytes());
                kept.keep(&message.payload);
            }
        });
        let options = ExchangeOptions { console: ConsoleAccess::Open, ..ExchangeOptions::default() };
        let exchange = Exchange::start(open(server).await, options).await.unwrap();
        let control = ControlClient::try_new(exchange.url()).unwrap();
        let http = Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { exchange, control, http, plain, url: server.url().to_owned(), captured, published }
    }

    fn over_websocket(&self) -> Arc<dyn Transport> {
        Arc::new(WebSocketTransport::new(self.exchange.url()))
    }

    fn over_http(&self) -> Arc<dyn Transport> {
        Arc::new(HttpTransport::try_new(self.exchange.url()).unwrap())
    }

    /// An agent that speaks NATS has a connection of its own.
    async fn over_nats(&self) -> Arc<dyn Transport> {
        Arc::new(BusTransport::new(&nats::open(NatsOptions::new(&self.url)).await.unwrap()))
    }

    fn token(&self, name: &str) -> String {
        self.exchange.identity(&agent(name)).unwrap().token.current().to_string()
    }

    async fn member(&self, name: &'static str, transport: Arc<dyn Transport>) -> Member {
        let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
        let registration = Registration { consent, receipts: ReceiptPreference::All, ..Registration::default() };
        self.control.register(&agent(name), &self.token(name), &registration).await.unwrap();
        let identity = self.exchange.identity(&agent(name)).unwrap();
        let connection = transport.connect(&identity).await.unwrap();
        Member { name, connection, heard: Vec::new(), sent: 0 }
    }

    /// Whatever can be asked for over HTTP, with every token and without one, and all that was told to anybody, is without a text.
    async fn must_not_know(&self, text: &str, members: &[&Member]) {
        for member in members {
            let heard = serde_json::to_string(&member.heard).unwrap();
            assert!(!heard.contains(text), "{} knows {text}: {heard}", member.name);
        }
        let admin = self.exchange.admin_token().unwrap();
        let tokens: Vec<String> = members.iter().map(|member| self.token(member.name)).chain([admin]).collect();
        let paths = [
            format!("/v1/negotiations/{PANEL}"),
            format!("/v1/console/negotiations/{PANEL}"),
            "/v1/console".to_owned(),
            "/v1/domains/general/evidence".to_owned(),
            "/v1/agents".to_owned(),
            "/v1/agents/ann".to_owned(),
            "/metrics".to_owned(),
        ];
        let mut answered = 0;
        for path in &paths {
            for token in tokens.iter().map(Some).chain([None]) {
                let request = self.http.get(format!("{}{path}", self.exchange.url()));
                let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
                let answer = request.send().await.unwrap();
                answered += usize::from(answer.status().is_success());
                let body = answer.text().await.unwrap();
                assert!(!body.contains(text), "{path} tells {text}: {body}");
            }
        }
        assert!(answered > 2 * paths.len(), "{answered} answers");
        let mut events = self.http.get(format!("{}/v1/console/events", self.exchange.url())).send().await.unwrap();
        let event = String::from_utf8(events.chunk().await.unwrap().unwrap().to_vec()).unwrap();
        assert!(event.contains("data") && !event.contains(text), "{event}");
        let metrics = prometheus::TextEncoder::new().encode_to_string(&self.exchange.registry.gather()).unwrap();
        assert!(metrics.contains("exchange_panel_calls_total") && !metrics.contains(text), "{metrics}");
        let logs = self.captured.text();
        let line = logs.lines().find(|line| line.contains(text));
        assert!(logs.len() > 1000 && line.is_none(), "the process's own log tells {text}: {line:?}");
    }

    /// Nor is it told over NATS, or stored for anybody.
    async fn must_not_be_published(&self, text: &str) {
        let marker = format!("behind {text}");
        self.plain.publish(MARKER, marker.clone().into()).await.unwrap();
        let behind = format!("{MARKER} {marker}");
        self.must_be_published(&behind).await;
        let published = self.published.text().replace(&behind, "");
        assert!(published.contains(PANEL), "what is published was not captured");
        assert!(!published.contains(text), "{text} was published");
    }

    /// Plain NATS clients see what is told.
    async fn must_be_published(&self, text: &str) {
        let seen = async {
            while !self.published.text().contains(text) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, seen).await.expect("it is told over NATS");
    }

    /// The bodies of the log.
    async fn logged(&self) -> String {
        let mut bodies = String::new();
        for entry in log::entries(&self.exchange.bus).await {
            if let Entry::Message(message) = entry {
                bodies.push_str(message.body.get());
            }
        }
        bodies
    }
}

/// An agent that is driven by hand.
struct Member {
    name: &'static str,
    connection: Connection,
    heard: Vec<Delivery>,
    sent: u32,
}

impl Member {
    /// Sends something that is taken, and waits until it is told so.
    async fn say(&mut self, negotiation: &str, to: Option<&[String]>, payload: Value) {
        self.sent += 1;
        let msg_id = format!("{}-{}", self.name, self.sent);
        let mut envelope = json!({"msg_id": msg_id, "ts": "2026-11-20T20:00:00.000Z",
            "from": format!("agent://{}", self.name), "negotiation": negotiation});
        if let Some(to) = to {
            envelope["to"] = json!(to);
        }
        let document = json!({"envelope": envelope, "payload": payload}).to_string();
        let reply = self.connection.link.send(Bytes::from(document)).await;
        assert!(matches!(reply, SendReply::Accepted(_)), "{}: {reply:?}", self.name);
        let receipt = self.until("a receipt", |told| {
            let Notification::Ack(receipt) = told else { return None };
            (receipt.ack_of.as_str() == msg_id).then_some(receipt.disposition)
        });
        assert_eq!(receipt.await, schemas::delivery::Disposition::Ok);
    }

    /// Answers in a round, in words of its own.
    async fn answer(&mut self, round: u32, answer: &str, ratings: Option<&[u32]>) {
        let text = format!("{answer}-text-of-{}", self.name);
        let mut payload = json!({"act": "answer", "round": round, "answer": answer, "text": text});
        if let Some(ratings) = ratings {
            payload["ratings"] = json!(ratings);
        }
        self.say(PANEL, None, payload).await;
    }

    async fn asked(&mut self, round: u32) -> Ask {
        let asked = self.until("an ask", |told| {
            let Notification::Ask(ask) = told else { return None };
            (ask.round == round).then(|| Ask::clone(ask))
        });
        asked.await
    }

    /// The first thing told that `pick` takes.
    async fn until<T>(&mut self, what: &str, pick: impl Fn(&Notification) -> Option<T>) -> T {
        let mut next = 0;
        loop {
            if let Some(found) = self.heard[next..].iter().find_map(|delivery| pick(&delivery.payload)) {
                return found;
            }
            next = self.heard.len();
            let heard = timeout(PATIENCE, self.connection.inbox.next()).await;
            let Ok(Some(message)) = heard else { panic!("{} did not hear {what}", self.name) };
            let ids = message.deliveries.iter().map(|delivery| delivery.envelope.msg_id).collect();
            self.connection.link.ack(ids).await.unwrap();
            self.heard.extend(message.deliveries);
        }
    }

    /// Hears what has arrived already.
    async fn until_nothing_more(&mut self) {
        while let Ok(Some(message)) = timeout(Duration::ZERO, self.connection.inbox.next()).await {
            self.heard.extend(message.deliveries);
        }
    }
}

/// Every level of everybody, but of clients that log whole messages: no process of the exchange ever lets these speak, whatever is
/// asked for (`telemetry::log`, whose tests show it).
fn may_be_told(event: &Metadata<'_>) -> bool {
    let origin = event.target().split("::").next().unwrap_or_default();
    !["tungstenite", "tokio_tungstenite", "async_nats"].contains(&origin)
}

/// Bytes that were written or told, kept.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn keep(&self, bytes: &[u8]) {
        self.0.lock().extend_from_slice(bytes);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.keep(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Captured {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

async fn open(server: &LocalServer) -> Bus {
    nats::open(NatsOptions::new(server.url())).await.unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}
