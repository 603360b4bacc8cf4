//! What the members of a team are told (docs/spec/team.md#tm-54).

use serde::{Deserialize, Serialize};

use super::{TaskAward, TaskMode, TeamRules};
use crate::digest::Digest;
use crate::ids::{AgentId, NegotiationId, OfferId};
use crate::time::WireTime;

crate::json_texts!(Brief, Option<Box<Conclusion>>, Vec<TeamTask>, Box<TeamRules>);

/// A team as the invited see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TeamCall {
    /// Who calls.
    pub lead: AgentId,
    /// The rules, defaults filled in.
    pub rules: TeamRules,
    /// Levels of sub-teams it may have below it.
    pub depth_left: u32,
    /// Of a sub-team: the award it works for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<TaskAward>,
}

/// What a team does, once it has formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TeamState {
    /// The member that holds the floor may speak.
    Discussing,
    /// It waits for the tasks of a `sync` assignment.
    Awaiting,
    /// It waits for the tasks a member waits for.
    Paused,
    /// The member that holds the floor may only conclude.
    Concluding,
    /// Members vote on a conclusion.
    Voting,
}

/// How a team stands. Each member is told each step once: by this, or in the receipt of its own act.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Floor {
    /// The number of the change, counted from 1.
    pub step: u32,
    /// The turn, counted from 1.
    pub turn: u32,
    /// Turns of discussion left, this one included.
    pub turns_left: u32,
    /// What the team does.
    pub state: TeamState,
    /// Who holds the floor; absent while the team waits or votes.
    pub speaker: Option<AgentId>,
    /// The speaker must act, or members vote, by then; absent while the team waits.
    pub act_by: Option<WireTime>,
    /// The team ends then at the latest.
    pub ends_by: WireTime,
    /// Whose act it was; absent for a timer or a task.
    pub by: Option<AgentId>,
    /// What was said.
    pub said: Option<Spoken>,
    /// The tasks that changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TeamTask>,
    /// The tasks that are waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<u32>,
    /// The members in the order of their seats, the lead first; in the first notice, and when they changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<AgentId>,
    /// Members that get the floor no more; when they changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub muted: Vec<AgentId>,
    /// What is voted on.
    pub conclusion: Option<ProposedConclusion>,
}

/// What was said.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Spoken {
    /// These words.
    Text {
        /// The words.
        text: String,
    },
    /// Nearly the words of an earlier step.
    Repeats {
        /// The step.
        repeats: u32,
    },
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TaskStatus {
    /// Nobody is bound yet.
    Open,
    /// Its owner works.
    Running,
    /// It has a result.
    Done,
    /// It has none.
    Failed,
}

/// How a task of a team stands.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TeamTask {
    /// Its number, counted from 1.
    pub task: u32,
    /// Where it stands.
    pub status: TaskStatus,
    /// Who does it, or did; absent while nobody is bound.
    pub owner: Option<AgentId>,
    /// Its title; in the notice that it is open, and in views.
    pub title: Option<String>,
    /// Its result; absent in CLOSED.
    pub result: Option<String>,
    /// SHA-256 of the result's text, where the result is not told.
    pub digest: Option<Digest>,
    /// Of one that failed: why.
    pub code: Option<String>,
    /// In views: whether the result is cut to its digest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// A conclusion that is voted on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProposedConclusion {
    /// Its id; ACCEPT repeats it.
    pub offer_id: OfferId,
    /// Who concluded.
    pub by: AgentId,
    /// Its text.
    pub text: String,
    /// SHA-256 of its text in UTF-8; ACCEPT repeats it.
    pub terms_digest: Digest,
}

/// What a team concluded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conclusion {
    /// Who concluded.
    pub by: AgentId,
    /// Its id.
    pub offer_id: OfferId,
    /// Its text.
    pub text: String,
    /// SHA-256 of its text in UTF-8.
    pub digest: Digest,
    /// The turn it was said in.
    pub turn: u32,
    /// Where it was voted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub votes: Option<VoteCount>,
}

/// How a vote went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VoteCount {
    /// Members for it, its author among them.
    pub yes: u32,
    /// Members against it.
    pub no: u32,
}

/// What is to be done, as the members a task concerns are told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Brief {
    /// The team.
    pub team: NegotiationId,
    /// The number of the task in it.
    pub task: u32,
    /// Its title.
    pub title: String,
    /// What is to be done.
    pub text: String,
    /// Whether the team waits for it.
    pub mode: TaskMode,
}
