//! The embedded backend: one process, nothing installed, nothing kept after it ends.
//!
//! It keeps the contract of [`crate`] with plain maps: the log is a list per lane, readers share its bytes, and time
//! is the wall clock, kept from going back. Nothing here waits for anything but a reader for the next record.

mod key_value;
mod log;
mod pub_sub;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::{RegisterKey, Timestamp};

use crate::name::check_key;
use crate::{Blobs, Bus, BusError, LANES_DEFAULT, Register, Registered};

/// Bytes of records the log takes before it is full, unless told otherwise. The log is never trimmed here: 2 GiB is
/// half an hour of a thousand messages per second, and fits the machines a demo runs on.
pub const LOG_BYTES_MAX_DEFAULT: usize = 2 * 1024 * 1024 * 1024;

/// Tells the time of an append. Called without any lock held.
pub type MemoryClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How to open an embedded bus.
#[derive(Clone)]
pub struct MemoryOptions {
    /// Number of lanes, at least 1; 0 is taken as 1.
    pub lanes: u8,
    /// Bytes of records after which appends answer [`crate::BusError::Full`].
    pub log_bytes_max: usize,
    /// The clock that stamps records; whatever it says, log time does not go back within a lane.
    pub clock: MemoryClock,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { lanes: LANES_DEFAULT, log_bytes_max: LOG_BYTES_MAX_DEFAULT, clock: Arc::new(wall_clock) }
    }
}

impl fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("lanes", &self.lanes)
            .field("log_bytes_max", &self.log_bytes_max)
            .finish_non_exhaustive()
    }
}

/// Opens an empty bus that lives as long as its handles.
#[must_use]
pub fn open(options: MemoryOptions) -> Bus {
    Bus {
        log: Arc::new(log::MemoryLog::new(options)),
        register: Arc::new(MemoryRegister::default()),
        key_value: Arc::new(key_value::MemoryKeyValue::default()),
        pub_sub: Arc::new(pub_sub::MemoryPubSub::default()),
        blobs: Arc::new(MemoryBlobs::default()),
    }
}

fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}

/// See the module. Names are few, and each is one of the exchange's own.
#[derive(Debug, Default)]
struct MemoryBlobs {
    documents_by_name: RwLock<HashMap<String, StoredDocument>>,
}

#[derive(Debug)]
struct StoredDocument {
    version: u64,
    value: Bytes,
}

impl MemoryBlobs {
    fn documents(&self) -> RwLockReadGuard<'_, HashMap<String, StoredDocument>> {
        self.documents_by_name.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, name: String, version: u64, value: Bytes) -> BoxFuture<'_, Result<bool, BusError>> {
        async move {
            check_key(&name)?;
            let mut documents = self.documents_by_name.write().unwrap_or_else(PoisonError::into_inner);
            let is_overtaken = documents.get(&name).is_some_and(|standing| standing.version > version);
            if !is_overtaken {
                documents.insert(name, StoredDocument { version, value });
            }
            Ok(!is_overtaken)
        }
        .boxed()
    }

    fn value(&self, name: String) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        async move {
            check_key(&name)?;
            Ok(self.documents().get(&name).map(|document| document.value.clone()))
        }
        .boxed()
    }

    fn version(&self, name: String) -> BoxFuture<'_, Result<Option<u64>, BusError>> {
        async move {
            check_key(&name)?;
            Ok(self.documents().get(&name).map(|document| document.version))
        }
        .boxed()
    }
}

/// Most keys, about 2 GiB of them: as much as the log's default holds of the rounds that write them.
const KEYS_MAX: usize = 8_000_000;

#[derive(Default)]
struct MemoryRegister {
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
