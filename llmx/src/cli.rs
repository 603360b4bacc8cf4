//! The command line (docs/commands.md): a stable contract that scripts and tests rely on.

#[cfg(test)]
#[path = "../tests/common/help.rs"]
mod help;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::output::traces::{self, Traced};
use crate::output::{self, Outcome};
use crate::runtime::Threads;
use crate::settings::Given;
use crate::{
    HelpArgs, Program, a2a, agent, agora, archive, audit, award, call, config, contractors, demo, document, engine,
    gateway, healthcheck, ioa, keys, listen, mcp, metrics, panel, party, policy, replay, schema, search, serve, shell,
    token, top, traffic,
};

/// The exchange where agents negotiate: offers in, exactly one binding award out.
#[derive(Debug, Parser)]
#[command(name = "llmx", version = crate::VERSION, propagate_version = true, disable_help_flag = true, help_template = help(), after_help = EXAMPLES, after_long_help = MORE)]
pub struct Cli {
    #[command(flatten)]
    _help: HelpArgs,
    #[command(subcommand)]
    command: Command,
}

/// What `llmx` alone prints.
const FIRST_STEPS: &str = "\
llmx is an exchange where agents negotiate: offers in, exactly one binding award out.

Usage: llmx <COMMAND>

  llmx demo                      watch a whole exchange, for 20 seconds
  llmx serve                     run one that keeps what it is told
  llmx call \"carry a parcel\"     call for offers at one that runs, and follow the call to its award

All commands: llmx --help. One of them, with examples: llmx serve --help; with every option: llmx serve --help-all.";

/// Prints the commands that matter first.
pub fn print_first_steps() -> ExitCode {
    output::note(FIRST_STEPS);
    ExitCode::from(2)
}

const EXAMPLES: &str = "\
Examples:
  llmx demo --policy high --agents 50 --json     another population, the summary as JSON
  llmx demo --export run.jsonl && llmx replay run.jsonl
Exit codes: 0 fine, 1 the thing asked for failed, 2 bad usage or configuration. More: llmx --help-all.";

const MORE: &str = "\
Examples:
  llmx demo                                      the whole exchange in this process, for 20 seconds
  llmx serve                                     an exchange that keeps what it is told, until Ctrl-C
  llmx demo --nats nats://127.0.0.1:4222         the same over a real nats-server
  llmx demo --export run.jsonl && llmx replay run.jsonl

Experiments, benchmarks, simulated and real faults, scripted bargains and teams: llmx-lab --help.
Exit codes: 0 fine, 1 the thing asked for failed, 2 bad usage or configuration.
Logs go to stderr; LLMX_LOG=info (or debug, or a filter) shows more, LLMX_LOG_FORMAT=text or json chooses how.
Traces go where OTEL_EXPORTER_OTLP_ENDPOINT says, such as http://127.0.0.1:4318 (OTLP over HTTP); unset: nowhere.
OTEL_TRACES_SAMPLER_ARG is the share of negotiations that is traced, 0.01 unless set.";

/// Commands by what they are for.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Run an exchange", &["demo", "serve", "gateway", "engine", "bridge", "ioa", "archive", "healthcheck"]),
    ("Take part", &["call", "listen", "mcp", "a2a", "contractors", "party", "panel", "agora", "traffic", "search"]),
    ("Look", &["top", "agent", "replay", "audit", "award", "metrics", "schema"]),
    ("Administer", &["token", "keys", "policy", "document", "config", "completions", "man"]),
];

/// The template of `llmx --help`: commands in groups, which the library has no means for.
fn help() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("llmx"));
    let line = |name: &&str| {
        let about = commands.find_subcommand(name).and_then(|command| command.get_about()).map(ToString::to_string);
        format!("  {name:<12} {}\n", about.unwrap_or_default())
    };
    let groups: String = GROUPS
        .iter()
        .map(|(heading, names)| format!("{heading}:\n{}", names.iter().map(line).collect::<String>()))
        .collect();
    format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}{{after-help}}")
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The whole exchange in one process under Poisson load, with a summary
    Demo(demo::DemoArgs),
    /// A durable exchange in one command: gateway, engine, console, and a nats-server of its own
    Serve(Box<Given<serve::ServeArgs>>),
    /// One gateway, on NATS
    Gateway(Box<Given<gateway::GatewayArgs>>),
    /// One policy engine, on NATS
    Engine(Box<Given<engine::EngineArgs>>),
    /// Contractors, scripted or with a language model
    #[command(visible_alias = "agents")]
    Contractors(contractors::ContractorsArgs),
    /// One party of bargains on a running exchange, by a strategy or with a language model
    Party(party::PartyArgs),
    /// Who is registered at a running exchange: list, show, remove
    Agent(agent::AgentArgs),
    /// Agents by what they say of themselves, best first
    Search(search::SearchArgs),
    /// What arrives for an agent, live
    Listen(listen::ListenArgs),
    /// One negotiation from the shell, followed to its end
    Call(call::CallArgs),
    /// How a running exchange does, on one page of the terminal
    Top(top::TopArgs),
    /// Poisson calls from one initiator to contractors that run elsewhere
    Traffic(traffic::TrafficArgs),
    /// Recompute every decision from a log; any difference fails
    Replay(replay::ReplayArgs),
    /// Every record of the log, in files that outlive it
    Archive(archive::ArchiveArgs),
    /// Check an archive or an export, offline
    Audit(audit::AuditArgs),
    /// Signed records of awards: export them from an archive, verify one
    Award(award::AwardArgs),
    /// Questions asked of panels, and answered with a language model
    Panel(panel::PanelArgs),
    /// The exchange as tools for a language model's host, over the Model Context Protocol
    Mcp(mcp::McpArgs),
    /// An agent of the Agent2Agent protocol as a contractor
    A2a(Box<a2a::A2aArgs>),
    /// The exchange as tools over HTTP, for whoever shows a token
    Bridge(mcp::ToolBridgeArgs),
    /// Clients of the published code of the Internet of Agents, on this exchange
    Ioa(ioa::IoaArgs),
    /// Acceptance policies: list, show, put, check, switch the default
    Policy(policy::PolicyArgs),
    /// Protocol documents of Agora: put, show, list, hash
    Document(document::DocumentArgs),
    /// Agora: ask responders by protocol documents
    Agora(agora::AgoraArgs),
    /// A signed token for one agent
    Token(token::TokenArgs),
    /// A signing key and the key set that verifies it
    Keys(keys::KeysArgs),
    /// JSON Schemas: list, show, check a document
    Schema(schema::SchemaArgs),
    /// Every metric of every process
    Metrics(metrics::MetricsArgs),
    /// What is configured, and where each value comes from
    Config(config::ConfigArgs),
    /// A script that completes commands and flags, for a shell
    Completions(shell::CompletionsArgs),
    /// Manual pages of every command
    Man(shell::ManArgs),
    /// Ask a health endpoint; for containers without a shell
    Healthcheck(healthcheck::HealthcheckArgs),
}

impl Program for Cli {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other commands export no spans")]
    fn start_tracing(&self) -> Outcome {
        let (service, instance) = match &self.command {
            Command::Demo(_) => ("llmx-demo", None),
            Command::Serve(_) => ("llmx-serve", None),
            Command::Gateway(args) => ("llmx-gateway", args.args.settings.id.as_deref()),
            Command::Engine(args) => ("llmx-engine", args.args.settings.id.as_deref()),
            Command::Contractors(_) => ("llmx-agents", None),
            Command::Traffic(_) => ("llmx-traffic", None),
            Command::Call(_) => ("llmx-call", None),
            Command::Party(_) => ("llmx-party", None),
            _ => return Ok(()),
        };
        traces::start(&Traced { service, instance })
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "what the other commands wait for is elsewhere")]
    fn threads(&self) -> Threads {
        match &self.command {
            Command::Serve(args) => Threads::Given(args.args.threads),
            Command::Gateway(args) => Threads::Given(args.args.threads),
            Command::Engine(args) => Threads::Given(args.args.threads),
            Command::Contractors(args) => Threads::Given(args.threads),
            Command::Traffic(args) => Threads::Given(args.threads),
            Command::Demo(_)
            | Command::Replay(_)
            | Command::Archive(_)
            | Command::Audit(_)
            | Command::Award(_)
            | Command::Panel(_)
            | Command::Ioa(_)
            | Command::Mcp(_)
            | Command::Bridge(_)
            | Command::Agora(_) => Threads::Cores,
            _ => Threads::One,
        }
    }

    async fn run(self) -> Outcome {
        match self.command {
            Command::Demo(args) => Box::pin(demo::run(args)).await,
            Command::Serve(args) => Box::pin(serve::run(*args)).await,
            Command::Gateway(args) => Box::pin(gateway::run(*args)).await,
            Command::Engine(args) => Box::pin(engine::run(*args)).await,
            Command::Contractors(args) => Box::pin(contractors::run(args)).await,
            Command::Party(args) => Box::pin(party::run(args)).await,
            Command::Agent(args) => agent::run(args).await,
            Command::Search(args) => search::run(args).await,
            Command::Listen(args) => listen::run(args).await,
            Command::Traffic(args) => Box::pin(traffic::run(args)).await,
            Command::Call(args) => Box::pin(call::run(args)).await,
            Command::Top(args) => top::run(args).await,
            Command::Completions(args) => shell::print_completions(&args, &mut Self::command()),
            Command::Man(args) => shell::write_pages(&args, Self::command()),
            Command::Replay(args) => replay::run(args).await,
            Command::Archive(args) => archive::run(args).await,
            Command::Audit(args) => audit::run(args),
            Command::Award(args) => Box::pin(award::run(args)).await,
            Command::Panel(args) => Box::pin(panel::run(&args)).await,
            Command::Ioa(args) => Box::pin(ioa::run(args)).await,
            Command::Mcp(args) => Box::pin(mcp::run(args)).await,
            Command::Bridge(args) => Box::pin(mcp::bridge(args)).await,
            Command::A2a(args) => Box::pin(a2a::run(*args)).await,
            Command::Policy(args) => policy::run(args).await,
            Command::Document(args) => document::run(args).await,
            Command::Agora(args) => agora::run(args).await,
            Command::Token(args) => token::run(&args),
            Command::Keys(args) => keys::run(&args),
            Command::Schema(args) => schema::run(args),
            Command::Metrics(args) => metrics::run(&args),
            Command::Config(args) => config::run(args),
            Command::Healthcheck(args) => healthcheck::run(args).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_subcommand_has_examples_of_itself() {
        super::help::assert_examples(Cli::command(), 36);
    }

    #[test]
    fn every_command_stands_in_one_group_of_the_help() {
        let command = Cli::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        assert!(all.len() <= 32, "{} commands", all.len());
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
