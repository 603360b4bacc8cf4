//! Numbers by their decimal text. A double cannot say whether `1.0000000000000000000001` is an integer; its digits can.

use serde_json::Number;

use crate::payload::{INTEGER_MAX, is_integer};

/// From here on every double is an integer.
const DOUBLES_WITH_FRACTION_END: f64 = 4_503_599_627_370_496.0;

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
