//! What is legal when: one row for each case, with every effect of its last act.

use schemas::ids::Position;
use schemas::{Act, Digest, DocumentHash, OfferId};
use serde_json::json;

use crate::haggle::{Haggle, Made};
use crate::script::Script;

/// One case: what happens, and every effect of its last act.
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) play: fn(&mut Haggle) -> Vec<String>,
    pub(crate) effects: &'static [&'static str],
}

const TWO: [&str; 2] = ["alice", "bob"];

/// Between alice and bob. The first offer is `o4-0`: rules, call, and bob's JOIN come before it.
const BILATERAL: [Row; 28] = [
    Row {
        case: "an offer in turn stands, and the turn passes on",
        play: |h| h.offer(20, "alice", 50),
        effects: &["alice<ack:ok", "bob<turn:bob:o4-0"],
    },
    Row {
        case: "a counter-offer replaces the standing offer",
        play: |h| {
            h.made(20, "alice", 50);
            h.offer(30, "bob", 40)
        },
        effects: &["bob<ack:ok", "alice<turn:alice:o5-0"],
    },
    Row {
        case: "accepting the standing offer makes the agreement, registered before anybody is told",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", offer)
        },
        effects: &[
            "bob<ack:ok",
            "award.0.1=o4-0",
            "closed=agreement@award.0.1",
            "alice<closed:agreement@closed",
            "bob<closed:agreement@closed",
        ],
    },
    Row {
        case: "accepting without a standing offer is refused, and no strike",
        play: |h| {
            let none = Made { id: unknown(), digest: Digest([0; 32]) };
            nine_times(|| h.accept(20, "alice", none))
        },
        effects: &["alice<ack:out_of_turn", "alice<not_understood:standing"],
    },
    Row {
        case: "accepting an offer nobody made is refused",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", Made { id: unknown(), ..offer })
        },
        effects: &["bob<ack:out_of_turn", "bob<not_understood:standing"],
    },
    Row {
        case: "accepting a superseded offer is refused",
        play: |h| {
            let first = h.made(20, "alice", 50);
            h.made(30, "bob", 40);
            h.made(40, "alice", 45);
            h.accept(50, "bob", first)
        },
        effects: &["bob<ack:out_of_turn", "bob<not_understood:standing"],
    },
    Row {
        case: "accepting one's own earlier offer in turn is refused, and no strike",
        play: |h| {
            let own = h.made(20, "alice", 50);
            h.made(30, "bob", 40);
            h.accept(40, "alice", own)
        },
        effects: &["alice<ack:out_of_turn", "alice<not_understood:standing"],
    },
    Row {
        case: "accepting one's own standing offer is out of turn",
        play: |h| {
            let own = h.made(20, "alice", 50);
            h.accept(30, "alice", own)
        },
        effects: &["alice<ack:out_of_turn", "alice<not_understood:out_of_turn"],
    },
    Row {
        case: "accepting other terms under the standing offer's id is refused",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", Made { digest: Digest([7; 32]), ..offer })
        },
        effects: &["bob<ack:out_of_turn", "bob<not_understood:standing"],
    },
    Row {
        case: "accepting without the digest of the terms is malformed",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.say(30, "bob", Act::Accept, json!({"offer_id": offer.id}))
        },
        effects: &["bob<ack:malformed", "bob<not_understood:terms_digest:/payload/terms_digest"],
    },
    Row {
        case: "a bargain knows no protocol documents",
        play: |h| {
            let documents = json!([DocumentHash::of_bytes(b"a document")]);
            h.say(20, "alice", Act::Offer, json!({"terms": {"price": 50}, "documents": documents}))
        },
        effects: &["alice<ack:malformed", "alice<not_understood:document:/payload/documents"],
    },
    Row {
        case: "an offer can be accepted at the last instant of its validity",
        play: |h| {
            let offer = h.made_with(20, "alice", 50, json!({"valid_for_ms": 10}));
            h.accept(30, "bob", offer).split_off(4)
        },
        effects: &["bob<closed:agreement@closed"],
    },
    Row {
        case: "accepting an expired offer is expired, after everybody was told that none stands",
        play: |h| {
            let offer = h.made_with(20, "alice", 50, json!({"valid_for_ms": 10}));
            h.accept(31, "bob", offer)
        },
        effects: &["alice<turn:bob", "bob<turn:bob", "bob<ack:expired", "bob<not_understood:standing"],
    },
    Row {
        case: "an offer whose validity is over when it arrives does not stand",
        play: |h| h.offer_with(20, "alice", 50, json!({"valid_until": "1970-01-01T00:16:40.020Z"})),
        effects: &["alice<ack:expired", "alice<not_understood:validity:/payload/valid_until"],
    },
    Row {
        case: "an offer cannot be accepted before its validity begins",
        play: |h| {
            let offer = h.made_with(20, "alice", 50, json!({"valid_from": "1970-01-01T00:16:40.040Z"}));
            h.accept(30, "bob", offer)
        },
        effects: &["bob<ack:out_of_turn", "bob<not_understood:not_yet_valid"],
    },
    Row {
        case: "an offer can be accepted when its validity begins",
        play: |h| {
            let offer = h.made_with(20, "alice", 50, json!({"valid_from": "1970-01-01T00:16:40.040Z"}));
            h.accept(40, "bob", offer).split_off(4)
        },
        effects: &["bob<closed:agreement@closed"],
    },
    Row {
        case: "offering out of turn is refused",
        play: |h| h.offer(20, "bob", 40),
        effects: &["bob<ack:out_of_turn", "bob<not_understood:out_of_turn"],
    },
    Row {
        case: "who is out of turn too often has ended the bargain",
        play: |h| {
            h.offer(20, "bob", 40);
            h.offer(21, "bob", 40);
            h.offer(22, "bob", 40)
        },
        effects: &[
            "bob<ack:out_of_turn",
            "bob<not_understood:out_of_turn",
            "closed=ended",
            "alice<closed:ended:bob@closed",
            "bob<closed:ended:bob@closed",
        ],
    },
    Row {
        case: "anybody may end the bargain out of turn",
        play: |h| h.end(20, "bob"),
        effects: &["bob<ack:ok", "closed=ended", "alice<closed:ended:bob@closed", "bob<closed:ended:bob@closed"],
    },
    Row {
        case: "after the end everything is closed",
        play: |h| {
            h.end(20, "bob");
            h.offer(30, "alice", 50)
        },
        effects: &["alice<ack:closed", "alice<closed:ended:bob@closed"],
    },
    Row {
        case: "after the end an offer of the invited is closed as well, not late",
        play: |h| {
            h.end(20, "alice");
            h.offer(30, "bob", 50)
        },
        effects: &["bob<ack:closed", "bob<closed:ended:alice@closed"],
    },
    Row {
        case: "of an END and an ACCEPT that cross, the first in the log counts: the END",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.end(30, "alice");
            h.accept(30, "bob", offer)
        },
        effects: &["bob<ack:closed", "bob<closed:ended:alice@closed"],
    },
    Row {
        case: "of an END and an ACCEPT that cross, the first in the log counts: the ACCEPT",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.accept(30, "bob", offer);
            h.end(30, "alice")
        },
        effects: &["alice<ack:closed", "alice<closed:agreement@closed"],
    },
    Row {
        case: "the proposer may withdraw what nobody has accepted, and the turn stays",
        play: |h| {
            h.made(20, "alice", 50);
            h.withdraw(30, "alice")
        },
        effects: &["alice<ack:ok", "bob<turn:bob"],
    },
    Row {
        case: "a withdrawn offer cannot be accepted",
        play: |h| {
            let offer = h.made(20, "alice", 50);
            h.withdraw(30, "alice");
            h.accept(30, "bob", offer)
        },
        effects: &["bob<ack:out_of_turn", "bob<not_understood:standing"],
    },
    Row {
        case: "withdrawing another's offer is refused, and no strike",
        play: |h| {
            h.made(20, "alice", 50);
            nine_times(|| h.withdraw(30, "bob"))
        },
        effects: &["bob<ack:out_of_turn", "bob<not_understood:out_of_turn"],
    },
    Row {
        case: "a stranger is told no more than of a bargain that is not",
        play: |h| h.offer(20, "mallory", 50),
        effects: &["mallory<ack:unauthorized"],
    },
    Row {
        case: "terms outside the space are malformed, and it is still their sender's turn",
        play: |h| {
            assert_eq!(
                h.offer(20, "alice", 101),
                ["alice<ack:malformed", "alice<not_understood:out_of_space:/payload/terms/price"]
            );
            h.offer(30, "alice", 100)
        },
        effects: &["alice<ack:ok", "bob<turn:bob:o5-0"],
    },
];

#[test]
fn between_two_every_act_is_legal_or_refused_as_its_row_says() {
    check(&TWO, &BILATERAL);
}

#[test]
fn a_party_may_say_as_much_as_the_rounds_need_and_a_little_more() {
    let mut haggle = Haggle::between(&TWO, json!({"rounds": 2}));
    let none = Made { id: unknown(), digest: Digest([0; 32]) };
    // One for each of two rounds, and 64; the call was the first.
    for number in 1..66 {
        assert_eq!(haggle.accept(20, "alice", none)[0], "alice<ack:out_of_turn", "{number}");
    }
    assert_eq!(haggle.accept(20, "alice", none), ["alice<ack:rate_limited"]);
    assert_eq!(haggle.script.tick(20 + 1000)[1], "alice<closed:no_agreement:step_timeout@closed");
}

#[test]
fn a_party_that_has_said_all_it_may_can_still_leave() {
    let mut haggle = Haggle::between(&TWO, json!({"rounds": 2}));
    let none = Made { id: unknown(), digest: Digest([0; 32]) };
    for _ in 1..66 {
        haggle.accept(20, "alice", none);
    }
    assert_eq!(haggle.accept(20, "alice", none), ["alice<ack:rate_limited"]);
    let told = haggle.end(20, "alice");
    assert_eq!(told[0], "alice<ack:ok");
    assert!(told.contains(&"alice<closed:ended:alice@closed".to_owned()), "{told:?}");
}

#[test]
fn a_message_that_comes_twice_counts_once_and_is_answered_alike() {
    let mut haggle = Haggle::between(&TWO, json!({}));
    let message = haggle.script.message("alice", Act::Offer, json!({"terms": {"price": 101}}), json!({}));
    assert_eq!(
        haggle.send(20, message.clone()),
        ["alice<ack:malformed", "alice<not_understood:out_of_space:/payload/terms/price"]
    );
    assert_eq!(
        haggle.send(21, message),
        ["alice<ack:duplicate:malformed", "alice<not_understood:out_of_space:/payload/terms/price"]
    );
    let message = haggle.script.message("alice", Act::Offer, json!({"terms": {"price": 50}}), json!({}));
    assert_eq!(haggle.send(22, message.clone()), ["alice<ack:ok", "bob<turn:bob:o6-0"]);
    assert_eq!(haggle.send(23, message), ["alice<ack:duplicate:ok"]);
    assert_eq!(haggle.script.offer_id("alice").to_string(), "o6-0");
}

/// What follows from an act that has the same effects again and again: more often than strikes allow.
pub(crate) fn nine_times(mut act: impl FnMut() -> Vec<String>) -> Vec<String> {
    let first = act();
    (1..9).for_each(|_| assert_eq!(act(), first));
    first
}

/// An offer nobody made.
fn unknown() -> OfferId {
    OfferId(Position { seq: 999, index: 0 })
}

pub(crate) fn check(parties: &[&str], rows: &[Row]) {
    for row in rows {
        let mut haggle = Haggle::between(parties, json!({}));
        assert_eq!((row.play)(&mut haggle), row.effects, "{}", row.case);
        let script: &Script = &haggle.script;
        script.assert_sound();
    }
}
