//! The envelope (LLM-X paper, appendix A): who sends what to whom, under which consent, and for how long.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Capability, GroupId, IdError, MsgId, TopicName};
use crate::text::text;
use crate::time::WireTime;

/// Most addresses in `to`. Larger audiences are reached through a topic or a group.
pub const RECIPIENTS_MAX: usize = 1024;
/// Most capabilities in one envelope.
pub const CAPABILITIES_MAX: usize = 32;
/// Longest lifetime a scope may ask for, in seconds: one day.
pub const TTL_S_MAX: u64 = 86_400;

/// Who is addressed: `agent://<id>`, `topic://<name>` or `group://<id>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// One agent.
    Agent(AgentId),
    /// The consenting subscribers of a topic, as they are when the call is admitted.
    Topic(TopicName),
    /// The members of a group, as they are when the call is admitted.
    Group(GroupId),
}

text!(Address, |address: &Self, serializer: S| serializer.collect_str(address), Self::try_new);

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// [`IdError`] when the scheme is none of the three or the rest is no name.
    pub fn try_new(text: &str) -> Result<Self, IdError> {
        match text.split_once("://") {
            Some(("agent", name)) => AgentId::try_new(name).map(Self::Agent),
            Some(("topic", name)) => TopicName::try_new(name).map(Self::Topic),
            Some(("group", name)) => GroupId::try_new(name).map(Self::Group),
            Some(_) | None => Err(IdError { what: "address", text: text.chars().take(80).collect() }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent) => write!(f, "agent://{agent}"),
            Self::Topic(topic) => write!(f, "topic://{topic}"),
            Self::Group(group) => write!(f, "group://{group}"),
        }
    }
}

/// Under which consent a message travels, and how long it and its negotiation may live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// On a call: topics and groups reach absent agents as well, not only those that are present or durable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// `opt-in`: only agents whose own consent rules allow it are reached. The only mode there is.
    pub consent: ConsentMode,
    /// Lifetime in seconds, 1 to [`TTL_S_MAX`], counted from the log time of the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
}

/// Consent modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConsentMode {
    /// Recipients must have allowed topic and counterpart.
    #[serde(rename = "opt-in")]
    OptIn,
}

/// The envelope around every payload. Members stand in the order of RFC 8785, so that what is written is in canonical form.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// On a call: an agent must share one of these to be invited (empty: any).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// The sender; must be `agent://` and equal the token's subject.
    pub from: Address,
    /// The message this one answers.
    pub in_reply_to: Option<MsgId>,
    /// Unique per sender and negotiation; a retry carries the same id and the same body.
    pub msg_id: MsgId,
    /// On a call: the initiator's own id (absent: the `msg_id`). On every other act: the full id the exchange gave.
    pub negotiation: Option<String>,
    /// Asks for a receipt at once, even if it says no more than `ok`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receipt: bool,
    /// Consent and lifetime.
    pub scope: Option<Scope>,
    /// Rises with every message of one sender in one negotiation.
    pub seq: Option<u64>,
    /// Recipients of a call for proposals. Other acts may leave it empty: the negotiation names the parties.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Address>,
    /// W3C trace context of the sender.
    pub traceparent: Option<String>,
    /// The sender's clock. Informational: no decision reads it.
    pub ts: WireTime,
}

impl Envelope {
    /// The sending agent, when `from` names one.
    #[must_use]
    pub fn sender(&self) -> Option<&AgentId> {
        match &self.from {
            Address::Agent(agent) => Some(agent),
            Address::Topic(_) | Address::Group(_) => None,
        }
    }
}
