//! The result of a panel: what it is, what each seat contributed to it, and the decision record that proves both
//! (docs/spec/panel.md#pn-28).

use std::sync::Arc;

use schemas::Digest;
use schemas::delivery::{Finding, Outcome, PanelCalls, PanelistReport, Stopped, UsageTotal};
use schemas::evidence::{EvidenceCounts, EvidenceRole, EvidenceSubject};

use super::Panel;
use super::round::{MemberIndex, PanelRound};
use crate::negotiation::InputContext;
use crate::panel::count::AnswerTally;
use crate::panel::decision::{
    PanelCallsRecord, PanelDecision, PanelistRecord, RatingRecord, ReplyRecord, RoundRecord, SelectionRecord,
};
use crate::panel::importance::{Importance, Layer, LayerNode, Shown, importance};
use crate::panel::key::AnswerKey;
use crate::panel::ranker::tie;

/// Fewest seats of a panel that counts as evidence: of two each is the other's only rater.
const EVIDENCE_SEATS_MIN: usize = 3;
/// The whole, in 10^-12.
const E12: u64 = 1_000_000_000_000;

/// A result that is not told yet.
pub(super) struct Ending {
    pub(super) finding: Finding,
    pub(super) decision: Arc<PanelDecision>,
    /// What is added to the ledger.
    pub(super) evidence: Vec<(EvidenceSubject, EvidenceCounts)>,
}

/// Which answer of a round is the result, and who supports it.
struct Leading {
    /// Number of the answer among those asked.
    leader: usize,
    /// In the order of a selection, else of asking.
    supporters: Vec<MemberIndex>,
    of: usize,
}

/// The result that one round makes: none where nobody has given an answer there.
pub(super) fn ending(
    panel: &Panel,
    deciding: usize,
    outcome: Outcome,
    stopped: Stopped,
    context: &InputContext<'_>,
) -> Option<Ending> {
    let round = panel.rounds.get(deciding)?;
    let result = leading(panel, round, stopped)?;
    let first = round.reply_of(*result.supporters.first()?)?;
    let key = round.asked.get(result.leader)?.reply.as_ref()?.key(&panel.rules.answer)?;
    let panelists = panelists(panel, deciding, &result.supporters);
    let is_evidence = panel.rules.rate && panel.rules.evidence && panelists.len() >= EVIDENCE_SEATS_MIN;
    let evidence = if is_evidence { evidence_of(panel, round.number, &panelists) } else { Vec::new() };
    let calls = panel.calls;
    let PanelCalls { answered, answers, ranks, reviews } = calls;
    let decision = PanelDecision {
        at: context.now,
        calls: PanelCallsRecord { answered, answers, ranks, reviews },
        chain: panel.header.chain,
        domain: panel.rules.domain.as_ref().map(ToString::to_string).unwrap_or_default(),
        decided: round.number,
        evidence: is_evidence,
        key: Digest::of_bytes(key.text().as_bytes()),
        negotiation: panel.header.id.clone(),
        outcome,
        panelists: panelists.iter().map(record_of).collect(),
        position: context.position,
        rounds: panel.rounds.iter().map(|round| round_record(panel, round)).collect(),
        rules: panel.rules_digest,
        selection: selection_record(panel),
        stopped,
    };
    let finding = Finding {
        outcome,
        stopped,
        answer: first.answer.clone()?,
        key: if let AnswerKey::Text(text) = &*key { Some(text.clone()) } else { None },
        agreed: u32::try_from(result.supporters.len()).unwrap_or(u32::MAX),
        of: u32::try_from(result.of).unwrap_or(u32::MAX),
        round: round.number,
        decision: decision.digest(),
        calls,
        usage: UsageTotal { usage: panel.usage, reported_by: panel.reported_by },
        panelists,
        reviewers: Vec::new(),
    };
    Some(Ending { finding, decision: Arc::new(decision), evidence })
}

/// What the panel shows about each of its seats (docs/spec/panel.md#pn-34).
fn evidence_of(panel: &Panel, decided: u32, panelists: &[PanelistReport]) -> Vec<(EvidenceSubject, EvidenceCounts)> {
    let Some(domain) = &panel.rules.domain else { return Vec::new() };
    let layers = u64::from(decided);
    let fair_e12 = (layers * E12).checked_div(panelists.len() as u64).unwrap_or_default();
    let shown = |(place, panelist): (MemberIndex, &PanelistReport)| {
        let subject = EvidenceSubject {
            domain: domain.clone(),
            agent: panelist.agent.clone(),
            role: EvidenceRole::Panelist,
            initiator: panel.agent(0).clone(),
        };
        let asked: Vec<_> = panel.rounds.iter().filter_map(|round| round.asked(place)).collect();
        let counts = EvidenceCounts {
            runs: 1,
            asked: asked.len() as u64,
            replied: asked.iter().filter(|asked| asked.reply.is_some()).count() as u64,
            agreed: u64::from(panelist.agreed),
            layers,
            total_e12: panelist.total_e12,
            fair_e12,
            usage: panel.member(place).usage,
        };
        (subject, counts)
    };
    panel.seats().zip(panelists).map(shown).collect()
}

/// The answer with most supporters, ties as docs/spec/panel-answers.md#pa-11 has it. What stopped a selection counts the
/// answers of those it keeps.
fn leading(panel: &Panel, round: &PanelRound, stopped: Stopped) -> Option<Leading> {
    let is_selection = stopped == Stopped::Selection;
    let tally: AnswerTally = round.tally(&panel.rules.answer, |place| !is_selection || !panel.is_dropped(place));
    let ranked = panel.selection.as_ref().map_or(&[][..], |selection| &selection.ranked);
    let number = |place: &MemberIndex| round.asked.iter().position(|asked| asked.member == *place);
    let ranked_numbers: Vec<usize> = ranked.iter().filter_map(number).collect();
    let closing = round.closed_at?;
    let hash = |answer: usize| {
        let reply = round.asked.get(answer).and_then(|asked| asked.reply.as_ref());
        let key = reply.and_then(|reply| reply.key(&panel.rules.answer));
        tie(&panel.header.id, closing, key.as_ref().map_or("", |key| key.text()))
    };
    let leader = tally.leader(&ranked_numbers, hash)?;
    let rank = |number: usize| ranked_numbers.iter().position(|ranked| *ranked == number).unwrap_or(usize::MAX);
    let mut supporters = tally.supporters(leader).to_vec();
    supporters.sort_by_key(|number| (rank(*number), *number));
    let supporters = supporters.into_iter().filter_map(|number| Some(round.asked.get(number)?.member)).collect();
    let of = match &panel.selection {
        Some(selection) if is_selection => selection.keep,
        Some(_) | None => round.of,
    };
    Some(Leading { leader, supporters, of })
}

/// What each seat contributed, in the order of ids.
fn panelists(panel: &Panel, deciding: usize, supporters: &[MemberIndex]) -> Vec<PanelistReport> {
    let seats: Vec<MemberIndex> = panel.seats().collect();
    let rounds = panel.rounds.get(..=deciding).unwrap_or(&panel.rounds);
    let numbers: Vec<usize> = supporters.iter().filter_map(|place| number_of(&seats, *place)).collect();
    let importance = importance(&layers(&seats, rounds), &numbers);
    debug_assert!(importance.is_some(), "every reply was shown replies of the round before");
    let report = |(number, place): (usize, &MemberIndex)| {
        let share = |layer: usize| importance.as_ref().map_or(0, |importance| importance.share(layer, number).e12());
        let total = importance.as_ref().map(|importance| importance.total(0..rounds.len(), number));
        let relative = |importance: &Importance| {
            let total = importance.total(0..rounds.len(), number);
            total.scaled(seats.len() as u64, rounds.len() as u64).ppm()
        };
        let answer = rounds.last().and_then(|round| round.reply_of(*place)?.answer.clone());
        PanelistReport {
            agent: panel.agent(*place).clone(),
            answer,
            agreed: supporters.contains(place),
            importance_e12: (0..rounds.len()).map(share).collect(),
            total_e12: total.map_or(0, |total| total.e12()),
            relative_ppm: importance.as_ref().map_or(0, relative),
        }
    };
    seats.iter().enumerate().map(report).collect()
}

/// The rounds as layers of seats: who replied, and how it weighs those of the round before.
fn layers(seats: &[MemberIndex], rounds: &[PanelRound]) -> Vec<Layer> {
    let before = std::iter::once(None).chain(rounds.iter().map(Some));
    let layer = |(round, before): (&PanelRound, Option<&PanelRound>)| Layer {
        members: seats.len(),
        nodes: round
            .replies()
            .filter_map(|(place, reply)| {
                let shown = reply.ratings.iter().filter_map(|given| {
                    Some(Shown { member: number_of(seats, given.of)?, rating: u32::from(given.rating) })
                });
                let had_replied = before.is_some_and(|before| before.reply_of(place).is_some());
                let member = number_of(seats, place)?;
                Some(LayerNode { member, own: had_replied.then_some(member), shown: shown.collect() })
            })
            .collect(),
    };
    rounds.iter().zip(before).map(layer).collect()
}

fn number_of(seats: &[MemberIndex], place: MemberIndex) -> Option<usize> {
    seats.binary_search(&place).ok()
}

fn record_of(panelist: &PanelistReport) -> PanelistRecord {
    PanelistRecord {
        agent: panelist.agent.clone(),
        agreed: panelist.agreed,
        importance_e12: panelist.importance_e12.clone(),
        relative_ppm: panelist.relative_ppm,
        total_e12: panelist.total_e12,
    }
}

fn round_record(panel: &Panel, round: &PanelRound) -> RoundRecord {
    let agent = |place: MemberIndex| panel.agent(place).clone();
    RoundRecord {
        asked: round.asked.iter().map(|asked| agent(asked.member)).collect(),
        closed: round.closed_at,
        of: round.of,
        replies: round
            .replies()
            .map(|(place, reply)| ReplyRecord {
                agent: agent(place),
                key: reply.key_digest,
                ratings: reply
                    .ratings
                    .iter()
                    .map(|given| RatingRecord { agent: agent(given.of), rating: given.rating })
                    .collect(),
            })
            .collect(),
        round: round.number,
    }
}

fn selection_record(panel: &Panel) -> Option<SelectionRecord> {
    let selection = panel.selection.as_ref()?;
    let agents = |places: &[MemberIndex]| places.iter().map(|place| panel.agent(*place).clone()).collect();
    Some(SelectionRecord {
        after_round: selection.after_round,
        by: selection.by,
        kept: agents(selection.kept()),
        ranked: agents(&selection.ranked),
    })
}
