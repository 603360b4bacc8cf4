//! The panels of a run: few answers, few rounds, short times, so that they end in every way there is.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::evidence::EvidenceSource;
use schemas::ids::DomainName;
use schemas::panel::{AnswerKind, Asking, ChooseSpec, ElementKind, PanelSelection, PanelSpec, Ranker, ReviewSpec};
use schemas::payload::Cfp;
use schemas::{Address, AgentId};

use super::{CONTRACTORS, INITIATORS, agent};
use crate::{CallPlan, Scenario};

/// Panels one initiator calls to, at most.
const PANELS_MAX: u32 = 8;
/// Seats of a panel, at most.
const SEATS_MAX: usize = 5;
/// Reviewers of a panel, at most.
const REVIEWERS_MAX: usize = 3;

/// Panels that choose their seats by evidence: one in so many.
const CHOOSING_ONE_IN: u32 = 3;

/// Adds the panels. They draw from a generator of their own: everything else stays as it is without them.
pub(super) fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let is_contractor = |id: &AgentId| CONTRACTORS.contains(&id.as_str());
    let contractors = scenario.agents.iter().filter(|plan| is_contractor(&plan.id)).count();
    for plan in scenario.agents.iter_mut().filter(|plan| !plan.calls.is_empty()) {
        for n in 0..rng.random_range(0..=PANELS_MAX) {
            let mut names: Vec<AgentId> = CONTRACTORS[..contractors].iter().map(|name| agent(name)).collect();
            names.shuffle(rng);
            let others = names.split_off(rng.random_range(1..=SEATS_MAX.min(contractors)));
            let at_ms = rng.random_range(100..scenario.troubled_ms * 3 / 4);
            let cfp = Cfp {
                task: Some("how many parcels?".to_owned()),
                panel: Some(Box::new(rules(rng, &plan.id, &others))),
                reply_within_ms: (rng.random_range(0..3) == 0).then(|| rng.random_range(300..4000)),
                ..Cfp::default()
            };
            let to = names.into_iter().map(Address::Agent).collect();
            plan.calls.push(CallPlan::new(&plan.id, &format!("p{n}"), at_ms, to, cfp));
        }
    }
}

/// Lets some panels choose their seats by what the others have shown, and waits with these until there may be something. They draw
/// from a generator of their own: other panels stay as they are.
pub(super) fn choose_seats(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let is_contractor = |id: &AgentId| CONTRACTORS.contains(&id.as_str());
    let contractors: Vec<AgentId> =
        scenario.agents.iter().map(|plan| plan.id.clone()).filter(|id| is_contractor(id)).collect();
    let late = scenario.troubled_ms / 2..scenario.troubled_ms * 3 / 4;
    for call in scenario.agents.iter_mut().flat_map(|plan| &mut plan.calls) {
        let Some(rules) = &mut call.cfp.panel else { continue };
        if rng.random_range(0..CHOOSING_ONE_IN) > 0 {
            continue;
        }
        call.at_ms = rng.random_range(late.clone());
        let from = match rng.random_range(0..4) {
            0 => EvidenceSource::All,
            1 => EvidenceSource::Agents(INITIATORS.map(agent).to_vec()),
            _ => EvidenceSource::Own,
        };
        let (keep, min_runs, newcomers) = (rng.random_range(1..=3), rng.random_range(1..3), rng.random_range(0..=2));
        rules.choose = Some(ChooseSpec { keep, from, min_runs, newcomers });
        // Among everybody who takes no other part.
        let ranker = rules.select.as_ref().and_then(|select| match &select.ranker {
            Ranker::Agent { agent, .. } => Some(agent),
            Ranker::Support | Ranker::Rating | Ranker::Hash => None,
        });
        let reviewers = || rules.review.iter().flat_map(|review| &review.by);
        let has_part = |id: &&AgentId| ranker == Some(*id) || reviewers().any(|reviewer| reviewer == *id);
        call.to = contractors.iter().filter(|id| !has_part(id)).cloned().map(Address::Agent).collect();
    }
}

/// The rules of a panel, whose ranker and reviewers are among those who have no seat, if anybody is.
fn rules(rng: &mut ChaCha8Rng, initiator: &AgentId, others: &[AgentId]) -> PanelSpec {
    let rounds = rng.random_range(1..=4);
    let select = (rounds > 1 && rng.random_range(0..2) == 0).then(|| PanelSelection {
        after_round: rng.random_range(1..rounds),
        keep: rng.random_range(1..=3),
        if_more_than: rng.random_range(0..=3),
        recheck: rng.random_range(0..2) == 0,
        ranker: match rng.random_range(0..6) {
            0 => Ranker::Support,
            1 => Ranker::Rating,
            2 => Ranker::Hash,
            _ => Ranker::Agent {
                agent: others.first().unwrap_or(initiator).clone(),
                rank_ms: rng.random_range(150..1000),
            },
        },
    });
    // The first of those without a seat may rank.
    let reviewers = others.get(1..).unwrap_or_default();
    let review = (!reviewers.is_empty() && rng.random_range(0..3) == 0).then(|| ReviewSpec {
        by: reviewers[..rng.random_range(1..=reviewers.len().min(REVIEWERS_MAX))].to_vec(),
        review_ms: rng.random_range(150..1000),
    });
    PanelSpec {
        domain: (rng.random_range(0..4) == 0).then(|| DomainName::try_new("parcels").expect("a domain's name")),
        answer: answers(rng),
        rounds,
        answer_ms: rng.random_range(150..1200),
        asking: if rng.random_range(0..3) == 0 { Asking::All } else { Asking::QuorumFirst },
        consensus_from: if rng.random_range(0..3) == 0 { rng.random_range(0..=rounds) } else { 1 },
        rate: rng.random_range(0..5) > 0,
        select,
        review,
        choose: None,
        min_seats: 1,
        evidence: rng.random_range(0..4) > 0,
        max_strikes: rng.random_range(1..4),
    }
}

fn answers(rng: &mut ChaCha8Rng) -> AnswerKind {
    match rng.random_range(0..8) {
        0 => AnswerKind::Exact { ignore_case: rng.random() },
        1 => AnswerKind::Number,
        2 => AnswerKind::Math,
        3 => AnswerKind::Set { of: ElementKind::Number, separator: ",".to_owned() },
        4 => AnswerKind::Json,
        5 => AnswerKind::Bleu { at_least_permille: rng.random_range(850..=1000) },
        _ => AnswerKind::Choice { options: ["A", "B", "C"].map(str::to_owned).to_vec() },
    }
}
