//! `llmx config`: what is in force, and where each value comes from.

use ::gateway::GatewayConfig;
use serde_json::{Value, json};

use crate::nats::NatsArgs;
use crate::output::{Failure, Outcome, print, print_json};
use crate::settings::{Entry, Given};
use crate::{engine, gateway, serve};

/// Arguments of `llmx config`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx config show gateway --config llmx.toml --burst 50\n  \
    LLMX_CONFIG=llmx.toml llmx config show --json")]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Every setting in force, and whether a flag, an environment variable, a line of a file or the default gave it
    Show(Show),
}

/// Arguments of `llmx config show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx config show gateway --config llmx.toml --burst 50\n  \
    LLMX_CONFIG=llmx.toml llmx config show --json\n\n\
    Takes the flags of `llmx serve`, `llmx gateway` or `llmx engine`; without any shows the latter two, as the environment has them.\n\
    Secrets are not shown.")]
struct Show {
    #[command(subcommand)]
    of: Option<Of>,
    /// Print the settings as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Of {
    /// Of a gateway that is started with these flags
    #[command(after_help = "Examples:\n  llmx config show gateway --config llmx.toml --burst 50")]
    Gateway(Box<Given<gateway::GatewayArgs>>),
    /// Of an exchange that is started with these flags
    #[command(after_help = "Examples:\n  llmx config show serve --config llmx.toml --policy high")]
    Serve(Box<Given<serve::ServeArgs>>),
    /// Of an engine that is started with these flags
    #[command(after_help = "Examples:\n  llmx config show engine --config llmx.toml --json")]
    Engine(Box<Given<engine::EngineArgs>>),
}

/// Runs the subcommand.
pub fn run(args: ConfigArgs) -> Outcome {
    let ConfigCommand::Show(Show { of, json }) = args.command;
    let entries = match of {
        Some(Of::Gateway(given)) => gateway_entries(&gateway::Sections::of(&given)?, None)?,
        Some(Of::Serve(given)) => serve_entries(&given)?,
        Some(Of::Engine(given)) => engine_entries(&given)?,
        None => {
            let given = Given::from_environment().map_err(Failure::configuration)?;
            let mut entries = gateway_entries(&gateway::Sections::of(&given)?, None)?;
            let engine = engine_entries(&Given::from_environment().map_err(Failure::configuration)?)?;
            // Both reach NATS alike.
            entries.extend(engine.into_iter().filter(|entry| !entry.member.starts_with("nats.")));
            entries
        }
    };
    if json {
        return print_json(&entries.iter().map(Entry::to_json).collect::<serde_json::Map<String, Value>>());
    }
    entries.iter().for_each(print);
    Ok(())
}

/// Of a gateway, which has these keys where none are set.
fn gateway_entries(sections: &gateway::Sections, keys: Option<Value>) -> Result<Vec<Entry>, Failure> {
    let mut entries = sections.nats.entries(&[], sections.nats_in_force()?);
    let is_keyless = keys.is_none() && !sections.gateway.has("auth.keys");
    let config = sections.config_with(keys.unwrap_or_else(|| json!({"inline": ""})))?;
    for mut entry in sections.gateway.entries(&gateway::GROUPS, shown(&config)?) {
        if is_keyless && entry.member == "gateway.auth.keys" {
            entry.value = Value::Null;
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// The configuration without what is secret or too long to be read.
fn shown(config: &GatewayConfig) -> Result<Value, Failure> {
    let mut shown = serde_json::to_value(config)?;
    let ids = config.policies.iter().map(|policy| Value::from(policy.id.as_str())).collect();
    shown["policies"] = Value::Array(ids);
    if let Some(Value::String(url)) = shown.pointer_mut("/auth/keys/url") {
        *url = without_secrets(url);
    }
    if let Some(Value::String(document)) = shown.pointer_mut("/auth/keys/inline") {
        *document = format!("{} bytes", document.len());
    }
    Ok(shown)
}

/// An address without name, password and values of its query, any of which may be a secret.
fn without_secrets(url: &str) -> String {
    let Ok(mut shown) = reqwest::Url::parse(url) else { return "(no address)".to_owned() };
    let names: Vec<String> = shown.query_pairs().map(|(name, _)| name.into_owned()).collect();
    // An address that can have no name has none.
    let _ = shown.set_username("").and_then(|()| shown.set_password(None));
    shown.set_fragment(None);
    if shown.query().is_some() {
        shown.set_query(None);
        let query: Vec<String> = names.iter().map(|name| format!("{name}=(redacted)")).collect();
        return format!("{shown}?{}", query.join("&"));
    }
    shown.to_string()
}

/// Of an exchange; the address of a nats-server of its own is not known before it starts.
fn serve_entries(given: &Given<serve::ServeArgs>) -> Result<Vec<Entry>, Failure> {
    let (gateway, engine) = serve::sections(given)?;
    let mut entries = gateway_entries(&gateway, Some(given.args.keys()))?;
    if NatsArgs::of(&gateway.nats)?.nats.is_none() {
        entries.retain(|entry| entry.member != "nats.url");
    }
    entries.extend(engine.engine.entries(&[], engine.in_force()?));
    Ok(entries)
}

fn engine_entries(given: &Given<engine::EngineArgs>) -> Result<Vec<Entry>, Failure> {
    let sections = engine::EngineSections::of(given)?;
    let mut entries = sections.nats.entries(&[], sections.nats_in_force()?);
    entries.extend(sections.engine.entries(&[], sections.in_force()?));
    Ok(entries)
}
