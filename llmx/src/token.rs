//! `llmx token`: a signed token for one agent.

use std::path::PathBuf;

use ::gateway::keys::Claims;
use schemas::AgentId;

use crate::keys::read_key;
use crate::output::{Outcome, print, print_json};

/// Arguments of `llmx token`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  curl -H \"Authorization: Bearer $(llmx token alice)\" http://127.0.0.1:8080/v1/agents"
)]
pub struct Args {
    /// The agent: the token's subject
    #[arg(value_parser = AgentId::try_new)]
    agent: AgentId,
    /// Signing key, as `llmx keys` writes it
    #[arg(long, env = "LLMX_SIGNING_KEY", default_value = "run/keys/signing-key.pem")]
    key: PathBuf,
    /// Issuer; the gateway must expect the same
    #[arg(long, env = "LLMX_ISSUER", default_value = "llmx-local")]
    issuer: String,
    /// Audience
    #[arg(long, env = "LLMX_AUDIENCE", default_value = "llmx")]
    audience: String,
    /// Lifetime in seconds
    #[arg(long, default_value_t = 3600)]
    lifetime: u64,
    /// Let the holder put policies and groups
    #[arg(long)]
    admin: bool,
    /// Print token, subject and expiry as JSON
    #[arg(long)]
    json: bool,
}

/// Prints a token.
pub fn run(args: &Args) -> Outcome {
    let mut claims = Claims::new(&args.agent, &args.issuer, &args.audience, args.lifetime);
    if args.admin {
        claims = claims.admin();
    }
    let token = read_key(&args.key)?.sign(&claims)?;
    if args.json {
        return print_json(&serde_json::json!({"token": token, "sub": claims.sub, "exp": claims.exp}));
    }
    print(token);
    Ok(())
}
