//! `llmx mcp`: the exchange as tools for one agent, over standard input and output (docs/mcp.md).

use std::path::PathBuf;
use std::sync::Arc;

use agents::{Identity, Token};
use bridges::mcp::{McpServer, serve_stdio};
use bridges::tools::ToolSet;
use bridges::{Gateways, Limits, Participant, ToolService};
use schemas::AgentId;

use crate::access::{AccessArgs, Bearer};
use crate::arguments::{micros, new_id, read_text};
use crate::output::{Failure, Outcome};
use crate::signals::asked_to_end;

/// Arguments of `llmx mcp`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx mcp --as alice\n  llmx mcp --token-file alice.jwt --gateway https://exchange.example\n  \
    llmx mcp --as alice --tools call,answer,team --price-max 90\n  claude mcp add llmx -- llmx mcp --as alice\n\n\
    A host of language models starts it and speaks the Model Context Protocol with it; how, for each host: docs/mcp.md.\n\
    --price-max and --require-mandate hold whatever a model was told.\n\
    Exit codes: 0 the host has ended it; 1 no gateway answers, or the token is refused; 2 usage or configuration."
)]
pub struct McpArgs {
    /// Who negotiates, where the token is signed here
    #[arg(long = "as", value_name = "AGENT", default_value = "caller", value_parser = AgentId::try_new)]
    agent: AgentId,
    /// File with the token, read anew whenever one is needed
    #[arg(long, value_name = "FILE", conflicts_with = "agent")]
    token_file: Option<PathBuf>,
    /// Sets of tools: call, answer, bargain, team, panel, documents
    #[arg(long, value_name = "SETS", value_delimiter = ',', default_value = "call,answer,bargain", value_parser = ToolSet::try_new)]
    tools: Vec<ToolSet>,
    /// Highest price of every call, in units such as 90 or 89.50
    #[arg(long, value_name = "AMOUNT", value_parser = micros)]
    price_max: Option<i64>,
    /// Refuse to open or join a bargain without a mandate
    #[arg(long)]
    require_mandate: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// Serves the host until it ends its side, or a signal comes.
pub async fn run(args: McpArgs) -> Outcome {
    let identity = args.identity().await?;
    let instance = new_id("mcp");
    let participant = Participant::open(identity, args.access.transport()?, instance[instance.len() - 4..].to_owned());
    let limits = Limits { price_max: args.price_max, requires_mandate: args.require_mandate };
    let gateways = Gateways::try_new(&args.access.gateway)?;
    let service = ToolService::new(participant.clone(), gateways, args.tools.clone(), limits, instance);
    let service = Arc::new(service);
    let server = McpServer::new(service.clone(), args.tools, crate::VERSION);
    let served = tokio::select! {
        served = serve_stdio(server, tokio::io::stdin(), tokio::io::stdout()) => served,
        () = service.keep_presence() => Ok(()),
        () = asked_to_end() => Ok(()),
    };
    service.close().await;
    served.map_err(Failure::failed)
}

impl McpArgs {
    async fn identity(&self) -> Result<Identity, Failure> {
        if let Some(path) = self.token_file.clone() {
            read_token(&path)?;
            let token = Token::renewed(move || read_token(&path).unwrap_or_default());
            return self.access.identity(Bearer { token, is_signed_here: false }).await;
        }
        let bearer = self.access.bearer(&self.agent)?;
        if bearer.is_signed_here {
            return Ok(Identity { agent: self.agent.clone(), token: bearer.token });
        }
        self.access.identity(bearer).await
    }
}

fn read_token(path: &std::path::Path) -> Result<String, Failure> {
    let fault = |error| Failure::configuration(format_args!("{}: {error}", path.display()));
    read_text(path, ::gateway::TOKEN_BYTES_MAX as u64).map(|text| text.trim().to_owned()).map_err(fault)
}
