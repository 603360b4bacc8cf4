//! Terms: what an offer names a value for, and which numbers count as integers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::AttrName;

/// Largest integer in any document: 2^53 - 1, the largest every JSON implementation keeps exact (RFC 8785).
pub const INTEGER_MAX: i64 = 9_007_199_254_740_991;
/// Most attributes in an offer's terms.
pub const TERMS_MAX: usize = 32;
/// Longest text of an attribute, in characters.
pub const ATTR_TEXT_LEN_MAX: usize = 256;

/// The value of one attribute: an integer (money in micro-units, durations in milliseconds) or a short text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AttrValue {
    /// An integer within ± [`INTEGER_MAX`].
    Int(i64),
    /// A text of at most [`ATTR_TEXT_LEN_MAX`] characters.
    Text(String),
}

/// An offer's terms. `price`, where present, is an integer number of micro-units of the offer's currency.
pub type Terms = BTreeMap<AttrName, AttrValue>;

/// ISO 4217 currency code, or any three upper-case letters.
pub type Currency = String;

/// Whether the text of a JSON number is exactly an integer: `85000000.0` and `8.5e7` are, `99999999.999999999999` and
/// `1e-400` are not. Nothing is computed but lengths, so neither many digits nor a huge exponent costs anything.
#[must_use]
pub fn is_integer(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || fraction.bytes().rev().chain(whole.bytes().rev()).take_while(|byte| *byte != b'-');
    let trailing_zeros = digits().take_while(|byte| *byte == b'0').count();
    if trailing_zeros == digits().count() {
        return true;
    }
    let shift = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let zeros = i64::try_from(trailing_zeros).unwrap_or(i64::MAX);
    // The last digit that is not 0 stands `shift - zeros` places behind the point.
    power(exponent) >= shift.saturating_sub(zeros)
}

/// The default of a member: `#[serde(default = "number::<_, 3>")]`.
pub(crate) fn number<T: From<u32>, const N: u32>() -> T {
    N.into()
}

/// An exponent, cut where more digits than a document has cannot make up for it.
fn power(text: &str) -> i64 {
    let limit = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    text.parse().unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_known_by_its_digits() {
        let integers = [
            "0",
            "-0",
            "-0.0",
            "0.000",
            "0e5",
            "0e-999999999999999999999",
            "-0E-7",
            "5",
            "5.0",
            "1e0",
            "10e-1",
            "1.50e1",
            "8.5e7",
            "8.5E+7",
            "85000000.0",
            "-1200e-2",
            "9007199254740993",
            "12345678901234567890",
            "1e309",
            "1e99999999999999999999999",
            "0.001e3",
            "100.00e-2",
        ];
        let others = [
            "0.5",
            "1e-1",
            "10e-2",
            "1.5e0",
            "1.50",
            "-0.1",
            "1e-400",
            "1e-99999999999999999999999",
            "99999999.999999999999",
            "1.0000000000000000000001",
            "0.99999999999999999999",
            "9007199254740991.4",
            "100000000000000000000.5",
            "1.23e1",
            "0.0001e3",
        ];
        for text in integers {
            assert!(is_integer(text), "{text}");
        }
        for text in others {
            assert!(!is_integer(text), "{text}");
        }
    }
}
