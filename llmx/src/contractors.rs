//! `llmx contractors`: contractors against an exchange that runs elsewhere, scripted or with a language model.

mod routines;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use agents::AgentOptions;
use agents::metrics::{AgentMetrics, AgentRole};
use agents::model::metrics::ModelMetrics;
use agents::observer::Observer;
use agents::routine::RoutineRunner;
use agents::routine::metrics::RoutineMetrics;
use agents::transport::websocket::CONTRACTOR_LINGER;
use schemas::TopicName;
use schemas::ids::Capability;
use serde_json::{Value, json};
use traffic_gen::deferrals::DeferralCounter;
use traffic_gen::invariants::Watch;
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::routines::RoutineSummary;

use crate::arguments::{listen_address, share};
use crate::connections::Connections;
use crate::model::{self, ModelUse};
use crate::ops::{self, HealthReport};
use crate::output::{Failure, Outcome, print, tracer};
use crate::remote::{Remote, RemoteArgs};
use crate::runtime::ThreadsArgs;
use crate::signals::asked_to_end;

use routines::OpenedRoutines;

/// Longest beginning of names: an id has 64 characters, of which the rest of a name takes at most 24.
const PREFIX_LEN_MAX: usize = 40;

/// Arguments of `llmx contractors`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx contractors --gateway http://127.0.0.1:8080 --count 12 --transport websocket\n  \
    llmx contractors --count 3 --model model.toml                with a language model (docs/models.md)\n  \
    llmx contractors --model model.toml --model-share 0.5        with it for every other one\n  \
    llmx contractors --routines examples/routines.toml           with routines for protocol documents (docs/agora.md)"
)]
pub struct ContractorsArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Contractors, named contractor-0 and so on; those that ask a model, model-contractor-0 and so on
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Begins their names (default: nothing), up to 40 of A-Z a-z 0-9 _ -; for every further `llmx contractors` of an exchange,
    /// and beside a demo: agents of the same names are the same agents
    #[arg(long, default_value = "", hide_default_value = true, value_parser = prefix, value_name = "TEXT")]
    prefix: String,
    /// Topic they register
    #[arg(long, default_value = live::TOPIC, value_parser = TopicName::try_new, value_name = "NAME")]
    topic: TopicName,
    /// Capabilities they register, separated by commas (default: none)
    #[arg(long, value_parser = Capability::try_new, value_delimiter = ',', value_name = "NAMES")]
    capability: Vec<Capability>,
    /// Seed of their behaviour
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Address of the health port: /healthz, /readyz (200 while all are connected), /status, /metrics, to whoever asks;
    /// for example 127.0.0.1:9465 (default: none)
    #[arg(long, env = "LLMX_AGENTS_LISTEN", value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Let a language model choose the terms, as this TOML file says (docs/models.md)
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// With --model: which share of them asks it, from 0 to 1; the others are scripted
    #[arg(long, default_value_t = 1.0, value_parser = share, value_name = "SHARE")]
    model_share: f64,
    /// With --model: keep what it is asked and answers in this folder, which only its owner may read (docs/models.md)
    #[arg(long, value_name = "DIR", requires = "model")]
    keep_prompts: Option<PathBuf>,
    /// Let routines carry the awards out, by the protocol document they pin, as this TOML file says (docs/agora.md); not
    /// with --model: a model that carries awards out is named in the file
    #[arg(long, value_name = "FILE")]
    routines: Option<PathBuf>,
    /// The threads it runs on.
    #[command(flatten)]
    pub threads: ThreadsArgs,
}

impl ContractorsArgs {
    /// What cannot be used together.
    fn check(&self) -> Outcome {
        if self.routines.is_some() && self.model.is_some() {
            return Err(Failure::configuration(
                "--routines cannot be used with --model, whose contractors let the model choose their terms; a model that carries \
                 awards out is named in the file of --routines: `model = FILE` before the first [[routine]] (docs/agora.md)",
            ));
        }
        Ok(())
    }
}

/// Runs until asked to end.
pub async fn run(args: ContractorsArgs) -> Outcome {
    args.check()?;
    let registry = ops::registry()?;
    let metrics = AgentMetrics::try_new(&registry)?;
    let health = ops::open(args.listen, None, &registry)?;
    if let Some(health) = &health {
        print(format_args!("health: http://{}/readyz", health.address()));
        let (metrics, wanted) = (metrics.clone(), args.count);
        health.report(move || report(metrics.connected(), wanted));
    }
    let kept = model::keep(args.keep_prompts.as_deref())?;
    let asked = match &args.model {
        Some(path) => {
            let with = ModelUse { metrics: Some(ModelMetrics::try_new(&registry)?), kept: kept.clone() };
            Some(model::open_contractors(path, args.model_share, with)?)
        }
        None => None,
    };
    let routines = OpenedRoutines::open(args.routines.as_deref(), RoutineMetrics::try_new(&registry)?)?;
    let remote = args.remote.open_lingering("llmx-contractors", CONTRACTOR_LINGER).await?;
    let (transport, identity) = (|_: &_| remote.transport(), |name: &_| remote.identity(name));
    let access = Access { control: &remote.control, transport: &transport, identity: &identity };
    let deferrals = Arc::new(DeferralCounter::default());
    let watchers: Vec<Arc<dyn Observer>> =
        vec![metrics.observer(AgentRole::Contractor), Arc::new(Watch::try_new(&registry)?), deferrals.clone()];
    let options = AgentOptions { observer: Some(Arc::new(watchers)), tracer: tracer(), ..AgentOptions::default() };
    let scenario = CallScenario {
        contractors: args.count,
        prefix: args.prefix,
        topic: args.topic,
        capabilities: args.capability,
        seed: args.seed,
        routines: routines.runners.clone(),
        connect_within: remote.connect_within,
        options,
        model: asked.clone(),
        ..CallScenario::default()
    };
    warn_of_present(&remote, &scenario).await;
    let population = remote.connected(Population::start(&access, &scenario, None)).await?;
    print(format_args!("contractors: {} connected", args.count));
    let connections = Connections::new(&metrics, args.count.into(), &remote.place);
    let putting = routines.put(&remote, (0..args.count).map(|number| scenario.contractor_name(number)));
    tokio::select! {
        () = asked_to_end() => {}
        ((), (), ()) = async { tokio::join!(putting, connections.watch(), population.keep_registered()) } => {}
    }
    let summary = match &asked {
        Some(asked) => Some(asked.model.summary(&population, |_| true).await),
        None => None,
    };
    population.stop().await?;
    print_course(&deferrals, &routines.runners);
    if let Some(summary) = summary {
        print(summary);
        kept.iter().for_each(print);
    }
    if let Some(health) = health {
        health.close().await;
    }
    Ok(())
}

/// Warns where the first of them is present already: of two processes with the same names neither does all of its work.
async fn warn_of_present(remote: &Remote, scenario: &CallScenario) {
    let name = scenario.contractor_name(0);
    let token = remote.identity(&name).token.current();
    // Who is not registered yet is not found.
    let found: Result<Value, _> = remote.control.read(&format!("/v1/agents/{name}"), &token).await;
    if found.is_ok_and(|agent| agent["present"] == true) {
        tracing::warn!(
            "{name} is present already. Where another process runs it, give these names of their own (--prefix b-): \
             agents of the same names are the same agents"
        );
    }
}

/// What held them back, and which routines ran.
fn print_course(deferrals: &DeferralCounter, runners: &[Arc<RoutineRunner>]) {
    let deferrals = deferrals.total();
    if !deferrals.is_empty() {
        print(format_args!("contractors: held back or not answered: {deferrals}"));
    }
    let ran = RoutineSummary::of(runners);
    if !ran.is_empty() {
        print(format_args!("contractors: routines {ran}"));
    }
}

/// What begins the names of agents.
fn prefix(text: &str) -> Result<String, String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let is_prefix = text.len() <= PREFIX_LEN_MAX && text.chars().all(is_part);
    if is_prefix { Ok(text.to_owned()) } else { Err(format!("up to {PREFIX_LEN_MAX} of A-Z a-z 0-9 _ - are expected")) }
}

/// What the health port says.
fn report(connected: u64, wanted: u32) -> HealthReport {
    let is_ready = connected >= u64::from(wanted);
    let fault = || {
        let remedy = "wait, or see why the gateways refuse the others (LLMX_LOG=agents=debug)";
        format!("{connected} of {wanted} contractors are connected; {remedy}")
    };
    let faults = (!is_ready).then(fault).into_iter().collect();
    HealthReport { is_ready, faults, state: json!({ "connected": connected, "contractors": wanted }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contractors_are_ready_when_all_of_them_are_connected() {
        assert!(report(12, 12).is_ready && report(12, 12).faults.is_empty());
        let fewer = report(11, 12);
        assert!(!fewer.is_ready);
        assert!(fewer.faults[0].starts_with("11 of 12 contractors"), "{fewer:?}");
    }
}
