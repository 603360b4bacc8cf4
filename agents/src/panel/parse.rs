//! What a model's text says: ratings, an order, an answer. Texts are searched, never obeyed, and each search is linear in
//! their length.
//!
//! Two modes. `panel` reads what a panel takes, and nothing where a text is unclear, so that the model is asked again.
//! `reference` reads as the code of the DyLAN paper does, which makes something of every text.

mod number;

use std::str::FromStr;

use schemas::panel::{AnswerKind, ElementKind, RATING_MAX, RATING_MIN};

use self::number::{with_plain_signs, without_remarks};

/// Where a block of thinking begins and ends, as some models write it.
const THINKING: (&str, &str) = ("<think>", "</think>");
/// After these words stands an answer.
const ANSWER_IS: &str = "the answer is ";
/// What may stand before an answer that is said to be one, and what ends it.
const AROUND: [char; 8] = [' ', '*', '_', '$', '`', '"', '\\', '('];
const CLOSING: [&str; 7] = [")", "\\)", "**", "__", "$", "`", "\""];
const PUNCTUATION: [char; 5] = ['.', ',', ';', ':', '!'];
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

/// What a text says behind its thinking, which may lack its beginning; nothing where the thinking does not end.
#[must_use]
pub fn without_thinking(text: &str) -> &str {
    let text = text.trim();
    let said = match text.strip_prefix(THINKING.0) {
        Some(thought) => thought.split_once(THINKING.1).map_or("", |(_, said)| said),
        None => text.rsplit_once(THINKING.1).map_or(text, |(_, said)| said),
    };
    said.trim()
}

/// The ratings in the last `[[..]]` of a text, one for each of `of` that were to be rated. In `reference` mode never none.
#[must_use]
pub fn ratings(mode: ReadingMode, text: &str, of: usize) -> Option<Vec<u32>> {
    let text = if mode == ReadingMode::Panel { without_thinking(text) } else { text };
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
    let text = without_thinking(text);
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

/// The answer in a text, as a kind of answer is found (docs/spec/panel-answers.md#pa-17); none where there is none, or where
/// the text is unclear. In `reference` mode as the code of the DyLAN paper finds it.
#[must_use]
pub fn answer(mode: ReadingMode, kind: &AnswerKind, text: &str) -> Option<String> {
    match (mode, kind) {
        (ReadingMode::Panel, AnswerKind::Choice { options }) => choice(options, without_thinking(text)),
        (ReadingMode::Panel, AnswerKind::Math) => mathematics(&number::plain(without_thinking(text))),
        (ReadingMode::Panel, AnswerKind::Number) => number::found(without_thinking(text)),
        (ReadingMode::Panel, AnswerKind::Set { of: ElementKind::Number, .. }) => whole(&with_plain_signs(text)),
        (ReadingMode::Reference, AnswerKind::Choice { options }) => in_parentheses(options, text).cloned(),
        (ReadingMode::Reference, AnswerKind::Math) => reference_mathematics(text),
        (ReadingMode::Reference, AnswerKind::Number) => number::last(text).map(str::to_owned),
        (_, AnswerKind::Exact { .. } | AnswerKind::Set { .. } | AnswerKind::Json | AnswerKind::Bleu { .. }) => {
            whole(text)
        }
    }
}

/// A text that is not empty.
fn whole(text: &str) -> Option<String> {
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What stands behind the last "the answer is ".
fn stated(text: &str) -> Option<&str> {
    text.get(text.to_ascii_lowercase().rfind(ANSWER_IS)? + ANSWER_IS.len()..)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Whether an answer ends where this follows it: at a closing mark, at the end of a part of the sentence, or of the line.
fn is_end(behind: &str) -> bool {
    let is_marked = CLOSING.iter().any(|mark| behind.starts_with(mark));
    let behind = behind.trim_start();
    let is_part = behind.strip_prefix(PUNCTUATION).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    is_marked || behind.is_empty() || is_part
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

/// What is said to be the answer, else the last option in parentheses or before a closing one behind these words; without
/// them the last one of all, or the whole text. A sentence that begins with an option and goes on is unclear.
fn choice(options: &[String], text: &str) -> Option<String> {
    let text = with_plain_signs(text);
    let plain: Vec<String> = options.iter().map(|option| with_plain_signs(option)).collect();
    let is_whole = |option: &&String| option.eq_ignore_ascii_case(text.trim());
    let found = match stated(&text) {
        Some(rest) => {
            let line = first_line(rest);
            let line = last_boxed(line).unwrap_or(line).trim_start_matches(AROUND);
            match first_option(&plain, line) {
                Some((option, behind)) => Some(option).filter(|_| is_end(behind)),
                None => in_parentheses(&plain, rest),
            }
        }
        None => in_parentheses(&plain, &text).or_else(|| plain.iter().find(is_whole)),
    }?;
    let place = plain.iter().position(|option| option == found)?;
    options.get(place).cloned()
}

/// The longest option that a text begins with as a word, and what follows it. In another case than the call's it is one only
/// where it ends: "a" may be a word of the sentence.
fn first_option<'o, 't>(options: &'o [String], text: &'t str) -> Option<(&'o String, &'t str)> {
    let begun = options.iter().filter_map(|option| {
        let (said, behind) = text.split_at_checked(option.len())?;
        let is_word = !behind.starts_with(char::is_alphanumeric);
        let is_it = said == option || said.eq_ignore_ascii_case(option) && is_end(behind);
        (!option.is_empty() && is_word && is_it).then_some((option, behind))
    });
    begun.max_by_key(|(option, _)| option.len())
}

/// The last option in parentheses, else the last before a closing one.
fn in_parentheses<'o>(options: &'o [String], text: &str) -> Option<&'o String> {
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
    last(true).or_else(|| last(false))
}

/// What is said to be the answer: of a formula that is followed by words, the formula. Else what is boxed, else the last
/// number that is in no remark.
fn mathematics(text: &str) -> Option<String> {
    let formula = stated(text).and_then(|rest| first_line(rest).trim_start().strip_prefix('$')?.split_once('$'));
    match formula.filter(|(formula, behind)| !formula.trim().is_empty() && !behind.contains('$')) {
        Some((formula, _)) => whole(last_boxed(formula).unwrap_or(formula)),
        None if stated(text).is_none() && last_boxed(text).is_none() => {
            number::last(&without_remarks(text)).and_then(whole)
        }
        None => reference_mathematics(text),
    }
}

fn reference_mathematics(text: &str) -> Option<String> {
    let found = match stated(text).map(first_line) {
        Some(line) => {
            let line = last_boxed(line).unwrap_or(line).trim();
            line.strip_suffix('.').unwrap_or(line).trim_matches('$')
        }
        None => last_boxed(text).or_else(|| number::last(text))?,
    };
    whole(found)
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

#[cfg(test)]
mod tests;
