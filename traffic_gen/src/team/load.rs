//! Many teams on a running exchange: agents that are called to, and call others to, teams, open-loop. What [`crate::live`] is for
//! the contract net.
//!
//! Whom a lead calls, what each says and how each votes is drawn from the seed and the team alone. No team assigns a task.

mod ledger;
mod summary;

use std::sync::Arc;
use std::time::Duration;

use agents::team::{
    FunctionWorker, MemberPlan, ScriptedSpeaker, TaskPlan, TeamAgent, TeamHands, TeamMove, TeamPlanner, TeamRequest,
    Vote, WorkRunner,
};
use agents::{AgentHandle, AgentOptions, Identity};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Terms};
use schemas::team::{Brief, Seats, TeamCall, TeamRules, VoteOf, VoteRules};
use schemas::{AgentId, NegotiationId};
use telemetry::Tracer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::arrivals::PoissonArrivals;
use crate::live::{Access, AgentShare, LiveError, RegisteredAgents, open_as_due};
use crate::recorder::observed;

pub use ledger::{TeamLedger, TeamTally};
pub use summary::TeamSummary;

/// Fewest agents: the largest team has so many members.
pub const AGENTS_MIN: u32 = MEMBERS_MAX;
/// Members of the largest team.
const MEMBERS_MAX: u32 = 5;
/// Words of what is said.
const WORDS: [&str; 16] = [
    "agenda", "budget", "chair", "draft", "evening", "figure", "guest", "harbour", "index", "journey", "kitchen",
    "ledger", "museum", "number", "outline", "paper",
];
/// Words in one say.
const SAY_WORDS: usize = 12;
/// How long the invited have to join, in milliseconds; they answer at once.
const REPLY_MS: u64 = 5_000;
/// The hard end of a team, in milliseconds.
const ENDS_MS: u64 = 60_000;

/// What is to be run.
#[derive(Debug, Clone)]
pub struct TeamScenario {
    /// Agents, [`AGENTS_MIN`] at least.
    pub agents: u32,
    /// Teams called per second.
    pub rate: f64,
    /// How long teams are called.
    pub duration: Duration,
    /// Seed of arrivals, members and what they do.
    pub seed: u64,
    /// Begins every team's id.
    pub run: String,
    /// How long to wait for open teams after the last was called.
    pub drain: Duration,
    /// How agents run; the ledger is added to its observer.
    pub options: AgentOptions,
    /// Begins the names of agents, where they share an exchange with others: characters of an id, 40 at most. One that
    /// makes no id is left out.
    pub prefix: String,
    /// The agents that this process runs: those it is to call with, and register.
    pub share: AgentShare,
}

impl Default for TeamScenario {
    fn default() -> Self {
        Self {
            agents: 12,
            rate: 10.0,
            duration: Duration::from_secs(20),
            seed: 1,
            run: "run".to_owned(),
            drain: Duration::from_secs(60),
            options: AgentOptions::default(),
            prefix: String::new(),
            share: AgentShare::WHOLE,
        }
    }
}

/// What one team is to do.
struct TeamPlot {
    /// Who takes part, as numbers of agents; the first leads.
    members: Vec<u32>,
    rules: TeamRules,
    /// Says of each member.
    says: usize,
    /// How the members vote at first; yes later.
    votes: Vec<Vote>,
}

impl TeamScenario {
    /// The name of an agent of this scenario.
    #[must_use]
    pub fn agent_name(&self, number: u32) -> AgentId {
        let name = crate::bargain::load::agent_name(number);
        AgentId::try_new(&format!("{}{name}", self.prefix)).unwrap_or(name)
    }

    /// The same, whose agents' spans go to `tracer`.
    #[must_use]
    pub fn traced(mut self, tracer: Tracer) -> Self {
        self.options.tracer = tracer;
        self
    }

    /// What the `number`-th team does.
    fn plot(&self, number: u64) -> TeamPlot {
        let mut random = self.random(number, 0);
        let size = random.random_range(2..=MEMBERS_MAX) as usize;
        let mut agents: Vec<u32> = (0..self.agents).collect();
        let (members, _) = agents.partial_shuffle(&mut random, size);
        let members = members.to_vec();
        let votes: Vec<Vote> =
            members.iter().map(|_| if random.random_bool(0.3) { Vote::No } else { Vote::Yes }).collect();
        let vote = random.random_bool(0.5).then_some(VoteRules { of: VoteOf::Majority, vote_ms: 5_000, attempts: 2 });
        let rules = TeamRules {
            members: Seats { min: 2, max: MEMBERS_MAX },
            turns: 32,
            speak_ms: 5_000,
            ends_within_ms: ENDS_MS,
            vote,
            ..TeamRules::default()
        };
        TeamPlot { rules, says: random.random_range(1..=3), votes, members }
    }

    fn random(&self, team: u64, place: u64) -> ChaCha12Rng {
        let mut random = ChaCha12Rng::seed_from_u64(self.seed ^ (place << 32));
        random.set_stream(team);
        random
    }

    /// What a member says in a team; the lead's place is 0.
    fn speaker(&self, number: u64, plot: &TeamPlot, place: usize) -> ScriptedSpeaker {
        let mut random = self.random(number, 1 + place as u64);
        let moves: Vec<TeamMove> = (0..plot.says).map(|_| TeamMove::say(sentence(&mut random))).collect();
        let conclusion = (place == 0).then(|| format!("team {number} has spoken {} times", plot.says));
        let votes = plot.votes.get(place).map(|vote| vec![*vote]).unwrap_or_default();
        ScriptedSpeaker::new(moves, conclusion, votes)
    }

    /// The number of a team of this scenario.
    fn number(&self, team: &NegotiationId) -> Option<u64> {
        let (_, own) = team.as_str().split_once(schemas::ids::NEGOTIATION_SEPARATOR)?;
        own.strip_prefix(&self.run)?.strip_prefix('-')?.parse().ok()
    }
}

fn sentence(random: &mut ChaCha12Rng) -> String {
    let word = |_| WORDS[random.random_range(0..WORDS.len())];
    (0..SAY_WORDS).map(word).collect::<Vec<_>>().join(" ")
}

/// Decides for one agent of a scenario.
struct LoadPlanner {
    scenario: TeamScenario,
    agent: AgentId,
}

impl TeamPlanner for LoadPlanner {
    fn join(&mut self, team: &NegotiationId, _goal: &str, _call: &TeamCall) -> Result<MemberPlan, String> {
        let number = self.scenario.number(team).ok_or("is no team of this run")?;
        let plot = self.scenario.plot(number);
        let place = plot.members.iter().position(|member| self.scenario.agent_name(*member) == self.agent);
        let place = place.ok_or("has no part in this team")?;
        Ok(MemberPlan { terms: fit(), speaker: Box::new(self.scenario.speaker(number, &plot, place)) })
    }

    fn offer(&mut self, _brief: &Brief) -> Result<Terms, String> {
        Err("no task is assigned".to_owned())
    }

    fn take(&mut self, _brief: &Brief) -> Result<TaskPlan, String> {
        Err("no task is assigned".to_owned())
    }
}

fn fit() -> Terms {
    AttrName::try_new("fit").map(|name| Terms::from([(name, AttrValue::Int(500_000))])).unwrap_or_default()
}

/// Agents that are connected and registered.
pub struct TeamPopulation {
    agents: Vec<AgentHandle<TeamAgent>>,
    registered: RegisteredAgents,
    scenario: TeamScenario,
    cancel: CancellationToken,
}

impl TeamPopulation {
    /// Registers and connects the process's share of the agents; what they see goes to the ledger. Where one cannot be registered,
    /// none runs.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn start(
        access: &Access<'_>,
        scenario: &TeamScenario,
        ledger: &Arc<TeamLedger>,
    ) -> Result<Self, LiveError> {
        let cancel = CancellationToken::new();
        let mut registered = RegisteredAgents::new(access.control);
        let registration = Registration {
            description: Some("scripted member of teams".to_owned()),
            consent: Consent { default: ConsentEffect::Allow, rules: Vec::new() },
            ..Registration::default()
        };
        let own = (0..scenario.agents).filter(|number| scenario.share.has(*number));
        let identities: Vec<Identity> = own.map(|number| (access.identity)(&scenario.agent_name(number))).collect();
        for identity in &identities {
            registered.register(identity, &registration).await?;
        }
        let mut agents = Vec::new();
        for identity in identities {
            let name = identity.agent.clone();
            let worker = FunctionWorker::new(|_| Err("no task is assigned".to_owned()));
            let way = ((access.transport)(&name), identity, observed(&scenario.options, Some(ledger)));
            let planner = LoadPlanner { scenario: scenario.clone(), agent: name };
            agents.push(TeamAgent::spawn(planner, TeamHands::new(WorkRunner::new(worker)), way, cancel.clone()));
        }
        for agent in &agents {
            agent.connected().await?;
        }
        Ok(Self { agents, registered, scenario: scenario.clone(), cancel })
    }

    /// Calls the `number`-th team of the scenario, if its lead is of the process's share; latencies count from `intended`.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn open(&self, number: u64, ledger: &TeamLedger, intended: Instant) -> Result<(), LiveError> {
        let scenario = &self.scenario;
        let plot = scenario.plot(number);
        let names: Vec<AgentId> = plot.members.iter().map(|&member| scenario.agent_name(member)).collect();
        let [lead, invited @ ..] = names.as_slice() else { return Ok(()) };
        let Some(agent) = self.agents.iter().find(|agent| agent.agent() == lead) else { return Ok(()) };
        let Ok(team) = NegotiationId::form(lead, &format!("{}-{number}", scenario.run)) else {
            tracing::error!(number, "an id of our own was refused");
            return Ok(());
        };
        let request = TeamRequest {
            goal: format!("goal of team {number}"),
            policy: None,
            reply_within_ms: REPLY_MS,
            rules: plot.rules.clone(),
            invites: invited.to_vec(),
            search: Vec::new(),
            speaker: Box::new(scenario.speaker(number, &plot, 0)),
        };
        ledger.recorder().call_due(team.clone(), intended);
        agent.command(move |agent, now| agent.call(now, &team, request, None)).await?;
        Ok(())
    }

    /// Ends the agents and takes their registrations away.
    ///
    /// # Errors
    /// The first agent's error.
    pub async fn stop(self) -> Result<(), LiveError> {
        self.registered.remove().await;
        self.cancel.cancel();
        for agent in self.agents {
            agent.join().await?;
        }
        Ok(())
    }
}

/// Calls teams as they fall due until the scenario's duration, or `cancel`, ends it; then waits for what is open. Returns how
/// many were not called because [`crate::live::OPEN_MAX`] were open.
///
/// # Errors
/// [`LiveError`].
pub async fn meet(
    population: &TeamPopulation,
    ledger: &Arc<TeamLedger>,
    started: Instant,
    cancel: &CancellationToken,
) -> Result<u64, LiveError> {
    let scenario = &population.scenario;
    let arrivals = PoissonArrivals::try_new(scenario.rate, scenario.seed)?;
    let (limits, ended) = ((arrivals, scenario.duration), (ledger.recorder(), scenario.drain));
    open_as_due(limits, ended, started, cancel, async |number, intended| {
        population.open(number, ledger, intended).await
    })
    .await
}
