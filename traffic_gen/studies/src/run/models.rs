//! The models that populations of a cell ask. Each cell has accounts of its own.

use std::collections::BTreeMap;

use traffic_gen::live::{CallScenario, Population};
use traffic_gen::models::ModelSummary;

use super::RunError;
use crate::plan::CellSpec;

/// The models of a cell, by the population that asks.
#[derive(Default)]
pub struct CellModels {
    by_population: BTreeMap<String, AskedModel>,
}

struct AskedModel {
    shared: traffic_gen::live::SharedModel,
    members: std::collections::BTreeSet<schemas::AgentId>,
}

impl CellModels {
    /// Opens what the cell's populations name. Nothing is asked yet.
    ///
    /// # Errors
    /// [`RunError::Model`].
    pub fn open(spec: &CellSpec) -> Result<Self, RunError> {
        use std::sync::Arc;

        use agents::model::{Consultant, HttpModel};
        use traffic_gen::live::SharedModel;

        let mut by_population = BTreeMap::new();
        let mut names = (0..).map(traffic_gen::live::contractor_name);
        for population in &spec.populations {
            let members = names.by_ref().take(population.count as usize).collect();
            let Some(config) = population.model.clone() else { continue };
            let fault = |fault: String| RunError::Model { population: population.name.clone(), fault };
            let key = config.model.key().map_err(|error| fault(error.to_string()))?;
            let model = HttpModel::try_new(&config.model, key.as_deref()).map_err(|error| fault(error.to_string()))?;
            let consultant = Arc::new(Consultant::new(model, config.model.clone()));
            // Nobody else takes part in a cell, so the marker may repeat with its seed.
            let shared = SharedModel { config: Arc::new(config), consultant, marker_seed: spec.seed };
            by_population.insert(population.name.clone(), AskedModel { shared, members });
        }
        Ok(Self { by_population })
    }

    /// Lets the members of the populations ask.
    pub fn join(&self, scenario: &mut CallScenario) {
        let each = self.by_population.values().flat_map(|asked| asked.members.iter().map(|name| (name, &asked.shared)));
        scenario.models = each.map(|(name, shared)| (name.clone(), shared.clone())).collect();
    }

    /// What they were asked, by population. Ask before the contractors are stopped.
    pub async fn summaries(&self, contractors: &Population) -> BTreeMap<String, ModelSummary> {
        let mut summaries = BTreeMap::new();
        for (name, AskedModel { shared, members }) in &self.by_population {
            let summary = shared.summary(contractors, |agent| members.contains(agent)).await;
            summaries.insert(name.clone(), summary);
        }
        summaries
    }
}
