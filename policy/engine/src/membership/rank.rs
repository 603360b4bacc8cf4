//! Rendezvous hashing: every engine computes the same order, and an engine that comes or goes moves only its own lanes.

use schemas::{Digest, Lane};

/// Engines in the order in which they should own a lane.
pub(super) fn ranked<'a>(lane: Lane, engines: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut scored: Vec<([u8; 16], &String)> = engines.map(|id| (score(lane, id), id)).collect();
    scored.sort_unstable_by(|one, other| other.cmp(one));
    scored.into_iter().map(|(_, id)| id.clone()).collect()
}

fn score(lane: Lane, engine: &str) -> [u8; 16] {
    Digest::of_parts(&[&[lane.0], engine.as_bytes()]).short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_goes_moves_only_its_own_lanes() {
        let engines: Vec<String> = (0..5).map(|number| format!("engine-{number}")).collect();
        for lane in (0..64).map(Lane) {
            let all = ranked(lane, engines.iter());
            assert_eq!(all, ranked(lane, engines.iter().rev()), "the order of arrival does not matter");
            let without = ranked(lane, engines.iter().filter(|id| **id != all[1]));
            assert_eq!(without[0], all[0]);
        }
    }

    #[test]
    fn lanes_are_spread_over_the_engines() {
        let engines: Vec<String> = (0..4).map(|number| format!("engine-{number}")).collect();
        for engine in &engines {
            let owned = (0..=255).map(Lane).filter(|lane| ranked(*lane, engines.iter())[0] == *engine).count();
            assert!((40..90).contains(&owned), "{engine} owns {owned} of 256");
        }
    }
}
