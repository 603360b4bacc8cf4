//! `llmx agora`: responders that speak Agora, and what protocol documents save.

mod call;
mod demo;

pub use demo::{AgoraRunArgs, experiment};

use crate::output::Outcome;

/// Arguments of `llmx agora`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx agora call https://weather.example/ \"How warm is Oxford tomorrow?\"\n  \
    llmx agora demo\n  llmx agora demo --seed 7 --json\n\n\
    What protocol documents are: docs/agora.md")]
pub struct AgoraArgs {
    #[command(subcommand)]
    command: AgoraCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AgoraCommand {
    /// Ask a responder that speaks Agora, of this exchange or elsewhere
    #[command(
        after_help = "Examples:\n  llmx agora call https://weather.example/ \"How warm is Oxford tomorrow?\"\n  \
        llmx agora call https://weather.example/ --document weather.md '{\"city\": \"Oxford\"}' --json\n  \
        llmx agora call http://127.0.0.1:8080/agora/contractor-0 --token \"$(llmx token alice)\" --document examples/parcel-price.md 1500\n  \
        llmx agora call http://127.0.0.1:8080/agora/bob --token-file alice.token --multiround \"Hello\" \"And tomorrow?\"\n\n\
        URL is the responder's address as it stands. A document is sent with its text, so that any responder has it.\n\
        The responder may be anybody's: it is sent the token of --token or --token-file, and never that of LLMX_TOKEN.\n\
        Exit codes: 1 when an answer is not `success`, or none comes."
    )]
    Call(call::AgoraCallArgs),
    /// What documents save: two agents, and a network of 100 agents with a thousand queries
    #[command(mut_arg("seeds", |arg| arg.help("How many networks are played, each with a seed of its own (default: 1)")))]
    #[command(after_help = "Examples:\n  llmx agora demo\n  llmx agora demo --seed 7 --out run/agora\n  \
        llmx agora demo --thresholds pypi --json\n  llmx agora demo --live\n  llmx agora demo --thresholds 0,0,0,1,never\n\n\
        No model is asked: who talks, negotiates, checks and programs follows from the thresholds, what that costs from the\n\
        texts that models would be sent. The same seed gives the same files to the byte. DIR keeps each query\n\
        (cells/*/queries.jsonl and .csv), the figures (figures.json, report.html, report.md) and the pictures of both\n\
        costs and of the share of models (figure-5a.svg, figure-5b.svg); `llmx report DIR` computes them again.\n\
        docs/agora.md says what the figures are, and what they are not.")]
    Demo(AgoraRunArgs),
}

/// Runs the subcommand.
pub async fn run(args: AgoraArgs) -> Outcome {
    match args.command {
        AgoraCommand::Call(args) => call::run(args).await,
        AgoraCommand::Demo(args) => experiment(args, 1).await,
    }
}
