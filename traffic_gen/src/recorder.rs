//! Watches every agent of a run: counts, latencies, the invariants, and the trace.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use agents::AgentOptions;
use agents::observer::{Observed, Observer};
use agents::strategy::{SendOutcome, Sent};
use parking_lot::Mutex;
use schemas::delivery::{Delivery, Disposition, Notification, ProgressReport};
use schemas::{Act, AgentId, NegotiationId, Refusal};
use tokio::time::Instant;

use crate::invariants::{Verdict, Witness};
use crate::latency::Latency;
use crate::metrics::{CallResult, TrafficMetrics};
use crate::minutes::Minutes;
use crate::trace::TraceFile;

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
    /// From the intended time to the time at which the call left: how far the generator is behind its schedule.
    pub lag: Latency,
    /// From the intended time to the decision known to the initiator.
    pub decision: Latency,
    /// From the intended time to the end known to the initiator.
    pub round: Latency,
    /// From the intended time to each offer's admission.
    pub offer: Latency,
}

/// Learns of each call before it is made: its negotiation, and when it was due.
pub type DueListener = Box<dyn Fn(&NegotiationId, Instant) + Send + Sync>;

/// Records a run. One lock: agents' loops hold it for microseconds per event.
pub struct Recorder {
    started: Instant,
    due: Option<DueListener>,
    inner: Mutex<RecorderState>,
}

impl Recorder {
    /// Starts recording. `witness` switches the invariant checks on; a trace gets every message as one line.
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
        Self { started, due: None, inner: Mutex::new(inner) }
    }

    /// The same, which also counts the calls for Prometheus.
    pub fn with_metrics(self, metrics: TrafficMetrics) -> Self {
        self.inner.lock().metrics = Some(metrics);
        self
    }

    /// The same for a run in which other agents than these may take part. Nothing is recorded of what others send, so
    /// nothing is concluded from its absence.
    pub fn among_others(self, agents: BTreeSet<AgentId>) -> Self {
        {
            let mut inner = self.inner.lock();
            inner.witness = inner.witness.take().map(|witness| witness.among_others(agents.clone()));
            inner.agents = Some(agents);
        }
        self
    }

    /// The same for one run of several under the same names: only negotiations count whose own id begins with `run` and
    /// a hyphen, as a scenario of calls makes them. An inbox may hold deliveries of an earlier run.
    pub fn of_run(self, run: &str) -> Self {
        self.inner.lock().own_ids = Some(format!("{run}-"));
        self
    }

    /// The same, which passes on when calls are due: the one thing about a call that no agent sees.
    pub fn with_due(self, due: DueListener) -> Self {
        Self { due: Some(due), ..self }
    }

    /// Where calls are counted, if they are.
    pub fn metrics(&self) -> Option<TrafficMetrics> {
        self.inner.lock().metrics.clone()
    }

    /// Notes that a call was due at `intended`; latencies of its negotiation count from there.
    pub fn call_due(&self, negotiation: NegotiationId, intended: Instant) {
        if let Some(due) = &self.due {
            due(&negotiation, intended);
        }
        let mut inner = self.inner.lock();
        inner.open.insert(negotiation, OpenCall { intended, left: None, decided: false });
        inner.count_open();
    }

    /// A call opened nothing, though it is in the log.
    pub fn turned_down(&self, negotiation: &NegotiationId) {
        let mut inner = self.inner.lock();
        inner.ended(negotiation, CallResult::TurnedDown, Instant::now());
    }

    /// Forgets the calls that were due [`OPEN_AGE_MAX`] before `now`, counts them as lost and returns them.
    pub fn forget_lost(&self, now: Instant) -> Vec<NegotiationId> {
        let mut inner = self.inner.lock();
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
    pub fn open(&self) -> usize {
        self.inner.lock().open.len()
    }

    /// Whether nothing is under way and nothing is owed any more: judged now, no invariant would be broken.
    pub fn is_settled(&self) -> bool {
        let inner = self.inner.lock();
        if inner.in_flight > 0 {
            return false;
        }
        let witness = inner.witness.clone();
        drop(inner);
        witness.is_none_or(|witness| witness.finish().violated() == 0)
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.inner.lock().counts.clone()
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
        let mut inner = self.inner.lock();
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
        self.inner.lock().minutes.write(out)
    }
}

impl Observer for Recorder {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        // Nothing of it is recorded, and every agent of a run waits for this lock.
        if matches!(event, Observed::Decided { .. }) {
            return;
        }
        let since_start = at.saturating_duration_since(self.started);
        let mut inner = self.inner.lock();
        if let Some(trace) = &mut inner.trace {
            trace.write(since_start, agent, &event);
        }
        match event {
            Observed::Connected | Observed::Disconnected | Observed::Deferred { .. } | Observed::Decided { .. } => {}
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

/// What is known of a run: everything under the recorder's lock.
struct RecorderState {
    counts: Counts,
    witness: Option<Witness>,
    open: BTreeMap<NegotiationId, OpenCall>,
    /// Messages that left and have neither been answered nor given up.
    in_flight: u64,
    minutes: Minutes,
    trace: Option<TraceFile>,
    metrics: Option<TrafficMetrics>,
    /// The agents of the run, where others may take part.
    agents: Option<BTreeSet<AgentId>>,
    /// What the ids of the run's calls begin with, where its agents may be owed news of earlier runs.
    own_ids: Option<String>,
}

/// A call that has not ended.
struct OpenCall {
    intended: Instant,
    /// When the call did leave.
    left: Option<Instant>,
    decided: bool,
}

impl RecorderState {
    fn settled(&mut self, agent: &AgentId, at: Instant, since_start: Duration, sent: &Sent) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match &sent.outcome {
            SendOutcome::Accepted { policy, .. } => {
                if let Some(witness) = &mut self.witness {
                    witness.accepted(agent, &sent.msg_id, &sent.negotiation);
                }
                self.minutes.admitted(since_start, sent.act);
                if sent.act == Act::Cfp {
                    self.counts.cfps += 1;
                    self.runs_under(policy.as_deref());
                } else if sent.act == Act::Offer && self.is_of_run(&sent.negotiation) {
                    self.counts.offers += 1;
                    if let Some(open) = self.open.get(&sent.negotiation) {
                        self.counts.offer.record(at.saturating_duration_since(open.intended));
                    }
                }
            }
            SendOutcome::Refused(refusal) => {
                *self.counts.rejected.entry(refusal.code.to_string()).or_default() += 1;
                if sent.act == Act::Cfp {
                    self.counts.cfps_refused += 1;
                    self.counts.cfp_refusal = Some(refusal.clone());
                    self.ended(&sent.negotiation, CallResult::Refused, at);
                }
            }
            SendOutcome::Unanswered => self.counts.unanswered += 1,
        }
    }

    fn delivered(&mut self, agent: &AgentId, at: Instant, since_start: Duration, delivery: &Delivery) {
        let negotiation = &delivery.envelope.negotiation;
        let is_initiator = negotiation.initiator() == agent.as_str();
        // What is still owed from an earlier run under the same name is none of this run's.
        if is_initiator && !self.is_of_run(negotiation) {
            return;
        }
        for receipt in delivery.receipts_told() {
            *self.counts.dispositions.entry(receipt.disposition.as_str().to_owned()).or_default() += 1;
        }
        match (&delivery.payload, is_initiator) {
            (Notification::Ack(receipt), _) => {
                if receipt.disposition == Disposition::Committed && self.is_of_run(negotiation) {
                    self.counts.confirms += 1;
                    self.minutes.confirmed(since_start);
                    *self.counts.wins.entry(agent.clone()).or_default() += 1;
                }
            }
            (Notification::Inform(ProgressReport::Awarded(news)), _) => {
                self.counts.awards += 1;
                let is_other = self.agents.as_ref().is_some_and(|agents| !agents.contains(&news.contractor));
                self.counts.awards_to_others += u64::from(is_other);
                let first = self.decided(negotiation, at, since_start);
                self.counts.awarded += u64::from(first);
            }
            (Notification::Closed(closing), true) => {
                self.decided(negotiation, at, since_start);
                // A second end is none.
                if let Some(open) = self.ended(negotiation, CallResult::Closed(closing.outcome), at) {
                    let outcome = CallResult::Closed(closing.outcome).as_str().to_owned();
                    *self.counts.outcomes.entry(outcome).or_default() += 1;
                    self.counts.rounds += 1;
                    self.counts.round.record(at.saturating_duration_since(open.intended));
                }
            }
            (_, _) => {}
        }
    }

    /// Whether the run called. Others' calls reach its contractors too, where others may take part, and an inbox may hold
    /// news of calls of an earlier run.
    fn is_of_run(&self, negotiation: &NegotiationId) -> bool {
        let is_one_of = |agents: &BTreeSet<AgentId>| {
            AgentId::try_new(negotiation.initiator()).is_ok_and(|initiator| agents.contains(&initiator))
        };
        let begins_so = |own_ids: &String| {
            negotiation.as_str().split_once('~').is_some_and(|(_, own_id)| own_id.starts_with(own_ids))
        };
        self.agents.as_ref().is_none_or(is_one_of) && self.own_ids.as_ref().is_none_or(begins_so)
    }

    /// An admitted call runs under this policy, if the gateway said so.
    fn runs_under(&mut self, policy: Option<&str>) {
        let Some(policy) = policy else { return };
        let Counts { policy: latest, policies, .. } = &mut self.counts;
        if let Some(count) = policies.get_mut(policy) {
            *count += 1;
        } else if policies.len() < POLICIES_MAX {
            policies.insert(policy.to_owned(), 1);
        }
        if latest.as_deref() != Some(policy) {
            *latest = Some(policy.to_owned());
        }
    }

    /// A call left.
    fn left(&mut self, negotiation: &NegotiationId, at: Instant) {
        let Some(open) = self.open.get_mut(negotiation) else { return };
        open.left = Some(at);
        self.counts.lag.record(at.saturating_duration_since(open.intended));
        if let Some(metrics) = &self.metrics {
            metrics.left(at.saturating_duration_since(open.intended));
        }
    }

    /// A call ended, unless it had before.
    fn ended(&mut self, negotiation: &NegotiationId, result: CallResult, at: Instant) -> Option<OpenCall> {
        let open = self.open.remove(negotiation)?;
        if let Some(metrics) = &self.metrics {
            metrics.ended(result, at.saturating_duration_since(open.intended));
        }
        self.count_open();
        Some(open)
    }

    fn count_open(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.set_in_flight(self.open.len());
        }
    }

    /// Notes the first decision of a negotiation; whether it was the first.
    fn decided(&mut self, negotiation: &NegotiationId, at: Instant, since_start: Duration) -> bool {
        let Some(open) = self.open.get_mut(negotiation).filter(|open| !open.decided) else { return false };
        open.decided = true;
        let latency = at.saturating_duration_since(open.intended);
        if let Some(metrics) = &self.metrics {
            metrics.decided(latency, at.saturating_duration_since(open.left.unwrap_or(open.intended)));
        }
        self.counts.decision.record(latency);
        self.minutes.decided(since_start, latency);
        true
    }
}

/// The options of a run's agents, which the recorder observes too.
pub fn observed<O: Observer + 'static>(options: &AgentOptions, recorder: Option<&Arc<O>>) -> AgentOptions {
    let recorder = recorder.map(|recorder| Arc::clone(recorder) as Arc<dyn Observer>);
    let observer = match (options.observer.clone(), recorder) {
        (Some(first), Some(second)) => Some(Arc::new(vec![first, second]) as Arc<dyn Observer>),
        (first, second) => first.or(second),
    };
    AgentOptions { observer, ..options.clone() }
}
