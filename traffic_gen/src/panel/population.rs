//! Scripted panelists and an initiator on a running exchange.

use std::collections::BTreeMap;
use std::sync::Arc;

use agents::initiator::CallError;
use agents::observer::{Observed, Observer};
use agents::panel::{PanelMember, StubPanelist};
use agents::{Agent, AgentOptions, CallEvent, CallReport, CallRequest, Initiator};
use parking_lot::Mutex;
use schemas::control::Registration;
use schemas::delivery::{Closing, Finding, Notification};
use schemas::{AgentId, NegotiationId, Refusal};
use tokio::time::Instant;

use super::AsksCounted;
use crate::live::{Access, AgentWay, LiveError, RegisteredAgents, RunningAgents};

/// Agents that are connected and registered, and who calls them.
pub struct PanelPopulation {
    members: RunningAgents<PanelMember<StubPanelist>>,
    /// Absent where another process calls.
    initiator: Option<Initiator>,
    registered: RegisteredAgents,
    asks: Arc<AskCounter>,
}

/// Who is to take part.
pub struct PanelCast {
    /// Who answers, ranks and reviews.
    pub members: Vec<(AgentId, StubPanelist)>,
    /// Who calls, unless another process does.
    pub initiator: Option<AgentId>,
    /// What the initiator ranks by, where calls name itself as the ranker.
    pub own_ranker: Option<StubPanelist>,
}

/// How a panel ended for its initiator.
#[derive(Debug)]
pub struct PanelEnd {
    /// The panel.
    pub panel: NegotiationId,
    /// The result, where there is one.
    pub finding: Option<Finding>,
    /// The end.
    pub closing: Closing,
    /// The asks that agents counted.
    pub asks: AsksCounted,
}

/// Why a panel has no end.
#[derive(Debug, thiserror::Error)]
pub enum PanelError {
    /// The run itself.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The call was not made.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A gateway refused the call.
    #[error("the call was refused: {0}")]
    Refused(Refusal),
    /// The exchange did not open the panel.
    #[error("the exchange did not open the panel: {0}")]
    TurnedDown(String),
    /// Nobody answered.
    #[error("nobody answered the call")]
    Unanswered,
}

impl PanelPopulation {
    /// Registers and connects a cast.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn start(access: &Access<'_>, cast: PanelCast, options: &AgentOptions) -> Result<Self, LiveError> {
        let asks = Arc::new(AskCounter::default());
        // Whoever calls takes them out again.
        let counter = cast.initiator.is_some().then(|| Arc::clone(&asks) as Arc<dyn Observer>);
        let watched: Vec<Arc<dyn Observer>> = counter.into_iter().chain(options.observer.clone()).collect();
        let options = AgentOptions { observer: Some(Arc::new(watched)), ..options.clone() };
        let spawn = |panelist, (transport, identity, options): AgentWay, cancel| {
            Agent::new(transport, identity, PanelMember::new(panelist)).with_options(options).spawn(cancel)
        };
        let members = RunningAgents::start(access, (cast.members, &registration()), &options, spawn).await?;
        let mut registered = RegisteredAgents::new(access.control);
        let Some(initiator) = cast.initiator else { return Ok(Self { members, initiator: None, registered, asks }) };
        let (identity, transport) = ((access.identity)(&initiator), (access.transport)(&initiator));
        registered.register(&identity, &registration()).await?;
        let initiator = match cast.own_ranker {
            Some(ranker) => Initiator::spawn_ranking(transport, identity, options, ranker),
            None => Initiator::spawn(transport, identity, options),
        };
        initiator.connected().await?;
        Ok(Self { members, initiator: Some(initiator), registered, asks })
    }

    /// Calls a panel, and waits for its end: the exchange ends each by its hard deadline.
    ///
    /// # Errors
    /// [`PanelError`].
    pub async fn ask(&self, call: CallRequest) -> Result<PanelEnd, PanelError> {
        let (mut finding, mut misunderstood) = (None, None);
        let Some(initiator) = &self.initiator else { return Err(PanelError::Unanswered) };
        for CallEvent { negotiation, report, .. } in initiator.call_to_end(call).await? {
            if let CallReport::Found(found) = report {
                finding = Some(*found);
            } else if let CallReport::Misunderstood(why) = report {
                misunderstood = Some(why.reason);
            } else if let CallReport::Refused(refusal) = report {
                return Err(PanelError::Refused(refusal));
            } else if let CallReport::TurnedDown(disposition) = report {
                let why = misunderstood.unwrap_or_else(|| disposition.as_str().to_owned());
                return Err(PanelError::TurnedDown(why));
            } else if matches!(report, CallReport::Unanswered) {
                return Err(PanelError::Unanswered);
            } else if let CallReport::Closed(closing) = report {
                let asks = self.asks.take(&negotiation);
                return Ok(PanelEnd { panel: negotiation, finding, closing, asks });
            }
        }
        Err(PanelError::Unanswered)
    }

    /// Ends the agents and takes their registrations away.
    ///
    /// # Errors
    /// The first agent's error.
    pub async fn stop(self) -> Result<(), LiveError> {
        self.registered.remove().await;
        self.members.stop().await?;
        if let Some(initiator) = self.initiator {
            initiator.shutdown().await?;
        }
        Ok(())
    }
}

/// Takes part in everybody's panels.
fn registration() -> Registration {
    Registration { description: Some("scripted panelist".to_owned()), ..Registration::open_to_all() }
}

/// Counts asks where agents hear them, each once.
#[derive(Debug, Default)]
struct AskCounter(Mutex<BTreeMap<NegotiationId, AsksCounted>>);

impl AskCounter {
    fn take(&self, panel: &NegotiationId) -> AsksCounted {
        self.0.lock().remove(panel).unwrap_or_default()
    }
}

impl Observer for AskCounter {
    fn handle(&self, agent: &AgentId, _at: Instant, event: Observed<'_>) {
        let Observed::Delivered { delivery, is_repeat: false } = event else { return };
        if let Notification::Ask(ask) = &delivery.payload {
            let mut panels = self.0.lock();
            panels.entry(delivery.envelope.negotiation.clone()).or_default().count(agent, ask);
        }
    }
}
