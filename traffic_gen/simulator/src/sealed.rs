//! What mandates carry so that it is recognised wherever it should not be.

/// How a text of a mandate begins that says whose it is.
pub(super) const MARK: &str = "sealed-of-";
/// Reservation values are no smaller, so that no count, price or duration of a run looks like one.
pub(super) const MARKED_MIN: u32 = 10_001;
