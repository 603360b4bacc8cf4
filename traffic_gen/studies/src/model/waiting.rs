//! A party whose model decides while everybody waits: at a table without an exchange in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agents::bargain::strategy::OpenTurn;
use agents::bargain::{BargainStrategy, Move, TurnView};
use agents::model::party::{AdvisedStrategy, PartyTable, TURN_MARGIN_MS, TurnQuestion};
use agents::model::{GaveUp, Subject};
use schemas::{AgentId, NegotiationId, Timestamp};

use super::blocking::BlockingConsultant;

/// Time of a turn that is played without an exchange, in milliseconds: a small model on a laptop may need as much, with repairs.
const TURN_MS: u64 = 30_000;

/// What a model answers in a turn, as soon as it does. `task` is what the initiator said in words.
///
/// # Errors
/// [`GaveUp`] says why there is no move.
pub fn ask(
    consultant: &BlockingConsultant,
    table: &PartyTable,
    (agent, negotiation, task): (&AgentId, &NegotiationId, Option<&str>),
    view: &TurnView<'_>,
) -> Result<Move, GaveUp> {
    let times = (Timestamp(0), Timestamp(0).plus_ms(TURN_MS - TURN_MARGIN_MS));
    let subject = Subject::new(agent, negotiation, None, times);
    consultant.consult(&subject, TurnQuestion::new(OpenTurn::of(view), table, task, negotiation))
}

/// A party that waits for its model in each turn: at a table without an exchange in between.
pub struct WaitingParty {
    table: PartyTable,
    consultant: Arc<BlockingConsultant>,
    advised: AdvisedStrategy,
    agent: AgentId,
    negotiation: NegotiationId,
    task: Option<String>,
    unanswered: Arc<AtomicU64>,
}

impl WaitingParty {
    /// A party in a negotiation. `scripted` is what it plays instead of the model where its owner wants that; `task` is what
    /// the initiator said in words.
    pub fn new(
        table: PartyTable,
        consultant: Arc<BlockingConsultant>,
        scripted: Box<dyn BargainStrategy>,
        (agent, negotiation, task): (AgentId, NegotiationId, Option<String>),
    ) -> Self {
        let advised = AdvisedStrategy::new(table.config.model.fallback, scripted);
        Self { table, consultant, advised, agent, negotiation, task, unanswered: Arc::default() }
    }

    /// The same, counting turns in which the model gave no answer of use.
    pub fn counting(self, unanswered: Arc<AtomicU64>) -> Self {
        Self { unanswered, ..self }
    }
}

impl BargainStrategy for WaitingParty {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        let of = (&self.agent, &self.negotiation, self.task.as_deref());
        match ask(&self.consultant, &self.table, of, view) {
            Ok(next) => self.advised.advise(view.round, next),
            Err(_) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.advised.decide(view)
    }
}

#[cfg(test)]
mod tests;
