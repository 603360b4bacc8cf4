//! `llmx a2a`: an agent of the Agent2Agent protocol as a contractor of a running exchange (docs/a2a.md).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::agents::AgentOptions;
use ::agents::asking::{Asking, spawn};
use anyhow::anyhow;
use bridges::a2a_agent::{A2aClient, A2aContractor};
use reqwest::header::{HeaderName, HeaderValue};
use schemas::control::Registration;
use schemas::ids::Capability;
use schemas::{AgentId, TopicName};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use traffic_gen::live::RegisteredAgents;

use crate::access::AccessArgs;
use crate::arguments::{http_url, read_file};
use crate::output::{Failure, Outcome, print};
use crate::signals::asked_to_end;

/// Longest to say that work in hand is given up. An agent without a gateway hears of nothing.
const GIVE_UP_MAX: Duration = Duration::from_secs(5);
/// Largest header file, in bytes.
const HEADER_BYTES_MAX: u64 = 16 * 1024;

/// Arguments of `llmx a2a`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx a2a --card http://127.0.0.1:9000/.well-known/agent-card.json --as bob --topics courier\n  \
    llmx a2a --card https://agent.example/.well-known/agent-card.json --as bob --header-file key.txt --auto-confirm\n\n\
    Asks an A2A agent (1.0, JSON-RPC) for offers, to confirm awards and to carry them out, until asked to end; for acts of every\n\
    protocol where its card names the extension. docs/a2a.md\n\
    Exit codes: 1 no card there, no gateway answers, or the token is refused; 2 usage or configuration."
)]
pub struct A2aArgs {
    /// Address of the agent's card
    #[arg(long, value_name = "URL", value_parser = http_url)]
    card: String,
    /// Which agent of the exchange it is
    #[arg(long = "as", value_name = "AGENT", value_parser = AgentId::try_new)]
    agent: AgentId,
    /// Topics it registers, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = TopicName::try_new)]
    topics: Vec<TopicName>,
    /// Capabilities it registers, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = Capability::try_new)]
    capabilities: Vec<Capability>,
    /// File with one header, `Authorization: Bearer …`, for the origin of the card alone
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
    /// Confirm awards of the terms it offered without asking it
    #[arg(long)]
    auto_confirm: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// Takes part until asked to end.
pub async fn run(args: A2aArgs) -> Outcome {
    let read = |path: &PathBuf| read_file(path, HEADER_BYTES_MAX, header);
    let header = args.header_file.as_ref().map(read).transpose()?;
    let expected = "the card of an A2A 1.0 agent is expected, as at /.well-known/agent-card.json";
    let fault = |fault| Failure::failed(anyhow!("{}: {fault}; {expected}", args.card));
    let client = A2aClient::open(&args.card, header).await.map_err(fault)?;
    let identity = args.access.identity(args.access.bearer(&args.agent)?).await?;
    let registration =
        Registration { topics: args.topics, capabilities: args.capabilities, ..Registration::open_to_all() };
    let registering = args.access.ask(async |gateway| {
        let mut registered = RegisteredAgents::new(gateway);
        registered.register(&identity, &registration).await.map(|()| registered)
    });
    let registered = registering.await?;
    let (cancel, way) = (CancellationToken::new(), (args.access.transport()?, identity, AgentOptions::default()));
    let client = Arc::new(client);
    let contractor = A2aContractor::new(args.agent, args.auto_confirm, client.is_extended());
    let agent = spawn(contractor, Arc::clone(&client), way, cancel.clone());
    let extension = if client.is_extended() { ", by the extension" } else { "" };
    print(format_args!("a2a: {} asks {}{extension}", agent.agent(), args.card));
    let commander = agent.commander();
    let mut ended = Box::pin(agent.join());
    tokio::select! {
        outcome = &mut ended => return Ok(outcome.map(|_| ())?),
        () = asked_to_end() => {}
        () = registered.keep() => {}
    }
    let (given_up, stops) = oneshot::channel();
    let give_up = move |asking: &mut Asking<A2aContractor>, _| {
        let (said, stops) = asking.strategy().give_up();
        // It waits below.
        let _ = given_up.send(stops);
        said
    };
    let giving_up = async {
        if commander.command(give_up).await.is_ok() {
            client.end(stops.await.unwrap_or_default()).await;
        }
    };
    if timeout(GIVE_UP_MAX, giving_up).await.is_err() {
        tracing::warn!("work in hand is not given up: the gateway or the A2A agent does not answer");
    }
    registered.remove().await;
    cancel.cancel();
    Ok(ended.await.map(|_| ())?)
}

/// A header as one line; nothing of it is repeated.
fn header(line: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let expected = "one header is expected: `Name: value`";
    let (name, value) = line.trim().split_once(':').ok_or(expected)?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| expected)?;
    value.set_sensitive(true);
    HeaderName::from_bytes(name.as_bytes()).map(|name| (name, value)).map_err(|_| expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value_on_one_line_and_is_not_shown() {
        let (name, value) = header("Authorization: Bearer a:b\n").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Bearer a:b"));
        assert!(value.is_sensitive());
        for bad in ["", "Bearer secret", ": x", "a b: x", "a: x\nb: y", "a: \u{7f}"] {
            let fault = header(bad).unwrap_err();
            assert!(fault.starts_with("one header") && !fault.contains("secret"), "{bad}");
        }
    }
}
