use bus::LogRecord;
use policy_core::Event;
use schemas::Lane;

/// Hears what lanes fold: for demonstrations, traces and invariant checks. Calls come from the lanes' own tasks, in the
/// order of each lane's log, records of the catch-up included, and must not block.
pub trait FoldObserver: Send + Sync {
    /// A record was read; its events follow.
    fn on_record(&self, record: &LogRecord) {
        let _ = record;
    }

    /// The core reported a fact.
    fn on_event(&self, lane: Lane, event: &Event) {
        let _ = (lane, event);
    }
}
