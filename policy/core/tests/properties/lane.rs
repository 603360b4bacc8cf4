//! Invariants of a lane as a whole, told from its effects: dispositions, deliveries, the register, timers.

use std::collections::{BTreeMap, BTreeSet};

use policy_core::{Deliver, Effect, Event};
use schemas::delivery::{Disposition, Notification, Outcome};
use schemas::record::Entry;
use schemas::{AgentId, MsgId, RegisterKey};

use crate::checks::{Check, Checked, Counts};
use crate::documents::msg_id;
use crate::world::{Run, Step};

/// Checks all of them.
pub(crate) fn check(run: &Run, counts: &Counts) -> Checked {
    check_deliveries(run, counts)?;
    check_register(run, counts)?;
    for step in &run.steps {
        check_dispositions(step, counts)?;
        check_timers(step, counts)?;
        for effect in &step.effects {
            let is_violation = matches!(effect, Effect::Event(Event::InvariantViolated { .. }));
            counts.hold(Check::NoViolation, !is_violation, || format!("record {}: {effect:?}", step.seq))?;
        }
    }
    let is_over = run.steps.last().is_none_or(|step| step.deadline_after.is_none() && step.open == 0);
    counts.hold(Check::EndsInTime, is_over, || "a negotiation is open without a timer".to_owned())
}

fn check_deliveries(run: &Run, counts: &Counts) -> Checked {
    let mut ids = BTreeSet::new();
    for effect in run.effects() {
        let Effect::Deliver(deliver) = effect else { continue };
        counts.hold(Check::UniqueDeliveries, ids.insert(deliver.id), || format!("{deliver:?}"))?;
        // An ACCEPT expires with its own deadline, which a late record may have passed already.
        let is_alive = deliver.expires >= deliver.at || matches!(*deliver.told, Notification::Accept(_));
        counts.hold(Check::LiveDeliveries, is_alive, || format!("born expired: {deliver:?}"))?;
    }
    Ok(())
}

fn check_dispositions(step: &Step, counts: &Counts) -> Checked {
    let mut wanted: BTreeMap<(AgentId, MsgId), u32> = BTreeMap::new();
    for entry in &step.record.entries {
        if let Entry::Message(message) = entry {
            *wanted.entry((message.from.clone(), msg_id(message))).or_default() += 1;
        }
    }
    let mut given: BTreeMap<(AgentId, MsgId), u32> = BTreeMap::new();
    for effect in &step.effects {
        if let Effect::Deliver(deliver) = effect
            && let Notification::Ack(receipt) = &*deliver.told
        {
            *given.entry((deliver.to.clone(), receipt.ack_of.clone())).or_default() += 1;
        }
    }
    let why = || format!("record {}: messages {wanted:?}, receipts {given:?}", step.seq);
    counts.hold(Check::OneDisposition, wanted == given, why)
}

fn check_register(run: &Run, counts: &Counts) -> Checked {
    let mut queued: BTreeSet<RegisterKey> = BTreeSet::new();
    for effect in run.effects() {
        let after = match effect {
            Effect::Register(write) => {
                let waits_well = write.after.as_ref().is_none_or(|after| queued.contains(after));
                counts.hold(Check::RegisterFirst, waits_well, || format!("{write:?} waits for what is not queued"))?;
                let is_new = queued.insert(write.key.clone());
                counts.hold(Check::RegisterFirst, is_new, || format!("{} is written twice", write.key))?;
                continue;
            }
            Effect::Deliver(deliver) => {
                counts
                    .hold(Check::RegisterFirst, waits_for_its_key(deliver), || format!("leaves early: {deliver:?}"))?;
                deliver.after.as_ref()
            }
            Effect::Notice(_) | Effect::Event(_) => None,
        };
        let waits_well = after.is_none_or(|after| queued.contains(after));
        counts.hold(Check::RegisterFirst, waits_well, || format!("{effect:?} waits for what is not queued"))?;
    }
    Ok(())
}

/// What binds, or ends, leaves only once it is registered.
fn waits_for_its_key(deliver: &Deliver) -> bool {
    let key = deliver.after.as_ref();
    let is_repeat = deliver.in_reply_to.is_some();
    match &*deliver.told {
        Notification::Accept(award) => match key {
            Some(RegisterKey::Award(_, lot, award_no) | RegisterKey::AwardEnd(_, lot, award_no)) => {
                (*lot, *award_no) == (award.lot, award.award_no)
            }
            Some(RegisterKey::Closed(_)) | None => false,
        },
        Notification::Ack(receipt) if receipt.disposition == Disposition::Committed => {
            matches!(key, Some(RegisterKey::AwardEnd(_, _, award_no)) if Some(*award_no) == receipt.award_no)
        }
        Notification::Closed(closing) if !is_repeat && closing.outcome != Outcome::Aborted => {
            matches!(key, Some(RegisterKey::Closed(_)))
        }
        Notification::Ack(_)
        | Notification::Closed(_)
        | Notification::Cfp(_)
        | Notification::Reject(_)
        | Notification::Cancel(_)
        | Notification::Inform(_)
        | Notification::Failure(_)
        | Notification::NotUnderstood(_)
        | Notification::Turn(_)
        | Notification::Ask(_)
        | Notification::Floor(_) => true,
    }
}

fn check_timers(step: &Step, counts: &Counts) -> Checked {
    let is_ahead = step.deadline_after.is_none_or(|deadline| deadline >= step.now);
    let why = || format!("record {}: at {:?} the next deadline is {:?}", step.seq, step.now, step.deadline_after);
    counts.hold(Check::TimersProgress, is_ahead, why)?;
    let carries_time_only = step.record.entries.iter().all(|entry| matches!(entry, Entry::Tick));
    if !carries_time_only {
        return Ok(());
    }
    let is_due = step.deadline_before.is_some_and(|deadline| step.now > deadline);
    let moves_on = step.deadline_after != step.deadline_before;
    let is_silent = step.effects.is_empty();
    let holds = if is_due { moves_on } else { is_silent && !moves_on };
    let why =
        || format!("record {}, due {is_due}: {:?} then {:?}", step.seq, step.deadline_before, step.deadline_after);
    counts.hold(Check::TimersProgress, holds, why)
}
