//! `llmx experiment dylan`: what panels of scripted agents come to, beside what follows from theory and what the DyLAN paper
//! (arXiv 2310.02170) published. No model is asked, and no exchange runs: panels are played by the core's own arithmetic
//! ([`policy_core::panel`]), and the same seed gives the same figures.
//!
//! | module | question it answers |
//! |---|---|
//! | [`play`] | what does one panel come to? |
//! | [`theory`] | how often do independent agents agree, and what does that cost? |
//! | [`shapley`] | does importance order agents as their Shapley values do? |
//! | [`replay`] | what would the published runs have cost under these rules? |

pub mod play;
pub mod replay;
pub mod shapley;
pub mod theory;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DylanPart {
    /// [`theory`]
    Theory,
    /// [`shapley`]
    Shapley,
    /// [`replay`]
    Replay,
}

impl DylanPart {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Theory, Self::Shapley, Self::Replay];
}

impl FromStr for DylanPart {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "theory" => Ok(Self::Theory),
            "shapley" => Ok(Self::Shapley),
            "replay" => Ok(Self::Replay),
            _ => Err("`theory`, `shapley` or `replay` is expected".to_owned()),
        }
    }
}

/// What is asked of a run.
#[derive(Debug, Clone)]
pub struct DylanPlan {
    /// Its parts, each once.
    pub parts: Vec<DylanPart>,
    /// The first seed.
    pub seed: u64,
    /// Seeds of [`shapley`].
    pub seeds: u64,
    /// Panels of each cell of [`theory`].
    pub panels: u64,
}

/// Whether a figure is as it should be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DylanVerdict {
    /// What it is of.
    pub id: String,
    /// What came out.
    pub value: f64,
    /// What must hold of it.
    pub bound: String,
    /// Whether it does.
    pub holds: bool,
}

impl DylanVerdict {
    fn new(id: impl Into<String>, value: f64, bound: impl Into<String>, holds: bool) -> Self {
        Self { id: id.into(), value, bound: bound.into(), holds }
    }
}

/// What came out.
#[derive(Debug, Clone, Serialize)]
pub struct DylanReport {
    /// Always `stub`: no model answered.
    pub label: &'static str,
    /// The first seed.
    pub seed: u64,
    /// Cells of independent agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theory: Option<theory::TheoryReport>,
    /// Importance beside Shapley values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shapley: Option<shapley::ShapleyReport>,
    /// What the published runs cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Vec<replay::ReplayRow>>,
    /// Of every part.
    pub verdicts: Vec<DylanVerdict>,
}

/// Plays what is asked for.
#[must_use]
pub fn run(plan: &DylanPlan) -> DylanReport {
    let has = |part| plan.parts.contains(&part);
    let theory = has(DylanPart::Theory).then(|| theory::run(plan.seed, plan.panels));
    let shapley = has(DylanPart::Shapley).then(|| shapley::run(plan.seed, plan.seeds));
    let replay = has(DylanPart::Replay).then(|| replay::run(plan.seed));
    let verdicts = [
        theory.as_ref().map(theory::TheoryReport::verdicts),
        shapley.as_ref().map(shapley::ShapleyReport::verdicts),
        replay.as_deref().map(replay::verdicts),
    ];
    let verdicts = verdicts.into_iter().flatten().flatten().collect();
    DylanReport { label: "stub", seed: plan.seed, theory, shapley, replay, verdicts }
}

impl fmt::Display for DylanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "scripted agents (stub), seed {}", self.seed)?;
        if let Some(theory) = &self.theory {
            write!(f, "\n{theory}")?;
        }
        if let Some(shapley) = &self.shapley {
            write!(f, "\n{shapley}")?;
        }
        if let Some(rows) = &self.replay {
            write!(f, "\n{}", replay::table(rows))?;
        }
        writeln!(f, "\nverdicts")?;
        for DylanVerdict { id, value, bound, holds } in &self.verdicts {
            writeln!(f, "{}  {id}: {value:.4} ({bound})", if *holds { "holds" } else { "FAILS" })?;
        }
        Ok(())
    }
}
