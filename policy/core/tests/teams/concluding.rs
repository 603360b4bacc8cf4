//! How teams conclude: at once, or by a vote.

use policy_core::view::Role;
use schemas::Act;
use schemas::delivery::Outcome;
use schemas::team::{TeamState, VoteCount};
use serde_json::{Value, json};

use crate::gathering::{BEGIN_MS, Gathering};
use crate::script::agent;

const FOUR: [&str; 4] = ["alice", "bob", "carol", "dan"];

fn voted(of: &str, change: Value) -> Gathering {
    let mut vote = json!({"of": of});
    crate::gathering::merge(&mut vote, change);
    Gathering::of(&FOUR, json!({"vote": vote}))
}

#[test]
fn a_conclusion_without_a_vote_binds_at_once() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    assert_eq!(
        gathering.conclude(20, "alice"),
        ["alice<ack:ok", "closed=concluded@award.0.1", "alice<closed:concluded@closed", "bob<closed:concluded@closed"]
    );
    let conclusion = gathering.closing("bob").conclusion.expect("a conclusion");
    assert_eq!((conclusion.by.as_str(), conclusion.text.as_str(), conclusion.turn), ("alice", "so", 1));
    assert_eq!(conclusion.votes, None);
    gathering.script.assert_sound();
}

#[test]
fn a_conclusion_binds_once_more_than_half_of_the_members_are_for_it() {
    let mut gathering = voted("majority", json!({}));
    let texts = gathering.conclude(20, "alice");
    assert_eq!(texts[1], "bob<floor:2:1:voting@award.0.1");
    assert_eq!(gathering.floor("dan").state, TeamState::Voting);
    assert_eq!(gathering.approve(21, "bob"), ["bob<ack:ok"], "two of four are not more than half");
    assert_eq!(gathering.approve(22, "carol")[1], "closed=concluded@award.0.1");
    let votes = gathering.closing("dan").conclusion.expect("a conclusion").votes;
    assert_eq!(votes, Some(VoteCount { yes: 3, no: 0 }));
}

#[test]
fn a_conclusion_is_rejected_once_it_cannot_pass_and_the_lead_goes_on() {
    let mut gathering = voted("all", json!({}));
    gathering.conclude(20, "alice");
    let texts = gathering.say(21, "bob", Act::Refuse, json!({"reason": "too short"}));
    assert_eq!(texts.len(), 5, "what a vote decides is told to everybody: {texts:?}");
    assert_eq!(texts[1], "alice<floor:3:2:discussing:alice@award.0.1");
    assert_eq!(gathering.approve_late(22), "out_of_turn");
}

#[test]
fn silence_counts_as_no() {
    let mut gathering = voted("majority", json!({"vote_ms": 50, "attempts": 1}));
    gathering.conclude(20, "alice");
    gathering.approve(21, "bob");
    gathering.script.tick(71);
    let closing = gathering.closing("carol");
    assert_eq!((closing.outcome, closing.detail.as_deref()), (Outcome::Unconcluded, Some("rejected")));
}

#[test]
fn votes_are_counted_once_for_this_conclusion_and_under_its_digest() {
    let mut gathering = voted("all", json!({"attempts": 2}));
    gathering.conclude(20, "alice");
    let first = gathering.floor("bob").conclusion.expect("a conclusion");
    let vote = |id: Value, digest: Value| json!({"offer_id": id, "terms_digest": digest});
    assert_eq!(
        gathering.say(21, "bob", Act::Accept, vote(json!(first.offer_id), json!("0".repeat(64)))),
        ["bob<ack:malformed", "bob<not_understood:terms_digest:/payload/terms_digest"]
    );
    assert_eq!(
        gathering.say(22, "bob", Act::Accept, vote(json!("o1-0"), json!(first.terms_digest))),
        ["bob<ack:out_of_turn", "bob<not_understood:standing"]
    );
    assert_eq!(gathering.approve(23, "bob"), ["bob<ack:ok"]);
    for (at, who) in [(24, "bob"), (25, "carol")] {
        let refused = ["ack:out_of_turn", "not_understood:out_of_turn"].map(|told| format!("{who}<{told}"));
        if who == "bob" {
            assert_eq!(gathering.approve(at, who), refused, "a second vote");
        }
    }
    let own = gathering.say(26, "alice", Act::Refuse, json!({}));
    assert_eq!(own[0], "alice<ack:out_of_turn", "the author is for it");
}

#[test]
fn a_conclusion_whose_author_leaves_is_rejected() {
    let mut gathering = voted("majority", json!({}));
    gathering.speak(20, "alice");
    gathering.conclude(21, "bob");
    gathering.say(22, "bob", Act::End, json!({}));
    let told = gathering.floor("dan");
    assert_eq!((told.state, told.speaker.unwrap().as_str().to_owned()), (TeamState::Discussing, "alice".to_owned()));
    assert_eq!(told.members.len(), 3);
}

#[test]
fn a_vote_can_pass_because_somebody_leaves() {
    let mut gathering = Gathering::of(&["alice", "bob", "carol"], json!({"vote": {"of": "all"}}));
    gathering.conclude(20, "alice");
    gathering.approve(21, "bob");
    let texts = gathering.say(22, "carol", Act::End, json!({}));
    assert_eq!(texts[1], "closed=concluded@award.0.1");
}

#[test]
fn what_was_concluded_is_told_again_to_members_and_to_nobody_else() {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol"], json!({"members": {"max": 2}}), json!({}));
    gathering.say(1, "bob", Act::Join, json!({}));
    gathering.conclude(2, "alice");
    let bob = gathering.speak(3, "bob");
    assert_eq!(bob, ["bob<ack:closed", "bob<closed:concluded@closed"]);
    assert!(gathering.closing("bob").conclusion.is_some());
    assert_eq!(gathering.speak(3, "bob"), ["bob<ack:closed", "bob<closed:concluded@closed(told)"]);
    gathering.speak(4, "carol");
    assert_eq!(gathering.closing("carol").conclusion, None, "carol had no seat");
    assert_eq!(gathering.speak(5, "mallory"), ["mallory<ack:unauthorized"]);
}

#[test]
fn members_see_how_their_team_stands_and_nobody_else_does() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    gathering.speak(20, "alice");
    let view =
        |gathering: &Gathering, who: &str| gathering.script.lane_state.view(&gathering.script.negotiation, &agent(who));
    let seen = view(&gathering, "bob").expect("a member");
    let team = gathering.team_view("bob");
    assert_eq!((seen.role, team.recap[0].text.as_str(), team.members.len()), (Role::Member, "well", 2));
    assert_eq!(team.floor.and_then(|floor| floor.speaker).unwrap().as_str(), "bob");
    assert!(view(&gathering, "mallory").is_none());
    gathering.conclude(21, "bob");
    let ended = gathering.team_view("alice");
    assert_eq!(ended.conclusion.expect("a conclusion").text, "so");
}

#[test]
fn whoever_left_or_has_no_seat_sees_nothing_of_how_a_team_ended_and_of_one_that_never_formed_everybody_does() {
    let sees = |gathering: &Gathering, who: &str| {
        gathering.script.lane_state.view(&gathering.script.negotiation, &agent(who)).is_some()
    };
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol", "dan", "erin"], json!({"members": {"max": 4}}), json!({}));
    for who in ["bob", "carol", "dan"] {
        gathering.say(BEGIN_MS, who, Act::Join, json!({}));
    }
    gathering.say(11, "dan", Act::End, json!({}));
    gathering.conclude(12, "alice");
    assert_eq!(
        ["alice", "bob", "dan", "erin", "mallory"].map(|who| sees(&gathering, who)),
        [true, true, false, false, false]
    );

    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol"], json!({}), json!({}));
    gathering.say(BEGIN_MS, "bob", Act::Refuse, json!({}));
    gathering.say(BEGIN_MS, "carol", Act::Refuse, json!({}));
    assert_eq!(gathering.script.lane_state.open_count(), 0, "it has not formed");
    assert_eq!(["alice", "bob", "mallory"].map(|who| sees(&gathering, who)), [true, true, false]);
}

impl Gathering {
    /// Dan votes for what is not voted on any more.
    fn approve_late(&mut self, at_ms: u64) -> String {
        let texts = self.say(at_ms, "dan", Act::Accept, json!({"offer_id": "o1-0"}));
        texts[0].trim_start_matches("dan<ack:").to_owned()
    }
}
