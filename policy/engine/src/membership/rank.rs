//! Rendezvous hashing with bounded loads: every engine computes the same order, the numbers of lanes that engines own
//! differ by at most one, and an engine that comes or goes moves few lanes beside its own.
//!
//! Pairs of a lane and an engine are taken best score first; a pair is matched unless its lane has an owner or its engine
//! owns its share. That is the stable matching of lanes and engines under one common preference: it depends on nothing but
//! who takes part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use schemas::{Digest, Lane};

use super::LaneCandidate;

/// Per lane, the engines that could own it: the one that should first, then the others by their score.
pub(super) fn ranked(candidates: &[LaneCandidate<'_>]) -> BTreeMap<Lane, Vec<String>> {
    let pairs = Pairs::of(candidates);
    let owners = pairs.owners();
    let mut ranked: BTreeMap<Lane, Vec<String>> = BTreeMap::new();
    for (lane, owner) in &owners {
        ranked.insert(*lane, vec![candidates[*owner].id.to_owned()]);
    }
    for pair in pairs.best_first.iter().filter(|pair| owners.get(&pair.lane) != Some(&pair.engine)) {
        ranked.entry(pair.lane).or_default().push(candidates[pair.engine].id.to_owned());
    }
    ranked
}

/// A lane and an engine that could own it.
#[derive(Debug, Clone, Copy)]
struct Pair {
    lane: Lane,
    /// Index of the engine.
    engine: usize,
}

struct Pairs<'a> {
    candidates: &'a [LaneCandidate<'a>],
    best_first: Vec<Pair>,
}

impl<'a> Pairs<'a> {
    fn of(candidates: &'a [LaneCandidate<'a>]) -> Self {
        let pairs_of = |(engine, candidate): (usize, &LaneCandidate<'a>)| -> Vec<_> {
            let scored = |lane: &Lane| (score(*lane, candidate.id), candidate.id, Pair { lane: *lane, engine });
            candidate.fit.union(candidate.left_to).map(scored).collect()
        };
        let mut scored: Vec<_> = candidates.iter().enumerate().flat_map(pairs_of).collect();
        scored.sort_unstable_by_key(|(score, id, pair)| Reverse((*score, *id, pair.lane)));
        Self { candidates, best_first: scored.into_iter().map(|(_, _, pair)| pair).collect() }
    }

    /// The engine that should own each lane, by its index.
    fn owners(&self) -> BTreeMap<Lane, usize> {
        let mut owners = BTreeMap::new();
        for pair in self.best_first.iter().filter(|pair| self.candidates[pair.engine].left_to.contains(&pair.lane)) {
            owners.entry(pair.lane).or_insert(pair.engine);
        }
        for is_settled in [true, false] {
            self.share(is_settled, &mut owners);
        }
        owners
    }

    /// Shares the lanes without an owner among the engines that have caught up, or among those that have not.
    fn share(&self, is_settled: bool, owners: &mut BTreeMap<Lane, usize>) {
        let of_tier = |engine: usize| self.candidates[engine].is_settled == is_settled;
        let engines = (0..self.candidates.len()).filter(|engine| of_tier(*engine)).count();
        let pairs: Vec<Pair> = self.best_first.iter().filter(|pair| of_tier(pair.engine)).copied().collect();
        let free: BTreeSet<Lane> =
            pairs.iter().map(|pair| pair.lane).filter(|lane| !owners.contains_key(lane)).collect();
        let mut loads: BTreeMap<usize, usize> = BTreeMap::new();
        owners.values().filter(|engine| of_tier(**engine)).for_each(|engine| *loads.entry(*engine).or_default() += 1);
        let lanes = free.len() + loads.values().sum::<usize>();
        let (share, mut extra) = (lanes.checked_div(engines).unwrap_or(0), lanes.checked_rem(engines).unwrap_or(0));
        for pair in &pairs {
            let load = loads.entry(pair.engine).or_default();
            let has_room = *load < share || (*load == share && extra > 0);
            if has_room && !owners.contains_key(&pair.lane) {
                extra -= usize::from(*load == share);
                *load += 1;
                owners.insert(pair.lane, pair.engine);
            }
        }
        // Not every engine could own every lane, so some lanes are left over by those that own their share.
        for lane in free {
            if !owners.contains_key(&lane)
                && let Some(pair) =
                    pairs.iter().filter(|pair| pair.lane == lane).min_by_key(|pair| loads.get(&pair.engine))
            {
                *loads.entry(pair.engine).or_default() += 1;
                owners.insert(lane, pair.engine);
            }
        }
    }
}

fn score(lane: Lane, engine: &str) -> [u8; 16] {
    Digest::of_parts(&[&[lane.0], engine.as_bytes()]).short()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn engines_own_as_many_lanes_as_each_other_or_one_more(names in names(12), lanes in 1_u8..=64) {
            let ranked = ranked_whole(&names, lanes);
            prop_assert_eq!(ranked.len(), usize::from(lanes), "every lane has an owner");
            let owned = owned(&ranked, &names);
            let (least, most) = (owned.values().min().unwrap(), owned.values().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", owned);
            for engines in ranked.values() {
                let distinct: BTreeSet<&String> = engines.iter().collect();
                prop_assert_eq!(distinct.len(), names.len(), "everybody stands by once");
            }
        }

        #[test]
        fn the_order_in_which_engines_were_heard_of_changes_nothing(names in names(8), lanes in 1_u8..=32) {
            let backwards: Vec<String> = names.iter().rev().cloned().collect();
            prop_assert_eq!(ranked_whole(&names, lanes), ranked_whole(&backwards, lanes));
        }

        #[test]
        fn an_engine_that_leaves_moves_its_own_lanes_and_few_others(names in names(12), lanes in 1_u8..=64, at: usize) {
            prop_assume!(names.len() > 1);
            let (before, mut left) = (ranked_whole(&names, lanes), names.clone());
            let gone = left.remove(at % names.len());
            let after = ranked_whole(&left, lanes);
            let others = before.iter().filter(|(lane, engines)| engines[0] != gone && engines[0] != after[lane][0]);
            // A lane moves on when its next choice has got room; on average that is well below one per engine.
            let moved = others.count();
            prop_assert!(moved <= usize::from(lanes).div_ceil(left.len()) + left.len(), "{} moved", moved);
        }
    }

    #[test]
    fn the_lanes_that_move_beside_those_of_who_leaves_are_few() {
        let (mut moved, mut owned) = (0, 0);
        for trial in 0..200 {
            let names: Vec<String> = (0..2 + trial % 5).map(|number| format!("engine-{trial}-{number}")).collect();
            let (before, after) = (ranked_whole(&names, 16), ranked_whole(&names[1..], 16));
            owned += before.values().filter(|engines| engines[0] == names[0]).count();
            moved += before.iter().filter(|(lane, engines)| engines[0] != after[lane][0]).count();
        }
        assert!(moved * 2 <= owned * 3, "{moved} lanes moved, {owned} had to");
    }

    #[test]
    fn two_engines_share_four_lanes_equally_whatever_they_are_called() {
        for number in 0..100 {
            let names = [format!("engine-{number}"), format!("engine-{}", number + 1)];
            let owned = owned(&ranked_whole(&names, 4), &names);
            assert!(owned.values().all(|lanes| *lanes == 2), "{owned:?}");
        }
    }

    #[test]
    fn who_catches_up_gets_only_what_nobody_else_could_own() {
        let (all, some) = (lanes(4), lanes(2));
        let none = BTreeSet::new();
        let half = LaneCandidate { id: "half", fit: &some, left_to: &none, is_settled: true };
        let late = LaneCandidate { id: "late", fit: &all, left_to: &none, is_settled: false };
        let owners = |candidates: &[LaneCandidate<'_>]| -> Vec<String> {
            ranked(candidates).into_values().map(|engines| engines[0].clone()).collect()
        };
        assert_eq!(owners(&[half.clone(), late.clone()]), ["half", "half", "late", "late"]);
        assert_eq!(owners(std::slice::from_ref(&late)), ["late"; 4]);
        let whole = LaneCandidate { id: "whole", fit: &all, left_to: &none, is_settled: true };
        assert_eq!(owners(&[whole.clone(), late]), ["whole"; 4]);
        assert_eq!(owners(&[whole, half])[2..], ["whole", "whole"], "nobody else folds them");
    }

    #[test]
    fn a_lane_that_is_left_to_an_engine_counts_as_part_of_its_share() {
        let (all, none) = (lanes(4), BTreeSet::new());
        for left_to in all.iter().map(|lane| BTreeSet::from([*lane])) {
            let one = LaneCandidate { id: "one", fit: &all, left_to: &none, is_settled: true };
            let other = LaneCandidate { id: "other", fit: &all, left_to: &left_to, is_settled: true };
            let ranked = ranked(&[one, other]);
            assert!(left_to.iter().all(|lane| ranked[lane] == ["other", "one"]), "{ranked:?}");
            assert_eq!(ranked.values().filter(|engines| engines[0] == "other").count(), 2, "{ranked:?}");
        }
    }

    fn names(most: usize) -> impl Strategy<Value = Vec<String>> {
        prop::collection::btree_set("[a-z]{1,8}(-[0-9]{1,2})?", 1..=most).prop_map(|names| names.into_iter().collect())
    }

    fn lanes(count: u8) -> BTreeSet<Lane> {
        (0..count).map(Lane).collect()
    }

    /// The ranks where every engine could own every lane.
    fn ranked_whole(names: &[String], count: u8) -> BTreeMap<Lane, Vec<String>> {
        let (fit, left_to) = (lanes(count), BTreeSet::new());
        let whole = |id| LaneCandidate { id, fit: &fit, left_to: &left_to, is_settled: true };
        ranked(&names.iter().map(|id| whole(id.as_str())).collect::<Vec<_>>())
    }

    fn owned(ranked: &BTreeMap<Lane, Vec<String>>, names: &[String]) -> BTreeMap<String, usize> {
        let owned = |id: &String| ranked.values().filter(|engines| engines[0] == *id).count();
        names.iter().map(|id| (id.clone(), owned(id))).collect()
    }
}
