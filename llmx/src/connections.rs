//! Whether the agents of a command have their connections: said as soon as one is lost, and when all are there again.

use std::time::Duration;

use agents::metrics::AgentMetrics;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How often is looked.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// An agent that has moved on to another gateway by then has lost nothing worth a line; nor has one that ends.
const LOST_AFTER: Duration = Duration::from_millis(500);
/// How often a loss is said again.
const REPEATED_EVERY: Duration = Duration::from_secs(10);

/// The connections of a command's agents.
pub struct Connections {
    metrics: AgentMetrics,
    wanted: u64,
    place: String,
    seen: Mutex<Seen>,
}

/// What was seen so far.
#[derive(Default, Clone, Copy)]
struct Seen {
    /// When agents were first seen without a connection; none while all are connected.
    missing_since: Option<Instant>,
    /// When their loss was last said; absent while it has not been.
    said_at: Option<Instant>,
    losses: u32,
}

/// What a look has shown.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Lost,
    Regained,
}

impl Connections {
    /// Of `wanted` agents that reach the exchange at `place`.
    pub fn new(metrics: &AgentMetrics, wanted: u64, place: &str) -> Self {
        Self { metrics: metrics.clone(), wanted, place: place.to_owned(), seen: Mutex::default() }
    }

    /// Looks until it is dropped, and logs a warning when connections are lost, every 10 seconds while they are, and when
    /// they are back.
    pub async fn watch(&self) {
        let mut look = tokio::time::interval(LOOK_PERIOD);
        loop {
            let now = look.tick().await;
            let connected = self.metrics.connected();
            let (wanted, place) = (self.wanted, &self.place);
            match self.note(connected, now) {
                None => {}
                Some(Change::Lost) => {
                    tracing::warn!(
                        "lost the connection to {place}: {connected} of {wanted} agents connected; trying again"
                    );
                }
                Some(Change::Regained) => {
                    tracing::warn!("connected to {place} again: {connected} of {wanted} agents connected");
                }
            }
        }
    }

    fn note(&self, connected: u64, now: Instant) -> Option<Change> {
        let mut seen = self.seen.lock();
        if connected >= self.wanted {
            seen.missing_since = None;
            return seen.said_at.take().map(|_| Change::Regained);
        }
        let since = *seen.missing_since.get_or_insert(now);
        let is_due = match seen.said_at {
            None => now.saturating_duration_since(since) >= LOST_AFTER,
            Some(said_at) => now.saturating_duration_since(said_at) >= REPEATED_EVERY,
        };
        if !is_due {
            return None;
        }
        seen.losses += u32::from(seen.said_at.is_none());
        seen.said_at = Some(now);
        Some(Change::Lost)
    }

    /// What the connections had to do with calls that did not end, if anything.
    pub fn fault(&self) -> Option<String> {
        let seen = *self.seen.lock();
        let place = &self.place;
        match (seen.missing_since.filter(|_| seen.said_at.is_some()), seen.losses) {
            (Some(since), _) => Some(format!("no connection to {place} since {} s", since.elapsed().as_secs())),
            (None, 0) => None,
            (None, 1) => Some(format!("connections to {place} were lost for a while")),
            (None, losses) => Some(format!("connections to {place} were lost {losses} times")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loss_is_said_once_after_half_a_second_then_every_ten_and_its_end_once() {
        let metrics = AgentMetrics::try_new(&prometheus::Registry::new()).unwrap();
        let connections = Connections::new(&metrics, 1, "http://127.0.0.1:1");
        let start = Instant::now();
        let looks = [
            (0, 0, None),
            (400, 0, None),
            (450, 1, None),
            (500, 0, None),
            (1000, 0, Some(Change::Lost)),
            (10_900, 0, None),
            (11_000, 0, Some(Change::Lost)),
            (12_000, 1, Some(Change::Regained)),
            (12_100, 1, None),
        ];
        for (ms, connected, change) in looks {
            let is_lost = (1000..12_000).contains(&ms);
            assert_eq!(connections.note(connected, start + Duration::from_millis(ms)), change, "{ms}");
            let fault = connections.fault().unwrap_or_default();
            assert_eq!(fault.starts_with("no connection to http://127.0.0.1:1 since"), is_lost, "{ms}: {fault}");
        }
        assert_eq!(connections.fault().unwrap(), "connections to http://127.0.0.1:1 were lost for a while");
    }
}
