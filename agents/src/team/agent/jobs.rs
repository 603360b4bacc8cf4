//! What takes an agent time, outside of its loop: work and searches.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemas::team::Brief;
use schemas::{AgentId, AwardNo, NegotiationId, Timestamp};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::TeamAgent;
use crate::agent::{ASKED_MAX, Agent, AgentHandle, AgentOptions, QUESTIONS_MAX};
use crate::identity::Identity;
use crate::routine::RoutineFault;
use crate::team::TeamPlanner;
use crate::team::membership::AdvisedTurn;
use crate::team::speaker::TeamMove;
use crate::team::view::TeamView;
use crate::team::worker::{WorkRequest, WorkRunner};
use crate::transport::Transport;

/// Something to be done outside of the agent's loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TeamJob {
    /// Carry a task out.
    Work {
        /// The award.
        award_no: AwardNo,
        /// What the worker is asked.
        request: WorkRequest,
    },
    /// Look for members of a team that is to be called.
    Search {
        /// The team.
        team: NegotiationId,
        /// The queries.
        queries: Vec<String>,
    },
    /// Advise what to say with the floor.
    Advise {
        /// When the question arose, in log time.
        asked_at: Timestamp,
        /// What the member knows.
        view: Box<TeamView>,
    },
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobDone {
    /// Of a task.
    Work {
        /// The task.
        task: NegotiationId,
        /// The award.
        award_no: AwardNo,
        /// The result, or why there is none.
        outcome: Result<String, RoutineFault>,
    },
    /// Of a search.
    Found {
        /// The team.
        team: NegotiationId,
        /// Who was found, the best first; nobody where the search failed.
        agents: Vec<AgentId>,
    },
    /// Of advice.
    Advised {
        /// The team.
        team: NegotiationId,
        /// The turn it is for.
        turn: AdvisedTurn,
        /// What to do; absent where nobody could say.
        advice: Option<TeamMove>,
    },
}

/// Looks for agents.
pub trait Finder: Send + Sync {
    /// The agent that fits each query best, in the order of queries; nobody where the search fails.
    fn find(&self, queries: Vec<String>) -> BoxFuture<'static, Vec<AgentId>>;
}

/// Advises members what to say: a language model, a person, a program elsewhere.
pub trait Advisor: Send + Sync {
    /// What a member should do that has known this since `asked_at`, in log time. It holds the floor for
    /// [`speak_ms`](schemas::team::TeamRules::speak_ms) from then on, and advice that comes later is not taken. None: the
    /// member decides without it.
    fn advise(&self, asked_at: Timestamp, view: TeamView) -> BoxFuture<'static, Option<TeamMove>>;
}

impl TeamJob {
    /// The work of a task.
    #[must_use]
    pub fn work(agent: &AgentId, task: &NegotiationId, award_no: AwardNo, brief: &Brief) -> Self {
        let Brief { title, text, .. } = brief.clone();
        Self::Work { award_no, request: WorkRequest { agent: agent.clone(), task: task.clone(), title, text } }
    }

    /// What it came to where there was no room for it.
    #[must_use]
    pub fn turned_away(self) -> JobDone {
        match self {
            Self::Work { award_no, request } => {
                JobDone::Work { task: request.task, award_no, outcome: Err(RoutineFault::Busy) }
            }
            Self::Search { team, .. } => JobDone::Found { team, agents: Vec::new() },
            Self::Advise { view, .. } => {
                JobDone::Advised { turn: AdvisedTurn::of(&view), team: view.team, advice: None }
            }
        }
    }
}

/// What carries the jobs of one agent out.
#[derive(Clone)]
pub struct TeamHands {
    /// Carries tasks out.
    pub worker: WorkRunner,
    /// Looks for agents; without one nobody is found.
    pub finder: Option<Arc<dyn Finder>>,
    /// Advises what to say; without one no advice comes.
    pub advisor: Option<Arc<dyn Advisor>>,
}

impl TeamHands {
    /// A worker, and nobody who searches or advises.
    #[must_use]
    pub fn new(worker: WorkRunner) -> Self {
        Self { worker, finder: None, advisor: None }
    }

    async fn perform(self, job: TeamJob) -> JobDone {
        match job {
            TeamJob::Work { award_no, request } => {
                let task = request.task.clone();
                JobDone::Work { task, award_no, outcome: self.worker.run(request).await }
            }
            TeamJob::Search { team, queries } => {
                let agents = match &self.finder {
                    Some(finder) => finder.find(queries).await,
                    None => Vec::new(),
                };
                JobDone::Found { team, agents }
            }
            TeamJob::Advise { asked_at, view } => {
                let (team, turn) = (view.team.clone(), AdvisedTurn::of(&view));
                let advice = match &self.advisor {
                    Some(advisor) => advisor.advise(asked_at, *view).await,
                    None => None,
                };
                JobDone::Advised { team, turn, advice }
            }
        }
    }
}

impl TeamAgent {
    /// Runs an agent in a task of its own, and its jobs in another, which ends with it.
    #[must_use]
    pub fn spawn(
        planner: impl TeamPlanner + 'static,
        hands: TeamHands,
        (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
        cancel: CancellationToken,
    ) -> AgentHandle<Self> {
        let (sender, jobs) = mpsc::channel(QUESTIONS_MAX);
        let agent = Self::new(identity.agent.clone(), planner, sender);
        let handle = Agent::new(transport, identity, agent).with_options(options).spawn(cancel);
        let perform = move |job: TeamJob| hands.clone().perform(job);
        let take = |agent: &mut Self, now, done: JobDone| agent.handle_done(now, done);
        tokio::spawn(handle.commander().answer_all(jobs, ASKED_MAX, perform, take));
        handle
    }
}
