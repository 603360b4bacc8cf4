//! The language models of a command: the file that names one, its key, and what is kept of what it is asked.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;

use ::agents::model::config::ModelConfigError;
use ::agents::model::decider::ModelDeciderCounts;
use ::agents::model::metrics::ModelMetrics;
use ::agents::model::{Consultant, HttpModel, KeptPrompts, ModelAgentConfig, ModelDecider, ModelTotals};
use traffic_gen::live::{ModelPopulation, SharedModel};

use crate::arguments::{file_fault, read_file};
use crate::output::{Failure, note, tracer};

/// Most bytes of a model's file: instructions have some thousands.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What a model is opened with, besides its file.
#[derive(Default)]
pub struct ModelUse {
    /// Counts its calls.
    pub metrics: Option<ModelMetrics>,
    /// Keeps them.
    pub kept: Option<Arc<KeptPrompts>>,
}

/// A model that a file names. Nothing is asked yet.
pub struct OpenedModel {
    /// The file.
    pub config: Arc<ModelAgentConfig>,
    /// The model, with its accounts.
    pub consultant: Arc<Consultant>,
}

/// Reads the file, of which `check` looks at the section that is used, and makes the model it names.
pub fn open(
    path: &Path,
    check: impl FnOnce(&ModelAgentConfig) -> Result<(), ModelConfigError>,
    ModelUse { metrics, kept }: ModelUse,
) -> Result<OpenedModel, Failure> {
    let config: ModelAgentConfig = read_file(path, FILE_BYTES_MAX, |text| toml::from_str(text))?;
    check(&config).map_err(|error| file_fault(path, error))?;
    let key = config.model.key().map_err(Failure::configuration)?;
    let model = HttpModel::try_new(&config.model, key.as_deref()).map_err(|error| file_fault(path, error))?;
    let mut consultant = Consultant::new(model, config.model.clone()).traced(tracer());
    if let Some(metrics) = metrics {
        consultant = consultant.counted(metrics);
    }
    if let Some(kept) = kept {
        key.iter().for_each(|key| kept.hide(key));
        consultant = consultant.keeping(kept);
    }
    Ok(OpenedModel { config: Arc::new(config), consultant: Arc::new(consultant) })
}

/// The model of `--initiator-model FILE`. `seed` draws orders and markers; without one nobody knows it.
pub fn open_decider(path: &Path, seed: Option<u64>, with: ModelUse) -> Result<Arc<ModelDecider>, Failure> {
    let OpenedModel { config, consultant } = open(path, ModelAgentConfig::check_initiator, with)?;
    Ok(Arc::new(ModelDecider::new(config, consultant, seed.unwrap_or_else(unknown_seed))))
}

/// The model of `--model FILE` or `--contractor-model FILE`, for a share of the contractors. Nobody knows its seed.
pub fn open_contractors(path: &Path, share: f64, with: ModelUse) -> Result<ModelPopulation, Failure> {
    let OpenedModel { config, consultant } = open(path, ModelAgentConfig::check, with)?;
    Ok(ModelPopulation { share, model: SharedModel { config, consultant, marker_seed: unknown_seed() } })
}

/// A seed from the only source of randomness of the standard library: new in each process, known to nobody.
pub fn unknown_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The folder of `--keep-prompts DIR`.
pub fn keep(folder: Option<&Path>) -> Result<Option<Arc<KeptPrompts>>, Failure> {
    let Some(folder) = folder else { return Ok(None) };
    let kept = KeptPrompts::create(folder)
        .map_err(|error| Failure::configuration(format_args!("--keep-prompts {}: {error}", folder.display())))?;
    Ok(Some(Arc::new(kept)))
}

/// What was decided, and what it cost.
pub fn note_decisions(decider: &ModelDecider) {
    let ModelDeciderCounts { chosen, fallbacks } = decider.counts();
    let name = decider.consultant().label();
    if chosen + fallbacks == 0 {
        note(format!("model {name}: not asked; only a policy with `decider: initiator` leaves the choice to it"));
        return;
    }
    let spent = spent(decider.consultant());
    note(format_args!("model {name}: {chosen} choices, {fallbacks} by score instead; {spent}"));
}

/// What a model was asked, and what that cost.
pub fn spent(consultant: &Consultant) -> String {
    let ModelTotals { calls, usage, cost, .. } = consultant.totals();
    let times = consultant.times();
    format!("{calls} calls, {} tokens in, {} out, {cost} micro-units; {times}", usage.input, usage.output)
}
