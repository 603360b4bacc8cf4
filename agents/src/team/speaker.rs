//! What a member says when it holds the floor: a pure function of what it knows.

use schemas::AgentId;
use schemas::payload::{Payload, TEXT_LEN_MAX};
use schemas::team::{Assign, Conclude, Pause, Say, TASKS_MAX, TaskMode, TaskStatus, TeamState};
use serde::Deserialize;

use super::view::TeamView;
use crate::strategy::ActRefusal;

/// What is concluded where a member must conclude and has nothing to say.
const NO_CONCLUSION: &str = "no conclusion";

/// Decides what a member says. No clock, no input or output.
pub trait Speaker: Send {
    /// The member holds the floor.
    fn speak(&mut self, view: &TeamView) -> TeamMove;

    /// Whether the member is for a conclusion of another.
    fn vote(&mut self, view: &TeamView, conclusion: &str) -> bool {
        let _ = (view, conclusion);
        true
    }

    /// Learns why `refused`, an act of its own, changed nothing. What it returns is sent instead, if the member still holds the
    /// floor and was refused less than three times in the turn. Without it the member passes, waits for open tasks, or
    /// concludes, as the exchange takes it.
    fn refused(&mut self, view: &TeamView, refused: &TeamMove, refusal: &ActRefusal) -> Option<TeamMove> {
        let _ = (view, refused, refusal);
        None
    }

    /// Whether somebody else is asked first what it says: its agent hands the view out as a
    /// [`TeamJob::Advise`](super::TeamJob), and [`Speaker::speak`] serves where no advice comes.
    fn is_advised(&self) -> bool {
        false
    }
}

/// A member that says what its [`Advisor`](super::Advisor) advises, and where none does, what another speaker says.
pub struct AdvisedSpeaker {
    otherwise: Box<dyn Speaker>,
}

impl AdvisedSpeaker {
    /// A member with somebody to ask; `otherwise` speaks where no advice comes, and votes.
    #[must_use]
    pub fn new(otherwise: impl Speaker + 'static) -> Self {
        Self { otherwise: Box::new(otherwise) }
    }
}

impl Speaker for AdvisedSpeaker {
    fn speak(&mut self, view: &TeamView) -> TeamMove {
        self.otherwise.speak(view)
    }

    fn vote(&mut self, view: &TeamView, conclusion: &str) -> bool {
        self.otherwise.vote(view, conclusion)
    }

    fn refused(&mut self, view: &TeamView, refused: &TeamMove, refusal: &ActRefusal) -> Option<TeamMove> {
        self.otherwise.refused(view, refused, refusal)
    }

    fn is_advised(&self) -> bool {
        true
    }
}

/// A member that passes every turn, and concludes that there is nothing to conclude.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassingSpeaker;

impl Speaker for PassingSpeaker {
    fn speak(&mut self, view: &TeamView) -> TeamMove {
        match view.state {
            TeamState::Concluding => TeamMove::Conclude { text: NO_CONCLUSION.to_owned() },
            TeamState::Discussing | TeamState::Awaiting | TeamState::Paused | TeamState::Voting => pass(view),
        }
    }
}

/// What a member does with the floor. In a file it is written as it is sent; only the `triggers` of a pause may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum TeamMove {
    /// Speaks and passes the floor on.
    Say {
        /// What is said.
        text: String,
        /// Who gets the floor; absent: the next seat.
        next: Option<AgentId>,
    },
    /// Opens tasks.
    Assign(AssignMove),
    /// Waits for tasks.
    Pause {
        /// For which; absent: for all that are open.
        triggers: Option<Vec<u32>>,
        /// Why, for the others.
        text: Option<String>,
    },
    /// Concludes.
    Conclude {
        /// The conclusion.
        text: String,
    },
}

/// Tasks to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssignMove {
    /// Whether the team waits for them.
    pub mode: TaskMode,
    /// Their acceptance policy; absent: the team's.
    pub policy: Option<String>,
    /// The tasks.
    pub tasks: Vec<schemas::team::AssignedTask>,
}

impl TeamMove {
    /// Speaks, and leaves it to the order of seats who is next.
    #[must_use]
    pub fn say(text: impl Into<String>) -> Self {
        Self::Say { text: text.into(), next: None }
    }

    /// The message, for the turn of a view.
    #[must_use]
    pub fn payload(self, view: &TeamView) -> Payload {
        let turn = Some(view.turn);
        match self {
            Self::Say { text, next } => Payload::Say(Say { turn, text, next }),
            Self::Assign(AssignMove { mode, policy, tasks }) => Payload::Assign(Assign { turn, mode, policy, tasks }),
            Self::Pause { triggers, text } => {
                let triggers = triggers.unwrap_or_else(|| view.open_tasks().collect());
                Payload::Pause(Pause { turn, triggers, text })
            }
            Self::Conclude { text } => Payload::Conclude(Conclude { turn, text }),
        }
    }
}

/// What a member says that has nothing to say. It names the turn, so that it repeats nothing.
#[must_use]
pub fn pass(view: &TeamView) -> TeamMove {
    let next = (!view.is_lead() && view.may_speak(&view.lead)).then(|| view.lead.clone());
    TeamMove::Say { text: format!("pass, turn {}", view.turn), next }
}

/// Makes a move that the exchange can take of one that it would refuse. Who decides by a model may rely on it:
///
/// * while the team only concludes, everything becomes a conclusion;
/// * the floor goes to nobody outside: it stays with the speaker;
/// * a pause without an open task becomes a say to oneself;
/// * an assignment to nobody, or to a stranger, becomes a say;
/// * texts are cut to [`TEXT_LEN_MAX`] characters, and an empty one becomes [`pass`].
#[must_use]
pub fn coerced(next: TeamMove, view: &TeamView) -> TeamMove {
    let me = || Some(view.me.clone());
    if view.state == TeamState::Concluding && !matches!(next, TeamMove::Conclude { .. }) {
        let text = match next {
            TeamMove::Say { text, .. } | TeamMove::Pause { text: Some(text), .. } => text,
            TeamMove::Assign(_) | TeamMove::Pause { text: None, .. } | TeamMove::Conclude { .. } => String::new(),
        };
        return coerced(TeamMove::Conclude { text }, view);
    }
    match next {
        TeamMove::Say { text, .. } if text.is_empty() => pass(view),
        TeamMove::Say { text, next } => {
            let is_outside = |next: &AgentId| !view.members.is_empty() && !view.may_speak(next);
            let next = next.and_then(|next| if is_outside(&next) { me() } else { Some(next) });
            TeamMove::Say { text: cut(text), next }
        }
        TeamMove::Assign(assign) => match fault_of(&assign, view) {
            None => TeamMove::Assign(assign),
            Some(fault) => TeamMove::Say { text: fault, next: me() },
        },
        TeamMove::Pause { triggers, text } => {
            let known: Vec<u32> = match triggers {
                Some(triggers) => triggers.into_iter().filter(|number| view.tasks.contains_key(number)).collect(),
                None => view.open_tasks().take(TASKS_MAX as usize).collect(),
            };
            if known.is_empty() {
                let text = text.filter(|text| !text.is_empty());
                return TeamMove::Say { text: text.map_or_else(|| "nothing to wait for".to_owned(), cut), next: me() };
            }
            TeamMove::Pause { triggers: Some(known), text: text.map(cut) }
        }
        TeamMove::Conclude { text } if text.is_empty() => TeamMove::Conclude { text: NO_CONCLUSION.to_owned() },
        TeamMove::Conclude { text } => TeamMove::Conclude { text: cut(text) },
    }
}

/// Why an assignment cannot be taken, as far as a member can tell.
fn fault_of(assign: &AssignMove, view: &TeamView) -> Option<String> {
    if assign.tasks.is_empty() {
        return Some("no task to assign".to_owned());
    }
    let owners = assign.tasks.iter().filter_map(|task| task.owner.as_ref());
    let mut strangers = owners.filter(|owner| !view.members.is_empty() && !view.members.contains(owner));
    strangers.next().map(|owner| format!("{owner} is no member and gets no task"))
}

fn cut(text: String) -> String {
    if text.len() <= TEXT_LEN_MAX { text } else { text.chars().take(TEXT_LEN_MAX).collect() }
}

/// Texts with `{task 3}` in it say the result of task 3 instead, or that it has failed.
#[must_use]
pub fn with_results(text: &str, view: &TeamView) -> String {
    let mut filled = text.to_owned();
    for (number, task) in &view.tasks {
        let result = match (task.status, &task.result) {
            (TaskStatus::Done, Some(result)) => result.clone(),
            (TaskStatus::Done, None) => "done".to_owned(),
            (TaskStatus::Failed, _) => format!("(failed: {})", task.code.as_deref().unwrap_or("no code")),
            (TaskStatus::Open | TaskStatus::Running, _) => "(not done yet)".to_owned(),
        };
        filled = filled.replace(&format!("{{task {number}}}"), &result);
    }
    filled
}

#[cfg(test)]
mod tests;
