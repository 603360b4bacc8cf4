//! Teams (docs/spec/team.md), as agents see them.
//!
//! | module | question it answers |
//! |---|---|
//! | [`scenario`] | a whole team written down: a file |
//! | [`view`] | what does a member know of its team? (pure) |
//! | [`speaker`] | what does a member say when it holds the floor? (pure) |
//! | [`script`] | the same, written down beforehand |
//! | [`membership`] | what does a member do next in one team? (pure) |
//! | here, [`TeamPlanner`] | does an agent take part, and what does it do with a task? |
//! | [`agent`] | how does it take part on the exchange? |
//! | [`playing`] | how does it play its part of a scenario? |
//! | [`worker`] | who carries a task out, within which limits? A function, a program, a service |

pub mod agent;
pub mod membership;
pub mod playing;
pub mod scenario;
pub mod script;
pub mod speaker;
pub mod view;
pub mod worker;

use schemas::payload::{Cfp, Terms};
use schemas::team::{Brief, TaskAward, TeamCall, TeamRules, TeamSpec};
use schemas::{AgentId, NegotiationId};

pub use agent::{Advisor, Finder, JobDone, TeamAgent, TeamHands, TeamJob};
pub use playing::{ScenarioPlanner, ScenarioWorker};
pub use scenario::Scenario;
pub use script::{ScriptedSpeaker, Vote};
pub use speaker::{AdvisedSpeaker, AssignMove, PassingSpeaker, Speaker, TeamMove};
pub use view::TeamView;
pub use worker::{FunctionWorker, WorkRequest, WorkRunner, Worker};

/// Decides for an agent. No clock, no input or output.
pub trait TeamPlanner: Send {
    /// How it goes into a team that it is called to; or why not.
    ///
    /// # Errors
    /// In words.
    fn join(&mut self, team: &NegotiationId, goal: &str, call: &TeamCall) -> Result<MemberPlan, String>;

    /// What it offers for a task that goes by award; or why not.
    ///
    /// # Errors
    /// In words.
    fn offer(&mut self, brief: &Brief) -> Result<Terms, String>;

    /// What it does with a task that is to be its own; or why it declines.
    ///
    /// # Errors
    /// In words.
    fn take(&mut self, brief: &Brief) -> Result<TaskPlan, String>;
}

/// Joins every team, offers the same for every task, and takes every task. Its [`Advisor`] decides what it says; without advice it
/// passes.
#[derive(Debug, Clone, Default)]
pub struct WillingPlanner {
    /// What it joins with.
    pub joins_with: Terms,
    /// What it offers for tasks.
    pub offers: Terms,
}

impl TeamPlanner for WillingPlanner {
    fn join(&mut self, _team: &NegotiationId, _goal: &str, _call: &TeamCall) -> Result<MemberPlan, String> {
        let speaker = Box::new(AdvisedSpeaker::new(PassingSpeaker));
        Ok(MemberPlan { terms: self.joins_with.clone(), speaker })
    }

    fn offer(&mut self, _brief: &Brief) -> Result<Terms, String> {
        Ok(self.offers.clone())
    }

    fn take(&mut self, _brief: &Brief) -> Result<TaskPlan, String> {
        Ok(TaskPlan::Alone)
    }
}

/// How an agent goes into a team.
pub struct MemberPlan {
    /// What it joins with, which the policy of the call scores.
    pub terms: Terms,
    /// What it says there.
    pub speaker: Box<dyn Speaker>,
}

/// What an agent does with a task of its own.
pub enum TaskPlan {
    /// Its worker carries it out.
    Alone,
    /// It calls a sub-team, whose conclusion is the result. Where that has none, its worker carries the task out.
    Team(Box<TeamRequest>),
}

/// A team to be called.
pub struct TeamRequest {
    /// The goal.
    pub goal: String,
    /// The policy that ranks who joins; absent: who joined first by hash.
    pub policy: Option<String>,
    /// How long the invited have to join, in milliseconds.
    pub reply_within_ms: u64,
    /// The rules.
    pub rules: TeamRules,
    /// Who is invited.
    pub invites: Vec<AgentId>,
    /// What is searched for first; the best hit of each query is invited as well.
    pub search: Vec<String>,
    /// What the lead says.
    pub speaker: Box<dyn Speaker>,
}

impl TeamRequest {
    /// The call; of a sub-team with the award it works for.
    #[must_use]
    pub fn cfp(&self, of: Option<TaskAward>) -> Cfp {
        Cfp {
            task: Some(self.goal.clone()),
            policy: self.policy.clone(),
            reply_within_ms: Some(self.reply_within_ms),
            team: Some(Box::new(TeamSpec { rules: self.rules.clone(), of })),
            ..Cfp::default()
        }
    }
}
