//! `llmx-lab simulate`: the whole exchange under faults on a virtual clock, seed by seed, judged by every invariant.

use std::num::NonZeroUsize;

use simulator::report::{Batch, CONCLUSIVE_RUNS, Progress as Done, Report, story};
use simulator::{check, run as run_seed};
use traffic_gen::invariants::Invariant;

use crate::output::{Failure, Outcome, Progress, note, print, print_json};
use crate::signals::{self, Attending};

/// Runs when neither `--seeds` nor `--seed` says otherwise: enough to reach every rare path.
const SEEDS_DEFAULT: u64 = CONCLUSIVE_RUNS;
/// Base of the seeds unless given.
const BASE_DEFAULT: u64 = 1;

/// Arguments of `llmx-lab simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx-lab simulate --seeds 10000 --liveness 2000    four times what CI runs\n  \
    llmx-lab simulate --seed 42                        one run, told line by line\n  \
    llmx-lab simulate --seed 42 --liveness 1           the same with time to end\n\n\
    A run is whole: real gateways and engines, a bus that loses, repeats, delays and forgets, crashes, stalls, clock\n\
    jumps, agents that misbehave. The same seed gives the same run, and the same on stdout; how long it took is on stderr.\n\
    Exit code 1 on a violation, and from 1000 runs on also when an invariant was never checked or a rare path never taken.\n\
    Ctrl-C or SIGTERM ends it with what the runs made so far showed, marked as interrupted, and exit code 1.")]
pub struct SimulateArgs {
    /// Runs that end amid faults (default: 1000, half a minute on two cores; with --seed 1)
    #[arg(long)]
    seeds: Option<u64>,
    /// Runs in which faults stop and everything must end
    #[arg(long, default_value_t = 0)]
    liveness: u64,
    /// Seed of the first run; each further one takes the next. A single run is told line by line
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; every core unless given. They change nothing but the time it takes
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Go on after a violation, to see what else it breaks
    #[arg(long)]
    keep_going: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl SimulateArgs {
    fn batch(&self) -> Batch {
        let safety = match (self.seeds, self.seed) {
            (Some(seeds), _) => seeds,
            (None, Some(_)) => u64::from(self.liveness == 0),
            (None, None) => SEEDS_DEFAULT,
        };
        let cores = std::thread::available_parallelism();
        Batch {
            base: self.seed.unwrap_or(BASE_DEFAULT),
            safety,
            liveness: self.liveness,
            threads: self.threads.or(cores.ok()).map_or(1, NonZeroUsize::get),
            keep_going: self.keep_going,
        }
    }
}

/// Simulates.
pub async fn run(args: SimulateArgs) -> Outcome {
    let batch = args.batch();
    let is_single = batch.safety.saturating_add(batch.liveness) == 1;
    if batch.safety.saturating_add(batch.liveness) == 0 {
        return Err(Failure::configuration("nothing to run: --seeds and --liveness are both 0"));
    }
    // Simulated runs bring runtimes of their own, which cannot live inside this one.
    let attending = Attending::new();
    let report = tokio::task::spawn_blocking(move || {
        if is_single && !args.json {
            tell(&batch);
        }
        let progress = Progress::new();
        let report = batch.simulate(|| attending.is_asked(), |done| progress.show(line(&done)));
        progress.finish();
        report
    });
    let report = report.await?;
    // On stderr: what is on stdout is the same every time.
    note(format_args!("{:.1} s, {:.0} runs/s", report.elapsed_s, report.runs_per_s));
    if args.json {
        print_json(&report)?;
    } else {
        print_report(&report);
    }
    verdict(&report)
}

/// Tells the only run of a batch.
fn tell(batch: &Batch) {
    let (seed, options) = batch.run_at(0);
    let trace = run_seed(seed, &options);
    let verdict = check(&trace);
    print(story(&trace, &verdict));
    print(format_args!("seed {seed}, digest {}", trace.digest()));
}

fn line(done: &Done) -> String {
    let violated = if done.violated > 0 { format!(", {} violated", done.violated) } else { String::new() };
    format!("{} of {} runs, {:.0}/s{violated}", done.done, done.total, done.per_s)
}

fn print_report(report: &Report) {
    if report.interrupted {
        let made = report.safety + report.liveness;
        print(format_args!("INTERRUPTED after {made} of {} runs: what follows is of those", report.asked));
    }
    print(format_args!(
        "{} safety and {} liveness runs: {} records folded, {} deliveries received",
        report.safety, report.liveness, report.records, report.deliveries
    ));
    let share = |(protocol, received): (&&str, &u64)| {
        format!("{protocol} {:.1} %", *received as f64 * 100.0 / report.deliveries.max(1) as f64)
    };
    print(report.deliveries_by_protocol.iter().map(share).collect::<Vec<_>>().join(", "));
    print("\ninvariant              checked   violated");
    for invariant in Invariant::ALL {
        let tally = report.invariants.get(invariant.as_str()).copied().unwrap_or_default();
        print(format_args!("{:<18} {:>11} {:>10}", invariant.as_str(), tally.checked, tally.violated));
    }
    print("\nrare path                        taken");
    for (point, times) in &report.sometimes {
        let times = if *times == 0 { "never".to_owned() } else { times.to_string() };
        print(format_args!("{point:<26} {times:>11}"));
    }
    let rare = report.sometimes.values().filter(|times| **times == 0).count();
    let left = if rare == 0 { String::new() } else { format!("; rare paths never taken: {rare} (1000 runs take all)") };
    let violated: u64 = report.invariants.values().map(|tally| tally.violated).sum();
    print(format_args!("\n{violated} violations in {} runs{left}", report.safety + report.liveness));
    for violation in &report.violations {
        print(format_args!(
            "\nseed {} violates {}; repeat: {}",
            violation.seed,
            violation.invariants.join(", "),
            violation.repeat
        ));
        for example in &violation.examples {
            print(format_args!("  {example}"));
        }
    }
}

fn verdict(report: &Report) -> Outcome {
    if report.is_fine() {
        return signals::whole(report.interrupted);
    }
    let told = match report.violations.first() {
        Some(first) => format!(
            "seed {} violates {} ({}); repeat: {}",
            first.seed,
            first.invariants.join(", "),
            first.examples.first().map_or("", String::as_str),
            first.repeat
        ),
        None => format!(
            "the runs show too little: never checked [{}], never taken [{}]",
            report.never_checked.join(", "),
            report.never_reached.join(", ")
        ),
    };
    Err(Failure::failed(anyhow::anyhow!("{told}")))
}
