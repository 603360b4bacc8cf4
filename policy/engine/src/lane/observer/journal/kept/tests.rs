//! What is remembered, what is not, and how much it takes.

use std::sync::Arc;

use policy_core::{Event, Phase, Protocol};
use schemas::bargain::{BargainSpec, Issue, IssueValues};
use schemas::delivery::{
    Agreement, BargainCall, Call, Closing, ContractorReport, Disposition, Notification, Outcome, PanelCalls,
    ProgressReport, Standing, Turn, UsageTotal,
};
use schemas::document::{DocumentHash, RoutineKind, RoutineReport};
use schemas::english_auction::StandingBid;
use schemas::ids::AttrName;
use schemas::journal::{Gap, HAPPENED_MAX, Happened};
use schemas::payload::AttrValue;
use schemas::statistics::NAMED_MAX;
use schemas::team::{Conclusion, Spoken};
use schemas::{Act, AgentId, AwardNo, Digest, Lot, NegotiationId, OfferId, Position, Timestamp, WireTime};
use serde_json::json;

use super::{BETWEEN_MAX, BIDS_BETWEEN_MAX, ENDED_MAX, FIRST_MAX, Fact, Journals, LAST_MAX, OPEN_MAX, WEIGHT_MAX};
use crate::lane::outbox::fixture::id as delivery;
use crate::lane::{DeliveryEvent, DeliveryStep};

#[test]
fn a_long_journal_keeps_the_first_and_the_last_entries_and_says_what_it_left_out_between() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    for number in 0..2_000 {
        memory.note(&negotiation(1), Timestamp(number), sent(u128::from(number)));
        if number == 1_000 {
            memory.note(&negotiation(1), Timestamp(number), moved());
        }
    }
    ended(&mut memory, 1);
    let journal = memory.journal("engine-1", &negotiation(1)).unwrap();
    assert_eq!(journal.entries.len(), FIRST_MAX + 1 + LAST_MAX, "what matters most of the middle is kept");
    assert_eq!(journal.left_out, 2_003 - journal.entries.len() as u64);
    assert_eq!(journal.gap, Some(Gap { from: FIRST_MAX as u64, to: FIRST_MAX as u64 + 1 }));
    assert!(matches!(journal.entries[0].what, Happened::Called { .. }));
    assert_eq!(journal.entries[FIRST_MAX - 1].at, Timestamp(FIRST_MAX as u64 - 2), "nothing is missing before the gap");
    assert!(matches!(journal.entries[FIRST_MAX].what, Happened::Moved { .. }));
    assert_eq!(journal.entries[FIRST_MAX + 1].at, Timestamp(2_001 - LAST_MAX as u64), "nor behind it");
    assert!(matches!(journal.entries.last().unwrap().what, Happened::Ended { .. }));
}

#[test]
fn a_long_bargain_that_was_acknowledged_wholly_has_nothing_unacknowledged() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    let mut delivery = 0;
    let mut send = |memory: &mut Journals, at| {
        delivery += 1;
        memory.note(&negotiation(1), Timestamp(at), sent(delivery));
        delivery
    };
    // The last delivery of each turn is acknowledged a turn later.
    let mut before = send(&mut memory, 0);
    for turn in 1..=170 {
        note(&mut memory, disposed(1, Disposition::Ok));
        let (one, other) = (send(&mut memory, turn), send(&mut memory, turn));
        for delivery in [before, one] {
            memory.note(&negotiation(1), Timestamp(turn), acknowledged(delivery));
        }
        before = other;
    }
    let journal = |memory: &Journals| memory.journal("engine-1", &negotiation(1)).unwrap();
    assert_eq!(journal(&memory).unacknowledged, 1);
    memory.note(&negotiation(1), Timestamp(171), acknowledged(before));
    ended(&mut memory, 1);
    let journal = journal(&memory);
    assert!(journal.left_out > 0, "it is a long one");
    assert_eq!(journal.unacknowledged, 0);
    let answer = |entry: &schemas::journal::JournalEntry| {
        if let Happened::Acknowledged { delivery, .. } = &entry.what { Some(*delivery) } else { None }
    };
    let answered: Vec<_> = journal.entries.iter().filter_map(answer).collect();
    let waits = |entry: &&schemas::journal::JournalEntry| matches!(&entry.what, Happened::Sent { delivery, settled: false, .. } if !answered.contains(delivery));
    assert_eq!(journal.entries.iter().filter(waits).count(), 0, "nor does any entry look so");
}

#[test]
fn what_is_sent_once_or_was_never_sent_is_not_waited_for() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    let once = of_delivery(1, Act::Cfp, 1, DeliveryStep::SentOnce);
    let reason = crate::metrics::DeadLetterReason::RegisterConflict;
    let unsent = of_delivery(2, Act::Accept, 0, DeliveryStep::GivenUp(reason));
    for fact in [once, unsent, sent(3)] {
        memory.note(&negotiation(1), Timestamp(1), fact);
    }
    assert_eq!(memory.journal("engine-1", &negotiation(1)).unwrap().unacknowledged, 1, "the third");
}

#[test]
fn the_newest_open_ones_and_the_newest_ended_ones_are_remembered() {
    let mut memory = Journals::default();
    for number in 0..2 * OPEN_MAX + ENDED_MAX {
        started(&mut memory, number);
        if number < OPEN_MAX + ENDED_MAX {
            ended(&mut memory, number);
        }
    }
    let is_known = |number| memory.journal("engine-1", &negotiation(number)).is_some();
    assert!((0..OPEN_MAX).all(|number| !is_known(number)), "the first that ended are forgotten");
    assert!((OPEN_MAX..2 * OPEN_MAX + ENDED_MAX).all(is_known));
    assert_eq!((memory.open.len(), memory.ended.len()), (OPEN_MAX, ENDED_MAX));
    let newest = memory.newest();
    assert_eq!(newest.len(), NAMED_MAX);
    assert_eq!(newest[0].negotiation, negotiation(2 * OPEN_MAX + ENDED_MAX - 1));
}

#[test]
fn the_memory_of_a_lane_is_bounded_whatever_happens() {
    assert!(size_of::<(Timestamp, Fact)>() <= 64, "{}", size_of::<(Timestamp, Fact)>());
    let mut memory = Journals::default();
    for number in 0..1_000 {
        started(&mut memory, number);
        for event in 0..600 {
            memory.note(&negotiation(number), Timestamp(event), sent(u128::from(event)));
            memory.note(&negotiation(number), Timestamp(event), moved());
        }
        if number % 3 == 0 {
            ended(&mut memory, number);
        }
        assert!(memory.weight <= WEIGHT_MAX);
        assert_eq!(memory.remembered.len(), memory.open.len() + memory.ended.len());
        let held: usize = memory.remembered.values().map(|one| one.facts.weight).sum();
        assert_eq!(held, memory.weight);
    }
    let facts: usize = memory.remembered.values().map(|one| one.facts.capacity()).sum();
    let bytes = facts * size_of::<(Timestamp, Fact)>();
    assert!(bytes <= 5 * 1024 * 1024, "{bytes} bytes");
    assert!(memory.remembered.values().all(|one| one.facts.len() <= HAPPENED_MAX));
}

#[test]
fn the_offers_of_a_bargain_are_in_its_journal_once_each_however_many_are_told_them() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    for (told, offer) in [1, 1, 1, 2, 2, 3].into_iter().enumerate() {
        memory.note_delivery(&turn(told as u128, Some(offer)), Timestamp(told as u64));
    }
    memory.note_delivery(&turn(9, None), Timestamp(9));
    let journal = memory.journal("engine-1", &negotiation(1)).unwrap();
    let proposed: Vec<(u32, Option<&AttrValue>)> = journal
        .entries
        .iter()
        .filter_map(|entry| {
            let Happened::Proposed { step, terms, .. } = &entry.what else { return None };
            Some((*step, terms.values().next()))
        })
        .collect();
    let price = |price| AttrValue::Int(price);
    assert_eq!(proposed, [(1, Some(&price(10))), (2, Some(&price(20))), (3, Some(&price(30)))]);
    assert_eq!(memory.weight, memory.remembered[&negotiation(1)].facts.weight);
}

#[test]
fn the_bids_of_an_auction_are_in_its_journal_once_each_with_their_prices_and_whose_they_are() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    // Bob leads with bids 1 and 3, and is told of bid 2 as well; bid 1 is told again by way of a repeat.
    for (told, (bid_no, leads)) in [(1, true), (1, true), (2, false), (3, true), (1, true)].into_iter().enumerate() {
        memory.note_delivery(&standing_bid(told as u128, bid_no, leads), Timestamp(told as u64));
    }
    let told = [("bob".to_owned(), 1, 41_000_000), ("bob".to_owned(), 3, 43_000_000)];
    assert_eq!(bids(&memory), told);
    assert_eq!(memory.weight, memory.remembered[&negotiation(1)].facts.weight);
}

#[test]
fn a_long_auction_keeps_bids_from_all_of_its_way_and_room_for_its_end() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    for bid_no in 1..=500 {
        for number in 0..10 {
            memory.note(&negotiation(1), Timestamp(1), sent(u128::from(10 * bid_no + number)));
        }
        memory.note_delivery(&standing_bid(10_000 + u128::from(bid_no), bid_no, true), Timestamp(1));
    }
    memory.note(&negotiation(1), Timestamp(2), moved());
    (0..2 * LAST_MAX).for_each(|number| memory.note(&negotiation(1), Timestamp(3), sent(20_000 + number as u128)));
    let kept: Vec<u32> = bids(&memory).into_iter().map(|(_, bid_no, _)| bid_no).collect();
    let between = kept.iter().filter(|&&bid_no| bid_no > 30).count();
    assert!((BIDS_BETWEEN_MAX / 4..=BIDS_BETWEEN_MAX + LAST_MAX).contains(&between), "{kept:?}");
    assert_eq!(kept.last(), Some(&500), "the last one is");
    assert!(
        kept.windows(2).all(|two| two[0] < two[1]) && kept.iter().any(|bid_no| (200..300).contains(bid_no)),
        "{kept:?}"
    );
    let journal = memory.journal("engine-1", &negotiation(1)).unwrap();
    assert!(journal.entries.iter().any(|entry| matches!(entry.what, Happened::Moved { .. })), "the end is told");
    assert!(journal.entries.len() <= FIRST_MAX + BETWEEN_MAX + LAST_MAX);
    let facts = &memory.remembered[&negotiation(1)].facts;
    assert_eq!((memory.weight, facts.len()), (facts.weight, facts.weight), "every fact has the weight of one");
}

#[test]
fn a_report_is_in_the_journal_with_its_routine_and_the_beginning_of_its_result() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    let routine = RoutineReport { hash: Some(DocumentHash::of_bytes(b"a document")), kind: RoutineKind::Native };
    let report = ContractorReport {
        contractor: AgentId::try_new("bob").unwrap(),
        award_no: AwardNo(1),
        lot: Lot(0),
        result: Some("\u{e9}".repeat(4096)),
        routine: Some(routine),
    };
    let told = Notification::Inform(ProgressReport::Result(report));
    memory.note_delivery(&first_sent(1, told), Timestamp(1));
    let journal = memory.journal("engine-1", &negotiation(1)).unwrap();
    let reported = journal.entries.iter().find_map(|entry| {
        let Happened::Reported { contractor, routine, result, .. } = &entry.what else { return None };
        Some((contractor.as_str(), *routine, result.as_deref().map(|text| text.chars().count())))
    });
    assert_eq!(reported, Some(("bob", Some(routine), Some(256))));
    assert_eq!(memory.weight, memory.remembered[&negotiation(1)].facts.weight);
    assert!(memory.weight > 8, "512 bytes of text count");
}

#[test]
fn the_steps_and_the_conclusion_of_a_team_are_in_its_journal_once_each_and_with_the_beginning_of_each_text() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    for (number, step) in [1, 1, 2, 1, 2, 3].into_iter().enumerate() {
        let text = "\u{e9}".repeat(4096);
        let told = serde_json::json!({"step": step, "turn": step, "turns_left": 5, "state": "discussing", "speaker": "bob",
            "ends_by": "2026-11-20T22:10:00.000Z", "by": "alice", "said": {"text": text}});
        let floor = Notification::Floor(Box::new(serde_json::from_value(told).unwrap()));
        memory.note_delivery(&first_sent(number as u128, floor), Timestamp(1));
    }
    for number in 7..9 {
        let (text, by) = ("\u{e9}".repeat(4096), AgentId::try_new("bob").unwrap());
        let (offer_id, digest) = (OfferId(Position { seq: 7, index: 0 }), Digest::of_bytes(text.as_bytes()));
        let conclusion = Some(Box::new(Conclusion { by, offer_id, text, digest, turn: 3, votes: None }));
        let closing = Closing { conclusion, ..Closing::new(Outcome::Concluded, digest) };
        memory.note_delivery(&first_sent(number, Notification::Closed(closing)), Timestamp(2));
    }
    let journal = memory.journal("engine-1", &negotiation(1)).unwrap();
    let texts: Vec<(u32, usize)> = journal
        .entries
        .iter()
        .filter_map(|entry| {
            if let Happened::Concluded(conclusion) = &entry.what {
                return Some((0, conclusion.text.chars().count()));
            }
            let Happened::Floor(floor) = &entry.what else { return None };
            let Some(Spoken::Text { text }) = &floor.said else { panic!("said") };
            Some((floor.step, text.chars().count()))
        })
        .collect();
    assert_eq!(texts, [(1, 256), (2, 256), (3, 256), (0, 256)]);
    assert_eq!(memory.weight, memory.remembered[&negotiation(1)].facts.weight);
    assert!(memory.weight > 4 * 8, "512 bytes of each text count");
}

#[test]
fn the_rounds_of_a_panel_are_in_its_journal_once_each_and_its_finding_with_the_beginning_of_each_answer() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    let (answers, order, reviews) = (json!({}), json!({"rank": {"keep": 2}}), json!({"review": true}));
    let asks = [(1, &answers), (1, &answers), (1, &order), (1, &reviews), (2, &answers), (2, &answers)];
    for (number, (round, more)) in asks.into_iter().enumerate() {
        let mut ask = json!({"round": round, "answer_by": "2026-11-20T22:10:00.000Z", "ends_by": "2026-11-20T22:10:00.000Z",
            "task": "a secret"});
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let ask = Notification::Ask(Box::new(serde_json::from_value(ask).unwrap()));
        memory.note_delivery(&first_sent(number as u128, ask), Timestamp(1));
    }
    let text = "\u{e9}".repeat(4096);
    let seat = json!({"agent": "bob", "answer": text, "agreed": true, "importance_e12": [1, 2], "total_e12": 3, "relative_ppm": 4});
    let finding = json!({"outcome": "consensus", "stopped": "answers", "answer": text, "key": text, "agreed": 1, "of": 1,
        "round": 2, "decision": Digest::of_bytes(b"x"), "calls": PanelCalls::default(), "usage": UsageTotal::default(),
        "panelists": [seat]});
    let finding = ProgressReport::Finding(Box::new(serde_json::from_value(finding).unwrap()));
    memory.note_delivery(&first_sent(7, Notification::Inform(finding)), Timestamp(2));

    let mut journal = memory.journal("engine-1", &negotiation(1)).unwrap();
    let told: Vec<String> = journal.entries.iter().filter_map(|entry| told_of_panel(&entry.what)).collect();
    let found = "found 256 Some(256) Some(256)";
    assert_eq!(told, ["1 answer", "1 rank", "1 review", "2 answer", found]);
    assert_eq!(memory.weight, memory.remembered[&negotiation(1)].facts.weight);
    assert!(memory.weight > 3 * 8, "512 bytes of each answer count");
    let text = serde_json::to_string(&journal).unwrap();
    assert!(!text.contains("a secret"), "what is asked stays with those who are asked");
    journal.withhold_texts();
    let told: Vec<String> = journal.entries.iter().filter_map(|entry| told_of_panel(&entry.what)).collect();
    assert_eq!(told.last().map(String::as_str), Some("found 0 Some(0) None"));
}

/// A round, or how many characters there are of the answer, of the seat's and of the key.
fn told_of_panel(what: &Happened) -> Option<String> {
    if let Happened::Asked { round, kind } = what {
        return Some(format!("{round} {kind}"));
    }
    let Happened::Found(finding) = what else { return None };
    let length = |text: &str| text.chars().count();
    let seat = finding.panelists[0].answer.as_deref().map(length);
    let key = finding.key.as_deref().map(length);
    Some(format!("found {} {seat:?} {key:?}", length(&finding.answer)))
}

#[test]
fn the_rules_and_the_agreement_of_a_bargain_are_in_its_journal_once_each() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    let long = (0..65).map(AttrValue::Int).collect();
    let wordy = ["a", "b"].map(|letter| AttrValue::Text(letter.repeat(600))).to_vec();
    let few = vec![AttrValue::Text("seller".into()), AttrValue::Text("buyer".into())];
    let discrete = |values| IssueValues::Discrete { values };
    let mut issues = vec![issue("wordy", discrete(wordy)), issue("price", IssueValues::Range { min: 80, max: 200 })];
    issues.extend([issue("long", discrete(long)), issue("fetched_by", discrete(few.clone()))]);
    issues.extend((0..5).map(|number| issue(&format!("z{number}"), discrete(vec![AttrValue::Int(number)]))));
    for told in 0..3 {
        memory.note_delivery(&cfp(told, issues.clone()), Timestamp(1));
    }
    for told in 3..6 {
        memory.note_delivery(&closed(told), Timestamp(2));
    }
    let journal = memory.journal("engine-1", &negotiation(1)).unwrap();
    let rules: Vec<_> = journal.entries.iter().filter(|entry| matches!(entry.what, Happened::Rules { .. })).collect();
    assert_eq!(rules.len(), 1);
    let Happened::Rules { parties, issues } = &rules[0].what else { panic!("rules") };
    assert_eq!(parties.iter().map(AgentId::as_str).collect::<Vec<_>>(), ["alice", "bob"]);
    let names: Vec<_> = issues.iter().map(|issue| issue.name.as_str()).collect();
    assert_eq!(
        names,
        ["fetched_by", "long", "price", "wordy", "z0", "z1", "z2", "z3"],
        "the issues of which terms tell"
    );
    assert_eq!(issues[0].values, discrete(few));
    assert_eq!((&issues[1].values, &issues[3].values), (&discrete(Vec::new()), &discrete(Vec::new())), "too much");
    let agreed = |entry: &schemas::journal::JournalEntry| {
        if let Happened::Agreed { by, round, step, .. } = &entry.what {
            Some((by.to_string(), *round, *step))
        } else {
            None
        }
    };
    let agreed: Vec<_> = journal.entries.iter().filter_map(agreed).collect();
    assert_eq!(agreed, [("bob".to_owned(), 2, 4)]);
    assert_eq!(memory.weight, memory.remembered[&negotiation(1)].facts.weight);
}

#[test]
fn strangers_and_forgotten_negotiations_leave_no_trace() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    note(&mut memory, disposed(1, Disposition::Unauthorized));
    note(&mut memory, disposed(2, Disposition::Ok));
    memory.note(&negotiation(3), Timestamp(1), sent(1));
    assert_eq!(memory.journal("engine-1", &negotiation(1)).unwrap().entries.len(), 1, "the call");
    assert_eq!(memory.remembered.len(), 1);
}

#[test]
fn as_many_are_adopted_as_were_open_at_the_takeover() {
    let mut memory = Journals::default();
    started(&mut memory, 9);
    memory.handle_takeover(2);
    assert!(memory.remembered.is_empty());
    for number in [1, 1, 2, 3] {
        memory.note_event_of(disposed(number, Disposition::Ok), Timestamp(5), |_| Some(about()));
    }
    memory.note_event_of(disposed(4, Disposition::Closed), Timestamp(5), |_| panic!("it is over"));
    let known = [1, 2, 3, 4].map(|number| memory.journal("engine-1", &negotiation(number)).is_some());
    assert_eq!(known, [true, true, false, false]);
}

#[test]
fn an_id_that_is_opened_again_begins_a_journal_of_its_own() {
    let mut memory = Journals::default();
    started(&mut memory, 1);
    ended(&mut memory, 1);
    started(&mut memory, 1);
    assert_eq!(memory.journal("engine-1", &negotiation(1)).unwrap().entries.len(), 1);
    assert_eq!((memory.open.len(), memory.ended.len()), (1, 0));
    ended(&mut memory, 1);
    assert_eq!((memory.open.len(), memory.ended.len()), (0, 1));
}

fn note(memory: &mut Journals, event: Event) {
    memory.note_event_of(event, Timestamp(5), |_| None);
}

fn started(memory: &mut Journals, number: usize) {
    note(
        memory,
        Event::Started {
            negotiation: negotiation(number),
            protocol: Protocol::ContractNet,
            phase: Phase::Collecting,
            policy: "low".into(),
            invited: 1,
            left_out: 0,
            at: Timestamp(1),
        },
    );
}

fn ended(memory: &mut Journals, number: usize) {
    note(
        memory,
        Event::Ended {
            negotiation: negotiation(number),
            protocol: Protocol::ContractNet,
            policy: "low".into(),
            invited: 1,
            outcome: Outcome::Completed,
            rounds: 1,
            offers: 1,
            awards: 1,
            at: Timestamp(9),
            elapsed_us: 8,
        },
    );
}

fn disposed(number: usize, disposition: Disposition) -> Event {
    let (from, act) = (AgentId::try_new("bob").unwrap(), Act::Offer);
    Event::Disposed { negotiation: negotiation(number), from, act, disposition, score: None, at: Timestamp(3) }
}

fn sent(number: u128) -> Fact {
    of_delivery(number, Act::Cfp, 0, DeliveryStep::Sent)
}

fn acknowledged(number: u128) -> Fact {
    of_delivery(number, Act::Cfp, 1, DeliveryStep::Acknowledged)
}

fn of_delivery(number: u128, act: Act, attempts: u32, step: DeliveryStep) -> Fact {
    Fact::Delivery { to: AgentId::try_new("bob").unwrap(), act, id: delivery(number), attempts, step }
}

/// A party is told that it is its turn, and which offer stands.
fn turn(number: u128, offer: Option<u64>) -> DeliveryEvent {
    let bob = AgentId::try_new("bob").unwrap();
    let standing = offer.map(|seq| Standing {
        offer_id: OfferId(Position { seq, index: 0 }),
        by: bob.clone(),
        terms: [(AttrName::try_new("price").unwrap(), AttrValue::Int(10 * seq as i64))].into(),
        terms_digest: Digest::of_bytes(b"terms"),
        valid_from: None,
        valid_until: None,
        conditions: Vec::new(),
        accepted_by: Vec::new(),
    });
    let (act_by, ends_by) = (WireTime(Timestamp(50)), WireTime(Timestamp(90)));
    let step = offer.unwrap_or_default() as u32;
    let turn = Turn { party: bob, round: 1, step, act_by, ends_by, t_ppm: 0, standing };
    first_sent(number, Notification::Turn(turn))
}

/// Bob is told that a bid leads, which is his own where it `leads`.
fn standing_bid(number: u128, bid_no: u32, leads: bool) -> DeliveryEvent {
    let (price, reply_by) = (40_000_000 + 1_000_000 * i64::from(bid_no), WireTime(Timestamp(50)));
    let bid = StandingBid { bid_no, price, leads, bidders: 2, next_price: None, reply_by };
    first_sent(number, Notification::Inform(ProgressReport::Bid(Box::new(bid))))
}

/// The bids that the journal of the first negotiation holds.
fn bids(memory: &Journals) -> Vec<(String, u32, i64)> {
    let journal = memory.journal("engine-1", &negotiation(1)).unwrap();
    let bid = |entry: schemas::journal::JournalEntry| {
        let Happened::Bid { by, bid_no, price } = entry.what else { return None };
        Some((by.to_string(), bid_no, price))
    };
    journal.entries.into_iter().filter_map(bid).collect()
}

/// A party is called to a bargain over these issues.
fn cfp(number: u128, issues: Vec<Issue>) -> DeliveryEvent {
    let rules = BargainSpec {
        issues,
        rounds: Some(3),
        deadline_ms: None,
        step_ms: 1_000,
        confirm_ms: None,
        forbid_repeat: false,
        max_strikes: 3,
    };
    let parties = ["alice", "bob"].map(|name| AgentId::try_new(name).unwrap()).to_vec();
    first_sent(
        number,
        Notification::Cfp(Call {
            bargain: Some(Box::new(BargainCall { parties, rules })),
            ..Call::new(
                WireTime(Timestamp(50)),
                WireTime(Timestamp(90)),
                "alternating_offers".into(),
                Digest::of_bytes(b"rules"),
            )
        }),
    )
}

/// A party is told of an agreement on bob's offer.
fn closed(number: u128) -> DeliveryEvent {
    let agreement = Agreement {
        offer_id: OfferId(Position { seq: 7, index: 0 }),
        by: AgentId::try_new("bob").unwrap(),
        terms: [(AttrName::try_new("price").unwrap(), AttrValue::Int(70))].into(),
        terms_digest: Digest::of_bytes(b"terms"),
        round: 2,
        step: 4,
    };
    let (outcome, digest) = (Outcome::Agreement, Digest::of_bytes(b"chain"));
    first_sent(
        number,
        Notification::Closed(Closing {
            outcome,
            digest,
            detail: None,
            agreement: Some(Box::new(agreement)),
            conclusion: None,
            tasks: Vec::new(),
        }),
    )
}

fn issue(name: &str, values: IssueValues) -> Issue {
    Issue { name: AttrName::try_new(name).unwrap(), values }
}

/// What is told to bob for the first time.
fn first_sent(number: u128, told: Notification) -> DeliveryEvent {
    DeliveryEvent {
        id: delivery(number),
        negotiation: negotiation(1),
        to: AgentId::try_new("bob").unwrap(),
        act: told.act(),
        attempts: 1,
        made_at: tokio::time::Instant::now(),
        waited: None,
        told: Some(Arc::new(told)),
        trace: None,
        step: DeliveryStep::Sent,
    }
}

fn moved() -> Fact {
    Fact::Moved { from: Phase::Collecting, to: Phase::Awarding }
}

fn about() -> super::About {
    super::About {
        protocol: Protocol::ContractNet,
        phase: Phase::Collecting,
        policy: "low".into(),
        called_at: Timestamp(1),
        invited: 1,
    }
}

fn negotiation(number: usize) -> NegotiationId {
    NegotiationId::try_new(&format!("alice~{number}")).unwrap()
}

/// `cargo test -p policy_engine --release --lib -- --ignored --nocapture costs`. A figure, not a verdict.
#[test]
#[ignore = "measures; meaningful in a release build only"]
fn a_fact_costs_a_fraction_of_a_microsecond() {
    const ROUNDS: usize = 20_000;
    const FACTS: usize = 64;
    let mut memory = Journals::default();
    let ids: Vec<NegotiationId> = (0..ROUNDS).map(negotiation).collect();
    let facts: Vec<Fact> = (0..FACTS as u128).map(sent).collect();
    let begun = std::time::Instant::now();
    for (number, id) in ids.iter().enumerate() {
        started(&mut memory, number);
        facts.iter().for_each(|fact| memory.note(id, Timestamp(7), fact.clone()));
        ended(&mut memory, number);
    }
    let took = begun.elapsed();
    println!(
        "{} ns a fact, {} us a round of {FACTS}",
        took.as_nanos() / (ROUNDS * FACTS) as u128,
        took.as_micros() / ROUNDS as u128
    );
}
