//! What a panel shows about its seats and reviewers (docs/spec/panel.md#evidence): told once, when it has come to a result.

use schemas::AgentId;
use schemas::delivery::Finding;
use schemas::evidence::{EvidenceCounts, EvidenceRole, EvidenceSubject};

use super::{Panel, Round};

/// Nothing from a panel that does not count as evidence. `deciding` is the number of the deciding round, from 0.
pub(super) fn of(panel: &Panel, deciding: usize, finding: &Finding) -> Vec<(EvidenceSubject, EvidenceCounts)> {
    if !(panel.rules.evidence && panel.rules.rate) || panel.seats.len() < 3 {
        return Vec::new();
    }
    let layers = u64::try_from(deciding).expect("eight at most") + 1;
    let seats = u64::try_from(panel.seats.len()).expect("32 at most");
    let times = |happened: &dyn Fn(&Round) -> bool| panel.rounds.iter().filter(|round| happened(round)).count() as u64;
    let shown = |agent: &AgentId| {
        let told = finding.panelists.iter().find(|one| one.agent == *agent).expect("every seat is told of");
        let subject = EvidenceSubject {
            domain: panel.rules.domain.clone().expect("it was found"),
            agent: agent.clone(),
            role: EvidenceRole::Panelist,
            initiator: panel.initiator.clone(),
        };
        let counts = EvidenceCounts {
            runs: 1,
            asked: times(&|round| round.asked().any(|asked| asked == agent)),
            replied: times(&|round| round.replies.contains_key(agent)),
            agreed: if told.agreed { 1 } else { 0 },
            layers,
            total_e12: told.total_e12,
            fair_e12: layers * 10_u64.pow(12) / seats,
            usage: panel.people[agent].usage,
        };
        (subject, counts)
    };
    let deciding = u32::try_from(deciding).expect("eight at most");
    let reviews = (1..=deciding).filter(|round| panel.review_of(*round).is_some()).count() as u64;
    let of_reviewer = |(number, agent): (usize, &AgentId)| {
        let asked = panel.reviews.iter().filter(|review| review.asked(agent)).count() as u64;
        let replied = panel.reviews.iter().filter(|review| review.replies.contains_key(agent)).count() as u64;
        let counts = EvidenceCounts {
            runs: 1,
            asked,
            replied,
            agreed: 0,
            layers: reviews,
            total_e12: finding.reviewers[number].total_e12,
            fair_e12: reviews * 10_u64.pow(12) / panel.reviewers().len() as u64,
            usage: panel.people[agent].usage,
        };
        let domain = panel.rules.domain.clone().expect("it was found");
        let (agent, role) = (agent.clone(), EvidenceRole::Reviewer);
        (EvidenceSubject { domain, agent, role, initiator: panel.initiator.clone() }, counts)
    };
    panel.seats.iter().map(shown).chain(panel.reviewers().iter().enumerate().map(of_reviewer)).collect()
}
