//! Strategies on an exchange in memory: one bargain played to its end, and many of a matchup.

use std::ops::ControlFlow;

use agents::bargain::{BargainStrategy, Move, OfferMade, Space, TurnView};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::bargain::{BargainSpec, PPM};
use schemas::delivery::{Disposition, Standing, Turn};

use traffic_gen::bargain::figures::MatchupCounts;
use traffic_gen::bargain::matchup::{Matchup, SessionParty};
use traffic_gen::bargain::{BargainEnd, Played};

use super::in_memory::InMemoryExchange;
use super::session::{BargainSession, BargainSessionError, TurnAnswer};

/// Bargains on one exchange before a new one is taken: it keeps a little of each.
const BARGAINS_PER_EXCHANGE: u64 = 256;

/// Moves of one turn that the exchange may refuse before the party gives up: a strategy is asked again after each, and
/// may know no other.
const REFUSALS_MAX: u32 = 3;

/// Plays one bargain. `strategies` are in the order of turns: the initiator, then the others by name.
///
/// # Errors
/// [`BargainSessionError`].
///
/// # Panics
/// When there are fewer strategies than parties.
pub fn run(
    exchange: &mut InMemoryExchange,
    own_id: &str,
    parties: &[SessionParty],
    rules: &BargainSpec,
    space: &Space,
    strategies: &mut [Box<dyn BargainStrategy>],
) -> Result<Played, BargainSessionError> {
    let mut session = BargainSession::open(exchange, own_id, parties, rules)?;
    let mut trace: Vec<OfferMade> = Vec::new();
    let mut last = None;
    let mut refusals = 0;
    while let (Some(turn), Some(party)) = (session.turn().cloned(), session.actor()) {
        let standing = acceptable(&session, &turn, party);
        let view = TurnView {
            party,
            parties: session.parties().len(),
            round: turn.round,
            rounds: rules.rounds,
            t: relative_time(rules, turn.round, turn.t_ppm),
            standing: standing.as_ref().and_then(|standing| space.outcome(&standing.terms)),
            offers: &trace,
        };
        let next = if refusals < REFUSALS_MAX { strategies[party].decide(&view) } else { Move::End };
        let answer = make(&mut session, party, next, standing.as_ref(), space)?;
        let is_made = answer.is_some_and(|answer| answer.receipt.disposition == Disposition::Ok);
        refusals = if is_made { 0 } else { refusals + 1 };
        if let (Move::Offer(outcome), true) = (next, is_made) {
            trace.push(OfferMade { step: turn.step, round: turn.round, party, outcome });
        }
        last = Some((turn, is_made));
    }
    session.confirm()?;
    let (turn, is_made) = last.ok_or(BargainSessionError::Silent("whose turn it is"))?;
    let [(_, closing), ..] = session.closings() else { return Err(BargainSessionError::Silent("how it ended")) };
    let party = |name: &_| session.parties().iter().position(|party| party == name);
    let agreed = closing.agreement.as_ref().and_then(|made| Some((space.outcome(&made.terms)?, party(&made.by)?)));
    let end = BargainEnd::of(closing.outcome, agreed, closing.detail.as_deref());
    let (round, step) = match &closing.agreement {
        Some(agreement) => (agreement.round, agreement.step),
        None => (turn.round, turn.step + u32::from(is_made)),
    };
    Ok(Played { end, rounds: round, steps: step, relative_time: relative_time(rules, round, turn.t_ppm), trace })
}

/// The standing offer, where the party could accept it.
fn acceptable(session: &BargainSession<'_>, turn: &Turn, party: usize) -> Option<Standing> {
    turn.standing.clone().filter(|standing| standing.by != session.parties()[party])
}

/// Makes a move; `None` when there is nothing to accept, or no such outcome.
fn make(
    session: &mut BargainSession<'_>,
    party: usize,
    next: Move,
    standing: Option<&Standing>,
    space: &Space,
) -> Result<Option<TurnAnswer>, BargainSessionError> {
    match next {
        Move::Accept => standing.map(|standing| session.accept(party, standing)).transpose(),
        Move::Offer(outcome) => space.terms(outcome).map(|terms| session.offer(party, terms)).transpose(),
        Move::End => session.end(party).map(Some),
    }
}

/// Relative time of a turn, 0 to 1. By rounds it is taken exactly, as NegMAS does; by the clock as the exchange tells it.
fn relative_time(rules: &BargainSpec, round: u32, t_ppm: u32) -> f64 {
    let by_rounds = rules.rounds.map_or(0.0, |rounds| TurnView::relative_time(round, rounds));
    let told = f64::from(t_ppm) / f64::from(PPM);
    if rules.deadline_ms.is_some() { told.max(by_rounds) } else { by_rounds }
}

/// Runs one bargain of a matchup on an exchange in memory.
///
/// # Errors
/// [`BargainSessionError`].
pub fn run_matchup(
    matchup: &Matchup,
    exchange: &mut InMemoryExchange,
    own_id: &str,
    seed: u64,
) -> Result<Played, BargainSessionError> {
    let mut strategies = matchup.strategies(seed);
    run(exchange, own_id, matchup.parties(), matchup.rules(), &matchup.domain().space, &mut strategies)
}

/// Plays `bargains` of them. The first party opens each with an outcome drawn from those it may agree to, and goes on by
/// its strategy: what it gets beside what it first asked for is the anchoring. `tell` is given the tally now and then,
/// and may break off.
///
/// # Errors
/// [`BargainSessionError`].
pub fn repeat_matchup(
    matchup: &Matchup,
    bargains: u64,
    seed: u64,
    mut tell: impl FnMut(&MatchupCounts) -> ControlFlow<()>,
) -> Result<MatchupCounts, BargainSessionError> {
    let mut tally = MatchupCounts::default();
    let mut exchange = InMemoryExchange::default();
    for number in 0..bargains {
        if number % BARGAINS_PER_EXCHANGE == 0 {
            exchange = InMemoryExchange::default();
            if tell(&tally).is_break() {
                break;
            }
        }
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        random.set_stream(number);
        let mut strategies = matchup.strategies(random.random());
        let openings = matchup.preferences()[0].ranking();
        if !openings.is_empty() {
            let opening = openings[random.random_range(0..openings.len())];
            let first = OpeningScore { opening: Some(opening), then: strategies.remove(0) };
            strategies.insert(0, Box::new(first));
        }
        let space = &matchup.domain().space;
        let played =
            run(&mut exchange, &format!("run-{number}"), matchup.parties(), matchup.rules(), space, &mut strategies)?;
        tally.add(matchup.plane(), matchup.solutions(), &played);
    }
    Ok(tally)
}

/// A strategy whose first offer is given.
struct OpeningScore {
    opening: Option<usize>,
    then: Box<dyn BargainStrategy>,
}

impl BargainStrategy for OpeningScore {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        match self.opening.take() {
            Some(opening) => Move::Offer(opening),
            None => self.then.decide(view),
        }
    }
}
