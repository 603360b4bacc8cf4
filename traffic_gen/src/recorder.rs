//! Watches every agent of a run: counts, latencies, the invariants, and the trace.

mod inner;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agents::AgentOptions;
use agents::observer::{Observed, Observer};
use schemas::{Act, AgentId, NegotiationId, Refusal};
use tokio::time::Instant;

use crate::invariants::{Verdict, Witness};
use crate::latency::Latency;
use crate::metrics::{CallResult, TrafficMetrics};
use crate::minutes::Minutes;
use crate::trace::TraceFile;

use inner::{OpenCall, RecorderState};

/// A call whose end was not heard of for so long is counted as lost and forgotten: the longest negotiation is far shorter, and
/// what is kept of it would otherwise add up over months.
pub const OPEN_AGE_MAX: Duration = Duration::from_secs(3600);

/// Policies counted apart; calls under further ones are counted without.
pub const POLICIES_MAX: usize = 64;

/// A run that is over.
#[derive(Debug)]
pub struct Finished {
    /// The counts.
    pub counts: Counts,
    /// What was judged.
    pub verdict: Verdict,
    /// Whether the end cut off what was still owed.
    pub is_cut_off: bool,
}

/// What a run has come to.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Calls admitted.
    pub cfps: u64,
    /// The policy the latest admitted call runs under, as the gateway said.
    pub policy: Option<String>,
    /// Calls admitted, by policy.
    pub policies: BTreeMap<String, u64>,
    /// Calls refused.
    pub cfps_refused: u64,
    /// Why the latest of them was.
    pub cfp_refusal: Option<Refusal>,
    /// Offers admitted.
    pub offers: u64,
    /// Awards the initiator was told of.
    pub awards: u64,
    /// Of these, awards to agents that are not of the run.
    pub awards_to_others: u64,
    /// Negotiations with at least one award.
    pub awarded: u64,
    /// Awards the contractors were told are binding.
    pub confirms: u64,
    /// Negotiations that ended.
    pub rounds: u64,
    /// Refusals by code.
    pub rejected: BTreeMap<String, u64>,
    /// Messages nobody answered.
    pub unanswered: u64,
    /// Calls whose end was not heard of for [`OPEN_AGE_MAX`].
    pub lost: u64,
    /// Dispositions told, by name.
    pub dispositions: BTreeMap<String, u64>,
    /// Ends by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Awards won, by contractor.
    pub wins: BTreeMap<AgentId, u64>,
    /// From the intended time to the decision known to the initiator.
    pub decision: Latency,
    /// From the intended time to the end known to the initiator.
    pub round: Latency,
    /// From the intended time to each offer's admission.
    pub offer: Latency,
}

/// Records a run. One lock: agents' loops hold it for microseconds per event.
pub struct Recorder {
    started: Instant,
    inner: Mutex<RecorderState>,
}

impl Recorder {
    /// Starts recording. `witness` switches the invariant checks on; a trace gets every message as one line.
    #[must_use]
    pub fn start(started: Instant, witness: bool, trace: Option<TraceFile>) -> Self {
        let inner = RecorderState {
            counts: Counts::default(),
            witness: witness.then(Witness::default),
            open: BTreeMap::new(),
            in_flight: 0,
            minutes: Minutes::default(),
            trace,
            metrics: None,
            agents: None,
            own_ids: None,
        };
        Self { started, inner: Mutex::new(inner) }
    }

    /// The same, which also counts the calls for Prometheus.
    #[must_use]
    pub fn with_metrics(self, metrics: TrafficMetrics) -> Self {
        self.lock().metrics = Some(metrics);
        self
    }

    /// The same for a run in which other agents than these may take part. Nothing is recorded of what others send, so
    /// nothing is concluded from its absence.
    #[must_use]
    pub fn among_others(self, agents: BTreeSet<AgentId>) -> Self {
        {
            let mut inner = self.lock();
            inner.witness = inner.witness.take().map(|witness| witness.among_others(agents.clone()));
            inner.agents = Some(agents);
        }
        self
    }

    /// The same for one run of several under the same names: only negotiations count whose own id begins with `run` and
    /// a hyphen, as a scenario of calls makes them. An inbox may hold deliveries of an earlier run.
    #[must_use]
    pub fn of_run(self, run: &str) -> Self {
        self.lock().own_ids = Some(format!("{run}-"));
        self
    }

    /// Where calls are counted, if they are.
    #[must_use]
    pub fn metrics(&self) -> Option<TrafficMetrics> {
        self.lock().metrics.clone()
    }

    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        // A panic while counting leaves counts that are still worth reading.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a call was due at `intended`; latencies of its negotiation count from there.
    pub fn call_due(&self, negotiation: NegotiationId, intended: Instant) {
        let mut inner = self.lock();
        inner.open.insert(negotiation, OpenCall { intended, left: None, decided: false });
        inner.count_open();
    }

    /// A call opened nothing, though it is in the log.
    pub fn turned_down(&self, negotiation: &NegotiationId) {
        let mut inner = self.lock();
        inner.ended(negotiation, CallResult::TurnedDown, Instant::now());
    }

    /// Forgets the calls that were due [`OPEN_AGE_MAX`] before `now`, counts them as lost and returns them.
    pub fn forget_lost(&self, now: Instant) -> Vec<NegotiationId> {
        let mut inner = self.lock();
        let is_lost = |open: &OpenCall| now.saturating_duration_since(open.intended) > OPEN_AGE_MAX;
        let lost: Vec<_> =
            inner.open.iter().filter(|(_, open)| is_lost(open)).map(|(negotiation, _)| negotiation.clone()).collect();
        for negotiation in &lost {
            inner.counts.lost += 1;
            inner.ended(negotiation, CallResult::Lost, now);
        }
        lost
    }

    /// Negotiations called and not yet ended.
    #[must_use]
    pub fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Whether nothing is under way and nothing is owed any more: judged now, no invariant would be broken.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let inner = self.lock();
        if inner.in_flight > 0 {
            return false;
        }
        let witness = inner.witness.clone();
        drop(inner);
        witness.is_none_or(|witness| witness.finish().violated() == 0)
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Judges the invariants and gives the counts; later events are not judged.
    ///
    /// # Errors
    /// When the trace could not be written.
    pub fn finish(&self) -> std::io::Result<(Counts, Verdict)> {
        self.finish_by(Witness::finish)
    }

    /// As [`Recorder::finish`]. Of a run that was interrupted while something was still owed, only what must hold at any
    /// time is judged: what the end cut off proves nothing.
    ///
    /// # Errors
    /// When the trace could not be written.
    pub fn finish_after(&self, interrupted: bool) -> std::io::Result<Finished> {
        let is_cut_off = interrupted && !(self.open() == 0 && self.is_settled());
        let judge = if is_cut_off { Witness::finish_early } else { Witness::finish };
        let (counts, verdict) = self.finish_by(judge)?;
        Ok(Finished { counts, verdict, is_cut_off })
    }

    fn finish_by(&self, judge: fn(Witness) -> Verdict) -> std::io::Result<(Counts, Verdict)> {
        let mut inner = self.lock();
        let verdict = inner.witness.take().map(judge).unwrap_or_default();
        if let Some(trace) = inner.trace.take() {
            trace.finish()?;
        }
        Ok((inner.counts.clone(), verdict))
    }

    /// Writes the table of minutes as CSV.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_minutes(&self, out: &mut dyn Write) -> std::io::Result<()> {
        self.lock().minutes.write(out)
    }
}

impl Observer for Recorder {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        // Nothing of it is recorded, and every agent of a run waits for this lock.
        if matches!(event, Observed::Decided { .. }) {
            return;
        }
        let since_start = at.saturating_duration_since(self.started);
        let mut inner = self.lock();
        if let Some(trace) = &mut inner.trace {
            trace.write(since_start, agent, &event);
        }
        match event {
            Observed::Connected | Observed::Disconnected | Observed::Decided { .. } => {}
            Observed::Transmitted { negotiation, act, attempt, document, .. } => {
                inner.in_flight += u64::from(attempt == 1);
                if act == Act::Cfp && attempt == 1 {
                    inner.left(negotiation, at);
                }
                if let Some(witness) = &mut inner.witness {
                    witness.sent(agent, negotiation, act, document);
                }
            }
            Observed::Settled { sent, .. } => inner.settled(agent, at, since_start, sent),
            Observed::Delivered { delivery, is_repeat } => {
                if let Some(witness) = &mut inner.witness {
                    witness.received(agent, delivery);
                }
                if !is_repeat {
                    inner.delivered(agent, at, since_start, delivery);
                }
            }
        }
    }
}

/// The options of a run's agents, which the recorder observes too.
pub(crate) fn observed<O: Observer + 'static>(options: &AgentOptions, recorder: Option<&Arc<O>>) -> AgentOptions {
    let recorder = recorder.map(|recorder| Arc::clone(recorder) as Arc<dyn Observer>);
    let observer = match (options.observer.clone(), recorder) {
        (Some(first), Some(second)) => Some(Arc::new(vec![first, second]) as Arc<dyn Observer>),
        (first, second) => first.or(second),
    };
    AgentOptions { observer, ..options.clone() }
}
