//! Two indexes that hold the same profiles give the same hits, whatever happened to them before.

#[path = "../../traffic_gen/scripted/src/corpus.rs"]
#[allow(dead_code, unreachable_pub, reason = "the laboratory uses the rest")]
mod corpus;
#[path = "index/scan.rs"]
#[allow(dead_code, unreachable_pub, reason = "another test uses the rest")]
mod scan;

use std::cmp::Reverse;

use corpus::Corpus;
use proptest::prelude::*;
use proptest::sample::SizeRange;
use scan::ScanIndex;
use schemas::AgentId;
use search::tokens::{TOKEN_CHARS_MAX, tokens};
use search::{Hit, HitPlace, PostingsIndex, ProfileDocument, ProfileStanding, Query};

/// What is done to an index.
#[derive(Debug, Clone)]
enum Step {
    Put(AgentId, Vec<String>, ProfileStanding),
    Remove(AgentId),
}

fn agents() -> impl Strategy<Value = AgentId> {
    (0..40_u8).prop_map(|number| agent(usize::from(number)))
}

/// Texts of few words, so that scores are often equal.
fn words(count: impl Into<SizeRange>) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop_oneof![4 => 0..4_u8, 2 => 4..12_u8, 1 => 12..40_u8], count)
        .prop_map(|words| words.into_iter().map(|word| format!("w{word}")).collect())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let standing = prop_oneof![4 => Just(ProfileStanding::Listed), 1 => Just(ProfileStanding::Unlisted)];
    let put = (agents(), words(0..12), standing).prop_map(|(agent, words, standing)| Step::Put(agent, words, standing));
    let step = prop_oneof![3 => put, 1 => agents().prop_map(Step::Remove)];
    prop::collection::vec(step, 0..200)
}

/// Any characters, with those that are syntax elsewhere, have no case of one letter, or are written without spaces more often.
fn any_text() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec![
        '"', '(', '*', ':', '\0', '\u{202e}', 'İ', 'ß', 'ﬃ', '東', 'の', 'カ', 'ษ', ' ', 'a', 'A', '1',
    ]);
    let character = prop_oneof![3 => special, 1 => any::<char>()];
    prop::collection::vec(character, 0..120).prop_map(|characters| characters.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn postings_give_what_a_scan_gives_after_every_change(
        steps in steps(),
        queries in prop::collection::vec(words(1..6), 1..6),
        limit in 1..50_usize,
        left_out in agents(),
    ) {
        let mut postings = PostingsIndex::default();
        let mut scan = ScanIndex::default();
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Put(agent, words, standing) => {
                    let document = ProfileDocument::of_texts([words.join(" ").as_str()]);
                    postings.put(agent, document.clone(), *standing, number);
                    scan.put(agent, document, *standing, number);
                }
                Step::Remove(agent) => {
                    postings.remove(agent);
                    scan.remove(agent);
                }
            }
            prop_assert_eq!(postings.collection(), scan.collection());
            let query = &queries[number % queries.len()];
            let query = Query::of_text(&query.join(" "));
            let admits = |agent: &AgentId, value: &usize| *agent != left_out && value % 7 != 3;
            let expected = scan.search(&query, limit, &admits);
            prop_assert_eq!(&postings.search(&query, limit, None, &admits), &expected);
            // Page by page, the same hits.
            let mut paged: Vec<Hit<usize>> = Vec::new();
            while let Some(last) = postings.search(&query, 3, paged.last().map(|hit| &hit.place), &admits).first() {
                paged.push(last.clone());
                prop_assert!(paged.len() <= 100);
            }
            paged.truncate(limit);
            prop_assert_eq!(paged, expected);
        }
        prop_assert_eq!(postings.len(), scan.len());
    }

    #[test]
    fn any_text_is_a_profile_and_a_query(profiles in prop::collection::vec(any_text(), 0..8), query in any_text()) {
        let mut postings = PostingsIndex::default();
        let mut scan = ScanIndex::default();
        for (number, text) in profiles.iter().enumerate() {
            let document = ProfileDocument::of_texts([text.as_str()]);
            let length: u32 = document.frequencies().map(|(_, frequency)| u32::from(frequency)).sum();
            prop_assert_eq!(document.length(), length);
            postings.put(&agent(number), document.clone(), ProfileStanding::Listed, number);
            scan.put(&agent(number), document, ProfileStanding::Listed, number);
        }
        for token in tokens(&query) {
            prop_assert!((1..=TOKEN_CHARS_MAX).contains(&token.chars().count()), "{token}");
        }
        let query = Query::of_text(&query);
        let everybody = |_: &AgentId, _: &usize| true;
        let expected = scan.search(&query, 10, &everybody);
        prop_assert_eq!(postings.search(&query, 10, None, &everybody), expected);
    }

    #[test]
    fn the_order_of_arrival_changes_nothing(
        profiles in prop::collection::vec(words(1..12), 1..40),
        seed in any::<u64>(),
        query in words(1..6),
    ) {
        let query = Query::of_text(&query.join(" "));
        let mut order: Vec<usize> = (0..profiles.len()).collect();
        let in_order = filled(&profiles, &order);
        Corpus::new(seed).shuffle(&mut order);
        let mut shuffled = filled(&profiles, &order);
        // A fifth updated, a tenth removed and put back.
        for number in order.iter().step_by(5) {
            shuffled.put(&agent(*number), ProfileDocument::of_texts(["other words w1 w2"]), ProfileStanding::Listed, *number);
            shuffled.put(&agent(*number), ProfileDocument::of_texts([profiles[*number].join(" ").as_str()]), ProfileStanding::Listed, *number);
        }
        for number in order.iter().step_by(10) {
            shuffled.remove(&agent(*number));
            shuffled.put(&agent(*number), ProfileDocument::of_texts([profiles[*number].join(" ").as_str()]), ProfileStanding::Listed, *number);
        }
        let everybody = |_: &AgentId, _: &usize| true;
        prop_assert_eq!(in_order.search(&query, 50, None, &everybody), shuffled.search(&query, 50, None, &everybody));
    }
}

#[test]
fn long_profiles_that_come_and_go_move_no_score() {
    let document = |count: usize| {
        let words: Vec<String> = (0..count).map(|word| format!("w{word}")).collect();
        ProfileDocument::of_texts([words.join(" ").as_str()])
    };
    let query = Query::of_text("w1 w40 w400");
    let everybody = |_: &AgentId, _: &usize| true;
    let mut index = filled(&[], &[]);
    index.put(&agent(0), document(50), ProfileStanding::Listed, 0);
    index.put(&agent(1), document(500), ProfileStanding::Listed, 1);
    let before = index.search(&query, 50, None, &everybody);
    for length in [255, 256, 300, 1_000, 70_000] {
        index.put(&agent(2), document(length), ProfileStanding::Listed, 2);
        index.remove(&agent(2));
        assert_eq!(index.search(&query, 50, None, &everybody), before, "{length} words");
    }
}

#[test]
fn generated_profiles_are_found_as_a_scan_finds_them() {
    let mut corpus = Corpus::new(7);
    let mut postings = PostingsIndex::default();
    let mut scan = ScanIndex::default();
    let tasks: Vec<_> = (0..300).map(|_| corpus.task(2)).collect();
    for (number, labelled) in tasks.iter().flat_map(|task| &task.labelled).enumerate() {
        let document = ProfileDocument::of_texts([labelled.profile.as_str()]);
        postings.put(&agent(number), document.clone(), ProfileStanding::Listed, number);
        scan.put(&agent(number), document, ProfileStanding::Listed, number);
    }
    let clauses: Vec<&String> = tasks.iter().flat_map(|task| &task.clauses).step_by(4).collect();
    assert!(clauses.len() > 250);
    for clause in clauses {
        let query = Query::of_text(clause);
        let expected = scan.search(&query, 10, &|_, _| true);
        assert_eq!(expected.len(), 10, "common words stand everywhere");
        assert_eq!(postings.search(&query, 10, None, &|_, _| true), expected, "{clause}");
    }
}

#[test]
fn what_a_search_has_looked_at_is_counted() {
    let mut index = PostingsIndex::default();
    for number in 0..1000 {
        let text = if number % 10 == 0 { "walls roofs" } else { "walls" };
        index.put(&agent(number), ProfileDocument::of_texts([text]), ProfileStanding::Listed, number);
    }
    let looked_at =
        |text: &str, admitted: bool| index.search_counted(&Query::of_text(text), 3, None, &|_, _| admitted).1;
    assert_eq!([looked_at("nobody", true), looked_at("roofs", true), looked_at("walls", true)], [0, 100, 1000]);
    assert_eq!(looked_at("walls roofs", true), 100, "what is common can lift nobody any more");
    assert_eq!(looked_at("walls roofs", false), 1100, "filters that nobody passes leave all of them to be looked at");
}

#[test]
fn a_small_registry_has_the_scores_worked_out_by_hand() {
    let mut index = PostingsIndex::default();
    let profiles = ["paint walls", "paint paint paint paint roofs", "walls and roofs and gutters", "sing"];
    for (number, text) in profiles.iter().enumerate() {
        index.put(&agent(number), ProfileDocument::of_texts([*text]), ProfileStanding::Listed, ());
    }
    // N = 4, lengths 2, 4, 5, 1, mean 3; df(paint) = 2: ln 2 = 0.693147.
    // agent-0: 0.693147 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2/3)) = 0.802591
    // agent-1: 0.693147 * 6.6 / (3 + 1.2 * (0.25 + 0.75 * 4/3)) = 1.016616
    let found = |text: &str| -> Vec<(String, u64)> {
        let hits = index.search(&Query::of_text(text), 10, None, &|_, ()| true);
        hits.into_iter().map(|hit| (hit.place.agent.to_string(), hit.place.score)).collect()
    };
    let row = |agent: &str, score| (agent.to_owned(), score);
    assert_eq!(found("Paint!"), [row("agent-1", 1_016_616), row("agent-0", 802_591)]);
    assert_eq!(found("nobody"), []);
    assert_eq!(found("\"( *"), []);
}

#[test]
fn who_may_not_be_found_moves_no_score() {
    let mut index = PostingsIndex::default();
    for number in 0..4 {
        index.put(&agent(number), ProfileDocument::of_texts(["paint walls"]), ProfileStanding::Listed, ());
    }
    let query = Query::of_text("paint");
    let before = index.search(&query, 10, None, &|_, ()| true);
    index.put(&agent(9), ProfileDocument::of_texts(["paint paint paint"]), ProfileStanding::Unlisted, ());
    let sees_all = index.search(&query, 10, None, &|_, ()| true);
    let others = index.search(&query, 10, None, &|found, ()| *found != agent(9));
    assert_eq!(others, before);
    assert_eq!((sees_all.len(), &sees_all[1..]), (5, before.as_slice()));
}

#[test]
fn equal_scores_follow_the_agents_id_and_places_compare_as_hits_follow() {
    let mut index = PostingsIndex::default();
    for number in [3, 1, 2, 0] {
        index.put(&agent(number), ProfileDocument::of_texts(["same"]), ProfileStanding::Listed, ());
    }
    let query = Query::of_text("same");
    let hits = index.search(&query, 3, None, &|_, ()| true);
    let names: Vec<&str> = hits.iter().map(|hit| hit.place.agent.as_str()).collect();
    assert_eq!(names, ["agent-0", "agent-1", "agent-2"]);
    let place = |hit: &Hit<()>| (Reverse(hit.place.score), hit.place.agent.clone());
    assert!(hits.is_sorted_by(|one, next| place(one) < place(next)));
    let better = HitPlace { score: hits[0].place.score + 1, agent: agent(9) };
    assert_eq!(index.search(&query, 3, Some(&better), &|_, ()| true), hits);
}

fn agent(number: usize) -> AgentId {
    AgentId::try_new(&format!("agent-{number}")).unwrap_or_else(|error| panic!("{error}"))
}

fn filled(profiles: &[Vec<String>], order: &[usize]) -> PostingsIndex<usize> {
    let mut index = PostingsIndex::default();
    for number in order {
        index.put(
            &agent(*number),
            ProfileDocument::of_texts([profiles[*number].join(" ").as_str()]),
            ProfileStanding::Listed,
            *number,
        );
    }
    index
}
