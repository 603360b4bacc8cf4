//! Power lost, and disks full, at any byte.

use std::io::ErrorKind;
use std::time::Duration;

use schemas::Lane;
use tokio_util::sync::CancellationToken;

use super::disk::Disk;
use super::lab::Lab;
use crate::ArchiveError;

/// Bytes between two crashes: no divisor of any line's length, so that every part of a line is met.
const STEP: usize = 61;

#[tokio::test]
async fn an_archiver_killed_at_any_byte_goes_on_as_if_it_had_not_been_and_never_told_more_than_it_held() {
    let mut lab = Lab::new(1);
    lab.fill(4).await;
    let whole = Disk::default();
    archive(&lab, &whole).await.unwrap();
    let expected = whole.contents();
    assert!(expected.len() > 2, "several segments: {:?}", expected.keys());
    let total: usize = expected.values().map(Vec::len).sum();
    for room in (0..total).step_by(STEP) {
        let disk = Disk::default();
        disk.fail_after(room, ErrorKind::Other);
        let died = archive(&lab, &disk).await;
        assert!(matches!(died, Err(ArchiveError::File { .. })), "after {room} bytes: {died:?}");
        disk.heal();
        archive(&lab, &disk).await.unwrap();
        assert_eq!(disk.contents(), expected, "after {room} bytes");
        assert_eq!(disk.lies(), Vec::<String>::new(), "after {room} bytes");
    }
}

#[tokio::test]
async fn garbage_behind_what_is_synced_is_cut_off() {
    let mut lab = Lab::new(1);
    lab.fill(4).await;
    let whole = Disk::default();
    archive(&lab, &whole).await.unwrap();
    let expected = whole.contents();
    let (&last, bytes) = expected.last_key_value().unwrap();
    // A crash may leave pages of zeros where data was not written yet, with later data behind them.
    let mut torn = expected.clone();
    let head = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    torn.get_mut(&last).unwrap()[head + 50..head + 150].fill(0);
    let disk = Disk::default();
    disk.replace(torn.clone());
    archive(&lab, &disk).await.unwrap();
    assert_eq!(disk.contents(), expected);

    // What the log no longer has cannot be fetched again, and is not cut off.
    lab.bus.log.trim(Lane(0), u64::MAX).await.unwrap();
    disk.replace(torn.clone());
    let refused = archive(&lab, &disk).await;
    let Err(ArchiveError::Damaged(difference)) = refused else { panic!("{refused:?}") };
    assert!(difference.what.contains("does not read") || difference.what.contains("chain"), "{difference}");
    assert_eq!(disk.contents(), torn, "nothing was changed");
}

#[tokio::test]
async fn damage_in_an_earlier_segment_is_refused_and_named() {
    let mut lab = Lab::new(1);
    lab.fill(4).await;
    let disk = Disk::default();
    archive(&lab, &disk).await.unwrap();
    let mut damaged = disk.contents();
    let first = *damaged.keys().next().unwrap();
    let bytes = damaged.get_mut(&first).unwrap();
    let line = bytes[..500].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    bytes[500] ^= 1;
    disk.replace(damaged);
    // What it need not read it cannot find damaged: that is what `verify` is for.
    disk.replace_memo(None);
    let refused = archive(&lab, &disk).await;
    let Err(ArchiveError::Damaged(difference)) = refused else { panic!("{refused:?}") };
    assert_eq!((difference.file.to_str(), difference.line), (Some("1"), Some(line)), "{difference}");
}

#[tokio::test]
async fn going_on_reads_only_the_last_segment_or_everything_and_writes_the_same() {
    let mut lab = Lab::new(1);
    lab.fill(5).await;
    let disk = Disk::default();
    archive(&lab, &disk).await.unwrap();
    let segments: Vec<u64> = disk.contents().into_keys().collect();
    let memo = crate::segment_store::Media::document(&disk, crate::segment_store::MEMO).unwrap().unwrap();
    lab.negotiate(Lane(0)).await;
    lab.register_all().await;
    let before = disk.contents();
    let mut written = Vec::new();
    let mut flipped = memo.clone();
    flipped[memo.len() / 2] ^= 1;
    for (kept, read) in [
        (Some(memo.clone()), &segments[segments.len() - 1..]),
        (None, &segments[..]),
        (Some(flipped), &segments[..]),
        (Some(memo[..20].to_vec()), &segments[..]),
        (Some(Vec::new()), &segments[..]),
    ] {
        disk.replace(before.clone());
        disk.replace_memo(kept);
        disk.take_read();
        archive(&lab, &disk).await.unwrap();
        assert_eq!(disk.take_read(), read);
        written.push(disk.contents());
    }
    assert!(written[0] != before && written.iter().all(|contents| *contents == written[0]));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_shown_and_tried_again_and_nothing_is_lost() {
    let mut lab = Lab::new(1);
    lab.fill(4).await;
    let whole = Disk::default();
    archive(&lab, &whole).await.unwrap();

    let (disk, cancel) = (Disk::default(), CancellationToken::new());
    disk.fail_after(5000, ErrorKind::StorageFull);
    let filling = async {
        // Long enough for several attempts.
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(disk.stores() > 3, "it is tried again: {}", disk.stores());
        disk.heal();
        tokio::time::sleep(Duration::from_secs(9)).await;
        cancel.cancel();
    };
    let (archived, ()) = tokio::join!(lab.archive_to(&disk, false, cancel.clone()), filling);
    archived.outcome.unwrap();
    assert_eq!(disk.contents(), whole.contents());
    assert_eq!(disk.lies(), Vec::<String>::new());
    let [lane] = &archived.status.lanes()[..] else { panic!("one lane") };
    assert_eq!((lane.told, lane.fault.as_deref()), (disk.position(), None));
}

#[tokio::test]
async fn a_full_disk_ends_a_single_run_with_the_remedy() {
    let mut lab = Lab::new(1);
    lab.fill(2).await;
    let disk = Disk::default();
    disk.fail_after(100, ErrorKind::StorageFull);
    let refused = archive(&lab, &disk).await.unwrap_err();
    assert!(refused.to_string().contains("make room"), "{refused}");
}

async fn archive(lab: &Lab, disk: &Disk) -> Result<(), ArchiveError> {
    lab.archive_to(disk, true, CancellationToken::new()).await.outcome
}
