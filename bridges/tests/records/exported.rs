//! What is exported: every award and agreement that ended, nothing else, the same bytes always, nothing of an altered archive.

use std::collections::BTreeMap;
use std::fs;

use archive::{ArchiveOptions, run};
use bridges::records::{
    AwardRecord, ExportOptions, RecordFault, RecordKey, RecordKind, RecordsError, compare, export, verify,
};
use schemas::delivery::Outcome;
use schemas::register::AwardEnd;
use schemas::text::RECORD_KEY_PURPOSE;
use schemas::{AgentId, NegotiationId, RegisterKey, RegisterValue};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::rig::{ISSUER, KEY, KID, Rig, files, golden_logs, key, keys};

fn read(record: &str) -> AwardRecord {
    verify(record, &keys(), Some(ISSUER)).unwrap()
}

/// What the register says of an award: whose place it is, its values, and whether another followed in its lot.
struct Registered {
    value: RegisterValue,
    end: Option<AwardEnd>,
    is_last: bool,
    is_aborted: bool,
}

/// Awards and agreements of the negotiations that ended, by the names of their files.
fn awards(register: &BTreeMap<String, RegisterValue>) -> BTreeMap<String, Registered> {
    let closed = |id: &NegotiationId| register.get(&RegisterKey::Closed(id.clone()).to_string());
    let mut found = BTreeMap::new();
    for (key, value) in register {
        let Some(RegisterKey::Award(id, lot, award_no)) = RegisterKey::parse(key) else { continue };
        let is_either = matches!(value, RegisterValue::Award { .. } | RegisterValue::Agreement { .. });
        let Some(end) = closed(&id).filter(|_| is_either) else { continue };
        let is_aborted = matches!(end, RegisterValue::Closed { outcome: Outcome::Aborted, .. });
        let end = register.get(&format!("{key}.end")).map(|end| {
            let RegisterValue::AwardEnd { end, .. } = end else { panic!("{key}: {end:?}") };
            *end
        });
        let is_later = |other: &String| matches!(RegisterKey::parse(other), Some(RegisterKey::Award(same, of, no)) if same == id && of == lot && no > award_no);
        let is_last = !register.keys().any(is_later);
        found.insert(
            format!("{id}/{lot}-{award_no}.jws"),
            Registered { value: value.clone(), end, is_last, is_aborted },
        );
    }
    found
}

#[tokio::test]
async fn every_award_and_agreement_of_the_golden_logs_has_its_record_and_the_state_the_register_allows() {
    let (mut kinds, mut states) = (BTreeMap::new(), BTreeMap::new());
    for name in [golden_logs("log-"), golden_logs("bargain-"), golden_logs("team-"), golden_logs("panel-0")].concat() {
        let rig = Rig::of(&name).await;
        let (records, register) = (rig.export("out"), rig.registered().await);
        let mut awards = awards(&register);
        // Where an engine met another value in the register, nobody was told of the award.
        awards.retain(|file, registered| records.contains_key(file) || !registered.is_aborted);
        assert_eq!(records.keys().collect::<Vec<_>>(), awards.keys().collect::<Vec<_>>(), "{name}");
        for (file, registered) in awards {
            let record = read(&records[&file]);
            match registered.value {
                RegisterValue::Award { chain, decision, offer_id } => {
                    assert_eq!((record.chain, record.decision, record.offer_id), (chain, Some(decision), offer_id));
                    assert_eq!(record.record, RecordKind::Award);
                }
                RegisterValue::Agreement { chain, offer_id, terms_digest } => {
                    assert_eq!((record.chain, record.offer_id, record.terms_digest), (chain, offer_id, terms_digest));
                    assert!(record.parties.as_ref().unwrap().contains(record.by.as_ref().unwrap()));
                }
                RegisterValue::AwardEnd { .. }
                | RegisterValue::Formed { .. }
                | RegisterValue::Finding { .. }
                | RegisterValue::Closed { .. } => panic!("{file} is no award"),
            }
            let is_lost = registered.end != Some(AwardEnd::Committed) || !registered.is_last;
            if record.record == RecordKind::Award && is_lost {
                assert_eq!(record.state, "revoked", "{name} {file}");
            }
            let lots = register.keys().filter(|key| key.starts_with(&format!("award.{}.1.", record.negotiation)));
            if record.outcome == "completed" && !is_lost && lots.count() == 0 {
                assert_eq!(record.state, "done", "{name} {file}");
            }
            *kinds.entry(record.record).or_insert(0) += 1;
            *states.entry((record.state, record.outcome)).or_insert(0) += 1;
        }
    }
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    for expected in
        [("done", "completed"), ("revoked", "no_candidate"), ("revoked", "cancelled"), ("revoked", "timeout")]
    {
        assert!(states.contains_key(&(expected.0.to_owned(), expected.1.to_owned())), "{states:?}");
    }
}

#[tokio::test]
async fn the_same_archive_gives_the_same_bytes_and_files_that_stand_there_stay() {
    let rig = Rig::of("log-09.jsonl").await;
    let (first, second) = (rig.export("one"), rig.export("two"));
    assert!(first.len() > 3);
    assert_eq!(first, second);
    assert_eq!(rig.export("two"), first, "again into the same folder");
    let other = ExportOptions { issuer: "https://other.example".to_owned(), ..rig.options("two") };
    assert!(matches!(rig.try_export(&other), Err(RecordsError::Taken(_))));
    assert_eq!(files(&rig.path("two")), first, "nothing was overwritten");
}

#[tokio::test]
async fn a_record_agrees_with_its_archive_and_one_of_another_log_is_not_in_it() {
    let (rig, other) = (Rig::of("team-12.jsonl").await, Rig::of("bargain-03.jsonl").await);
    let records = rig.export("out");
    assert!(records.keys().any(|file| file.contains("~t1/")), "a task: {records:?}");
    for record in records.values() {
        let record = read(record);
        assert_eq!(compare(&record, &rig.path("archive")).unwrap(), Ok(()));
        let refusal = compare(&record, &other.path("archive")).unwrap().unwrap_err();
        assert_eq!(refusal.code, RecordFault::NotInArchive);
    }
    let [agreed] = &other.export("out").into_values().map(|record| read(&record)).collect::<Vec<_>>()[..] else {
        panic!("one agreement")
    };
    assert_eq!((agreed.record, agreed.state.as_str()), (RecordKind::Agreement, "done"));
    assert!(agreed.contractor.is_none() && agreed.policy.is_none() && agreed.payment.is_none());
}

#[tokio::test]
async fn an_altered_archive_exports_nothing_and_its_old_records_differ_from_it() {
    let rig = Rig::of("log-02.jsonl").await;
    let record = read(rig.export("out").values().next().unwrap());
    let file = rig.segments().remove(0);
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    let (after, options) = (rig.path("positions"), rig.options("again"));
    let refused = rig.try_export(&ExportOptions { after: Some(after.clone()), ..options });
    assert!(matches!(refused, Err(RecordsError::Unverified(_))), "{refused:?}");
    assert!(!rig.path("again").exists() && !after.exists());
    assert_eq!(compare(&record, &rig.path("archive")).unwrap().unwrap_err().code, RecordFault::DiffersFromArchive);
}

#[tokio::test]
async fn a_record_of_another_course_of_the_same_negotiation_differs() {
    let rig = Rig::of("log-07.jsonl").await;
    for record in rig.export("out").into_values() {
        let mut record = read(&record);
        record.payment = Some(1);
        let refusal = compare(&record, &rig.path("archive")).unwrap().unwrap_err();
        assert_eq!(refusal.code, RecordFault::DiffersFromArchive);
        assert!(refusal.detail.starts_with("payment"), "{refusal}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_of_the_archive_lets_nothing_be_exported() {
    let rig = Rig::of("log-02.jsonl").await;
    fs::write(rig.path("archive/lane-0/stray"), "x").unwrap();
    assert!(matches!(rig.try_export(&rig.options("out")), Err(RecordsError::Unverified(_))));
    assert!(!rig.path("out").exists());
}

#[tokio::test]
async fn after_a_position_only_what_is_new_is_read_and_together_it_is_everything() {
    for (name, segment_bytes) in [("log-09.jsonl", u64::MAX), ("log-09.jsonl", 6000), ("team-12.jsonl", 6000)] {
        let (rig, whole) = (Rig::new(), Rig::of(name).await);
        let options = ExportOptions { after: Some(rig.path("positions")), ..rig.options("out") };
        let (mut read, mut before) = (0, 0);
        for step in 0..8 {
            rig.append_golden(name, step * 8..step * 8 + 8).await;
            rig.archive(segment_bytes).await;
            let exported = rig.try_export(&options).unwrap();
            let end = rig.bus.log.last_seq(schemas::Lane(0)).await.unwrap();
            assert_eq!(exported.read, end - before, "{name}: step {step}");
            (read, before) = (read + exported.read, end);
            // What was read is not looked at again.
            let first = rig.segments().remove(0);
            let bytes = fs::read(&first).unwrap();
            fs::write(&first, vec![b' '; bytes.len()]).unwrap();
            assert_eq!(rig.try_export(&options).unwrap().read, 0);
            fs::write(&first, bytes).unwrap();
        }
        assert_eq!(read, before);
        assert_eq!(files(&rig.path("out")), whole.export("out"), "{name}");
    }
}

#[tokio::test]
async fn positions_of_another_archive_or_before_removed_segments_are_refused_and_stay() {
    let (rig, other) = (Rig::of("log-09.jsonl").await, Rig::of("log-02.jsonl").await);
    let after = rig.path("positions");
    let options = ExportOptions { after: Some(after.clone()), ..rig.options("out") };
    rig.try_export(&options).unwrap();
    let kept = fs::read(&after).unwrap();
    let refused = other.try_export(&ExportOptions { archive: other.path("archive"), ..options.clone() });
    assert!(matches!(refused, Err(RecordsError::Archive(_))), "{refused:?}");
    assert_eq!(fs::read(&after).unwrap(), kept);
    fs::rename(rig.segments().remove(0), rig.path("archive/lane-0/00000000000000000099.jsonl")).unwrap();
    let refused = rig.try_export(&options).unwrap_err();
    assert!(refused.is_usage() && refused.to_string().contains("removed"), "{refused}");
    fs::write(&after, "{}x").unwrap();
    assert!(matches!(rig.try_export(&options), Err(RecordsError::Positions(_))));
}

#[tokio::test]
async fn a_negotiation_whose_offers_a_bounded_archive_has_removed_is_left_out_and_counted() {
    let mut left_out = 0;
    for (number, name) in golden_logs("log-").into_iter().enumerate() {
        let (rig, whole) = (Rig::new(), Rig::of(&name).await.export("out"));
        rig.append_golden(&name, 0..usize::MAX).await;
        let (folder, keep_bytes) = (rig.path("archive"), Some(8_000 + 1_000 * number as u64));
        let options = ArchiveOptions { folder, segment_bytes: 1, keep_bytes, once: true };
        run(rig.bus.clone(), options, std::sync::Arc::default(), CancellationToken::new()).await.unwrap();
        let exported = rig.try_export(&rig.options("out")).unwrap();
        assert!(files(&rig.path("out")).iter().all(|(file, record)| whole[file] == *record), "{name}");
        left_out += exported.left_out;
    }
    assert!(left_out > 20, "{left_out}");
}

#[tokio::test]
async fn an_award_that_the_register_contradicts_has_no_record_and_one_that_was_stopped_is_revoked() {
    for (code, states) in [("register_conflict", &[][..]), ("internal", &["revoked"][..])] {
        let rig = Rig::new();
        let mut records = 0;
        while !rig.registered().await.contains_key("award.i1~job.0.1") {
            rig.append_golden("log-07.jsonl", records..records + 1).await;
            records += 1;
        }
        let abort = json!({"abort": {"negotiation": "i1~job", "code": code}});
        let entry = json!({"engine": {"epoch": 1000, "event": abort}});
        rig.append(1_001_000_000, &json!({"v": 1, "by": "engine-1", "entries": [entry]}).to_string()).await;
        rig.archive(u64::MAX).await;
        let found: Vec<AwardRecord> = rig.export("out").values().map(|record| read(record)).collect();
        assert!(found.iter().all(|record| record.outcome == "aborted"));
        assert_eq!(found.iter().map(|record| record.state.as_str()).collect::<Vec<_>>(), states, "{code}");
    }
}

#[tokio::test]
async fn an_agent_or_a_negotiation_has_the_records_that_concern_it() {
    let rig = Rig::of("log-09.jsonl").await;
    let all = rig.export("all");
    let one = read(all.values().next().unwrap());
    let agent: AgentId = one.contractor.clone().unwrap();
    let narrow = ExportOptions { agent: Some(agent.clone()), ..rig.options("agent") };
    let counted = all.values().filter(|record| read(record).concerns(&agent)).count();
    assert_eq!(rig.try_export(&narrow).unwrap().records, counted as u64);
    assert!(counted > 0 && counted < all.len());
    let narrow = ExportOptions { negotiation: Some(one.negotiation.clone()), ..rig.options("negotiation") };
    rig.try_export(&narrow).unwrap();
    let prefix = format!("{}/", one.negotiation);
    assert!(files(&rig.path("negotiation")).keys().all(|file| file.starts_with(&prefix)));
}

#[test]
fn a_key_of_tokens_signs_no_records_and_a_record_key_has_its_published_thumbprint() {
    assert!(matches!(RecordKey::from_pem(KEY), Err(RecordsError::Key(_))));
    assert!(matches!(RecordKey::from_pem(&format!("{RECORD_KEY_PURPOSE}\nno key")), Err(RecordsError::Key(_))));
    assert_eq!(key().kid(), KID);
    assert!(!format!("{:?}", key()).contains("PRIVATE"));
}

#[test]
fn an_archive_that_is_not_there_is_a_matter_of_usage() {
    let folder = tempfile::tempdir().unwrap();
    let options = ExportOptions {
        archive: folder.path().join("archive"),
        issuer: ISSUER.to_owned(),
        negotiation: None,
        agent: None,
        after: None,
        out: folder.path().join("out"),
    };
    assert!(export(&options, &key()).unwrap_err().is_usage());
}
