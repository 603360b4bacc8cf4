//! The integer score: `floor(sum w_j * n_j / 1000)`, `n_j` in 0 to 1 000 000 on fixed ranges
//! (docs/spec/contract-net.md#cn-30).

use schemas::payload::{AttrValue, Terms};
use schemas::policy::{Direction, Policy, SCORE_MAX, WEIGHT_SUM, Weight};

use crate::policy::PRICE;

/// Score of an offer's terms, 0 to [`SCORE_MAX`].
pub(crate) fn score(policy: &Policy, terms: &Terms) -> u32 {
    total(policy, |weight| value(terms, weight))
}

/// Score the same terms would have at another price.
pub(crate) fn score_at_price(policy: &Policy, terms: &Terms, price: i64) -> u32 {
    total(policy, |weight| if weight.attr.as_str() == PRICE { Some(price) } else { value(terms, weight) })
}

fn value(terms: &Terms, weight: &Weight) -> Option<i64> {
    match terms.get(&weight.attr) {
        Some(AttrValue::Int(value)) => Some(*value),
        Some(AttrValue::Text(_)) | None => None,
    }
}

fn total(policy: &Policy, value_of: impl Fn(&Weight) -> Option<i64>) -> u32 {
    let sum: u64 = policy
        .weights
        .iter()
        .map(|weight| u64::from(weight.w) * value_of(weight).map_or(0, |value| u64::from(normalised(weight, value))))
        .sum();
    u32::try_from(sum / u64::from(WEIGHT_SUM)).unwrap_or(SCORE_MAX).min(SCORE_MAX)
}

/// One attribute on its fixed range: linear, clamped, rounded down.
fn normalised(weight: &Weight, value: i64) -> u32 {
    let (lo, hi) = (i128::from(weight.lo), i128::from(weight.hi));
    let value = i128::from(value).clamp(lo, hi);
    let gain = match weight.dir {
        Direction::Lower => hi - value,
        Direction::Higher => value - lo,
    };
    // `check` refuses policies with lo >= hi, so the range is positive.
    let scaled = gain * i128::from(SCORE_MAX) / (hi - lo).max(1);
    u32::try_from(scaled).unwrap_or(SCORE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::ids::AttrName;

    #[test]
    fn a_value_outside_the_range_is_clamped_and_an_absent_one_scores_nothing() {
        let policy = crate::policy::preset("medium").unwrap();
        assert_eq!(score(&policy, &Terms::new()), 0);
        assert_eq!(score(&policy, &terms(-5, -1)), SCORE_MAX);
        assert_eq!(score(&policy, &terms(2_000_000_000, 60_001)), 0);
        assert_eq!(score(&policy, &terms(500_000_000, 60_000)), 350_000);
    }

    #[test]
    fn the_score_is_rounded_down() {
        let policy = crate::policy::preset("medium").unwrap();
        // 1/60000 of the delivery range is 16.67 parts of a million, of which 30 % count.
        assert_eq!(score(&policy, &terms(1_000_000_000, 59_999)), 4);
    }

    fn terms(price: i64, delivery_ms: i64) -> Terms {
        let name = |text| AttrName::try_new(text).unwrap();
        Terms::from([(name("price"), AttrValue::Int(price)), (name("delivery_ms"), AttrValue::Int(delivery_ms))])
    }
}
