//! The figures of a run: gaps, messages, targets.

use std::collections::BTreeMap;

use schemas::Timestamp;

use super::gaps::{Claim, decision_gap, lanes_of, publish_gap};
use super::injection::InjectedFault;
use super::journal::Notes;
use super::judge::{Check, Checks};
use super::report::{ChaosReport, Messages, Target};
use super::schedule::{FaultAction, FaultKind};
use super::{ChaosPlan, Victims};
use traffic_gen::latency::Latency;
use traffic_gen::recorder::Counts;

/// Repeats this soon after a paused process went on are put down to it, in milliseconds.
const WAKE_MS: u64 = 1_000;
/// The gap after an engine's death, median and 99th percentile, in milliseconds.
const ENGINE_GAP_MS: (f64, f64) = (1_500.0, 4_000.0);
/// The publish gap after the death of one nats-server of three, 99th percentile, in milliseconds.
const NATS_GAP_MS: f64 = 5_000.0;
/// The part of the rounds with a willing contractor that completes.
const COMPLETION: f64 = 0.99;

/// From each fault that hit engines or the log to the next decision heard, lane by lane.
pub(super) fn decision_gaps(
    plan: &ChaosPlan,
    faults: &[InjectedFault],
    claims: &[Claim],
    notes: &Notes,
    checks: &mut Checks,
) -> Latency {
    let mut gaps = Latency::default();
    for fault in faults {
        let lanes = match fault.kind {
            FaultKind::Engine => lanes_of(&fault.name, fault.at, claims),
            FaultKind::Nats => (0..plan.lanes).map(schemas::Lane).collect(),
            FaultKind::Gateway | FaultKind::Link | FaultKind::Agents => Vec::new(),
        };
        for lane in lanes {
            let gap = decision_gap(fault.at, lane, &notes.decisions);
            checks.check(Check::DecisionsWentOn, gap.is_some(), || {
                format!("after {} was hit at {:?} nothing was decided on lane {lane}", fault.name, fault.at)
            });
            if let Some(gap) = gap {
                gaps.record(gap);
            }
        }
    }
    gaps
}

/// The longest time without a 202 after each fault.
pub(super) fn publish_gaps(faults: &[InjectedFault], admitted: &[Timestamp]) -> Latency {
    let mut gaps = Latency::default();
    for (number, fault) in faults.iter().enumerate() {
        let next = faults.get(number + 1).map(|next| next.at);
        if let Some(gap) = publish_gap(fault.at, next, admitted) {
            gaps.record(gap);
        }
    }
    gaps
}

/// Faults by what was hit and how.
pub(super) fn faults(faults: &[InjectedFault]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for fault in faults {
        *counts.entry(format!("{} {}", <&str>::from(fault.kind), <&str>::from(fault.action))).or_default() += 1;
    }
    counts
}

/// What agents sent and heard.
pub(super) fn messages(notes: &Notes, counts: &Counts, faults: &[InjectedFault]) -> Messages {
    let pauses = faults.iter().filter(|fault| fault.action == FaultAction::Pause);
    let wakes: Vec<Timestamp> = pauses.map(|fault| fault.at.plus_ms(fault.lasting_ms)).collect();
    let is_after_wake = |at: &Timestamp| wakes.iter().any(|wake| (*wake..wake.plus_ms(WAKE_MS)).contains(at));
    Messages {
        sent: notes.sent,
        resent: notes.resent,
        refused: counts.rejected.values().sum(),
        unanswered: counts.unanswered,
        heard: notes.heard,
        repeats: notes.repeats.len() as u64,
        repeats_after_wake: notes.repeats.iter().filter(|at| is_after_wake(at)).count() as u64,
        connections: notes.connections,
    }
}

/// What the run is to reach; all of it is measured, and nothing of it decides whether the exchange was right.
pub(super) fn targets(plan: &ChaosPlan, report: &ChaosReport) -> Vec<Target> {
    let mut targets = Vec::new();
    if plan.traffic.is_of_nets() {
        targets.push(Target::at_least("completion", report.rounds.completion, COMPLETION));
    }
    if plan.victims == Victims::Engines && !plan.pauses {
        let (p50, p99) = ENGINE_GAP_MS;
        targets.push(Target::at_most("decision_gap_ms p50", report.decision_gap_ms.p50, p50));
        targets.push(Target::at_most("decision_gap_ms p99", report.decision_gap_ms.p99, p99));
    }
    if plan.victims == Victims::Nats && plan.replicas > 1 && !plan.pauses {
        targets.push(Target::at_most("publish_gap_ms p99", report.publish_gap_ms.p99, NATS_GAP_MS));
    }
    targets
}
