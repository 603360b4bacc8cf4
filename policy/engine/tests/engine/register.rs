//! A register that answers when the test lets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bus::{Bus, BusError, Register, RegisterSize, Registered, StandingEntry};
use bytes::Bytes;
use schemas::RegisterKey;
use tokio::sync::Semaphore;

/// Holds every write back until the gate has a permit for it, and fails the first `failures`.
pub(crate) struct GatedRegister {
    inner: Arc<dyn Register>,
    pub(crate) gate: Semaphore,
    pub(crate) asked: AtomicU32,
    failures: AtomicU32,
    /// Removals that are made; further ones are not answered.
    pub(crate) removals: AtomicU32,
}

impl GatedRegister {
    /// Puts itself before the register of a bus.
    pub(crate) fn install(bus: &mut Bus, permits: usize, failures: u32) -> Arc<Self> {
        let gated = Arc::new(Self {
            inner: Arc::clone(&bus.register),
            gate: Semaphore::new(permits),
            asked: AtomicU32::new(0),
            failures: AtomicU32::new(failures),
            removals: AtomicU32::new(u32::MAX),
        });
        bus.register = Arc::clone(&gated) as Arc<dyn Register>;
        gated
    }

    /// Waits for the first write.
    pub(crate) async fn until_asked(&self) {
        while self.asked.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    }

    fn takes_failure(&self) -> bool {
        self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[bus::async_trait]
impl Register for GatedRegister {
    async fn write(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.gate.acquire().await.map_err(|_| BusError::Closed)?.forget();
        if self.takes_failure() {
            return Err(BusError::Unknown("no leader".to_owned()));
        }
        self.inner.write(key, value).await
    }

    async fn value(&self, key: RegisterKey) -> Result<Option<Bytes>, BusError> {
        self.inner.value(key).await
    }

    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError> {
        self.inner.entries().await
    }

    async fn entries_from(&self, seq: u64, max: usize) -> Result<Vec<StandingEntry>, BusError> {
        self.inner.entries_from(seq, max).await
    }

    async fn remove(&self, key: RegisterKey, seq: u64) -> Result<(), BusError> {
        let count = |left: u32| left.checked_sub(1);
        match self.removals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(_) => self.inner.remove(key, seq).await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn size(&self) -> Result<RegisterSize, BusError> {
        self.inner.size().await
    }
}
