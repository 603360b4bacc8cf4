//! `llmx policy`: acceptance policies, here and in a running exchange.

use std::path::{Path, PathBuf};

use schemas::validate::check_policy;
use schemas::{AgentId, Policy};

use crate::access::{AccessArgs, SignerArgs};
use crate::arguments::http_url;
use crate::output::{Failure, Outcome, one_line, print, print_json};

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
        exchange: AccessArgs,
    },
    /// Switch the policy of calls that name none
    #[command(
        after_help = "Examples:\n  llmx policy default low\n  llmx policy default mine@2 --key other/signing-key.pem"
    )]
    Default {
        /// Its name
        name: String,
        #[command(flatten)]
        exchange: AccessArgs,
    },
}

/// The exchange that is asked instead of this program: only where the command line says so, whatever the environment
/// says for others.
#[derive(Debug, clap::Args)]
struct Asked {
    /// Ask the exchange behind these gateways instead: addresses separated by commas; the first that answers is used
    #[arg(long, value_name = "URLS", value_delimiter = ',', value_parser = http_url)]
    gateway: Vec<String>,
    #[command(flatten)]
    signer: SignerArgs,
}

impl Asked {
    fn access(self) -> Option<AccessArgs> {
        (!self.gateway.is_empty()).then_some(AccessArgs { gateway: self.gateway, signer: self.signer })
    }
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

/// An administrator's token.
fn administrator(access: &AccessArgs) -> Result<String, Failure> {
    let operator = AgentId::try_new(OPERATOR).map_err(Failure::configuration)?;
    Ok(access.administrator(&operator)?.token.current())
}

/// Runs the subcommand.
pub async fn run(args: PolicyArgs) -> Outcome {
    match args.command {
        PolicyCommand::List { exchange } => match exchange.access() {
            Some(access) => {
                let token = administrator(&access)?;
                let stored: StoredPolicy =
                    access.ask(async |gateway| gateway.read("/v1/policies", &token).await).await?;
                for Described { policy } in stored.policies {
                    let is_default = [policy.name(), &policy.id].contains(&stored.default.as_str());
                    print(format_args!("{}{}", one_line(&policy.id), if is_default { " (default)" } else { "" }));
                }
                Ok(())
            }
            None => {
                policy_core::presets().iter().for_each(|policy| print(&policy.id));
                Ok(())
            }
        },
        PolicyCommand::Show { name, exchange } => match exchange.access() {
            Some(access) => {
                let (token, path) = (administrator(&access)?, format!("/v1/policies/{name}"));
                // Without the digest beside it: what is shown can be edited, checked and put.
                let described: Described = access.ask(async |gateway| gateway.read(&path, &token).await).await?;
                print_json(&described.policy)
            }
            None => print_json(&preset(&name)?),
        },
        PolicyCommand::Check { file } => {
            let policy = read(&file)?;
            print(format_args!("{}: a valid policy, digest {}", policy.id, policy.digest()?));
            Ok(())
        }
        PolicyCommand::Put { file, exchange } => {
            let policy = read(&file)?;
            let token = administrator(&exchange)?;
            exchange.ask(async |gateway| gateway.put_policy(&token, &policy).await).await?;
            print(format_args!("{} is stored; new calls may name it", policy.id));
            Ok(())
        }
        PolicyCommand::Default { name, exchange } => {
            let (token, document) = (administrator(&exchange)?, serde_json::json!({"policy": name}));
            exchange.ask(async |gateway| gateway.put("/v1/policies/default", &token, &document).await).await?;
            print(format_args!("new calls that name no policy run under {name}"));
            Ok(())
        }
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
