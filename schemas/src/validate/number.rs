//! Numbers by their decimal text. A double cannot say whether `1.0000000000000000000001` is an integer; its digits can.

use serde_json::Number;

use crate::payload::INTEGER_MAX;

/// From here on every double is an integer.
const DOUBLES_WITH_FRACTION_END: f64 = 4_503_599_627_370_496.0;

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

/// An exponent, cut where more digits than a document has cannot make up for it.
fn power(text: &str) -> i64 {
    let limit = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    text.parse().unwrap_or(limit)
}

/// What stands in a document for a number that is written with a fraction or an exponent, or is too large for 64 bits.
/// An integer within ±(2^53-1) becomes one. What is no integer never becomes one, however close its double comes.
pub(super) fn of_double(value: f64, text: &str) -> Option<Number> {
    if is_integer(text) {
        return integer(value).or_else(|| Number::from_f64(value));
    }
    Number::from_f64(if value.fract() == 0.0 { beside(value) } else { value })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "guarded by the comparison")]
fn integer(value: f64) -> Option<Number> {
    (value.abs() <= INTEGER_MAX as f64).then(|| Number::from(value as i64))
}

/// The nearest double with a fraction.
fn beside(value: f64) -> f64 {
    let value = value.clamp(-DOUBLES_WITH_FRACTION_END, DOUBLES_WITH_FRACTION_END);
    if value > 0.0 { value.next_down() } else { value.next_up() }
}

/// The texts of a document's numbers, in their order. It reads only as far as it is asked.
///
/// It relies on a parser in front of it: as far as that has read, the document is JSON, where a digit or a minus outside of
/// a text begins a number.
#[derive(Debug)]
pub(super) struct Texts<'t> {
    rest: &'t str,
    /// Numbers the parser has read since the last one asked for.
    passed: usize,
}

impl<'t> Texts<'t> {
    pub(super) const fn of(document: &'t str) -> Self {
        Self { rest: document, passed: 0 }
    }

    /// The parser has read a number nobody asks for.
    pub(super) const fn pass(&mut self) {
        self.passed += 1;
    }

    /// The text of the number the parser has just read.
    pub(super) fn current(&mut self) -> Option<&'t str> {
        for _ in 0..std::mem::take(&mut self.passed) {
            self.advance()?;
        }
        self.advance()
    }

    fn advance(&mut self) -> Option<&'t str> {
        let mut bytes = self.rest.bytes().enumerate();
        let mut is_text = false;
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'"' => is_text = !is_text,
                b'\\' if is_text => drop(bytes.next()),
                b'-' | b'0'..=b'9' if !is_text => {
                    let number = &self.rest[at..];
                    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                    let (number, rest) = number.split_at(number.bytes().take_while(|byte| is_part(byte)).count());
                    self.rest = rest;
                    return Some(number);
                }
                _ => {}
            }
        }
        None
    }
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

    #[test]
    fn what_is_no_integer_becomes_none_and_stays_where_it_is() {
        for (text, stands) in [
            ("1e-400", f64::from_bits(1)),
            ("-1e-400", f64::from_bits(1)),
            ("1.0000000000000000000001", 1.0_f64.next_down()),
            ("-1.0000000000000000000001", (-1.0_f64).next_up()),
            ("0.5", 0.5),
            ("100000000000000000000.5", DOUBLES_WITH_FRACTION_END - 0.5),
        ] {
            let number = of_double(text.parse().unwrap(), text).unwrap();
            assert_eq!(number.as_f64(), Some(stands), "{text}");
            assert!(!is_integer(&number.to_string()), "{text}: also when it is written and read again");
        }
    }

    #[test]
    fn texts_are_those_of_numbers_only() {
        let document = r#"{"a 1":[-1.5e-3,"2\"3\\",4],"b":"\\","c":0.25, "é7":true,"d":1E+2}"#;
        let mut texts = Texts::of(document);
        assert_eq!(texts.current(), Some("-1.5e-3"));
        texts.pass();
        assert_eq!(texts.current(), Some("0.25"));
        assert_eq!(texts.current(), Some("1E+2"));
        assert_eq!(texts.current(), None);
    }
}
