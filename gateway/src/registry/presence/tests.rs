//! Presence as a table: what is heard when, and who is found absent.

use schemas::control::{LEASE_MS_MIN, Registration};
use schemas::presence::REPORT_PERIOD_MS;

use super::*;
use crate::registry::presence::CUT_OFF_MS;

/// The lease of every agent here.
const LEASE_MS: u64 = LEASE_MS_MIN as u64;
/// When every table here begins to listen.
const BEGIN_MS: u64 = 1_000;

#[test]
fn an_agent_is_present_for_exactly_its_lease_after_it_was_last_heard() {
    let mut bench = Bench::new(&["bob"]);
    bench.listen_until(BEGIN_MS + LEASE_MS - 1);
    assert!(bench.is_present("bob"), "new, and so heard");
    bench.hear("bob", PresenceSignal::Here);
    bench.listen_until(BEGIN_MS + 2 * LEASE_MS - 2);
    assert!(bench.is_present("bob"));
    bench.listen_until(BEGIN_MS + 2 * LEASE_MS - 1);
    assert!(!bench.is_present("bob"));
    assert_eq!(bench.table.present_len(), 0);
    bench.hear("bob", PresenceSignal::Hello);
    assert!(bench.is_present("bob"));
    assert_eq!(bench.table.present_len(), 1);
}

#[test]
fn a_lease_ends_in_time_although_nobody_has_swept() {
    let mut bench = Bench::new(&["bob"]);
    for ms in (BEGIN_MS..=BEGIN_MS + LEASE_MS).step_by(500) {
        bench.now_ms = ms;
        bench.table.handle_answer(ms);
    }
    assert!(!bench.is_present("bob"));
    assert_eq!(bench.reached(), ["bob"], "still on its list");
    bench.table.sweep(bench.now_ms);
    assert_eq!((bench.reached(), bench.absent()), (vec![], vec!["bob".to_owned()]));
}

#[test]
fn each_way_of_hearing_counts_from_when_the_agent_spoke() {
    let half = LEASE_MS / 2;
    for (heard, is_present_after_ms, is_reported) in [
        (PresenceSignal::Here, LEASE_MS - 1, true),
        (PresenceSignal::Hello, LEASE_MS - 1, false),
        (PresenceSignal::Reported, LEASE_MS - 1, false),
    ] {
        let mut bench = Bench::new(&["bob"]);
        bench.listen_until(BEGIN_MS + half);
        bench.hear("bob", heard);
        assert_eq!(bench.table.heard_here(BEGIN_MS), if is_reported { vec![agent("bob")] } else { vec![] });
        bench.listen_until(BEGIN_MS + half + is_present_after_ms);
        assert!(bench.is_present("bob"), "{heard:?}");
        bench.listen_until(BEGIN_MS + half + LEASE_MS);
        assert!(!bench.is_present("bob"), "{heard:?}");
    }
}

#[test]
fn a_report_makes_no_lease_longer_than_the_agent_can_have_spoken_ago() {
    let mut bench = Bench::new(&[]);
    bench.register("bob", &Registration { lease_ms: 30_000, ..subscriber() });
    bench.listen_until(20_000);
    bench.hear("bob", PresenceSignal::Reported);
    bench.listen_until(20_000 + 30_000 - REPORT_PERIOD_MS - 1);
    assert!(bench.is_present("bob"));
    bench.listen_until(20_000 + 30_000 - REPORT_PERIOD_MS);
    assert!(!bench.is_present("bob"));
}

#[test]
fn a_stream_that_is_reported_every_period_keeps_an_agent_present() {
    let mut bench = Bench::new(&["bob"]);
    for _ in 0..20 {
        bench.hear("bob", PresenceSignal::Reported);
        bench.listen_until(bench.now_ms + REPORT_PERIOD_MS);
        assert!(bench.is_present("bob"));
    }
}

#[test]
fn a_gateway_that_was_cut_off_finds_nobody_absent_until_it_has_listened_for_a_lease() {
    let mut bench = Bench::new(&["bob", "carol"]);
    bench.listen_until(BEGIN_MS + LEASE_MS);
    bench.hear("bob", PresenceSignal::Hello);
    assert_eq!(bench.absent(), ["carol"]);

    // Nothing is heard, and so nothing is known: bob stays as he was.
    bench.now_ms += 10 * LEASE_MS;
    bench.table.sweep(bench.now_ms);
    assert!(bench.is_present("bob"));

    bench.table.handle_answer(bench.now_ms);
    assert_eq!(bench.reached(), ["bob", "carol"], "both may have been heard elsewhere");
    bench.listen_until(bench.now_ms + LEASE_MS - 1);
    assert!(bench.is_present("bob") && bench.is_present("carol"));
    bench.listen_until(bench.now_ms + 1);
    assert!(!bench.is_present("bob") && !bench.is_present("carol"));
}

#[test]
fn a_short_silence_of_the_bus_is_no_cut() {
    let mut bench = Bench::new(&["bob"]);
    bench.listen_until(BEGIN_MS + LEASE_MS - CUT_OFF_MS);
    bench.now_ms += CUT_OFF_MS;
    bench.table.handle_answer(bench.now_ms);
    assert!(!bench.is_present("bob"));
}

#[test]
fn a_registration_counts_as_heard_when_it_is_new_or_another_and_not_when_it_is_repeated() {
    let mut bench = Bench::new(&["bob"]);
    bench.listen_until(BEGIN_MS + LEASE_MS);
    bench.register("bob", &subscriber());
    assert!(!bench.is_present("bob"), "a watch that resumes repeats what it has reported");
    bench.register("bob", &Registration { description: Some("bicycle".to_owned()), ..subscriber() });
    assert!(bench.is_present("bob"));
    assert_eq!((bench.reached(), bench.absent()), (vec!["bob".to_owned()], vec![]));
}

#[test]
fn the_durable_stay_on_the_list_of_the_reached_and_are_not_called_present() {
    let mut bench = Bench::new(&["bob"]);
    bench.register("dora", &Registration { durable: true, ..subscriber() });
    bench.listen_until(BEGIN_MS + 2 * LEASE_MS);
    assert_eq!((bench.reached(), bench.absent()), (vec!["dora".to_owned()], vec!["bob".to_owned()]));
    assert!(!bench.is_present("dora"));
    assert_eq!(bench.table.present_len(), 0);
    bench.register("dora", &subscriber());
    bench.listen_until(bench.now_ms + LEASE_MS);
    assert_eq!(bench.absent(), ["bob", "dora"]);
}

#[test]
fn who_is_not_registered_is_nobody_and_leaves_nothing() {
    let mut bench = Bench::new(&["bob"]);
    assert!(!bench.table.note_presence(&agent("ghost"), bench.now_ms, PresenceSignal::Here));
    assert_eq!(bench.table.heard_here(0), [agent("bob")], "0 is older than never");
    assert_eq!(bench.table.heard_here(1), []);
    bench.listen_until(BEGIN_MS + LEASE_MS);
    bench.table.apply("bob", None, bench.now_ms).unwrap();
    assert!(bench.table.due.is_empty() && bench.table.audience_by_topic.is_empty());
}

#[test]
fn a_table_is_swept_in_pieces_and_in_the_end_whole() {
    let names: Vec<String> = (0..=SWEPT_MAX).map(|number| format!("a{number}")).collect();
    let mut bench = Bench::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for ms in (BEGIN_MS..=BEGIN_MS + LEASE_MS).step_by(1000) {
        bench.now_ms = ms;
        bench.table.handle_answer(ms);
    }
    assert!(bench.table.sweep(bench.now_ms));
    assert_eq!(bench.table.present_len(), 1);
    assert!(!bench.table.sweep(bench.now_ms));
    assert_eq!(bench.table.present_len(), 0);
}

#[test]
fn a_call_looks_at_the_present_alone_however_many_absent_are_registered() {
    let names: Vec<String> = (0..10_000).map(|number| format!("a{number}")).collect();
    let mut bench = Bench::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    bench.listen_until(BEGIN_MS + LEASE_MS - 1);
    for name in &names[..100] {
        bench.hear(name, PresenceSignal::Hello);
    }
    bench.listen_until(BEGIN_MS + LEASE_MS);
    assert_eq!((bench.reached().len(), bench.absent().len()), (100, 9_900));
    assert_eq!(bench.table.due.len(), 100, "and so does a sweep");
}

/// A table, and the clock it is told.
struct Bench {
    table: AgentTable,
    now_ms: u64,
}

impl Bench {
    fn new(names: &[&str]) -> Self {
        let mut bench = Self { table: AgentTable::new(BEGIN_MS), now_ms: BEGIN_MS };
        for name in names {
            bench.register(name, &subscriber());
        }
        bench
    }

    fn register(&mut self, name: &str, registration: &Registration) {
        let bytes = Bytes::from(serde_json::to_vec(registration).unwrap());
        self.table.apply(name, Some(&bytes), self.now_ms).unwrap();
    }

    fn hear(&mut self, name: &str, signal: PresenceSignal) {
        if self.table.note_presence(&agent(name), self.now_ms, signal) {
            self.table.handle_return(&agent(name));
        }
    }

    /// Lets time pass, with a bus that answers every second, as the gateway asks it.
    fn listen_until(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            self.now_ms = until_ms.min(self.now_ms + 1000);
            self.table.handle_answer(self.now_ms);
            while self.table.sweep(self.now_ms) {}
        }
    }

    fn is_present(&self, name: &str) -> bool {
        self.table.is_present(self.table.member(&agent(name)).unwrap(), self.now_ms)
    }

    fn reached(&self) -> Vec<String> {
        names(&self.table.audience(&topic()).unwrap().reached)
    }

    fn absent(&self) -> Vec<String> {
        names(&self.table.audience(&topic()).unwrap().absent)
    }
}

fn names(members: &BTreeMap<AgentId, Arc<Member>>) -> Vec<String> {
    members.keys().map(ToString::to_string).collect()
}

fn subscriber() -> Registration {
    Registration { topics: vec![topic()], lease_ms: LEASE_MS_MIN, ..Registration::default() }
}

fn topic() -> TopicName {
    TopicName::try_new("courier").unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}
