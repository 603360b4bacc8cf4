use schemas::record::Qos;

use super::*;

#[test]
fn what_is_not_settled_is_told_in_the_order_it_was_made_and_can_be_held_again() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 1, ..OutboxConfig::default() });
    for number in [9, 1, 5, 7] {
        bench.add(deliver(number, "bob"), Gate::Open);
    }
    bench.flush();
    bench.ack("bob", 1);
    bench.add(deliver(3, "carol"), Gate::Shut(key()));
    bench.add(Deliver { qos: Qos::BestEffort, ..deliver(4, "carol") }, Gate::Open);
    bench.outbox.hold(Deliver { qos: Qos::BestEffort, ..deliver(6, "carol") }, None, bench.now);
    bench.advance(Duration::from_secs(1));
    assert!(bench.outbox.poll_given_up().is_some(), "its failure is not in the log yet");

    let mut restored = Bench::new(OutboxConfig::default());
    bench.outbox.unsettled().for_each(|deliver| assert!(restored.outbox.hold(deliver.clone(), None, bench.now)));
    assert_eq!(restored.outbox.held(), [id(9), id(5), id(7), id(3), id(6)]);
}

#[test]
fn a_lost_lane_holds_everything_back_and_keeps_the_attempts() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 3, ..OutboxConfig::default() });
    bench.add(deliver(1, "bob"), Gate::Open);
    bench.flush();
    bench.add(deliver(2, "bob"), Gate::Shut(key()));
    bench.add(deliver(3, "bob"), Gate::Open);
    bench.add(deliver(4, "bob"), Gate::Refused);
    bench.add(Deliver { qos: Qos::BestEffort, ..deliver(5, "bob") }, Gate::Open);
    bench.outbox.demote();
    assert_eq!(bench.outbox.held(), [id(1), id(2), id(3), id(4)], "what is sent once is left to the owner");
    bench.outbox.handle_failure_unlogged(id(4), bench.now);
    assert_eq!((bench.outbox.wake_at(), bench.outbox.poll_given_up()), (None, None));
    bench.outbox.handle_register(&key(), false);
    (0..2).for_each(|_| bench.outbox.handle_hello(&agent("bob"), bench.now));
    assert!(bench.flush().is_empty() && bench.outbox.wake_at().is_none(), "nothing leaves, now or later");

    bench.outbox.held().into_iter().for_each(|held| bench.outbox.release(held, Gate::Open));
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(1), id(2), id(3), id(4)])]);
    bench.advance(Duration::from_secs(20));
    bench.flush();
    bench.advance(Duration::from_secs(20));
    assert_eq!(bench.given_up(), Some((id(1), 3, false)));
}

#[test]
fn an_engine_that_stands_by_settles_what_it_hears_and_hands_it_on_until_the_log_says_it() {
    let mut bench = Bench::new(OutboxConfig::default());
    for number in 1..=4 {
        bench.outbox.hold(deliver(number, "bob"), None, bench.now);
    }
    bench.outbox.handle_ack_heard(&agent("mallory"), id(1));
    for number in [2, 3, 4] {
        bench.outbox.handle_ack_heard(&agent("bob"), id(number));
    }
    assert_eq!(bench.outbox.held(), [id(1)]);
    bench.outbox.settle(id(3));
    assert_eq!(bench.outbox.take_heard(), [id(2), id(4)]);
    assert!(bench.outbox.take_heard().is_empty());
}

#[test]
fn an_acknowledgement_that_comes_before_its_delivery_is_folded_settles_it() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.outbox.handle_ack_heard(&agent("bob"), id(1));
    bench.outbox.handle_ack_heard(&agent("mallory"), id(2));
    for number in [1, 2] {
        bench.outbox.hold(deliver(number, "bob"), None, bench.now);
    }
    assert_eq!((bench.outbox.held(), bench.outbox.take_heard()), (vec![id(2)], vec![id(1)]));
    assert!(bench.outbox.recipients[&agent("bob")].order.iter().eq([&id(2)]));
}

#[test]
fn an_owner_remembers_what_was_acknowledged_before_it_folded_the_delivery() {
    let mut bench = Bench::new(OutboxConfig::default());
    assert!(!bench.outbox.handle_ack(&agent("bob"), id(1), bench.now));
    bench.outbox.remember_early(&agent("bob"), id(1));
    assert!(!bench.outbox.hold(deliver(1, "bob"), None, bench.now), "nothing is to be sent");
    assert!(bench.outbox.hold(deliver(2, "bob"), None, bench.now));
    bench.outbox.remember_early(&agent("bob"), id(2));
    assert_eq!((bench.outbox.held(), bench.outbox.take_heard()), (vec![id(2)], vec![id(1)]));
}

#[test]
fn an_early_acknowledgement_settles_only_for_its_own_recipient() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.outbox.handle_ack_heard(&agent("mallory"), id(1));
    bench.outbox.handle_ack_heard(&agent("bob"), id(1));
    bench.outbox.hold(deliver(1, "bob"), None, bench.now);
    bench.outbox.handle_ack_heard(&agent("mallory"), id(1));
    assert_eq!(bench.outbox.take_heard(), [id(1)], "what settled stays so");
}

#[test]
fn only_what_settled_a_delivery_and_is_not_logged_is_handed_on_in_the_order_of_the_ids() {
    let mut bench = Bench::new(OutboxConfig::default());
    for number in [3, 1, 2] {
        bench.outbox.hold(deliver(number, "bob"), None, bench.now);
        bench.outbox.handle_ack_heard(&agent("bob"), id(number));
    }
    bench.outbox.handle_ack_heard(&agent("bob"), id(4));
    bench.outbox.settle(id(2));
    assert_eq!(bench.outbox.take_heard(), [id(1), id(3)]);
    assert!(bench.outbox.take_heard().is_empty());
}

#[test]
fn acknowledgements_that_are_remembered_are_bounded_and_the_oldest_go_first() {
    let mut bench = Bench::new(OutboxConfig::default());
    let total = 5 * ACKS_MAX as u128;
    (0..total).for_each(|number| bench.outbox.handle_ack_heard(&agent("bob"), id(number)));
    assert!(bench.outbox.acks.len() <= 2 * ACKS_MAX);
    for number in [total - 1, total - ACKS_MAX as u128, 0, ACKS_MAX as u128] {
        bench.outbox.hold(deliver(number, "bob"), None, bench.now);
    }
    assert_eq!(bench.outbox.take_heard(), [id(total - ACKS_MAX as u128), id(total - 1)]);
}
