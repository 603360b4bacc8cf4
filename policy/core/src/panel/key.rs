//! When two answers are the same one (docs/spec/panel-answers.md#pa-1): a key is computed from each, and equal keys agree.
//! Answers compared by BLEU have no such key: each pair is compared.
//!
//! ASCII only, no floating point: two builds with other Unicode tables compute the same keys.

mod json;
mod math;
mod number;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use schemas::panel::{AnswerKind, ElementKind};
use serde_json::Value;

pub use self::json::DEPTH_MAX;
pub use self::number::{DIGITS_MAX, EXPONENT_MAX};
use super::bleu::{self, Tokens};

/// Elements of a set that are not empty, repeated ones counted each time.
pub const ELEMENTS_MAX: usize = 64;

/// An answer as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerKey {
    /// Equal texts agree.
    Text(Arc<str>),
    /// Compared by BLEU.
    Tokens(Box<Tokens>),
}

impl AnswerKey {
    /// The key as a text; of an answer compared by BLEU its tokens, with a blank between two.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Tokens(tokens) => tokens.text(),
        }
    }
}

/// Why a text is no answer of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// None of the options.
    #[error("none of the options")]
    Option,
    /// Not a number, or one beyond [`DIGITS_MAX`] digits or an exponent of [`EXPONENT_MAX`].
    #[error("no number of at most {DIGITS_MAX} digits and an exponent within {EXPONENT_MAX}")]
    Number,
    /// Not JSON, a number that is no integer within 2^53 - 1, a member twice, or nested deeper than [`DEPTH_MAX`].
    #[error(
        "no JSON whose numbers are integers within 2^53 - 1, whose members stand once, at most {DEPTH_MAX} levels deep"
    )]
    Json,
    /// More than [`ELEMENTS_MAX`] elements.
    #[error("more than {ELEMENTS_MAX} elements")]
    Elements,
    /// More than [`bleu::TOKENS_MAX`] tokens.
    #[error("more than {} tokens", bleu::TOKENS_MAX)]
    Tokens,
}

/// The key of an answer.
///
/// # Errors
/// [`BadAnswer`] when the text is no answer of the kind.
pub fn key(kind: &AnswerKind, text: &str) -> Result<AnswerKey, BadAnswer> {
    if let AnswerKind::Bleu { .. } = kind {
        return Ok(AnswerKey::Tokens(Box::new(Tokens::try_new(text)?)));
    }
    Ok(AnswerKey::Text(Arc::from(key_text(kind, text)?)))
}

/// The key of an answer as a text, as [`AnswerKey::text`] says it; of the kind `bleu` no n-grams are counted for it.
///
/// # Errors
/// As [`key`].
pub fn key_text<'t>(kind: &'t AnswerKind, text: &'t str) -> Result<Cow<'t, str>, BadAnswer> {
    Ok(match kind {
        AnswerKind::Exact { ignore_case } => exact(text, *ignore_case),
        AnswerKind::Choice { options } => choice(text, options)?.into(),
        AnswerKind::Number => number::key(text)?.into(),
        AnswerKind::Math => math::key(text).into(),
        AnswerKind::Set { of, separator } => set(text, *of, separator)?.into(),
        AnswerKind::Json => json::key(text)?.into(),
        AnswerKind::Bleu { .. } => bleu::token_text(text)?.into(),
    })
}

/// Whether two answers of a kind are the same one. What stands in for "no answer" agrees with nothing: it has no key.
#[must_use]
pub fn agrees(kind: &AnswerKind, one: &AnswerKey, other: &AnswerKey) -> bool {
    match (kind, one, other) {
        (AnswerKind::Bleu { at_least_permille }, AnswerKey::Tokens(one), AnswerKey::Tokens(other)) => {
            bleu::is_alike(one, other, *at_least_permille)
        }
        _ => one == other,
    }
}

/// Without white space around it, one blank for each run of it. Most texts are so already, and are not copied.
fn exact(text: &str, ignore_case: bool) -> Cow<'_, str> {
    let text = if is_single_spaced(text.as_bytes()) {
        Cow::Borrowed(text)
    } else {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        Cow::Owned(words.join(" "))
    };
    if ignore_case && text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        text
    }
}

/// Whether the only white space is single blanks, none of them first or last.
fn is_single_spaced(text: &[u8]) -> bool {
    // Without a way out of the loops, several bytes are compared at once.
    let is_other = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r');
    let has_other = text.iter().fold(false, |found, byte| found | is_other(byte));
    let pairs = text.iter().zip(text.get(1..).unwrap_or_default());
    let has_run = pairs.fold(false, |found, (one, next)| found | (*one == b' ' && *next == b' '));
    !has_other && !has_run && text.first() != Some(&b' ') && text.last() != Some(&b' ')
}

/// The option that is equal to it, else the first that is but for a pair of parentheses.
fn choice<'o>(text: &str, options: &'o [String]) -> Result<&'o str, BadAnswer> {
    let equal = |form: fn(&str) -> &str| options.iter().find(|option| form(option).eq_ignore_ascii_case(form(text)));
    equal(str::trim_ascii).or_else(|| equal(without_parentheses)).map(String::as_str).ok_or(BadAnswer::Option)
}

fn without_parentheses(text: &str) -> &str {
    let text = text.trim_ascii();
    text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).map_or(text, str::trim_ascii)
}

/// The keys of the elements, sorted, each once, as a JSON array of texts.
fn set(text: &str, of: ElementKind, separator: &str) -> Result<String, BadAnswer> {
    let mut elements = BTreeSet::new();
    let parts = if separator.is_empty() { vec![text] } else { text.split(separator).collect() };
    let mut count = 0;
    for part in parts.into_iter().map(str::trim_ascii).filter(|part| !part.is_empty()) {
        count += 1;
        if count > ELEMENTS_MAX {
            return Err(BadAnswer::Elements);
        }
        elements.insert(match of {
            ElementKind::Exact => exact(part, false).into_owned(),
            ElementKind::Number => number::key(part)?,
        });
    }
    Ok(Value::from_iter(elements).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_answers_differ_by_more_than_white_space() {
        let exact = AnswerKind::Exact { ignore_case: false };
        assert_eq!(text(&exact, " a \t\r\n b\u{c} "), "a b");
        assert_ne!(text(&exact, "A"), text(&exact, "a"));
        assert_ne!(text(&exact, "a\u{a0}b"), text(&exact, "a b"));
        let any_case = AnswerKind::Exact { ignore_case: true };
        assert_eq!(text(&any_case, "Straße É"), "straße É");
        assert_eq!(text(&any_case, ""), "");
    }

    #[test]
    fn a_text_whose_white_space_is_single_blanks_within_is_its_own_key() {
        for plain in ["", "a", "a b", "a b c", "a\u{b}b", "a\u{a0}\u{a0}b", "É é"] {
            assert!(matches!(exact(plain, false), Cow::Borrowed(same) if same == plain), "{plain:?}");
        }
        for (spaced, plain) in [
            (" ", ""),
            (" a", "a"),
            ("a ", "a"),
            ("a  b", "a b"),
            ("a\tb", "a b"),
            ("a\n", "a"),
            ("a\u{c}b", "a b"),
            ("\r", ""),
        ] {
            assert_eq!(exact(spaced, false), plain, "{spaced:?}");
        }
        assert!(matches!(exact("a b", true), Cow::Borrowed(_)));
        assert_eq!(exact("a B", true), "a b");
    }

    #[test]
    fn a_choice_is_the_option_but_for_case_blanks_and_parentheses() {
        let choice = AnswerKind::Choice { options: ["A", "(b)", "per cent"].map(str::to_owned).to_vec() };
        for (answer, option) in [
            ("A", "A"),
            (" (a) ", "A"),
            ("( A )", "A"),
            ("B", "(b)"),
            ("(B)", "(b)"),
            ("PER CENT", "per cent"),
            ("(per cent)", "per cent"),
        ] {
            assert_eq!(text(&choice, answer), option);
        }
        for answer in ["", "C", "((A))", "(A", "A)", "A B", "()", "A.", "per  cent"] {
            assert_eq!(key(&choice, answer), Err(BadAnswer::Option), "{answer}");
        }
        let close = AnswerKind::Choice { options: ["A", "(A)"].map(str::to_owned).to_vec() };
        assert_eq!([text(&close, "a"), text(&close, "(a)")], ["A", "(A)"]);
    }

    #[test]
    fn sets_are_equal_whatever_the_order_and_however_often_an_element_stands() {
        let exact = AnswerKind::Set { of: ElementKind::Exact, separator: ",".to_owned() };
        assert_eq!(text(&exact, " b, a,,b , a  c "), r#"["a","a c","b"]"#);
        assert_eq!(text(&exact, " , "), "[]");
        assert_ne!(text(&exact, r#"a","b"#), text(&exact, "a,b"));
        let numbers = AnswerKind::Set { of: ElementKind::Number, separator: " and ".to_owned() };
        assert_eq!(text(&numbers, "0.5 and 2 and 1/2"), r#"["1/2","2"]"#);
        assert_eq!(key(&numbers, "1 and x"), Err(BadAnswer::Number));
        let many = |count: usize| vec!["1"; count].join(",");
        assert_eq!(text(&exact, &many(ELEMENTS_MAX)), r#"["1"]"#);
        assert_eq!(key(&exact, &many(ELEMENTS_MAX + 1)), Err(BadAnswer::Elements));
    }

    #[test]
    fn equal_keys_agree_and_others_do_not() {
        let key = |text: &str| key(&AnswerKind::Number, text).unwrap();
        assert!(agrees(&AnswerKind::Number, &key("1/2"), &key("0.5")));
        assert!(!agrees(&AnswerKind::Number, &key("1/2"), &key("0.51")));
    }

    fn text(kind: &AnswerKind, answer: &str) -> String {
        key(kind, answer).unwrap().text().to_owned()
    }
}
