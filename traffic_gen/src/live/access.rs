//! How a run's agents reach the exchange, which of them a process runs, and how they register.

use std::sync::Arc;
use std::time::Duration;

use agents::Identity;
use agents::transport::Transport;
use futures_util::StreamExt;
use schemas::AgentId;
use schemas::control::Registration;
use serde::{Deserialize, Serialize};

use crate::control::{ControlClient, ControlError};

/// Registrations taken away at a time at the end of a run, and how long that may take.
const REMOVALS_MAX: usize = 16;
const REMOVAL_MAX: Duration = Duration::from_secs(5);

/// How agents reach the exchange under test.
pub struct Access<'a> {
    /// The gateway's control plane.
    pub control: &'a ControlClient,
    /// A transport for an agent.
    pub transport: &'a dyn Fn(&AgentId) -> Arc<dyn Transport>,
    /// An agent's identity.
    pub identity: &'a dyn Fn(&AgentId) -> Identity,
}

/// Which agents of a scenario one process runs, where several share them: every `of`-th, from `number` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentShare {
    /// The first of them.
    pub number: u32,
    /// Processes that share the agents; 0: this one has none.
    pub of: u32,
}

impl AgentShare {
    /// All of them.
    pub const WHOLE: Self = Self { number: 0, of: 1 };
    /// None of them.
    pub const NONE: Self = Self { number: 0, of: 0 };

    /// Whether the process runs this agent.
    #[must_use]
    pub fn has(self, agent: u32) -> bool {
        agent.checked_rem(self.of) == Some(self.number)
    }
}

/// Agents that a run has registered, and takes away at its end.
pub(crate) struct RegisteredAgents {
    control: ControlClient,
    identities: Vec<Identity>,
}

impl RegisteredAgents {
    pub(crate) fn new(control: &ControlClient) -> Self {
        Self { control: control.clone(), identities: Vec::new() }
    }

    /// Registers one more.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn register(&mut self, identity: &Identity, document: &Registration) -> Result<(), ControlError> {
        self.control.register(&identity.agent, &identity.token.current(), document).await?;
        self.identities.push(identity.clone());
        Ok(())
    }

    /// Takes all away, within [`REMOVAL_MAX`]. Whoever is left then is absent when its lease has ended.
    pub(crate) async fn remove(&self) {
        let removing =
            futures_util::stream::iter(&self.identities).for_each_concurrent(REMOVALS_MAX, async |identity| {
                let removed = self.control.remove(&identity.agent, &identity.token.current()).await;
                if let Err(error) = removed {
                    tracing::debug!(agent = %identity.agent, %error, "the registration stays");
                }
            });
        if tokio::time::timeout(REMOVAL_MAX, removing).await.is_err() {
            tracing::warn!(
                "not every registration was taken away in time: the others are absent when their lease ends"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_is_of_one_share() {
        let shares = (0..3).map(|number| AgentShare { number, of: 3 });
        for agent in 0..10 {
            assert_eq!(shares.clone().filter(|share| share.has(agent)).count(), 1);
            assert!(AgentShare::WHOLE.has(agent) && !AgentShare::NONE.has(agent));
        }
    }
}
