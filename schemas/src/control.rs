//! The control plane's documents: agents, groups, consent.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Capability, GroupId, TopicName};
use crate::record::Qos;

/// Most topics one agent subscribes to.
pub const TOPICS_MAX: usize = 64;
/// Most consent rules of one agent.
pub const CONSENT_RULES_MAX: usize = 256;
/// Most members of a group.
pub const GROUP_MEMBERS_MAX: usize = 4096;

/// Shortest lease of an agent's presence, in milliseconds: two rounds of what gateways report to each other.
pub const LEASE_MS_MIN: u32 = 10_000;
/// Longest lease, in milliseconds: one day.
pub const LEASE_MS_MAX: u32 = 86_400_000;
/// Lease of an agent that names none, in milliseconds.
pub const LEASE_MS_DEFAULT: u32 = 30_000;

/// An agent as it registers itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// Topics it subscribes to.
    #[serde(default)]
    pub topics: Vec<TopicName>,
    /// Whose calls it takes.
    #[serde(default)]
    pub consent: Consent,
    /// How long it stays present after the exchange last heard it, in milliseconds, [`LEASE_MS_MIN`] to [`LEASE_MS_MAX`].
    /// An agent with an open stream is present without it.
    #[serde(default = "lease_ms_default")]
    pub lease_ms: u32,
    /// Whether calls to topics and groups invite it while it is absent.
    #[serde(default)]
    pub durable: bool,
    /// Which receipts are deliveries of their own.
    #[serde(default)]
    pub receipts: ReceiptPreference,
    /// For people: a name or description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Which receipts an agent is sent at once (docs/spec/messages.md#ms-56).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptPreference {
    /// Those that say more than `ok`; others come with the next delivery of the negotiation.
    #[default]
    Exceptions,
    /// Each.
    All,
}

impl Default for Registration {
    fn default() -> Self {
        Self {
            capabilities: Vec::new(),
            topics: Vec::new(),
            consent: Consent::default(),
            lease_ms: LEASE_MS_DEFAULT,
            durable: false,
            receipts: ReceiptPreference::default(),
            description: None,
        }
    }
}

fn lease_ms_default() -> u32 {
    LEASE_MS_DEFAULT
}

/// An agent's consent: the first rule that matches decides, otherwise the default. Without a registration: deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Consent {
    /// What applies when no rule matches.
    #[serde(default)]
    pub default: ConsentEffect,
    /// The rules, in order.
    #[serde(default)]
    pub rules: Vec<ConsentRule>,
}

/// One rule. A member that is absent matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsentRule {
    /// What applies.
    pub effect: ConsentEffect,
    /// Calls that came through this topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicName>,
    /// Calls of this initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counterpart: Option<AgentId>,
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsentEffect {
    /// Deliver.
    Allow,
    /// Do not deliver.
    #[default]
    Deny,
    /// Do not deliver, but note the request so that the agent's owner can decide.
    Ask,
}

impl Consent {
    /// What applies to a call of `counterpart` that came through `topic` (absent: addressed directly or by a group).
    #[must_use]
    pub fn effect(&self, topic: Option<&TopicName>, counterpart: &AgentId) -> ConsentEffect {
        self.rules
            .iter()
            .find(|rule| {
                rule.topic.as_ref().is_none_or(|wanted| Some(wanted) == topic)
                    && rule.counterpart.as_ref().is_none_or(|wanted| wanted == counterpart)
            })
            .map_or(self.default, |rule| rule.effect)
    }
}

/// A named subset of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The group.
    pub id: GroupId,
    /// Its members. Membership does not replace a member's own consent.
    pub members: Vec<AgentId>,
    /// How calls to it are delivered.
    #[serde(default)]
    pub qos: Qos,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_rule_decides_and_silence_denies() {
        let agent = |name: &str| AgentId::try_new(name).unwrap();
        let topic = TopicName::try_new("courier").unwrap();
        let consent = Consent {
            default: ConsentEffect::Deny,
            rules: vec![
                ConsentRule { effect: ConsentEffect::Deny, topic: None, counterpart: Some(agent("mallory")) },
                ConsentRule { effect: ConsentEffect::Allow, topic: Some(topic.clone()), counterpart: None },
                ConsentRule { effect: ConsentEffect::Ask, topic: None, counterpart: Some(agent("bob")) },
            ],
        };
        assert_eq!(consent.effect(Some(&topic), &agent("alice")), ConsentEffect::Allow);
        assert_eq!(consent.effect(Some(&topic), &agent("mallory")), ConsentEffect::Deny);
        assert_eq!(consent.effect(None, &agent("bob")), ConsentEffect::Ask);
        assert_eq!(consent.effect(None, &agent("alice")), ConsentEffect::Deny);
        assert_eq!(Consent::default().effect(None, &agent("alice")), ConsentEffect::Deny);
    }
}
