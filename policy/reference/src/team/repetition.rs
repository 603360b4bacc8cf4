//! When a say repeats an earlier one (docs/spec/team.md#tm-52): shingles of three tokens, compared by brute force.

use std::collections::BTreeSet;

use schemas::digest::{FNV_START, fnv};

/// Tokens of a shingle.
const SHINGLE_TOKENS: usize = 3;
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

/// The hashes of all runs of three tokens; of fewer tokens, of all of them; of none, of the text.
fn shingles(text: &str) -> BTreeSet<u64> {
    let tokens = tokens(text);
    let hash = |run: &[String]| fnv(FNV_START, run.join(" ").as_bytes());
    if tokens.is_empty() {
        return BTreeSet::from([hash(&[text.to_owned()])]);
    }
    if tokens.len() < SHINGLE_TOKENS {
        return BTreeSet::from([hash(&tokens)]);
    }
    tokens.windows(SHINGLE_TOKENS).map(hash).collect()
}

/// Runs of ASCII letters and digits in lower case; every other character is one by itself, but for white space of ASCII, and for
/// full stops, commas, semicolons, colons, exclamation marks and question marks behind which, but for more of them, a part of a
/// sentence ends.
fn tokens(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = vec![String::new()];
    for (at, character) in characters.iter().enumerate() {
        let next = characters[at..].iter().find(|next| !is_mark(**next));
        let is_end = next.is_none_or(|next| next.is_ascii_whitespace() || ")]}\"'".contains(*next));
        if character.is_ascii_alphanumeric() {
            tokens.last_mut().expect("at least one").push(character.to_ascii_lowercase());
        } else if character.is_ascii_whitespace() || (is_mark(*character) && is_end) {
            tokens.push(String::new());
        } else {
            tokens.extend([character.to_string(), String::new()]);
        }
    }
    tokens.retain(|token| !token.is_empty());
    tokens
}

fn is_mark(character: char) -> bool {
    matches!(character, '.' | ',' | ';' | ':' | '!' | '?')
}
