//! Generated profiles of agents, and clauses that ask for them; everything follows from a seed.
//!
//! A theme is a set of words of its own. Each mention of a word takes one of two spellings, so that two texts about one
//! theme share only some of their words. Besides them every text has common words, the first of which stand nearly
//! everywhere.

use rand::seq::{SliceRandom as _, index};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// How many themes there are.
pub const THEMES: usize = 399;
/// Words of a theme.
pub const THEME_WORDS: usize = 20;
/// Common words; the frequency of each is one over its rank.
pub const COMMON_WORDS: usize = 400;
/// Words of its theme that a clause has.
pub const CLAUSE_WORDS: usize = 3;
/// Common words that a clause has.
pub const CLAUSE_COMMON: usize = 6;
/// Words of each of its themes that a profile has, those of the clause among them.
pub const PROFILE_WORDS: usize = 10;
/// Common words that a profile has.
pub const PROFILE_COMMON: usize = 20;
/// Themes from which those of a task are taken.
const THEMES_DRAWN: usize = 25;
/// How many themes a task has: the first to the last of these.
const TASK_THEMES: std::ops::RangeInclusive<usize> = 4..=6;
/// Weight of the most frequent common word; that of another is this over its rank.
const FREQUENCY_SCALE: u64 = 1_000_000;

/// A word of a theme, without its spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word {
    /// The theme, 0 to [`THEMES`] - 1.
    pub theme: usize,
    /// The word, 0 to [`THEME_WORDS`] - 1.
    pub word: usize,
}

/// Texts, one after another.
#[derive(Debug)]
pub struct Corpus {
    random: ChaCha8Rng,
    /// Weights of the common words, each with all before it.
    common: Vec<u64>,
}

/// A task and the agents it was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its themes.
    pub themes: Vec<usize>,
    /// What is asked for: a clause for each theme.
    pub clauses: Vec<String>,
    /// The agents, each able to do some of the clauses, together all of them.
    pub labelled: Vec<Labelled>,
}

/// An agent that a task was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labelled {
    /// The mentions of each of its themes, as they stand in the profile.
    pub mentions: Vec<Vec<String>>,
    /// Its profile.
    pub profile: String,
}

impl Corpus {
    /// The corpus of a seed.
    pub fn new(seed: u64) -> Self {
        let weights = (1..=COMMON_WORDS as u64).map(|rank| FREQUENCY_SCALE / rank);
        let common = weights.scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { random: ChaCha8Rng::seed_from_u64(seed), common: common.collect() }
    }

    /// A task with clauses and so many labelled agents.
    pub fn task(&mut self, labelled: usize) -> Task {
        let mut themes = index::sample(&mut self.random, THEMES, THEMES_DRAWN).into_vec();
        themes.truncate(self.random.random_range(TASK_THEMES));
        let asked: Vec<Vec<Word>> = themes.iter().map(|theme| self.words(*theme, CLAUSE_WORDS)).collect();
        let clauses = asked.iter().map(|words| self.text(words, CLAUSE_COMMON).1).collect();
        let agents = (0..labelled).map(|agent| {
            let own: Vec<&Vec<Word>> = asked.iter().skip(agent).step_by(labelled.max(1)).collect();
            self.labelled(&own)
        });
        let labelled = agents.collect();
        Task { themes, clauses, labelled }
    }

    /// So many words of a theme, each once.
    pub fn words(&mut self, theme: usize, count: usize) -> Vec<Word> {
        let drawn = index::sample(&mut self.random, THEME_WORDS, count.min(THEME_WORDS));
        drawn.into_iter().map(|word| Word { theme, word }).collect()
    }

    /// Words with as many more of the same theme as make `count`.
    pub fn extended(&mut self, words: &[Word], count: usize) -> Vec<Word> {
        let Some(Word { theme, .. }) = words.first().copied() else { return Vec::new() };
        let mut others: Vec<Word> =
            (0..THEME_WORDS).map(|word| Word { theme, word }).filter(|word| !words.contains(word)).collect();
        others.shuffle(&mut self.random);
        words.iter().copied().chain(others).take(count.max(words.len())).collect()
    }

    /// A text that mentions words among so many common ones: the mentions, and the text.
    pub fn text(&mut self, words: &[Word], common: usize) -> (Vec<String>, String) {
        let mentions: Vec<String> = words.iter().map(|word| self.mention(*word)).collect();
        let text = self.among_common(mentions.clone(), common);
        (mentions, text)
    }

    /// A text of these mentions among so many common words.
    pub fn among_common(&mut self, mut mentions: Vec<String>, common: usize) -> String {
        for _ in 0..common {
            let word = self.common_word();
            mentions.push(word);
        }
        mentions.shuffle(&mut self.random);
        mentions.join(" ")
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end.max(1))
    }

    /// Puts items into a random order.
    pub fn shuffle<I>(&mut self, items: &mut [I]) {
        items.shuffle(&mut self.random);
    }

    fn labelled(&mut self, asked: &[&Vec<Word>]) -> Labelled {
        let mut mentions: Vec<Vec<String>> = Vec::new();
        for words in asked {
            let words = self.extended(words, PROFILE_WORDS);
            mentions.push(words.into_iter().map(|word| self.mention(word)).collect());
        }
        let profile = self.among_common(mentions.concat(), PROFILE_COMMON);
        Labelled { mentions, profile }
    }

    /// A word in one of its two spellings.
    fn mention(&mut self, Word { theme, word }: Word) -> String {
        let spelling = if self.random.random::<bool>() { 'a' } else { 'b' };
        format!("t{theme}w{word}{spelling}")
    }

    fn common_word(&mut self) -> String {
        let sum = self.common.last().copied().unwrap_or(1);
        let drawn = self.random.random_range(0..sum);
        let rank = self.common.partition_point(|before| *before <= drawn);
        let spelling = if self.random.random::<bool>() { 'a' } else { 'b' };
        format!("c{rank}{spelling}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_tasks_and_another_seed_others() {
        let tasks = |seed| {
            let mut corpus = Corpus::new(seed);
            (0..5).map(|_| corpus.task(2)).collect::<Vec<_>>()
        };
        assert_eq!(tasks(1), tasks(1));
        assert_ne!(tasks(1), tasks(2));
    }

    #[test]
    fn the_themes_of_a_task_are_dealt_round_its_agents() {
        let mut corpus = Corpus::new(1);
        for labelled in [2, 3] {
            let task = corpus.task(labelled);
            assert!(TASK_THEMES.contains(&task.themes.len()) && task.clauses.len() == task.themes.len());
            let dealt: usize = task.labelled.iter().map(|agent| agent.mentions.len()).sum();
            assert_eq!((task.labelled.len(), dealt), (labelled, task.themes.len()));
            for clause in &task.clauses {
                assert_eq!(clause.split(' ').count(), CLAUSE_WORDS + CLAUSE_COMMON);
            }
            for agent in &task.labelled {
                assert_eq!(agent.profile.split(' ').count(), agent.mentions.len() * PROFILE_WORDS + PROFILE_COMMON);
            }
        }
    }

    #[test]
    fn the_first_common_words_are_the_most_frequent() {
        let mut corpus = Corpus::new(1);
        let words: Vec<String> = (0..10_000).map(|_| corpus.common_word()).collect();
        let count =
            |rank: usize| words.iter().filter(|word| word.trim_end_matches(['a', 'b']) == format!("c{rank}")).count();
        // One over the rank, of which the sum is 6.57.
        assert!((1400..1650).contains(&count(0)) && (130..180).contains(&count(9)), "{} {}", count(0), count(9));
    }
}
