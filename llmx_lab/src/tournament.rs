//! `llmx-lab tournament`: bargaining strategies, negotiators of NegMAS and models, every pair on every domain.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::agents::bargain::StrategyKind;
use ::agents::model::ModelAgentConfig;
use anyhow::Context as _;
use schemas::Digest;
use studies::model::blocking::BlockingConsultant;
use studies::tournament::competitor::{Competitor, Player};
use studies::tournament::negmas::NegmasProcess;
use studies::tournament::{TournamentDomain, TournamentPlan, generated, report, run as play};

use crate::arguments::{DOMAIN_BYTES_MAX, file_fault, read_file};
use crate::experiment::{SEED_MAX, default_folder, lasting_runtime, none, study_failure};
use crate::model::{ModelUse, OpenedModel, open};
use crate::output::{Failure, Outcome, Progress, note, print, print_json};
use crate::signals::{self, Attending, asked_to_end};

/// Domains that are drawn where no file is named.
const GENERATED: u64 = 10;
/// Tokens that a turn of a model may take, its repairs included.
const TOKENS_PER_TURN: u64 = 4_000;
/// How often progress is shown.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Arguments of `llmx-lab tournament`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx-lab tournament\n  \
    llmx-lab tournament domains/ecommerce.json domains/scheduling.json --generated 8 --strategies boulware,micro\n  \
    llmx-lab tournament --strategies micro --negmas BoulwareTBNegotiator,anl.anl2024.negotiators.builtins.micro.MiCRO\n  \
    llmx-lab tournament --model examples/party-model.toml --strategies linear --seeds 1\n\n\
    DIR keeps each domain's bargains (cells/*/bargains.jsonl), the ranking (figures.json, report.md) and the utility planes\n\
    (domain-N.svg). Started again, only domains that are missing are played; `llmx-lab report DIR` computes the ranking again.\n\
    Fails (1) when an agreement is outside of what a party may agree to. docs/bargaining.md#tournaments")]
pub struct TournamentArgs {
    /// Domain files of two parties
    #[arg(value_name = "DOMAIN.json")]
    domains: Vec<PathBuf>,
    /// Draw so many domains more (default: 10 where no file is named)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1000))]
    generated: Option<u64>,
    /// Strategies of the SDK (default: all six, where neither a negotiator nor a model is named)
    #[arg(long, value_delimiter = ',', value_name = "STRATEGY")]
    strategies: Vec<StrategyKind>,
    /// Negotiators of NegMAS: their classes, in `negmas.sao.negotiators` where no module is named
    #[arg(long, value_delimiter = ',', value_name = "CLASS")]
    negmas: Vec<String>,
    /// The Python that runs them; needs `llmx[negmas]`
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: PathBuf,
    /// A model behind the endpoint of this TOML file (docs/models.md); again for another
    #[arg(long, value_name = "FILE")]
    model: Vec<PathBuf>,
    /// The first seed: of the domains that are drawn, and of what competitors draw
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    seed: u64,
    /// How many seeds each pair plays each domain with
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Where to keep what is played (default: run/experiments/tournament-PLAN-seeds-FIRST-to-LAST)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the ranking as JSON, and no progress
    #[arg(long)]
    json: bool,
}

/// Plays, and prints the ranking.
pub async fn run(args: TournamentArgs) -> Outcome {
    let attending = Attending::new();
    tokio::spawn(async {
        asked_to_end().await;
        note("ends behind the bargain being played; a second signal ends it at once");
    });
    let domains = domains(&args)?;
    named_once("domain", domains.iter().map(TournamentDomain::name))?;
    let competitors = competitors(&args, &domains)?;
    let plan = TournamentPlan::new(&competitors, &domains, (args.seed, args.seeds));
    let digest = Digest::of(&plan).map_err(Failure::failed)?.to_string();
    let out = args.out.unwrap_or_else(|| default_folder("tournament", &digest[..8], (args.seed, args.seeds)));
    let (folder, is_shown) = (out.clone(), !args.json);
    let played = tokio::task::spawn_blocking(move || {
        let progress = is_shown.then(Progress::new);
        let total = plan.bargains_per_domain() * domains.len() as u64;
        let shown_at = std::cell::Cell::new(Instant::now());
        let go_on = |played: u64| {
            if let Some(progress) = progress.as_ref().filter(|_| shown_at.get().elapsed() >= PROGRESS_PERIOD) {
                shown_at.set(Instant::now());
                progress.show(format_args!("{} % of {total} bargains", played * 100 / total));
            }
            if attending.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let played = play(&plan, &domains, &competitors, &folder, &go_on);
        progress.iter().for_each(Progress::finish);
        played.map(|is_whole| (is_whole, report::write(&folder)))
    });
    let (is_whole, report) = played.await?.map_err(study_failure)?;
    let report = report.context("the report; the bargains are kept, and `llmx-lab report` computes it again")?;
    if args.json {
        print_json(&report)?;
    } else {
        print(report.text().trim_end());
        let folder = out.display();
        print(format_args!("\nwritten to {folder}: report.md, figures.json, domain-*.svg, cells/"));
    }
    none(report.irrational, "agreements that a party may not make")?;
    signals::whole(!is_whole)
}

/// Files, then what is drawn.
fn domains(args: &TournamentArgs) -> Result<Vec<TournamentDomain>, Failure> {
    let read = |path: &PathBuf| read_file(path, DOMAIN_BYTES_MAX, TournamentDomain::read);
    let mut domains: Vec<_> = args.domains.iter().map(read).collect::<Result<_, _>>()?;
    for number in 1..=args.generated.unwrap_or(if domains.is_empty() { GENERATED } else { 0 }) {
        domains.push(TournamentDomain::read(&generated::document(args.seed, number)).map_err(Failure::configuration)?);
    }
    if domains.is_empty() {
        return Err(Failure::configuration("no domain: name files, or draw some by --generated"));
    }
    Ok(domains)
}

/// Each is called what it is named by.
fn competitors(args: &TournamentArgs, domains: &[TournamentDomain]) -> Result<Vec<Competitor>, Failure> {
    let is_default = args.strategies.is_empty() && args.negmas.is_empty() && args.model.is_empty();
    let kinds = if is_default { StrategyKind::ALL } else { &args.strategies };
    let models: Vec<String> = args.model.iter().map(|path| path.display().to_string()).collect();
    let others = args.negmas.iter().chain(&models).map(String::as_str);
    named_once("competitor", kinds.iter().map(|kind| kind.as_str()).chain(others))?;
    let of_kind = |&kind: &StrategyKind| Competitor {
        name: kind.to_string(),
        made_of: kind.to_string(),
        player: Player::Strategy(kind),
    };
    let mut competitors: Vec<Competitor> = kinds.iter().map(of_kind).collect();
    for class in &args.negmas {
        let process = NegmasProcess::start(&args.python, class, domains);
        let process = process.map_err(|fault| Failure::configuration(format_args!("--negmas {class}: {fault}")))?;
        let made_of = process.made_of.clone();
        competitors.push(Competitor { name: class.clone(), made_of, player: Player::Negmas(Arc::new(process)) });
    }
    for (path, name) in args.model.iter().zip(models) {
        let with = ModelUse { metrics: None, kept: None };
        let OpenedModel { config, consultant } = open(path, ModelAgentConfig::check_instructed, with)?;
        let most = domains.iter().map(TournamentDomain::rounds).max().unwrap_or(0);
        let (calls, tokens) = (config.model.calls_per_negotiation, config.model.tokens_per_negotiation);
        let (calls_min, tokens_min) = (u64::from(most) * 2, u64::from(most) * TOKENS_PER_TURN);
        if u64::from(calls) < calls_min || tokens < tokens_min {
            let least = format!("calls_per_negotiation of {calls_min}, and tokens_per_negotiation of {tokens_min}");
            return Err(file_fault(path, format_args!("{most} rounds of a bargain take at least {least}")));
        }
        let made_of = Digest::of_bytes(&std::fs::read(path)?).to_string();
        let consultant = Arc::new(BlockingConsultant::Live(consultant, lasting_runtime()?));
        competitors.push(Competitor { name, made_of, player: Player::Model(config, consultant) });
    }
    Ok(competitors)
}

fn named_once<'a>(what: &str, names: impl IntoIterator<Item = &'a str>) -> Outcome {
    let mut seen = BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(Failure::configuration(format_args!("{what} `{name}` is named twice"))),
        None => Ok(()),
    }
}
