//! What is bargained about: a file that yields both the call and each party's mandate.
//!
//! A domain file is one JSON object. Unknown members are refused, and so is whatever does not fit; the error names the place.
//!
//! ```
//! use agents::bargain::Domain;
//!
//! let domain = Domain::parse(r#"{
//!     "name": "bicycle",
//!     "description": "A used bicycle: its price, and who fetches it.",
//!     "issues": [
//!         {"name": "price", "min": 100, "max": 200},
//!         {"name": "fetched_by", "values": ["seller", "buyer"]}
//!     ],
//!     "parties": [
//!         {
//!             "name": "seller",
//!             "utility": {"linear": [
//!                 {"issue": "price", "weight": 800, "at_min": 0, "at_max": 1000000},
//!                 {"issue": "fetched_by", "weight": 200, "worth": [0, 1000000]}
//!             ]},
//!             "reservation": 160000,
//!             "limits": [{"attr": "price", "op": "ge", "value": 120}]
//!         },
//!         {
//!             "name": "buyer",
//!             "utility": {"linear_real": [
//!                 {"issue": "price", "weight": 0.75, "at_min": 1, "at_max": 0},
//!                 {"issue": "fetched_by", "weight": 0.25, "worth": [1, 0.1]}
//!             ]},
//!             "reservation": 0.35
//!         }
//!     ],
//!     "rules": {"rounds": 20, "step_ms": 5000}
//! }"#)?;
//! assert_eq!(domain.space.len(), 202);
//! assert_eq!(domain.bargain().rounds, Some(20));
//! assert_eq!(domain.mandate(1)?.reservation, 350_000);
//! // Dear, and to be fetched: worth 0.025 to the buyer.
//! assert_eq!(domain.preferences(1)?.utility(201), 0.025);
//! # Ok::<(), agents::bargain::DocumentFault>(())
//! ```
//!
//! | member | meaning |
//! |---|---|
//! | `name` | text of 1 to 64 characters |
//! | `description` | text, for people (optional) |
//! | `issues` | as in a call to a bargain: `name`, and `values` (integers or texts) or `min` and `max` |
//! | `parties` | 2 to 64, in the order of their turns; the first calls the others |
//! | `rules` | [`BargainRules`]; the exchange's defaults, and 100 rounds where neither rounds nor time is bounded (optional) |
//!
//! A party:
//!
//! | member | meaning |
//! |---|---|
//! | `name` | as agents are named; another for each party |
//! | `utility` | one of `linear`, `table` (parts per million, as in a mandate), `linear_real`, `table_real` (0 to 1) |
//! | `reservation` | what no agreement is worth, on the scale of `utility` (optional: 0) |
//! | `limits` | predicates on issues that every agreement must keep: `attr`, `op`, `value` (optional) |
//! | `policy` | the policy that accepts for the party (optional) |
//! | `concession` | how the party concedes, for such a policy (optional) |
//!
//! `linear` lists `issue`, `weight` (they add up to 1000) and `worth` (one for each value) or, of a range, `at_min` and
//! `at_max`; `linear_real` the same with weights that add up to 1 and worths from 0 to 1. `table` and `table_real` list one
//! utility per outcome, row-major: the last issue runs fastest.

mod file;

use std::sync::Arc;

use schemas::AgentId;
use schemas::bargain::mandate::holds;
use schemas::bargain::{
    BargainSpec, CONCESSION_MAX, Concession, Issue, IssueValues, Mandate, PARTIES_MAX, PREDICATES_MAX, Predicate,
    ROUNDS_MAX,
};
use schemas::ids::AttrName;
use schemas::payload::AttrValue;
use schemas::policy::{STRIKES_MAX, TIMER_MS_MAX};
use serde::{Deserialize, Serialize};

use super::DocumentFault;
use super::space::Space;
use super::utility::{Preferences, Utility, ppm};
use crate::fault::check_ranges;

/// Longest name of a domain, in characters.
pub const NAME_LEN_MAX: usize = 64;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub description: Option<String>,
    /// The outcomes.
    pub space: Space,
    /// The parties, in the order of their turns.
    pub parties: Vec<PartyProfile>,
    /// The rules, as far as they are not the outcome space.
    pub rules: BargainRules,
}

/// One party of a domain.
#[derive(Debug, Clone, PartialEq)]
pub struct PartyProfile {
    /// Its name.
    pub name: AgentId,
    /// What outcomes are worth to it.
    pub utility: Utility,
    /// What no agreement is worth, 0 to 1.
    pub reservation: f64,
    /// Hard limits: what breaks one is never agreed to.
    pub limits: Vec<Predicate>,
    /// The policy that accepts for it.
    pub policy: Option<String>,
    /// How it concedes, for such a policy.
    pub concession: Option<Concession>,
}

impl Domain {
    /// Reads a domain file.
    ///
    /// # Errors
    /// The first [`DocumentFault`].
    pub fn parse(json: &str) -> Result<Self, DocumentFault> {
        file::parse(json)
    }

    /// Puts a domain together and checks it.
    ///
    /// # Errors
    /// The first [`DocumentFault`], where the file would have it.
    pub fn try_new(
        name: impl Into<String>,
        space: Space,
        parties: Vec<PartyProfile>,
        rules: BargainRules,
    ) -> Result<Self, DocumentFault> {
        let domain = Self { name: name.into(), description: None, space, parties, rules };
        domain.check()?;
        Ok(domain)
    }

    /// A domain without meaning, as research uses them: issues of so many values each, and for every party one utility per
    /// outcome and a reservation value, 0 to 1. Parties are named `p0`, `p1`, …; issues `i0`, `i1`, …, with values from 0.
    ///
    /// # Errors
    /// The first [`DocumentFault`], where a file would have it.
    pub fn tabular(
        name: impl Into<String>,
        sizes: &[usize],
        tables: Vec<(Vec<f64>, f64)>,
        rules: BargainRules,
    ) -> Result<Self, DocumentFault> {
        let named = |letter: char, index: usize| format!("{letter}{index}");
        let issue = |(index, &size): (usize, &usize)| Issue {
            name: AttrName::try_new(&named('i', index)).expect("a letter and a number are a name"),
            values: IssueValues::Discrete { values: (0..).take(size).map(AttrValue::Int).collect() },
        };
        let party = |(index, (table, reservation)): (usize, (Vec<f64>, f64))| PartyProfile {
            name: AgentId::try_new(&named('p', index)).expect("a letter and a number are a name"),
            utility: Utility::Table(table),
            reservation,
            limits: Vec::new(),
            policy: None,
            concession: None,
        };
        let space = Space::try_new(sizes.iter().enumerate().map(issue).collect())?;
        Self::try_new(name, space, tables.into_iter().enumerate().map(party).collect(), rules)
    }

    /// What the call says: rules and outcome space.
    #[must_use]
    pub fn bargain(&self) -> BargainSpec {
        self.rules.bargain(self.space.issues().to_vec())
    }

    /// What a party wants; parties are counted from 0.
    ///
    /// # Errors
    /// A [`DocumentFault`] when there is no such party.
    pub fn preferences(&self, party: usize) -> Result<Arc<Preferences>, DocumentFault> {
        self.party(party)?.preferences(&self.space).map(Arc::new)
    }

    /// A party's sealed mandate.
    ///
    /// # Errors
    /// A [`DocumentFault`] when there is no such party, or mandates have no words for its utility.
    pub fn mandate(&self, party: usize) -> Result<Mandate, DocumentFault> {
        self.party(party)?.to_mandate(&self.space).map_err(|fault| fault.under(&format!("/parties/{party}")))
    }

    fn party(&self, party: usize) -> Result<&PartyProfile, DocumentFault> {
        let missing = || {
            DocumentFault::at("/parties", format!("there are {} parties, none of number {party}", self.parties.len()))
        };
        self.parties.get(party).ok_or_else(missing)
    }

    /// Names and values are printed as they are: what steers a terminal has no place in them.
    fn check_printable(&self) -> Result<(), DocumentFault> {
        let is_plain = |text: &str| !text.chars().any(char::is_control);
        let refused = |pointer: String| DocumentFault::at(pointer, "has control characters");
        if !is_plain(&self.name) {
            return Err(refused("/name".to_owned()));
        }
        for (number, issue) in self.space.issues().iter().enumerate() {
            let IssueValues::Discrete { values } = &issue.values else { continue };
            let broken = values.iter().position(|value| matches!(value, AttrValue::Text(text) if !is_plain(text)));
            if let Some(place) = broken {
                return Err(refused(format!("/issues/{number}/values/{place}")));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), DocumentFault> {
        if !(1..=NAME_LEN_MAX).contains(&self.name.chars().count()) {
            return Err(DocumentFault::at("/name", format!("1 to {NAME_LEN_MAX} characters")));
        }
        self.check_printable()?;
        if !(2..=PARTIES_MAX).contains(&self.parties.len()) {
            return Err(DocumentFault::at("/parties", format!("2 to {PARTIES_MAX} parties bargain")));
        }
        for (index, party) in self.parties.iter().enumerate() {
            let pointer = format!("/parties/{index}");
            if self.parties[..index].iter().any(|earlier| earlier.name == party.name) {
                return Err(DocumentFault::at(pointer + "/name", format!("another party is named `{}`", party.name)));
            }
            party.check(&self.space).map_err(|fault| fault.under(&pointer))?;
        }
        self.rules.check().map_err(|fault| fault.under("/rules"))
    }
}

impl PartyProfile {
    /// What it wants.
    ///
    /// # Errors
    /// A [`DocumentFault`] when its utility is not one over the space.
    pub fn preferences(&self, space: &Space) -> Result<Preferences, DocumentFault> {
        let keeps_limits = |outcome: usize| {
            let terms = space.terms(outcome).unwrap_or_default();
            self.limits.iter().all(|limit| holds(limit, terms.get(&limit.attr)))
        };
        let utilities = self.utility.evaluate(space);
        Preferences::try_new(utilities, self.reservation, |outcome| self.limits.is_empty() || keeps_limits(outcome))
    }

    /// Its sealed mandate: utility and reservation value in parts per million, rounded down. What the party may agree to is
    /// never outside.
    ///
    /// # Errors
    /// A [`DocumentFault`] where mandates have no words for the utility; see [`Utility::to_ppm`].
    pub fn to_mandate(&self, space: &Space) -> Result<Mandate, DocumentFault> {
        let utility = self.utility.to_ppm(space).map_err(|fault| fault.under("/utility"))?;
        Ok(Mandate {
            policy: self.policy.clone(),
            utility: Some(utility),
            reservation: ppm(self.reservation),
            limits: self.limits.clone(),
            concession: self.concession,
        })
    }

    fn check(&self, space: &Space) -> Result<(), DocumentFault> {
        self.utility.check(space).map_err(|fault| fault.under("/utility"))?;
        if !(0.0..=1.0).contains(&self.reservation) {
            return Err(DocumentFault::at("/reservation", "on the scale of the utility: 0 to its largest value"));
        }
        check_limits(&self.limits, space).map_err(|fault| fault.under("/limits"))?;
        check_concession(self.concession).map_err(|fault| fault.under("/concession"))
    }
}

/// Rounds where neither rounds nor time is bounded: enough for every strategy here to concede in steps that show.
const ROUNDS_UNSAID: u32 = 100;

/// Whether there are few enough, each on an issue.
fn check_limits(limits: &[Predicate], space: &Space) -> Result<(), DocumentFault> {
    if limits.len() > PREDICATES_MAX {
        return Err(DocumentFault::at("", format!("at most {PREDICATES_MAX} limits")));
    }
    for (index, limit) in limits.iter().enumerate() {
        if !space.issues().iter().any(|issue| issue.name == limit.attr) {
            return Err(DocumentFault::at(format!("/{index}/attr"), format!("there is no issue `{}`", limit.attr)));
        }
    }
    Ok(())
}

/// The rules of a bargain without its outcome space; see [`BargainSpec`] for units and ranges.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BargainRules {
    /// Rounds. Absent together with `deadline_ms`: 100.
    pub rounds: Option<u32>,
    /// Milliseconds from the first turn.
    pub deadline_ms: Option<u64>,
    /// Milliseconds one turn may take.
    pub step_ms: u64,
    /// Milliseconds the parties may take to confirm an agreement; absent: it needs no confirmation.
    pub confirm_ms: Option<u64>,
    /// Whether a party may not offer again what it has offered.
    pub forbid_repeat: bool,
    /// Messages out of turn after which a party has ended the bargain.
    pub max_strikes: u32,
}

impl Default for BargainRules {
    fn default() -> Self {
        Self {
            rounds: None,
            deadline_ms: None,
            step_ms: 10_000,
            confirm_ms: None,
            forbid_repeat: false,
            max_strikes: 3,
        }
    }
}

impl BargainRules {
    /// The defaults with so many rounds.
    #[must_use]
    pub fn with_rounds(rounds: u32) -> Self {
        Self { rounds: Some(rounds), ..Self::default() }
    }

    /// The rules over an outcome space.
    #[must_use]
    pub fn bargain(&self, issues: Vec<Issue>) -> BargainSpec {
        let Self { rounds, deadline_ms, step_ms, confirm_ms, forbid_repeat, max_strikes } = *self;
        let rounds = rounds.or(deadline_ms.is_none().then_some(ROUNDS_UNSAID));
        BargainSpec { issues, rounds, deadline_ms, step_ms, confirm_ms, forbid_repeat, max_strikes }
    }

    fn check(&self) -> Result<(), DocumentFault> {
        check_ranges([
            ("/rounds", self.rounds.map(u64::from), 1, u64::from(ROUNDS_MAX)),
            ("/deadline_ms", self.deadline_ms, 1, TIMER_MS_MAX),
            ("/step_ms", Some(self.step_ms), 1, TIMER_MS_MAX),
            ("/confirm_ms", self.confirm_ms, 1, TIMER_MS_MAX),
            ("/max_strikes", Some(u64::from(self.max_strikes)), 1, u64::from(STRIKES_MAX)),
        ])
    }
}

fn check_concession(concession: Option<Concession>) -> Result<(), DocumentFault> {
    match concession {
        Some(Concession::Boulware(exponent) | Concession::Conceder(exponent))
            if !(2..=CONCESSION_MAX).contains(&exponent) =>
        {
            Err(DocumentFault::at("", format!("an exponent from 2 to {CONCESSION_MAX}")))
        }
        Some(Concession::Boulware(_) | Concession::Conceder(_) | Concession::Linear) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
