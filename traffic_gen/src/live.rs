//! A run against a real exchange: contractors, one initiator, open-loop calls, a verdict.

use std::sync::Arc;
use std::time::Duration;

use agents::observer::Observer;
use agents::transport::Transport;
use agents::{
    Agent, AgentError, AgentHandle, AgentOptions, CallRequest, Contractor, ContractorConfig, Identity, Initiator,
};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::ids::Capability;
use schemas::payload::Cfp;
use schemas::{Address, AgentId, NegotiationId, TopicName};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::arrivals::{PoissonArrivals, RateError};
use crate::control::{ControlClient, ControlError};
use crate::pacer::pace;
use crate::recorder::Recorder;

/// The topic calls go to.
pub const TOPIC: &str = "negotiation";
/// The initiator, as in the paper.
pub const INITIATOR: &str = "alice";
/// Calls open at once beyond which new ones are not started: an exchange that is this far behind would only be measured
/// by its memory.
pub const OPEN_MAX: usize = 100_000;
/// How often a run looks whether it has settled.
const SETTLE_POLL: Duration = Duration::from_millis(20);

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Contractors.
    pub contractors: u32,
    /// Name of the policy calls ask for.
    pub policy: String,
    /// Calls per second.
    pub rate: f64,
    /// How long calls arrive.
    pub duration: Duration,
    /// Seed of arrivals and contractors.
    pub seed: u64,
    /// Begins every negotiation's id. Contractors draw by it, so a repeat of a run needs the same; a log that is kept
    /// needs another one for each run.
    pub run: String,
    /// How contractors behave.
    pub contractor: ContractorConfig,
    /// Collection deadline of each call, in milliseconds.
    pub reply_within_ms: u64,
    /// How long to wait for open negotiations after the last call.
    pub drain: Duration,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            contractors: 12,
            policy: "medium".to_owned(),
            rate: 10.0,
            duration: Duration::from_secs(20),
            seed: 1,
            run: "run".to_owned(),
            contractor: ContractorConfig::default(),
            reply_within_ms: 2_000,
            drain: Duration::from_secs(30),
        }
    }
}

/// What can go wrong in a run.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The rate.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// A contractor's parameters.
    #[error(transparent)]
    Contractor(#[from] agents::contractor::ConfigError),
    /// An agent could not connect.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// An agent could not register.
    #[error("registration: {0}")]
    Control(#[from] ControlError),
}

/// How agents reach the exchange under test.
pub struct Access<'a> {
    /// The gateway's control plane.
    pub control: &'a ControlClient,
    /// A transport for an agent.
    pub transport: &'a dyn Fn(&AgentId) -> Arc<dyn Transport>,
    /// An agent's identity.
    pub identity: &'a dyn Fn(&AgentId) -> Identity,
}

/// Contractors that are connected and registered.
pub struct Population {
    contractors: Vec<AgentHandle<Contractor>>,
    cancel: CancellationToken,
}

/// The name of a contractor.
///
/// # Panics
/// Never: the name is made of letters and digits.
#[must_use]
pub fn contractor_name(number: u32) -> AgentId {
    AgentId::try_new(&format!("contractor-{number}")).expect("a number makes a name")
}

/// The initiator's id.
///
/// # Panics
/// Never: the name is a constant.
#[must_use]
pub fn initiator_name() -> AgentId {
    AgentId::try_new(INITIATOR).expect("the constant is a name")
}

fn topic() -> TopicName {
    TopicName::try_new(TOPIC).expect("the constant is a name")
}

fn capability() -> Capability {
    Capability::try_new("negotiate").expect("the constant is a name")
}

fn options(observer: Option<&Arc<Recorder>>) -> AgentOptions {
    let observer = observer.map(|recorder| Arc::clone(recorder) as Arc<dyn Observer>);
    AgentOptions { observer, ..AgentOptions::default() }
}

impl Population {
    /// Registers and connects the contractors of a scenario.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn start(
        access: &Access<'_>,
        scenario: &Scenario,
        observer: Option<&Arc<Recorder>>,
    ) -> Result<Self, LiveError> {
        let cancel = CancellationToken::new();
        let registration = Registration {
            capabilities: vec![capability()],
            topics: vec![topic()],
            consent: Consent { default: ConsentEffect::Allow, rules: Vec::new() },
            description: Some("scripted contractor".to_owned()),
        };
        let mut contractors = Vec::new();
        for number in 0..scenario.contractors {
            let name = contractor_name(number);
            let identity = (access.identity)(&name);
            access.control.register(&name, &identity.token.current(), &registration).await?;
            let config = ContractorConfig { seed: scenario.seed, ..scenario.contractor.clone() };
            let strategy = Contractor::try_new(&name, config)?;
            let agent = Agent::new((access.transport)(&name), identity, strategy).with_options(options(observer));
            contractors.push(agent.spawn(cancel.clone()));
        }
        for contractor in &contractors {
            contractor.connected().await?;
        }
        Ok(Self { contractors, cancel })
    }

    /// Ends the contractors.
    ///
    /// # Errors
    /// The first contractor's error.
    pub async fn stop(self) -> Result<(), LiveError> {
        self.cancel.cancel();
        for contractor in self.contractors {
            contractor.join().await?;
        }
        Ok(())
    }
}

/// Opens calls as they fall due until the scenario's duration, or `cancel`, ends it; then waits for what is open.
/// Returns how many calls were not started because [`OPEN_MAX`] were open.
///
/// # Errors
/// [`LiveError`].
pub async fn call(
    access: &Access<'_>,
    scenario: &Scenario,
    recorder: &Arc<Recorder>,
    started: Instant,
    cancel: &CancellationToken,
) -> Result<u64, LiveError> {
    let name = initiator_name();
    let initiator = Initiator::spawn((access.transport)(&name), (access.identity)(&name), options(Some(recorder)));
    initiator.connected().await?;
    // Events are watched by the recorder; the channel only has to be drained.
    let (events, mut drained) = mpsc::channel(1024);
    let drain = tokio::spawn(async move { while drained.recv().await.is_some() {} });
    let mut shed = 0;
    let arrivals = PoissonArrivals::try_new(scenario.rate, scenario.seed)?;
    let mut due = pace(started.into_std(), arrivals, scenario.duration);
    loop {
        let next = tokio::select! {
            next = due.recv() => next,
            () = cancel.cancelled() => None,
        };
        let Some((number, intended)) = next else { break };
        let intended = Instant::from_std(intended);
        if recorder.open() >= OPEN_MAX {
            shed += 1;
            continue;
        }
        let own_id = format!("{}-{number}", scenario.run);
        if let Ok(negotiation) = NegotiationId::form(&name, &own_id) {
            recorder.call_due(negotiation, intended);
        }
        match initiator.call(request(scenario, own_id), events.clone()).await {
            Ok(_) => {}
            Err(agents::initiator::CallError::Agent(error)) => return Err(error.into()),
            Err(agents::initiator::CallError::Id(error)) => tracing::error!(%error, "an id of our own was refused"),
        }
    }
    settle(recorder, scenario.drain).await;
    drop(events);
    initiator.shutdown().await?;
    drain.abort();
    Ok(shed)
}

/// The call a scenario makes.
#[must_use]
pub fn request(scenario: &Scenario, own_id: String) -> CallRequest {
    let cfp = Cfp {
        task: Some("deliver one parcel".to_owned()),
        policy: Some(scenario.policy.clone()),
        reply_within_ms: Some(scenario.reply_within_ms),
        ..Cfp::default()
    };
    let mut request = CallRequest::new(own_id, vec![Address::Topic(topic())], cfp);
    request.capabilities = vec![capability()];
    request
}

/// Waits until every negotiation has ended and every agent has been told all it is owed, at most `patience`.
pub(crate) async fn settle(recorder: &Recorder, patience: Duration) {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline && !(recorder.open() == 0 && recorder.is_settled()) {
        tokio::time::sleep(SETTLE_POLL).await;
    }
}
