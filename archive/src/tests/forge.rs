//! Someone who knows the format alters a document and writes the chain anew: what the records lead to, or what the
//! register held, still tells.

use std::fs;
use std::path::Path;

use schemas::digest::canonical;
use schemas::{Digest, Lane};
use serde_json::Value;

use super::lab::{Lab, document};
use crate::chain::{CHAIN_START, frame, unframe};
use crate::{Difference, VerifyOptions, verify};

#[tokio::test]
async fn a_forged_document_under_a_new_chain_is_found_and_named() {
    let mut lab = Lab::new(1);
    lab.fill(2).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), u64::MAX).await.unwrap();
    let file = folder.path().join("lane-0/00000000000000000001.jsonl");
    let original = fs::read(&file).unwrap();
    for (kind, from, to, named) in [
        ("record", r#""price":1000001"#, r#""price":1000000"#, "its body has digest"),
        ("record", r#""seq":3"#, r#""seq":2"#, "stands behind record"),
        ("closed", r#""outcome":"completed""#, r#""outcome":"cancelled""#, "outcome"),
        ("closed", r#""responded":1"#, r#""responded":2"#, "decisions[0].responded"),
        ("closed", r#""index":0"#, r#""index":7"#, "inputs"),
        ("closed", r#""end":"committed""#, r#""end":"revoked""#, "register[1].value"),
        ("registered", r#""end":"committed""#, r#""end":"revoked""#, "register key award.alice~job-2.0.1.end"),
        ("registered", r#""outcome":"completed""#, r#""outcome":"cancelled""#, "register key closed.alice~job-2"),
        ("begin", r#""format":1"#, r#""format":0"#, "another segment"),
        ("begin", r#""segment":0"#, r#""segment":1"#, "another segment"),
        ("end", r#""position":"#, r#""position":1"#, "an end that is none"),
    ] {
        fs::write(&file, forged(&original, kind, from, to)).unwrap();
        let found = difference(folder.path()).unwrap_or_else(|| panic!("{kind}: {from} as {to} unnoticed"));
        assert!(found.what.contains(named), "{kind}: {from} as {to}: {found}");
    }
    fs::write(&file, &original).unwrap();
    assert_eq!(difference(folder.path()), None);
}

#[tokio::test]
async fn a_changed_document_hash_is_found_and_its_record_named_however_much_is_forged_with_it() {
    let mut lab = Lab::new(1);
    lab.fill(2).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), u64::MAX).await.unwrap();
    let file = folder.path().join("lane-0/00000000000000000001.jsonl");
    let original = fs::read(&file).unwrap();
    let named = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        difference(folder.path()).unwrap_or_else(|| panic!("unnoticed")).what
    };
    let [first, second] = ["first", "second"].map(|name| document(name).to_string());
    let offers = |hash: &str| format!(r#""documents":["{hash}"]"#);
    let pins = |hash: &str| format!(r#""document":"{hash}""#);
    // Someone else's hash in the offer alone, in the decision alone, in an offer whose digest is made anew.
    let offer_altered = forged(&original, "record", &offers(&second), &offers(&first));
    let found = named(&offer_altered);
    assert!(found.contains("its body has digest") && found.contains("3.0"), "{found}");
    let found = named(&forged(&original, "closed", &pins(&second), &pins(&first)));
    assert!(found.contains("decisions[0].awards[0].document"), "{found}");
    let (old, new) = (offer_digest(&original), offer_digest(&offer_altered));
    let found = named(&forged(&offer_altered, "record", &old, &new));
    assert!(found.contains("alice~job-1"), "{found}");
    fs::write(&file, &original).unwrap();
    assert_eq!(difference(folder.path()), None);
}

#[tokio::test]
async fn a_changed_finding_of_a_panel_is_found_and_what_was_changed_is_named() {
    let mut lab = Lab::new(1);
    lab.agree(Lane(0)).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), u64::MAX).await.unwrap();
    let report = verify(folder.path(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.total.decisions, report.total.negotiations, report.first_difference), (1, 1, None));
    let file = folder.path().join("lane-0/00000000000000000001.jsonl");
    let original = fs::read(&file).unwrap();
    for (kind, from, to, named) in [
        ("closed", r#""relative_ppm":1000000"#, r#""relative_ppm":1000001"#, "decisions[0].panelists[0].relative_ppm"),
        ("closed", r#""answers":2"#, r#""answers":3"#, "decisions[0].calls.answers"),
        ("closed", r#""agent":"cyd""#, r#""agent":"cid""#, "decisions[0].panelists[1].agent"),
        ("record", r#""answer":"23""#, r#""answer":"25""#, "its body has digest"),
        ("record", r#""act":"answer","digest""#, r#""act":"refuse","digest""#, "no negotiation ended here"),
        ("record", r#"{"message":{"from":"cyd""#, r#"{"message":{"from":"eve""#, "no negotiation ended here"),
        ("registered", r#"{"finding":{"chain":""#, r#"{"finding":{"chain":"0"#, "register key award.alice~panel.0.1"),
    ] {
        fs::write(&file, forged(&original, kind, from, to)).unwrap();
        let found = difference(folder.path()).unwrap_or_else(|| panic!("{kind}: {from} as {to} unnoticed"));
        assert!(found.what.contains(named), "{kind}: {from} as {to}: {found}");
    }
}

/// The digest of the first offer's body, as it stands in a lane's bytes.
fn offer_digest(lane: &[u8]) -> String {
    let text = std::str::from_utf8(lane).unwrap();
    let line = text.lines().find(|line| line.contains(r#""act":"offer""#)).unwrap();
    let framed: Value = serde_json::from_str(line).unwrap();
    let body = framed.pointer("/line/record/record/entries/0/message/body").unwrap();
    Digest::of_bytes(&canonical(body).unwrap()).to_string()
}

#[tokio::test]
async fn a_register_that_held_another_value_is_found_unless_the_log_says_so() {
    for is_logged in [false, true] {
        let mut lab = Lab::new(1);
        lab.contest(is_logged).await;
        lab.negotiate(schemas::Lane(0)).await;
        lab.register_all().await;
        let folder = tempfile::tempdir().unwrap();
        lab.archive_once(folder.path(), u64::MAX).await.unwrap();
        let report = verify(folder.path(), &VerifyOptions::default()).unwrap();
        assert_eq!(report.total.conflicts, u64::from(is_logged));
        let named = report.first_difference.map(|found| found.what.contains("register key award.alice~job-1.0.1"));
        assert_eq!(named, (!is_logged).then_some(true));
    }
}

/// The lane with `from` replaced in the first document of its kind that has it, every line under its right chain.
fn forged(original: &[u8], kind: &str, from: &str, to: &str) -> Vec<u8> {
    let (mut read, mut written, mut out, mut is_done) = (CHAIN_START, CHAIN_START, Vec::new(), false);
    for line in original.split_inclusive(|byte| *byte == b'\n') {
        let framed = unframe(line, read).unwrap();
        read = framed.chain;
        let is_kind = framed.line.starts_with(&format!("{{\"{kind}\":")) && framed.line.contains(from);
        let document = if is_kind && !is_done { framed.line.replacen(from, to, 1) } else { framed.line.to_owned() };
        is_done |= is_kind;
        out.extend_from_slice(frame(&document, &mut written).as_bytes());
    }
    assert!(is_done, "no {kind} has {from}");
    out
}

fn difference(folder: &Path) -> Option<Difference> {
    verify(folder, &VerifyOptions::default()).unwrap().first_difference
}
