//! Views, filtered by role.

use schemas::Act;
use serde_json::{Value, json};

use crate::script::{Script, agent, policy};

fn view(script: &Script, viewer: &str) -> Value {
    json!(script.lane_state.view(&script.negotiation, &agent(viewer)))
}

#[test]
fn strangers_see_nothing_of_known_and_unknown_negotiations() {
    let mut script = Script::open(policy(|_| {}), &["a"]);
    assert_eq!(view(&script, "zed"), Value::Null);
    script.cancel(1);
    assert_eq!(view(&script, "zed"), Value::Null);
    script.negotiation = schemas::NegotiationId::try_new("alice~other").unwrap();
    assert_eq!(view(&script, "alice"), Value::Null);
}

#[test]
fn the_initiator_sees_offers_only_after_the_close() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    let sealed = view(&script, "alice");
    assert_eq!(
        (&sealed["state"], &sealed["offers"], &sealed["invited"]),
        (&json!("collecting"), &json!([]), &json!(2))
    );
    script.offer(2, "b", 20);
    let open = view(&script, "alice");
    assert_eq!(open["state"], "awarding");
    assert_eq!((&open["offers"][0]["contractor"], &open["offers"][0]["state"]), (&json!("a"), &json!("awarded")));
    assert_eq!(open["offers"][1]["score"], 986_000);
    assert_eq!((&open["awards"][0]["contractor"], &open["awards"][0]["state"]), (&json!("a"), &json!("awarded")));
}

#[test]
fn a_contractor_sees_its_own_messages_and_nothing_of_others() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    let own = view(&script, "b");
    assert_eq!((&own["role"], &own["session"]), (&json!("contractor"), &json!("standby")));
    assert_eq!(own["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!((&own["messages"][0]["act"], &own["messages"][0]["disposition"]), (&json!("offer"), &json!("ok")));
    assert_eq!((&own["awards"], own["offers"].as_array().map(Vec::len)), (&json!([]), Some(1)));
    assert!(!own.to_string().contains("\"a\""), "{own}");
}

#[test]
fn an_award_that_was_revoked_is_seen_by_its_contractor_and_the_initiator_only() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    script.say(3, "a", Act::Refuse, json!({}));
    let awards = |script: &Script, viewer: &str| -> Vec<(Value, Value)> {
        let awards = view(script, viewer)["awards"].as_array().unwrap().clone();
        awards.into_iter().map(|award| (award["contractor"].clone(), award["state"].clone())).collect()
    };
    let (revoked, live) = ((json!("a"), json!("revoked")), (json!("b"), json!("awarded")));
    assert_eq!(awards(&script, "alice"), [revoked.clone(), live.clone()]);
    assert_eq!(awards(&script, "a"), std::slice::from_ref(&revoked));
    assert_eq!(awards(&script, "b"), [live]);
    script.confirm(4, "b", 2);
    script.done(5, "b");
    assert_eq!(awards(&script, "a"), [revoked], "after the end too");
    assert_eq!(awards(&script, "b"), [(json!("b"), json!("done"))]);
}

#[test]
fn after_the_end_the_outcome_and_ones_own_awards_remain() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    script.say(2, "b", Act::Refuse, json!({}));
    script.confirm(3, "a", 1);
    script.done(4, "a");
    let ended = view(&script, "alice");
    assert_eq!((&ended["state"], &ended["outcome"]), (&json!("ended"), &json!("completed")));
    assert_eq!((&ended["awards"][0]["contractor"], &ended["awards"][0]["state"]), (&json!("a"), &json!("done")));
    assert_eq!(view(&script, "b")["awards"], json!([]));
}
