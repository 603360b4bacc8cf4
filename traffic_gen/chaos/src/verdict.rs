//! Puts everything a run left behind together, into one report.

use bus::Bus;

use super::departures::Departures;
use super::heartbeats::Digests;
use super::injection::InjectedFault;
use super::journal::AgentJournal;
use super::judge::{self, Check, Checks, judge_ends, judge_lapses, judge_register, judge_told};
use super::report::ChaosReport;
use super::{ChaosError, ChaosPlan, Traffic, Victims, figures};
use archive::audit;
use traffic_gen::invariants::{Invariant, Verdict};

/// Faults after which one must have hit the owner of a lane; an engine may own none.
const FAULTS_CONCLUSIVE: u64 = 10;
/// Records after which engines must have compared their states: they do every 1024.
const RECORDS_THAT_TELL: u64 = 4096;

/// What a run left behind.
pub(super) struct Evidence<'a> {
    pub(super) journal: &'a AgentJournal,
    pub(super) departures: Departures,
    pub(super) digests: Digests,
    pub(super) faults: &'a [InjectedFault],
    pub(super) elapsed_s: f64,
}

/// Reads log and register, and judges.
pub(super) async fn judged(
    plan: &ChaosPlan,
    bus: &Bus,
    evidence: Evidence<'_>,
    mut checks: Checks,
) -> Result<ChaosReport, ChaosError> {
    let Evidence { journal, departures, digests, faults, elapsed_s } = evidence;
    let notes = journal.take();
    let (counts, mut verdict) = journal.recorder.finish()?;
    let ledger = audit::read_bus(bus).await?;
    let replay = audit::verify(&ledger, None);
    judge_replay(&replay, &mut verdict);
    digests.judge(&mut checks);
    let dropped = bus.pub_sub.dropped();
    verdict.check(Invariant::Bounded, dropped == 0, || format!("slow readers lost {dropped} messages"));
    let register = judge::registered(&ledger);
    judge_register(&register, &mut verdict);
    judge_told(&notes, &register, &mut checks);
    judge_ends(&notes, &mut checks);
    let lapses = judge_lapses(&notes, &departures, &mut checks);
    let decision_gaps = figures::decision_gaps(plan, faults, &judge::claims(&ledger), &notes, &mut checks);
    let publish_gaps = figures::publish_gaps(faults, &notes.admitted);
    let rounds = judge::rounds(&notes);
    let mut report = ChaosReport {
        protocol: plan.traffic.into(),
        kill: <&str>::from(plan.victims).to_owned(),
        seed: plan.seed,
        replicas: plan.replicas,
        agents: plan.agents,
        open: plan.open,
        elapsed_s,
        faults: figures::faults(faults),
        rounds,
        outcomes: counts.outcomes.clone(),
        lapses,
        messages: figures::messages(&notes, &counts, faults),
        decision_gap_ms: decision_gaps.quantiles(),
        publish_gap_ms: publish_gaps.quantiles(),
        admission_ms: notes.admission.quantiles(),
        invariant_violations: verdict.into(),
        checks,
        unchecked: Vec::new(),
        replay,
        targets: Vec::new(),
    };
    report.unchecked = unchecked(plan, &report);
    report.targets = figures::targets(plan, &report);
    Ok(report)
}

/// What this run was to check and never did: it has not been shown.
fn unchecked(plan: &ChaosPlan, report: &ChaosReport) -> Vec<&'static str> {
    let mut unchecked: Vec<&'static str> = Invariant::ALL
        .iter()
        .filter(|invariant| {
            plan.traffic.shows(**invariant) && !report.invariant_violations.by_name.contains_key(invariant)
        })
        .map(|invariant| invariant.as_str())
        .collect();
    let hits_decisions = matches!(plan.victims, Victims::Engines | Victims::Nats | Victims::All);
    let faults: u64 = report.faults.values().sum();
    let expected = [
        (Check::ToldAsRegistered, true),
        (Check::NoUnheardLapse, plan.traffic.is_of_nets()),
        (Check::EndedInTime, matches!(plan.traffic, Traffic::Team | Traffic::Panel)),
        (Check::DecisionsWentOn, hits_decisions && faults >= FAULTS_CONCLUSIVE),
        (Check::NoneEndedByItself, true),
        (Check::EndedWhenAsked, true),
        (Check::SameDigests, plan.engines > 1 && report.replay.records >= RECORDS_THAT_TELL),
    ];
    let missing = expected.into_iter().filter(|(check, is_due)| *is_due && !report.checks.by_name.contains_key(check));
    unchecked.extend(missing.map(|(check, _)| <&str>::from(check)));
    unchecked
}

/// Invariant "recomputable": one check for each decision, one for everything together.
fn judge_replay(replay: &audit::AuditReport, verdict: &mut Verdict) {
    for _ in 1..replay.decisions {
        verdict.check(Invariant::Recomputable, true, String::new);
    }
    let difference = replay.first_difference.as_ref();
    verdict.check(Invariant::Recomputable, difference.is_none(), || difference.cloned().unwrap_or_default());
}
