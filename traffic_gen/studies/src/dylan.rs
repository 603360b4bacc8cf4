//! `llmx-lab experiment dylan`: what panels of scripted agents come to, beside what follows from theory and what the DyLAN paper
//! (arXiv 2310.02170) published. No model is asked but in `live`, and no exchange runs: panels are played by the core's own arithmetic
//! ([`policy_core::panel`]), and the same seed gives the same figures.
//!
//! | module | question it answers |
//! |---|---|
//! | [`play`] | what does one panel come to? |
//! | [`crowd`] | how do scripted agents behave, and what do their panels show about them? |
//! | [`theory`] | how often do independent agents agree, and what does that cost? |
//! | [`shapley`] | does importance order agents as their Shapley values do? |
//! | [`planted`] | does importance find the best and the worst? |
//! | [`choose`] | does evidence find the agents worth asking? |
//! | [`folded`] | how are panels of them called, and their seats chosen, as the exchange does it? |
//! | [`gaming`] | what does rating to one's own advantage bring? |
//! | [`replay`] | what would the published runs have cost under these rules? |
//! | `live` | what do panels of a language model come to? |

pub mod choose;
pub mod crowd;
pub mod folded;
pub mod gaming;
pub mod live;
pub mod planted;
pub mod play;
pub mod replay;
pub mod shapley;
pub mod theory;

use std::fmt;
use std::io::Write;

use serde::Serialize;

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DylanPart {
    /// [`theory`]
    Theory,
    /// [`shapley`]
    Shapley,
    /// [`planted`]
    Planted,
    /// [`choose`]
    Choose,
    /// [`gaming`]
    Gaming,
    /// [`replay`]
    Replay,
}

/// What is asked of a run.
#[derive(Debug, Clone)]
pub struct DylanPlan {
    /// Its parts, each once.
    pub parts: Vec<DylanPart>,
    /// The first seed.
    pub seed: u64,
    /// Seeds of each part that has several; without it, as many as the part is judged by.
    pub seeds: Option<u64>,
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
    /// Whether it must hold however little is played.
    #[serde(skip)]
    is_exact: bool,
}

impl DylanVerdict {
    fn new(id: impl Into<String>, value: f64, bound: impl Into<String>, holds: bool) -> Self {
        Self { id: id.into(), value, bound: bound.into(), holds, is_exact: false }
    }

    /// A figure that must not be below a bound, of something told behind it.
    fn at_least(id: impl Into<String>, value: f64, bound: f64, of: impl fmt::Display) -> Self {
        Self::new(id, value, format!("at least {bound}{of}"), value >= bound)
    }

    /// A figure that must not be above a bound, of something told behind it.
    fn at_most(id: impl Into<String>, value: f64, bound: f64, of: &str) -> Self {
        Self::new(id, value, format!("at most {bound}{of}"), value <= bound)
    }

    /// A figure that must be so near to another.
    fn near(id: impl Into<String>, value: f64, wanted: f64, apart: f64) -> Self {
        Self::new(id, value, format!("{wanted} within {apart}"), (value - wanted).abs() <= apart)
    }

    /// The same of a figure that no number of seeds or panels changes.
    fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }
}

/// What came out.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Serialize)]
pub struct DylanReport {
    /// Always `stub`: no model answered.
    pub label: &'static str,
    /// The first seed.
    pub seed: u64,
    /// Cells of independent agents.
    pub theory: Option<theory::TheoryReport>,
    /// Importance beside Shapley values.
    pub shapley: Option<shapley::ShapleyReport>,
    /// The best and the worst.
    pub planted: Option<planted::PlantedReport>,
    /// Agents chosen by evidence.
    pub choose: Option<choose::ChooseReport>,
    /// Agents that rate to their own advantage.
    pub gaming: Option<gaming::GamingReport>,
    /// What the published runs cost.
    pub replay: Option<Vec<replay::ReplayRow>>,
    /// Of every part that is played as often as its bounds are for; of the others what is exact.
    pub verdicts: Vec<DylanVerdict>,
    /// How many figures are not judged: too little was played.
    pub unjudged: usize,
}

/// Plays what is asked for.
pub fn run(plan: &DylanPlan) -> DylanReport {
    let has = |part| plan.parts.contains(&part);
    let (seed, seeds) = (plan.seed, |default: u64| plan.seeds.unwrap_or(default));
    let theory = has(DylanPart::Theory).then(|| theory::run(seed, plan.panels));
    let shapley = has(DylanPart::Shapley).then(|| shapley::run(seed, seeds(shapley::SEEDS)));
    let planted = has(DylanPart::Planted).then(|| planted::run(seed, seeds(planted::SEEDS)));
    let choose = has(DylanPart::Choose).then(|| choose::run(seed, seeds(choose::SEEDS)));
    let gaming = has(DylanPart::Gaming).then(|| gaming::run(seed, seeds(gaming::SEEDS)));
    let replay = has(DylanPart::Replay).then(|| replay::run(seed));
    let is_enough = |needed: u64| seeds(needed) >= needed;
    let verdicts = [
        (theory.as_ref().map(theory::TheoryReport::verdicts), plan.panels >= theory::PANELS),
        (shapley.as_ref().map(shapley::ShapleyReport::verdicts), is_enough(shapley::SEEDS)),
        (planted.as_ref().map(planted::PlantedReport::verdicts), is_enough(planted::SEEDS)),
        (choose.as_ref().map(choose::ChooseReport::verdicts), is_enough(choose::SEEDS)),
        (gaming.as_ref().map(gaming::GamingReport::verdicts), is_enough(gaming::SEEDS)),
        (replay.as_deref().map(replay::verdicts), true),
    ];
    let verdicts = verdicts.into_iter().flat_map(|(verdicts, is_enough)| {
        verdicts.into_iter().flatten().map(move |verdict| (is_enough || verdict.is_exact, verdict))
    });
    let (judged, unjudged): (Vec<_>, Vec<_>) = verdicts.partition(|(is_judged, _)| *is_judged);
    let verdicts = judged.into_iter().map(|(_, verdict)| verdict).collect();
    let unjudged = unjudged.len();
    DylanReport { label: "stub", seed, theory, shapley, planted, choose, gaming, replay, verdicts, unjudged }
}

impl DylanReport {
    /// Writes the verdicts as CSV: `id,value,bound,holds`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_verdicts(&self, out: impl Write) -> csv::Result<()> {
        let mut rows = csv::Writer::from_writer(out);
        self.verdicts.iter().try_for_each(|verdict| rows.serialize(verdict))?;
        Ok(rows.flush()?)
    }
}

impl fmt::Display for DylanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "scripted agents (stub), seed {}", self.seed)?;
        let parts = [
            self.theory.as_ref().map(ToString::to_string),
            self.shapley.as_ref().map(ToString::to_string),
            self.planted.as_ref().map(ToString::to_string),
            self.choose.as_ref().map(ToString::to_string),
            self.gaming.as_ref().map(ToString::to_string),
            self.replay.as_deref().map(replay::table),
        ];
        parts.into_iter().flatten().try_for_each(|part| write!(f, "\n{part}"))?;
        writeln!(f, "\nverdicts")?;
        for DylanVerdict { id, value, bound, holds, .. } in &self.verdicts {
            writeln!(f, "{}  {id}: {value:.4} ({bound})", if *holds { "holds" } else { "FAILS" })?;
        }
        if self.unjudged > 0 {
            writeln!(f, "{} figures are not judged: their bounds are for more seeds or panels", self.unjudged)?;
        }
        Ok(())
    }
}
