//! Forming a team without a model: which agents to call for a goal, from what searches found. Pure, and the same for the
//! same hits.
//!
//! A goal is split into clauses. Who covers nearly all of them by its own profile works alone. Otherwise each clause is
//! searched for, and those are called who add most to what the ones before them cover.

pub mod model;

use std::collections::{BTreeMap, BTreeSet};

use schemas::AgentId;
use schemas::search::{QUERIES_MAX, QUERY_LEN_MAX};
use search::{CollectionStatistics, ProfileDocument, ProfileStanding, Query};

/// Parts of a share: shares and gains are whole numbers of them.
pub const WHOLE_PPM: u64 = 1_000_000;
/// Who covers this much of a goal works alone.
pub const ALONE_PPM: u64 = 800_000;
/// Who covers this much of a task it owns does it alone, without a sub-team.
pub const TASK_ALONE_PPM: u64 = 200_000;
/// An agent that adds less to what is covered is not called. A clause that is covered whole counts [`WHOLE_PPM`].
pub const GAIN_PPM_MIN: u64 = 300_000;

/// The clauses of a goal: it is split at the ends of sentences, at semicolons and at line breaks. At most [`QUERIES_MAX`],
/// the last of which takes the rest, of [`QUERY_LEN_MAX`] characters each; what has no word is no clause.
pub fn clauses(goal: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut clause = String::new();
    let mut characters = goal.chars().peekable();
    while let Some(character) = characters.next() {
        let is_followed_by_space = characters.peek().is_none_or(|next| next.is_whitespace());
        let is_end = match character {
            '\n' | '\r' | ';' | '；' | '。' | '！' | '？' => true,
            '.' | '!' | '?' => is_followed_by_space,
            _ => false,
        };
        if is_end {
            parts.push(std::mem::take(&mut clause));
        } else {
            clause.push(character);
        }
    }
    parts.push(clause);
    let worded = parts.iter().map(|part| part.trim()).filter(|part| Query::of_text(part).tokens().next().is_some());
    let mut clauses: Vec<String> = Vec::new();
    for part in worded {
        let is_full = clauses.len() == QUERIES_MAX;
        match clauses.last_mut().filter(|_| is_full) {
            Some(last) => {
                last.push_str("; ");
                last.push_str(part);
            }
            None => clauses.push(part.to_owned()),
        }
    }
    clauses.into_iter().map(|clause| clause.chars().take(QUERY_LEN_MAX).collect()).collect()
}

/// How much each word says, by the profiles that are known: the fewer have it, the more.
#[derive(Debug, Clone, Default)]
pub struct WordWeights {
    collection: CollectionStatistics,
    documents_with: BTreeMap<String, u64>,
}

impl WordWeights {
    /// The weights among profiles.
    pub fn among<'d>(profiles: impl IntoIterator<Item = &'d ProfileDocument>) -> Self {
        let mut weights = Self::default();
        for profile in profiles {
            weights.collection.add(profile.length(), ProfileStanding::Listed);
            for (word, _) in profile.frequencies() {
                *weights.documents_with.entry(word.to_owned()).or_default() += 1;
            }
        }
        weights
    }

    /// The share of a text's weight that a profile has the words of, in millionths; 0 for a text without words.
    pub fn covered_ppm(&self, text: &str, profile: &ProfileDocument) -> u64 {
        let (mut all, mut covered) = (0.0, 0.0);
        for word in Query::of_text(text).tokens() {
            let with = self.documents_with.get(word).copied().unwrap_or_default();
            let weight = self.collection.inverse_frequency(with);
            all += weight;
            if profile.frequency(word) > 0 {
                covered += weight;
            }
        }
        // At most the whole: weights are above 0.
        if all > 0.0 { (WHOLE_PPM as f64 * covered / all).round() as u64 } else { 0 }
    }
}

/// An agent that a search for a clause found. Each clause is searched for by itself: the answer to a search for several holds
/// an agent under the first alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundAgent {
    /// The agent.
    pub agent: AgentId,
    /// Its score for the clause.
    pub score: u64,
}

/// Whom to call for what searches found, by clause: each time the agent that adds most to what is covered, the first by id
/// of several, until it adds less than [`GAIN_PPM_MIN`] or `recruits_max` are taken. Of each clause the best hit covers it
/// whole, and the others as much as their score is of the best.
pub fn recruits(found_by_clause: &[Vec<FoundAgent>], recruits_max: usize) -> Vec<AgentId> {
    let mut covers: BTreeMap<&AgentId, Vec<u64>> = BTreeMap::new();
    for (clause, found) in found_by_clause.iter().enumerate() {
        let best = found.iter().map(|one| one.score).max().unwrap_or_default().max(1);
        for FoundAgent { agent, score } in found {
            let of_agent = covers.entry(agent).or_insert_with(|| vec![0; found_by_clause.len()]);
            let share = u128::from(*score) * u128::from(WHOLE_PPM) / u128::from(best);
            if let Some(place) = of_agent.get_mut(clause) {
                *place = u64::try_from(share).unwrap_or(WHOLE_PPM).max(*place);
            }
        }
    }
    let mut covered = vec![0; found_by_clause.len()];
    let mut taken: BTreeSet<&AgentId> = BTreeSet::new();
    let mut order = Vec::new();
    while order.len() < recruits_max {
        let gain = |of_agent: &Vec<u64>| {
            of_agent.iter().zip(&covered).map(|(one, of_all): (&u64, &u64)| one.saturating_sub(*of_all)).sum::<u64>()
        };
        let others = covers.iter().filter(|(agent, _)| !taken.contains(*agent));
        let best = others
            .map(|(agent, of_agent)| (gain(of_agent), std::cmp::Reverse(*agent), of_agent))
            .max_by_key(|(gain, agent, _)| (*gain, *agent));
        let Some((gained, std::cmp::Reverse(agent), of_agent)) = best.filter(|(gained, ..)| *gained >= GAIN_PPM_MIN)
        else {
            break;
        };
        debug_assert!(gained > 0, "the least gain is above 0");
        covered = covered.iter().zip(of_agent).map(|(one, other)| *one.max(other)).collect();
        taken.insert(agent);
        order.push(agent.clone());
    }
    order
}

/// What to do about a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Formation {
    /// The own profile covers it, or nobody was found.
    Alone,
    /// Call these.
    Team(Vec<AgentId>),
}

/// Forms a team of the caller and at most `recruits_max` of those found. `goal_covered_ppm` is how much of the goal the
/// caller's own profile covers.
pub fn form(goal_covered_ppm: u64, found_by_clause: &[Vec<FoundAgent>], recruits_max: usize) -> Formation {
    if goal_covered_ppm >= ALONE_PPM {
        return Formation::Alone;
    }
    let team = recruits(found_by_clause, recruits_max);
    if team.is_empty() { Formation::Alone } else { Formation::Team(team) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_split_at_sentences_semicolons_and_lines() {
        let rows: [(&str, &[&str]); 6] = [
            ("Write a survey. Draw 2.5 figures! Why? now", &["Write a survey", "Draw 2.5 figures", "Why", "now"]),
            ("one; two\nthree\r\nfour", &["one", "two", "three", "four"]),
            ("論文を書く。図を描く！", &["論文を書く", "図を描く"]),
            (" ; … . !", &[]),
            ("", &[]),
            ("e.g. this", &["e.g", "this"]),
        ];
        for (goal, expected) in rows {
            assert_eq!(clauses(goal), expected, "{goal}");
        }
    }

    #[test]
    fn clauses_are_at_most_eight_and_as_long_as_a_query() {
        let many = (1..=10).map(|number| format!("c{number}")).collect::<Vec<_>>().join("; ");
        let split = clauses(&many);
        assert_eq!((split.len(), split[6].as_str(), split[7].as_str()), (8, "c7", "c8; c9; c10"));
        assert_eq!(clauses(&"é".repeat(600))[0].chars().count(), QUERY_LEN_MAX);
    }

    #[test]
    fn what_is_covered_is_counted_by_how_rare_its_words_are() {
        let profiles: Vec<ProfileDocument> = ["the wall", "the roof", "the roof", "the paint"]
            .iter()
            .map(|text| ProfileDocument::of_texts([*text]))
            .collect();
        let weights = WordWeights::among(&profiles);
        assert_eq!(weights.covered_ppm("the wall", &profiles[0]), WHOLE_PPM);
        assert_eq!(weights.covered_ppm("wall", &profiles[1]), 0);
        assert_eq!(weights.covered_ppm("…", &profiles[0]), 0);
        // ln(1 + 0.5/4.5) of ln(1 + 0.5/4.5) + ln(1 + 3.5/1.5)
        assert_eq!(weights.covered_ppm("the wall", &profiles[1]), 80_469);
    }

    #[test]
    fn agents_are_taken_by_what_they_add_and_equal_ones_by_id() {
        let rows: [(&[Hits], usize, &[&str]); 7] = [
            // One covers both clauses.
            (&[&[("a", 10), ("b", 9)], &[("b", 10), ("c", 8)]], 3, &["b"]),
            // Nobody covers both: the gain of the second is 0.3 of a clause at least.
            (&[&[("a", 10), ("b", 6)], &[("c", 10), ("b", 6)]], 3, &["b", "a", "c"]),
            (&[&[("a", 10)], &[("b", 10)], &[("c", 10)]], 2, &["a", "b"]),
            (&[&[("z", 10), ("y", 10)]], 3, &["y"]),
            (&[&[("a", 10), ("b", 7)], &[("b", 10), ("a", 7)]], 3, &["a", "b"]),
            (&[&[("a", 100), ("b", 71)], &[("b", 100), ("a", 71)]], 3, &["a"]),
            (&[&[], &[]], 3, &[]),
        ];
        for (found, recruits_max, expected) in rows {
            let found: Vec<Vec<FoundAgent>> = found.iter().map(|hits| hits.iter().map(one).collect()).collect();
            let names: Vec<String> = recruits(&found, recruits_max).iter().map(ToString::to_string).collect();
            assert_eq!(names, expected, "{found:?}");
        }
    }

    #[test]
    fn who_covers_the_goal_or_finds_nobody_works_alone() {
        let found = vec![vec![one(&("a", 10))]];
        let team = Formation::Team(vec![one(&("a", 1)).agent]);
        assert_eq!(form(ALONE_PPM - 1, &found, 3), team);
        assert_eq!(form(ALONE_PPM, &found, 3), Formation::Alone);
        assert_eq!(form(0, &[vec![]], 3), Formation::Alone);
        assert_eq!(form(0, &found, 0), Formation::Alone);
    }

    /// Agents and their scores for a clause.
    type Hits = &'static [(&'static str, u64)];

    fn one((name, score): &(&str, u64)) -> FoundAgent {
        FoundAgent { agent: AgentId::try_new(name).unwrap(), score: *score }
    }
}
