//! What happens to the connections, counted for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{Event, Statistics};

/// Counters of every connection of one bus. All rise only.
#[derive(Debug, Default)]
pub struct NatsStatus {
    disconnects: AtomicU64,
    slow_consumers: AtomicU64,
    errors: AtomicU64,
    connections: Mutex<Vec<Arc<Statistics>>>,
}

/// A reading of [`NatsStatus`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections made, reconnections included.
    pub connects: u64,
    /// Connections lost.
    pub disconnects: u64,
    /// Messages lost because a subscriber did not keep up; at least: a burst is reported in part.
    pub slow_consumers: u64,
    /// Errors reported by the server or the client, permission violations among them.
    pub errors: u64,
    /// Messages received.
    pub in_messages: u64,
    /// Messages sent.
    pub out_messages: u64,
    /// Payload bytes received.
    pub in_bytes: u64,
    /// Payload bytes sent.
    pub out_bytes: u64,
}

impl NatsStatus {
    /// Reads the counters.
    #[must_use]
    pub fn read(&self) -> Counters {
        let mut counters = Counters {
            disconnects: self.disconnects.load(Ordering::Relaxed),
            slow_consumers: self.slow_consumers.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            ..Counters::default()
        };
        for connection in self.connections.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            counters.connects += connection.connects.load(Ordering::Relaxed);
            counters.in_messages += connection.in_messages.load(Ordering::Relaxed);
            counters.out_messages += connection.out_messages.load(Ordering::Relaxed);
            counters.in_bytes += connection.in_bytes.load(Ordering::Relaxed);
            counters.out_bytes += connection.out_bytes.load(Ordering::Relaxed);
        }
        counters
    }

    pub(super) fn add_connection(&self, statistics: Arc<Statistics>) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(statistics);
    }

    /// Counts an event and tells the operator about it.
    pub(super) fn note(&self, connection: &str, event: &Event) {
        match event {
            Event::Connected => tracing::info!(connection, "connected to NATS"),
            Event::Disconnected => {
                self.disconnects.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(connection, "connection to NATS lost, reconnecting");
            }
            Event::SlowConsumer(subscription) => {
                let before = self.slow_consumers.fetch_add(1, Ordering::Relaxed);
                if before == 0 {
                    tracing::warn!(connection, subscription, "a subscriber does not keep up and loses messages");
                }
            }
            Event::ServerError(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(connection, %error, "NATS reports an error");
            }
            Event::ClientError(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(connection, %error, "the NATS client reports an error");
            }
            Event::LameDuckMode => tracing::warn!(connection, "the NATS server is about to shut down"),
            Event::Draining | Event::Closed => tracing::debug!(connection, %event, "connection to NATS ends"),
        }
    }
}
