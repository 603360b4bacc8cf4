//! What panels have shown, and what follows from it: every panel counts once in the ledger of its lane, whoever owned the lane and
//! from wherever it was folded; and a call under a policy that weighs reputation pins what the evidence said then.

use std::collections::BTreeMap;

use policy_core::panel::reputation::{REPUTATION_AVERAGE_PPM, ReputationBasis, reputation};
use schemas::delivery::{Finding, Notification};
use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceRole, EvidenceSubject, LaneEvidence, Usage};
use schemas::panel::PanelSpec;
use schemas::policy::ReputationRule;
use schemas::record::Pinned;
use schemas::{Act, AgentId, Lane, NegotiationId};

use super::FoldedLog;
use crate::scenario::general_domain;
use crate::trace::{StoredLedger, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// Fewest seats of a panel that counts.
const SEATS_MIN: usize = 3;
/// The whole, in 10^-12.
const WHOLE_E12: u64 = 1_000_000_000_000;
/// Combinations of the lanes' ledgers that are tried for a call; a call with more is left unchecked.
const COMBINATIONS_MAX: usize = 4096;

/// Checks every ledger, and every call that pins reputations.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    check_ledgers(trace, folded, verdict);
    check_pinned(trace, folded, verdict);
}

/// The ledgers of the fold, which was restored on its way, and those that engines stored, against the findings that were told.
fn check_ledgers(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let stored = trace.ledgers.iter().map(|stored| (stored.lane, &stored.evidence));
    for (lane, evidence) in folded.ledgers.iter().map(|(lane, evidence)| (*lane, evidence)).chain(stored) {
        let expected = shown_by_findings(trace, folded, lane, evidence.position);
        let comparable =
            |EvidenceEntry { subject, counts }: &EvidenceEntry| (subject.clone(), comparable(subject, counts));
        let found: BTreeMap<EvidenceSubject, EvidenceCounts> = evidence.entries.iter().map(comparable).collect();
        verdict.check(Invariant::LedgerOnce, found == expected, || {
            format!(
                "the ledger of lane {lane} at {} holds {found:?}, panels have shown {expected:?}",
                evidence.position
            )
        });
    }
}

/// What the findings of a lane have shown up to a record.
fn shown_by_findings(
    trace: &Trace,
    folded: &FoldedLog,
    lane: Lane,
    position: u64,
) -> BTreeMap<EvidenceSubject, EvidenceCounts> {
    let rules = folded.panel_rules();
    let mut shown: BTreeMap<EvidenceSubject, EvidenceCounts> = BTreeMap::new();
    for (seq, negotiation, finding) in folded.findings() {
        let Some(rules) = rules.get(negotiation) else { continue };
        let counts = rules.rate && rules.evidence && finding.panelists.len() >= SEATS_MIN;
        if counts && seq <= position && negotiation.lane(trace.lanes) == lane {
            for (subject, counts) in shown_by(folded, negotiation, rules, finding) {
                shown.entry(subject).or_default().add(&counts);
            }
        }
    }
    shown
}

/// What one panel has shown, as far as it can be told from outside.
fn shown_by(
    folded: &FoldedLog,
    negotiation: &NegotiationId,
    rules: &PanelSpec,
    finding: &Finding,
) -> Vec<(EvidenceSubject, EvidenceCounts)> {
    let domain = rules.domain.clone().unwrap_or_else(general_domain);
    let Ok(initiator) = AgentId::try_new(negotiation.initiator()) else { return Vec::new() };
    let subject = |agent: &AgentId, role| EvidenceSubject {
        domain: domain.clone(),
        agent: agent.clone(),
        role,
        initiator: initiator.clone(),
    };
    let asked = |agent: &AgentId, is_review: bool| {
        let to_it = folded.deliveries.values().map(|caused| &caused.deliver);
        let to_it = to_it.filter(|deliver| deliver.negotiation == *negotiation && deliver.to == *agent);
        to_it.filter(|deliver| matches!(&*deliver.told, Notification::Ask(ask) if ask.rank.is_none() && ask.review == is_review)).count() as u64
    };
    let seats = finding.panelists.len() as u64;
    let of_seats = finding.panelists.iter().map(|seat| {
        let counts = EvidenceCounts {
            runs: 1,
            asked: asked(&seat.agent, false),
            agreed: u64::from(seat.agreed),
            layers: u64::from(finding.round),
            total_e12: seat.total_e12,
            fair_e12: u64::from(finding.round) * WHOLE_E12 / seats,
            ..EvidenceCounts::default()
        };
        (subject(&seat.agent, EvidenceRole::Panelist), counts)
    });
    let of_reviewers = finding.reviewers.iter().map(|reviewer| {
        let (asked, total_e12) = (asked(&reviewer.agent, true), reviewer.total_e12);
        let counts = EvidenceCounts { runs: 1, asked, total_e12, ..EvidenceCounts::default() };
        (subject(&reviewer.agent, EvidenceRole::Reviewer), counts)
    });
    of_seats.chain(of_reviewers).collect()
}

/// Without what findings do not tell: whose answers stood, what they cost, and how many reviews somebody replied to.
fn comparable(subject: &EvidenceSubject, counts: &EvidenceCounts) -> EvidenceCounts {
    let told = EvidenceCounts { replied: 0, usage: Usage::default(), ..*counts };
    match subject.role {
        EvidenceRole::Panelist => told,
        EvidenceRole::Reviewer => EvidenceCounts { layers: 0, fair_e12: 0, ..told },
    }
}

/// What calls pin is what some state of the lanes' ledgers said before; decisions weigh that and nothing else; and no contractor is
/// told of it.
fn check_pinned(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let calls = reputed_calls(folded);
    for (negotiation, (seq, rule, pinned)) in &calls {
        let reputations = PinnedReputations { negotiation, seq: *seq, rule, pinned };
        if let Some(is_explained) = reputations.are_explained(trace) {
            verdict.check(Invariant::ReputationPinned, is_explained, || {
                format!("record {seq}: {negotiation} pins {pinned:?}, which no evidence said under {rule:?}")
            });
        }
    }
    for decision in &folded.decisions {
        let Some((_, _, pinned)) = calls.get(&decision.negotiation) else { continue };
        for offer in &decision.offers {
            let holds = offer.reputation.is_some() && pinned.get(&offer.contractor) == offer.reputation.as_ref();
            verdict.check(Invariant::ReputationPinned, holds, || {
                format!("{} was decided with {offer:?}; pinned is {pinned:?}", decision.negotiation)
            });
        }
    }
    for caused in folded.deliveries.values() {
        let (negotiation, to) = (&caused.deliver.negotiation, &caused.deliver.to);
        if calls.contains_key(negotiation) && to.as_str() != negotiation.initiator() {
            let told = serde_json::to_string(&*caused.deliver.told).unwrap_or_default();
            verdict.check(Invariant::ReputationPinned, !told.contains("reputation"), || {
                format!("{to} is told of a reputation in {negotiation}: {told}")
            });
        }
    }
}

/// By negotiation: the record that called, under which rule, and what it pins of each of the invited.
type ReputedCalls = BTreeMap<NegotiationId, (u64, ReputationRule, BTreeMap<AgentId, u64>)>;

fn reputed_calls(folded: &FoldedLog) -> ReputedCalls {
    let mut begun: BTreeMap<&NegotiationId, u64> = BTreeMap::new();
    for caused in folded.deliveries.values() {
        if matches!(&*caused.deliver.told, Notification::Cfp(_)) {
            let first = begun.entry(&caused.deliver.negotiation).or_insert(caused.seq);
            *first = caused.seq.min(*first);
        }
    }
    let mut calls = ReputedCalls::new();
    for (position, logged) in folded.messages.iter().filter(|(_, logged)| logged.message.act == Act::Cfp) {
        let negotiation = &logged.message.negotiation;
        let is_first = begun.get(negotiation) == Some(&position.seq) && !calls.contains_key(negotiation);
        if let Some(Pinned { policy, invited, .. }) = logged.message.pinned.as_deref().filter(|_| is_first)
            && let Some(rule) = &policy.reputation
        {
            let pinned = invited.iter().filter_map(|one| Some((one.agent.clone(), one.reputation?))).collect();
            calls.insert(negotiation.clone(), (position.seq, rule.clone(), pinned));
        }
    }
    calls
}

/// What a call pins.
struct PinnedReputations<'a> {
    negotiation: &'a NegotiationId,
    seq: u64,
    rule: &'a ReputationRule,
    pinned: &'a BTreeMap<AgentId, u64>,
}

impl PinnedReputations<'_> {
    /// Whether some combination of ledgers stored before the call, or of none, says the same of all the invited; nothing where there
    /// are too many.
    fn are_explained(&self, trace: &Trace) -> Option<bool> {
        let mut combinations: Vec<Vec<&EvidenceEntry>> = vec![Vec::new()];
        for lane in (0..trace.lanes).map(Lane) {
            let before = trace.ledgers.iter().filter(|stored| stored.lane == lane && stored.last_seq < self.seq);
            let mut versions: Vec<Vec<&EvidenceEntry>> = vec![Vec::new()];
            versions.extend(before.map(|stored| self.relevant(stored)));
            versions.dedup();
            if combinations.len() * versions.len() > COMBINATIONS_MAX {
                return None;
            }
            let mut further = Vec::with_capacity(combinations.len() * versions.len());
            for known in &combinations {
                further.extend(versions.iter().map(|version| [known.as_slice(), version].concat()));
            }
            combinations = further;
        }
        Some(combinations.iter().any(|entries| self.says(entries)))
    }

    fn relevant<'e>(&self, stored: &'e StoredLedger) -> Vec<&'e EvidenceEntry> {
        let LaneEvidence { entries, .. } = &stored.evidence;
        let is_of = |subject: &EvidenceSubject| {
            subject.domain == self.rule.domain
                && subject.role == EvidenceRole::Panelist
                && self.pinned.contains_key(&subject.agent)
        };
        entries.iter().filter(|entry| is_of(&entry.subject)).collect()
    }

    fn says(&self, entries: &[&EvidenceEntry]) -> bool {
        let ReputationRule { from, min_runs, prior_runs, .. } = self.rule;
        let Ok(own) = AgentId::try_new(self.negotiation.initiator()) else { return false };
        let basis = ReputationBasis { from, own: &own, min_runs: *min_runs, prior_runs: *prior_runs };
        self.pinned.iter().all(|(agent, pinned)| {
            let mut by_initiator: BTreeMap<&AgentId, EvidenceCounts> = BTreeMap::new();
            for entry in entries.iter().filter(|entry| entry.subject.agent == *agent) {
                by_initiator.entry(&entry.subject.initiator).or_default().add(&entry.counts);
            }
            reputation(by_initiator.into_iter(), basis).unwrap_or(REPUTATION_AVERAGE_PPM) == *pinned
        })
    }
}
