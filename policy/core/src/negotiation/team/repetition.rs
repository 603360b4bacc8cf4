//! When a say repeats an earlier one (docs/spec/team.md#tm-52). Integers alone, and no tables of Unicode, which change with the
//! compiler.

use std::collections::VecDeque;

use schemas::digest::{FNV_START, fnv};
use serde::{Deserialize, Serialize};

/// Consecutive tokens that are compared as one.
const SHINGLE_TOKENS: usize = 3;
/// Shingles of a text that are kept: the smallest.
const SKETCH_LEN: usize = 128;
/// Says that a text is compared with: the latest that repeat no other.
const LOOK_BACK: usize = 16;
/// Marks that count only inside: `1.5` is not `15`, `!=` not `=`, and `we agree!` is `We agree.`
const PUNCTUATION: [char; 6] = ['.', ',', ';', ':', '!', '?'];
/// What may stand between a mark that ends a part of a sentence and the white space behind it.
const CLOSING: [char; 5] = [')', ']', '}', '"', '\''];
/// The whole, in parts per million.
const PPM: usize = 1_000_000;

/// The smallest shingles of a text, each once, ascending.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sketch(Box<[u64]>);

/// The latest says that repeat no other, with their steps, the oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct DistinctSays(VecDeque<(u32, Sketch)>);

impl Sketch {
    pub(super) fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let tokens = tokens(&text);
        let hash = |run: &[&str]| fnv(FNV_START, run.join(" ").as_bytes());
        let mut shingles: Vec<u64> = match tokens.len() {
            0 => vec![hash(&[&text])],
            1..SHINGLE_TOKENS => vec![hash(&tokens)],
            _ => tokens.windows(SHINGLE_TOKENS).map(hash).collect(),
        };
        shingles.sort_unstable();
        shingles.dedup();
        shingles.truncate(SKETCH_LEN);
        Self(shingles.into_boxed_slice())
    }

    /// The share of the smallest shingles of both texts together that is in both, in parts per million.
    fn similarity_ppm(&self, other: &Self) -> u32 {
        let (mut own, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        let (mut all, mut shared) = (0, 0);
        while all < SKETCH_LEN {
            let Some(smallest) = own.peek().into_iter().chain(others.peek()).min().copied().copied() else { break };
            let is_own = own.next_if_eq(&&smallest).is_some();
            let is_others = others.next_if_eq(&&smallest).is_some();
            all += 1;
            shared += usize::from(is_own && is_others);
        }
        u32::try_from(shared * PPM / all.max(1)).unwrap_or(u32::MAX)
    }

    /// Whether it is one that [`Sketch::of`] makes.
    fn is_sound(&self) -> bool {
        !self.0.is_empty() && self.0.len() <= SKETCH_LEN && self.0.is_sorted_by(|one, next| one < next)
    }
}

impl DistinctSays {
    /// The step of the most similar say, of equals the latest, if it is similar enough.
    pub(super) fn repeated_by(&self, sketch: &Sketch, least_ppm: u32) -> Option<u32> {
        let measured = self.0.iter().map(|(step, earlier)| (earlier.similarity_ppm(sketch), *step));
        measured.max().filter(|(ppm, _)| *ppm >= least_ppm).map(|(_, step)| step)
    }

    /// Keeps a say that repeats no other.
    pub(super) fn keep(&mut self, step: u32, sketch: Sketch) {
        if self.0.len() == LOOK_BACK {
            self.0.pop_front();
        }
        self.0.push_back((step, sketch));
    }

    /// What the comparison relies on, and a snapshot might not keep.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let is_sound = self.0.len() <= LOOK_BACK && self.0.iter().all(|(_, sketch)| sketch.is_sound());
        if is_sound { Ok(()) } else { Err("what was said in a team is kept in no order") }
    }
}

/// Runs of ASCII letters and digits; every other character by itself, but for white space of ASCII and for marks of punctuation
/// that end a part of a sentence.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_alphanumeric() {
            length_of_run(rest, |next| next.is_ascii_alphanumeric())
        } else if PUNCTUATION.contains(&first) {
            length_of_run(rest, |next| PUNCTUATION.contains(&next))
        } else {
            first.len_utf8()
        };
        let (run, behind) = rest.split_at(length);
        if PUNCTUATION.contains(&first) {
            let counts = !ends_a_part(behind);
            tokens.extend(run.split_inclusive(PUNCTUATION).filter(|_| counts));
        } else if !first.is_ascii_whitespace() {
            tokens.push(run);
        }
        rest = behind;
    }
    tokens
}

fn length_of_run(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|next| !is_part(next)).unwrap_or(text.len())
}

/// Whether marks with this behind them end a part of a sentence.
fn ends_a_part(behind: &str) -> bool {
    let next = behind.chars().next();
    next.is_none_or(|next| next.is_ascii_whitespace() || CLOSING.contains(&next))
}

#[cfg(test)]
mod tests {
    use schemas::team::REPEAT_PPM_MIN;

    use super::*;

    fn similarity(one: &str, other: &str) -> u32 {
        Sketch::of(one).similarity_ppm(&Sketch::of(other))
    }

    #[test]
    fn tokens_are_words_of_ascii_and_single_characters_of_all_else_but_white_space_and_punctuation_behind_words() {
        assert_eq!(tokens("we draw2, figure--2"), ["we", "draw2", "figure", "-", "-", "2"]);
        assert_eq!(tokens("an übersicht 図表"), ["an", "ü", "bersicht", "図", "表"]);
        assert_eq!(tokens("1,000.5; .5!? (b.)."), ["1", ",", "000", ".", "5", ".", "5", "(", "b", ")"]);
        assert_eq!(tokens("a.é != 1..2"), ["a", ".", "é", "!", "=", "1", ".", ".", "2"]);
        assert_eq!(tokens(" \t!-.\n"), ["!", "-"]);
    }

    #[test]
    fn case_white_space_and_punctuation_behind_words_do_not_count_and_words_do() {
        assert_eq!(similarity("I take the related work.", " i TAKE the\n related  work ."), 1_000_000);
        assert_eq!(similarity("Yes, we do: it is done.", "yes we do; it is done!?"), 1_000_000);
        assert_eq!(similarity("a b c d", "a b c e"), 333_333, "one of three shingles is in both");
        assert_eq!(similarity("we draw", "we write"), 0, "fewer than three tokens are one shingle");
    }

    #[test]
    fn signs_that_change_what_a_text_means_make_it_another() {
        let pairs = [
            ("pay 5", "pay -5"),
            ("5 %", "5 $"),
            ("is a < b", "is a > b"),
            ("x = 1.5", "x = 1,5"),
            ("x = .5", "x = 5"),
            ("x != 5", "x = 5"),
            ("x := 5", "x = 5"),
            ("if !(ready) go", "if (ready) go"),
            ("1..5", "1.5"),
        ];
        for (one, other) in pairs.into_iter().chain([("!!!", "???"), ("???", "..."), ("a", "a+")]) {
            assert!(similarity(one, other) < REPEAT_PPM_MIN, "{one} and {other}");
            assert_eq!(similarity(one, one), 1_000_000);
        }
    }

    #[test]
    fn texts_of_white_space_alone_repeat_only_equal_ones() {
        assert_eq!(similarity(" ", "\n"), 0);
        assert_eq!(similarity(" ", "  "), 0);
        assert_eq!(similarity(" ", " "), 1_000_000);
    }

    #[test]
    fn of_long_texts_the_smallest_shingles_are_compared() {
        let text = |from: u32| (from..from + 400).map(|word| format!("w{word} ")).collect::<String>();
        assert_eq!(Sketch::of(&text(0)).0.len(), SKETCH_LEN);
        assert_eq!(similarity(&text(0), &text(0)), 1_000_000);
        assert_eq!(similarity(&text(0), &text(400)), 0);
        // 200 of 600 words.
        assert!((200_000..450_000).contains(&similarity(&text(0), &text(200))), "{}", similarity(&text(0), &text(200)));
    }

    #[test]
    fn the_most_similar_is_named_and_of_equals_the_latest() {
        let mut says = DistinctSays::default();
        for (step, text) in [(2, "a b c d"), (3, "a b c x"), (4, "a b c d"), (5, "q r s t")] {
            says.keep(step, Sketch::of(text));
        }
        assert_eq!(says.repeated_by(&Sketch::of("a b c d"), 700_000), Some(4));
        assert_eq!(says.repeated_by(&Sketch::of("a b c y"), 333_333), Some(4));
        assert_eq!(says.repeated_by(&Sketch::of("a b c y"), 333_334), None);
    }

    #[test]
    fn a_say_is_compared_with_the_latest_sixteen() {
        let mut says = DistinctSays::default();
        for step in 1..=17 {
            says.keep(step, Sketch::of(&format!("say {step}")));
        }
        assert_eq!(says.repeated_by(&Sketch::of("say 1"), 1_000_000), None);
        assert_eq!(says.repeated_by(&Sketch::of("say 2"), 1_000_000), Some(2));
        assert!(says.check().is_ok());
    }
}
