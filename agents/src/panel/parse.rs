//! What a model's text says: ratings, an order, an answer. Texts are searched, never obeyed, and each search is linear in
//! their length.
//!
//! Two modes. `panel` reads what a panel takes, and nothing where a text is unclear, so that the model is asked again.
//! `reference` reads as the code of the DyLAN paper does, which makes something of every text.

use std::str::FromStr;

use schemas::panel::{AnswerKind, RATING_MAX, RATING_MIN};

/// After these words stands an answer.
const ANSWER_IS: &str = "the answer is ";
/// LaTeX around an answer.
const BOXED: &str = "boxed{";

/// How texts are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadingMode {
    /// As panels take them.
    #[default]
    Panel,
    /// As the code of the DyLAN paper does.
    Reference,
}

impl FromStr for ReadingMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "panel" => Ok(Self::Panel),
            "reference" => Ok(Self::Reference),
            _ => Err("`panel` or `reference` is expected".to_owned()),
        }
    }
}

/// The ratings in the last `[[..]]` of a text, one for each of `of` that were to be rated. In `reference` mode never none.
#[must_use]
pub fn ratings(mode: ReadingMode, text: &str, of: usize) -> Option<Vec<u32>> {
    ratings_inside(mode, last_in_double_brackets(text), of)
}

/// The ratings of what stands inside of the brackets, where there are any.
///
/// `panel`: one integer for each, those below 1 or above 5 taken for the nearest. `reference`: what is no integer is 0,
/// what is above 5 is 5, and another number of them than asked for is as many zeros.
#[must_use]
pub fn ratings_inside(mode: ReadingMode, inside: Option<&str>, of: usize) -> Option<Vec<u32>> {
    let items: Vec<Option<i64>> = inside.map(|inside| inside.split(',').map(integer).collect()).unwrap_or_default();
    let within = |item: i64, least: u32| {
        u32::try_from(item.clamp(i64::from(least), i64::from(RATING_MAX))).unwrap_or(RATING_MAX)
    };
    match mode {
        ReadingMode::Panel => {
            let rated = items.into_iter().map(|item| item.map(|item| within(item, RATING_MIN)));
            rated.collect::<Option<Vec<u32>>>().filter(|ratings| ratings.len() == of)
        }
        ReadingMode::Reference if items.len() == of => {
            Some(items.into_iter().map(|item| within(item.unwrap_or(0), 0)).collect())
        }
        ReadingMode::Reference => Some(vec![0; of]),
    }
}

/// The places in the last bracketed list of integers, each once, none beyond 1 to `of`, at most `keep`; none where nothing is
/// left.
#[must_use]
pub fn order(text: &str, of: usize, keep: usize) -> Option<Vec<u32>> {
    let list = |inside: &str| inside.split(',').map(integer).collect::<Option<Vec<i64>>>();
    let places = text.rmatch_indices('[').find_map(|(open, _)| {
        let inside = text.get(open + 1..)?;
        let end = inside.find(['[', ']']).filter(|end| inside[*end..].starts_with(']'))?;
        list(&inside[..end])
    })?;
    let mut order = Vec::new();
    for place in places {
        let place = u32::try_from(place).ok().filter(|place| *place >= 1 && *place as usize <= of);
        if let Some(place) = place.filter(|place| !order.contains(place) && order.len() < keep) {
            order.push(place);
        }
    }
    (!order.is_empty()).then_some(order)
}

/// The answer in a text, as a kind of answer is found; none where there is none.
///
/// Of options the last in parentheses, else the last before a closing one; in `panel` mode also a text that is an option
/// and nothing else. In mathematics what follows the last "the answer is " on its line, else what the last `boxed{..}`
/// holds, else the last number. A number is the last one. Of other kinds the text itself.
#[must_use]
pub fn answer(mode: ReadingMode, kind: &AnswerKind, text: &str) -> Option<String> {
    match kind {
        AnswerKind::Choice { options } => choice(mode, options, text),
        AnswerKind::Math => mathematics(text),
        AnswerKind::Number => last_number(text).map(str::to_owned),
        AnswerKind::Exact { .. } | AnswerKind::Set { .. } | AnswerKind::Json | AnswerKind::Bleu { .. } => {
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        }
    }
}

/// What the last `[[..]]` holds, all of it on one line.
fn last_in_double_brackets(text: &str) -> Option<&str> {
    let mut last = None;
    for line in text.split('\n') {
        let mut rest = line;
        while let Some((_, opened)) = rest.split_once("[[") {
            let Some((inside, behind)) = opened.split_once("]]") else { break };
            (last, rest) = (Some(inside), behind);
        }
    }
    last
}

/// A decimal integer with or without a sign, blanks around it; beyond 64 bits the nearest of those.
fn integer(text: &str) -> Option<i64> {
    let text = text.trim_ascii();
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
    let add = |sum: i64, byte: u8| digit(byte).map(|digit| sum.saturating_mul(10).saturating_add(digit));
    let size = digits.bytes().try_fold(0, add).filter(|_| !digits.is_empty())?;
    Some(if is_negative { -size } else { size })
}

fn choice(mode: ReadingMode, options: &[String], text: &str) -> Option<String> {
    let ends_with = |text: &str, option: &str| {
        let start = text.len().checked_sub(option.len())?;
        text.get(start..).filter(|end| end.eq_ignore_ascii_case(option)).map(|_| start)
    };
    let last = |is_opened: bool| {
        text.rmatch_indices(')').find_map(|(end, _)| {
            let before = &text[..end];
            let fits = |option: &&String| {
                ends_with(before, option).is_some_and(|start| !is_opened || before[..start].ends_with('('))
            };
            options.iter().filter(fits).max_by_key(|option| option.len())
        })
    };
    let whole = || {
        let is_whole = |option: &&String| mode == ReadingMode::Panel && option.eq_ignore_ascii_case(text.trim());
        options.iter().find(is_whole)
    };
    last(true).or_else(|| last(false)).or_else(whole).cloned()
}

fn mathematics(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let found = match lower.rfind(ANSWER_IS) {
        Some(start) => {
            let line = text[start + ANSWER_IS.len()..].lines().next().unwrap_or_default();
            let line = last_boxed(line).unwrap_or(line).trim();
            line.strip_suffix('.').unwrap_or(line).trim_matches('$')
        }
        None => last_boxed(text).or_else(|| last_number(text))?,
    };
    Some(found.trim().to_owned()).filter(|found| !found.is_empty())
}

/// What stands between `boxed{` and the brace that closes it.
fn last_boxed(text: &str) -> Option<&str> {
    let inside = &text[text.rfind(BOXED)? + BOXED.len()..];
    let mut depth = 1_usize;
    let end = inside.char_indices().find(|(_, letter)| {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map(|(end, _)| &inside[..end])
}

/// The last number: `-1,234.5e-6%` and `3/4` are one each.
fn last_number(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let is_digit = |place: usize| bytes.get(place).is_some_and(u8::is_ascii_digit);
    let is = |place: usize, letters: &[u8]| bytes.get(place).is_some_and(|byte| letters.contains(byte));
    let digits = |mut place: usize| {
        while is_digit(place) || is(place, b",") && is_digit(place + 1) {
            place += 1;
        }
        place
    };
    let (mut last, mut place) = (None, 0);
    while place < bytes.len() {
        if !is_digit(place) {
            place += 1;
            continue;
        }
        let is_word = |place: usize| bytes.get(place).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b')');
        let is_signed = place > 0 && is(place - 1, b"+-") && !(place > 1 && is_word(place - 2));
        let start = if is_signed { place - 1 } else { place };
        place = digits(place);
        if is(place, b".") && is_digit(place + 1) {
            place = digits(place + 1);
        }
        let exponent = place + 1 + usize::from(is(place + 1, b"+-"));
        if is(place, b"eE") && is_digit(exponent) {
            place = digits(exponent);
        } else if is(place, b"/") && is_digit(place + 1) {
            place = digits(place + 1);
        }
        place += usize::from(is(place, b"%"));
        last = text.get(start..place);
    }
    last
}

#[cfg(test)]
mod tests;
