//! What one record of the log holds. The log is the truth: state is the fold over these records (docs/spec/log.md#lg-1).
//!
//! A record is JSON, one line, with many entries (group commit). The client's message stands in it in RFC 8785
//! canonical form, so its digest can be recomputed from the log alone.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::digest::Digest;
use crate::envelope::Envelope;
use crate::ids::{AgentId, Capability, DeliveryId, NegotiationId};
use crate::payload::{Act, Payload};
use crate::policy::Policy;

/// Version of the record format this build writes.
pub const RECORD_VERSION: u32 = 1;
/// Most entries in one record: one append serves this many senders.
pub const RECORD_ENTRIES_MAX: usize = 512;
/// Largest record in bytes; well under NATS's default maximum payload of 1 MiB.
pub const RECORD_BYTES_MAX: usize = 256 * 1024;

/// One record as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Format version.
    pub v: u32,
    /// Who appended it, for audit: `gateway-…` or `engine-…`. Decides nothing.
    pub by: String,
    /// The entries, in order.
    pub entries: Vec<Entry>,
}

impl Record {
    /// A record in this build's format.
    #[must_use]
    pub fn new(by: impl Into<String>, entries: Vec<Entry>) -> Self {
        Self { v: RECORD_VERSION, by: by.into(), entries }
    }
}

/// One entry as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// An admitted message.
    Message(AdmittedMessage),
    /// Carries time only.
    Tick,
    /// Something an engine adds; ignored by the fold when its epoch is older than the lane's.
    Engine {
        /// The appending engine's epoch.
        epoch: u64,
        /// What it adds.
        event: EngineEvent,
    },
}

/// What engines add to the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineEvent {
    /// The engine takes the lane under the entry's epoch.
    Claim {
        /// The engine.
        engine: String,
    },
    /// These deliveries were acknowledged; a restart need not repeat them.
    Delivered {
        /// The deliveries.
        ids: Vec<DeliveryId>,
        /// Every register write that records up to this sequence lead to is answered: a restart need not repeat them.
        /// 0 says nothing.
        #[serde(default, skip_serializing_if = "is_zero")]
        registered: u64,
    },
    /// A delivery was given up (docs/spec/deliveries.md#dl-18).
    DeliveryFailed {
        /// The delivery.
        id: DeliveryId,
        /// Its negotiation.
        negotiation: NegotiationId,
        /// Its recipient.
        to: AgentId,
        /// Attempts made.
        attempts: u32,
        /// It was a call for which nobody waits any more: an answer of the recipient that still comes is taken.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_answer: bool,
    },
    /// The negotiation is stopped: the register holds another value, or `step` panicked.
    Abort {
        /// The negotiation.
        negotiation: NegotiationId,
        /// `register_conflict` or `internal`.
        code: String,
    },
    /// The lane's rules version changes.
    Rules {
        /// The version.
        version: u32,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(seq: &u64) -> bool {
    *seq == 0
}

/// A message a gateway admitted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdmittedMessage {
    /// The sender, from its token.
    pub from: AgentId,
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The act, repeated so that the body can be decoded in one pass.
    pub act: Act,
    /// SHA-256 of `body`.
    pub digest: Digest,
    /// `{"envelope":…,"payload":…}` in canonical form.
    pub body: Arc<RawValue>,
    /// On a call: what the gateway pins; only the first record's counts. On an assignment or a JOIN: the policy it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Arc<Pinned>>,
    /// The sender's registration asked for every receipt at once (docs/spec/messages.md#ms-56).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receipts_all: bool,
    /// Of a call to a team and of a JOIN: the sender's capabilities, as it has registered them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
}

/// What a negotiation runs under, pinned by the gateway that admitted its call.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The whole policy document.
    pub policy: Arc<Policy>,
    /// Its digest.
    pub policy_digest: Digest,
    /// Who is invited, in the order of the agent id.
    pub invited: Vec<Invitation>,
    /// How many addressed agents were left out: absent, without a common capability, without consent, or with too much they
    /// have not acknowledged. Exact unless more than 64 absent agents subscribe to the addressed topics other than the one with
    /// the most; then one that subscribes to several counts for each.
    #[serde(default)]
    pub left_out: u32,
    /// Of a call to a team: what its tasks run under.
    pub task_policy: Option<TaskPolicy>,
    /// Of a call to a panel: who else takes part.
    pub panel: Option<Box<PinnedPanel>>,
}

/// The policy of a team's tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPolicy {
    /// The whole policy document.
    pub policy: Arc<Policy>,
    /// Its digest.
    pub digest: Digest,
}

/// Who takes part in a panel beside its seats: registered and consenting, none of them a seat.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedPanel {
    /// The ranker, where it is an agent other than the initiator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranker: Option<Invitation>,
    /// The reviewers, in the order of the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewers: Vec<Invitation>,
}

/// One invited agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The agent.
    pub agent: AgentId,
    /// How its call is delivered.
    #[serde(default, skip_serializing_if = "Qos::is_default")]
    pub qos: Qos,
    /// Its registration says `durable`: it may be away and answer later, so nobody goes on without it before the deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub durable: bool,
    /// Under a policy that weighs reputation: the agent's, in parts per million, as evidence was when the call was admitted.
    /// In a call to a panel that chooses its seats: likewise, and none of an agent without enough evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reputation: Option<u64>,
}

/// Quality of service of a group's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Qos {
    /// Repeated until acknowledged or too late.
    #[default]
    AtLeastOnce,
    /// Sent once.
    BestEffort,
}

impl Qos {
    /// Whether this is the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        matches!(self, Self::AtLeastOnce)
    }
}

/// The client's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The envelope.
    pub envelope: Envelope,
    /// The payload.
    pub payload: Payload,
}

/// Why a record, or a message in it, cannot be read. Gateways validate before they append, so this means a foreign
/// writer or another version; the fold skips what it cannot read, on every engine alike.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not a record.
    #[error("the record is not readable: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// Written by a later version.
    #[error("the record has format version {found}, this build knows up to {known}: upgrade before reading this log")]
    Version {
        /// Version found.
        found: u32,
        /// Newest version known.
        known: u32,
    },
}

#[derive(Deserialize)]
struct MessageParts<'a> {
    envelope: Envelope,
    #[serde(borrow)]
    payload: &'a RawValue,
}

impl Message {
    /// Decodes a document whose act is known.
    ///
    /// # Errors
    /// The decoding error; see [`Payload::decode`].
    pub fn decode(act: Act, json: &str) -> Result<Self, serde_json::Error> {
        let parts: MessageParts<'_> = serde_json::from_str(json)?;
        Ok(Self { envelope: parts.envelope, payload: Payload::decode(act, parts.payload.get())? })
    }
}

impl AdmittedMessage {
    /// Decodes the body.
    ///
    /// # Errors
    /// The decoding error; see [`Message::decode`].
    pub fn message(&self) -> Result<Message, serde_json::Error> {
        Message::decode(self.act, self.body.get())
    }
}

impl Record {
    /// Reads a record of the log.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = serde_json::from_slice(bytes)?;
        if record.v > RECORD_VERSION {
            return Err(RecordError::Version { found: record.v, known: RECORD_VERSION });
        }
        Ok(record)
    }

    /// Writes a record for the log.
    ///
    /// # Errors
    /// The encoding error, which well-formed entries cannot cause.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}
