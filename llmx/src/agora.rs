//! `llmx agora`: one transaction or conversation with a responder that speaks Agora.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::agora::client::{AgoraClient, ClientError};
use ::agora::document::DOCUMENT_BYTES_MAX;
use ::agora::transaction::{TransactionReply, TransactionRequest, TransactionStatus};
use ::agora::{DocumentSource, Origin, ProtocolDocument, Selection};
use ::gateway::TOKEN_BYTES_MAX;
use agents::control::in_full;
use serde_json::json;

use crate::arguments::{http_url, read_file, seconds};
use crate::output::{Failure, Outcome, note, print, print_json};

/// What helps where a responder does not take a document.
const DOCUMENT_REJECTED: &str = "it follows no such document, or not for this request: ask without --document, or under one \
                                 that it supports (an agent of an exchange: `llmx document list --agent AGENT`)";

/// Arguments of `llmx agora`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx agora call https://weather.example/ \"How warm is Oxford tomorrow?\"\n\n\
    What protocol documents save: llmx-lab experiment agora. What protocol documents are: docs/agora.md")]
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
    Call(AgoraCallArgs),
}

/// Runs the subcommand.
pub async fn run(args: AgoraArgs) -> Outcome {
    match args.command {
        AgoraCommand::Call(args) => call(args).await,
    }
}

/// Arguments of `llmx agora call`.
#[derive(Debug, clap::Args)]
struct AgoraCallArgs {
    /// The responder's address
    #[arg(value_name = "URL", value_parser = http_url)]
    target: String,
    /// What is asked; more than one only in a conversation
    #[arg(value_name = "TEXT", required = true)]
    texts: Vec<String>,
    /// The protocol document that is spoken: a file
    #[arg(long, value_name = "FILE", conflicts_with = "negotiate")]
    document: Option<PathBuf>,
    /// Ask to agree on a document; needs a conversation
    #[arg(long, requires = "multiround")]
    negotiate: bool,
    /// Open a conversation, and end it after the last text
    #[arg(long)]
    multiround: bool,
    /// Go on with a conversation
    #[arg(long, value_name = "ID", conflicts_with_all = ["multiround", "document", "negotiate"])]
    conversation: Option<String>,
    /// Leave the conversation open
    #[arg(long)]
    keep: bool,
    /// Token to use as it is, for responders that ask for one; `llmx token AGENT` signs one for an exchange of your own
    #[arg(long, conflicts_with = "token_file")]
    token: Option<String>,
    /// File with such a token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Longest wait for one answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "100", value_parser = seconds)]
    timeout: Duration,
    /// Print the replies as JSON
    #[arg(long)]
    json: bool,
}

/// Asks, and prints what is answered.
async fn call(args: AgoraCallArgs) -> Outcome {
    if args.texts.len() > 1 && !args.multiround && args.conversation.is_none() {
        return Err(Failure::configuration(
            "more than one TEXT needs a conversation: --multiround or --conversation ID",
        ));
    }
    let token = match &args.token {
        Some(token) => Some(token.trim().to_owned()),
        None => args.token_file.as_deref().map(token).transpose()?,
    };
    let client = AgoraClient::try_new(&args.target, token, args.timeout).map_err(Failure::failed)?;
    let mut conversation = args.conversation.clone();
    let mut replies = Vec::new();
    let mut broken = None;
    for text in &args.texts {
        let reply = match &conversation {
            Some(id) => client.follow(id, text).await,
            None => client.begin(&request(&args, text)?).await,
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) if replies.is_empty() => return Err(unanswered(error, &args)),
            // What was answered before is printed all the same.
            Err(error) => {
                broken = Some(unanswered(error, &args));
                break;
            }
        };
        conversation = conversation.or_else(|| reply.conversation.as_ref().map(|ticket| ticket.id.clone()));
        let is_over = reply.status != TransactionStatus::Success || (args.multiround && conversation.is_none());
        replies.push(reply);
        if is_over {
            break;
        }
    }
    let outcome = told(&args, &replies, conversation.as_deref());
    if let Some(id) = conversation.as_deref().filter(|_| !args.keep)
        && let Err(error) = client.end(id).await
    {
        let error = anyhow::Error::from(error);
        note(format_args!("warning: the conversation {id} stays open until the responder ends it: {error:#}"));
    }
    broken.map_or(outcome, Err)
}

/// The first message.
fn request(args: &AgoraCallArgs, text: &str) -> Result<TransactionRequest, Failure> {
    let selection = match &args.document {
        Some(file) => {
            let document = document(file)?;
            if args.multiround && !document.front_matter().multiround {
                return Err(Failure::configuration(
                    "the document says `multiround: false`: leave --multiround out, or name another document",
                ));
            }
            let sources = vec![DocumentSource::of_text(document.text())];
            Selection::Document { hash: document.hash(), sources }
        }
        None if args.negotiate => Selection::Negotiation,
        None => Selection::Language,
    };
    Ok(TransactionRequest { selection, body: text.to_owned(), multiround: args.multiround })
}

/// Why there is no reply, and what helps where it is the token.
fn unanswered(error: ClientError, args: &AgoraCallArgs) -> Failure {
    let is_refused = matches!(error, ClientError::Status { status: 401, .. });
    let failure = Failure::failed(error);
    if !is_refused {
        return failure;
    }
    failure.or(if args.token.is_some() || args.token_file.is_some() {
        "the responder does not take this token: get another (of an exchange of your own: `llmx token AGENT`)"
    } else {
        "give a token: --token or --token-file (of an exchange of your own: --token \"$(llmx token AGENT)\")"
    })
}

fn document(file: &Path) -> Result<ProtocolDocument, Failure> {
    let parse = |text: &str| ProtocolDocument::try_new(text, Origin::Foreign).map_err(|refusal| in_full(&refusal));
    read_file(file, DOCUMENT_BYTES_MAX as u64, parse)
}

fn token(file: &Path) -> Result<String, Failure> {
    read_file(file, TOKEN_BYTES_MAX as u64, |text| Ok::<_, Infallible>(text.trim().to_owned()))
}

fn told(args: &AgoraCallArgs, replies: &[TransactionReply], conversation: Option<&str>) -> Outcome {
    if args.json {
        let replies: Vec<_> = replies.iter().map(TransactionReply::to_json).collect();
        print_json(&json!({ "replies": replies, "conversation": conversation }))?;
    } else {
        replies.iter().filter(|reply| !reply.body.is_empty()).for_each(|reply| print(&reply.body));
        if let Some(id) = conversation.filter(|_| args.keep) {
            note(format_args!("conversation {id}"));
        }
    }
    match replies.last() {
        Some(last) if last.status == TransactionStatus::Success && !(args.multiround && conversation.is_none()) => {
            Ok(())
        }
        Some(last) => {
            let message = last.message.as_deref().unwrap_or("the responder opened no conversation");
            let failure = Failure::failed(anyhow::anyhow!("{}: {message}", last.status.as_str()));
            let is_document_rejected = last.status == TransactionStatus::Rejected && args.document.is_some();
            Err(if is_document_rejected { failure.or(DOCUMENT_REJECTED) } else { failure })
        }
        None => Ok(()),
    }
}
