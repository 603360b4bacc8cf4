//! Following, resuming, and refusing what does not fit.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bus::Bus;
use schemas::{Lane, NegotiationId};
use tokio_util::sync::CancellationToken;

use super::disk::{Disk, Late};
use super::lab::Lab;
use crate::{ArchiveError, ArchiveOptions, VerifyOptions, run, verify};

#[tokio::test(start_paused = true)]
async fn what_is_appended_while_it_follows_is_archived_and_told() {
    let (mut lab, disk, cancel) = (Lab::new(1), Disk::default(), CancellationToken::new());
    lab.negotiate(Lane(0)).await;
    let bus = lab.bus.clone();
    let (archived, told) = {
        let shared = Lab::sharing(&bus);
        let archiving = shared.archive_to(&disk, false, cancel.clone());
        let appending = async {
            let mut told = Vec::new();
            for _ in 0..4 {
                lab.negotiate(Lane(0)).await;
                tokio::time::sleep(Duration::from_secs(3)).await;
                told.push(bus.blobs.version("archived-0".to_owned()).await.unwrap().unwrap());
            }
            cancel.cancel();
            told
        };
        tokio::join!(archiving, appending)
    };
    archived.outcome.unwrap();
    assert_eq!(told, [6, 9, 12, 15], "three records each, told while it follows");
    assert_eq!((disk.lies(), disk.position()), (Vec::new(), 15));
}

#[tokio::test]
async fn a_run_goes_on_behind_the_end_of_the_last_one() {
    let mut lab = Lab::new(2);
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..4 {
        lab.negotiate(Lane(0)).await;
        lab.negotiate(Lane(1)).await;
        lab.register_all().await;
        lab.archive_once(folder.path(), 5000).await.unwrap();
        // Nothing new: nothing is written.
        let before = std::fs::metadata(folder.path().join("lane-1/00000000000000000001.jsonl")).unwrap().len();
        lab.archive_once(folder.path(), 5000).await.unwrap();
        let after = std::fs::metadata(folder.path().join("lane-1/00000000000000000001.jsonl")).unwrap().len();
        assert_eq!(before, after);
        let report = verify(folder.path(), &VerifyOptions::default()).unwrap();
        assert_eq!(report.first_difference, None);
    }
    let report = verify(folder.path(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.total.negotiations, report.total.unregistered), (8, 0));
}

#[tokio::test]
async fn the_trimmed_log_is_archived_further_by_the_folder_that_has_its_beginning_and_by_no_other() {
    let mut lab = Lab::new(1);
    lab.fill(3).await;
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lab.archive_once(folder.path(), u64::MAX).await.unwrap();
    lab.bus.log.trim(Lane(0), u64::MAX).await.unwrap();
    lab.negotiate(Lane(0)).await;
    lab.archive_once(folder.path(), u64::MAX).await.unwrap();
    let report = verify(folder.path(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.first_difference, report.total.negotiations), (None, 4));

    let refused = lab.archive_once(other.path(), u64::MAX).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::Trimmed { position: 0, trimmed: 12.., .. }), "{refused:?}");
    assert!(refused.to_string().contains("Go on in the folder"), "{refused}");
}

#[tokio::test]
async fn a_folder_of_another_log_is_refused() {
    let (mut one, mut other) = (Lab::new(1), Lab::new(1));
    one.fill(1).await;
    other.negotiate(Lane(0)).await;
    let folder = tempfile::tempdir().unwrap();
    one.archive_once(folder.path(), u64::MAX).await.unwrap();
    for _ in 0..2 {
        let refused = other.archive_once(folder.path(), u64::MAX).await.unwrap_err();
        assert!(matches!(refused, ArchiveError::Foreign { .. }), "{refused:?}");
        // The second time its log is long enough to have a record at that position.
        other.fill(3).await;
    }
}

#[tokio::test]
async fn a_log_with_another_number_of_lanes_is_refused() {
    let (mut one, mut other) = (Lab::new(1), Lab::new(2));
    one.fill(1).await;
    other.fill(1).await;
    let folder = tempfile::tempdir().unwrap();
    one.archive_once(folder.path(), u64::MAX).await.unwrap();
    let refused = other.archive_once(folder.path(), u64::MAX).await.unwrap_err();
    assert!(refused.to_string().contains("lanes"), "{refused}");
}

#[tokio::test]
async fn a_second_archiver_on_a_folder_is_refused() {
    let lab = Lab::new(1);
    let folder = tempfile::tempdir().unwrap();
    let (status, cancel) = (Arc::default(), CancellationToken::new());
    let options =
        ArchiveOptions { folder: folder.path().to_path_buf(), segment_bytes: 1, keep_bytes: None, once: false };
    let first = tokio::spawn(run(lab.bus.clone(), options, status, cancel.clone()));
    while !folder.path().join("lane-0").exists() {
        tokio::task::yield_now().await;
    }
    let refused = lab.archive_once(folder.path(), 1).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::Busy(_)), "{refused:?}");
    cancel.cancel();
    first.await.unwrap().unwrap();
    lab.archive_once(folder.path(), 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn register_entries_that_come_late_are_asked_for_again() {
    let (mut lab, disk, cancel) = (Lab::new(1), Disk::default(), CancellationToken::new());
    lab.fill(2).await;
    let register = Arc::new(Late { register: Arc::clone(&lab.bus.register), unanswered: AtomicUsize::new(13) });
    let late = Lab::sharing(&Bus { register, ..lab.bus.clone() });
    let stop = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        cancel.cancel();
    };
    let (archived, ()) = tokio::join!(late.archive_to(&disk, false, cancel.clone()), stop);
    archived.outcome.unwrap();
    let [lane] = &archived.status.lanes()[..] else { panic!("one lane") };
    assert_eq!((lane.tally.register_entries, lane.tally.unregistered), (6, 0));
}

#[tokio::test]
async fn engines_are_told_what_the_register_held_only_once_that_is_archived() {
    let mut lab = Lab::new(1);
    let folder = tempfile::tempdir().unwrap();
    lab.fill(2).await;
    lab.archive_once(folder.path(), 5000).await.unwrap();
    let (position, registered) = told(&lab.bus).await;
    assert_eq!(registered, position);
    lab.negotiate(Lane(0)).await;
    lab.archive_once(folder.path(), 5000).await.unwrap();
    let (further, registered) = told(&lab.bus).await;
    assert!(further > position && registered == further - 1, "the last record ended a negotiation: {registered}");
    lab.register_all().await;
    lab.archive_once(folder.path(), 5000).await.unwrap();
    assert_eq!(told(&lab.bus).await, (further, further));
}

#[tokio::test]
async fn what_has_expired_is_proved_by_the_archive_and_waited_for_by_none() {
    let mut lab = Lab::new(1);
    let (folder, later) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lab.fill(4).await;
    lab.archive_once(folder.path(), 5000).await.unwrap();
    for entry in lab.bus.register.entries_from(1, 1000).await.unwrap() {
        lab.bus.register.remove(entry.key, entry.seq).await.unwrap();
    }
    let registered = lab.bus.log.last_seq(Lane(0)).await.unwrap();
    lab.log_answered(registered).await;

    lab.archive_once(folder.path(), 5000).await.unwrap();
    let only = Some(NegotiationId::try_new("alice~job-2").unwrap());
    let report = verify(folder.path(), &VerifyOptions { only, ..VerifyOptions::default() }).unwrap();
    assert_eq!((report.first_difference, report.total.unregistered), (None, 0));
    assert!(report.total.register_entries > 0 && report.closings[0].is_registered);

    lab.archive_once(later.path(), 5000).await.unwrap();
    let report = verify(later.path(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.first_difference, report.total.register_entries), (None, 0), "an archive begun too late");
    assert!(report.total.unregistered > 0);
    let (position, told) = told(&lab.bus).await;
    assert_eq!(told, position, "it waits for nothing that will not come");
}

/// How far the archive has the records, and how far what the register held.
async fn told(bus: &Bus) -> (u64, u64) {
    let document = bus.blobs.value("archived-0".to_owned()).await.unwrap().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    (document["position"].as_u64().unwrap(), document["registered"].as_u64().unwrap())
}
