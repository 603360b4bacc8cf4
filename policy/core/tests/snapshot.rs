//! Snapshots that are refused, and by what name. That a restored lane state goes on as the one it was taken of is a property
//! (`properties/restored.rs`).

#[path = "support/script.rs"]
mod script;

use policy_core::lane::{SNAPSHOT_FORMAT, SnapshotError};
use policy_core::{LaneState, Limits};
use schemas::record::{EngineEvent, Entry, Record};
use schemas::{Act, Digest, Lane, Timestamp};
use script::{Script, policy};
use serde_json::json;

const LANE: Lane = Lane(0);
/// Bytes before the state.
const STATE_BEGIN: usize = 57;
const CHECKSUM_LEN: usize = 32;

#[test]
fn a_snapshot_cut_short_anywhere_is_refused() {
    let whole = busy().snapshot();
    for len in 0..whole.len() {
        let refusal = restore(&whole[..len]).expect_err("cut short");
        if len == 0 {
            assert_eq!(refusal, SnapshotError::NotASnapshot);
        } else {
            assert!(matches!(refusal, SnapshotError::Length { .. }), "{len} bytes: {refusal}");
        }
    }
}

#[test]
fn a_snapshot_with_any_byte_altered_is_refused() {
    let whole = busy().snapshot();
    for index in 0..whole.len() {
        for change in [1_u8, 0x80, 0xff] {
            let mut altered = whole.clone();
            altered[index] ^= change;
            let refusal = restore(&altered).expect_err("altered");
            let is_named = match index {
                0..8 => refusal == SnapshotError::NotASnapshot,
                8..12 => matches!(refusal, SnapshotError::Format { known: SNAPSHOT_FORMAT, .. }),
                12..20 => matches!(refusal, SnapshotError::Length { .. }),
                _ => refusal == SnapshotError::Altered,
            };
            assert!(is_named, "byte {index}: {refusal}");
        }
    }
}

#[test]
fn a_state_cut_short_anywhere_under_a_right_checksum_is_refused() {
    let whole = busy().snapshot();
    for len in STATE_BEGIN..whole.len() - CHECKSUM_LEN {
        let refusal = restore(&resealed(&whole[..len])).expect_err("cut short");
        assert!(matches!(refusal, SnapshotError::Malformed { offset, .. } if offset <= len), "{len} bytes: {refusal}");
    }
}

#[test]
fn a_state_something_was_appended_to_under_a_right_checksum_is_refused() {
    let whole = busy().snapshot();
    let end = whole.len() - CHECKSUM_LEN;
    let refusal = restore(&resealed(&[&whole[..end], &[0]].concat())).expect_err("appended to");
    assert_eq!(refusal, SnapshotError::Malformed { offset: end, fault: "bytes are left over".to_owned() });
}

/// What builds wrote before snapshots were postcard began with another word.
#[test]
fn a_snapshot_of_a_build_before_this_codec_is_none() {
    let mut old = busy().snapshot();
    old[..8].copy_from_slice(b"llmxbook");
    seal(&mut old);
    assert_eq!(restore(&old).err(), Some(SnapshotError::NotASnapshot));
}

#[test]
fn a_snapshot_something_was_appended_to_is_refused() {
    let mut longer = busy().snapshot();
    let expected = u64::try_from(longer.len()).unwrap();
    longer.push(0);
    assert_eq!(restore(&longer).err(), Some(SnapshotError::Length { expected, found: expected + 1 }));
}

#[test]
fn a_snapshot_of_another_lane_is_refused() {
    let bytes = busy().snapshot();
    let refusal = LaneState::restore(&bytes, Lane(5), Limits::default()).expect_err("another lane");
    assert_eq!(refusal, SnapshotError::OtherLane { found: LANE, wanted: Lane(5) });
}

#[test]
fn a_snapshot_made_under_any_other_limit_is_refused() {
    let bytes = busy().snapshot();
    let changes: [fn(&mut Limits); 8] = [
        |limits| limits.open_max += 1,
        |limits| limits.invited_max += 1,
        |limits| limits.messages_per_party_max += 1,
        |limits| limits.tombstones_max += 1,
        |limits| limits.tombstone_grace_ms += 1,
        |limits| limits.stranger_receipt_ms += 1,
        |limits| limits.names_shared_max += 1,
        |limits| limits.winners_max += 1,
    ];
    for change in changes {
        let mut limits = Limits::default();
        change(&mut limits);
        assert_eq!(LaneState::restore(&bytes, LANE, limits).err(), Some(SnapshotError::OtherLimits));
    }
}

/// A checksum keeps accidents out, not a build that writes nonsense: that must not panic either, nor leave half a state.
#[test]
fn nonsense_under_a_right_checksum_is_refused_or_restored_whole() {
    let whole = busy().snapshot();
    let (mut refused, mut restored) = (0, 0);
    for index in 20..whole.len() - CHECKSUM_LEN {
        for change in [1_u8, 2, 0x40, 0x80, 0xff] {
            let mut altered = whole.clone();
            altered[index] ^= change;
            seal(&mut altered);
            match restore(&altered) {
                Err(_) => refused += 1,
                Ok(lane_state) => {
                    restored += 1;
                    assert!(LaneState::restore(&lane_state.snapshot(), LANE, Limits::default()).is_ok());
                }
            }
        }
    }
    assert!(refused > 0 && restored > 0, "{refused} refused, {restored} restored");
}

#[test]
fn a_length_that_promises_more_than_there_is_is_refused() {
    let mut bytes = LaneState::new(LANE, Limits::default()).snapshot();
    bytes.truncate(bytes.len() - CHECKSUM_LEN);
    // The count of negotiations of an empty lane state is its last byte.
    assert_eq!(bytes.pop(), Some(0));
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    let refusal = restore(&resealed(&bytes)).expect_err("a promise");
    assert!(refusal.to_string().ends_with("a length exceeds the state"), "{refusal}");
}

#[test]
fn an_empty_lane_has_a_snapshot() {
    let lane_state = LaneState::new(LANE, Limits::default());
    let restored = restore(&lane_state.snapshot()).expect("a snapshot");
    assert_eq!((restored.digest(), restored.position()), (lane_state.digest(), 0));
}

#[test]
fn the_owner_and_an_unknown_rules_version_survive() {
    let mut script = Script::empty();
    script.engine(0, 3, EngineEvent::Claim { engine: "first".to_owned() });
    script.engine(1, 3, EngineEvent::Rules { version: 9 });
    let lane_state = restore(&script.lane_state.snapshot()).expect("a snapshot");
    assert_eq!((lane_state.epoch(), lane_state.is_owner("first"), lane_state.rules()), (3, true, 9));
}

#[test]
fn the_full_digest_is_that_of_the_state_and_not_of_the_way_to_it() {
    let lane_state = busy();
    let mut again = restore(&lane_state.snapshot()).expect("a snapshot");
    assert_eq!(again.state_digest_full(), lane_state.state_digest_full());
    let seq = again.position() + 1;
    again.handle_record(seq, again.now(), &Record::new("test", vec![Entry::Tick]));
    assert_ne!(again.state_digest_full(), lane_state.state_digest_full());
}

fn restore(bytes: &[u8]) -> Result<LaneState, SnapshotError> {
    LaneState::restore(bytes, LANE, Limits::default())
}

/// Puts the right checksum under altered contents.
fn seal(bytes: &mut [u8]) {
    let (contents, checksum) = bytes.split_at_mut(bytes.len() - CHECKSUM_LEN);
    checksum.copy_from_slice(&Digest::of_bytes(contents).0);
}

/// Contents with the length and the checksum they should have.
fn resealed(contents: &[u8]) -> Vec<u8> {
    let mut bytes = [contents, &[0; CHECKSUM_LEN]].concat();
    let length = u64::try_from(bytes.len()).expect("a length");
    bytes[12..20].copy_from_slice(&length.to_be_bytes());
    seal(&mut bytes);
    bytes
}

/// A lane with an open negotiation in which much has happened, and an ended one.
fn busy() -> LaneState {
    let mut script = Script::empty();
    let (call, envelope) = (json!({"task": "first", "currency": "EUR"}), json!({"negotiation": "ended"}));
    script.call(0, policy(|_| {}), &["a", "b"], call.clone(), envelope);
    script.tick(6_000);
    script.negotiation = schemas::NegotiationId::try_new("alice~open").expect("an id");
    let lots = policy(|policy| (policy.awards, policy.standby, policy.max_rounds) = (2, 2, 3));
    let envelope =
        json!({"to": ["topic://jobs"], "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"});
    script.call(7_000, lots, &["a", "b", "c", "d"], call, envelope);
    script.offer(7_001, "a", 10);
    script.offer(7_002, "b", 5_000);
    script.offer(7_003, "b", 20);
    script.offer(7_004, "c", 30);
    script.offer(7_005, "d", 40);
    script.say(7_006, "b", Act::Withdraw, json!({}));
    script.confirm(7_007, "a", 1);
    assert_eq!((script.lane_state.open_count(), script.lane_state.tombstone_count()), (1, 1));
    assert!(script.lane_state.now() > Timestamp(0));
    script.lane_state
}
