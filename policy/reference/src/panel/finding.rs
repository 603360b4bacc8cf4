//! The result of a panel, and what each seat contributed to it (docs/spec/panel-answers.md#pa-14).

use std::collections::BTreeMap;

use policy_core::panel::key::AnswerKey;
use schemas::delivery::{Finding, Outcome, PanelistReport, ReviewerReport, Stopped, UsageTotal};
use schemas::{AgentId, Digest};

use super::share::Share;
use super::{Panel, Round, count, hash, supporters};

/// What a round comes to. The decision record is not known here: its digest is zero.
pub(super) fn of(panel: &Panel, deciding: usize, outcome: Outcome, stopped: Stopped) -> Finding {
    let round = &panel.rounds[deciding];
    let is_selection = stopped == Stopped::Selection;
    let supporters = leading(panel, round, is_selection);
    let (answer, key) = round.replies[&supporters[0]].answer.clone().expect("a supporter has an opinion");
    let (rounds, reviews) = layers(panel, deciding, &supporters);
    let of = match &panel.selection {
        Some(selection) if is_selection => selection.keep,
        _ => round.of,
    };
    Finding {
        outcome,
        stopped,
        answer: answer.as_str().into(),
        key: if let AnswerKey::Text(text) = key { Some(text.to_string()) } else { None },
        agreed: count(supporters.len()),
        of: count(of),
        round: count(deciding + 1),
        decision: Digest([0; 32]),
        calls: panel.calls,
        usage: UsageTotal { usage: panel.usage, reported_by: panel.reported_by },
        panelists: panelists(panel, deciding, &supporters, &rounds),
        reviewers: reviewers(panel, &reviews),
    }
}

/// Those that support the result, the first one first (docs/spec/panel-answers.md#pa-11).
fn leading(panel: &Panel, round: &Round, is_selection: bool) -> Vec<AgentId> {
    let opinions = round.opinions();
    let counted: Vec<_> = opinions.into_iter().filter(|(agent, _)| !is_selection || !panel.is_dropped(agent)).collect();
    let ranked = panel.selection.as_ref().map_or(&[][..], |selection| &selection.ranked);
    let place = |agent: &AgentId| ranked.iter().position(|other| other == agent).unwrap_or(ranked.len());
    let closing = round.closed_at.expect("what decides is closed").to_string();
    let mut groups: Vec<(usize, usize, Digest, Vec<AgentId>)> = Vec::new();
    for (_, key) in &counted {
        let mut group = supporters(&panel.rules.answer, &counted, key);
        group.sort_by_key(|agent| place(agent));
        let tie = hash(&[panel.id.as_str().as_bytes(), closing.as_bytes(), key.text().as_bytes()]);
        groups.push((counted.len() - group.len(), place(&group[0]), tie, group));
    }
    groups.sort();
    groups.swap_remove(0).3
}

/// What a layer's members have.
type LayerShares = BTreeMap<AgentId, Share>;

/// The shares of the rounds up to the deciding one, and of the reviews between them.
fn layers(panel: &Panel, deciding: usize, supporters: &[AgentId]) -> (Vec<LayerShares>, Vec<LayerShares>) {
    let mut rounds =
        vec![supporters.iter().map(|agent| (agent.clone(), Share::of(1, supporters.len()))).collect::<LayerShares>()];
    let mut reviews = Vec::new();
    for number in (1..=deciding).rev() {
        let (earlier, later) = (&panel.rounds[number - 1], &panel.rounds[number]);
        let Some(review) = panel.review_of(count(number)) else {
            rounds.insert(0, before(earlier, later, &rounds[0]));
            continue;
        };
        let mut of_reviewers = LayerShares::new();
        for (agent, reply) in &later.replies {
            divide(&mut of_reviewers, rounds[0].get(agent), &reply.shown, reply.ratings.as_deref());
        }
        let mut of_seats = LayerShares::new();
        for (agent, said) in &review.replies {
            divide(&mut of_seats, of_reviewers.get(agent), &said.shown, said.ratings.as_deref());
        }
        rounds.insert(0, of_seats);
        reviews.push(of_reviewers);
    }
    (rounds, reviews)
}

/// Gives what somebody has to those it rated, in proportion.
fn divide(found: &mut LayerShares, share: Option<&Share>, rated: &[AgentId], ratings: Option<&[u32]>) {
    let Some(share) = share else { return };
    let rating = |place: usize| ratings.map_or(1, |ratings| usize::try_from(ratings[place]).expect("5"));
    let sum: usize = (0..rated.len()).map(rating).sum();
    for (place, agent) in rated.iter().enumerate() {
        let part = share.times(&Share::of(rating(place), sum));
        let so_far = found.entry(agent.clone()).or_insert_with(|| Share::of(0, 1));
        *so_far = so_far.plus(&part);
    }
}

fn total(layers: &[LayerShares], agent: &AgentId) -> Share {
    layers.iter().filter_map(|layer| layer.get(agent)).fold(Share::of(0, 1), |total, share| total.plus(share))
}

fn panelists(panel: &Panel, deciding: usize, supporters: &[AgentId], layers: &[LayerShares]) -> Vec<PanelistReport> {
    let report = |agent: &AgentId| {
        let total = total(layers, agent);
        let answer = panel.rounds[deciding].replies.get(agent).and_then(|reply| reply.answer.as_ref());
        PanelistReport {
            agent: agent.clone(),
            answer: answer.map(|(answer, _)| answer.as_str().into()),
            agreed: supporters.contains(agent),
            importance_e12: layers.iter().map(|layer| layer.get(agent).map_or(0, Share::e12)).collect(),
            total_e12: total.e12(),
            relative_ppm: total.times(&Share::of(panel.seats.len(), layers.len())).ppm(),
        }
    };
    panel.seats.iter().map(report).collect()
}

fn reviewers(panel: &Panel, layers: &[LayerShares]) -> Vec<ReviewerReport> {
    let report = |agent: &AgentId| {
        let total = total(layers, agent);
        let relative = total.times(&Share::of(panel.reviewers().len(), layers.len().max(1)));
        ReviewerReport { agent: agent.clone(), total_e12: total.e12(), relative_ppm: relative.ppm() }
    };
    panel.reviewers().iter().map(report).collect()
}

/// The shares of a round, by those of the next and how its members weigh what they were shown.
fn before(earlier: &Round, later: &Round, shares: &LayerShares) -> LayerShares {
    let mut found = LayerShares::new();
    for (agent, reply) in &later.replies {
        let Some(share) = shares.get(agent) else { continue };
        let others = reply.shown.len();
        let mut of_others = share.clone();
        if earlier.replies.contains_key(agent) {
            let own = share.times(&Share::of(1, others + 1));
            divide(&mut found, Some(&own), std::slice::from_ref(agent), None);
            of_others = share.times(&Share::of(others, others + 1));
        }
        divide(&mut found, Some(&of_others), &reply.shown, reply.ratings.as_deref());
    }
    found
}
