//! `llmx-lab soak`: load for hours, samples of everything that could drift, and a verdict on each series.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bus::memory::MemoryOptions;
use schemas::{AgentId, Policy};
use studies::soak::drift::{POINTS_MIN, Quantity};
use studies::soak::measure::SoakProgress;
use studies::soak::report::{self, SoakReport, SoakVerdict, amount, length};
use studies::soak::sample::{SoakFolder, SoakFolderError};
use studies::soak::subject::Soak;
use studies::soak::{Place, SoakError, SoakFaults, SoakPlan, length_of};
use tokio_util::sync::CancellationToken;
use traffic_gen::arrivals::PoissonArrivals;
use traffic_gen::live::Access;

use crate::arguments::{http_url, since_epoch};
use crate::output::{Failure, Outcome, Progress, print, print_json};
use crate::remote::RemoteArgs;
use crate::signals::{self, asked_to_end};
use crate::{ops, policy};

/// Shortest time between two samples.
const SAMPLE_MIN: Duration = Duration::from_millis(500);

/// Arguments of `llmx-lab soak`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx-lab soak --duration 3m --sample 2s\n  llmx-lab soak --duration 12h --agents 12 --policy high --out run/soak\n  \
    llmx-lab soak --nats-local --duration 2h --faults light\n  llmx-lab soak --faults kills --duration 30m --sample 10s\n  \
    llmx-lab soak --metrics http://127.0.0.1:9464,http://127.0.0.1:8080 --gateway http://127.0.0.1:8080 --duration 12h\n\n\
    The exchange runs in this process, unless --metrics names running ones, or --faults kills starts processes of the llmx\n\
    beside this program and kills them, as `llmx-lab chaos` does. Contractors and the initiator are always the run's own.\n\
    The folder holds samples.jsonl and, written anew every minute, soak.json, report.md and report.html. With the same\n\
    --out a soak that was killed or interrupted goes on: one report over all parts, gaps marked.\n\
    Ctrl-C and SIGTERM end it with its report. Fails (1) when a series drifts, an invariant is violated or it is ended early;\n\
    refused (2) where fewer than 20 samples would lie behind the warm-up (a fifth of the duration, half an hour at most).\n\
    What drift means, and what would be too much: docs/experiments.md."
)]
pub struct SoakArgs {
    /// How long, all parts together: 12h, 30m, 90s
    #[arg(long, default_value = "12h", value_parser = length_of, value_name = "LENGTH")]
    duration: Duration,
    /// Contractors
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    agents: u32,
    /// Acceptance policy of the calls: a preset (`llmx policy list`) or a file; with --metrics only its name is used
    #[arg(long, default_value = "high", value_name = "NAME|FILE")]
    policy: String,
    /// Calls per second, Poisson
    #[arg(long, default_value_t = 5.0)]
    rate: f64,
    /// Faults: of contractors that refuse, are late or silent, withdraw and fail now and then (light), or processes that
    /// are killed (kills)
    #[arg(long, value_enum, default_value = "none")]
    faults: SoakFaults,
    /// Between two samples: 1m, 10s
    #[arg(long, default_value = "1m", value_parser = length_of, value_name = "LENGTH")]
    sample: Duration,
    /// Folder of the soak; it goes on where one stands there (default: a new one, run/soak-TIME)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of arrivals, contractors and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Soak running processes: where each serves its metrics, separated by commas; agents go over --gateway
    #[arg(long, value_parser = http_url, value_delimiter = ',', value_name = "URLS")]
    metrics: Vec<String>,
    /// Run the exchange on a nats-server started for this run (`scripts/nats-server` fetches the binary)
    #[arg(long, conflicts_with = "metrics")]
    nats_local: bool,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl SoakArgs {
    /// What is soaked; what cannot be had together is refused.
    fn place(&self) -> Result<Place, Failure> {
        let nats = self.remote.nats();
        let is_on_nats = nats.is_typed("url") || nats.is_typed("config");
        let is_killed = self.faults == SoakFaults::Kills;
        let refused = |what: &str| Err(Failure::configuration(what));
        match (!self.metrics.is_empty(), self.nats_local, is_on_nats, is_killed) {
            (true, _, _, true) => refused("--faults kills starts processes of its own: leave out --metrics"),
            (_, true, _, true) | (_, _, true, true) => {
                refused("--faults kills starts a nats-server of its own: leave out --nats, --config and --nats-local")
            }
            (_, true, true, _) => refused("--nats-local cannot be used with --nats or --config"),
            (true, _, _, false) => Ok(Place::Running),
            (false, _, _, true) => Ok(Place::Processes),
            (false, true, _, false) => Ok(Place::NatsLocal),
            (false, false, true, false) => Ok(Place::Nats),
            (false, false, false, false) => Ok(Place::Embedded),
        }
    }

    fn plan(&self, policy: &Policy) -> Result<SoakPlan, Failure> {
        PoissonArrivals::try_new(self.rate, self.seed).map_err(Failure::configuration)?;
        if self.sample < SAMPLE_MIN || self.sample > self.duration {
            return Err(Failure::configuration("--sample: must be 500ms at least, and no longer than --duration"));
        }
        let plan = SoakPlan {
            place: self.place()?,
            agents: self.agents,
            policy: policy.id.clone(),
            rate: self.rate,
            faults: self.faults,
            sample_s: self.sample.as_secs_f64(),
            seed: self.seed,
            metrics: self.metrics.clone(),
            duration_s: self.duration.as_secs_f64(),
        };
        if plan.judged_points() < POINTS_MIN {
            return Err(Failure::configuration(format_args!(
                "no series would be judged: that takes {POINTS_MIN} samples behind the warm-up ({}), and --duration {} with \
                 --sample {} leaves {}; choose a longer --duration or a shorter --sample",
                length(plan.warm_up_s()),
                length(plan.duration_s),
                length(plan.sample_s),
                plan.judged_points()
            )));
        }
        Ok(plan)
    }

    fn folder(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from(format!("run/soak-{}", since_epoch().as_secs())))
    }
}

/// Soaks, and prints the report; drift and violations are failures.
pub async fn run(args: SoakArgs) -> Outcome {
    let policy = policy::preset_or_file(&args.policy)?;
    let plan = args.plan(&policy)?;
    let exchange = (plan.place == Place::Processes).then(crate::exchange_program).transpose()?;
    let folder = SoakFolder::open(&args.folder(), &plan).map_err(refused)?;
    let place = folder.path().to_owned();
    let progress = Progress::new();
    if !args.json {
        let (to_go, before) = (length(folder.remaining_s()), length(plan.prepares_s()));
        progress.show(format_args!(
            "soak in {}: {to_go} to go, after {before} at most that fill memory\n",
            place.display()
        ));
    }
    let report = if folder.remaining_s() < plan.sample_s {
        report::write(&place).map_err(refused)?.context("the folder holds no part")?
    } else {
        let show = |standing: &SoakProgress| {
            if !args.json {
                progress.show(line(standing));
            }
        };
        let soaked = Box::pin(soak(&args, (policy, exchange), folder, &show)).await;
        progress.finish();
        soaked?
    };
    if args.json {
        print_json(&report)?;
    } else {
        print(&report);
        print(format_args!("  {}", place.join(report::PAGE).display()));
    }
    judged(&report)
}

async fn soak(
    args: &SoakArgs,
    (policy, exchange): (Policy, Option<PathBuf>),
    folder: SoakFolder,
    progress: &dyn Fn(&SoakProgress),
) -> Result<SoakReport, Failure> {
    let place = folder.plan().place;
    let cancel = CancellationToken::new();
    let asked = cancel.clone();
    let interrupt = tokio::spawn(async move {
        asked_to_end().await;
        asked.cancel();
    });
    let soak = Soak { folder, policy: Some(policy), registry: ops::registry()?, cancel, progress };
    let soaked = match place {
        Place::Embedded => soak.in_process(bus::memory::open(MemoryOptions::default()), Vec::new()).await,
        Place::Nats => {
            let bus = args.remote.nats().typed().in_force()?.open("llmx-soak").await?;
            soak.in_process(bus, Vec::new()).await
        }
        Place::NatsLocal => soak.on_local_server().await,
        Place::Processes => Box::pin(soak.on_processes(exchange.unwrap_or_default())).await,
        Place::Running => {
            let remote = args.remote.open("llmx-soak").await?;
            let (transport, identity) = (|_: &AgentId| remote.transport(), |name: &AgentId| remote.identity(name));
            soak.against(&Access { control: &remote.control, transport: &transport, identity: &identity }).await
        }
    };
    interrupt.abort();
    soaked.map_err(|error| {
        let is_unwritten = matches!(error, SoakError::Folder(SoakFolderError::File { .. }));
        let failure = Failure::from(error);
        let remedy = "what was measured is kept; make room, and start it again with the same --out";
        if is_unwritten { failure.or(remedy) } else { failure }
    })
}

/// A folder that cannot be used is a matter of configuration.
fn refused(error: SoakFolderError) -> Failure {
    Failure::configuration(error)
}

fn judged(report: &SoakReport) -> Outcome {
    match report.verdict {
        SoakVerdict::Violated | SoakVerdict::Drifting => Err(Failure::failed(anyhow::anyhow!("{}", report.sentence()))),
        SoakVerdict::TooFew if report.is_complete => Err(Failure::failed(anyhow::anyhow!("{}", report.sentence()))),
        SoakVerdict::TooFew | SoakVerdict::Steady => signals::whole(!report.is_complete),
    }
}

/// The line of progress.
fn line(standing: &SoakProgress) -> String {
    let SoakProgress { measured_s, duration_s, values, open, violations, verdict } = standing;
    let of = |series: &str| values.get(series).copied();
    let latency = |name| of(name).map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    let memory = values.iter().filter(|(series, _)| series.ends_with("/memory"));
    let memory = memory.map(|(_, value)| *value).fold(0.0, f64::max);
    format!(
        "{} of {}   decision p50 {} ms, p99 {} ms   {:.1} rounds/s   open {open}   largest process {}   violations \
         {violations}   {}",
        length(*measured_s),
        length(*duration_s),
        latency("exchange/decision_p50"),
        latency("exchange/decision_p99"),
        of("exchange/rounds").unwrap_or(0.0),
        amount(memory, Quantity::Memory),
        verdict.as_deref().unwrap_or("")
    )
}
