//! The embedded backend: one process, nothing installed, nothing kept after it ends.
//!
//! It keeps the contract of [`crate`] with plain maps: the log is a list per lane, readers share its bytes, and time
//! is the wall clock, kept from going back. Nothing here waits for anything but a reader for the next record.

mod key_value;
mod log;
mod pub_sub;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ahash::HashMap;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use schemas::{RegisterKey, Timestamp};

use crate::name::check_key;
use crate::{Blobs, Bus, BusError, LANES_DEFAULT, Register, RegisterSize, Registered, StandingEntry, wall_clock};

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
        register: Arc::new(MemoryRegister::new(Arc::clone(&options.clock))),
        log: Arc::new(log::MemoryLog::new(options)),
        key_value: Arc::new(key_value::MemoryKeyValue::default()),
        pub_sub: Arc::new(pub_sub::MemoryPubSub::default()),
        blobs: Arc::new(MemoryBlobs::default()),
    }
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

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn put(&self, name: String, version: u64, value: Bytes) -> Result<bool, BusError> {
        check_key(&name)?;
        let mut documents = self.documents_by_name.write();
        let is_overtaken = documents.get(&name).is_some_and(|standing| standing.version > version);
        if !is_overtaken {
            documents.insert(name, StoredDocument { version, value });
        }
        Ok(!is_overtaken)
    }

    async fn value(&self, name: String) -> Result<Option<Bytes>, BusError> {
        check_key(&name)?;
        Ok(self.documents_by_name.read().get(&name).map(|document| document.value.clone()))
    }

    async fn version(&self, name: String) -> Result<Option<u64>, BusError> {
        check_key(&name)?;
        Ok(self.documents_by_name.read().get(&name).map(|document| document.version))
    }
}

/// Most keys, about 2 GiB of them: as much as the log's default holds of the rounds that write them.
const KEYS_MAX: usize = 8_000_000;

struct MemoryRegister {
    clock: MemoryClock,
    values: Mutex<MemoryEntries>,
}

#[derive(Default)]
struct MemoryEntries {
    seq_by_key: HashMap<RegisterKey, u64>,
    by_seq: BTreeMap<u64, StandingEntry>,
    written: u64,
    bytes: u64,
}

impl MemoryRegister {
    fn new(clock: MemoryClock) -> Self {
        Self { clock, values: Mutex::default() }
    }

    fn write_now(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError> {
        let written_at = (self.clock)();
        let mut entries = self.values.lock();
        match entries.standing(&key) {
            Some(standing) if standing.value == value => return Ok(Registered::Same),
            Some(standing) => return Ok(Registered::Different(standing.value.clone())),
            None if entries.by_seq.len() >= KEYS_MAX => {
                return Err(BusError::Full(format!("the register holds {KEYS_MAX} keys")));
            }
            None => {}
        }
        entries.written += 1;
        entries.bytes += value.len() as u64;
        let seq = entries.written;
        entries.seq_by_key.insert(key.clone(), seq);
        entries.by_seq.insert(seq, StandingEntry { key, value, seq, written_at });
        Ok(Registered::Written)
    }
}

impl MemoryEntries {
    fn standing(&self, key: &RegisterKey) -> Option<&StandingEntry> {
        self.by_seq.get(self.seq_by_key.get(key)?)
    }

    fn remove(&mut self, key: &RegisterKey, seq: u64) {
        if let Some(standing) = self.seq_by_key.get(key).copied().filter(|standing| *standing <= seq) {
            self.seq_by_key.remove(key);
            let removed = self.by_seq.remove(&standing);
            self.bytes -= removed.map_or(0, |removed| removed.value.len() as u64);
        }
    }
}

#[async_trait]
impl Register for MemoryRegister {
    async fn write(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError> {
        self.write_now(key, value)
    }

    async fn value(&self, key: RegisterKey) -> Result<Option<Bytes>, BusError> {
        Ok(self.values.lock().standing(&key).map(|standing| standing.value.clone()))
    }

    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError> {
        let all = |entries: &MemoryEntries| {
            entries.by_seq.values().map(|entry| (entry.key.clone(), entry.value.clone())).collect()
        };
        Ok(all(&self.values.lock()))
    }

    async fn entries_from(&self, seq: u64, max: usize) -> Result<Vec<StandingEntry>, BusError> {
        Ok(self.values.lock().by_seq.range(seq..).take(max).map(|(_, entry)| entry.clone()).collect())
    }

    async fn remove(&self, key: RegisterKey, seq: u64) -> Result<(), BusError> {
        self.values.lock().remove(&key, seq);
        Ok(())
    }

    async fn size(&self) -> Result<RegisterSize, BusError> {
        let entries = self.values.lock();
        Ok(RegisterSize { entries: entries.by_seq.len() as u64, bytes: entries.bytes })
    }
}
