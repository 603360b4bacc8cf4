//! Who is called for each task and sub-task, and how near that is to whom it was made for.

use std::collections::BTreeMap;

use schemas::AgentId;
use schemas::search::HITS_DEFAULT;
use scripted::corpus::Corpus;
use scripted::team::forming::{FoundAgent, TASK_ALONE_PPM, WordWeights, recruits};
use search::{HitPlace, PostingsIndex, ProfileDocument, ProfileStanding, Query};
use serde::{Deserialize, Serialize};

use super::population::{MadeFor, Population, Profile, TeamTask};

/// Most agents called for a task.
pub const RECRUITS_MAX: usize = 4;
/// Agents called for a sub-task that nobody of the team covers.
pub const SUB_TEAM: u32 = 2;
/// Sets the draws of the random recruits apart from those of the population.
const RANDOM_SEED: u64 = 0x5eed;

/// What was formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forming {
    /// A team for a task, by what searches found.
    Regular,
    /// A sub-team for a sub-task, or none.
    Nested,
    /// As many agents as a team may have, at random.
    Random,
}

/// One agent that a task or sub-task was made for, and how near those called came to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormationRecord {
    /// What was formed.
    pub forming: Forming,
    /// The task, counted from 0.
    pub task: usize,
    /// Whom it was made for.
    pub made_for: AgentId,
    /// Who was called, or does it.
    pub called: Vec<AgentId>,
    /// The smallest rank of one of them in the order of similarity to `made_for`, which has rank 1; the number of profiles where
    /// nobody was called.
    pub rank: usize,
    /// Of a sub-task, whether one of the team could do it, and whether one was found to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<Decision>,
}

/// Whether a sub-task needs no sub-team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// By whom it was made for.
    pub right: bool,
    /// By what the team's profiles cover.
    pub taken: bool,
}

/// Profiles that are searched.
struct Registry {
    index: PostingsIndex<()>,
    document_by_agent: BTreeMap<AgentId, ProfileDocument>,
    weights: WordWeights,
}

impl Registry {
    fn of<'p>(profiles: impl Iterator<Item = &'p Profile>) -> Self {
        let mut index = PostingsIndex::default();
        let mut document_by_agent = BTreeMap::new();
        for Profile { agent, text } in profiles {
            let document = ProfileDocument::of_texts([text.as_str()]);
            index.put(agent, document.clone(), ProfileStanding::Listed, ());
            document_by_agent.insert(agent.clone(), document);
        }
        let weights = WordWeights::among(document_by_agent.values());
        Self { index, document_by_agent, weights }
    }

    /// The best hits of a text.
    fn find(&self, text: &str, limit: u32) -> Vec<FoundAgent> {
        let hits = self.index.search(&Query::of_text(text), limit as usize, None, &|_, ()| true);
        hits.into_iter().map(|hit| FoundAgent { agent: hit.place.agent, score: hit.place.score }).collect()
    }

    /// Ranks of all profiles by similarity to one, which has rank 1. Profiles that share no word with it have none.
    fn ranks(&self, to: &AgentId) -> BTreeMap<AgentId, usize> {
        let query = self.document_by_agent.get(to).map(Query::of_document);
        let hits = query.map(|query| self.index.search(&query, self.index.len(), None, &|agent, ()| agent != to));
        let others = hits.into_iter().flatten().map(|hit| hit.place);
        let ranked = (2..).zip(others).map(|(rank, HitPlace { agent, .. })| (agent, rank));
        std::iter::once((to.clone(), 1)).chain(ranked).collect()
    }

    /// The smallest rank of those called; the number of profiles where none has one.
    fn rank(&self, to: &AgentId, called: &[AgentId]) -> usize {
        let ranks = self.ranks(to);
        called.iter().filter_map(|agent| ranks.get(agent)).min().copied().unwrap_or(self.index.len())
    }

    /// How much of a text an agent's profile covers.
    fn covered_ppm(&self, text: &str, agent: &AgentId) -> u64 {
        self.document_by_agent.get(agent).map_or(0, |document| self.weights.covered_ppm(text, document))
    }
}

/// Forms a team for every task and sub-task.
pub fn play(population: &Population) -> Vec<FormationRecord> {
    let registry = Registry::of(population.labelled.iter());
    let mut records = regular(population, &registry);
    let nested_registry = Registry::of(population.labelled.iter().chain(&population.specialists));
    records.extend(nested(population, &nested_registry));
    records.extend(random(population, &registry));
    records
}

/// What a team called for a task comes to, for each agent that the task was made for.
fn of_team<'a>(
    (forming, number, called): (Forming, usize, Vec<AgentId>),
    population: &'a Population,
    registry: &'a Registry,
) -> impl Iterator<Item = FormationRecord> + 'a {
    let places = population.tasks.get(number).into_iter().flat_map(|task| &task.labelled);
    places.filter_map(|place| population.labelled.get(*place)).map(move |made_for| {
        let rank = registry.rank(&made_for.agent, &called);
        let (made_for, called) = (made_for.agent.clone(), called.clone());
        FormationRecord { forming, task: number, made_for, called, rank, alone: None }
    })
}

fn regular(population: &Population, registry: &Registry) -> Vec<FormationRecord> {
    let of_task = |(number, task): (usize, &TeamTask)| {
        let found: Vec<_> = task.clauses.iter().map(|clause| registry.find(clause, HITS_DEFAULT)).collect();
        of_team((Forming::Regular, number, recruits(&found, RECRUITS_MAX)), population, registry)
    };
    population.tasks.iter().enumerate().flat_map(of_task).collect()
}

fn nested(population: &Population, registry: &Registry) -> Vec<FormationRecord> {
    let mut records = Vec::new();
    for sub_task in &population.sub_tasks {
        let places = population.tasks.get(sub_task.task).map(|task| task.labelled.as_slice()).unwrap_or_default();
        let team = places.iter().filter_map(|place| population.labelled.get(*place)).map(|profile| &profile.agent);
        let covered = team.map(|agent| (registry.covered_ppm(&sub_task.text, agent), std::cmp::Reverse(agent)));
        let best = covered.max().filter(|(covered_ppm, _)| *covered_ppm >= TASK_ALONE_PPM);
        let called: Vec<AgentId> = match best {
            Some((_, std::cmp::Reverse(agent))) => vec![agent.clone()],
            None => registry.find(&sub_task.text, SUB_TEAM).into_iter().map(|found| found.agent).collect(),
        };
        let (made_for, right) = match sub_task.made_for {
            MadeFor::Member(place) => (population.labelled.get(place), true),
            MadeFor::Specialist(place) => (population.specialists.get(place), false),
        };
        let Some(Profile { agent, .. }) = made_for else { continue };
        let rank = registry.rank(agent, &called);
        let alone = Some(Decision { right, taken: best.is_some() });
        let (made_for, task) = (agent.clone(), sub_task.task);
        records.push(FormationRecord { forming: Forming::Nested, task, made_for, called, rank, alone });
    }
    records
}

/// What searching is held against.
fn random(population: &Population, registry: &Registry) -> Vec<FormationRecord> {
    let mut corpus = Corpus::new(population.seed ^ RANDOM_SEED);
    let of_task = |number| {
        let mut places: Vec<usize> = (0..population.labelled.len()).collect();
        corpus.shuffle(&mut places);
        let drawn = places.iter().take(RECRUITS_MAX).filter_map(|place| population.labelled.get(*place));
        let called = drawn.map(|profile| profile.agent.clone()).collect();
        of_team((Forming::Random, number, called), population, registry)
    };
    (0..population.tasks.len()).flat_map(of_task).collect()
}
