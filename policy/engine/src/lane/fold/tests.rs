use std::sync::Arc;

use schemas::Lane;

use super::*;

#[test]
fn only_a_record_of_one_negotiation_says_which_is_to_blame() {
    let abort = |own: &str| Entry::Engine {
        epoch: 1,
        event: EngineEvent::Abort { negotiation: negotiation(own), code: "internal".to_owned() },
    };
    let claim = Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } };
    let blamed = |entries: &[Entry]| sole_negotiation(&Record::new("test", entries.to_vec())).cloned();
    assert_eq!(blamed(&[]), None);
    assert_eq!(blamed(&[Entry::Tick, claim.clone()]), None);
    assert_eq!(blamed(&[abort("a"), Entry::Tick, claim, abort("a")]), Some(negotiation("a")));
    assert_eq!(blamed(&[abort("a"), abort("b"), abort("a")]), None);
}

fn negotiation(own: &str) -> NegotiationId {
    NegotiationId::try_new(&format!("alice~{own}")).unwrap()
}

fn ready() -> (Instant, LogClock, Ticker) {
    let start = Instant::now();
    let mut clock = LogClock::new(start);
    clock.observe(Timestamp::from_ms(1000), start);
    (start, clock, Ticker::new(start))
}

#[test]
fn the_highest_lower_bound_is_the_estimate() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut clock = LogClock::new(start);
    clock.observe(Timestamp::from_ms(1000), at(10));
    clock.observe(Timestamp::from_ms(1002), at(15));
    assert_eq!(clock.log_time(at(15)), Timestamp::from_ms(1005), "a record read late does not set the clock back");
    clock.observe(Timestamp::from_ms(1020), at(20));
    assert_eq!(clock.log_time(at(21)), Timestamp::from_ms(1021));
    assert_eq!(clock.instant_of(Timestamp::from_ms(1030)), at(30));
    clock.reset(Timestamp::from_ms(500), at(30));
    assert_eq!(clock.log_time(at(31)), Timestamp::from_ms(501));
}

#[test]
fn one_tick_is_due_after_the_deadline_and_none_while_it_is_outstanding() {
    let (start, mut clock, mut ticker) = ready();
    let deadline = Some(Timestamp::from_ms(1100));
    assert!(!ticker.poll_tick(None, &clock, start));
    assert!(!ticker.poll_tick(deadline, &clock, start + Duration::from_millis(100)));
    let late = start + Duration::from_millis(101);
    assert_eq!(ticker.wake_at(deadline, &clock), Some(late));
    assert!(ticker.poll_tick(deadline, &clock, late));
    assert!(!ticker.poll_tick(deadline, &clock, late));
    ticker.handle_append(Some(7), 6, late);
    assert_eq!(ticker.wake_at(deadline, &clock), None);
    ticker.handle_fold(7, Timestamp::from_ms(1101), Some(Timestamp::from_ms(1200)), &mut clock, late);
    assert_eq!(ticker.wake_at(Some(Timestamp::from_ms(1200)), &clock), Some(start + Duration::from_millis(201)));
}

#[test]
fn a_tick_that_came_early_corrects_the_clock_and_is_sent_again() {
    let (start, mut clock, mut ticker) = ready();
    let deadline = Some(Timestamp::from_ms(1100));
    let late = start + Duration::from_millis(101);
    assert!(ticker.poll_tick(deadline, &clock, late));
    ticker.handle_append(Some(7), 6, late);
    // The log's clock had been set back by 51 ms.
    ticker.handle_fold(7, Timestamp::from_ms(1050), deadline, &mut clock, late);
    assert_eq!(ticker.wake_at(deadline, &clock), Some(late + Duration::from_millis(51)));
}

#[test]
fn a_tick_that_was_not_appended_is_tried_again_after_a_gap() {
    let (start, clock, mut ticker) = ready();
    let deadline = Some(Timestamp::from_ms(900));
    assert!(ticker.poll_tick(deadline, &clock, start + MARGIN));
    ticker.handle_append(None, 6, start + MARGIN);
    assert_eq!(ticker.wake_at(deadline, &clock), Some(start + MARGIN + REFUSED_GAP));
}

#[test]
fn a_clock_that_goes_back_or_is_far_off_is_named_with_its_remedy() {
    // Time and stamp of three records in a row, the engine's own clock when they were stored, in seconds, and whether it had
    // just appended them.
    for (time, stamped, own, is_own, expected) in [
        (100, 100, 100, true, None),
        (101, 100, 100, true, None),
        (102, 100, 100, true, Some("went back by 2000 ms")),
        (100, 100, 105, true, None),
        (100, 100, 106, true, Some("6000 ms behind")),
        (100, 100, 94, true, Some("6000 ms ahead of")),
        (100, 100, 106, false, None),
    ] {
        let config = ClockConfig { now: Arc::new(move || Timestamp::from_ms(own * 1000)), ..ClockConfig::default() };
        let mut watch = ClockHealth::default();
        for seq in 1..=SKEWED_MIN.into() {
            let record = read(seq, time, stamped);
            if is_own {
                watch.handle_stored(record.seq, &config);
            }
            watch.observe(&record, &config);
        }
        let faults: Vec<_> = watch.faults(&config).collect();
        assert_eq!(faults.len(), usize::from(expected.is_some()), "{faults:?}");
        assert!(expected.is_none_or(|expected| faults[0].contains(expected)), "{faults:?}");
    }
}

#[test]
fn one_record_that_was_held_up_is_no_skew_and_a_good_one_ends_it() {
    let config = ClockConfig { now: Arc::new(|| Timestamp::from_ms(100_000)), ..ClockConfig::default() };
    let mut watch = ClockHealth::default();
    let stamps = [(90, false), (90, false), (100, false), (90, false), (90, false), (90, true), (100, false)];
    for (seq, (stamped, is_faulty)) in (1..).zip(stamps) {
        // The record may be read before its append is answered, and is answered once for each of its entries.
        watch.observe(&read(seq, stamped, stamped), &config);
        watch.handle_stored(seq, &config);
        watch.handle_stored(seq, &config);
        assert_eq!(watch.faults(&config).count(), usize::from(is_faulty));
    }
}

fn read(seq: u64, time_s: u64, stamped_s: u64) -> LogRecord {
    let [time, stamped] = [time_s, stamped_s].map(|s| Timestamp::from_ms(s * 1000));
    LogRecord { lane: Lane(0), seq, time, stamped, bytes: bytes::Bytes::new() }
}
