//! The floor: who speaks next, silence, muting, leaving, the limit of turns.

use policy_core::{Event, TurnKind};
use schemas::Act;
use schemas::delivery::{Notification, Outcome};
use schemas::team::{Spoken, TeamState};
use serde_json::json;

use crate::gathering::{BEGIN_MS, ENDS_MS, Gathering, SPEAK_MS};

const THREE: [&str; 3] = ["alice", "bob", "carol"];

#[test]
fn a_say_is_heard_by_everybody_else_and_passes_the_floor_to_the_next_seat() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    assert_eq!(
        gathering.speak(20, "alice"),
        ["alice<ack:ok", "bob<floor:2:2:discussing:bob@award.0.1", "carol<floor:2:2:discussing:bob@award.0.1"]
    );
    let told = gathering.floor("carol");
    assert_eq!(told.said, Some(Spoken::Text { text: "well".to_owned() }));
    assert_eq!((told.by.as_ref().map(|by| by.as_str()), told.turns_left), (Some("alice"), 31));
    let Notification::Ack(receipt) = &*gathering.script.last("alice", Act::Ack).told else { panic!() };
    assert_eq!((receipt.step, receipt.turn), (Some(2), Some(2)), "the sender's notice is its receipt");
    gathering.speak(21, "bob");
    assert_eq!(gathering.speak(22, "carol")[1], "alice<floor:4:4:discussing:alice@award.0.1", "seats go round");
}

#[test]
fn the_receipt_of_a_say_leaves_at_once_although_nobody_asked_for_receipts() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.script.receipts_all = false;
    assert_eq!(gathering.speak(20, "alice")[0], "alice<ack:ok");
}

#[test]
fn whoever_is_named_gets_the_floor() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.say(20, "alice", Act::Say, json!({"text": "carol?", "next": "carol"}));
    assert_eq!(gathering.floor("bob").speaker.unwrap().as_str(), "carol");
    gathering.say(21, "carol", Act::Say, json!({"text": "me again", "next": "carol"}));
    assert_eq!(gathering.floor("bob").speaker.unwrap().as_str(), "carol");
}

#[test]
fn silence_is_a_strike_and_gives_the_floor_to_the_lead_or_behind_it() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    let at = BEGIN_MS + SPEAK_MS;
    assert_eq!(gathering.script.tick(at), [""; 0], "in time until the last instant");
    let texts = gathering.script.tick(at + 1);
    assert_eq!(texts.len(), 3, "a timer tells everybody: {texts:?}");
    assert_eq!(gathering.floor("alice").speaker.unwrap().as_str(), "bob", "the lead was silent");
    gathering.script.tick(at + 2 + SPEAK_MS);
    assert_eq!(gathering.floor("alice").speaker.unwrap().as_str(), "alice", "another was silent");
    assert_eq!(gathering.floor("alice").turn, 3);
}

#[test]
fn every_turn_is_a_fact_of_how_it_was_taken() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.speak(20, "alice");
    gathering.speak(20, "carol");
    gathering.script.tick(21 + SPEAK_MS);
    gathering.conclude(22 + SPEAK_MS, "alice");
    let kinds = gathering.script.events.iter().filter_map(|event| match event {
        Event::TurnTaken { kind, .. } => Some(*kind),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [TurnKind::Say, TurnKind::Silence, TurnKind::Conclude]);
}

#[test]
fn a_member_out_of_strikes_is_muted_and_passed_over() {
    let mut gathering = Gathering::of(&THREE, json!({"max_strikes": 1}));
    let texts = gathering.speak(20, "bob");
    assert_eq!(texts[..2], ["bob<ack:out_of_turn", "bob<not_understood:out_of_turn"]);
    assert_eq!(texts[3], "bob<floor:2:1:discussing:alice@award.0.1", "muting is told to everybody");
    assert_eq!(gathering.floor("alice").muted[0].as_str(), "bob");
    gathering.speak(21, "alice");
    assert_eq!(gathering.floor("bob").speaker.unwrap().as_str(), "carol");
}

#[test]
fn a_team_of_which_everybody_is_muted_ends_in_silence() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"max_strikes": 1}));
    gathering.script.tick(BEGIN_MS + SPEAK_MS + 1);
    assert_eq!(gathering.floor("bob").speaker.unwrap().as_str(), "bob", "the next seat leads");
    gathering.script.tick(BEGIN_MS + 2 * SPEAK_MS + 2);
    let closing = gathering.closing("bob");
    assert_eq!((closing.outcome, closing.detail.as_deref()), (Outcome::Unconcluded, Some("silence")));
}

#[test]
fn after_the_last_turn_only_a_conclusion_is_taken_from_the_lead_and_then_from_each_seat() {
    let mut gathering = Gathering::of(&THREE, json!({"turns": 2}));
    gathering.speak(20, "alice");
    assert_eq!(gathering.floor("carol").turns_left, 1);
    gathering.speak(21, "bob");
    let told = gathering.floor("carol");
    assert_eq!((told.state, told.turns_left, told.turn), (TeamState::Concluding, 0, 3));
    assert_eq!(told.speaker.unwrap().as_str(), "alice");
    assert_eq!(gathering.speak(22, "alice"), ["alice<ack:out_of_turn", "alice<not_understood:must_conclude"]);
    let mut asked = Vec::new();
    for nth in 1..=2 {
        gathering.script.tick(22 + nth * (SPEAK_MS + 1));
        asked.push(gathering.floor("alice").speaker.unwrap().to_string());
    }
    assert_eq!(asked, ["bob", "carol"]);
    assert_eq!(gathering.conclude(22 + 2 * (SPEAK_MS + 1), "carol")[1], "closed=concluded@award.0.1");
}

#[test]
fn nobody_that_concludes_when_asked_ends_the_team_in_silence() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"turns": 1}));
    gathering.speak(20, "alice");
    for nth in 1..=2 {
        gathering.script.tick(20 + nth * (SPEAK_MS + 1));
    }
    assert_eq!(gathering.closing("alice").detail.as_deref(), Some("silence"));
}

#[test]
fn shortly_before_its_end_a_team_only_concludes() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"speak_ms": 40_000, "ends_within_ms": 200_000}));
    gathering.speak(30_000, "alice");
    gathering.speak(60_000, "bob");
    gathering.speak(90_000, "alice");
    gathering.speak(119_000, "bob");
    gathering.script.tick(120_001);
    assert_eq!(gathering.floor("bob").state, TeamState::Concluding);
    gathering.script.tick(200_001);
    assert_eq!(gathering.closing("bob").outcome, Outcome::Unconcluded);
}

#[test]
fn a_team_ends_by_its_hard_end_whatever_it_does() {
    let vote = json!({"vote": {"of": "all", "vote_ms": 86_400_000}});
    let mut gathering = Gathering::of(&["alice", "bob"], vote);
    gathering.conclude(20, "alice");
    gathering.script.tick(ENDS_MS + 1);
    assert_eq!(gathering.closing("bob").detail.as_deref(), Some("deadline"));
}

#[test]
fn whoever_leaves_hears_nothing_more_and_its_floor_goes_to_the_lead() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.speak(20, "alice");
    assert_eq!(
        gathering.say(21, "bob", Act::End, json!({})),
        ["bob<ack:ok", "alice<floor:3:3:discussing:alice@award.0.1", "carol<floor:3:3:discussing:alice@award.0.1"]
    );
    assert_eq!(gathering.speak(22, "bob"), ["bob<ack:closed"]);
    assert_eq!(gathering.speak(23, "alice"), ["alice<ack:ok", "carol<floor:4:4:discussing:carol@award.0.1"]);
    assert_eq!(
        gathering.say(24, "carol", Act::Say, json!({"text": "bob?", "next": "bob"})),
        ["carol<ack:malformed", "carol<not_understood:unknown_member:/payload/next"]
    );
}

#[test]
fn a_lead_that_leaves_is_succeeded_by_the_next_seat() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.say(20, "alice", Act::End, json!({}));
    assert_eq!(gathering.floor("carol").speaker.unwrap().as_str(), "bob");
    assert_eq!(gathering.say(21, "bob", Act::Cancel, json!({}))[1], "closed=cancelled@award.0.1");
}

#[test]
fn fewer_than_two_members_are_no_team() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    let texts = gathering.say(20, "bob", Act::End, json!({}));
    assert_eq!(texts, ["bob<ack:ok", "closed=unconcluded@award.0.1", "alice<closed:unconcluded:left@closed"]);
}

#[test]
fn a_pause_without_open_tasks_keeps_the_floor() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    assert_eq!(
        gathering.say(20, "alice", Act::Pause, json!({"triggers": [1]})),
        ["alice<ack:malformed", "alice<not_understood:unknown_task:/payload/triggers/0"]
    );
}

#[test]
fn a_member_may_say_as_much_as_there_are_turns_and_no_more() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"turns": 1, "max_strikes": 100}));
    for nth in 0..64 {
        assert_eq!(gathering.speak(20 + nth, "bob")[0], "bob<ack:out_of_turn");
    }
    assert_eq!(gathering.speak(99, "bob"), ["bob<ack:rate_limited"]);
    assert_eq!(gathering.say(100, "bob", Act::End, json!({}))[0], "bob<ack:ok", "who leaves may always do so");
}

#[test]
fn a_say_that_repeats_another_is_told_by_reference_and_takes_its_turn() {
    let mut gathering = Gathering::of(&THREE, json!({"on_repeat": "reference"}));
    gathering.say(20, "alice", Act::Say, json!({"text": "Who draws the first figure?"}));
    gathering.say(21, "bob", Act::Say, json!({"text": "I write the related work."}));
    gathering.say(22, "carol", Act::Say, json!({"text": "who DRAWS the FIRST  figure ?"}));
    let floor = gathering.floor("bob");
    assert_eq!((floor.said, floor.turn), (Some(Spoken::Repeats { repeats: 2 }), 4));
    gathering.say(23, "alice", Act::Say, json!({"text": "Who draws the first figure?"}));
    assert_eq!(gathering.floor("carol").said, Some(Spoken::Repeats { repeats: 2 }), "not what repeats it");
}

#[test]
fn a_say_that_repeats_another_is_refused_where_the_rules_say_so_or_told_whole() {
    let text = json!({"text": "Who draws the first figure?"});
    let mut refusing = Gathering::of(&THREE, json!({"on_repeat": "refuse"}));
    refusing.say(20, "alice", Act::Say, text.clone());
    assert_eq!(
        refusing.say(21, "bob", Act::Say, text.clone()),
        ["bob<ack:policy_reject", "bob<not_understood:repeated"]
    );
    assert_eq!((refusing.floor("bob").turn, refusing.floor("bob").step), (2, 2), "floor and time run on");
    assert_eq!(refusing.speak(22, "bob")[0], "bob<ack:ok");
    let mut passing = Gathering::of(&THREE, json!({"on_repeat": "pass"}));
    passing.say(20, "alice", Act::Say, text.clone());
    passing.say(21, "bob", Act::Say, text);
    assert!(matches!(passing.floor("carol").said, Some(Spoken::Text { .. })));
}

#[test]
fn a_sign_that_changes_what_a_text_means_makes_it_another() {
    for (one, other) in [("pay 5", "pay -5"), ("5 %", "5 $"), ("is a < b", "is a > b"), ("x = 1.5", "x = 1,5")] {
        let mut gathering = Gathering::of(&THREE, json!({"on_repeat": "reference"}));
        gathering.say(20, "alice", Act::Say, json!({"text": one}));
        gathering.say(21, "bob", Act::Say, json!({"text": other}));
        assert_eq!(gathering.floor("carol").said, Some(Spoken::Text { text: other.to_owned() }));
    }
}
