//! The state of a lane after one record, as one document: what a restart reads instead of the log before it
//! (docs/spec/log.md#lg-30).
//!
//! ```text
//! snapshot | frames: head, then what the lane still has to do | length of the snapshot 8 | format 4 | magic 8 | SHA-256 32
//! ```
//! A frame is a tag, a length and one JSON document. The snapshot comes first, and its size last, so that its snapshot,
//! which is nearly all of the document, is never copied: the rest is written behind it.
//!
//! A checkpoint is a cache of the log. One that is altered, cut short, of another format or of another log is refused,
//! with the reason, and the log is read instead.

mod decode;
mod encode;
mod store;
mod stored;
#[cfg(test)]
mod tests;

use bus::BusError;
use bytes::Bytes;
use policy_core::Deliver;
use schemas::{Lane, NegotiationId, RegisterKey};

use crate::lane::AbortCode;
use crate::lane::PendingWrite;

pub(crate) use store::CheckpointStore;
pub(crate) use stored::Head;

/// Format this build writes, and the only one it reads.
pub(crate) const CHECKPOINT_FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"llmxckpt";
/// Bytes of the checksum, which ends the document.
const CHECKSUM_LEN: usize = 32;
/// Bytes behind the frames.
const TRAILER_LEN: usize = 8 + 4 + MAGIC.len() + CHECKSUM_LEN;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Checkpoint {
    /// What it is a checkpoint of.
    pub(crate) head: Head,
    /// The snapshot of the lane's state ([`policy_core::LaneState::snapshot`]).
    pub(crate) lane_state: Bytes,
    /// Deliveries neither acknowledged nor given up, in the order they were made ([`crate::lane::outbox::Outbox::unsettled`]).
    pub(crate) deliveries: Vec<Deliver>,
    /// Register writes not known to be answered ([`crate::lane::register::Registrar::pending`]).
    pub(crate) writes: Vec<PendingWrite>,
    /// Refused keys ([`crate::lane::register::Registrar::refused`]).
    pub(crate) refused: Vec<RegisterKey>,
    /// Negotiations whose abort is not in the log yet.
    pub(crate) aborts: Vec<(NegotiationId, AbortCode)>,
    /// Negotiations whose messages made the fold panic.
    pub(crate) blamed: Vec<NegotiationId>,
}

/// Why a checkpoint is not to be had. The log can be read instead, unless it was trimmed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// Does not end as a checkpoint does.
    #[error("these bytes do not end as a checkpoint does: they are none, or were cut short")]
    NotACheckpoint,
    /// Written by a build with another format.
    #[error("the checkpoint has format {found}, this build reads {known}")]
    Format {
        /// Format found.
        found: u32,
        /// The one format known.
        known: u32,
    },
    /// Its checksum is not that of its contents.
    #[error("the checkpoint was altered: its checksum is not that of its contents")]
    Altered,
    /// Its checksum holds, but it does not say what a checkpoint says: a fault of the build that wrote it.
    #[error("the checkpoint is not readable at byte {at}: {fault}")]
    Malformed {
        /// Where.
        at: usize,
        /// What is wrong there.
        fault: String,
    },
    /// Stands under the name of another lane.
    #[error("the checkpoint is of lane {found}, not of lane {wanted}")]
    OtherLane {
        /// Lane found.
        found: Lane,
        /// Lane wanted.
        wanted: Lane,
    },
    /// It cannot be written.
    #[error("the checkpoint cannot be written: {0}")]
    Unwritable(String),
    /// The bus did not take it, or does not give it back.
    #[error("the checkpoint's store: {0}")]
    Bus(#[from] BusError),
}

impl CheckpointError {
    fn malformed(at: usize, fault: impl ToString) -> Self {
        Self::Malformed { at, fault: fault.to_string() }
    }
}
