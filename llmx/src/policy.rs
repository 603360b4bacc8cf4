//! `llmx policy`: acceptance policies, here and in a running exchange.

use std::path::{Path, PathBuf};

use schemas::validate::check_policy;
use schemas::{AgentId, Policy};
use traffic_gen::control::{ControlClient, ControlError};

use crate::access::{SignerArgs, refused};
use crate::arguments::http_url;
use crate::output::{Failure, Outcome, one_line, print, print_json};
use crate::remote::GATEWAY_DEFAULT;

/// Arguments of `llmx policy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx policy show high > mine.json\n  llmx policy check mine.json\n  \
    llmx policy put mine.json\n  llmx policy default low\n\n\
    list and show need no exchange, and ask one only with --gateway; put and default use LLMX_GATEWAY, too. An\n\
    administrator's token is signed with --key, unless one is given.\n\
    A stored version never changes: give an edited policy another id.")]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Ids of the presets; with --gateway, of the exchange's policies
    #[command(after_help = "Examples:\n  llmx policy list\n  llmx policy list --gateway http://127.0.0.1:8080")]
    List {
        #[command(flatten)]
        exchange: Asked,
    },
    /// One policy as JSON
    #[command(after_help = "Examples:\n  llmx policy show medium\n  \
        llmx policy show mine@2 --gateway http://127.0.0.1:8080 > mine.json")]
    Show {
        /// Its name, for example medium
        name: String,
        #[command(flatten)]
        exchange: Asked,
    },
    /// Check a policy document: its schema, and that it does not contradict itself
    #[command(after_help = "Examples:\n  llmx policy check mine.json\n  llmx policy show low | llmx policy check -")]
    Check {
        /// The document; - for standard input
        file: PathBuf,
    },
    /// Put a policy into a running exchange; negotiations that run keep theirs
    #[command(after_help = "Examples:\n  llmx policy put mine.json\n  \
        llmx policy put mine.json --gateway https://exchange.example --token \"$(cat operator.jwt)\"")]
    Put {
        /// The document; - for standard input
        file: PathBuf,
        #[command(flatten)]
        exchange: Exchange,
    },
    /// Switch the policy of calls that name none
    #[command(
        after_help = "Examples:\n  llmx policy default low\n  llmx policy default mine@2 --key other/signing-key.pem"
    )]
    Default {
        /// Its name
        name: String,
        #[command(flatten)]
        exchange: Exchange,
    },
}

/// The exchange that a command is about.
#[derive(Debug, clap::Args)]
struct Exchange {
    /// A gateway's address
    #[arg(long, env = "LLMX_GATEWAY", default_value = GATEWAY_DEFAULT, value_name = "URL", value_parser = http_url)]
    gateway: String,
    #[command(flatten)]
    signer: SignerArgs,
}

/// The exchange that is asked instead of this program: only where the command line says so, whatever the environment
/// says for others.
#[derive(Debug, clap::Args)]
struct Asked {
    /// Ask the exchange behind this gateway instead
    #[arg(long, value_name = "URL", value_parser = http_url)]
    gateway: Option<String>,
    #[command(flatten)]
    signer: SignerArgs,
}

/// Who asks, where the token is signed here.
const OPERATOR: &str = "operator";

/// `GET /v1/policies`.
#[derive(serde::Deserialize)]
struct StoredPolicy {
    default: String,
    policies: Vec<Described>,
}

/// `GET /v1/policies/{id}`.
#[derive(serde::Deserialize)]
struct Described {
    policy: Policy,
}

/// A client of a gateway, and an administrator's token for it.
fn client(signer: &SignerArgs, gateway: &str) -> Result<(ControlClient, String), Failure> {
    let operator = AgentId::try_new(OPERATOR).map_err(Failure::configuration)?;
    let token = signer.administrator(&operator)?.token.current();
    Ok((ControlClient::try_new(gateway)?, token))
}

/// Runs the subcommand.
pub async fn run(args: PolicyArgs) -> Outcome {
    match args.command {
        PolicyCommand::List { exchange: Asked { gateway: Some(gateway), signer } } => {
            let (client, token) = client(&signer, &gateway)?;
            let stored: StoredPolicy = client.read("/v1/policies", &token).await.map_err(answered)?;
            for described in stored.policies {
                let is_default = [described.policy.name(), &described.policy.id].contains(&stored.default.as_str());
                print(format_args!("{}{}", one_line(&described.policy.id), if is_default { " (default)" } else { "" }));
            }
            Ok(())
        }
        PolicyCommand::List { .. } => {
            for policy in policy_core::presets() {
                print(policy.id);
            }
            Ok(())
        }
        PolicyCommand::Show { name, exchange: Asked { gateway: Some(gateway), signer } } => {
            let (client, token) = client(&signer, &gateway)?;
            // Without the digest beside it: what is shown can be edited, checked and put.
            let described: Described = client.read(&format!("/v1/policies/{name}"), &token).await.map_err(answered)?;
            print_json(&described.policy)
        }
        PolicyCommand::Show { name, .. } => print_json(&preset(&name)?),
        PolicyCommand::Check { file } => {
            let policy = read(&file)?;
            print(format_args!("{}: a valid policy, digest {}", policy.id, policy.digest()?));
            Ok(())
        }
        PolicyCommand::Put { file, exchange } => {
            let policy = read(&file)?;
            let (client, token) = client(&exchange.signer, &exchange.gateway)?;
            client.put_policy(&token, &policy).await.map_err(answered)?;
            print(format_args!("{} is stored; new calls may name it", policy.id));
            Ok(())
        }
        PolicyCommand::Default { name, exchange } => {
            let (client, token) = client(&exchange.signer, &exchange.gateway)?;
            client.put("/v1/policies/default", &token, &serde_json::json!({"policy": name})).await.map_err(answered)?;
            print(format_args!("new calls that name no policy run under {name}"));
            Ok(())
        }
    }
}

/// A refusal with its remedy; anything else as it is.
fn answered(error: ControlError) -> Failure {
    match error {
        ControlError::Refused(refusal) => refused(&refusal),
        other @ (ControlError::Unexpected { .. }
        | ControlError::Redirected { .. }
        | ControlError::Unreadable { .. }
        | ControlError::Unusable(_)
        | ControlError::Unreachable(_)) => other.into(),
    }
}

fn preset(name: &str) -> Result<Policy, Failure> {
    policy_core::preset(name).ok_or_else(|| {
        let known: Vec<String> = policy_core::presets().iter().map(|policy| policy.name().to_owned()).collect();
        Failure::configuration(format_args!("there is no preset `{name}`; there are {}", known.join(", ")))
    })
}

/// Reads and checks a policy document.
pub fn read(file: &Path) -> Result<Policy, Failure> {
    let bytes = crate::schema::read(file)?;
    let policy = check_policy(&bytes).map_err(|refusal| crate::schema::departure(file, &refusal))?;
    policy_core::check(&policy).map_err(|fault| Failure::failed(anyhow::anyhow!("{}: {fault}", file.display())))?;
    Ok(policy)
}

/// A preset by name, or the policy in a file.
pub fn preset_or_file(name: &str) -> Result<Policy, Failure> {
    match policy_core::preset(name) {
        Some(policy) => Ok(policy),
        None if Path::new(name).exists() => read(Path::new(name)),
        None => preset(name),
    }
}
