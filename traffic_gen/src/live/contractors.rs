//! The contractors of a population: scripted ones, or ones whose terms a language model chooses.

use std::sync::Arc;

#[cfg(feature = "llm")]
use agents::model::contractor::{AskingContractor, spawn};
#[cfg(feature = "llm")]
use agents::model::{Consultant, ModelAgentConfig, ModelContractor};
use agents::transport::Transport;
use agents::{Agent, AgentError, AgentHandle, AgentOptions, Contractor, ContractorConfig, Identity};
use schemas::AgentId;
use tokio_util::sync::CancellationToken;

use super::{CallScenario, LiveError};

/// What contractors ask: a model that they share.
#[cfg(feature = "llm")]
#[derive(Debug, Clone)]
pub struct ModelPopulation {
    /// What they are told, and may offer.
    pub config: Arc<ModelAgentConfig>,
    /// The model, with its accounts.
    pub consultant: Arc<Consultant>,
    /// Makes the markers around words of others, who must not know it.
    pub marker_seed: u64,
}

/// A contractor that runs.
pub enum RunningContractor {
    /// A scripted one.
    Scripted(AgentHandle<Contractor>),
    /// One that asks a model.
    #[cfg(feature = "llm")]
    Asking(AgentHandle<AskingContractor>),
}

impl RunningContractor {
    /// Starts a contractor of a scenario.
    ///
    /// # Errors
    /// [`LiveError::Contractor`].
    pub fn start(
        scenario: &CallScenario,
        (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
        cancel: &CancellationToken,
    ) -> Result<Self, LiveError> {
        let name = identity.agent.clone();
        #[cfg(feature = "llm")]
        if let Some(ModelPopulation { config, consultant, marker_seed }) = scenario.model.clone() {
            let contractor = ModelContractor::try_new(&name, config, scenario.seed, marker_seed)?;
            let way = (transport, identity, options);
            return Ok(Self::Asking(spawn(contractor, consultant, way, cancel.clone())));
        }
        let own = scenario.by_contractor.get(&name).unwrap_or(&scenario.contractor);
        let config = ContractorConfig { seed: scenario.seed, ..own.clone() };
        let strategy = Contractor::try_new(&name, config)?;
        let agent = Agent::new(transport, identity, strategy).with_options(options);
        Ok(Self::Scripted(agent.spawn(cancel.clone())))
    }

    /// What a registration says of the contractors of a scenario.
    #[must_use]
    pub fn description(scenario: &CallScenario) -> &'static str {
        #[cfg(feature = "llm")]
        if scenario.model.is_some() {
            return "model contractor";
        }
        let _ = scenario;
        "scripted contractor"
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        match self {
            Self::Scripted(handle) => handle.agent(),
            #[cfg(feature = "llm")]
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
            #[cfg(feature = "llm")]
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
            #[cfg(feature = "llm")]
            Self::Asking(handle) => handle.join().await,
        };
        summary.map(|_| ())
    }
}
