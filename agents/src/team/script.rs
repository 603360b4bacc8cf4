//! A member that does what was written down for it: its moves in their order, then what is left to do.

use std::collections::VecDeque;

use schemas::team::TeamState;
use serde::Deserialize;

use super::speaker::{Speaker, TeamMove, pass, with_results};
use super::view::TeamView;

/// A scripted member. `{task 3}` in a text of its own says the result of task 3.
///
/// Behind its last move the lead waits for the tasks that are open and concludes; any other member passes to the lead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptedSpeaker {
    moves: VecDeque<TeamMove>,
    conclusion: Option<String>,
    votes: VecDeque<Vote>,
}

/// How a member votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vote {
    /// For the conclusion.
    Yes,
    /// Against it.
    No,
}

impl ScriptedSpeaker {
    /// A member with these moves; `conclusion` is what it concludes with where it must and no move says so; `votes` are its
    /// votes in their order, yes behind the last.
    #[must_use]
    pub fn new(moves: Vec<TeamMove>, conclusion: Option<String>, votes: Vec<Vote>) -> Self {
        Self { moves: moves.into(), conclusion, votes: votes.into() }
    }

    fn conclude(&mut self) -> TeamMove {
        let written = self.moves.iter().find_map(|next| match next {
            TeamMove::Conclude { text } => Some(text.clone()),
            TeamMove::Say { .. } | TeamMove::Assign(_) | TeamMove::Pause { .. } => None,
        });
        let text = self.conclusion.clone().or(written).unwrap_or_else(|| "no conclusion was prepared".to_owned());
        TeamMove::Conclude { text }
    }

    fn next(&mut self, view: &TeamView) -> TeamMove {
        if view.state == TeamState::Concluding {
            return self.conclude();
        }
        if let Some(next) = self.moves.pop_front() {
            return next;
        }
        if !view.is_lead() {
            return pass(view);
        }
        if view.open_tasks().next().is_some() {
            return TeamMove::Pause { triggers: None, text: None };
        }
        self.conclude()
    }
}

impl Speaker for ScriptedSpeaker {
    fn speak(&mut self, view: &TeamView) -> TeamMove {
        let filled = |text: String| with_results(&text, view);
        match self.next(view) {
            TeamMove::Say { text, next } => TeamMove::Say { text: filled(text), next },
            TeamMove::Conclude { text } => TeamMove::Conclude { text: filled(text) },
            TeamMove::Pause { triggers, text } => TeamMove::Pause { triggers, text: text.map(filled) },
            TeamMove::Assign(mut assign) => {
                assign.tasks.iter_mut().for_each(|task| task.text = with_results(&task.text, view));
                TeamMove::Assign(assign)
            }
        }
    }

    fn vote(&mut self, _view: &TeamView, _conclusion: &str) -> bool {
        self.votes.pop_front().is_none_or(|vote| vote == Vote::Yes)
    }
}
