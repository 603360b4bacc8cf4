use schemas::{AwardNo, Lot};

use super::*;

/// Log time of every record.
const AT: Timestamp = Timestamp(1);

#[test]
fn a_write_that_comes_too_late_lets_nothing_out_and_leads_to_no_abort() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    registrar.add(write(&award(1)), None, 10, AT);
    registrar.add(write(&end(1)), Some(award(1)), 20, AT);
    poll(&mut registrar, now);
    assert_eq!(registrar.handle_expired(&award(1)), WriteOutcome::RefusedAgain(vec![award(1), end(1)]));
    assert_eq!((registrar.gate(Some(&award(1))), registrar.gate(Some(&end(1)))), (Gate::Refused, Gate::Refused));
    assert_eq!((registrar.len(), registrar.registered_through(40)), (0, 40), "it is answered");
    assert_eq!(poll(&mut registrar, now), None);
}

#[test]
fn a_write_starts_after_the_one_it_follows_and_opens_its_gate_when_answered() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    let (award, end) = (award(1), end(1));
    registrar.add(write(&award), None, 1, AT);
    registrar.add(write(&end), Some(award.clone()), 1, AT);
    assert_eq!(registrar.gate(Some(&end)), Gate::Shut(end.clone()));
    assert_eq!(poll(&mut registrar, now), Some(write(&award)));
    assert_eq!(poll(&mut registrar, now), None, "the end waits for the award");
    assert_eq!(registrar.handle_answer(&award, &Ok(Registered::Same), now), WriteOutcome::Written);
    assert_eq!(registrar.gate(Some(&award)), Gate::Open);
    assert_eq!(poll(&mut registrar, now), Some(write(&end)));
    assert_eq!(registrar.handle_answer(&end, &Ok(Registered::Written), now), WriteOutcome::Written);
    assert_eq!((registrar.len(), registrar.gate(Some(&end))), (0, Gate::Open));
}

#[test]
fn another_value_refuses_the_gate_for_good() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    registrar.add(write(&award(1)), None, 1, AT);
    poll(&mut registrar, now);
    let answer = registrar.handle_answer(&award(1), &Ok(Registered::Different(Bytes::new())), now);
    assert_eq!(answer, WriteOutcome::Refused(negotiation(), vec![award(1)]));
    assert_eq!(registrar.gate(Some(&award(1))), Gate::Refused);
    registrar.add(write(&award(1)), None, 1, AT);
    assert_eq!(poll(&mut registrar, now), None, "a refused key is not written again");
}

#[test]
fn however_many_keys_are_refused_each_stays_refused_until_nothing_needs_it() {
    let mut registrar = Registrar::default();
    (1..=5000).for_each(|number| registrar.refuse(award(number), 1, number != 1));
    let gates: Vec<_> = (1..=5000).map(|number| registrar.gate(Some(&award(number)))).collect();
    assert!(gates.iter().all(|gate| *gate == Gate::Refused));
    registrar.forget_refused(|key| *key == award(2));
    assert_eq!(registrar.refused(), [award(1), award(2)], "one that is needed, and one whose abort is not logged");
}

#[test]
fn what_follows_a_refused_key_is_refused_with_it_and_never_written() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    registrar.add(write(&award(1)), None, 1, AT);
    registrar.add(write(&end(1)), Some(award(1)), 2, AT);
    registrar.add(write(&closed()), Some(end(1)), 2, AT);
    poll(&mut registrar, now);
    let answer = registrar.handle_answer(&award(1), &Ok(Registered::Different(Bytes::new())), now);
    assert_eq!(answer, WriteOutcome::Refused(negotiation(), vec![award(1), end(1), closed()]));
    assert_eq!(registrar.gate(Some(&closed())), Gate::Refused);
    registrar.add(write(&award(2)), Some(end(1)), 3, AT);
    assert_eq!(registrar.gate(Some(&award(2))), Gate::Refused, "one that comes later, too");
    assert_eq!(poll(&mut registrar, now), None);
    assert_eq!((registrar.len(), registrar.registered_through(9)), (0, 0), "not answered before the abort is logged");
    registrar.handle_abort_logged(&negotiation());
    assert_eq!(registrar.registered_through(9), 9);
    assert_eq!(registrar.refused(), [award(1), award(2), end(1), closed()], "for the checkpoint");
}

#[test]
fn a_checkpoint_written_before_the_abort_is_logged_lets_nothing_out_that_follows() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    registrar.add(write(&award(1)), None, 1, AT);
    registrar.add(write(&closed()), Some(award(1)), 1, AT);
    poll(&mut registrar, now);
    registrar.handle_answer(&award(1), &Ok(Registered::Different(Bytes::new())), now);
    let mut restored = Registrar::default();
    registrar.refused().into_iter().for_each(|key| restored.refuse(key, 0, true));
    registrar.pending().into_iter().for_each(|pending| restored.restore(pending));
    assert_eq!(restored.gate(Some(&closed())), Gate::Refused);
    assert_eq!(poll(&mut restored, now), Some(write(&award(1))), "to be refused again, and lead to the abort");
    assert_eq!(poll(&mut restored, now), None);
}

#[test]
fn an_unknown_outcome_keeps_the_gate_shut_and_is_tried_again_at_growing_gaps() {
    let (mut registrar, mut now) = (Registrar::default(), Instant::now());
    registrar.add(write(&award(1)), None, 1, AT);
    let mut gap = RETRY_GAPS.base;
    for _ in 0..8 {
        assert_eq!(poll(&mut registrar, now), Some(write(&award(1))));
        let answer = registrar.handle_answer(&award(1), &Err(BusError::Unknown("no leader".into())), now);
        assert_eq!(answer, WriteOutcome::Retried);
        assert_eq!(registrar.gate(Some(&award(1))), Gate::Shut(award(1)));
        assert_eq!(poll(&mut registrar, now), None);
        assert_eq!(registrar.wake_at(), Some(now + gap));
        now += gap;
        gap = (gap * 2).min(RETRY_GAPS.max);
    }
}

#[test]
fn no_more_than_the_bound_is_in_flight() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    for number in 0..=u32::try_from(WRITES_IN_FLIGHT_MAX).unwrap() {
        registrar.add(write(&award(number)), None, 1, AT);
    }
    let started = std::iter::from_fn(|| poll(&mut registrar, now)).count();
    assert_eq!(started, WRITES_IN_FLIGHT_MAX);
    registrar.handle_answer(&award(0), &Ok(Registered::Written), now);
    assert!(poll(&mut registrar, now).is_some());
}

#[test]
fn two_values_for_one_key_let_nothing_out_whichever_is_written() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    assert!(registrar.add(write(&award(1)), None, 1, AT).is_empty());
    assert!(registrar.add(write(&award(1)), None, 1, AT).is_empty(), "the same value is no other");
    poll(&mut registrar, now);
    let other = Write { key: award(1), value: Bytes::from_static(b"another") };
    assert_eq!(registrar.add(other, None, 2, AT), [award(1)]);
    assert_eq!(registrar.gate(Some(&award(1))), Gate::Refused);
    registrar.handle_answer(&award(1), &Ok(Registered::Written), now);
    assert_eq!(registrar.gate(Some(&award(1))), Gate::Refused);
    assert_eq!(registrar.registered_through(9), 1, "not answered before the abort is logged");
    assert_eq!((registrar.len(), registrar.refused()), (0, vec![award(1)]), "a checkpoint keeps the refusal");
}

#[test]
fn writes_are_registered_up_to_the_record_before_the_first_that_is_not_answered() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    assert_eq!(registrar.registered_through(40), 40, "nothing is pending");
    for (number, seq) in [(1, 10), (2, 20), (3, 20), (4, 30)] {
        registrar.add(write(&award(number)), None, seq, AT);
        assert!(poll(&mut registrar, now).is_some());
    }
    let expected = [(3, 9), (1, 19), (4, 19), (2, 40)];
    for (number, through) in expected {
        registrar.handle_answer(&award(number), &Ok(Registered::Written), now);
        assert_eq!(registrar.registered_through(40), through, "after {number}");
    }
}

#[test]
fn a_refusal_counts_as_an_answer_only_once_the_abort_is_logged() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    registrar.add(write(&award(1)), None, 10, AT);
    poll(&mut registrar, now);
    registrar.handle_answer(&award(1), &Ok(Registered::Different(Bytes::new())), now);
    assert_eq!(registrar.registered_through(40), 9);
    assert_eq!((registrar.refused(), registrar.pending()), (vec![], vec![pending(1, 10, true)]));
    registrar.handle_abort_logged(&NegotiationId::try_new("bob~other").unwrap());
    assert_eq!(registrar.registered_through(40), 9, "another negotiation's");
    registrar.handle_abort_logged(&negotiation());
    assert_eq!(registrar.registered_through(40), 40);
    assert_eq!((registrar.refused(), registrar.pending()), (vec![award(1)], vec![]));
    assert_eq!(registrar.gate(Some(&award(1))), Gate::Refused);
}

#[test]
fn an_engine_that_stands_by_drops_what_the_owner_says_is_answered() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    registrar.add(write(&award(1)), None, 10, AT);
    registrar.add(write(&end(1)), Some(award(1)), 20, AT);
    registrar.add(write(&award(2)), None, 20, AT);
    registrar.settle_through(9);
    assert_eq!(registrar.len(), 3);
    registrar.settle_through(10);
    assert_eq!((registrar.len(), registrar.gate(Some(&award(1)))), (2, Gate::Open));
    assert_eq!(std::iter::from_fn(|| poll(&mut registrar, now)).count(), 2, "the end waits for nothing now");
    for number in 3..1000 {
        registrar.add(write(&award(number)), None, u64::from(number) * 10, AT);
        registrar.settle_through(u64::from(number) * 10);
    }
    assert!(registrar.startable.len() <= 2 * STALE_SLACK && registrar.order.is_empty() && registrar.len() == 0);
}

#[test]
fn what_an_abort_leaves_in_doubt_is_settled_by_its_own_answer_alone() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    registrar.add(write(&award(1)), None, 10, AT);
    registrar.add(write(&end(1)), Some(award(1)), 20, AT);
    registrar.handle_abort_logged(&negotiation());
    registrar.add(write(&closed()), None, 30, AT);
    registrar.settle_through(30);
    assert_eq!(registrar.gate(Some(&award(1))), Gate::Shut(award(1)), "the owner was refused one of them");
    assert_eq!(registrar.gate(Some(&closed())), Gate::Open, "asked for by the abort itself");
    poll(&mut registrar, now);
    let answer = registrar.handle_answer(&award(1), &Ok(Registered::Different(Bytes::new())), now);
    assert_eq!(answer, WriteOutcome::RefusedAgain(vec![award(1), end(1)]), "the abort is in the log already");
    assert_eq!(registrar.gate(Some(&end(1))), Gate::Refused);
    assert_eq!((poll(&mut registrar, now), registrar.len()), (None, 0));
}

#[test]
fn a_lost_lane_starts_no_write_twice_and_a_regained_one_starts_all_that_are_left() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    for number in 1..=3 {
        registrar.add(write(&award(number)), None, u64::from(number), AT);
    }
    registrar.add(write(&end(2)), Some(award(2)), 4, AT);
    assert_eq!(poll(&mut registrar, now), Some(write(&award(1))));
    assert_eq!(poll(&mut registrar, now), Some(write(&award(2))));
    registrar.handle_answer(&award(2), &Err(BusError::Unknown("no leader".into())), now);
    registrar.demote();
    assert_eq!(registrar.wake_at(), None);
    registrar.handle_answer(&award(1), &Ok(Registered::Written), now);
    let left: Vec<_> = std::iter::from_fn(|| poll(&mut registrar, now)).collect();
    assert_eq!(left, [write(&award(2)), write(&award(3))], "the first is in flight, the end waits");
    registrar.handle_answer(&award(2), &Ok(Registered::Same), now);
    assert_eq!(poll(&mut registrar, now), Some(write(&end(2))));
}

#[test]
fn what_is_pending_and_refused_survives_a_checkpoint() {
    let (mut registrar, now) = (Registrar::default(), Instant::now());
    registrar.refuse(award(9), 1, false);
    registrar.handle_abort_logged(&negotiation());
    registrar.add(write(&award(1)), None, 10, Timestamp(1_000_000));
    registrar.add(write(&end(1)), Some(award(1)), 20, Timestamp(2_000_000));
    let mut restored = Registrar::default();
    registrar.refused().into_iter().for_each(|key| restored.refuse(key, 0, true));
    registrar.pending().into_iter().for_each(|pending| restored.restore(pending));
    assert_eq!((restored.refused(), restored.pending()), (registrar.refused(), registrar.pending()));
    let recorded: Vec<_> = restored.pending().into_iter().map(|pending| (pending.write.key, pending.at)).collect();
    let as_added = [(award(1), Timestamp(1_000_000)), (end(1), Timestamp(2_000_000))];
    assert_eq!(recorded, as_added, "the time of its record says whether an entry of its time may have been removed");
    assert_eq!(restored.registered_through(40), 9);
    assert_eq!(restored.gate(Some(&award(9))), Gate::Refused);
    assert_eq!(std::iter::from_fn(|| poll(&mut restored, now)).collect::<Vec<_>>(), [write(&award(1))]);
}

fn poll(registrar: &mut Registrar, now: Instant) -> Option<Write> {
    registrar.poll_write(now).map(|(write, _)| write)
}

fn pending(number: u32, seq: u64, is_contested: bool) -> PendingWrite {
    PendingWrite { write: write(&award(number)), after: None, seq, at: AT, is_contested }
}

fn closed() -> RegisterKey {
    RegisterKey::Closed(negotiation())
}

fn negotiation() -> NegotiationId {
    NegotiationId::try_new("alice~job").unwrap()
}

fn award(number: u32) -> RegisterKey {
    RegisterKey::Award(negotiation(), Lot(0), AwardNo(number))
}

fn end(number: u32) -> RegisterKey {
    RegisterKey::AwardEnd(negotiation(), Lot(0), AwardNo(number))
}

fn write(key: &RegisterKey) -> Write {
    Write { key: key.clone(), value: Bytes::from(key.to_string()) }
}
