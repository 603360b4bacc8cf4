//! A register that answers when the test lets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bus::{Bus, BusError, Register, RegisterSize, Registered, StandingEntry};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
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

impl Register for GatedRegister {
    fn write(&self, key: RegisterKey, value: Bytes) -> BoxFuture<'_, Result<Registered, BusError>> {
        async move {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.gate.acquire().await.map_err(|_| BusError::Closed)?.forget();
            if self.takes_failure() {
                return Err(BusError::Unknown("no leader".to_owned()));
            }
            self.inner.write(key, value).await
        }
        .boxed()
    }

    fn value(&self, key: RegisterKey) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        self.inner.value(key)
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<(RegisterKey, Bytes)>, BusError>> {
        self.inner.entries()
    }

    fn entries_from(&self, seq: u64, max: usize) -> BoxFuture<'_, Result<Vec<StandingEntry>, BusError>> {
        self.inner.entries_from(seq, max)
    }

    fn remove(&self, key: RegisterKey, seq: u64) -> BoxFuture<'_, Result<(), BusError>> {
        let count = |left: u32| left.checked_sub(1);
        match self.removals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(_) => self.inner.remove(key, seq),
            Err(_) => async { std::future::pending().await }.boxed(),
        }
    }

    fn size(&self) -> BoxFuture<'_, Result<RegisterSize, BusError>> {
        self.inner.size()
    }
}
