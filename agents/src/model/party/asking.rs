//! A bargaining agent that takes its turns to a model, and the task in which it does.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::delivery::{Delivery, Notification, Turn};
use schemas::{AgentId, NegotiationId, Timestamp};
use telemetry::TraceContext;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{AdvisedStrategy, PartyTable, TURN_MARGIN_MS, TurnQuestion};
use crate::agent::{Agent, AgentHandle, AgentOptions, QUESTIONS_MAX};
use crate::bargain::{BargainEvent, BargainPlan, BargainRequest, Bargainer, DomainPlanner, Move};
use crate::identity::Identity;
use crate::initiator::CallError;
use crate::model::config::ModelFallback;
use crate::model::consultant::{Consultant, Subject};
use crate::model::consultation::GaveUp;
use crate::strategy::{Action, Sent, Strategy};
use crate::transport::Transport;

/// A bargaining agent that holds each turn of its own back until its model has decided it.
pub struct AskingBargainer {
    agent: AgentId,
    bargainer: Bargainer,
    table: PartyTable,
    planner: DomainPlanner,
    held: BTreeMap<NegotiationId, HeldTurn>,
    tasks: BTreeMap<NegotiationId, String>,
    last_number: u64,
    questions: mpsc::Sender<AskedTurn>,
}

/// A turn that waits.
struct HeldTurn {
    /// Absent: until it is known who takes part.
    number: Option<u64>,
    round: u32,
    delivery: Delivery,
}

struct AskedTurn {
    number: u64,
    subject: Subject,
    question: TurnQuestion,
}

impl AskingBargainer {
    /// The plan of the owner's domain, its moves advised by the model.
    fn plan(planner: &DomainPlanner, table: &PartyTable, negotiation: &NegotiationId) -> BargainPlan {
        let plan = planner.plan_for(negotiation);
        BargainPlan { strategy: Box::new(AdvisedStrategy::new(table.config.model.fallback, plan.strategy)), ..plan }
    }

    /// Opens a bargain over the owner's domain, as [`Bargainer::open`] does; the plan of the request is replaced.
    pub fn open(&mut self, now: Timestamp, negotiation: &NegotiationId, request: BargainRequest) -> Vec<Action> {
        let plan = Self::plan(&self.planner, &self.table, negotiation);
        self.bargainer.open(now, negotiation, BargainRequest { plan, ..request })
    }

    fn handle_turn(&mut self, now: Timestamp, delivery: &Delivery, turn: &Turn) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        if turn.party != self.agent {
            self.held.remove(negotiation);
            return self.bargainer.handle(now, delivery);
        }
        if !self.bargainer.is_open(negotiation) {
            let held = HeldTurn { number: None, round: turn.round, delivery: delivery.clone() };
            self.held.insert(negotiation.clone(), held);
            return vec![Action::Defer];
        }
        let Some(open) = self.bargainer.open_turn(now, negotiation, turn) else {
            return self.bargainer.handle(now, delivery);
        };
        self.last_number += 1;
        let number = self.last_number;
        let subject = Subject {
            agent: self.agent.clone(),
            negotiation: negotiation.clone(),
            context: TraceContext::of(delivery.envelope.traceparent.as_deref(), negotiation),
            asked_at: now,
            deadline: Timestamp(turn.act_by.0.0.saturating_sub(TURN_MARGIN_MS * 1000)),
        };
        let task = self.tasks.get(negotiation).map(String::as_str);
        let question = TurnQuestion::new(open, &self.table, task, negotiation);
        let held = HeldTurn { number: Some(number), round: turn.round, delivery: delivery.clone() };
        self.held.insert(negotiation.clone(), held);
        let negotiation = negotiation.clone();
        match self.questions.try_send(AskedTurn { number, subject, question }) {
            Ok(()) => vec![Action::Defer],
            Err(_) => {
                let why = format!("{}: too many questions wait", GaveUp::Budget.as_str());
                self.handle_answer(now, &negotiation, number, Err(why))
            }
        }
    }

    /// Takes the model's move, and makes it, or what the owner wants instead.
    fn handle_answer(
        &mut self,
        now: Timestamp,
        negotiation: &NegotiationId,
        number: u64,
        answer: Result<Move, String>,
    ) -> Vec<Action> {
        if self.held.get(negotiation).is_none_or(|held| held.number != Some(number)) {
            return Vec::new();
        }
        let Some(held) = self.held.remove(negotiation) else { return Vec::new() };
        match (answer, self.table.config.model.fallback) {
            (Ok(next), _) => self.bargainer.advise(negotiation, held.round, next),
            (Err(why), ModelFallback::Refuse) => {
                tracing::warn!(%negotiation, "the model gave no usable answer ({why}); the party ended the bargain");
            }
            (Err(why), ModelFallback::Scripted) => {
                tracing::debug!(%negotiation, "the model gave no usable answer ({why}); the strategy plays this turn");
            }
        }
        self.bargainer.handle(now, &held.delivery)
    }
}

impl AskingBargainer {
    /// Forgets the bargains that the bargainer lets go of, ended or lost.
    fn forgetting(&mut self, actions: Vec<Action>) -> Vec<Action> {
        for action in &actions {
            if let Action::Release(negotiation) = action {
                self.held.remove(negotiation);
                self.tasks.remove(negotiation);
            }
        }
        actions
    }
}

impl Strategy for AskingBargainer {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        if let Notification::Turn(turn) = &delivery.payload {
            let actions = self.handle_turn(now, delivery, turn);
            return self.forgetting(actions);
        }
        let mut actions = self.bargainer.handle(now, delivery);
        if let Notification::Cfp(call) = &delivery.payload
            && let Some(task) = &call.task
            && self.bargainer.is_open(negotiation)
        {
            self.tasks.insert(negotiation.clone(), task.clone());
        }
        if self.bargainer.is_open(negotiation)
            && self.held.get(negotiation).is_some_and(|held| held.number.is_none())
            && let Some(held) = self.held.remove(negotiation)
        {
            actions.extend(self.handle(now, &held.delivery));
        }
        self.forgetting(actions)
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let actions = self.bargainer.handle_sent(now, sent);
        self.forgetting(actions)
    }
}

impl AgentHandle<AskingBargainer> {
    /// Opens a bargain over the owner's domain. Returns at once with the id of the negotiation; what becomes of it are events.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn bargain(&self, request: BargainRequest) -> Result<NegotiationId, CallError> {
        let negotiation = NegotiationId::form(self.agent(), &request.call.own_id)?;
        let id = negotiation.clone();
        self.command(move |asking, now| asking.open(now, &id, request)).await?;
        Ok(negotiation)
    }
}

/// Runs a bargaining agent in a task of its own, and its turns in another, which ends with it. It takes part in bargains over
/// the domain of its planner, under the planner's mandate, and nothing else; the planner's strategy is played where the owner's `fallback` says so.
#[must_use]
pub fn spawn(
    (table, planner): (PartyTable, DomainPlanner),
    consultant: Arc<Consultant>,
    events: mpsc::Sender<BargainEvent>,
    (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
    cancel: CancellationToken,
) -> AgentHandle<AskingBargainer> {
    let (sender, questions) = mpsc::channel(QUESTIONS_MAX);
    let joining = (table.clone(), planner.clone());
    let plan = move |negotiation: &NegotiationId, call: &schemas::delivery::BargainCall, _party: usize| {
        let (table, planner) = &joining;
        if call.rules.issues != table.space.issues() {
            return Err("bargains about something else".to_owned());
        }
        Ok(AskingBargainer::plan(planner, table, negotiation))
    };
    let asking = AskingBargainer {
        agent: identity.agent.clone(),
        bargainer: Bargainer::new(identity.agent.clone(), plan, events),
        table,
        planner,
        held: BTreeMap::new(),
        tasks: BTreeMap::new(),
        last_number: 0,
        questions: sender,
    };
    let handle = Agent::new(transport, identity, asking).with_options(options).spawn(cancel);
    let answer = move |asked: AskedTurn| {
        let consultant = Arc::clone(&consultant);
        async move {
            let AskedTurn { number, subject, question } = asked;
            let answer = consultant.consult(&subject, question).await.map_err(|reason| consultant.explain(reason));
            (number, subject.negotiation, answer)
        }
    };
    let take = |asking: &mut AskingBargainer, now, (number, negotiation, answer): (u64, NegotiationId, _)| {
        asking.handle_answer(now, &negotiation, number, answer)
    };
    tokio::spawn(handle.commander().answer_all(questions, answer, take));
    handle
}

#[cfg(test)]
mod tests;
