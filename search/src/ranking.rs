//! What a document scores (docs/spec/search.md#se-10).
//!
//! BM25 over a collection of documents, with `k1` = 1.2 and `b` = 0.75. Each token's part is rounded to millionths
//! before the parts are added, so a score is an integer that no order of adding changes.

use std::collections::BTreeSet;

use crate::document::{ProfileDocument, ProfileStanding};
use crate::tokens::tokens;

/// Saturation of a token's frequency.
const K1: f64 = 1.2;
/// How much a document's length counts.
const B: f64 = 0.75;
/// Parts of a score's unit.
const PARTS: f64 = 1e6;

/// The listed documents, as far as scores depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CollectionStatistics {
    /// How many there are.
    pub documents: u64,
    /// The sum of their lengths.
    pub length: u64,
}

impl CollectionStatistics {
    /// A document was added.
    pub fn add(&mut self, document_length: u32, standing: ProfileStanding) {
        if standing == ProfileStanding::Listed {
            self.documents += 1;
            self.length += u64::from(document_length);
        }
    }

    /// A document that was added is taken out again.
    pub fn remove(&mut self, document_length: u32, standing: ProfileStanding) {
        if standing == ProfileStanding::Listed {
            self.documents = self.documents.saturating_sub(1);
            self.length = self.length.saturating_sub(u64::from(document_length));
        }
    }

    /// How much a token says that stands in so many listed documents; above 0. More documents than there are count as all.
    #[must_use]
    pub fn inverse_frequency(&self, documents_with: u64) -> f64 {
        let (all, with) = (as_real(self.documents), as_real(documents_with.min(self.documents)));
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }

    /// What a token adds to a document's score, in millionths. It rises with the token's frequency in the document, and
    /// never rises with the document's length. Where nothing is listed, every document has the mean length.
    #[must_use]
    pub fn part(&self, inverse_frequency: f64, frequency: u8, document_length: u32) -> u64 {
        let relative = if self.length == 0 {
            1.0
        } else {
            f64::from(document_length) * as_real(self.documents) / as_real(self.length)
        };
        let frequency = f64::from(frequency);
        let saturated = frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * relative));
        // Finite and not negative: an inverse frequency is at most ln(2^65).
        (PARTS * inverse_frequency * saturated).round() as u64
    }
}

/// Counts below 2^53 are exact.
fn as_real(count: u64) -> f64 {
    count as f64
}

/// What is searched for: the distinct tokens of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    tokens: BTreeSet<String>,
}

impl Query {
    /// The query of a text. A text without words finds nothing.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self { tokens: tokens(text).into_iter().collect() }
    }

    /// The query that asks for what stands in a document.
    #[must_use]
    pub fn of_document(document: &ProfileDocument) -> Self {
        Self { tokens: document.frequencies().map(|(token, _)| token.to_owned()).collect() }
    }

    /// Its tokens, in their order.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_published_formula_rounded_to_millionths() {
        let collection = CollectionStatistics { documents: 10, length: 400 };
        // ln(1 + 8.5/2.5) * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 20 / 40)) = 1.481604… * 4.4 / 2.75
        let inverse_frequency = collection.inverse_frequency(2);
        assert_eq!((inverse_frequency * PARTS).round() as u64, 1_481_605);
        assert_eq!(collection.part(inverse_frequency, 2, 20), 2_370_567);
        // Of mean length, once: the inverse frequency itself.
        assert_eq!(collection.part(inverse_frequency, 1, 40), 1_481_605);
    }

    #[test]
    fn a_part_rises_with_frequency_and_falls_with_length() {
        let collection = CollectionStatistics { documents: 1000, length: 40_000 };
        for documents_with in [0, 1, 500, 1000, 5000] {
            let weight = collection.inverse_frequency(documents_with);
            assert!(weight > 0.0);
            for length in 1..200 {
                assert!(collection.part(weight, 1, length) < collection.part(weight, 2, length));
                assert!(collection.part(weight, 3, length) >= collection.part(weight, 3, length + 1));
            }
        }
    }

    #[test]
    fn nothing_listed_still_scores_what_is_not_listed() {
        let mut collection = CollectionStatistics::default();
        collection.add(7, ProfileStanding::Unlisted);
        assert_eq!(collection, CollectionStatistics::default());
        assert!(collection.part(collection.inverse_frequency(0), 1, 7) > 0);
    }

    #[test]
    fn a_query_is_its_distinct_words() {
        let query = Query::of_text("Paint the the walls, paint!");
        assert_eq!(query.tokens().collect::<Vec<_>>(), ["paint", "the", "walls"]);
        assert_eq!(Query::of_document(&ProfileDocument::of_texts(["walls the", "paint the"])), query);
    }
}
