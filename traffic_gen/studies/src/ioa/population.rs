//! Tasks, the agents they were made for, and sub-tasks, from a seed.

use schemas::AgentId;
use schemas::ids::IdError;
use scripted::corpus::{CLAUSE_COMMON, Corpus, PROFILE_COMMON, THEMES};

/// Of five tasks so many are made for two agents, the others for three: 375 and 250 of 625.
const PAIRS_OF_FIVE: usize = 3;
/// Of 25 tasks so many have a sub-task that one of their agents can do: 300 of 625.
const OWN_OF_25: usize = 12;
/// Words of its theme that a sub-task has.
const SUB_TASK_WORDS: usize = 7;
/// Words of its theme that a specialist's profile has.
const SPECIALIST_WORDS: usize = 12;

/// Everything of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Population {
    /// The seed.
    pub seed: u64,
    /// The tasks.
    pub tasks: Vec<TeamTask>,
    /// A sub-task of each task.
    pub sub_tasks: Vec<SubTask>,
    /// Profiles of the agents that tasks were made for.
    pub labelled: Vec<Profile>,
    /// Profiles of the agents that sub-tasks were made for and that no task knows.
    pub specialists: Vec<Profile>,
}

/// An agent and what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The agent.
    pub agent: AgentId,
    /// Its description.
    pub text: String,
}

/// A task and whom it was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamTask {
    /// A clause for each theme.
    pub clauses: Vec<String>,
    /// The agents, as places in [`Population::labelled`].
    pub labelled: Vec<usize>,
}

/// A part of a task that comes up while its team works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubTask {
    /// Its task, as a place in [`Population::tasks`].
    pub task: usize,
    /// What is asked.
    pub text: String,
    /// Whom it was made for.
    pub made_for: MadeFor,
}

/// Whom a sub-task was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeFor {
    /// An agent of the task, as a place in [`Population::labelled`].
    Member(usize),
    /// An agent that no task knows, as a place in [`Population::specialists`].
    Specialist(usize),
}

impl Population {
    /// The population of a seed, with so many tasks.
    ///
    /// # Errors
    /// [`IdError`], for no number there is.
    pub fn drawn(seed: u64, tasks: usize) -> Result<Self, IdError> {
        let mut corpus = Corpus::new(seed);
        let pairs = tasks * PAIRS_OF_FIVE / 5;
        let (mut population, mut drawn) = (Self::empty(seed), Vec::new());
        for number in 0..tasks {
            let task = corpus.task(if number < pairs { 2 } else { 3 });
            let first = population.labelled.len();
            for (place, labelled) in (first..).zip(&task.labelled) {
                population.labelled.push(Profile::new("agent", place, labelled.profile.clone())?);
            }
            let labelled = (first..population.labelled.len()).collect();
            population.tasks.push(TeamTask { clauses: task.clauses.clone(), labelled });
            drawn.push(task);
        }
        let mut order: Vec<usize> = (0..tasks).collect();
        corpus.shuffle(&mut order);
        let own = tasks * OWN_OF_25 / 25;
        for (number, task) in order.into_iter().enumerate() {
            let (Some(of), Some(team)) = (drawn.get(task), population.tasks.get(task)) else { continue };
            let made = if number < own { own_words(&mut corpus, of, &team.labelled) } else { None };
            let (text, made_for) = match made {
                Some((text, place)) => (text, MadeFor::Member(place)),
                None => {
                    let place = population.specialists.len();
                    let (text, profile) = foreign_words(&mut corpus, &of.themes);
                    population.specialists.push(Profile::new("specialist", place, profile)?);
                    (text, MadeFor::Specialist(place))
                }
            };
            population.sub_tasks.push(SubTask { task, text, made_for });
        }
        Ok(population)
    }

    fn empty(seed: u64) -> Self {
        Self { seed, tasks: Vec::new(), sub_tasks: Vec::new(), labelled: Vec::new(), specialists: Vec::new() }
    }
}

impl Profile {
    fn new(name: &str, number: usize, text: String) -> Result<Self, IdError> {
        Ok(Self { agent: AgentId::try_new(&format!("{name}-{number:05}"))?, text })
    }
}

/// A sub-task of words that one of a task's agents has in its profile, spelled as there, and that agent's place.
fn own_words(corpus: &mut Corpus, task: &scripted::corpus::Task, places: &[usize]) -> Option<(String, usize)> {
    let member = corpus.below(task.labelled.len());
    let themes = &task.labelled.get(member)?.mentions;
    let mentions = themes.get(corpus.below(themes.len()))?;
    let drawn: Option<Vec<String>> =
        (0..SUB_TASK_WORDS).map(|_| mentions.get(corpus.below(mentions.len())).cloned()).collect();
    Some((corpus.among_common(drawn?, CLAUSE_COMMON), *places.get(member)?))
}

/// A sub-task of a theme that a task does not have, and the profile of an agent that has it.
fn foreign_words(corpus: &mut Corpus, themes: &[usize]) -> (String, String) {
    // A task has a few of the many themes: this ends.
    let theme = loop {
        let theme = corpus.below(THEMES);
        if !themes.contains(&theme) {
            break theme;
        }
    };
    let words = corpus.words(theme, SUB_TASK_WORDS);
    let (_, text) = corpus.text(&words, CLAUSE_COMMON);
    let known = corpus.extended(&words, SPECIALIST_WORDS);
    let (_, profile) = corpus.text(&known, PROFILE_COMMON);
    (text, profile)
}
