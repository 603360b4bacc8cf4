//! Every NATS subject of the exchange. No other module spells one.
//!
//! | subject | who publishes | what |
//! |---|---|---|
//! | `agent.<agent>.inbox` | engine | a JSON array of deliveries |
//! | `deliver.<gateway>` | engine | deliveries to agents that have their streams at that gateway, sent for the first time (`routed`); likewise to agents of a host, on whose subjects a host is a gateway |
//! | `topic.<name>`, `group.<id>` | engine | public notices, without terms |
//! | `ack.<agent>.<delivery_id>` | agent | acknowledges that delivery, and those in its body |
//! | `acks.<gateway>` | gateway | what its agents acknowledged (`acknowledgement`); no agent may publish or read it |
//! | `gw.in.<agent>` | agent | an envelope, token in the header [`TOKEN_HEADER`]; answered by a gateway |
//! | `gw.end.<agent>` | gateway | every gateway ends the streams it holds for that agent |
//! | `hello.<agent>` | gateway, agent | the agent has connected, is still there, or has closed its streams at a gateway (`presence::Hello`) |
//! | `presence.<gateway>` | gateway | a JSON array of the agents it heard (`presence`) |
//! | `streams.<gateway>` | gateway | a JSON array of the agents that have a stream open there |
//! | `view.<lane>` | gateway | asks the lane's engine for one negotiation |
//! | `engine.<id>.heartbeat` | engine | that it lives, and how far each of its lanes has come |
//! | `engine.<id>.statistics` | engine | numbers for people who look (`statistics::Statistics`) |
//! | `journal.<lane>` | gateway | asks the lane's engine what happened in one negotiation |
//! | `backlog.<engine>` | engine | a JSON array of the agents that acknowledge too little: invite them no more for now |
//! | `behind.<engine>` | engine | the same of agents that acknowledge, and have more to read than they keep up with |
//! | `admission.<lane>` | engine | how many negotiations per second the lane may be asked to open (`admission::LaneAdmission`) |
//! | `evidence.<lane>` | engine | the lane's evidence is stored up to this position of its log, as text (`evidence::LaneEvidence`) |
//! | `log.<lane>` | gateway, engine | the log (JetStream) |
//! | `_EXCHANGE.…` | whoever answers gateways, engines and commands | answers to the exchange's own requests |
//! | `_INBOX.…`, `_INBOX_<agent>.…`, `_reply.<agent>` | gateway | answers to what an agent sent with that reply subject |
//! | `award.<negotiation>.<lot>.<award_no>[.end]`, `closed.<negotiation>` | engine | the write-once register (JetStream) |

use crate::ids::{AgentId, DeliveryId, GatewayId, GroupId, Lane, TopicName};

/// Header that carries the token on [`gateway_in`].
pub const TOKEN_HEADER: &str = "Llmx-Token";
/// Begins the subjects under which gateways, engines and commands are answered: what NATS itself, engines and gateways say
/// to the exchange is read by nobody who may only subscribe to inboxes of agents.
pub const EXCHANGE_INBOX: &str = "_EXCHANGE";
/// Begins the subjects under which NATS clients are answered unless they choose another.
const CLIENT_INBOX: &str = "_INBOX";
/// Begins the subjects under which an agent may have itself answered, before its name.
const OWN_REPLY: &str = "_reply";
/// Every inbox.
pub const ALL_INBOXES: &str = "agent.*.inbox";
/// What engines send to every gateway, for the streams it holds.
pub const ALL_GATEWAY_DELIVERIES: &str = "deliver.*";
/// Every acknowledgement of agents that speak NATS.
pub const ALL_ACKS: &str = "ack.*.*";
/// What every gateway collected of acknowledgements.
pub const ALL_COLLECTED_ACKS: &str = "acks.*";
/// Every hello.
pub const ALL_HELLOS: &str = "hello.*";
/// What every gateway says of whom it heard.
pub const ALL_PRESENCE: &str = "presence.*";
/// What every gateway says of whose streams it holds.
pub const ALL_STREAMS: &str = "streams.*";
/// Every engine's heartbeat.
pub const ALL_HEARTBEATS: &str = "engine.*.heartbeat";
/// Every engine's statistics.
pub const ALL_STATISTICS: &str = "engine.*.statistics";
/// What every engine says of agents that acknowledge too little.
pub const ALL_BACKLOGS: &str = "backlog.*";
/// What every engine says of agents that are behind.
pub const ALL_BEHIND: &str = "behind.*";
/// How much every lane may be asked to open.
pub const ALL_ADMISSIONS: &str = "admission.*";
/// What every lane's engine says of evidence it has stored.
pub const ALL_EVIDENCE: &str = "evidence.*";
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

/// A name as one token of a subject: whatever may not stand there becomes `_`.
#[must_use]
pub fn token(name: &str) -> String {
    name.replace(|letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter), "_")
}

/// Declares subjects, and names of documents: for each the function that writes it.
macro_rules! subjects {
    ($($(#[$doc:meta])* $name:ident($($part:ident: $ty:ty),+) = $subject:literal;)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name($($part: $ty),+) -> String {
            format!($subject)
        }
    )+};
}

subjects! {
    /// An agent's inbox.
    inbox(agent: &AgentId) = "agent.{agent}.inbox";
    /// How much a lane may be asked to open.
    admission(lane: Lane) = "admission.{lane}";
    /// That the evidence of a lane is stored.
    evidence(lane: Lane) = "evidence.{lane}";
    /// The name under which the evidence of a lane is stored.
    evidence_document(lane: Lane) = "evidence-{lane}";
    /// Deliveries for the streams that a gateway holds.
    gateway_deliveries(gateway: &GatewayId) = "deliver.{gateway}";
    /// A topic's public notices.
    topic(topic: &TopicName) = "topic.{topic}";
    /// A group's public notices.
    group(group: &GroupId) = "group.{group}";
    /// The acknowledgement of one delivery.
    ack(agent: &AgentId, delivery: DeliveryId) = "ack.{agent}.{delivery}";
    /// What a gateway's agents acknowledged. `gateway` must be one token: letters, digits, `_` and `-`.
    collected_acks(gateway: &str) = "acks.{gateway}";
    /// Where an agent that speaks NATS sends its envelopes.
    gateway_in(agent: &AgentId) = "gw.in.{agent}";
    /// An administrator ends an agent's streams, at every gateway.
    stream_end(agent: &AgentId) = "gw.end.{agent}";
    /// An agent has connected.
    hello(agent: &AgentId) = "hello.{agent}";
    /// Whom a gateway heard. `gateway` must be one token: letters, digits, `_` and `-`.
    presence(gateway: &str) = "presence.{gateway}";
    /// Whose streams a gateway holds.
    streams(gateway: &GatewayId) = "streams.{gateway}";
    /// Views of a lane's negotiations.
    view(lane: Lane) = "view.{lane}";
    /// An engine's heartbeat. `engine` must be one token: letters, digits, `_` and `-`.
    heartbeat(engine: &str) = "engine.{engine}.heartbeat";
    /// An engine's statistics. `engine` must be one token: letters, digits, `_` and `-`.
    statistics(engine: &str) = "engine.{engine}.statistics";
    /// Agents that acknowledge too little. `engine` must be one token: letters, digits, `_` and `-`.
    backlog(engine: &str) = "backlog.{engine}";
    /// Agents that acknowledge, and have more to read than they keep up with. `engine` as in [`backlog`].
    behind(engine: &str) = "behind.{engine}";
    /// Journals of a lane's negotiations.
    journal(lane: Lane) = "journal.{lane}";
    /// A lane's log.
    log(lane: Lane) = "log.{lane}";
}

/// The lane in [`admission`].
#[must_use]
pub fn admission_lane_of(subject: &str) -> Option<Lane> {
    subject.strip_prefix("admission.")?.parse().ok().map(Lane)
}

/// The lane in [`evidence`].
#[must_use]
pub fn evidence_lane_of(subject: &str) -> Option<Lane> {
    subject.strip_prefix("evidence.")?.parse().ok().map(Lane)
}

/// Whether deliveries under this subject are for the streams of a gateway: lines, where an inbox has a JSON array.
#[must_use]
pub fn is_gateway_deliveries(subject: &str) -> bool {
    subject.starts_with("deliver.")
}

/// The gateway named by the subject of what it says of whom it heard.
#[must_use]
pub fn gateway_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("presence.")
}

/// The gateway named by the subject of what it says of whose streams it holds.
#[must_use]
pub fn streams_gateway_of(subject: &str) -> Option<GatewayId> {
    GatewayId::try_new(subject.strip_prefix("streams.")?).ok()
}

/// The engine named by the subject of what it says of agents that acknowledge too little.
#[must_use]
pub fn backlog_engine_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("backlog.")
}

/// The engine named by the subject of what it says of agents that are behind.
#[must_use]
pub fn behind_engine_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("behind.")
}

/// The engine named by a heartbeat's subject.
#[must_use]
pub fn engine_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("engine.")?.strip_suffix(".heartbeat")
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

/// Whether a gateway may answer an agent under this subject: below `_INBOX`, `_INBOX_<agent>`, `_reply.<agent>`, or the
/// exchange's own [`EXCHANGE_INBOX`], which agents of its own processes use.
///
/// NATS lets every client name any reply subject, whatever it may publish itself, and a gateway publishes with rights of
/// its own: without this an agent could write to the log, the register and other agents' subjects through it.
#[must_use]
pub fn is_reply_to(subject: &str, agent: &AgentId) -> bool {
    let is_plain = subject.split('.').all(|token| {
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*' && byte != b'>')
    });
    let Some((first, rest)) = subject.split_once('.') else { return false };
    let is_own = match first {
        CLIENT_INBOX | EXCHANGE_INBOX => true,
        OWN_REPLY => rest.split('.').next() == Some(agent.as_str()),
        _ => first.strip_prefix(CLIENT_INBOX).and_then(|own| own.strip_prefix('_')) == Some(agent.as_str()),
    };
    is_plain && is_own
}

/// Agent and delivery named by an acknowledgement's subject.
#[must_use]
pub fn parse_ack(subject: &str) -> Option<(AgentId, DeliveryId)> {
    let (agent, delivery) = subject.strip_prefix("ack.")?.split_once('.')?;
    Some((AgentId::try_new(agent).ok()?, DeliveryId::try_new(delivery).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_answered_below_an_inbox_of_clients_or_of_its_own_and_nowhere_else() {
        let bob = AgentId::try_new("bob").expect("an agent's name");
        for (reply, is_allowed) in [
            ("_INBOX.abc.1", true),
            ("_INBOX_bob.abc.1", true),
            ("_reply.bob", true),
            ("_reply.bob.7", true),
            ("_EXCHANGE.abc.1", true),
            ("_INBOX", false),
            ("_INBOX.", false),
            ("_INBOX.>", false),
            ("_INBOX.*.1", false),
            ("_INBOX.a b", false),
            ("_INBOX_alice.abc.1", false),
            ("_INBOX_.abc", false),
            ("_INBOXbob.abc", false),
            ("_reply.alice", false),
            ("_reply.bobby", false),
            ("_reply", false),
            ("gw.end.alice", false),
            ("gw.in.bob", false),
            ("agent.bob.inbox", false),
            ("deliver.gateway-1", false),
            ("streams.gateway-1", false),
            ("log.0", false),
            ("award.alice~job.0.1", false),
            ("$KV.agents.alice", false),
            ("$O.llmx.M.Y2hlY2twb2ludC0w", false),
            ("$JS.API.STREAM.DELETE.LLMX_LOG", false),
            ("", false),
        ] {
            assert_eq!(is_reply_to(reply, &bob), is_allowed, "{reply:?}");
        }
    }
}
