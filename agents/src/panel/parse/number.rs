//! Numbers as models write them.

use super::{AROUND, first_line, is_end, last_boxed, stated};

/// Hyphens, dashes and minus signs that are a `-`.
const MINUS: [char; 7] = ['\u{2212}', '\u{2010}', '\u{2011}', '\u{2012}', '\u{2013}', '\u{fe63}', '\u{ff0d}'];
/// Words that are the sign of a number behind them.
const MINUS_WORDS: [&str; 2] = ["minus ", "negative "];
/// What may stand between groups of three digits.
const GROUP_BLANKS: [char; 5] = [' ', '\u{a0}', '\u{2007}', '\u{2009}', '\u{202f}'];
/// Digits between two blanks.
const GROUP_DIGITS: usize = 3;
/// What stands before a number that is part of a formula, so that its value is another one.
const FORMULA: [&str; 8] = ["^", "_", "^{", "_{", "}{", "frac{", "\\sqrt", "\\sqrt{"];

/// The number that a text comes to: what is said to be the answer, else the last one boxed, else the last one. None where it is
/// part of a formula or of a mixed number.
pub(super) fn found(text: &str) -> Option<String> {
    let latex = text.replace("\\%", "%").replace("{,}", ",").replace("\\,", "\u{2009}").replace("\\!", "");
    let text = with_ratios(&plain(&latex));
    let line = stated(&text).map(|rest| first_line(rest).trim_start_matches(AROUND));
    if let Some((number, behind)) = line.and_then(first)
        && is_end(behind)
    {
        return Some(number.to_owned());
    }
    let text = without_remarks(last_boxed(&text).filter(|boxed| last(boxed).is_some()).unwrap_or(&text));
    let number = last(&text)?;
    let before = text.get(..text.rfind(number)?)?;
    let is_mixed = number.contains('/') && before.trim_end().ends_with(|letter: char| letter.is_ascii_digit());
    let is_part = FORMULA.iter().any(|formula| before.ends_with(formula));
    (!is_mixed && !is_part).then(|| number.to_owned())
}

/// The text with every minus sign as `-`.
pub(super) fn with_plain_signs(text: &str) -> String {
    text.replace(MINUS, "-")
}

/// The text with minus signs and `minus 5` as `-`, and without blanks between groups of three digits.
pub(super) fn plain(text: &str) -> String {
    let text = with_plain_signs(text);
    let lower = text.to_ascii_lowercase();
    let mut signed = String::with_capacity(text.len());
    let mut read = 0;
    for (place, _) in lower.match_indices(['m', 'n']).filter(|(place, _)| is_sign_word(&lower, *place)) {
        signed.push_str(text.get(read..place).unwrap_or_default());
        signed.push('-');
        let behind = lower[place..].trim_start_matches(char::is_alphabetic).trim_start_matches([' ', '$']);
        read = lower.len() - behind.len();
    }
    signed.push_str(text.get(read..).unwrap_or_default());
    without_group_blanks(&signed)
}

/// Whether a word here is the sign of the number behind it: not between two numbers, and no end of a word.
fn is_sign_word(lower: &str, place: usize) -> bool {
    let (before, word) = lower.split_at(place);
    let is_before_number = MINUS_WORDS.iter().any(|minus| {
        let behind = word.strip_prefix(minus).map(|behind| behind.trim_start_matches([' ', '$']));
        behind.is_some_and(|behind| behind.starts_with(|letter: char| letter.is_ascii_digit() || letter == '\\'))
    });
    is_before_number
        && !before.ends_with(char::is_alphanumeric)
        && !before.trim_end_matches(' ').ends_with(|letter: char| letter.is_ascii_digit() || letter == ')')
}

fn without_group_blanks(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    // Digits read in a row; of the decimals of a number as many as no group has.
    let mut digits = 0;
    for (place, letter) in text.char_indices() {
        let behind = &text[place + letter.len_utf8()..];
        if letter.is_ascii_digit() {
            digits += 1;
        } else if GROUP_BLANKS.contains(&letter) && (1..=GROUP_DIGITS).contains(&digits) && is_group(behind) {
            digits = 0;
            continue;
        } else {
            digits = if matches!(letter, '.' | ',') { GROUP_DIGITS + 1 } else { 0 };
        }
        joined.push(letter);
    }
    joined
}

fn is_group(text: &str) -> bool {
    let digits = text.bytes().take(GROUP_DIGITS + 1).take_while(u8::is_ascii_digit).count();
    digits == GROUP_DIGITS
}

/// The text with fractions of two integers in LaTeX as `1/2`.
fn with_ratios(text: &str) -> String {
    let text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac");
    let mut parts = text.split("\\frac");
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ratio = operand(part).and_then(|(numerator, rest)| Some((numerator, operand(rest)?)));
        match ratio {
            Some((numerator, (denominator, rest))) => {
                // A mixed number stays one.
                let mixed = if written.ends_with(|letter: char| letter.is_ascii_digit()) { " " } else { "" };
                written.extend([mixed, numerator, "/", denominator, rest]);
            }
            None => written.extend(["\\frac", part]),
        }
    }
    written
}

/// An integer in braces, or one digit, and what follows.
fn operand(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let (operand, rest) = match text.strip_prefix('{') {
        Some(opened) => opened.split_once('}')?,
        None => text.split_at_checked(1)?,
    };
    let operand = operand.trim();
    let digits = operand.strip_prefix('-').unwrap_or(operand);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some((operand, rest))
}

/// The text without what stands in parentheses behind a number and has words: `-3 (see step 2)`.
pub(super) fn without_remarks(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, opened)) = rest.split_once('(') {
        kept.push_str(before);
        let inside =
            opened.find(['(', ')']).and_then(|end| Some((opened.get(..end)?, opened[end..].strip_prefix(')')?)));
        let number = kept.trim_end_matches([' ', '$', '*', '}', '.']);
        let is_behind_number = number.ends_with(|letter: char| letter.is_ascii_digit() || letter == '%');
        match inside.filter(|(remark, _)| is_behind_number && remark.contains(char::is_alphabetic)) {
            Some((_, behind)) => {
                kept.truncate(number.len());
                kept.push(' ');
                rest = behind;
            }
            None => {
                kept.push('(');
                rest = opened;
            }
        }
    }
    kept.push_str(rest);
    kept
}

/// The number that a text begins with, and what follows it.
fn first(text: &str) -> Option<(&str, &str)> {
    let digits = usize::from(text.starts_with(['+', '-']));
    let is_number = text.as_bytes().get(digits).is_some_and(u8::is_ascii_digit);
    is_number.then(|| text.split_at_checked(end(text.as_bytes(), digits))).flatten()
}

/// The last number: `-1,234.5e-6%` and `3/4` are one each.
pub(super) fn last(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let (mut last, mut place) = (None, 0);
    while place < bytes.len() {
        if !bytes.get(place).is_some_and(u8::is_ascii_digit) {
            place += 1;
            continue;
        }
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b')';
        let (before, behind) = (place.checked_sub(1), place.checked_sub(2).and_then(|place| bytes.get(place)));
        let sign = before.filter(|sign| matches!(bytes.get(*sign), Some(b'+' | b'-')) && !behind.is_some_and(is_word));
        let start = sign.unwrap_or(place);
        place = end(bytes, place);
        last = text.get(start..place);
    }
    last
}

/// Where the number ends whose digits begin here.
fn end(bytes: &[u8], start: usize) -> usize {
    let is_digit = |place: usize| bytes.get(place).is_some_and(u8::is_ascii_digit);
    let is = |place: usize, letters: &[u8]| bytes.get(place).is_some_and(|byte| letters.contains(byte));
    let digits = |mut place: usize| {
        while is_digit(place) || is(place, b",") && is_digit(place + 1) {
            place += 1;
        }
        place
    };
    let mut place = digits(start);
    if is(place, b".") && is_digit(place + 1) {
        place = digits(place + 1);
    }
    let exponent = place + 1 + usize::from(is(place + 1, b"+-"));
    if is(place, b"eE") && is_digit(exponent) {
        place = digits(exponent);
    } else if is(place, b"/") && is_digit(place + 1) {
        place = digits(place + 1);
    }
    place + usize::from(is(place, b"%"))
}
