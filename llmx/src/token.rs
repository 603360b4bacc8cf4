//! `llmx token`: a signed token for one agent.

use std::path::PathBuf;

use ::gateway::keys::Claims;
use ::gateway::{Audiences, TOKEN_LIFETIME_S_DEFAULT, TOKEN_LIFETIME_S_MAX};
use schemas::AgentId;
use serde_json::json;

use crate::keys::{AUDIENCE_DEFAULT, ISSUER_DEFAULT, read_key};
use crate::output::{Outcome, note, print_result};

/// Arguments of `llmx token`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  curl -H \"Authorization: Bearer $(llmx token alice)\" http://127.0.0.1:8080/v1/agents\n  \
    llmx token operator --admin --lifetime 10m\n\n\
    The key must be one that the gateway verifies with: of an exchange that runs, its own (--key, LLMX_SIGNING_KEY)."
)]
pub struct TokenArgs {
    /// The agent: the token's subject
    #[arg(value_parser = AgentId::try_new)]
    agent: AgentId,
    /// Signing key, as `llmx keys` writes it
    #[arg(long, env = "LLMX_SIGNING_KEY", default_value = crate::keys::KEY_DEFAULT)]
    key: PathBuf,
    /// Issuer; the gateway must expect the same
    #[arg(long, env = "LLMX_ISSUER", default_value = ISSUER_DEFAULT)]
    issuer: String,
    /// Audience; of several, separated by commas, the first
    #[arg(long, env = "LLMX_AUDIENCE", default_value = AUDIENCE_DEFAULT)]
    audience: Audiences,
    /// Lifetime, in seconds or as 90m, 1h or 7d, up to 30 days; a gateway takes a day unless its --lifetime-s-max says otherwise
    #[arg(long, default_value = "1h", value_name = "LENGTH", value_parser = lifetime)]
    lifetime: u64,
    /// Let the holder put policies and groups
    #[arg(long)]
    admin: bool,
    /// Print token, subject and expiry as JSON
    #[arg(long)]
    json: bool,
}

/// A lifetime in seconds.
fn lifetime(text: &str) -> Result<u64, String> {
    let unit_s = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => 0,
    };
    let (number, unit_s) = if unit_s == 0 { (text, 1) } else { (&text[..text.len() - 1], unit_s) };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_s));
    seconds.filter(|seconds| (1..=TOKEN_LIFETIME_S_MAX).contains(seconds)).ok_or_else(|| {
        format!(
            "{text} is not in 1..={TOKEN_LIFETIME_S_MAX} seconds; expected a number of them, or such as 90m, 1h or 7d"
        )
    })
}

/// Prints a token.
pub fn run(args: &TokenArgs) -> Outcome {
    let mut claims = Claims::new(&args.agent, &args.issuer, args.audience.first(), args.lifetime);
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
    print_result(args.json, &json!({ "token": token, "sub": claims.sub, "exp": claims.exp }), &token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_a_number_of_seconds_or_of_a_unit() {
        for (text, seconds) in [("1", 1), ("3600", 3600), ("90s", 90), ("90m", 5400), ("1h", 3600), ("30d", 2_592_000)]
        {
            assert_eq!(lifetime(text), Ok(seconds), "{text}");
        }
        for bad in ["", "h", "0", "0h", "31d", "-1h", "1.5h", "1 h", "1w", "1hé", "é", "18446744073709551615d"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
    }
}
