//! Agents that speak the wire protocol and nothing else: no SDK slows them down.
//!
//! One process, one thread. Callers open negotiations at a rate that depends on nothing that happens; contractors answer every
//! delivery at once; everybody acknowledges what it reads. Agents share WebSockets, callers and contractors apart; one that is
//! closed is opened again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::SplitSink;
use futures_util::{SinkExt as _, StreamExt as _};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::plain_load::{PlainLoad, PlainSummary};
use super::unix_ms;
use super::workload::{PlainAnswer, Workload, answer};
use traffic_gen::latency::Latency;

/// Between two looks at which calls are due, and at which acknowledgements wait.
const TICK: Duration = Duration::from_millis(1);
/// Time after which acknowledgements that wait are sent.
const ACK_PERIOD: Duration = Duration::from_millis(5);
/// Most acknowledgements in one frame.
const ACKS_MAX: usize = 256;
/// Frames that may wait for one connection: beyond it a call is not made, and counted as held back.
const FRAMES_MAX: usize = 8192;
/// When messages say that they were written.
const TS: &str = "2026-11-28T12:00:00Z";
/// Longest wait for connections, joins and registrations.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// A burst ends every period of so many seconds, lasts so long, and brings so many times as many calls.
const BURST_PERIOD_S: f64 = 20.0;
const BURST_S: f64 = 5.0;
const BURST_FACTOR: f64 = 5.0;
/// Time behind a burst in which refusals still are its own, in seconds.
const BEHIND_BURST_S: f64 = 2.0;
/// Between two attempts to connect again.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Calls over HTTP that may be under way at once.
const REQUESTS_MAX: usize = 256;
/// The answers to calls made in the last seconds of a load are counted apart.
const LAST_S: f64 = 2.0;
/// The code of a call over HTTP that was not answered.
const NO_ANSWER: &str = "no_answer";
/// Seed of the arrivals.
const SEED: u64 = 1;

/// A call without an end.
struct PlainCall {
    sent: Instant,
    is_taken: bool,
}

/// What the process has seen.
struct PlainLedger {
    began: Instant,
    is_over: bool,
    open: HashMap<String, PlainCall>,
    summary: PlainSummary,
    /// Calls from here on are the last.
    last_from: Duration,
    completed: Latency,
    refused: Latency,
    answered: Latency,
    last_answered: Latency,
    lags: Latency,
}

/// What a connection or a request tells the process.
enum ClientEvent {
    Frame(Utf8Bytes),
    Closed(usize),
    Opened(usize, mpsc::Sender<String>),
}

type Events = mpsc::UnboundedSender<ClientEvent>;

/// Frames from the gateway, as far as they matter here.
#[derive(Deserialize)]
struct ReceivedFrame<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: Option<&'a str>,
    delivery: Option<Delivery>,
    problem: Option<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
}

#[derive(Deserialize)]
struct Delivery {
    envelope: DeliveryEnvelope,
    payload: Value,
}

#[derive(Deserialize)]
struct DeliveryEnvelope {
    msg_id: String,
    to: Vec<String>,
    negotiation: String,
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Makes the load, and says what became of it.
///
/// # Errors
/// What keeps the process from connecting. Whatever happens to a call is part of the summary.
pub async fn run(load: PlainLoad) -> Result<PlainSummary, String> {
    let (events, mut arrivals) = mpsc::unbounded_channel();
    let (mut writers, mut connection_of) = (Vec::new(), HashMap::new());
    for agents in [&load.callers, &load.contractors] {
        let number = load.connections.min(agents.len());
        for connection in 0..number {
            let mine: Vec<_> = agents.iter().skip(connection).step_by(number).cloned().collect();
            let gateway = load.gateways[connection % load.gateways.len()].clone();
            let socket =
                timeout(JOIN_TIMEOUT, connect(&gateway, &mine)).await.map_err(|_| "nobody answers joins")??;
            connection_of.extend(mine.iter().map(|(agent, _)| (agent.clone(), writers.len())));
            tokio::spawn(keep_open(socket, writers.len(), gateway, mine, events.clone()));
            writers.push(None);
        }
    }
    let payloads = load.workloads.iter().map(|workload| workload.call().to_string()).collect();
    let http = Client::builder().no_proxy().build().map_err(said)?;
    let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
    let (acks, acks_since) = (HashMap::new(), None);
    let mut player = Player { load, payloads, connection_of, writers, http, requests, events, acks, acks_since };
    let mut ledger = PlainLedger::new(player.load.seconds);
    let mut due = CallTimes::new(player.load.rate, player.load.bursts);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (calling, drain) = (player.load.seconds, player.load.drain_seconds);
    let mut number = 0_u64;
    let mut ticked = Instant::now();
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick() => {
                let now = Instant::now();
                ledger.lags.record(now.duration_since(ticked).saturating_sub(TICK));
                ticked = now;
                let elapsed = ledger.began.elapsed().as_secs_f64();
                if elapsed < calling {
                    for _ in 0..due.until(elapsed) {
                        player.call(number, &mut ledger);
                        number += 1;
                    }
                } else if !ledger.is_over {
                    ledger.close(calling);
                }
                player.acknowledge(now, false);
                let is_done = ledger.is_over && (ledger.open.is_empty() || elapsed > calling + drain);
                if is_done {
                    break;
                }
            }
            Some(event) = arrivals.recv() => {
                player.handle(event, &mut ledger)?;
                for _ in 0..512 {
                    let Ok(event) = arrivals.try_recv() else { break };
                    player.handle(event, &mut ledger)?;
                }
            }
        }
    }
    player.acknowledge(Instant::now(), true);
    sleep(Duration::from_millis(200)).await;
    Ok(ledger.finish())
}

/// Opens a shared connection, and lets the agents join.
async fn connect(gateway: &str, agents: &[(String, String)]) -> Result<Socket, String> {
    let url = format!("{}/v1/ws?shared=true", gateway.replacen("http", "ws", 1));
    let mut request = url.into_client_request().map_err(said)?;
    let bearer = format!("Bearer {}", agents[0].1).parse().map_err(said)?;
    request.headers_mut().insert("Authorization", bearer);
    let config = WebSocketConfig::default().read_buffer_size(64 * 1024).write_buffer_size(64 * 1024);
    let connected = tokio_tungstenite::connect_async_with_config(request, Some(config), true).await;
    let (mut socket, _) = connected.map_err(said)?;
    for (agent, token) in agents {
        let join = json!({"type": "join", "id": agent, "token": token}).to_string();
        socket.send(Message::text(join)).await.map_err(said)?;
    }
    let mut joined = 0;
    while joined < agents.len() {
        let frame = socket.next().await.ok_or("the gateway closed the connection")?.map_err(said)?;
        let Ok(text) = frame.into_text() else { continue };
        let frame: ReceivedFrame = serde_json::from_str(&text).map_err(said)?;
        match frame.kind {
            "joined" => joined += 1,
            "refused" => return Err(format!("a join was refused: {text}")),
            _ => {}
        }
    }
    Ok(socket)
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Hands on what is read. A connection that ends is opened again, as long as the process goes on.
async fn keep_open(socket: Socket, number: usize, gateway: String, agents: Vec<(String, String)>, events: Events) {
    let mut next = Some(socket);
    while !events.is_closed() {
        let Some(socket) = next.take() else {
            sleep(CONNECT_PAUSE).await;
            next = timeout(JOIN_TIMEOUT, connect(&gateway, &agents)).await.ok().and_then(Result::ok);
            continue;
        };
        let (sink, mut stream) = socket.split();
        let (sender, frames) = mpsc::channel(FRAMES_MAX);
        tokio::spawn(write(sink, frames));
        let mut is_heard = events.send(ClientEvent::Opened(number, sender)).is_ok();
        while is_heard && let Some(Ok(message)) = stream.next().await {
            match message {
                Message::Text(text) => is_heard = events.send(ClientEvent::Frame(text)).is_ok(),
                Message::Close(_) => break,
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        // The receiver is gone only when the process ends.
        let _ = events.send(ClientEvent::Closed(number));
    }
}

/// Makes a call over HTTP; its answer as a WebSocket would bring it.
async fn post(id: &str, request: RequestBuilder) -> String {
    let problem = match request.send().await {
        Ok(answer) if answer.status() == StatusCode::ACCEPTED => {
            return format!(r#"{{"type":"accepted","id":"{id}"}}"#);
        }
        Ok(answer) => answer.text().await.ok().filter(|text| text.starts_with('{')),
        Err(_) => None,
    };
    let problem = problem.unwrap_or_else(|| format!(r#"{{"code":"{NO_ANSWER}"}}"#));
    format!(r#"{{"type":"refused","id":"{id}","problem":{problem}}}"#)
}

/// Writes what waits, with one flush. Apart from reading: who reads only while nothing waits to be written counts as slow.
async fn write(mut socket: SplitSink<Socket, Message>, mut frames: mpsc::Receiver<String>) {
    while let Some(frame) = frames.recv().await {
        let mut fed = socket.feed(Message::text(frame)).await;
        while fed.is_ok()
            && let Ok(next) = frames.try_recv()
        {
            fed = socket.feed(Message::text(next)).await;
        }
        if fed.is_err() || socket.flush().await.is_err() {
            return;
        }
    }
}

/// When calls are due: a Poisson process.
struct CallTimes {
    rng: ChaCha8Rng,
    rate: f64,
    bursts: bool,
    next: f64,
}

/// Whether a moment, in seconds, lies in a burst: the last five of every twenty, and so many more behind it.
fn is_in_burst(at: f64, and_behind: f64) -> bool {
    let (into, gap) = (at % BURST_PERIOD_S, BURST_PERIOD_S - BURST_S);
    into >= gap || (at >= BURST_PERIOD_S && into < and_behind)
}

impl CallTimes {
    fn new(rate: f64, bursts: bool) -> Self {
        let mut arrivals = Self { rng: ChaCha8Rng::seed_from_u64(SEED), rate, bursts, next: 0.0 };
        arrivals.advance();
        arrivals
    }

    fn advance(&mut self) {
        let uniform: f64 = self.rng.random();
        let rate = if self.bursts && is_in_burst(self.next, 0.0) { BURST_FACTOR * self.rate } else { self.rate };
        self.next -= (1.0 - uniform).ln() / rate.max(f64::EPSILON);
    }

    /// How many are due by this second that were not before.
    fn until(&mut self, elapsed: f64) -> usize {
        let mut due = 0;
        while self.next <= elapsed {
            self.advance();
            due += 1;
        }
        due
    }
}

/// The agents.
struct Player {
    load: PlainLoad,
    /// The payload of a call, of each workload.
    payloads: Vec<String>,
    connection_of: HashMap<String, usize>,
    /// Of each connection, while it is open.
    writers: Vec<Option<mpsc::Sender<String>>>,
    http: Client,
    requests: Arc<Semaphore>,
    events: Events,
    acks: HashMap<String, Vec<String>>,
    acks_since: Option<Instant>,
}

impl Player {
    /// Makes the call of this number.
    fn call(&mut self, number: u64, ledger: &mut PlainLedger) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let (caller, token) = &self.load.callers[at % self.load.callers.len()];
        let workload = self.load.workloads[at % self.load.workloads.len()];
        let first = at % self.load.contractors.len().max(1);
        let contractors = self.load.contractors.iter().cycle().skip(first).take(workload.contractors());
        let to: Vec<String> = contractors.map(|(agent, _)| format!(r#""agent://{agent}""#)).collect();
        let (to, own) = (to.join(","), format!("{}-{number}", self.load.run));
        let id = format!("{caller}~{own}");
        let payload = &self.payloads[at % self.payloads.len()];
        // No tree of values: the clients have one core for all of ten times the most.
        let envelope = format!(
            r#"{{"from":"agent://{caller}","msg_id":"{own}","negotiation":"{own}","scope":{{"consent":"opt-in"}},"to":[{to}],"ts":"{TS}"}}"#
        );
        let message = format!(r#"{{"envelope":{envelope},"payload":{payload}}}"#);
        let is_sent = if self.load.http {
            let gateway = &self.load.gateways[at % self.load.gateways.len()];
            self.post(&id, self.http.post(format!("{gateway}/v1/messages")).bearer_auth(token).body(message))
        } else {
            self.send(caller, format!(r#"{{"agent":"{caller}","id":"{id}","message":{message},"type":"message"}}"#))
        };
        if is_sent {
            ledger.summary.calls += 1;
            ledger.open.insert(id, PlainCall { sent: Instant::now(), is_taken: false });
        } else {
            ledger.summary.held_back += 1;
        }
    }

    /// Queues a frame of an agent; whether there was room.
    fn send(&self, agent: &str, frame: String) -> bool {
        let writer = self.connection_of.get(agent).and_then(|connection| self.writers[*connection].as_ref());
        writer.is_some_and(|writer| writer.try_send(frame).is_ok())
    }

    /// Makes a call over HTTP; whether there was room.
    fn post(&self, id: &str, request: RequestBuilder) -> bool {
        let Ok(permit) = Arc::clone(&self.requests).try_acquire_owned() else { return false };
        let (id, events) = (id.to_owned(), self.events.clone());
        let request = request.header("Content-Type", "application/json");
        tokio::spawn(async move {
            let answer = post(&id, request).await;
            drop(permit);
            // The receiver is gone only when the process ends.
            let _ = events.send(ClientEvent::Frame(answer.into()));
        });
        true
    }

    fn handle(&mut self, event: ClientEvent, ledger: &mut PlainLedger) -> Result<(), String> {
        match event {
            ClientEvent::Frame(text) => return self.hear(&text, ledger),
            ClientEvent::Closed(connection) => self.writers[connection] = None,
            ClientEvent::Opened(connection, writer) => self.writers[connection] = Some(writer),
        }
        Ok(())
    }

    fn hear(&mut self, text: &str, ledger: &mut PlainLedger) -> Result<(), String> {
        let frame: ReceivedFrame = serde_json::from_str(text).map_err(said)?;
        match (frame.kind, frame.id, frame.delivery, frame.problem) {
            ("accepted", Some(id), ..) => ledger.note_admitted(id),
            ("refused", Some(_), _, Some(Problem { code })) if code == NO_ANSWER => {
                ledger.summary.unanswered += 1;
            }
            ("refused", id, _, Some(problem)) => ledger.note_refused(id, problem),
            ("delivery", _, Some(delivery), _) => self.hear_delivery(delivery, ledger),
            _ => {}
        }
        Ok(())
    }

    fn hear_delivery(&mut self, delivery: Delivery, ledger: &mut PlainLedger) {
        let Delivery { envelope: DeliveryEnvelope { msg_id, to, negotiation }, payload } = delivery;
        let Some(agent) = to.first().and_then(|to| to.strip_prefix("agent://")) else { return };
        let answered = answer(agent, &negotiation, &payload);
        match answered {
            PlainAnswer::Ended(outcome) if negotiation.starts_with(agent) => ledger.note_ended(&negotiation, outcome),
            PlainAnswer::Ended(_) | PlainAnswer::Nothing => {}
            PlainAnswer::Say(payload) => {
                let message = json!({
                    "envelope": {"msg_id": format!("d{msg_id}"), "ts": TS,
                                 "from": format!("agent://{agent}"), "negotiation": negotiation},
                    "payload": payload,
                });
                let frame = json!({"type": "message", "agent": agent, "message": message}).to_string();
                if !self.send(agent, frame) {
                    // Not acknowledged, it comes again.
                    return;
                }
            }
        }
        self.acks.entry(agent.to_owned()).or_default().push(msg_id);
        self.acks_since.get_or_insert_with(Instant::now);
    }

    /// Sends the acknowledgements that have waited for long enough.
    fn acknowledge(&mut self, now: Instant, is_last: bool) {
        let Some(since) = self.acks_since.filter(|since| is_last || now.duration_since(*since) >= ACK_PERIOD) else {
            return;
        };
        self.acks_since = None;
        for (agent, ids) in std::mem::take(&mut self.acks) {
            for some in ids.chunks(ACKS_MAX) {
                let frame = json!({"type": "ack", "agent": agent, "delivery_ids": some}).to_string();
                if !self.send(&agent, frame) {
                    self.acks.entry(agent.clone()).or_default().extend_from_slice(some);
                    self.acks_since = Some(since);
                }
            }
        }
    }
}

impl PlainLedger {
    /// Begins a load of so many seconds.
    fn new(seconds: f64) -> Self {
        let by_s = vec![0; seconds.ceil() as usize];
        let summary = PlainSummary {
            began_ms: unix_ms(),
            completed_by_s: by_s.clone(),
            longest_ms_by_s: by_s,
            ..PlainSummary::default()
        };
        Self {
            began: Instant::now(),
            is_over: false,
            open: HashMap::new(),
            summary,
            last_from: Duration::from_secs_f64((seconds - LAST_S).max(0.0)),
            completed: Latency::default(),
            refused: Latency::default(),
            answered: Latency::default(),
            last_answered: Latency::default(),
            lags: Latency::default(),
        }
    }

    fn note_answered(&mut self, sent: Instant) {
        self.answered.record(sent.elapsed());
        if sent.duration_since(self.began) >= self.last_from {
            self.last_answered.record(sent.elapsed());
        }
    }

    fn note_admitted(&mut self, id: &str) {
        if let Some(call) = self.open.get_mut(id).filter(|call| !call.is_taken) {
            call.is_taken = true;
            self.summary.taken += 1;
            let sent = call.sent;
            self.note_answered(sent);
        }
    }

    /// A refusal without a reference is of an answer or an acknowledgement; it is counted under another name.
    fn note_refused(&mut self, id: Option<&str>, problem: Problem) {
        let Some(call) = id.and_then(|id| self.open.remove(id)) else {
            *self.summary.refused.entry(format!("{}{}", PlainSummary::RUNNING, problem.code)).or_default() += 1;
            return;
        };
        self.refused.record(call.sent.elapsed());
        self.note_answered(call.sent);
        let made_at = call.sent.duration_since(self.began).as_secs_f64();
        self.summary.refused_between_bursts += u64::from(!is_in_burst(made_at, BEHIND_BURST_S));
        *self.summary.refused.entry(problem.code).or_default() += 1;
    }

    fn note_ended(&mut self, negotiation: &str, outcome: &str) {
        let Some(call) = self.open.remove(negotiation) else { return };
        // The answer to the call may come behind the end.
        self.summary.taken += u64::from(!call.is_taken);
        if Workload::is_success(outcome) {
            let (took, made_at) = (call.sent.elapsed(), call.sent.duration_since(self.began));
            self.completed.record(took);
            if let Some(completed) = self.summary.completed_by_s.get_mut((made_at + took).as_secs() as usize) {
                *completed += 1;
            }
            if let Some(longest) = self.summary.longest_ms_by_s.get_mut(made_at.as_secs() as usize) {
                *longest = (*longest).max(u32::try_from(took.as_millis()).unwrap_or(u32::MAX));
            }
        }
        *self.summary.ended.entry(outcome.to_owned()).or_default() += 1;
    }

    /// No further calls are made.
    fn close(&mut self, calling: f64) {
        self.is_over = true;
        self.summary.unended = self.open.values().filter(|call| call.is_taken).count() as u64;
        let completed: u64 =
            self.summary.ended.iter().filter(|(outcome, _)| Workload::is_success(outcome)).map(|(_, n)| n).sum();
        self.summary.completed_per_s = completed as f64 / calling.max(f64::EPSILON);
    }

    fn finish(mut self) -> PlainSummary {
        // What is not answered yet has waited for so long at least.
        let waiting: Vec<_> = self.open.values().filter(|call| !call.is_taken).map(|call| call.sent).collect();
        waiting.into_iter().for_each(|sent| self.note_answered(sent));
        let of = |latency: &Latency| [0.50, 0.99].map(|quantile| latency.quantile_ms(quantile));
        self.summary.completed_ms = of(&self.completed);
        self.summary.refused_ms = of(&self.refused);
        self.summary.loop_lag_ms = of(&self.lags);
        let [p50, p99] = of(&self.answered);
        self.summary.answered_ms = [p50, p99, self.last_answered.quantile_ms(1.0)];
        self.summary.lost = self.open.values().filter(|call| call.is_taken).count() as u64;
        self.summary
    }
}
