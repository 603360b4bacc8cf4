//! Agents, policies and durations, each alone.

use schemas::statistics::Quantiles;

use super::super::{sum_agents, sum_policies};
use super::*;

#[test]
fn a_figure_is_never_too_low_and_at_most_an_eighth_too_high() {
    for us in (0..70).flat_map(|n| [n, 1 << (n % 60), (1 << (n % 60)) * 3 / 2 + n]).chain([u64::MAX]) {
        let told = upper_end(bucket(us));
        assert!(told >= us && told - us <= us / 8, "{us} is told as {told}");
    }
}

#[test]
fn the_spread_is_of_the_last_minute_only() {
    let mut minute = Minute::default();
    (0..100).for_each(|n| minute.add(Timestamp::from_ms(1_000), n));
    assert_eq!(minute.counts(Timestamp::from_ms(1_500)).spread().count, 100);
    minute.add(Timestamp::from_ms(30_000), 1_000_000);
    let spread = minute.counts(Timestamp::from_ms(60_999)).spread();
    assert_eq!(spread.count, 101);
    assert!((50..=56).contains(&spread.p50_us) && (99..=112).contains(&spread.p99_us), "{spread:?}");
    let spread = minute.counts(Timestamp::from_ms(61_000)).spread();
    assert_eq!(spread.count, 1);
    assert!((1_000_000..=1_125_000).contains(&spread.p50_us), "{spread:?}");
    assert_eq!(minute.counts(Timestamp::from_ms(90_000)).spread(), Quantiles::default());
}

#[test]
fn what_is_recent_ended_in_the_last_five_seconds() {
    let mut minute = Minute::default();
    [1_000, 3_000, 7_000].into_iter().for_each(|ms| minute.add(Timestamp::from_ms(ms), ms));
    let recent = |minute: &mut Minute, ms| minute.recent(Timestamp::from_ms(ms)).spread().count;
    assert_eq!([7_500, 8_500, 12_500].map(|ms| recent(&mut minute, ms)), [2, 1, 0]);
}

#[test]
fn an_hour_of_every_duration_takes_a_bounded_memory() {
    let mut minute = Minute::default();
    (0..3_600_u64).for_each(|s| (0..64).for_each(|n| minute.add(Timestamp::from_ms(s * 1_000), (1_u64 << n) + s)));
    assert_eq!(minute.0.len(), 60);
    assert!(minute.0.iter().all(|(_, counts)| counts.0.len() <= 496));
}

#[test]
fn policies_beyond_the_bound_are_counted_together() {
    let lane = |first: usize| {
        let mut policies = Policies::default();
        for number in first..first + 2 * POLICIES_MAX {
            let times = if number == first { 3 } else { 1 };
            (0..times).for_each(|_| policies.count_ended(&format!("p{number}@1"), 2, 5, Timestamp(7), 100));
        }
        policies.activities(Timestamp(8))
    };
    let told = sum_policies(lane(0).into_iter().chain(lane(100)));
    assert_eq!(told.len(), POLICIES_MAX + 1);
    assert!(["p0@1", "p100@1", OTHER].iter().all(|id| told.iter().any(|one| one.policy == *id)));
    let ended: u64 = told.iter().map(|one| one.ended).sum();
    let measured: u64 = told.iter().map(|one| one.durations.spread().count).sum();
    assert_eq!((ended, measured), (2 * (2 * POLICIES_MAX as u64 + 2), ended));
    assert!(told.iter().all(|one| (one.awards, one.offers) == (2 * one.ended, 5 * one.ended)));
}

#[test]
fn of_more_agents_than_are_counted_those_that_went_quiet_are_forgotten() {
    let mut agents = Agents::default();
    for number in 0..10 * COUNTED_MAX {
        agents.of(&agent("busy")).calls += 1;
        agents.of(&agent(&format!("guest-{number}"))).calls += 1;
        assert!(agents.by_id.len() <= COUNTED_MAX);
    }
    let busiest = agents.busiest();
    assert_eq!(
        (busiest.len(), busiest[0].0.as_str(), busiest[0].1.calls),
        (GIVEN_MAX, "busy", 10 * COUNTED_MAX as u64)
    );
}

#[test]
fn an_agents_figures_in_several_lanes_add_up() {
    let mut lanes = [Agents::default(), Agents::default()];
    lanes[0].of(&agent("bob")).opened += 1;
    lanes[0].of(&agent("bob")).calls += 1;
    lanes[1].of(&agent("bob")).offers += 1;
    add_duration(&mut lanes[1].of(&agent("bob")).acknowledged, 100);
    lanes[1].of(&agent("carol")).calls += 1;
    let sum = sum_agents(lanes.iter().flat_map(Agents::busiest), 1);
    assert_eq!(sum.len(), 1);
    assert_eq!((sum[0].agent.as_str(), sum[0].opened, sum[0].calls, sum[0].offers), ("bob", 1, 1, 1));
    assert_eq!(sum[0].acknowledged.count, 1);
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}
