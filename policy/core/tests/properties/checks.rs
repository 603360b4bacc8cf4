//! The invariants by name (ARCHITECTURE.md, "What must never happen"), and how often each was checked: a check that never ran
//! proves nothing, so a property that did not reach one of its checks fails.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::test_runner::TestCaseError;

/// What a check says when it does not hold.
pub(crate) type Checked = Result<(), TestCaseError>;

/// One named check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// I1: at most one live award per lot and per contractor; award numbers are never used again.
    OneAward,
    /// I2: ACCEPT refers to a recorded, unexpired, unwithdrawn offer with equal digest.
    AcceptRefersToOffer,
    /// I3: every `ok` offer gets exactly one final notice.
    OneFinalNotice,
    /// I4: after the end only answers.
    TerminalAbsorbs,
    /// I5: ended by the hard deadline.
    EndsInTime,
    /// I6: the same log gives the same effects, state and register.
    Recomputable,
    /// I7: a message applied twice counts once.
    TwiceIsOnce,
    /// I8: every ranked offer is on time, unexpired, within the gates, and scored right; none is left out.
    OnlyValidOffersWin,
    /// I9: before the close nobody learns of another's terms.
    Sealed,
    /// I11: the payment lies within the gates and is not worse for the winner than its own price.
    FairPayment,
    /// I12: per round, offers = accepted + rejected + withdrawn + lapsed.
    OffersBalance,
    /// I13: the order of two simultaneous messages of different contractors does not change the award.
    OrderOfEquals,
    /// Every logged message gets exactly one disposition.
    OneDisposition,
    /// Delivery ids are unique.
    UniqueDeliveries,
    /// No delivery has expired before it could be tried.
    LiveDeliveries,
    /// Nothing waits for a register key that was not queued before; keys are written once; what binds waits.
    RegisterFirst,
    /// No deadline lies in the past, nothing fires early, every timer that is due leads on.
    TimersProgress,
    /// The fold's own checks found nothing.
    NoViolation,
    /// A snapshot restores the same state, wherever it is taken.
    Restorable,
    /// A receipt that says no more than `ok` waits for the next delivery that is repeated; nothing else depends on it.
    ReceiptsByException,
    /// An award pins the first of the call's documents that its offer names, and no report passed on names another.
    PinsFirst,
    /// The naive reference says the same.
    LikeReference,
}

/// How often each check was made.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; Check::LikeReference as usize + 1]);

impl Counts {
    /// Notes a check; fails when it does not hold.
    pub(crate) fn hold(&self, check: Check, holds: bool, why: impl FnOnce() -> String) -> Checked {
        self.0[check as usize].fetch_add(1, Ordering::Relaxed);
        if holds { Ok(()) } else { Err(TestCaseError::fail(format!("{check:?}: {}", why()))) }
    }

    /// Fails when one of the checks was never made.
    pub(crate) fn assert_made(&self, checks: &[Check]) {
        for check in checks {
            let made = self.0[*check as usize].load(Ordering::Relaxed);
            assert!(made > 0, "{check:?} was never checked: the cases do not reach it");
        }
    }
}
