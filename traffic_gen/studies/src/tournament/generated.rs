//! Domains drawn from a seed: linear utilities over two to four issues, of which each party cares about others.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::bargain::PPM;
use serde_json::{Value, json};

/// Values of an issue.
const VALUES: std::ops::RangeInclusive<usize> = 3..=8;
/// Issues of a domain.
const ISSUES: std::ops::RangeInclusive<usize> = 2..=4;
/// Weights of a party add up to it.
const WEIGHTS: u32 = 1000;
/// What no agreement is worth to a party, in parts per million.
const RESERVATION: std::ops::RangeInclusive<u32> = 100_000..=400_000;
/// Rounds of its bargains.
const ROUNDS: u32 = 50;

/// The document of domain `number`, from 1.
pub fn document(seed: u64, number: u64) -> String {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    random.set_stream(number);
    let sizes: Vec<usize> = (0..random.random_range(ISSUES)).map(|_| random.random_range(VALUES)).collect();
    let issues: Vec<Value> = (1..)
        .zip(&sizes)
        .map(|(at, &size)| json!({"name": format!("issue{at}"), "values": (1..=size).collect::<Vec<_>>()}))
        .collect();
    let parties: Vec<Value> = ["first", "second"].map(|name| party(name, &sizes, &mut random)).into();
    json!({
        "name": format!("generated-{seed}-{number}"),
        "description": format!("Drawn from seed {seed}."),
        "issues": issues,
        "parties": parties,
        "rules": {"rounds": ROUNDS},
    })
    .to_string()
}

fn party(name: &str, sizes: &[usize], random: &mut ChaCha12Rng) -> Value {
    // Cuts of the whole, all different, so that no issue is without weight.
    let mut cuts = BTreeSet::from([WEIGHTS]);
    while cuts.len() < sizes.len() {
        cuts.insert(random.random_range(1..WEIGHTS));
    }
    let mut before = 0;
    let weights: Vec<u32> = cuts.into_iter().map(|end| end - std::mem::replace(&mut before, end)).collect();
    let linear: Vec<Value> = (1..)
        .zip(sizes.iter().zip(weights))
        .map(|(at, (&size, weight))| {
            let mut worth: Vec<u32> = (0..size).map(|_| random.random_range(0..=PPM)).collect();
            // The best of an issue is worth all of its weight, and the worst nothing.
            let (worst, best) = (random.random_range(0..size), random.random_range(1..size));
            (worth[worst], worth[(worst + best) % size]) = (0, PPM);
            json!({"issue": format!("issue{at}"), "weight": weight, "worth": worth})
        })
        .collect();
    json!({"name": name, "utility": {"linear": linear}, "reservation": random.random_range(RESERVATION)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tournament::TournamentDomain;

    #[test]
    fn every_generated_domain_can_be_played_and_follows_from_its_seed() {
        for number in 1..=200 {
            let drawn = document(7, number);
            let domain = TournamentDomain::read(&drawn).unwrap_or_else(|fault| panic!("{fault}: {drawn}"));
            assert_eq!(domain.name(), format!("generated-7-{number}"));
            assert_eq!(drawn, document(7, number));
            assert_ne!(drawn.replace("generated-7", ""), document(8, number).replace("generated-8", ""));
        }
    }
}
