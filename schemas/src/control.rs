//! The control plane's documents: agents, groups, consent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::VariantArray as _;

use crate::ids::{AgentId, Capability, GroupId, TopicName};
use crate::protocols::Protocol;
use crate::record::Qos;
use crate::text::text;

/// Most topics one agent subscribes to.
pub const TOPICS_MAX: usize = 64;
/// Most consent rules of one agent.
pub const CONSENT_RULES_MAX: usize = 256;
/// Most tags of one agent.
pub const TAGS_MAX: usize = 32;
/// Longest tag, in characters.
pub const TAG_LEN_MAX: usize = 64;
/// Most members of a group.
pub const GROUP_MEMBERS_MAX: usize = 4096;

/// Shortest lease of an agent's presence, in milliseconds: two rounds of what gateways report to each other.
pub const LEASE_MS_MIN: u32 = 10_000;
/// Longest lease, in milliseconds: one day.
pub const LEASE_MS_MAX: u32 = 86_400_000;
/// Lease of an agent that names none, in milliseconds.
pub const LEASE_MS_DEFAULT: u32 = 30_000;

/// An agent as it registers itself.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Registration {
    /// What it can do.
    pub capabilities: Vec<Capability>,
    /// Topics it subscribes to.
    pub topics: Vec<TopicName>,
    /// Whose calls it takes.
    pub consent: Consent,
    /// How long it stays present after the exchange last heard it, in milliseconds, [`LEASE_MS_MIN`] to [`LEASE_MS_MAX`].
    /// An agent with an open stream is present without it.
    pub lease_ms: u32,
    /// Whether calls to topics and groups invite it while it is absent.
    pub durable: bool,
    /// Which receipts are deliveries of their own.
    pub receipts: ReceiptPreference,
    /// What searches read: who it is, what it does.
    pub description: Option<String>,
    /// Whether it speaks for a person or is a thing of its own.
    #[serde(skip_serializing_if = "is_default")]
    pub kind: AgentKind,
    /// Words that searches filter by and read, at most [`TAGS_MAX`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// Who finds it.
    #[serde(skip_serializing_if = "is_default")]
    pub visibility: Visibility,
    /// The process that registers it: another one's removal leaves it (docs/spec/deliveries.md#dl-43).
    pub instance: Option<Tag>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// It speaks for a person, who may answer.
    Human,
    /// It is a program, a device, a service.
    #[default]
    Thing,
}

/// Who finds an agent by a search or a list (docs/spec/search.md#se-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Everybody.
    #[default]
    Listed,
    /// Whom its consent answers `allow` or `ask`.
    Consented,
    /// Nobody. Its id reaches it all the same.
    Hidden,
}

/// Why a text is no tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a tag: 1 to {TAG_LEN_MAX} characters of A-Z a-z 0-9 _ - .")]
pub struct TagError;

/// A word of a registration, such as those that searches filter by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(Arc<str>);

text!(Tag, |tag: &Self, serializer: S| serializer.serialize_str(&tag.0), Self::try_new);

impl Tag {
    /// Checks and wraps a tag.
    ///
    /// # Errors
    /// [`TagError`] unless the text is 1 to [`TAG_LEN_MAX`] characters of `A-Z a-z 0-9 _ - .`.
    pub fn try_new(text: &str) -> Result<Self, TagError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if (1..=TAG_LEN_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(TagError)
        }
    }

    /// The tag as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

crate::shown!(Tag = |Self(tag)| "{tag}");

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
            kind: AgentKind::default(),
            tags: Vec::new(),
            visibility: Visibility::default(),
            instance: None,
        }
    }
}

impl Registration {
    /// The registration of an agent that consents to everybody.
    #[must_use]
    pub fn open_to_all() -> Self {
        Self { consent: Consent { default: ConsentEffect::Allow, rules: Vec::new() }, ..Self::default() }
    }
}

/// An agent's consent: the first rule that matches decides, otherwise the default. Without a registration: deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Consent {
    /// What applies when no rule matches.
    pub default: ConsentEffect,
    /// The rules, in order.
    pub rules: Vec<ConsentRule>,
}

/// One rule. A member that is absent matches everything.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsentRule {
    /// What applies.
    pub effect: ConsentEffect,
    /// Calls that came through this topic.
    pub topic: Option<TopicName>,
    /// Calls of this initiator.
    pub counterpart: Option<AgentId>,
    /// Calls to this protocol.
    pub protocol: Option<Protocol>,
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
    /// What applies to a call of `counterpart` to `protocol` that came through `topic` (absent: addressed directly or by a
    /// group).
    #[must_use]
    pub fn effect(&self, topic: Option<&TopicName>, counterpart: &AgentId, protocol: Protocol) -> ConsentEffect {
        self.rules
            .iter()
            .find(|rule| {
                rule.topic.as_ref().is_none_or(|wanted| Some(wanted) == topic)
                    && rule.counterpart.as_ref().is_none_or(|wanted| wanted == counterpart)
                    && rule.protocol.is_none_or(|wanted| wanted == protocol)
            })
            .map_or(self.default, |rule| rule.effect)
    }

    /// Whether calls of `counterpart` by the agent's id are answered `allow` or `ask`, under any protocol: then it finds an
    /// agent that is [`Visibility::Consented`].
    #[must_use]
    pub fn shows_to(&self, counterpart: &AgentId) -> bool {
        let protocols = Protocol::VARIANTS.iter();
        let mut effects = protocols.map(|protocol| self.effect(None, counterpart, *protocol));
        effects.any(|effect| effect != ConsentEffect::Deny)
    }
}

impl Registration {
    /// Whether `caller` finds the agent by a search or a list (docs/spec/search.md#se-2).
    #[must_use]
    pub fn is_visible_to(&self, caller: &AgentId) -> bool {
        match self.visibility {
            Visibility::Listed => true,
            Visibility::Consented => self.consent.shows_to(caller),
            Visibility::Hidden => false,
        }
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
        let topic = TopicName::try_new("courier").unwrap();
        let consent = Consent {
            default: ConsentEffect::Deny,
            rules: vec![
                ConsentRule { counterpart: Some(agent("mallory")), ..rule(ConsentEffect::Deny) },
                ConsentRule { topic: Some(topic.clone()), ..rule(ConsentEffect::Allow) },
                ConsentRule { counterpart: Some(agent("bob")), ..rule(ConsentEffect::Ask) },
            ],
        };
        let effect = |topic, name| consent.effect(topic, &agent(name), Protocol::ContractNet);
        assert_eq!(effect(Some(&topic), "alice"), ConsentEffect::Allow);
        assert_eq!(effect(Some(&topic), "mallory"), ConsentEffect::Deny);
        assert_eq!(effect(None, "bob"), ConsentEffect::Ask);
        assert_eq!(effect(None, "alice"), ConsentEffect::Deny);
        let silent = Consent::default();
        assert_eq!(silent.effect(None, &agent("alice"), Protocol::Team), ConsentEffect::Deny);
    }

    #[test]
    fn a_rule_of_a_protocol_matches_calls_to_it_alone() {
        let consent = Consent {
            default: ConsentEffect::Allow,
            rules: vec![ConsentRule { protocol: Some(Protocol::Team), ..rule(ConsentEffect::Deny) }],
        };
        let effects: Vec<_> =
            Protocol::VARIANTS.iter().map(|protocol| consent.effect(None, &agent("alice"), *protocol)).collect();
        assert_eq!(effects.iter().filter(|effect| **effect == ConsentEffect::Deny).count(), 1);
        assert_eq!(consent.effect(None, &agent("alice"), Protocol::Team), ConsentEffect::Deny);
    }

    #[test]
    fn who_finds_an_agent_follows_from_its_visibility_and_consent() {
        let asks_bob = Consent {
            default: ConsentEffect::Deny,
            rules: vec![ConsentRule {
                counterpart: Some(agent("bob")),
                protocol: Some(Protocol::Team),
                ..rule(ConsentEffect::Ask)
            }],
        };
        let rows = [
            (Visibility::Listed, Consent::default(), [true, true]),
            (Visibility::Consented, asks_bob.clone(), [false, true]),
            (Visibility::Consented, Consent::default(), [false, false]),
            (Visibility::Hidden, asks_bob, [false, false]),
        ];
        for (visibility, consent, expected) in rows {
            let registration = Registration { visibility, consent, ..Registration::default() };
            let found = ["alice", "bob"].map(|name| registration.is_visible_to(&agent(name)));
            assert_eq!(found, expected, "{registration:?}");
        }
    }

    #[test]
    fn a_tag_is_a_short_word_of_letters_digits_and_three_marks() {
        let longest = "x".repeat(TAG_LEN_MAX);
        for tag in ["a", "v2.1", "_-.", longest.as_str()] {
            assert_eq!(Tag::try_new(tag).unwrap().as_str(), tag);
        }
        for text in ["", "two words", "café", "a/b", &format!("{longest}x")] {
            assert_eq!(Tag::try_new(text), Err(TagError), "{text}");
        }
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap_or_else(|error| panic!("{error}"))
    }

    fn rule(effect: ConsentEffect) -> ConsentRule {
        ConsentRule { effect, topic: None, counterpart: None, protocol: None }
    }
}
