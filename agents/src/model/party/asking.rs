//! A bargaining agent that takes its turns to a model.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use schemas::delivery::{BargainCall, Delivery, Notification, Turn};
use schemas::{AgentId, NegotiationId, Timestamp};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{AdvisedStrategy, PartyTable, TURN_MARGIN_MS, TurnQuestion};
use crate::agent::{AgentHandle, AgentOptions};
use crate::asking::{self, Asking, Asks};
use crate::bargain::{BargainEvent, BargainPlan, BargainRequest, Bargainer, DomainPlanner, Move, Planner};
use crate::identity::Identity;
use crate::initiator::CallError;
use crate::model::asking::{AskedQuestion, AsksModel};
use crate::model::config::ModelFallback;
use crate::model::consultant::{Consultant, Subject};
use crate::model::consultation::GaveUp;
use crate::strategy::{Action, Sent, Strategy};
use crate::transport::Transport;

/// A bargaining agent that holds each turn of its own back until its model has decided it.
pub struct ModelBargainer {
    agent: AgentId,
    bargainer: Bargainer,
    table: PartyTable,
    planner: DomainPlanner,
    held: BTreeMap<NegotiationId, HeldTurn>,
    tasks: BTreeMap<NegotiationId, String>,
    last_number: u64,
    questions: VecDeque<AskedTurn>,
}

/// A model's party, as it runs.
pub type AskingBargainer = Asking<ModelBargainer>;

/// A turn that waits.
struct HeldTurn {
    /// Absent: until it is known who takes part.
    number: Option<u64>,
    round: u32,
    delivery: Delivery,
}

type AskedTurn = AskedQuestion<TurnQuestion>;

impl ModelBargainer {
    /// Opens a bargain over the owner's domain, as [`Bargainer::open`] does; the plan of the request is replaced.
    pub fn open(&mut self, now: Timestamp, negotiation: &NegotiationId, request: BargainRequest) -> Vec<Action> {
        let plan = advised(self.planner.plan_for(negotiation), self.table.config.model.fallback);
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
        let deadline = Timestamp(turn.act_by.0.0.saturating_sub(TURN_MARGIN_MS * 1000));
        let traceparent = delivery.envelope.traceparent.as_deref();
        let subject = Subject::new(&self.agent, negotiation, traceparent, (now, deadline));
        let task = self.tasks.get(negotiation).map(String::as_str);
        let question = TurnQuestion::new(open, &self.table, task, negotiation);
        let held = HeldTurn { number: Some(number), round: turn.round, delivery: delivery.clone() };
        self.held.insert(negotiation.clone(), held);
        self.questions.push_back(AskedTurn { number, subject, question });
        vec![Action::Defer]
    }
}

impl Asks for ModelBargainer {
    type Question = AskedTurn;
    type Answer = Result<Move, String>;

    fn poll_question(&mut self) -> Option<AskedTurn> {
        self.questions.pop_front()
    }

    /// Takes the model's move, and makes it, or what the owner wants instead.
    fn take_answer(&mut self, now: Timestamp, asked: &AskedTurn, answer: Self::Answer) -> Vec<Action> {
        let (negotiation, number) = (&asked.subject.negotiation, asked.number);
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
        let actions = self.bargainer.handle(now, &held.delivery);
        self.forget_released(actions)
    }
}

impl AsksModel for ModelBargainer {
    async fn consult(consultant: &Consultant, asked: &AskedTurn) -> Result<Move, String> {
        let answer = consultant.consult(&asked.subject, asked.question.clone()).await;
        answer.map_err(|reason| consultant.explain(reason))
    }

    fn unasked() -> Result<Move, String> {
        Err(format!("{}: too many questions wait", GaveUp::Budget.as_str()))
    }
}

impl ModelBargainer {
    /// Forgets the bargains that the bargainer lets go of, ended or lost.
    fn forget_released(&mut self, actions: Vec<Action>) -> Vec<Action> {
        for action in &actions {
            if let Action::Release(negotiation) = action {
                self.held.remove(negotiation);
                self.tasks.remove(negotiation);
            }
        }
        actions
    }
}

impl Strategy for ModelBargainer {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        if let Notification::Turn(turn) = &delivery.payload {
            let actions = self.handle_turn(now, delivery, turn);
            return self.forget_released(actions);
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
        self.forget_released(actions)
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let actions = self.bargainer.handle_sent(now, sent);
        self.forget_released(actions)
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
        self.command(move |asking, now| asking.strategy().open(now, &id, request)).await?;
        Ok(negotiation)
    }
}

/// A plan whose moves a model advises.
fn advised(plan: BargainPlan, fallback: ModelFallback) -> BargainPlan {
    BargainPlan { strategy: Box::new(AdvisedStrategy::new(fallback, plan.strategy)), ..plan }
}

/// Runs a bargaining agent in a task of its own, and its turns in another, which ends with it. It takes part in bargains over
/// the domain of its planner, under the planner's mandate, and nothing else; the planner's strategy is played where the owner's `fallback` says so.
#[must_use]
pub fn spawn(
    (table, planner): (PartyTable, DomainPlanner),
    consultant: Arc<Consultant>,
    events: mpsc::Sender<BargainEvent>,
    way: (Arc<dyn Transport>, Identity, AgentOptions),
    cancel: CancellationToken,
) -> AgentHandle<AskingBargainer> {
    let (fallback, mut joining) = (table.config.model.fallback, planner.clone());
    let plan = move |negotiation: &NegotiationId, call: &BargainCall, party: usize| {
        joining.plan(negotiation, call, party).map(|plan| advised(plan, fallback))
    };
    let agent = way.1.agent.clone();
    let party = ModelBargainer {
        bargainer: Bargainer::new(agent.clone(), plan, events),
        agent,
        table,
        planner,
        held: BTreeMap::new(),
        tasks: BTreeMap::new(),
        last_number: 0,
        questions: VecDeque::new(),
    };
    asking::spawn(party, consultant, way, cancel)
}

#[cfg(test)]
mod tests;
