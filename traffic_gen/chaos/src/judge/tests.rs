use agents::observer::{Observed, Observer};
use agents::strategy::{SendOutcome, Sent, Way};
use schemas::delivery::{
    Award, Cancellation, Closing, Delivery, DeliveryEnvelope, Disposition, EXCHANGE, Notification, Receipt,
    RejectReason, Rejection,
};
use schemas::record::Record;
use schemas::{Act, AgentId, DeliveryId, Digest, Lane, MsgId, Position, Timestamp, WireTime};
use tokio::time::Instant;

use super::*;
use crate::journal::{AgentJournal, AwardHeard, WallClock};
use archive::audit::LoggedRecord;
use traffic_gen::recorder::Recorder;

#[test]
fn whatever_has_a_hard_end_ends_within_two_seconds_of_it() {
    let ends_by = Timestamp(1_000_000);
    for (ended, checked, violated) in [(Some(3_000_000), 1, 0), (Some(3_000_001), 1, 1), (None, 0, 0)] {
        let (mut notes, mut checks) = (Notes::default(), Checks::default());
        let round = Round { ends_by: Some(ends_by), ended: ended.map(Timestamp), ..Round::default() };
        notes.rounds.insert(negotiation(), round);
        judge_ends(&notes, &mut checks);
        let tally = checks.by_name.get(&Check::EndedInTime).copied().unwrap_or_default();
        assert_eq!((tally.checked, tally.violated), (checked, violated), "{ended:?}");
    }
}

#[test]
fn a_bargain_is_judged_by_its_agreement_and_not_by_the_accept_that_asks_for_confirmations() {
    let agreed = |number| RegisterValue::Agreement {
        chain: Digest([0; 32]),
        offer_id: offer(number),
        terms_digest: Digest([0; 32]),
    };
    let key = RegisterKey::Award(negotiation(), Lot(0), AwardNo(1));
    for (told, registered, violated) in
        [(Some(1), Some(1), 0), (Some(1), Some(2), 1), (Some(1), None, 1), (None, None, 0)]
    {
        let heard = AwardHeard { contractor: agent("bob"), offer: offer(1), heard: Timestamp(1) };
        let round = Round {
            is_bargain: true,
            awards: BTreeMap::from([(AwardNo(1), heard)]),
            agreed: told.map(offer),
            ..Round::default()
        };
        let (mut notes, mut checks) = (Notes::default(), Checks::default());
        notes.rounds.insert(negotiation(), round);
        judge_told(&notes, &registered.map(|number| (key.clone(), agreed(number))).into_iter().collect(), &mut checks);
        let tally = checks.by_name.get(&Check::ToldAsRegistered).copied().unwrap_or_default();
        assert_eq!((tally.checked, tally.violated), (u64::from(told.is_some()), violated), "{told:?} {registered:?}");
    }
}

#[test]
fn a_complete_round_passes_every_check() {
    let (verdict, checks, notes, lapses) = judged(&round(), &register());
    assert_eq!((verdict.violated(), checks.violated()), (0, 0), "{:?} {:?}", verdict.examples, checks.examples);
    for invariant in [Invariant::OneAward, Invariant::NoLostAdmission, Invariant::FinalNotice, Invariant::Terminates] {
        assert!(verdict.by_name[&invariant].checked > 0, "{invariant:?} was never checked");
    }
    for check in [Check::ToldAsRegistered, Check::NoUnheardLapse] {
        assert!(checks.by_name[&check].checked > 0, "{check:?} was never checked");
    }
    assert_eq!(rounds(&notes), Rounds { opened: 1, willing: 1, completed: 1, completion: 1.0 });
    assert_eq!(lapses, Lapses::default());
}

#[test]
fn planted_violations_of_invariants_are_named() {
    let without = |left_out: &str| round().into_iter().filter(|step| step.name != left_out).collect::<Vec<_>>();
    let plus = |step: Step| round().into_iter().chain([step]).collect::<Vec<_>>();
    for (planted, script, broken) in [
        ("a lost admission", without("receipt of the call"), Invariant::NoLostAdmission),
        ("no notice", without("reject of bob"), Invariant::FinalNotice),
        ("no end", without("end for alice"), Invariant::Terminates),
        ("the award given to another", plus(told("again", "bob", 90, 20, accept(1, 1))), Invariant::OneAward),
    ] {
        let (verdict, ..) = judged(&script, &register());
        assert_eq!(verdict.violated_checks().collect::<Vec<_>>(), [broken], "{planted}: {:?}", verdict.examples);
    }
}

#[test]
fn a_second_commitment_in_the_register_is_a_second_award() {
    let mut register = register();
    register.insert(RegisterKey::Award(negotiation(), Lot(0), AwardNo(2)), award(2));
    register.insert(RegisterKey::AwardEnd(negotiation(), Lot(0), AwardNo(2)), end(AwardEnd::Revoked));
    assert_eq!(judged(&round(), &register).0.violated(), 0, "a revoked award is none");
    register.insert(RegisterKey::AwardEnd(negotiation(), Lot(0), AwardNo(2)), end(AwardEnd::Committed));
    let (verdict, ..) = judged(&round(), &register);
    assert_eq!(verdict.violated_checks().collect::<Vec<_>>(), [Invariant::OneAward]);
}

#[test]
fn what_agents_were_told_must_stand_in_the_register() {
    let other_offer = BTreeMap::from([(RegisterKey::Award(negotiation(), Lot(0), AwardNo(1)), award(2))]);
    let revoked = BTreeMap::from([(RegisterKey::AwardEnd(negotiation(), Lot(0), AwardNo(1)), end(AwardEnd::Revoked))]);
    let other_end = BTreeMap::from([(RegisterKey::Closed(negotiation()), closed_as(Outcome::Timeout))]);
    for planted in [other_offer, revoked, other_end] {
        let mut register = register();
        register.extend(planted.clone());
        let (_, checks, ..) = judged(&round(), &register);
        assert_eq!(checks.by_name[&Check::ToldAsRegistered].violated, 1, "{planted:?}");
    }
    let (_, checks, ..) = judged(&round(), &RegisteredValue::new());
    assert_eq!(checks.by_name[&Check::ToldAsRegistered].violated, 3, "award, commitment, end");
}

#[test]
fn a_lapse_counts_by_when_its_accept_was_first_sent() {
    // The contractor hears the ACCEPT at 10; the log says it lapsed at 5 or 50.
    for (lapsed_at, on_the_bus, before_accept) in [(50, None, 0), (5, None, 1), (5, Some(4), 0), (5, Some(6), 1)] {
        let mut script = round();
        let lapse = Notification::Cancel(Cancellation { award_no: AwardNo(1), reason: "confirm_timeout".to_owned() });
        script.push(told("lapse", "carl", 91, lapsed_at, lapse));
        let departures = on_the_bus.map(|at| ((negotiation(), AwardNo(1)), Timestamp(at)));
        let notes = journal(&script).take();
        let mut checks = Checks::default();
        let lapses = judge_lapses(&notes, &departures.into_iter().collect(), &mut checks);
        assert_eq!(lapses, Lapses { lapsed: 1, before_accept }, "{lapsed_at} {on_the_bus:?}");
        assert_eq!(checks.violated(), before_accept);
    }
}

#[test]
fn a_lapse_of_an_award_nobody_ever_heard_of_is_found() {
    let mut script: Vec<_> = round().into_iter().filter(|step| step.name != "accept").collect();
    let lapse = Notification::Cancel(Cancellation { award_no: AwardNo(1), reason: "confirm_timeout".to_owned() });
    script.push(told("lapse", "carl", 91, 50, lapse));
    let mut checks = Checks::default();
    judge_lapses(&journal(&script).take(), &Departures::new(), &mut checks);
    assert_eq!(checks.violated(), 1);
}

#[test]
fn a_round_without_a_willing_contractor_is_none_that_should_have_completed() {
    let mut script = round();
    script.push(Step { name: "carl declines", agent: agent("carl"), at: 12, what: What::Left("no", Act::Refuse) });
    script.push(Step { name: "bob withdraws", agent: agent("bob"), at: 12, what: What::Left("no", Act::Withdraw) });
    let rounds = rounds(&journal(&script).take());
    assert_eq!((rounds.opened, rounds.willing), (1, 0));
}

#[test]
fn claims_are_read_in_the_order_of_the_log() {
    let claim = |seq: u64, engine: &str, epoch: u64| LoggedRecord {
        lane: Lane(1),
        seq,
        time: Timestamp(seq),
        record: Record::new(
            engine,
            vec![Entry::Tick, Entry::Engine { epoch, event: EngineEvent::Claim { engine: engine.to_owned() } }],
        ),
    };
    let ledger = Ledger { records: vec![claim(3, "a", 1), claim(7, "b", 2)], ..Ledger::default() };
    let read = claims(&ledger);
    assert_eq!(read.iter().map(|claim| (claim.at.0, claim.engine.as_str())).collect::<Vec<_>>(), [(3, "a"), (7, "b")]);
}

#[derive(Clone)]
struct Step {
    name: &'static str,
    agent: AgentId,
    at: u64,
    what: What,
}

#[derive(Clone)]
enum What {
    Left(&'static str, Act),
    Admitted(&'static str, Act),
    Heard(Box<Delivery>),
}

/// alice calls; carl (offer 1) wins and commits, bob (offer 2) is outscored.
fn round() -> Vec<Step> {
    let rejection = Rejection { offer_id: Some(offer(2)), reason: RejectReason::Outscored, code: None };
    vec![
        admitted("call", "alice", 1, "call", Act::Cfp),
        told("receipt of the call", "alice", 1, 1, ack("call", |receipt| receipt.invited = Some(2))),
        admitted("carl's offer", "carl", 2, "c1", Act::Offer),
        told("receipt of carl's offer", "carl", 2, 2, ack("c1", |receipt| receipt.offer_id = Some(offer(1)))),
        admitted("bob's offer", "bob", 3, "b1", Act::Offer),
        told("receipt of bob's offer", "bob", 3, 3, ack("b1", |receipt| receipt.offer_id = Some(offer(2)))),
        told("accept", "carl", 4, 4, accept(1, 1)),
        told("reject of bob", "bob", 5, 4, Notification::Reject(rejection)),
        told("commitment", "carl", 6, 6, committed()),
        told("end for alice", "alice", 7, 7, ended()),
        told("end for carl", "carl", 8, 7, ended()),
    ]
}

fn journal(script: &[Step]) -> AgentJournal {
    let start = Instant::now();
    let recorder = Recorder::start(start, true, None);
    let clock = WallClock::for_test(start, Timestamp(0));
    let journal = AgentJournal::new(recorder, clock);
    for step in script {
        let at = start + std::time::Duration::from_micros(step.at);
        let (agent, negotiation) = (&step.agent, negotiation());
        match &step.what {
            What::Left(id, act) => {
                let (msg_id, document) = (msg_id(id), bytes::Bytes::new());
                let event = Observed::Transmitted {
                    negotiation: &negotiation,
                    msg_id: &msg_id,
                    act: *act,
                    attempt: 1,
                    document: &document,
                };
                journal.handle(agent, at, event);
            }
            What::Admitted(id, act) => {
                let outcome = SendOutcome::Accepted { seq: Some(1), policy: None };
                let sent = Sent { negotiation, msg_id: msg_id(id), act: *act, outcome, way: Way::default() };
                journal.handle(agent, at, Observed::Settled { sent: &sent, took: std::time::Duration::ZERO });
            }
            What::Heard(delivery) => journal.handle(agent, at, Observed::Delivered { delivery, is_repeat: false }),
        }
    }
    journal
}

fn judged(script: &[Step], register: &RegisteredValue) -> (Verdict, Checks, Notes, Lapses) {
    let journal = journal(script);
    let (_, mut verdict) = journal.recorder.finish().unwrap();
    let (notes, mut checks) = (journal.take(), Checks::default());
    judge_register(register, &mut verdict);
    judge_told(&notes, register, &mut checks);
    let lapses = judge_lapses(&notes, &Departures::new(), &mut checks);
    (verdict, checks, notes, lapses)
}

fn register() -> RegisteredValue {
    BTreeMap::from([
        (RegisterKey::Award(negotiation(), Lot(0), AwardNo(1)), award(1)),
        (RegisterKey::AwardEnd(negotiation(), Lot(0), AwardNo(1)), end(AwardEnd::Committed)),
        (RegisterKey::Closed(negotiation()), closed_as(Outcome::Completed)),
    ])
}

fn award(number: u64) -> RegisterValue {
    RegisterValue::Award { decision: Digest([0; 32]), offer_id: offer(number), chain: Digest([0; 32]) }
}

fn end(end: AwardEnd) -> RegisterValue {
    RegisterValue::AwardEnd { end, chain: Digest([0; 32]) }
}

fn closed_as(outcome: Outcome) -> RegisterValue {
    RegisterValue::Closed { outcome, chain: Digest([0; 32]) }
}

fn ack(msg_id_text: &str, with: impl FnOnce(&mut Receipt)) -> Notification {
    let mut receipt = Receipt::new(msg_id(msg_id_text), Disposition::Ok);
    with(&mut receipt);
    Notification::Ack(receipt)
}

fn committed() -> Notification {
    ack("confirm", |receipt| {
        receipt.disposition = Disposition::Committed;
        receipt.award_no = Some(AwardNo(1));
    })
}

fn accept(award_no: u32, number: u64) -> Notification {
    Notification::Accept(Award {
        offer_id: offer(number),
        lot: Lot(0),
        award_no: AwardNo(award_no),
        terms: schemas::payload::Terms::new(),
        terms_digest: Digest([0; 32]),
        payment: None,
        document: None,
        confirm_by: WireTime(Timestamp(0)),
        brief: None,
    })
}

fn ended() -> Notification {
    Notification::Closed(Closing {
        outcome: Outcome::Completed,
        digest: Digest([0; 32]),
        detail: None,
        agreement: None,
        conclusion: None,
        tasks: Vec::new(),
    })
}

fn admitted(name: &'static str, sender: &str, at: u64, id: &'static str, act: Act) -> Step {
    Step { name, agent: agent(sender), at, what: What::Admitted(id, act) }
}

/// Heard 6 us after the log time of what caused it.
fn told(name: &'static str, recipient: &str, number: u8, made: u64, payload: Notification) -> Step {
    let envelope = DeliveryEnvelope {
        msg_id: DeliveryId::new(Lane(0), [number; 16]),
        ts: WireTime(Timestamp(made)),
        from: EXCHANGE.to_owned(),
        to: [format!("agent://{recipient}")],
        negotiation: negotiation(),
        in_reply_to: None,
        traceparent: None,
    };
    let what = What::Heard(Box::new(Delivery { envelope, payload, receipts: Vec::new() }));
    Step { name, agent: agent(recipient), at: made + 6, what }
}

fn negotiation() -> NegotiationId {
    NegotiationId::try_new("alice~job").unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn msg_id(text: &str) -> MsgId {
    MsgId::try_new(text).unwrap()
}

fn offer(number: u64) -> OfferId {
    OfferId(Position { seq: number, index: 0 })
}
