//! An open negotiation of any protocol: one arm each.

use std::sync::Arc;

use schemas::delivery::Disposition;
use schemas::{AgentId, AwardNo, DeliveryId, Timestamp};

use crate::limits::Limits;
use crate::negotiation::alternating_offers::Bargain;
use crate::negotiation::contract_net::{ContractNet, task};
use crate::negotiation::disposition::{Incoming, ProtocolRules};
use crate::negotiation::family::{FamilyAction, FamilyOrder, SubTeamGrant};
use crate::negotiation::panel::{self, Panel};
use crate::negotiation::phase::{Timer, TimerKind};
use crate::negotiation::team::{self, Team};
use crate::negotiation::tombstone::Tombstone;
use crate::negotiation::view::NegotiationView;
use crate::negotiation::{Header, InputContext, Refusal};
use crate::policy::PinnedPolicy;
use crate::protocol::{Phase, Protocol};

/// Asks the same of a negotiation of whichever protocol.
macro_rules! each {
    ($open:expr, $negotiation:ident => $asked:expr) => {
        match $open {
            Negotiation::ContractNet($negotiation) => $asked,
            Negotiation::Bargain($negotiation) => $asked,
            Negotiation::Panel($negotiation) => $asked,
            Negotiation::Team($negotiation) => $asked,
        }
    };
}

/// One open negotiation. Whatever differs by protocol is one `match` here.
#[derive(Debug)]
pub(crate) enum Negotiation {
    ContractNet(Box<ContractNet>),
    Bargain(Box<Bargain>),
    Panel(Box<Panel>),
    Team(Box<Team>),
}

impl Negotiation {
    pub(crate) fn header(&self) -> &Header {
        each!(self, open => open.header())
    }

    fn header_mut(&mut self) -> &mut Header {
        each!(self, open => open.header_mut())
    }

    pub(crate) fn protocol(&self) -> Protocol {
        each!(self, open => open.protocol())
    }

    pub(crate) fn phase(&self) -> Phase {
        each!(self, open => open.phase())
    }

    /// The policies that are shared with others. A bargain has taken from its policies what it needs; a panel has none.
    pub(crate) fn policies(&self) -> Vec<&Arc<PinnedPolicy>> {
        each!(self, open => open.policies())
    }

    pub(crate) fn next_timer(&self) -> Option<Timer> {
        each!(self, open => open.next_timer())
    }

    /// Whether it is a team that this agent leads.
    pub(crate) fn is_led_by(&self, agent: &AgentId) -> bool {
        matches!(self, Self::Team(team) if team.lead() == Some(agent))
    }

    /// What an agent may call a sub-team with, for an award of this task.
    pub(crate) fn grant_sub_team(&self, agent: &AgentId, award_no: AwardNo) -> Result<SubTeamGrant, Refusal> {
        let Self::ContractNet(net) = self else { return Err(Refusal::silent(Disposition::Unauthorized)) };
        task::grant_sub_team(net, agent, award_no)
    }

    /// Whether it is a team that this agent has left.
    pub(crate) fn was_left_by(&self, agent: &AgentId) -> bool {
        matches!(self, Self::Team(team) if team.has_left(agent))
    }

    /// Does what another of its family orders.
    pub(crate) fn apply_order(&mut self, order: FamilyOrder, context: &mut InputContext<'_>) {
        self.header_mut().link(&order.input(), context);
        self.handle(context, |open, context| match (open, order.action) {
            (Self::ContractNet(net), FamilyAction::CallOff) => task::handle_call_off(net, context),
            (Self::ContractNet(net), FamilyAction::Abort) => net.handle_abort("team_aborted", context),
            (Self::ContractNet(net), FamilyAction::MemberLeft(agent)) => task::handle_member_left(net, &agent, context),
            (Self::ContractNet(net), FamilyAction::DetachFromTeam(lead)) => task::detach_from_team(net, lead),
            (Self::ContractNet(net), FamilyAction::SubTeamCalled(award_no)) => task::note_sub_team(net, award_no),
            (Self::ContractNet(net), FamilyAction::SubTeamConcluded(award_no, text)) => {
                task::handle_conclusion(net, award_no, &text, context);
            }
            (Self::Team(team), FamilyAction::Progress(number, progress)) => {
                team.handle_progress(number, progress, context);
            }
            (Self::Team(team), FamilyAction::ParentEnded) => team.handle_parent_ended(context),
            (Self::Team(team), FamilyAction::Abort) => team.handle_abort("task_aborted", context),
            (_, _) => debug_assert!(false, "an order goes to the parent or a child"),
        });
    }

    /// False when the sender takes no part.
    pub(crate) fn handle_message(&mut self, incoming: &Incoming, context: &mut InputContext<'_>) -> bool {
        self.handle(context, |open, context| {
            if let Self::ContractNet(net) = open {
                task::admit_lead(net, incoming);
            }
            each!(open, open => open.handle_message(incoming, context))
        })
    }

    pub(crate) fn fire(&mut self, kind: TimerKind, context: &mut InputContext<'_>) {
        self.header_mut().link(&kind.tag(), context);
        self.handle(context, |open, context| match (open, kind) {
            (open, TimerKind::Hard) => each!(open, open => open.handle_hard_deadline(context)),
            (Self::ContractNet(negotiation), TimerKind::ContractNet(timer)) => negotiation.fire(timer, context),
            (Self::Bargain(bargain), TimerKind::Bargain(timer)) => bargain.fire(timer, context),
            (Self::Panel(panel), TimerKind::Panel(timer)) => panel.fire(timer, context),
            (Self::Team(team), TimerKind::Team(timer)) => team.fire(timer, context),
            (_, _) => debug_assert!(false, "a timer is its own negotiation's"),
        });
    }

    pub(crate) fn handle_delivery_failure(
        &mut self,
        delivery: DeliveryId,
        to: &AgentId,
        may_answer: bool,
        context: &mut InputContext<'_>,
    ) {
        self.header_mut().link(b"delivery_failed", context);
        self.handle(context, |open, context| {
            each!(open, open => open.handle_delivery_failure(delivery, to, may_answer, context));
        });
    }

    pub(crate) fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.header_mut().link(format!("abort:{code}").as_bytes(), context);
        self.handle(context, |open, context| each!(open, open => open.handle_abort(code, context)));
    }

    /// Handles an input; the receipts that wait for whoever it tells something leave with that.
    fn handle<R>(
        &mut self,
        context: &mut InputContext<'_>,
        input: impl FnOnce(&mut Self, &mut InputContext<'_>) -> R,
    ) -> R {
        let first_effect = context.out.len();
        let result = input(self, context);
        each!(self, open => open.attach_receipts(first_effect, context));
        if let Self::ContractNet(net) = self {
            task::report_progress(net, context);
        }
        result
    }

    pub(crate) fn tombstone(&self, limits: &Limits) -> Tombstone {
        each!(self, open => open.tombstone(limits))
    }

    pub(crate) fn view(&self, viewer: &AgentId, now: Timestamp) -> Option<NegotiationView> {
        match self {
            Self::ContractNet(net) => NegotiationView::of_contract_net(net, viewer),
            Self::Bargain(bargain) => NegotiationView::of_bargain(bargain, viewer, now),
            Self::Panel(panel) => panel::view_of(panel, viewer),
            Self::Team(team) => team::view_of(team, viewer),
        }
    }

    /// After a restart: shares the names of its parties with other negotiations, and the id of its call, which stands in it
    /// twice. The initiator is the first party, and the call its first message.
    pub(crate) fn share_names(&mut self, mut shared: impl FnMut(&AgentId) -> AgentId) {
        let (header, mut parties) = each!(self, open => open.header_and_parties());
        let call = parties.first().and_then(|initiator| initiator.seen.first()).map(|seen| &seen.msg_id);
        if let Some(call) = call.filter(|call| **call == header.call_msg_id) {
            header.call_msg_id = call.clone();
        }
        parties.iter_mut().for_each(|party| party.agent = shared(&party.agent));
    }

    /// What the fold relies on between the fields, and a snapshot might not keep.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        each!(self, open => open.check())
    }
}
