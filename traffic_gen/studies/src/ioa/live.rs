//! The same formations by searches at a gateway: every profile is a registration there, every clause a request.

use std::collections::BTreeMap;

use agents::control::ControlClient;
use bus::memory::{self, MemoryOptions};
use schemas::AgentId;
use schemas::control::Registration;
use schemas::search::{HITS_DEFAULT, SearchRequest};
use scripted::team::forming::{FoundAgent, recruits};
use serde::Serialize;
use traffic_gen::exchange::{Exchange, ExchangeOptions};

use super::formation::{FormationRecord, Forming, RECRUITS_MAX, SUB_TEAM};
use super::population::{Population, Profile};
use crate::study::StudyError;

/// Agents that search in turn: a search costs five requests of an agent's rate.
const SEARCHERS: usize = 16;
/// Differences that are told; all are counted.
const TOLD_MAX: usize = 10;

/// What the searches came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LiveFormationFigures {
    /// Profiles that were registered.
    pub registered: usize,
    /// Searches.
    pub searches: usize,
    /// Teams and sub-teams.
    pub teams: usize,
    /// Teams of other agents than their records have.
    pub differences: usize,
    /// What the first of them were.
    pub told: Vec<String>,
}

/// Forms every team and sub-team by searches at a gateway, and compares it with its record.
///
/// # Errors
/// [`StudyError::Unplayed`] when the exchange does not start, or refuses.
pub async fn play(population: &Population, records: &[FormationRecord]) -> Result<LiveFormationFigures, StudyError> {
    let mut formation = LiveFormation::start().await?;
    formation.register(&population.labelled).await?;
    let called = |forming: Forming| -> BTreeMap<usize, &FormationRecord> {
        records.iter().filter(|record| record.forming == forming).map(|record| (record.task, record)).collect()
    };
    let regular = called(Forming::Regular);
    for (number, task) in population.tasks.iter().enumerate() {
        let Some(record) = regular.get(&number) else { continue };
        let mut found = Vec::new();
        for clause in &task.clauses {
            found.push(formation.find(clause, HITS_DEFAULT).await?);
        }
        formation.compare(number, recruits(&found, RECRUITS_MAX), &record.called);
    }
    formation.register(&population.specialists).await?;
    let nested = called(Forming::Nested);
    for sub_task in &population.sub_tasks {
        let Some(record) = nested.get(&sub_task.task) else { continue };
        if record.alone.is_some_and(|alone| !alone.taken) {
            let found = formation.find(&sub_task.text, SUB_TEAM).await?;
            let agents = found.into_iter().map(|found| found.agent).collect();
            formation.compare(sub_task.task, agents, &record.called);
        }
    }
    Ok(formation.end().await)
}

/// A running exchange, and what was found at it.
struct LiveFormation {
    exchange: Exchange,
    control: ControlClient,
    /// Tokens of the agents that search.
    tokens: Vec<String>,
    figures: LiveFormationFigures,
}

impl LiveFormation {
    async fn start() -> Result<Self, StudyError> {
        let exchange = Exchange::start(memory::open(MemoryOptions::default()), ExchangeOptions::default()).await;
        let exchange = exchange.map_err(live)?;
        let control = ControlClient::try_new(exchange.url()).map_err(live)?;
        let mut formation = Self { exchange, control, tokens: Vec::new(), figures: LiveFormationFigures::default() };
        for number in 0..SEARCHERS {
            let token = formation.token(&AgentId::try_new(&format!("searcher-{number}"))?)?;
            formation.tokens.push(token);
        }
        Ok(formation)
    }

    fn token(&self, agent: &AgentId) -> Result<String, StudyError> {
        Ok(self.exchange.identity(agent).map_err(live)?.token.current())
    }

    async fn register(&mut self, profiles: &[Profile]) -> Result<(), StudyError> {
        for Profile { agent, text } in profiles {
            let registration = Registration { description: Some(text.clone()), ..Registration::default() };
            let token = self.token(agent)?;
            self.control.register(agent, &token, &registration).await.map_err(live)?;
            self.figures.registered += 1;
        }
        Ok(())
    }

    async fn find(&mut self, text: &str, limit: u32) -> Result<Vec<FoundAgent>, StudyError> {
        let wanted = SearchRequest { limit, ..SearchRequest::of_texts(vec![text.to_owned()]) };
        let token = self.tokens.get(self.figures.searches % SEARCHERS).map(String::as_str).unwrap_or_default();
        let answer = self.control.search(token, &wanted).await.map_err(live)?;
        self.figures.searches += 1;
        Ok(answer.hits.into_iter().map(|hit| FoundAgent { agent: hit.agent, score: hit.score }).collect())
    }

    fn compare(&mut self, task: usize, found: Vec<AgentId>, expected: &[AgentId]) {
        self.figures.teams += 1;
        if found != expected {
            self.figures.differences += 1;
            if self.figures.told.len() < TOLD_MAX {
                self.figures.told.push(format!("task {task}: {found:?}, not {expected:?}"));
            }
        }
    }

    async fn end(self) -> LiveFormationFigures {
        self.exchange.shutdown().await;
        self.figures
    }
}

fn live(error: impl ToString) -> StudyError {
    StudyError::unplayed("the searches at a gateway", error)
}
