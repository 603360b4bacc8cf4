//! Chooses the golden auctions of a rules version: few cases that together say every word there is.

#![allow(clippy::disallowed_methods, reason = "golden files are written here")]

use std::collections::BTreeSet;
use std::fs;

use policy_core::lane::RULES_VERSION;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use schemas::Lane;

use crate::golden::{self, GoldenLog, Logged};
use crate::plan::any_case;
use crate::table::play;

/// Cases to choose from.
const CANDIDATES: u32 = 2_000;

/// Writes the auctions of this build's rules version, unless they stand there: what stands is never written again. A log is
/// chosen where it says a word that none before it has said.
pub(crate) fn record(seed: u64) {
    let folder = golden::rules_folder(RULES_VERSION);
    let file = |number: usize| folder.join(format!("auction-{number:02}.jsonl"));
    if file(1).exists() {
        return;
    }
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let (mut said, mut number) = (BTreeSet::new(), 0);
    for _ in 0..CANDIDATES {
        let case = any_case().new_tree(&mut runner).expect("a case").current();
        if !case.is_new {
            continue;
        }
        let played = play(&case).expect("as the reference says");
        let is_word = |word: &&String| word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        let words: BTreeSet<String> = played.words.iter().filter(is_word).cloned().collect();
        if words.is_subset(&said) {
            continue;
        }
        said.extend(words);
        let steps = played.steps.into_iter();
        let records = steps.map(|step| Logged { seq: step.seq, time: step.time, record: step.record }).collect();
        number += 1;
        let log = GoldenLog { lane: Lane(0), limits: played.limits, records };
        fs::write(file(number), log.transcript()).expect("a file");
    }
}
