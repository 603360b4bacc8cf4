//! Runs of routines, counted for Prometheus. Every label is a closed set.

use std::time::Duration;

use schemas::document::RoutineKind;

use super::RoutineFault;

/// Bounds of the time of a run, in seconds: a function takes microseconds, a model takes seconds.
const DURATION_BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0];

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum RunResult {
    Ok,
    Failed,
    TimedOut,
    Exhausted,
    TooLong,
    Unreadable,
    Unavailable,
    Busy,
}

impl RunResult {
    const fn of(fault: Option<&RoutineFault>) -> Self {
        match fault {
            None => Self::Ok,
            Some(RoutineFault::Failed(_)) => Self::Failed,
            Some(RoutineFault::TimedOut) => Self::TimedOut,
            Some(RoutineFault::Exhausted(_)) => Self::Exhausted,
            Some(RoutineFault::TooLong) => Self::TooLong,
            Some(RoutineFault::Unreadable) => Self::Unreadable,
            Some(RoutineFault::Unavailable(_)) => Self::Unavailable,
            Some(RoutineFault::Busy) => Self::Busy,
        }
    }
}

telemetry::metrics! {
    /// The metrics of all routines that contractors of a process run. Cheap to clone.
    pub struct RoutineMetrics {
        /// Runs of routines by what ran and how the run ended; a run that fails is followed by one of a weaker kind.
        runs: Counter[kind: RoutineKind, result: RunResult] = "exchange_routine_runs_total";
        /// Time of runs of routines, by what ran.
        durations: Histogram(&DURATION_BUCKETS)[kind: RoutineKind] = "exchange_routine_duration_seconds";
    }
}

impl RoutineMetrics {
    /// Counts a run.
    pub fn ran(&self, kind: RoutineKind, took: Duration, fault: Option<&RoutineFault>) {
        self.runs.of(kind, RunResult::of(fault)).inc();
        self.durations.of(kind).observe(took.as_secs_f64());
    }
}
