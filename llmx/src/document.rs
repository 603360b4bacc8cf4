//! `llmx document`: protocol documents, here and in a running exchange.

mod sync;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use agents::control::in_full;
use agora::{DocumentHash, DocumentSource, DocumentSummary, Origin, ProtocolDocument};
use schemas::{AgentId, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::access::AccessArgs;
use crate::output::{Failure, Outcome, create, print, print_json, print_result, table_under};

/// Most documents listed.
const LISTED_MAX: usize = 4096;

/// Arguments of `llmx document`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx document hash examples/weather.md\n  llmx document put examples/weather.md --as bob\n  \
    llmx document list --agent bob --json\n  llmx document show 28qsS//fo/+NgoyVrSQmBEwrRuc= --out weather.md\n\n\
    A document is text with name, description and multiround between its first two `---` (docs/agora.md). It is named by\n\
    its hash, in base64, base64url or hexadecimal digits, and never changes.\n\
    Exit codes: 1 when it is no document, or the gateway refuses, holds no such document or does not answer."
)]
pub struct DocumentArgs {
    #[command(subcommand)]
    command: DocumentCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DocumentCommand {
    /// Store a document; the agent supports it from then on
    #[command(after_help = "Examples:\n  llmx document put weather.md --as bob\n  \
        llmx document put weather.md --as bob --source https://documents.example/weather.md")]
    Put(PutArgs),
    /// One document: its text
    #[command(after_help = "Examples:\n  llmx document show 28qsS__fo_-NgoyVrSQmBEwrRuc --json\n  \
        llmx document show dbcaac4bffdfa3ff8d828c95ad2426044c2b46e7 --out weather.md")]
    Show(ShowArgs),
    /// Documents of the exchange, in the order of their hashes
    #[command(after_help = "Examples:\n  llmx document list\n  llmx document list --agent bob --json")]
    List(ListDocumentsArgs),
    /// Store the documents of one exchange in another
    #[command(
        after_help = "Examples:\n  llmx document sync --from nats://127.0.0.1:4222 --to nats://127.0.0.1:4322\n  \
        llmx document sync --from nats://a:4222 --to nats://b:4222 --every 30 --json\n\n\
        Texts are stored, 64 a round, until nothing is missing; who supports a document does not travel.\n\
        Fails (1) when a hash stands for another text in --to, or there is no room: the others are stored all the same."
    )]
    Sync(sync::SyncArgs),
    /// The names of a document, without an exchange
    #[command(after_help = "Examples:\n  llmx document hash weather.md\n  llmx document hash - --json < weather.md")]
    Hash(HashArgs),
}

#[derive(Debug, clap::Args)]
struct PutArgs {
    /// The document; - for standard input
    file: PathBuf,
    /// The agent that supports it, for whom a token is signed
    #[arg(long = "as", value_name = "AGENT", value_parser = AgentId::try_new)]
    agent: AgentId,
    /// An address where it can be had as well; may be repeated
    #[arg(long = "source", value_name = "URL", value_parser = DocumentSource::try_new)]
    sources: Vec<DocumentSource>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// The hash, in any spelling
    #[arg(value_parser = read_hash)]
    hash: DocumentHash,
    /// Write the text to a file, byte for byte
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON: names, text, who supports it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: ReaderArgs,
}

#[derive(Debug, clap::Args)]
struct ListDocumentsArgs {
    /// Only documents that this agent supports
    #[arg(long, value_name = "AGENT", value_parser = AgentId::try_new)]
    agent: Option<AgentId>,
    /// Print `{"documents": […]}`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: ReaderArgs,
}

/// Who reads.
#[derive(Debug, clap::Args)]
struct ReaderArgs {
    /// Whose token is signed
    #[arg(long = "as", value_name = "AGENT", default_value = "operator", value_parser = AgentId::try_new)]
    caller: AgentId,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(Debug, clap::Args)]
struct HashArgs {
    /// The document; - for standard input
    file: PathBuf,
    /// Print JSON: names, description, and the text as a `data:` source, as a request under the document carries it
    #[arg(long)]
    json: bool,
}

/// What `llmx document hash --json` prints.
#[derive(Debug, Serialize)]
struct NamedDocument {
    #[serde(flatten)]
    summary: DocumentSummary,
    /// The source that holds the text itself.
    source: String,
}

/// A page of the list.
#[derive(Debug, Deserialize)]
struct Page {
    documents: Vec<DocumentSummary>,
    next: Option<DocumentHash>,
}

/// Runs the subcommand.
pub async fn run(args: DocumentArgs) -> Outcome {
    match args.command {
        DocumentCommand::Put(args) => put(args).await,
        DocumentCommand::Show(args) => show(args).await,
        DocumentCommand::List(args) => list(args).await,
        DocumentCommand::Hash(args) => hash(&args),
        DocumentCommand::Sync(args) => sync::run(args).await,
    }
}

async fn put(args: PutArgs) -> Outcome {
    let document = read(&args.file, Origin::Own)?;
    let token = args.access.bearer(&args.agent)?.token.current();
    let body = json!({ "document": document.text(), "sources": args.sources });
    args.access.ask(async |gateway| gateway.put("/v1/documents", &token, &body).await).await?;
    let words = format_args!("{} is stored: {}", document.hash(), document.front_matter().name);
    print_result(args.json, &DocumentSummary::from(&document), words)
}

async fn show(args: ShowArgs) -> Outcome {
    let token = args.reader.access.bearer(&args.reader.caller)?.token.current();
    let path = format!("/v1/documents/{}", args.hash.key());
    let whole: Value = args.reader.access.ask(async |gateway| gateway.read(&path, &token).await).await?;
    let text = whole.get("document").and_then(Value::as_str).unwrap_or_default();
    // What a gateway shows is no proof.
    ProtocolDocument::verified(text, args.hash, Origin::Foreign)
        .map_err(|refusal| Failure::failed(anyhow::anyhow!("the gateway's answer: {}", in_full(&refusal))))?;
    if let Some(file) = &args.out {
        create(file)?.write_all(text.as_bytes())?;
    }
    if args.json {
        return print_json(&whole);
    }
    if args.out.is_none() {
        print(text);
    }
    Ok(())
}

async fn list(args: ListDocumentsArgs) -> Outcome {
    let token = args.reader.access.bearer(&args.reader.caller)?.token.current();
    let of_agent = args.agent.as_ref().map(|agent| format!("&agent={agent}")).unwrap_or_default();
    let (mut documents, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/documents?limit=100{of_agent}{after}");
        let page: Page = args.reader.access.ask(async |gateway| gateway.read(&path, &token).await).await?;
        documents.extend(page.documents);
        match page.next {
            Some(next) if documents.len() < LISTED_MAX => after = format!("&after={}", next.key()),
            Some(_) | None => break,
        }
    }
    let heading = ["HASH", "MULTIROUND", "BYTES", "NAME", "DESCRIPTION"];
    print_result(args.json, &json!({ "documents": documents }), table_under(heading, documents.iter().map(row)))
}

fn row(one: &DocumentSummary) -> [String; 5] {
    let multiround = if one.multiround { "yes" } else { "no" }.to_owned();
    [one.hash.to_string(), multiround, one.bytes.to_string(), one.name.clone(), one.description.clone()]
}

fn hash(args: &HashArgs) -> Outcome {
    let document = read(&args.file, Origin::Foreign)?;
    let source = DocumentSource::of_text(document.text()).to_string();
    let named = NamedDocument { summary: DocumentSummary::from(&document), source };
    print_result(args.json, &named, document.hash())
}

/// The document that somebody names: by its hash, in any spelling, or by a file that holds it.
///
/// # Errors
/// What is neither, and what is wrong with the file.
pub fn named(text: &str) -> Result<DocumentHash, String> {
    if let Ok(hash) = DocumentHash::try_new(text) {
        return Ok(hash);
    }
    let file = Path::new(text);
    if !file.exists() {
        return Err(
            "there is no such file, and it is no hash of a document, as `llmx document hash FILE` prints it".to_owned()
        );
    }
    read(file, Origin::Foreign).map(|document| document.hash()).map_err(|failure| failure.to_string())
}

fn read_hash(text: &str) -> Result<DocumentHash, String> {
    DocumentHash::try_new(text).map_err(|refusal| in_full(&refusal))
}

fn read(file: &Path, origin: Origin) -> Result<ProtocolDocument, Failure> {
    let bytes = crate::schema::read(file)?;
    let fault = |text: String| Failure::failed(anyhow::anyhow!("{}: {text}", file.display()));
    let text = String::from_utf8(bytes).map_err(|_| fault("a document is UTF-8 text".to_owned()))?;
    ProtocolDocument::try_new(&text, origin).map_err(|refusal: Refusal| fault(in_full(&refusal)))
}
