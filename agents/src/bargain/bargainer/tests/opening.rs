//! The initiator's side.

use super::*;

#[test]
fn an_initiator_plays_once_it_knows_how_many_take_part() {
    for receipt_first in [true, false] {
        let (mut bargainer, mut events) = bargainer_of("alice");
        let said = only(bargainer.open(T0, &negotiation(), request(&[Move::Offer(9)])));
        let Payload::Cfp(cfp) = &said.payload else { panic!("no call") };
        assert_eq!(cfp.mandate.as_ref().map(|mandate| mandate.reservation), Some(300_000));
        assert!(said.call_to.is_some());
        let (opened, first) = (receipt(Disposition::Ok, Some(2), None), turn(0, "alice", None));
        let order = if receipt_first { [&opened, &first] } else { [&first, &opened] };
        assert_eq!(bargainer.handle(T0, order[0]), []);
        assert_eq!(only(bargainer.handle(T0, order[1])).payload.act(), Act::Offer);
        assert_eq!(events.try_recv().unwrap().report, BargainReport::Opened { invited: 2, left_out: 0 });
    }
}

#[test]
fn a_call_that_opens_nothing_ends_with_the_reason() {
    let refusal = Refusal::new(Code::NoRecipient, "nobody");
    type Event = Box<dyn Fn(&mut Bargainer) -> Vec<Action>>;
    let cases: [(Event, BargainReport); 3] = [
        (
            Box::new(|bargainer| bargainer.handle(T0, &receipt(Disposition::Malformed, None, None))),
            BargainReport::TurnedDown(Disposition::Malformed),
        ),
        (
            Box::new(|bargainer| bargainer.handle_sent(T0, &sent(Act::Cfp, SendOutcome::Unanswered))),
            BargainReport::Unanswered,
        ),
        (
            Box::new(move |bargainer| {
                let refused = Refusal::new(Code::NoRecipient, "nobody");
                bargainer.handle_sent(T0, &sent(Act::Cfp, SendOutcome::Refused(refused)))
            }),
            BargainReport::Refused(refusal),
        ),
    ];
    for (event, expected) in cases {
        let (mut bargainer, mut events) = bargainer_of("alice");
        bargainer.open(T0, &negotiation(), request(&[]));
        assert_eq!(event(&mut bargainer), [Action::Release(negotiation())]);
        assert_eq!((last(&mut events), bargainer.open_count()), (expected, 0));
    }
}

#[test]
fn a_bargain_is_not_opened_twice_nor_without_rules() {
    let (mut bargainer, mut events) = bargainer_of("alice");
    bargainer.open(T0, &negotiation(), request(&[]));
    assert_eq!(bargainer.open(T0, &negotiation(), request(&[])), []);
    assert!(matches!(last(&mut events), BargainReport::Refused(refusal) if refusal.code == Code::Conflict));
    let other = NegotiationId::try_new("alice~other").unwrap();
    let mut bare = request(&[]);
    bare.call.cfp.bargain = None;
    assert_eq!(bargainer.open(T0, &other, bare), []);
    assert!(matches!(last(&mut events), BargainReport::Refused(_)));
    assert_eq!(bargainer.open_count(), 1);
}

fn bargainer_of(name: &str) -> (Bargainer, Events) {
    let (sender, receiver) = mpsc::channel(64);
    (Bargainer::new(agent(name), planner(&[], Fallback::NextBest), sender), receiver)
}

fn request(moves: &[Move]) -> BargainRequest {
    let plan = BargainPlan::new(ramp(), Box::new(Scripted::new(moves.to_vec())))
        .with_mandate(Mandate { reservation: 300_000, ..Mandate::default() });
    let rules: BargainSpec = serde_json::from_value(rules()).unwrap();
    BargainRequest::new("n1", vec![schemas::Address::Agent(agent("bob"))], rules, plan)
}
