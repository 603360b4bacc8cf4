//! How long to wait before trying again: doubling, capped, and spread so that many agents do not return at once.

/// Milliseconds to wait after failed attempt number `attempt` (counted from 1): between half and all of
/// `base_ms * 2^(attempt - 1)`, at most `max_ms`. Equal arguments give equal delays; `salt` tells callers apart.
pub(crate) fn delay_ms(base_ms: u64, max_ms: u64, attempt: u32, salt: u64) -> u64 {
    // 2^32 times any base is beyond every cap in use, so the shift is bounded there.
    let doublings = attempt.saturating_sub(1).min(32);
    let ceiling = base_ms.saturating_mul(1 << doublings).min(max_ms);
    let half = ceiling / 2;
    half + mix(salt ^ (u64::from(attempt) << 48)) % (ceiling - half + 1)
}

/// `SplitMix64`'s output function: spreads near-equal inputs over all 64 bits.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_differ_between_callers() {
        for attempt in 1..=40 {
            let ceiling = (100_u64 << (attempt - 1).min(20)).min(5000);
            for salt in 0..50 {
                let delay = delay_ms(100, 5000, attempt, salt);
                assert!((ceiling / 2..=ceiling).contains(&delay), "attempt {attempt}: {delay}");
            }
        }
        let spread: std::collections::BTreeSet<_> = (0..50).map(|salt| delay_ms(100, 5000, 9, salt)).collect();
        assert!(spread.len() > 40, "{spread:?}");
        assert_eq!(delay_ms(100, 5000, 3, 7), delay_ms(100, 5000, 3, 7));
    }
}
