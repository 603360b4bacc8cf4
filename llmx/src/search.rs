//! `llmx search`: agents by what they say of themselves.

use schemas::control::{AgentKind, Tag};
use schemas::ids::Capability;
use schemas::search::{HITS_DEFAULT, HITS_MAX, SearchHit, SearchRequest};
use schemas::{AgentId, TopicName};

use crate::access::AccessArgs;
use crate::output::{Outcome, agents, print_result, table_under};

/// Arguments of `llmx search`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx search \"paints walls\"\n  llmx search \"multi-agent systems\" \"paper writing\" --present\n  \
    llmx search piano --kind human --limit 10 --json\n\n\
    Each text is searched for by itself; an agent is shown once, under the first text that finds it. No character of a text is\n\
    syntax. docs/spec/search.md\n\
    Exit codes: 1 when the gateway refuses or does not answer; nothing found is no failure."
)]
pub struct SearchArgs {
    /// What to search for, up to eight texts of at most 512 characters
    #[arg(value_name = "TEXT", required = true)]
    texts: Vec<String>,
    /// Most agents for each text
    #[arg(long, default_value_t = HITS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(HITS_MAX)))]
    limit: u32,
    /// Only agents with this capability; may be repeated, and then with all of them
    #[arg(long = "capability", value_name = "NAME", value_parser = Capability::try_new)]
    capabilities: Vec<Capability>,
    /// Only agents with this tag; may be repeated, and then with all of them
    #[arg(long = "tag", value_name = "TAG", value_parser = Tag::try_new)]
    tags: Vec<Tag>,
    /// Only agents that subscribe to this topic
    #[arg(long, value_name = "NAME", value_parser = TopicName::try_new)]
    topic: Option<TopicName>,
    /// Only agents that speak for a person, or only things
    #[arg(long, value_enum)]
    kind: Option<WantedKind>,
    /// Only agents that are present
    #[arg(long)]
    present: bool,
    /// Only agents whose consent lets a team call through
    #[arg(long)]
    reachable: bool,
    /// `next` of the page before; with one text
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Whose token is signed
    #[arg(long = "as", value_name = "AGENT", default_value = "operator", value_parser = AgentId::try_new)]
    caller: AgentId,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum WantedKind {
    /// It speaks for a person
    Human,
    /// Any other
    Thing,
}

crate::same_variants!(WantedKind => AgentKind: Human, Thing);

/// Asks the gateway and prints what it found.
pub async fn run(args: SearchArgs) -> Outcome {
    let token = args.access.bearer(&args.caller)?.token.current();
    let wanted = SearchRequest {
        queries: args.texts,
        limit: args.limit,
        capabilities: args.capabilities,
        tags: args.tags,
        topic: args.topic,
        kind: args.kind.map(AgentKind::from),
        present: args.present,
        reachable: args.reachable,
        cursor: args.cursor,
    };
    let found = args.access.ask(async |gateway| gateway.search(&token, &wanted).await).await?;
    let heading = ["TEXT", "AGENT", "SCORE", "PRESENT", "REACHABLE", "DESCRIPTION"];
    let (table, count) = (table_under(heading, found.hits.iter().map(row)), agents(found.hits.len()));
    let next = found.next.as_ref().map(|next| format!("; --cursor {next} for more")).unwrap_or_default();
    print_result(args.json, &found, format_args!("{table}\n{count}{next}"))
}

fn row(hit: &SearchHit) -> [String; 6] {
    let is = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
    [
        (hit.query + 1).to_string(),
        hit.agent.to_string(),
        format!("{}.{:06}", hit.score / 1_000_000, hit.score % 1_000_000),
        is(hit.present),
        is(hit.reachable),
        hit.description.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}
