//! Whatever is altered, removed or moved is found and named.

use std::fs;
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::{Lane, NegotiationId};

use super::lab::{Lab, SEGMENT_BYTES};
use crate::{ArchiveReport, Difference, VerifyOptions, verify};

/// Bytes altered in the larger archive, one at a time.
const ALTERED: u32 = 200;
/// Fixes which.
const SEED: u64 = 20_261_121;

#[tokio::test]
async fn every_altered_byte_is_found_and_its_line_named() {
    let mut lab = Lab::new(1);
    lab.negotiate(Lane(0)).await;
    lab.register_all().await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), u64::MAX).await.unwrap();
    assert_eq!(difference(folder.path()), None);
    let file = segments(folder.path(), 0).remove(0);
    let original = fs::read(&file).unwrap();
    let mut line = 1;
    for at in 0..original.len() {
        let mut altered = original.clone();
        // Every bit is met in turn.
        altered[at] ^= 1 << (at % 8);
        fs::write(&file, &altered).unwrap();
        let found = difference(folder.path()).unwrap_or_else(|| panic!("byte {at} of line {line} unnoticed"));
        assert_eq!((&found.file, found.line), (&file, Some(line)), "byte {at}: {found}");
        line += u64::from(original[at] == b'\n');
    }
}

#[tokio::test]
async fn altered_bytes_of_a_larger_archive_are_found_and_their_line_is_named() {
    let (_lab, folder) = archived(2, 12).await;
    let mut draws = ChaCha12Rng::seed_from_u64(SEED);
    for number in 0..ALTERED {
        let files = segments(folder.path(), draws.random_range(0..2));
        let file = &files[draws.random_range(0..files.len())];
        let original = fs::read(file).unwrap();
        let mut altered = original.clone();
        let at = draws.random_range(0..original.len());
        altered[at] ^= draws.random_range(1..=255_u8);
        fs::write(file, altered).unwrap();
        let line = original[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let found = difference(folder.path()).unwrap_or_else(|| panic!("seed {SEED}, number {number}: unnoticed"));
        assert_eq!((&found.file, found.line), (file, Some(line)), "seed {SEED}, number {number}: {found}");
        fs::write(file, original).unwrap();
    }
}

#[tokio::test]
async fn a_line_left_out_doubled_or_moved_is_found_where_it_was() {
    let (_lab, folder) = archived(2, 8).await;
    for lane in 0..2 {
        for file in segments(folder.path(), lane) {
            let original = fs::read_to_string(&file).unwrap();
            let lines: Vec<&str> = original.split_inclusive('\n').collect();
            for at in 0..lines.len() {
                let (before, after) = lines.split_at(at);
                let mut shapes = vec![[before, &after[1..]].concat(), [before, &after[..1], after].concat()];
                if after.len() > 1 {
                    shapes.push([before, &after[1..2], &after[..1], &after[2..]].concat());
                }
                for shape in shapes {
                    fs::write(&file, shape.concat()).unwrap();
                    assert!(difference(folder.path()).is_some(), "line {at} of {}", file.display());
                }
            }
            fs::write(&file, &original).unwrap();
        }
    }
    assert_eq!(difference(folder.path()), None);
}

#[tokio::test]
async fn a_segment_removed_doubled_or_swapped_is_found_and_named() {
    let (_lab, folder) = archived(2, 12).await;
    let files = segments(folder.path(), 0);
    assert!(files.len() > 2, "{files:?}");
    for (number, file) in files.iter().enumerate() {
        let kept = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        let found = difference(folder.path()).unwrap_or_else(|| panic!("segment {number} is gone unnoticed"));
        // The one behind the gap is the one that does not fit; at the end, the one before it has no end.
        let named = files.get(number + 1).unwrap_or(&files[files.len() - 2]);
        assert_eq!(&found.file, named, "{found}");
        fs::write(file, kept).unwrap();
    }
    let (first, second) = (fs::read(&files[0]).unwrap(), fs::read(&files[1]).unwrap());
    fs::write(&files[0], &second).unwrap();
    fs::write(&files[1], &first).unwrap();
    assert_eq!(difference(folder.path()).map(|found| (found.file, found.line)), Some((files[0].clone(), Some(1))));
    fs::write(&files[0], &first).unwrap();
    assert!(difference(folder.path()).is_some_and(|found| found.file == files[1]), "a segment twice");
    fs::write(&files[1], &second).unwrap();
    let other = segments(folder.path(), 1).remove(0);
    fs::copy(&other, &files[0]).unwrap();
    let found = difference(folder.path()).unwrap();
    assert!(found.file == files[0] && found.what.contains("lane"), "a segment of another lane: {found}");
    fs::write(&files[0], &first).unwrap();
    assert_eq!(difference(folder.path()), None);
}

#[tokio::test]
async fn a_removed_lane_is_found_and_named() {
    let (_lab, folder) = archived(3, 6).await;
    for lane in 0..3 {
        let (path, away) = (folder.path().join(format!("lane-{lane}")), folder.path().join("away"));
        fs::rename(&path, &away).unwrap();
        let found = difference(folder.path()).unwrap();
        assert!(found.file.starts_with(&path) && found.what.contains("missing"), "{found}");
        fs::rename(&away, &path).unwrap();
    }
    fs::create_dir(folder.path().join("lane-3")).unwrap();
    assert!(difference(folder.path()).is_some_and(|found| found.file.ends_with("lane-3")));
}

#[tokio::test]
async fn a_truncated_end_is_found_unless_it_may_be_open() {
    let (_lab, folder) = archived(1, 4).await;
    let file = segments(folder.path(), 0).pop().unwrap();
    let original = fs::read(&file).unwrap();
    let open = VerifyOptions { allow_open_end: true, ..VerifyOptions::default() };
    for len in (0..original.len()).rev().step_by(7) {
        fs::write(&file, &original[..len]).unwrap();
        assert!(difference(folder.path()).is_some(), "{len} bytes");
        let report = verify(folder.path(), &open).unwrap();
        assert_eq!(report.first_difference, None, "{len} bytes");
        assert!(!report.lanes[0].is_ended);
    }
}

#[tokio::test]
async fn a_whole_archive_tells_what_it_holds() {
    let (_lab, folder) = archived(2, 8).await;
    let report = whole(folder.path());
    assert_eq!((report.first_difference.as_ref(), report.lanes.len()), (None, 2));
    let total = report.total;
    // Eight negotiations with an award each, four of which completed; one is open.
    assert_eq!((total.negotiations, total.decisions, total.unregistered, total.conflicts), (8, 8, 0, 0));
    assert_eq!(total.register_entries, 24, "award, its end and the closing of each");
    assert_eq!((total.unreadable, report.lanes[0].open), (2, 1));
    assert!(report.lanes.iter().all(|lane| lane.is_ended && lane.position > 0));

    let only = Some(NegotiationId::try_new("alice~job-2").unwrap());
    let report = verify(folder.path(), &VerifyOptions { only, ..VerifyOptions::default() }).unwrap();
    let [closing] = &report.closings[..] else { panic!("{:?}", report.closings) };
    assert_eq!((closing.inputs, closing.decisions, closing.register_entries), (4, 1, 3));
    assert!(closing.is_registered);
}

#[tokio::test]
async fn a_folder_without_an_archive_is_no_empty_archive() {
    let folder = tempfile::tempdir().unwrap();
    let refused = verify(folder.path(), &VerifyOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("there is no archive"), "{refused}");
}

async fn archived(lanes: u8, negotiations: u32) -> (Lab, tempfile::TempDir) {
    let mut lab = Lab::new(lanes);
    lab.fill(negotiations).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), SEGMENT_BYTES).await.unwrap();
    (lab, folder)
}

fn segments(folder: &Path, lane: u8) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join(format!("lane-{lane}"))).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

fn whole(folder: &Path) -> ArchiveReport {
    verify(folder, &VerifyOptions::default()).unwrap()
}

fn difference(folder: &Path) -> Option<Difference> {
    whole(folder).first_difference
}
