//! Exact fractions, added and multiplied as at school.

use num_bigint::BigUint;

/// A fraction of at least 0.
#[derive(Debug, Clone)]
pub(super) struct Share {
    above: BigUint,
    below: BigUint,
}

impl Share {
    pub(super) fn of(above: usize, below: usize) -> Self {
        Self { above: BigUint::from(above), below: BigUint::from(below) }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let above = &self.above * &other.below + &other.above * &self.below;
        Self { above, below: &self.below * &other.below }
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        Self { above: &self.above * &other.above, below: &self.below * &other.below }
    }

    /// 10^6 times the fraction, rounded down.
    pub(super) fn ppm(&self) -> u64 {
        u64::try_from(&self.above * 1_000_000_u32 / &self.below).expect("a few millions")
    }

    /// 10^12 times the fraction, to the nearest integer, halves to the even one.
    pub(super) fn e12(&self) -> u64 {
        let twice = &self.above * 2_000_000_000_000_u64;
        let halves = &twice / &self.below;
        let is_exact = &halves * &self.below == twice;
        let halves = u64::try_from(halves).expect("a few millions of millions");
        // An odd number of halves lies between two integers: exactly in the middle, or above it.
        match (halves % 2, is_exact) {
            (0, _) => halves / 2,
            (_, false) => halves / 2 + 1,
            (_, true) => halves / 2 + halves / 2 % 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn shares_are_rounded_where_they_are_written() {
        let third = Share::of(1, 3);
        assert_eq!((third.e12(), third.ppm()), (333_333_333_333, 333_333));
        assert_eq!(third.plus(&third).e12(), 666_666_666_667);
        assert_eq!(third.times(&Share::of(3, 4)).e12(), 250_000_000_000);
        let halves = [1, 3, 5].map(|halves| Share::of(halves, 2_000_000_000_000).e12());
        assert_eq!(halves, [0, 2, 2]);
    }
}
