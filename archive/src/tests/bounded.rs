//! An archive of which only the end is kept.

use std::fs;
use std::path::{Path, PathBuf};

use schemas::Lane;

use super::lab::{Lab, SEGMENT_BYTES};
use crate::{ArchiveError, ArchiveReport, Difference, VerifyOptions, verify};

/// Of two lanes: each keeps a few segments of a quarter of its half.
const KEEP_BYTES: u64 = 2 * 4 * SEGMENT_BYTES;

#[tokio::test]
async fn the_oldest_segments_go_and_what_is_left_verifies_from_its_stated_beginning() {
    let (mut lab, folder) = bounded().await;
    for _ in 0..3 {
        for lane in 0..2 {
            let left = segments(folder.path(), lane);
            // The last one may have grown by what was said at the end.
            let most = KEEP_BYTES / 2 + SEGMENT_BYTES;
            assert!(bytes(&left) <= most, "lane {lane} takes {} bytes", bytes(&left));
            assert!(left.len() >= 2 && !left[0].ends_with("00000000000000000001.jsonl"), "{left:?}");
        }
        let report = report(folder.path());
        assert_eq!((&report.first_difference, report.foreign.len(), report.leftovers.len()), (&None, 0, 0));
        for lane in &report.lanes {
            let oldest = segments(folder.path(), lane.lane.0).remove(0);
            let from: u64 = oldest.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            assert_eq!(lane.removed_below, Some(from));
            assert!(lane.is_ended && lane.tally.records <= lane.position - from + 1 && lane.tally.negotiations > 0);
        }
        assert_eq!(report.total.unregistered, 0);
        lab.fill(10).await;
        lab.archive_bounded(folder.path(), SEGMENT_BYTES, Some(KEEP_BYTES)).await.unwrap();
    }
}

#[tokio::test]
async fn a_lane_goes_on_from_its_stated_beginning_where_nothing_else_spares_reading() {
    let (mut lab, folder) = bounded().await;
    fs::remove_file(folder.path().join("lane-0/resume")).unwrap();
    // What the log no longer holds cannot be read again.
    lab.bus.log.trim(Lane(0), u64::MAX).await.unwrap();
    lab.negotiate(Lane(0)).await;
    lab.archive_once(folder.path(), SEGMENT_BYTES).await.unwrap();
    assert_eq!(difference(folder.path()), None);

    let beginning = folder.path().join("lane-0/beginning");
    let mut bytes = fs::read(&beginning).unwrap();
    bytes[100] ^= 1;
    fs::write(&beginning, bytes).unwrap();
    fs::remove_file(folder.path().join("lane-0/resume")).unwrap_or_default();
    let refused = lab.archive_once(folder.path(), SEGMENT_BYTES).await.unwrap_err();
    assert!(matches!(&refused, ArchiveError::Damaged(found) if found.file == beginning), "{refused}");
}

#[tokio::test]
async fn an_archiver_killed_while_it_removes_leaves_a_segment_too_many_that_is_no_fault() {
    let mut lab = Lab::new(2);
    lab.fill(30).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), SEGMENT_BYTES).await.unwrap();
    let all: Vec<(PathBuf, Vec<u8>)> =
        segments(folder.path(), 0).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    lab.archive_bounded(folder.path(), SEGMENT_BYTES, Some(KEEP_BYTES)).await.unwrap();
    let oldest = segments(folder.path(), 0).remove(0);
    let (left, content) = all.iter().rfind(|(path, _)| *path < oldest).unwrap();
    fs::write(left, content).unwrap();
    let found = report(folder.path());
    assert_eq!((&found.first_difference, found.foreign.len()), (&None, 0));
    let leftovers: Vec<&PathBuf> = found.leftovers.iter().map(|one| &one.file).collect();
    assert_eq!(leftovers, [left]);
    lab.fill(12).await;
    lab.archive_bounded(folder.path(), SEGMENT_BYTES, Some(KEEP_BYTES)).await.unwrap();
    assert!(!left.exists(), "the next one removes it");
    assert_eq!(report(folder.path()).leftovers.len(), 0);
}

#[tokio::test]
async fn a_beginning_that_is_altered_or_gone_and_a_segment_that_is_missing_behind_it_are_found_and_named() {
    let (_lab, folder) = bounded().await;
    let beginning = folder.path().join("lane-0/beginning");
    let original = fs::read(&beginning).unwrap();
    for at in (0..original.len()).step_by(97) {
        let mut altered = original.clone();
        altered[at] ^= 1 << (at % 8);
        fs::write(&beginning, altered).unwrap();
        let found = difference(folder.path()).unwrap_or_else(|| panic!("byte {at} unnoticed"));
        assert_eq!(found.file, beginning, "byte {at}: {found}");
    }
    fs::write(&beginning, fs::read(folder.path().join("lane-1/beginning")).unwrap()).unwrap();
    assert_eq!(difference(folder.path()).map(|found| found.file), Some(beginning.clone()), "that of another lane");
    fs::remove_file(&beginning).unwrap();
    let files = segments(folder.path(), 0);
    assert_eq!(difference(folder.path()).map(|found| found.file), Some(files[0].clone()), "without it");
    fs::write(&beginning, original).unwrap();
    let oldest = fs::read(&files[0]).unwrap();
    fs::remove_file(&files[0]).unwrap();
    assert_eq!(difference(folder.path()).map(|found| found.file), Some(files[1].clone()), "the oldest is gone");
    fs::write(&files[0], oldest).unwrap();
    assert_eq!(difference(folder.path()), None);
}

/// Two lanes of which only the end is left.
async fn bounded() -> (Lab, tempfile::TempDir) {
    let mut lab = Lab::new(2);
    lab.fill(30).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_bounded(folder.path(), SEGMENT_BYTES, Some(KEEP_BYTES)).await.unwrap();
    (lab, folder)
}

fn segments(folder: &Path, lane: u8) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join(format!("lane-{lane}"))).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

fn bytes(files: &[PathBuf]) -> u64 {
    files.iter().map(|file| fs::metadata(file).unwrap().len()).sum()
}

fn report(folder: &Path) -> ArchiveReport {
    verify(folder, &VerifyOptions::default()).unwrap()
}

fn difference(folder: &Path) -> Option<Difference> {
    report(folder).first_difference
}
