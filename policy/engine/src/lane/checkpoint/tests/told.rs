//! One of everything an agent can be told.

use schemas::bargain::{BargainSpec, Comparison, Issue, IssueValues, Predicate};
use schemas::delivery::{
    Agreement, Award, AwardReport, BargainCall, Call, Cancellation, CloseReason, Closing, ContractorFailure,
    ContractorReport, Disposition, Misunderstanding, Notification, OfferNews, OffersReport, Outcome, ProgressReport,
    Receipt, RejectReason, Rejection, Standing, Turn,
};
use schemas::document::{CallDocuments, DocumentHash, RoutineKind, RoutineReport};
use schemas::ids::{AttrName, Capability, Position};
use schemas::panel::SeatChoice;
use schemas::payload::{AttrValue, Failure, FailurePhase, Terms};
use schemas::{Act, AgentId, AwardNo, Digest, Lot, MsgId, OfferId, Timestamp, WireTime};
use serde_json::json;

const OFFER: OfferId = OfferId(Position { seq: 12, index: 3 });

/// One of everything, members that may be absent present and absent.
pub(super) fn everything_told() -> Vec<Notification> {
    let sparse = Call { task: None, requires: vec![], constraints: Terms::new(), currency: None, ..call() };
    let failure =
        Failure { phase: FailurePhase::Perform, code: "flat_tyre".to_owned(), retryable: true, penalty: Some(3) };
    let offers = OffersReport {
        offers: vec![OfferNews {
            offer_id: OFFER,
            contractor: agent(),
            terms: terms(),
            score: 0,
            document: Some(document()),
        }],
        decide_by: time(1_700_000_002_000_000),
    };
    let rest = vec![
        Notification::Cfp(call()),
        Notification::Cfp(sparse),
        Notification::Cfp(Call { bargain: Some(Box::new(bargain())), ..call() }),
        Notification::Accept(award()),
        Notification::Accept(Award { payment: Some(-1), ..award() }),
        Notification::Reject(Rejection { offer_id: None, reason: RejectReason::Late, code: None }),
        Notification::Reject(Rejection {
            offer_id: Some(OFFER),
            reason: RejectReason::Policy,
            code: Some("price.max".to_owned()),
        }),
        Notification::Cancel(Cancellation { award_no: AwardNo(1), reason: "revoked".to_owned() }),
        Notification::Inform(ProgressReport::Awarded(news())),
        Notification::Inform(ProgressReport::Offers(offers)),
        Notification::Inform(ProgressReport::Committed(report(None))),
        Notification::Inform(ProgressReport::Done(report(None))),
        Notification::Inform(ProgressReport::Result(report(Some("{\"json\":null}")))),
        Notification::Inform(ProgressReport::Cancelled(report(None))),
        Notification::Failure(ContractorFailure { contractor: agent(), award_no: AwardNo(1), failure }),
        Notification::NotUnderstood(Misunderstanding {
            reason: "out_of_turn".to_owned(),
            expected: vec![Act::Confirm],
            pointer: None,
        }),
        Notification::NotUnderstood(Misunderstanding {
            reason: "out_of_space".to_owned(),
            expected: Vec::new(),
            pointer: Some("/payload/terms/price".to_owned()),
        }),
        Notification::Closed(Closing {
            outcome: Outcome::Completed,
            digest: Digest([4; 32]),
            detail: Some("done_before_cancel".to_owned()),
            agreement: None,
            conclusion: None,
            tasks: Vec::new(),
        }),
        Notification::Closed(Closing {
            agreement: Some(Box::new(agreement())),
            ..Closing::new(Outcome::Agreement, Digest([4; 32]))
        }),
        Notification::Turn(turn(Some(standing()))),
        Notification::Turn(turn(None)),
        Notification::Ack(Receipt {
            first: Some(Disposition::Ok),
            offer_id: Some(OFFER),
            invited: Some(2),
            left_out: Some(0),
            seats: Some(SeatChoice::Trial),
            award_no: Some(AwardNo(3)),
            ..Receipt::new(MsgId::try_new("m-1").unwrap(), Disposition::Duplicate)
        }),
    ];
    under_documents().into_iter().chain(of_a_panel()).chain(of_an_auction()).chain(rest).collect()
}

/// What members of a panel are told.
fn of_a_panel() -> [Notification; 2] {
    let shown = |answer: Option<&str>| json!({"answer": answer, "text": "because", "reviews": [null, "right"]});
    let ask = json!({
        "round": 2, "rounds": 3, "task": "why", "answer": {"kind": "set", "of": "number"},
        "answer_by": "2026-11-22T09:00:20.000Z", "ends_by": "2026-11-22T09:05:00.000Z", "rules_digest": Digest([5; 32]),
        "own": shown(Some("1")), "peers": [shown(None)], "rate": "reviewers", "rank": {"keep": 2}, "review": true,
    });
    let finding = json!({
        "outcome": "plurality", "stopped": "silence", "answer": "1", "key": "1", "agreed": 1, "of": 2, "round": 1,
        "decision": Digest([6; 32]), "calls": {"answers": 2, "ranks": 1, "reviews": 0, "answered": 2},
        "usage": {"calls": 1, "prompt_tokens": 2, "completion_tokens": 3, "reported_by": 1},
        "panelists": [{"agent": "bob", "answer": null, "agreed": false, "importance_e12": [1], "total_e12": 1, "relative_ppm": 2}],
        "reviewers": [{"agent": "cyd", "total_e12": 1, "relative_ppm": 2}],
    });
    let finding = ProgressReport::Finding(serde_json::from_value(finding).unwrap());
    [Notification::Ask(serde_json::from_value(ask).unwrap()), Notification::Inform(finding)]
}

/// What bidders of an auction are told.
fn of_an_auction() -> [Notification; 2] {
    let rules =
        json!({"direction": "ascending", "start": 5, "step_permille": 20, "extend": {"ms": 1, "latest_within_ms": 9}});
    let auction = serde_json::from_value(json!({"rules": rules, "latest_by": "2026-11-22T09:05:00.000Z"})).unwrap();
    let bid = json!({"bid_no": 2, "price": 7, "leads": true, "bidders": 3, "reply_by": "2026-11-22T09:00:20.000Z"});
    let bid = ProgressReport::Bid(serde_json::from_value(bid).unwrap());
    [Notification::Cfp(Call { auction: Some(auction), ..call() }), Notification::Inform(bid)]
}

/// What names protocol documents.
fn under_documents() -> [Notification; 4] {
    let report = ContractorReport { routine: Some(routine()), ..report(Some("7")) };
    [
        Notification::Cfp(Call { documents: Some(documents()), ..call() }),
        Notification::Accept(Award { document: Some(document()), ..award() }),
        Notification::Inform(ProgressReport::Awarded(AwardReport { document: Some(document()), ..news() })),
        Notification::Inform(ProgressReport::Result(report)),
    ]
}

fn time(us: u64) -> WireTime {
    WireTime(Timestamp(us))
}

fn agent() -> AgentId {
    AgentId::try_new("bob").unwrap()
}

fn terms() -> Terms {
    let name = |name| AttrName::try_new(name).unwrap();
    [(name("price"), AttrValue::Int(-9_007_199_254_740_991)), (name("note"), AttrValue::Text("7".to_owned()))].into()
}

fn report(result: Option<&str>) -> ContractorReport {
    let result = result.map(str::to_owned);
    ContractorReport { contractor: agent(), award_no: AwardNo(1), lot: Lot(2), result, routine: None }
}

fn document() -> DocumentHash {
    DocumentHash::of_bytes(b"a document")
}

fn documents() -> CallDocuments {
    CallDocuments { hashes: vec![document(), DocumentHash::of_bytes(b"another")], require: true }
}

fn routine() -> RoutineReport {
    RoutineReport { hash: Some(document()), kind: RoutineKind::Wasm }
}

fn call() -> Call {
    Call {
        task: Some("move \u{1f4e6}\n".to_owned()),
        lots: 2,
        requires: vec![Capability::try_new("cargo").unwrap()],
        constraints: terms(),
        currency: Some("EUR".to_owned()),
        ..Call::new(time(1_700_000_000_000_001), time(1_700_000_060_000_000), "medium".to_owned(), Digest([1; 32]))
    }
}

fn news() -> AwardReport {
    AwardReport {
        offer_id: OFFER,
        contractor: agent(),
        lot: Lot(0),
        award_no: AwardNo(1),
        terms: terms(),
        payment: Some(5),
        score: 1_000_000,
        reason: CloseReason::KValid,
        complete: true,
        offers: 3,
        decision: Digest([2; 32]),
        document: None,
    }
}

fn award() -> Award {
    Award {
        offer_id: OFFER,
        lot: Lot(0),
        award_no: AwardNo(1),
        terms: terms(),
        terms_digest: Digest([3; 32]),
        payment: None,
        document: None,
        confirm_by: time(1_700_000_001_000_000),
        brief: None,
    }
}

fn bargain() -> BargainCall {
    let issues = vec![
        Issue {
            name: AttrName::try_new("colour").unwrap(),
            values: IssueValues::Discrete { values: vec![AttrValue::Text("red".to_owned()), AttrValue::Int(-7)] },
        },
        Issue { name: AttrName::try_new("price").unwrap(), values: IssueValues::Range { min: -3, max: 9 } },
    ];
    let rules = BargainSpec {
        issues,
        rounds: Some(9),
        deadline_ms: None,
        step_ms: 5,
        confirm_ms: Some(7),
        forbid_repeat: true,
        max_strikes: 2,
    };
    BargainCall { parties: vec![agent(), AgentId::try_new("carol").unwrap()], rules }
}

fn turn(standing: Option<Standing>) -> Turn {
    Turn {
        party: agent(),
        round: 2,
        step: 3,
        act_by: time(1_700_000_000_000_001),
        ends_by: time(1_700_000_060_000_000),
        t_ppm: 181_818,
        standing,
    }
}

fn standing() -> Standing {
    Standing {
        offer_id: OFFER,
        by: agent(),
        terms: terms(),
        terms_digest: Digest([5; 32]),
        valid_from: Some(time(1)),
        valid_until: None,
        conditions: vec![Predicate {
            attr: AttrName::try_new("round").unwrap(),
            op: Comparison::Le,
            value: AttrValue::Int(4),
        }],
        accepted_by: vec![agent()],
    }
}

fn agreement() -> Agreement {
    Agreement { offer_id: OFFER, by: agent(), terms: terms(), terms_digest: Digest([5; 32]), round: 2, step: 4 }
}
