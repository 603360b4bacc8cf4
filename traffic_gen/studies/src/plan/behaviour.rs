//! How contractors behave, from what a plan says of them.

use agents::ContractorConfig;
use agents::contractor::Distribution;
use schemas::ids::AttrName;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::fault::FaultList;
use super::file::{ContractorFile, DistributionFile};

/// Most units of cost, and milliseconds of delay.
const AMOUNT_MAX: f64 = 1e9;
/// Micro-units of one unit.
const MICROS: f64 = 1e6;
/// What they would have to spend unless said otherwise, in units.
const COST_DEFAULT: DistributionFile = DistributionFile::Uniform { lo: 50.0, hi: 150.0 };

/// Largest `rate_factor`: envelopes of a flooding contractor for each that a well-behaved one sends.
const RATE_FACTOR_MAX: f64 = 10_000.0;

/// What contractors send besides the messages of their scripts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Misconduct {
    /// Chance that an envelope is sent twice, under one id.
    pub duplicate: f64,
    /// Chance that a malformed envelope is sent beside one.
    pub malformed: f64,
    /// Envelopes sent besides, for each offer that one who behaves is asked for.
    pub rate_factor: f64,
}

impl Misconduct {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// How contractors behave.
#[derive(Debug, Clone, PartialEq)]
pub struct Behaviour {
    /// What each of them does.
    pub contractor: ContractorConfig,
    /// What they send besides.
    pub misconduct: Misconduct,
    /// What they add to their own cost, as a share of it.
    pub markup: f64,
    /// The distribution of delays, in words.
    pub delay: String,
    /// The distribution of costs, in words.
    pub cost: String,
    /// What goes wrong, and how often, in words.
    pub wrongs: Vec<String>,
}

impl Behaviour {
    /// Reads what a file says. Every fault of it is noted; what is read in spite of one is of no use.
    pub fn read(file: &ContractorFile, faults: &mut FaultList<'_>) -> Self {
        let markup = file.markup.as_ref().map_or(0.0, |markup| {
            let is_fine = (0.0..=10.0).contains(markup.get_ref());
            faults.check("markup", markup, is_fine, "give a share of the cost, 0 to 10");
            *markup.get_ref()
        });
        let mut given = |name: &str, value: &Option<Spanned<DistributionFile>>, default| match value {
            Some(value) => {
                check(name, value, faults);
                *value.get_ref()
            }
            None => default,
        };
        let delay = given("delay_ms", &file.delay_ms, DistributionFile::Fixed(0.0));
        let cost = given("cost", &file.cost, COST_DEFAULT);
        let mut contractor = ContractorConfig {
            offers_after_close: file.offers_after_close.unwrap_or_default(),
            reply_delay_ms: scaled(delay, 1.0),
            ..ContractorConfig::default()
        };
        // Equal delivery times: the lowest cost is the best offer under every preset.
        let price = scaled(cost, MICROS * (1.0 + markup));
        contractor.terms = [("price", price), ("delivery_ms", Distribution::Constant(1_000))]
            .into_iter()
            .filter_map(|(name, values)| AttrName::try_new(name).ok().map(|name| (name, values)))
            .collect();
        let mut misconduct = Misconduct::default();
        let mut wrongs = Vec::new();
        for (name, given, chance) in [
            ("silent", &file.silent, &mut contractor.silent),
            ("refuse", &file.refuse, &mut contractor.refuse),
            ("late", &file.late, &mut contractor.late),
            ("decline", &file.decline, &mut contractor.decline),
            ("ignore_award", &file.ignore_award, &mut contractor.ignore_award),
            ("fail", &file.fail, &mut contractor.fail),
            ("duplicate", &file.duplicate, &mut misconduct.duplicate),
            ("malformed", &file.malformed, &mut misconduct.malformed),
        ] {
            let Some(given) = given else { continue };
            faults.check(name, given, (0.0..=1.0).contains(given.get_ref()), "give a chance, 0 to 1");
            *chance = *given.get_ref();
            wrongs.push(format!("{name} {}", given.get_ref()));
        }
        if let Some(factor) = &file.rate_factor {
            misconduct.rate_factor = *factor.get_ref();
            let is_fine = (0.0..=RATE_FACTOR_MAX).contains(&misconduct.rate_factor);
            let remedy = format!("give how many times the rate of others, 0 to {RATE_FACTOR_MAX}");
            faults.check("rate_factor", factor, is_fine, remedy);
            wrongs.push(format!("rate_factor {}", misconduct.rate_factor));
        }
        Self { contractor, misconduct, markup, delay: shown(delay), cost: shown(cost), wrongs }
    }

    /// What sets it apart from another, in words.
    pub fn beside(&self, other: &Self) -> String {
        let mut words = Vec::new();
        for (name, own, other) in [("delay_ms", &self.delay, &other.delay), ("cost", &self.cost, &other.cost)] {
            if own != other {
                words.push(format!("{name} {own}"));
            }
        }
        if self.markup != other.markup {
            words.push(format!("markup {}", self.markup));
        }
        words.extend(self.wrongs.iter().filter(|wrong| !other.wrongs.contains(wrong)).cloned());
        if words.is_empty() { "as the others".to_owned() } else { words.join(", ") }
    }
}

fn check(name: &str, given: &Spanned<DistributionFile>, faults: &mut FaultList<'_>) {
    let is_amount = |amount: f64| (0.0..=AMOUNT_MAX).contains(&amount);
    let is_fine = match *given.get_ref() {
        DistributionFile::Fixed(value) => is_amount(value),
        DistributionFile::Uniform { lo, hi } => is_amount(lo) && is_amount(hi) && lo <= hi,
        DistributionFile::Exponential { mean } => is_amount(mean) && mean > 0.0,
    };
    if !is_fine {
        let found = format!("{name} `{}` cannot be", shown(*given.get_ref()));
        faults.add(&given.span(), found, "give amounts from 0 to 1000000000, lo not above hi, a mean above 0");
    }
}

fn scaled(file: DistributionFile, factor: f64) -> Distribution {
    let scaled = |amount: f64| (amount * factor).round() as i64;
    match file {
        DistributionFile::Fixed(value) => Distribution::Constant(scaled(value)),
        DistributionFile::Uniform { lo, hi } => Distribution::Uniform { lo: scaled(lo), hi: scaled(hi) },
        DistributionFile::Exponential { mean } => Distribution::Exponential { mean: mean * factor },
    }
}

fn shown(file: DistributionFile) -> String {
    match file {
        DistributionFile::Fixed(value) => format!("fixed {value}"),
        DistributionFile::Uniform { lo, hi } => format!("uniform {lo} {hi}"),
        DistributionFile::Exponential { mean } => format!("exponential {mean}"),
    }
}
