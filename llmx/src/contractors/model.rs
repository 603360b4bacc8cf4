//! The language model that contractors ask: `llmx contractors --model FILE`, `llmx demo --contractor-model FILE`.

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;

use ::agents::model::metrics::ModelMetrics;
use ::agents::model::{Consultant, HttpModel, ModelAgentConfig};
use traffic_gen::live::ModelPopulation;

use crate::output::{Failure, tracer};

/// Reads the file, and makes the model it names for a share of the contractors; nothing is asked yet.
pub fn open(path: &Path, share: f64, metrics: Option<ModelMetrics>) -> Result<ModelPopulation, Failure> {
    let fault = |what: &dyn Display| Failure::configuration(format_args!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
    let config: ModelAgentConfig = toml::from_str(&text).map_err(|error| fault(&error))?;
    config.check().map_err(|error| fault(&error))?;
    let key = if config.model.key_env.is_empty() { None } else { key_of(&config.model.key_env)? };
    let model = HttpModel::try_new(&config.model, key.as_deref()).map_err(|error| fault(&error))?;
    let consultant = Consultant::new(model, config.model.clone()).traced(tracer());
    let consultant = match metrics {
        Some(metrics) => consultant.counted(metrics),
        None => consultant,
    };
    Ok(ModelPopulation {
        share,
        config: Arc::new(config),
        consultant: Arc::new(consultant),
        // The only source of randomness of the standard library: new in each process, known to nobody.
        marker_seed: RandomState::new().build_hasher().finish(),
    })
}

/// The key in an environment variable.
pub fn key_of(variable: &str) -> Result<Option<String>, Failure> {
    let fault = || Failure::configuration(format_args!("{variable} is not set: it should hold the model's key"));
    std::env::var(variable).ok().filter(|key| !key.trim().is_empty()).map(Some).ok_or_else(fault)
}
