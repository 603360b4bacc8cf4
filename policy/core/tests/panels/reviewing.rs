//! Reviews (docs/spec/panel.md#reviews): who reviews what, when, and what it is worth.

use std::collections::BTreeSet;

use schemas::delivery::{Outcome, Rated};
use schemas::evidence::EvidenceRole;
use schemas::record::PinnedPanel;
use schemas::{Act, AgentId};
use serde_json::{Value, json};

use crate::board::{ANSWER_MS, Board, SEATS, invitation, merge};

const REVIEW_MS: u64 = 500;
const REVIEWERS: [&str; 2] = ["roy", "rex"];

/// One case: what happens, and every effect of its last act.
pub(crate) struct ReviewRow {
    case: &'static str,
    pub(crate) play: fn(&mut Board) -> Vec<String>,
    effects: &'static [&'static str],
}

/// Of four seats, whose first answers two review.
pub(crate) const REVIEW_ROWS: [ReviewRow; 16] = [
    ReviewRow {
        case: "a text or nothing for each, and ratings",
        play: |b| {
            in_review(b, |b| said(b, "rex", json!({"reviews": ["good", null, "bad", ""], "ratings": [5, 1, 2, 3]})))
        },
        effects: &["rex<ack:ok"],
    },
    ReviewRow {
        case: "no ratings",
        play: |b| in_review(b, |b| said(b, "roy", json!({"reviews": [null, null, null, null]}))),
        effects: &["roy<ack:ok"],
    },
    ReviewRow {
        case: "too few reviews",
        play: |b| in_review(b, |b| nine_times(|| said(b, "rex", json!({"reviews": ["good"]})))),
        effects: &["rex<ack:malformed", "rex<not_understood:bad_reviews:/payload/reviews"],
    },
    ReviewRow {
        case: "reviews that are too long, by a writer that no gateway checked",
        play: |b| in_review(b, |b| said(b, "rex", json!({"reviews": ["x".repeat(8200), null, null, null]}))),
        effects: &["rex<ack:malformed", "rex<not_understood:bad_reviews:/payload/reviews"],
    },
    ReviewRow {
        case: "too many ratings",
        play: |b| {
            in_review(b, |b| said(b, "rex", json!({"reviews": [null, null, null, null], "ratings": [1, 2, 3, 4, 5]})))
        },
        effects: &["rex<ack:malformed", "rex<not_understood:bad_ratings:/payload/ratings"],
    },
    ReviewRow {
        case: "refused reviews, corrected in time",
        play: |b| {
            in_review(b, |b| {
                said(b, "rex", json!({"reviews": []}));
                said(b, "rex", reviews())
            })
        },
        effects: &["rex<ack:ok"],
    },
    ReviewRow {
        case: "a second review of the round",
        play: |b| {
            in_review(b, |b| {
                said(b, "rex", reviews());
                said(b, "rex", reviews())
            })
        },
        effects: &["rex<ack:out_of_turn", "rex<not_understood:out_of_turn"],
    },
    ReviewRow {
        case: "a review while seats answer",
        play: |b| said(b, "rex", reviews()),
        effects: &["rex<ack:out_of_turn", "rex<not_understood:not_asked"],
    },
    ReviewRow {
        case: "an answer of a reviewer",
        play: |b| in_review(b, |b| said(b, "rex", json!({"answer": "A"}))),
        effects: &["rex<ack:out_of_turn", "rex<not_understood:out_of_turn"],
    },
    ReviewRow {
        case: "an order of a reviewer",
        play: |b| in_review(b, |b| said(b, "rex", json!({"order": [1]}))),
        effects: &["rex<ack:out_of_turn", "rex<not_understood:out_of_turn"],
    },
    ReviewRow {
        case: "reviews by nobody's reviewer",
        play: |b| in_review(b, |b| said(b, "zoe", reviews())),
        effects: &["zoe<ack:unauthorized"],
    },
    ReviewRow {
        case: "reviews of the initiator",
        play: |b| in_review(b, |b| said(b, "alice", reviews())),
        effects: &["alice<ack:out_of_turn", "alice<not_understood:out_of_turn"],
    },
    ReviewRow {
        case: "a seat's answer to the round that is reviewed",
        play: |b| {
            for who in &SEATS[..3] {
                b.answer(10, who, 1, who);
            }
            b.script.tick(ANSWER_MS + 1);
            b.answer(ANSWER_MS + 2, "dan", 1, "dan")
        },
        effects: &["dan<ack:late"],
    },
    ReviewRow {
        case: "who refuses reviews no more",
        play: |b| {
            in_review(b, |b| {
                b.say(30, "rex", Act::Refuse, json!({}));
                said(b, "rex", reviews())
            })
        },
        effects: &["rex<ack:out_of_turn", "rex<not_understood:not_asked"],
    },
    ReviewRow {
        case: "a review when the next round has begun",
        play: |b| {
            in_review(b, |b| {
                b.script.tick(20 + REVIEW_MS + 1);
                b.say(30 + REVIEW_MS, "rex", Act::Answer, json!({"round": 1, "reviews": []}))
            })
        },
        effects: &["rex<ack:stale_round"],
    },
    ReviewRow {
        case: "the initiator calls it off",
        play: |b| in_review(b, |b| b.say(30, "alice", Act::Cancel, json!({}))),
        effects: &[
            "alice<ack:ok",
            "closed=cancelled",
            "alice<closed:cancelled@closed",
            "ann<closed:cancelled@closed",
            "bob<closed:cancelled@closed",
            "cyd<closed:cancelled@closed",
            "dan<closed:cancelled@closed",
            "rex<closed:cancelled@closed",
            "roy<closed:cancelled@closed",
        ],
    },
];

#[test]
fn every_act_of_a_reviewer_is_legal_or_refused_as_its_row_says() {
    for ReviewRow { case, play, effects } in REVIEW_ROWS {
        let mut board = reviewed();
        assert_eq!(play(&mut board), effects, "{case}");
        board.script.assert_sound();
    }
}

#[test]
fn reviewers_are_shown_what_was_answered_and_seats_what_they_say_of_it() {
    let mut board = reviewed();
    assert_eq!(
        answer_all(&mut board, 1),
        ["dan<ack:ok", "roy<ask:1:review", "rex<ask:1:review"],
        "in the call's order"
    );
    let ask = board.ask("rex");
    assert_eq!((ask.review, ask.rate, ask.own, ask.answer), (true, Some(Rated::Peers), None, None));
    for who in REVIEWERS {
        assert_eq!(sorted(board.shown(who)), SEATS[..4]);
        review(&mut board, who, |of| Some(format!("{who} of {of}")), |_| 3);
    }
    let (round, wave) = board.wave();
    assert_eq!((round, wave.len()), (2, 4));
    for who in &SEATS[..4] {
        let ask = board.ask(who);
        assert_eq!(ask.rate, Some(Rated::Reviewers));
        let mut orders = BTreeSet::new();
        for shown in ask.own.iter().chain(ask.peers.iter().flatten()) {
            let author = shown.text.as_deref().unwrap().trim_start_matches("by ");
            let said: Vec<&str> = shown.reviews.iter().map(|text| text.as_deref().unwrap()).collect();
            let by: Vec<String> = said.iter().map(|text| text.replace(&format!(" of {author}"), "")).collect();
            assert_eq!(sorted(by.clone()), ["rex", "roy"], "{said:?}");
            orders.insert(by);
        }
        assert_eq!(orders.len(), 1, "one order of reviewers for all that one seat is shown");
    }
}

#[test]
fn seats_rate_the_reviewers_that_replied_and_failing_that_their_peers() {
    for (replying, rated, count) in
        [(&["rex", "roy"][..], Rated::Reviewers, 2), (&["rex"], Rated::Reviewers, 1), (&[], Rated::Peers, 3)]
    {
        let mut board = reviewed();
        answer_all(&mut board, 1);
        for who in replying {
            review(&mut board, who, |_| None, |_| 3);
        }
        board.script.tick(20 + REVIEW_MS + 1);
        let ask = board.ask("ann");
        assert_eq!((ask.round, ask.rate), (2, Some(rated)));
        let reviews = if rated == Rated::Reviewers { count } else { 0 };
        assert!(ask.peers.unwrap().iter().all(|peer| peer.reviews == vec![None; reviews]));
        let wrong =
            board.say(700, "ann", Act::Answer, json!({"round": 2, "answer": "A", "ratings": vec![5; count + 1]}));
        assert_eq!(wrong[1], "ann<not_understood:bad_ratings:/payload/ratings");
        let right = board.say(700, "ann", Act::Answer, json!({"round": 2, "answer": "A", "ratings": vec![5; count]}));
        assert_eq!(right, ["ann<ack:ok"], "{rated:?}");
    }
}

/// Of round 2 each of three has 1/3. All rate roy 3 and rex 1, so the reviewers have 3/4 and 1/4 of the whole. Roy gives ann 4 of
/// 10, rex gives everybody the same: ann has 3/4 * 4/10 + 1/4 * 1/4 = 29/80, the others 3/4 * 2/10 + 1/4 * 1/4 = 17/80.
#[test]
fn reviews_are_a_layer_between_two_rounds() {
    let mut board = reviewed();
    answer_all(&mut board, 1);
    review(&mut board, "roy", |_| Some("roy".to_owned()), |of| if of == "ann" { 4 } else { 2 });
    review(&mut board, "rex", |_| Some("rex".to_owned()), |_| 5);
    for who in &SEATS[..3] {
        let reviewers = board.ask(who).own.unwrap().reviews;
        let rating = |by: &Option<std::sync::Arc<str>>| if by.as_deref() == Some("roy") { 3 } else { 1 };
        let ratings: Vec<u32> = reviewers.iter().map(rating).collect();
        board.say(40, who, Act::Answer, json!({"round": 2, "answer": "A", "ratings": ratings}));
    }
    board.answer(41, "dan", 2, "dan");
    let finding = board.finding();
    assert_eq!((finding.outcome, finding.agreed, finding.round), (Outcome::Consensus, 3, 2));
    let first: Vec<u64> = finding.panelists.iter().map(|one| one.importance_e12[0]).collect();
    assert_eq!(first, [362_500_000_000, 212_500_000_000, 212_500_000_000, 212_500_000_000]);
    assert_eq!(finding.panelists[0].relative_ppm, 1_391_666, "(29/80 + 1/3) * 4 seats / 2 rounds");
    let reviewers: Vec<(&str, u64, u64)> =
        finding.reviewers.iter().map(|one| (one.agent.as_str(), one.total_e12, one.relative_ppm)).collect();
    assert_eq!(reviewers, [("roy", 750_000_000_000, 1_500_000), ("rex", 250_000_000_000, 500_000)]);
    assert_eq!((finding.calls.answers, finding.calls.reviews, finding.calls.answered), (8, 2, 10));
    let decision = board.decision();
    assert_eq!(finding.decision, schemas::Digest::of(&*decision).unwrap(), "the record is canonical");
    let evidence = board.script.lane_state.evidence();
    let of_reviewers = evidence.entries().filter(|(subject, _)| subject.role == EvidenceRole::Reviewer);
    let shown: Vec<_> = of_reviewers
        .map(|(subject, counts)| {
            (subject.agent.as_str(), counts.asked, counts.layers, counts.total_e12, counts.fair_e12)
        })
        .collect();
    let half = 500_000_000_000;
    assert_eq!(shown, [("rex", 1, 1, half / 2, half), ("roy", 1, 1, half / 2 * 3, half)]);
    assert_eq!((decision.reviews.len(), decision.reviews[0].replies.len(), decision.reviewers.len()), (1, 2, 2));
}

#[test]
fn a_review_is_waited_for_no_longer_than_its_deadline_or_its_reviewers() {
    let ways: [fn(&mut Board); 4] = [
        |board| drop(board.script.tick(20 + REVIEW_MS + 1)),
        |board| drop(board.say(30, "roy", Act::NotUnderstood, json!({}))),
        |board| {
            let lost = board.script.last("roy", Act::Ask).id;
            board.script.undelivered(30, lost, "roy");
        },
        |board| {
            for _ in 0..3 {
                board.say(30, "roy", Act::Answer, json!({"round": 1, "answer": "me"}));
            }
        },
    ];
    for (number, give_up) in ways.into_iter().enumerate() {
        let mut board = reviewed();
        answer_all(&mut board, 1);
        review(&mut board, "rex", |_| Some("fine".to_owned()), |_| 3);
        assert_eq!(board.ask("ann").round, 1);
        give_up(&mut board);
        let ask = board.ask("ann");
        assert_eq!((ask.round, ask.own.unwrap().reviews.len()), (2, 1), "{number}");
    }
}

#[test]
fn exactly_at_the_deadline_a_review_is_on_time() {
    let mut board = reviewed();
    answer_all(&mut board, 1);
    assert_eq!(board.say(10 + REVIEW_MS, "rex", Act::Answer, with_round(reviews())), ["rex<ack:ok"]);
}

#[test]
fn the_review_of_a_reviewer_that_strikes_out_falls() {
    let mut board = reviewed();
    answer_all(&mut board, 1);
    review(&mut board, "rex", |_| Some("fine".to_owned()), |_| 3);
    for _ in 0..3 {
        board.say(30, "rex", Act::Answer, json!({"round": 1, "answer": "me"}));
    }
    review(&mut board, "roy", |_| None, |_| 3);
    assert_eq!(board.ask("ann").own.unwrap().reviews, [None]);
    answer_all(&mut board, 2);
    assert_eq!((board.asks("rex"), board.asks("roy")), (1, 2), "who has left is asked no more");
}

#[test]
fn without_a_reviewer_that_is_there_nobody_reviews() {
    let mut board = reviewed();
    for who in REVIEWERS {
        board.say(5, who, Act::Refuse, json!({}));
    }
    answer_all(&mut board, 1);
    let ask = board.ask("ann");
    assert_eq!((ask.round, ask.rate), (2, Some(Rated::Peers)));
    assert_eq!(board.asks("rex"), 0);
}

#[test]
fn reviewers_see_only_the_kept_and_nobody_reviews_the_last_round() {
    let mut board = reviewed_with(json!({"select": {"after_round": 1, "keep": 2, "recheck": false}}));
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b"), ("dan", "d")] {
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": answer, "text": format!("by {who}")}));
    }
    for round in 1..=2 {
        for who in REVIEWERS {
            assert_eq!(sorted(board.shown(who)), ["bob", "cyd"]);
            review(&mut board, who, |_| None, |_| 3);
        }
        for who in ["bob", "cyd"] {
            board.say(40, who, Act::Answer, json!({"round": round + 1, "answer": who, "text": format!("by {who}")}));
        }
    }
    let finding = board.finding();
    assert_eq!((finding.outcome, finding.calls.answers, finding.calls.reviews), (Outcome::Plurality, 8, 4));
    assert_eq!((board.asks("rex"), board.asks("roy")), (2, 2));
}

#[test]
fn at_the_hard_deadline_nobody_reviews_any_more() {
    let mut board = Board::empty();
    board.call_with(&SEATS[..4], rules(), json!({"reply_within_ms": 300}), json!({}), Some(roles()));
    answer_all(&mut board, 1);
    assert_eq!(board.ask("rex").answer_by, board.ask("rex").ends_by, "no review goes beyond the end");
    board.script.tick(301);
    let finding = board.finding();
    assert_eq!((finding.outcome, finding.round, finding.stopped.as_str()), (Outcome::Plurality, 1, "timeout"));
    assert_eq!(finding.reviewers.iter().map(|one| one.total_e12).sum::<u64>(), 0, "no review came to anything");
}

/// Four that write, three that judge: consensus counts from the second round on, and two of the answers go on after it.
#[test]
fn four_writers_and_three_judges_take_seventeen_asks_at_most() {
    let mut board = Board::empty();
    let judges = ["jo", "ju", "jy"];
    let select = json!({"after_round": 2, "keep": 2, "if_more_than": 2, "ranker": {"kind": "agent", "agent": "rex"}});
    let rules = json!({"asking": "quorum_first", "consensus_from": 2, "select": select, "review": {"by": judges}});
    let roles = PinnedPanel { ranker: Some(invitation("rex")), reviewers: judges.map(invitation).to_vec() };
    board.call_with(&SEATS[..4], rules, json!({}), json!({}), Some(roles));
    let mut at_ms = 10;
    while board.script.lane_state.open_count() > 0 {
        let (_, wave) = board.wave();
        at_ms += 1;
        for who in wave {
            let ask = board.ask(&who);
            let shown = ask.peers.map_or(0, |peers| peers.len());
            let payload = match (ask.rank, ask.review) {
                (Some(_), _) => json!({"round": ask.round, "order": [2, 1]}),
                (None, true) => json!({"round": ask.round, "reviews": vec![Value::Null; shown]}),
                (None, false) => json!({"round": ask.round, "answer": who}),
            };
            board.say(at_ms, &who, Act::Answer, payload);
        }
    }
    let calls = board.finding().calls;
    assert_eq!((calls.answers, calls.ranks, calls.reviews, calls.answered), (10, 1, 6, 17));
    let heard: usize = SEATS.iter().chain(&judges).chain(&["rex"]).map(|who| board.asks(who)).sum();
    assert_eq!(heard, 17);
}

#[test]
fn a_reviewer_that_is_not_pinned_or_has_another_part_opens_nothing() {
    let ranked_by_rex = json!({"select": {"after_round": 1, "keep": 2, "ranker": {"kind": "agent", "agent": "rex"}}});
    for (by, change, index) in [
        (json!(["rex", "zoe"]), json!({}), 1),
        (json!(["ann"]), json!({}), 0),
        (json!(["alice"]), json!({}), 0),
        (json!(["rex"]), ranked_by_rex, 0),
    ] {
        let mut board = Board::empty();
        let pinned = ["rex", "ann", "alice"].map(invitation).to_vec();
        let roles = PinnedPanel { ranker: Some(invitation("rex")), reviewers: pinned };
        let mut rules = json!({"review": {"by": by}});
        merge(&mut rules, change);
        let texts = board.call_with(&SEATS[..4], rules, json!({}), json!({}), Some(roles));
        assert_eq!(texts[1], format!("alice<not_understood:no_recipient:/payload/panel/review/by/{index}"), "{by}");
        assert_eq!(board.script.lane_state.open_count(), 0);
    }
}

#[test]
fn a_reviewer_sees_its_own_part_of_the_panel() {
    let mut board = reviewed();
    answer_all(&mut board, 1);
    let view = |who: &str| {
        let viewer = AgentId::try_new(who).unwrap();
        serde_json::to_value(board.script.lane_state.view(&board.script.negotiation, &viewer).unwrap()).unwrap()
    };
    assert_eq!((&view("rex")["role"], &view("rex")["state"]), (&json!("reviewer"), &json!("reviewing")));
    assert_eq!((&view("rex")["panel"]["replied"], &view("alice")["panel"]["replied"]), (&Value::Null, &json!(4)));
    board.say(30, "alice", Act::Cancel, json!({}));
    for (who, role) in [("alice", "initiator"), ("ann", "panelist"), ("rex", "reviewer")] {
        let viewer = AgentId::try_new(who).unwrap();
        let view = board.script.lane_state.view(&board.script.negotiation, &viewer).unwrap();
        let view = serde_json::to_value(view).unwrap();
        assert_eq!((&view["role"], &view["state"]), (&json!(role), &json!("ended")));
    }
}

#[test]
fn the_hard_deadline_has_room_for_every_review() {
    let ends_by = reviewed().ask("ann").ends_by.0;
    assert_eq!(
        ends_by.since_us(schemas::Timestamp::from_ms(crate::script::START_MS)) / 1000,
        3 * ANSWER_MS + 2 * REVIEW_MS
    );
}

/// Four seats, asked all at once, and two reviewers.
pub(crate) fn reviewed() -> Board {
    reviewed_with(json!({}))
}

fn reviewed_with(change: Value) -> Board {
    let mut board = Board::empty();
    let mut rules = rules();
    merge(&mut rules, change);
    board.call_with(&SEATS[..4], rules, json!({}), json!({}), Some(roles()));
    board
}

fn rules() -> Value {
    json!({"review": {"by": REVIEWERS, "review_ms": REVIEW_MS}})
}

/// Pinned in another order than the call's.
fn roles() -> PinnedPanel {
    PinnedPanel { ranker: None, reviewers: vec![invitation("rex"), invitation("roy")] }
}

/// Four seats answer a round with their names.
fn answer_all(board: &mut Board, round: u32) -> Vec<String> {
    let mut last = Vec::new();
    for who in &SEATS[..4] {
        last = board.say(10, who, Act::Answer, json!({"round": round, "answer": who, "text": format!("by {who}")}));
    }
    last
}

/// What happens while the first answers are reviewed.
fn in_review(board: &mut Board, act: impl FnOnce(&mut Board) -> Vec<String>) -> Vec<String> {
    answer_all(board, 1);
    act(board)
}

/// Says of each answer shown what `text` makes of its author, and rates it.
fn review(board: &mut Board, who: &str, text: impl Fn(&str) -> Option<String>, rating: impl Fn(&str) -> u32) {
    let shown = board.shown(who);
    let texts: Vec<Option<String>> = shown.iter().map(|author| text(author)).collect();
    let ratings: Vec<u32> = shown.iter().map(|author| rating(author)).collect();
    let round = board.ask(who).round;
    let effects = board.say(30, who, Act::Answer, json!({"round": round, "reviews": texts, "ratings": ratings}));
    assert_eq!(effects[0], format!("{who}<ack:ok"));
}

fn reviews() -> Value {
    json!({"reviews": [null, null, null, null]})
}

fn with_round(mut payload: Value) -> Value {
    payload["round"] = json!(1);
    payload
}

fn said(board: &mut Board, who: &str, payload: Value) -> Vec<String> {
    board.say(20, who, Act::Answer, with_round(payload))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// More often than strikes are allowed.
fn nine_times(mut act: impl FnMut() -> Vec<String>) -> Vec<String> {
    for _ in 0..8 {
        act();
    }
    act()
}
