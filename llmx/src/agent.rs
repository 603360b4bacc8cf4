//! `llmx agent`: who is registered at a running exchange.

use agents::control::{ListedAgent, Wanted};
use schemas::ids::Capability;
use schemas::{AgentId, TopicName};
use serde_json::{Value, json};

use crate::access::AccessArgs;
use crate::output::{Outcome, agents, print_result, table, table_under};

/// Most agents listed unless more are asked for.
const LISTED: usize = 1000;

/// Arguments of `llmx agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx agent list --topic courier\n  llmx agent list --present yes --json\n  \
    llmx agent show bob\n  llmx agent remove bob\n  LLMX_TOKEN=$(cat bob.jwt) llmx agent show bob\n\n\
    An agent sees its own consent rules, others do not. Only its own token removes a registration.\n\
    Exit codes: 1 when the gateway refuses, knows no such agent or does not answer.")]
pub struct AgentArgs {
    #[command(subcommand)]
    command: AgentCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AgentCommand {
    /// Agents by capability, topic and presence, in the order of their ids
    List(ListArgs),
    /// One registration
    #[command(after_help = "Examples:\n  llmx agent show bob --json")]
    Show(OneArgs),
    /// Take a registration away: nobody is invited under it any more
    #[command(after_help = "Examples:\n  llmx agent remove bob\n  llmx agent remove bob --token \"$(cat bob.jwt)\"")]
    Remove(OneArgs),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx agent list --topic courier --capability bicycle\n  llmx agent list --present no"
)]
struct ListArgs {
    /// Only agents with this capability
    #[arg(long, value_name = "NAME", value_parser = Capability::try_new)]
    capability: Option<Capability>,
    /// Only agents that subscribe to this topic
    #[arg(long, value_name = "NAME", value_parser = TopicName::try_new)]
    topic: Option<TopicName>,
    /// Only agents that are present, or only those that are not
    #[arg(long, value_enum)]
    present: Option<Present>,
    /// Most agents to list
    #[arg(long, default_value_t = LISTED)]
    limit: usize,
    /// Whose token is signed
    #[arg(long = "as", value_name = "AGENT", default_value = "operator", value_parser = AgentId::try_new)]
    caller: AgentId,
    /// Print `{"agents": […], "cut": …}`; `cut` says whether --limit left some out
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Present {
    /// Present
    Yes,
    /// Absent
    No,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The agent
    #[arg(value_parser = AgentId::try_new)]
    agent: AgentId,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// Runs the subcommand.
pub async fn run(args: AgentArgs) -> Outcome {
    match args.command {
        AgentCommand::List(args) => list(args).await,
        AgentCommand::Show(args) => show(args).await,
        AgentCommand::Remove(args) => remove(args).await,
    }
}

async fn list(args: ListArgs) -> Outcome {
    let token = args.access.bearer(&args.caller)?.token.current();
    let present = args.present.map(|present| matches!(present, Present::Yes));
    let wanted = Wanted { capability: args.capability, topic: args.topic, present, limit: args.limit, pages_max: None };
    let found = args.access.ask(async |gateway| gateway.agents(&token, &wanted).await).await?;
    let heading = ["AGENT", "PRESENT", "CAPABILITIES", "TOPICS", "DESCRIPTION"];
    let (table, count) = (table_under(heading, found.agents.iter().map(row)), agents(found.agents.len()));
    let cut = if found.is_cut { "; there are more (--limit)" } else { "" };
    let document = json!({ "agents": found.agents, "cut": found.is_cut });
    print_result(args.json, &document, format_args!("{table}\n{count}{cut}"))
}

fn row(agent: &ListedAgent) -> [String; 5] {
    [
        agent.agent.to_string(),
        presence(agent.present).to_owned(),
        joined(agent.capabilities.iter()),
        joined(agent.topics.iter()),
        agent.description.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

fn presence(present: Option<bool>) -> &'static str {
    match present {
        Some(true) => "yes",
        Some(false) => "no",
        // A gateway that does not say.
        None => "?",
    }
}

fn joined(names: impl Iterator<Item = impl ToString>) -> String {
    let names: Vec<String> = names.map(|name| name.to_string()).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

async fn show(args: OneArgs) -> Outcome {
    let token = args.access.bearer(&args.agent)?.token.current();
    let path = format!("/v1/agents/{}", args.agent);
    let registration: Value = args.access.ask(async |gateway| gateway.read(&path, &token).await).await?;
    let members = registration.as_object().into_iter().flatten();
    let rows: Vec<Vec<String>> = members.map(|(name, value)| vec![name.clone(), shown(value)]).collect();
    print_result(args.json, &registration, table(&rows))
}

/// A value on one line: a text as it is, a list of texts with commas, everything else as JSON.
fn shown(value: &Value) -> String {
    let texts = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    match (value.as_str(), texts) {
        (Some(text), _) => text.to_owned(),
        (None, Some(texts)) => joined(texts.into_iter()),
        (None, None) => value.to_string(),
    }
}

async fn remove(args: OneArgs) -> Outcome {
    let token = args.access.bearer(&args.agent)?.token.current();
    let path = format!("/v1/agents/{}", args.agent);
    // Removing what is not there succeeds at the gateway; who mistyped a name wants to know.
    let removing = async |gateway: &agents::control::ControlClient| {
        gateway.read::<Value>(&path, &token).await?;
        gateway.remove(&args.agent, &token).await
    };
    args.access.ask(removing).await?;
    let words = format_args!("{} is removed: it is invited to nothing until it registers again", args.agent);
    print_result(args.json, &json!({ "agent": args.agent, "removed": true }), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_registration_reads_as_a_text_a_list_or_json() {
        assert_eq!(shown(&json!("a b")), "a b");
        assert_eq!(
            (shown(&json!(["a", "b"])), shown(&json!([])), shown(&json!({"a": 1}))),
            ("a,b".to_owned(), "-".to_owned(), r#"{"a":1}"#.to_owned())
        );
    }
}
