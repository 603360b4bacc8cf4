//! What one of the owner's agents asks: it decides, speaks and works as its client says.

use std::sync::Arc;

use agents::ActRefusal;
use agents::routine::RoutineFault;
use agents::team::{
    AdvisedSpeaker, Advisor, MemberPlan, PassingSpeaker, Speaker, TaskPlan, TeamMove, TeamPlanner, TeamView,
    WorkRequest, Worker,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::ids::FamilyPlace;
use schemas::payload::Terms;
use schemas::team::{Brief, TeamCall, TeamState};
use schemas::{AgentId, NegotiationId, Timestamp};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Hub, WaitingTurn};
use crate::chat::REFUSED;

/// The client of an agent: it joins every team that has a chat, takes every task, says what its frames say, and passes where
/// they say nothing.
#[derive(Clone)]
pub struct HubClient(pub Arc<Hub>, pub AgentId);

impl TeamPlanner for HubClient {
    /// The call was delivered before: its chat is open, or there was no room for it.
    fn join(&mut self, team: &NegotiationId, _goal: &str, _call: &TeamCall) -> Result<MemberPlan, String> {
        let state = self.0.state.lock();
        if !state.open.get(team).is_some_and(|open| open.parts.contains_key(&self.1)) {
            return Err(state.why_declined(&self.1, team, Instant::now()).unwrap_or_default());
        }
        Ok(MemberPlan { terms: Terms::new(), speaker: Box::new(AdvisedSpeaker::new(self.clone())) })
    }

    fn offer(&mut self, _brief: &Brief) -> Result<Terms, String> {
        Ok(Terms::new())
    }

    fn take(&mut self, _brief: &Brief) -> Result<TaskPlan, String> {
        Ok(TaskPlan::Alone)
    }
}

impl Speaker for HubClient {
    fn speak(&mut self, view: &TeamView) -> TeamMove {
        PassingSpeaker.speak(view)
    }

    /// Keeps the floor, so that the client may do better. While the team only concludes its agent asks again by itself.
    fn refused(&mut self, view: &TeamView, refused: &TeamMove, _why: &ActRefusal) -> Option<TeamMove> {
        let is_repeat = matches!(refused, TeamMove::Say { text, .. } if text.starts_with(REFUSED));
        let (text, next) = (format!("{REFUSED}{}", view.turn), Some(view.me.clone()));
        (!is_repeat && view.state != TeamState::Concluding).then_some(TeamMove::Say { text, next })
    }
}

impl Advisor for HubClient {
    fn advise(&self, _asked_at: Timestamp, view: TeamView) -> BoxFuture<'static, Option<TeamMove>> {
        let mut state = self.0.state.lock();
        let Some(open) = state.open.get_mut(&view.team) else { return std::future::ready(None).boxed() };
        // A turn before this one is over: whoever waits for it hears nothing.
        if let Some(WaitingTurn::Spoken(next)) = open.turns.remove(&view.me) {
            return std::future::ready(Some(next)).boxed();
        }
        let (sender, turn) = oneshot::channel();
        open.turns.insert(view.me, WaitingTurn::Asked(sender));
        async move { turn.await.ok() }.boxed()
    }
}

impl Worker for HubClient {
    /// The task is done when the client says so.
    fn run(&self, request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let WorkRequest { agent, task, title, text } = request;
        let unknown = || std::future::ready(Err(RoutineFault::Unavailable("the chat is over".to_owned()))).boxed();
        let (Some(team), FamilyPlace::Task(number)) = (task.parent(), task.place()) else { return unknown() };
        let mut state = self.0.state.lock();
        let told = state.with_chat(&team, |chat| chat.handle_work(&agent, number, (&title, &text)));
        state.send(&team, told);
        let Some(open) = state.open.get_mut(&team) else { return unknown() };
        if let Some(result) = open.chat.early_result(number) {
            return std::future::ready(Ok(result)).boxed();
        }
        let (sender, done) = oneshot::channel();
        open.works.insert(number, sender);
        let over = |_| RoutineFault::Unavailable("the chat is over".to_owned());
        async move { done.await.map_err(over) }.boxed()
    }
}
