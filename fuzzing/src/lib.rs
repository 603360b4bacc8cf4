//! Feeds what reads texts from outside with random ones: a test of a crate is a **target**, which must not panic, and must take no
//! input longer than [`COST_MAX`].
//!
//! Without more a target gets a few inputs, the same every time. `LLMX_FUZZ_S=600` gives it as many seconds; `scripts/fuzz` does
//! so for every target, one after the other. Start at [`feed`].

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what a target came to is told")]
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

/// Seconds for each target.
const SECONDS: &str = "LLMX_FUZZ_S";
/// What one input may take, in a build that is optimised.
pub const COST_MAX: Duration = Duration::from_millis(10);
/// How much longer one may take in a build that is not.
const UNOPTIMISED: u32 = 20;
/// Runs of an input that took long, of which the shortest counts: who was interrupted is not to blame.
const SLOW_INPUT_RUNS: u32 = 5;
/// Characters of the slowest input that are told.
const TOLD_CHARS: usize = 60;
/// Places in which one input is changed, less one.
const CHANGES: usize = 6;

/// What stands in JSON of any kind, or must not.
pub const JSON_WORDS: [&str; 10] = ["{", "}", "[", "]", ",", ":", "\"", "\\", "\\ud800", "\u{0}"];

/// What inputs are made of.
#[derive(Debug, Clone, Copy)]
pub struct Mixture<'a> {
    /// Valid texts.
    pub valid: &'a [&'a str],
    /// Words that mean something to the target.
    pub words: &'a [&'a str],
    /// Longest input, in bytes.
    pub bytes_max: usize,
}

/// Feeds a target with so many texts, or for as many seconds as are asked for.
///
/// # Panics
/// Where the target does, after the input is told; and where an input takes too long.
pub fn feed(name: &'static str, inputs: u64, mixture: Mixture<'_>, target: impl Fn(&str)) {
    let (mut fuzzing, mut random) = (Fuzzing::begin(name, inputs), Random(1));
    while fuzzing.goes_on() {
        let text = random.text(&mixture);
        let cost = cost(&text, &target);
        fuzzing.note(cost, || text);
    }
    fuzzing.finish();
}

/// What an input costs at best.
fn cost(text: &str, target: &impl Fn(&str)) -> Duration {
    let fed = Fed(text);
    let once = || {
        let begun = Instant::now();
        target(text);
        begun.elapsed()
    };
    let first = once();
    let cost = if first <= COST_MAX { first } else { (1..SLOW_INPUT_RUNS).map(|_| once()).fold(first, Duration::min) };
    drop(fed);
    cost
}

/// Tells the input with which a target panics.
struct Fed<'a>(&'a str);

impl Drop for Fed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was {:?}", self.0);
        }
    }
}

/// The run of one target, for those that make their inputs themselves.
#[derive(Debug)]
pub struct Fuzzing {
    name: &'static str,
    inputs_max: u64,
    until: Option<Instant>,
    inputs: u64,
    slowest: (Duration, String),
}

impl Fuzzing {
    /// Starts a run of `inputs_max` inputs, or of `LLMX_FUZZ_S` seconds where that is set.
    ///
    /// # Panics
    /// If it is not a number.
    #[must_use]
    pub fn begin(name: &'static str, inputs_max: u64) -> Self {
        let until = std::env::var(SECONDS).ok().map(|text| {
            let Ok(seconds) = text.parse() else { panic!("{SECONDS}={text} is no number of seconds") };
            Instant::now() + Duration::from_secs(seconds)
        });
        Self { name, inputs_max, until, inputs: 0, slowest: (Duration::ZERO, String::new()) }
    }

    /// Whether a further input is wanted.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.until.map_or(self.inputs < self.inputs_max, |until| Instant::now() < until)
    }

    /// An input took so long.
    pub fn note(&mut self, cost: Duration, input: impl FnOnce() -> String) {
        self.inputs += 1;
        if cost > self.slowest.0 {
            self.slowest = (cost, input());
        }
    }

    /// Tells what the run came to, in a line.
    ///
    /// # Panics
    /// Where an input took too long.
    pub fn finish(self) {
        let (cost, input) = self.slowest;
        let told: String = input.chars().take(TOLD_CHARS).collect();
        println!("fuzz {}: {} inputs, panics 0, slowest {} us: {told:?}", self.name, self.inputs, cost.as_micros());
        let cost_max = if cfg!(debug_assertions) { COST_MAX * UNOPTIMISED } else { COST_MAX };
        assert!(cost <= cost_max, "{}: {input:?} took {cost:?}", self.name);
    }
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

    /// Less than `end`; 0 where there is nothing less.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or_default()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.get(self.below(from.len())).copied().unwrap_or_default()
    }

    /// A valid text changed in places, or words in any order, or one word as often as there is room for.
    fn text(&mut self, mixture: &Mixture<'_>) -> String {
        let Mixture { valid, words, bytes_max } = *mixture;
        let mut bytes = match self.below(4) {
            0 => {
                let word = self.pick(words);
                word.repeat(self.below(bytes_max / word.len().max(1)))
            }
            1 => {
                let doublings = self.below(12);
                let count = self.below(1 << doublings);
                (0..count).map(|_| self.pick(words)).collect()
            }
            _ => self.pick(valid).to_owned(),
        }
        .into_bytes();
        for _ in 0..self.below(CHANGES) {
            let (at, word) = (self.below(bytes.len() + 1), self.pick(words));
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => drop(bytes.splice(at..at, word.bytes())),
                2 => {
                    let bit = 1 << self.below(8);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= bit;
                    }
                }
                _ => drop(bytes.drain(at..(at + self.below(8)).min(bytes.len()))),
            }
        }
        bytes.truncate(bytes_max);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::catch_unwind;

    use super::*;

    const MIXTURE: Mixture<'_> = Mixture { valid: &["a valid one"], words: &["word", "é"], bytes_max: 100 };

    fn fed(inputs: u64) -> Vec<String> {
        let texts = RefCell::new(Vec::new());
        feed("itself", inputs, MIXTURE, |text| texts.borrow_mut().push(text.to_owned()));
        texts.into_inner()
    }

    #[test]
    fn a_target_gets_the_same_inputs_every_time_within_their_length() {
        let texts = fed(500);
        assert_eq!(texts, fed(500));
        assert!(texts.len() >= 500, "one that took long is fed again");
        // What is no UTF-8 any more is replaced, by three bytes for one.
        assert!(texts.iter().all(|text| text.len() <= 3 * MIXTURE.bytes_max));
        let valid = texts.iter().filter(|text| *text == "a valid one").count();
        assert!((1..400).contains(&valid), "{valid} are unchanged");
    }

    #[test]
    fn a_target_fails_where_it_panics_or_takes_too_long() {
        catch_unwind(|| feed("itself", 500, MIXTURE, |text| assert!(text.len() < 50))).unwrap_err();
        let mut fuzzing = Fuzzing::begin("itself", 1);
        fuzzing.note(COST_MAX * (UNOPTIMISED + 1), || "slow".to_owned());
        assert!(!fuzzing.goes_on());
        catch_unwind(|| fuzzing.finish()).unwrap_err();
    }
}
