//! Chooses the golden bargains of a rules version: few cases that together say every word there is.

#![allow(clippy::disallowed_methods, reason = "golden files are written here")]

use std::collections::BTreeSet;
use std::fs;

use policy_core::lane::{RULES_VERSION, SNAPSHOT_FORMAT};
use policy_core::{Effect, Event};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use schemas::Lane;

use crate::alike::Played;
use crate::golden::{self, GoldenLog, Logged};
use crate::plan::any_case;
use crate::table::play;

/// Cases to choose from.
const CANDIDATES: u32 = 3_000;
/// Logs chosen.
const LOGS: usize = 24;

/// Writes the bargains of this build's rules version, and a snapshot in its format, unless they stand there: what stands is
/// never written again.
pub(crate) fn record(seed: u64) {
    let folder = golden::rules_folder(RULES_VERSION);
    let file = |number: usize| folder.join(format!("bargain-{number:02}.jsonl"));
    if !file(1).exists() {
        fs::create_dir_all(&folder).expect("a folder");
        for (number, log) in (1..).zip(choose(seed)) {
            fs::write(file(number), log.transcript()).expect("a file");
        }
    }
    let snapshot = golden::snapshot_file(SNAPSHOT_FORMAT);
    if !snapshot.exists() {
        fs::write(snapshot, snapshot_amid(&fs::read_to_string(file(1)).expect("the first bargain"))).expect("a file");
    }
}

/// A case one may choose.
struct Candidate {
    played: Played,
    /// What it says, but for names of things: ids, times and digests differ in every one.
    words: BTreeSet<String>,
    /// Ways its records go.
    goes: BTreeSet<String>,
}

/// Again and again the case that says most that none before it has said; then the one whose records go most ways that none
/// before have gone.
fn choose(seed: u64) -> Vec<GoldenLog> {
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let mut candidates: Vec<Candidate> = (0..CANDIDATES).filter_map(|_| candidate(&mut runner)).collect();
    let (mut shown, mut chosen) = (BTreeSet::new(), Vec::new());
    while chosen.len() < LOGS {
        let gain = |one: &Candidate| (one.words.difference(&shown).count(), one.goes.difference(&shown).count());
        let best = (0..candidates.len()).max_by_key(|&index| gain(&candidates[index])).expect("candidates are left");
        let best = candidates.swap_remove(best);
        shown.extend(best.words);
        shown.extend(best.goes);
        let steps = best.played.steps.into_iter();
        let records = steps.map(|step| Logged { seq: step.seq, time: step.time, record: step.record }).collect();
        chosen.push(GoldenLog { lane: Lane(0), limits: best.played.limits, records });
    }
    chosen
}

/// A case under rules that know bargains.
fn candidate(runner: &mut TestRunner) -> Option<Candidate> {
    let case = any_case().new_tree(runner).expect("a case").current();
    let played = case.is_new.then(|| play(&case).expect("as the reference says"))?;
    let is_word = |word: &&String| word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_' || byte == b'/');
    let words = played.words.iter().filter(is_word).cloned().collect();
    let goes = played.steps.iter().map(|step| step.effects.iter().map(kind).collect::<Vec<_>>().join(" ")).collect();
    Some(Candidate { played, words, goes })
}

/// A snapshot of a log where it holds most.
fn snapshot_amid(text: &str) -> Vec<u8> {
    let log = GoldenLog::read(text);
    let mut lane_state = log.lane_state();
    let snapshots = log.records.iter().map(|logged| {
        drop(logged.fold(&mut lane_state));
        lane_state.snapshot()
    });
    snapshots.max_by_key(Vec::len).expect("a log has records")
}

fn kind(effect: &Effect) -> String {
    match effect {
        Effect::Deliver(deliver) => deliver.told.act().to_string(),
        Effect::Register(_) => "register".to_owned(),
        Effect::Notice(_) => "notice".to_owned(),
        Effect::Event(Event::Disposed { act, disposition, .. }) => format!("{act}={}", disposition.as_str()),
        Effect::Event(_) => "event".to_owned(),
    }
}
