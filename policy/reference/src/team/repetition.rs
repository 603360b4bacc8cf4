//! When a say repeats an earlier one (docs/spec/team.md#tm-25): shingles of three words, compared by brute force.

use std::collections::BTreeSet;

use schemas::digest::{FNV_START, fnv};

/// Words of a shingle.
const SHINGLE_WORDS: usize = 3;
/// Shingles that are compared: the smallest of both texts together.
const SKETCH_LEN: usize = 128;
/// Earlier says a text is compared with.
const LOOK_BACK: usize = 16;

/// The step of the most similar of the last says, of equals the latest, if it is similar enough.
pub(super) fn most_similar(spoken: &[(u32, String)], text: &str, least_ppm: u32) -> Option<u32> {
    let recent = spoken.iter().rev().take(LOOK_BACK).rev();
    let measured = recent.map(|(step, earlier)| (similarity_ppm(earlier, text), *step));
    measured.max().filter(|(ppm, _)| *ppm >= least_ppm).map(|(_, step)| step)
}

/// The share of the smallest shingles of two texts together that is in both, in parts per million.
fn similarity_ppm(one: &str, other: &str) -> u32 {
    let (one, other) = (shingles(one), shingles(other));
    let smallest: Vec<&u64> = one.union(&other).take(SKETCH_LEN).collect();
    let shared = smallest.iter().filter(|shingle| one.contains(shingle) && other.contains(shingle)).count();
    u32::try_from(shared * 1_000_000 / smallest.len()).expect("at most a million")
}

/// The hashes of all runs of three words; of fewer words, of all of them.
fn shingles(text: &str) -> BTreeSet<u64> {
    let words = words(text);
    let hash = |run: &[String]| fnv(FNV_START, run.join(" ").as_bytes());
    if words.len() < SHINGLE_WORDS {
        return BTreeSet::from([hash(&words)]);
    }
    words.windows(SHINGLE_WORDS).map(hash).collect()
}

/// Runs of ASCII letters and digits in lower case; every character that is not ASCII is one by itself.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            words.last_mut().expect("at least one").push(character.to_ascii_lowercase());
        } else if character.is_ascii() {
            words.push(String::new());
        } else {
            words.extend([character.to_string(), String::new()]);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
