//! The result of a panel, and what each seat contributed to it (docs/spec/panel-answers.md#pa-14).

use std::collections::BTreeMap;

use policy_core::panel::key::AnswerKey;
use schemas::delivery::{Finding, Outcome, PanelistReport, Stopped, UsageTotal};
use schemas::{AgentId, Digest};

use super::share::Share;
use super::{Panel, Round, count, hash, supporters};

/// What a round comes to. The decision record is not known here: its digest is zero.
pub(super) fn of(panel: &Panel, deciding: usize, outcome: Outcome, stopped: Stopped) -> Finding {
    let round = &panel.rounds[deciding];
    let is_selection = stopped == Stopped::Selection;
    let supporters = leading(panel, round, is_selection);
    let (answer, key) = round.replies[&supporters[0]].answer.clone().expect("a supporter has an opinion");
    let of = match &panel.selection {
        Some(selection) if is_selection => selection.keep,
        _ => round.of,
    };
    Finding {
        outcome,
        stopped,
        answer: answer.as_str().into(),
        key: if let AnswerKey::Text(text) = key { Some(text) } else { None },
        agreed: count(supporters.len()),
        of: count(of),
        round: count(deciding + 1),
        decision: Digest([0; 32]),
        calls: panel.calls,
        usage: UsageTotal { usage: panel.usage, reported_by: panel.reported_by },
        panelists: panelists(panel, deciding, &supporters),
        reviewers: Vec::new(),
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

fn panelists(panel: &Panel, deciding: usize, supporters: &[AgentId]) -> Vec<PanelistReport> {
    let rounds = &panel.rounds[..=deciding];
    let mut layers: Vec<BTreeMap<AgentId, Share>> =
        vec![supporters.iter().map(|agent| (agent.clone(), Share::of(1, supporters.len()))).collect()];
    for pair in rounds.windows(2).rev() {
        layers.insert(0, before(&pair[0], &pair[1], &layers[0]));
    }
    let report = |agent: &AgentId| {
        let nothing = Share::of(0, 1);
        let shares: Vec<&Share> = layers.iter().map(|layer| layer.get(agent).unwrap_or(&nothing)).collect();
        let total = shares.iter().fold(nothing.clone(), |total, share| total.plus(share));
        let answer = rounds[deciding].replies.get(agent).and_then(|reply| reply.answer.as_ref());
        PanelistReport {
            agent: agent.clone(),
            answer: answer.map(|(answer, _)| answer.as_str().into()),
            agreed: supporters.contains(agent),
            importance_e12: shares.iter().map(|share| share.e12()).collect(),
            total_e12: total.e12(),
            relative_ppm: total.times(&Share::of(panel.seats.len(), rounds.len())).ppm(),
        }
    };
    panel.seats.iter().map(report).collect()
}

/// The shares of a round, by those of the next and how its members weigh what they were shown.
fn before(earlier: &Round, later: &Round, shares: &BTreeMap<AgentId, Share>) -> BTreeMap<AgentId, Share> {
    let mut found: BTreeMap<AgentId, Share> = BTreeMap::new();
    let mut give = |agent: &AgentId, part: Share| {
        let so_far = found.entry(agent.clone()).or_insert_with(|| Share::of(0, 1));
        *so_far = so_far.plus(&part);
    };
    for (agent, reply) in &later.replies {
        let Some(share) = shares.get(agent) else { continue };
        let others = reply.shown.len();
        let ratings = reply.ratings.clone().unwrap_or_else(|| vec![1; others]);
        let ratings: Vec<usize> = ratings.into_iter().map(|rating| usize::try_from(rating).expect("5")).collect();
        let sum: usize = ratings.iter().sum();
        let of_others = if earlier.replies.contains_key(agent) {
            give(agent, share.times(&Share::of(1, others + 1)));
            Share::of(others, others + 1)
        } else {
            Share::of(1, 1)
        };
        for (other, rating) in reply.shown.iter().zip(ratings) {
            give(other, share.times(&of_others).times(&Share::of(rating, sum)));
        }
    }
    found
}
