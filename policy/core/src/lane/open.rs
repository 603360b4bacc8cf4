//! An open negotiation of either protocol, as the lane's state handles it.

use std::sync::Arc;

use schemas::{AgentId, DeliveryId, Timestamp};

use crate::alternating_offers::state::Bargaining;
use crate::effect::Protocol;
use crate::ladder::{Incoming, Ladder};
use crate::limits::Limits;
use crate::matter::Matter;
use crate::negotiation::{Negotiation, PinnedPolicy};
use crate::state::{Phase, Timer, TimerKind};
use crate::step::Step;
use crate::tombstone::Tombstone;
use crate::view::View;

/// See the module.
#[derive(Debug)]
pub(super) enum Open {
    ContractNet(Box<Negotiation>),
    Bargain(Box<Bargaining>),
}

impl Open {
    pub(super) fn matter(&self) -> &Matter {
        match self {
            Self::ContractNet(negotiation) => &negotiation.matter,
            Self::Bargain(bargain) => &bargain.matter,
        }
    }

    pub(super) fn protocol(&self) -> Protocol {
        match self {
            Self::ContractNet(_) => Protocol::ContractNet,
            Self::Bargain(_) => Protocol::AlternatingOffers,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self {
            Self::ContractNet(negotiation) => negotiation.phase,
            Self::Bargain(bargain) => bargain.phase,
        }
    }

    /// The policy that is shared with others. A bargain has taken from its policies what it needs.
    pub(super) fn policy(&self) -> Option<&Arc<PinnedPolicy>> {
        match self {
            Self::ContractNet(negotiation) => Some(&negotiation.pinned),
            Self::Bargain(_) => None,
        }
    }

    pub(super) fn next_timer(&self) -> Option<Timer> {
        match self {
            Self::ContractNet(negotiation) => negotiation.next_timer(),
            Self::Bargain(bargain) => bargain.next_timer(),
        }
    }

    /// False when the sender takes no part.
    pub(super) fn handle_message(&mut self, incoming: &Incoming, step: &mut Step<'_>) -> bool {
        match self {
            Self::ContractNet(negotiation) => negotiation.handle_message(incoming, step),
            Self::Bargain(bargain) => bargain.handle_message(incoming, step),
        }
    }

    pub(super) fn fire(&mut self, kind: TimerKind, step: &mut Step<'_>) {
        match self {
            Self::ContractNet(negotiation) => {
                negotiation.matter.link(&kind.tag(), step);
                negotiation.fire(kind, step);
            }
            Self::Bargain(bargain) => {
                bargain.matter.link(&kind.tag(), step);
                bargain.fire(kind, step);
            }
        }
    }

    pub(super) fn handle_delivery_failure(
        &mut self,
        delivery: DeliveryId,
        to: &AgentId,
        may_answer: bool,
        step: &mut Step<'_>,
    ) {
        match self {
            Self::ContractNet(negotiation) => negotiation.handle_delivery_failure(delivery, to, may_answer, step),
            Self::Bargain(bargain) => bargain.handle_delivery_failure(step),
        }
    }

    pub(super) fn handle_abort(&mut self, code: &str, step: &mut Step<'_>) {
        match self {
            Self::ContractNet(negotiation) => negotiation.handle_abort(code, step),
            Self::Bargain(bargain) => bargain.handle_abort(code, step),
        }
    }

    pub(super) fn tombstone(&self, limits: &Limits) -> Tombstone {
        match self {
            Self::ContractNet(negotiation) => negotiation.tombstone(limits),
            Self::Bargain(bargain) => bargain.tombstone(limits),
        }
    }

    pub(super) fn view(&self, viewer: &AgentId, now: Timestamp) -> Option<View> {
        match self {
            Self::ContractNet(negotiation) => negotiation.view(viewer),
            Self::Bargain(bargain) => bargain.view(viewer, now),
        }
    }
}
