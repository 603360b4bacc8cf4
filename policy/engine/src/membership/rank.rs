//! Rendezvous hashing with bounded loads: every engine computes the same order, the numbers of lanes that engines own, or
//! own and stand by for, differ by at most one, and an engine that comes or goes moves few lanes beside its own.
//!
//! Places are filled one after the other: the owner of every lane, then the first engine that stands by for it, and so on.
//! Pairs of a lane and an engine are taken best score first; a pair is matched unless the lane's place is taken, or the
//! engine has its share of all places filled so far. For owners that is the stable matching of lanes and engines under one
//! common preference: it depends on nothing but who takes part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use schemas::{Digest, Lane};

use super::LaneCandidate;
use crate::config::STANDBYS_MAX;

/// Per lane, the engines that could serve it: the one that should own it, those that should stand by, [`STANDBYS_MAX`] in
/// equal shares, then the others by their score.
pub(super) fn ranked(candidates: &[LaneCandidate<'_>]) -> BTreeMap<Lane, Vec<String>> {
    let mut places = Places::of(candidates);
    places.leave();
    for place in 0..=STANDBYS_MAX {
        places.share(place);
    }
    for Pair { lane, engine } in places.best_first.clone() {
        if !places.has(lane, engine) {
            places.fill(lane, engine);
        }
    }
    let names = |engines: Vec<usize>| engines.into_iter().map(|engine| candidates[engine].id.to_owned()).collect();
    places.by_lane.into_iter().map(|(lane, engines)| (lane, names(engines))).collect()
}

/// A lane and an engine that could serve it.
#[derive(Debug, Clone, Copy)]
struct Pair {
    lane: Lane,
    /// Index of the engine.
    engine: usize,
}

/// The places of each lane, as far as they are filled.
struct Places<'a> {
    candidates: &'a [LaneCandidate<'a>],
    best_first: Vec<Pair>,
    by_lane: BTreeMap<Lane, Vec<usize>>,
    /// Places each engine fills.
    loads: Vec<usize>,
}

impl<'a> Places<'a> {
    fn of(candidates: &'a [LaneCandidate<'a>]) -> Self {
        let pairs_of = |(engine, candidate): (usize, &LaneCandidate<'a>)| -> Vec<_> {
            let scored = |lane: &Lane| (score(*lane, candidate.id), candidate.id, Pair { lane: *lane, engine });
            candidate.serves.union(candidate.left_to).map(scored).collect()
        };
        let mut scored: Vec<_> = candidates.iter().enumerate().flat_map(pairs_of).collect();
        scored.sort_unstable_by_key(|(score, id, pair)| Reverse((*score, *id, pair.lane)));
        let best_first: Vec<Pair> = scored.into_iter().map(|(_, _, pair)| pair).collect();
        let by_lane = best_first.iter().map(|pair| (pair.lane, Vec::new())).collect();
        Self { candidates, best_first, by_lane, loads: vec![0; candidates.len()] }
    }

    fn has(&self, lane: Lane, engine: usize) -> bool {
        self.by_lane[&lane].contains(&engine)
    }

    fn fill(&mut self, lane: Lane, engine: usize) {
        self.by_lane.entry(lane).or_default().push(engine);
        self.loads[engine] += 1;
    }

    /// Makes those the owners to whom a lane is left.
    fn leave(&mut self) {
        for Pair { lane, engine } in self.best_first.clone() {
            if self.candidates[engine].left_to.contains(&lane) && self.by_lane[&lane].is_empty() {
                self.fill(lane, engine);
            }
        }
    }

    /// The pairs that could fill a place that is still free.
    fn free(&self, place: usize) -> Vec<Pair> {
        let is_free = |pair: &&Pair| self.by_lane[&pair.lane].len() == place && !self.has(pair.lane, pair.engine);
        self.best_first.iter().filter(is_free).copied().collect()
    }

    /// Fills a place of every lane in equal shares.
    fn share(&mut self, place: usize) {
        let pairs = self.free(place);
        let mut free: Vec<Lane> = pairs.iter().map(|pair| pair.lane).collect();
        free.sort_unstable();
        free.dedup();
        let places = free.len() + self.loads.iter().sum::<usize>();
        let share = places.checked_div(self.loads.len()).unwrap_or(0);
        let beyond = self.loads.iter().filter(|load| **load > share).count();
        let mut extra = places.checked_rem(self.loads.len()).unwrap_or(0).saturating_sub(beyond);
        for pair in &pairs {
            let load = self.loads[pair.engine];
            if self.by_lane[&pair.lane].len() == place && (load < share || (load == share && extra > 0)) {
                extra -= usize::from(load == share);
                self.fill(pair.lane, pair.engine);
            }
        }
        for lane in free.iter().copied() {
            if self.by_lane[&lane].len() > place || self.pass_on(&pairs, lane, place, share + usize::from(extra > 0)) {
                continue;
            }
            let is_relieved = free.iter().any(|other| self.relieve(&pairs, *other, place, share));
            if !(is_relieved && self.pass_on(&pairs, lane, place, share + 1)) {
                self.fill_with_least(&pairs, lane);
            }
        }
    }

    /// Takes a lane's place from an engine that has one more than its share, where another with less can have it.
    fn relieve(&mut self, pairs: &[Pair], lane: Lane, place: usize, share: usize) -> bool {
        let Some(holder) = self.by_lane[&lane].get(place).copied().filter(|holder| self.loads[*holder] > share) else {
            return false;
        };
        self.by_lane.entry(lane).or_default().truncate(place);
        self.loads[holder] -= 1;
        let is_passed = self.pass_on(pairs, lane, place, share);
        if !is_passed {
            self.fill(lane, holder);
        }
        is_passed
    }

    /// Fills a lane's place where nobody who could has room: an engine that passes another lane on takes it, to an engine
    /// that has room or passes one on in turn, by the fewest lanes that change hands. False where nobody has room.
    fn pass_on(&mut self, pairs: &[Pair], lane: Lane, place: usize, limit: usize) -> bool {
        // The lane through which each engine was reached: it would take that one.
        let mut taken: BTreeMap<usize, Lane> = BTreeMap::new();
        let mut reached = VecDeque::from([lane]);
        while let Some(lane) = reached.pop_front() {
            for Pair { engine, .. } in pairs.iter().filter(|pair| pair.lane == lane) {
                if taken.contains_key(engine) || self.has(lane, *engine) {
                    continue;
                }
                taken.insert(*engine, lane);
                if self.loads[*engine] < limit {
                    self.pass_along(&taken, *engine, place);
                    return true;
                }
                let given = pairs.iter().filter(|pair| pair.engine == *engine).map(|pair| pair.lane);
                reached.extend(given.filter(|lane| self.by_lane[lane].get(place) == Some(engine)));
            }
        }
        false
    }

    /// Gives each lane of a way to the engine that takes it, from the end of the way, where there is room, to its beginning.
    fn pass_along(&mut self, taken: &BTreeMap<usize, Lane>, end: usize, place: usize) {
        let mut taker = end;
        while let Some(lane) = taken.get(&taker).copied() {
            let Some(giver) = self.by_lane[&lane].get(place).copied() else { return self.fill(lane, taker) };
            self.by_lane.entry(lane).or_default()[place] = taker;
            self.loads[taker] += 1;
            self.loads[giver] -= 1;
            taker = giver;
        }
    }

    /// Not every engine could serve every lane, so some places are left over by those that have their share.
    fn fill_with_least(&mut self, pairs: &[Pair], lane: Lane) {
        let takers = pairs.iter().filter(|pair| pair.lane == lane);
        if let Some(pair) = takers.min_by_key(|pair| self.loads[pair.engine]).copied() {
            self.fill(lane, pair.engine);
        }
    }
}

fn score(lane: Lane, engine: &str) -> [u8; 16] {
    Digest::of_parts(&[&[lane.0], engine.as_bytes()]).short()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn engines_own_as_many_lanes_as_each_other_or_one_more(names in names(1, 12), lanes in 1_u8..=64) {
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
        fn engines_fold_as_many_lanes_as_each_other_or_one_more(names in names(1, 12), lanes in 1_u8..=64) {
            let ranked = ranked_whole(&names, lanes);
            // Three standbys of few engines: whoever owns a lane, or stands by already, is not free to stand by once more.
            for (standbys, most_apart) in [(0, 1), (1, 1), (2, 1), (3, 2)] {
                let count = |id: &String| {
                    let folded = ranked.values().filter(|engines| engines.iter().take(1 + standbys).any(|one| one == id));
                    folded.count()
                };
                let folded: Vec<usize> = names.iter().map(count).collect();
                let (least, most) = (folded.iter().min().unwrap(), folded.iter().max().unwrap());
                prop_assert!(most - least <= most_apart, "{} stand by: {:?}", standbys, folded);
            }
        }

        #[test]
        fn the_order_in_which_engines_were_heard_of_changes_nothing(names in names(1, 8), lanes in 1_u8..=32) {
            let backwards: Vec<String> = names.iter().rev().cloned().collect();
            prop_assert_eq!(ranked_whole(&names, lanes), ranked_whole(&backwards, lanes));
        }

        #[test]
        fn an_engine_that_leaves_moves_its_own_lanes_and_few_others(names in names(2, 12), lanes in 1_u8..=64, at: usize) {
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
    fn a_lane_changes_hands_over_several_engines_where_nobody_who_could_take_one_has_room() {
        for (names, lanes) in
            [(["be-8", "bt-19", "oc", "rog-16", "rycbt"], 6), (["faird", "gmdosofy", "ljvace", "n", "tdps-70"], 4)]
        {
            let ranked = ranked_whole(&names.map(str::to_owned), lanes);
            let folded =
                names.map(|id| ranked.values().filter(|engines| engines[..4].iter().any(|one| one == id)).count());
            assert!(folded.iter().max().unwrap() - folded.iter().min().unwrap() <= 1, "{folded:?}");
        }
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
    fn who_could_not_serve_a_lane_gets_others_instead() {
        let (all, some, none) = (lanes(4), lanes(2), BTreeSet::new());
        let half = LaneCandidate { id: "half", serves: &some, left_to: &none };
        let whole = LaneCandidate { id: "whole", serves: &all, left_to: &none };
        let ranked = ranked(&[half, whole]);
        let owners: Vec<_> = ranked.values().map(|engines| engines[0].as_str()).collect();
        assert_eq!(owners, ["half", "half", "whole", "whole"]);
        assert_eq!(ranked[&Lane(3)].len(), 1, "nobody else could stand by");
    }

    #[test]
    fn a_lane_that_is_left_to_an_engine_counts_as_part_of_its_share() {
        let (all, none) = (lanes(4), BTreeSet::new());
        for left_to in all.iter().map(|lane| BTreeSet::from([*lane])) {
            let one = LaneCandidate { id: "one", serves: &all, left_to: &none };
            let other = LaneCandidate { id: "other", serves: &all, left_to: &left_to };
            let ranked = ranked(&[one, other]);
            assert!(left_to.iter().all(|lane| ranked[lane] == ["other", "one"]), "{ranked:?}");
            assert_eq!(ranked.values().filter(|engines| engines[0] == "other").count(), 2, "{ranked:?}");
        }
    }

    fn names(least: usize, most: usize) -> impl Strategy<Value = Vec<String>> {
        prop::collection::btree_set("[a-z]{1,8}(-[0-9]{1,2})?", least..=most)
            .prop_map(|names| names.into_iter().collect())
    }

    fn lanes(count: u8) -> BTreeSet<Lane> {
        (0..count).map(Lane).collect()
    }

    /// The ranks where every engine could own every lane.
    fn ranked_whole(names: &[String], count: u8) -> BTreeMap<Lane, Vec<String>> {
        let (serves, left_to) = (lanes(count), BTreeSet::new());
        let whole = |id| LaneCandidate { id, serves: &serves, left_to: &left_to };
        ranked(&names.iter().map(|id| whole(id.as_str())).collect::<Vec<_>>())
    }

    fn owned(ranked: &BTreeMap<Lane, Vec<String>>, names: &[String]) -> BTreeMap<String, usize> {
        let owned = |id: &String| ranked.values().filter(|engines| engines[0] == *id).count();
        names.iter().map(|id| (id.clone(), owned(id))).collect()
    }
}
