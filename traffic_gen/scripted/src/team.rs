//! Teams on a running exchange: a scenario played, and what was said and done in it.
//!
//! | module | question it answers |
//! |---|---|
//! | [`transcript`] | what was said and done, as the members were told? |
//! | here, [`play`] | how does a scenario run on an exchange? |
//! | [`goal`] | how does a goal come to a conclusion on an exchange? |
//! | [`forming`] | whom to call for a goal, from what searches found (pure)? |
//! | [`candidates`] | who was found for a goal, and what does a lead say that has no model? |
//! | [`contacts`] | whom has an agent met? |

pub mod candidates;
pub mod contacts;
pub mod forming;
pub mod goal;
pub mod transcript;

use std::sync::Arc;
use std::time::Duration;

use agents::control::{ControlClient, ControlError};
use agents::team::{Finder, Scenario, ScenarioPlanner, ScenarioWorker, TeamAgent, TeamHands, WorkRunner};
use agents::transport::Transport;
use agents::{AgentError, AgentHandle, AgentOptions, Token};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::control::Registration;
use schemas::ids::IdError;
use schemas::search::{SearchHit, SearchRequest};
use schemas::{AgentId, NegotiationId};
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::ExchangeError;
use traffic_gen::live::{Access, RegisteredAgents, settle};
use traffic_gen::recorder::{Recorder, observed};

pub use transcript::{Transcript, TranscriptKeeper};

/// How long behind its hard end a team's end is waited for.
const OVERTIME: Duration = Duration::from_secs(10);
/// How long is waited for what is still under way when the root has ended.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// Why a scenario could not be played.
#[derive(Debug, thiserror::Error)]
pub enum TeamPlayError {
    /// The id of the run is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The exchange cannot give an agent a token.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// An agent could not be registered.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// An agent ended.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The exchange did not open the team.
    #[error("the exchange refuses the call: {0}")]
    Refused(String),
    /// The end was not heard of.
    #[error("team {team} did not end within {} s", waited.as_secs())]
    Endless {
        /// The team.
        team: NegotiationId,
        /// How long was waited.
        waited: Duration,
    },
}

/// Where a scenario is played, and who watches.
pub struct PlayContext<'a> {
    /// The exchange.
    pub access: Access<'a>,
    /// How agents run; keeper and recorder are added to the observers.
    pub options: AgentOptions,
    /// Judges, counts and traces.
    pub recorder: Arc<Recorder>,
}

/// Plays a scenario under this id of the lead's own.
///
/// # Errors
/// [`TeamPlayError`].
pub async fn play(
    context: &PlayContext<'_>,
    scenario: &Arc<Scenario>,
    own_id: &str,
) -> Result<Transcript, TeamPlayError> {
    let team = NegotiationId::form(&scenario.lead, own_id)?;
    let keeper = TranscriptKeeper::new();
    let cancel = CancellationToken::new();
    let _ended_with_us = cancel.clone().drop_guard();
    let mut registered = RegisteredAgents::new(context.access.control);
    let mut running = Vec::new();
    for agent in &scenario.agents {
        let identity = (context.access.identity)(&agent.name);
        let registration = Registration {
            capabilities: agent.capabilities.clone(),
            description: agent.description.clone(),
            ..Registration::open_to_all()
        };
        registered.register(&identity, &registration).await?;
        let options = observed(&observed(&context.options, Some(&context.recorder)), Some(&keeper));
        let way: (Arc<dyn Transport>, _, _) = ((context.access.transport)(&agent.name), identity, options);
        let worker = WorkRunner::new(ScenarioWorker::new(Arc::clone(scenario)));
        let finder = GatewaySearch { control: context.access.control.clone(), token: way.1.token.clone() };
        let hands = TeamHands { worker, finder: Some(Arc::new(finder)), advisor: None };
        let planner = ScenarioPlanner::new(Arc::clone(scenario), agent.name.clone());
        running.push(TeamAgent::spawn(planner, hands, way, cancel.clone()));
    }
    for agent in &running {
        agent.connected().await?;
    }
    let outcome = lead(&running, scenario, &team, &keeper).await;
    settle(&context.recorder, SETTLE_MAX).await;
    registered.remove().await;
    cancel.cancel();
    for agent in running {
        agent.join().await?;
    }
    outcome?;
    Ok(keeper.transcript(&team))
}

/// Lets the lead call, and waits for the end.
async fn lead(
    running: &[AgentHandle<TeamAgent>],
    scenario: &Scenario,
    team: &NegotiationId,
    keeper: &TranscriptKeeper,
) -> Result<(), TeamPlayError> {
    let is_lead = |agent: &&AgentHandle<TeamAgent>| *agent.agent() == scenario.lead;
    let lead = running.iter().find(is_lead).ok_or(AgentError::Ended)?;
    let (id, request) = (team.clone(), ScenarioPlanner::root(scenario));
    lead.command(move |agent, now| agent.call(now, &id, request, None)).await?;
    let waited = Duration::from_millis(scenario.team.rules.ends_within_ms) + OVERTIME;
    match tokio::time::timeout(waited, keeper.ended(team)).await {
        Ok(ended) => ended.map_err(TeamPlayError::Refused),
        Err(_) => Err(TeamPlayError::Endless { team: team.clone(), waited }),
    }
}

/// Searches at a gateway, in an agent's name.
#[derive(Clone)]
struct GatewaySearch {
    control: ControlClient,
    token: Token,
}

impl GatewaySearch {
    /// Who is found, of those that can be reached now; nobody where the search fails.
    async fn hits(self, wanted: SearchRequest) -> Vec<SearchHit> {
        let wanted = SearchRequest { present: true, reachable: true, ..wanted };
        match self.control.search(&self.token.current(), &wanted).await {
            Ok(found) => found.hits,
            Err(error) => {
                tracing::warn!(%error, "a search for members fails");
                Vec::new()
            }
        }
    }
}

impl Finder for GatewaySearch {
    fn find(&self, queries: Vec<String>) -> BoxFuture<'static, Vec<AgentId>> {
        let hits = self.clone().hits(SearchRequest { limit: 1, ..SearchRequest::of_texts(queries) });
        hits.map(|hits| hits.into_iter().map(|hit| hit.agent).collect()).boxed()
    }
}
