//! Writing a checkpoint.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::task::yield_now;

use super::stored::{Key, StoredAbort, StoredDelivery, StoredWrite, tag};
use super::{CHECKPOINT_FORMAT, Checkpoint, CheckpointError, MAGIC, TRAILER_LEN};

/// Bytes written or hashed before other tasks get their turn: about a millisecond.
const STEP_BYTES: usize = 512 * 1024;

impl Checkpoint {
    /// Writes it. Lets other tasks run in between: the lane goes on while its checkpoint is written.
    ///
    /// # Errors
    /// [`CheckpointError::Unwritable`], which what the core makes cannot cause.
    pub(crate) async fn encode(self) -> Result<Bytes, CheckpointError> {
        let mut out = Frames { bytes: Vec::new(), paused_at: 0 };
        out.frame(tag::HEAD, &self.head)?;
        let mut told = None;
        for deliver in &self.deliveries {
            if !told.is_some_and(|told| Arc::ptr_eq(told, &deliver.told)) {
                out.frame(tag::TOLD, &*deliver.told)?;
                told = Some(&deliver.told);
            }
            out.frame(tag::DELIVERY, &StoredDelivery::of(deliver))?;
            out.pause().await;
        }
        for pending in &self.writes {
            let unwritable = || CheckpointError::Unwritable(format!("the value of {} is no text", pending.write.key));
            out.frame(tag::WRITE, &StoredWrite::of(pending).ok_or_else(unwritable)?)?;
            out.pause().await;
        }
        for key in self.refused {
            out.frame(tag::REFUSED, &Key(key))?;
        }
        for (negotiation, code) in &self.aborts {
            out.frame(tag::ABORT, &StoredAbort::of(negotiation, *code))?;
        }
        for negotiation in &self.blamed {
            out.frame(tag::BLAMED, negotiation)?;
        }
        let snapshot_len = self.lane_state.len() as u64;
        let mut bytes = Vec::from(self.lane_state);
        bytes.reserve_exact(out.bytes.len() + TRAILER_LEN);
        bytes.append(&mut out.bytes);
        bytes.extend_from_slice(&snapshot_len.to_be_bytes());
        Ok(seal(bytes, CHECKPOINT_FORMAT).await)
    }
}

/// Adds what stands behind the length of the snapshot.
pub(super) async fn seal(mut bytes: Vec<u8>, format: u32) -> Bytes {
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

/// The frames as far as they are written.
struct Frames {
    bytes: Vec<u8>,
    paused_at: usize,
}

impl Frames {
    fn frame<T: Serialize>(&mut self, tag: u8, content: &T) -> Result<(), CheckpointError> {
        let unwritable = |error: &dyn std::fmt::Display| CheckpointError::Unwritable(error.to_string());
        self.bytes.push(tag);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        serde_json::to_writer(&mut self.bytes, content).map_err(|error| unwritable(&error))?;
        let len = u32::try_from(self.bytes.len() - start - 4).map_err(|error| unwritable(&error))?;
        self.bytes[start..start + 4].copy_from_slice(&len.to_be_bytes());
        Ok(())
    }

    async fn pause(&mut self) {
        if self.bytes.len() - self.paused_at >= STEP_BYTES {
            self.paused_at = self.bytes.len();
            yield_now().await;
        }
    }
}
