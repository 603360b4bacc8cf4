//! How teams form: calls, joining, seats.

use policy_core::{Effect, Event};
use schemas::Act;
use schemas::delivery::{Notification, Outcome};
use schemas::record::EngineEvent;
use serde_json::{Value, json};

use crate::gathering::{BEGIN_MS, Gathering, REPLY_MS};
use crate::script::agent;

#[test]
fn a_call_tells_the_invited_the_rules_with_their_defaults() {
    let mut gathering = Gathering::empty();
    assert_eq!(gathering.call(&["bob", "carol"], json!({}), json!({})), ["bob<cfp", "carol<cfp", "alice<ack:ok"]);
    let Notification::Cfp(call) = &*gathering.script.last("bob", Act::Cfp).told else { panic!() };
    let team = call.team.as_deref().expect("a team");
    assert_eq!((team.lead.as_str(), team.rules.turns, team.rules.members.max), ("alice", 32, 8));
    assert_eq!((call.policy.as_str(), team.rules.task_policy.as_str()), ("team", "team-task"));
}

#[test]
fn a_team_forms_once_everybody_has_answered_and_registers_it_before_anybody_hears() {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol", "dan"], json!({}), json!({}));
    assert_eq!(gathering.say(1, "bob", Act::Join, json!({})), ["bob<ack:ok"]);
    assert_eq!(gathering.say(2, "carol", Act::Refuse, json!({})), ["carol<ack:ok"]);
    assert_eq!(
        gathering.say(3, "dan", Act::Join, json!({})),
        [
            "dan<ack:ok",
            "award.0.1=formed",
            "alice<floor:1:1:discussing:alice@award.0.1",
            "bob<floor:1:1:discussing:alice@award.0.1",
            "dan<floor:1:1:discussing:alice@award.0.1",
        ]
    );
    let members: Vec<String> = gathering.floor("bob").members.iter().map(ToString::to_string).collect();
    assert_eq!(members, ["alice", "bob", "dan"]);
}

#[test]
fn the_best_by_the_policy_get_the_seats_and_the_others_their_final_notice() {
    let mut gathering = Gathering::empty();
    let ranked = json!({"policy": "team-seats"});
    gathering.call(&["bob", "carol", "dan"], json!({"members": {"min": 2, "max": 3}}), ranked);
    for (who, fit) in [("bob", 1), ("carol", 900_000), ("dan", 800_000)] {
        gathering.say(BEGIN_MS, who, Act::Join, json!({"terms": {"fit": fit}}));
    }
    let rejected = gathering.script.last("bob", Act::Reject);
    assert!(matches!(&*rejected.told, Notification::Reject(told) if told.offer_id.is_some()), "{rejected:?}");
    assert_eq!(gathering.floor("carol").members.len(), 3);
    let decided = gathering.script.events.iter().find_map(|event| match event {
        Event::Decided(decision) => Some(decision),
        _ => None,
    });
    let decision = decided.expect("a decision record");
    let ranked: Vec<&str> = decision.offers.iter().map(|offer| offer.contractor.as_str()).collect();
    assert_eq!((ranked.as_slice(), decision.seats), (["carol", "dan", "bob"].as_slice(), Some(2)));
}

#[test]
fn without_a_policy_the_team_forms_when_the_seats_are_full() {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol"], json!({"members": {"max": 2}}), json!({}));
    let texts = gathering.say(1, "carol", Act::Join, json!({}));
    assert_eq!(texts[1], "award.0.1=formed");
    assert_eq!(gathering.say(2, "bob", Act::Join, json!({})), ["bob<ack:late"]);
}

#[test]
fn too_few_that_join_in_time_form_no_team() {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol", "dan"], json!({"members": {"min": 3}}), json!({}));
    gathering.say(1, "bob", Act::Join, json!({}));
    gathering.say(2, "carol", Act::Refuse, json!({}));
    assert_eq!(gathering.script.tick(REPLY_MS), [""; 0]);
    assert_eq!(
        gathering.script.tick(REPLY_MS + 1),
        [
            "closed=not_formed",
            "alice<closed:not_formed@closed",
            "bob<closed:not_formed@closed",
            "dan<closed:not_formed@closed"
        ],
        "who refused hears nothing more"
    );
}

#[test]
fn who_declined_is_told_to_nobody_and_of_who_joined_the_lead_has_a_view() {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol", "dan"], json!({"members": {"min": 4}}), json!({}));
    gathering.say(1, "bob", Act::Join, json!({}));
    assert_eq!(gathering.say(2, "carol", Act::Refuse, json!({"reason": "busy"})), ["carol<ack:ok"]);
    assert_eq!(gathering.team_view("alice").members, ["alice", "bob"].map(agent));
    gathering.say(3, "dan", Act::Refuse, json!({}));
    let told = gathering.script.deliveries.iter().filter(|deliver| ["alice", "bob"].contains(&deliver.to.as_str()));
    for deliver in told {
        let text = serde_json::to_string(&*deliver.told).expect("it is written");
        assert!(!text.contains("carol") && !text.contains("dan") && !text.contains("busy"), "{text}");
    }
    assert_eq!(gathering.closing("alice").outcome, Outcome::NotFormed);
}

#[test]
fn terms_that_fail_a_gate_may_be_mended_in_time() {
    let mut gathering = called_with_a_gate();
    let join = |fit: i64| json!({"terms": {"fit": fit}});
    assert_eq!(gathering.say(1, "bob", Act::Join, join(4)), ["bob<ack:policy_reject", "bob<reject:policy:fit.min"]);
    assert_eq!(gathering.say(2, "bob", Act::Join, join(5)), ["bob<ack:ok"]);
}

/// Bob and Carol are called; terms need a `fit` of 5.
fn called_with_a_gate() -> Gathering {
    let mut gathering = Gathering::empty();
    let mut call = gathering.called(&["bob", "carol"], json!({}), json!({"policy": "team-seats"}));
    let mut policy = policy_core::preset("team-seats").expect("a preset");
    policy.gates = serde_json::from_value(json!([{"attr": "fit", "min": 5, "required": true}])).expect("gates");
    let pinned = crate::gathering::pinned_team(&["bob", "carol"]);
    let policy_digest = policy.digest().expect("a policy can be written");
    let pinned = schemas::record::Pinned { policy: policy.into(), policy_digest, ..pinned };
    call.pinned = Some(pinned.into());
    gathering.send(0, call);
    gathering
}

#[test]
fn a_call_that_was_not_delivered_is_waited_for_no_longer() {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol"], json!({}), json!({}));
    let call = gathering.script.last("carol", Act::Cfp).id;
    gathering.say(1, "bob", Act::Join, json!({}));
    let texts = gathering.script.undelivered(2, call, "carol");
    assert_eq!(texts[0], "award.0.1=formed");
}

#[test]
fn an_undelivered_call_counts_not_once_the_member_was_heard() {
    let join = |fit: i64| json!({"terms": {"fit": fit}});
    type Heard = Option<(Act, Value)>;
    let rows: [(Heard, &str, bool); 5] = [
        (None, "", true),
        (Some((Act::Join, join(4))), "carol<ack:policy_reject", false),
        (Some((Act::Say, json!({"text": "too early"}))), "carol<ack:out_of_turn", false),
        (Some((Act::Join, join(5))), "carol<ack:ok", true),
        (Some((Act::Refuse, json!({}))), "carol<ack:ok", true),
    ];
    for (heard, receipt, is_formed) in rows {
        let mut gathering = called_with_a_gate();
        let call = gathering.script.last("carol", Act::Cfp).id;
        if let Some((act, payload)) = heard.clone() {
            let texts = gathering.say(1, "carol", act, payload);
            assert_eq!(texts[0], receipt, "{heard:?}");
        }
        gathering.script.undelivered(2, call, "carol");
        gathering.say(3, "bob", Act::Join, join(5));
        let has_formed = gathering.script.events.iter().any(|event| matches!(event, Event::Decided(_)));
        assert_eq!(has_formed, is_formed, "{heard:?}");
    }
}

#[test]
fn calls_that_cannot_be_followed_open_nothing_and_say_where_it_lies() {
    let rows: [(Value, Value, &str); 8] = [
        (json!({"members": {"min": 3, "max": 2}}), json!({}), "invalid_team:/payload/team/members/min"),
        (json!({"turns": 1001}), json!({}), "invalid_team:/payload/team/turns"),
        (json!({"speak_ms": 99}), json!({}), "invalid_team:/payload/team/speak_ms"),
        (json!({"depth": 5}), json!({}), "invalid_team:/payload/team/depth"),
        (json!({"ends_within_ms": 4099}), json!({}), "bad_deadline"),
        (json!({"ends_within_ms": 86_400_001}), json!({}), "bad_deadline"),
        (json!({}), json!({"reply_within_ms": 0}), "bad_deadline"),
        (json!({}), json!({"round": 2}), "bad_round"),
    ];
    for (change, payload, reason) in rows {
        let mut gathering = Gathering::empty();
        let texts = gathering.call(&["bob"], change.clone(), payload);
        let reason = format!("alice<not_understood:{reason}");
        assert_eq!(texts, ["alice<ack:malformed", reason.as_str()], "{change}");
        assert_eq!(gathering.script.lane_state.open_count(), 0);
    }
    let mut gathering = Gathering::empty();
    assert_eq!(gathering.call(&["bob"], json!({"ends_within_ms": 4100}), json!({}))[0], "bob<cfp", "just enough time");
    let mut gathering = Gathering::empty();
    assert_eq!(gathering.call(&["alice"], json!({}), json!({}))[1], "alice<not_understood:no_recipient");
}

#[test]
fn under_rules_before_teams_a_call_to_one_is_not_supported() {
    let mut gathering = Gathering::empty();
    gathering.script.engine(0, 0, EngineEvent::Rules { version: 0 });
    let texts = gathering.call(&["bob"], json!({}), json!({}));
    assert_eq!(texts, ["alice<ack:malformed", "alice<not_understood:unsupported_rules"]);
    assert_eq!(gathering.speak(1, "alice"), ["alice<ack:unauthorized"]);
}

#[test]
fn nobody_opens_an_id_inside_a_family() {
    let mut gathering = Gathering::empty();
    for id in ["alice~job~t1", "alice~job~s1-1"] {
        gathering.script.negotiation = schemas::NegotiationId::try_new(id).unwrap();
        assert_eq!(gathering.call(&["bob"], json!({}), json!({})), ["alice<ack:unauthorized"]);
    }
}

#[test]
fn the_lead_calls_a_team_off_and_nobody_else() {
    for act in [Act::Cancel, Act::End] {
        let mut gathering = Gathering::empty();
        gathering.call(&["bob", "carol"], json!({}), json!({}));
        assert_eq!(
            gathering.say(1, "bob", Act::Cancel, json!({})),
            ["bob<ack:out_of_turn", "bob<not_understood:out_of_turn"]
        );
        assert_eq!(gathering.say(2, "alice", act, json!({}))[1], "closed=cancelled");
        assert_eq!(gathering.closing("bob").outcome, Outcome::Cancelled);
    }
}

#[test]
fn a_conflict_of_the_register_aborts_the_team() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    let negotiation = gathering.script.negotiation.clone();
    let abort = EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() };
    let texts = gathering.script.engine(20, 0, abort);
    assert_eq!(texts[0], "closed=aborted");
    assert!(gathering.script.effects.iter().any(|effect| matches!(effect, Effect::Register(_))));
}

#[test]
fn seats_of_a_team_are_ranked_by_the_reputation_pinned_for_those_who_join() {
    for (bob, carol, best) in [(1_400_000, 600_000, "bob"), (600_000, 1_400_000, "carol")] {
        let mut gathering = Gathering::empty();
        let mut call = gathering.called(&["bob", "carol"], json!({}), json!({"policy": "team-seats"}));
        let mut policy = policy_core::preset("team-seats").expect("a preset");
        policy.reputation = serde_json::from_value(json!({"domain": "algebra"})).expect("a rule");
        let weights = json!([{"attr": "reputation", "dir": "higher", "lo": 0, "hi": 2_000_000, "w": 1000}]);
        policy.weights = serde_json::from_value(weights).expect("weights");
        let policy_digest = policy.digest().expect("a policy can be written");
        let mut pinned = crate::gathering::pinned_team(&["bob", "carol"]);
        for (invitation, reputation) in pinned.invited.iter_mut().zip([bob, carol]) {
            invitation.reputation = Some(reputation);
        }
        let pinned = schemas::record::Pinned { policy: policy.into(), policy_digest, ..pinned };
        call.pinned = Some(pinned.into());
        gathering.send(0, call);
        let claims = gathering.say(1, "bob", Act::Join, json!({"terms": {"reputation": 2_000_000}}));
        assert_eq!(claims, ["bob<ack:policy_reject", "bob<reject:policy:reputation.reserved"]);
        gathering.say(2, "bob", Act::Join, json!({}));
        gathering.say(3, "carol", Act::Join, json!({}));
        let decided = gathering.script.events.iter().find_map(|event| match event {
            policy_core::Event::Decided(decision) => Some(decision.clone()),
            _ => None,
        });
        let decision = decided.expect("the team has formed");
        let ranked: Vec<_> =
            decision.offers.iter().map(|offer| (offer.contractor.as_str(), offer.reputation, offer.score)).collect();
        let other = if best == "bob" { "carol" } else { "bob" };
        assert_eq!(ranked, [(best, Some(1_400_000), 700_000), (other, Some(600_000), 300_000)]);
    }
}
