//! Clients of the published code of the Internet of Agents (github.com/OpenBMB/IoA), on this exchange.
//!
//! Such a client registers under a free name over HTTP, searches, teams up, and then speaks JSON over a WebSocket. It carries no
//! token. The bridge runs where the owner of its agents runs them: the owner's [`NameBook`] says which agent of the exchange each
//! name is, and the bridge speaks for no other. To the exchange each is an agent like any other ([`agents::team`]).
//!
//! | module | question it answers |
//! |---|---|
//! | [`wire`] | what do such clients send and read? |
//! | [`names`] | which agent is a name? |
//! | [`chat`] | what is one team to its clients: which frame for which step? (pure) |
//! | [`hub`] | which chats, sockets and turns are open? |
//! | here, [`Bridge`] | how do registered clients take part on the exchange? |
//! | [`http`] | the routes |
//!
//! What a client sends is bounded: frames, names, texts, lists, frames that wait. A frame that cannot be followed is dropped and
//! counted by [`wire::FrameFault`]; a request is refused by a code of [`schemas::Code`]. Rules: docs/teams.md#bridge.

pub mod chat;
pub mod http;
pub mod hub;
pub mod names;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agents::team::{AdvisedSpeaker, TeamAgent, TeamHands, TeamRequest, WorkRunner};
use agents::{AgentHandle, AgentOptions, Transport};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use schemas::control::{AgentKind, Registration, Tag};
use schemas::search::{QUERIES_MAX, QUERY_LEN_MAX};
use schemas::team::{AtConclusion, INVITED_MAX, MEMBERS_MAX, Seats, TeamRules};
use schemas::{AgentId, Code, NegotiationId, Refusal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hub::{Hub, HubClient};
use crate::wire::{ClientInfo, DESCRIPTION_LEN_MAX, FormedTeam, NAME_LEN_MAX, TeamUp, cut};

pub use names::{NameBook, NameBookError, NamedAgent};

/// Longest wait for an agent's first connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Texts of one search of a client: four requests to a gateway.
pub const TEXTS_MAX: usize = 4 * QUERIES_MAX;

/// What the bridge asks of a gateway's control plane, in the name of one of the owner's agents.
pub trait ExchangeDirectory: Send + Sync {
    /// Registers an agent.
    fn register(&self, agent: AgentId, document: Registration) -> BoxFuture<'static, Result<(), Refusal>>;

    /// The agents that fit each text best, at most three for each; those that a text before has found are left out.
    fn search(&self, agent: AgentId, texts: Vec<String>) -> BoxFuture<'static, Result<Vec<FoundClient>, Refusal>>;

    /// What an agent says of itself; none where there is none that the asking agent may see.
    fn show(&self, agent: AgentId, wanted: AgentId) -> BoxFuture<'static, Result<Option<FoundClient>, Refusal>>;
}

/// An agent that a gateway knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundClient {
    /// The agent.
    pub agent: AgentId,
    /// What it is.
    pub kind: AgentKind,
    /// What it says of itself.
    pub description: String,
}

/// How teams of clients are called.
#[derive(Debug, Clone)]
pub struct BridgeOptions {
    /// How long the called have to join, in milliseconds. A client waits 30 s for its team.
    pub reply_within_ms: u64,
    /// How long a client may take for its turn, in milliseconds.
    pub speak_ms: u64,
    /// Turns of a team.
    pub turns: u32,
    /// When a team ends at the latest, in milliseconds from its call.
    pub ends_within_ms: u64,
    /// How long a client may take for a task.
    pub work: Duration,
    /// How agents run. The hub is added to the observers.
    pub agents: AgentOptions,
    /// Sets the ids of this run's teams apart from those of any run before, such as microseconds since 1970.
    pub run: u64,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            reply_within_ms: 10_000,
            speak_ms: 120_000,
            turns: 200,
            ends_within_ms: 3_600_000,
            work: Duration::from_secs(600),
            agents: AgentOptions::default(),
            run: 0,
        }
    }
}

/// How an agent reaches the exchange.
type TransportOf = dyn Fn(&AgentId) -> Arc<dyn Transport> + Send + Sync;

/// Registered clients as agents of the exchange.
pub struct Bridge {
    hub: Arc<Hub>,
    directory: Arc<dyn ExchangeDirectory>,
    transport: Box<TransportOf>,
    options: BridgeOptions,
    running: Mutex<BTreeMap<AgentId, AgentHandle<TeamAgent>>>,
    teams: AtomicU64,
    cancel: CancellationToken,
}

impl Bridge {
    /// A bridge for the owner's agents, which reach the exchange as `transport` says.
    pub fn new(
        names: NameBook,
        directory: Arc<dyn ExchangeDirectory>,
        transport: impl Fn(&AgentId) -> Arc<dyn Transport> + Send + Sync + 'static,
        mut options: BridgeOptions,
    ) -> Self {
        let hub = Arc::new(Hub::new(Arc::new(names)));
        let mut observers: Vec<Arc<dyn agents::observer::Observer>> = vec![Arc::clone(&hub) as _];
        observers.extend(options.agents.observer.take());
        options.agents.observer = Some(Arc::new(observers));
        Self {
            hub,
            directory,
            transport: Box::new(transport),
            options,
            running: Mutex::default(),
            teams: AtomicU64::new(0),
            cancel: CancellationToken::new(),
        }
    }

    /// What is open.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Ends its agents, and waits for what they have sent.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        let running = std::mem::take(&mut *self.running.lock());
        for (agent, handle) in running {
            if let Err(error) = handle.join().await {
                tracing::debug!(%agent, %error, "an agent of the bridge had ended");
            }
        }
    }

    /// The owner's agent of a name.
    ///
    /// # Errors
    /// `unauthorized` for any other.
    pub fn own(&self, name: &str, pointer: &str) -> Result<AgentId, Refusal> {
        let unknown = || {
            let what = "the bridge speaks for no such name";
            Refusal::new(Code::Unauthorized, what).at(pointer).expecting("a name of the owner's file")
        };
        self.hub.names().own(name).cloned().ok_or_else(unknown)
    }

    /// Registers a client, and lets its agent take part.
    ///
    /// # Errors
    /// A [`Refusal`]: of the bridge, or of the gateway.
    pub async fn register(&self, info: ClientInfo) -> Result<(), Refusal> {
        bounded(info.name.chars().count(), NAME_LEN_MAX, ("characters", "/name"))?;
        bounded(info.desc.chars().count(), DESCRIPTION_LEN_MAX, ("characters", "/desc"))?;
        let agent = self.own(&info.name, "/name")?;
        let registration = Registration {
            kind: info.kind,
            description: Some(info.desc.clone()).filter(|text| !text.is_empty()),
            instance: Tag::try_new(&format!("bridge-{:x}", self.options.run)).ok(),
            ..Registration::open_to_all()
        };
        self.directory.register(agent.clone(), registration).await?;
        self.hub.note_info(&agent, info);
        self.run_agent(&agent).await
    }

    /// Starts an agent that does not run, and waits until it is connected.
    async fn run_agent(&self, agent: &AgentId) -> Result<(), Refusal> {
        let is_gone = |running: &BTreeMap<_, _>| running.get(agent).is_none_or(AgentHandle::has_ended);
        let connecting = {
            let mut running = self.running.lock();
            if is_gone(&running) {
                self.hub.handle_gone(agent);
                let identity = self.hub.names().identity(agent).ok_or_else(gone)?;
                let client = HubClient(Arc::clone(&self.hub), agent.clone());
                let worker = WorkRunner::new(client.clone()).within(self.options.work);
                let hands = TeamHands { advisor: Some(Arc::new(client.clone())), ..TeamHands::new(worker) };
                let way = ((self.transport)(agent), identity, self.options.agents.clone());
                let handle = TeamAgent::spawn(client, hands, way, self.cancel.child_token());
                running.insert(agent.clone(), handle);
            }
            running.get(agent).map(AgentHandle::connected).ok_or_else(gone)?
        };
        match tokio::time::timeout(CONNECT_MAX, connecting).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => {
                if is_gone(&self.running.lock()) {
                    self.hub.handle_gone(agent);
                }
                Err(Refusal::new(Code::Unauthenticated, "the exchange does not take this agent: see to its token"))
            }
            Err(_) => Err(Refusal::new(Code::Unavailable, "the exchange does not answer").retry_after_ms(1000)),
        }
    }

    /// Agents that fit texts, in the name of a client.
    ///
    /// # Errors
    /// A [`Refusal`]: of the bridge, or of the gateway.
    pub async fn retrieve(&self, sender: &str, texts: &[String]) -> Result<Vec<ClientInfo>, Refusal> {
        let agent = self.own(sender, "/sender")?;
        bounded(texts.len(), TEXTS_MAX, ("texts", "/capabilities"))?;
        let mut found: Vec<ClientInfo> = Vec::new();
        let texts: Vec<_> = texts.iter().filter(|text| !text.is_empty()).map(|text| cut(text, QUERY_LEN_MAX)).collect();
        for texts in texts.chunks(QUERIES_MAX) {
            for hit in self.directory.search(agent.clone(), texts.to_vec()).await? {
                let info = self.described(&hit);
                if found.iter().all(|known| known.name != info.name) {
                    found.push(info);
                }
            }
        }
        Ok(found)
    }

    /// What clients and agents of these names say of themselves; none where a name is nobody's.
    ///
    /// # Errors
    /// A [`Refusal`] of the gateway.
    pub async fn query(&self, names: &[&str]) -> Result<Vec<Option<ClientInfo>>, Refusal> {
        bounded(names.len(), INVITED_MAX, ("names", "/name"))?;
        let mut infos = Vec::new();
        for name in names {
            let agent = self.hub.names().agent(name);
            infos.push(match agent {
                None => None,
                Some(agent) if self.hub.names().is_own(&agent) => self.hub.info(&agent),
                Some(agent) => self.show(agent).await?,
            });
        }
        Ok(infos)
    }

    /// An agent that is none of the owner's, as any of the owner's registered agents sees it.
    async fn show(&self, wanted: AgentId) -> Result<Option<ClientInfo>, Refusal> {
        let asking = self.hub.infos().first().and_then(|info| self.hub.names().own(&info.name).cloned());
        let Some(asking) = asking else { return Ok(None) };
        Ok(self.directory.show(asking, wanted).await?.map(|found| self.described(&found)))
    }

    fn described(&self, found: &FoundClient) -> ClientInfo {
        ClientInfo { name: self.hub.names().name(&found.agent), kind: found.kind, desc: found.description.clone() }
    }

    /// Calls a team, and waits until it has formed.
    ///
    /// # Errors
    /// A [`Refusal`]: of the bridge, of the gateway, or that the team has not formed.
    pub async fn team_up(&self, wish: TeamUp) -> Result<FormedTeam, Refusal> {
        let lead = self.own(&wish.sender, "/sender")?;
        if let Some(name) = &wish.team_name {
            bounded(name.chars().count(), NAME_LEN_MAX, ("characters", "/team_name"))?;
        }
        bounded(wish.agent_names.len(), INVITED_MAX, ("names", "/agent_names"))?;
        let mut invites: Vec<AgentId> = Vec::new();
        for agent in wish.agent_names.iter().filter_map(|name| self.hub.names().agent(name)) {
            if agent != lead && !invites.contains(&agent) {
                invites.push(agent);
            }
        }
        if invites.is_empty() {
            return Err(Refusal::new(Code::NoRecipient, "none of these names is an agent's").at("/agent_names"));
        }
        self.run_agent(&lead).await?;
        let number = self.teams.fetch_add(1, Ordering::Relaxed) + 1;
        let own_id = format!("chat-{:x}-{number}", self.options.run);
        let id_fault = |error| Refusal::new(Code::Internal, format!("{error}"));
        let team = NegotiationId::form(&lead, &own_id).map_err(id_fault)?;
        let seats = u32::try_from(invites.len() + 1).unwrap_or(MEMBERS_MAX).min(MEMBERS_MAX);
        let rules = TeamRules {
            members: Seats { min: 2, max: seats },
            turns: self.options.turns,
            speak_ms: self.options.speak_ms,
            ends_within_ms: self.options.ends_within_ms,
            at_conclusion: AtConclusion::Leave,
            ..TeamRules::default()
        };
        let request = TeamRequest {
            goal: wish.team_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| "a group chat".to_owned()),
            policy: None,
            reply_within_ms: self.options.reply_within_ms,
            rules: rules.clone(),
            invites,
            search: Vec::new(),
            speaker: Box::new(AdvisedSpeaker::new(HubClient(Arc::clone(&self.hub), lead.clone()))),
        };
        let formed = self.hub.open((team.clone(), lead.clone(), rules), wish.team_name, Instant::now())?;
        let commander = self.running.lock().get(&lead).map(AgentHandle::commander);
        let is_called = match commander {
            Some(agent) => agent.command(move |agent, now| agent.call(now, &team, request, None)).await.is_ok(),
            None => false,
        };
        if !is_called {
            self.hub.handle_gone(&lead);
        }
        formed.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> Refusal {
    Refusal::new(Code::Unavailable, "the agent has ended; register again")
}

/// Refuses what is longer than it may be, by its length and the limit.
fn bounded(length: usize, max: usize, (of, pointer): (&str, &str)) -> Result<(), Refusal> {
    if length <= max {
        return Ok(());
    }
    let refusal = Refusal::new(Code::OutOfRange, format!("{length} {of} are too many"));
    Err(refusal.at(pointer).expecting(format!("at most {max} {of}")))
}
