//! How bargains end: by time, by rounds, confirmed or not.

use schemas::Act;
use schemas::delivery::Notification;
use schemas::record::EngineEvent;
use serde_json::json;

use crate::haggle::{BEGIN_MS, Haggle, Made, STEP_MS};

const TWO: [&str; 2] = ["alice", "bob"];

#[test]
fn the_last_turn_of_the_last_round_ends_the_bargain() {
    let mut haggle = Haggle::between(&TWO, json!({"rounds": 2}));
    for (at, who) in [(20, "alice"), (21, "bob"), (22, "alice")] {
        haggle.made(at, who, 5);
    }
    assert_eq!(
        haggle.offer(23, "bob", 5),
        [
            "bob<ack:ok",
            "closed=no_agreement",
            "alice<closed:no_agreement:rounds@closed",
            "bob<closed:no_agreement:rounds@closed"
        ]
    );
}

#[test]
fn an_acceptance_in_the_last_turn_is_an_agreement() {
    let mut haggle = Haggle::between(&TWO, json!({"rounds": 1}));
    let offer = haggle.made(20, "alice", 5);
    assert_eq!(haggle.accept(21, "bob", offer)[1], "award.0.1=o4-0");
}

#[test]
fn a_turn_that_takes_too_long_ends_the_bargain() {
    let mut haggle = Haggle::between(&TWO, json!({}));
    haggle.made(20, "alice", 5);
    assert_eq!(haggle.script.tick(20 + STEP_MS), [""; 0]);
    assert_eq!(haggle.script.tick(21 + STEP_MS)[1], "alice<closed:no_agreement:step_timeout@closed");
}

#[test]
fn a_withdrawal_gives_the_turn_no_more_time() {
    let mut haggle = Haggle::between(&TWO, json!({}));
    haggle.made(20, "alice", 5);
    haggle.withdraw(500, "alice");
    assert_eq!(haggle.script.tick(21 + STEP_MS)[1], "alice<closed:no_agreement:step_timeout@closed");
}

#[test]
fn the_deadline_counts_from_the_first_turn_and_comes_before_the_turns_own() {
    let mut haggle = Haggle::between(&TWO, json!({"rounds": null, "deadline_ms": 1000}));
    haggle.made(BEGIN_MS + 500, "alice", 5);
    let Notification::Turn(turn) = &*haggle.script.last("bob", Act::Turn).told else { panic!() };
    assert_eq!(turn.t_ppm, 500_000);
    assert_eq!(turn.act_by, turn.ends_by);
    haggle.made(BEGIN_MS + 1000, "bob", 5);
    assert_eq!(haggle.script.tick(BEGIN_MS + 1001)[1], "alice<closed:no_agreement:deadline@closed");
}

#[test]
fn a_bargain_to_be_confirmed_is_agreed_once_everybody_has_confirmed() {
    let mut haggle = Haggle::between(&TWO, json!({"confirm_ms": 50}));
    let offer = haggle.made(20, "alice", 5);
    assert_eq!(haggle.accept(21, "bob", offer), ["bob<ack:ok", "alice<accept:1", "bob<accept:1"]);
    let Notification::Accept(award) = &*haggle.script.last("bob", Act::Accept).told else { panic!() };
    assert_eq!((award.offer_id, award.terms_digest), (offer.id, offer.digest));
    assert_eq!(confirm(&mut haggle, 22, "bob", Some(offer)), ["bob<ack:ok"]);
    assert_eq!(confirm(&mut haggle, 23, "bob", Some(offer))[0], "bob<ack:out_of_turn");
    let other = Made { digest: schemas::Digest([1; 32]), ..offer };
    assert_eq!(
        confirm(&mut haggle, 24, "alice", Some(other)),
        ["alice<ack:malformed", "alice<not_understood:terms_digest:/payload/terms_digest"]
    );
    let ended = confirm(&mut haggle, 71, "alice", None);
    assert_eq!(ended[1..3], ["award.0.1=o4-0", "closed=agreement@award.0.1"]);
}

#[test]
fn an_agreement_that_is_refused_or_not_confirmed_in_time_is_none() {
    for act in [Act::Refuse, Act::NotUnderstood] {
        let mut haggle = agreed();
        assert_eq!(haggle.say(30, "alice", act, json!({}))[2], "alice<closed:no_agreement:unconfirmed@closed");
    }
    let mut haggle = agreed();
    assert_eq!(haggle.script.tick(71), [""; 0]);
    assert_eq!(haggle.script.tick(72)[1], "alice<closed:no_agreement:unconfirmed@closed");
    assert_eq!(agreed().end(30, "bob")[2], "alice<closed:ended:bob@closed");
    assert_eq!(agreed().script.cancel(30)[2], "alice<closed:cancelled@closed");
}

#[test]
fn an_aborted_bargain_tells_so_without_waiting_for_the_register() {
    let mut haggle = agreed();
    let negotiation = haggle.script.negotiation.clone();
    let abort = EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() };
    assert_eq!(
        haggle.script.engine(30, 0, abort),
        ["closed=aborted", "alice<closed:aborted:register_conflict", "bob<closed:aborted:register_conflict"]
    );
}

#[test]
fn an_agreement_is_told_again_to_whoever_asks_later() {
    let mut haggle = Haggle::between(&TWO, json!({}));
    let offer = haggle.made(20, "alice", 5);
    haggle.accept(21, "bob", offer);
    haggle.offer(30, "alice", 7);
    let Notification::Closed(closing) = &*haggle.script.last("alice", Act::Closed).told else { panic!() };
    assert_eq!(closing.agreement.as_ref().map(|agreed| agreed.terms_digest), Some(offer.digest));
    assert_eq!(haggle.offer(31, "alice", 7), ["alice<ack:closed", "alice<closed:agreement@closed(told)"]);
}

#[test]
fn a_pause_of_the_exchange_costs_no_party_its_turn() {
    let mut haggle = Haggle::between(&TWO, json!({}));
    haggle.made(20, "alice", 5);
    // Appended in time; the pause came after it.
    haggle.made(20 + STEP_MS, "bob", 6);
    assert_eq!(haggle.script.tick(20 + 2 * STEP_MS), [""; 0]);
}

/// Agreed on at 21 ms, to be confirmed by 71 ms.
fn agreed() -> Haggle {
    let mut haggle = Haggle::between(&TWO, json!({"confirm_ms": 50}));
    let offer = haggle.made(20, "alice", 5);
    haggle.accept(21, "bob", offer);
    haggle
}

fn confirm(haggle: &mut Haggle, at_ms: u64, who: &str, agreed: Option<Made>) -> Vec<String> {
    let mut payload = json!({"award_no": 1});
    agreed.into_iter().for_each(|agreed| payload["terms_digest"] = json!(agreed.digest));
    haggle.say(at_ms, who, Act::Confirm, payload)
}
