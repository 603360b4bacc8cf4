//! What of a gateway's configuration has a flag. Names of arguments are those of the members they lie over.

use std::net::SocketAddr;
use std::path::PathBuf;

use ::gateway::{Audiences, ConsoleAccess, KeySource};
use schemas::AgentId;
use serde::{Serialize, Serializer};

use super::Console;
use crate::arguments::listen_address;
use crate::ops::instance_id;

/// Members of `[gateway]`.
#[derive(Debug, Clone, clap::Args, Serialize)]
pub struct Settings {
    /// Name in records and logs: 1 to 64 of A-Z a-z 0-9 _ -; gateways that run at once must differ
    #[arg(long, env = "LLMX_GATEWAY_ID", value_name = "NAME", value_parser = instance_id)]
    pub id: Option<String>,
    /// Address to listen on (default: 127.0.0.1:8080)
    #[arg(long, env = "LLMX_LISTEN", value_name = "ADDRESS", value_parser = listen_address)]
    pub listen: Option<SocketAddr>,
    /// Policy of calls that name none, until an administrator switches it (default: medium)
    #[arg(long, env = "LLMX_DEFAULT_POLICY", value_name = "NAME")]
    default_policy: Option<String>,
    /// Agents that may put policies and groups without an administrator's token, separated by commas
    #[arg(long, env = "LLMX_ADMINS", value_name = "AGENTS", value_delimiter = ',', value_parser = AgentId::try_new)]
    admins: Option<Vec<AgentId>>,
    /// Who may look at the console at `/`; changing something takes an administrator's token in any case
    #[arg(long, env = "LLMX_CONSOLE", value_enum)]
    #[serde(serialize_with = "console")]
    console: Option<Console>,
    /// File with the token of the agent, no administrator, as whom transactions of Agora without a token enter (off unless
    /// given)
    #[arg(long, env = "LLMX_AGORA_TOKEN_FILE", value_name = "FILE")]
    agora_token_file: Option<PathBuf>,
    /// Host names under which requests without a token may come, besides addresses and names without a dot, separated by commas
    #[arg(long, env = "LLMX_VISITOR_HOSTS", value_name = "HOSTS", value_delimiter = ',')]
    visitor_hosts: Option<Vec<String>>,
    /// Addresses or networks of proxies whose connections begin with a PROXY header, separated by commas
    #[arg(long, env = "LLMX_TRUSTED_PROXIES", value_name = "NETWORKS", value_delimiter = ',')]
    trusted_proxies: Option<Vec<String>>,
    /// Hosts from which protocol documents may be fetched by address, separated by commas (off unless given)
    #[arg(long, env = "LLMX_DOCUMENT_HOSTS", value_name = "HOSTS", value_delimiter = ',')]
    document_hosts: Option<Vec<String>>,
    #[command(flatten)]
    auth: AuthSettings,
    #[command(flatten)]
    limits: LimitSettings,
}

/// Writes who may look at the console.
pub fn console<S: Serializer>(console: &Option<Console>, serializer: S) -> Result<S::Ok, S::Error> {
    console.map(ConsoleAccess::from).serialize(serializer)
}

/// Members of `[gateway.auth]`.
#[derive(Debug, Clone, clap::Args, Serialize)]
struct AuthSettings {
    /// Key set that verifies tokens: a file, or an https URL
    #[arg(id = "keys", long = "jwks", env = "LLMX_JWKS", value_name = "FILE|URL", value_parser = key_source)]
    keys: Option<KeySource>,
    /// Issuer every token must name (default: llmx-local)
    #[arg(long, env = "LLMX_ISSUER")]
    issuer: Option<String>,
    /// Audiences of which every token must name one, separated by commas (default: llmx)
    #[arg(long, env = "LLMX_AUDIENCE", value_name = "AUDIENCES")]
    audience: Option<Audiences>,
    /// Clock difference forgiven on a token's times, in seconds, 0 to 300 (default: 30)
    #[arg(long, env = "LLMX_LEEWAY_S", value_name = "SECONDS")]
    leeway_s: Option<u64>,
    /// Longest lifetime of a token, in seconds, up to 30 days (default: 86400)
    #[arg(long, env = "LLMX_LIFETIME_S_MAX", value_name = "SECONDS")]
    lifetime_s_max: Option<u64>,
    /// How often the keys are read again, in seconds (default: 2 for a file, 300 for a URL)
    #[arg(long, env = "LLMX_REFRESH_S", value_name = "SECONDS")]
    refresh_s: Option<u64>,
}

/// Members of `[gateway.limits]`.
#[derive(Debug, Clone, clap::Args, Serialize)]
#[command(next_help_heading = "Limits")]
struct LimitSettings {
    /// Requests per second of one agent over all its connections (default: 2000)
    #[arg(long, hide_short_help = true, env = "LLMX_REQUESTS_PER_S", value_name = "N")]
    requests_per_s: Option<u32>,
    /// Requests one agent may send at once after a pause (default: 4000)
    #[arg(long, hide_short_help = true, env = "LLMX_BURST", value_name = "N")]
    burst: Option<u32>,
    /// Agents whose rate is tracked at once; others are refused (default: 100000)
    #[arg(long, hide_short_help = true, env = "LLMX_RATE_KEYS_MAX", value_name = "N")]
    rate_keys_max: Option<usize>,
    /// Tokens per second whose signature is checked for one peer address (default: 500)
    #[arg(long, hide_short_help = true, env = "LLMX_VERIFICATIONS_PER_S", value_name = "N")]
    verifications_per_s: Option<u32>,
    /// Tokens one peer may present at once after a pause (default: 12000)
    #[arg(long, hide_short_help = true, env = "LLMX_VERIFICATION_BURST", value_name = "N")]
    verification_burst: Option<u32>,
    /// HTTP connections open at once, streams included (default: 12000)
    #[arg(long, hide_short_help = true, env = "LLMX_CONNECTIONS_MAX", value_name = "N")]
    connections_max: Option<usize>,
    /// WebSocket and SSE streams of one agent open at once (default: 8)
    #[arg(long, hide_short_help = true, env = "LLMX_STREAMS_PER_AGENT_MAX", value_name = "N")]
    streams_per_agent_max: Option<usize>,
    /// Messages from NATS being admitted at once (default: 1024)
    #[arg(long, hide_short_help = true, env = "LLMX_BUS_IN_FLIGHT_MAX", value_name = "N")]
    bus_in_flight_max: Option<usize>,
    /// Longest a client may take to send its header or body, or to read, in milliseconds (default: 10000)
    #[arg(long, hide_short_help = true, env = "LLMX_CLIENT_TIMEOUT_MS", value_name = "MS")]
    client_timeout_ms: Option<u64>,
    /// Longest a message may wait for the log, in milliseconds (default: 12000)
    #[arg(long, hide_short_help = true, env = "LLMX_APPEND_MS", value_name = "MS")]
    append_ms: Option<u64>,
    /// Longest no engine may be heard of until calls are refused, in milliseconds; 0: however long (default: 2000)
    #[arg(long, hide_short_help = true, env = "LLMX_ENGINE_SILENCE_MS", value_name = "MS")]
    engine_silence_ms: Option<u64>,
    /// Registered agents (default: 100000)
    #[arg(long, hide_short_help = true, env = "LLMX_AGENTS_MAX", value_name = "N")]
    agents_max: Option<usize>,
}

/// Where a key set is, as people name it.
pub fn key_source(text: &str) -> Result<KeySource, String> {
    if text.is_empty() {
        return Err("give a file or an https URL; `llmx keys` makes a file".to_owned());
    }
    if text.starts_with("https://") || text.starts_with("http://") {
        return Ok(KeySource::Url(text.to_owned()));
    }
    Ok(KeySource::File(PathBuf::from(text)))
}

#[cfg(test)]
mod tests {
    use ::gateway::{AuthConfig, GatewayConfig};
    use clap::{Args as _, Command};
    use serde_json::Value;

    use super::*;

    /// Members that only a file can give: documents, and a secret that a list of processes would show.
    const FILE_ONLY: [&str; 2] = ["policies", "allow_hs256_dev_secret"];

    #[test]
    fn the_help_of_every_limit_names_the_default_in_force() {
        let command = LimitSettings::augment_args(Command::new("gateway"));
        let Ok(Value::Object(defaults)) = serde_json::to_value(::gateway::LimitConfig::default()) else { panic!() };
        assert_eq!(command.get_arguments().count(), defaults.len());
        for arg in command.get_arguments() {
            let help = arg.get_help().unwrap().to_string();
            let default = &defaults[arg.get_id().as_str()];
            assert!(help.ends_with(&format!("(default: {default})")), "{}: {help}; it is {default}", arg.get_id());
        }
    }

    #[test]
    fn every_member_but_documents_and_secrets_has_a_flag_and_a_variable() {
        let command = Settings::augment_args(Command::new("gateway"));
        let config = GatewayConfig::new(AuthConfig::new(KeySource::Inline(String::new()), ""));
        let mut members: serde_json::Map<String, Value> = match serde_json::to_value(&config) {
            Ok(Value::Object(members)) => members,
            other => panic!("{other:?}"),
        };
        for group in ["auth", "limits"] {
            let Some(Value::Object(inner)) = members.remove(group) else { panic!("{group}") };
            members.extend(inner);
        }
        assert!(members.len() > 20, "{members:?}");
        for member in members.keys().filter(|member| !FILE_ONLY.contains(&member.as_str())) {
            let arg = command.get_arguments().find(|arg| arg.get_id() == member.as_str());
            let arg = arg.unwrap_or_else(|| panic!("{member} has no flag"));
            assert!(arg.get_long().is_some() && arg.get_env().is_some(), "{member}");
        }
    }
}
