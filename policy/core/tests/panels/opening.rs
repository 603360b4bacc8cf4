//! Which calls open a panel (docs/spec/panel.md#pn-7), and what they tell.

use policy_core::{Effect, Event};
use schemas::Timestamp;
use schemas::panel::PanelSpec;
use schemas::record::{EngineEvent, PinnedPanel};
use serde_json::{Value, json};

use crate::board::{Board, SEATS, invitation, merge};
use crate::script::START_MS;

#[test]
fn a_call_asks_its_first_wave_and_is_told_who_is_invited() {
    let mut board = Board::empty();
    let texts = board.call(&SEATS[..4], json!({"asking": "quorum_first"}));
    assert_eq!(texts[0], "alice<ack:ok");
    assert_eq!((texts.len(), texts[1..].iter().all(|text| text.ends_with("<ask:1"))), (4, true), "{texts:?}");
    let (_, wave) = board.wave();
    let ask = board.ask(&wave[0]);
    assert_eq!((ask.task.as_deref(), ask.rounds, ask.own, ask.peers), (Some("Which is prime?"), Some(3), None, None));
    assert_eq!(ask.rate, None);
    let receipt = board.script.deliveries[0].receipts_told().next().cloned().unwrap();
    assert_eq!((receipt.invited, receipt.left_out), (Some(4), Some(0)));
}

#[test]
fn calls_that_cannot_be_followed_open_nothing_and_say_where_it_lies() {
    let thirty_three: Vec<String> = (0..33).map(|number| format!("seat-{number}")).collect();
    let thirty_three: Vec<&str> = thirty_three.iter().map(String::as_str).collect();
    let bleu = json!({"answer": {"kind": "bleu"}});
    let agent =
        |name: &str| json!({"select": {"after_round": 1, "keep": 2, "ranker": {"kind": "agent", "agent": name}}});
    let rows: [(&[&str], Value, Value, &str); 15] = [
        (&SEATS[..4], json!({"rounds": 9}), json!({}), "invalid_panel:/payload/panel/rounds"),
        (&SEATS[..4], json!({"consensus_from": 4}), json!({}), "invalid_panel:/payload/panel/consensus_from"),
        (
            &SEATS[..4],
            json!({"select": {"after_round": 3, "keep": 2}}),
            json!({}),
            "invalid_panel:/payload/panel/select/after_round",
        ),
        (&SEATS[..4], json!({}), json!({"policy": "low"}), "invalid_panel:/payload/policy"),
        (&SEATS[..4], json!({}), json!({"round": 2}), "bad_round"),
        (&SEATS[..4], json!({"min_seats": 5}), json!({}), "no_recipient"),
        (&[], json!({}), json!({}), "no_recipient"),
        (&thirty_three, json!({}), json!({}), "too_many_parties"),
        (&thirty_three[..17], bleu, json!({}), "too_many_parties"),
        (&SEATS[..4], agent("zoe"), json!({}), "no_recipient:/payload/panel/select/ranker/agent"),
        (&SEATS[..4], agent("rex"), json!({}), "no_recipient:/payload/panel/select/ranker/agent"),
        (&SEATS[..4], json!({"answer_ms": 86_400_000}), json!({}), "bad_deadline"),
        (&SEATS[..4], json!({}), json!({"reply_by": "1970-01-01T00:16:40Z"}), "bad_deadline"),
        (
            &SEATS[..4],
            json!({"rounds": 1, "review": {"by": ["rex"]}}),
            json!({}),
            "invalid_panel:/payload/panel/review",
        ),
        (&SEATS[..4], json!({"review": {"by": ["rex", "rex"]}}), json!({}), "invalid_panel:/payload/panel/review/by/1"),
    ];
    for (seats, change, payload, reason) in rows {
        let mut board = Board::empty();
        let roles = (reason.ends_with("ranker/agent") && change["select"]["ranker"]["agent"] == "rex")
            .then(PinnedPanel::default);
        let texts = board.call_with(seats, change, payload, json!({}), roles);
        assert_eq!(texts, ["alice<ack:malformed".to_owned(), format!("alice<not_understood:{reason}")]);
        assert_eq!(board.script.lane_state.open_count(), 0);
    }
}

#[test]
fn a_ranker_with_a_seat_opens_nothing() {
    let mut board = Board::empty();
    let rules = json!({"select": {"after_round": 1, "keep": 2, "ranker": {"kind": "agent", "agent": "ann"}}});
    let roles = PinnedPanel { ranker: Some(invitation("ann")), reviewers: Vec::new() };
    let texts = board.call_with(&SEATS[..4], rules, json!({}), json!({}), Some(roles));
    assert_eq!(texts[1], "alice<not_understood:no_recipient:/payload/panel/select/ranker/agent");
}

#[test]
fn a_lane_of_rules_before_panels_opens_none() {
    let mut board = Board::empty();
    board.script.engine(0, 0, EngineEvent::Rules { version: 0 });
    let texts = board.call(&SEATS[..4], json!({}));
    assert_eq!(texts, ["alice<ack:malformed", "alice<not_understood:unsupported_rules"]);
}

#[test]
fn the_hard_deadline_is_what_all_asks_may_take_or_less_where_the_call_says_so() {
    let after_call = |change: Value, payload: Value, envelope: Value, roles: Option<PinnedPanel>| {
        let mut board = Board::empty();
        board.call_with(&SEATS[..7], change, payload, envelope, roles);
        let ends_by: Timestamp = board.ask(&board.wave().1[0]).ends_by.0;
        ends_by.since_us(Timestamp::from_ms(START_MS)) / 1000
    };
    let none = || json!({});
    assert_eq!(after_call(none(), none(), none(), None), 3_000, "three rounds of one wave");
    assert_eq!(after_call(json!({"asking": "quorum_first"}), none(), none(), None), 9_000, "of up to three waves");
    let ranked =
        json!({"select": {"after_round": 1, "keep": 2, "ranker": {"kind": "agent", "agent": "rex", "rank_ms": 70}}});
    let roles = PinnedPanel { ranker: Some(invitation("rex")), reviewers: Vec::new() };
    assert_eq!(after_call(ranked, none(), none(), Some(roles)), 3_070);
    assert_eq!(after_call(none(), json!({"reply_within_ms": 700}), none(), None), 700);
    assert_eq!(after_call(none(), json!({"reply_within_ms": 9_000}), none(), None), 3_000);
    assert_eq!(after_call(none(), none(), json!({"scope": {"consent": "opt-in", "ttl": 2}}), None), 2_000);
}

#[test]
fn the_domain_is_the_topic_if_the_call_is_addressed_to_one_alone() {
    let domain = |change: Value, to: Value| {
        let mut board = Board::empty();
        let mut rules = json!({"rounds": 1});
        merge(&mut rules, change);
        board.call_with(&["ann"], rules, json!({}), json!({ "to": to }), None);
        board.answer(10, "ann", 1, "a");
        board.decision().domain.clone()
    };
    assert_eq!(domain(json!({}), json!(["topic://statistics"])), "statistics");
    assert_eq!(domain(json!({}), json!(["topic://statistics", "agent://ann"])), "general");
    assert_eq!(domain(json!({}), json!(["agent://ann"])), "general");
    assert_eq!(domain(json!({"domain": "law"}), json!(["topic://statistics"])), "law");
}

#[test]
fn the_rules_digest_is_of_the_rules_with_the_domain_that_was_found() {
    let mut board = Board::empty();
    board.call(&["ann"], json!({}));
    let rules: PanelSpec =
        serde_json::from_value(json!({"asking": "all", "answer_ms": 1000, "domain": "general"})).unwrap();
    assert_eq!(board.ask("ann").rules_digest, Some(schemas::Digest::of(&rules).unwrap()));
    let is_started = |effect: &&Effect| matches!(effect, Effect::Event(Event::Started { .. }));
    assert_eq!(board.script.effects.iter().filter(is_started).count(), 1);
}
