//! docs/spec/english-auction.md#ea-10 to #ea-13.

use policy_core::Event;
use schemas::Act;
use schemas::delivery::CloseReason;
use serde_json::json;

use crate::script::Script;
use crate::{auction, bid, rising};

fn closed(script: &Script) -> Option<CloseReason> {
    script.events.iter().find_map(|event| match event {
        Event::Closed { reason, .. } => Some(*reason),
        _ => None,
    })
}

#[test]
fn a_bid_at_the_end_of_bidding_is_on_time_and_a_microsecond_later_it_is_late() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    bid(&mut script, 499, "a", 100);
    assert_eq!(bid(&mut script, 500, "b", 110)[0], "b<ack:ok");
    assert_eq!(closed(&script), None);
    assert_eq!(bid(&mut script, 501, "a", 120).last().unwrap(), "a<reject:late");
    assert_eq!(closed(&script), Some(CloseReason::Deadline));
    assert_eq!(script.last("b", Act::Accept).told.act(), Act::Accept);
}

#[test]
fn nobody_bidding_for_so_long_ends_it_but_only_after_a_bid() {
    let mut script = auction(rising(json!({"quiet_ms": 50})), &["a", "b"]);
    script.tick(400);
    assert_eq!(closed(&script), None, "no bid yet");
    bid(&mut script, 400, "a", 100);
    bid(&mut script, 440, "b", 110);
    script.tick(490);
    assert_eq!(closed(&script), None, "at exactly 50 ms somebody may still bid");
    script.tick(491);
    assert_eq!(closed(&script), Some(CloseReason::Window));
}

#[test]
fn a_bid_at_the_last_moment_moves_the_end_up_to_the_latest() {
    let extend = json!({"extend": {"ms": 100, "latest_within_ms": 650}});
    let mut script = auction(rising(extend), &["a", "b"]);
    bid(&mut script, 400, "a", 100);
    script.tick(500);
    assert_eq!(closed(&script), None, "at exactly 100 ms before the end nothing moves");
    bid(&mut script, 500, "b", 110);
    bid(&mut script, 600, "a", 120);
    assert_eq!(bid(&mut script, 650, "b", 130)[0], "b<ack:ok", "at the latest end");
    assert_eq!(bid(&mut script, 651, "a", 140).last().unwrap(), "a<reject:late");
}

#[test]
fn it_ends_when_nobody_is_left_that_could_bid() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    bid(&mut script, 1, "a", 100);
    script.say(2, "b", Act::Refuse, json!({}));
    assert_eq!(closed(&script), Some(CloseReason::AllResponded));
    let mut alone = auction(rising(json!({})), &["a"]);
    assert!(bid(&mut alone, 1, "a", 300).contains(&"a<accept:1@award.0.1".to_owned()));
}

#[test]
fn without_a_bid_it_ends_with_no_offers() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    assert!(script.tick(501).contains(&"closed=no_offers".to_owned()));
    let mut refused = auction(rising(json!({})), &["a"]);
    assert!(refused.say(1, "a", Act::Refuse, json!({})).contains(&"closed=no_offers".to_owned()));
}

#[test]
fn below_the_reserve_nobody_is_awarded_the_lot() {
    let mut script = auction(rising(json!({"reserve": 200})), &["a", "b"]);
    bid(&mut script, 1, "a", 100);
    bid(&mut script, 2, "b", 199);
    let effects = script.tick(501);
    let ended =
        ["closed=reserve_not_met", "a<reject:expired", "b<reject:expired", "alice<closed:reserve_not_met@closed"];
    assert!(ended.iter().all(|text| effects.contains(&(*text).to_owned())), "{effects:?}");
    let mut falling = auction(json!({"direction": "descending", "start": 100, "step": 1, "reserve": 50}), &["a"]);
    assert!(bid(&mut falling, 1, "a", 51).contains(&"closed=reserve_not_met".to_owned()));
    script.assert_sound();
}

#[test]
fn the_initiator_can_call_it_off_while_bids_come_in() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    bid(&mut script, 1, "a", 100);
    let effects = script.cancel(2);
    assert!(effects.contains(&"a<reject:cancelled".to_owned()) && effects.contains(&"closed=cancelled".to_owned()));
}

#[test]
fn an_undelivered_call_is_not_waited_for_but_its_bidder_may_still_bid() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    let call = script.last("b", Act::Cfp).id;
    bid(&mut script, 1, "a", 100);
    let mut late = auction(rising(json!({})), &["a", "b", "c"]);
    let call_of_c = late.last("c", Act::Cfp).id;
    late.undelivered(1, call_of_c, "c");
    assert_eq!(bid(&mut late, 2, "c", 100)[0], "c<ack:ok");
    script.undelivered(2, call, "b");
    assert_eq!(closed(&script), Some(CloseReason::AllResponded));
}
