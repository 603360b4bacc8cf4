//! Exact fractions, rounded only where they are written.

use std::cmp::Ordering;
use std::fmt;

use num_bigint::BigUint;
use num_integer::Integer;

/// What `e12` counts in a whole.
const E12: u64 = 1_000_000_000_000;
/// What `ppm` counts in a whole.
const PPM: u64 = 1_000_000;

/// A fraction of at least 0. Written it is reduced: `5/8`, and `2` for a whole number.
#[derive(Debug, Clone)]
pub struct Fraction {
    numerator: BigUint,
    denominator: BigUint,
}

impl Fraction {
    /// The fraction of two numbers; 0 where the denominator is 0.
    #[must_use]
    pub fn new(numerator: BigUint, denominator: BigUint) -> Self {
        if denominator == BigUint::ZERO { Self::zero() } else { Self { numerator, denominator } }
    }

    /// Nothing.
    #[must_use]
    pub fn zero() -> Self {
        Self { numerator: BigUint::ZERO, denominator: BigUint::from(1_u32) }
    }

    /// The fraction multiplied by `factor` / `divisor`; 0 where the divisor is 0.
    #[must_use]
    pub fn scaled(&self, factor: u64, divisor: u64) -> Self {
        Self::new(&self.numerator * factor, &self.denominator * divisor)
    }

    /// 10^12 times the fraction, rounded to the nearest integer, halves to the even one. At most [`u64::MAX`].
    #[must_use]
    pub fn e12(&self) -> u64 {
        let (mut whole, rest) = (&self.numerator * E12).div_rem(&self.denominator);
        let is_up = match (rest * 2_u32).cmp(&self.denominator) {
            Ordering::Less => false,
            Ordering::Equal => whole.is_odd(),
            Ordering::Greater => true,
        };
        if is_up {
            whole += 1_u32;
        }
        u64::try_from(whole).unwrap_or(u64::MAX)
    }

    /// 10^6 times the fraction, rounded down. At most [`u64::MAX`].
    #[must_use]
    pub fn ppm(&self) -> u64 {
        u64::try_from(&self.numerator * PPM / &self.denominator).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let common = self.numerator.gcd(&self.denominator);
        let (numerator, denominator) = (&self.numerator / &common, &self.denominator / &common);
        if denominator == BigUint::from(1_u32) {
            write!(f, "{numerator}")
        } else {
            write!(f, "{numerator}/{denominator}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_rounded_to_the_nearest_e12_and_halves_to_the_even_one() {
        let cases = [
            ((1, 2), 500_000_000_000),
            ((4, 11), 363_636_363_636),
            ((2, 3), 666_666_666_667),
            ((1, 2 * E12), 0),
            ((3, 2 * E12), 2),
            ((5, 2 * E12), 2),
            ((2 * E12 + 1, 2 * E12), E12),
            ((23, 33), 696_969_696_970),
            ((7, 1), 7 * E12),
        ];
        for ((numerator, denominator), e12) in cases {
            assert_eq!(fraction(numerator, denominator).e12(), e12, "{numerator}/{denominator}");
        }
        assert_eq!(fraction(u64::MAX, 1).e12(), u64::MAX);
    }

    #[test]
    fn millionths_are_rounded_down() {
        assert_eq!(fraction(2, 3).ppm(), 666_666);
        assert_eq!(fraction(23, 33).scaled(4, 2).ppm(), 1_393_939);
        assert_eq!(fraction(1, 3).scaled(1, 0).ppm(), 0);
    }

    #[test]
    fn a_fraction_is_written_reduced() {
        assert_eq!(["384/1056", "8/4", "2/4", "0/7", "5/0"].map(written), ["4/11", "2", "1/2", "0", "0"]);

        fn written(text: &str) -> String {
            let (numerator, denominator) = text.split_once('/').unwrap();
            fraction(numerator.parse().unwrap(), denominator.parse().unwrap()).to_string()
        }
    }

    fn fraction(numerator: u64, denominator: u64) -> Fraction {
        Fraction::new(numerator.into(), denominator.into())
    }
}
