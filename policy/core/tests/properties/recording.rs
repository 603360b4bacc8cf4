//! Chooses the golden logs of a rules version: few and rich cases that together reach everything there is.

#![allow(clippy::disallowed_methods, reason = "golden files are written here")]

use std::collections::BTreeSet;
use std::fs;

use policy_core::lane::RULES_VERSION;
use policy_core::{Effect, Event};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::coverage::Reached;
use crate::golden::{self, GoldenLog, Logged};
use crate::strategies::any_case;
use crate::world::{LANE, Run, Step};

/// Cases to choose from.
const CANDIDATES: u32 = 4_000;
/// Logs chosen: about a megabyte.
const LOGS: usize = 48;

/// A log one may choose.
struct Candidate {
    log: GoldenLog,
    /// Names of what happens in it, as the coverage knows them.
    reaches: BTreeSet<String>,
    /// Ways its records go.
    goes: BTreeSet<String>,
}

/// Writes the contract nets of this build's rules version; where some stand there, those that reach what they do not. What
/// stands is never written again.
pub(crate) fn record(seed: u64) {
    let folder = golden::rules_folder(RULES_VERSION);
    let file = |number: usize| folder.join(format!("log-{number:02}.jsonl"));
    fs::create_dir_all(&folder).expect("a folder");
    let next = (1..).find(|number| !file(*number).exists()).expect("files are numbered");
    let chosen = if next == 1 {
        choose(candidates(seed))
    } else {
        let mut reached = Reached::default();
        // Some is reached by logs of other protocols alone.
        for stands in fs::read_dir(&folder).expect("a folder") {
            let log = fs::read_to_string(stands.expect("a file").path()).expect("a golden log");
            let log = GoldenLog::read(&log);
            let mut lane_state = log.lane_state();
            log.records.iter().for_each(|logged| reached.note(&logged.record, &logged.fold(&mut lane_state)));
        }
        choose_missing(candidates(seed), reached.missing().into_iter().collect())
    };
    for (number, log) in (next..).zip(chosen) {
        fs::write(file(number), log.transcript()).expect("a file");
    }
}

/// Again and again the log that reaches most of what is missing, until nothing is.
fn choose_missing(mut candidates: Vec<Candidate>, mut missing: BTreeSet<String>) -> Vec<GoldenLog> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let gain = |one: &Candidate| one.reaches.intersection(&missing).count();
        let best = (0..candidates.len()).max_by_key(|&index| gain(&candidates[index])).expect("candidates are left");
        let best = candidates.swap_remove(best);
        missing.retain(|name| !best.reaches.contains(name));
        chosen.push(best.log);
    }
    chosen
}

fn candidates(seed: u64) -> Vec<Candidate> {
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let one = |_| candidate(Run::of(&any_case().new_tree(&mut runner).expect("a case").current()));
    (0..CANDIDATES).map(one).collect()
}

fn candidate(run: Run) -> Candidate {
    let mut reached = Reached::default();
    run.steps.iter().for_each(|step| reached.note(&step.record, &step.effects));
    let goes = run.steps.iter().flat_map(patterns).collect();
    let steps = run.steps.into_iter();
    let records = steps.map(|step| Logged { seq: step.seq, time: step.time, record: step.record }).collect();
    Candidate { log: GoldenLog { lane: LANE, limits: run.limits, records }, reaches: reached.names(), goes }
}

/// Again and again the log that reaches most that none before it has reached; then the one whose records go most ways
/// that none before have gone.
fn choose(mut candidates: Vec<Candidate>) -> Vec<GoldenLog> {
    let (mut shown, mut chosen) = (BTreeSet::new(), Vec::new());
    while chosen.len() < LOGS {
        let gain = |one: &Candidate| (one.reaches.difference(&shown).count(), one.goes.difference(&shown).count());
        let best = (0..candidates.len()).max_by_key(|&index| gain(&candidates[index])).expect("candidates are left");
        let best = candidates.swap_remove(best);
        shown.extend(best.reaches);
        shown.extend(best.goes);
        chosen.push(best.log);
    }
    chosen
}

/// How a record goes: the kinds of its effects in their order, a repeated one once; and what is chosen by which rules.
fn patterns(step: &Step) -> Vec<String> {
    let mut kinds: Vec<String> = step.effects.iter().map(kind).collect();
    kinds.dedup();
    let decisions = step.effects.iter().filter_map(|effect| match effect {
        Effect::Event(Event::Decided(decision)) => {
            let is_tied = decision.offers.windows(2).any(|pair| pair[0].score == pair[1].score);
            Some(format!("{:?} {} {is_tied}", decision.cause, decision.awards.len()))
        }
        Effect::Event(_) | Effect::Deliver(_) | Effect::Register(_) | Effect::Notice(_) => None,
    });
    decisions.chain([kinds.join(" ")]).collect()
}

fn kind(effect: &Effect) -> String {
    match effect {
        Effect::Deliver(deliver) => deliver.told.act().to_string(),
        Effect::Register(write) => if write.after.is_some() { "then" } else { "register" }.to_owned(),
        Effect::Notice(_) => "notice".to_owned(),
        Effect::Event(Event::Disposed { act, disposition, .. }) => format!("{act}={}", disposition.as_str()),
        Effect::Event(Event::AwardLost { loss, .. }) => format!("{loss:?}"),
        Effect::Event(_) => "event".to_owned(),
    }
}
