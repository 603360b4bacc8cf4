//! What panels have shown, and what follows from it: every panel counts once in the ledger of its lane, whoever owned the lane and
//! from wherever it was folded; and a call under a policy that weighs reputation, or one that chooses the seats of its panel, pins
//! what the evidence said then.

use std::collections::BTreeMap;

use policy_core::panel::reputation::{PRIOR_RUNS, REPUTATION_AVERAGE_PPM, ReputationBasis, choose, reputation};
use schemas::delivery::{Disposition, Finding, Notification, Receipt};
use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceRole, EvidenceSubject, LaneEvidence, Usage};
use schemas::panel::{ChooseSpec, PanelAnswer, PanelSpec};
use schemas::policy::ReputationRule;
use schemas::record::{AdmittedMessage, Pinned};
use schemas::{Act, AgentId, Lane, NegotiationId, Payload};

use super::{Caused, FoldedLog};
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
    let said = SaidInPanels::of(folded);
    for (lane, evidence) in folded.ledgers.iter().map(|(lane, evidence)| (*lane, evidence)).chain(stored) {
        let expected = shown_by_findings(trace, folded, &said, lane, evidence.position);
        let found: BTreeMap<EvidenceSubject, EvidenceCounts> =
            evidence.entries.iter().map(|entry| (entry.subject.clone(), entry.counts)).collect();
        let is_shown = found.keys().eq(expected.keys())
            && found.values().zip(expected.values()).all(|(counts, shown)| shown.explains(counts));
        verdict.check(Invariant::LedgerOnce, is_shown, || {
            format!(
                "the ledger of lane {lane} at {} holds {found:?}, panels have shown {expected:?}",
                evidence.position
            )
        });
    }
}

/// What the findings of a lane have shown up to a record.
fn shown_by_findings<'a>(
    trace: &Trace,
    folded: &'a FoldedLog,
    said: &SaidInPanels<'a>,
    lane: Lane,
    position: u64,
) -> BTreeMap<EvidenceSubject, ShownByPanels> {
    let rules = folded.panel_rules();
    let mut shown: BTreeMap<EvidenceSubject, ShownByPanels> = BTreeMap::new();
    for (seq, negotiation, finding) in folded.findings() {
        let Some(rules) = rules.get(negotiation) else { continue };
        let counts = rules.rate && rules.evidence && finding.panelists.len() >= SEATS_MIN;
        if counts && seq <= position && negotiation.lane(trace.lanes) == lane {
            for (subject, counts, fallen) in shown_by(folded, said, negotiation, rules, finding) {
                let shown = shown.entry(subject).or_default();
                shown.counts.add(&counts);
                shown.fallen_max += fallen;
            }
        }
    }
    shown
}

/// What panels have shown of somebody.
#[derive(Debug, Default)]
struct ShownByPanels {
    /// As if every answer that was taken stood to the end.
    counts: EvidenceCounts,
    /// How many of the answers may have fallen: one in each panel in which it struck out.
    fallen_max: u64,
}

impl ShownByPanels {
    fn explains(&self, found: &EvidenceCounts) -> bool {
        let is_replied =
            (self.counts.replied.saturating_sub(self.fallen_max)..=self.counts.replied).contains(&found.replied);
        is_replied && EvidenceCounts { replied: self.counts.replied, ..*found } == self.counts
    }
}

/// What was said in panels and taken, and how often somebody spoke out of turn.
#[derive(Default)]
struct SaidInPanels<'a> {
    /// By panel and speaker.
    taken: BTreeMap<(&'a NegotiationId, &'a AgentId), Vec<PanelAnswer>>,
    out_of_turn: BTreeMap<(&'a NegotiationId, &'a AgentId), usize>,
}

impl<'a> SaidInPanels<'a> {
    fn of(folded: &'a FoldedLog) -> Self {
        let mut said = Self::default();
        for Caused { deliver, .. } in folded.deliveries.values() {
            let is_out_of_turn = |told: &&Receipt| told.first.unwrap_or(told.disposition) == Disposition::OutOfTurn;
            let times = deliver.receipts_told().filter(is_out_of_turn).count();
            *said.out_of_turn.entry((&deliver.negotiation, &deliver.to)).or_default() += times;
        }
        for (_, logged, answer) in folded.taken_answers() {
            said.taken.entry((&logged.message.negotiation, &logged.message.from)).or_default().push(answer);
        }
        said
    }

    fn taken(&self, negotiation: &'a NegotiationId, agent: &'a AgentId) -> &[PanelAnswer] {
        self.taken.get(&(negotiation, agent)).map_or(&[], Vec::as_slice)
    }

    fn replied(&self, negotiation: &'a NegotiationId, agent: &'a AgentId) -> u64 {
        self.taken(negotiation, agent).len() as u64
    }

    fn usage(&self, negotiation: &'a NegotiationId, agent: &'a AgentId) -> Usage {
        let mut sum = EvidenceCounts::default();
        for usage in self.taken(negotiation, agent).iter().filter_map(|answer| answer.usage) {
            sum.add(&EvidenceCounts { usage, ..EvidenceCounts::default() });
        }
        sum.usage
    }

    /// How many answers of it may have fallen.
    fn fallen_max(&self, negotiation: &'a NegotiationId, agent: &'a AgentId, rules: &PanelSpec) -> u64 {
        let times = self.out_of_turn.get(&(negotiation, agent)).copied().unwrap_or(0);
        u64::from(times >= rules.max_strikes as usize)
    }
}

/// What one panel has shown, and of each how many answers may have fallen.
fn shown_by<'a>(
    folded: &FoldedLog,
    said: &SaidInPanels<'a>,
    negotiation: &'a NegotiationId,
    rules: &PanelSpec,
    finding: &'a Finding,
) -> Vec<(EvidenceSubject, EvidenceCounts, u64)> {
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
    let shown = |agent: &'a AgentId, role, (layers, members): (u64, usize), agreed: bool, total_e12: u64| {
        let counts = EvidenceCounts {
            runs: 1,
            asked: asked(agent, role == EvidenceRole::Reviewer),
            replied: said.replied(negotiation, agent),
            layers,
            agreed: u64::from(agreed),
            total_e12,
            fair_e12: (layers * WHOLE_E12).checked_div(members as u64).unwrap_or_default(),
            usage: said.usage(negotiation, agent),
        };
        (subject(agent, role), counts, said.fallen_max(negotiation, agent, rules))
    };
    let of_seats = (u64::from(finding.round), finding.panelists.len());
    let seats = finding.panelists.iter();
    let seats = seats.map(|seat| shown(&seat.agent, EvidenceRole::Panelist, of_seats, seat.agreed, seat.total_e12));
    // Every review to which somebody replied is a layer, whose whole is 1. Each reviewer's part is rounded by itself.
    let reviewed: u64 = finding.reviewers.iter().map(|reviewer| reviewer.total_e12).sum();
    let of_reviewers = ((reviewed + WHOLE_E12 / 2) / WHOLE_E12, finding.reviewers.len());
    let reviewers = finding.reviewers.iter();
    let reviewers = reviewers.map(|one| shown(&one.agent, EvidenceRole::Reviewer, of_reviewers, false, one.total_e12));
    seats.chain(reviewers).collect()
}

/// What calls pin is what some state of the lanes' ledgers said before; decisions weigh that and nothing else, and the seats of
/// panels are chosen by it; and no contractor is told of it.
fn check_pinned(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let calls = reputed_calls(folded);
    for (negotiation, call) in &calls {
        if let Some(is_explained) = call.are_explained(negotiation, trace) {
            let ReputedCall { seq, rule, pinned, .. } = call;
            verdict.check(Invariant::ReputationPinned, is_explained, || {
                format!("record {seq}: {negotiation} pins {pinned:?}, which no evidence said under {rule:?}")
            });
        }
    }
    for decision in &folded.decisions {
        let Some(ReputedCall { pinned, .. }) = calls.get(&decision.negotiation) else { continue };
        for offer in &decision.offers {
            let holds = offer.reputation.is_some() && pinned.get(&offer.contractor) == Some(&offer.reputation);
            verdict.check(Invariant::ReputationPinned, holds, || {
                format!("{} was decided with {offer:?}; pinned is {pinned:?}", decision.negotiation)
            });
        }
    }
    for (_, negotiation, finding) in folded.findings() {
        let Some((call, rule)) = calls.get(negotiation).and_then(|call| Some((call, call.choose.as_ref()?))) else {
            continue;
        };
        let candidates: Vec<(AgentId, Option<u64>)> = call.pinned.clone().into_iter().collect();
        let chosen = choose(negotiation, rule, &candidates).seats;
        let is_chosen = finding.panelists.iter().map(|seat| &seat.agent).eq(&chosen);
        verdict.check(Invariant::ReputationPinned, is_chosen, || {
            format!("{negotiation} has other seats than {chosen:?}, whom evidence recommends: {finding:?}")
        });
    }
    for caused in folded.deliveries.values() {
        let (negotiation, to) = (&caused.deliver.negotiation, &caused.deliver.to);
        if calls.contains_key(negotiation) && to.as_str() != negotiation.initiator() {
            let told = caused.deliver.told.encode().unwrap_or_default();
            verdict.check(Invariant::ReputationPinned, !told.contains("reputation"), || {
                format!("{to} is told of a reputation in {negotiation}: {told}")
            });
        }
    }
}

/// A call that pins reputations.
struct ReputedCall {
    /// The record that called.
    seq: u64,
    rule: ReputationRule,
    /// Of a call to a panel: how it chooses its seats.
    choose: Option<ChooseSpec>,
    /// Of each of the invited; none of an agent that is not known well enough, among whom a panel chooses.
    pinned: BTreeMap<AgentId, Option<u64>>,
}

fn reputed_calls(folded: &FoldedLog) -> BTreeMap<NegotiationId, ReputedCall> {
    let mut begun: BTreeMap<&NegotiationId, u64> = BTreeMap::new();
    for caused in folded.deliveries.values() {
        if matches!(&*caused.deliver.told, Notification::Cfp(_) | Notification::Ask(_)) {
            let first = begun.entry(&caused.deliver.negotiation).or_insert(caused.seq);
            *first = caused.seq.min(*first);
        }
    }
    let mut calls = BTreeMap::new();
    for (position, logged) in folded.messages.iter().filter(|(_, logged)| logged.message.act == Act::Cfp) {
        let negotiation = &logged.message.negotiation;
        let is_first = begun.get(negotiation) == Some(&position.seq) && !calls.contains_key(negotiation);
        if is_first && let Some(call) = ReputedCall::of(position.seq, &logged.message) {
            calls.insert(negotiation.clone(), call);
        }
    }
    calls
}

impl ReputedCall {
    fn of(seq: u64, message: &AdmittedMessage) -> Option<Self> {
        let Pinned { policy, invited, .. } = message.pinned.as_deref()?;
        let all = || invited.iter().map(|one| (one.agent.clone(), one.reputation));
        if let Some(rule) = &policy.reputation {
            let pinned = all().filter(|(_, reputation)| reputation.is_some()).collect();
            return Some(Self { seq, rule: rule.clone(), choose: None, pinned });
        }
        let message = message.message().ok()?;
        let Payload::Cfp(call) = message.payload else { return None };
        let rules = call.panel?;
        let choose = rules.choose.clone()?;
        let (from, min_runs) = (choose.from.clone(), choose.min_runs);
        let domain = rules.domain_of(&message.envelope.to);
        let rule = ReputationRule { domain, from, min_runs, prior_runs: PRIOR_RUNS };
        Some(Self { seq, rule, choose: Some(choose), pinned: all().collect() })
    }

    /// Whether some combination of ledgers stored before the call, or of none, says the same of all the invited; nothing where there
    /// are too many.
    fn are_explained(&self, negotiation: &NegotiationId, trace: &Trace) -> Option<bool> {
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
        Some(combinations.iter().any(|entries| self.is_said_by(negotiation, entries)))
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

    fn is_said_by(&self, negotiation: &NegotiationId, entries: &[&EvidenceEntry]) -> bool {
        let ReputationRule { from, min_runs, prior_runs, .. } = &self.rule;
        let Ok(own) = AgentId::try_new(negotiation.initiator()) else { return false };
        let basis = ReputationBasis { from, own: &own, min_runs: *min_runs, prior_runs: *prior_runs };
        self.pinned.iter().all(|(agent, pinned)| {
            let mut by_initiator: BTreeMap<&AgentId, EvidenceCounts> = BTreeMap::new();
            for entry in entries.iter().filter(|entry| entry.subject.agent == *agent) {
                by_initiator.entry(&entry.subject.initiator).or_default().add(&entry.counts);
            }
            let said = reputation(by_initiator.into_iter(), basis);
            // Only a choice tells who is not known well enough.
            *pinned == if self.choose.is_some() { said } else { said.or(Some(REPUTATION_AVERAGE_PPM)) }
        })
    }
}
