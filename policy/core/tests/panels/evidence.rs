//! What panels leave in the ledger (docs/spec/panel.md#evidence).

use policy_core::{LaneState, Limits};
use schemas::evidence::Usage;
use schemas::evidence::{EvidenceCounts, EvidenceRole};
use schemas::record::EngineEvent;
use schemas::{Act, Lane};
use serde_json::json;

use crate::board::{ANSWER_MS, Board};
use crate::course::worked;

#[test]
fn a_panel_shows_what_each_seat_was_asked_answered_and_contributed() {
    let board = worked();
    let shown: Vec<_> = board.script.lane_state.evidence().entries().collect();
    let names: Vec<&str> = shown.iter().map(|(subject, _)| subject.agent.as_str()).collect();
    assert_eq!(names, ["ann", "bob", "cyd", "dan"]);
    for (subject, counts) in &shown {
        assert_eq!((subject.domain.as_str(), subject.initiator.as_str()), ("general", "alice"));
        assert_eq!((subject.role, counts.runs), (EvidenceRole::Panelist, 1));
        assert_eq!((counts.asked, counts.layers, counts.fair_e12), (2, 2, 500_000_000_000));
    }
    let of = |counts: &EvidenceCounts| (counts.replied, counts.agreed, counts.total_e12);
    assert_eq!(of(shown[0].1), (2, 1, 696_969_696_970));
    assert_eq!(of(shown[3].1), (1, 0, 95_643_939_394), "dan answered once, and not with the result");
    assert_eq!(shown.iter().map(|(_, counts)| counts.total_e12).sum::<u64>(), 2_000_000_000_000);
}

#[test]
fn only_panels_with_ratings_three_seats_and_a_result_are_evidence() {
    let agreed = |seats: usize, rules: serde_json::Value| {
        let mut board = Board::of(seats, rules);
        for (_, who) in (0..seats).zip(crate::board::SEATS) {
            board.answer(10, who, 1, "a");
        }
        assert_eq!(board.finding().round, 1);
        board.script.lane_state.evidence().len()
    };
    assert_eq!(agreed(3, json!({})), 3);
    assert_eq!(agreed(2, json!({})), 0, "of two each is the other's only rater");
    assert_eq!(agreed(3, json!({"rate": false})), 0);
    assert_eq!(agreed(3, json!({"evidence": false})), 0);

    let mut silent = Board::of(3, json!({}));
    silent.script.tick(60_000);
    let mut cancelled = Board::of(3, json!({}));
    cancelled.answer(10, "ann", 1, "a");
    cancelled.say(11, "alice", Act::Cancel, json!({}));
    let mut aborted = Board::of(3, json!({}));
    let negotiation = aborted.script.negotiation.clone();
    aborted.script.engine(10, 0, EngineEvent::Abort { negotiation, code: "internal".to_owned() });
    for board in [silent, cancelled, aborted] {
        assert_eq!(board.script.lane_state.open_count(), 0);
        assert!(board.script.lane_state.evidence().is_empty());
    }
}

#[test]
fn what_answers_cost_is_kept_for_each_seat() {
    let mut board = Board::of(3, json!({"domain": "algebra"}));
    for (who, calls) in [("ann", 3), ("bob", 4)] {
        let usage = json!({"calls": calls, "prompt_tokens": 10 * calls});
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": who, "usage": usage}));
    }
    board.say(11, "cyd", Act::Answer, json!({"round": 1, "answer": "ann"}));
    for who in ["ann", "bob", "cyd"] {
        board.say(20, who, Act::Answer, json!({"round": 2, "answer": "ann", "usage": {"completion_tokens": 5}}));
    }
    let shown: Vec<Usage> = board.script.lane_state.evidence().entries().map(|(_, counts)| counts.usage).collect();
    let usage = |calls, prompt_tokens| Usage { calls, prompt_tokens, completion_tokens: 5 };
    assert_eq!(shown, [usage(3, 30), usage(4, 40), usage(0, 0)]);
    let domains = board.script.lane_state.evidence().entries().map(|(subject, _)| subject.domain.to_string());
    assert!(domains.eq(["algebra"; 3]));
}

#[test]
fn a_panel_counts_once_whatever_comes_after_it_and_from_whichever_snapshot() {
    let mut board = worked();
    let counted = board.script.lane_state.evidence().published(0);
    assert_eq!(counted.entries.len(), 4);
    board.say(5_000, "dan", Act::Answer, json!({"round": 2, "answer": "B"}));
    let negotiation = board.script.negotiation.clone();
    board.script.engine(5_001, 0, EngineEvent::Claim { engine: "engine-2".to_owned() });
    board.script.engine(5_002, 9, EngineEvent::Claim { engine: "engine-3".to_owned() });
    board.script.engine(5_003, 9, EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() });
    // Long enough for the panel itself to be forgotten.
    board.script.tick(ANSWER_MS * 1000);
    board.script.tick(ANSWER_MS * 1000 + 1);
    assert_eq!(board.script.lane_state.tombstone_count(), 0);
    assert_eq!(board.script.lane_state.evidence().published(0), counted);

    let log = board.script.log();
    for cut in 0..=log.len() {
        let mut steady = LaneState::new(Lane(0), Limits::default());
        log[..cut].iter().for_each(|(seq, time, record)| steady.handle_record(*seq, *time, record));
        while steady.poll_effect().is_some() {}
        let restored = LaneState::restore(&steady.snapshot(), Lane(0), Limits::default());
        let mut restored = restored.expect("a snapshot");
        // Every record once more: those before the snapshot are known already.
        log.iter().for_each(|(seq, time, record)| restored.handle_record(*seq, *time, record));
        assert_eq!(restored.evidence().published(0), counted, "after {cut} records");
        while restored.poll_effect().is_some() {}
        assert_eq!(restored.state_digest_full(), board.script.lane_state.state_digest_full());
    }
}

/// What stands before the evidence of a snapshot is a snapshot of a lane without any.
#[test]
fn evidence_that_contradicts_itself_is_not_restored() {
    let whole = worked().script.lane_state.snapshot();
    let end = whole.len() - 32;
    // The number of additions stands last: four.
    assert_eq!(whole[end - 1], 4);
    let mut fewer = whole.clone();
    fewer[end - 1] = 3;
    let checksum = schemas::Digest::of_bytes(&fewer[..end]);
    fewer[end..].copy_from_slice(&checksum.0);
    let refusal = LaneState::restore(&fewer, Lane(0), Limits::default()).expect_err("contradicts itself").to_string();
    assert!(refusal.contains("evidence was added"), "{refusal}");
}
