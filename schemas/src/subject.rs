//! Every NATS subject of the exchange. No other module spells one.
//!
//! | subject | who publishes | what |
//! |---|---|---|
//! | `agent.<agent>.inbox` | engine | a JSON array of deliveries |
//! | `topic.<name>`, `group.<id>` | engine | public notices, without terms |
//! | `ack.<agent>.<delivery_id>` | agent, or its gateway | acknowledges that delivery, and those in its body |
//! | `gw.in.<agent>` | agent | an envelope, token in the header [`TOKEN_HEADER`]; answered by a gateway |
//! | `gw.end.<agent>` | gateway | every gateway ends the streams it holds for that agent |
//! | `hello.<agent>` | gateway, agent | the agent has connected: send what is unacknowledged; or, with [`crate::presence::RENEWAL`], that it is still there |
//! | `presence.<gateway>` | gateway | a JSON array of the agents it heard ([`crate::presence`]) |
//! | `view.<lane>` | gateway | asks the lane's engine for one negotiation |
//! | `engine.<id>.beat` | engine | that it lives, and how far each of its lanes has come |
//! | `engine.<id>.pulse` | engine | numbers for people who look ([`crate::pulse::Pulse`]) |
//! | `journal.<lane>` | gateway | asks the lane's engine what happened in one negotiation |
//! | `backlog.<engine>` | engine | a JSON array of the agents that acknowledge too little: invite them no more for now |
//! | `log.<lane>` | gateway, engine | the log (JetStream) |
//! | `award.<negotiation>.<lot>.<award_no>[.end]`, `closed.<negotiation>` | engine | the write-once register (JetStream) |

use crate::ids::{AgentId, DeliveryId, GroupId, Lane, TopicName};

/// Header that carries the token on [`gateway_in`].
pub const TOKEN_HEADER: &str = "Llmx-Token";
/// Every inbox.
pub const ALL_INBOXES: &str = "agent.*.inbox";
/// Every acknowledgement.
pub const ALL_ACKS: &str = "ack.*.*";
/// Every hello.
pub const ALL_HELLOS: &str = "hello.*";
/// What every gateway says of whom it heard.
pub const ALL_PRESENCE: &str = "presence.*";
/// Every engine's heartbeat.
pub const ALL_BEATS: &str = "engine.*.beat";
/// Every engine's numbers.
pub const ALL_PULSES: &str = "engine.*.pulse";
/// What every engine says of agents that acknowledge too little.
pub const ALL_BACKLOGS: &str = "backlog.*";
/// Every message from agents that speak NATS.
pub const ALL_GATEWAY_IN: &str = "gw.in.*";
/// Every order to end an agent's streams. Gateways share no queue group here: each has to act.
pub const ALL_STREAM_ENDS: &str = "gw.end.*";
/// Queue group of all gateways on [`ALL_GATEWAY_IN`].
pub const GATEWAY_QUEUE: &str = "gateways";
/// Subjects of the log stream.
pub const ALL_LOG: &str = "log.*";
/// Subjects of the register stream.
pub const ALL_REGISTER: [&str; 2] = ["award.>", "closed.*"];

/// An agent's inbox.
#[must_use]
pub fn inbox(agent: &AgentId) -> String {
    format!("agent.{agent}.inbox")
}

/// A topic's public notices.
#[must_use]
pub fn topic(topic: &TopicName) -> String {
    format!("topic.{topic}")
}

/// A group's public notices.
#[must_use]
pub fn group(group: &GroupId) -> String {
    format!("group.{group}")
}

/// The acknowledgement of one delivery.
#[must_use]
pub fn ack(agent: &AgentId, delivery: DeliveryId) -> String {
    format!("ack.{agent}.{delivery}")
}

/// Where an agent that speaks NATS sends its envelopes.
#[must_use]
pub fn gateway_in(agent: &AgentId) -> String {
    format!("gw.in.{agent}")
}

/// An administrator ends an agent's streams, at every gateway.
#[must_use]
pub fn stream_end(agent: &AgentId) -> String {
    format!("gw.end.{agent}")
}

/// An agent has connected.
#[must_use]
pub fn hello(agent: &AgentId) -> String {
    format!("hello.{agent}")
}

/// Whom a gateway heard. `gateway` must be one token: letters, digits, `_` and `-`.
#[must_use]
pub fn presence(gateway: &str) -> String {
    format!("presence.{gateway}")
}

/// The gateway named by the subject of what it says of whom it heard.
#[must_use]
pub fn gateway_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("presence.")
}

/// Views of a lane's negotiations.
#[must_use]
pub fn view(lane: Lane) -> String {
    format!("view.{lane}")
}

/// An engine's heartbeat. `engine` must be one token: letters, digits, `_` and `-`.
#[must_use]
pub fn beat(engine: &str) -> String {
    format!("engine.{engine}.beat")
}

/// An engine's numbers. `engine` must be one token: letters, digits, `_` and `-`.
#[must_use]
pub fn pulse(engine: &str) -> String {
    format!("engine.{engine}.pulse")
}

/// Agents that acknowledge too little. `engine` must be one token: letters, digits, `_` and `-`.
#[must_use]
pub fn backlog(engine: &str) -> String {
    format!("backlog.{engine}")
}

/// The engine named by the subject of what it says of agents that acknowledge too little.
#[must_use]
pub fn backlog_engine_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("backlog.")
}

/// Journals of a lane's negotiations.
#[must_use]
pub fn journal(lane: Lane) -> String {
    format!("journal.{lane}")
}

/// The engine named by a heartbeat's subject.
#[must_use]
pub fn engine_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("engine.")?.strip_suffix(".beat")
}

/// A lane's log.
#[must_use]
pub fn log(lane: Lane) -> String {
    format!("log.{lane}")
}

/// The agent named by the second token of `hello.<agent>` or `ack.<agent>.…`, or the third of `gw.in.<agent>`
/// and `gw.end.<agent>`.
#[must_use]
pub fn agent_of(subject: &str) -> Option<AgentId> {
    let rest = subject
        .strip_prefix("gw.in.")
        .or_else(|| subject.strip_prefix("gw.end."))
        .or_else(|| subject.strip_prefix("hello."))
        .or_else(|| subject.strip_prefix("ack."))
        .or_else(|| subject.strip_prefix("agent."))?;
    AgentId::try_new(rest.split('.').next()?).ok()
}

/// Agent and delivery named by an acknowledgement's subject.
#[must_use]
pub fn parse_ack(subject: &str) -> Option<(AgentId, DeliveryId)> {
    let (agent, delivery) = subject.strip_prefix("ack.")?.split_once('.')?;
    Some((AgentId::try_new(agent).ok()?, DeliveryId::try_new(delivery).ok()?))
}
