//! Runs routines: one table, shared by the contractors of a process, within limits of time and length.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use schemas::document::{RoutineKind, RoutineReport};
use serde::Serialize;
use telemetry::{Kind, Span, SpanId, Tracer};
use tokio::time::Instant;

#[cfg(feature = "metrics")]
use super::metrics::RoutineMetrics;
use super::{
    Attempt, PinnedRoutine, RESULT_CHARS_MAX, Routine, RoutineFault, RoutineRequest, RoutineTable, run_within,
};

/// Limits of each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutineLimits {
    /// Longest run. One award has two at most, of a routine and of the model behind it.
    pub time: Duration,
}

impl Default for RoutineLimits {
    fn default() -> Self {
        // A function takes microseconds, a service milliseconds, a model seconds.
        Self { time: Duration::from_secs(10) }
    }
}

/// What an award came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutineAnswer {
    /// The result: at most [`RESULT_CHARS_MAX`] characters.
    pub result: String,
    /// What carried the award out.
    pub report: RoutineReport,
}

/// Runs of one kind, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RoutineTally {
    /// Those that gave the result of an award.
    pub answered: u64,
    /// Those that failed.
    pub failed: u64,
}

/// A table of routines with all that its use needs. Cheap to share as an `Arc`.
pub struct RoutineRunner {
    table: RoutineTable,
    model: Option<Arc<dyn Routine>>,
    sentence: Option<String>,
    limits: RoutineLimits,
    tallies: Mutex<BTreeMap<RoutineKind, RoutineTally>>,
    tracer: Tracer,
    #[cfg(feature = "metrics")]
    metrics: Option<RoutineMetrics>,
}

impl RoutineRunner {
    /// A runner of this table, without a model.
    #[must_use]
    pub fn new(table: RoutineTable, limits: RoutineLimits) -> Self {
        Self {
            table,
            model: None,
            sentence: None,
            limits,
            tallies: Mutex::default(),
            tracer: Tracer::off(),
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// The same, with a model behind the routines: it follows a pinned document, or answers in natural language where none
    /// is pinned.
    #[must_use]
    pub fn with_model(mut self, model: Arc<dyn Routine>) -> Self {
        self.model = Some(model);
        self
    }

    /// The same, with words that answer an award which nothing else answers, cut at [`RESULT_CHARS_MAX`] characters.
    #[must_use]
    pub fn saying(mut self, sentence: &str) -> Self {
        self.sentence = Some(sentence.chars().take(RESULT_CHARS_MAX).collect());
        self
    }

    /// The same, whose spans go to `tracer`.
    #[must_use]
    pub fn traced(mut self, tracer: Tracer) -> Self {
        self.tracer = tracer;
        self
    }

    /// The same, counted.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn counted(mut self, metrics: RoutineMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Its routines.
    #[must_use]
    pub fn table(&self) -> &RoutineTable {
        &self.table
    }

    /// Runs so far, by kind.
    #[must_use]
    pub fn tallies(&self) -> BTreeMap<RoutineKind, RoutineTally> {
        self.tallies.lock().clone()
    }

    /// Carries an award out: at most two runs, each within [`RoutineLimits::time`], then the sentence. Nothing where all fails.
    pub async fn run(&self, request: &RoutineRequest) -> Option<RoutineAnswer> {
        let pinned = self.table.pinned(request.document);
        let mut failed = None;
        while let Some(attempt) = Attempt::next(failed, pinned, self.model.is_some()) {
            let routine = match attempt {
                Attempt::Routine => request.document.and_then(|document| self.table.routine(document)),
                Attempt::Model | Attempt::Conversation => self.model.as_ref(),
                Attempt::Sentence => None,
            };
            let Some(routine) = routine else { break };
            let (began, start) = (Instant::now(), SystemTime::now());
            let outcome = self.run_once(routine.as_ref(), request).await;
            let (report, took) = (attempt.report(pinned), began.elapsed());
            self.note(report.kind, took, outcome.as_ref().err());
            self.record(request, report.kind, (start, took), outcome.as_ref().err());
            match outcome {
                Ok(result) => return Some(RoutineAnswer { result, report }),
                Err(fault) => {
                    let RoutineRequest { agent, negotiation, document, .. } = request;
                    tracing::debug!(%agent, %negotiation, ?document, kind = report.kind.as_str(), %fault, "a routine fails");
                    failed = Some(attempt);
                }
            }
        }
        self.say_sentence(pinned)
    }

    /// What an award comes to that waits behind too many others: the sentence, where there is one.
    #[must_use]
    pub fn turn_away(&self, request: &RoutineRequest) -> Option<RoutineAnswer> {
        let pinned = self.table.pinned(request.document);
        if let PinnedRoutine::Known(_, kind) = pinned {
            self.note(kind, Duration::ZERO, Some(&RoutineFault::Busy));
        }
        self.say_sentence(pinned)
    }

    fn say_sentence(&self, pinned: PinnedRoutine) -> Option<RoutineAnswer> {
        let Some(sentence) = &self.sentence else {
            let fault = RoutineFault::Unavailable("nothing is left to try".to_owned());
            self.note(RoutineKind::Language, Duration::ZERO, Some(&fault));
            return None;
        };
        self.note(RoutineKind::Language, Duration::ZERO, None);
        Some(RoutineAnswer { result: sentence.clone(), report: Attempt::Sentence.report(pinned) })
    }

    async fn run_once(&self, routine: &dyn Routine, request: &RoutineRequest) -> Result<String, RoutineFault> {
        // What has no use for more time ends by itself, and says why.
        let time_ms = u64::try_from(self.limits.time.as_millis()).unwrap_or(u64::MAX);
        let deadline = request.deadline.min(request.asked_at.plus_ms(time_ms));
        run_within(self.limits.time, routine.run(RoutineRequest { deadline, ..request.clone() })).await
    }

    /// The span of a run: `routine <kind>`, under the delivery that made the award binding.
    fn record(
        &self,
        request: &RoutineRequest,
        kind: RoutineKind,
        (start, took): (SystemTime, Duration),
        fault: Option<&RoutineFault>,
    ) {
        if !self.tracer.is_on() {
            return;
        }
        let RoutineRequest { agent, negotiation, context, asked_at, document, .. } = request;
        let make = || {
            let id = SpanId::asked(agent, negotiation, &format!("{}-{}", asked_at.0, kind.as_str()));
            Span::new(format!("routine {}", kind.as_str()), Kind::Internal, *context, id, start)
                .with("messaging.message.conversation_id", negotiation.to_string())
                .with("llmx.agent", agent.to_string())
                .with_some("llmx.document", document.map(|document| document.to_string()))
                .failed(fault.map(Into::into))
                .lasting(took)
        };
        self.tracer.record(context.trace, fault.is_some(), make);
    }

    fn note(&self, kind: RoutineKind, took: Duration, fault: Option<&RoutineFault>) {
        {
            let mut tallies = self.tallies.lock();
            let tally = tallies.entry(kind).or_default();
            *(if fault.is_none() { &mut tally.answered } else { &mut tally.failed }) += 1;
        }
        #[cfg(feature = "metrics")]
        self.metrics.iter().for_each(|metrics| metrics.ran(kind, took, fault));
        #[cfg(not(feature = "metrics"))]
        let _ = took;
    }
}

#[cfg(test)]
mod tests;
