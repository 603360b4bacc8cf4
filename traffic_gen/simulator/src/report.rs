//! Many runs: which seeds, on how many threads, and what they showed together.
//!
//! A batch is the same however many threads share it: runs are numbered, every run's seed follows from its number, and the
//! violation reported is that of the lowest number.

mod shares;
mod story;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use super::{Options, check, run};
use traffic_gen::invariants::{Invariant, Tally, Verdict};

pub use story::story;

/// From this many runs on, an invariant that was never checked or a rare path never taken is a failure: fewer runs may
/// miss one by chance.
pub const CONCLUSIVE_RUNS: u64 = 1000;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Seed of the first run; each further one takes the next.
    pub base: u64,
    /// Runs that end amid faults.
    pub safety: u64,
    /// Runs that are given the time to end, after those.
    pub liveness: u64,
    /// Threads.
    pub threads: usize,
    /// Whether to go on after a violation, to see what else it breaks.
    pub keep_going: bool,
}

/// How far a batch is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Runs done.
    pub done: u64,
    /// Runs in all.
    pub total: u64,
    /// Runs that violated something.
    pub violated: u64,
    /// Runs per second of wall-clock time.
    pub per_s: f64,
}

/// What a batch showed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Safety runs made.
    pub safety: u64,
    /// Liveness runs made.
    pub liveness: u64,
    /// Runs asked for. More than were made: the batch was interrupted, or ended at a violation.
    pub asked: u64,
    /// Whether the batch was asked to end before it was done: what is said is true of the runs made.
    pub interrupted: bool,
    /// Wall-clock seconds. Not part of the document, which is the same every time.
    #[serde(skip)]
    pub elapsed_s: f64,
    /// Runs per second of wall-clock time. Not part of the document either.
    #[serde(skip)]
    pub runs_per_s: f64,
    /// Records folded and compared.
    pub records: u64,
    /// Deliveries that agents received.
    pub deliveries: u64,
    /// The same by protocol.
    pub deliveries_by_protocol: BTreeMap<&'static str, u64>,
    /// Checks and violations by invariant.
    pub invariants: BTreeMap<&'static str, Tally>,
    /// How often each rare path was taken.
    pub sometimes: BTreeMap<&'static str, u64>,
    /// Runs that violated something, in order: the first only, unless told to go on.
    pub violations: Vec<Violation>,
    /// Invariants that were never checked.
    pub never_checked: Vec<&'static str>,
    /// Rare paths that were never taken.
    pub never_reached: Vec<&'static str>,
}

/// A run that violated something.
#[derive(Debug, Clone, Serialize)]
pub struct Violation {
    /// Its seed.
    pub seed: u64,
    /// Whether it was a liveness run.
    pub liveness: bool,
    /// What does not hold.
    pub invariants: Vec<&'static str>,
    /// The first few, in words.
    pub examples: Vec<String>,
    /// The command that repeats it.
    pub repeat: String,
}

/// Violating runs kept in words; the rest is only counted.
const VIOLATIONS_MAX: usize = 1000;
/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

impl Batch {
    fn total(&self) -> u64 {
        self.safety.saturating_add(self.liveness)
    }

    /// The seed and the options of a run.
    pub fn run_at(&self, number: u64) -> (u64, Options) {
        (self.base.wrapping_add(number), Options { liveness: number >= self.safety })
    }

    /// Makes every run, or those begun before `is_asked_to_end`; `on_progress` is called about twice a second.
    pub fn simulate(&self, is_asked_to_end: impl Fn() -> bool + Sync, on_progress: impl Fn(Progress) + Sync) -> Report {
        let started = Instant::now();
        let shared = SharedProgress {
            next: AtomicU64::new(0),
            stop: AtomicU64::new(self.total()),
            interrupted: AtomicBool::new(false),
            sum: Mutex::default(),
        };
        let tell = |sum: &Sum| {
            let done = sum.made();
            let per_s = done as f64 / started.elapsed().as_secs_f64().max(f64::EPSILON);
            on_progress(Progress { done, total: self.total(), violated: sum.violated, per_s });
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| self.work(&shared, &is_asked_to_end, &tell));
            }
        });
        let interrupted = shared.interrupted.into_inner();
        let sum = shared.sum.into_inner();
        tell(&sum);
        let mut report = sum.report(started.elapsed());
        (report.asked, report.interrupted) = (self.total(), interrupted);
        if !self.keep_going {
            // What other threads found meanwhile depends on their number.
            report.violations.truncate(1);
        }
        report
    }

    /// One thread's share.
    fn work(
        &self,
        shared: &SharedProgress,
        is_asked_to_end: &(impl Fn() -> bool + Sync),
        tell: &(impl Fn(&Sum) + Sync),
    ) {
        loop {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            if number >= shared.stop.load(Ordering::Relaxed) {
                return;
            }
            if is_asked_to_end() {
                shared.interrupted.store(true, Ordering::Relaxed);
                return;
            }
            let (seed, options) = self.run_at(number);
            let judged = judge(seed, &options);
            if !judged.is_fine() && !self.keep_going {
                // Lower numbers are under way on other threads and may violate something, too.
                shared.stop.fetch_min(number, Ordering::Relaxed);
            }
            let mut sum = shared.sum.lock();
            sum.add(number, seed, options, judged);
            if sum.told_at.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY) {
                sum.told_at = Some(Instant::now());
                tell(&sum);
            }
        }
    }
}

struct SharedProgress {
    next: AtomicU64,
    /// Runs from this number on are not made.
    stop: AtomicU64,
    /// Whether a run was left out because the batch was asked to end.
    interrupted: AtomicBool,
    sum: Mutex<Sum>,
}

/// Name under which panics are reported: no invariant of the protocol, but nothing may reach one.
pub const PANIC: &str = "panic";

/// What one run showed.
#[derive(Default)]
struct Judged {
    verdict: Verdict,
    panics: Vec<String>,
    sometimes: BTreeMap<&'static str, u64>,
    records: u64,
    deliveries: BTreeMap<&'static str, u64>,
}

/// Runs and judges one seed. A panic of the simulated exchange or of the judges is a violation like any other.
fn judge(seed: u64, options: &Options) -> Judged {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let trace = run(seed, options);
        let verdict = check(&trace);
        Judged {
            records: trace.records.len() as u64,
            deliveries: shares::deliveries_by_protocol(&trace),
            panics: trace.panics,
            sometimes: trace.sometimes,
            verdict,
        }
    }));
    judged.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
        Judged { panics: vec![text.to_owned()], ..Judged::default() }
    })
}

impl Judged {
    fn is_fine(&self) -> bool {
        self.verdict.violated() == 0 && self.panics.is_empty()
    }

    fn violation(&self, seed: u64, options: Options) -> Violation {
        let panic = (!self.panics.is_empty()).then_some(PANIC);
        let examples = self.panics.iter().map(|text| format!("{PANIC}: {text}"));
        Violation {
            seed,
            liveness: options.liveness,
            invariants: panic.into_iter().chain(self.verdict.violated_checks().map(Invariant::as_str)).collect(),
            examples: examples.chain(self.verdict.examples.iter().cloned()).collect(),
            repeat: format!("llmx-lab simulate --seed {seed}{}", if options.liveness { " --liveness 1" } else { "" }),
        }
    }
}

#[derive(Default)]
struct Sum {
    /// What only adds up.
    report: Report,
    violated: u64,
    verdict: Verdict,
    violations: BTreeMap<u64, Violation>,
    told_at: Option<Instant>,
}

impl Sum {
    /// Runs made.
    fn made(&self) -> u64 {
        self.report.safety + self.report.liveness
    }

    fn add(&mut self, number: u64, seed: u64, options: Options, judged: Judged) {
        let report = &mut self.report;
        *if options.liveness { &mut report.liveness } else { &mut report.safety } += 1;
        report.records += judged.records;
        for (protocol, received) in &judged.deliveries {
            *report.deliveries_by_protocol.entry(protocol).or_default() += received;
            report.deliveries += received;
        }
        for (point, times) in &judged.sometimes {
            *report.sometimes.entry(point).or_default() += times;
        }
        if !judged.is_fine() {
            self.violated += 1;
            self.violations.insert(number, judged.violation(seed, options));
            while self.violations.len() > VIOLATIONS_MAX {
                self.violations.pop_last();
            }
        }
        self.verdict.absorb(judged.verdict);
    }

    fn report(self, elapsed: Duration) -> Report {
        let tally = |invariant: &Invariant| self.verdict.by_name.get(invariant).copied().unwrap_or_default();
        let invariants: BTreeMap<&'static str, Tally> =
            Invariant::ALL.iter().map(|invariant| (invariant.as_str(), tally(invariant))).collect();
        let never_checked = Invariant::ALL.iter().filter(|invariant| tally(invariant).checked == 0);
        let never_reached = self.report.sometimes.iter().filter(|(_, times)| **times == 0);
        let elapsed_s = elapsed.as_secs_f64();
        Report {
            elapsed_s,
            runs_per_s: self.made() as f64 / elapsed_s.max(f64::EPSILON),
            never_checked: never_checked.map(|invariant| invariant.as_str()).collect(),
            never_reached: never_reached.map(|(point, _)| *point).collect(),
            invariants,
            violations: self.violations.into_values().collect(),
            ..self.report
        }
    }
}

impl Report {
    /// Whether there is nothing to complain of: no violation, and in a batch large enough to tell, nothing left unchecked
    /// or unreached. A batch that was interrupted is judged by its violations alone.
    pub fn is_fine(&self) -> bool {
        let is_conclusive = self.safety + self.liveness >= CONCLUSIVE_RUNS;
        let is_complete = self.never_checked.is_empty() && self.never_reached.is_empty();
        self.violations.is_empty() && (is_complete || !is_conclusive || self.interrupted)
    }
}
