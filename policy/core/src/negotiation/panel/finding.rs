//! The result of a panel: what it is, what each seat and reviewer contributed to it, and the decision record that proves both
//! (docs/spec/panel.md#pn-28).

use std::borrow::Cow;
use std::sync::Arc;

use schemas::AgentId;
use schemas::delivery::{Finding, Outcome, PanelCalls, PanelistReport, ReviewerReport, Stopped, UsageTotal};
use schemas::evidence::{EvidenceCounts, EvidenceRole, EvidenceSubject};
use schemas::panel::AnswerKind;

use super::Panel;
use super::reply::{GivenRating, SeatReply};
use super::review::{PanelReview, ReviewReply};
use super::round::{MemberIndex, PanelRound};
use crate::negotiation::InputContext;
use crate::panel::count::AnswerTally;
use crate::panel::decision::{
    PanelCallsRecord, PanelDecision, PanelistRecord, RatingRecord, ReplyRecord, ReviewRecord, ReviewReplyRecord,
    ReviewerRecord, RoundRecord, SelectionRecord,
};
use crate::panel::importance::{Importance, Layer, LayerNode, Shown, importance};
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
    let leader = round.asked.get(result.leader)?.reply.as_ref()?;
    let contributions = Contributions::of(panel, deciding, &result.supporters);
    let (panelists, reviewers) = (contributions.panelists(&result.supporters), contributions.reviewers());
    let is_evidence = panel.rules.rate && panel.rules.evidence && panelists.len() >= EVIDENCE_SEATS_MIN;
    let evidence = if is_evidence { contributions.evidence(&panelists, &reviewers) } else { Vec::new() };
    let calls = panel.calls;
    let PanelCalls { answered, answers, ranks, reviews } = calls;
    let decision = PanelDecision {
        at: context.now,
        calls: PanelCallsRecord { answered, answers, ranks, reviews },
        chain: panel.header.chain,
        choice: panel.choice.as_deref().cloned(),
        domain: panel.rules.domain.as_ref().map(ToString::to_string).unwrap_or_default(),
        decided: round.number,
        evidence: is_evidence,
        key: leader.key_digest?,
        negotiation: panel.header.id.clone(),
        outcome,
        panelists: panelists.iter().map(record_of).collect(),
        position: context.position,
        reviewers: reviewers.iter().map(record_of_reviewer).collect(),
        reviews: panel.reviews.iter().map(|review| review_record(panel, review)).collect(),
        rounds: panel.rounds.iter().map(|round| round_record(panel, round)).collect(),
        rules: panel.rules_digest,
        selection: selection_record(panel),
        stopped,
    };
    let finding = Finding {
        outcome,
        stopped,
        answer: first.answer.clone()?,
        key: key_told(&panel.rules.answer, leader),
        agreed: u32::try_from(result.supporters.len()).unwrap_or(u32::MAX),
        of: u32::try_from(result.of).unwrap_or(u32::MAX),
        round: round.number,
        decision: decision.digest(),
        calls,
        usage: UsageTotal { usage: panel.usage, reported_by: panel.reported_by },
        panelists,
        reviewers,
    };
    Some(Ending { finding, decision: Arc::new(decision), evidence })
}

/// The key of an answer. Those compared by BLEU have none that all who agree share.
fn key_told(kind: &AnswerKind, reply: &SeatReply) -> Option<String> {
    let is_bleu = matches!(kind, AnswerKind::Bleu { .. });
    reply.key_text(kind).filter(|_| !is_bleu).map(Cow::into_owned)
}

/// The answer with most supporters, ties as docs/spec/panel-answers.md#pa-11 has it. What stopped a selection counts the
/// answers of those it keeps.
fn leading(panel: &Panel, round: &PanelRound, stopped: Stopped) -> Option<Leading> {
    let is_selection = stopped == Stopped::Selection;
    let tally: AnswerTally = round.tally(|place| !is_selection || !panel.is_dropped(place));
    let ranked = panel.selection.as_ref().map_or(&[][..], |selection| &selection.ranked);
    let number = |place: &MemberIndex| round.asked.iter().position(|asked| asked.member == *place);
    let ranked_numbers: Vec<usize> = ranked.iter().filter_map(number).collect();
    let closing = round.closed_at?;
    let hash = |answer: usize| {
        let reply = round.asked.get(answer).and_then(|asked| asked.reply.as_ref());
        let key = reply.and_then(|reply| reply.key_text(&panel.rules.answer));
        tie(&panel.header.id, closing, key.as_deref().unwrap_or_default())
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

/// What everybody contributed to a result: the rounds up to the deciding one, and the reviews between them, as layers.
struct Contributions<'a> {
    panel: &'a Panel,
    /// In the order of ids.
    seats: Vec<MemberIndex>,
    /// In the order of the call.
    reviewers: Vec<MemberIndex>,
    rounds: &'a [PanelRound],
    /// Which layers are rounds.
    of_rounds: Vec<usize>,
    /// Which layers are reviews.
    of_reviews: Vec<usize>,
    importance: Option<Importance>,
}

impl<'a> Contributions<'a> {
    fn of(panel: &'a Panel, deciding: usize, supporters: &[MemberIndex]) -> Self {
        let mut contributions = Self {
            panel,
            seats: panel.seats().collect(),
            reviewers: panel.reviewers().collect(),
            rounds: panel.rounds.get(..=deciding).unwrap_or(&panel.rounds),
            of_rounds: Vec::new(),
            of_reviews: Vec::new(),
            importance: None,
        };
        let layers = contributions.layers();
        let numbers: Vec<usize> =
            supporters.iter().filter_map(|place| number_of(&contributions.seats, *place)).collect();
        contributions.importance = importance(&layers, &numbers);
        debug_assert!(contributions.importance.is_some(), "every reply was shown replies of the layer before");
        contributions
    }

    /// Every round with who replied and how it weighs those it was shown; before it the review that it was shown.
    fn layers(&mut self) -> Vec<Layer> {
        let mut layers = Vec::with_capacity(self.rounds.len());
        let mut before: Option<&PanelRound> = None;
        for round in self.rounds {
            let review = before.and_then(|before| self.panel.review_of(before.number));
            if let Some(review) = review {
                self.of_reviews.push(layers.len());
                layers.push(self.of_review(review));
            }
            self.of_rounds.push(layers.len());
            layers.push(self.of_round(round, before, review.is_some()));
            before = Some(round);
        }
        layers
    }

    fn of_review(&self, review: &PanelReview) -> Layer {
        let node = |(place, reply): (MemberIndex, &ReviewReply)| {
            let member = number_of(&self.reviewers, place)?;
            Some(LayerNode { member, own: None, shown: weighed(&reply.ratings, &self.seats) })
        };
        Layer { members: self.reviewers.len(), nodes: review.replies().filter_map(node).collect() }
    }

    fn of_round(&self, round: &PanelRound, before: Option<&PanelRound>, is_reviewed: bool) -> Layer {
        let rated = if is_reviewed { &self.reviewers } else { &self.seats };
        let node = |(place, reply): (MemberIndex, &SeatReply)| {
            let had_replied = before.is_some_and(|before| before.reply_of(place).is_some());
            let member = number_of(&self.seats, place)?;
            let own = (had_replied && !is_reviewed).then_some(member);
            Some(LayerNode { member, own, shown: weighed(&reply.ratings, rated) })
        };
        Layer { members: self.seats.len(), nodes: round.replies().filter_map(node).collect() }
    }

    /// The sum of one's shares of these layers, in 10^-12, and what it is beside the mean of all `members`, in 10^-6.
    fn total(&self, layers: &[usize], number: usize, members: usize) -> (u64, u64) {
        let Some(importance) = &self.importance else { return (0, 0) };
        let total = importance.total(layers.iter().copied(), number);
        (total.e12(), total.scaled(members as u64, layers.len() as u64).ppm())
    }

    /// What each seat contributed, in the order of ids.
    fn panelists(&self, supporters: &[MemberIndex]) -> Vec<PanelistReport> {
        let report = |(number, place): (usize, &MemberIndex)| {
            let share = |layer: &usize| self.importance.as_ref().map_or(0, |all| all.share(*layer, number).e12());
            let answer = self.rounds.last().and_then(|round| round.reply_of(*place)?.answer.clone());
            let (total_e12, relative_ppm) = self.total(&self.of_rounds, number, self.seats.len());
            PanelistReport {
                agent: self.panel.agent(*place).clone(),
                answer,
                agreed: supporters.contains(place),
                importance_e12: self.of_rounds.iter().map(share).collect(),
                total_e12,
                relative_ppm,
            }
        };
        self.seats.iter().enumerate().map(report).collect()
    }

    /// What each reviewer contributed, in the order of the call.
    fn reviewers(&self) -> Vec<ReviewerReport> {
        let report = |(number, place): (usize, &MemberIndex)| {
            let (total_e12, relative_ppm) = self.total(&self.of_reviews, number, self.reviewers.len());
            ReviewerReport { agent: self.panel.agent(*place).clone(), total_e12, relative_ppm }
        };
        self.reviewers.iter().enumerate().map(report).collect()
    }
}

impl Contributions<'_> {
    /// What the panel shows about each of its seats and reviewers (docs/spec/panel.md#pn-34).
    fn evidence(
        &self,
        panelists: &[PanelistReport],
        reviewers: &[ReviewerReport],
    ) -> Vec<(EvidenceSubject, EvidenceCounts)> {
        let panel = self.panel;
        let of_seat = |(place, panelist): (&MemberIndex, &PanelistReport)| {
            let asked: Vec<_> = panel.rounds.iter().filter_map(|round| round.asked(*place)).collect();
            let replied = asked.iter().filter(|asked| asked.reply.is_some()).count();
            let counts = EvidenceCounts {
                agreed: u64::from(panelist.agreed),
                total_e12: panelist.total_e12,
                ..self.counts(*place, (asked.len(), replied), self.of_rounds.len(), self.seats.len())
            };
            Some((self.subject(&panelist.agent, EvidenceRole::Panelist)?, counts))
        };
        let of_reviewer = |(place, reviewer): (&MemberIndex, &ReviewerReport)| {
            let asked: Vec<_> = panel.reviews.iter().filter_map(|review| review.asked(*place)).collect();
            let replied = asked.iter().filter(|asked| asked.reply.is_some()).count();
            let counts = EvidenceCounts {
                total_e12: reviewer.total_e12,
                ..self.counts(*place, (asked.len(), replied), self.of_reviews.len(), self.reviewers.len())
            };
            Some((self.subject(&reviewer.agent, EvidenceRole::Reviewer)?, counts))
        };
        let of_seats = self.seats.iter().zip(panelists).filter_map(of_seat);
        of_seats.chain(self.reviewers.iter().zip(reviewers).filter_map(of_reviewer)).collect()
    }

    fn subject(&self, agent: &AgentId, role: EvidenceRole) -> Option<EvidenceSubject> {
        let domain = self.panel.rules.domain.clone()?;
        Some(EvidenceSubject { domain, agent: agent.clone(), role, initiator: self.panel.agent(0).clone() })
    }

    /// One of `members` that was asked, and replied, so often.
    fn counts(
        &self,
        place: MemberIndex,
        (asked, replied): (usize, usize),
        layers: usize,
        members: usize,
    ) -> EvidenceCounts {
        let layers = layers as u64;
        EvidenceCounts {
            runs: 1,
            asked: asked as u64,
            replied: replied as u64,
            layers,
            fair_e12: (layers * E12).checked_div(members as u64).unwrap_or_default(),
            usage: self.panel.member(place).usage,
            ..EvidenceCounts::default()
        }
    }
}

/// Whom somebody was shown, by their numbers among all of the layer, and how it rated them.
fn weighed(ratings: &[GivenRating], layer: &[MemberIndex]) -> Vec<Shown> {
    let shown =
        |given: &GivenRating| Some(Shown { member: number_of(layer, given.of)?, rating: u32::from(given.rating) });
    ratings.iter().filter_map(shown).collect()
}

fn number_of(layer: &[MemberIndex], place: MemberIndex) -> Option<usize> {
    layer.iter().position(|one| *one == place)
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

fn record_of_reviewer(reviewer: &ReviewerReport) -> ReviewerRecord {
    let ReviewerReport { agent, total_e12, relative_ppm } = reviewer;
    ReviewerRecord { agent: agent.clone(), relative_ppm: *relative_ppm, total_e12: *total_e12 }
}

fn review_record(panel: &Panel, review: &PanelReview) -> ReviewRecord {
    let reply = |(place, reply): (MemberIndex, &ReviewReply)| ReviewReplyRecord {
        agent: panel.agent(place).clone(),
        ratings: rating_records(panel, &reply.ratings),
    };
    ReviewRecord {
        asked: review.asked.iter().map(|asked| panel.agent(asked.member).clone()).collect(),
        replies: review.replies().map(reply).collect(),
        round: review.round,
    }
}

fn rating_records(panel: &Panel, ratings: &[GivenRating]) -> Vec<RatingRecord> {
    ratings.iter().map(|given| RatingRecord { agent: panel.agent(given.of).clone(), rating: given.rating }).collect()
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
                ratings: rating_records(panel, &reply.ratings),
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
