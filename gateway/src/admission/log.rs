//! The log as admission sees it: one group-committing appender per lane.

use std::sync::Arc;
use std::time::Duration;

use bus::appender::{AppendError, Appender, AppenderOptions};
use bus::{BusError, Log};
use schemas::record::Entry;
use schemas::{Code, Lane, NegotiationId, Position, Refusal};

use crate::config::GatewayConfig;
use crate::metrics::{GatewayMetrics, Shed};
use crate::problem::store_full;

/// One appender per lane.
pub(super) struct AdmissionLog {
    lanes: u8,
    appenders: Vec<Appender>,
    metrics: Arc<GatewayMetrics>,
}

impl AdmissionLog {
    /// Starts an appender for each lane; the gateway's id names it in the records.
    pub(super) fn new(log: &Arc<dyn Log>, config: &GatewayConfig, metrics: Arc<GatewayMetrics>) -> Self {
        let deadline = Duration::from_millis(config.limits.append_ms);
        let options = AppenderOptions { deadline, ..AppenderOptions::default() };
        let lanes = log.lanes().max(1);
        let spawn = |lane| Appender::spawn(log.clone(), Lane(lane), &config.id, options.clone());
        Self { lanes, appenders: (0..lanes).map(spawn).collect(), metrics }
    }

    /// Entries waiting for an append, over all lanes.
    pub(super) fn queued(&self) -> usize {
        self.appenders.iter().map(Appender::queued).sum()
    }

    /// The lane of a negotiation.
    pub(super) fn lane(&self, negotiation: &NegotiationId) -> Lane {
        negotiation.lane(self.lanes)
    }

    /// Appends to the lane of a negotiation and waits until the record is stored.
    ///
    /// # Errors
    /// [`Code::LogUnavailable`] when the outcome is unknown; otherwise nothing was stored.
    pub(super) async fn append(&self, negotiation: &NegotiationId, entry: &Entry) -> Result<Position, Refusal> {
        let lane = self.lane(negotiation);
        let appender = self.appenders.get(usize::from(lane.0));
        let appender = appender.ok_or_else(|| Refusal::new(Code::Internal, "the negotiation has no lane"))?;
        appender.append(entry).await.map_err(|error| {
            match error {
                AppendError::Overloaded => self.metrics.messages.shed.of(Shed::Queue).inc(),
                AppendError::Refused(BusError::Full(_)) => self.metrics.messages.shed.of(Shed::Store).inc(),
                AppendError::Refused(_) | AppendError::Unknown(_) => {}
            }
            refusal(negotiation, &error)
        })
    }
}

fn refusal(negotiation: &NegotiationId, error: &AppendError) -> Refusal {
    let negotiation = negotiation.as_str();
    match error {
        AppendError::Overloaded => {
            Refusal::new(Code::Overloaded, "too many messages wait for the log").retry_after_ms(100)
        }
        AppendError::Unknown(error) => {
            tracing::warn!(negotiation, %error, "an append has an unknown outcome");
            Refusal::new(Code::LogUnavailable, "the outcome is unknown: repeat the same bytes under the same msg_id")
                .retry_after_ms(1000)
        }
        AppendError::Refused(BusError::TooLarge { limit, .. }) => {
            Refusal::new(Code::TooLarge, "the message and what it is pinned to do not fit one record of the log")
                .expecting(format!("fewer recipients; a record holds {limit} bytes"))
        }
        AppendError::Refused(error @ BusError::Full(_)) => {
            tracing::error!(negotiation, %error, "the log is full");
            store_full()
        }
        AppendError::Refused(error) => {
            tracing::error!(negotiation, %error, "the log refuses records");
            Refusal::new(Code::Unavailable, "the log takes no messages now; nothing was stored").retry_after_ms(1000)
        }
    }
}
