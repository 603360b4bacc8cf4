//! Does a mandate hold? Sellers and buyers bargain over a price through the core, and some of them, as if talked into it,
//! try again and again to accept or to offer what their own mandate forbids.
//!
//! Judged from outside: the agreed price against the limits the run was drawn with, and the disposition of every act
//! known to be outside. An honest fuzzer's last offer is its limit, so a deal is missed only where none exists.

mod counts;

use std::ops::ControlFlow;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::AgentId;
use schemas::bargain::{
    BargainSpec, Comparison, Concession, Issue, IssueValues, IssueWorth, Mandate, PPM, Predicate, Utility, Worth,
};
use schemas::delivery::Outcome;
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Terms};
use schemas::policy::WEIGHT_SUM;

use traffic_gen::bargain::matchup::SessionParty;

use super::in_memory::InMemoryExchange;
use super::session::{BargainSession, BargainSessionError};

pub use counts::FuzzCounts;

/// Seller's reserve and buyer's budget of each case. A deal exists where the budget is no less than the reserve.
pub const CASES: [(i64, i64); 6] = [(120, 150), (30, 45), (40, 40), (90, 70), (200, 150), (180, 260)];
/// Prices are integers from 0 to this.
const PRICE_MAX: i64 = 300;
/// Rounds a run is given at least and at most.
const ROUNDS: std::ops::RangeInclusive<u32> = 2..=24;
/// How often an injected fuzzer tries to leave its mandate, of its turns.
const INJECTED_TRIES: f64 = 0.5;
/// Bargains on one exchange before a new one is taken: it keeps tombstones.
const RUNS_PER_EXCHANGE: u64 = 256;

/// Runs the cases in turn, `runs` in all or until `tell`, which is given the tally now and then, breaks off.
///
/// # Errors
/// [`BargainSessionError`].
pub fn run(
    runs: u64,
    seed: u64,
    mut tell: impl FnMut(&FuzzCounts) -> ControlFlow<()>,
) -> Result<FuzzCounts, BargainSessionError> {
    let mut tally = FuzzCounts::default();
    let mut exchange = InMemoryExchange::default();
    for number in 0..runs {
        if number % RUNS_PER_EXCHANGE == 0 {
            exchange = InMemoryExchange::default();
            if tell(&tally).is_break() {
                break;
            }
        }
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        random.set_stream(number);
        let case = usize::try_from(number % CASES.len() as u64).unwrap_or_default();
        bargain(&mut exchange, number, case, &mut random, &mut tally)?;
    }
    Ok(tally)
}

/// One side of the price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Seller,
    Buyer,
}

/// One fuzzer of one run.
#[derive(Debug)]
struct MandateFuzzer {
    side: Side,
    /// Worst price it may agree to.
    limit: i64,
    /// Its first offer.
    opening: i64,
    is_injected: bool,
    has_delegated: bool,
}

impl MandateFuzzer {
    fn draw(side: Side, limit: i64, random: &mut ChaCha12Rng) -> Self {
        let opening = match side {
            Side::Seller => random.random_range(limit..=PRICE_MAX),
            Side::Buyer => random.random_range(0..=limit),
        };
        Self { side, limit, opening, is_injected: random.random_bool(0.25), has_delegated: false }
    }

    fn is_inside(&self, price: i64) -> bool {
        match self.side {
            Side::Seller => price >= self.limit,
            Side::Buyer => price <= self.limit,
        }
    }

    /// The price of an honest offer: from the opening to the limit in equal steps, in the last round the limit itself.
    fn asks(&self, round: u32, rounds: u32) -> i64 {
        let done = i64::from(round.saturating_sub(1));
        let whole = i64::from(rounds.saturating_sub(1)).max(1);
        self.opening + (self.limit - self.opening) * done.min(whole) / whole
    }

    /// A price its mandate forbids, if there is one.
    fn forbidden(&self, random: &mut ChaCha12Rng) -> Option<i64> {
        let prices = match self.side {
            Side::Seller => 0..=self.limit - 1,
            Side::Buyer => self.limit + 1..=PRICE_MAX,
        };
        (!prices.is_empty()).then(|| random.random_range(prices))
    }

    /// The limit as a predicate, as a reservation value, or as both; perhaps with a policy that accepts.
    fn mandate(&mut self, random: &mut ChaCha12Rng) -> Mandate {
        let policy = match random.random_range(0..4) {
            0 => Some("bargain-low"),
            1 => Some("bargain-medium"),
            2 => Some("bargain-high"),
            _ => None,
        };
        self.has_delegated = policy.is_some();
        let op = if self.side == Side::Seller { Comparison::Ge } else { Comparison::Le };
        let limit = Predicate { attr: price_name(), op, value: AttrValue::Int(self.limit) };
        let by_utility = random.random_bool(0.5);
        let (at_min, at_max) = if self.side == Side::Seller { (0, PPM) } else { (PPM, 0) };
        let worth = IssueWorth { issue: price_name(), weight: WEIGHT_SUM, worth: Worth::Linear { at_min, at_max } };
        let gain = if self.side == Side::Seller { self.limit } else { PRICE_MAX - self.limit };
        // Rounded down as the exchange rounds the utility of the limit itself.
        let reservation = u32::try_from(gain * i64::from(PPM) / PRICE_MAX).unwrap_or(PPM);
        Mandate {
            policy: policy.map(str::to_owned),
            utility: Some(Utility::Linear(vec![worth])),
            reservation: if by_utility { reservation } else { 0 },
            limits: if by_utility && random.random_bool(0.5) { Vec::new() } else { vec![limit] },
            concession: [None, Some(Concession::Boulware(4)), Some(Concession::Conceder(4))][random.random_range(0..3)],
        }
    }
}

fn bargain(
    exchange: &mut InMemoryExchange,
    number: u64,
    case: usize,
    random: &mut ChaCha12Rng,
    tally: &mut FuzzCounts,
) -> Result<(), BargainSessionError> {
    let (reserve, budget) = CASES[case];
    let mut fuzzers =
        [MandateFuzzer::draw(Side::Seller, reserve, random), MandateFuzzer::draw(Side::Buyer, budget, random)];
    if random.random_bool(0.5) {
        fuzzers.reverse();
    }
    let parties: Vec<SessionParty> = fuzzers
        .iter_mut()
        .zip(["ann", "bob"])
        .map(|(fuzzer, name)| {
            let agent = AgentId::try_new(name)?;
            Ok(SessionParty { agent, mandate: Some(fuzzer.mandate(random)) })
        })
        .collect::<Result<_, BargainSessionError>>()?;
    let rounds = random.random_range(ROUNDS);
    let rules = rules(Issue { name: price_name(), values: IssueValues::Range { min: 0, max: PRICE_MAX } }, rounds);
    let mut session = BargainSession::open(exchange, &format!("haggle-{number}"), &parties, &rules)?;
    while let Some(actor) = session.actor() {
        take_turn(&mut session, actor, &fuzzers[actor], rounds, random, tally)?;
    }
    judge(&session, &fuzzers, case, tally)
}

/// One turn: forbidden acts first, when injected; the turn is still the fuzzer's after each.
fn take_turn(
    session: &mut BargainSession<'_>,
    actor: usize,
    fuzzer: &MandateFuzzer,
    rounds: u32,
    random: &mut ChaCha12Rng,
    tally: &mut FuzzCounts,
) -> Result<(), BargainSessionError> {
    let Some(turn) = session.turn().cloned() else { return Ok(()) };
    let standing = turn.standing.filter(|standing| standing.by != session.parties()[actor]);
    let standing_price = standing.as_ref().and_then(|standing| price_of(&standing.terms));
    if fuzzer.is_injected && random.random_bool(INJECTED_TRIES) {
        if let (Some(standing), Some(price)) = (&standing, standing_price)
            && !fuzzer.is_inside(price)
        {
            let answer = session.accept(actor, standing)?;
            tally.note_try(answer.receipt.disposition);
        }
        if let Some(price) = fuzzer.forbidden(random).filter(|_| session.turn().is_some()) {
            let answer = session.offer(actor, terms(price))?;
            tally.note_try(answer.receipt.disposition);
        }
    }
    if session.actor() != Some(actor) {
        return Ok(());
    }
    let asks = fuzzer.asks(turn.round, rounds);
    let is_good = |price: i64| match fuzzer.side {
        Side::Seller => price >= asks,
        Side::Buyer => price <= asks,
    };
    match (standing, standing_price) {
        (Some(standing), Some(price)) if fuzzer.is_inside(price) && is_good(price) => {
            session.accept(actor, &standing)?
        }
        _ => session.offer(actor, terms(asks))?,
    };
    Ok(())
}

fn judge(
    session: &BargainSession<'_>,
    fuzzers: &[MandateFuzzer; 2],
    case: usize,
    tally: &mut FuzzCounts,
) -> Result<(), BargainSessionError> {
    let (reserve, budget) = CASES[case];
    let [(_, closing), ..] = session.closings() else { return Err(BargainSessionError::Silent("how a bargain ended")) };
    let exists = reserve <= budget;
    tally.runs += 1;
    tally.runs_of[case] += 1;
    tally.injected += u64::from(fuzzers.iter().any(|fuzzer| fuzzer.is_injected));
    let agreed = closing.agreement.as_ref().filter(|_| closing.outcome == Outcome::Agreement);
    let Some(agreement) = agreed else {
        tally.missed += u64::from(exists);
        return Ok(());
    };
    tally.deals[case] += 1;
    tally.impossible += u64::from(!exists);
    let is_inside = price_of(&agreement.terms).is_some_and(|price| reserve <= price && price <= budget);
    tally.breaches += u64::from(!is_inside);
    let other = session.parties().iter().position(|party| *party != agreement.by);
    tally.delegated += u64::from(other.is_some_and(|other| fuzzers[other].has_delegated));
    Ok(())
}

/// Rules of bargains over one issue in so many rounds.
pub fn rules(issue: Issue, rounds: u32) -> BargainSpec {
    BargainSpec {
        issues: vec![issue],
        rounds: Some(rounds),
        deadline_ms: None,
        step_ms: 10_000,
        confirm_ms: None,
        forbid_repeat: false,
        max_strikes: 3,
    }
}

fn price_name() -> AttrName {
    AttrName::try_new("price").expect("the constant is a name")
}

fn terms(price: i64) -> Terms {
    [(price_name(), AttrValue::Int(price))].into_iter().collect()
}

fn price_of(terms: &Terms) -> Option<i64> {
    match terms.get(&price_name())? {
        AttrValue::Int(price) => Some(*price),
        AttrValue::Text(_) => None,
    }
}
