//! Numbers as exact reduced fractions (docs/spec/panel-answers.md#pa-5).

use num_bigint::BigUint;

use super::BadAnswer;
use crate::panel::fraction::Fraction;

/// Digits a number may be written with, those of numerator and denominator together.
pub const DIGITS_MAX: usize = 64;
/// The largest exponent of ten, either way.
pub const EXPONENT_MAX: u32 = 64;
/// Digits between two commas.
const THOUSANDS: usize = 3;
/// Digits of an exponent.
const EXPONENT_DIGITS_MAX: usize = 2;

/// The reduced fraction that a number stands for: `-3/4`, or `5` where the denominator is 1.
pub(super) fn key(text: &str) -> Result<String, BadAnswer> {
    let text = text.trim_ascii();
    let (text, hundredth) = text.strip_suffix('%').map_or((text, false), |text| (text, true));
    let (text, is_negative) =
        text.strip_prefix('-').map_or_else(|| (text.strip_prefix('+').unwrap_or(text), false), |text| (text, true));
    if text.bytes().filter(u8::is_ascii_digit).count() > DIGITS_MAX + EXPONENT_DIGITS_MAX {
        return Err(BadAnswer::Number);
    }
    let (numerator, mut denominator) = match text.split_once('/') {
        Some((numerator, denominator)) => ratio(numerator, denominator),
        None => decimal(text),
    }
    .ok_or(BadAnswer::Number)?;
    if hundredth {
        denominator *= 100_u32;
    }
    let sign = if is_negative && numerator != BigUint::ZERO { "-" } else { "" };
    Ok(format!("{sign}{}", Fraction::new(numerator, denominator)))
}

fn ratio(numerator: &str, denominator: &str) -> Option<(BigUint, BigUint)> {
    let (numerator, denominator) = (integer(numerator)?, integer(denominator)?);
    if numerator.len() + denominator.len() > DIGITS_MAX {
        return None;
    }
    let (numerator, denominator) = (value(&numerator)?, value(&denominator)?);
    (denominator != BigUint::ZERO).then_some((numerator, denominator))
}

fn decimal(text: &str) -> Option<(BigUint, BigUint)> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, digits(fraction)?),
        None => (mantissa, ""),
    };
    let mut all = integer(whole)?;
    all.push_str(fraction);
    if all.len() > DIGITS_MAX {
        return None;
    }
    let (mut numerator, mut denominator) = (value(&all)?, power_of_ten(u32::try_from(fraction.len()).ok()?));
    if let Some(exponent) = exponent {
        let (exponent, is_negative) = exponent
            .strip_prefix('-')
            .map_or_else(|| (exponent.strip_prefix('+').unwrap_or(exponent), false), |exponent| (exponent, true));
        let power: u32 = digits(exponent).filter(|digits| digits.len() <= EXPONENT_DIGITS_MAX)?.parse().ok()?;
        if power > EXPONENT_MAX {
            return None;
        }
        *(if is_negative { &mut denominator } else { &mut numerator }) *= power_of_ten(power);
    }
    Some((numerator, denominator))
}

/// The digits of an integer without its commas, which stand before every three digits or nowhere.
fn integer(text: &str) -> Option<String> {
    let mut groups = text.split(',');
    let first = digits(groups.next()?)?;
    let mut all = first.to_owned();
    for group in groups {
        if first.len() > THOUSANDS || group.len() != THOUSANDS {
            return None;
        }
        all.push_str(digits(group)?);
    }
    Some(all)
}

/// One or more digits.
fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

fn value(digits: &str) -> Option<BigUint> {
    BigUint::parse_bytes(digits.as_bytes(), 10)
}

fn power_of_ten(power: u32) -> BigUint {
    BigUint::from(10_u32).pow(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_its_reduced_fraction_however_it_is_written() {
        let half = ["0.5", "1/2", " +0.50 ", "50%", "5e-1", "5E-01", "0.005e+2", "100/2%", "00.5"];
        assert!(half.iter().all(|text| key(text).unwrap() == "1/2"), "{:?}", half.map(key));
        let cases = [
            ("-1,234,567.50", "-2469135/2"),
            ("1,000/3", "1000/3"),
            ("-0", "0"),
            ("-0.0e9", "0"),
            ("7", "7"),
            ("6/3", "2"),
            ("-4/6", "-2/3"),
            ("1e64", &format!("1{}", "0".repeat(64))),
            ("1e-64", &format!("1/1{}", "0".repeat(64))),
        ];
        for (text, fraction) in cases {
            assert_eq!(key(text).as_deref(), Ok(fraction), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_or_too_long_is_refused() {
        let texts = [
            "", "-", "%", "NaN", "inf", "1/0", "0/0", "1/-2", "--1", "1.", ".5", "1.2.3", "1,23", "1234,567", ",123",
            "1,,234", "1.5/2", "1/2/3", "1e", "1e+", "1e65", "1e-65", "1e100", "1e5.5", "0x10", "1 000", "5 %", "5%%",
            "1_000", "1.000,5", "٣", "１",
        ];
        for text in texts {
            assert_eq!(key(text), Err(BadAnswer::Number), "{text}");
        }
        let longest = "9".repeat(DIGITS_MAX);
        assert_eq!(key(&longest).as_deref(), Ok(longest.as_str()));
        assert_eq!(key(&format!("{longest}e-64")).unwrap().len(), DIGITS_MAX + 66);
        for text in [format!("{longest}0"), format!("{longest}.0"), format!("{longest}/3"), "1".repeat(1 << 20)] {
            assert_eq!(key(&text), Err(BadAnswer::Number), "{text:.80}");
        }
    }
}
