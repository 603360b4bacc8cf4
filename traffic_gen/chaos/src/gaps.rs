//! How long a fault was felt: until the next decision on the lanes it hit, and how long nobody got a 202.

use std::time::Duration;

use schemas::{Lane, Timestamp};

use super::journal::DecisionHeard;

/// How long after a fault its effect on admissions is looked for, unless the next fault comes first: longer than any
/// outage the exchange is meant to have.
const WINDOW_MS: u64 = 15_000;

/// A claim that stands in the log, in the order of the log within its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The lane.
    pub lane: Lane,
    /// Its log time.
    pub at: Timestamp,
    /// The engine.
    pub engine: String,
    /// Its epoch; a claim whose epoch is not above the lane's changes nothing.
    pub epoch: u64,
}

/// The lanes that were an engine's at a time.
pub fn lanes_of(engine: &str, at: Timestamp, claims: &[Claim]) -> Vec<Lane> {
    let mut owners = std::collections::BTreeMap::<Lane, &Claim>::new();
    for claim in claims.iter().filter(|claim| claim.at <= at) {
        let owner = owners.entry(claim.lane).or_insert(claim);
        if claim.epoch > owner.epoch {
            *owner = claim;
        }
    }
    owners.into_iter().filter(|(_, owner)| owner.engine == engine).map(|(lane, _)| lane).collect()
}

/// How long after a fault an agent first heard a decision of this lane that was made after the fault. Decisions made
/// before, and still on their way then, do not count: they say nothing about who decides now.
pub fn decision_gap(fault: Timestamp, lane: Lane, decisions: &[DecisionHeard]) -> Option<Duration> {
    let later = decisions.iter().filter(|decision| decision.lane == lane && decision.made > fault);
    let heard = later.map(|decision| decision.heard).min()?;
    Some(Duration::from_micros(heard.since_us(fault)))
}

/// The longest time without any 202 that began after a fault and before the next one, within fifteen seconds. `admitted`
/// rises.
pub fn publish_gap(fault: Timestamp, next: Option<Timestamp>, admitted: &[Timestamp]) -> Option<Duration> {
    let end = next.unwrap_or(Timestamp::MAX).min(fault.plus_ms(WINDOW_MS));
    let first = admitted.partition_point(|&at| at < fault);
    let after = admitted.partition_point(|&at| at < end);
    // The first one after the window ends the pause that was going on at its end.
    let seen = admitted.get(first..=after).or_else(|| admitted.get(first..))?;
    let starts = std::iter::once(fault).chain(seen.iter().copied());
    let longest = seen.iter().zip(starts).map(|(&at, start)| at.since_us(start)).max()?;
    Some(Duration::from_micros(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_who_claimed_last_with_a_higher_epoch() {
        let claims = [claim(0, 1, "a", 1), claim(1, 2, "a", 1), claim(0, 5, "b", 2), claim(0, 6, "a", 2)];
        assert_eq!(lanes_of("a", Timestamp(0), &claims), []);
        assert_eq!(lanes_of("a", Timestamp(4), &claims), [Lane(0), Lane(1)]);
        assert_eq!(lanes_of("a", Timestamp(9), &claims), [Lane(1)], "an epoch that is not higher changes nothing");
        assert_eq!(lanes_of("b", Timestamp(9), &claims), [Lane(0)]);
    }

    #[test]
    fn only_a_decision_of_the_lane_made_after_the_fault_ends_its_gap() {
        let decisions = [heard(0, 90, 105), heard(1, 110, 111), heard(0, 130, 190), heard(0, 120, 170)];
        let gap = |lane| decision_gap(Timestamp(100), Lane(lane), &decisions).map(|gap| gap.as_micros());
        assert_eq!((gap(0), gap(1), gap(2)), (Some(70), Some(11), None));
    }

    #[test]
    fn a_publish_gap_is_the_longest_pause_before_the_next_fault() {
        let admitted: Vec<_> = [10, 95, 104, 150, 155, 400, 401].map(Timestamp).into();
        let gap = |fault, next: Option<u64>| {
            publish_gap(Timestamp(fault), next.map(Timestamp), &admitted).map(|gap| gap.as_micros())
        };
        assert_eq!(gap(100, Some(120)), Some(46), "the pause that began in the window counts whole");
        assert_eq!(gap(100, Some(200)), Some(245));
        assert_eq!(gap(100, None), Some(245));
        assert_eq!(gap(400, None), Some(1));
        assert_eq!(gap(500, None), None);
    }

    fn claim(lane: u8, at: u64, engine: &str, epoch: u64) -> Claim {
        Claim { lane: Lane(lane), at: Timestamp(at), engine: engine.to_owned(), epoch }
    }

    fn heard(lane: u8, made: u64, heard: u64) -> DecisionHeard {
        DecisionHeard { lane: Lane(lane), made: Timestamp(made), heard: Timestamp(heard) }
    }
}
