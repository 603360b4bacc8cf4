//! What a run came to: everything the recorder of the contract net watches, and what only teams have.

use std::collections::BTreeMap;

use agents::observer::{Observed, Observer};
use schemas::delivery::{Delivery, Disposition, Notification};
use schemas::ids::FamilyPlace;
use schemas::team::TaskStatus;
use schemas::{Act, AgentId, NegotiationId};
use tokio::time::Instant;

use crate::latency::Latency;
use crate::load::Ledger;

/// What only teams have.
#[derive(Debug, Clone, Default)]
pub struct TeamTally {
    /// Teams that formed.
    pub formed: u64,
    /// Members of those.
    pub members: u64,
    /// Acts of the floor that were sent, by act.
    pub turns: BTreeMap<String, u64>,
    /// Tasks of ended teams, by how each ended.
    pub tasks: BTreeMap<String, u64>,
    /// Acts of the floor that the exchange refused.
    pub refused: u64,
    /// From sending a say until the member that has the floor next knows of it.
    pub say: Latency,
}

/// What is known of the teams of a run.
#[derive(Default)]
pub struct TeamState {
    tally: TeamTally,
    /// The say under way in a team: there is one at a time.
    says: BTreeMap<NegotiationId, Instant>,
}

/// Watches every agent of a run of teams.
pub type TeamLedger = Ledger<TeamState>;

impl TeamLedger {
    /// What it has come to so far.
    pub fn tally(&self) -> TeamTally {
        self.lock().tally.clone()
    }
}

impl TeamState {
    fn told(&mut self, agent: &AgentId, at: Instant, delivery: &Delivery) {
        let team = &delivery.envelope.negotiation;
        if matches!(team.place(), FamilyPlace::Task(_)) {
            return;
        }
        match (&delivery.payload, team.initiator() == agent.as_str()) {
            (Notification::Floor(floor), _) => {
                if floor.step == 1 && floor.members.first() == Some(agent) {
                    self.tally.formed += 1;
                    self.tally.members += floor.members.len() as u64;
                }
                if floor.speaker.as_ref() == Some(agent)
                    && let Some(said) = self.says.remove(team)
                {
                    self.tally.say.record(at.saturating_duration_since(said));
                }
            }
            (Notification::Closed(closing), true) => {
                self.says.remove(team);
                for task in &closing.tasks {
                    let outcome = match task.status {
                        TaskStatus::Done => "done",
                        TaskStatus::Failed => task.code.as_deref().unwrap_or("failed"),
                        TaskStatus::Open | TaskStatus::Running => "open",
                    };
                    *self.tally.tasks.entry(outcome.to_owned()).or_default() += 1;
                }
            }
            (Notification::Ack(receipt), _) if receipt.disposition != Disposition::Ok => {
                self.says.remove(team);
            }
            (Notification::NotUnderstood(_), _) => self.tally.refused += 1,
            (_, _) => {}
        }
    }
}

impl Observer for TeamLedger {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        self.recorder().handle(agent, at, event);
        if let Observed::Transmitted { negotiation, act, attempt: 1, .. } = event
            && is_of_floor(act)
        {
            let mut inner = self.lock();
            *inner.tally.turns.entry(act.as_str().to_owned()).or_default() += 1;
            if act == Act::Say {
                inner.says.insert(negotiation.clone(), at);
            }
        }
        if let Observed::Delivered { delivery, is_repeat: false } = event {
            self.lock().told(agent, at, delivery);
        }
    }
}

fn is_of_floor(act: Act) -> bool {
    matches!(act, Act::Say | Act::Assign | Act::Pause | Act::Conclude)
}
