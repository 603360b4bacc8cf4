//! `llmx token`: a signed token for one agent.

use std::path::PathBuf;

use ::gateway::keys::Claims;
use ::gateway::{TOKEN_LIFETIME_S_DEFAULT, TOKEN_LIFETIME_S_MAX};
use schemas::AgentId;

use crate::keys::read_key;
use crate::output::{Outcome, note, print, print_json};

/// Arguments of `llmx token`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  curl -H \"Authorization: Bearer $(llmx token alice)\" http://127.0.0.1:8080/v1/agents\n  \
    llmx token operator --admin --lifetime 600\n\n\
    The key must be one that the gateway verifies with: of an exchange that runs, its own (--key, LLMX_SIGNING_KEY)."
)]
pub struct TokenArgs {
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
    /// Lifetime in seconds, up to 30 days; a gateway takes a day unless its --lifetime-s-max says otherwise
    #[arg(long, default_value_t = 3600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=TOKEN_LIFETIME_S_MAX))]
    lifetime: u64,
    /// Let the holder put policies and groups
    #[arg(long)]
    admin: bool,
    /// Print token, subject and expiry as JSON
    #[arg(long)]
    json: bool,
}

/// Prints a token.
pub fn run(args: &TokenArgs) -> Outcome {
    let mut claims = Claims::new(&args.agent, &args.issuer, &args.audience, args.lifetime);
    if args.admin {
        claims = claims.admin();
    }
    let token = read_key(&args.key)?.sign(&claims)?;
    if args.lifetime > TOKEN_LIFETIME_S_DEFAULT {
        note(format_args!(
            "llmx: a gateway refuses a token that lives longer than {TOKEN_LIFETIME_S_DEFAULT} s, unless it has a larger \
             --lifetime-s-max"
        ));
    }
    if args.json {
        return print_json(&serde_json::json!({"token": token, "sub": claims.sub, "exp": claims.exp}));
    }
    print(token);
    Ok(())
}
