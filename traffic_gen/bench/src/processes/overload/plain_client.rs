//! Agents that speak the wire protocol and nothing else: no SDK slows them down.
//!
//! One process, one thread. Callers open negotiations at a rate that depends on nothing that happens; contractors answer every
//! delivery at once; everybody acknowledges what it reads. Agents share WebSockets, callers and contractors apart.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

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
/// Seed of the arrivals.
const SEED: u64 = 1;
/// Before the code of a refusal that is none of a call.
pub(super) const RUNNING: &str = "running ";

/// What a process of plain clients does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlainLoad {
    /// Addresses of gateways; connections go to them in turn.
    pub gateways: Vec<String>,
    /// Callers, each with its token.
    pub callers: Vec<(String, String)>,
    /// Contractors, each with its token. They must be registered.
    pub contractors: Vec<(String, String)>,
    /// Connections that the callers share, and as many for contractors.
    pub connections: usize,
    /// What is called for, in turn.
    pub workloads: Vec<Workload>,
    /// Calls per second.
    pub rate: f64,
    /// Whether there are five times as many for the last five of every twenty seconds.
    pub bursts: bool,
    /// How long calls are made, in seconds.
    pub seconds: f64,
    /// How long ends are waited for behind that, in seconds.
    pub drain_seconds: f64,
    /// Part of the names of negotiations, which must not repeat.
    pub run: String,
}

/// What became of a load.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PlainSummary {
    /// Calls that were made.
    pub calls: u64,
    /// Calls that were not made because the connection took no more.
    pub held_back: u64,
    /// Calls answered 202.
    pub taken: u64,
    /// Calls refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// Calls refused that were made outside of bursts, and not within two seconds behind one.
    pub refused_between_bursts: u64,
    /// Negotiations that ended, by outcome.
    pub ended: BTreeMap<String, u64>,
    /// Calls taken in without an end when calls ceased.
    pub unended: u64,
    /// Successful ends per second while calls were made.
    pub completed_per_s: f64,
    /// From sending a call to its successful end, in milliseconds: 50 % and 99 %.
    pub completed_ms: [f64; 2],
    /// From sending a call to its refusal, in milliseconds: 50 % and 99 %.
    pub refused_ms: [f64; 2],
    /// How late the process itself was at most of its ticks, in milliseconds: 50 % and 99 %.
    pub loop_lag_ms: [f64; 2],
}

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
    completed: Latency,
    refused: Latency,
    lags: Latency,
}

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
    let mut writers = Vec::new();
    for (agents, number) in [(&load.callers, load.connections), (&load.contractors, load.connections)] {
        let number = number.clamp(1, agents.len().max(1));
        for connection in 0..number {
            let mine: Vec<_> = agents.iter().skip(connection).step_by(number).cloned().collect();
            if mine.is_empty() {
                continue;
            }
            let gateway = &load.gateways[connection % load.gateways.len()];
            let socket = timeout(JOIN_TIMEOUT, connect(gateway, &mine)).await.map_err(|_| "nobody answers joins")??;
            let (sender, frames) = mpsc::channel(FRAMES_MAX);
            let (sink, stream) = socket.split();
            tokio::spawn(read(stream, writers.len(), events.clone()));
            tokio::spawn(write(sink, frames));
            writers.push((sender, mine));
        }
    }
    let connection_of: HashMap<String, usize> = writers
        .iter()
        .enumerate()
        .flat_map(|(at, (_, agents))| agents.iter().map(move |(agent, _)| (agent.clone(), at)))
        .collect();
    let writers: Vec<_> = writers.into_iter().map(|(sender, _)| sender).collect();
    let payloads = load.workloads.iter().map(|workload| workload.call().to_string()).collect();
    let mut player = Player { load, payloads, connection_of, writers, acks: HashMap::new(), acks_since: None };
    let mut ledger = PlainLedger::new();
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
            Some((connection, text)) = arrivals.recv() => {
                player.hear(connection, text, &mut ledger)?;
                for _ in 0..512 {
                    let Ok((connection, text)) = arrivals.try_recv() else { break };
                    player.hear(connection, text, &mut ledger)?;
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

/// Hands on what is read until the connection ends.
async fn read(
    mut socket: SplitStream<Socket>,
    number: usize,
    events: mpsc::UnboundedSender<(usize, Option<Utf8Bytes>)>,
) {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                if events.send((number, Some(text))).is_err() {
                    return;
                }
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => break,
            Some(Ok(_)) => {}
        }
    }
    // The receiver is gone only when the process ends.
    let _ = events.send((number, None));
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
    writers: Vec<mpsc::Sender<String>>,
    acks: HashMap<String, Vec<String>>,
    acks_since: Option<Instant>,
}

impl Player {
    /// Makes the call of this number.
    fn call(&mut self, number: u64, ledger: &mut PlainLedger) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let (caller, _) = &self.load.callers[at % self.load.callers.len()];
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
        let frame = format!(
            r#"{{"agent":"{caller}","id":"{id}","message":{{"envelope":{envelope},"payload":{payload}}},"type":"message"}}"#
        );
        if self.send(caller, frame) {
            ledger.summary.calls += 1;
            ledger.open.insert(id, PlainCall { sent: Instant::now(), is_taken: false });
        } else {
            ledger.summary.held_back += 1;
        }
    }

    /// Queues a frame of an agent; whether there was room.
    fn send(&self, agent: &str, frame: String) -> bool {
        let writer = self.connection_of.get(agent).map(|connection| &self.writers[*connection]);
        writer.is_some_and(|writer| writer.try_send(frame).is_ok())
    }

    fn hear(&mut self, connection: usize, text: Option<Utf8Bytes>, ledger: &mut PlainLedger) -> Result<(), String> {
        let text = text.ok_or_else(|| format!("connection {connection} was closed"))?;
        let frame: ReceivedFrame = serde_json::from_str(&text).map_err(said)?;
        match (frame.kind, frame.id, frame.delivery, frame.problem) {
            ("accepted", Some(id), ..) => ledger.note_taken(id),
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
    fn new() -> Self {
        Self {
            began: Instant::now(),
            is_over: false,
            open: HashMap::new(),
            summary: PlainSummary::default(),
            completed: Latency::default(),
            refused: Latency::default(),
            lags: Latency::default(),
        }
    }

    fn note_taken(&mut self, id: &str) {
        if let Some(call) = self.open.get_mut(id).filter(|call| !call.is_taken) {
            call.is_taken = true;
            self.summary.taken += 1;
        }
    }

    /// A refusal without a reference is of an answer or an acknowledgement; it is counted under another name.
    fn note_refused(&mut self, id: Option<&str>, problem: Problem) {
        let Some(call) = id.and_then(|id| self.open.remove(id)) else {
            *self.summary.refused.entry(format!("{RUNNING}{}", problem.code)).or_default() += 1;
            return;
        };
        self.refused.record(call.sent.elapsed());
        let made_at = call.sent.duration_since(self.began).as_secs_f64();
        self.summary.refused_between_bursts += u64::from(!is_in_burst(made_at, BEHIND_BURST_S));
        *self.summary.refused.entry(problem.code).or_default() += 1;
    }

    fn note_ended(&mut self, negotiation: &str, outcome: &str) {
        let Some(call) = self.open.remove(negotiation) else { return };
        // The answer to the call may come behind the end.
        self.summary.taken += u64::from(!call.is_taken);
        if Workload::is_success(outcome) {
            self.completed.record(call.sent.elapsed());
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
        let of = |latency: &Latency| [0.50, 0.99].map(|quantile| latency.quantile_ms(quantile));
        self.summary.completed_ms = of(&self.completed);
        self.summary.refused_ms = of(&self.refused);
        self.summary.loop_lag_ms = of(&self.lags);
        self.summary
    }
}
