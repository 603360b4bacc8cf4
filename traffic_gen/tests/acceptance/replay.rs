//! An export of a run is recomputed byte for byte; whatever byte is altered, the difference is found and named.

use std::path::Path;
use std::time::Duration;

use archive::audit;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use traffic_gen::invariants::{Verdict, recompute};
use traffic_gen::live::CallScenario;

use crate::rig::Rig;

/// Bytes altered, one at a time, each in a fresh copy.
const ALTERED: u32 = 240;
/// Fixes which.
const SEED: u64 = 20_261_120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_recomputed_and_every_altered_byte_is_found_and_named() {
    let rig = run().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("run.jsonl"), folder.path().join("copy.jsonl"));
    let mut verdict = Verdict::default();
    let report = recompute(&rig.exchange.bus, &mut verdict).await.unwrap();
    assert!(report.decisions > 0 && report.register_entries > 2 * report.decisions, "{report:?}");
    audit::export(&rig.exchange.bus, &report, &file).await.unwrap();
    rig.exchange.shutdown().await;

    assert_eq!(difference(&file), None, "the export itself is equal");
    let original = std::fs::read(&file).unwrap();
    let mut draws = ChaCha12Rng::seed_from_u64(SEED);
    for number in 0..ALTERED {
        let mut altered = original.clone();
        let at = if number % 4 == 0 { damage(&mut altered, &mut draws) } else { forge(&mut altered, &mut draws) };
        std::fs::write(&copy, &altered).unwrap();
        let line = original[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let found = difference(&copy);
        let named = found.unwrap_or_else(|| panic!("seed {SEED}, number {number}: byte {at} of line {line} unnoticed"));
        // A line, or what stands in it.
        let places = ["line ", "message ", "decision ", "register key ", "the file has "];
        assert!(places.iter().any(|place| named.starts_with(place)), "byte {at} of line {line}: {named}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_left_out_added_or_moved_is_found() {
    let rig = run().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("run.jsonl"), folder.path().join("copy.jsonl"));
    let report = audit::verify(&audit::read_bus(&rig.exchange.bus).await.unwrap(), None);
    audit::export(&rig.exchange.bus, &report, &file).await.unwrap();
    let original = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = original.lines().collect();
    let mut shapes: Vec<(String, Vec<&str>)> = Vec::new();
    for at in [0, lines.len() / 2, lines.len() - 2, lines.len() - 1] {
        let (before, after) = lines.split_at(at);
        shapes.push((format!("line {at} left out"), [before, &after[1..]].concat()));
        shapes.push((format!("line {at} twice"), [before, &after[..1], after].concat()));
        if after.len() > 2 {
            shapes.push((format!("line {at} moved"), [before, &after[1..2], &after[..1], &after[2..]].concat()));
        }
        shapes.push((format!("cut at line {at}"), before.to_vec()));
    }
    for (name, shape) in shapes {
        std::fs::write(&copy, shape.join("\n") + "\n").unwrap();
        assert!(difference(&copy).is_some(), "{name}");
    }
}

/// Alters any byte in any way, as a failing disk would.
fn damage(bytes: &mut [u8], draws: &mut ChaCha12Rng) -> usize {
    let at = draws.random_range(0..bytes.len());
    bytes[at] ^= draws.random_range(1..=255_u8);
    at
}

/// Replaces a digit by a digit, or a small letter by a small letter: the file stays what it was in form.
fn forge(bytes: &mut [u8], draws: &mut ChaCha12Rng) -> usize {
    loop {
        let at = draws.random_range(0..bytes.len());
        let (first, count) = match bytes[at] {
            b'0'..=b'9' => (b'0', 10),
            b'a'..=b'z' => (b'a', 26),
            _ => continue,
        };
        bytes[at] = first + (bytes[at] - first + draws.random_range(1..count)) % count;
        return at;
    }
}

/// What `llmx replay` would name; nothing when all is equal.
fn difference(file: &Path) -> Option<String> {
    match audit::read(file) {
        Err(error) => Some(error.to_string()),
        Ok(ledger) => audit::verify(&ledger, None).first_difference,
    }
}

/// A short run with re-awards, revisions and refusals, so that the export holds every kind of line.
async fn run() -> Rig {
    let rig = Rig::start().await;
    let contractor = agents::ContractorConfig { decline: 0.3, revise: 0.3, refuse: 0.2, ..Default::default() };
    let scenario = CallScenario {
        contractors: 5,
        policy: Some("high".to_owned()),
        rate: 50.0,
        duration: Duration::from_millis(150),
        contractor,
        ..CallScenario::default()
    };
    rig.run(&scenario).await;
    rig
}
