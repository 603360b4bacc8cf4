//! The embedded backend: one process, nothing installed, nothing kept after it ends.
//!
//! It keeps the contract of [`crate`] with plain maps: the log is a list per lane, readers share its bytes, and time
//! is the wall clock, kept from going back. Nothing here waits for anything but a reader for the next record.

mod blobs;
mod key_value;
mod log;
mod pub_sub;
mod register;

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use schemas::Timestamp;

use crate::{Bus, LANES_DEFAULT};

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
        register: Arc::new(register::MemoryRegister::default()),
        key_value: Arc::new(key_value::MemoryKeyValue::default()),
        pub_sub: Arc::new(pub_sub::MemoryPubSub::default()),
        blobs: Arc::new(blobs::MemoryBlobs::default()),
    }
}

fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}
