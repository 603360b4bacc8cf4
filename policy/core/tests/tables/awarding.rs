//! Awards, confirmations, re-awards, performance: docs/spec/contract-net.md#cn-38 to #cn-54.

use schemas::policy::{HoldUntil, Policy};
use schemas::{Act, Timestamp, WireTime};
use serde_json::json;

use crate::script::{START_MS, Script, agent, policy};

/// b is awarded, c held, a outscored.
fn awarded(change: impl FnOnce(&mut Policy)) -> Script {
    let mut script = Script::open(policy(change), &["a", "b", "c"]);
    script.offer(1, "a", 30);
    script.offer(2, "b", 10);
    script.offer(3, "c", 20);
    script
}

const RE_AWARD: [&str; 3] = ["award.0.2@award.0.1.end", "c<accept:2@award.0.2", "alice<inform:awarded:c:2@award.0.2"];

#[test]
fn a_confirmation_binds_once_its_end_is_registered_and_frees_the_runner_up() {
    let mut script = awarded(|_| {});
    let effects = [
        "award.0.1.end=committed@award.0.1",
        "b<ack:committed@award.0.1.end",
        "alice<inform:committed:b:1@award.0.1.end",
        "c<reject:awarded",
    ];
    assert_eq!(script.confirm(103, "b", 1), effects, "at exactly confirm_by it is on time");
}

#[test]
fn without_require_confirm_the_award_binds_at_once() {
    let mut script = Script::open(policy(|policy| policy.require_confirm = false), &["a"]);
    let effects = [
        "a<ack:ok",
        "award.0.1",
        "award.0.1.end=committed@award.0.1",
        "a<accept:1@award.0.1.end",
        "alice<inform:awarded:a:1@award.0.1",
        "alice<inform:committed:a:1@award.0.1.end",
    ];
    assert_eq!(script.offer(1, "a", 10), effects);
    assert_eq!(script.done(2, "a")[1], "alice<inform:done:a:1");
}

#[test]
fn a_confirmation_with_another_number_or_of_another_contractor_is_out_of_turn() {
    let mut script = awarded(|_| {});
    assert_eq!(script.confirm(4, "b", 2), ["b<ack:out_of_turn", "b<not_understood:out_of_turn"]);
    assert_eq!(script.confirm(5, "c", 1), ["c<ack:out_of_turn", "c<not_understood:out_of_turn"]);
    assert_eq!(script.confirm(6, "b", 1)[1], "b<ack:committed@award.0.1.end");
    assert_eq!(script.confirm(7, "b", 1), ["b<ack:out_of_turn", "b<not_understood:out_of_turn"], "bound already");
}

#[test]
fn an_awarded_contractor_may_decline_and_the_next_is_tried() {
    for act in [Act::Refuse, Act::NotUnderstood, Act::Withdraw] {
        let mut script = awarded(|_| {});
        let mut effects = vec![
            "b<ack:ok".to_owned(),
            "award.0.1.end=revoked@award.0.1".to_owned(),
            "b<cancel:1:revoked@award.0.1.end".to_owned(),
            format!("alice<failure:b:1:declined_by_{act}@award.0.1.end"),
        ];
        effects.extend(RE_AWARD.map(str::to_owned));
        assert_eq!(script.say(4, "b", act, json!({})), effects);
    }
}

#[test]
fn a_failure_before_the_confirmation_is_passed_on_and_the_next_is_tried() {
    let mut script = awarded(|_| {});
    let effects = script.fail(4, "b", "perform");
    assert_eq!(effects[3], "alice<failure:b:1:broken@award.0.1.end");
    assert_eq!(effects[4..], RE_AWARD);
}

#[test]
fn silence_until_confirm_by_lapses_the_award() {
    let mut script = awarded(|_| {});
    let mut effects = vec![
        "award.0.1.end=revoked@award.0.1",
        "b<cancel:1:confirm_timeout@award.0.1.end",
        "alice<failure:b:1:confirm_timeout@award.0.1.end",
    ];
    effects.extend(RE_AWARD);
    assert_eq!(script.tick(104), effects);
}

#[test]
fn a_contractor_that_declined_has_failed_and_a_silent_one_has_lapsed() {
    let session = |script: &Script| json!(script.lane_state.view(&script.negotiation, &agent("b")))["session"].clone();
    let mut script = awarded(|_| {});
    script.say(4, "b", Act::Refuse, json!({}));
    assert_eq!(session(&script), "failed");
    let mut script = awarded(|_| {});
    script.tick(104);
    assert_eq!(session(&script), "lapsed");
}

#[test]
fn confirm_by_never_lies_beyond_the_hard_deadline() {
    let script = awarded(|policy| policy.timers_ms.confirm = 9_000);
    let accept = json!(&*script.last("b", Act::Accept).told);
    assert_eq!(accept["confirm_by"], json!(WireTime(Timestamp::from_ms(START_MS + 5_000))));
}

#[test]
fn a_bound_contractor_that_failed_keeps_its_closed_as_final_notice() {
    let mut script = awarded(|policy| (policy.max_rounds, policy.standby) = (2, 0));
    script.confirm(4, "b", 1);
    let effects = ["b<ack:ok", "alice<failure:b:1:broken@award.0.1.end", "a<cfp:2", "c<cfp:2"];
    assert_eq!(script.fail(5, "b", "perform"), effects);
    assert_eq!(script.cancel(6)[3], "a<closed:cancelled@closed");
    script.assert_sound();
}

#[test]
fn a_runner_up_whose_offer_does_not_outlast_the_confirmation_is_passed_over() {
    let mut script = Script::open(policy(|policy| policy.standby = 2), &["a", "b", "c"]);
    script.offer(1, "a", 30);
    script.offer(2, "b", 10);
    script.say(3, "c", Act::Offer, json!({"terms": {"price": 20, "delivery_ms": 0}, "valid_for_ms": 100}));
    let effects = script.fail(4, "b", "perform");
    assert_eq!(effects[4..6], ["c<reject:expired", "award.0.2@award.0.1.end"]);
    assert_eq!(effects[6], "a<accept:2@award.0.2");
}

#[test]
fn no_more_awards_are_made_than_the_policy_allows() {
    let mut script = awarded(|policy| policy.max_awards = 1);
    let effects = script.fail(4, "b", "perform");
    assert_eq!(effects[4..6], ["c<reject:expired", "closed=no_candidate@award.0.1.end"]);
    script.assert_sound();
}

#[test]
fn without_a_runner_up_the_next_round_calls_all_but_those_who_failed() {
    let mut script = awarded(|policy| (policy.max_rounds, policy.standby) = (2, 0));
    assert_eq!(script.fail(4, "b", "perform")[4..], ["a<cfp:2", "c<cfp:2"]);
    assert_eq!(script.offer(5, "b", 1), ["b<ack:out_of_turn", "b<not_understood:out_of_turn"]);
    script.offer(6, "a", 30);
    assert_eq!(script.offer(7, "c", 20)[1..3], ["award.0.2@award.0.1.end", "c<accept:2@award.0.2"]);
    script.confirm(8, "c", 2);
    script.done(9, "c");
    script.assert_sound();
}

#[test]
fn when_nobody_is_left_the_negotiation_fails() {
    let mut script = awarded(|policy| policy.standby = 0);
    let effects = script.fail(4, "b", "perform");
    let end = [
        "closed=no_candidate@award.0.1.end",
        "alice<closed:no_candidate@closed",
        "a<closed:no_candidate@closed",
        "b<closed:no_candidate@closed",
        "c<closed:no_candidate@closed",
    ];
    assert_eq!(effects[4..], end);
    script.assert_sound();
}

#[test]
fn a_confirmation_of_a_revoked_award_is_revoked_in_every_state() {
    let revoked = ["b<ack:revoked", "b<cancel:1:revoked"];
    let mut script = awarded(|_| {});
    script.tick(104);
    assert_eq!(script.confirm(105, "b", 1), revoked, "awarding");
    script.confirm(106, "c", 2);
    assert_eq!(script.confirm(107, "b", 1), revoked, "performing");
    script.done(108, "c");
    let told = ["b<ack:revoked", "b<cancel:1:revoked(told)"];
    assert_eq!(script.confirm(109, "b", 1), told, "completed");
    assert_eq!(script.confirm(110, "c", 2), ["c<ack:closed", "c<closed:completed"]);
    let mut script = awarded(|_| {});
    script.cancel(4);
    assert_eq!(script.confirm(5, "b", 1), revoked, "cancelling");
}

#[test]
fn the_report_of_done_completes_the_negotiation() {
    for kind in ["done", "result"] {
        let mut script = awarded(|_| {});
        script.confirm(4, "b", 1);
        let effects = script.say(5, "b", Act::Inform, json!({"kind": kind}));
        let end = [
            "b<ack:ok".to_owned(),
            format!("alice<inform:{kind}:b:1"),
            "closed=completed@award.0.1.end".to_owned(),
            "alice<closed:completed@closed".to_owned(),
            "b<closed:completed@closed".to_owned(),
        ];
        assert_eq!(effects, end);
        script.assert_sound();
    }
}

#[test]
fn a_runner_up_held_until_done_is_let_go_then() {
    let mut script = awarded(|policy| policy.hold_until = HoldUntil::Done);
    assert_eq!(script.confirm(4, "b", 1).len(), 3, "c is still held");
    assert_eq!(script.done(5, "b")[2], "c<reject:awarded");
    script.assert_sound();
}

#[test]
fn nobody_but_the_bound_contractor_can_report_done() {
    let mut script = awarded(|_| {});
    for (at_ms, from) in [(4, "a"), (5, "b"), (6, "c"), (7, "alice")] {
        assert_eq!(script.done(at_ms, from)[0], format!("{from}<ack:out_of_turn"), "nobody is bound yet");
    }
    script.confirm(8, "b", 1);
    let cancelled = script.say(9, "b", Act::Inform, json!({"kind": "cancelled"}));
    assert_eq!(cancelled[0], "b<ack:out_of_turn", "nobody asked it to stop");
}

#[test]
fn a_bound_contractor_that_fails_is_replaced_while_runners_up_are_held() {
    let mut script = awarded(|policy| policy.hold_until = HoldUntil::Done);
    script.confirm(4, "b", 1);
    let mut effects = vec!["b<ack:ok", "alice<failure:b:1:broken@award.0.1.end"];
    effects.extend(RE_AWARD);
    assert_eq!(script.fail(5, "b", "decommit"), effects);
    script.confirm(6, "c", 2);
    let end = script.done(7, "c");
    assert_eq!(end[4..], ["b<closed:completed@closed", "c<closed:completed@closed"], "CLOSED is b's final notice");
    script.assert_sound();
}

#[test]
fn without_runners_up_a_failure_ends_the_negotiation() {
    let mut script = awarded(|_| {});
    script.confirm(4, "b", 1);
    let effects = script.fail(5, "b", "perform");
    assert_eq!(
        effects[..3],
        ["b<ack:ok", "alice<failure:b:1:broken@award.0.1.end", "closed=no_candidate@award.0.1.end"]
    );
    script.assert_sound();
}

#[test]
fn silence_until_perform_by_cancels_first() {
    let mut script = awarded(|policy| policy.hold_until = HoldUntil::Done);
    script.confirm(4, "b", 1);
    assert_eq!(script.tick(304), [""; 0]);
    let mut effects =
        vec!["b<cancel:1:perform_timeout@award.0.1.end", "alice<failure:b:1:perform_timeout@award.0.1.end"];
    effects.extend(RE_AWARD);
    assert_eq!(script.tick(305), effects);
    assert_eq!(script.done(306, "b"), ["b<ack:out_of_turn", "b<not_understood:out_of_turn"]);
}

#[test]
fn a_bound_contractor_leaves_by_failure_only() {
    for act in [Act::Withdraw, Act::Refuse] {
        let mut script = awarded(|_| {});
        script.confirm(4, "b", 1);
        assert_eq!(script.say(5, "b", act, json!({})), ["b<ack:out_of_turn", "b<not_understood:use_failure_decommit"]);
        let told = json!(&*script.last("b", Act::NotUnderstood).told);
        assert_eq!(told["expected"], json!(["inform", "failure"]));
        assert_eq!(script.done(6, "b")[1], "alice<inform:done:b:1", "it stays bound");
    }
}

#[test]
fn a_misunderstanding_voids_nobody_elses_session() {
    let mut script = awarded(|_| {});
    assert_eq!(script.say(4, "c", Act::NotUnderstood, json!({})), ["c<ack:closed"]);
    assert_eq!(script.say(5, "alice", Act::NotUnderstood, json!({})), ["alice<ack:ok"]);
    assert_eq!(script.confirm(6, "b", 1)[1], "b<ack:committed@award.0.1.end");
}

#[test]
fn awards_the_exchange_could_not_send_while_it_was_down_do_not_lapse() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    // The first record in two seconds fires T_collect, due at 500: the close counts as of then, the award from now.
    assert_eq!(script.tick(2000)[1], "a<accept:1@award.0.1");
    assert_eq!(script.confirm(2100, "a", 1)[1], "a<ack:committed@award.0.1.end");
}

#[test]
fn extreme_values_of_a_foreign_writer_break_nothing() {
    let reckless = policy(|policy| {
        policy.gates.clear();
        policy.payment = schemas::policy::Payment::SecondPrice;
    });
    let mut script = Script::open(reckless, &["a", "b", "c"]);
    for (from, price) in [("a", i64::MAX), ("b", i64::MIN), ("c", 0)] {
        // Written by hand: the canonical form knows no such numbers.
        let mut message = script.message(from, Act::Offer, json!({"terms": {"price": 1}}), json!({}));
        let body = message.body.get().replace(":1}", &format!(":{price}}},\"valid_for_ms\":{}", u64::MAX));
        message.body = std::sync::Arc::from(serde_json::value::RawValue::from_string(body).unwrap());
        assert_eq!(script.fold(1, vec![schemas::record::Entry::Message(message)])[0], format!("{from}<ack:ok"));
    }
    script.assert_sound();
    assert_eq!(script.confirm(2, "b", 1)[1], "b<ack:committed@award.0.1.end");
}
