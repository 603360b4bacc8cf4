//! Families of teams and tasks in a lane (docs/spec/team.md#family): what one negotiation does to others of its family, and what
//! an agent is to the team above a task.

use schemas::delivery::Disposition;
use schemas::ids::FamilyPlace;
use schemas::team::{FAMILY_OPEN_MAX, TaskAward};
use schemas::{AgentId, NegotiationId};

use super::table::{Key, NegotiationTable};
use crate::negotiation::family::{FamilyAction, FamilyOrder, SUB_TEAM_OF, SubTeamGrant};
use crate::negotiation::misunderstanding::NotUnderstoodReason;
use crate::negotiation::protocols::{Negotiation, TableEntry};
use crate::negotiation::{InputContext, Refusal};

impl NegotiationTable {
    /// Whether an agent leads the team whose task this is, or did to its end.
    pub(super) fn leads_above(&self, negotiation: &NegotiationId, agent: &AgentId) -> bool {
        match self.team_above(negotiation) {
            Some(TableEntry::Open(open)) => open.is_led_by(agent),
            Some(TableEntry::Ended(tombstone)) => tombstone.was_led_by(agent),
            None => false,
        }
    }

    /// Whether an agent has left the team whose task this is (docs/spec/team.md#tm-63).
    pub(super) fn has_left_above(&self, negotiation: &NegotiationId, agent: &AgentId) -> bool {
        match self.team_above(negotiation) {
            Some(TableEntry::Open(open)) => open.was_left_by(agent),
            Some(TableEntry::Ended(tombstone)) => tombstone.was_left_by(agent),
            None => false,
        }
    }

    /// What an agent may call a sub-team with, for the award that it names (docs/spec/team.md#tm-64).
    pub(super) fn grant_sub_team(&self, of: &TaskAward, agent: &AgentId) -> Result<SubTeamGrant, Refusal> {
        let unauthorized = || Refusal::silent(Disposition::Unauthorized);
        if self.has_left_above(&of.task, agent) {
            return Err(unauthorized());
        }
        let grant = match self.entry(Key::of(&of.task)) {
            Some(TableEntry::Open(open)) => open.grant_sub_team(agent, of.award_no),
            Some(TableEntry::Ended(tombstone)) => Err(tombstone.refuse_sub_team(agent, of.award_no)),
            None => Err(unauthorized()),
        }?;
        let is_full = self.family_open_count(&of.task) >= FAMILY_OPEN_MAX;
        let full = || Refusal::malformed(NotUnderstoodReason::TooManyTasks, SUB_TEAM_OF);
        if is_full { Err(full()) } else { Ok(grant) }
    }

    /// How many more negotiations a family may open, and a lane with at most `open_max` of them has room for.
    pub(super) fn family_room(&self, negotiation: &NegotiationId, open_max: usize) -> usize {
        let in_family = FAMILY_OPEN_MAX.saturating_sub(self.family_open_count(negotiation));
        in_family.min(open_max.saturating_sub(self.open_count()))
    }

    /// The team whose task this is, if it is one.
    fn team_above(&self, negotiation: &NegotiationId) -> Option<&TableEntry> {
        let FamilyPlace::Task(_) = negotiation.place() else { return None };
        self.entry(Key::of(&negotiation.parent()?))
    }
}

/// Carries out what an input leads to in the family, until nothing is left to do (docs/spec/team.md#tm-2). What has ended obeys no
/// more.
pub(super) fn carry_out(table: &mut NegotiationTable, context: &mut InputContext<'_>) {
    while let Some(order) = context.orders.take_next() {
        let key = Key::of(&order.to);
        if let FamilyOrder { action: FamilyAction::OpenTask(_), .. } = &order {
            open_task(table, key, order, context);
        } else {
            table.with_entry(key, |entry| {
                if let TableEntry::Open(open) = entry {
                    open.apply_order(order, context);
                }
            });
        }
    }
}

/// The id is the next of its team, so that nothing stands under it.
fn open_task(table: &mut NegotiationTable, key: Key, order: FamilyOrder, context: &mut InputContext<'_>) {
    let input = order.input();
    if let FamilyAction::OpenTask(opening) = order.action {
        table.add(key, Negotiation::open_task(*opening, &input, context));
    }
}
