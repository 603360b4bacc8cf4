//! What came of a panel that somebody recorded, computed anew from its acts: result, calls, why it stopped, importance; and
//! whether its acts follow the stopping rule.
//!
//! Records are those of the DyLAN paper's code: up to four agents answer in layers, each seeing replies of the layer before.
//! `reference` mode does as that code does (two missing answers are equal, one's own rating counts), `panel` mode as panels do
//! (docs/spec/panel-answers.md#pa-14).

use std::collections::BTreeMap;
use std::fmt;

use agents::fault::DocumentFault;
use agents::panel::parse::{ReadingMode, ratings_inside};
use policy_core::panel::count::consensus;
use policy_core::panel::importance::{Importance, Layer, LayerNode, Shown, importance};
use schemas::panel::{PANEL_ROUNDS_MAX, SEATS_MAX};
use serde::{Deserialize, Serialize};

/// Layers in which all agents answer; of more than [`ALL_IF_AT_MOST`] only [`SELECTED`] answer in later ones.
const LAYERS_OF_ALL: usize = 2;
/// The most agents among whom none are selected.
const ALL_IF_AT_MOST: usize = 3;
/// How many are selected.
const SELECTED: usize = 2;

/// A panel as it was recorded. What it says came of it is ignored here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RecordedPanel {
    /// Agents, 1 to [`SEATS_MAX`].
    pub n: usize,
    /// Layers at most, 1 to [`PANEL_ROUNDS_MAX`].
    pub rounds: usize,
    /// Answers in the order they were asked for.
    pub acts: Vec<RecordedAnswer>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RecordedAnswer {
    /// Its layer, from 0.
    pub layer: usize,
    /// Who answered, from 0.
    pub agent: usize,
    /// Whose replies of the layer before it saw, in the order it saw them, its own included.
    pub shown: Vec<usize>,
    /// What stood inside of the last `[[..]]` of its reply.
    pub scores_text: Option<String>,
    /// What it answered; none where the reply held no answer.
    pub answer: Option<String>,
}

/// Why a panel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedBy {
    /// More than two thirds of the last layer agree.
    Consensus,
    /// Its rounds were over.
    Rounds,
}

/// What came of a panel.
#[derive(Debug, Clone)]
pub struct PanelScore {
    /// The most frequent answer of the last layer, of several the first.
    pub result: Option<String>,
    /// Why it ended.
    pub stop: StoppedBy,
    /// The last layer, from 0.
    pub layer: usize,
    /// Answers asked for, and one for the ranker where there was a selection.
    pub calls: usize,
    /// The act that the stopping rule forbids, and why; none where all follow it.
    pub fault: Option<DocumentFault>,
    /// Agents.
    pub n: usize,
    /// Layers at most.
    pub rounds: usize,
    /// None where nobody answered.
    pub importance: Option<Importance>,
}

impl PanelScore {
    /// Exact importance as texts, layer by layer, as many layers as there may be.
    pub fn importance_exact(&self) -> Vec<String> {
        self.places()
            .map(|(layer, agent)| self.share(layer, agent, |share| share.to_string(), "0".to_owned()))
            .collect()
    }

    /// The same in units of 10^-12.
    pub fn importance_e12(&self) -> Vec<u64> {
        self.places().map(|(layer, agent)| self.share(layer, agent, |share| share.e12(), 0)).collect()
    }

    /// The sum over all layers, by agent.
    pub fn total_e12(&self) -> Vec<u64> {
        let total = |agent| self.importance.as_ref().map_or(0, |own| own.total(0..own.layer_count(), agent).e12());
        (0..self.n).map(total).collect()
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let n = self.n;
        (0..self.rounds).flat_map(move |layer| (0..n).map(move |agent| (layer, agent)))
    }

    fn share<T>(
        &self,
        layer: usize,
        agent: usize,
        write: impl Fn(&policy_core::panel::fraction::Fraction) -> T,
        nothing: T,
    ) -> T {
        self.importance.as_ref().map_or(nothing, |exact| write(&exact.share(layer, agent)))
    }
}

/// Computes what came of a panel.
///
/// # Errors
/// [`DocumentFault`] when the record is none of a panel: an agent that does not exist, a layer left out, an agent twice in one,
/// somebody shown who did not act.
pub fn score(panel: &RecordedPanel, mode: ReadingMode) -> Result<PanelScore, DocumentFault> {
    let layers = layers(panel)?;
    let last = layers.last().ok_or_else(|| fault("/acts", "at least one act is expected"))?;
    let (result, support) = most_frequent(last, mode);
    let is_consensus = consensus(support, members(panel.n, layers.len() - 1));
    Ok(PanelScore {
        result: result.cloned(),
        stop: if is_consensus { StoppedBy::Consensus } else { StoppedBy::Rounds },
        layer: layers.len() - 1,
        calls: panel.acts.len() + usize::from(layers.len() > LAYERS_OF_ALL && panel.n > ALL_IF_AT_MOST),
        fault: forbidden(panel, mode),
        n: panel.n,
        rounds: panel.rounds,
        importance: importance_of(panel.n, &layers, result, mode),
    })
}

fn fault(pointer: impl fmt::Display, problem: impl fmt::Display) -> DocumentFault {
    DocumentFault::at(pointer.to_string(), problem.to_string())
}

/// The acts of each layer, when there is nothing wrong with them.
fn layers(panel: &RecordedPanel) -> Result<Vec<Vec<&RecordedAnswer>>, DocumentFault> {
    if !(1..=SEATS_MAX).contains(&panel.n) {
        return Err(fault("/n", format_args!("1 to {SEATS_MAX} agents are expected")));
    }
    if !(1..=PANEL_ROUNDS_MAX as usize).contains(&panel.rounds) {
        return Err(fault("/rounds", format_args!("1 to {PANEL_ROUNDS_MAX} rounds are expected")));
    }
    let mut layers: Vec<Vec<&RecordedAnswer>> = Vec::new();
    for (number, act) in panel.acts.iter().enumerate() {
        let at = |member: &str| format!("/acts/{number}/{member}");
        if act.layer >= panel.rounds {
            return Err(fault(at("layer"), format_args!("layers end at {}", panel.rounds - 1)));
        }
        if act.layer == layers.len() {
            layers.push(Vec::new());
        } else if act.layer + 1 != layers.len() {
            return Err(fault(at("layer"), "layers follow each other, and begin with 0"));
        }
        if act.agent >= panel.n {
            return Err(fault(at("agent"), format_args!("agents end at {}", panel.n - 1)));
        }
        let (now, before) = layers.split_last_mut().ok_or_else(|| fault(at("layer"), "layers begin with 0"))?;
        if now.iter().any(|other| other.agent == act.agent) {
            return Err(fault(at("agent"), "the agent has acted in this layer"));
        }
        check_shown(act, before.last().map(Vec::as_slice)).map_err(|(place, problem)| match place {
            Some(place) => fault(at(&format!("shown/{place}")), problem),
            None => fault(at("shown"), problem),
        })?;
        now.push(act);
    }
    Ok(layers)
}

fn check_shown(act: &RecordedAnswer, before: Option<&[&RecordedAnswer]>) -> Result<(), (Option<usize>, &'static str)> {
    let Some(before) = before else {
        return if act.shown.is_empty() { Ok(()) } else { Err((None, "nobody acted before the first layer")) };
    };
    for (place, shown) in act.shown.iter().enumerate() {
        if before.iter().all(|earlier| earlier.agent != *shown) {
            return Err((Some(place), "the agent did not act in the layer before"));
        }
        if act.shown[..place].contains(shown) {
            return Err((Some(place), "the agent is shown already"));
        }
    }
    if act.shown.is_empty() { Err((None, "somebody is shown from the second layer on")) } else { Ok(()) }
}

/// Members of a layer.
fn members(n: usize, layer: usize) -> usize {
    if layer < LAYERS_OF_ALL || n <= ALL_IF_AT_MOST { n } else { SELECTED }
}

/// The most frequent answer of a layer, of several the first, and how often it stands. A missing one counts in
/// `reference` mode.
fn most_frequent<'a>(layer: &[&'a RecordedAnswer], mode: ReadingMode) -> (Option<&'a String>, usize) {
    let mut counts: BTreeMap<Option<&String>, usize> = BTreeMap::new();
    for act in layer.iter().filter(|act| counts_in(act, mode)) {
        *counts.entry(act.answer.as_ref()).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let first = layer.iter().find(|act| counts.get(&act.answer.as_ref()) == Some(&most));
    (first.and_then(|act| act.answer.as_ref()), most)
}

fn counts_in(act: &RecordedAnswer, mode: ReadingMode) -> bool {
    act.answer.is_some() || mode == ReadingMode::Reference
}

/// The first act that the stopping rule forbids: asking ends with a consensus, and without one only with all of a layer, of the
/// last one for good. A ranker that names one agent twice leaves a selected layer of one.
fn forbidden(panel: &RecordedPanel, mode: ReadingMode) -> Option<DocumentFault> {
    let (mut now, mut is_over): (Vec<&RecordedAnswer>, bool) = (Vec::new(), false);
    let is_whole = |acts: &[&RecordedAnswer]| {
        let layer = acts.first().map_or(0, |act| act.layer);
        let least = if members(panel.n, layer) < panel.n { 1 } else { panel.n };
        acts.len() >= least
    };
    for (number, act) in panel.acts.iter().enumerate() {
        let at = format!("/acts/{number}");
        if is_over {
            return Some(fault(at, "asked after a consensus"));
        }
        if now.first().is_some_and(|first| first.layer != act.layer) {
            if !is_whole(&now) {
                return Some(fault(at, "its layer begins before all of the last have acted"));
            }
            now.clear();
        }
        let members = members(panel.n, act.layer);
        if now.len() == members {
            return Some(fault(at, format_args!("only {members} act in its layer")));
        }
        now.push(act);
        is_over = consensus(most_frequent(&now, mode).1, members);
    }
    let has_ended = is_over || is_whole(&now) && now.first().is_some_and(|act| act.layer + 1 == panel.rounds);
    let last = panel.acts.len().saturating_sub(1);
    (!has_ended).then(|| fault(format_args!("/acts/{last}"), "ended without a consensus before its rounds were over"))
}

fn importance_of(
    n: usize,
    layers: &[Vec<&RecordedAnswer>],
    result: Option<&String>,
    mode: ReadingMode,
) -> Option<Importance> {
    let node = |act: &&RecordedAnswer| {
        let given = ratings_inside(mode, act.scores_text.as_deref(), act.shown.len());
        let rating = |place: usize| given.as_ref().and_then(|given| given.get(place)).copied().unwrap_or(1);
        let is_own = |shown: usize| mode == ReadingMode::Panel && shown == act.agent;
        let rated = act.shown.iter().enumerate().filter(|(_, shown)| !is_own(**shown));
        LayerNode {
            member: act.agent,
            own: act.shown.iter().copied().find(|shown| is_own(*shown)),
            shown: rated.map(|(place, shown)| Shown { member: *shown, rating: rating(place) }).collect(),
        }
    };
    let nodes: Vec<Layer> =
        layers.iter().map(|acts| Layer { members: n, nodes: acts.iter().map(node).collect() }).collect();
    let supports = |act: &&&RecordedAnswer| act.answer.as_ref() == result && counts_in(act, mode);
    let supporters: Vec<usize> = layers.last()?.iter().filter(supports).map(|act| act.agent).collect();
    importance(&nodes, &supporters)
}

#[cfg(test)]
mod tests;
