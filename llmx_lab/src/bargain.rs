//! `llmx-lab bargain`: one bargain of a domain file, or many, through the core alone.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ::agents::bargain::StrategyKind;
use anyhow::Context;
use schemas::bargain::ROUNDS_MAX;
use scripted::bargain::in_memory::InMemoryExchange;
use scripted::bargain::mandate_fuzz::{self, CASES};
use scripted::bargain::plot::{self, Picture};
use scripted::bargain::report::BargainReport;
use scripted::bargain::run::{repeat_matchup, run_matchup};
use scripted::bargain::session::BargainSessionError;
use serde_json::json;
use traffic_gen::bargain::Played;
use traffic_gen::bargain::matchup::Matchup;

use crate::arguments::{file_fault, read_domain};
use crate::output::{Failure, Outcome, Progress, create, print, print_json};
use crate::signals::{self, Attending};

/// Arguments of `llmx-lab bargain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Strategies: boulware, linear, conceder, tit-for-tat, micro, random.\n\n\
    Examples:\n  llmx-lab bargain domains/car_purchase.json --a boulware --b tit-for-tat --plot car.svg\n  \
    llmx-lab bargain domains/three_party.json --a linear --b micro --c conceder --json\n  \
    llmx-lab bargain domains/ecommerce.json --repeat 1000 --seed 7\n  \
    llmx-lab bargain --check                     does a mandate hold against its own party? 10000 runs\n\n\
    Ctrl-C or SIGTERM ends many runs with what those made so far showed, marked as interrupted, and exit code 1.\n\
    Domain files: docs/bargaining.md")]
pub struct BargainArgs {
    /// A domain file
    #[arg(value_name = "DOMAIN.json", required_unless_present = "check", conflicts_with = "check")]
    domain: Option<PathBuf>,
    /// Strategy of the first party of the file
    #[arg(long, default_value = "boulware", value_name = "STRATEGY")]
    a: StrategyKind,
    /// Strategy of the second
    #[arg(long, default_value = "conceder", value_name = "STRATEGY")]
    b: StrategyKind,
    /// Strategy of the third, where there is one
    #[arg(long, value_name = "STRATEGY")]
    c: Option<StrategyKind>,
    /// Rounds, instead of the file's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX)))]
    rounds: Option<u32>,
    /// Play so many, each opened by the first party with an offer drawn from what it may agree to
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    repeat: Option<u64>,
    /// Haggle over prices, also with parties that try to leave their own mandates, and count what got through
    #[arg(long, conflicts_with_all = ["repeat", "rounds", "plot", "c"])]
    check: bool,
    /// Runs of the check
    #[arg(long, default_value_t = 10_000, requires = "check", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Seed of everything drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the utility plane of the bargain: outcomes, frontier, offers, agreement (SVG)
    #[arg(long, value_name = "FILE", conflicts_with = "repeat")]
    plot: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Plays, and prints what came of it.
pub fn run(args: &BargainArgs) -> Outcome {
    let Some(path) = &args.domain else { return check(args) };
    let matchup = matchup(path, args)?;
    if let Some(bargains) = args.repeat {
        return repeat(&matchup, bargains, args);
    }
    let played = run_matchup(&matchup, &mut InMemoryExchange::default(), "bargain", args.seed).map_err(failure)?;
    let drawn = args.plot.as_deref().map_or(Ok(()), |file| draw(&matchup, &played, file));
    let report = BargainReport::new(&matchup, played);
    if args.json {
        print_json(&report)?;
    } else {
        print(report);
    }
    drawn
}

/// Draws what was played into a file.
fn draw(matchup: &Matchup, played: &Played, file: &Path) -> Outcome {
    let offers: Vec<Vec<usize>> = (0..matchup.parties().len()).map(|party| played.offers_of(party).collect()).collect();
    let names: Vec<String> = matchup.parties().iter().map(|party| party.agent.to_string()).collect();
    let agreement = played.agreement();
    let picture = Picture {
        title: &matchup.domain().name,
        plane: matchup.plane(),
        solutions: matchup.solutions(),
        parties: &names,
        offers: &offers,
        agreements: agreement.as_slice(),
    };
    let svg = plot::draw(&picture)?;
    let written = create(file).and_then(|mut created| Ok(created.write_all(svg.as_bytes())?));
    // The bargain was played, and its result is printed: it is the plot that failed.
    written.map_err(|failure| Failure::failed(anyhow::anyhow!("the plot is not drawn: {failure}")))
}

fn matchup(path: &Path, args: &BargainArgs) -> Result<Matchup, Failure> {
    let mut domain = read_domain(path)?;
    if let Some(rounds) = args.rounds {
        domain.rules.rounds = Some(rounds);
    }
    let mut kinds = vec![args.a, args.b];
    match (domain.parties.len(), args.c) {
        (2, Some(_)) => return Err(file_fault(path, format_args!("{} has two parties: leave --c out", domain.name))),
        (2, None) => {}
        // Every party has a strategy, whether it is named or not.
        (_, c) => kinds.push(c.unwrap_or(StrategyKind::Linear)),
    }
    Matchup::try_new(domain, &kinds).map_err(|error| file_fault(path, error))
}

fn repeat(matchup: &Matchup, bargains: u64, args: &BargainArgs) -> Outcome {
    let (attending, progress) = (Attending::new(), (!args.json).then(Progress::new));
    let tally = repeat_matchup(matchup, bargains, args.seed, |tally| {
        if let Some(progress) = &progress {
            progress.show(format_args!("{} of {bargains} bargains, {} agreed", tally.bargains(), tally.agreements()));
        }
        go_on_unless(attending.is_asked())
    });
    if let Some(progress) = &progress {
        progress.finish();
    }
    let tally = tally.map_err(failure)?;
    let played = tally.bargains();
    let interrupted = played < bargains;
    let figures = tally.figures(Some(args.seed)).of_parties(matchup.parties().iter().map(|party| party.agent.as_str()));
    let names: Vec<String> = matchup
        .parties()
        .iter()
        .zip(matchup.kinds())
        .map(|(party, kind)| format!("{} ({kind})", party.agent))
        .collect();
    if args.json {
        print_json(
            &json!({"domain": matchup.domain().name, "parties": names, "interrupted": interrupted, "figures": figures}),
        )?;
        return signals::whole(interrupted);
    }
    if interrupted {
        print(format_args!("INTERRUPTED after {played} of {bargains} bargains: what follows is of those"));
    }
    print(format_args!("{}: {}, {played} bargains, seed {}", matchup.domain().name, names.join(" and "), args.seed));
    print(figures);
    signals::whole(interrupted)
}

fn go_on_unless(is_asked_to_end: bool) -> ControlFlow<()> {
    if is_asked_to_end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Do mandates hold? Anything that got through is a failure.
fn check(args: &BargainArgs) -> Outcome {
    let (attending, progress) = (Attending::new(), (!args.json).then(Progress::new));
    let runs = args.runs;
    let tally = mandate_fuzz::run(runs, args.seed, |tally| {
        if let Some(progress) = &progress {
            progress.show(format_args!("{} of {runs} runs, {} breaches", tally.runs, tally.breaches));
        }
        go_on_unless(attending.is_asked())
    });
    if let Some(progress) = &progress {
        progress.finish();
    }
    let tally = tally.context("the check itself failed")?;
    let interrupted = tally.runs < runs;
    if args.json {
        print_json(&json!({"seed": args.seed, "cases": CASES, "interrupted": interrupted, "tally": tally}))?;
    } else {
        if interrupted {
            print(format_args!("INTERRUPTED after {} of {runs} runs: what follows is of those", tally.runs));
        }
        print(tally);
    }
    if tally.holds() {
        return signals::whole(interrupted);
    }
    Err(Failure::failed(anyhow::anyhow!(
        "{} breaches, {} deals missed, {} impossible deals",
        tally.breaches,
        tally.missed,
        tally.impossible
    )))
}

/// What the exchange refuses lies in the file.
fn failure(error: BargainSessionError) -> Failure {
    match error {
        BargainSessionError::Id(_) | BargainSessionError::Policy(_) | BargainSessionError::Refused { .. } => {
            Failure::configuration(error)
        }
        BargainSessionError::InMemory(_) | BargainSessionError::Silent(_) => Failure::failed(error),
    }
}
