//! Random bytes with meaning: rules of panels, answers of every kind, and texts compared by BLEU. Nothing panics, what was drawn
//! twice is read alike, and nothing holds a lane for long. `LLMX_FUZZ_S=600` fuzzes each target for as many seconds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "what takes long is measured")]
#![allow(clippy::print_stdout, reason = "the slowest input is told")]

use std::time::{Duration, Instant};

use policy_core::panel::key::{agrees, key};
use schemas::panel::{ANSWER_BYTES_MAX, AnswerKind, ElementKind, PanelSpec, check_panel};

/// Inputs of each target where no time is asked for.
const INPUTS: u64 = 1_500;
/// No input may cost the fold more, in a build that is optimised.
const COST_MAX: Duration = Duration::from_millis(10);
/// How much longer one may take that is not.
const UNOPTIMISED: u32 = 20;
/// An input that took long is tried again so often: who was interrupted is not to blame.
const AGAIN: u32 = 5;

#[test]
fn no_rules_of_a_panel_are_read_in_two_ways_or_take_long() {
    let valid = [
        r#"{"rounds":3,"answer":{"kind":"choice","options":["A","B","C"]},"select":{"after_round":2,"keep":2,"ranker":{"kind":"agent","agent":"carol","rank_ms":20000}}}"#,
        r#"{"answer":{"kind":"set","of":"number","separator":","},"review":{"by":["ann","bob"],"review_ms":1000},"consensus_from":2,"rounds":8}"#,
        r#"{"answer":{"kind":"bleu","at_least_permille":900},"choose":{"keep":4,"from":{"agents":["ann"]},"min_runs":1,"newcomers":1}}"#,
    ];
    let words = [
        "\"rounds\":",
        "0",
        "9",
        "-1",
        "1e9",
        "null",
        "[",
        "]",
        "{",
        "}",
        "\"answer\":",
        "\"kind\":\"json\"",
        ",",
        "\"\"",
        "18446744073709551616",
    ];
    fuzz("rules", &valid, &words, |text| {
        let read = || {
            serde_json::from_str::<PanelSpec>(text).ok().map(|spec| check_panel(&spec).map_err(|fault| fault.pointer))
        };
        assert_eq!(format!("{:?}", read()), format!("{:?}", read()));
    });
}

#[test]
fn no_number_is_read_in_two_ways_or_takes_long() {
    let valid =
        ["-1,234.50e-3", "22/7", "50%", "+.5e+64", "9999999999999999999999999999999999999999999999999999999999999999"];
    fuzz(
        "number",
        &valid,
        &["0", "9", "/", ".", "e", "-", "+", "%", ",", " ", "00000000"],
        keyed(&[AnswerKind::Number]),
    );
}

#[test]
fn no_mathematics_is_read_in_two_ways_or_takes_long() {
    let valid = ["\\frac{1}{2}", "\\sqrt3 + \\text{ cm}", "x=\\dfrac12", "\\left(0.5, \\right)", "1/2"];
    let words =
        ["\\frac", "\\sqrt", "\\text{ ", "{", "}", "\\", "\\\\", "=", "0.5", "/", "^{\\circ}", "\\!", " ", "\\$"];
    fuzz("math", &valid, &words, keyed(&[AnswerKind::Math]));
}

#[test]
fn no_document_or_set_is_read_in_two_ways_or_takes_long() {
    let valid = ["{\"a\":[1,2,{\"b\":null}],\"c\":\"\\u00e9\"}", "[[[[[[[[1]]]]]]]]", "3, 1,2, 1.0", "so be it"];
    let words =
        ["[", "]", "{", "}", "\"a\":", "\"\\ud800\"", "1.5", "9007199254740993", ",", "\\u0000", "{\"a\":1,\"a\":2}"];
    let kinds = [
        AnswerKind::Json,
        AnswerKind::Set { of: ElementKind::Number, separator: ",".to_owned() },
        AnswerKind::Set { of: ElementKind::Exact, separator: ";;".to_owned() },
        AnswerKind::Exact { ignore_case: true },
        AnswerKind::Choice { options: vec!["A".to_owned(), "(a b)".to_owned()] },
    ];
    fuzz("json", &valid, &words, keyed(&kinds));
}

#[test]
fn no_text_is_cut_in_two_ways_and_no_two_texts_take_long_to_compare() {
    let valid = ["def f(xs):\n    return sum(xs)  # done", "the cat sat on the mat by the door", "a a a a a a b b b b"];
    let words = ["a ", "b ", ".", ",", "&amp;", "<skipped>", "-\n", "1,000.5", "é", "\u{1f600}", "$", "  "];
    let kind = AnswerKind::Bleu { at_least_permille: 850 };
    fuzz("bleu", &valid, &words, |text| {
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (one, other) = (key(&kind, &text[..middle]), key(&kind, &text[middle..]));
        if let (Ok(one), Ok(other), Ok(whole)) = (&one, &other, key(&kind, text)) {
            assert_eq!(agrees(&kind, one, other), agrees(&kind, other, one));
            assert_eq!(agrees(&kind, one, &whole), agrees(&kind, &whole, one));
        }
    });
}

/// Computes the key of a text for each of these kinds.
fn keyed(kinds: &[AnswerKind]) -> impl Fn(&str) + '_ {
    move |text| {
        for kind in kinds {
            assert_eq!(key(kind, text), key(kind, text), "{kind:?}");
        }
    }
}

/// Feeds a target with texts made of valid ones and of words that mean something to it.
fn fuzz(name: &str, valid: &[&str], words: &[&str], target: impl Fn(&str)) {
    let seconds: Option<u64> = std::env::var("LLMX_FUZZ_S").ok().map(|seconds| seconds.parse().unwrap());
    let (begun, mut random, mut inputs) = (Instant::now(), Random(1), 0);
    let mut slowest = (Duration::ZERO, String::new());
    while seconds.map_or(inputs < INPUTS, |seconds| begun.elapsed() < Duration::from_secs(seconds)) {
        let text = random.text(valid, words);
        let cost = cost(&text, &target);
        if cost > slowest.0 {
            slowest = (cost, text);
        }
        inputs += 1;
    }
    let begin: String = slowest.1.chars().take(60).collect();
    println!("{name}: {inputs} inputs, the slowest took {:?}: {begin:?}", slowest.0);
    let cost_max = if cfg!(debug_assertions) { COST_MAX * UNOPTIMISED } else { COST_MAX };
    assert!(slowest.0 <= cost_max, "{name}: {:?} took {:?}", slowest.1, slowest.0);
}

/// What an input costs at best.
fn cost(text: &str, target: impl Fn(&str)) -> Duration {
    let once = || {
        let begun = Instant::now();
        target(text);
        begun.elapsed()
    };
    let first = once();
    if first <= COST_MAX { first } else { (1..AGAIN).map(|_| once()).fold(first, Duration::min) }
}

/// SplitMix64: the same inputs every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    /// A valid text changed in places, or words in any order, or one word as often as an answer has room for.
    fn text(&mut self, valid: &[&str], words: &[&str]) -> String {
        let mut bytes = match self.below(4) {
            0 => {
                let word = words[self.below(words.len())];
                word.repeat(self.below(ANSWER_BYTES_MAX / word.len().max(1)))
            }
            1 => {
                let doublings = self.below(12);
                let count = self.below(1 << doublings);
                (0..count).map(|_| words[self.below(words.len())]).collect()
            }
            _ => valid[self.below(valid.len())].to_owned(),
        }
        .into_bytes();
        for _ in 0..self.below(6) {
            let (at, word) = (self.below(bytes.len() + 1), words[self.below(words.len())]);
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => drop(bytes.splice(at..at, word.bytes())),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => drop(bytes.drain(at..(at + self.below(8)).min(bytes.len()))),
            }
        }
        bytes.truncate(ANSWER_BYTES_MAX);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
