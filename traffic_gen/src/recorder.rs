//! Watches every agent of a run: counts, latencies, the invariants, and the trace.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agents::observer::{Observed, Observer};
use agents::strategy::{SendOutcome, Sent};
use schemas::delivery::{Delivery, Disposition, News, Told};
use schemas::{Act, AgentId, NegotiationId};
use tokio::time::Instant;

use crate::invariants::{Verdict, Witness};
use crate::latency::Latency;
use crate::minutes::Minutes;
use crate::trace::Trace;

/// What a run has come to.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Calls admitted.
    pub cfps: u64,
    /// Offers admitted.
    pub offers: u64,
    /// Awards the initiator was told of.
    pub awards: u64,
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

struct Inner {
    counts: Counts,
    witness: Option<Witness>,
    open: BTreeMap<NegotiationId, Open>,
    /// Messages that left and have neither been answered nor given up.
    in_flight: u64,
    minutes: Minutes,
    trace: Option<Trace>,
}

struct Open {
    intended: Instant,
    decided: bool,
}

/// Records a run. One lock: agents' loops hold it for microseconds per event.
pub struct Recorder {
    started: Instant,
    inner: Mutex<Inner>,
}

impl Recorder {
    /// Starts recording. `witness` switches the invariant checks on; a trace gets every message as one line.
    #[must_use]
    pub fn start(started: Instant, witness: bool, trace: Option<Trace>) -> Self {
        let inner = Inner {
            counts: Counts::default(),
            witness: witness.then(Witness::default),
            open: BTreeMap::new(),
            in_flight: 0,
            minutes: Minutes::default(),
            trace,
        };
        Self { started, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while counting leaves counts that are still worth reading.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a call was due at `intended`; latencies of its negotiation count from there.
    pub fn call_due(&self, negotiation: NegotiationId, intended: Instant) {
        self.lock().open.insert(negotiation, Open { intended, decided: false });
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
        let mut inner = self.lock();
        let verdict = inner.witness.take().map(Witness::finish).unwrap_or_default();
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
        let since_start = at.saturating_duration_since(self.started);
        let mut inner = self.lock();
        if let Some(trace) = &mut inner.trace {
            trace.write(since_start, agent, &event);
        }
        match event {
            Observed::Connected | Observed::Disconnected => {}
            Observed::Transmitted { negotiation, act, attempt, document, .. } => {
                inner.in_flight += u64::from(attempt == 1);
                if let Some(witness) = &mut inner.witness {
                    witness.sent(agent, negotiation, act, document);
                }
            }
            Observed::Settled(sent) => inner.settled(agent, at, since_start, sent),
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

impl Inner {
    fn settled(&mut self, agent: &AgentId, at: Instant, since_start: Duration, sent: &Sent) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match &sent.outcome {
            SendOutcome::Accepted { .. } => {
                if let Some(witness) = &mut self.witness {
                    witness.accepted(agent, &sent.msg_id, &sent.negotiation);
                }
                self.minutes.admitted(since_start, sent.act);
                if sent.act == Act::Cfp {
                    self.counts.cfps += 1;
                } else if sent.act == Act::Offer {
                    self.counts.offers += 1;
                    if let Some(open) = self.open.get(&sent.negotiation) {
                        self.counts.offer.record(at.saturating_duration_since(open.intended));
                    }
                }
            }
            SendOutcome::Refused(refusal) => {
                *self.counts.rejected.entry(refusal.code.to_string()).or_default() += 1;
                if sent.act == Act::Cfp {
                    self.open.remove(&sent.negotiation);
                }
            }
            SendOutcome::Unanswered => self.counts.unanswered += 1,
        }
    }

    fn delivered(&mut self, agent: &AgentId, at: Instant, since_start: Duration, delivery: &Delivery) {
        let negotiation = &delivery.envelope.negotiation;
        let is_initiator = negotiation.initiator() == agent.as_str();
        match &delivery.payload {
            Told::Ack(receipt) => {
                *self.counts.dispositions.entry(receipt.disposition.as_str().to_owned()).or_default() += 1;
                if receipt.disposition == Disposition::Committed {
                    self.counts.confirms += 1;
                    self.minutes.confirmed(since_start);
                    *self.counts.wins.entry(agent.clone()).or_default() += 1;
                }
            }
            Told::Inform(News::Awarded(_)) => {
                self.counts.awards += 1;
                let first = self.decided(negotiation, at, since_start);
                self.counts.awarded += u64::from(first);
            }
            Told::Closed(closing) if is_initiator => {
                self.decided(negotiation, at, since_start);
                // What is still owed from an earlier run under the same name is none of this run's rounds.
                if let Some(open) = self.open.remove(negotiation) {
                    let outcome = serde_json::to_value(closing.outcome).unwrap_or_default();
                    *self.counts.outcomes.entry(outcome.as_str().unwrap_or("unknown").to_owned()).or_default() += 1;
                    self.counts.rounds += 1;
                    self.counts.round.record(at.saturating_duration_since(open.intended));
                }
            }
            Told::Cfp(_)
            | Told::Accept(_)
            | Told::Reject(_)
            | Told::Cancel(_)
            | Told::Inform(_)
            | Told::Failure(_)
            | Told::NotUnderstood(_)
            | Told::Turn(_)
            | Told::Closed(_) => {}
        }
    }

    /// Notes the first decision of a negotiation; whether it was the first.
    fn decided(&mut self, negotiation: &NegotiationId, at: Instant, since_start: Duration) -> bool {
        let Some(open) = self.open.get_mut(negotiation).filter(|open| !open.decided) else { return false };
        open.decided = true;
        let latency = at.saturating_duration_since(open.intended);
        self.counts.decision.record(latency);
        self.minutes.decided(since_start, latency);
        true
    }
}
