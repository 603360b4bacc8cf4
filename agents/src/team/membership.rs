//! One member's side of one team: what it has been told, what it has done with the floor, what it does next. Pure.
//!
//! The receipt of a member's own act is its notice of that step: of an assignment it goes on with, of a say to itself, of a vote
//! that sent the floor back to it nothing else tells that it holds the floor.

use std::collections::BTreeSet;

use schemas::delivery::{Disposition, Receipt};
use schemas::payload::{Accept, Payload, Reasoned};
use schemas::team::{AtConclusion, Floor, Spoken, TaskMode, TaskStatus, TeamState, TeamTask};
use schemas::{Code, OfferId, Refusal};

use super::speaker::{AssignMove, Speaker, TeamMove, coerced, pass};
use super::view::TeamView;
use crate::strategy::ActRefusal;

/// Acts of one turn that the exchange may refuse before the member stays silent, and its floor lapses.
const REFUSALS_MAX: u32 = 2;
/// Reasons for which the floor is not this member's any more, or never was: a notice tells how the team stands.
const ELSEWHERE: [Disposition; 7] = [
    Disposition::OutOfTurn,
    Disposition::StaleRound,
    Disposition::Closed,
    Disposition::Late,
    Disposition::Unauthorized,
    Disposition::Duplicate,
    Disposition::RateLimited,
];
/// See [`ELSEWHERE`].
const BAD_ROUND: &str = "bad_round";
/// Why an act is refused of a team that only concludes.
const MUST_CONCLUDE: &str = "must_conclude";
/// Why a conclusion is refused while tasks are open.
const OPEN_TASKS: &str = "open_tasks";

/// See the module.
pub struct TeamSide {
    view: TeamView,
    speaker: Box<dyn Speaker>,
    /// What it did with the floor, until the exchange has said what became of that.
    made: Option<MadeMove>,
    /// Acts refused in a turn: the turn, and how many.
    refused: (u32, u32),
    /// Tasks that a pause of its own waits for, as far as they had not ended before the step of the pause.
    waited: Option<(u32, BTreeSet<u32>)>,
    /// The conclusion it has voted on.
    voted: Option<OfferId>,
    /// What is asked about, until it is answered.
    asked: Option<AdvisedTurn>,
    /// What is to be asked.
    question: Option<TeamView>,
}

/// A turn about which advice is asked: its number, and whether only a conclusion is taken in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisedTurn {
    /// The turn.
    pub turn: u32,
    /// Whether the team only concludes.
    pub is_concluding: bool,
}

impl AdvisedTurn {
    /// The turn that a member takes now.
    #[must_use]
    pub fn of(view: &TeamView) -> Self {
        Self { turn: view.turn, is_concluding: view.state == TeamState::Concluding }
    }
}

/// An act that was sent.
struct MadeMove {
    /// The latest step at that time: only a later one can be the act's own.
    step: u32,
    turn: u32,
    what: TeamMove,
}

impl TeamSide {
    /// A member that speaks like this.
    #[must_use]
    pub fn new(view: TeamView, speaker: Box<dyn Speaker>) -> Self {
        Self { view, speaker, made: None, refused: (0, 0), waited: None, voted: None, asked: None, question: None }
    }

    /// What it knows.
    #[must_use]
    pub fn view(&self) -> &TeamView {
        &self.view
    }

    /// Takes a notice of how the team stands.
    pub fn handle_floor(&mut self, floor: &Floor) -> Option<Payload> {
        if !self.view.handle_floor(floor) {
            return self.wait_less(floor);
        }
        self.waited = None;
        // A notice of a later turn shows that the act was taken, or that its time was over.
        self.made = self.made.take().filter(|made| made.turn >= self.view.turn);
        if self.view.state == TeamState::Voting { self.vote() } else { self.speak() }
    }

    /// Takes the receipt of an act of its own.
    pub fn handle_receipt(&mut self, receipt: &Receipt) -> Option<Payload> {
        let (Disposition::Ok, Some(step)) = (receipt.disposition, receipt.step) else { return None };
        let turn = receipt.turn.unwrap_or(self.view.turn);
        let made = self.made.take_if(|made| made.step < step);
        let is_latest = step > self.view.step;
        let was_voting = self.view.state == TeamState::Voting && turn > self.view.turn;
        if is_latest {
            self.view.step = step;
            self.view.turn = turn;
            self.view.turns_left = (self.view.rules.turns + 1).saturating_sub(turn);
        }
        match made {
            Some(made) => self.note_own(made, step, receipt, is_latest),
            // A vote of its own that could not pass any more: the lead goes on.
            None if is_latest && (was_voting || step == 1) => {
                self.view.state = TeamState::Discussing;
                self.view.speaker = Some(self.view.lead.clone());
            }
            None => {}
        }
        if is_latest { self.speak() } else { None }
    }

    /// What advice is to be asked about, once.
    pub fn poll_question(&mut self) -> Option<TeamView> {
        self.question.take()
    }

    /// Takes advice about a turn; none where nobody could give any. Advice about a turn that is over is none.
    pub fn handle_advice(&mut self, turn: AdvisedTurn, advice: Option<TeamMove>) -> Option<Payload> {
        self.asked.take_if(|asked| *asked == turn)?;
        if !self.view.has_floor() || self.made.is_some() || AdvisedTurn::of(&self.view) != turn {
            return None;
        }
        let next = advice.unwrap_or_else(|| self.speaker.speak(&self.view));
        Some(self.make(next))
    }

    /// The exchange, or a gateway, has refused an act of its own.
    pub fn handle_refusal(&mut self, refusal: &ActRefusal) -> Option<Payload> {
        let made = self.made.take()?;
        let reason = refusal.reason.as_str();
        let corrected = self.speaker.refused(&self.view, &made.what, refusal);
        if reason == MUST_CONCLUDE && made.turn == self.view.turn {
            self.view.state = TeamState::Concluding;
            self.view.speaker = Some(self.view.me.clone());
            return self.speak();
        }
        let is_elsewhere = reason == BAD_ROUND || ELSEWHERE.iter().any(|known| known.as_str() == reason);
        if is_elsewhere || !self.view.has_floor() || made.turn != self.view.turn {
            return None;
        }
        let before = if self.refused.0 == made.turn { self.refused.1 } else { 0 };
        self.refused = (made.turn, before + 1);
        if before >= REFUSALS_MAX {
            return None;
        }
        if let Some(corrected) = corrected {
            return Some(self.make(corrected));
        }
        if self.view.state == TeamState::Concluding {
            return self.speak();
        }
        let waits = reason == OPEN_TASKS && self.view.open_tasks().next().is_some();
        let instead = if waits { TeamMove::Pause { triggers: None, text: None } } else { pass(&self.view) };
        Some(self.make(instead))
    }

    /// A gateway, or the agent itself, had no room for an act: it is made again. Any other refusal is the act's fault.
    pub fn handle_unsent(&mut self, refusal: &Refusal) -> Option<Payload> {
        if refusal.code == Code::Overloaded {
            let made = self.made.take()?;
            return self.view.has_floor().then(|| self.make(made.what));
        }
        self.handle_refusal(&refusal.into())
    }

    /// A task that a pause of its own waits for had ended before the pause: it did not wait for it.
    fn wait_less(&mut self, earlier: &Floor) -> Option<Payload> {
        let (step, waited) = self.waited.as_mut()?;
        if *step != self.view.step || earlier.step > *step {
            return None;
        }
        let is_over = |task: &&TeamTask| matches!(task.status, TaskStatus::Done | TaskStatus::Failed);
        earlier.tasks.iter().filter(is_over).for_each(|task| {
            waited.remove(&task.task);
        });
        if !waited.is_empty() {
            return None;
        }
        self.waited = None;
        self.go_on(self.view.me.clone());
        self.speak()
    }

    /// What an act of its own has led to, which no notice tells it.
    fn note_own(&mut self, made: MadeMove, step: u32, receipt: &Receipt, is_latest: bool) {
        let me = self.view.me.clone();
        match made.what {
            TeamMove::Say { text, next } => {
                self.view.note_said(step, me, Spoken::Text { text });
                let next = next.or_else(|| self.view.next_seat().cloned());
                if let (true, Some(next)) = (is_latest, next) {
                    self.go_on(next);
                }
            }
            TeamMove::Assign(AssignMove { mode, tasks, .. }) => {
                for (number, task) in receipt.tasks.iter().zip(tasks) {
                    self.view.note_task(&opened(*number, task.title, task.owner));
                }
                match mode {
                    _ if !is_latest => {}
                    TaskMode::Async => self.go_on(me),
                    TaskMode::Sync => self.wait(TeamState::Awaiting),
                }
            }
            TeamMove::Pause { triggers, .. } => {
                let open: BTreeSet<u32> = self.view.open_tasks().collect();
                let waited: BTreeSet<u32> = triggers.into_iter().flatten().filter(|task| open.contains(task)).collect();
                if is_latest && waited.is_empty() {
                    self.go_on(me);
                } else if is_latest {
                    self.wait(TeamState::Paused);
                    self.waited = Some((step, waited));
                }
            }
            TeamMove::Conclude { .. } if is_latest => self.wait(TeamState::Voting),
            TeamMove::Conclude { .. } => {}
        }
    }

    /// The floor goes to a member; behind the last turn to the lead, which concludes, or waits for what is open first.
    fn go_on(&mut self, next: schemas::AgentId) {
        if self.view.turns_left > 0 {
            self.view.state = TeamState::Discussing;
            self.view.speaker = Some(next);
            return;
        }
        let settles = self.view.rules.at_conclusion == AtConclusion::Settle;
        if settles && self.view.open_tasks().next().is_some() {
            return self.wait(TeamState::Paused);
        }
        self.view.state = TeamState::Concluding;
        self.view.speaker = Some(self.view.lead.clone());
    }

    fn wait(&mut self, state: TeamState) {
        self.view.state = state;
        self.view.speaker = None;
    }

    fn speak(&mut self) -> Option<Payload> {
        // What it has done in this turn is still under way.
        if !self.view.has_floor() || self.made.is_some() {
            return None;
        }
        if self.speaker.is_advised() {
            let turn = AdvisedTurn::of(&self.view);
            if self.asked.replace(turn) != Some(turn) {
                self.question = Some(self.view.clone());
            }
            return None;
        }
        let next = self.speaker.speak(&self.view);
        Some(self.make(next))
    }

    fn make(&mut self, next: TeamMove) -> Payload {
        let what = coerced(next, &self.view);
        self.made = Some(MadeMove { step: self.view.step, turn: self.view.turn, what: what.clone() });
        what.payload(&self.view)
    }

    fn vote(&mut self) -> Option<Payload> {
        let proposed = self.view.conclusion.clone()?;
        if proposed.by == self.view.me || self.voted == Some(proposed.offer_id) {
            return None;
        }
        self.voted = Some(proposed.offer_id);
        if self.speaker.vote(&self.view, &proposed.text) {
            let terms_digest = Some(proposed.terms_digest);
            return Some(Payload::Accept(Accept { offer_id: proposed.offer_id, terms_digest }));
        }
        Some(Payload::Refuse(Reasoned::default()))
    }
}

fn opened(task: u32, title: String, owner: Option<schemas::AgentId>) -> TeamTask {
    let title = Some(title);
    TeamTask { task, status: TaskStatus::Open, owner, title, result: None, digest: None, code: None, cut: false }
}

#[cfg(test)]
mod tests;
