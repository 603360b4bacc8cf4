//! `llmx policy`: acceptance policies, here and in a running exchange.

use std::path::{Path, PathBuf};

use schemas::Policy;
use schemas::validate::check_policy;
use traffic_gen::control::ControlClient;

use crate::output::{Failure, Outcome, one_line, print, print_json};
use crate::remote::{GATEWAY_DEFAULT, http_url};

/// Arguments of `llmx policy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx policy show high > mine.json\n  llmx policy check mine.json\n  \
    llmx policy put mine.json --token \"$(llmx token operator --admin)\"\n  \
    llmx policy default low --token \"$(llmx token operator --admin)\"\n\n\
    list and show need no exchange, and ask one only with --gateway; put and default use LLMX_GATEWAY, too.\n\
    A stored version never changes: give an edited policy another id.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Ids of the presets; with --gateway, of the exchange's policies
    List {
        #[command(flatten)]
        exchange: Asked,
    },
    /// One policy as JSON
    Show {
        /// Its name, for example medium
        name: String,
        #[command(flatten)]
        exchange: Asked,
    },
    /// Check a policy document: its schema, and that it does not contradict itself
    Check {
        /// The document; - for standard input
        file: PathBuf,
    },
    /// Put a policy into a running exchange; negotiations that run keep theirs
    Put {
        /// The document; - for standard input
        file: PathBuf,
        #[command(flatten)]
        exchange: Exchange,
    },
    /// Switch the policy of calls that name none
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
    holder: Holder,
}

/// The exchange that is asked instead of this program: only where the command line says so, whatever the environment
/// says for others.
#[derive(Debug, clap::Args)]
struct Asked {
    /// Ask the exchange behind this gateway instead
    #[arg(long, value_name = "URL", value_parser = http_url)]
    gateway: Option<String>,
    #[command(flatten)]
    holder: Holder,
}

/// Who asks.
#[derive(Debug, clap::Args)]
struct Holder {
    /// A token; --admin tokens may put and switch
    #[arg(long, env = "LLMX_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

/// `GET /v1/policies`.
#[derive(serde::Deserialize)]
struct Stored {
    default: String,
    policies: Vec<Described>,
}

/// `GET /v1/policies/{id}`.
#[derive(serde::Deserialize)]
struct Described {
    policy: Policy,
}

impl Holder {
    fn client(&self, gateway: &str) -> Result<(ControlClient, &str), Failure> {
        let token = self.token.as_deref().ok_or_else(|| {
            Failure::configuration("a token is needed: --token, or LLMX_TOKEN; `llmx token NAME --admin` makes one")
        })?;
        Ok((ControlClient::try_new(gateway)?, token))
    }
}

/// Runs the subcommand.
pub async fn run(args: Args) -> Outcome {
    match args.command {
        Command::List { exchange: Asked { gateway: Some(gateway), holder } } => {
            let (client, token) = holder.client(&gateway)?;
            let stored: Stored = client.read("/v1/policies", token).await?;
            for described in stored.policies {
                let is_default = [described.policy.name(), &described.policy.id].contains(&stored.default.as_str());
                print(format_args!("{}{}", one_line(&described.policy.id), if is_default { " (default)" } else { "" }));
            }
            Ok(())
        }
        Command::List { .. } => {
            for policy in policy_core::presets() {
                print(policy.id);
            }
            Ok(())
        }
        Command::Show { name, exchange: Asked { gateway: Some(gateway), holder } } => {
            let (client, token) = holder.client(&gateway)?;
            // Without the digest beside it: what is shown can be edited, checked and put.
            let described: Described = client.read(&format!("/v1/policies/{name}"), token).await?;
            print_json(&described.policy)
        }
        Command::Show { name, .. } => print_json(&preset(&name)?),
        Command::Check { file } => {
            let policy = read(&file)?;
            print(format_args!("{}: a valid policy, digest {}", policy.id, policy.digest()?));
            Ok(())
        }
        Command::Put { file, exchange } => {
            let policy = read(&file)?;
            let (client, token) = exchange.holder.client(&exchange.gateway)?;
            client.put_policy(token, &policy).await?;
            print(format_args!("{} is stored; new calls may name it", policy.id));
            Ok(())
        }
        Command::Default { name, exchange } => {
            let (client, token) = exchange.holder.client(&exchange.gateway)?;
            client.put("/v1/policies/default", token, &serde_json::json!({"policy": name})).await?;
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
