//! Rounds of collection, by the policy they are decided under and by how many agents were invited.

use policy_core::Protocol;

use super::{NEGOTIATION_S, seconds};

telemetry::metrics! {
    /// Rounds of collection.
    pub(super) struct RoundMetrics {
        /// Log time from the call to the close of its collection, where the award is decided; by policy, and by how many
        /// agents were invited at most. The policy `other` is one of the exchange's administrators, or not known because
        /// the call is older than the process.
        decisions: Histogram(NEGOTIATION_S)[
            protocol: Protocol = [Protocol::ContractNet], policy: &'static str = POLICIES, invited: &'static str = INVITED_LABELS
        ] = "exchange_decision_duration_seconds";
        /// Valid offers of each round of collection when it closes; by policy, and by how many agents were invited at most.
        offers: Histogram(OFFERS)[policy: &'static str = POLICIES, invited: &'static str = INVITED_LABELS]
            = "exchange_offers_per_round";
    }
}

impl RoundMetrics {
    /// A round closed; `policy` stands in [`POLICIES`].
    pub(super) fn count(&self, policy: usize, invited: u32, offers: u32, elapsed_us: u64) {
        let (policy, invited) = (POLICIES[policy], INVITED_LABELS[population(invited)]);
        self.decisions.of(Protocol::ContractNet, policy, invited).observe(seconds(elapsed_us));
        self.offers.of(policy, invited).observe(f64::from(offers));
    }
}

/// The policies that come with the exchange and contract nets may name, and whatever else: policies of its administrators,
/// and calls from before the engine started. Those of teams (`team-`) and `patient` are among the others: each label is some 180
/// series of an engine.
const POLICIES: [&str; 10] = [
    "low",
    "medium",
    "high",
    "high-strict",
    "threshold",
    "paper41-low",
    "paper41-medium",
    "paper41-high",
    "agora",
    OTHER,
];
/// Where a policy that is none of the exchange's stands in [`POLICIES`].
pub(super) const OTHER_POLICY: usize = POLICIES.len() - 1;
const OTHER: &str = "other";
/// What the version of a policy that comes with the exchange is.
const PRESET_VERSION: &str = "@1";
/// Agents a call invites: at most so many, beyond them `more`.
const INVITED: [u32; 5] = [5, 9, 12, 50, 200];
/// How those are called, and the rest.
const INVITED_LABELS: [&str; INVITED.len() + 1] = ["5", "9", "12", "50", "200", "more"];
/// Buckets of offers in one round: each population of [`INVITED`] can be told from the next.
const OFFERS: [f64; 11] = [0.0, 1.0, 2.0, 3.0, 5.0, 9.0, 12.0, 25.0, 50.0, 100.0, 200.0];

/// Where a policy's id stands in [`POLICIES`]. Another version under the name of a preset is another policy.
pub(super) fn policy_index(id: &str) -> usize {
    let name = id.strip_suffix(PRESET_VERSION).filter(|name| *name != OTHER);
    name.and_then(|name| POLICIES.iter().position(|known| *known == name)).unwrap_or(OTHER_POLICY)
}

fn population(invited: u32) -> usize {
    INVITED.iter().position(|most| invited <= *most).unwrap_or(INVITED.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_of_the_contract_net_has_a_label_and_every_other_policy_the_last() {
        let presets = policy_core::presets();
        let is_of_another = |name: &str| ["bargain-", "team-", "patient"].iter().any(|one| name.starts_with(one));
        let named: Vec<&str> = presets.iter().map(schemas::Policy::name).filter(|name| !is_of_another(name)).collect();
        assert_eq!(named, POLICIES[..OTHER_POLICY]);
        for (index, preset) in presets.iter().take(OTHER_POLICY).enumerate() {
            assert_eq!(policy_index(&preset.id), index, "{}", preset.id);
        }
        for id in ["low@2", "low", "mine@1", "other@1", "", "alternating_offers"] {
            assert_eq!(policy_index(id), OTHER_POLICY, "{id}");
        }
    }

    #[test]
    fn a_population_is_the_least_that_holds_all_who_were_invited() {
        let labels = [0, 1, 5, 6, 9, 12, 13, 50, 200, 201, u32::MAX].map(|invited| INVITED_LABELS[population(invited)]);
        assert_eq!(labels, ["5", "5", "5", "9", "9", "12", "50", "50", "200", "more", "more"]);
        assert!(INVITED.iter().zip(INVITED_LABELS).all(|(most, label)| most.to_string() == label));
    }
}
