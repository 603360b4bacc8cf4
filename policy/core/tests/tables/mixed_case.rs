//! The mixed case of JADE's contract-net test: ten responders to one call; 4 offers, 1 refusal, 1 not-understood, 4 silent;
//! after the award 3 out-of-turn messages, 2 failures, 1 inform, and the re-awards that follow.

use policy_core::Event;
use schemas::Act;
use schemas::policy::HoldUntil;
use serde_json::json;

use crate::script::{Script, policy};

#[test]
fn jades_mixed_case_is_handled_message_by_message_and_ends_completed() {
    let patient = policy(|policy| (policy.standby, policy.hold_until) = (3, HoldUntil::Done));
    let responders = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"];
    let mut script = Script::open(patient, &responders);
    for (at_ms, from, price) in [(1, "r0", 40), (2, "r1", 10), (3, "r2", 30), (4, "r3", 20)] {
        assert_eq!(script.offer(at_ms, from, price), [format!("{from}<ack:ok")]);
    }
    assert_eq!(script.say(5, "r4", Act::Refuse, json!({})), ["r4<ack:ok"]);
    assert_eq!(script.say(6, "r5", Act::NotUnderstood, json!({})), ["r5<ack:ok"]);
    // r6 to r9 stay silent: the deadline closes, and the best of four is awarded.
    assert_eq!(script.tick(501), ["award.0.1", "r1<accept:1@award.0.1", "alice<inform:awarded:r1:1@award.0.1"]);

    // Three out-of-turn messages: a report before the commitment, a confirmation of another's award, a refuser's report.
    for (at_ms, from) in [(502, "r1"), (504, "r4")] {
        let effects = script.done(at_ms, from);
        assert_eq!(effects, [format!("{from}<ack:out_of_turn"), format!("{from}<not_understood:out_of_turn")]);
    }
    assert_eq!(script.confirm(505, "r3", 1), ["r3<ack:out_of_turn", "r3<not_understood:out_of_turn"]);

    // First failure: before the confirmation.
    let effects = [
        "r1<ack:ok",
        "award.0.1.end=revoked@award.0.1",
        "r1<cancel:1:revoked@award.0.1.end",
        "alice<failure:r1:1:broken@award.0.1.end",
        "award.0.2@award.0.1.end",
        "r3<accept:2@award.0.2",
        "alice<inform:awarded:r3:2@award.0.2",
    ];
    assert_eq!(script.fail(506, "r1", "perform"), effects);
    // Second failure: while performing.
    assert_eq!(script.confirm(507, "r3", 2)[1], "r3<ack:committed@award.0.2.end");
    let effects = [
        "r3<ack:ok",
        "alice<failure:r3:2:broken@award.0.2.end",
        "award.0.3@award.0.2.end",
        "r2<accept:3@award.0.3",
        "alice<inform:awarded:r2:3@award.0.3",
    ];
    assert_eq!(script.fail(508, "r3", "perform"), effects);
    // The inform.
    assert_eq!(script.confirm(509, "r2", 3)[1], "r2<ack:committed@award.0.3.end");
    let effects = [
        "r2<ack:ok",
        "alice<inform:done:r2:3",
        "r0<reject:awarded",
        "closed=completed@award.0.3.end",
        "alice<closed:completed@closed",
        "r2<closed:completed@closed",
        "r3<closed:completed@closed",
    ];
    assert_eq!(script.done(510, "r2"), effects);
    script.assert_sound();
    let dispositions = script.events.iter().filter(|event| matches!(event, Event::Disposed { .. })).count();
    assert_eq!(dispositions, 4 + 1 + 1 + 3 + 2 + 2 + 1, "every message after the call has one disposition");
}
