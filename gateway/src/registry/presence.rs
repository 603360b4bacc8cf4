//! Whether a registered agent is present: heard within its lease, by this gateway or by another that reported it.
//!
//! Times are milliseconds of this gateway's own clock, which the caller passes in. An agent counts as absent only when the
//! gateway has listened for the agent's whole lease: one that has just started, or that was cut off, knows nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use schemas::control::Registration;
use schemas::presence::REPORT_PERIOD_MS;

/// Silence of the bus after which the gateway counts as cut off, in milliseconds: two of its questions, and some time to
/// answer.
pub(crate) const CUT_OFF_MS: u64 = 2_500;

/// A registered agent, and when it was heard. Shared by every place of a table that lists it.
pub(crate) struct Member {
    pub(crate) registration: Arc<Registration>,
    heard_ms: AtomicU64,
    heard_here_ms: AtomicU64,
    /// When it is to be looked at next; changed with the table's queue alone.
    pub(super) due_ms: AtomicU64,
    /// Found absent; changed with the table's lists alone.
    pub(super) is_absent: AtomicBool,
}

impl Member {
    pub(super) fn new(registration: Registration, heard_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            registration: Arc::new(registration),
            heard_ms: AtomicU64::new(heard_ms),
            heard_here_ms: AtomicU64::new(0),
            due_ms: AtomicU64::new(0),
            is_absent: AtomicBool::new(false),
        })
    }

    /// Whether its lease had ended when the table last looked.
    pub(crate) fn is_found_absent(&self) -> bool {
        self.is_absent.load(Ordering::Relaxed)
    }

    /// Notes that the agent was heard.
    pub(super) fn note_presence(&self, now_ms: u64, signal: PresenceSignal) {
        let age_ms = match signal {
            PresenceSignal::Here | PresenceSignal::Hello => 0,
            PresenceSignal::Reported => report_age_ms(self.registration.lease_ms),
        };
        self.heard_ms.fetch_max(now_ms.saturating_sub(age_ms), Ordering::Relaxed);
        if signal == PresenceSignal::Here {
            self.heard_here_ms.fetch_max(now_ms, Ordering::Relaxed);
        }
    }

    /// When it was last heard.
    pub(super) fn heard_ms(&self) -> u64 {
        self.heard_ms.load(Ordering::Relaxed)
    }

    /// Whether this gateway itself heard it at `since_ms` or later.
    pub(super) fn is_heard_here(&self, since_ms: u64) -> bool {
        self.heard_here_ms.load(Ordering::Relaxed) >= since_ms
    }
}

/// How an agent was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PresenceSignal {
    /// By this gateway, which reports it to the others: a message, an acknowledgement, a stream.
    Here,
    /// By its hello, which every gateway hears.
    Hello,
    /// By a gateway's report: at some time since the report before.
    Reported,
}

/// How long ago a reported agent counts as heard: a whole period, so that no report makes a lease longer, unless the lease
/// is so short that one lost report would then end it.
fn report_age_ms(lease_ms: u32) -> u64 {
    u64::from(lease_ms).saturating_sub(2 * REPORT_PERIOD_MS).min(REPORT_PERIOD_MS)
}

/// For how long the gateway has listened without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listening {
    since_ms: u64,
    until_ms: u64,
}

impl Listening {
    /// Listens from now on.
    pub(crate) fn from(now_ms: u64) -> Self {
        Self { since_ms: now_ms, until_ms: now_ms }
    }

    /// The bus answered: the gateway listens. True when it begins anew, because it was cut off.
    pub(crate) fn handle_answer(&mut self, now_ms: u64) -> bool {
        let was_cut_off = now_ms.saturating_sub(self.until_ms) > CUT_OFF_MS;
        if was_cut_off {
            self.since_ms = now_ms;
        }
        self.until_ms = self.until_ms.max(now_ms);
        was_cut_off
    }

    /// When an agent's lease ends, if nothing more is heard of it.
    pub(crate) fn lease_end_ms(&self, heard_ms: u64, lease_ms: u32) -> u64 {
        heard_ms.max(self.since_ms).saturating_add(u64::from(lease_ms))
    }

    /// Up to when the gateway would have heard whoever spoke.
    pub(crate) fn heard_until_ms(&self, now_ms: u64) -> u64 {
        now_ms.min(self.until_ms.saturating_add(CUT_OFF_MS))
    }
}
