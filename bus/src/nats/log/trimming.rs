//! Removing the beginning of a lane, and remembering that it was.
//!
//! A purge leaves no trace: a reader that asks for a purged record gets the next one that is there. So how far a lane
//! may have been trimmed is written down first, as the version of an empty document `trimmed-<lane>`, which never goes
//! back; then the records are purged. Who reads it after it has received a record knows whether one before it may be
//! missing.

use std::sync::Arc;

use async_nats::jetstream::Context;
use bytes::Bytes;
use schemas::{Lane, subject};

use crate::BusError;
use crate::nats::blobs::NatsBlobs;
use crate::nats::{LOG_STREAM, stored};

#[derive(Clone)]
pub(super) struct Trimming {
    context: Context,
    blobs: Arc<NatsBlobs>,
}

impl Trimming {
    pub(super) fn new(context: Context, blobs: Arc<NatsBlobs>) -> Self {
        Self { context, blobs }
    }

    /// Removes the records below `below_seq`, of which one must stay in the lane, and more than which may.
    pub(super) async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        // False when another has trimmed further already: what is to go here may go all the same.
        self.blobs.put(name(lane), below_seq - 1, Bytes::new()).await?;
        stored::purge(&self.context, LOG_STREAM, &subject::log(lane), Some(below_seq)).await?;
        self.blobs.restore_ballast().await;
        Ok(())
    }

    pub(super) async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        Ok(self.blobs.version(name(lane)).await?.unwrap_or(0))
    }
}

fn name(lane: Lane) -> String {
    format!("trimmed-{}", lane.0)
}
