//! The log as admission sees it: one group-committing appender per lane.

use std::sync::Arc;
use std::time::Duration;

use bus::appender::{AppendError, Appender, AppenderOptions};
use bus::{BusError, Log};
use schemas::record::Entry;
use schemas::{Code, Lane, NegotiationId, Position, Refusal};
use tokio::time::{Instant, timeout};

use super::lane_answers::{LaneAnswers, LaneFault, News};
use crate::config::GatewayConfig;
use crate::metrics::{GatewayMetrics, ShedReason};
use crate::problem::store_full;

/// What an append is given beyond its deadline: that of the record before it, which it may have waited for, is told first.
const DEADLINE_SLACK: Duration = Duration::from_millis(100);
/// When to come back to a log that does not answer: it is asked all the time.
const SILENT_RETRY_MS: u64 = 1_000;
/// What to do about a log that answers no appends.
const REMEDY: &str = "see that nats-server runs, has a leader and disk space; one that says `no space left on device` has to \
                      be restarted once there is some (docs/operations.md)";

/// One appender per lane.
pub(super) struct AdmissionLog {
    lanes: Vec<AdmissionLane>,
    deadline: Duration,
    metrics: Arc<GatewayMetrics>,
}

struct AdmissionLane {
    appender: Appender,
    answers: LaneAnswers,
}

impl AdmissionLog {
    /// Starts an appender for each lane; the gateway's id names it in the records.
    pub(super) fn new(log: &Arc<dyn Log>, config: &GatewayConfig, metrics: Arc<GatewayMetrics>) -> Self {
        let deadline = Duration::from_millis(config.limits.append_ms);
        let options = AppenderOptions { deadline, ..AppenderOptions::default() };
        let spawn = |lane| AdmissionLane {
            appender: Appender::spawn(log.clone(), Lane(lane), &config.id, options.clone()),
            answers: LaneAnswers::default(),
        };
        Self { lanes: (0..log.lanes().max(1)).map(spawn).collect(), deadline: deadline + DEADLINE_SLACK, metrics }
    }

    /// Entries waiting for an append, over all lanes.
    pub(super) fn queued(&self) -> usize {
        self.lanes.iter().map(|lane| lane.appender.queued()).sum()
    }

    /// The lane of a negotiation.
    pub(super) fn lane(&self, negotiation: &NegotiationId) -> Lane {
        negotiation.lane(u8::try_from(self.lanes.len()).unwrap_or(u8::MAX))
    }

    /// The refusal that the last appends to any lane give a reason for.
    pub(super) fn refusal(&self, now: Instant) -> Option<Refusal> {
        self.lanes.iter().find_map(|lane| lane.answers.fault(now)).map(|fault| match fault {
            LaneFault::Unanswered(_) => silent(),
            LaneFault::Full(_) => store_full(),
        })
    }

    /// What the log does not do at present, each with its remedy.
    pub(super) fn faults(&self, now: Instant) -> Vec<String> {
        let faults = (0_u8..).zip(&self.lanes).filter_map(|(lane, AdmissionLane { answers, .. })| {
            Some(match answers.fault(now)? {
                LaneFault::Unanswered(time) => {
                    format!("appends to lane {lane} have had no answer for {} s: {REMEDY}", time.as_secs())
                }
                LaneFault::Full(reason) => format!("the store is full: {reason}"),
            })
        });
        faults.collect()
    }

    /// Appends to the lane of a negotiation and waits until the record is stored.
    ///
    /// # Errors
    /// [`Code::LogUnavailable`] when the outcome is unknown; otherwise nothing was stored.
    pub(super) async fn append(&self, negotiation: &NegotiationId, entry: &Entry) -> Result<Position, Refusal> {
        let lane = self.lane(negotiation);
        let found = self.lanes.get(usize::from(lane.0));
        let found = found.ok_or_else(|| Refusal::new(Code::Internal, "the negotiation has no lane"))?;
        let Some(attempt) = found.answers.begin(Instant::now()) else {
            self.metrics.messages.shed.of(ShedReason::Store).inc();
            return Err(silent());
        };
        // What waits in the queue while the record before it has no answer has its own time all the same.
        let outcome = timeout(self.deadline, found.appender.append(entry)).await;
        let outcome = outcome.unwrap_or_else(|_| {
            Err(AppendError::Unknown(BusError::Unknown("the deadline of the append has passed".to_owned())))
        });
        tell(lane, attempt.end(&outcome), outcome.as_ref().err());
        outcome.map_err(|error| {
            match error {
                AppendError::Overloaded => self.metrics.messages.shed.of(ShedReason::Queue).inc(),
                AppendError::Refused(BusError::Full(_)) => self.metrics.messages.shed.of(ShedReason::Store).inc(),
                AppendError::Refused(_) | AppendError::Unknown(_) => {}
            }
            refusal(negotiation, &error)
        })
    }
}

/// Tells the operator once what has changed.
fn tell(lane: Lane, news: News, error: Option<&AppendError>) {
    let (lane, error) = (lane.0, error.map(ToString::to_string));
    match news {
        News::None => {}
        News::Silent => tracing::error!(lane, error, "the log does not answer appends: {REMEDY}"),
        News::Full => tracing::error!(lane, error, "the log is full"),
        News::Recovered => tracing::info!(lane, "the log takes appends again"),
    }
}

fn silent() -> Refusal {
    Refusal::new(Code::Unavailable, "the log does not answer; this attempt has stored nothing")
        .retry_after_ms(SILENT_RETRY_MS)
}

fn refusal(negotiation: &NegotiationId, error: &AppendError) -> Refusal {
    let negotiation = negotiation.as_str();
    match error {
        AppendError::Overloaded => {
            Refusal::new(Code::Overloaded, "too many messages wait for the log").retry_after_ms(100)
        }
        AppendError::Unknown(error) => {
            tracing::debug!(negotiation, %error, "an append has an unknown outcome");
            Refusal::new(Code::LogUnavailable, "the outcome is unknown: repeat the same bytes under the same msg_id")
                .retry_after_ms(1000)
        }
        AppendError::Refused(BusError::TooLarge { limit, .. }) => {
            Refusal::new(Code::TooLarge, "the message and what it is pinned to do not fit one record of the log")
                .expecting(format!("fewer recipients; a record holds {limit} bytes"))
        }
        AppendError::Refused(BusError::Full(_)) => store_full(),
        AppendError::Refused(error) => {
            tracing::error!(negotiation, %error, "the log refuses records");
            Refusal::new(Code::Unavailable, "the log takes no messages now; nothing was stored").retry_after_ms(1000)
        }
    }
}
