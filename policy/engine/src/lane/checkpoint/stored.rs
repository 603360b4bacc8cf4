//! The frames of a checkpoint, and the documents in them.

use std::sync::Arc;

use policy_core::Deliver;
use schemas::delivery::Notification;
use schemas::record::Qos;
use schemas::{AgentId, DeliveryId, Digest, Lane, MsgId, NegotiationId, RegisterKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::lane::AbortCode;
use crate::lane::{PendingWrite, Write};

/// What a frame holds, by its first byte.
pub(super) mod tag {
    /// [`super::Head`]; once, first.
    pub(crate) const HEAD: u8 = b'h';
    /// What the deliveries that follow say, up to the next one of these.
    pub(crate) const TOLD: u8 = b't';
    /// [`super::StoredDelivery`].
    pub(crate) const DELIVERY: u8 = b'd';
    /// [`super::StoredWrite`].
    pub(crate) const WRITE: u8 = b'w';
    /// A refused key of the register.
    pub(crate) const REFUSED: u8 = b'r';
    /// [`super::StoredAbort`].
    pub(crate) const ABORT: u8 = b'a';
    /// A negotiation id.
    pub(crate) const BLAMED: u8 = b'b';
}

/// What a checkpoint is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    /// The lane.
    pub(crate) lane: Lane,
    /// Sequence of the last record folded.
    pub(crate) position: u64,
    /// Log time of that record.
    pub(crate) time: Timestamp,
    /// Digest of that record's bytes: ties the checkpoint to one log.
    pub(crate) record: Digest,
    /// Rules version of the lane.
    pub(crate) rules: u32,
}

/// A delivery but for what it says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredDelivery {
    id: DeliveryId,
    to: AgentId,
    negotiation: NegotiationId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_reply_to: Option<MsgId>,
    at: Timestamp,
    expires: Timestamp,
    #[serde(default, skip_serializing_if = "Qos::is_default")]
    qos: Qos,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<Key>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<Arc<str>>,
}

impl StoredDelivery {
    pub(super) fn of(deliver: &Deliver) -> Self {
        Self {
            id: deliver.id,
            to: deliver.to.clone(),
            negotiation: deliver.negotiation.clone(),
            from: deliver.from.clone(),
            in_reply_to: deliver.in_reply_to.clone(),
            at: deliver.at,
            expires: deliver.expires,
            qos: deliver.qos,
            attempts_max: deliver.attempts_max,
            after: deliver.after.clone().map(Key),
            traceparent: deliver.traceparent.clone(),
        }
    }

    pub(super) fn into_deliver(self, told: Arc<Notification>) -> Deliver {
        Deliver {
            id: self.id,
            to: self.to,
            negotiation: self.negotiation,
            from: self.from,
            in_reply_to: self.in_reply_to,
            told,
            at: self.at,
            expires: self.expires,
            qos: self.qos,
            attempts_max: self.attempts_max,
            after: self.after.map(|Key(key)| key),
            traceparent: self.traceparent,
        }
    }
}

/// A register write not known to be answered.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredWrite {
    key: Key,
    /// Canonical JSON, as a text so that not a byte of it changes.
    value: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<Key>,
    seq: u64,
    is_contested: bool,
}

impl StoredWrite {
    /// Absent when the value is no text, which canonical JSON always is.
    pub(super) fn of(pending: &PendingWrite) -> Option<Self> {
        Some(Self {
            key: Key(pending.write.key.clone()),
            value: std::str::from_utf8(&pending.write.value).ok()?.to_owned(),
            after: pending.after.clone().map(Key),
            seq: pending.seq,
            is_contested: pending.is_contested,
        })
    }

    pub(super) fn into_pending(self) -> PendingWrite {
        PendingWrite {
            write: Write { key: self.key.0, value: self.value.into() },
            after: self.after.map(|Key(key)| key),
            seq: self.seq,
            is_contested: self.is_contested,
        }
    }
}

/// An abort that is not in the log yet.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredAbort {
    negotiation: NegotiationId,
    code: Code,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Code {
    RegisterConflict,
    Internal,
}

impl StoredAbort {
    pub(super) fn of(negotiation: &NegotiationId, code: AbortCode) -> Self {
        let code = match code {
            AbortCode::RegisterConflict => Code::RegisterConflict,
            AbortCode::Internal => Code::Internal,
        };
        Self { negotiation: negotiation.clone(), code }
    }

    pub(super) fn into_abort(self) -> (NegotiationId, AbortCode) {
        let code = match self.code {
            Code::RegisterConflict => AbortCode::RegisterConflict,
            Code::Internal => AbortCode::Internal,
        };
        (self.negotiation, code)
    }
}

/// A key of the register, written as its subject.
pub(super) struct Key(pub(super) RegisterKey);

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        RegisterKey::parse(&text).map(Self).ok_or_else(|| serde::de::Error::custom("not a key of the register"))
    }
}
