//! Many teams on a running exchange: agents that are called to, and call others to, teams. No team assigns a task.

mod ledger;
mod summary;

use std::sync::Arc;

use agents::team::{
    FunctionWorker, MemberPlan, ScriptedSpeaker, TaskPlan, TeamAgent, TeamHands, TeamMove, TeamPlanner, TeamRequest,
    Vote, WorkRunner,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::control::Registration;
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Terms};
use schemas::team::{Brief, Seats, TeamCall, TeamRules, VoteOf, VoteRules};
use schemas::{AgentId, NegotiationId};
use tokio::time::Instant;

use crate::live::{Access, LiveError, RunningAgents};
use crate::load::{LoadScenario, ProtocolLoad, RunningLoad};
use crate::recorder::observed;

pub use ledger::{TeamLedger, TeamState, TeamTally};
pub use summary::TeamSummary;

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

/// Teams: no scenario says more of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Teams;

/// What is to be run.
pub type TeamScenario = LoadScenario<Teams>;

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
    /// What the `number`-th team does.
    fn plot(&self, number: u64) -> TeamPlot {
        let mut random = self.random(number);
        let size = random.random_range(2..=MEMBERS_MAX) as usize;
        let members = self.draw_agents(&mut random, size);
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

    /// What a member says in a team; the lead's place is 0.
    fn speaker(&self, number: u64, plot: &TeamPlot, place: usize) -> ScriptedSpeaker {
        let mut random = ChaCha12Rng::seed_from_u64(self.seed ^ ((1 + place as u64) << 32));
        random.set_stream(number);
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

impl ProtocolLoad for Teams {
    const AGENTS_MIN: u32 = MEMBERS_MAX;
    type State = TeamState;
    type Agents = RunningAgents<TeamAgent>;

    fn state(&self) -> TeamState {
        TeamState::default()
    }

    async fn start(
        access: &Access<'_>,
        scenario: &TeamScenario,
        ledger: &Arc<TeamLedger>,
    ) -> Result<RunningAgents<TeamAgent>, LiveError> {
        let description = Some("scripted member of teams".to_owned());
        let registration = Registration { description, ..Registration::open_to_all() };
        let planner = |agent: AgentId| (agent.clone(), LoadPlanner { scenario: scenario.clone(), agent });
        let members = scenario.own_names().map(planner).collect();
        let options = observed(&scenario.options, Some(ledger));
        RunningAgents::start(access, (members, &registration), &options, |planner, way, cancel| {
            let worker = FunctionWorker::new(|_| Err("no task is assigned".to_owned()));
            TeamAgent::spawn(planner, TeamHands::new(WorkRunner::new(worker)), way, cancel)
        })
        .await
    }

    async fn open(load: &RunningLoad<Self>, number: u64, intended: Instant) -> Result<(), LiveError> {
        let scenario = &load.scenario;
        let plot = scenario.plot(number);
        let names: Vec<AgentId> = plot.members.iter().map(|&member| scenario.agent_name(member)).collect();
        let [lead, invited @ ..] = names.as_slice() else { return Ok(()) };
        let Some(agent) = load.agents.get(lead) else { return Ok(()) };
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
        load.ledger.recorder().call_due(team.clone(), intended);
        agent.command(move |agent, now| agent.call(now, &team, request, None)).await?;
        Ok(())
    }

    async fn stop(agents: RunningAgents<TeamAgent>) -> Result<(), LiveError> {
        agents.stop().await
    }
}
