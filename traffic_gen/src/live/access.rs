//! How a run's agents reach the exchange, which of them a process runs, and how they register.

use std::sync::Arc;
use std::time::Duration;

use agents::transport::Transport;
use agents::{AgentHandle, AgentOptions, Identity, Strategy};
use futures_util::StreamExt;
use schemas::control::{LEASE_MS_DEFAULT, Registration, Tag};
use schemas::{AgentId, Code};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::LiveError;
use agents::control::{ControlClient, ControlError};

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

    /// Whether the process runs who calls, where that is none of the agents that may be called.
    pub const fn calls(self) -> bool {
        self.of <= 1
    }

    /// Whether the process runs this agent.
    pub fn has(self, agent: u32) -> bool {
        agent.checked_rem(self.of) == Some(self.number)
    }
}

/// Agents that a process has registered, and takes away at its end: only where no other process has registered them since.
pub struct RegisteredAgents {
    control: ControlClient,
    instance: Option<Tag>,
    agents: Vec<(Identity, Registration)>,
}

impl RegisteredAgents {
    /// None yet.
    pub fn new(control: &ControlClient) -> Self {
        let instance = Tag::try_new(&format!("{:016x}", rand::random::<u64>())).ok();
        Self { control: control.clone(), instance, agents: Vec::new() }
    }

    /// Registers one more.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn register(&mut self, identity: &Identity, document: &Registration) -> Result<(), ControlError> {
        let document = Registration { instance: self.instance.clone(), ..document.clone() };
        self.control.register(&identity.agent, &identity.token.current(), &document).await?;
        self.agents.push((identity.clone(), document));
        Ok(())
    }

    /// Looks once in a lease, for as long as it is polled, whether all are still registered, and registers again who is not:
    /// another process of the same agent may have taken it away.
    pub async fn keep(&self) {
        loop {
            let lease_ms = self.agents.iter().map(|(_, document)| document.lease_ms).min().unwrap_or(LEASE_MS_DEFAULT);
            tokio::time::sleep(Duration::from_millis(lease_ms.into())).await;
            for (identity, document) in &self.agents {
                let (agent, token) = (&identity.agent, identity.token.current());
                let found: Result<Value, _> = self.control.read(&format!("/v1/agents/{agent}"), &token).await;
                if !matches!(found, Err(ControlError::Refused(refusal)) if refusal.code == Code::NotFound) {
                    continue;
                }
                let again = self.control.register(agent, &token, document).await;
                let error = again.err().map(|error| error.to_string());
                tracing::warn!(%agent, error, "its registration was taken away by another process; it registers again");
            }
        }
    }

    /// Takes all away, within 5 s. Whoever is left then is absent when its lease has ended.
    pub async fn remove(&self) {
        let removing =
            futures_util::stream::iter(&self.agents).for_each_concurrent(REMOVALS_MAX, async |(identity, document)| {
                let (agent, token) = (&identity.agent, identity.token.current());
                let removed = match &document.instance {
                    Some(instance) => self.control.deregister(agent, &token, instance).await,
                    None => self.control.remove(agent, &token).await,
                };
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

/// What an agent starts with: its transport, identity and options.
pub type AgentWay = (Arc<dyn Transport>, Identity, AgentOptions);

/// Agents of one strategy, registered and connected.
pub struct RunningAgents<S> {
    handles: Vec<AgentHandle<S>>,
    registered: RegisteredAgents,
    cancel: CancellationToken,
}

impl<S: Strategy + 'static> RunningAgents<S> {
    /// Registers and connects agents, each with what `spawn` starts it from. Where one cannot be registered, none runs.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn start<T>(
        access: &Access<'_>,
        (members, registration): (Vec<(AgentId, T)>, &Registration),
        options: &AgentOptions,
        spawn: impl Fn(T, AgentWay, CancellationToken) -> AgentHandle<S>,
    ) -> Result<Self, LiveError> {
        let (mut registered, cancel) = (RegisteredAgents::new(access.control), CancellationToken::new());
        for (name, _) in &members {
            registered.register(&(access.identity)(name), registration).await?;
        }
        let start = |(name, own): (AgentId, T)| {
            let way = ((access.transport)(&name), (access.identity)(&name), options.clone());
            spawn(own, way, cancel.clone())
        };
        let handles: Vec<AgentHandle<S>> = members.into_iter().map(start).collect();
        for handle in &handles {
            handle.connected().await?;
        }
        Ok(Self { handles, registered, cancel })
    }

    /// An agent, if it is one of them.
    pub fn get(&self, agent: &AgentId) -> Option<&AgentHandle<S>> {
        self.handles.iter().find(|handle| handle.agent() == agent)
    }

    /// Ends the agents and takes their registrations away.
    ///
    /// # Errors
    /// The first agent's error.
    pub async fn stop(self) -> Result<(), LiveError> {
        self.registered.remove().await;
        self.cancel.cancel();
        for handle in self.handles {
            handle.join().await?;
        }
        Ok(())
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
