//! The language model that chooses for an initiator: `--initiator-model FILE`.

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;

use ::agents::model::decider::ModelDeciderCounts;
use ::agents::model::{Consultant, HttpModel, ModelAgentConfig, ModelDecider, ModelTotals};

use crate::output::{Failure, note, tracer};

/// Reads the file, and makes the model it names; nothing is asked yet. `seed` draws orders and markers; without one nobody
/// knows it.
pub fn open_decider(path: &Path, seed: Option<u64>) -> Result<Arc<ModelDecider>, Failure> {
    let fault = |what: &dyn Display| Failure::configuration(format_args!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
    let config: ModelAgentConfig = toml::from_str(&text).map_err(|error| fault(&error))?;
    config.check_initiator().map_err(|error| fault(&error))?;
    let key = if config.model.key_env.is_empty() { None } else { crate::contractors::key_of(&config.model.key_env)? };
    let model = HttpModel::try_new(&config.model, key.as_deref()).map_err(|error| fault(&error))?;
    let consultant = Consultant::new(model, config.model.clone()).traced(tracer());
    let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    Ok(Arc::new(ModelDecider::new(Arc::new(config), Arc::new(consultant), seed)))
}

/// What was decided, and what it cost.
pub fn note_decisions(decider: &ModelDecider) {
    let ModelDeciderCounts { chosen, fallbacks } = decider.counts();
    let ModelTotals { calls, usage, cost, .. } = decider.consultant().totals();
    let name = &decider.config().model.name;
    if chosen + fallbacks == 0 {
        note(format!("model {name}: not asked; only a policy with `decider: initiator` leaves the choice to it"));
        return;
    }
    let (input, output) = (usage.input, usage.output);
    note(format!(
        "model {name}: {chosen} choices, {fallbacks} by score instead; {calls} calls, {input} tokens in, {output} out, \
         {cost} micro-units"
    ));
}
