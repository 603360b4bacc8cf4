//! What happens to the connections, counted for metrics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_nats::{Event, ServerError, Statistics};
use parking_lot::Mutex;
use schemas::subject;

/// Denied subjects that are remembered: more than a process subscribes to.
const DENIED_MAX: usize = 64;
/// What a server says of a subscription or a message that it denies, up to the subject.
const DENIED_SUBSCRIPTION: &str = "Permissions Violation for Subscription to \"";
const DENIED_PUBLISH: &str = "Permissions Violation for Publish to \"";

/// Counters of every connection of one bus. All rise only.
#[derive(Debug, Default)]
pub struct NatsStatus {
    /// In the order of [`NatsEvent::ALL`].
    events: [AtomicU64; NatsEvent::ALL.len()],
    connections: Mutex<Vec<Watched>>,
    /// Why the last attempt at a first connection failed.
    fault: Mutex<Option<String>>,
    /// By the connection that was denied them.
    denied: Mutex<BTreeSet<(String, String)>>,
}

#[derive(Debug)]
struct Watched {
    statistics: Arc<Statistics>,
    is_up: Arc<AtomicBool>,
}

/// What can happen to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum NatsEvent {
    /// It was made, or made again.
    Connected,
    /// It was lost.
    Disconnected,
    /// A subscriber did not keep up and lost messages; at least: a burst is reported in part.
    SlowConsumer,
    /// The server reports an error, a violation of permissions among them.
    ServerError,
    /// The client reports an error.
    ClientError,
    /// The server is about to shut down.
    LameDuck,
    /// It was ended on purpose.
    Closed,
}

impl NatsEvent {
    /// Every event.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Its name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A reading of [`NatsStatus`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections there are, lost ones included.
    pub connections: usize,
    /// Of these, the ones that stand.
    pub connections_up: usize,
    /// Connections made, reconnections included.
    pub connects: u64,
    /// Events, in the order of [`NatsEvent::ALL`]; under a flood some are lost.
    pub events: [u64; NatsEvent::ALL.len()],
    /// Messages received.
    pub in_messages: u64,
    /// Messages sent.
    pub out_messages: u64,
    /// Payload bytes received.
    pub in_bytes: u64,
    /// Payload bytes sent.
    pub out_bytes: u64,
}

impl Counters {
    /// Whether every connection stands, and there is one.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.connections > 0 && self.connections_up == self.connections
    }

    /// How often something happened.
    #[must_use]
    pub const fn count(&self, event: NatsEvent) -> u64 {
        self.events[event as usize]
    }
}

impl NatsStatus {
    /// Reads the counters.
    #[must_use]
    pub fn read(&self) -> Counters {
        let mut counters = Counters {
            events: std::array::from_fn(|index| self.events[index].load(Ordering::Relaxed)),
            ..Counters::default()
        };
        for Watched { statistics, is_up } in self.connections.lock().iter() {
            counters.connections += 1;
            counters.connections_up += usize::from(is_up.load(Ordering::Relaxed));
            counters.connects += statistics.connects.load(Ordering::Relaxed);
            counters.in_messages += statistics.in_messages.load(Ordering::Relaxed);
            counters.out_messages += statistics.out_messages.load(Ordering::Relaxed);
            counters.in_bytes += statistics.in_bytes.load(Ordering::Relaxed);
            counters.out_bytes += statistics.out_bytes.load(Ordering::Relaxed);
        }
        counters
    }

    /// Why what works over one connection cannot, where it cannot.
    #[must_use]
    pub fn service_fault(&self) -> Option<String> {
        let denied = self.denied();
        if self.read().connections_up == 0 {
            let why = self.fault().map(|fault| format!(": {fault}")).unwrap_or_default();
            return Some(format!("there is no connection to NATS{why}"));
        }
        (!denied.is_empty()).then(|| format!("NATS does not let this process use {}", denied.join(", ")))
    }

    /// Subjects that the server does not let a connection use.
    pub(super) fn denied(&self) -> Vec<String> {
        let denied = self.denied.lock();
        denied.iter().map(|(_, subject)| subject.clone()).collect()
    }

    /// Remembers what a connection may not use, until it is made anew and asks again.
    fn note_denied(&self, connection: &str, event: &Event) {
        let mut denied = self.denied.lock();
        if let Event::Connected = event {
            denied.retain(|(of, _)| of != connection);
        } else if let Event::ServerError(ServerError::Other(error)) = event
            && let Some(subject) = denied_subject(error)
            && denied.len() < DENIED_MAX
        {
            denied.insert((connection.to_owned(), subject));
        }
    }

    /// Why the last attempt at a first connection failed; nothing where none has.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    pub(super) fn set_fault(&self, fault: &str) {
        *self.fault.lock() = Some(fault.to_owned());
    }

    /// Reads one counter.
    pub(super) fn count(&self, event: NatsEvent) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    /// A connection that has been made; `is_up` is what [`NatsStatus::note`] is given for it.
    pub(super) fn add_connection(&self, statistics: Arc<Statistics>, is_up: Arc<AtomicBool>) {
        is_up.store(true, Ordering::Relaxed);
        self.connections.lock().push(Watched { statistics, is_up });
    }

    /// Counts an event and tells the operator about it.
    pub(super) fn note(&self, connection: &str, is_up: &AtomicBool, event: &Event) {
        let kind = match event {
            Event::Connected => NatsEvent::Connected,
            Event::Disconnected => NatsEvent::Disconnected,
            Event::SlowConsumer(_) => NatsEvent::SlowConsumer,
            Event::ServerError(_) => NatsEvent::ServerError,
            Event::ClientError(_) => NatsEvent::ClientError,
            Event::LameDuckMode => NatsEvent::LameDuck,
            Event::Closed => NatsEvent::Closed,
            Event::Draining => return tracing::debug!(connection, %event, "connection to NATS ends"),
        };
        self.note_denied(connection, event);
        let before = self.events[kind as usize].fetch_add(1, Ordering::Relaxed);
        match event {
            Event::Connected => {
                // The first connection may be told before it is counted as up.
                if !is_up.swap(true, Ordering::Relaxed) && self.count(NatsEvent::Disconnected) > 0 {
                    tracing::warn!(connection, "connected to NATS again");
                } else {
                    tracing::info!(connection, "connected to NATS");
                }
            }
            Event::Disconnected => {
                is_up.store(false, Ordering::Relaxed);
                tracing::warn!(connection, "connection to NATS lost, reconnecting");
            }
            Event::SlowConsumer(subscription) if before == 0 => {
                tracing::warn!(connection, subscription, "a subscriber does not keep up and loses messages");
            }
            Event::SlowConsumer(_) => {}
            Event::ServerError(error) => tracing::warn!(connection, %error, "NATS reports an error"),
            // That the connection is lost was said, and each attempt at another fails until it is back.
            Event::ClientError(error) if !is_up.load(Ordering::Relaxed) => {
                tracing::debug!(connection, %error, "NATS is out of reach");
            }
            Event::ClientError(error) => tracing::warn!(connection, %error, "the NATS client reports an error"),
            Event::LameDuckMode => tracing::warn!(connection, "the NATS server is about to shut down"),
            Event::Draining | Event::Closed => {
                is_up.store(false, Ordering::Relaxed);
                tracing::debug!(connection, %event, "connection to NATS ends");
            }
        }
    }
}

/// The subject that may not be subscribed to, or to which records or entries of the register may not be published. What else
/// is published may be an answer to a subject that an agent has named, and says nothing of the process.
fn denied_subject(error: &str) -> Option<String> {
    let until_quote = |rest: &str| rest.split_once('"').map(|(subject, _)| subject.to_owned());
    if let Some(rest) = error.strip_prefix(DENIED_SUBSCRIPTION) {
        return until_quote(rest);
    }
    let published = error.strip_prefix(DENIED_PUBLISH).and_then(until_quote)?;
    let [awards, closings] = subject::ALL_REGISTER;
    let stored = [subject::ALL_LOG, awards, closings];
    let is_of = |pattern: &&&str| published.split('.').next() == pattern.split('.').next();
    stored.iter().find(is_of).map(|pattern| (*pattern).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_is_up_while_every_one_of_its_connections_stands() {
        let status = NatsStatus::default();
        assert!(!status.read().is_up(), "there is none yet");
        let links = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
        links.iter().for_each(|link| status.add_connection(Arc::default(), Arc::clone(link)));
        assert!(status.read().is_up());
        status.note("log", &links[0], &Event::Disconnected);
        let read = status.read();
        assert_eq!((read.is_up(), read.connections, read.connections_up), (false, 2, 1));
        status.note("log", &links[0], &Event::Connected);
        status.note("log", &links[0], &Event::SlowConsumer(7));
        let read = status.read();
        assert!(read.is_up());
        let counted = NatsEvent::ALL.iter().map(|event| read.count(*event)).collect::<Vec<_>>();
        assert_eq!(counted, [1, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn what_a_connection_may_not_use_is_known_until_it_is_made_anew() {
        let (status, is_up) = (NatsStatus::default(), AtomicBool::new(true));
        let refused = |text: &str| Event::ServerError(ServerError::Other(text.to_owned()));
        for text in [
            r#"Permissions Violation for Subscription to "gw.end.*""#,
            r#"Permissions Violation for Subscription to "gw.in.>" using queue "gateways""#,
            r#"Permissions Violation for Publish to "closed.alice~job""#,
            r#"Permissions Violation for Publish to "_INBOX.of.an.agent""#,
        ] {
            status.note("messages", &is_up, &refused(text));
        }
        assert_eq!(status.denied(), ["closed.*", "gw.end.*", "gw.in.>"]);
        status.note("log", &is_up, &Event::Connected);
        assert_eq!(status.denied().len(), 3, "another connection");
        status.note("messages", &is_up, &Event::Connected);
        assert!(status.denied().is_empty(), "it asks again");
    }

    #[test]
    fn every_event_stands_where_it_is_counted_under_a_name_of_its_own() {
        assert!(NatsEvent::ALL.iter().enumerate().all(|(index, event)| *event as usize == index));
        let mut names = NatsEvent::ALL.iter().map(|event| event.as_str()).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NatsEvent::ALL.len());
    }
}
