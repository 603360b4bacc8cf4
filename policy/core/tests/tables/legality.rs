//! Every act in every state (docs/spec/contract-net.md#what-is-legal): the disposition each meets.

use schemas::Act;
use schemas::policy::{Decider, Policy};
use schemas::record::EngineEvent;
use serde_json::{Value, json};

use crate::script::{INITIATOR, Script, agent, policy};

/// What brings contractor `a` where a row wants it.
type Setup = fn() -> Script;

/// What a contractor may try, in the order of the columns below.
fn attempts_of_contractors() -> [(&'static str, Act, Value); 14] {
    let terms = |price: i64| json!({"terms": {"price": price, "delivery_ms": 0}});
    [
        ("offer", Act::Offer, terms(10)),
        ("offer beyond a gate", Act::Offer, terms(2000)),
        ("refuse", Act::Refuse, json!({})),
        ("not_understood", Act::NotUnderstood, json!({})),
        ("failure", Act::Failure, json!({"phase": "perform", "code": "broken"})),
        ("withdraw", Act::Withdraw, json!({})),
        ("confirm 1", Act::Confirm, json!({"award_no": 1})),
        ("inform done", Act::Inform, json!({"kind": "done"})),
        ("inform cancelled", Act::Inform, json!({"kind": "cancelled"})),
        ("cfp", Act::Cfp, json!({})),
        ("accept", Act::Accept, json!({"offer_id": "o2-0"})),
        ("cancel", Act::Cancel, json!({})),
        ("join", Act::Join, json!({})),
        ("end", Act::End, json!({})),
    ]
}

#[test]
fn every_act_of_a_contractor_meets_the_disposition_of_its_cell() {
    // offer, beyond a gate, refuse, not_understood, failure, withdraw, confirm 1, done, cancelled; all others are the last.
    let rows: [(&str, Setup, &str); 18] = [
        ("invited", invited, "ok policy_reject ok ok ok - - - - -"),
        ("undelivered", undelivered, "ok policy_reject ok ok ok - - - - -"),
        ("offered", || said(invited(), 1, Act::Offer), "ok policy_reject - - - ok - - - -"),
        ("withdrawn", withdrawn, "ok policy_reject - - - - - - - -"),
        ("policy_rejected", beyond_a_gate, "ok policy_reject - - - - - - - -"),
        ("refused", || said(invited(), 1, Act::Refuse), "- - - - - - - - - -"),
        ("not_understood", || said(invited(), 1, Act::NotUnderstood), "- - - - - - - - - -"),
        ("failed", || said(invited(), 1, Act::Failure), "- - - - - - - - - -"),
        ("excluded", excluded, "- - - - - - - - - -"),
        ("lapsed, in a later round", lapsed, "- - - - - - revoked - - -"),
        ("rejected", || outbid(0), "late late closed closed - closed - - - -"),
        ("standby", || outbid(1), "late late closed closed - closed - - - -"),
        ("awarded", awarded, "late late ok ok ok ok committed - - -"),
        ("committed", committed, "late late - - ok - - ok - -"),
        (
            "called off before its confirmation",
            || cancelled(awarded()),
            "late late closed closed ok closed revoked ok ok -",
        ),
        ("called off after it", || cancelled(committed()), "late late closed closed ok closed - ok ok -"),
        ("done, while another lot is not", done, "late late closed closed - closed - - - -"),
        ("ended", || cancelled(invited()), "late late closed closed closed closed closed closed closed closed"),
    ];
    for (state, setup, expected) in rows {
        let expected: Vec<&str> = expected.split(' ').collect();
        for (index, (name, act, payload)) in attempts_of_contractors().into_iter().enumerate() {
            let expected = expected[index.min(expected.len() - 1)];
            assert_eq!(disposition(setup(), "a", act, payload), expected, "{name} of one that is {state}");
        }
    }
}

#[test]
fn every_act_of_the_initiator_meets_the_disposition_of_its_cell() {
    let attempts = || {
        let mut attempts = attempts_of_contractors().to_vec();
        attempts.retain(|(name, ..)| !["cancel", "accept", "not_understood"].contains(name));
        attempts
    };
    // cancel, accept, not_understood; all others are the last.
    let rows: [(&str, Setup, [&str; 4]); 6] = [
        ("collecting", || said(invited(), 1, Act::Offer), ["ok", "-", "ok", "-"]),
        ("deciding", deciding, ["ok", "ok", "ok", "-"]),
        ("awarding", awarded, ["ok", "-", "ok", "-"]),
        ("performing", committed, ["ok", "-", "ok", "-"]),
        ("cancelling", || cancelled(committed()), ["-", "-", "ok", "-"]),
        ("ended", || cancelled(invited()), ["closed"; 4]),
    ];
    for (state, setup, [cancel, accept, not_understood, other]) in rows {
        let mut cells = vec![
            ("cancel", Act::Cancel, json!({}), cancel),
            ("accept", Act::Accept, json!({"offer_id": "o2-0"}), accept),
            ("not_understood", Act::NotUnderstood, json!({}), not_understood),
        ];
        cells.extend(attempts().into_iter().map(|(name, act, payload)| (name, act, payload, other)));
        for (name, act, payload, expected) in cells {
            assert_eq!(disposition(setup(), INITIATOR, act, payload), expected, "{name} while {state}");
        }
    }
}

/// The disposition of a message; `-` for `out_of_turn`, of which NOT_UNDERSTOOD must tell.
fn disposition(mut script: Script, from: &str, act: Act, payload: Value) -> String {
    let effects = script.say(400, from, act, payload);
    let ack = effects.iter().find_map(|effect| effect.strip_prefix(&format!("{from}<ack:")));
    let disposition = ack.expect("every message has one").split('@').next().unwrap_or_default().to_owned();
    let is_told = effects.iter().any(|effect| effect.starts_with(&format!("{from}<not_understood:")));
    assert_eq!(is_told, disposition == "out_of_turn", "{effects:?}");
    if is_told { "-".to_owned() } else { disposition }
}

fn quick(change: impl FnOnce(&mut Policy)) -> Policy {
    policy(|policy| {
        (policy.timers_ms.confirm, policy.timers_ms.perform, policy.timers_ms.cancel) = (1000, 3000, 1000);
        change(policy);
    })
}

fn invited() -> Script {
    Script::open(quick(|_| {}), &["a", "b", "c"])
}

fn said(mut script: Script, at_ms: u64, act: Act) -> Script {
    let (_, _, payload) = attempts_of_contractors().into_iter().find(|(_, one, _)| *one == act).expect("it is listed");
    script.say(at_ms, "a", act, payload);
    script
}

fn undelivered() -> Script {
    let mut script = invited();
    let (id, negotiation) = (script.last("a", Act::Cfp).id, script.negotiation.clone());
    let failed = EngineEvent::DeliveryFailed { id, negotiation, to: agent("a"), attempts: 3, may_answer: true };
    script.engine(1, 0, failed);
    script
}

fn withdrawn() -> Script {
    said(said(invited(), 1, Act::Offer), 2, Act::Withdraw)
}

fn beyond_a_gate() -> Script {
    let mut script = invited();
    script.offer(1, "a", 2000);
    script
}

fn excluded() -> Script {
    said(Script::open(quick(|policy| policy.max_strikes = 1), &["a", "b", "c"]), 1, Act::Inform)
}

/// `a` was awarded and silent; `b` and `c` are called again.
fn lapsed() -> Script {
    let change = |policy: &mut Policy| (policy.max_rounds, policy.timers_ms.confirm) = (2, 100);
    let mut script = said(Script::open(quick(change), &["a", "b", "c"]), 1, Act::Offer);
    script.say(2, "b", Act::Refuse, json!({}));
    script.say(3, "c", Act::Refuse, json!({}));
    script.tick(104);
    script
}

/// The offers of all three: `b` is the best of them.
fn outbid(standby: u32) -> Script {
    let mut script = Script::open(quick(|policy| policy.standby = standby), &["a", "b", "c"]);
    for (contractor, price) in [("a", 20), ("b", 10), ("c", 30)] {
        script.offer(1, contractor, price);
    }
    script
}

fn awarded() -> Script {
    let mut script = said(invited(), 1, Act::Offer);
    script.offer(2, "b", 20);
    script.offer(3, "c", 30);
    script
}

fn committed() -> Script {
    said(awarded(), 4, Act::Confirm)
}

fn cancelled(mut script: Script) -> Script {
    script.cancel(5);
    script
}

/// `a` has performed its lot, `b` has not.
fn done() -> Script {
    let mut script = said(Script::open(quick(|policy| policy.awards = 2), &["a", "b"]), 1, Act::Offer);
    script.offer(2, "b", 20);
    script.confirm(3, "a", 1);
    script.confirm(4, "b", 2);
    script.done(5, "a");
    script
}

fn deciding() -> Script {
    let mut script = Script::open(quick(|policy| policy.decider = Decider::Initiator), &["a", "b"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    script
}
