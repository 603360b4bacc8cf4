//! Receipts by exception: one log, whether everybody asks for every receipt, or nobody for any.

use std::collections::BTreeMap;

use policy_core::{Deliver, Effect, Event};
use schemas::delivery::{Disposition, Receipt};
use schemas::record::{AdmittedMessage, Entry, Qos, Record};
use schemas::{AgentId, NegotiationId};

use crate::case::Case;
use crate::checks::{Check, Checked, Counts};
use crate::documents::msg_id;
use crate::world::Run;

/// Half of all messages ask for theirs.
pub(crate) fn are_wanted(message: &AdmittedMessage) -> bool {
    message.digest.0[0].is_multiple_of(2)
}

/// The receipts that wait, by whom they are for.
type Waiting = BTreeMap<(NegotiationId, AgentId), Vec<Receipt>>;

/// What nobody asked for is what everybody was told who did, but that bare receipts come along with the next delivery which
/// is repeated until it is acknowledged. Ids, decisions, register entries and events are the same.
pub(crate) fn check(case: &Case, counts: &Counts) -> Checked {
    let all = Run::of(case).asking(|_| true);
    let few = Run::of(case).asking(|_| false);
    let mut waiting = Waiting::new();
    for (asked, unasked) in all.steps.iter().zip(&few.steps) {
        let expected: Vec<Effect> =
            asked.effects.iter().filter_map(|effect| by_exception(effect, &asked.record, &mut waiting)).collect();
        let (expected, found) = (format!("{expected:#?}"), format!("{:#?}", unasked.effects));
        counts.hold(Check::ReceiptsByException, expected == found, || {
            format!("record {}: {expected}\nexpected, but {found}", asked.seq)
        })?;
    }
    Ok(())
}

/// What is left of an effect where nobody asks for receipts.
fn by_exception(effect: &Effect, record: &Record, waiting: &mut Waiting) -> Option<Effect> {
    match effect {
        Effect::Deliver(deliver) => {
            let receipts = waiting.entry((deliver.negotiation.clone(), deliver.to.clone())).or_default();
            if let Some(receipt) = deliver.told.receipt().filter(|receipt| receipt.is_bare()) {
                receipts.push(receipt.clone());
                return None;
            }
            let takes_along = deliver.qos == Qos::AtLeastOnce && !is_of_no_negotiation(deliver, record);
            let leave = if takes_along { std::mem::take(receipts) } else { Vec::new() };
            Some(Effect::Deliver(Deliver { receipts: leave.into(), ..deliver.clone() }))
        }
        Effect::Event(Event::Ended { negotiation, .. }) => {
            waiting.retain(|(of, _), _| of != negotiation);
            Some(effect.clone())
        }
        Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => Some(effect.clone()),
    }
}

/// Whether it answers a message that cannot be read: such a one reaches no negotiation.
fn is_of_no_negotiation(deliver: &Deliver, record: &Record) -> bool {
    let Some(receipt) = deliver.told.receipt() else { return false };
    let is_unreadable = |entry: &Entry| match entry {
        Entry::Message(message) => {
            message.from == deliver.to && msg_id(message) == receipt.ack_of && message.message().is_err()
        }
        Entry::Tick | Entry::Engine { .. } => false,
    };
    receipt.disposition == Disposition::Malformed && record.entries.iter().any(is_unreadable)
}
