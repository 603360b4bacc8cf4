//! What the winner is paid (docs/spec/contract-net.md#cn-33).
//!
//! First price: its own. Second price: its own price moved, in the winner's favour, as far as its score stays at or above
//! the best losing score, and never past the price gates. Without a loser it is the price gate itself (the reserve); with
//! neither loser nor gate, its own price. Where the score is flat beyond the weight's range, the range bounds the move.

use schemas::payload::Terms;
use schemas::policy::{Direction, Payment, Policy, Weight};

use crate::acceptance::score::score_at_price;
use crate::policy::PRICE;

/// The payment for an offer whose own price is `own`; `losing` is the best score among the offers that win nothing.
pub(crate) fn payment(policy: &Policy, terms: &Terms, own: i64, losing: Option<u32>) -> i64 {
    match policy.payment {
        Payment::FirstPrice => own,
        Payment::SecondPrice => match policy.weights.iter().find(|weight| weight.attr.as_str() == PRICE) {
            Some(weight) => second_price(policy, weight, terms, own, losing),
            None => own,
        },
    }
}

fn second_price(policy: &Policy, weight: &Weight, terms: &Terms, own: i64, losing: Option<u32>) -> i64 {
    let gates = policy.gates.iter().filter(|gate| gate.attr.as_str() == PRICE);
    let reserve = match weight.dir {
        Direction::Lower => gates.filter_map(|gate| gate.max).min(),
        Direction::Higher => gates.filter_map(|gate| gate.min).max(),
    };
    let Some(losing) = losing else { return reserve.unwrap_or(own) };
    // `sign` turns "better for the winner" into "larger".
    let (sign, range_end) = match weight.dir {
        Direction::Lower => (1, weight.hi),
        Direction::Higher => (-1, weight.lo),
    };
    let (own, bound) = (sign * i128::from(own), sign * i128::from(reserve.unwrap_or(range_end)));
    let suffices =
        |price: i128| i64::try_from(sign * price).is_ok_and(|price| score_at_price(policy, terms, price) >= losing);
    // Every price between two 64-bit prices is one, so the conversion cannot fail.
    i64::try_from(sign * furthest(own, bound.max(own), suffices)).unwrap_or(weight.lo)
}

/// The largest value from `from` to `to` that suffices, given that every smaller one then does too; `from` when none.
fn furthest(from: i128, to: i128, suffices: impl Fn(i128) -> bool) -> i128 {
    let (mut low, mut high) = (from, to);
    while low < high {
        let middle = low + (high - low + 1) / 2;
        if suffices(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::score::score;
    use proptest::prelude::*;
    use schemas::ids::AttrName;
    use schemas::payload::AttrValue;

    #[test]
    fn the_second_price_is_the_last_that_still_beats_the_best_loser() {
        let policy = second_price_policy(Direction::Lower);
        let winner = terms(100, 5_000);
        let losing = score(&policy, &terms(300, 5_000));
        let paid = payment(&policy, &winner, 100, Some(losing));
        assert_eq!(paid, 300);
        assert!(score_at_price(&policy, &winner, paid) >= losing);
        assert!(score_at_price(&policy, &winner, paid + 1) < losing);
    }

    #[test]
    fn without_a_loser_the_gate_is_paid_and_without_a_gate_the_own_price() {
        let mut policy = second_price_policy(Direction::Lower);
        assert_eq!(payment(&policy, &terms(100, 0), 100, None), 900);
        policy.gates.clear();
        assert_eq!(payment(&policy, &terms(100, 0), 100, None), 100);
        policy.payment = Payment::FirstPrice;
        assert_eq!(payment(&policy, &terms(100, 0), 100, Some(0)), 100);
    }

    #[test]
    fn no_price_overflows() {
        for (own, dir) in [(i64::MAX, Direction::Lower), (i64::MIN, Direction::Higher), (i64::MIN, Direction::Lower)] {
            let mut policy = second_price_policy(dir);
            policy.gates.clear();
            let paid = payment(&policy, &terms(own, 0), own, Some(0));
            assert!(if dir == Direction::Lower { paid >= own } else { paid <= own });
        }
    }

    proptest! {
        #[test]
        fn the_second_price_is_never_worse_for_the_winner_and_never_outside_the_gates(
            own in 50_i64..=900, delivery in 0_i64..12_000, losing in prop::option::of(0_u32..=1_000_000), higher: bool,
        ) {
            let policy = second_price_policy(if higher { Direction::Higher } else { Direction::Lower });
            let paid = payment(&policy, &terms(own, delivery), own, losing);
            prop_assert!((50..=900).contains(&paid));
            let gain = if higher { own - paid } else { paid - own };
            prop_assert!(gain >= 0);
            if let Some(losing) = losing && score(&policy, &terms(own, delivery)) >= losing {
                prop_assert!(score_at_price(&policy, &terms(own, delivery), paid) >= losing);
            }
        }
    }

    fn second_price_policy(dir: Direction) -> Policy {
        let mut policy = crate::policy::preset("medium").unwrap();
        policy.payment = Payment::SecondPrice;
        (policy.gates[0].min, policy.gates[0].max) = (Some(50), Some(900));
        (policy.weights[0].lo, policy.weights[0].hi, policy.weights[0].dir) = (0, 1000, dir);
        (policy.weights[1].lo, policy.weights[1].hi) = (0, 10_000);
        policy
    }

    fn terms(price: i64, delivery_ms: i64) -> Terms {
        let name = |text| AttrName::try_new(text).unwrap();
        Terms::from([(name("price"), AttrValue::Int(price)), (name("delivery_ms"), AttrValue::Int(delivery_ms))])
    }
}
