//! A log that has lost its end: the store was put back from an older copy.

use std::path::Path;

use bus::Bus;
use bytes::Bytes;
use schemas::{Lane, NegotiationId};

use super::lab::Lab;
use crate::{ArchiveError, VerifyOptions, fork, verify};

/// A log that was archived, copied, trimmed in both, and archived further; and its copy, which has gone on otherwise.
async fn put_back(folder: &Path) -> (Lab, u64) {
    let mut lab = Lab::new(1);
    lab.fill(3).await;
    lab.archive_once(folder, 4000).await.unwrap();
    lab.negotiate(Lane(0)).await;
    let mut copy = lab.copied().await;
    let common = lab.bus.log.last_seq(Lane(0)).await.unwrap();
    for lab in [&lab, &copy] {
        lab.bus.log.trim(Lane(0), common - 2).await.unwrap();
    }
    for _ in 0..3 {
        lab.negotiate(Lane(0)).await;
    }
    lab.archive_once(folder, 4000).await.unwrap();
    copy.pass(60_000_000);
    for _ in 0..2 {
        copy.negotiate(Lane(0)).await;
    }
    (copy, common)
}

#[tokio::test]
async fn an_archive_ahead_of_a_log_that_lost_its_end_goes_on_in_another_folder_behind_what_both_hold() {
    let [old, new] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (lab, common) = put_back(old.path()).await;
    let held = contents(old.path());
    let foreign = lab.archive_once(old.path(), 4000).await.unwrap_err();
    assert!(matches!(foreign, ArchiveError::Foreign { .. }) && foreign.to_string().contains("--fork-of"), "{foreign}");
    let trimmed = lab.archive_once(new.path(), 4000).await.unwrap_err();
    assert!(matches!(trimmed, ArchiveError::Trimmed { .. }) && trimmed.to_string().contains("--fork-of"), "{trimmed}");
    // Engines were told of what the log has lost.
    let lost = 9;
    let told = Bytes::from(format!(r#"{{"position":{},"registered":1}}"#, common + lost));
    lab.bus.blobs.put("archived-0".to_owned(), common + lost, told).await.unwrap();

    let forked = fork(&lab.bus, old.path(), new.path()).await.unwrap();
    assert_eq!(forked.iter().map(|lane| (lane.common, lane.lost)).collect::<Vec<_>>(), [(common, lost)]);
    assert_eq!(position_told(&lab.bus).await, common, "nothing behind it may be trimmed yet");
    assert_eq!(contents(old.path()), held, "the folder stays as it is");

    lab.archive_once(new.path(), 4000).await.unwrap();
    let report = verify(new.path(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.first_difference, report.total.negotiations), (None, 7), "the one left open has expired");
    assert_eq!(report.lanes[0].position, lab.bus.log.last_seq(Lane(0)).await.unwrap());
    let lost = VerifyOptions { only: Some(NegotiationId::try_new("alice~job-7").unwrap()), ..VerifyOptions::default() };
    let proved = |folder: &Path| verify(folder, &lost).unwrap().closings.len();
    assert_eq!((proved(old.path()), proved(new.path())), (1, 0), "what is lost is proved by the old folder alone");
}

#[tokio::test]
async fn what_needs_no_fork_or_can_have_none_is_refused_and_copied_nowhere() {
    let [old, new] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (lab, _) = put_back(old.path()).await;
    let refused = async |lab: &Lab, from: &Path, to: &Path| fork(&lab.bus, from, to).await.unwrap_err().to_string();
    let mut other = Lab::new(1);
    other.negotiate(Lane(0)).await;
    assert!(refused(&other, old.path(), new.path()).await.contains("of another log"));
    assert!(refused(&lab, old.path(), old.path()).await.contains("in use"), "onto itself");
    let own = tempfile::tempdir().unwrap();
    other.archive_once(own.path(), 4000).await.unwrap();
    assert!(refused(&other, own.path(), new.path()).await.contains("go on there"));
    assert!(refused(&lab, old.path(), own.path()).await.contains("empty folder"));
    assert!(!new.path().join("lane-0").exists());
}

async fn position_told(bus: &Bus) -> u64 {
    let document = bus.blobs.value("archived-0".to_owned()).await.unwrap().unwrap();
    serde_json::from_slice::<serde_json::Value>(&document).unwrap()["position"].as_u64().unwrap()
}

/// Every segment of the lane.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder.join("lane-0")).unwrap().map(|entry| entry.unwrap());
    let mut contents: Vec<_> =
        files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect();
    contents.sort();
    contents
}
