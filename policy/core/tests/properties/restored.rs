//! A lane state that is written down and restored in the middle, several times over, against one that never stops.

use std::collections::BTreeSet;

use policy_core::{Effect, LaneState};
use schemas::NegotiationId;
use schemas::record::Entry;

use crate::checks::{Check, Checked, Counts};
use crate::world::{LANE, Run, Step};

/// Restores before the records named by `cuts` (modulo their number); compares after every record.
pub(crate) fn check(run: &Run, cuts: &[usize], counts: &Counts) -> Checked {
    let cuts: BTreeSet<usize> = cuts.iter().map(|cut| cut % run.steps.len()).collect();
    let mut steady = LaneState::new(LANE, run.limits.clone());
    let mut restored = LaneState::new(LANE, run.limits.clone());
    for (index, step) in run.steps.iter().enumerate() {
        if cuts.contains(&index) {
            restored = restore(run, &steady, &restored, counts)?;
        }
        steady.handle_record(step.seq, step.time, &step.record);
        restored.handle_record(step.seq, step.time, &step.record);
        let (expected, found) = (effects(&mut steady), effects(&mut restored));
        counts.hold(Check::Restorable, expected == text(&step.effects), || "the run is not repeatable".to_owned())?;
        counts.hold(Check::Restorable, expected == found, || {
            format!("record {}: {expected:#?} without a restart, {found:#?} after it", step.seq)
        })?;
        is_alike(step, &steady, &restored, counts)?;
    }
    let same = steady.snapshot() == restored.snapshot();
    counts.hold(Check::Restorable, same, || "the last snapshots differ".to_owned())
}

/// Equal states give equal bytes, whether or not they were restored before; a restored lane state gives its own bytes again.
fn restore(
    run: &Run,
    steady: &LaneState,
    restored: &LaneState,
    counts: &Counts,
) -> Result<LaneState, proptest::test_runner::TestCaseError> {
    let bytes = restored.snapshot();
    let position = steady.position();
    counts.hold(Check::Restorable, bytes == steady.snapshot(), || format!("two snapshots differ after {position}"))?;
    let again = LaneState::restore(&bytes, LANE, run.limits.clone());
    counts.hold(Check::Restorable, again.is_ok(), || format!("after {position}: {again:?}"))?;
    let again = again.expect("checked on the line before");
    counts.hold(Check::Restorable, again.snapshot() == bytes, || format!("another snapshot after {position}"))?;
    Ok(again)
}

fn is_alike(step: &Step, steady: &LaneState, restored: &LaneState, counts: &Counts) -> Checked {
    let facts = |lane_state: &LaneState| {
        let counts = (lane_state.open_count(), lane_state.tombstone_count());
        (
            lane_state.digest(),
            lane_state.poll_deadline(),
            lane_state.now(),
            counts,
            lane_state.epoch(),
            lane_state.is_owner("engine-1"),
            lane_state.rules(),
        )
    };
    let why = || format!("record {}: {:?}, {:?} after a restart", step.seq, facts(steady), facts(restored));
    counts.hold(Check::Restorable, facts(steady) == facts(restored), why)?;
    for (negotiation, viewer) in parties(step) {
        let views = [steady, restored].map(|lane_state| format!("{:?}", lane_state.view(&negotiation, &viewer)));
        counts.hold(Check::Restorable, views[0] == views[1], || format!("record {}: {views:#?}", step.seq))?;
    }
    Ok(())
}

/// Who speaks in a record, and to whom something was told: with the negotiation.
fn parties(step: &Step) -> BTreeSet<(NegotiationId, schemas::AgentId)> {
    let speakers = step.record.entries.iter().filter_map(|entry| match entry {
        Entry::Message(message) => Some((message.negotiation.clone(), message.from.clone())),
        Entry::Tick | Entry::Engine { .. } => None,
    });
    let told = step.effects.iter().filter_map(|effect| match effect {
        Effect::Deliver(deliver) => Some((deliver.negotiation.clone(), deliver.to.clone())),
        Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => None,
    });
    speakers.chain(told).collect()
}

fn effects(lane_state: &mut LaneState) -> Vec<String> {
    text(&std::iter::from_fn(|| lane_state.poll_effect()).collect::<Vec<_>>())
}

fn text(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(|effect| format!("{effect:?}")).collect()
}
