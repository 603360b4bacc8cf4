//! The one place where the gateway reads the wall clock for a decision.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the epoch by this machine's clock: what `exp` is compared with.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
