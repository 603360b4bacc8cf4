//! What happened under each policy, as far as the owner of a lane saw it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemas::Timestamp;
use schemas::statistics::{Histogram, OTHER, POLICIES_MAX, PolicyActivity};

use super::minute::Minute;

/// See the module. At most [`POLICIES_MAX`] and [`OTHER`].
#[derive(Debug, Default)]
pub(super) struct Policies(BTreeMap<String, PolicyTotals>);

#[derive(Debug, Default)]
struct PolicyTotals {
    ended: u64,
    awards: u64,
    offers: u64,
    minute: Minute,
}

impl Policies {
    /// Counts a negotiation that ended at `at`, in log time, after `took_us`.
    pub(super) fn count_ended(&mut self, policy: &str, awards: u32, offers: u32, at: Timestamp, took_us: u64) {
        let is_apart = self.0.contains_key(policy) || self.0.len() < POLICIES_MAX;
        let counted = self.0.entry(if is_apart { policy } else { OTHER }.to_owned()).or_default();
        counted.ended += 1;
        counted.awards += u64::from(awards);
        counted.offers += u64::from(offers);
        counted.minute.add(at, took_us);
    }

    pub(super) fn activities(&mut self, now: Timestamp) -> Vec<PolicyActivity> {
        let activity = |(policy, counted): (&String, &mut PolicyTotals)| PolicyActivity {
            policy: policy.clone(),
            ended: counted.ended,
            awards: counted.awards,
            offers: counted.offers,
            durations: counted.minute.counts(now),
        };
        self.0.iter_mut().map(activity).collect()
    }
}

/// Adds up what lanes counted, in the order of the ids: the policies under which most ended, the others together.
pub(super) fn sum(parts: impl Iterator<Item = PolicyActivity>) -> Vec<PolicyActivity> {
    let mut all = BTreeMap::<String, PolicyActivity>::new();
    parts.for_each(|part| add(&mut all, part));
    let mut by_size: Vec<PolicyActivity> = all.into_values().collect();
    by_size.sort_by_key(|one| (one.policy == OTHER, Reverse(one.ended)));
    let mut told = BTreeMap::new();
    for (place, mut one) in by_size.into_iter().enumerate() {
        if place >= POLICIES_MAX {
            OTHER.clone_into(&mut one.policy);
        }
        add(&mut told, one);
    }
    told.into_values().collect()
}

fn add(all: &mut BTreeMap<String, PolicyActivity>, one: PolicyActivity) {
    let policy = one.policy.clone();
    let sum = all.entry(policy.clone()).or_insert_with(|| PolicyActivity {
        policy,
        ended: 0,
        awards: 0,
        offers: 0,
        durations: Histogram::default(),
    });
    sum.ended += one.ended;
    sum.awards += one.awards;
    sum.offers += one.offers;
    sum.durations.merge(&one.durations);
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let told = sum(lane(0).into_iter().chain(lane(100)));
        assert_eq!(told.len(), POLICIES_MAX + 1);
        assert!(["p0@1", "p100@1", OTHER].iter().all(|id| told.iter().any(|one| one.policy == *id)));
        let ended: u64 = told.iter().map(|one| one.ended).sum();
        let measured: u64 = told.iter().map(|one| one.durations.spread().count).sum();
        assert_eq!((ended, measured), (2 * (2 * POLICIES_MAX as u64 + 2), ended));
        assert!(told.iter().all(|one| (one.awards, one.offers) == (2 * one.ended, 5 * one.ended)));
    }
}
