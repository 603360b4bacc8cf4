//! How far a bargain's time has come, and what a party aspires to by then. Integers only, so that every engine comes to the
//! same.

use schemas::bargain::{BargainSpec, Concession, PPM};

use crate::acceptance::threshold::product;

/// Relative time: max(round / (rounds + 1), elapsed / deadline), of what the rules name, in parts per million, rounded
/// down; [`PPM`] at most. `round` counts from 1.
pub(super) fn relative_time_ppm(rules: &BargainSpec, round: u32, elapsed_us: u64) -> u32 {
    let part = |part: u128, whole: u128| {
        let ppm = (part * u128::from(PPM)).checked_div(whole).unwrap_or(u128::from(PPM));
        u32::try_from(ppm).unwrap_or(PPM).min(PPM)
    };
    let rounds = rules.rounds.map(|rounds| part(u128::from(round), u128::from(rounds) + 1));
    let time = rules.deadline_ms.map(|ms| part(u128::from(elapsed_us), u128::from(ms) * 1000));
    rounds.max(time).unwrap_or(PPM)
}

/// What a party aspires to at a relative time: `best - (best - reservation) * t^e`. Both t^e and the product are rounded
/// down, so the aspiration is rounded up. A reservation above the best counts as the best.
pub(super) fn aspiration_ppm(t_ppm: u32, concession: Concession, best: u32, reservation: u32) -> u32 {
    let conceded = conceded_ppm(t_ppm.min(PPM), concession);
    let span = u64::from(best.saturating_sub(reservation));
    let given_up = span * u64::from(conceded) / u64::from(PPM);
    best - u32::try_from(given_up).unwrap_or(best)
}

/// floor(t^e), in parts per million, exact: the largest x with `x^d * PPM^(n - d) <= t^n`, where e = n / d.
fn conceded_ppm(t: u32, concession: Concession) -> u32 {
    let (t, whole) = (u64::from(t), u64::from(PPM));
    let is_enough = |x: u64| match concession {
        Concession::Linear => x <= t,
        Concession::Boulware(e) => product(x, whole, e.saturating_sub(1)) <= product(1, t, e),
        Concession::Conceder(e) => product(1, x, e) <= product(t, whole, e.saturating_sub(1)),
    };
    let (mut low, mut high) = (0, whole);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if is_enough(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    u32::try_from(low).unwrap_or(PPM)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use schemas::bargain::CONCESSION_MAX;
    use serde_json::json;

    use super::*;

    #[test]
    fn relative_time_is_the_further_of_rounds_and_time() {
        let rules = |rounds: Option<u32>, deadline_ms: Option<u64>| -> BargainSpec {
            let mut rules = json!({"issues": [{"name": "price", "min": 0, "max": 3}]});
            rounds.into_iter().for_each(|rounds| rules["rounds"] = json!(rounds));
            deadline_ms.into_iter().for_each(|ms| rules["deadline_ms"] = json!(ms));
            serde_json::from_str(&rules.to_string()).unwrap()
        };
        for (rounds, deadline_ms, round, elapsed_us, t) in [
            (Some(9), None, 1, 99, 100_000),
            (Some(2), None, 2, 0, 666_666),
            (None, Some(10), 7, 2_500, 250_000),
            (Some(9), Some(10), 1, 2_500, 250_000),
            (Some(9), Some(10), 9, 2_500, 900_000),
            (None, Some(10), 7, 20_000, 1_000_000),
        ] {
            assert_eq!(relative_time_ppm(&rules(rounds, deadline_ms), round, elapsed_us), t);
        }
    }

    #[test]
    fn aspirations_fall_from_the_best_to_the_reservation_value() {
        for (concession, t, aspiration) in [
            (Concession::Linear, 0, 900_000),
            (Concession::Linear, 250_000, 700_000),
            (Concession::Linear, 1_000_000, 100_000),
            (Concession::Boulware(4), 500_000, 850_000),
            (Concession::Conceder(4), 62_500, 500_000),
            // (0.333333)^8 is 152 parts per million, rounded down; of 800 000 that is 121.
            (Concession::Boulware(8), 333_333, 899_879),
            // The eighth root of one part per million is 0.177827.
            (Concession::Conceder(8), 1, 757_739),
        ] {
            assert_eq!(aspiration_ppm(t, concession, 900_000, 100_000), aspiration, "{concession:?} at {t}");
        }
        assert_eq!(aspiration_ppm(500_000, Concession::Linear, 100_000, 900_000), 100_000);
    }

    proptest! {
        #[test]
        fn aspirations_never_rise_and_stay_in_bounds(
            (one, other) in (0_u32..=PPM, 0_u32..=PPM),
            (best, reservation) in (0_u32..=PPM, 0_u32..=PPM),
            e in 2_u32..=CONCESSION_MAX,
        ) {
            for concession in [Concession::Boulware(e), Concession::Linear, Concession::Conceder(e)] {
                let early = aspiration_ppm(one.min(other), concession, best, reservation);
                let late = aspiration_ppm(one.max(other), concession, best, reservation);
                prop_assert!(late <= early && early <= best && late >= reservation.min(best));
            }
        }

        #[test]
        fn a_root_undone_by_its_power_comes_back_to_where_it_was_or_just_below(t in 0_u32..=PPM, e in 2_u32..=CONCESSION_MAX) {
            let root = u128::from(conceded_ppm(t, Concession::Conceder(e)));
            let (t, whole) = (u128::from(t), u128::from(PPM));
            // Stepwise, because a root to the eighth exceeds 128 bits: both sides rounded to the same side.
            let power = |base: u128| (1..e).fold(base, |power, _| power * base / whole);
            prop_assert!(power(root) <= t && power(root + 1) + u128::from(e) > t);
        }
    }
}
