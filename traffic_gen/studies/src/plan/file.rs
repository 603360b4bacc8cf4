//! What may stand in the file of a plan. Every value knows its place.

use std::fs::{self, File};
use std::io::Read;

use serde::Deserialize;
use toml::Spanned;

/// Most bytes of a file that a plan names: a model's instructions have some thousands.
const NAMED_BYTES_MAX: u64 = 1024 * 1024;

/// A list of values, each with its place.
pub type ValueList<T> = Spanned<Vec<Spanned<T>>>;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// Letters, digits, `-` and `_`.
    pub name: Spanned<String>,
    /// What it is about.
    pub text: Spanned<String>,
    /// The first seed (1).
    pub seed: Option<Spanned<u64>>,
    /// How many seeds each cell is run with (1).
    pub seeds: Option<Spanned<u64>>,
    /// How many times faster than planned calls arrive (1).
    pub time_scale: Option<Spanned<f64>>,
    /// What is run: each is a product of its lists.
    pub grid: Spanned<Vec<Spanned<GridFile>>>,
    /// What is claimed.
    #[serde(default)]
    pub hypothesis: Vec<HypothesisFile>,
}

/// One product of lists.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridFile {
    /// Begins the names of its cells.
    pub name: Option<Spanned<String>>,
    /// `contract-net`, or `alternating` for bargains.
    pub protocol: Option<ValueList<String>>,
    /// In bargains: `all`, or strategies joined by `+`, from which each party draws its own (`all`).
    pub strategies: Option<ValueList<String>>,
    /// Domain files that bargains are about, each drawn as often (the shipped ones).
    pub domains: Option<ValueList<String>>,
    /// How many; agents that bargain.
    pub contractors: ValueList<i64>,
    /// Presets, or `first-K`; of bargains presets that accept for a party (`patient` where a population asks a model).
    pub policy: Option<ValueList<String>>,
    /// Calls per second (0.1 where a population asks a model).
    pub rate: Option<ValueList<f64>>,
    /// Shapes of loads (`poisson`).
    pub load: Option<ValueList<String>>,
    /// Such as `2m` or `12h`.
    pub duration: ValueList<String>,
    /// Overrides the plan's.
    pub seeds: Option<Spanned<u64>>,
    /// Calls made one after another before the measured ones (3).
    pub warm_up: Option<Spanned<i64>>,
    /// How long contractors have to offer (`2s`; `60s` where a population asks a model).
    pub reply_within: Option<Spanned<String>>,
    /// Requests per second that a gateway takes of one agent (2000, or what the rate needs).
    pub requests_per_s: Option<Spanned<i64>>,
    /// How contractors behave.
    #[serde(default)]
    pub contractor: ContractorFile,
    /// Those that behave otherwise.
    #[serde(default)]
    pub population: Vec<Spanned<PopulationFile>>,
}

/// Some of the contractors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopulationFile {
    /// What they are called in the report.
    pub name: Spanned<String>,
    /// How many; or
    pub count: Option<Spanned<i64>>,
    /// which share of all.
    pub share: Option<Spanned<f64>>,
    /// How they behave; what is not said is as in the grid.
    #[serde(default)]
    pub contractor: ContractorFile,
    /// The file of a model that chooses their terms instead (docs/models.md).
    pub model: Option<Spanned<String>>,
}

/// How contractors behave; chances are 0 unless given.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractorFile {
    /// From call to answer, in milliseconds (0).
    pub delay_ms: Option<Spanned<DistributionFile>>,
    /// What they would have to spend, in units (uniform, 50 to 150).
    pub cost: Option<Spanned<DistributionFile>>,
    /// What they add to it, as a share (0).
    pub markup: Option<Spanned<f64>>,
    /// Offers go out although the negotiation has closed, to be counted as late.
    pub offers_after_close: Option<bool>,
    /// Chance to say nothing.
    pub silent: Option<Spanned<f64>>,
    /// Chance to refuse.
    pub refuse: Option<Spanned<f64>>,
    /// Chance to offer after the deadline.
    pub late: Option<Spanned<f64>>,
    /// Chance to refuse an award.
    pub decline: Option<Spanned<f64>>,
    /// Chance to say nothing to an award.
    pub ignore_award: Option<Spanned<f64>>,
    /// Chance to fail behind an award.
    pub fail: Option<Spanned<f64>>,
    /// Chance to send an envelope twice, under one id.
    pub duplicate: Option<Spanned<f64>>,
    /// Chance to send a malformed envelope beside one.
    pub malformed: Option<Spanned<f64>>,
    /// Envelopes sent besides, in parts of those that others offer.
    pub rate_factor: Option<Spanned<f64>>,
}

impl GridFile {
    /// Whether contractors of it ask a language model.
    pub fn asks_model(&self) -> bool {
        self.population.iter().any(|population| population.get_ref().model.is_some())
    }

    /// What is said that bargains have no use for: the name and the place of the first such thing.
    pub fn for_contract_nets(&self) -> Option<(&'static str, std::ops::Range<usize>)> {
        let Self { load, warm_up, reply_within, population, contractor, .. } = self;
        let load = load.as_ref().map(|value| ("load", value.span()));
        let warm_up = warm_up.as_ref().map(|value| ("warm_up", value.span()));
        let reply_within = reply_within.as_ref().map(|value| ("reply_within", value.span()));
        let population = population.first().map(|value| ("population", value.span()));
        load.or(warm_up).or(reply_within).or(population).or(contractor.first())
    }
}

impl ContractorFile {
    /// The name and the place of something that is said.
    pub fn first(&self) -> Option<(&'static str, std::ops::Range<usize>)> {
        let Self { delay_ms, cost, markup, silent, refuse, late, decline, ignore_award, fail, .. } = self;
        let Self { duplicate, malformed, rate_factor, .. } = self;
        let amounts = [delay_ms, cost].into_iter().flatten().map(Spanned::span);
        let chances = [markup, silent, refuse, late, decline, ignore_award, fail, duplicate, malformed, rate_factor];
        let chances = chances.into_iter().flatten().map(Spanned::span);
        amounts.chain(chances).next().map(|place| ("contractor", place))
    }

    /// This, with what it does not say from another.
    pub fn over(self, other: Self) -> Self {
        Self {
            delay_ms: self.delay_ms.or(other.delay_ms),
            cost: self.cost.or(other.cost),
            markup: self.markup.or(other.markup),
            offers_after_close: self.offers_after_close.or(other.offers_after_close),
            silent: self.silent.or(other.silent),
            refuse: self.refuse.or(other.refuse),
            late: self.late.or(other.late),
            decline: self.decline.or(other.decline),
            ignore_award: self.ignore_award.or(other.ignore_award),
            fail: self.fail.or(other.fail),
            duplicate: self.duplicate.or(other.duplicate),
            malformed: self.malformed.or(other.malformed),
            rate_factor: self.rate_factor.or(other.rate_factor),
        }
    }
}

/// The text of a file that a plan names.
///
/// # Errors
/// Why it is not read.
pub fn read_text(path: &str) -> Result<String, String> {
    let is_file = fs::metadata(path).map_err(|error| error.to_string())?.is_file();
    // A pipe would be waited for.
    if !is_file {
        return Err("it is no file".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(NAMED_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > NAMED_BYTES_MAX {
        return Err(format!("it is longer than {NAMED_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// A distribution.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DistributionFile {
    /// Always the same.
    Fixed(f64),
    /// Equally often between both.
    Uniform {
        /// Smallest.
        lo: f64,
        /// Largest.
        hi: f64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean: f64,
    },
}

/// A claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HypothesisFile {
    /// In words.
    pub text: Spanned<String>,
    /// `H1` to `H7`, or a figure with its bound, such as `decision_p95_ms <= 11`.
    pub test: Spanned<String>,
}
