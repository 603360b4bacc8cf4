//! Seats chosen by evidence (docs/spec/panel.md#choice).

use policy_core::panel::decision::{CandidateRecord, ChoiceRecord};
use schemas::delivery::Finding;
use schemas::panel::{CANDIDATES_MAX, SEATS_MAX, SeatChoice};
use schemas::record::PinnedPanel;
use schemas::{Act, Digest};
use serde_json::{Value, json};

use crate::board::{Board, invitation};
use crate::script::agent;

/// Two are better than the average, two worse, and two have shown too little.
const CANDIDATES: [(&str, Option<u64>); 6] = [
    ("ann", Some(700_000)),
    ("bob", None),
    ("cyd", Some(1_300_000)),
    ("dan", Some(900_000)),
    ("eve", Some(1_200_000)),
    ("fay", None),
];

#[test]
fn the_best_by_evidence_and_newcomers_get_the_seats_and_nobody_else_hears_of_it() {
    let (mut board, texts) = choosing(&CANDIDATES, json!({"choose": {"keep": 2}, "min_seats": 3}));
    let (_, mut seats) = board.wave();
    seats.sort();
    assert_eq!((texts.len(), seats.len()), (4, 3), "{texts:?}");
    assert!(["cyd", "eve"].iter().all(|best| seats.iter().any(|seat| seat == best)), "{seats:?}");
    let newcomers = seats.iter().filter(|seat| ["bob", "fay"].contains(&seat.as_str())).count();
    assert_eq!(newcomers, 1);
    let receipt = board.script.deliveries[0].receipts_told().next().cloned().unwrap();
    let told = (receipt.invited, receipt.left_out, receipt.seats);
    assert_eq!(told, (Some(3), Some(3), Some(SeatChoice::Chosen)));

    assert_eq!(board.say(5, "ann", Act::Refuse, json!({})), ["ann<ack:unauthorized"]);
    for seat in &seats {
        board.answer(10, seat, 1, "B");
    }
    assert_eq!(board.finding().panelists.len(), 3);
    let outsiders = ["dan", "bob", "fay"].into_iter().filter(|name| !seats.iter().any(|seat| seat == name));
    for outsider in outsiders {
        assert!(board.script.deliveries.iter().all(|deliver| deliver.to.as_str() != outsider), "{outsider}");
    }
}

#[test]
fn where_too_few_have_a_reputation_everybody_is_asked_on_trial() {
    let (board, texts) = choosing(&CANDIDATES, json!({"choose": {"keep": 5, "newcomers": 0}}));
    assert_eq!(texts.len(), 1 + CANDIDATES.len());
    let receipt = board.script.deliveries[0].receipts_told().next().cloned().unwrap();
    assert_eq!((receipt.invited, receipt.left_out, receipt.seats), (Some(6), Some(0), Some(SeatChoice::Trial)));
    let (board, _) = choosing(&CANDIDATES, json!({"choose": {"keep": 4, "newcomers": 0}}));
    let (_, mut seats) = board.wave();
    seats.sort();
    assert_eq!(seats, ["ann", "cyd", "dan", "eve"], "as many as are kept have one");
    // Without `choose` what is pinned beside the invited decides nothing.
    let (board, texts) = choosing(&CANDIDATES, json!({}));
    assert_eq!((texts.len(), board.script.deliveries[0].receipts_told().next().unwrap().seats), (7, None));
}

#[test]
fn the_decision_record_holds_among_whom_was_chosen_and_another_reputation_is_another_record() {
    let decided = |candidates: &[(&str, Option<u64>)]| -> (Option<ChoiceRecord>, Digest, Finding) {
        let (mut board, _) = choosing(candidates, json!({"choose": {"keep": 2, "newcomers": 0}}));
        for seat in ["cyd", "eve"] {
            board.answer(10, seat, 1, "B");
        }
        let decision = board.decision();
        assert_eq!(decision.digest(), board.finding().decision);
        (decision.choice.clone(), decision.digest(), board.finding())
    };
    let (choice, digest, finding) = decided(&CANDIDATES);
    let candidate = |(name, reputation): (&str, _)| CandidateRecord { agent: agent(name), reputation };
    let candidates: Vec<CandidateRecord> = CANDIDATES.into_iter().map(candidate).collect();
    assert_eq!(choice, Some(ChoiceRecord { candidates, seats: SeatChoice::Chosen }));
    let mut other = CANDIDATES;
    other[0].1 = Some(700_001);
    let (_, changed, same) = decided(&other);
    assert_ne!(changed, digest);
    assert_eq!(Finding { decision: digest, ..same }, finding, "the seats are the same, and what they came to");

    let mut plain = Board::of(1, json!({}));
    plain.answer(10, "ann", 1, "B");
    assert_eq!(plain.decision().choice, None);
}

#[test]
fn calls_that_choose_among_too_many_or_seat_too_few_open_nothing() {
    let names: Vec<String> = (0..=CANDIDATES_MAX).map(|number| format!("seat-{number:03}")).collect();
    let known = |count: usize| -> Vec<(&str, Option<u64>)> {
        names.iter().take(count).map(|name| (name.as_str(), Some(1_000_000))).collect()
    };
    let new =
        |count: usize| -> Vec<(&str, Option<u64>)> { known(count).into_iter().map(|(name, _)| (name, None)).collect() };
    let ranked = json!({"after_round": 1, "keep": 2, "ranker": {"kind": "agent", "agent": "seat-001"}});
    let keep = |keep: u32, newcomers: u32| json!({"keep": keep, "newcomers": newcomers});
    for (candidates, rules, reason) in [
        (known(CANDIDATES_MAX), json!({"choose": keep(4, 0)}), None),
        (known(CANDIDATES_MAX + 1), json!({"choose": keep(4, 0)}), Some("too_many_parties")),
        (new(SEATS_MAX), json!({"choose": keep(4, 0)}), None),
        (new(SEATS_MAX + 1), json!({"choose": keep(4, 0)}), Some("too_many_parties")),
        (known(17), json!({"choose": keep(16, 0), "answer": {"kind": "bleu"}}), None),
        (known(17), json!({"choose": keep(17, 0), "answer": {"kind": "bleu"}}), Some("too_many_parties")),
        (known(9), json!({"choose": keep(4, 1), "min_seats": 5}), Some("no_recipient")),
        (known(9), json!({"choose": keep(33, 1)}), Some("invalid_panel:/payload/panel/choose/keep")),
        // Who could have been given a seat does not rank, whether it gets one or not.
        (
            known(9),
            json!({"choose": keep(1, 0), "select": ranked}),
            Some("no_recipient:/payload/panel/select/ranker/agent"),
        ),
        (
            known(9),
            json!({"choose": keep(1, 0), "review": {"by": ["seat-002"]}}),
            Some("no_recipient:/payload/panel/review/by/0"),
        ),
    ] {
        let (board, texts) = choosing(&candidates, rules.clone());
        let opened = usize::from(reason.is_none());
        assert_eq!(board.script.lane_state.open_count(), opened, "{rules}");
        if let Some(reason) = reason {
            assert_eq!(texts, ["alice<ack:malformed".to_owned(), format!("alice<not_understood:{reason}")], "{rules}");
        }
    }
}

#[test]
fn the_view_of_the_initiator_says_whether_seats_were_chosen() {
    let (board, _) = choosing(&CANDIDATES, json!({"choose": {"keep": 2, "newcomers": 0}}));
    let view = |who: &str| {
        let view = board.script.lane_state.view(&board.script.negotiation, &agent(who)).expect("it takes part");
        serde_json::to_value(view).unwrap()["panel"].take()
    };
    assert_eq!(view("alice")["seats"], "chosen");
    assert_eq!(view("cyd").get("seats"), None);
}

/// A call of these rules, as gateways pin it, and what it leads to.
pub(crate) fn choosing(candidates: &[(&str, Option<u64>)], rules: Value) -> (Board, Vec<String>) {
    let mut board = Board::empty();
    let roles = PinnedPanel { ranker: Some(invitation("seat-001")), reviewers: vec![invitation("seat-002")] };
    let (message, pinned) = board.called(candidates, rules, json!({}), json!({}), Some(roles));
    let texts = board.fold_call(message, pinned);
    (board, texts)
}

/// A panel whose seats were chosen, and one on trial, to their ends.
pub(crate) fn chosen_and_on_trial() -> [Board; 2] {
    [2, 6].map(|keep| {
        let (mut board, _) = choosing(&CANDIDATES, json!({"choose": {"keep": keep}}));
        let (_, seats) = board.wave();
        for (number, seat) in seats.iter().enumerate() {
            board.answer(10, seat, 1, ["B", "C"][number % 2]);
        }
        let (round, seats) = board.wave();
        for seat in &seats {
            let ratings = vec![4; board.ask(seat).peers.map_or(0, |peers| peers.len())];
            board.say(20, seat, Act::Answer, json!({"round": round, "answer": "B", "ratings": ratings}));
        }
        board.script.tick(60_000);
        board
    })
}
