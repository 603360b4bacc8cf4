//! What is not of an archive is named, and does not hide behind what is.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::Value;

use super::lab::{Lab, SEGMENT_BYTES};
use crate::{VerifyOptions, verify};

#[tokio::test]
async fn each_file_or_folder_that_is_not_of_the_archive_is_named() {
    let folder = archived().await;
    let segment = "lane-0/00000000000000000001.jsonl";
    for (stray, is_folder) in [
        ("notes.txt", false),
        (".DS_Store", false),
        ("lane-2.tar", false),
        ("lane-01", true),
        ("lane-+1", true),
        ("lost+found", true),
        ("lock.new", false),
        ("lane-7", false),
        ("lane-0/00000000000000000001.jsonl.bak", false),
        ("lane-0/00000000000000000001 (copy).jsonl", false),
        ("lane-0/1.jsonl", false),
        ("lane-0/00000000000000000002.json", false),
        ("lane-0/00000000000000000009.jsonl", true),
        ("lane-0/lane-0", true),
        ("lane-1/lock", false),
        ("lane-1/.00000000000000000001.jsonl.swp", false),
    ] {
        let path = folder.path().join(stray);
        if is_folder {
            fs::create_dir(&path).unwrap();
            fs::copy(folder.path().join(segment), path.join("within")).unwrap();
        } else {
            fs::copy(folder.path().join(segment), &path).unwrap();
        }
        let report = report(folder.path());
        assert_eq!(named(&report, "foreign"), [path.to_str().unwrap()], "{stray}: {report}");
        assert_eq!(report["first_difference"], Value::Null, "{stray}: what is of the archive is whole");
        if is_folder { fs::remove_dir_all(&path).unwrap() } else { fs::remove_file(&path).unwrap() }
    }
    assert_eq!(named(&report(folder.path()), "foreign"), Vec::<String>::new());
}

#[tokio::test]
async fn all_that_is_not_of_the_archive_is_named_in_the_order_of_the_paths_and_any_name_can_be() {
    let folder = archived().await;
    let odd = OsStr::from_bytes(b"lane-0/\xff\n.jsonl");
    for stray in [OsStr::new("z"), OsStr::new("lane-1/b"), odd, OsStr::new("a")] {
        fs::write(folder.path().join(stray), "").unwrap();
    }
    let names = named(&report(folder.path()), "foreign");
    let under = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(names, [under("a"), under("lane-0/\u{fffd}\n.jsonl"), under("lane-1/b"), under("z")]);
}

#[tokio::test]
async fn what_an_interrupted_archiver_leaves_is_named_and_no_fault_and_what_it_writes_is_not_named() {
    let folder = archived().await;
    assert!(folder.path().join("lock").exists() && folder.path().join("lane-0/resume").exists());
    let left = folder.path().join("lane-0/resume.new");
    fs::write(&left, "half").unwrap();
    let report = report(folder.path());
    assert_eq!(named(&report, "leftovers"), [left.to_str().unwrap()], "{report}");
    assert_eq!((named(&report, "foreign").len(), &report["first_difference"]), (0, &Value::Null));
}

#[tokio::test]
async fn what_is_no_regular_file_or_folder_is_a_fault_and_neither_waited_for_nor_followed() {
    let (folder, outside) = (archived().await, tempfile::tempdir().unwrap());
    let (segment, lane) = ("lane-0/00000000000000000001.jsonl", "lane-1");
    for (place, link) in [(segment, "segment"), (lane, "lane")] {
        let (path, moved) = (folder.path().join(place), outside.path().join(link));
        fs::rename(&path, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &path).unwrap();
        let report = report(folder.path());
        assert_eq!(named(&report, "foreign"), [path.to_str().unwrap()], "{report}");
        let first = &report["first_difference"]["file"];
        assert!(first.as_str().unwrap().starts_with(folder.path().to_str().unwrap()), "{report}");
        fs::remove_file(&path).unwrap();
        fs::rename(&moved, &path).unwrap();
    }
    for name in ["beginning", "resume", "00000000000000000001.jsonl"] {
        let path = folder.path().join("lane-0").join(name);
        let kept = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let report = in_time(folder.path());
        assert_eq!(named(&report, "foreign"), [path.to_str().unwrap()], "{report}");
        if name == "beginning" {
            assert_eq!(report["first_difference"]["file"], path.to_str().unwrap(), "{report}");
        }
        fs::remove_file(&path).unwrap();
        kept.into_iter().for_each(|bytes| fs::write(&path, bytes).unwrap());
    }
    assert_eq!(report(folder.path())["first_difference"], Value::Null, "all is as it was");
}

#[tokio::test]
async fn a_beginning_that_no_archiver_writes_for_its_size_is_named_and_not_read() {
    let folder = archived().await;
    let path = folder.path().join("lane-0/beginning");
    fs::File::create(&path).unwrap().set_len(8 << 30).unwrap();
    let report = in_time(folder.path());
    let first = &report["first_difference"];
    assert_eq!(first["file"], path.to_str().unwrap(), "{report}");
    assert!(first["what"].as_str().unwrap().contains("larger than"), "{report}");
}

/// The report, which waits for nothing.
fn in_time(folder: &Path) -> Value {
    let (sender, reported) = std::sync::mpsc::channel();
    let folder = folder.to_path_buf();
    std::thread::spawn(move || sender.send(report(&folder)));
    reported.recv_timeout(std::time::Duration::from_secs(60)).expect("verification waits for a file")
}

async fn archived() -> tempfile::TempDir {
    let mut lab = Lab::new(2);
    lab.fill(10).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), SEGMENT_BYTES).await.unwrap();
    folder
}

fn report(folder: &Path) -> Value {
    serde_json::to_value(verify(folder, &VerifyOptions::default()).unwrap()).unwrap()
}

fn named(report: &Value, list: &str) -> Vec<String> {
    let found = report[list].as_array().map(Vec::as_slice).unwrap_or_default();
    found.iter().map(|one| one["file"].as_str().unwrap().to_owned()).collect()
}
