//! Rounds, waves and ends (docs/spec/panel.md#rounds).

use schemas::delivery::{Outcome, Stopped};
use schemas::{Act, Digest};
use serde_json::json;

use crate::board::{ANSWER_MS, Board, SEATS};

#[test]
fn the_worked_example_comes_out_exactly() {
    let board = worked();
    let finding = board.finding();
    assert_eq!((finding.outcome, finding.stopped, &*finding.answer), (Outcome::Consensus, Stopped::Answers, "B"));
    assert_eq!((finding.agreed, finding.of, finding.round), (3, 4, 2));
    let shares: Vec<u64> = finding.panelists.iter().map(|one| one.importance_e12[0]).collect();
    assert_eq!(shares, [363_636_363_636, 187_500_000_000, 353_219_696_970, 95_643_939_394]);
    assert_eq!(finding.panelists[0].total_e12, 696_969_696_970);
    assert_eq!(finding.panelists.iter().map(|one| one.relative_ppm).sum::<u64>(), 3_999_998);
    assert_eq!(finding.panelists[0].relative_ppm, 1_393_939);
    assert_eq!((finding.calls.answers, finding.calls.answered), (8, 7));
    assert_eq!(finding.decision, board.decision().digest());
    assert_eq!(finding.decision, Digest::of(&*board.decision()).unwrap(), "the record is canonical");
}

/// The example of docs/panels.md. All are asked at once; dan is silent in the second round.
pub(crate) fn worked() -> Board {
    let mut board = Board::of(4, json!({"asking": "all", "consensus_from": 1}));
    for (who, answer) in [("ann", "B"), ("bob", "C"), ("cyd", "B")] {
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": answer, "text": format!("by {who}")}));
    }
    board.say(11, "dan", Act::Answer, json!({"round": 1, "answer": "A", "text": "by dan"}));
    // The three that the example asks first are waited for; dan is silent.
    board.rate(20, "ann", 2, "B", &[("bob", 2), ("cyd", 5), ("dan", 1)]);
    board.rate(21, "bob", 2, "B", &[("ann", 5), ("cyd", 5), ("dan", 1)]);
    board.rate(22, "cyd", 2, "B", &[("ann", 4), ("bob", 1), ("dan", 1)]);
    board.script.tick(11 + ANSWER_MS + 1);
    board
}

#[test]
fn unanimous_panels_ask_a_quorum_and_those_that_never_agree_ask_everybody() {
    for (seats, unanimous, never) in [(3, 3, 9), (4, 3, 12), (7, 5, 21), (12, 9, 36)] {
        for (asks, agree) in [(unanimous, true), (never, false)] {
            let mut board = Board::of(seats, json!({"asking": "quorum_first"}));
            play(&mut board, |who| if agree { "a".to_owned() } else { who.to_owned() });
            let finding = board.finding();
            assert_eq!((finding.calls.answers, finding.calls.answered), (asks, asks), "{seats} {agree}");
            assert_eq!(SEATS.iter().map(|who| board.asks(who)).sum::<usize>(), asks as usize);
            let outcome = if agree { Outcome::Consensus } else { Outcome::Plurality };
            assert_eq!(finding.outcome, outcome);
            let told = board.script.deliveries.iter().filter(|one| one.told.act() == Act::Closed).count();
            let asked = SEATS.iter().filter(|who| board.asks(who) > 0).count();
            assert_eq!(told, 1 + asked, "the initiator, and whoever was asked");
        }
    }
}

#[test]
fn a_wave_asks_as_many_as_a_consensus_lacks_and_is_judged_when_it_is_complete() {
    let mut board = Board::of(7, json!({"asking": "quorum_first"}));
    let (_, first) = board.wave();
    assert_eq!(first.len(), 5);
    for (number, who) in first.iter().enumerate() {
        board.answer(10 + number as u64, who, 1, if number < 4 { "a" } else { "b" });
    }
    let (round, second) = board.wave();
    assert_eq!((round, second.len()), (1, 1), "one more may make five of seven");
    assert!(!first.contains(&second[0]));
    board.answer(20, &second[0], 1, "a");
    assert_eq!((board.finding().agreed, board.finding().of), (5, 7));
}

#[test]
fn in_what_order_the_answers_of_a_wave_come_changes_nothing() {
    let decision = |order: [usize; 4]| {
        let mut board = Board::of(4, json!({"rounds": 1}));
        for seat in order {
            let answer = ["a", "b", "c", "c"][seat];
            board.script.say_with(10, SEATS[seat], Act::Answer, json!({"round": 1, "answer": answer}), json!({}));
        }
        let finding = board.finding();
        (finding.answer, finding.agreed, finding.panelists)
    };
    let first = decision([0, 1, 2, 3]);
    assert_eq!((&*first.0, first.1), ("c", 2));
    for order in [[3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        assert_eq!(decision(order), first);
    }
}

#[test]
fn those_silent_at_the_deadline_have_no_answer_and_are_asked_again() {
    let mut board = Board::of(4, json!({}));
    for who in ["ann", "bob"] {
        board.answer(10, who, 1, "a");
    }
    assert_eq!(board.script.tick(ANSWER_MS), [""; 0], "at the deadline a message would still be on time");
    assert_eq!(board.answer(ANSWER_MS, "cyd", 1, "b"), ["cyd<ack:ok"]);
    board.script.tick(ANSWER_MS + 1);
    let (round, asked) = board.wave();
    assert_eq!((round, asked.len()), (2, 4));
    assert_eq!(board.ask("dan").own, None);
    assert_eq!(board.ask("dan").peers.map(|peers| peers.len()), Some(3));
    assert_eq!(board.answer(ANSWER_MS + 2, "dan", 1, "a"), ["dan<ack:stale_round"]);
}

#[test]
fn an_answer_after_its_wave_is_late_while_the_round_goes_on() {
    let mut board = Board::of(4, json!({"asking": "quorum_first"}));
    let (_, first) = board.wave();
    board.answer(10, &first[0], 1, "a");
    board.answer(11, &first[1], 1, "b");
    board.script.tick(ANSWER_MS + 1);
    let (round, second) = board.wave();
    assert_eq!((round, second.len()), (1, 1));
    assert_eq!(board.answer(ANSWER_MS + 2, &first[2], 1, "a"), [format!("{}<ack:late", first[2])]);
    assert_eq!(board.answer(ANSWER_MS + 3, &second[0], 1, "c")[0], format!("{}<ack:ok", second[0]));
    assert_eq!(board.wave().0, 2);
}

#[test]
fn an_ask_that_cannot_be_delivered_is_waited_for_no_longer() {
    let mut board = Board::of(4, json!({}));
    for who in ["ann", "bob", "cyd"] {
        board.answer(10, who, 1, who);
    }
    let lost = board.script.last("dan", Act::Ask).id;
    let texts = board.script.undelivered(20, lost, "dan");
    assert_eq!(texts.len(), 4, "the second round begins: {texts:?}");
    assert_eq!(board.wave().0, 2);
    assert!(board.script.undelivered(21, lost, "dan").is_empty(), "that was the ask of another round");
}

#[test]
fn rounds_that_are_over_leave_the_answer_most_gave() {
    let mut board = Board::of(4, json!({"rounds": 2}));
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "c"), ("dan", "d")] {
        board.answer(10, who, 1, answer);
    }
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b")] {
        board.answer(20, who, 2, answer);
    }
    let texts = board.answer(30, "dan", 2, "d");
    assert_eq!(
        texts,
        [
            "dan<ack:ok",
            "award.0.1=finding",
            "alice<inform:finding:rounds:b:2/4@award.0.1",
            "closed=plurality@award.0.1",
            "alice<closed:plurality:rounds@closed",
            "ann<closed:plurality:rounds@closed",
            "bob<closed:plurality:rounds@closed",
            "cyd<closed:plurality:rounds@closed",
            "dan<closed:plurality:rounds@closed",
        ]
    );
    assert_eq!((board.finding().round, board.finding().stopped), (2, Stopped::Rounds));
}

#[test]
fn a_round_without_a_reply_ends_the_panel_and_the_last_answers_decide() {
    let mut board = Board::of(3, json!({}));
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b")] {
        board.answer(10, who, 1, answer);
    }
    assert_eq!(board.wave().0, 2);
    board.script.tick(10 + ANSWER_MS + 1);
    let finding = board.finding();
    assert_eq!((finding.outcome, finding.stopped, finding.round), (Outcome::Plurality, Stopped::Silence, 1));
    assert_eq!((&*finding.answer, finding.agreed, finding.of), ("b", 2, 3));
}

#[test]
fn a_round_without_an_opinion_does_not_decide() {
    let mut board = Board::of(3, json!({"rounds": 2}));
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b")] {
        board.answer(10, who, 1, answer);
    }
    for who in ["ann", "bob", "cyd"] {
        board.say(20, who, Act::Answer, json!({"round": 2, "answer": null}));
    }
    let finding = board.finding();
    assert_eq!((finding.round, finding.stopped, &*finding.answer), (1, Stopped::Rounds, "b"));
    assert_eq!(finding.panelists.iter().map(|one| one.importance_e12.len()).max(), Some(1));
}

#[test]
fn nobody_who_agrees_with_nothing_makes_a_consensus() {
    let mut board = Board::of(3, json!({"rounds": 1}));
    for who in ["ann", "bob"] {
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": null}));
    }
    let texts = board.say(20, "cyd", Act::Answer, json!({"round": 1, "answer": null}));
    assert_eq!(texts[1..3], ["closed=no_answer", "alice<closed:no_answer:rounds@closed"]);
}

#[test]
fn a_panel_nobody_answers_has_no_answer() {
    let mut board = Board::of(3, json!({}));
    let texts = board.script.tick(ANSWER_MS + 1);
    assert_eq!(texts[..2], ["closed=no_answer", "alice<closed:no_answer:silence@closed"]);
    board.script.assert_sound();
}

#[test]
fn the_hard_deadline_completes_the_running_wave() {
    let within = |ms: u64| {
        let mut board = Board::empty();
        board.call_with(&SEATS[..3], json!({}), json!({"reply_within_ms": ms}), json!({}), None);
        board
    };
    let mut agreed = within(500);
    for who in ["ann", "bob", "cyd"] {
        assert_eq!(agreed.ask(who).answer_by, agreed.ask(who).ends_by, "no ask goes beyond the end");
    }
    agreed.answer(10, "ann", 1, "a");
    agreed.answer(10, "bob", 1, "b");
    agreed.script.tick(501);
    let finding = agreed.finding();
    assert_eq!((finding.outcome, finding.stopped, finding.of), (Outcome::Plurality, Stopped::Timeout, 3));
    let mut decided = within(500);
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b")] {
        decided.answer(10, who, 1, answer);
    }
    decided.answer(20, "ann", 2, "c");
    decided.script.tick(501);
    let finding = decided.finding();
    assert_eq!((finding.round, finding.stopped, &*finding.answer), (1, Stopped::Timeout, "b"), "the last closed round");
}

#[test]
fn consensus_does_not_end_a_round_before_the_first_that_may() {
    let mut board = Board::of(3, json!({"consensus_from": 2}));
    for who in ["ann", "bob", "cyd"] {
        board.answer(10, who, 1, "a");
    }
    assert_eq!(board.wave().0, 2);
    for who in ["ann", "bob", "cyd"] {
        board.answer(20, who, 2, "a");
    }
    assert_eq!((board.finding().outcome, board.finding().round), (Outcome::Consensus, 2));
    let mut never = Board::of(3, json!({"consensus_from": 0, "rounds": 1}));
    for who in ["ann", "bob", "cyd"] {
        never.answer(10, who, 1, "a");
    }
    assert_eq!((never.finding().outcome, never.finding().agreed), (Outcome::Plurality, 3));
}

#[test]
fn who_leaves_keeps_its_answer_and_lowers_no_quorum() {
    let mut board = Board::of(4, json!({}));
    board.answer(10, "ann", 1, "a");
    assert_eq!(board.say(11, "ann", Act::Refuse, json!({})), ["ann<ack:ok"]);
    board.say(12, "dan", Act::NotUnderstood, json!({}));
    board.answer(13, "bob", 1, "a");
    board.answer(14, "cyd", 1, "a");
    assert_eq!((board.finding().agreed, board.finding().of), (3, 4));
    let mut short = Board::of(4, json!({"rounds": 1}));
    for who in ["cyd", "dan"] {
        short.say(10, who, Act::Refuse, json!({}));
    }
    short.answer(11, "ann", 1, "a");
    short.answer(12, "bob", 1, "a");
    assert_eq!((short.finding().outcome, short.finding().of), (Outcome::Plurality, 4), "two of four do not agree");
    let mut nobody = Board::of(2, json!({}));
    nobody.say(10, "ann", Act::Refuse, json!({}));
    let texts = nobody.say(11, "bob", Act::Refuse, json!({}));
    assert_eq!(texts[1], "closed=no_answer");
}

#[test]
fn the_answer_of_who_strikes_out_falls() {
    let mut board = Board::of(4, json!({"rounds": 1, "max_strikes": 2}));
    board.answer(10, "ann", 1, "a");
    for at_ms in [11, 12] {
        let texts = board.answer(at_ms, "ann", 1, "a");
        assert_eq!(texts, ["ann<ack:out_of_turn", "ann<not_understood:out_of_turn"]);
    }
    for who in ["bob", "cyd", "dan"] {
        board.answer(20, who, 1, if who == "dan" { "b" } else { "a" });
    }
    let finding = board.finding();
    assert_eq!((finding.outcome, finding.agreed, finding.of), (Outcome::Plurality, 2, 4));
    assert_eq!((finding.panelists[0].answer.as_deref(), finding.panelists[0].total_e12), (None, 0));
}

#[test]
fn usage_is_added_up_and_decides_nothing() {
    let mut board = Board::of(3, json!({"rounds": 1}));
    let largest = schemas::payload::INTEGER_MAX;
    for (who, usage) in [("ann", json!({"calls": 1, "prompt_tokens": 7})), ("bob", json!({"prompt_tokens": largest}))] {
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": "a", "usage": usage}));
    }
    board.answer(11, "cyd", 1, "a");
    let usage = board.finding().usage;
    assert_eq!((usage.usage.calls, usage.usage.prompt_tokens, usage.reported_by), (1, largest.unsigned_abs(), 2));
}

#[test]
fn an_abort_ends_without_a_finding() {
    let mut board = Board::of(3, json!({}));
    let negotiation = board.script.negotiation.clone();
    let code = "register_conflict".to_owned();
    let texts = board.script.engine(10, 0, schemas::record::EngineEvent::Abort { negotiation, code });
    assert_eq!(texts[..2], ["closed=aborted", "alice<closed:aborted:register_conflict"]);
}

/// Everybody asked answers, wave by wave, until the panel has ended.
fn play(board: &mut Board, answer: impl Fn(&str) -> String) {
    let mut at_ms = 10;
    while board.script.lane_state.open_count() > 0 {
        let (round, wave) = board.wave();
        for who in wave {
            at_ms += 1;
            board.answer(at_ms, &who, round, &answer(&who));
        }
    }
}
