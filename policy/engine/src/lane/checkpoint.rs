//! The state of a lane after one record, as one document: what a restart reads instead of the log before it
//! (docs/spec/log.md#lg-30).
//!
//! ```text
//! snapshot | head, frames: what the lane still has to do | length of the snapshot 8 | format 4 | magic 8 | SHA-256 32
//! ```
//! Head and frames are postcard, as their types derive it. The snapshot comes first, and its size last, so that it, which is
//! nearly all of the document, is never copied: the rest is written behind it.
//!
//! A checkpoint is a cache of the log. One that is altered, cut short, of another format or of another log is refused,
//! with the reason, and the log is read instead.

mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use bus::BusError;
use bytes::Bytes;
use policy_core::Deliver;
use schemas::delivery::Notification;
use schemas::{AgentId, Digest, Lane, NegotiationId, RegisterKey, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::task::yield_now;

use crate::lane::AbortCode;
use crate::lane::PendingWrite;

pub(crate) use store::CheckpointStore;

/// Format this build writes, and the only one it reads.
const CHECKPOINT_FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"llmxlnck";
/// Bytes of the checksum, which ends the document.
const CHECKSUM_LEN: usize = 32;
/// Bytes behind the frames.
const TRAILER_LEN: usize = 8 + 4 + MAGIC.len() + CHECKSUM_LEN;

/// Bytes written or hashed before other tasks get their turn: about a millisecond.
const STEP_BYTES: usize = 512 * 1024;

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

/// What a checkpoint is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// What stands behind the head, one after the other.
#[derive(Serialize, Deserialize)]
enum Frame {
    /// What the deliveries that follow say, up to the next one of these.
    Notification(#[serde(with = "schemas::text::json")] Arc<Notification>),
    /// A delivery but for what it says.
    Delivery(Box<Deliver>),
    Write(PendingWrite),
    Refused(RegisterKey),
    Abort(NegotiationId, AbortCode),
    Blamed(NegotiationId),
}

/// Why a checkpoint is not to be had. The log can be read instead, unless it was trimmed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
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

/// The keys of the register that a checkpoint names as refused: another value stood there.
///
/// # Errors
/// [`CheckpointError`] naming what is wrong with the checkpoint.
pub fn refused_keys(checkpoint: &Bytes) -> Result<Vec<RegisterKey>, CheckpointError> {
    Checkpoint::decode(checkpoint).map(|checkpoint| checkpoint.refused)
}

impl Checkpoint {
    /// Writes it. Lets other tasks run in between: the lane goes on while its checkpoint is written.
    ///
    /// # Errors
    /// [`CheckpointError::Unwritable`], which what the core makes cannot cause.
    async fn encode(self) -> Result<Bytes, CheckpointError> {
        let Self { head, lane_state, deliveries, writes, refused, aborts, blamed } = self;
        let mut out = Writer { bytes: Vec::new(), paused_at: 0 };
        out.put(&head)?;
        let mut notification = None;
        for deliver in deliveries {
            if !notification.as_ref().is_some_and(|last| Arc::ptr_eq(last, &deliver.told)) {
                out.put(&Frame::Notification(Arc::clone(&deliver.told)))?;
                notification = Some(Arc::clone(&deliver.told));
            }
            out.put(&Frame::Delivery(Box::new(deliver)))?;
            out.pause().await;
        }
        for pending in writes {
            out.put(&Frame::Write(pending))?;
            out.pause().await;
        }
        let refused = refused.into_iter().map(Frame::Refused);
        let aborts = aborts.into_iter().map(|(negotiation, code)| Frame::Abort(negotiation, code));
        for frame in refused.chain(aborts).chain(blamed.into_iter().map(Frame::Blamed)) {
            out.put(&frame)?;
        }
        let snapshot_len = lane_state.len() as u64;
        let mut bytes = Vec::from(lane_state);
        bytes.reserve_exact(out.bytes.len() + TRAILER_LEN);
        bytes.append(&mut out.bytes);
        bytes.extend_from_slice(&snapshot_len.to_be_bytes());
        Ok(seal(bytes, CHECKPOINT_FORMAT).await)
    }

    /// Reads a checkpoint; the snapshot stays a part of `bytes`. Nothing that is read is trusted before the checksum holds,
    /// and nothing panics after it.
    ///
    /// # Errors
    /// [`CheckpointError`] naming the fault.
    fn decode(bytes: &Bytes) -> Result<Self, CheckpointError> {
        let mut reader = Reader::open(bytes)?;
        let mut checkpoint = Self {
            lane_state: bytes.slice(..reader.at),
            head: reader.take()?,
            deliveries: Vec::new(),
            writes: Vec::new(),
            refused: Vec::new(),
            aborts: Vec::new(),
            blamed: Vec::new(),
        };
        let mut notification = None;
        let mut names = SharedNames::default();
        while !reader.is_at_end() {
            let at = reader.at;
            match reader.take()? {
                Frame::Notification(next) => notification = Some(next),
                Frame::Delivery(mut deliver) => {
                    let told = notification.clone();
                    deliver.told = told.ok_or_else(|| CheckpointError::malformed(at, "a delivery says nothing"))?;
                    checkpoint.deliveries.push(names.share(*deliver));
                }
                Frame::Write(pending) => checkpoint.writes.push(pending),
                Frame::Refused(key) => checkpoint.refused.push(key),
                Frame::Abort(negotiation, code) => checkpoint.aborts.push((negotiation, code)),
                Frame::Blamed(negotiation) => checkpoint.blamed.push(negotiation),
            }
        }
        Ok(checkpoint)
    }
}

impl Head {
    /// Checks the whole of a checkpoint for alterations, and reads what it is of.
    ///
    /// # Errors
    /// [`CheckpointError`] naming the fault.
    fn decode(bytes: &Bytes) -> Result<Self, CheckpointError> {
        Reader::open(bytes)?.take()
    }
}

/// Adds what stands behind the length of the snapshot.
async fn seal(mut bytes: Vec<u8>, format: u32) -> Bytes {
    bytes.extend_from_slice(&format.to_be_bytes());
    bytes.extend_from_slice(&MAGIC);
    let mut hasher = Sha256::new();
    for part in bytes.chunks(STEP_BYTES) {
        hasher.update(part);
        yield_now().await;
    }
    bytes.extend_from_slice(&hasher.finalize());
    Bytes::from(bytes)
}

/// Head and frames as far as they are written.
struct Writer {
    bytes: Vec<u8>,
    paused_at: usize,
}

impl Writer {
    fn put(&mut self, part: &impl Serialize) -> Result<(), CheckpointError> {
        let written = postcard::to_extend(part, std::mem::take(&mut self.bytes));
        self.bytes = written.map_err(|error| CheckpointError::Unwritable(error.to_string()))?;
        Ok(())
    }

    async fn pause(&mut self) {
        if self.bytes.len() - self.paused_at >= STEP_BYTES {
            self.paused_at = self.bytes.len();
            yield_now().await;
        }
    }
}

/// Head and frames of a checkpoint whose checksum holds.
struct Reader<'a> {
    /// The document up to where the last frame ends.
    bytes: &'a [u8],
    /// Where the next part begins.
    at: usize,
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, CheckpointError> {
        let (contents, checksum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(CheckpointError::NotACheckpoint)?;
        let rest = contents.strip_suffix(&MAGIC).ok_or(CheckpointError::NotACheckpoint)?;
        let (rest, format) = rest.split_last_chunk::<4>().ok_or(CheckpointError::NotACheckpoint)?;
        let found = u32::from_be_bytes(*format);
        if found != CHECKPOINT_FORMAT {
            return Err(CheckpointError::Format { found, known: CHECKPOINT_FORMAT });
        }
        if Digest::of_bytes(contents).0 != *checksum {
            return Err(CheckpointError::Altered);
        }
        let (rest, snapshot_len) = rest.split_last_chunk::<8>().ok_or(CheckpointError::NotACheckpoint)?;
        debug_assert_eq!(rest.len() + TRAILER_LEN, bytes.len());
        match usize::try_from(u64::from_be_bytes(*snapshot_len)) {
            Ok(snapshot_len) if snapshot_len <= rest.len() => Ok(Self { bytes: rest, at: snapshot_len }),
            Ok(_) | Err(_) => Err(CheckpointError::malformed(rest.len(), "the snapshot is longer than the document")),
        }
    }

    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn take<T: Deserialize<'a>>(&mut self) -> Result<T, CheckpointError> {
        let read = postcard::take_from_bytes(&self.bytes[self.at..]);
        let (part, rest) = read.map_err(|error| CheckpointError::malformed(self.at, error))?;
        self.at = self.bytes.len() - rest.len();
        Ok(part)
    }
}

/// Shares equal names, as the fold does: a population is small beside its deliveries.
#[derive(Default)]
struct SharedNames {
    agents: BTreeSet<AgentId>,
    negotiation: Option<NegotiationId>,
    traceparent: Option<Arc<str>>,
}

impl SharedNames {
    fn share(&mut self, mut deliver: Deliver) -> Deliver {
        deliver.to = self.agent(deliver.to);
        deliver.from = deliver.from.map(|from| self.agent(from));
        // Those of one negotiation mostly stand together.
        match &self.negotiation {
            Some(known) if *known == deliver.negotiation => deliver.negotiation = known.clone(),
            Some(_) | None => self.negotiation = Some(deliver.negotiation.clone()),
        }
        if self.traceparent != deliver.traceparent {
            self.traceparent.clone_from(&deliver.traceparent);
        }
        deliver.traceparent.clone_from(&self.traceparent);
        deliver
    }

    fn agent(&mut self, agent: AgentId) -> AgentId {
        if let Some(known) = self.agents.get(&agent) {
            return known.clone();
        }
        self.agents.insert(agent.clone());
        agent
    }
}
