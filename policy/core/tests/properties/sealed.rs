//! I9: before the close nothing depends on what others offer.

use policy_core::{Book, Deliver, Effect};
use schemas::record::{AdmittedMessage, Entry};
use schemas::{Act, AgentId, DeliveryId, NegotiationId};
use serde_json::{Value, json};

use crate::case::CONTRACTORS;
use crate::checks::{Check, Checked, Counts};
use crate::documents::{admitted, document};
use crate::world::{LANE, Run, closes, messages_of};

/// With other terms in the `which`-th offer, everybody but its contractor is told the same until one of the two logs
/// closes.
pub(crate) fn check(run: &Run, which: usize, price: i64, counts: &Counts) -> Checked {
    let mut log = run.log();
    let offers: Vec<(usize, usize)> = messages_of(&log, |message| message.act == Act::Offer);
    let Some(&(record, index)) = offers.get(which % offers.len().max(1)) else { return Ok(()) };
    let Entry::Message(message) = log[record].2.entries[index].clone() else { return Ok(()) };
    if message.message().is_err() {
        return Ok(());
    }
    let mut changed: Value = document(&message);
    changed["payload"]["terms"]["price"] = json!(price);
    let changed = admitted(&message.from, &message.negotiation, message.act, &changed);
    log[record].2.entries[index] = Entry::Message(changed);
    let (mut one, mut other) = (Book::new(LANE, run.limits.clone()), Book::new(LANE, run.limits.clone()));
    for (step, (seq, time, record)) in run.steps.iter().zip(&log) {
        one.handle_record(step.seq, step.time, &step.record);
        other.handle_record(*seq, *time, record);
        let effects = [&mut one, &mut other].map(|book| std::iter::from_fn(|| book.poll_effect()).collect::<Vec<_>>());
        if effects.iter().flatten().any(|effect| closes(effect, &message.negotiation)) {
            return Ok(());
        }
        let told = effects.each_ref().map(|effects| told_to_others(effects, &message));
        counts.hold(Check::Sealed, told[0] == told[1], || format!("record {seq}: {told:#?}"))?;
        for viewer in agents_of(&message.negotiation).filter(|viewer| *viewer != message.from) {
            let views = [&one, &other].map(|book| book.view(&message.negotiation, &viewer));
            // Without `sealed` the initiator may look on.
            let is_sealed = run.policy_of(&message.negotiation).is_some_and(|policy| policy.sealed);
            let is_sealed = is_sealed || viewer.as_str() != message.negotiation.initiator();
            let holds = !is_sealed || views[0] == views[1];
            counts.hold(Check::Sealed, holds, || format!("record {seq}, {viewer} sees {views:#?}"))?;
        }
    }
    Ok(())
}

fn agents_of(negotiation: &NegotiationId) -> impl Iterator<Item = AgentId> {
    let contractors = (0..CONTRACTORS).map(|index| format!("c{index}"));
    let everyone = contractors.chain([negotiation.initiator().to_owned()]);
    everyone.map(|name| AgentId::try_new(&name).expect("a name"))
}

/// Everything that leaves for anyone but the changed message's sender, word for word, but for the delivery ids: those
/// are hashes of positions, and how many timers a record fires depends on everybody's offers.
fn told_to_others(effects: &[Effect], message: &AdmittedMessage) -> Vec<String> {
    let leaves = effects.iter().filter(|effect| match effect {
        Effect::Deliver(deliver) => deliver.negotiation == message.negotiation && deliver.to != message.from,
        Effect::Register(write) => *write.key.negotiation() == message.negotiation,
        Effect::Notice(_) => true,
        Effect::Event(_) => false,
    });
    leaves.map(wording).collect()
}

fn wording(effect: &Effect) -> String {
    match effect {
        Effect::Deliver(deliver) => {
            let id = DeliveryId::new(LANE, [0; 16]);
            format!("{:?}", Deliver { id, ..deliver.clone() })
        }
        Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => format!("{effect:?}"),
    }
}
