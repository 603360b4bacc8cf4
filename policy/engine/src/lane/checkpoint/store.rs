//! Where checkpoints stand on the bus: one per lane, each replaced by a later one.

use std::sync::Arc;

use bus::{Blobs, BusError, Log};
use schemas::{Digest, Lane};
use serde::Deserialize;

use super::{Checkpoint, CheckpointError, Head};
use crate::lane::at_length;

/// See the module.
#[derive(Clone)]
pub(crate) struct CheckpointStore {
    blobs: Arc<dyn Blobs>,
}

/// What the archiver leaves under `archived-<lane>`.
#[derive(Deserialize)]
struct Archived {
    position: u64,
    /// What the register held for every negotiation that ended up to here is archived, too.
    #[serde(default)]
    registered: u64,
}

impl CheckpointStore {
    pub(crate) fn new(blobs: Arc<dyn Blobs>) -> Self {
        Self { blobs }
    }

    /// The lane's checkpoint, if there is one. Whether it is of the log at hand is [`Head::is_of`]'s to say.
    ///
    /// # Errors
    /// [`CheckpointError`]: there is one, and it cannot be used; or nobody knows.
    pub(crate) async fn load(&self, lane: Lane) -> Result<Option<Checkpoint>, CheckpointError> {
        let Some(bytes) = self.blobs.value(name(lane)).await? else { return Ok(None) };
        let checkpoint = at_length(|| Checkpoint::decode(&bytes))?;
        checkpoint.head.check_lane(lane)?;
        Ok(Some(checkpoint))
    }

    /// Stores a checkpoint, unless a later one stands there; false when one does.
    ///
    /// # Errors
    /// [`CheckpointError`] when it is not known to be stored.
    pub(crate) async fn save(&self, checkpoint: Checkpoint) -> Result<bool, CheckpointError> {
        let Head { lane, position, .. } = checkpoint.head;
        Ok(self.blobs.put(name(lane), position, checkpoint.encode().await?).await?)
    }

    /// The position of the stored checkpoint, whoever stored it. Says nothing about whether it can be read.
    ///
    /// # Errors
    /// [`BusError`] when it cannot be looked up.
    pub(crate) async fn position(&self, lane: Lane) -> Result<Option<u64>, BusError> {
        self.blobs.version(name(lane)).await
    }

    /// The position of the stored checkpoint once it has been read back whole and is of this log; absent when there is
    /// none, or it is of another: what the log may be trimmed below.
    ///
    /// # Errors
    /// [`CheckpointError`]: there is one, and it cannot be used; or nobody knows.
    pub(crate) async fn proven(&self, lane: Lane, log: &dyn Log) -> Result<Option<u64>, CheckpointError> {
        let Some(bytes) = self.blobs.value(name(lane)).await? else { return Ok(None) };
        let head = Head::decode(&bytes)?;
        head.check_lane(lane)?;
        Ok(head.is_of(log).await?.then_some(head.position))
    }

    /// Everything up to the first sequence is archived, and up to the second what the register held for negotiations that
    /// ended; absent when nothing is.
    ///
    /// # Errors
    /// [`CheckpointError`] when it cannot be read.
    pub(crate) async fn archived(&self, lane: Lane) -> Result<Option<(u64, u64)>, CheckpointError> {
        let Some(bytes) = self.blobs.value(format!("archived-{lane}")).await? else { return Ok(None) };
        let archived: Archived =
            serde_json::from_slice(&bytes).map_err(|error| CheckpointError::malformed(error.column(), error))?;
        Ok(Some((archived.position, archived.registered)))
    }
}

impl Head {
    /// Whether the checkpoint is of this log, and the log goes on from it: the record at its position is the same, or
    /// has been trimmed as the last of all that have.
    ///
    /// # Errors
    /// [`BusError`] when the log cannot be asked.
    pub(crate) async fn is_of(&self, log: &dyn Log) -> Result<bool, BusError> {
        match log.record(self.lane, self.position).await? {
            Some(record) => Ok(Digest::of_bytes(&record.bytes) == self.record),
            None => Ok(log.trimmed(self.lane).await? == self.position),
        }
    }

    fn check_lane(&self, wanted: Lane) -> Result<(), CheckpointError> {
        if self.lane == wanted { Ok(()) } else { Err(CheckpointError::OtherLane { found: self.lane, wanted }) }
    }
}

fn name(lane: Lane) -> String {
    format!("checkpoint-{lane}")
}
