//! What an agent acknowledges at a gateway goes on under its name, whole and soon; and what an engine has heard
//! acknowledged it does not send again, as owner or after a take-over.

use std::collections::{BTreeMap, BTreeSet};

use schemas::acknowledgement::AgentAcks;
use schemas::{AgentId, DeliveryId, Timestamp};
use traffic_gen::invariants::{Invariant, Verdict};

use crate::trace::{AckEventKind, Trace};

/// Longest a gateway keeps an acknowledgement, in milliseconds: what it collects for, and its clock's grain.
const COLLECTED_MS: u64 = 12;
/// What it takes the moment it goes on after a stall it begins to collect so much later, in milliseconds.
const RESUMED_MS: u64 = 2;
/// Longest an engine may take between hearing an acknowledgement and acting on it, in milliseconds.
const SETTLED_MS: u64 = 50;

/// Acknowledgements a gateway has taken and not passed on: how often, and when first.
type TakenAcks<'a> = BTreeMap<(&'a AgentId, DeliveryId), (u32, Timestamp)>;

#[derive(Default)]
struct Followed<'a> {
    waiting: BTreeMap<&'a str, TakenAcks<'a>>,
    heard: BTreeMap<&'a str, BTreeMap<(DeliveryId, &'a AgentId), Timestamp>>,
}

pub(super) fn check(trace: &Trace, verdict: &mut Verdict) {
    let mut followed = Followed::default();
    let mut dead = BTreeSet::new();
    for event in &trace.acks {
        let (at, process) = (event.at, event.process.as_str());
        match &event.kind {
            AckEventKind::Taken((agent, ids)) => {
                let waiting = followed.waiting.entry(process).or_default();
                ids.iter().for_each(|id| waiting.entry((agent, *id)).or_insert((0, at)).0 += 1);
            }
            AckEventKind::Passed(acks) => {
                followed.check_passed(process, acks, verdict);
                followed.check_kept(process, at, verdict);
            }
            AckEventKind::Heard((agent, ids)) => {
                let heard = followed.heard.entry(process).or_default();
                heard.extend(ids.iter().map(|id| ((*id, agent), at)));
            }
            AckEventKind::Sent((agent, ids)) => followed.check_sent(process, at, agent, ids, verdict),
            // It folds anew, and knows no more than its checkpoint and what it hears from now on.
            AckEventKind::Read(lane) => {
                followed.heard.entry(process).or_default().retain(|(id, _), _| id.lane() != *lane);
            }
            // The acknowledgements that wait for it may be read before the records behind their deliveries.
            AckEventKind::Resumed => {
                let waiting = followed.waiting.entry(process).or_default().values_mut();
                let just_taken = waiting.filter(|(_, taken)| *taken == at);
                just_taken.for_each(|(_, taken)| *taken = at.plus_ms(RESUMED_MS));
                followed.heard.entry(process).or_default().retain(|_, heard| *heard < at);
            }
            AckEventKind::Died => drop(dead.insert(process)),
        }
    }
    let gateways: Vec<_> = followed.waiting.keys().copied().collect();
    for gateway in gateways.into_iter().filter(|gateway| !dead.contains(gateway)) {
        followed.check_kept(gateway, trace.ended_at, verdict);
    }
}

impl<'a> Followed<'a> {
    fn check_passed(&mut self, gateway: &'a str, acks: &'a [AgentAcks], verdict: &mut Verdict) {
        let waiting = self.waiting.entry(gateway).or_default();
        for (agent, id) in acks.iter().flat_map(|(agent, ids)| ids.iter().map(move |id| (agent, *id))) {
            let taken = waiting.get_mut(&(agent, id));
            verdict.check(Invariant::Acknowledged, taken.is_some(), || {
                format!("{gateway} says that {agent} acknowledged {id}, who did not do so there")
            });
            let Some((count, _)) = taken else { continue };
            *count -= 1;
            if *count == 0 {
                waiting.remove(&(agent, id));
            }
        }
    }

    /// Nothing has waited for longer than a gateway collects.
    fn check_kept(&mut self, gateway: &'a str, now: Timestamp, verdict: &mut Verdict) {
        let waiting = self.waiting.entry(gateway).or_default();
        waiting.retain(|(agent, id), (_, taken)| {
            let is_kept = taken.plus_ms(COLLECTED_MS) >= now;
            verdict.check(Invariant::Acknowledged, is_kept, || {
                format!("{gateway} did not pass on that {agent} acknowledged {id}")
            });
            is_kept
        });
    }

    fn check_sent(&self, engine: &'a str, now: Timestamp, to: &'a AgentId, ids: &[DeliveryId], verdict: &mut Verdict) {
        for id in ids {
            let heard = self.heard.get(engine).and_then(|heard| heard.get(&(*id, to)));
            verdict.check(Invariant::Acknowledged, heard.is_none_or(|heard| heard.plus_ms(SETTLED_MS) >= now), || {
                format!("{engine} sent {id} to {to} at {now:?}, after it heard that acknowledged at {heard:?}")
            });
        }
    }
}
