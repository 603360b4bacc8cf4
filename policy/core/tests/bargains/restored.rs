//! The state as bytes: restored anywhere, a bargain goes on as if nothing had been; and what differs shows in digests.

use policy_core::{LaneState, Limits};
use schemas::policy::BargainRule;
use schemas::record::Record;
use schemas::{Act, Digest, Lane, Timestamp};
use serde_json::json;

use crate::haggle::{Haggle, delegate};

/// Bytes of the checksum at the end of a snapshot.
const CHECKSUM_LEN: usize = 32;

#[test]
fn a_bargain_restored_after_any_record_goes_on_alike() {
    for haggle in [confirmed(), delegated()] {
        let log = haggle.script.log();
        for cut in 0..=log.len() {
            let mut steady = LaneState::new(Lane(0), Limits::default());
            fold(&mut steady, &log[..cut]);
            let bytes = steady.snapshot();
            let mut restored = LaneState::restore(&bytes, Lane(0), Limits::default()).expect("a snapshot");
            assert!(restored.snapshot() == bytes, "after {cut} records");
            assert_eq!((restored.digest(), restored.poll_deadline()), (steady.digest(), steady.poll_deadline()));
            for (seq, time, record) in &log[cut..] {
                steady.handle_record(*seq, *time, record);
                restored.handle_record(*seq, *time, record);
                let effects = |lane_state: &mut LaneState| {
                    format!("{:?}", std::iter::from_fn(|| lane_state.poll_effect()).collect::<Vec<_>>())
                };
                assert_eq!(effects(&mut restored), effects(&mut steady));
            }
            assert_eq!(restored.state_digest_full(), steady.state_digest_full());
        }
    }
}

#[test]
fn states_whose_standing_offers_differ_have_different_digests() {
    let digests = |price| {
        let mut haggle = Haggle::between(&["alice", "bob"], json!({}));
        haggle.made(20, "alice", price);
        (haggle.script.lane_state.digest(), haggle.script.lane_state.state_digest_full())
    };
    let (one, other) = (digests(5), digests(6));
    assert!(one.0 != other.0 && one.1 != other.1);
    assert_eq!(one, digests(5));
}

/// A checksum keeps accidents out, not a build that writes nonsense: no state that is restored may panic later.
#[test]
fn nonsense_under_a_right_checksum_is_refused_or_goes_on_without_a_panic() {
    let (mut refused, mut restored) = (0, 0);
    for haggle in [confirmed(), delegated()] {
        let log = haggle.script.log();
        let cut = log.len() - 3;
        let mut lane_state = LaneState::new(Lane(0), Limits::default());
        fold(&mut lane_state, &log[..cut]);
        let whole = lane_state.snapshot();
        for index in 20..whole.len() - CHECKSUM_LEN {
            for change in [1_u8, 0x40, 0x80] {
                let mut altered = whole.clone();
                altered[index] ^= change;
                let end = altered.len() - CHECKSUM_LEN;
                let checksum = Digest::of_bytes(&altered[..end]);
                altered[end..].copy_from_slice(&checksum.0);
                match LaneState::restore(&altered, Lane(0), Limits::default()) {
                    Err(_) => refused += 1,
                    Ok(mut lane_state) => {
                        restored += 1;
                        fold(&mut lane_state, &log[cut..]);
                        assert!(LaneState::restore(&lane_state.snapshot(), Lane(0), Limits::default()).is_ok());
                    }
                }
            }
        }
    }
    assert!(refused > 0 && restored > 0, "{refused} refused, {restored} restored");
}

/// Everything a bargain keeps, to the agreement and beyond.
fn confirmed() -> Haggle {
    let mut haggle = Haggle::between(&["alice", "bob", "carol"], json!({"confirm_ms": 50, "forbid_repeat": true}));
    haggle.offer(20, "alice", 101);
    let conditions = json!({
        "valid_for_ms": 500, "valid_from": "1970-01-01T00:16:40.021Z",
        "conditions": [{"attr": "round", "op": "le", "value": 3}, {"attr": "price", "op": "ne", "value": 7}],
    });
    let offer = haggle.made_with(21, "alice", 50, conditions);
    haggle.offer(22, "carol", 5);
    haggle.accept(23, "bob", offer);
    haggle.accept(24, "carol", offer);
    for (at, who) in [(25, "carol"), (26, "alice"), (27, "bob")] {
        haggle.say(at, who, Act::Confirm, json!({"award_no": 1}));
    }
    haggle.offer(28, "bob", 5);
    haggle.script.tick(9_000_000);
    haggle
}

/// Policies that look back.
fn delegated() -> Haggle {
    let rule = BargainRule::Combi { late_ppm: 300_000, window_ppm: 500_000 };
    let mandate = json!({
        "policy": "delegate", "concession": {"conceder": 3}, "limits": [{"attr": "price", "op": "lt", "value": 90}],
        "utility": {"linear": [{"issue": "price", "weight": 1000, "at_min": 1_000_000, "at_max": 0}]},
    });
    let mut haggle = Haggle::under(&["alice", "bob"], json!({"rounds": 9}), |who| {
        (who == "bob").then(|| (mandate.clone(), Some(delegate(rule.clone()))))
    });
    for price in [80, 70, 75, 70] {
        haggle.offer(20, "alice", price);
        haggle.offer(21, "bob", 1);
    }
    assert_eq!(haggle.script.lane_state.open_count(), 0, "the policy took the 70 in the end");
    haggle
}

fn fold(lane_state: &mut LaneState, log: &[(u64, Timestamp, Record)]) {
    for (seq, time, record) in log {
        lane_state.handle_record(*seq, *time, record);
        while lane_state.poll_effect().is_some() {}
    }
}
