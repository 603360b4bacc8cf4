//! The contractors of a population: scripted ones, or ones whose terms a language model chooses.

use std::sync::Arc;

use agents::contractor::PerformingContractor;
use agents::model::asking::{self, Asking, ModelCounts, spawn};
use agents::model::{Consultant, ModelAgentConfig, ModelContractor};
use agents::routine::RoutineRunner;
use agents::transport::Transport;
use agents::{Agent, AgentError, AgentHandle, AgentOptions, Contractor, ContractorConfig, Identity};
use schemas::AgentId;
use tokio_util::sync::CancellationToken;

use super::Population;
use super::{CallScenario, LiveError};
use crate::models::ModelSummary;

/// Contractors that ask a model.
#[derive(Clone)]
pub struct ModelPopulation {
    /// How many of the contractors of a scenario ask it, from 0 to 1; the others are scripted.
    pub share: f64,
    /// The model they ask.
    pub model: SharedModel,
}

/// A model that several contractors ask, or a lead.
#[derive(Clone)]
pub struct SharedModel {
    /// What they are told, and may offer.
    pub config: Arc<ModelAgentConfig>,
    /// The model, with its accounts.
    pub consultant: Arc<Consultant>,
    /// Makes the markers around words of others, who must not know it.
    pub marker_seed: u64,
}

impl ModelPopulation {
    /// How many of so many contractors ask the model.
    pub fn count_of(&self, contractors: u32) -> u32 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u32 is one")]
        let count = (f64::from(contractors) * self.share.clamp(0.0, 1.0)).round() as u32;
        count
    }
}

impl SharedModel {
    /// What some contractors of a population asked it in a run, and what that cost. Ask before the population is stopped.
    pub async fn summary(&self, population: &Population, asks: impl Fn(&AgentId) -> bool) -> ModelSummary {
        let mut counts = ModelCounts::default();
        let mut agents = 0;
        for contractor in population.contractors.iter().filter(|contractor| asks(contractor.agent())) {
            if let Some(own) = contractor.model_counts().await {
                counts += own;
                agents += 1;
            }
        }
        ModelSummary::of(&self.consultant, agents, (counts.questions, counts.fallbacks))
    }
}

impl CallScenario {
    /// Whether a contractor asks the model. Those that do are spread evenly over the numbers.
    fn asks_model(&self, number: u32) -> bool {
        let Some(model) = &self.model else { return false };
        let (count, all) = (u64::from(model.count_of(self.contractors)), u64::from(self.contractors.max(1)));
        let until = |number: u64| number * count / all;
        until(u64::from(number) + 1) > until(number.into())
    }

    fn has_model(&self, number: u32) -> bool {
        self.model_of(number).is_some()
    }

    /// The model that a contractor asks, if it asks one.
    fn model_of(&self, number: u32) -> Option<&SharedModel> {
        let shared = self.model.as_ref().filter(|_| self.asks_model(number));
        shared.map(|population| &population.model).or_else(|| self.models.get(&self.contractor_name(number)))
    }
}

impl CallScenario {
    /// What carries out the awards of a scripted contractor.
    fn routines_of(&self, number: u32) -> Option<&Arc<RoutineRunner>> {
        let index = usize::try_from(number).unwrap_or(0).checked_rem(self.routines.len())?;
        self.routines.get(index)
    }

    /// The name of a contractor of this scenario: scripted ones and those that ask a model never share one.
    pub fn contractor_name(&self, number: u32) -> AgentId {
        let name = if self.asks_model(number) { model_contractor_name(number) } else { contractor_name(number) };
        AgentId::try_new(&format!("{}{name}", self.prefix)).unwrap_or(name)
    }
}

/// The name of a scripted contractor.
///
/// # Panics
/// Never: the name is made of letters and digits.
pub fn contractor_name(number: u32) -> AgentId {
    AgentId::try_new(&format!("contractor-{number}")).expect("a number makes a name")
}

fn model_contractor_name(number: u32) -> AgentId {
    AgentId::try_new(&format!("model-contractor-{number}")).expect("a number makes a name")
}

/// A contractor that runs.
pub enum RunningContractor {
    /// A scripted one.
    Scripted(AgentHandle<Contractor>),
    /// A scripted one whose awards are carried out by routines.
    Performing(AgentHandle<PerformingContractor>),
    /// One that asks a model.
    Asking(AgentHandle<Asking<ModelContractor>>),
}

impl RunningContractor {
    /// Starts a contractor of a scenario, by its number.
    ///
    /// # Errors
    /// [`LiveError::Contractor`].
    pub fn start(
        scenario: &CallScenario,
        number: u32,
        (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
        cancel: &CancellationToken,
    ) -> Result<Self, LiveError> {
        let name = identity.agent.clone();
        if let Some(SharedModel { config, consultant, marker_seed }) = scenario.model_of(number).cloned() {
            let contractor = ModelContractor::try_new(&name, config, scenario.seed, marker_seed)?;
            let way = (transport, identity, options);
            return Ok(Self::Asking(spawn(contractor, consultant, way, cancel.clone())));
        }
        let own = scenario.by_contractor.get(&name).unwrap_or(&scenario.contractor);
        let config = ContractorConfig { seed: scenario.seed, ..own.clone() };
        let strategy = Contractor::try_new(&name, config)?;
        if let Some(runner) = scenario.routines_of(number) {
            let way = (transport, identity, options);
            return Ok(Self::Performing(PerformingContractor::spawn(strategy, runner, way, cancel.clone())));
        }
        let agent = Agent::new(transport, identity, strategy).with_options(options);
        Ok(Self::Scripted(agent.spawn(cancel.clone())))
    }

    /// What the registration of a contractor of a scenario says of it.
    pub fn description(scenario: &CallScenario, number: u32) -> &'static str {
        if scenario.has_model(number) { "model contractor" } else { "scripted contractor" }
    }

    /// What its calls came to, where it asks a model.
    async fn model_counts(&self) -> Option<ModelCounts> {
        let Self::Asking(handle) = self else { return None };
        Some(asking::counts(handle).await)
    }

    /// The agent.
    pub fn agent(&self) -> &AgentId {
        match self {
            Self::Scripted(handle) => handle.agent(),
            Self::Performing(handle) => handle.agent(),
            Self::Asking(handle) => handle.agent(),
        }
    }

    /// Waits for its first connection.
    ///
    /// # Errors
    /// As [`AgentHandle::connected`].
    pub async fn connected(&self) -> Result<(), AgentError> {
        match self {
            Self::Scripted(handle) => handle.connected().await,
            Self::Performing(handle) => handle.connected().await,
            Self::Asking(handle) => handle.connected().await,
        }
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// As [`AgentHandle::join`].
    pub async fn join(self) -> Result<(), AgentError> {
        let summary = match self {
            Self::Scripted(handle) => handle.join().await,
            Self::Performing(handle) => handle.join().await,
            Self::Asking(handle) => handle.join().await,
        };
        summary.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agents::model::{ModelConfig, ScriptedModel};

    use super::*;

    #[test]
    fn a_share_of_the_contractors_asks_the_model_and_no_two_have_one_name() {
        for (contractors, share, expected) in [(12, 1.0, 12), (12, 0.5, 6), (12, 0.0, 0), (3, 0.5, 2), (7, 0.3, 2)] {
            let consultant = Arc::new(Consultant::new(ScriptedModel::saying("5"), ModelConfig::default()));
            let config = Arc::new(ModelAgentConfig::default());
            let model = SharedModel { config, consultant, marker_seed: 1 };
            let model = Some(ModelPopulation { share, model });
            let scenario = CallScenario { contractors, model, ..CallScenario::default() };
            let asking = (0..contractors).filter(|number| scenario.asks_model(*number));
            assert_eq!(asking.clone().count(), expected, "{share} of {contractors}");
            for number in asking {
                assert_eq!(scenario.contractor_name(number).as_str(), format!("model-contractor-{number}"));
                assert_eq!(RunningContractor::description(&scenario, number), "model contractor");
            }
            let names: BTreeSet<AgentId> = (0..contractors).map(|number| scenario.contractor_name(number)).collect();
            assert_eq!(names.len(), contractors as usize);
            let scripted = (0..contractors).filter(|number| !scenario.asks_model(*number));
            let all_scripted = CallScenario { contractors, ..CallScenario::default() };
            for number in scripted {
                assert_eq!(scenario.contractor_name(number), all_scripted.contractor_name(number));
            }
        }
    }
}
