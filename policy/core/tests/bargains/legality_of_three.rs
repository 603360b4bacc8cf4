//! What is legal between three, where an offer needs more than one acceptance.

use schemas::Act;
use schemas::delivery::Notification;
use serde_json::json;

use crate::haggle::Haggle;
use crate::legality::{Row, check, nine_times};

const THREE: [&str; 3] = ["alice", "bob", "carol"];

/// Between alice, bob and carol; the first offer is `o5-0`.
const MULTILATERAL: [Row; 8] = [
    Row {
        case: "one acceptance of two passes the turn on, with the offer standing",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", offer)
        },
        effects: &["bob<ack:ok", "alice<turn:carol:o5-0", "carol<turn:carol:o5-0"],
    },
    Row {
        case: "the second acceptance of two makes the agreement",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", offer);
            h.accept(40, "carol", offer)
        },
        effects: &[
            "carol<ack:ok",
            "award.0.1=o5-0",
            "closed=agreement@award.0.1",
            "alice<closed:agreement@closed",
            "bob<closed:agreement@closed",
            "carol<closed:agreement@closed",
        ],
    },
    Row {
        case: "what one has accepted can no longer be withdrawn, and trying is no strike",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", offer);
            nine_times(|| h.withdraw(40, "alice"))
        },
        effects: &["alice<ack:out_of_turn", "alice<not_understood:out_of_turn"],
    },
    Row {
        case: "a counter-offer takes earlier acceptances with it",
        play: |h| {
            let first = h.made(20, "alice", 50);
            h.accept(30, "bob", first);
            let counter = h.made(40, "carol", 60);
            h.accept(50, "alice", counter)
        },
        effects: &["alice<ack:ok", "bob<turn:bob:o7-0", "carol<turn:bob:o7-0"],
    },
    Row {
        case: "two acceptances that cross: the one out of turn is refused, and has to come again",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            assert_eq!(h.accept(30, "carol", offer)[0], "carol<ack:out_of_turn");
            h.accept(30, "bob", offer);
            h.accept(31, "carol", offer).split_off(5)
        },
        effects: &["carol<closed:agreement@closed"],
    },
    Row {
        case: "accepting twice is out of turn",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", offer);
            h.accept(40, "bob", offer)
        },
        effects: &["bob<ack:out_of_turn", "bob<not_understood:out_of_turn"],
    },
    Row {
        case: "an offer that runs out after one acceptance stands no more",
        play: |h| {
            let offer = h.made_with(20, "alice", 50, json!({"valid_for_ms": 20}));
            h.accept(30, "bob", offer);
            h.accept(41, "carol", offer)
        },
        effects: &[
            "alice<turn:carol",
            "bob<turn:carol",
            "carol<turn:carol",
            "carol<ack:expired",
            "carol<not_understood:standing",
        ],
    },
    Row {
        case: "the agreement counts the acceptance that made it as a step of its round",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", offer);
            h.accept(40, "carol", offer);
            let Notification::Closed(closing) = &*h.script.last("bob", Act::Closed).told else { panic!() };
            let agreed = closing.agreement.as_ref().expect("an agreement");
            vec![format!("{} round {} step {}", agreed.by, agreed.round, agreed.step)]
        },
        effects: &["alice round 1 step 3"],
    },
];

#[test]
fn between_three_every_act_is_legal_or_refused_as_its_row_says() {
    check(&THREE, &MULTILATERAL);
}

#[test]
fn forbidden_repeats_are_refused_until_somebody_has_accepted_the_terms() {
    let mut haggle = Haggle::between(&THREE, json!({"forbid_repeat": true, "rounds": 9}));
    haggle.made(20, "alice", 50);
    haggle.made(21, "bob", 50);
    let third = haggle.made(22, "carol", 60);
    assert_eq!(
        haggle.offer(23, "alice", 50),
        ["alice<ack:policy_reject", "alice<not_understood:repeated:/payload/terms"]
    );
    haggle.accept(24, "alice", third);
    haggle.made(25, "bob", 40);
    haggle.made(26, "carol", 60);
    assert_eq!(haggle.offer(27, "alice", 50)[0], "alice<ack:policy_reject", "nobody accepted these");
}
