//! Amounts of money as people write them.

use schemas::payload::INTEGER_MAX;

/// Decimal places of an amount: micro-units.
const PLACES: usize = 6;

/// An amount in units, such as `90` or `89.50`, in micro-units: exactly, or not at all.
pub fn micros(text: &str) -> Result<i64, String> {
    let expected = || {
        format!(
            "an amount such as 90 or 89.50 is expected: at most {PLACES} decimals, at most {}",
            INTEGER_MAX / 1_000_000
        )
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > PLACES {
        return Err(expected());
    }
    let micros: i64 = format!("{whole}{decimals:0<PLACES$}").parse().map_err(|_| expected())?;
    if micros <= INTEGER_MAX { Ok(micros) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_exactly_or_refused() {
        for (text, amount) in
            [("90", 90_000_000), ("89.50", 89_500_000), ("0", 0), ("0.000001", 1), ("9007199254.740991", INTEGER_MAX)]
        {
            assert_eq!(micros(text), Ok(amount), "{text}");
        }
        for bad in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", "0.0000001", "9007199254.740992", "９", "1.2.3", "x"]
        {
            assert!(micros(bad).is_err(), "{bad}");
        }
    }
}
