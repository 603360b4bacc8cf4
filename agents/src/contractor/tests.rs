use std::collections::BTreeMap;
use std::time::Duration;

use schemas::delivery::{Closing, DeliveryEnvelope, Outcome, Rejection};
use schemas::{Act, DeliveryId, Digest, Lane, Lot, MsgId, OfferId, Position, WireTime};

use super::*;

mod routines;

const T0: Timestamp = Timestamp::from_ms(1_000_000);

#[test]
fn an_honest_contractor_walks_through_a_negotiation() {
    let mut contractor = contractor(|_| {});
    let offer = only(contractor.handle(T0, &call("n1", 1)));
    assert_eq!((offer.payload.act(), offer.delay, offer.once), (Act::Offer, Duration::ZERO, Some(2)));
    let Payload::Offer(Offer { terms, round, .. }) = offer.payload else { panic!("no offer") };
    assert_eq!(round, Some(1));
    assert_eq!(terms.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["delivery_ms", "price"]);

    let confirm = only(contractor.handle(T0, &award("n1", 1, &terms)));
    assert_eq!(
        (confirm.payload, confirm.once),
        (Payload::Confirm(Confirm { award_no: AwardNo(1), terms_digest: None }), Some(1))
    );

    let inform = only(contractor.handle(T0, &receipt("n1", Disposition::Committed, 1)));
    assert_eq!(inform.payload, Payload::Inform(Inform { kind: InformKind::Done, result: None, routine: None }));
    assert_eq!(contractor.engagements.len(), 1);

    assert_eq!(contractor.handle(T0, &closed("n1")), [released("n1")]);
    assert_eq!(contractor.engagements.len(), 0);
    let counts = contractor.counts();
    assert_eq!((counts.calls, counts.offers, counts.awards, counts.commitments, counts.done), (1, 1, 1, 1, 1));
}

#[test]
fn a_repeated_award_gets_the_same_confirmation_and_a_repeated_commitment_is_performed_once() {
    let mut contractor = contractor(|_| {});
    let terms = offered(&mut contractor, "n1");
    let first = contractor.handle(T0, &award("n1", 1, &terms));
    assert_eq!(contractor.handle(T0, &award("n1", 1, &terms)), first, "same act, same `once`: the session repeats it");
    assert_eq!(contractor.handle(T0, &receipt("n1", Disposition::Committed, 1)).len(), 1);
    assert_eq!(contractor.handle(T0, &receipt("n1", Disposition::Committed, 1)), []);
    let duplicate = Receipt { first: Some(Disposition::Committed), ..bare_receipt(Disposition::Duplicate, Some(1)) };
    assert_eq!(contractor.handle(T0, &delivery("n1", Notification::Ack(duplicate))), []);
    assert_eq!(contractor.handle(T0, &award("n1", 1, &terms)), first);
    assert_eq!(contractor.handle(T0, &receipt("n1", Disposition::Committed, 1)), [], "not performed a second time");
    assert_eq!(contractor.counts().commitments, 1);
}

#[test]
fn a_call_to_a_bargain_is_refused() {
    let mut told = call("n1", 1);
    let Notification::Cfp(call) = &mut told.payload else { panic!("no call") };
    let rules =
        r#"{"parties": ["alice", "bob"], "rules": {"issues": [{"name": "price", "min": 1, "max": 9}], "rounds": 3}}"#;
    call.bargain = Some(Box::new(serde_json::from_str(rules).unwrap()));
    let mut contractor = contractor(|_| {});
    let refusal = Reasoned { reason: Some("does not bargain".to_owned()), round: None };
    assert_eq!(only(contractor.handle(T0, &told)).payload, Payload::Refuse(refusal));
    let counts = contractor.counts();
    assert_eq!((counts.calls, counts.refusals, counts.offers, contractor.engagements.len()), (1, 1, 0, 0));
}

#[test]
fn nothing_is_performed_before_committed() {
    let mut contractor = contractor(|_| {});
    let terms = offered(&mut contractor, "n1");
    assert_eq!(contractor.handle(T0, &receipt("n1", Disposition::Committed, 1)), [], "never awarded");
    contractor.handle(T0, &award("n1", 2, &terms));
    for (disposition, award_no) in
        [(Disposition::Ok, 2), (Disposition::Revoked, 2), (Disposition::Late, 2), (Disposition::Committed, 1)]
    {
        assert_eq!(contractor.handle(T0, &receipt("n1", disposition, award_no)), [], "{disposition:?} {award_no}");
    }
    assert_eq!(contractor.handle(T0, &receipt("n1", Disposition::Committed, 2)).len(), 1);
}

#[test]
fn an_award_of_terms_it_never_offered_is_refused() {
    let mut contractor = contractor(|_| {});
    let terms = offered(&mut contractor, "n1");
    let mut cheaper = terms.clone();
    cheaper.insert(name("price"), schemas::payload::AttrValue::Int(1));
    for (own, awarded) in [("n1", &cheaper), ("n2", &terms)] {
        let refusal = only(contractor.handle(T0, &award(own, 1, awarded)));
        assert_eq!(refusal.payload.act(), Act::Refuse, "{own}");
    }
    assert_eq!(contractor.counts().unknown_awards, 2);
}

#[test]
fn every_scripted_behaviour_happens() {
    let on_call: [(&str, Change, Acts); 7] = [
        ("delay", |c| c.reply_delay_ms = Distribution::Constant(30), &[(Act::Offer, 30)]),
        ("silent", |c| c.silent = 1.0, &[]),
        ("refuse", |c| c.refuse = 1.0, &[(Act::Refuse, 0)]),
        // The call leaves 500 ms; late offers come 50 ms after that.
        ("late", |c| c.late = 1.0, &[(Act::Offer, 550)]),
        ("revise", |c| c.revise = 1.0, &[(Act::Offer, 0), (Act::Offer, 20)]),
        ("withdraw", |c| c.withdraw = 1.0, &[(Act::Offer, 0), (Act::Withdraw, 20)]),
        ("no room", |c| c.engagements_max = 0, &[(Act::Refuse, 0)]),
    ];
    for (behaviour, change, expected) in on_call {
        assert_eq!(acts(contractor(change).handle(T0, &call("n1", 1))), expected, "{behaviour}");
    }
    let on_award: [(&str, Change, Acts); 3] = [
        ("confirm delay", |c| c.confirm_delay_ms = Distribution::Constant(7), &[(Act::Confirm, 7)]),
        ("decline", |c| c.decline = 1.0, &[(Act::Refuse, 0)]),
        ("ignore", |c| c.ignore_award = 1.0, &[]),
    ];
    for (behaviour, change, expected) in on_award {
        let mut contractor = contractor(change);
        let terms = offered(&mut contractor, "n1");
        assert_eq!(acts(contractor.handle(T0, &award("n1", 1, &terms))), expected, "{behaviour}");
    }
    let on_commitment: [(&str, Change, Acts); 3] = [
        ("perform", |c| c.perform_ms = Distribution::Constant(90), &[(Act::Inform, 90)]),
        ("fail", |c| c.fail = 1.0, &[(Act::Failure, 0)]),
        ("stall", |c| c.stall = 1.0, &[]),
    ];
    for (behaviour, change, expected) in on_commitment {
        let mut contractor = contractor(change);
        let terms = offered(&mut contractor, "n1");
        contractor.handle(T0, &award("n1", 1, &terms));
        let actions = contractor.handle(T0, &receipt("n1", Disposition::Committed, 1));
        assert_eq!(acts(actions), expected, "{behaviour}");
    }
}

#[test]
fn only_the_initiators_cancel_is_answered_and_work_in_hand_stops() {
    let cancelled = Payload::Inform(Inform { kind: InformKind::Cancelled, result: None, routine: None });
    for (reason, cannot_cancel, expected) in [
        ("cancelled", 0.0, Some(cancelled.act())),
        ("cancelled", 1.0, Some(Act::Failure)),
        ("confirm_timeout", 0.0, None),
        ("perform_timeout", 0.0, None),
        ("timeout", 0.0, None),
        ("revoked", 0.0, None),
    ] {
        let mut contractor = contractor(|config| config.cannot_cancel = cannot_cancel);
        let terms = offered(&mut contractor, "n1");
        contractor.handle(T0, &award("n1", 1, &terms));
        contractor.handle(T0, &receipt("n1", Disposition::Committed, 1));
        let told = Notification::Cancel(Cancellation { award_no: AwardNo(1), reason: reason.to_owned() });
        let mut actions = contractor.handle(T0, &delivery("n1", told));
        let first = actions.remove(0);
        match expected {
            Some(act) => {
                assert_eq!(first, Action::Unschedule(negotiation("n1")), "{reason}");
                assert_eq!(only(actions).payload.act(), act, "{reason}");
            }
            None => assert_eq!((first, actions.len()), (released("n1"), 0), "{reason}"),
        }
        assert_eq!(contractor.engagements.len(), 0, "{reason}");
    }
}

#[test]
fn a_final_notice_releases_and_a_passing_one_does_not() {
    for (reason, is_final) in [
        (RejectReason::Outscored, true),
        (RejectReason::Late, true),
        (RejectReason::Expired, true),
        (RejectReason::Cancelled, true),
        (RejectReason::Awarded, true),
        (RejectReason::Withdrawn, true),
        (RejectReason::Replaced, false),
        (RejectReason::Policy, false),
        (RejectReason::Round, false),
    ] {
        let mut contractor = contractor(|_| {});
        offered(&mut contractor, "n1");
        let told = Notification::Reject(Rejection { offer_id: None, reason, code: None });
        let actions = contractor.handle(T0, &delivery("n1", told));
        assert_eq!(actions == [released("n1")], is_final, "{reason:?}");
        assert_eq!(contractor.engagements.len(), usize::from(!is_final), "{reason:?}");
    }
}

#[test]
fn a_revision_that_comes_too_late_takes_no_award_back() {
    let mut contractor = contractor(|config| config.revise = 1.0);
    let terms = offered(&mut contractor, "n1");
    assert_eq!(only(contractor.handle(T0, &award("n1", 1, &terms))).payload.act(), Act::Confirm);
    let told = Notification::Reject(Rejection { offer_id: None, reason: RejectReason::Late, code: None });
    assert_eq!(contractor.handle(T0, &delivery("n1", told)), [], "the confirmation that waits still goes out");
    contractor.handle(T0, &receipt("n1", Disposition::Committed, 1));
    assert_eq!(contractor.counts().commitments, 1);
}

#[test]
fn an_engagement_whose_end_was_never_heard_is_forgotten() {
    let mut contractor = contractor(|_| {});
    for n in 0..100 {
        contractor.handle(T0, &call(&format!("n{n}"), 1));
    }
    assert_eq!(contractor.engagements.len(), 100);
    // The calls end after 120 s, and a minute is left for stragglers.
    contractor.handle(T0.plus_ms(180_001), &call("later", 1));
    assert_eq!(contractor.engagements.len(), 1);
}

#[test]
fn what_it_does_in_a_negotiation_does_not_depend_on_other_negotiations_or_on_order() {
    let config = |config: &mut ContractorConfig| {
        config.seed = 42;
        (config.refuse, config.silent, config.late, config.revise) = (0.2, 0.1, 0.1, 0.3);
        config.reply_delay_ms = Distribution::Exponential { mean: 40.0 };
    };
    let names: Vec<String> = (0..200).map(|n| format!("n{n}")).collect();
    let run = |names: &mut dyn Iterator<Item = &String>| -> BTreeMap<String, Vec<Action>> {
        let mut contractor = contractor(config);
        names.map(|name| (name.clone(), contractor.handle(T0, &call(name, 1)))).collect()
    };
    let forward = run(&mut names.iter());
    assert_eq!(forward, run(&mut names.iter().rev()));
    let kinds: std::collections::BTreeSet<usize> = forward.values().map(Vec::len).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [0, 1, 2], "the seed shows silence, single and revised offers");
    let mut other = contractor(|c| {
        config(c);
        c.seed = 43;
    });
    let other: Vec<_> = names.iter().map(|name| other.handle(T0, &call(name, 1))).collect();
    assert_ne!(forward.values().cloned().collect::<Vec<_>>(), other);
}

#[test]
fn a_second_round_is_a_new_call() {
    let mut contractor = contractor(|_| {});
    let first = only(contractor.handle(T0, &call("n1", 1)));
    let second = only(contractor.handle(T0, &call("n1", 2)));
    assert_ne!((first.once, &first.payload), (second.once, &second.payload));
    assert_eq!(contractor.engagements.len(), 1);
}

/// Acts and their delays in milliseconds.
type Acts = &'static [(Act, u64)];
type Change = fn(&mut ContractorConfig);

fn contractor(change: impl FnOnce(&mut ContractorConfig)) -> Contractor {
    let mut config = ContractorConfig::default();
    change(&mut config);
    Contractor::try_new(&AgentId::try_new("bob").unwrap(), config).unwrap()
}

fn offered(contractor: &mut Contractor, own: &str) -> Terms {
    let actions = contractor.handle(T0, &call(own, 1));
    actions
        .into_iter()
        .find_map(|action| match action {
            Action::Send(outgoing) => Some(outgoing.payload),
            Action::Defer | Action::Unschedule(_) | Action::Release(_) | Action::Stop => None,
        })
        .map(|payload| if let Payload::Offer(offer) = payload { offer.terms } else { panic!("{payload:?}") })
        .unwrap()
}

fn only(actions: Vec<Action>) -> Outgoing {
    match <[Action; 1]>::try_from(actions).unwrap() {
        [Action::Send(outgoing)] => *outgoing,
        other => panic!("{other:?}"),
    }
}

fn acts(actions: Vec<Action>) -> Vec<(Act, u64)> {
    actions
        .into_iter()
        .map(|action| match action {
            Action::Send(out) => (out.payload.act(), u64::try_from(out.delay.as_millis()).unwrap()),
            Action::Defer | Action::Unschedule(_) | Action::Release(_) | Action::Stop => panic!("{action:?}"),
        })
        .collect()
}

fn released(own: &str) -> Action {
    Action::Release(negotiation(own))
}

fn negotiation(own: &str) -> NegotiationId {
    NegotiationId::try_new(&format!("alice~{own}")).unwrap()
}

fn name(text: &str) -> schemas::ids::AttrName {
    schemas::ids::AttrName::try_new(text).unwrap()
}

fn delivery(own: &str, payload: Notification) -> Delivery {
    let envelope = DeliveryEnvelope {
        msg_id: DeliveryId::new(Lane(0), [1; 16]),
        ts: WireTime(T0),
        from: schemas::delivery::EXCHANGE.to_owned(),
        to: ["agent://bob".to_owned()],
        negotiation: negotiation(own),
        in_reply_to: None,
        traceparent: None,
    };
    Delivery { envelope, payload, receipts: Vec::new() }
}

fn call(own: &str, round: u32) -> Delivery {
    let call = Call {
        round,
        ..Call::new(WireTime(T0.plus_ms(500)), WireTime(T0.plus_ms(120_000)), "high".to_owned(), Digest([0; 32]))
    };
    delivery(own, Notification::Cfp(call))
}

fn award(own: &str, award_no: u32, terms: &Terms) -> Delivery {
    let award = Award {
        offer_id: OfferId(Position { seq: 3, index: 0 }),
        lot: Lot(0),
        award_no: AwardNo(award_no),
        terms: terms.clone(),
        terms_digest: Digest([0; 32]),
        payment: None,
        document: None,
        confirm_by: WireTime(T0.plus_ms(10_000)),
        brief: None,
    };
    delivery(own, Notification::Accept(award))
}

fn bare_receipt(disposition: Disposition, award_no: Option<u32>) -> Receipt {
    let ack_of = MsgId::try_new("m").unwrap();
    let award_no = award_no.map(AwardNo);
    Receipt { award_no, ..Receipt::new(ack_of, disposition) }
}

fn receipt(own: &str, disposition: Disposition, award_no: u32) -> Delivery {
    delivery(own, Notification::Ack(bare_receipt(disposition, Some(award_no))))
}

fn closed(own: &str) -> Delivery {
    delivery(
        own,
        Notification::Closed(Closing {
            outcome: Outcome::Completed,
            digest: Digest([0; 32]),
            detail: None,
            agreement: None,
            conclusion: None,
            tasks: Vec::new(),
        }),
    )
}
