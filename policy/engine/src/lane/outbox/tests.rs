//! Deliveries one by one; `routed` tells what goes to gateways, `standby` what happens while another
//! engine owns the lane, `under_way` how much may be under way to an agent, and what it is sent again when it connects.

mod routed;
mod standby;
mod under_way;

use prometheus::Registry;
use schemas::delivery::{Delivery, Disposition, Receipt};
use schemas::record::Qos;
use schemas::{AwardNo, Digest, Lane, Lot, MsgId, NegotiationId, Timestamp};
use serde_json::json;

use super::fixture::{deliver, id};
use super::*;
use crate::lane::{Bundle, Destination, LogClock};

#[test]
fn a_delivery_nobody_acknowledges_is_repeated_at_growing_gaps_under_one_id_and_then_given_up() {
    let mut bench = Bench::new(OutboxConfig { retry_base_ms: 500, attempts_max: 5, ..OutboxConfig::default() });
    bench.add(deliver(1, "bob"), Gate::Open);
    let mut sent_at = Vec::new();
    while bench.outbox.given_up.is_empty() {
        let ids = bench.flush();
        assert!(ids.iter().all(|sent| sent == &("bob".to_owned(), vec![id(1)])));
        sent_at.extend(ids.iter().map(|_| bench.now));
        bench.advance_to_next();
    }
    assert_eq!(sent_at.len(), 5, "the first and four repeats");
    let gaps: Vec<_> = sent_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] >= Duration::from_millis(500));
    assert!(gaps.windows(2).all(|pair| pair[1] > pair[0]), "{gaps:?}");
    let expected = EngineEvent::DeliveryFailed {
        id: id(1),
        negotiation: NegotiationId::try_new("alice~job").unwrap(),
        to: agent("bob"),
        attempts: 5,
        may_answer: false,
    };
    assert_eq!(bench.outbox.poll_given_up(), Some((id(1), expected)));
    assert_eq!(bench.outbox.len(), 1, "it stays until its failure is in the log");
    bench.outbox.settle(id(1));
    assert_eq!(bench.outbox.len(), 0);
}

#[test]
fn gaps_between_repeats_grow_no_further_than_their_bound() {
    let config = OutboxConfig { retry_base_ms: 500, retry_ms_max: 4_000, attempts_max: 12, ..OutboxConfig::default() };
    // A quarter more for what spreads recipients, and the width of a slot.
    let longest = Duration::from_millis(4_000 + 1_000 + 8);
    let mut bench = Bench::new(config);
    bench.add(deliver(1, "bob"), Gate::Open);
    let mut sent_at = Vec::new();
    while bench.outbox.given_up.is_empty() {
        sent_at.extend(bench.flush().iter().map(|_| bench.now));
        bench.advance_to_next();
    }
    let gaps: Vec<_> = sent_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.len(), 11);
    assert!(gaps.iter().all(|gap| *gap <= longest), "{gaps:?}");
    assert!(gaps[4..].iter().all(|gap| *gap >= Duration::from_millis(4_000)), "the bound is reached: {gaps:?}");
}

#[test]
fn a_call_nobody_waits_for_is_given_up_after_fewer_attempts_than_everything_else() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(Deliver { attempts_max: Some(3), ..deliver(1, "bob") }, Gate::Open);
    bench.add(deliver(2, "carol"), Gate::Open);
    let began = bench.now;
    let mut sent = 0;
    while bench.outbox.given_up.is_empty() {
        sent += bench.flush().iter().filter(|(agent, _)| agent == "bob").count();
        bench.advance_to_next();
    }
    assert_eq!((bench.given_up(), sent), (Some((id(1), 3, true)), 3));
    let took = bench.now - began;
    assert!(took >= Duration::from_millis(3_500) && took <= Duration::from_millis(4_500), "{took:?}");
    assert_eq!(bench.outbox.len(), 2, "the other is still tried");
}

fn counts(bench: &mut Bench) -> Vec<(AgentId, usize)> {
    bench.outbox.backlog(bench.now).into_iter().map(|(agent, backlog)| (agent, backlog.count)).collect()
}

#[test]
fn an_agents_backlog_is_what_waits_and_what_was_given_up_until_it_acknowledges_or_connects() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 1, ..OutboxConfig::default() });
    let give_up = |bench: &mut Bench, number| {
        bench.add(deliver(number, "bob"), Gate::Open);
        bench.flush();
        bench.advance_to_next();
        bench.outbox.settle(id(number));
    };
    (1..=3).for_each(|number| give_up(&mut bench, number));
    let is_given_up = |event: &DeliveryEvent| matches!(event.step, DeliveryStep::GivenUp(_)) && event.trace.is_some();
    let events = bench.outbox.take_events();
    assert!(events.len() == 3 && events.iter().all(is_given_up), "{events:?}");
    bench.add(deliver(4, "bob"), Gate::Open);
    bench.flush();
    assert_eq!(counts(&mut bench), [(agent("bob"), 4)]);
    assert!(bench.ack("bob", 4));
    assert!(bench.outbox.backlog(bench.now).is_empty() && !bench.outbox.has_backlog());
    give_up(&mut bench, 5);
    bench.outbox.handle_hello(&agent("bob"), bench.now);
    assert!(bench.outbox.backlog(bench.now).is_empty(), "who has connected is given another chance");
    give_up(&mut bench, 6);
    assert_eq!(counts(&mut bench), [(agent("bob"), 1)]);
    bench.advance(Duration::from_secs(299));
    assert_eq!(counts(&mut bench), [(agent("bob"), 1)]);
    bench.advance(Duration::from_secs(1));
    assert!(bench.outbox.backlog(bench.now).is_empty(), "so is who has nothing left to acknowledge");
}

#[test]
fn a_failure_that_could_not_be_logged_is_reported_again() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 1, ..OutboxConfig::default() });
    bench.add(deliver(1, "bob"), Gate::Open);
    bench.flush();
    bench.advance_to_next();
    assert!(bench.outbox.poll_given_up().is_some());
    bench.outbox.handle_failure_unlogged(id(1), bench.now);
    assert!(bench.outbox.poll_given_up().is_none());
    bench.advance_to_next();
    assert!(bench.outbox.poll_given_up().is_some());
}

#[test]
fn what_the_bus_did_not_take_is_no_attempt() {
    let mut bench = Bench::new(OutboxConfig { attempts_max: 2, ..OutboxConfig::default() });
    bench.add(deliver(1, "bob"), Gate::Open);
    for _ in 0..10 {
        let bundles = bench.outbox.poll_bundles(bench.now, &bench.clock, |_| None);
        assert_eq!(bundles.len(), 1);
        bench.outbox.handle_unsent(&bundles[0], bench.now);
        bench.advance(Duration::from_millis(508));
    }
    assert_eq!(bench.flush().len(), 1);
    assert!(bench.outbox.poll_given_up().is_none());
}

#[test]
fn nothing_is_repeated_after_the_deadline_it_serves() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(Deliver { expires: Timestamp::from_ms(1_700), ..deliver(1, "bob") }, Gate::Open);
    assert_eq!(bench.flush().len(), 1);
    bench.advance_to_next();
    assert_eq!(bench.flush().len(), 1, "one repeat fits");
    bench.advance_to_next();
    assert!(bench.flush().is_empty());
    assert_eq!(bench.given_up(), Some((id(1), 2, false)));
}

#[test]
fn what_receipts_came_along_with_is_repeated_for_a_minute_whatever_it_asks_for() {
    let turn = |receipts: Vec<Receipt>| Deliver {
        expires: Timestamp::from_ms(1_700),
        receipts: receipts.into(),
        ..deliver(1, "bob")
    };
    let receipt = Receipt::new(MsgId::try_new("m1").unwrap(), Disposition::Ok);
    for (receipts, is_sent) in [(vec![], false), (vec![receipt], true)] {
        let mut bench = Bench::new(OutboxConfig::default());
        bench.add(turn(receipts), Gate::Open);
        assert_eq!(bench.flush().len(), 1);
        // The exchange is away beyond the instant that the delivery serves.
        bench.advance(Duration::from_secs(30));
        assert_eq!(bench.flush().len(), usize::from(is_sent));
        bench.advance(Duration::from_secs(31));
        assert!(bench.flush().is_empty());
        assert_eq!(bench.given_up(), Some((id(1), 1 + u32::from(is_sent), false)));
    }
}

#[test]
fn what_asks_for_nothing_any_more_is_not_sent_and_its_recipient_is_not_blamed() {
    let call = json!({
        "act": "cfp", "round": 1, "reply_by": "1970-01-01T00:00:01.500Z", "ends_by": "1970-01-01T00:01:00.000Z",
        "policy": "high@1", "policy_digest": Digest([7; 32]), "lots": 1
    });
    let call: Arc<Notification> = Arc::new(serde_json::from_value(call).unwrap());
    let receipt = Receipt::new(MsgId::try_new("m1").unwrap(), Disposition::Ok);
    let notice = deliver(2, "bob").told;
    for (told, receipts, is_sent) in [(&call, vec![], false), (&call, vec![receipt], true), (&notice, vec![], true)] {
        let mut bench = Bench::new(OutboxConfig::default());
        let (told, receipts) = (Arc::clone(told), receipts.into());
        bench.add(Deliver { told, receipts, expires: Timestamp::from_ms(1_500), ..deliver(1, "bob") }, Gate::Open);
        bench.advance(Duration::from_secs(1));
        assert_eq!(bench.flush().len(), usize::from(is_sent));
        assert_eq!(bench.given_up(), (!is_sent).then_some((id(1), 0, false)));
        assert_eq!(bench.outbox.unreachable.count(&agent("bob")), 0, "{is_sent}");
    }
}

#[test]
fn a_call_to_a_slow_agent_is_repeated_after_half_of_its_time_and_a_notice_after_an_eighth() {
    let call = json!({
        "act": "cfp", "round": 1, "reply_by": "1970-01-01T00:00:06.000Z", "ends_by": "1970-01-01T00:01:00.000Z",
        "policy": "high@1", "policy_digest": Digest([7; 32]), "lots": 1
    });
    let call: Arc<Notification> = Arc::new(serde_json::from_value(call).unwrap());
    for (told, attempt_ms) in [(call, 3_200), (deliver(2, "bob").told, 800)] {
        let mut bench = Bench::new(OutboxConfig::default());
        bench.add(deliver(1, "bob"), Gate::Open);
        bench.flush();
        bench.now += Duration::from_millis(2_000);
        assert!(bench.ack("bob", 1));
        let expires = Timestamp::from_ms(9_400);
        bench.add(Deliver { told, expires, ..deliver(2, "bob") }, Gate::Open);
        bench.flush();
        let sent = bench.now;
        while bench.flush().is_empty() {
            bench.advance_to_next();
        }
        let gap_ms = (bench.now - sent).as_millis();
        assert!((attempt_ms..=attempt_ms * 5 / 4 + 10).contains(&gap_ms), "{gap_ms} of {attempt_ms}");
    }
}

#[test]
fn an_acknowledgement_counts_only_from_the_recipient_and_only_for_what_was_sent() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(deliver(1, "bob"), Gate::Shut(key()));
    assert!(!bench.ack("bob", 1), "gated: the recipient cannot have seen it");
    bench.outbox.handle_register(&key(), false);
    assert!(!bench.ack("bob", 1), "queued, not sent");
    bench.flush();
    assert!(!bench.ack("mallory", 1));
    assert_eq!(bench.outbox.len(), 1);
    assert!(bench.ack("bob", 1));
    assert!(!bench.ack("bob", 1), "once");
    assert_eq!(bench.outbox.len(), 0);
    bench.advance(Duration::from_secs(10));
    assert!(bench.flush().is_empty());
}

#[test]
fn a_gate_opens_or_refuses_what_waits_for_it() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(deliver(1, "bob"), Gate::Shut(key()));
    bench.add(deliver(2, "bob"), Gate::Open);
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(2)])]);
    bench.outbox.handle_register(&key(), false);
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(1)])]);

    bench.add(deliver(3, "bob"), Gate::Shut(key()));
    bench.outbox.handle_register(&key(), true);
    bench.add(deliver(4, "bob"), Gate::Refused);
    assert!(bench.flush().is_empty());
    let given_up: Vec<_> = std::iter::from_fn(|| bench.given_up()).collect();
    assert_eq!(given_up, [(id(3), 0, false), (id(4), 0, false)]);
}

#[test]
fn deliveries_that_leave_together_share_one_message_per_agent_within_bounds() {
    let mut bench = Bench::new(OutboxConfig { bundle_deliveries_max: 2, ..OutboxConfig::default() });
    for (number, to) in [(1, "bob"), (2, "carol"), (3, "bob"), (4, "bob")] {
        bench.add(deliver(number, to), Gate::Open);
    }
    let expected =
        [("bob".to_owned(), vec![id(1), id(3)]), ("carol".to_owned(), vec![id(2)]), ("bob".to_owned(), vec![id(4)])];
    assert_eq!(bench.flush(), expected);

    let mut one = Bench::new(OutboxConfig::default());
    one.add(deliver(1, "bob"), Gate::Open);
    let size = one.outbox.poll_bundles(one.now, &one.clock, |_| None)[0].payload.len();
    for (bundle_bytes_max, messages) in [(1, 4), (2 * size - 2, 4), (2 * size - 1, 2), (4 * size, 1)] {
        let mut bench = Bench::new(OutboxConfig { bundle_bytes_max, ..OutboxConfig::default() });
        (1..=4).for_each(|number| bench.add(deliver(number, "bob"), Gate::Open));
        let bundles = bench.outbox.poll_bundles(bench.now, &bench.clock, |_| None);
        assert_eq!(bundles.len(), messages, "at most {bundle_bytes_max} bytes");
        assert!(messages == 4 || bundles.iter().all(|bundle| bundle.payload.len() <= bundle_bytes_max));
    }
}

#[test]
fn a_repeat_is_the_same_document_byte_for_byte() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(deliver(1, "bob"), Gate::Open);
    bench.add(deliver(2, "bob"), Gate::Open);
    let first = bench.outbox.poll_bundles(bench.now, &bench.clock, |_| None);
    bench.advance_to_next();
    let second = bench.outbox.poll_bundles(bench.now, &bench.clock, |_| None);
    assert_eq!(first[0].payload, second[0].payload);
}

#[test]
fn best_effort_is_sent_once_and_forgotten() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(Deliver { qos: Qos::BestEffort, ..deliver(1, "bob") }, Gate::Open);
    assert_eq!(bench.flush().len(), 1);
    assert_eq!((bench.outbox.len(), bench.outbox.wake_at()), (0, None));
}

#[test]
fn of_those_who_are_told_of_a_bid_the_journal_learns_it_from_its_bidder() {
    let told = |leads| {
        let bid =
            json!({"bid_no": 1, "price": 5, "leads": leads, "bidders": 2, "reply_by": "2026-11-20T22:10:00.000Z"});
        Notification::Inform(ProgressReport::Bid(Box::new(serde_json::from_value(bid).unwrap())))
    };
    assert_eq!([true, false].map(|leads| is_kept(&told(leads))), [true, false]);
}

#[test]
fn one_silent_agent_cannot_fill_the_outbox() {
    let mut bench = Bench::new(OutboxConfig { per_agent_max: 3, in_flight_max: 5, ..OutboxConfig::default() });
    for number in 1..=5 {
        bench.add(deliver(number, "bob"), Gate::Open);
    }
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(1), id(2), id(3)])]);
    let given_up: Vec<_> = std::iter::from_fn(|| bench.outbox.poll_given_up()).map(|(id, _)| id).collect();
    assert_eq!(given_up, [id(4), id(5)]);
    assert!(bench.outbox.is_full());
    given_up.iter().for_each(|id| bench.outbox.settle(*id));
    assert!(!bench.outbox.is_full());
}

#[test]
fn a_failure_that_is_logged_waits_for_its_record_and_leaves_room_for_it() {
    let mut bench = Bench::new(OutboxConfig { per_agent_max: 1, in_flight_max: 2, ..OutboxConfig::default() });
    for number in 1..=3 {
        bench.add(deliver(number, "bob"), Gate::Open);
    }
    while let Some((id, _)) = bench.outbox.poll_given_up() {
        assert!(bench.outbox.is_full());
        bench.outbox.handle_failure_logged(id);
    }
    assert!(!bench.outbox.is_full(), "two wait for their records, and reading on settles them");
    assert_eq!(bench.outbox.len(), 3);
    bench.outbox.settle(id(2));
    bench.outbox.demote();
    assert_eq!(bench.outbox.held(), [id(1), id(3)], "under an older epoch the record settles nothing");
    assert!(bench.outbox.is_full());
}

#[test]
fn however_many_failures_wait_for_their_records_all_come_back_with_the_lane() {
    let mut bench = Bench::new(OutboxConfig { per_agent_max: 0, in_flight_max: 2, ..OutboxConfig::default() });
    (1..=5).for_each(|number| bench.add(deliver(number, "bob"), Gate::Open));
    while let Some((id, _)) = bench.outbox.poll_given_up() {
        bench.outbox.handle_failure_logged(id);
    }
    assert!(!bench.outbox.is_full(), "reading on settles them");
    bench.outbox.demote();
    assert_eq!(bench.outbox.held(), (1..=5).map(id).collect::<Vec<_>>());
}

#[test]
fn what_is_held_leaves_in_the_order_it_was_made_and_may_be_acknowledged_before() {
    let mut bench = Bench::new(OutboxConfig::default());
    for number in [9, 1, 5] {
        bench.outbox.hold(deliver(number, "bob"), None, bench.now);
    }
    assert!(bench.flush().is_empty());
    assert!(bench.ack("bob", 1), "an earlier owner may have sent it");
    assert_eq!(bench.outbox.held(), [id(9), id(5)]);
    for held in bench.outbox.held() {
        bench.outbox.release(held, Gate::Open);
    }
    assert_eq!(bench.flush(), [("bob".to_owned(), vec![id(9), id(5)])]);
}

#[test]
fn what_is_remembered_per_agent_stays_in_proportion_to_what_waits() {
    let mut bench = Bench::new(OutboxConfig::default());
    bench.add(deliver(0, "bob"), Gate::Open);
    for number in 1..1000 {
        bench.add(deliver(number, "bob"), Gate::Open);
        bench.flush();
        assert!(bench.ack("bob", number));
    }
    assert!(bench.outbox.recipients[&agent("bob")].order.len() < 32);
    assert!(bench.ack("bob", 0));
    assert!(bench.outbox.recipients.is_empty());
}

#[test]
fn a_timer_never_fires_before_its_time_and_at_most_a_slot_later() {
    let start = Instant::now();
    let mut schedule = RetrySchedule::new(start);
    let id = DeliveryId::new(Lane(0), [1; 16]);
    for after_us in [1_u64, 7_999, 8_000, 8_001, 500_000, 512_345] {
        let at = start + Duration::from_micros(after_us);
        let slot = schedule.arm(id, at);
        let end = schedule.next().unwrap();
        assert!(end >= at && end <= at + Duration::from_millis(SLOT_MS), "{after_us}");
        assert_eq!(schedule.poll(end - Duration::from_micros(1)), None);
        assert_eq!(schedule.poll(end), Some((slot, vec![id])));
    }
    assert_eq!(schedule.next(), None);
}

/// An outbox with a clock of its own. Log time is one second at the start.
struct Bench {
    outbox: Outbox,
    clock: LogClock,
    now: Instant,
}

impl Bench {
    fn new(config: OutboxConfig) -> Self {
        let now = Instant::now();
        let mut clock = LogClock::new(now);
        clock.observe(Timestamp::from_ms(1_000), now);
        let metrics = Arc::new(EngineMetrics::new(&Registry::new()).unwrap());
        Self { outbox: Outbox::new(config, metrics, now), clock, now }
    }

    fn add(&mut self, deliver: Deliver, gate: Gate) {
        let id = deliver.id;
        self.outbox.hold(deliver, None, self.now);
        self.outbox.release(id, gate);
    }

    fn ack(&mut self, from: &str, number: u128) -> bool {
        self.outbox.handle_ack(&agent(from), id(number), self.now)
    }

    /// Id, attempts and whether it may still be answered, of the next delivery that was given up.
    fn given_up(&mut self) -> Option<(DeliveryId, u32, bool)> {
        let (_, event) = self.outbox.poll_given_up()?;
        let EngineEvent::DeliveryFailed { id, attempts, may_answer, .. } = event else { panic!("{event:?}") };
        Some((id, attempts, may_answer))
    }

    /// Recipient and ids of each message, as the recipient reads them.
    fn flush(&mut self) -> Vec<(String, Vec<DeliveryId>)> {
        let read = |bundle: Bundle| {
            let deliveries: Vec<Delivery> = serde_json::from_slice(&bundle.payload).unwrap();
            let Destination::Inbox(agent) = bundle.destination else { panic!("{bundle:?}") };
            (agent.to_string(), deliveries.iter().map(|delivery| delivery.envelope.msg_id).collect())
        };
        self.outbox.poll_bundles(self.now, &self.clock, |_| None).into_iter().map(read).collect()
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.outbox.handle_time(self.now, self.clock.log_time(self.now));
    }

    fn advance_to_next(&mut self) {
        let next = self.outbox.wake_at().expect("something is scheduled");
        self.advance(next - self.now);
    }
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn key() -> RegisterKey {
    RegisterKey::Award(NegotiationId::try_new("alice~job").unwrap(), Lot(0), AwardNo(1))
}
