//! I9: before the close nothing depends on what others offer.

use policy_core::{Deliver, Effect, LaneState};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Record};
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
    let (mut one, mut other) = (LaneState::new(LANE, run.limits.clone()), LaneState::new(LANE, run.limits.clone()));
    let mut has_same_ids = true;
    for (step, (seq, time, record)) in run.steps.iter().zip(&log) {
        if !has_same_ids && gives_up(record, &message.negotiation) {
            return Ok(());
        }
        one.handle_record(step.seq, step.time, &step.record);
        other.handle_record(*seq, *time, record);
        let effects = [&mut one, &mut other]
            .map(|lane_state| std::iter::from_fn(|| lane_state.poll_effect()).collect::<Vec<_>>());
        if effects.iter().flatten().any(|effect| closes(effect, &message.negotiation)) {
            return Ok(());
        }
        let ids = effects.each_ref().map(|effects| delivery_ids(effects, &message.from));
        has_same_ids &= ids[0] == ids[1];
        let told = effects.each_ref().map(|effects| told_to_others(effects, &message));
        counts.hold(Check::Sealed, told[0] == told[1], || format!("record {seq}: {told:#?}"))?;
        check_views(run, [&one, &other], &message, counts)?;
    }
    Ok(())
}

/// Nobody but its sender sees a difference; without `sealed` the initiator may.
fn check_views(run: &Run, lane_states: [&LaneState; 2], message: &AdmittedMessage, counts: &Counts) -> Checked {
    let is_sealed = run.policy_of(&message.negotiation).is_some_and(|policy| policy.sealed);
    for viewer in agents_of(&message.negotiation).filter(|viewer| *viewer != message.from) {
        let views = lane_states.map(|lane_state| lane_state.view(&message.negotiation, &viewer));
        let may_differ = !is_sealed && viewer.as_str() == message.negotiation.initiator();
        let holds = may_differ || views[0] == views[1];
        counts.hold(Check::Sealed, holds, || format!("at {:?} {viewer} sees {views:#?}", lane_states[0].now()))?;
    }
    Ok(())
}

fn agents_of(negotiation: &NegotiationId) -> impl Iterator<Item = AgentId> {
    let contractors = (0..CONTRACTORS).map(|index| format!("c{index}"));
    let everyone = contractors.chain([negotiation.initiator().to_owned()]);
    everyone.map(|name| AgentId::try_new(&name).expect("a name"))
}

/// Whether a record gives up a delivery of a negotiation: by its id, which another log need not know.
fn gives_up(record: &Record, of: &NegotiationId) -> bool {
    record.entries.iter().any(|entry| match entry {
        Entry::Engine { event: EngineEvent::DeliveryFailed { negotiation, .. }, .. } => negotiation == of,
        Entry::Engine { .. } | Entry::Message(_) | Entry::Tick => false,
    })
}

/// The ids of what leaves for anyone but `from`.
fn delivery_ids(effects: &[Effect], from: &AgentId) -> Vec<DeliveryId> {
    let ids = effects.iter().filter_map(|effect| match effect {
        Effect::Deliver(deliver) => (deliver.to != *from).then_some(deliver.id),
        Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => None,
    });
    ids.collect()
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
