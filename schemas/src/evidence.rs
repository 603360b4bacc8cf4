//! Evidence: what panels have shown about agents, by domain (docs/spec/panel.md#evidence). Counts and sums only; and whose
//! panels count where it is used.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, DomainName};
use crate::terms::INTEGER_MAX;

/// Most initiators whose panels [`EvidenceSource::Agents`] names.
pub const EVIDENCE_AGENTS_MAX: usize = 64;
/// Most panels that `min_runs` asks for.
pub const RUNS_MAX: u32 = 1_000_000;

/// As what an agent took part in a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EvidenceRole {
    /// It had a seat.
    Panelist,
    /// It reviewed answers.
    Reviewer,
}

/// What an entry of the evidence is about. Entries stand in the order of these members.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EvidenceSubject {
    /// The domain of the panels.
    pub domain: DomainName,
    /// The agent.
    pub agent: AgentId,
    /// As what it took part.
    pub role: EvidenceRole,
    /// Who called the panels.
    pub initiator: AgentId,
}

/// What answers cost, as their senders say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    /// Calls of a model.
    pub calls: u64,
    /// Tokens read by a model.
    pub prompt_tokens: u64,
    /// Tokens written by a model.
    pub completion_tokens: u64,
}

/// What panels have shown. Sums stop at the largest number there is, those of `usage`, which agents claim, at 2^53-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EvidenceCounts {
    /// Panels.
    pub runs: u64,
    /// Times it was asked.
    pub asked: u64,
    /// Times it answered.
    pub replied: u64,
    /// Panels whose result its answer supported.
    pub agreed: u64,
    /// Layers of the panels: rounds of answers, or of reviews.
    pub layers: u64,
    /// Its importance in all of them, in 10^-12.
    pub total_e12: u64,
    /// The importance it would have had, had all members of its role had the same, in 10^-12.
    pub fair_e12: u64,
    /// What its answers cost, as it says.
    pub usage: Usage,
}

impl EvidenceCounts {
    /// Adds what another panel, or another lane, has shown.
    pub fn add(&mut self, more: &Self) {
        let Self { runs, asked, replied, agreed, layers, total_e12, fair_e12, usage } = more;
        let sums = [
            (&mut self.runs, runs),
            (&mut self.asked, asked),
            (&mut self.replied, replied),
            (&mut self.agreed, agreed),
            (&mut self.layers, layers),
            (&mut self.total_e12, total_e12),
            (&mut self.fair_e12, fair_e12),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(*more);
        }
        let claims = [
            (&mut self.usage.calls, &usage.calls),
            (&mut self.usage.prompt_tokens, &usage.prompt_tokens),
            (&mut self.usage.completion_tokens, &usage.completion_tokens),
        ];
        for (sum, more) in claims {
            *sum = sum.saturating_add(*more).min(INTEGER_MAX.unsigned_abs());
        }
    }
}

/// Whose panels count as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// The initiator's own.
    #[default]
    Own,
    /// Everybody's: the lower median over initiators.
    All,
    /// Those of 1 to [`EVIDENCE_AGENTS_MAX`] initiators, added up.
    Agents(Vec<AgentId>),
}

/// One entry of the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceEntry {
    /// What it is about.
    #[serde(flatten)]
    pub subject: EvidenceSubject,
    /// What panels have shown.
    #[serde(flatten)]
    pub counts: EvidenceCounts,
}

/// The evidence of one lane, as its engine publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaneEvidence {
    /// Sequence of the last record folded.
    pub position: u64,
    /// In the order of their subjects.
    pub entries: Vec<EvidenceEntry>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_agents_claim_stops_at_the_largest_integer_of_json() {
        let most = INTEGER_MAX.unsigned_abs();
        let usage = Usage { calls: 1, prompt_tokens: most, completion_tokens: most - 3 };
        let claimed = EvidenceCounts { usage, ..EvidenceCounts::default() };
        let mut counts = claimed;
        counts.add(&claimed);
        assert_eq!(counts.usage, Usage { calls: 2, prompt_tokens: most, completion_tokens: most });
    }

    #[test]
    fn an_entry_is_one_flat_object_and_sums_stop_at_the_largest_number() {
        let name = |name: &str| AgentId::try_new(name).unwrap();
        let subject = EvidenceSubject {
            domain: DomainName::try_new("algebra").unwrap(),
            agent: name("ann"),
            role: EvidenceRole::Panelist,
            initiator: name("alice"),
        };
        let mut counts = EvidenceCounts { runs: 1, total_e12: u64::MAX - 1, ..EvidenceCounts::default() };
        counts.add(&EvidenceCounts { runs: 2, total_e12: 5, ..EvidenceCounts::default() });
        let entry = EvidenceEntry { subject, counts };
        let written = json!({"domain": "algebra", "agent": "ann", "role": "panelist", "initiator": "alice", "runs": 3,
            "asked": 0, "replied": 0, "agreed": 0, "layers": 0, "total_e12": u64::MAX, "fair_e12": 0,
            "usage": {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0}});
        assert_eq!(serde_json::to_value(&entry).unwrap(), written);
        assert_eq!(serde_json::from_str::<EvidenceEntry>(&written.to_string()).unwrap(), entry);
    }
}
