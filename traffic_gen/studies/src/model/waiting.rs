//! A party whose model decides while everybody waits: at a table without an exchange in between.

use std::sync::Arc;

use agents::bargain::strategy::OpenTurn;
use agents::bargain::{BargainStrategy, Move, TurnView};
use agents::model::Subject;
use agents::model::party::{AdvisedStrategy, PartyTable, TURN_MARGIN_MS, TurnQuestion};
use schemas::{AgentId, NegotiationId, Timestamp};

use super::blocking::BlockingConsultant;

/// Time of a turn that is played without an exchange: as much as one has unless the rules say otherwise.
const TURN_MS: u64 = 10_000;

/// A party that waits for its model in each turn: at a table without an exchange in between.
pub struct WaitingParty {
    table: PartyTable,
    consultant: Arc<BlockingConsultant>,
    advised: AdvisedStrategy,
    agent: AgentId,
    negotiation: NegotiationId,
    task: Option<String>,
}

impl WaitingParty {
    /// A party in a negotiation. `scripted` is what it plays instead of the model where its owner wants that; `task` is what
    /// the initiator said in words.
    #[must_use]
    pub fn new(
        table: PartyTable,
        consultant: Arc<BlockingConsultant>,
        scripted: Box<dyn BargainStrategy>,
        (agent, negotiation, task): (AgentId, NegotiationId, Option<String>),
    ) -> Self {
        let advised = AdvisedStrategy::new(table.config.model.fallback, scripted);
        Self { table, consultant, advised, agent, negotiation, task }
    }
}

impl BargainStrategy for WaitingParty {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        let times = (Timestamp(0), Timestamp(0).plus_ms(TURN_MS - TURN_MARGIN_MS));
        let subject = Subject::new(&self.agent, &self.negotiation, None, times);
        let turn = OpenTurn::of(view);
        let question = TurnQuestion::new(turn, &self.table, self.task.as_deref(), &self.negotiation);
        if let Ok(next) = self.consultant.consult(&subject, question) {
            self.advised.advise(view.round, next);
        }
        self.advised.decide(view)
    }
}

#[cfg(test)]
mod tests;
