//! One bargain for people and programs: what `llmx-lab bargain` prints.

use std::fmt;

use schemas::payload::{AttrValue, Terms};
use serde::Serialize;

use traffic_gen::bargain::analysis::{BySolution, Solutions};
use traffic_gen::bargain::matchup::Matchup;
use traffic_gen::bargain::{BargainEnd, Played};

/// One bargain of a domain.
#[derive(Debug, Clone, Serialize)]
pub struct BargainReport {
    /// The domain.
    pub domain: String,
    /// Outcomes of its space.
    pub outcomes: usize,
    /// Most rounds, where they are bounded.
    pub rounds_max: Option<u32>,
    /// Who bargained, in the order of turns.
    pub parties: Vec<PartyReport>,
    /// What came of it.
    #[serde(flatten)]
    pub played: Played,
    /// What was agreed.
    pub agreement: Option<AgreementReport>,
    /// What was possible: numbers of outcomes.
    pub solutions: Solutions,
}

/// One party.
#[derive(Debug, Clone, Serialize)]
pub struct PartyReport {
    /// Its name.
    pub name: String,
    /// Its strategy.
    pub strategy: &'static str,
    /// What no agreement is worth to it.
    pub reservation: f64,
    /// Whether it declared its mandate to the exchange; it does where mandates have words for its utility.
    pub has_mandate: bool,
    /// How many offers it made.
    pub offers: usize,
    /// Its first offer.
    pub first: Option<OfferPoint>,
    /// Its last offer.
    pub last: Option<OfferPoint>,
    /// What the agreement is worth to it.
    pub utility: Option<f64>,
    /// The same less the reservation value.
    pub advantage: Option<f64>,
}

/// An offer as its party sees it.
#[derive(Debug, Clone, Serialize)]
pub struct OfferPoint {
    /// The terms.
    pub terms: Terms,
    /// What they are worth to the party.
    pub utility: f64,
}

/// What was agreed.
#[derive(Debug, Clone, Serialize)]
pub struct AgreementReport {
    /// Who had offered it.
    pub by: String,
    /// The terms.
    pub terms: Terms,
    /// The sum of the utilities.
    pub welfare: f64,
    /// How far it is from what was possible.
    pub distances: BySolution,
}

impl BargainReport {
    /// Describes a bargain that was played.
    pub fn new(matchup: &Matchup, played: Played) -> Self {
        let (domain, plane) = (matchup.domain(), matchup.plane());
        let agreed = played.agreement();
        let party = |party: usize| {
            let utility_of = |outcome: usize| plane.point(outcome)[party];
            let terms_of = |outcome: usize| domain.space.terms(outcome).unwrap_or_default();
            let offer = |outcome: usize| OfferPoint { terms: terms_of(outcome), utility: utility_of(outcome) };
            let reservation = plane.reserved()[party];
            PartyReport {
                name: domain.parties[party].name.to_string(),
                strategy: matchup.kinds()[party].as_str(),
                reservation,
                has_mandate: matchup.parties()[party].mandate.is_some(),
                offers: played.offers_of(party).count(),
                first: played.offers_of(party).next().map(offer),
                last: played.offers_of(party).last().map(offer),
                utility: agreed.map(utility_of),
                advantage: agreed.map(|outcome| utility_of(outcome) - reservation),
            }
        };
        let agreement = match played.end {
            BargainEnd::Agreement { outcome, by } => Some(AgreementReport {
                by: domain.parties[by].name.to_string(),
                terms: domain.space.terms(outcome).unwrap_or_default(),
                welfare: plane.welfare(outcome),
                distances: plane.distances(outcome, matchup.solutions()),
            }),
            BargainEnd::NoAgreement { .. } | BargainEnd::Ended { .. } | BargainEnd::Stopped => None,
        };
        Self {
            domain: domain.name.clone(),
            outcomes: domain.space.len(),
            rounds_max: matchup.rules().rounds,
            parties: (0..plane.parties()).map(party).collect(),
            agreement,
            solutions: matchup.solutions().clone(),
            played,
        }
    }
}

impl fmt::Display for BargainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frontier = self.solutions.pareto.len();
        writeln!(f, "{}: {} outcomes, {frontier} of them on the Pareto frontier", self.domain, self.outcomes)?;
        for party in &self.parties {
            let offers = format!("{} offers", party.offers);
            writeln!(
                f,
                "  {:<12} {:<12} {offers:>11}   no agreement is worth {:.3}",
                party.name, party.strategy, party.reservation
            )?;
            for (when, offer) in [("first", &party.first), ("last", &party.last)] {
                let Some(offer) = offer else { continue };
                writeln!(f, "    {when:<5} {:.3}  {}", offer.utility, shown(&offer.terms))?;
            }
        }
        let at = format!(
            "round {}, {} turns, relative time {:.2}",
            self.played.rounds, self.played.steps, self.played.relative_time
        );
        let Some(agreement) = &self.agreement else {
            return match &self.played.end {
                BargainEnd::NoAgreement { detail } => write!(f, "no agreement ({detail}): {at}"),
                BargainEnd::Ended { by } => write!(f, "ended by {by}: {at}"),
                BargainEnd::Agreement { .. } | BargainEnd::Stopped => write!(f, "stopped: {at}"),
            };
        };
        writeln!(f, "agreement: {at}, offered by {}", agreement.by)?;
        writeln!(f, "  {}", shown(&agreement.terms))?;
        let worth = |party: &PartyReport| {
            let (utility, advantage) = (party.utility.unwrap_or_default(), party.advantage.unwrap_or_default());
            format!("{} {utility:.3} (advantage {advantage:.3})", party.name)
        };
        let shares: Vec<String> = self.parties.iter().map(worth).collect();
        writeln!(f, "  utility   {}   welfare {:.3}", shares.join("   "), agreement.welfare)?;
        write!(f, "  distance  {}", agreement.distances.told("   "))
    }
}

/// Terms on one line.
fn shown(terms: &Terms) -> String {
    let value = |value: &AttrValue| match value {
        AttrValue::Int(value) => value.to_string(),
        AttrValue::Text(text) => text.clone(),
    };
    terms.iter().map(|(name, of)| format!("{name} {}", value(of))).collect::<Vec<_>>().join(", ")
}
