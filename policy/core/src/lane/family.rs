//! Carries out what one input of a negotiation leads to in its family (docs/spec/team.md#tm-2).

use super::table::{Key, NegotiationTable, TableEntry};
use crate::lane::negotiation::Negotiation;
use crate::negotiation::InputContext;
use crate::negotiation::contract_net::ContractNet;
use crate::negotiation::family::{FamilyDeed, FamilyOrder};

/// Until nothing is left to do. What has ended obeys no more.
pub(super) fn carry_out(table: &mut NegotiationTable, context: &mut InputContext<'_>) {
    while let Some(order) = context.orders.take_next() {
        let key = Key::of(&order.to);
        if let FamilyOrder { deed: FamilyDeed::OpenTask(_), .. } = &order {
            open_task(table, key, order, context);
        } else {
            table.with_entry(key, |entry| {
                if let TableEntry::Open(open, _) = entry {
                    open.obey(order, context);
                }
            });
        }
    }
}

/// The id is the next of its team, so that nothing stands under it.
fn open_task(table: &mut NegotiationTable, key: Key, order: FamilyOrder, context: &mut InputContext<'_>) {
    let input = order.input();
    if let FamilyDeed::OpenTask(opening) = order.deed {
        let task = ContractNet::open_task(*opening, &input, context);
        table.add(key, Negotiation::ContractNet(Box::new(task)));
    }
}
