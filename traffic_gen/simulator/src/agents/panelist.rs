//! What those asked by a panel answer: panelists, rankers and reviewers; and whatever they should not.

use std::collections::BTreeMap;

use schemas::delivery::{Ask, Closing, Delivery, Disposition, Finding, Outcome, Rated, Receipt, Stopped};
use schemas::evidence::Usage;
use schemas::panel::{AnswerKind, PanelAnswer, RATING_MAX, RATING_MIN, SeatChoice};
use schemas::payload::{Confirm, Reasoned};
use schemas::{AwardNo, NegotiationId, Payload};

use super::AgentContext;
use crate::faults::AgentFault;
use crate::points::Point;

/// How often a panelist gives the answer that most would give, in per mille.
const AGREES: u32 = 600;
/// How often it has no opinion.
const NO_OPINION: u32 = 80;
/// How often it has none of a hard question.
const NO_OPINION_OF_HARD: u32 = 700;
/// Hard questions: one in so many. Whether one is hard follows from the rules, so that all seats find it so.
const HARD_ONE_IN: u8 = 8;
/// How often a ranker lets its time pass.
const RANKS_NOT: u32 = 350;
/// How often it stays with its own last answer, or takes over one that it is shown.
const TAKES_OVER: u32 = 700;
/// How often a reviewer says something of an answer.
const REVIEWS: u32 = 700;
/// How often it rates those it is to rate.
const RATES: u32 = 800;

/// What an agent knows of the panels in which it was asked.
#[derive(Debug, Default)]
pub(super) struct PanelMemory {
    /// The last round in which it was asked.
    asked: BTreeMap<NegotiationId, u32>,
}

impl PanelMemory {
    /// Answers, most of the time.
    pub(super) fn answer(&mut self, context: &mut AgentContext, delivery: &Delivery, ask: &Ask) {
        let before = self.asked.insert(delivery.envelope.negotiation.clone(), ask.round);
        if before.is_some_and(|before| before < ask.round) && ask.rank.is_none() && !ask.review {
            context.reached(Point::PanelNextRound);
        }
        if ask.rate == Some(Rated::Reviewers) {
            context.reached(Point::ReviewersRated);
        }
        let window_ms = (ask.answer_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        let soon = context.draw(0..window_ms.min(300));
        if context.errs(AgentFault::Ignore) || (ask.rank.is_some() && context.happens(RANKS_NOT)) {
            return;
        }
        if context.errs(AgentFault::Decline) {
            let decline = context.decline(&[Payload::Refuse, Payload::NotUnderstood]);
            return context.reply(soon, delivery, decline);
        }
        let is_late = context.errs(AgentFault::OfferLate);
        let after_ms = if is_late { window_ms + context.draw(0..300) } else { soon };
        if context.errs(AgentFault::OfferUnfit) {
            let unfit = unfit(context, ask);
            context.reply(after_ms / 2, delivery, Payload::Answer(Box::new(unfit)));
        }
        let answer = answer(context, ask);
        context.reply(after_ms, delivery, Payload::Answer(Box::new(answer)));
        if context.errs(AgentFault::Revise) {
            let (again, later) = (self::answer(context, ask), after_ms + context.draw(0..300));
            context.reply(later, delivery, Payload::Answer(Box::new(again)));
        }
        if context.errs(AgentFault::Leave) {
            let later = after_ms + context.draw(0..200);
            context.reply(later, delivery, Payload::Refuse(Reasoned::default()));
        }
        if context.errs(AgentFault::SpeakOut) {
            let later = context.draw(0..window_ms.min(600));
            context.reply(later, delivery, Payload::Confirm(Confirm { award_no: AwardNo(1), terms_digest: None }));
        }
    }

    /// Counts what its answers came to.
    pub(super) fn note_receipt(&self, context: &AgentContext, delivery: &Delivery, receipt: &Receipt) {
        if self.asked.contains_key(&delivery.envelope.negotiation) {
            context.reached_if([
                (Point::AnswerLate, receipt.disposition == Disposition::Late),
                (Point::AnswerStale, receipt.disposition == Disposition::StaleRound),
            ]);
        }
    }
}

/// Counts how seats were chosen, as the initiator is told.
pub(super) fn note_seats(context: &AgentContext, receipt: &Receipt) {
    context.reached_if([
        (Point::SeatsChosen, receipt.seats == Some(SeatChoice::Chosen)),
        (Point::SeatsOnTrial, receipt.seats == Some(SeatChoice::Trial)),
    ]);
}

/// Counts how a panel ended.
pub(super) fn note_closed(context: &AgentContext, closing: &Closing) {
    context.reached_if([
        (Point::PanelNoAnswer, closing.outcome == Outcome::NoAnswer),
        (Point::PanelAnswered, matches!(closing.outcome, Outcome::Consensus | Outcome::Plurality)),
    ]);
}

/// Counts what ended a panel that came to a result.
pub(super) fn note_finding(context: &AgentContext, finding: &Finding) {
    context.reached(match finding.stopped {
        Stopped::Answers => Point::ConsensusOfAnswers,
        Stopped::Selection => Point::ConsensusOfKept,
        Stopped::Rounds => Point::PluralityAtEnd,
        Stopped::Timeout => Point::PluralityInTime,
        Stopped::Silence => Point::PluralityInSilence,
    });
    context.reached_if([
        (Point::RankerAsked, finding.calls.ranks > 0),
        (Point::ReviewersAsked, finding.calls.reviews > 0),
    ]);
}

fn answer(context: &mut AgentContext, ask: &Ask) -> PanelAnswer {
    let shown = ask.peers.as_deref().unwrap_or_default();
    let mut said = PanelAnswer { round: ask.round, ..PanelAnswer::default() };
    if let Some(rank) = &ask.rank {
        let mut places: Vec<u32> = (1..).take(shown.len()).collect();
        let first = context.index(places.len());
        places.rotate_left(first);
        let keep = usize::try_from(rank.keep).unwrap_or(1).min(places.len());
        places.truncate(1 + context.index(keep));
        said.order = Some(places);
        return said;
    }
    let rated = match ask.rate {
        Some(Rated::Peers) => shown.len(),
        Some(Rated::Reviewers) => ask.own.iter().chain(shown).map(|one| one.reviews.len()).max().unwrap_or(0),
        None => 0,
    };
    let is_rating = rated > 0 && context.happens(RATES);
    said.ratings = is_rating.then(|| ratings(context, rated));
    if ask.review {
        said.reviews = Some(reviews(context, shown.len()));
        return said;
    }
    let known: Vec<String> =
        ask.own.iter().chain(shown).filter_map(|shown| Some(shown.answer.as_deref()?.to_owned())).collect();
    let own = if !known.is_empty() && context.happens(TAKES_OVER) {
        known[context.index(known.len())].clone()
    } else {
        text(context, ask.answer.as_deref().unwrap_or(&AnswerKind::Number))
    };
    let no_opinion = if is_hard(ask) { NO_OPINION_OF_HARD } else { NO_OPINION };
    said.answer = Some((!context.happens(no_opinion)).then_some(own));
    said.text = context.happens(300).then(|| "because".to_owned());
    said.usage = context.happens(300).then_some(Usage { calls: 1, prompt_tokens: 12, completion_tokens: 3 });
    said
}

/// Whether most have no opinion of what is asked.
fn is_hard(ask: &Ask) -> bool {
    ask.rules_digest.is_some_and(|digest| digest.0[0].is_multiple_of(HARD_ONE_IN))
}

/// What a reviewer says of each answer. No two say the same of any.
fn reviews(context: &mut AgentContext, count: usize) -> Vec<Option<String>> {
    let text = |_| context.happens(REVIEWS).then(|| format!("review {}", context.draw(0..1_000_000)));
    (0..count).map(text).collect()
}

/// An answer of a kind, in one of the ways to write it.
fn text(context: &mut AgentContext, kind: &AnswerKind) -> String {
    let which = if context.happens(AGREES) { 0 } else { 1 + context.index(2) };
    let ways: [&[&str]; 3] = match kind {
        AnswerKind::Choice { .. } => [&["A", "a", " (A) "], &["B", "(b)"], &["C"]],
        AnswerKind::Number => [&["1", "1.0", "100e-2", "2/2"], &["2"], &["-3.5", "-7/2"]],
        AnswerKind::Exact { .. } => [&["so be it", " so  be it "], &["So be it"], &["no"]],
        AnswerKind::Math => [&["\\frac12", "\\frac{1}{2}", "0.5"], &["x=2", "2"], &["\\sqrt3"]],
        AnswerKind::Set { .. } => [&["1,2", "2, 1, 1.0"], &["1"], &["1,2,3"]],
        AnswerKind::Json => [&["{\"a\":1,\"b\":[]}", "{ \"b\": [], \"a\": 1 }"], &["{\"a\":2}"], &["null"]],
        AnswerKind::Bleu { .. } => [
            &["the cat sat on the mat by the door", "The cat sat on the mat by the door"],
            &["the cat sat on a mat by the door"],
            &["dogs bark"],
        ],
    };
    let ways = ways[which];
    ways[context.index(ways.len())].to_owned()
}

fn ratings(context: &mut AgentContext, count: usize) -> Vec<u32> {
    let spread = u64::from(RATING_MAX - RATING_MIN + 1);
    (0..count).map(|_| RATING_MIN + u32::try_from(context.draw(0..spread)).unwrap_or(0)).collect()
}

/// An answer that the rules do not take.
fn unfit(context: &mut AgentContext, ask: &Ask) -> PanelAnswer {
    let fit = answer(context, ask);
    match context.draw(0..5) {
        0 => PanelAnswer { round: ask.round + 1, ..fit },
        1 => PanelAnswer { round: ask.round.saturating_sub(1).max(1), ..fit },
        2 => PanelAnswer { ratings: Some(ratings(context, 7)), ..fit },
        3 if ask.review => PanelAnswer { reviews: Some(reviews(context, 7)), ..fit },
        3 => PanelAnswer { answer: fit.answer.map(|_| Some("{\"a\":1.5}".to_owned())), ..fit },
        _ => PanelAnswer { round: ask.round, order: Some(vec![9, 9]), ..PanelAnswer::default() },
    }
}
