//! `llmx-lab tournament`: bargaining strategies, every ordered pair of them on every domain, ranked by utility.
//!
//! Bargains are folded by the core itself, the code that engines run. Competitors that draw do so from the seed, which is the
//! same for every pair: the same seeds give the same files, unless a live model plays, or a negotiator of NegMAS looks at a clock or
//! at numbers of its own.
//!
//! | module | question it answers |
//! |---|---|
//! | [`competitor`] | who plays? |
//! | [`negmas`] | what does a negotiator of NegMAS do in its turn? |
//! | [`generated`] | which domain follows from a seed? |
//! | [`ranking`] | who comes first, and how sure is that? |
//! | [`report`] | what is told of a folder? |

pub mod competitor;
pub mod generated;
pub mod negmas;
pub mod ranking;
pub mod report;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agents::bargain::{Domain, StrategyKind};
use schemas::{Digest, NegotiationId};
use scripted::bargain::in_memory::InMemoryExchange;
use scripted::bargain::run::run as play;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use traffic_gen::bargain::matchup::Matchup;

use self::competitor::{Competitor, Seat};
use crate::record::BargainRecord;
use crate::run::files::replace_all;
use crate::study::{self, StudyError};

/// The document of a domain, in the folder of its cell.
const DOMAIN: &str = "domain.json";
/// What was bargained over it, beside that.
const BARGAINS: &str = "bargains.jsonl";

/// What is played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TournamentPlan {
    /// Names of the competitors.
    pub competitors: Vec<String>,
    /// What each is made of: a strategy, a class and its version, the digest of a file.
    pub made_of: Vec<String>,
    /// Names of the domains.
    pub domains: Vec<String>,
    /// Digests of their documents.
    pub documents: Vec<Digest>,
    /// The first seed.
    pub seed: u64,
    /// Seeds that each pair plays each domain with.
    pub seeds: u64,
}

impl TournamentPlan {
    /// These competitors over these domains.
    pub fn new(competitors: &[Competitor], domains: &[TournamentDomain], (seed, seeds): (u64, u64)) -> Self {
        Self {
            competitors: competitors.iter().map(|competitor| competitor.name.clone()).collect(),
            made_of: competitors.iter().map(|competitor| competitor.made_of.clone()).collect(),
            domains: domains.iter().map(|domain| domain.name().to_owned()).collect(),
            documents: domains.iter().map(|domain| Digest::of_bytes(domain.text.as_bytes())).collect(),
            seed,
            seeds,
        }
    }

    /// Seed and competitors of each bargain over one domain, in their order.
    pub fn bargains(&self) -> impl Iterator<Item = (u64, &String, &String)> {
        let pairs = move |seed| {
            let with = move |first| self.competitors.iter().map(move |second| (seed, first, second));
            self.competitors.iter().flat_map(with)
        };
        study::seeds(self.seed, self.seeds).flat_map(pairs)
    }

    /// Bargains over one domain.
    pub fn bargains_per_domain(&self) -> u64 {
        (self.competitors.len() as u64).pow(2).saturating_mul(self.seeds)
    }
}

/// One bargain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TournamentRecord {
    /// Seed of what was drawn.
    pub seed: u64,
    /// Who called, and had the first turn.
    pub first: String,
    /// Who was called.
    pub second: String,
    /// How it ended: `agreement`, `no_agreement`, `ended`, `stopped`.
    pub end: String,
    /// The number of the outcome agreed on.
    pub outcome: Option<usize>,
    /// Turns in which a competitor failed: a negotiator raised an error and left, a model gave no answer of use.
    pub failed_turns: u64,
    /// What it came to.
    pub bargain: BargainRecord,
}

/// A domain of two parties, bounded by rounds.
#[derive(Debug)]
pub struct TournamentDomain {
    text: String,
    document: Value,
    matchup: Matchup,
}

impl TournamentDomain {
    /// Reads a domain file.
    ///
    /// # Errors
    /// Why it cannot be played.
    pub fn read(text: &str) -> Result<Self, String> {
        let domain = Domain::parse(text).map_err(|fault| fault.to_string())?;
        if domain.parties.len() != 2 {
            return Err(format!("/parties: {} has {}; a tournament takes two", domain.name, domain.parties.len()));
        }
        if domain.bargain().rounds.is_none() {
            return Err(format!("/rules/rounds: {} has none; a tournament has no clock", domain.name));
        }
        let document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        // Competitors play, not what a matchup is made with.
        let matchup = Matchup::try_new(domain, &[StrategyKind::Boulware; 2]).map_err(|fault| fault.to_string())?;
        Ok(Self { text: text.to_owned(), document, matchup })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.matchup.domain().name
    }

    /// Its rounds.
    pub fn rounds(&self) -> u32 {
        self.matchup.rules().rounds.unwrap_or(0)
    }
}

/// Plays what a folder does not hold yet, domain by domain, and keeps each in a cell of its own. `go_on` is told the bargains
/// played and may break off: the domain being played is left out then. Returns whether all were played.
///
/// # Errors
/// [`StudyError`]; domains that are complete stay so.
pub fn run(
    plan: &TournamentPlan,
    domains: &[TournamentDomain],
    competitors: &[Competitor],
    folder: &Path,
    go_on: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<bool, StudyError> {
    let _held = study::claim(folder, plan)?;
    for (place, domain) in domains.iter().enumerate() {
        let cell = study::cell_folder(folder, &cell(place))?;
        let done = place as u64 * plan.bargains_per_domain();
        if cell.join(BARGAINS).exists() && cell.join(DOMAIN).exists() {
            continue;
        }
        let Some(records) = play_domain(plan, (place, domain), competitors, &|played| go_on(done + played))? else {
            return Ok(false);
        };
        replace_all(&[(cell.join(DOMAIN), domain.text.clone())])?;
        study::write_lines(&cell.join(BARGAINS), &records)?;
    }
    Ok(true)
}

/// The cell of a domain, by its place in the plan from 0. Its name may be anything.
fn cell(place: usize) -> String {
    format!("domain-{}", place + 1)
}

/// Every ordered pair with every seed; `None` where it is broken off.
fn play_domain(
    plan: &TournamentPlan,
    (place, domain): (usize, &TournamentDomain),
    competitors: &[Competitor],
    go_on: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<Option<Vec<TournamentRecord>>, StudyError> {
    let mut records = Vec::new();
    for seed in study::seeds(plan.seed, plan.seeds) {
        let mut exchange = InMemoryExchange::default();
        for first in competitors {
            for second in competitors {
                if go_on(records.len() as u64).is_break() {
                    return Ok(None);
                }
                // Another one for each bargain: models are limited by negotiation.
                let own_id = format!("{}-bargain-{}", cell(place), records.len());
                let played = play_bargain(&mut exchange, &own_id, (place, domain), [first, second], seed);
                records.push(played.map_err(|reason| {
                    let pair = format!("{} and {} over {}, seed {seed}", first.name, second.name, domain.name());
                    StudyError::unplayed("a bargain cannot be played", format!("{pair}: {reason}"))
                })?);
            }
        }
    }
    Ok(Some(records))
}

fn play_bargain(
    exchange: &mut InMemoryExchange,
    own_id: &str,
    (place, domain): (usize, &TournamentDomain),
    pair: [&Competitor; 2],
    seed: u64,
) -> Result<TournamentRecord, String> {
    let matchup = &domain.matchup;
    let negotiation = NegotiationId::form(&matchup.parties()[0].agent, own_id).map_err(|error| error.to_string())?;
    let failed_turns = Arc::new(AtomicU64::new(0));
    let seat = |party| {
        let seed = seed.wrapping_add(party as u64);
        Seat { place, matchup, party, negotiation: &negotiation, seed, failed_turns: &failed_turns }
    };
    let mut strategies = vec![pair[0].strategy(&seat(0)), pair[1].strategy(&seat(1))];
    let space = &matchup.domain().space;
    let played = play(exchange, own_id, matchup.parties(), matchup.rules(), space, &mut strategies)
        .map_err(|error| error.to_string())?;
    if let Some(fault) = pair.iter().find_map(|competitor| competitor.fault()) {
        return Err(fault);
    }
    let (failed_turns, outcome) = (failed_turns.load(Ordering::Relaxed), played.agreement());
    let [first, second] = pair.map(|competitor| competitor.name.clone());
    let end = <&str>::from(&played.end).to_owned();
    let bargain = BargainRecord::of(domain.name(), (matchup.plane(), matchup.solutions()), &played);
    Ok(TournamentRecord { seed, first, second, end, outcome, failed_turns, bargain })
}
