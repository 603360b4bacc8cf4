//! What a cell leaves: `cells/<id>/rounds.jsonl` with one [`RoundRecord`] per line, and `cells/<id>/cell.json` with the
//! [`CellRecord`], written last: a cell without it is run again.
//!
//! Times are microseconds from the start of the cell, by one monotonic clock. Latencies are taken from `intended_us`, so
//! that a generator which falls behind makes them longer instead of hiding them (coordinated omission).

use std::collections::BTreeMap;

use schemas::NegotiationId;
use serde::{Deserialize, Serialize};
use traffic_gen::bargain::Played;
use traffic_gen::bargain::analysis::{BySolution, Plane, Solutions};
use traffic_gen::bargain::figures::BargainValue;
use traffic_gen::models::ModelSummary;

/// The label of cells that are measured without a warm-up.
pub const WARM_UP: &str = "warm_up";

/// What was asked of a cell, and how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellRecord {
    /// Name of its folder; unique in the experiment.
    pub id: String,
    /// `contract-net` or `alternating`.
    pub protocol: String,
    /// Contractors.
    pub contractors: u32,
    /// Acceptance policy, such as `high@1`.
    pub policy: String,
    /// Calls per second that were offered, before time was scaled.
    pub rate: f64,
    /// How long calls arrived, in seconds, before time was scaled.
    pub duration_s: f64,
    /// How many times faster than planned the calls arrived.
    pub time_scale: f64,
    /// Seed of arrivals and contractors.
    pub seed: u64,
    /// `memory` or `nats`.
    pub bus: String,
    /// `scripted`, `stub` or `live`: who decided.
    pub deciders: String,
    /// What is true of every round and is no column of its own, such as the distribution of delays.
    pub labels: BTreeMap<String, String>,
    /// Who behaved alike, where not all did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub populations: Vec<PopulationRecord>,
    /// Lines of `rounds.jsonl`.
    pub rounds: u64,
    /// From the first intended call to the last end, in seconds.
    pub elapsed_s: f64,
    /// Violations of invariants, by name.
    pub violations: BTreeMap<String, u64>,
    /// Whether it was asked to end before its time.
    pub is_interrupted: bool,
    /// What its model did, where one decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRecord>,
}

/// What a model was asked in a cell, and what that came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// Calls made to it.
    pub calls: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens answered.
    pub output_tokens: u64,
    /// What they cost.
    pub cost_micro_units: u64,
    /// Rounds that it decided; bargains that it took part in.
    pub decisions: u64,
    /// Decisions made without it.
    pub fallbacks: u64,
    /// Rounds that were completed, or agreed.
    pub agreements: u64,
    /// In bargains: sum of what its party had over its reservation value.
    pub advantage: f64,
    /// The same of the strategy it replaces, in the same bargains.
    pub scripted_advantage: f64,
}

/// Contractors that behaved alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopulationRecord {
    /// Their name.
    pub name: String,
    /// Their ids.
    pub contractors: Vec<String>,
    /// What they sent besides the messages of their scripts, by kind, in the warm-up too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub misconduct: BTreeMap<String, MisconductRecord>,
    /// What the model was asked that chose their terms, in the warm-up too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSummary>,
}

/// What came of envelopes that should not have been sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MisconductRecord {
    /// Envelopes.
    pub sent: u64,
    /// What gateways answered: `accepted`, the code of a refusal, or `unanswered`.
    pub answers: BTreeMap<String, u64>,
    /// What the exchange made of those that were accepted, as far as it said so: a bare `ok` may never be told.
    pub dispositions: BTreeMap<String, u64>,
}

impl MisconductRecord {
    /// Adds what came of others of the same kind.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        add_counts(&mut self.answers, &other.answers);
        add_counts(&mut self.dispositions, &other.dispositions);
    }
}

/// Adds counts by name to others.
pub fn add_counts(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, count) in more {
        *sum.entry(name.clone()).or_default() += count;
    }
}

/// Counts by name in words; nothing where there are none.
pub fn counts_told(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// One negotiation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRecord {
    /// Number in the cell, by intended time, from 0.
    pub round: u64,
    /// Its id in the exchange; absent where the call was refused.
    pub negotiation: Option<String>,
    /// When the call was due.
    pub intended_us: u64,
    /// When it was handed to a gateway.
    pub sent_us: u64,
    /// When a gateway said that it is stored.
    pub stored_us: Option<u64>,
    /// Whether it belongs to the warm-up.
    pub is_warm_up: bool,
    /// Contractors invited.
    pub invited: u32,
    /// When its initiator knew the award, or that there is none.
    pub decided_us: Option<u64>,
    /// When its initiator knew that the award binds.
    pub confirmed_us: Option<u64>,
    /// When its initiator knew the end.
    pub ended_us: Option<u64>,
    /// How it ended, such as `completed`.
    pub outcome: Option<String>,
    /// Why the call was refused.
    pub refusal: Option<String>,
    /// Every offer a contractor made, in the order of [`BidRecord::sent_us`].
    pub offers: Vec<BidRecord>,
    /// Every award in its order; more than one where the first did not bind.
    pub awards: Vec<AwardRecord>,
    /// Refusals by contractor: of the call, and of awards.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refusals: BTreeMap<String, u64>,
    /// What agents sent, by act.
    pub sent: BTreeMap<String, MessageCount>,
    /// What agents were sent, by act.
    pub delivered: BTreeMap<String, MessageCount>,
    /// Messages sent again.
    pub retries: u64,
    /// Deliveries that came again.
    pub duplicates: u64,
    /// Dispositions other than `ok`, by name.
    pub dispositions: BTreeMap<String, u64>,
    /// What a bargain came to, where the round is one; its offers' costs mean nothing then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bargain: Option<BargainRecord>,
}

/// What a bargain came to, by what outcomes are worth to its parties.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BargainRecord {
    /// Name of the domain.
    pub domain: String,
    /// The round it ended in, from 1.
    pub rounds: u32,
    /// Turns taken.
    pub steps: u32,
    /// Relative time at the end, 0 to 1.
    pub relative_time: f64,
    /// By party, in the order of turns: utility of the agreement; the reservation value where there was none.
    pub utilities: Vec<f64>,
    /// The same less the reservation value.
    pub advantages: Vec<f64>,
    /// What only an agreement has.
    pub agreement: Option<AgreementRecord>,
}

/// What an agreement is worth. What nothing can be said of is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgreementRecord {
    /// Sum of the utilities.
    pub welfare: f64,
    /// 1 less its distance to the Pareto frontier, in parts of the greatest distance there could be.
    pub pareto: Option<f64>,
    /// The same to the Nash point,
    pub nash: Option<f64>,
    /// to the Kalai point,
    pub kalai: Option<f64>,
    /// and to the Kalai-Smorodinsky point.
    pub kalai_smorodinsky: Option<f64>,
    /// Its welfare in parts of the greatest.
    pub max_welfare: Option<f64>,
    /// What the first party's first offer is worth to it.
    pub first_offer: Option<f64>,
    /// Whether a party may not make it, or has less than its reservation value.
    pub is_irrational: bool,
}

impl BargainRecord {
    /// Of a bargain over a domain with these outcomes.
    pub fn of(domain: &str, (plane, solutions): (&Plane, &Solutions), played: &Played) -> Self {
        let BargainValue { utilities, advantages, agreement } = BargainValue::of(plane, solutions, played);
        let agreement = agreement.map(|value| {
            let BySolution { pareto, nash, kalai, kalai_smorodinsky, max_welfare } = value.optimality;
            let (welfare, first_offer, is_irrational) = (value.welfare, value.first_offer, !value.is_rational);
            AgreementRecord { welfare, pareto, nash, kalai, kalai_smorodinsky, max_welfare, first_offer, is_irrational }
        });
        let Played { rounds, steps, relative_time, .. } = *played;
        Self { domain: domain.to_owned(), rounds, steps, relative_time, utilities, advantages, agreement }
    }
}

impl RoundRecord {
    /// A round of which nothing is known but the call, due at `intended_us` and handed to a gateway then.
    pub fn of_call(round: u64, negotiation: &NegotiationId, intended_us: u64) -> Self {
        Self { round, negotiation: Some(negotiation.to_string()), intended_us, sent_us: intended_us, ..Self::default() }
    }
}

/// One offer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BidRecord {
    /// Contractor.
    pub from: String,
    /// Position in the list of offers that the initiator was shown, from 0, where it decides by itself.
    pub position: Option<u32>,
    /// Cost asked for; the lowest is the best. Terms without a price have [`f64::MAX`], `null` in the file.
    #[serde(with = "cost")]
    pub cost: f64,
    /// The cost it has itself, where its script says so.
    pub own_cost: Option<f64>,
    /// How long its script waited, in microseconds.
    pub delay_us: Option<u64>,
    /// When it was handed to a gateway.
    pub sent_us: u64,
    /// When a gateway said that it is stored.
    pub stored_us: Option<u64>,
    /// What the exchange made of it: `ok`, `late`, `out_of_turn`, ..., or the code of a gateway's refusal.
    pub disposition: String,
    /// Whether its terms hold words that are meant as instructions.
    #[serde(default)]
    pub is_injection: bool,
}

mod cost {
    //! A cost, or `null` where terms name none.

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(cost: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        (*cost < f64::MAX).then_some(*cost).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::MAX))
    }
}

/// One award.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwardRecord {
    /// Contractor.
    pub to: String,
    /// When the initiator knew it.
    pub at_us: u64,
    /// Whether the contractor confirmed it.
    pub is_bound: bool,
}

/// Messages and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageCount {
    /// Distinct messages.
    pub messages: u64,
    /// Bytes of their documents.
    pub bytes: u64,
}
