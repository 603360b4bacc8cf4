//! Identifiers. Each is a newtype whose constructor refuses what could not be a NATS token, a log key or a file name.

mod negotiation;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

pub use negotiation::{AWARD_MAX, DEPTH_MAX, FamilyPlace, NEGOTIATION_SEPARATOR, NegotiationId, TASKS_MAX};

use crate::text::{hexadecimal, text};

/// Longest agent, topic or group name, and longest id an initiator may choose, in characters.
/// 64 keeps every derived subject well under NATS's practical subject length.
pub const NAME_LEN_MAX: usize = 64;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {what}: 1 to {max} characters of A-Z a-z 0-9 _ -", max = NAME_LEN_MAX)]
pub struct IdError {
    /// The kind of identifier that was expected.
    pub what: &'static str,
    /// What was found, cut to [`NAME_LEN_MAX`] characters.
    pub text: String,
}

fn is_name(text: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

macro_rules! name {
    ($(#[$doc:meta])* $ty:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $ty(Arc<str>);

        text!($ty, |name: &Self, serializer: S| serializer.serialize_str(&name.0), Self::try_new);

        impl $ty {
            /// Checks and wraps a name.
            ///
            /// # Errors
            /// [`IdError`] unless the text is 1 to [`NAME_LEN_MAX`] characters of `A-Z a-z 0-9 _ -`.
            pub fn try_new(text: &str) -> Result<Self, IdError> {
                if is_name(text) {
                    Ok(Self(Arc::from(text)))
                } else {
                    Err(IdError { what: $what, text: text.chars().take(NAME_LEN_MAX).collect() })
                }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        crate::shown!($ty = |Self(name)| "{name}");
        crate::debug_as_shown!($ty);
    };
}

name!(
    /// An agent, as named by the `sub` claim of its token.
    AgentId,
    "agent id"
);
name!(
    /// A message id chosen by its sender; unique per sender and negotiation.
    MsgId,
    "message id"
);
name!(
    /// A topic agents subscribe to.
    TopicName,
    "topic name"
);
name!(
    /// A named subset of agents.
    GroupId,
    "group id"
);
name!(
    /// A gateway, as it names itself to engines.
    GatewayId,
    "gateway id"
);
name!(
    /// A capability an agent declares, and a call asks for.
    Capability,
    "capability"
);
name!(
    /// What a panel's question is about: evidence is kept under it.
    DomainName,
    "domain"
);
name!(
    /// The name of an attribute of an offer's terms, for example `price`.
    AttrName,
    "attribute name"
);

/// Tables by agent are searched with what stands in a message.
impl Borrow<str> for AgentId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// One lane of the log: one subject, one fold, one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lane(pub u8);

crate::shown!(Lane = |Self(lane)| "{lane}");

/// Where an entry stands in the log: the record's stream sequence and the entry's index inside the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Stream sequence of the record, counted from 1.
    pub seq: u64,
    /// Index of the entry inside the record, counted from 0.
    pub index: u32,
}

crate::shown!(Position = |Self { seq, index }| "{seq}.{index}");

/// A position with its members in the order of their names, for `serialize_with` in what [`crate::Digest::of_ordered`] takes.
///
/// # Errors
/// Those of the serializer.
pub fn ordered_position<P, S>(position: &P, serializer: S) -> Result<S::Ok, S::Error>
where
    P: Copy + Into<Option<Position>>,
    S: serde::Serializer,
{
    #[derive(Serialize)]
    struct Ordered {
        index: u32,
        seq: u64,
    }
    let position: Option<Position> = (*position).into();
    position.map(|Position { seq, index }| Ordered { index, seq }).serialize(serializer)
}

/// An offer's id, given by the exchange from the position of its record: `o<seq>-<index>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferId(pub Position);

text!(OfferId, |id: &Self, serializer: S| serializer.collect_str(id), Self::try_new, Position = |id: Self| id.0, Self);

impl OfferId {
    /// Parses `o<seq>-<index>`.
    ///
    /// # Errors
    /// [`IdError`] for anything else.
    pub fn try_new(text: &str) -> Result<Self, IdError> {
        let parts = text.strip_prefix('o').and_then(|rest| rest.split_once('-'));
        match parts.map(|(seq, index)| (seq.parse(), index.parse())) {
            Some((Ok(seq), Ok(index))) => Ok(Self(Position { seq, index })),
            Some(_) | None => Err(IdError { what: "offer id", text: text.chars().take(NAME_LEN_MAX).collect() }),
        }
    }
}

crate::shown!(OfferId = |Self(Position { seq, index })| "o{seq}-{index}");

/// The number of an award inside its negotiation, counted from 1: a fencing token (docs/spec/contract-net.md#cn-38).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AwardNo(pub u32);

crate::shown!(AwardNo = |Self(number)| "{number}");

/// The number of a lot inside its negotiation, counted from 0 (`awards: m` makes m lots).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lot(pub u32);

crate::shown!(Lot = |Self(number)| "{number}");

/// The id of one delivery to one recipient: a hash of the effect that caused it and the recipient, behind the lane.
///
/// 32 hexadecimal digits: two for the lane, thirty of SHA-256(negotiation, position, ordinal, recipient). A repeat of
/// the same effect therefore has the same id on every engine, and a receiver drops duplicates by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(u128);

text!(
    DeliveryId,
    |id: &Self, serializer: S| id.with_text(|text| serializer.serialize_str(text)),
    Self::try_new,
    [u8; 16] = Self::to_bytes,
    |bytes| Self(u128::from_be_bytes(bytes))
);

impl DeliveryId {
    /// Joins a lane and a hash; the hash's first byte is replaced by the lane.
    #[must_use]
    pub fn new(lane: Lane, hash: [u8; 16]) -> Self {
        let low = u128::from_be_bytes(hash) & (u128::MAX >> 8);
        Self(low | (u128::from(lane.0) << 120))
    }

    /// The id as bytes: the lane, then the hash. [`DeliveryId::new`] puts them together again.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The lane whose engine made the delivery.
    #[must_use]
    pub fn lane(self) -> Lane {
        Lane(u8::try_from(self.0 >> 120).unwrap_or(0))
    }

    /// Parses 32 hexadecimal digits.
    ///
    /// # Errors
    /// [`IdError`] for anything else.
    pub fn try_new(text: &str) -> Result<Self, IdError> {
        let refuse = || IdError { what: "delivery id", text: text.chars().take(NAME_LEN_MAX).collect() };
        hexadecimal(text).map(|bytes| Self(u128::from_be_bytes(bytes))).ok_or_else(refuse)
    }

    /// Hands the text to `write`, without the formatting machinery: every delivery is written with its id.
    pub fn with_text<T>(self, write: impl FnOnce(&str) -> T) -> T {
        let mut digits = [0; 32];
        HEXLOWER.encode_mut(&self.to_bytes(), &mut digits);
        write(std::str::from_utf8(&digits).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

crate::debug_as_shown!(DeliveryId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_nats_token_is_refused() {
        for bad in ["", "a.b", "a*", "a>", "a b", "a\r\n", "a\0", "a~b", "\u{202e}x", "ａ", &"x".repeat(65)] {
            assert!(AgentId::try_new(bad).is_err(), "{bad:?}");
        }
        assert!(AgentId::try_new(&"x".repeat(64)).is_ok());
    }

    #[test]
    fn a_delivery_id_carries_its_lane_and_survives_text() {
        let id = DeliveryId::new(Lane(3), [0xab; 16]);
        assert_eq!(id.lane(), Lane(3));
        assert_eq!(DeliveryId::try_new(&id.to_string()).unwrap(), id);
        assert!(DeliveryId::try_new("+0000000000000000000000000000001").is_err());
    }
}
