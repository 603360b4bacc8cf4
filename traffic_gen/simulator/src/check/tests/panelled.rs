//! The same for panels, for what they show, and for calls that weigh it.

use std::sync::Arc;

use schemas::Lane;
use schemas::delivery::{Disposition, Finding, Notification, ProgressReport};
use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceRole, EvidenceSubject, LaneEvidence};

use super::fixture::{agent, choosing_panel, panel, reputed_round};
use super::{check, is_broken};
use crate::check::{FoldedLog, evidence, panels};
use crate::scenario::general_domain;
use crate::trace::{StoredLedger, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

#[test]
fn a_flawless_panel_violates_nothing_and_shows_its_invariants() {
    let verdict = check(&panel());
    assert_eq!(verdict.violated(), 0, "{:#?}", verdict.examples);
    for invariant in [
        Invariant::OneFinding,
        Invariant::Quorum,
        Invariant::RoundSealed,
        Invariant::OwnRatingInert,
        Invariant::OrderFree,
        Invariant::LedgerOnce,
    ] {
        let checked = verdict.by_name.get(&invariant).map_or(0, |tally| tally.checked);
        assert!(checked > 0, "{} was never checked", invariant.as_str());
    }
}

/// The log is folded once more by the exchange's own rules, so what follows from it is compared with something else instead.
#[test]
fn what_follows_from_the_log_in_another_way_is_noticed() {
    type Harm = fn(&mut Notification);
    let harms: [(&str, Harm, Invariant); 4] = [
        ("another receipt while a round runs", other_receipt, Invariant::RoundSealed),
        ("another importance of who rates", |told| change(told, other_importance), Invariant::OwnRatingInert),
        ("another result", |told| change(told, |finding| finding.agreed = 2), Invariant::OrderFree),
        ("another round", other_ask, Invariant::OrderFree),
    ];
    let mut trace = panel();
    trace.seed = 0;
    assert_eq!(judged(&trace, |_| ()).violated(), 0);
    for (name, harm, broken) in harms {
        let verdict = judged(&trace, harm);
        assert!(is_broken(&verdict, broken), "{name}: {:#?}", verdict.by_name);
    }
}

#[test]
fn a_panel_that_counts_twice_or_never_is_noticed() {
    type Harm = fn(&mut LaneEvidence);
    let harms: [(&str, Harm); 7] = [
        ("a panel that counts twice", |evidence| {
            let counts = evidence.entries[1].counts;
            evidence.entries[1].counts.add(&counts);
        }),
        ("one that does not count", |evidence| drop(evidence.entries.remove(0))),
        ("importance of another agent", |evidence| evidence.entries[2].counts.total_e12 += 1),
        ("an answer that was not given", |evidence| evidence.entries[0].counts.replied += 1),
        ("an answer that fell, without a strike", |evidence| evidence.entries[0].counts.replied -= 1),
        ("a cost that nobody named", |evidence| evidence.entries[1].counts.usage.calls += 1),
        ("evidence of the future", |evidence| evidence.position = 3),
    ];
    for (name, harm) in harms {
        let mut trace = panel();
        harm(&mut trace.ledgers[0].evidence);
        let verdict = check(&trace);
        assert!(is_broken(&verdict, Invariant::LedgerOnce), "{name}: {:#?}", verdict.examples);
    }
}

#[test]
fn a_pinned_reputation_is_what_evidence_said_before_or_the_average() {
    const ABOVE: u64 = 1_500_000;
    let holds = |trace: &Trace| {
        let mut verdict = Verdict::default();
        evidence::check(trace, &FoldedLog::of(trace, &mut Verdict::default()), &mut verdict);
        let tally = verdict.by_name[&Invariant::ReputationPinned];
        assert!(tally.checked >= 3, "the call, the decision, and what contractors are told");
        tally.violated == 0
    };
    assert!(holds(&reputed_round(1_000_000)), "nothing is known of either");
    assert!(!holds(&reputed_round(ABOVE)));
    let with = |last_seq: u64, total_e12: u64| {
        let mut trace = reputed_round(ABOVE);
        let evidence =
            LaneEvidence { position: 1, entries: ["bob", "carl"].map(|name| shown(name, total_e12)).to_vec() };
        trace.ledgers.push(StoredLedger { lane: Lane(0), last_seq, evidence });
        holds(&trace)
    };
    assert!(with(1, 3), "three halves of a fair share");
    assert!(!with(1, 4));
    assert!(!with(2, 3), "stored with the call, not before");
}

#[test]
fn a_panel_that_chooses_pins_what_evidence_said_and_seats_whom_that_recommends() {
    let violated = |trace: &Trace, harm: fn(&mut Notification)| {
        let mut folded = FoldedLog::of(trace, &mut Verdict::default());
        folded.deliveries.values_mut().for_each(|caused| harm(Arc::make_mut(&mut caused.deliver.told)));
        let mut verdict = Verdict::default();
        evidence::check(trace, &folded, &mut verdict);
        verdict.by_name[&Invariant::ReputationPinned].violated
    };
    let untouched: fn(&mut Notification) = |_| ();
    assert_eq!(violated(&choosing_panel(None), untouched), 0, "nobody is known, so everybody is on trial");
    assert_eq!(violated(&choosing_panel(Some(1_000_000)), untouched), 1, "who is not known has no reputation");
    let unseat: fn(&mut Notification) = |told| change(told, |finding| drop(finding.panelists.remove(0)));
    assert_eq!(violated(&choosing_panel(None), unseat), 1, "other seats than evidence recommends");
}

/// Two is a fair share.
fn shown(name: &str, total_e12: u64) -> EvidenceEntry {
    let (domain, role) = (general_domain(), EvidenceRole::Panelist);
    let subject = EvidenceSubject { domain, agent: agent(name), role, initiator: agent("alice") };
    EvidenceEntry { subject, counts: EvidenceCounts { runs: 1, total_e12, fair_e12: 2, ..EvidenceCounts::default() } }
}

/// What is found where everything told is changed so.
fn judged(trace: &Trace, harm: fn(&mut Notification)) -> Verdict {
    let mut folded = FoldedLog::of(trace, &mut Verdict::default());
    folded.deliveries.values_mut().for_each(|caused| harm(Arc::make_mut(&mut caused.deliver.told)));
    let mut verdict = Verdict::default();
    panels::check(trace, &folded, &mut verdict);
    verdict
}

/// Those of calls and of the last answers are told when no round runs.
fn other_receipt(told: &mut Notification) {
    if let Notification::Ack(receipt) = told
        && receipt.ack_of.as_str() == super::msg_id(3).as_str()
    {
        receipt.disposition = Disposition::Late;
        receipt.first = Some(Disposition::Ok);
    }
}

fn change(told: &mut Notification, change: fn(&mut Finding)) {
    if let Notification::Inform(ProgressReport::Finding(finding)) = told {
        change(finding);
    }
}

fn other_importance(finding: &mut Finding) {
    finding.panelists.iter_mut().for_each(|seat| seat.importance_e12[0] += 1);
}

fn other_ask(told: &mut Notification) {
    if let Notification::Ask(ask) = told
        && ask.round == 2
    {
        ask.peers = None;
    }
}
