//! Reading a checkpoint. Nothing that is read is trusted before the checksum holds, and nothing panics after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use policy_core::Deliver;
use schemas::delivery::Notification;
use schemas::{AgentId, Digest, NegotiationId};
use serde::de::DeserializeOwned;

use super::stored::{Head, Key, StoredAbort, StoredDelivery, StoredWrite, tag};
use super::{CHECKPOINT_FORMAT, CHECKSUM_LEN, Checkpoint, CheckpointError, MAGIC, TRAILER_LEN};

impl Checkpoint {
    /// Reads a checkpoint; the snapshot stays a part of `bytes`.
    ///
    /// # Errors
    /// [`CheckpointError`] naming the fault.
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, CheckpointError> {
        let mut reader = Reader::open(bytes)?;
        let mut checkpoint = Self {
            head: reader.head()?,
            lane_state: bytes.slice(..reader.snapshot_len),
            deliveries: Vec::new(),
            writes: Vec::new(),
            refused: Vec::new(),
            aborts: Vec::new(),
            blamed: Vec::new(),
        };
        let mut told: Option<Arc<Notification>> = None;
        let mut names = Names::default();
        while let Some(frame) = reader.next()? {
            match frame.tag {
                tag::TOLD => told = Some(Arc::new(frame.read()?)),
                tag::DELIVERY => {
                    let told = told.as_ref().ok_or_else(|| frame.fault("a delivery that says nothing"))?;
                    let deliver = frame.read::<StoredDelivery>()?.into_deliver(Arc::clone(told));
                    checkpoint.deliveries.push(names.share(deliver));
                }
                tag::WRITE => checkpoint.writes.push(frame.read::<StoredWrite>()?.into_pending()),
                tag::REFUSED => checkpoint.refused.push(frame.read::<Key>()?.0),
                tag::ABORT => checkpoint.aborts.push(frame.read::<StoredAbort>()?.into_abort()),
                tag::BLAMED => checkpoint.blamed.push(frame.read()?),
                unknown => return Err(frame.fault(format_args!("a frame of the unknown kind {unknown}"))),
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
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, CheckpointError> {
        Reader::open(bytes)?.head()
    }
}

/// The frames of a checkpoint whose checksum holds.
struct Reader<'a> {
    bytes: &'a [u8],
    /// Where the next frame begins.
    at: usize,
    /// Where the last one ends.
    end: usize,
    snapshot_len: usize,
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
        let end = rest.len();
        debug_assert_eq!(end + TRAILER_LEN, bytes.len());
        match usize::try_from(u64::from_be_bytes(*snapshot_len)) {
            Ok(snapshot_len) if snapshot_len <= end => Ok(Self { bytes, at: snapshot_len, end, snapshot_len }),
            Ok(_) | Err(_) => Err(CheckpointError::malformed(end, "the snapshot is longer than the document")),
        }
    }

    fn head(&mut self) -> Result<Head, CheckpointError> {
        let at = self.at;
        let head = self.next()?.filter(|frame| frame.tag == tag::HEAD);
        head.ok_or_else(|| CheckpointError::malformed(at, "the head is missing"))?.read()
    }

    fn next(&mut self) -> Result<Option<Frame<'a>>, CheckpointError> {
        let left = &self.bytes[self.at..self.end];
        let Some((tag, left)) = left.split_first() else { return Ok(None) };
        let cut = || CheckpointError::malformed(self.at, "a frame is longer than the document");
        let (len, left) = left.split_first_chunk::<4>().ok_or_else(cut)?;
        let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| cut())?;
        let content = left.get(..len).ok_or_else(cut)?;
        let frame = Frame { at: self.at, tag: *tag, content };
        self.at += 1 + 4 + len;
        Ok(Some(frame))
    }
}

struct Frame<'a> {
    at: usize,
    tag: u8,
    content: &'a [u8],
}

impl Frame<'_> {
    fn read<T: DeserializeOwned>(&self) -> Result<T, CheckpointError> {
        serde_json::from_slice(self.content).map_err(|error| self.fault(error))
    }

    fn fault(&self, fault: impl ToString) -> CheckpointError {
        CheckpointError::malformed(self.at, fault)
    }
}

/// Shares equal names, as the fold does: a population is small beside its deliveries.
#[derive(Default)]
struct Names {
    agents: BTreeSet<AgentId>,
    negotiation: Option<NegotiationId>,
    traceparent: Option<Arc<str>>,
}

impl Names {
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
