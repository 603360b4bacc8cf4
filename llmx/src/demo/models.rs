//! The language models of a demo's agents: `--contractor-model FILE`, `--initiator-model FILE`.

use std::path::PathBuf;
use std::sync::Arc;

use ::agents::model::{KeptPrompts, ModelDecider};
use schemas::Policy;
use schemas::policy::Decider;
use traffic_gen::live::{CallScenario, Population};
use traffic_gen::live::{ModelPopulation, SharedModel};
use traffic_gen::models::ModelSummary;

use crate::arguments::share;
use crate::model::{self, ModelUse};
use crate::output::Failure;

/// Which agents of a demo ask a model.
#[derive(Debug, clap::Args)]
pub struct DemoModelArgs {
    /// Let a language model choose the terms of contractors, as this TOML file says (docs/models.md)
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    contractor_model: Option<PathBuf>,
    /// With --contractor-model: which share of the contractors asks it, from 0 to 1; the others are scripted
    #[arg(long, hide_short_help = true, default_value_t = 1.0, value_parser = share, value_name = "SHARE")]
    model_share: f64,
    /// Let a language model choose among the offers, as this TOML file says; its limits are gates of every call. A --policy
    /// beside it has `decider: initiator`
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    initiator_model: Option<PathBuf>,
    /// Keep what models are asked and answer in this folder, which only its owner may read (docs/models.md)
    #[arg(long, hide_short_help = true, value_name = "DIR")]
    keep_prompts: Option<PathBuf>,
}

/// What agents of a run ask, where they ask a model.
#[derive(Default)]
pub struct DemoModels {
    contractors: Option<ModelPopulation>,
    initiator: Option<Arc<ModelDecider>>,
    kept: Option<Arc<KeptPrompts>>,
}

/// What models were asked in a run.
#[derive(Default)]
pub struct DemoModelSummaries {
    /// By contractors.
    pub contractors: Option<ModelSummary>,
    /// By the initiator.
    pub initiator: Option<ModelSummary>,
}

impl DemoModelArgs {
    /// The option of the contract net that asks for a model, if there is one.
    pub fn given(&self) -> Option<&'static str> {
        [("--contractor-model", &self.contractor_model), ("--initiator-model", &self.initiator_model)]
            .into_iter()
            .find_map(|(option, file)| file.is_some().then_some(option))
    }

    /// The policy, under which the initiator decides where a model chooses for it.
    pub fn decided(&self, policy: Policy) -> Policy {
        if self.initiator_model.is_none() {
            return policy;
        }
        Policy { id: format!("{}-chosen@1", policy.name()), decider: Decider::Initiator, ..policy }
    }

    /// Reads the files; nothing is asked yet. Where no agents of others take part, `seed` draws orders and the markers around
    /// words of others, so that prompts repeat; without one nobody knows it.
    pub fn open(&self, policy: &Policy, seed: Option<u64>) -> Result<DemoModels, Failure> {
        if self.initiator_model.is_some() && policy.decider != Decider::Initiator {
            return Err(Failure::configuration(format_args!(
                "--initiator-model: under {} the exchange decides; name a policy with `decider: initiator` \
                 (docs/models.md#choosing-among-offers)",
                policy.id
            )));
        }
        if self.keep_prompts.is_some() && self.given().is_none() {
            return Err(Failure::configuration("--keep-prompts needs --contractor-model or --initiator-model"));
        }
        self.read(seed)
    }

    fn read(&self, seed: Option<u64>) -> Result<DemoModels, Failure> {
        let kept = model::keep(self.keep_prompts.as_deref())?;
        let with = || ModelUse { metrics: None, kept: kept.clone() };
        let contractors = self.contractor_model.as_deref();
        let contractors =
            contractors.map(|path| model::open_contractors(path, self.model_share, with())).transpose()?;
        let initiator = self.initiator_model.as_deref();
        let initiator = initiator.map(|path| model::open_decider(path, seed, with())).transpose()?;
        let contractors = contractors.map(|ModelPopulation { share, model }| {
            let marker_seed = seed.unwrap_or(model.marker_seed);
            ModelPopulation { share, model: SharedModel { marker_seed, ..model } }
        });
        Ok(DemoModels { contractors, initiator, kept })
    }
}

impl DemoModels {
    /// The scenario, whose agents ask these models.
    pub fn join(&self, scenario: CallScenario) -> CallScenario {
        CallScenario { model: self.contractors.clone(), decider: self.initiator.clone(), ..scenario }
    }

    /// What they were asked. Ask before the population is stopped.
    pub async fn summaries(&self, population: &Population) -> DemoModelSummaries {
        self.kept.iter().for_each(crate::output::note);
        DemoModelSummaries {
            contractors: match &self.contractors {
                Some(contractors) => Some(contractors.model.summary(population, |_| true).await),
                None => None,
            },
            initiator: self.initiator.as_deref().map(ModelSummary::of_decider),
        }
    }
}
