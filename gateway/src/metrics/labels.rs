//! The closed label sets.

use schemas::{Act, Code};

/// The act of a message that agents may send, or `unknown` where it was refused before its act was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageKind(Option<Act>);

impl MessageKind {
    pub(super) fn of(act: Option<Act>) -> Self {
        Self(act.filter(|act| Act::FROM_AGENTS.contains(act)))
    }

    pub(super) fn all() -> Vec<Self> {
        Act::FROM_AGENTS.into_iter().map(Some).chain([None]).map(Self).collect()
    }
}

impl From<MessageKind> for &'static str {
    fn from(kind: MessageKind) -> Self {
        kind.0.map_or("unknown", Act::as_str)
    }
}

/// Whether something was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Answer {
    Accepted,
    Rejected,
}

/// Whether a limit lets something pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum LimitDecision {
    Allow,
    Deny,
}

/// Whether a document is as its schema says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Validity {
    Valid,
    Invalid,
}

/// Whether the store did what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum StoreResult {
    Ok,
    Error,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum AuthReason {
    /// It is not.
    None,
    Unauthenticated,
    TokenExpired,
    TokenNotYetValid,
    Other,
}

impl AuthReason {
    /// What tokens are answered with.
    pub(super) const ANSWERS: [(Answer, Self); 5] = [
        (Answer::Accepted, Self::None),
        (Answer::Rejected, Self::Unauthenticated),
        (Answer::Rejected, Self::TokenExpired),
        (Answer::Rejected, Self::TokenNotYetValid),
        (Answer::Rejected, Self::Other),
    ];

    pub(super) fn of(code: Code) -> Self {
        let known = |reason: &Self| <&str>::from(*reason) == code.as_str();
        [Self::Unauthenticated, Self::TokenExpired, Self::TokenNotYetValid]
            .into_iter()
            .find(known)
            .unwrap_or(Self::Other)
    }
}

/// The rule that decided whether an agent is invited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Rule {
    Consent,
    Capability,
    Presence,
    Backlog,
}

impl Rule {
    /// What each can decide.
    pub(super) const EFFECTS: [(Self, Invited); 6] = [
        (Self::Consent, Invited::Allowed),
        (Self::Consent, Invited::Denied),
        (Self::Consent, Invited::Asked),
        (Self::Capability, Invited::Denied),
        (Self::Presence, Invited::Denied),
        (Self::Backlog, Invited::Denied),
    ];
}

/// Stages of admission, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Stage {
    /// Size of the body.
    Size,
    /// Token and subject.
    Auth,
    /// Rate of the agent.
    Rate,
    /// Parse, schema, typed decode, digest.
    Schema,
    /// Sender, scope, recipients, consent, policy.
    Policy,
    /// Another body under a known id.
    Duplicate,
    /// The log.
    Publish,
}

/// Rate limiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Limiter {
    /// By agent.
    Agent,
    /// By peer address, for tokens to verify.
    Peer,
}

/// What a renewal of the keys came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum RefreshResult {
    /// New keys are in force.
    Changed,
    /// Nothing new.
    Unchanged,
    /// Not readable or not usable; the old keys stay.
    Failed,
}

/// Streams to agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum StreamKind {
    /// WebSocket.
    #[strum(serialize = "ws")]
    WebSocket,
    /// Server-sent events.
    Sse,
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CloseReason {
    /// The client closed it.
    Client,
    /// The token ran out.
    Expired,
    /// The key that signed the token was taken out of the key set.
    KeyRemoved,
    /// An administrator ended the agent's streams.
    Ended,
    /// The client did not read.
    Slow,
    /// Nothing was heard of the client.
    Idle,
    /// The client broke the protocol.
    Protocol,
    /// The gateway stops.
    Shutdown,
    /// The bus ended the subscription.
    Bus,
}

/// What became of a delivery on a stream. None but the first is lost: it comes again until it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum StreamResult {
    /// Written.
    Sent,
    /// Not readable.
    Unreadable,
    /// The client did not read it in time.
    Timeout,
    /// The client was gone before it was written.
    Gone,
}

/// What was turned away for want of room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Shed {
    /// Too many messages wait for the log.
    Queue,
    /// No further sender's rate is tracked.
    Senders,
    /// The agent has too many streams open.
    Streams,
    /// No further agent is registered.
    Agents,
    /// The store is full.
    Store,
}

/// What became of a document of the control plane that was followed from the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Reload {
    /// In force.
    Applied,
    /// Left out.
    Unreadable,
}

/// What a search for agents came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Discovery {
    /// At least one agent.
    Found,
    /// None.
    Empty,
    /// The question was refused.
    Refused,
}

/// Operations on the control plane's buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum KvOperation {
    /// Stored.
    Put,
    /// Stored unless something stands there.
    Create,
    /// Read.
    Value,
    /// Removed.
    Delete,
}

/// What the gateway decided about an agent that a call addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Invited {
    /// It is invited.
    #[strum(serialize = "allow")]
    Allowed,
    /// Its rules do not consent.
    #[strum(serialize = "deny")]
    Denied,
    /// Its owner is to be asked.
    #[strum(serialize = "escalate")]
    Asked,
}

/// What a document was checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Document {
    /// A message of any act.
    Message,
    /// A registration.
    Registration,
    /// A group.
    Group,
    /// A policy.
    Policy,
}

/// Which kind of rule a document broke: the families of JSON Schema's keywords, and what no schema is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Keyword {
    /// No JSON, a member twice, too deep.
    Syntax,
    /// `required`.
    Required,
    /// `additionalProperties`.
    #[strum(serialize = "additionalProperties")]
    AdditionalProperties,
    /// `type`.
    Type,
    /// `minimum`, `maxLength` and their like.
    Range,
    /// `pattern`, `format`.
    Format,
    /// `enum`, `const`, `not`.
    Enum,
}

impl Keyword {
    /// The family a code speaks of; none for codes that speak of no document's form.
    pub(crate) const fn of(code: Code) -> Option<Self> {
        match code {
            Code::MalformedJson | Code::DuplicateKey | Code::TooDeep => Some(Self::Syntax),
            Code::MissingField => Some(Self::Required),
            Code::UnknownField => Some(Self::AdditionalProperties),
            Code::WrongType => Some(Self::Type),
            Code::OutOfRange => Some(Self::Range),
            Code::BadFormat => Some(Self::Format),
            Code::NotAllowed => Some(Self::Enum),
            Code::TooLarge
            | Code::UnsupportedMediaType
            | Code::RequestTimeout
            | Code::MalformedRequest
            | Code::HeaderTooLarge
            | Code::UpgradeRequired
            | Code::Unauthenticated
            | Code::TokenExpired
            | Code::TokenNotYetValid
            | Code::Unauthorized
            | Code::RateLimited
            | Code::NoConsent
            | Code::NoRecipient
            | Code::Unresponsive
            | Code::BadDeadline
            | Code::UnknownPolicy
            | Code::InvalidPolicy
            | Code::NotFound
            | Code::MethodNotAllowed
            | Code::Conflict
            | Code::LogUnavailable
            | Code::Unavailable
            | Code::Overloaded
            | Code::Internal => None,
        }
    }
}

/// The stage a code belongs to.
pub(super) const fn stage_of(code: Code) -> Stage {
    match code {
        Code::TooLarge
        | Code::UnsupportedMediaType
        | Code::RequestTimeout
        | Code::MalformedRequest
        | Code::HeaderTooLarge
        | Code::UpgradeRequired => Stage::Size,
        Code::Unauthenticated | Code::TokenExpired | Code::TokenNotYetValid | Code::Unauthorized => Stage::Auth,
        Code::RateLimited => Stage::Rate,
        Code::MalformedJson
        | Code::DuplicateKey
        | Code::TooDeep
        | Code::MissingField
        | Code::UnknownField
        | Code::WrongType
        | Code::OutOfRange
        | Code::BadFormat
        | Code::NotAllowed => Stage::Schema,
        Code::NoConsent
        | Code::NoRecipient
        | Code::Unresponsive
        | Code::BadDeadline
        | Code::UnknownPolicy
        | Code::InvalidPolicy
        | Code::NotFound
        | Code::MethodNotAllowed => Stage::Policy,
        Code::Conflict => Stage::Duplicate,
        Code::LogUnavailable | Code::Unavailable | Code::Overloaded | Code::Internal => Stage::Publish,
    }
}

/// Every code, under its stage.
pub(super) fn rejections() -> Vec<(Stage, Code)> {
    Code::ALL.iter().map(|code| (stage_of(*code), *code)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_act_agents_send_has_its_own_kind() {
        let names: Vec<&str> = MessageKind::all().into_iter().map(Into::into).collect();
        let acts = Act::FROM_AGENTS.map(Act::as_str);
        assert_eq!(names, [acts.as_slice(), &["unknown"]].concat());
        assert!([None, Some(Act::Closed)].into_iter().all(|act| <&str>::from(MessageKind::of(act)) == "unknown"));
    }

    #[test]
    fn every_kind_of_rule_has_a_code_that_speaks_of_it() {
        for keyword in <Keyword as strum::VariantArray>::VARIANTS {
            assert!(Code::ALL.iter().any(|code| Keyword::of(*code) == Some(*keyword)), "{keyword:?}");
        }
    }
}
