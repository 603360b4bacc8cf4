//! Receipts by exception (docs/spec/messages.md#ms-55 to #ms-57).

use schemas::record::{Entry, Qos};
use schemas::{Act, OfferId};
use serde_json::json;

use crate::script::{Script, pinned, policy};

/// Nobody asks for receipts.
fn open(contractors: &[&str], change: impl FnOnce(&mut schemas::Policy)) -> Script {
    let mut script = Script::empty();
    script.receipts_all = false;
    script.call(0, policy(change), contractors, json!({}), json!({}));
    script
}

#[test]
fn a_receipt_that_says_no_more_than_ok_comes_along_with_the_next_delivery() {
    let mut script = open(&["a", "b", "c"], |policy| policy.standby = 0);
    assert_eq!(script.last("alice", Act::Ack).told.receipt().and_then(|receipt| receipt.invited), Some(3));
    assert_eq!(script.offer(1, "a", 40), [""; 0]);
    assert_eq!(script.offer(2, "b", 10), [""; 0]);
    assert_eq!(
        script.say(3, "c", Act::Refuse, json!({})),
        ["award.0.1", "b<accept:1+m3@award.0.1", "alice<inform:awarded:b:1@award.0.1", "a<reject:outscored+m2",],
        "nobody tells c: it refused, and that closes the collection"
    );
    let told: Vec<_> = script.deliveries.iter().flat_map(|deliver| deliver.receipts.iter()).collect();
    assert!(told.iter().all(|receipt| receipt.is_bare()), "{told:?}");
    let [b, a] = told[..] else { panic!("{told:?}") };
    let offered_in = |seq| Some(OfferId(schemas::Position { seq, index: 0 }));
    assert_eq!((b.offer_id, a.offer_id), (offered_in(3), offered_in(2)));
    assert_eq!(
        script.confirm(4, "b", 1),
        [
            "award.0.1.end=committed@award.0.1",
            "b<ack:committed@award.0.1.end",
            "alice<inform:committed:b:1@award.0.1.end"
        ],
        "committed says more, and is told at once"
    );
    assert_eq!(
        script.done(5, "b"),
        [
            "alice<inform:done:b:1",
            "closed=completed@award.0.1.end",
            "alice<closed:completed@closed",
            "b<closed:completed+m6@closed"
        ]
    );
    script.assert_sound();
}

#[test]
fn what_waits_at_the_end_and_goes_with_nothing_is_never_told() {
    let mut script = open(&["a", "b"], |_| {});
    assert_eq!(script.say(1, "a", Act::Refuse, json!({})), [""; 0]);
    script.offer(2, "b", 10);
    script.confirm(3, "b", 1);
    let last = script.done(4, "b");
    assert!(last.iter().all(|text| !text.starts_with("a<")), "{last:?}");
    assert_eq!(
        script.say_with(5, "a", Act::Refuse, json!({}), json!({"msg_id": "m2"})),
        ["a<ack:duplicate:ok"],
        "an ended negotiation answers what it is asked, and no more"
    );
}

#[test]
fn every_receipt_that_says_more_goes_at_once_and_takes_along_what_waits() {
    let mut script = open(&["a", "b"], |_| {});
    assert_eq!(script.offer(1, "a", 40), [""; 0]);
    assert_eq!(script.offer(2, "a", 30), ["a<reject:replaced+m2+m3"], "in the order of the messages");
    assert_eq!(script.offer(3, "a", 20), ["a<reject:replaced+m4"]);
    assert_eq!(script.say(4, "a", Act::Withdraw, json!({})), ["a<reject:withdrawn+m5"]);
    assert_eq!(script.offer(5, "a", 20), [""; 0]);
    let misplaced = ["a<ack:out_of_turn+m6", "a<not_understood:out_of_turn"];
    assert_eq!(script.say(6, "a", Act::Confirm, json!({"award_no": 1})), misplaced);
    assert_eq!(
        script.say_with(7, "a", Act::Confirm, json!({"award_no": 1}), json!({"msg_id": "m7"})),
        ["a<ack:duplicate:out_of_turn", "a<not_understood:out_of_turn"]
    );
}

#[test]
fn a_repeat_is_answered_at_once_with_what_became_of_the_first() {
    let mut script = open(&["a", "b"], |_| {});
    script.offer(1, "a", 40);
    let again = json!({"terms": {"price": 40, "delivery_ms": 0}});
    assert_eq!(script.say_with(2, "a", Act::Offer, again, json!({"msg_id": "m2"})), ["a<ack:duplicate:ok+m2"]);
}

#[test]
fn a_message_or_a_registration_that_asks_gets_its_receipt_at_once() {
    let mut script = open(&["a", "b"], |_| {});
    assert_eq!(script.offer(1, "a", 40), [""; 0]);
    let revised = json!({"terms": {"price": 30, "delivery_ms": 0}});
    assert_eq!(
        script.say_with(2, "a", Act::Offer, revised, json!({"receipt": true})),
        ["a<ack:ok+m2", "a<reject:replaced"]
    );
    script.receipts_all = true;
    assert_eq!(script.say(3, "a", Act::Withdraw, json!({})), ["a<ack:ok", "a<reject:withdrawn"]);
}

#[test]
fn ids_of_deliveries_do_not_depend_on_who_asks_for_receipts() {
    let ids = |receipts_all: bool| {
        let mut script = Script::empty();
        script.receipts_all = receipts_all;
        script.call(0, policy(|_| {}), &["a", "b"], json!({}), json!({}));
        script.offer(1, "a", 40);
        script.offer(2, "b", 10);
        script.confirm(3, "b", 1);
        let others =
            script.deliveries.iter().filter(|deliver| !deliver.told.receipt().is_some_and(|one| one.is_bare()));
        others.map(|deliver| deliver.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(true), ids(false));
}

#[test]
fn nothing_comes_along_with_a_delivery_that_is_sent_only_once() {
    let mut script = Script::empty();
    script.receipts_all = false;
    let mut called = pinned(policy(|policy| policy.max_rounds = 2), &["a", "b"]);
    called.invited[0].qos = Qos::BestEffort;
    script.call_pinned(0, called);
    assert_eq!(script.say(1, "a", Act::Refuse, json!({})), [""; 0]);
    assert_eq!(script.say(2, "b", Act::Refuse, json!({})), ["a<cfp:2", "b<cfp:2+m3"]);
    assert_eq!(
        script.cancel(3),
        [
            "closed=cancelled",
            "alice<closed:cancelled+m4@closed",
            "a<closed:cancelled+m2@closed",
            "b<closed:cancelled@closed"
        ]
    );
}

#[test]
fn waiting_receipts_survive_a_restart() {
    let mut script = open(&["a", "b"], |_| {});
    script.offer(1, "a", 40);
    let bytes = script.lane_state.snapshot();
    let restored = policy_core::LaneState::restore(&bytes, schemas::Lane(0), policy_core::Limits::default());
    let mut restored = restored.expect("a whole snapshot");
    assert_eq!(restored.state_digest_full(), script.lane_state.state_digest_full());
    std::mem::swap(&mut script.lane_state, &mut restored);
    let message = script.message("a", Act::Withdraw, json!({}), json!({}));
    assert_eq!(script.fold(2, vec![Entry::Message(message)]), ["a<reject:withdrawn+m2+m3"]);
}
