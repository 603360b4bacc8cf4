//! A goal, carried from its text to a conclusion on a running exchange: search, form, call, lead.

use std::sync::Arc;
use std::time::Duration;

use agents::AgentOptions;
use agents::model::{ModelAdvisor, ModelWorker, Subject};
use agents::routine::RoutineFault;
use agents::team::{
    AdvisedSpeaker, Advisor, Speaker, TeamAgent, TeamHands, TeamRequest, WillingPlanner, WorkRequest, WorkRunner,
    Worker,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::Timestamp;
use schemas::control::Registration;
use schemas::delivery::Outcome;
use schemas::search::SearchRequest;
use schemas::team::{Seats, TeamRules};
use schemas::{AgentId, NegotiationId};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::candidates::{Candidate, CandidateSearch, Candidates, GoalSpeaker};
use super::contacts::ContactBook;
use super::forming::Formation;
use super::forming::model::ModelForming;
use super::{GatewaySearch, OVERTIME, TeamPlayError};
use crate::team::transcript::TranscriptKeeper;
use traffic_gen::live::{Access, RegisteredAgents, SharedModel};
use traffic_gen::recorder::observed;

/// Longest that forming with a model may take, in milliseconds.
const FORMING_MS: u64 = 120_000;
/// How often a model is asked to carry out a goal for which nobody is called, each time with its repairs.
const ALONE_TRIES: u64 = 3;

/// Somebody's goal.
pub struct GoalRequest {
    /// The goal.
    pub goal: String,
    /// Who has it, and leads.
    pub lead: AgentId,
    /// The lead's own id of the team, never used before.
    pub own_id: String,
    /// What the lead says of itself: who covers most of a goal works alone.
    pub profile: Option<String>,
    /// How long the called have to join, in milliseconds.
    pub reply_within_ms: u64,
    /// The rules of the team; its seats bound how many are called.
    pub rules: TeamRules,
    /// How the lead runs. What the team does is observed besides.
    pub options: AgentOptions,
    /// Carries the goal out where nobody is called; absent: nothing does.
    pub worker: Option<WorkRunner>,
}

/// How a goal ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum GoalEnd {
    /// The team concluded.
    Concluded {
        /// Its conclusion.
        conclusion: String,
    },
    /// Nobody was called, and the worker did it.
    Alone {
        /// The result; absent where there is no worker.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<String>,
    },
    /// Nobody was called, and the worker failed.
    Failed {
        /// Why.
        reason: String,
    },
    /// The team ended without a conclusion.
    Unconcluded {
        /// How.
        outcome: String,
    },
}

/// What came of a goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GoalReport {
    /// The team; absent where nobody was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<NegotiationId>,
    /// Who was called.
    pub called: Vec<AgentId>,
    /// Who got a seat, the lead first.
    pub members: Vec<AgentId>,
    /// Texts that were searched for, each with those found.
    pub searched: Vec<SearchedText>,
    /// Questions about whom to call that a model was asked.
    pub forming_steps: u32,
    /// How it ended.
    #[serde(flatten)]
    pub end: GoalEnd,
}

/// A text that was searched for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchedText {
    /// The text.
    pub text: String,
    /// The agents found, the best first.
    pub found: Vec<AgentId>,
}

/// What helps with a goal. All of it may be absent.
#[derive(Default)]
pub struct GoalHelp<'a> {
    /// Whom the lead has met; those found and called are noted in it.
    pub book: Option<&'a mut ContactBookWithClock>,
    /// A model.
    pub model: Option<SharedModel>,
}

/// A contact book, and the time at which it is kept.
pub struct ContactBookWithClock {
    /// The book.
    pub book: ContactBook,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// Carries a goal to its end.
///
/// # Errors
/// [`TeamPlayError`]: the exchange refuses, or its end is not heard of.
pub async fn pursue(
    access: &Access<'_>,
    request: GoalRequest,
    mut help: GoalHelp<'_>,
) -> Result<GoalReport, TeamPlayError> {
    let identity = (access.identity)(&request.lead);
    let mut registered = RegisteredAgents::new(access.control);
    let registration = Registration { description: request.profile.clone(), ..Registration::open_to_all() };
    registered.register(&identity, &registration).await?;
    let search = GatewaySearch { control: access.control.clone(), token: identity.token.clone() };
    let outcome = pursue_registered(access, request, &mut help, search).await;
    registered.remove().await;
    outcome
}

async fn pursue_registered(
    access: &Access<'_>,
    request: GoalRequest,
    help: &mut GoalHelp<'_>,
    search: GatewaySearch,
) -> Result<GoalReport, TeamPlayError> {
    let team = NegotiationId::form(&request.lead, &request.own_id)?;
    let mut candidates = Candidates::new(request.lead.clone(), request.goal.as_str(), request.profile.clone());
    let (formation, forming_steps) = form(&request, help, &search, &mut candidates, &team).await;
    if let Some(kept) = &mut help.book {
        for (text, candidate) in
            candidates.found().iter().flat_map(|(text, found)| found.iter().map(move |candidate| (text, candidate)))
        {
            kept.book.note_found(&candidate.agent, text, candidate.score, kept.now_ms);
        }
    }
    let searched = |(text, found): &(String, Vec<Candidate>)| SearchedText {
        text: text.clone(),
        found: found.iter().map(|candidate| candidate.agent.clone()).collect(),
    };
    let searched = candidates.found().iter().map(searched).collect();
    let called = match formation {
        Formation::Team(called) => called,
        Formation::Alone => {
            let end = alone(&request, help, &team).await;
            let (called, members) = (Vec::new(), vec![request.lead]);
            return Ok(GoalReport { team: None, called, members, searched, forming_steps, end });
        }
    };
    let (members, end) = lead(access, request, help, (&team, called.clone())).await?;
    if let Some(kept) = &mut help.book {
        let is_done = matches!(end, GoalEnd::Concluded { .. });
        members.iter().skip(1).for_each(|member| kept.book.note_outcome(member, is_done, kept.now_ms));
    }
    Ok(GoalReport { team: Some(team), called, members, searched, forming_steps, end })
}

/// Whom to call: as the model says, or by the rule on what the clauses of the goal find.
async fn form(
    request: &GoalRequest,
    help: &GoalHelp<'_>,
    search: &GatewaySearch,
    candidates: &mut Candidates,
    team: &NegotiationId,
) -> (Formation, u32) {
    let recruits_max = request.rules.members.max.saturating_sub(1) as usize;
    let book = help.book.as_ref().map(|kept| &kept.book);
    if let Some(model) = &help.model {
        let asked_at = Timestamp::from_ms(book_time(help));
        let subject = Subject::new(&request.lead, team, None, (asked_at, asked_at.plus_ms(FORMING_MS)));
        let SharedModel { config, consultant, marker_seed } = model;
        let forming = ModelForming { consultant, config, marker_seed: *marker_seed, subject, recruits_max };
        let formed = forming.form(candidates, search, book).await;
        return (formed.formation, formed.steps);
    }
    for clause in candidates.clauses_left() {
        let found = search.search(clause.clone()).await;
        candidates.handle_found(clause, found, book);
    }
    (candidates.form(recruits_max), 0)
}

/// The time that the book is kept at; without one the beginning of 1970, which decides nothing.
fn book_time(help: &GoalHelp<'_>) -> u64 {
    help.book.as_ref().map_or(0, |kept| kept.now_ms)
}

/// Nobody is called: the worker carries the goal out, or the model does.
async fn alone(request: &GoalRequest, help: &GoalHelp<'_>, team: &NegotiationId) -> GoalEnd {
    let work = WorkRequest {
        agent: request.lead.clone(),
        task: team.clone(),
        title: String::new(),
        text: request.goal.clone(),
    };
    let tries: Vec<WorkRunner> =
        if let Some(worker) = &request.worker { vec![worker.clone()] } else { tries_of_model(help) };
    let mut end = GoalEnd::Alone { result: None };
    for worker in tries {
        match worker.run(work.clone()).await {
            Ok(result) => return GoalEnd::Alone { result: Some(result) },
            Err(fault) => end = GoalEnd::Failed { reason: fault.to_string() },
        }
    }
    end
}

fn tries_of_model(help: &GoalHelp<'_>) -> Vec<WorkRunner> {
    // Each try marks the goal differently, so that it is another question.
    let worker = |SharedModel { config, consultant, marker_seed }: &SharedModel, number| {
        let (instructions, marker_seed) = (&config.team.instructions, marker_seed.wrapping_add(number));
        WorkRunner::new(ModelWorker::new(Arc::clone(consultant), instructions, marker_seed))
    };
    help.model.iter().flat_map(|model| (0..ALONE_TRIES).map(|number| worker(model, number))).collect()
}

/// A worker of a lead that takes no tasks.
struct NoWork;

impl Worker for NoWork {
    fn run(&self, _request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        std::future::ready(Err(RoutineFault::Unavailable("the lead takes no tasks".to_owned()))).boxed()
    }
}

/// Calls the team, leads it, and waits for its end.
async fn lead(
    access: &Access<'_>,
    request: GoalRequest,
    help: &GoalHelp<'_>,
    (team, called): (&NegotiationId, Vec<AgentId>),
) -> Result<(Vec<AgentId>, GoalEnd), TeamPlayError> {
    let GoalRequest { goal, lead, reply_within_ms, mut rules, options, worker, .. } = request;
    let seats = u32::try_from(called.len() + 1).unwrap_or(rules.members.max);
    rules.members = Seats { min: rules.members.min, max: seats.clamp(rules.members.min, rules.members.max) };
    let waited = Duration::from_millis(rules.ends_within_ms) + OVERTIME;
    let keeper = TranscriptKeeper::new();
    let advisor: Option<Arc<dyn Advisor>> = advisor(help);
    let speaker: Box<dyn Speaker> = match &advisor {
        Some(_) => Box::new(AdvisedSpeaker::new(GoalSpeaker::default())),
        None => Box::new(GoalSpeaker::default()),
    };
    let cancel = CancellationToken::new();
    let _ended_with_us = cancel.clone().drop_guard();
    let way = ((access.transport)(&lead), (access.identity)(&lead), observed(&options, Some(&keeper)));
    let worker = worker.unwrap_or_else(|| WorkRunner::new(NoWork));
    let hands = TeamHands { advisor, ..TeamHands::new(worker) };
    let agent = TeamAgent::spawn(WillingPlanner::default(), hands, way, cancel.clone());
    agent.connected().await?;
    let (id, search) = (team.clone(), Vec::new());
    let call = TeamRequest { goal, policy: None, reply_within_ms, rules, invites: called, search, speaker };
    agent.command(move |agent, now| agent.call(now, &id, call, None)).await?;
    let ended = tokio::time::timeout(waited, keeper.ended(team)).await;
    cancel.cancel();
    agent.join().await?;
    match ended {
        Ok(ended) => ended.map_err(TeamPlayError::Refused)?,
        Err(_) => return Err(TeamPlayError::Endless { team: team.clone(), waited }),
    }
    let story = keeper.transcript(team).teams.into_iter().next();
    let Some(story) = story else { return Err(TeamPlayError::Endless { team: team.clone(), waited }) };
    let end = match (story.conclusion, story.outcome) {
        (Some(conclusion), Some(Outcome::Concluded)) => GoalEnd::Concluded { conclusion },
        (_, outcome) => {
            let detail = story.detail.map(|detail| format!(", {detail}")).unwrap_or_default();
            GoalEnd::Unconcluded { outcome: format!("{}{detail}", outcome.map_or("nothing", Outcome::as_str)) }
        }
    };
    Ok((story.members, end))
}

fn advisor(help: &GoalHelp<'_>) -> Option<Arc<dyn Advisor>> {
    let SharedModel { config, consultant, marker_seed } = help.model.clone()?;
    Some(Arc::new(ModelAdvisor::new(config, consultant, marker_seed)))
}

impl CandidateSearch for GatewaySearch {
    fn search(&self, text: String) -> BoxFuture<'static, Vec<Candidate>> {
        let hits = self.clone().hits(SearchRequest::of_texts(vec![text]));
        hits.map(|hits| hits.into_iter().map(candidate).collect()).boxed()
    }
}

fn candidate(hit: schemas::search::SearchHit) -> Candidate {
    let words = hit.tags.iter().map(ToString::to_string).chain(hit.capabilities.iter().map(ToString::to_string));
    let profile = hit.description.into_iter().chain(words).collect();
    Candidate { agent: hit.agent, kind: hit.kind, profile, score: hit.score }
}
