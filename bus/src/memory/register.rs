//! The write-once register: a map that only grows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::RegisterKey;

use crate::{BusError, Register, Registered};

/// Most keys, about 2 GiB of them: as much as the log's default holds of the rounds that write them.
const KEYS_MAX: usize = 8_000_000;

#[derive(Default)]
pub(super) struct MemoryRegister {
    values_by_key: Mutex<HashMap<RegisterKey, Bytes>>,
}

impl MemoryRegister {
    fn values(&self) -> MutexGuard<'_, HashMap<RegisterKey, Bytes>> {
        self.values_by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_now(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError> {
        let mut values = self.values();
        let is_full = values.len() >= KEYS_MAX;
        match values.entry(key) {
            Entry::Occupied(standing) if *standing.get() == value => Ok(Registered::Same),
            Entry::Occupied(standing) => Ok(Registered::Different(standing.get().clone())),
            Entry::Vacant(_) if is_full => Err(BusError::Full(format!("the register holds {KEYS_MAX} keys"))),
            Entry::Vacant(place) => {
                place.insert(value);
                Ok(Registered::Written)
            }
        }
    }
}

impl Register for MemoryRegister {
    fn write(&self, key: RegisterKey, value: Bytes) -> BoxFuture<'_, Result<Registered, BusError>> {
        async move { self.write_now(key, value) }.boxed()
    }

    fn value(&self, key: RegisterKey) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        async move { Ok(self.values().get(&key).cloned()) }.boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<(RegisterKey, Bytes)>, BusError>> {
        async move { Ok(self.values().iter().map(|(key, value)| (key.clone(), value.clone())).collect()) }.boxed()
    }
}
