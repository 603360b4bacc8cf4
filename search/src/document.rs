//! What is ranked: an agent's profile as counted words.

use std::collections::BTreeMap;

use crate::tokens::tokens;

/// Of each token of a document so many count, in its frequency and in the length: repeating a word gains nothing.
pub const FREQUENCY_MAX: u8 = 3;

/// A profile as counted tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileDocument {
    /// How often each token stands in it, 1 to [`FREQUENCY_MAX`].
    frequency_by_token: BTreeMap<String, u8>,
    length: u32,
}

impl ProfileDocument {
    /// The document of texts, each read by itself: a word never spans two of them.
    #[must_use]
    pub fn of_texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut frequency_by_token: BTreeMap<String, u8> = BTreeMap::new();
        for token in texts.into_iter().flat_map(tokens) {
            let frequency = frequency_by_token.entry(token).or_default();
            *frequency = frequency.saturating_add(1).min(FREQUENCY_MAX);
        }
        let length = frequency_by_token.values().map(|frequency| u32::from(*frequency)).sum();
        Self { frequency_by_token, length }
    }

    /// Its tokens and how often each counts, in the order of the tokens.
    pub fn frequencies(&self) -> impl Iterator<Item = (&str, u8)> {
        self.frequency_by_token.iter().map(|(token, frequency)| (token.as_str(), *frequency))
    }

    /// How often a token counts in it; 0 where it does not stand in it.
    #[must_use]
    pub fn frequency(&self, token: &str) -> u8 {
        self.frequency_by_token.get(token).copied().unwrap_or_default()
    }

    /// The sum of its frequencies.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }
}

/// Whether a document counts in what scores are computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileStanding {
    /// It does: everybody may find it.
    Listed,
    /// It does not: scores would tell of it to those that may not find it.
    Unlisted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_token_at_most_three_count_in_frequency_and_length() {
        let document = ProfileDocument::of_texts(["paint paint", "Paint PAINT walls"]);
        assert_eq!((document.frequency("paint"), document.frequency("walls"), document.length()), (3, 1, 4));
        assert_eq!(document.frequency("wall"), 0);
        let repeated = ProfileDocument::of_texts([["paint "; 400].concat().as_str(), "walls"]);
        assert_eq!(repeated, document);
    }

    #[test]
    fn a_word_never_spans_two_texts() {
        let document = ProfileDocument::of_texts(["over", "lap"]);
        assert_eq!(document.frequencies().collect::<Vec<_>>(), [("lap", 1), ("over", 1)]);
    }
}
