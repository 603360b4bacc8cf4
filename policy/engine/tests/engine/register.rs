//! A register that answers when the test lets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bus::{Bus, BusError, Register, Registered};
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
}

impl GatedRegister {
    /// Puts itself before the register of a bus.
    pub(crate) fn install(bus: &mut Bus, permits: usize, failures: u32) -> Arc<Self> {
        let gated = Arc::new(Self {
            inner: Arc::clone(&bus.register),
            gate: Semaphore::new(permits),
            asked: AtomicU32::new(0),
            failures: AtomicU32::new(failures),
        });
        bus.register = Arc::clone(&gated) as Arc<dyn Register>;
        gated
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
}
