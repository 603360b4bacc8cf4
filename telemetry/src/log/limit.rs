//! So many warnings and errors of one place in the code a minute, then a count: what fails again and again would fill the disk,
//! and hide what fails once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

/// Lines of one place in a period: enough to see whom they are about.
const LINES_MAX: u64 = 20;
const PERIOD: Duration = Duration::from_secs(60);

/// See the module. Clones count together.
#[derive(Clone, Default)]
pub(super) struct LineLimit(Arc<Mutex<HashMap<Identifier, LineCount>>>);

/// The lines of one place in this period.
struct LineCount {
    lines: u64,
    /// Its file and line.
    place: String,
}

impl LineLimit {
    /// Ends each period, for as long as the process lives.
    pub(super) fn start(self) {
        let ending = move || {
            loop {
                std::thread::sleep(PERIOD);
                self.end_period();
            }
        };
        // Without the thread, a place in the code has no lines beyond the first.
        let _ = std::thread::Builder::new().name("log-limit".to_owned()).spawn(ending);
    }

    /// Counts a line, and says whether it is written.
    pub(super) fn admits(&self, line: &Metadata<'_>) -> bool {
        if *line.level() > Level::WARN {
            return true;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = || LineCount { lines: 0, place: line.name().trim_start_matches("event ").to_owned() };
        let count = counts.entry(line.callsite()).or_insert_with(first);
        count.lines += 1;
        count.lines <= LINES_MAX
    }

    /// Says how many lines were not written, and begins anew.
    pub(super) fn end_period(&self) {
        let counts = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for LineCount { lines, place } in counts.into_values().filter(|count| count.lines > LINES_MAX) {
            tracing::warn!(unwritten = lines - LINES_MAX, place, "a line came too often in a minute");
        }
    }
}
