use policy_core::Phase;
use schemas::delivery::CloseReason;
use schemas::{AgentId, AwardNo, Lot, NegotiationId, Timestamp};

use super::*;

/// Series an engine exposes at most, each bucket of a histogram being one: of four protocols.
const SERIES_MAX: usize = 3750;

#[test]
fn every_series_is_exposed_at_zero_before_anything_happens() {
    let registry = Registry::new();
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let mut lane = metrics.lane(Lane(0));
    lane.set(0, 0, false);
    let families = registry.gather();
    let series: usize = families.iter().map(|family| family.get_metric().len()).sum();
    assert!((600..800).contains(&series), "{series} series, a histogram taken for one");
    let text = telemetry::metrics::to_text(&registry).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(lines < SERIES_MAX, "{lines} series");
    let total: f64 = families
        .iter()
        .flat_map(|family| family.get_metric())
        .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
        .sum();
    assert!(total.abs() < f64::EPSILON);
    assert!(EngineMetrics::new(&registry).is_err(), "names are taken once per process");
    assert!(metrics.invariant("one_award").is_some() && metrics.invariant("another").is_none());
}

#[test]
fn a_decision_counts_under_its_policy_and_population_and_as_other_where_the_call_was_not_seen() {
    let (registry, at) = (Registry::new(), Timestamp::from_ms(1_000));
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let mut lane = metrics.lane(Lane(0));
    lane.follow(&started("job", "high@1"), at, true);
    lane.follow(&moved(Phase::Collecting, Phase::Deciding), at, true);
    for (negotiation, invited) in [("job", 12), ("older", 400)] {
        lane.follow(&closed(negotiation, invited), at, true);
        lane.follow(&closed(negotiation, invited), at, false);
    }
    metrics.count_uncounted(&closed("job", 3));
    for name in ["exchange_decision_duration_seconds", "exchange_offers_per_round"] {
        let counted = counted(&registry, name);
        assert_eq!(counted, ["high 12 1", "other 5 1", "other more 1"], "{name}");
    }
}

#[test]
fn a_task_whose_owner_is_named_is_open_in_the_state_it_begins_in() {
    let (registry, at) = (Registry::new(), Timestamp::from_ms(1_000));
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let mut lane = metrics.lane(Lane(0));
    lane.set(0, 1, true);
    let mut event = started("job", "team-task@1");
    let Event::Started { phase, .. } = &mut event else { panic!("{event:?}") };
    *phase = Phase::Awarding;
    lane.follow(&event, at, true);
    let open = |phase| metrics.negotiations.open.of(Protocol::ContractNet, phase).get();
    assert_eq!((open(Phase::Collecting), open(Phase::Awarding)), (0, 1));
    for (from, to) in [(Phase::Awarding, Phase::Performing), (Phase::Performing, Phase::Ended)] {
        lane.follow(&moved(from, to), at, true);
    }
    assert_eq!([Phase::Collecting, Phase::Awarding, Phase::Performing].map(open), [0; 3]);
}

#[test]
fn entries_of_evidence_are_shown_for_a_lane_that_is_folded_here_and_for_no_other() {
    let registry = Registry::new();
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let (mut here, mut elsewhere) = (metrics.lane(Lane(0)), metrics.lane(Lane(1)));
    here.set_evidence(7);
    elsewhere.set_evidence(9);
    elsewhere.hide();
    here.set(0, 1, true);
    let text = telemetry::metrics::to_text(&registry).unwrap();
    let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("exchange_lane_evidence_entries")).collect();
    assert_eq!(shown, ["exchange_lane_evidence_entries{lane=\"0\"} 7"]);
}

#[test]
fn shares_of_awards_are_shown_without_a_name() {
    let (registry, at) = (Registry::new(), Timestamp::from_ms(60_000));
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let mut lane = metrics.lane(Lane(0));
    for contractor in ["bob", "bob", "bob", "carol"] {
        lane.follow(&committed(contractor), at, true);
        lane.follow(&committed("mallory"), at, false);
    }
    let shown = || {
        let families = registry.gather();
        let of = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).unwrap();
            family.get_metric().iter().map(|metric| metric.get_gauge().get_value()).collect::<Vec<f64>>()
        };
        (of("exchange_award_share"), of("exchange_award_window_awards"), of("exchange_award_jain"))
    };
    lane.look(at, None);
    let (shares, awards, jain) = shown();
    let ranked: Vec<f64> = shares.iter().copied().filter(|share| *share > 0.0).collect();
    assert_eq!((shares.len(), ranked, awards, jain), (13, vec![0.75, 0.25], vec![4.0], vec![0.8]));
    lane.look(Timestamp::from_ms(60_000 * 7), None);
    let (shares, awards, jain) = shown();
    assert_eq!((shares.iter().sum::<f64>(), awards, jain), (0.0, vec![0.0], vec![0.0]), "five minutes later");
}

#[test]
fn a_deadline_that_passed_unnoticed_shows_where_its_lane_is_owned() {
    let registry = Registry::new();
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let mut lane = metrics.lane(Lane(0));
    let overdue = || {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == "exchange_lane_overdue_seconds").unwrap();
        family.get_metric()[0].get_gauge().get_value()
    };
    let (now, deadline) = (Timestamp::from_ms(7_500), Some(Timestamp::from_ms(5_000)));
    lane.look(now, deadline);
    assert_eq!(overdue(), 0.0, "another engine acts on it");
    lane.set(0, 1, true);
    lane.look(now, deadline);
    assert_eq!(overdue(), 2.5);
    lane.look(now, Some(Timestamp::from_ms(8_000)));
    assert_eq!(overdue(), 0.0);
}

#[test]
fn a_negotiation_moves_between_states_of_its_protocol_and_to_the_end() {
    assert!(open_phases().iter().all(|(_, phase)| *phase != Phase::Ended));
    assert!(transitions().iter().all(|(protocol, from, to)| {
        from != to && (*to == Phase::Ended || protocol.phases().contains(to)) && protocol.phases().contains(from)
    }));
}

fn moved(from: Phase, to: Phase) -> Event {
    Event::Transition { negotiation: id("job"), protocol: Protocol::ContractNet, from, to }
}

/// Policy, population and count of each histogram that has counted anything.
fn counted(registry: &Registry, name: &str) -> Vec<String> {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    let of = |metric: &prometheus::proto::Metric, label: &str| {
        metric.get_label().iter().find(|pair| pair.name() == label).unwrap().value().to_owned()
    };
    let lines = family.get_metric().iter().filter(|metric| metric.get_histogram().get_sample_count() > 0);
    let mut lines: Vec<String> = lines
        .map(|metric| {
            format!("{} {} {}", of(metric, "policy"), of(metric, "invited"), metric.get_histogram().get_sample_count())
        })
        .collect();
    lines.sort();
    lines
}

fn started(own: &str, policy: &str) -> Event {
    let (negotiation, protocol, invited, left_out, at) = (id(own), Protocol::ContractNet, 12, 0, Timestamp(1));
    let phase = protocol.phases()[0];
    Event::Started { negotiation, protocol, phase, policy: policy.into(), invited, left_out, at }
}

fn closed(own: &str, expected: u32) -> Event {
    let (negotiation, protocol, round, reason, complete) =
        (id(own), Protocol::ContractNet, 1, CloseReason::Window, true);
    let (offers, responded, at, elapsed_us) = (3, 3, Timestamp(1), 9_000);
    Event::Closed { negotiation, protocol, round, reason, complete, offers, responded, expected, at, elapsed_us }
}

fn committed(contractor: &str) -> Event {
    let contractor = AgentId::try_new(contractor).unwrap();
    Event::Committed { negotiation: id("job"), lot: Lot(0), award_no: AwardNo(1), contractor, elapsed_us: 1 }
}

fn id(own: &str) -> NegotiationId {
    NegotiationId::form(&AgentId::try_new("alice").unwrap(), own).unwrap()
}
