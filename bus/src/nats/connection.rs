//! One connection: named, watched, reconnecting for ever with jitter.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_nats::{ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use retry::Backoff;
use schemas::subject::EXCHANGE_INBOX;
use tokio::sync::watch;
use tokio::time::Instant;

use super::NatsConnection;
use super::{Credentials, NatsOptions, shown};
use crate::BusError;

/// How often an idle connection is probed. The client gives up after two silent probes, so a dead peer is noticed in
/// about 6 s instead of 3 minutes.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Before a reconnection. All of a delay is random, so that a restarted server does not meet all its clients at once.
const RECONNECT_BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(20), max: Duration::from_secs(2), jitter: 1.0 };
/// Pause between two attempts at the first connection.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Messages a subscription may be behind before it loses some. The client's default, named because the embedded
/// backend uses the same.
const SUBSCRIPTION_QUEUE_MAX: usize = 65_536;

/// What a URL looks like.
const EXAMPLE: &str = "give nats://HOST:PORT, or tls://";

impl NatsConnection {
    /// Connects, trying again until `deadline`.
    pub(super) async fn open(options: &NatsOptions, role: &str, deadline: Instant) -> Result<Self, BusError> {
        let addresses = addresses(&options.servers)?;
        loop {
            let (news, connected) = watch::channel(0);
            let is_up = Arc::new(AtomicBool::new(false));
            let attempt = connect_options(options, role, news, Arc::clone(&is_up)).await?.connect(addresses.clone());
            let error = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Ok(client)) => {
                    options.status.add_connection(client.statistics(), is_up);
                    return Ok(Self { client, connected });
                }
                Ok(Err(error)) => error,
                Err(_) => return Err(unreachable(options, "no answer in time")),
            };
            if is_final(error.kind()) || Instant::now() + CONNECT_PAUSE >= deadline {
                return Err(unreachable(options, &error.to_string()));
            }
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }
}

/// The addresses of the servers.
pub(super) fn addresses(servers: &str) -> Result<Vec<ServerAddr>, BusError> {
    let parse = |url: &str| {
        let refused = |error| BusError::Unusable(format!("`{}` is no NATS URL: {error}; {EXAMPLE}", shown(url)));
        url.trim().parse().map_err(refused)
    };
    servers.split(',').map(parse).collect()
}

/// Whether another attempt would fail alike.
fn is_final(kind: ConnectErrorKind) -> bool {
    match kind {
        ConnectErrorKind::ServerParse | ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            true
        }
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => false,
    }
}

async fn connect_options(
    options: &NatsOptions,
    role: &str,
    news: watch::Sender<u64>,
    is_up: Arc<AtomicBool>,
) -> Result<ConnectOptions, BusError> {
    let status = Arc::clone(&options.status);
    let connection = format!("{} {role}", options.name);
    let builder = ConnectOptions::new()
        .name(&connection)
        .custom_inbox_prefix(EXCHANGE_INBOX)
        .ping_interval(PING_INTERVAL)
        .subscription_capacity(SUBSCRIPTION_QUEUE_MAX)
        .request_timeout(Some(options.request_timeout))
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            status.note(&connection, &is_up, &event);
            if event == Event::Connected {
                news.send_modify(|connections| *connections += 1);
            }
            std::future::ready(())
        });
    Ok(match &options.credentials {
        Credentials::None => match in_url(&options.servers) {
            Some((user, password)) => builder.user_and_password(user, password),
            None => builder,
        },
        Credentials::Token(token) => builder.token(token.clone()),
        Credentials::UserPassword { user, password } => builder.user_and_password(user.clone(), password.clone()),
        Credentials::File(path) => builder.credentials_file(path).await.map_err(|error| {
            BusError::Unusable(format!("the credentials file {} cannot be read: {error}", path.display()))
        })?,
    })
}

/// User and password of the first URL that names them: the client reads them out of no URL by itself.
fn in_url(servers: &str) -> Option<(String, String)> {
    servers.split(',').find_map(|url| {
        let address: ServerAddr = url.trim().parse().ok()?;
        Some((address.username()?.to_owned(), address.password().unwrap_or_default().to_owned()))
    })
}

/// The delay after this many reconnections that failed.
fn reconnect_delay(failed: usize) -> Duration {
    let attempt = u32::try_from(failed).unwrap_or(u32::MAX).saturating_add(1);
    RECONNECT_BACKOFF.delay(attempt, rand::random())
}

fn unreachable(options: &NatsOptions, reason: &str) -> BusError {
    // The URL may carry a password.
    BusError::Unreachable(format!("NATS at {}: {reason}", shown(&options.servers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnection_delays_grow_to_two_seconds_and_stay_there() {
        for (failed, ceiling_ms) in [(0, 20), (1, 40), (6, 1280), (7, 2000), (usize::MAX, 2000)] {
            let longest = (0..1000).map(|_| reconnect_delay(failed)).max().unwrap();
            assert!(longest <= Duration::from_millis(ceiling_ms), "{failed}: {longest:?}");
            assert!(longest > Duration::from_millis(ceiling_ms / 2), "{failed}: {longest:?}");
        }
    }

    #[test]
    fn an_error_does_not_show_the_password_of_a_url() {
        let error = unreachable(&NatsOptions::new("nats://user:secret@host:4222"), "refused");
        assert_eq!(error.to_string(), "the bus cannot be reached: NATS at host:4222: refused");
    }
}
