//! I6: the same log again gives the same of everything.

use std::collections::BTreeMap;

use policy_core::replay::Replay;
use policy_core::{Effect, LaneState};
use schemas::RegisterKey;
use schemas::digest::canonical;
use schemas::record::Record;

use crate::checks::{Check, Checked, Counts};
use crate::world::{LANE, Run};

/// Decoded from its bytes and drained at the end only, the log gives the same effects, byte for byte; and a replay
/// finds every register entry as it was written.
pub(crate) fn check(run: &Run, counts: &Counts) -> Checked {
    let mut again = LaneState::new(LANE, run.limits.clone());
    let mut replay = Replay::new(run.limits.clone());
    for step in &run.steps {
        let bytes = step.record.encode().expect("entries of a case encode");
        let record = Record::decode(&bytes).expect("and decode");
        again.handle_record(step.seq, step.time, &record);
        // A record that is read twice counts once.
        again.handle_record(step.seq, step.time, &record);
        replay.handle_record(LANE, step.seq, step.time, &record);
    }
    let before: Vec<String> = run.effects().map(|effect| format!("{effect:?}")).collect();
    let after: Vec<String> = std::iter::from_fn(|| again.poll_effect()).map(|effect| format!("{effect:?}")).collect();
    counts.hold(Check::Recomputable, before == after, || "the effects differ".to_owned())?;
    counts.hold(Check::Recomputable, again.digest() == run.lane_state.digest(), || "the states differ".to_owned())?;
    let registered = run.effects().filter_map(|effect| match effect {
        Effect::Register(write) => Some((write.key.clone(), canonical(&write.value).expect("canonical"))),
        Effect::Deliver(_) | Effect::Notice(_) | Effect::Event(_) => None,
    });
    let registered: BTreeMap<RegisterKey, Vec<u8>> = registered.collect();
    let difference = replay.first_difference(&registered, true);
    counts.hold(Check::Recomputable, difference.is_none(), || format!("{difference:?}"))?;
    counts.hold(Check::Recomputable, replay.forgeries().is_empty(), || format!("{:?}", replay.forgeries()))
}
