//! How much is under way to an agent, what waits meanwhile, and what is sent again when it connects.

use super::*;

#[test]
fn a_hello_sends_everything_unacknowledged_again_without_counting_it() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 2, ..OutboxConfig::default() });
    for number in [1, 2, 3] {
        bench.add(deliver(number, "bob"), Gate::Open);
    }
    bench.add(deliver(4, "bob"), Gate::Shut(key()));
    bench.add(deliver(5, "carol"), Gate::Open);
    bench.flush();
    bench.ack("bob", 2);
    (0..9).for_each(|_| bench.outbox.handle_hello(&agent("bob"), bench.now));
    let again = [("bob".to_owned(), vec![id(1), id(3)])];
    assert_eq!(bench.flush(), again);
    bench.outbox.handle_hello(&agent("bob"), bench.now);
    bench.advance(Duration::from_millis(499));
    assert!(bench.flush().is_empty(), "it has just been sent everything");
    bench.advance(Duration::from_millis(1));
    assert_eq!(bench.flush(), again, "the later connection gets it as well");
    assert!(bench.outbox.poll_given_up().is_none());
    bench.advance(Duration::from_millis(200));
    assert_eq!(bench.flush().len(), 2, "the counted repeats still come, to bob and to carol");
}

#[test]
fn a_hello_that_is_served_at_once_serves_the_one_that_waited() {
    for acknowledged_first in [false, true] {
        let mut bench = Bench::new(OutboxConfig { retry_base_ms: 500, ..OutboxConfig::default() });
        let hello = |bench: &mut Bench| bench.outbox.handle_hello(&agent("bob"), bench.now);
        bench.add(deliver(1, "bob"), Gate::Open);
        bench.flush();
        hello(&mut bench);
        assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(1)])]);
        bench.now += Duration::from_millis(100);
        hello(&mut bench);
        if acknowledged_first {
            bench.ack("bob", 1);
        }
        // Signals are handled before what is due.
        bench.now += Duration::from_millis(400);
        hello(&mut bench);
        assert!(bench.outbox.greeted.is_empty(), "acknowledged: {acknowledged_first}");
    }
}

#[test]
fn a_hello_sends_no_more_again_than_may_be_under_way_and_the_rest_as_that_is_acknowledged() {
    let mut bench = Bench::new(few_under_way(2));
    let to_bob = |numbers: &[u128]| [("bob".to_owned(), numbers.iter().map(|number| id(*number)).collect())];
    (3..=7).for_each(|number| bench.add(deliver(number, "bob"), Gate::Open));
    bench.outbox.recipients.get_mut(&agent("bob")).unwrap().is_silent = true;
    assert_eq!(bench.flush(), to_bob(&[3, 4, 5, 6, 7]), "nothing waits for one that is silent");
    bench.outbox.handle_hello(&agent("bob"), bench.now);
    bench.add(deliver(8, "bob"), Gate::Open);
    assert_eq!(bench.flush(), to_bob(&[3, 4]));
    assert!(bench.ack("bob", 4) && bench.ack("bob", 6), "what was sent may be acknowledged while it waits");
    assert_eq!(bench.flush(), to_bob(&[5]));
    [3, 5].into_iter().for_each(|number| assert!(bench.ack("bob", number)));
    assert_eq!(bench.flush(), to_bob(&[7, 8]));
}

#[test]
fn what_a_hello_makes_wait_is_sent_once_more_and_no_attempt_is_lost_or_gained() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 2, ..few_under_way(1) });
    (1..=2).for_each(|number| bench.add(deliver(number, "bob"), Gate::Open));
    bench.outbox.recipients.get_mut(&agent("bob")).unwrap().is_silent = true;
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(1), id(2)])]);
    let first = bench.now;
    bench.advance(Duration::from_millis(300));
    bench.outbox.handle_hello(&agent("bob"), bench.now);
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(1)])]);
    bench.advance(Duration::from_secs(3));
    assert!(bench.ack("bob", 1));
    let mut sent_at = Vec::new();
    while bench.outbox.given_up.is_empty() {
        sent_at.extend(bench.flush().iter().map(|_| bench.now));
        assert_eq!(bench.outbox.entries[&id(2)].left_at, first, "the agent has had it since");
        bench.advance_to_next();
    }
    let gap = sent_at[1] - sent_at[0];
    assert!(gap >= Duration::from_secs(4), "as for whoever is slow to acknowledge: {gap:?}");
    assert_eq!((sent_at.len(), bench.given_up()), (2, Some((id(2), 2, false))), "once for the hello, and the repeat");
}

#[test]
fn what_the_bus_did_not_take_after_a_hello_takes_no_attempt_back_and_comes_again_as_an_extra() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 1, ..OutboxConfig::default() });
    bench.add(deliver(1, "bob"), Gate::Open);
    bench.flush();
    bench.outbox.handle_hello(&agent("bob"), bench.now);
    for _ in 0..3 {
        let bundles = bench.outbox.poll_bundles(bench.now, &bench.clock, |_| None);
        bench.outbox.handle_unsent(&bundles[0], bench.now);
        assert!(bench.outbox.entries[&id(1)].may_be_sent(), "the agent has the first");
        bench.advance(Duration::from_millis(508));
    }
    let bundles = bench.outbox.poll_bundles(bench.now, &bench.clock, |_| None);
    bench.outbox.handle_unsent(&bundles[0], bench.now);
    bench.advance(Duration::from_millis(400));
    bench.outbox.handle_hello(&agent("bob"), bench.now);
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(1)])]);
    bench.advance(Duration::from_millis(499));
    assert!(bench.outbox.given_up.is_empty(), "one gap for its acknowledgement");
    bench.advance(Duration::from_millis(200));
    assert_eq!(bench.given_up(), Some((id(1), 1, false)));
}

#[test]
fn no_more_is_under_way_to_an_agent_than_it_acknowledges_and_what_waits_leaves_first() {
    let mut bench = Bench::new(few_under_way(3));
    let to_bob = |numbers: &[u128]| [("bob".to_owned(), numbers.iter().map(|number| id(*number)).collect())];
    (1..=5).for_each(|number| bench.add(deliver(number, "bob"), Gate::Open));
    assert_eq!(bench.flush(), to_bob(&[1, 2, 3]));
    bench.add(deliver(6, "carol"), Gate::Open);
    assert_eq!(bench.flush(), [("carol".to_owned(), vec![id(6)])], "each agent has its own room");
    assert!(bench.ack("bob", 2));
    bench.add(deliver(7, "bob"), Gate::Open);
    assert!(bench.outbox.has_queued());
    assert_eq!(bench.flush(), to_bob(&[4]));
    bench.outbox.handle_hello(&agent("bob"), bench.now);
    assert_eq!(bench.flush(), to_bob(&[1, 3, 4]), "a hello is answered with what is under way");
    assert!(!bench.ack("bob", 5), "never sent");
    [3, 1].into_iter().for_each(|number| assert!(bench.ack("bob", number)));
    assert_eq!(bench.flush(), to_bob(&[5, 7]));
    [4, 5, 7].into_iter().for_each(|number| assert!(bench.ack("bob", number)));
    assert!(!bench.outbox.has_queued() && bench.outbox.recipients.len() == 1);
}

#[test]
fn what_waits_makes_room_for_nothing_and_ends_with_the_deadline_it_serves() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 1, ..few_under_way(1) });
    bench.add(deliver(1, "bob"), Gate::Open);
    bench.add(Deliver { expires: Timestamp::from_ms(1_200), ..deliver(2, "bob") }, Gate::Open);
    bench.add(deliver(3, "bob"), Gate::Open);
    bench.flush();
    bench.advance(Duration::from_millis(250));
    assert_eq!(bench.given_up(), Some((id(2), 0, false)));
    bench.outbox.settle(id(2));
    assert!(bench.flush().is_empty(), "the first is still under way");
    bench.advance_to_next();
    assert_eq!(bench.given_up(), Some((id(1), 1, false)));
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(3)])], "one that is given up makes room");
}

#[test]
fn nothing_waits_for_an_agent_that_is_silent() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 2, ..few_under_way(1) });
    (1..=4).for_each(|number| bench.add(deliver(number, "bob"), Gate::Open));
    let mut gone = Vec::new();
    while gone.len() < 4 {
        let now = bench.now;
        gone.extend(std::iter::from_fn(|| bench.given_up()).map(|(id, ..)| (id, now)));
        bench.flush();
        if gone.len() < 4 {
            bench.advance_to_next();
        }
    }
    assert_eq!((gone[0].0, gone[1].1), (id(1), gone[3].1), "the others are given up together");
    bench.add(deliver(5, "bob"), Gate::Open);
    bench.flush();
    bench.outbox.handle_hello(&agent("bob"), bench.now);
    bench.flush();
    bench.add(deliver(6, "bob"), Gate::Open);
    assert!(bench.flush().is_empty(), "it is heard again");
}

#[test]
fn an_agent_that_acknowledges_others_is_not_silent_when_one_delivery_runs_out_of_attempts() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 1, ..few_under_way(2) });
    (1..=5).for_each(|number| bench.add(deliver(number, "bob"), Gate::Open));
    bench.flush();
    bench.advance(Duration::from_millis(10));
    assert!(bench.ack("bob", 2));
    bench.flush();
    while bench.outbox.given_up.is_empty() {
        bench.advance_to_next();
    }
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(4)])], "one has left its room");
}

#[test]
fn what_waits_for_a_minute_is_given_up() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 100, ..few_under_way(1) });
    bench.add(deliver(1, "bob"), Gate::Open);
    bench.add(deliver(2, "bob"), Gate::Open);
    let began = bench.now;
    while bench.outbox.given_up.is_empty() {
        bench.flush();
        bench.advance_to_next();
    }
    let (waited, given_up) = (bench.now - began, bench.given_up());
    assert_eq!(given_up, Some((id(2), 0, false)));
    assert!(waited > Duration::from_secs(60) && waited < Duration::from_secs(66), "{waited:?}");
}

#[test]
fn what_was_under_way_and_what_waited_starts_over_when_the_lane_comes_back() {
    let mut bench = Bench::new(few_under_way(2));
    (1..=4).for_each(|number| bench.add(deliver(number, "bob"), Gate::Open));
    bench.flush();
    bench.outbox.demote();
    bench.outbox.settle(id(1));
    assert!(bench.flush().is_empty());
    bench.outbox.release_held(|_| Gate::Open);
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(2), id(3)])]);
    assert!(bench.ack("bob", 4), "waits here, and an earlier owner may have sent it");
    assert!(bench.ack("bob", 2) && bench.flush().is_empty());
    assert!(bench.ack("bob", 3) && bench.outbox.len() == 0);
}

#[test]
fn less_is_under_way_to_an_agent_that_is_slow_to_acknowledge_and_more_once_it_is_quick() {
    let mut bench = Bench::new(OutboxConfig { under_way_max: 12, under_way_min: 3, ..OutboxConfig::default() });
    let mut made = 0;
    let mut under_way = Vec::new();
    for (waits_ms, counts) in [(250, [12, 3]), (5, [3, 12])] {
        for (round, count) in [0, 40].into_iter().zip(counts) {
            for _ in 0..round {
                bench.advance(Duration::from_millis(waits_ms));
                std::mem::take(&mut under_way).into_iter().for_each(|number| assert!(bench.ack("bob", number)));
                under_way.extend(numbers(&mut bench, &mut made));
            }
            under_way.extend(numbers(&mut bench, &mut made));
            assert_eq!(under_way.len(), count, "{waits_ms} ms, {round} rounds");
        }
    }
}

/// Keeps twenty more deliveries waiting; the numbers of those that leave.
fn numbers(bench: &mut Bench, made: &mut u128) -> Vec<u128> {
    for _ in 0..20 {
        *made += 1;
        bench.add(deliver(*made, "bob"), Gate::Open);
    }
    let ids = bench.flush().into_iter().flat_map(|(_, ids)| ids);
    ids.map(|left| (1..=*made).find(|number| id(*number) == left).unwrap()).collect()
}

fn few_under_way(count: usize) -> OutboxConfig {
    OutboxConfig { under_way_max: count, under_way_min: 1, ..OutboxConfig::default() }
}
