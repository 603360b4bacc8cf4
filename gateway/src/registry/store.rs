//! What a gateway writes to the control plane's buckets and reads from them, counted and timed.

use std::time::Instant;

use bus::{Bucket, BusError};
use bytes::Bytes;
use schemas::{Code, Refusal};
use serde::Serialize;

use super::{Registry, Tables};
use crate::metrics::{KvOperation, Shed};
use crate::problem::store_full;

impl Registry {
    /// Stores a document and waits until this gateway sees it (`is_seen`).
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store is full, the bus does not answer, or the write is not seen in time.
    pub(crate) async fn put<T: Serialize + Sync>(
        &self,
        bucket: Bucket,
        key: String,
        document: &T,
        is_seen: impl Fn(&Tables) -> bool,
    ) -> Result<(), Refusal> {
        let writing = self.key_value.put(bucket, key, encode(document)?);
        self.timed(bucket, KvOperation::Put, writing).await?;
        self.until_own_write(is_seen).await
    }

    /// Stores a document unless the key has one; false when it has.
    ///
    /// # Errors
    /// As [`Registry::put`].
    pub(crate) async fn create<T: Serialize + Sync>(
        &self,
        bucket: Bucket,
        key: String,
        document: &T,
    ) -> Result<bool, Refusal> {
        let writing = self.key_value.create(bucket, key, encode(document)?);
        self.timed(bucket, KvOperation::Create, writing).await
    }

    /// The stored bytes of a key, read from the bus.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the bus does not answer.
    pub(crate) async fn stored(&self, bucket: Bucket, key: String) -> Result<Option<Bytes>, Refusal> {
        self.timed(bucket, KvOperation::Value, self.key_value.value(bucket, key)).await
    }

    /// Removes a key and waits until this gateway sees that it is gone.
    ///
    /// # Errors
    /// As [`Registry::put`].
    pub(crate) async fn delete(
        &self,
        bucket: Bucket,
        key: String,
        is_seen: impl Fn(&Tables) -> bool,
    ) -> Result<(), Refusal> {
        self.timed(bucket, KvOperation::Delete, self.key_value.delete(bucket, key)).await?;
        self.until_own_write(is_seen).await
    }

    /// Counts and times an operation on the store.
    async fn timed<T>(
        &self,
        bucket: Bucket,
        operation: KvOperation,
        doing: impl Future<Output = Result<T, BusError>>,
    ) -> Result<T, Refusal> {
        let began = Instant::now();
        let outcome = doing.await;
        self.metrics.control.stored(bucket, operation, outcome.is_ok(), began.elapsed());
        outcome.map_err(|error| {
            if matches!(error, BusError::Full(_)) {
                self.metrics.messages.shed(Shed::Store);
            }
            not_stored(&error)
        })
    }
}

fn encode<T: Serialize>(document: &T) -> Result<Bytes, Refusal> {
    let bytes = serde_json::to_vec(document);
    bytes.map(Bytes::from).map_err(|_| Refusal::new(Code::Internal, "the document cannot be written"))
}

pub(super) fn not_stored(error: &BusError) -> Refusal {
    if matches!(error, BusError::Full(_)) {
        tracing::error!(%error, "the control plane's store is full");
        return store_full();
    }
    tracing::warn!(%error, "the control plane's store did not answer");
    Refusal::new(Code::Unavailable, "the store did not answer; repeat the request").retry_after_ms(1000)
}
