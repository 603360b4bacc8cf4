//! Load, and a sample of everything every so often, for as long as the soak lasts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agents::observer::Observer;
use bus::Bus;
use futures_util::future::join_all;
use jiff::Timestamp;
use prometheus::Registry;
use schemas::Lane;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use traffic_gen::arrivals::Load;
use traffic_gen::invariants::Watch;
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::{Counts, Recorder};

use super::SoakError;
use super::drift::Quantity;
use super::report::{self, SoakReport};
use super::sample::{End, SampleLine, SoakFolder, SoakFolderError, SoakLine};
use super::scrape::{Scrape, ScrapeReader, ScrapedValues, Scraper, series};

/// How often the report is written.
const REPORT_PERIOD: Duration = Duration::from_secs(60);
/// Calls open at once while memory fills, and those that have ended when it is full: what lanes, gateways and agents of an
/// exchange remember for people and against repeats is then at its bounds.
const FILL_CALLS: u32 = 64;
const FILL_ROUNDS: u64 = 6_000;
/// How often is looked whether so many have ended.
const FILL_LOOK: Duration = Duration::from_millis(100);
/// How long what is open is waited for then.
const FILL_DRAIN: Duration = Duration::from_secs(2);
/// Longest wait for the bus's answers at a sample.
const BUS_ANSWER_MAX: Duration = Duration::from_secs(5);

/// Something that is scraped, under the name its series have.
#[derive(Debug, Clone)]
pub enum Source {
    /// This process.
    Own(String, Vec<Registry>),
    /// A process's `/metrics`.
    Metrics(String, String),
    /// A nats-server's monitoring port.
    Server(String, String),
}

/// Counts since the last sample, such as of faults; read and set back by each sample.
pub type Injected = Arc<dyn Fn() -> BTreeMap<String, u64> + Send + Sync>;

/// What is measured, and how.
pub struct Measuring<'a> {
    /// The way agents take.
    pub access: &'a Access<'a>,
    /// The load.
    pub scenario: CallScenario,
    /// What is scraped.
    pub sources: Vec<Source>,
    /// Where log and archive stand; absent where only processes are seen.
    pub bus: Option<Bus>,
    /// Faults so far.
    pub injected: Option<Injected>,
    /// Ends the run before its time.
    pub cancel: CancellationToken,
    /// Hears of each sample.
    pub progress: &'a dyn Fn(&SoakProgress),
}

/// Where a soak stands.
#[derive(Debug, Clone, Default)]
pub struct SoakProgress {
    /// Seconds measured, earlier parts included.
    pub measured_s: f64,
    /// Seconds it is to last.
    pub duration_s: f64,
    /// The last sample.
    pub values: BTreeMap<String, f64>,
    /// Negotiations open.
    pub open: usize,
    /// Violations so far in this part.
    pub violations: u64,
    /// The verdict of the last report, in a sentence.
    pub verdict: Option<String>,
}

impl Measuring<'_> {
    /// Runs the load for what is left of a soak, samples, and writes the report every minute.
    ///
    /// # Errors
    /// [`SoakError`]; what was measured stays in the folder.
    pub async fn run(self, folder: &mut SoakFolder) -> Result<End, SoakError> {
        let registry = Registry::new();
        let watch: Arc<dyn Observer> = Arc::new(Watch::try_new(&registry)?);
        let mut scenario = self.scenario.clone();
        scenario.options.observer = Some(watch);
        scenario.duration = Duration::from_secs_f64(folder.remaining_s());
        // No witness: what it remembers grows with every round.
        let recorder = Arc::new(Recorder::start(Instant::now(), false, None).of_run(&scenario.run));
        let population = Population::start(self.access, &scenario, Some(&recorder)).await?;
        // As fast as calls end: no process grows later by what it remembers in any case.
        let filling = CallScenario {
            load: Load::Closed { calls: FILL_CALLS, think_s: 0.0 },
            duration: folder.plan().fill(),
            drain: FILL_DRAIN,
            run: format!("{}-fill", scenario.run),
            ..scenario.clone()
        };
        self.prepare(filling, &recorder, FILL_ROUNDS).await?;
        // At the rate of the run: nor by what it remembers for a time.
        let settling = CallScenario {
            duration: folder.plan().settle(),
            drain: FILL_DRAIN,
            run: format!("{}-settle", scenario.run),
            ..scenario.clone()
        };
        self.prepare(settling, &recorder, u64::MAX).await?;
        let initiator = live::connect(self.access, &scenario, &recorder).await?;
        folder.begin()?;
        let started = Instant::now();
        let mut sampler = Sampler::new(&self, &registry, Arc::clone(&recorder), started)?;
        let load = live::call_from(initiator, &scenario, &recorder, started, &self.cancel);
        let outcome = tokio::select! {
            done = load => done.map(drop).map_err(SoakError::from),
            failed = sampler.drive(folder) => failed.map(|never| match never {}),
        };
        let end = sampler.end(scenario.duration, self.cancel.is_cancelled());
        population.stop().await?;
        outcome.map(|()| end)
    }

    /// Makes the calls of a scenario until so many rounds have ended, so that what is remembered is as much as it will be.
    async fn prepare(&self, scenario: CallScenario, recorder: &Arc<Recorder>, rounds: u64) -> Result<(), SoakError> {
        if scenario.duration.is_zero() || self.cancel.is_cancelled() {
            return Ok(());
        }
        let cancel = self.cancel.child_token();
        let initiator = live::connect(self.access, &scenario, recorder).await?;
        let calls = live::call_from(initiator, &scenario, recorder, Instant::now(), &cancel);
        tokio::pin!(calls);
        let mut look = tokio::time::interval(FILL_LOOK);
        loop {
            tokio::select! {
                ended = &mut calls => return ended.map(drop).map_err(SoakError::from),
                _ = look.tick() => if recorder.counts().rounds >= rounds {
                    cancel.cancel();
                },
            }
        }
    }
}

/// Takes the samples.
struct Sampler<'a> {
    measuring: &'a Measuring<'a>,
    recorder: Arc<Recorder>,
    started: Instant,
    scraper: Scraper,
    reader: ScrapeReader,
    /// This process's part of what is watched.
    watched: Source,
    last: Counts,
    last_at: Instant,
    violations: u64,
    reported_at: Instant,
    reporting: Option<JoinHandle<Result<Option<SoakReport>, SoakFolderError>>>,
    verdict: Option<String>,
}

/// What never is.
enum Never {}

impl<'a> Sampler<'a> {
    fn new(
        measuring: &'a Measuring<'a>,
        registry: &Registry,
        recorder: Arc<Recorder>,
        started: Instant,
    ) -> Result<Self, SoakError> {
        let last = recorder.counts();
        Ok(Self {
            measuring,
            recorder,
            started,
            scraper: Scraper::try_new()?,
            reader: ScrapeReader::default(),
            watched: Source::Own("agents".to_owned(), vec![registry.clone()]),
            last,
            last_at: started,
            violations: 0,
            reported_at: started,
            reporting: None,
            verdict: None,
        })
    }

    /// Samples until the time is over or the run is cancelled, and then waits for ever.
    async fn drive(&mut self, folder: &mut SoakFolder) -> Result<Never, SoakError> {
        let period = Duration::from_secs_f64(folder.plan().sample_s);
        let until = self.started + Duration::from_secs_f64(folder.remaining_s()) + period / 2;
        let mut due = tokio::time::interval_at(self.started + period, period);
        due.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let now = due.tick().await;
            if now > until || self.measuring.cancel.is_cancelled() {
                std::future::pending::<Never>().await;
            }
            let sample = self.sample().await;
            let progress = SoakProgress {
                measured_s: folder.plan().duration_s - folder.remaining_s() + sample.elapsed_s,
                duration_s: folder.plan().duration_s,
                values: sample.values.clone(),
                open: self.recorder.open(),
                violations: self.violations,
                verdict: self.verdict.clone(),
            };
            folder.add(&SoakLine::Sample(sample))?;
            (self.measuring.progress)(&progress);
            self.report(folder).await?;
        }
    }

    /// Writes the report where it is time, beside the load.
    async fn report(&mut self, folder: &SoakFolder) -> Result<(), SoakError> {
        if let Some(reporting) = self.reporting.take_if(|reporting| reporting.is_finished()) {
            let written = reporting.await.map_err(|panic| SoakError::Report(panic.to_string()))??;
            self.verdict = written.map(|report| report.sentence());
        }
        if self.reporting.is_none() && self.reported_at.elapsed() >= REPORT_PERIOD {
            let path = folder.path().to_owned();
            self.reported_at = Instant::now();
            self.reporting = Some(tokio::task::spawn_blocking(move || report::write(&path)));
        }
        Ok(())
    }

    async fn sample(&mut self) -> SampleLine {
        let now = Instant::now();
        let elapsed_s = now.duration_since(self.started).as_secs_f64();
        let mut sample = SampleLine { at: Timestamp::now(), elapsed_s, ..SampleLine::default() };
        self.load(now, &mut sample);
        let scrapes =
            join_all(self.measuring.sources.iter().chain([&self.watched]).map(|source| self.scraper.of(source)));
        let (scrapes, bus) = tokio::join!(scrapes, bus_values(self.measuring.bus.as_ref()));
        sample.values.extend(bus);
        for (name, scrape) in scrapes.into_iter().flatten() {
            let ScrapedValues { values, started, violations } = self.reader.read(&name, &scrape, elapsed_s);
            sample.values.extend(values);
            sample.started.extend(started.map(|started| (name, started)));
            for (violated, count) in violations {
                self.violations += count;
                *sample.violations.entry(violated).or_default() += count;
            }
        }
        if let Some(injected) = &self.measuring.injected {
            sample.faults = injected();
        }
        sample
    }

    /// What the load was since the last sample.
    fn load(&mut self, now: Instant, sample: &mut SampleLine) {
        let counts = self.recorder.counts();
        let interval_s = now.duration_since(self.last_at).as_secs_f64();
        let decision = counts.decision.since(&self.last.decision).quantiles();
        let mut put = |quantity, value| sample.values.insert(series("exchange", quantity), value);
        if decision.count > 0 {
            put(Quantity::DecisionP50, decision.p50);
            put(Quantity::DecisionP95, decision.p95);
            put(Quantity::DecisionP99, decision.p99);
        }
        if interval_s > 0.0 {
            put(Quantity::Rounds, counts.rounds.saturating_sub(self.last.rounds) as f64 / interval_s);
        }
        put(Quantity::Open, self.recorder.open() as f64);
        (self.last, self.last_at) = (counts, now);
    }

    /// How the part ended. Of one that was interrupted, what is still open proves nothing.
    fn end(&self, duration: Duration, is_interrupted: bool) -> End {
        let measured = if is_interrupted { self.last_at.duration_since(self.started) } else { duration };
        let counts = self.recorder.counts();
        let unended = self.recorder.open() as u64 + counts.lost;
        let mut end = End {
            at: Timestamp::now(),
            elapsed_s: measured.as_secs_f64(),
            reason: if is_interrupted { "interrupted" } else { "done" }.to_owned(),
            violations: BTreeMap::new(),
            examples: Vec::new(),
        };
        if !is_interrupted && unended > 0 {
            end.violations.insert("exchange/terminates".to_owned(), unended);
            end.examples.push(format!("{unended} calls had not ended when everything should have"));
        }
        if counts.cfps == 0 && counts.cfps_refused > 0 {
            let why = counts.cfp_refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
            end.violations.insert("exchange/admitted".to_owned(), counts.cfps_refused);
            end.examples.push(format!("none of {} calls was admitted: {why}", counts.cfps_refused));
        }
        end
    }
}

impl Scraper {
    /// What a source says now; none where it does not answer.
    async fn of(&self, source: &Source) -> Option<(String, Scrape)> {
        let (name, answer) = match source {
            Source::Own(name, registries) => {
                let text = registries.iter().map(|registry| telemetry::metrics::to_text(registry).unwrap_or_default());
                (name, Ok(Scrape::parse(&text.collect::<String>())))
            }
            Source::Metrics(name, url) => (name, self.scrape(url).await),
            Source::Server(name, monitor) => (name, self.server(monitor).await),
        };
        match answer {
            Ok(scrape) => Some((name.clone(), scrape)),
            Err(error) => {
                tracing::debug!(%name, %error, "no answer to a scrape");
                None
            }
        }
    }
}

/// Where log and archive stand.
async fn bus_values(bus: Option<&Bus>) -> BTreeMap<String, f64> {
    let Some(bus) = bus else { return BTreeMap::new() };
    match tokio::time::timeout(BUS_ANSWER_MAX, positions(bus)).await {
        Ok(Ok(values)) => values,
        Ok(Err(error)) => {
            tracing::debug!(%error, "no answer of the bus to a sample");
            BTreeMap::new()
        }
        Err(_) => BTreeMap::new(),
    }
}

async fn positions(bus: &Bus) -> Result<BTreeMap<String, f64>, bus::BusError> {
    let (mut last_max, mut trimmed_min, mut unarchived, mut is_archived) = (0, u64::MAX, 0, false);
    for lane in (0..bus.log.lanes()).map(Lane) {
        let last = bus.log.last_seq(lane).await?;
        last_max = last.max(last_max);
        trimmed_min = bus.log.trimmed(lane).await?.min(trimmed_min);
        // Before its first record is archived a lane has no such document.
        let archived = bus.blobs.version(format!("archived-{lane}")).await?;
        is_archived |= archived.is_some();
        unarchived = unarchived.max(last.saturating_sub(archived.unwrap_or(0)));
    }
    let mut values = BTreeMap::from([(series("log", Quantity::LogSpan), last_max.saturating_sub(trimmed_min) as f64)]);
    if is_archived {
        values.insert(series("log", Quantity::Unarchived), unarchived as f64);
    }
    Ok(values)
}
