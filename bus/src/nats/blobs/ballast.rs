//! Room that is given up when the server's store is full.
//!
//! A server with a full store (`max_file_store`, or the disk) takes nothing more in any stream, not even the few bytes
//! that must be written down before the log may be trimmed: it could never be emptied again. So some ballast is kept
//! beside the documents, removed when a small document finds no room, and put back once the log was trimmed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio::time::Instant;

use super::description;
use crate::nats::{DOCUMENT_STREAM, stored};
use crate::{BusError, retry_until};

/// Pieces of ballast.
const PIECES: usize = 8;
/// Size of a piece; 1 MiB in all. Room for thousands of small documents, and more than gateways append to a store that
/// was full a moment ago in the time until one of them is written.
const PIECE_BYTES: usize = 128 * 1024;

/// Largest document that may use the ballast.
pub(super) const SMALL_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Ballast {
    context: Context,
    is_given_up: AtomicBool,
}

impl Ballast {
    pub(super) fn new(context: Context) -> Self {
        Self { context, is_given_up: AtomicBool::new(false) }
    }

    /// Sees that the ballast is there, if it can be: a store that is full already has none.
    pub(super) async fn ensure(&self, timeout: Duration, deadline: Instant) {
        match retry_until(deadline, || self.fill(timeout)).await {
            Ok(()) => self.is_given_up.store(false, Ordering::Relaxed),
            Err(error) => tracing::warn!(%error, "no room is kept for trimming the log, should the store be full"),
        }
    }

    /// Gives the room to whoever comes first, and returns whether there was any.
    pub(super) async fn give_up(&self) -> bool {
        if self.is_given_up.swap(true, Ordering::Relaxed) {
            return false;
        }
        tracing::warn!("the server's store is full: the room kept for trimming the log is used");
        stored::purge(&self.context, DOCUMENT_STREAM, &subject(), None).await.is_ok()
    }

    /// Puts the ballast back when it was given up.
    pub(super) async fn restore(&self, timeout: Duration) {
        if self.is_given_up.load(Ordering::Relaxed) {
            self.ensure(timeout, Instant::now()).await;
        }
    }

    async fn fill(&self, timeout: Duration) -> Result<(), BusError> {
        let stream = stored::stream(&self.context, DOCUMENT_STREAM).await?;
        let unknown = |error: &dyn std::fmt::Display| BusError::Unknown(error.to_string());
        let listed = stream.info_with_subjects(subject()).await.map_err(|error| unknown(&error))?;
        let counts: Vec<(String, usize)> = listed.try_collect().await.map_err(|error| unknown(&error))?;
        let standing: usize = counts.into_iter().map(|(_, count)| count).sum();
        let client: Client = self.context.client();
        for _ in standing..PIECES {
            let piece = Bytes::from(vec![0; PIECE_BYTES]);
            stored::publish(&client, subject(), piece, timeout).await.map_err(super::to_bus_error)?;
        }
        Ok(())
    }
}

fn subject() -> String {
    description::chunks_subject("reserve")
}
