//! Moves the exchange does not take.

use super::*;

#[test]
fn an_offer_the_exchange_refuses_is_followed_by_the_next_best_or_by_the_end() {
    let (outside, repeated) = ("mandate_violation", "repeated");
    for (fallback, first, refusals, expected) in [
        (Fallback::NextBest, 5, &[outside][..], Some(6)),
        (Fallback::NextBest, 5, &[outside, outside], Some(7)),
        (Fallback::NextBest, 5, &[repeated], Some(4)),
        (Fallback::NextBest, 5, &[outside, repeated], Some(4)),
        // 9 and 7 are refused too: nothing better is left; below 2 nothing worse that it may agree to.
        (Fallback::NextBest, 8, &[outside; 3], Some(6)),
        (Fallback::NextBest, 3, &[repeated; 2], Some(4)),
        // No outcome at all.
        (Fallback::NextBest, 10, &[], Some(9)),
        (Fallback::End, 5, &[outside], None),
        (Fallback::End, 5, &[repeated], None),
        (Fallback::End, 10, &[], None),
    ] {
        let (mut bargainer, _events) = joined_with(&[Move::Offer(first)], fallback);
        let mut said = vec![only(bargainer.handle(T0, &turn(1, "bob", None)))];
        said.extend(refusals.iter().map(|reason| only(bargainer.handle(T0, &not_understood(reason)))));
        let expected = expected.map_or(Payload::End(Reasoned::default()), |outcome| {
            Payload::Offer(Offer { terms: terms(outcome), ..Offer::default() })
        });
        assert_eq!(said.last().unwrap().payload, expected, "{fallback:?} {first} {refusals:?}");
        let mut numbers: Vec<_> = said.iter().map(|message| message.once).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), said.len(), "each is a message of its own");
        assert_eq!(bargainer.handle(T0, &not_understood("out_of_turn")), []);
    }
}

#[test]
fn a_refused_offer_is_no_part_of_the_course() {
    let (mut bargainer, mut events) = joined(&[Move::Offer(9)]);
    bargainer.handle(T0, &turn(1, "bob", None));
    bargainer.handle(T0, &not_understood("mandate_violation"));
    bargainer.handle(T0, &receipt(Disposition::Ok, None, Some(offer_id(2))));
    bargainer.handle(T0, &closing(Outcome::NoAgreement, None));
    let BargainReport::Ended(outcome) = last(&mut events) else { panic!("no end") };
    assert_eq!(outcome.offers, [OfferMade { step: 1, round: 1, party: 1, outcome: 8 }]);
}

#[test]
fn what_was_refused_is_offered_in_no_later_turn() {
    let (mut bargainer, _events) = joined(&[Move::Offer(9), Move::Offer(9)]);
    bargainer.handle(T0, &turn(1, "bob", None));
    bargainer.handle(T0, &not_understood("mandate_violation"));
    let offer = only(bargainer.handle(T0, &turn(3, "bob", None)));
    assert_eq!(offer.payload, Payload::Offer(Offer { terms: terms(8), ..Offer::default() }));
}

#[test]
fn where_repeats_are_forbidden_it_offers_something_else() {
    let (mut bargainer, _events) = scripted(&[Move::Offer(9), Move::Offer(9)]);
    let mut forbidding = rules();
    forbidding["forbid_repeat"] = json!(true);
    bargainer.handle(T0, &call(json!({"bargain": {"parties": ["alice", "bob"], "rules": forbidding}})));
    bargainer.handle(T0, &turn(1, "bob", None));
    let offer = only(bargainer.handle(T0, &turn(3, "bob", None)));
    assert_eq!(offer.payload, Payload::Offer(Offer { terms: terms(8), ..Offer::default() }));
}

#[test]
fn a_refused_acceptance_is_decided_again_without_the_offer() {
    for reason in ["standing", "not_yet_valid", "condition", "mandate_violation"] {
        let (mut bargainer, _events) = joined(&[Move::Accept, Move::Accept]);
        assert_eq!(only(bargainer.handle(T0, &turn(1, "bob", Some((1, "alice", 5))))).payload.act(), Act::Accept);
        // The strategy would accept again; there is nothing to accept.
        let next = only(bargainer.handle(T0, &not_understood(reason)));
        assert_eq!(next.payload, Payload::Offer(Offer { terms: terms(9), ..Offer::default() }), "{reason}");
    }
}

#[test]
fn after_too_many_refusals_in_a_turn_it_ends_the_bargain_and_is_silent() {
    let refused = |bargainer: &mut Bargainer, times: u32| -> Vec<Act> {
        (0..times).map(|_| only(bargainer.handle(T0, &not_understood("condition"))).payload.act()).collect()
    };
    let all = Arc::new(Preferences::try_new(ramp().utilities().to_vec(), 0.0, |_| true).unwrap());
    let (mut bargainer, _events) = bargainer(move |_: &NegotiationId, _: &BargainCall, _: usize| {
        Ok(BargainPlan::new(Arc::clone(&all), Box::new(Scripted::new([Move::Offer(9), Move::Offer(9)]))))
    });
    bargainer.handle(T0, &call(json!({})));
    bargainer.handle(T0, &turn(1, "bob", None));
    assert_eq!(refused(&mut bargainer, 1), [Act::Offer]);
    // They are counted turn by turn.
    bargainer.handle(T0, &turn(3, "bob", None));
    assert_eq!(refused(&mut bargainer, 7), [Act::Offer; 7]);
    assert_eq!(refused(&mut bargainer, 1), [Act::End]);
    assert_eq!(bargainer.handle(T0, &not_understood("condition")), []);
}
