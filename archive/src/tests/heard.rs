//! Who hears of what ended is told what led there, and goes on where the last reading ended.

use std::fs;
use std::path::Path;

use schemas::delivery::{Notification, Outcome, ProgressReport};
use schemas::{Act, Digest, Lane};

use super::lab::{Lab, SEGMENT_BYTES};
use crate::{ArchiveReport, Closed, Positions, VerifyOptions, hear};

/// Of a negotiation that ended: its id, how, the acts it was led there by, and what its agents were told.
type Heard = (String, Outcome, usize, Vec<Act>, bool);

fn heard(folder: &Path, positions: &mut Positions) -> (ArchiveReport, Vec<Heard>) {
    let mut found = Vec::new();
    let options = VerifyOptions { allow_open_end: true, keep_positions: true, ..VerifyOptions::default() };
    let report = hear(folder, &options, positions, &mut |_, closed: &Closed| {
        let told = closed.course.told.iter().map(|(_, told)| told.act()).collect();
        let course = &closed.course;
        found.push((closed.negotiation.to_string(), closed.outcome, course.bodies.len(), told, course.is_conflict));
    });
    (report.unwrap(), found)
}

fn text(positions: &Positions) -> String {
    serde_json::to_string(positions).unwrap()
}

#[tokio::test]
async fn what_ended_is_told_with_its_call_its_offers_and_what_its_agents_were_told() {
    let mut lab = Lab::new(2);
    lab.fill(4).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), SEGMENT_BYTES).await.unwrap();
    let (report, found) = heard(folder.path(), &mut Positions::default());
    assert_eq!((report.first_difference, found.len()), (None, 4));
    for (id, outcome, bodies, told, is_conflict) in found {
        assert!((bodies, is_conflict) == (2, false) && told.contains(&Act::Closed), "{id}: {told:?}");
        let awarded = told.iter().filter(|act| **act == Act::Inform).count();
        // Awarded, and where it was confirmed: committed and the result.
        assert_eq!(awarded, if outcome == Outcome::Completed { 3 } else { 1 }, "{id}: {told:?}");
    }
    let mut awards = Vec::new();
    hear(folder.path(), &VerifyOptions::default(), &mut Positions::default(), &mut |lane, closed| {
        for (to, told) in &closed.course.told {
            if let Notification::Inform(ProgressReport::Awarded(award)) = &**told {
                awards.push((lane, to.to_string(), award.contractor.to_string(), closed.course.policy.clone()));
            }
        }
    })
    .unwrap();
    assert!(awards.contains(&(Lane(1), "alice".to_owned(), "bob".to_owned(), "low@1".to_owned())), "{awards:?}");
}

#[tokio::test]
async fn a_reading_goes_on_where_the_last_one_ended_and_tells_everything_once() {
    let (mut lab, folder) = (Lab::new(2), tempfile::tempdir().unwrap());
    let (mut positions, mut told, mut records) = (Positions::default(), Vec::new(), 0);
    for _ in 0..4 {
        for lane in [0, 1, 0] {
            lab.negotiate(Lane(lane)).await;
        }
        lab.register_all().await;
        lab.archive_once(folder.path(), SEGMENT_BYTES).await.unwrap();
        let (report, found) = heard(folder.path(), &mut positions);
        assert_eq!((report.first_difference, report.total.negotiations), (None, found.len() as u64));
        records += report.total.records;
        told.extend(found);
        positions = serde_json::from_str(&text(&positions)).unwrap();
    }
    let (whole, mut found) = heard(folder.path(), &mut Positions::default());
    found.sort_by(|one, other| one.0.cmp(&other.0));
    told.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!((told, records), (found, whole.total.records));
}

#[tokio::test]
async fn a_lane_that_ends_before_what_its_last_record_ended_is_read_again() {
    let (mut lab, folder) = (Lab::new(1), tempfile::tempdir().unwrap());
    lab.negotiate(Lane(0)).await;
    lab.register_all().await;
    lab.archive_once(folder.path(), u64::MAX).await.unwrap();
    let file = folder.path().join("lane-0/00000000000000000001.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let at = whole.find("{\"line\":{\"closed\"").unwrap();
    fs::write(&file, &whole[..at]).unwrap();
    let mut positions = Positions::default();
    let (report, found) = heard(folder.path(), &mut positions);
    assert_eq!((report.first_difference, found.len(), text(&positions).as_str()), (None, 0, "{}"));
    fs::write(&file, whole).unwrap();
    assert_eq!(heard(folder.path(), &mut positions).1.len(), 1);
    assert_eq!(heard(folder.path(), &mut positions).1.len(), 0);
}

#[tokio::test]
async fn a_conflict_over_the_register_is_told() {
    let mut lab = Lab::new(1);
    lab.contest(true).await;
    lab.negotiate(Lane(0)).await;
    let folder = tempfile::tempdir().unwrap();
    lab.archive_once(folder.path(), u64::MAX).await.unwrap();
    let (_, found) = heard(folder.path(), &mut Positions::default());
    assert_eq!(found.iter().map(|heard| (heard.1, heard.4)).collect::<Vec<_>>(), [(Outcome::Aborted, true)]);
}

#[tokio::test]
async fn the_state_of_an_earlier_build_has_no_courses_and_is_read() {
    let (mut lab, folder) = (Lab::new(1), tempfile::tempdir().unwrap());
    lab.negotiate(Lane(0)).await;
    lab.archive_once(folder.path(), 1).await.unwrap();
    let resume = fs::read(folder.path().join("lane-0/resume")).unwrap();
    let end = resume.iter().position(|byte| *byte == b'\n').unwrap();
    let line = String::from_utf8(resume[..end].to_vec()).unwrap();
    let course = r#","course":{"bodies":{},"told":[],"policy":"","is_conflict":false}"#;
    assert!(line.contains(course), "{line}");
    let mut earlier = line.replace(course, "").into_bytes();
    earlier.extend(&resume[end..resume.len() - 32]);
    let digest = Digest::of_bytes(&earlier);
    earlier.extend(digest.0);
    fs::write(folder.path().join("lane-0/resume"), earlier).unwrap();
    // Read from its beginning the archive would be damaged.
    let first = folder.path().join("lane-0/00000000000000000001.jsonl");
    fs::write(&first, "").unwrap();
    lab.negotiate(Lane(0)).await;
    lab.archive_once(folder.path(), 1).await.unwrap();
}
