//! `awards: m`: awards, confirmations and reports are kept per lot.

use schemas::Act;
use schemas::policy::{Payment, Policy};
use serde_json::json;

use crate::script::{Script, policy};

fn two_lots(change: impl FnOnce(&mut Policy)) -> Script {
    let lots = policy(|policy| {
        policy.awards = 2;
        change(policy);
    });
    let mut script = Script::open(lots, &["a", "b", "c", "d"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    script.offer(3, "c", 30);
    script.offer(4, "d", 40);
    script
}

#[test]
fn each_lot_goes_to_another_offer_under_its_own_number() {
    let lots = policy(|policy| policy.awards = 2);
    let mut script = Script::open(lots, &["a", "b", "c"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    let effects = script.offer(3, "c", 30);
    assert_eq!(effects[1..3], ["award.0.1", "a<accept:1@award.0.1"]);
    assert_eq!(effects[4..6], ["award.1.2", "b<accept:2@award.1.2"]);
    assert_eq!(effects.len(), 7, "c is held");
}

#[test]
fn every_winner_is_paid_the_price_of_the_best_offer_that_wins_nothing() {
    let script = two_lots(|policy| policy.payment = Payment::SecondPrice);
    assert_eq!(json!(&*script.last("a", Act::Accept).told)["payment"], 30);
    assert_eq!(json!(&*script.last("b", Act::Accept).told)["payment"], 30);
}

#[test]
fn the_negotiation_completes_when_every_lot_is_final() {
    let mut script = two_lots(|_| {});
    assert_eq!(script.confirm(5, "a", 1).len(), 3, "c stays held while a lot is open");
    assert_eq!(script.confirm(6, "b", 2)[3], "c<reject:awarded");
    assert_eq!(script.done(7, "a"), ["a<ack:ok", "alice<inform:done:a:1"]);
    let end = script.done(8, "b");
    assert_eq!(
        end[2..],
        [
            "closed=completed@award.1.2.end",
            "alice<closed:completed@closed",
            "a<closed:completed@closed",
            "b<closed:completed@closed"
        ]
    );
    script.assert_sound();
}

#[test]
fn the_end_rests_on_the_lot_that_was_committed_last_whichever_that_is() {
    let mut script = two_lots(|_| {});
    assert_eq!(script.confirm(5, "b", 2).len(), 3, "c stays held while a lot is open");
    assert_eq!(script.confirm(6, "a", 1)[3], "c<reject:awarded");
    assert_eq!(script.done(7, "b"), ["b<ack:ok", "alice<inform:done:b:2"]);
    assert_eq!(
        script.done(8, "a")[2..],
        [
            "closed=completed@award.0.1.end",
            "alice<closed:completed@closed",
            "a<closed:completed@closed",
            "b<closed:completed@closed"
        ]
    );
    script.assert_sound();
}

#[test]
fn a_lost_lot_goes_to_the_runner_up_and_the_other_is_untouched() {
    let mut script = two_lots(|_| {});
    script.confirm(5, "a", 1);
    let effects = script.say(6, "b", Act::Refuse, json!({}));
    assert_eq!(effects[4..6], ["award.1.3@award.1.2.end", "c<accept:3@award.1.3"]);
    script.confirm(7, "c", 3);
    script.done(8, "a");
    assert_eq!(script.done(9, "c")[2], "closed=completed@award.1.3.end");
    script.assert_sound();
}

#[test]
fn no_new_round_begins_while_a_lot_is_committed() {
    let mut script = two_lots(|policy| (policy.standby, policy.max_rounds) = (0, 2));
    script.confirm(5, "a", 1);
    assert_eq!(script.fail(6, "b", "perform").len(), 4, "lot 1 stays vacant");
    assert_eq!(script.done(7, "a")[2], "closed=completed@award.1.2.end");
    script.assert_sound();
}

#[test]
fn a_new_round_begins_when_no_lot_could_be_committed() {
    let mut script = two_lots(|policy| (policy.standby, policy.max_rounds) = (0, 2));
    assert_eq!(script.fail(5, "b", "perform").len(), 4, "lot 0 may still be confirmed");
    assert_eq!(script.fail(6, "a", "perform")[4..], ["c<cfp:2", "d<cfp:2"]);
    script.offer(7, "c", 30);
    let effects = script.offer(8, "d", 40);
    assert_eq!(effects[1..3], ["award.0.3@award.0.1.end", "c<accept:3@award.0.3"]);
    assert_eq!(effects[4..6], ["award.1.4@award.1.2.end", "d<accept:4@award.1.4"]);
    script.cancel(9);
    script.tick(60);
    script.assert_sound();
}

#[test]
fn fewer_offers_than_lots_leave_the_others_vacant() {
    let lots = policy(|policy| policy.awards = 3);
    let mut script = Script::open(lots, &["a"]);
    assert_eq!(script.offer(1, "a", 10).len(), 4);
    script.confirm(2, "a", 1);
    assert_eq!(script.done(3, "a")[2], "closed=completed@award.0.1.end");
    script.assert_sound();
}

#[test]
fn a_cancel_waits_for_every_lots_answer() {
    let mut script = two_lots(|_| {});
    script.confirm(5, "a", 1);
    let effects = script.cancel(6);
    assert_eq!(
        effects[1..],
        [
            "c<reject:cancelled",
            "a<cancel:1:cancelled@award.0.1.end",
            "award.1.2.end=revoked@award.1.2",
            "b<cancel:2:cancelled@award.1.2.end",
        ]
    );
    assert_eq!(script.done(7, "a").len(), 2);
    let end = script.say(8, "b", Act::Inform, json!({"kind": "cancelled"}));
    assert_eq!(end[2], "closed=cancelled@award.1.2.end");
    script.assert_sound();
}
