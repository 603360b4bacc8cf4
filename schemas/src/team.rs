//! What the team protocol adds to the contract (docs/spec/team.md): the rules of a team, and the acts by which its members
//! speak, share out tasks, wait and conclude. What members are told is in `notice`.

mod notice;

use serde::{Deserialize, Serialize};

pub use notice::{
    Brief, Conclusion, Floor, ProposedConclusion, Spoken, TaskStatus, TeamCall, TeamState, TeamTask, VoteCount,
};

pub use crate::ids::{AWARD_MAX, DEPTH_MAX, TASKS_MAX};

use crate::ids::{AgentId, AwardNo, Capability, NegotiationId};
use crate::terms::number;

/// Most seats of a team, the lead among them.
pub const MEMBERS_MAX: u32 = 64;
/// Fewest seats of a team.
pub const MEMBERS_MIN: u32 = 2;
/// Most agents invited to one team.
pub const INVITED_MAX: usize = 256;
/// Most turns of discussion.
pub const TURNS_MAX: u32 = 1000;
/// Shortest time the floor may be held in silence, in milliseconds.
pub const SPEAK_MS_MIN: u64 = 100;
/// Longest time the floor may be held in silence, in milliseconds: one hour.
pub const SPEAK_MS_MAX: u64 = 3_600_000;
/// Times [`TeamRules::speak_ms`] that a team must have left once all should have joined.
pub const SPEAK_TIMES_MIN: u64 = 4;
/// Times [`TeamRules::speak_ms`] before its end from which a team only concludes.
pub const WRAP_TIMES: u64 = 2;
/// Most tasks of one assignment.
pub const ASSIGNED_MAX: usize = 16;
/// Most votes on conclusions.
pub const ATTEMPTS_MAX: u32 = 5;
/// Most negotiations of one family that are open at once.
pub const FAMILY_OPEN_MAX: usize = 256;
/// Longest title of a task, in characters.
pub const TITLE_LEN_MAX: usize = 256;
/// Messages of one member that a team remembers, and takes, beside one for each of its turns.
pub const MESSAGES_SPARE: usize = 64;
/// The policy of tasks where neither call nor assignment names one.
pub const TASK_POLICY: &str = "team-task";
/// Lowest similarity at which a say may count as a repetition, in parts per million.
pub const REPEAT_PPM_MIN: u32 = 500_000;

/// What makes a call the call to a team: its rules, and of a sub-team the award it works for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct TeamSpec {
    /// The rules.
    #[serde(flatten)]
    pub rules: TeamRules,
    /// Makes it a sub-team: the award whose contractor calls. The exchange forms its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<TaskAward>,
}

/// The rules of one team.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct TeamRules {
    /// Seats.
    pub members: Seats,
    /// Turns of discussion, 1 to [`TURNS_MAX`]; then only a conclusion is taken.
    pub turns: u32,
    /// How long the floor may be held in silence, in milliseconds, [`SPEAK_MS_MIN`] to [`SPEAK_MS_MAX`].
    pub speak_ms: u64,
    /// Hard end, in milliseconds from the call; at most a day.
    pub ends_within_ms: u64,
    /// Levels of sub-teams allowed below, 0 to [`DEPTH_MAX`].
    pub depth: u32,
    /// Tasks in all, 1 to [`TASKS_MAX`].
    pub tasks: u32,
    /// What tasks run under unless an assignment names another policy.
    pub task_policy: String,
    /// What becomes of open tasks at the conclusion.
    pub at_conclusion: AtConclusion,
    /// A conclusion binds only when it is voted; absent: it binds at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vote: Option<VoteRules>,
    /// What becomes of a say that repeats an earlier one.
    pub on_repeat: OnRepeat,
    /// Similarity from which a say repeats another, [`REPEAT_PPM_MIN`] to 1 000 000.
    pub repeat_ppm: u32,
    /// Strikes with which a member is muted, 1 to 100.
    pub max_strikes: u32,
}

impl Default for TeamRules {
    fn default() -> Self {
        Self {
            members: Seats::default(),
            turns: 32,
            speak_ms: 30_000,
            ends_within_ms: 600_000,
            depth: 0,
            tasks: TASKS_MAX,
            task_policy: TASK_POLICY.to_owned(),
            at_conclusion: AtConclusion::default(),
            vote: None,
            on_repeat: OnRepeat::default(),
            repeat_ppm: 700_000,
            max_strikes: 3,
        }
    }
}

/// How many members a team has, its lead among them: [`MEMBERS_MIN`] to [`MEMBERS_MAX`], `min` not above `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Seats {
    /// With fewer it does not form.
    pub min: u32,
    /// More get no seat.
    pub max: u32,
}

impl Default for Seats {
    fn default() -> Self {
        Self { min: 2, max: 8 }
    }
}

/// What becomes of open tasks at the conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum AtConclusion {
    /// There are none: a conclusion is refused while a task is open.
    #[default]
    Settle,
    /// They are called off.
    Cancel,
    /// They go on by themselves; their results change nothing of the conclusion.
    Leave,
}

/// How a conclusion is voted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VoteRules {
    /// How many must be for it.
    pub of: VoteOf,
    /// How long members may vote, in milliseconds; silence counts as no.
    #[serde(default = "number::<_, 10_000>")]
    pub vote_ms: u64,
    /// Votes, 1 to [`ATTEMPTS_MAX`]; after the last the team ends without a conclusion.
    #[serde(default = "number::<_, 3>")]
    pub attempts: u32,
}

/// How many must be for a conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoteOf {
    /// More than half of the members.
    Majority,
    /// Every member.
    All,
}

/// What becomes of a say that repeats an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnRepeat {
    /// It is told whole.
    Pass,
    /// It takes the turn, and is told by reference.
    #[default]
    Reference,
    /// It is refused.
    Refuse,
}

/// An award of a team's task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskAward {
    /// The task.
    pub task: NegotiationId,
    /// The award, 1 to [`AWARD_MAX`].
    pub award_no: AwardNo,
}

/// The member that holds the floor speaks.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Say {
    /// The turn the sender believes it takes; absent: the current one.
    pub turn: Option<u32>,
    /// What is said, 1 to 4096 characters.
    pub text: String,
    /// Who gets the floor; absent: the next seat.
    pub next: Option<AgentId>,
}

/// The member that holds the floor opens tasks, all of them or none.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assign {
    /// The turn the sender believes it takes; absent: the current one.
    pub turn: Option<u32>,
    /// Whether the team waits for them.
    pub mode: TaskMode,
    /// Their acceptance policy; absent: the team's.
    pub policy: Option<String>,
    /// 1 to [`ASSIGNED_MAX`] tasks, in the order of their numbers.
    pub tasks: Vec<AssignedTask>,
}

/// Whether a team waits for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskMode {
    /// It waits until the task has ended.
    Sync,
    /// It goes on.
    Async,
}

/// One task of an assignment.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssignedTask {
    /// Its title, 1 to [`TITLE_LEN_MAX`] characters.
    pub title: String,
    /// What is to be done; longer work goes by reference.
    pub text: String,
    /// The member that is to do it; absent: it goes by award.
    pub owner: Option<AgentId>,
    /// Capabilities its owner must have, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Capability>,
    /// How long offers are collected, in milliseconds; absent: what the policy says.
    pub reply_within_ms: Option<u64>,
    /// How long its owner may take, in milliseconds; absent: what the policy says, cut to what the team has left.
    pub perform_ms: Option<u64>,
}

/// The member that holds the floor waits for tasks.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The turn the sender believes it takes; absent: the current one.
    pub turn: Option<u32>,
    /// The numbers of the tasks, 1 to [`TASKS_MAX`] of them, each once.
    pub triggers: Vec<u32>,
    /// Why, for the others.
    pub text: Option<String>,
}

/// The member that holds the floor concludes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conclude {
    /// The turn the sender believes it takes; absent: the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// The conclusion, 1 to 4096 characters.
    pub text: String,
}
