//! Sentence BLEU, decided in integers (docs/spec/panel-answers.md#pa-9): whether one text reaches a bound against another,
//! not by how much. Tokens are those of sacreBLEU's `13a`; where it agrees, `sentence_bleu(lowercase=True)` does.
//!
//! The counts of an answer are computed once, and again after a restart. A pair costs one pass over both texts' n-grams: clipped
//! matches are the same in both directions.

use num_bigint::BigUint;

use super::key::BadAnswer;

/// Most tokens of a text.
pub const TOKENS_MAX: usize = 2048;
/// N-grams of 1 to this many tokens are compared.
const ORDERS: usize = 4;
/// Bits of a token's number within an n-gram; 2^16 is beyond [`TOKENS_MAX`].
const TOKEN_BITS: usize = 16;
const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;
const PERMILLE: u32 = 1000;
/// Binary places of [`exponential`].
const PLACES: u32 = 96;
/// What is nearer to the bound than 2^-64 counts as below it; in units of 2^-[`PLACES`].
const TOO_NEAR: u128 = 1 << (PLACES - 64);
/// A text shorter by more than this part of itself is below every bound from 850 thousandths on: e^(-1/6) < 0.847.
const SHORTER_BY_A: usize = 6;

/// A text as BLEU compares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    text: String,
    len: usize,
    /// Each token once, ascending, as a range of `text`. A token's number is its place here.
    vocabulary: Vec<(usize, usize)>,
    /// By order: the n-grams ascending, and how often each stands. The order is that of their texts, token by token.
    counts: [Vec<(u64, u32)>; ORDERS],
}

impl Tokens {
    /// Tokens of a text and their n-grams.
    ///
    /// # Errors
    /// [`BadAnswer::Tokens`] beyond [`TOKENS_MAX`] tokens.
    pub fn try_new(text: &str) -> Result<Self, BadAnswer> {
        #[cfg(test)]
        KEYS.with(|keys| keys.set(keys.get() + 1));
        let separated = separated(text);
        let tokens = tokens_of(&separated)?;
        let (numbers, words) = numbered(&tokens);
        let counts = counts(&numbers);
        let mut vocabulary = vec![(0, 0); words];
        let mut start = 0;
        for (token, number) in tokens.iter().zip(&numbers) {
            if let Some(place) = usize::try_from(*number).ok().and_then(|number| vocabulary.get_mut(number)) {
                *place = (start, start + token.len());
            }
            start += token.len() + 1;
        }
        Ok(Self { text: tokens.join(" "), len: tokens.len(), vocabulary, counts })
    }

    /// The tokens, a blank between two.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.vocabulary.iter().map(|(start, end)| &self.text[*start..*end])
    }

    /// For each of its token numbers the other's number of the same token. Ascending, since both count in one order.
    fn numbers_in(&self, other: &Self) -> Vec<Option<u64>> {
        let mut others = (0..).zip(other.words()).peekable();
        let mut number_of = |word: &str| {
            while others.next_if(|(_, theirs)| *theirs < word).is_some() {}
            others.next_if(|(_, theirs)| *theirs == word).map(|(number, _)| number)
        };
        self.words().map(&mut number_of).collect()
    }

    /// By order: n-grams that stand in both, as often as in that which has fewer.
    fn matches(&self, other: &Self) -> [u64; ORDERS] {
        let numbers = self.numbers_in(other);
        std::array::from_fn(|order| {
            let mut others = other.counts[order].iter().peekable();
            let mut matches = 0;
            for (gram, count) in &self.counts[order] {
                let Some(gram) = renumbered(*gram, order + 1, &numbers) else { continue };
                while others.next_if(|(theirs, _)| *theirs < gram).is_some() {}
                if let Some((_, theirs)) = others.next_if(|(theirs, _)| *theirs == gram) {
                    matches += u64::from(*count.min(theirs));
                }
            }
            matches
        })
    }
}

/// The tokens of a text, a blank between two: [`Tokens::text`] without counting n-grams.
///
/// # Errors
/// As [`Tokens::try_new`].
pub fn token_text(text: &str) -> Result<String, BadAnswer> {
    Ok(tokens_of(&separated(text))?.join(" "))
}

fn tokens_of(separated: &str) -> Result<Vec<&str>, BadAnswer> {
    let tokens: Vec<&str> = separated.split_ascii_whitespace().take(TOKENS_MAX + 1).collect();
    if tokens.len() > TOKENS_MAX { Err(BadAnswer::Tokens) } else { Ok(tokens) }
}

/// Whether BLEU reaches the bound in both directions. A text without tokens is like none.
#[must_use]
pub fn is_alike(one: &Tokens, other: &Tokens, at_least_permille: u32) -> bool {
    #[cfg(test)]
    PAIRS.with(|pairs| pairs.set(pairs.get() + 1));
    let (shorter, longer) = (one.len.min(other.len), one.len.max(other.len));
    if shorter == 0 || (longer - shorter) * SHORTER_BY_A > shorter {
        return false;
    }
    let matches = one.matches(other);
    reaches(one.len, other.len, &matches, at_least_permille) && reaches(other.len, one.len, &matches, at_least_permille)
}

/// Whether a hypothesis of so many tokens reaches the bound against a reference of so many.
fn reaches(hypothesis: usize, reference: usize, matches: &[u64; ORDERS], at_least_permille: u32) -> bool {
    let orders = hypothesis.min(ORDERS);
    let (mut left, mut right) = (1_u128, 1_u128);
    for (order, matched) in matches.iter().enumerate().take(orders) {
        left *= u128::from(PERMILLE) * u128::from(*matched);
        right *= u128::from(at_least_permille) * (hypothesis - order) as u128;
    }
    if left == 0 || hypothesis >= reference {
        return left != 0 && left >= right;
    }
    let penalty = exponential((orders * (reference - hypothesis)) as u128, hypothesis as u128);
    BigUint::from(left) * BigUint::from(penalty.saturating_sub(TOO_NEAR)) > BigUint::from(right) << PLACES
}

/// e^(-numerator/denominator) in units of 2^-[`PLACES`], within 2^-80, of a quotient of at most 1: the alternating series.
fn exponential(numerator: u128, denominator: u128) -> u128 {
    let (mut sum, mut term, mut divisor) = (0, 1 << PLACES, denominator);
    while term > 0 {
        sum += term;
        term = term * numerator / divisor;
        divisor += denominator;
        sum -= term;
        term = term * numerator / divisor;
        divisor += denominator;
    }
    sum
}

/// Of each token its place among the different ones, ascending; and how many those are.
fn numbered(tokens: &[&str]) -> (Vec<u64>, usize) {
    let mut sorted: Vec<(u64, &str, usize)> =
        tokens.iter().zip(0..).map(|(token, place)| (beginning(token), *token, place)).collect();
    sorted.sort_unstable();
    let (mut numbers, mut words) = (vec![0; tokens.len()], 0);
    for alike in sorted.chunk_by(|one, other| one.1 == other.1) {
        for (_, _, place) in alike {
            if let Some(number) = numbers.get_mut(*place) {
                *number = words as u64;
            }
        }
        words += 1;
    }
    (numbers, words)
}

/// The first bytes of a token: where they differ, tokens are in their order.
fn beginning(token: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(token.bytes()).for_each(|(byte, of_token)| *byte = of_token);
    u64::from_be_bytes(bytes)
}

/// By order: the n-grams ascending, and how often each stands. The longest are sorted, those that the text is too short for
/// among them; the others are their beginnings, in the same order.
fn counts(numbers: &[u64]) -> [Vec<(u64, u32)>; ORDERS] {
    // Counted from 1, so that 0 is behind the end.
    let number = |place: usize| numbers.get(place).map_or(0, |number| number + 1);
    let longest = |first: usize| (0..ORDERS).fold(0, |packed, place| packed << TOKEN_BITS | number(first + place));
    let mut grams: Vec<u64> = (0..numbers.len()).map(longest).collect();
    grams.sort_unstable();
    std::array::from_fn(|order| {
        let from_one = (0..=order).fold(0, |packed, _| packed << TOKEN_BITS | 1);
        let mut counts: Vec<(u64, u32)> = Vec::new();
        for gram in grams.iter().map(|gram| gram >> ((ORDERS - 1 - order) * TOKEN_BITS)) {
            match counts.last_mut() {
                _ if gram & TOKEN_MASK == 0 => {}
                Some((last, count)) if *last == gram - from_one => *count += 1,
                _ => counts.push((gram - from_one, 1)),
            }
        }
        counts
    })
}

/// The n-gram in the other's numbers; nothing when the other lacks one of its tokens.
fn renumbered(gram: u64, order: usize, numbers: &[Option<u64>]) -> Option<u64> {
    let mut packed = 0;
    for place in (0..order).rev() {
        let number = usize::try_from(gram >> (place * TOKEN_BITS) & TOKEN_MASK).ok()?;
        packed = packed << TOKEN_BITS | numbers.get(number).copied().flatten()?;
    }
    Some(packed)
}

/// The text in ASCII lower case with blanks between its tokens, as sacreBLEU's `13a` separates them.
fn separated(text: &str) -> String {
    let mut text = text.trim_ascii_end().to_ascii_lowercase();
    for (from, to) in
        [("<skipped>", ""), ("-\n", ""), ("\n", " "), ("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")]
    {
        if text.contains(from) {
            text = text.replace(from, to);
        }
    }
    let mut spaced = String::with_capacity(2 * text.len());
    spaced.push(' ');
    for letter in text.chars() {
        if letter == ' ' || letter.is_ascii_punctuation() && !matches!(letter, '\'' | ',' | '-' | '.') {
            spaced.extend([' ', letter, ' ']);
        } else {
            spaced.push(letter);
        }
    }
    spaced.push(' ');
    let is_point = |letter: char| matches!(letter, '.' | ',');
    let is_digit = |letter: char| letter.is_ascii_digit();
    let text =
        between(&spaced, |left| !is_digit(left), is_point, |left, right, text| text.extend([left, ' ', right, ' ']));
    let text =
        between(&text, is_point, |right| !is_digit(right), |left, right, text| text.extend([' ', left, ' ', right]));
    between(&text, is_digit, |right| right == '-', |left, right, text| text.extend([left, ' ', right, ' ']))
}

/// The text with each two neighbours that are meant written anew, from the left, none of them taken twice.
fn between(
    text: &str,
    is_left: impl Fn(char) -> bool,
    is_right: impl Fn(char) -> bool,
    write: impl Fn(char, char, &mut String),
) -> String {
    let mut written = String::with_capacity(2 * text.len());
    let mut letters = text.chars().peekable();
    while let Some(left) = letters.next() {
        match is_left(left).then(|| letters.next_if(|right| is_right(*right))).flatten() {
            Some(right) => write(left, right, &mut written),
            None => written.push(left),
        }
    }
    written
}

#[cfg(test)]
thread_local! {
    /// Texts whose n-grams this thread has counted, and pairs it has compared.
    static KEYS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    static PAIRS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Does something, for which so many texts' n-grams are counted, and so many pairs compared.
#[cfg(test)]
pub(crate) fn counted(does: impl FnOnce(), (keys, pairs): (usize, usize)) {
    let so_far = || (KEYS.with(std::cell::Cell::get), PAIRS.with(std::cell::Cell::get));
    let before = so_far();
    does();
    let after = so_far();
    assert_eq!((after.0 - before.0, after.1 - before.1), (keys, pairs), "texts counted, pairs compared");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "def f(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total";

    #[test]
    fn texts_are_alike_when_the_bound_is_reached_in_both_directions() {
        let with_comment = format!("{LINES}  # done");
        let renamed = LINES.replace("for x in", "for y in").replace("+= x", "+= y");
        let cases = [
            (LINES, LINES, [true, true, true, true]),
            (LINES, &LINES.to_ascii_uppercase(), [true, true, true, true]),
            // 90.48 in one direction, 90.21 in the other.
            (LINES, &with_comment, [true, true, false, false]),
            // 72.65
            (LINES, &renamed, [false; 4]),
            // 22.59
            ("return a + b", "return b + a", [false; 4]),
            ("", "", [false; 4]),
            (" \n", "a", [false; 4]),
            ("a", "a", [true; 4]),
            ("a b c d", "a b c d e", [false; 4]),
        ];
        for (one, other, expected) in cases {
            let (one, other) = (Tokens::try_new(one).unwrap(), Tokens::try_new(other).unwrap());
            for (permille, expected) in [850, 902, 903, 1000].into_iter().zip(expected) {
                assert_eq!(
                    is_alike(&one, &other, permille),
                    expected,
                    "{} / {} at {permille}",
                    one.text(),
                    other.text()
                );
                assert_eq!(is_alike(&other, &one, permille), expected);
            }
        }
    }

    #[test]
    fn each_direction_has_its_own_bound() {
        let reach = |one: &str, other: &str, permille| {
            let (one, other) = (Tokens::try_new(one).unwrap(), Tokens::try_new(other).unwrap());
            reaches(one.len, other.len, &one.matches(&other), permille)
        };
        let longer = format!("{LINES}  # done");
        assert_eq!([904, 905].map(|permille| reach(LINES, &longer, permille)), [true, false]);
        assert_eq!([902, 903].map(|permille| reach(&longer, LINES, permille)), [true, false]);
        let renamed = LINES.replace("for x in", "for y in").replace("+= x", "+= y");
        assert_eq!([726, 727].map(|permille| reach(LINES, &renamed, permille)), [true, false]);
    }

    #[test]
    fn tokens_are_those_of_13a() {
        let cases = [
            ("Hello, World! ", "hello , world !"),
            ("it's 3.14, 1,000 and 5-3 e-mails...", "it's 3.14 , 1,000 and 5 - 3 e-mails . . ."),
            ("&quot;a&amp;lt;b&quot;", "\" a < b \""),
            ("split-\nword\nnext<SKIPPED>one", "splitword nextone"),
            ("a_b[c]/d\\e~`f`", "a _ b [ c ] / d \\ e ~ ` f `"),
            ("x.5 .5 5. é.ü,", "x . 5 . 5 5 . é . ü ,"),
            ("..5,,a", ". .5 , , a"),
        ];
        for (text, tokens) in cases {
            assert_eq!(Tokens::try_new(text).unwrap().text(), tokens, "{text}");
        }
    }

    #[test]
    fn n_grams_are_counted_by_order_and_no_longer_than_the_text() {
        let packed = |gram: &[u64]| gram.iter().fold(0, |packed, number| packed << TOKEN_BITS | number);
        for numbers in [vec![], vec![0], vec![1, 0], vec![0, 1, 0, 1], vec![2, 2, 2, 2, 2, 0, 1, 2, 2]] {
            for (order, counts) in counts(&numbers).iter().enumerate() {
                let mut expected = std::collections::BTreeMap::new();
                for gram in numbers.windows(order + 1) {
                    *expected.entry(packed(gram)).or_insert(0) += 1;
                }
                assert_eq!(*counts, expected.into_iter().collect::<Vec<_>>(), "{numbers:?} by {}", order + 1);
            }
        }
    }

    #[test]
    fn the_series_is_the_exponential_function() {
        let whole = 1_u128 << PLACES;
        assert_eq!(exponential(0, 7), whole);
        // e^-1 = 0.367879441171442321595523770161..., e^-(1/6) = 0.846481724890614074...
        let decimals = |value: u128| ((value >> (PLACES - 64)) * 1_000_000_000_000_000_000) >> 64;
        assert_eq!(decimals(exponential(5, 5)), 367_879_441_171_442_321);
        assert_eq!(decimals(exponential(4, 24)), 846_481_724_890_614_074);
    }

    #[test]
    fn texts_of_too_many_tokens_are_refused() {
        assert!(Tokens::try_new(&"a ".repeat(TOKENS_MAX)).is_ok());
        assert_eq!(Tokens::try_new(&"a ".repeat(TOKENS_MAX + 1)), Err(BadAnswer::Tokens));
        assert_eq!(Tokens::try_new(&"(".repeat(TOKENS_MAX + 1)), Err(BadAnswer::Tokens));
    }
}
