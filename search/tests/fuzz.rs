//! Random queries with meaning: no text panics or takes long, and an index finds what a scan finds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../../traffic_gen/scripted/src/corpus.rs"]
#[allow(dead_code, unreachable_pub, reason = "the laboratory uses the rest")]
mod corpus;
#[path = "index/scan.rs"]
#[allow(dead_code, unreachable_pub, reason = "another test uses the rest")]
mod scan;

use corpus::Corpus;
use fuzzing::{Mixture, feed};
use scan::ScanIndex;
use schemas::AgentId;
use search::{PostingsIndex, ProfileDocument, ProfileStanding, Query};

/// Queries where no time is asked for.
const QUERIES: u64 = 500;
/// Tasks of the corpus, with two profiles each.
const TASKS: usize = 100;
/// Longest query, in bytes: 512 characters of four.
const QUERY_BYTES_MAX: usize = 2048;

#[test]
fn no_query_takes_long_or_finds_what_a_scan_does_not() {
    let (mut corpus, mut postings, mut scan) = (Corpus::new(7), PostingsIndex::default(), ScanIndex::default());
    let tasks: Vec<_> = (0..TASKS).map(|_| corpus.task(2)).collect();
    for (number, labelled) in tasks.iter().flat_map(|task| &task.labelled).enumerate() {
        let document = ProfileDocument::of_texts([labelled.profile.as_str()]);
        let agent = AgentId::try_new(&format!("a{number}")).unwrap();
        postings.put(&agent, document.clone(), ProfileStanding::Listed, number);
        scan.put(&agent, document, ProfileStanding::Listed, number);
    }
    let valid: Vec<&str> = tasks.iter().flat_map(|task| &task.clauses).map(String::as_str).collect();
    let words =
        ["AND", "OR", "\"", "field:", "*", "(", "[", "\u{0}", "\u{202e}", "ß", "İ", "東", "の", " ", "-", "a", "1"];
    feed("search-queries", QUERIES, Mixture { valid: &valid, words: &words, bytes_max: QUERY_BYTES_MAX }, |text| {
        let (query, everybody) = (Query::of_text(text), |_: &AgentId, _: &usize| true);
        let expected = scan.search(&query, 10, &everybody);
        assert_eq!(postings.search(&query, 10, None, &everybody), expected);
    });
}
