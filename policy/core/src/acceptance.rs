//! The acceptance policy applied: which offers count, when collection closes, who wins, what is paid.

pub(crate) mod decision;
pub(crate) mod gate;
pub(crate) mod payment;
pub(crate) mod reputation;
pub(crate) mod score;
pub(crate) mod threshold;
pub(crate) mod tie_break;

use schemas::delivery::CloseReason;
use schemas::policy::Close;

/// What the close rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CollectionStatus {
    /// Valid, unexpired, unwithdrawn offers.
    pub(crate) valid: u32,
    /// Whether the best score among them reaches the policy's threshold now.
    pub(crate) is_score_reached: bool,
    /// Contractors that responded.
    pub(crate) responded: u32,
    /// Contractors called.
    pub(crate) expected: u32,
    /// Whether the window has passed; it stays so.
    pub(crate) is_window_past: bool,
}

/// The close rule (docs/spec/contract-net.md#cn-20), evaluated after every collecting event and timer: why collection
/// closes now, if it does. The deadline is no part of this: it is a timer and always closes.
pub(crate) fn close_reason(close: &Close, standing: CollectionStatus) -> Option<CloseReason> {
    let all_responded = close.all_responded && standing.responded >= standing.expected;
    if standing.valid < close.min_valid {
        // `min_valid` gates early closing only, and waiting for nobody would be no gain.
        return all_responded.then_some(CloseReason::AllResponded);
    }
    if standing.is_score_reached {
        Some(CloseReason::ScoreAtLeast)
    } else if close.k_valid.is_some_and(|k| standing.valid >= k) {
        Some(CloseReason::KValid)
    } else if all_responded {
        Some(CloseReason::AllResponded)
    } else if standing.is_window_past {
        Some(CloseReason::Window)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: CollectionStatus =
        CollectionStatus { valid: 2, is_score_reached: false, responded: 2, expected: 5, is_window_past: false };

    #[test]
    fn reasons_are_reported_in_the_order_of_their_priority() {
        let close =
            Close { min_valid: 1, k_valid: Some(2), all_responded: true, window_ms: Some(1), ..Close::default() };
        let everything = CollectionStatus { is_score_reached: true, responded: 5, is_window_past: true, ..OPEN };
        assert_eq!(close_reason(&close, everything), Some(CloseReason::ScoreAtLeast));
        let no_score = CollectionStatus { is_score_reached: false, ..everything };
        assert_eq!(close_reason(&close, no_score), Some(CloseReason::KValid));
        let no_k = Close { k_valid: Some(3), ..close };
        assert_eq!(close_reason(&no_k, no_score), Some(CloseReason::AllResponded));
        assert_eq!(close_reason(&no_k, CollectionStatus { responded: 4, ..no_score }), Some(CloseReason::Window));
        assert_eq!(close_reason(&no_k, CollectionStatus { responded: 4, is_window_past: false, ..no_score }), None);
    }

    #[test]
    fn too_few_valid_offers_hold_everything_back_but_all_responded() {
        let close = Close { min_valid: 3, k_valid: Some(1), all_responded: true, ..Close::default() };
        let past = CollectionStatus { is_score_reached: true, is_window_past: true, ..OPEN };
        assert_eq!(close_reason(&close, past), None);
        assert_eq!(close_reason(&close, CollectionStatus { responded: 5, ..past }), Some(CloseReason::AllResponded));
    }
}
