//! One connection: named, watched, reconnecting for ever with jitter.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use percent_encoding::percent_decode_str;
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
            let error: ConnectError = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Ok(client)) => {
                    options.status.add_connection(client.statistics(), is_up);
                    return Ok(Self { client, connected });
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    let fault = options.status.fault();
                    return Err(unreachable(options, fault.as_deref().unwrap_or("no answer in time")));
                }
            };
            options.status.set_fault(&error.to_string());
            if is_final(&error) || Instant::now() + CONNECT_PAUSE >= deadline {
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
        // The client takes an empty text for a host of no name.
        if url.trim().is_empty() {
            Err(BusError::Unusable(format!("a NATS URL is empty; {EXAMPLE}")))
        } else {
            url.trim().parse().map_err(refused)
        }
    };
    servers.split(',').map(parse).collect()
}

/// Whether another attempt would fail alike.
fn is_final(error: &ConnectError) -> bool {
    match error.kind() {
        ConnectErrorKind::ServerParse
        | ConnectErrorKind::Authentication
        | ConnectErrorKind::AuthorizationViolation
        | ConnectErrorKind::Tls => true,
        // What is wrong with a certificate, or that the other side speaks no TLS.
        ConnectErrorKind::Io => {
            let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            source.is_some_and(|source| source.kind() == io::ErrorKind::InvalidData)
        }
        ConnectErrorKind::Dns | ConnectErrorKind::TimedOut | ConnectErrorKind::MaxReconnects => false,
    }
}

async fn connect_options(
    options: &NatsOptions,
    role: &str,
    news: watch::Sender<u64>,
    is_up: Arc<AtomicBool>,
) -> Result<ConnectOptions, BusError> {
    let (authorities, identity) = (options.tls.authorities.as_ref(), options.tls.identity.as_ref());
    for path in authorities.into_iter().chain(identity.into_iter().flat_map(|(certificate, key)| [certificate, key])) {
        // The client reads it at each connection, and would only say that it failed.
        tokio::fs::read(path)
            .await
            .map_err(|error| BusError::Unusable(format!("the file {} cannot be read: {error}", path.display())))?;
    }
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
    let builder = match authorities {
        Some(path) => builder.add_root_certificates(path.clone()),
        None => builder,
    };
    let builder = match identity {
        Some((certificate, key)) => builder.add_client_certificate(certificate.clone(), key.clone()),
        None => builder,
    };
    Ok(match &in_force(options) {
        Credentials::None => builder,
        Credentials::Token(token) => builder.token(token.clone()),
        Credentials::UserPassword { user, password } => builder.user_and_password(user.clone(), password.clone()),
        Credentials::File(path) => builder.credentials_file(path).await.map_err(|error| {
            BusError::Unusable(format!("the credentials file {} cannot be read: {error}", path.display()))
        })?,
    })
}

/// What is given apart, or else stands in the first URL that names somebody: the client reads it out of no URL by itself. As
/// with every NATS client it is decoded, and a name without a password is a token.
fn in_force(options: &NatsOptions) -> Credentials {
    if options.credentials != Credentials::None {
        return options.credentials.clone();
    }
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let named = options.servers.split(',').find_map(|url| {
        let address: ServerAddr = url.trim().parse().ok()?;
        let user = decoded(address.username()?);
        Some(match address.password().map(decoded) {
            Some(password) => Credentials::UserPassword { user, password },
            None => Credentials::Token(user),
        })
    });
    named.unwrap_or_default()
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
    fn who_stands_in_a_url_is_decoded() {
        let named = |servers: &str| in_force(&NatsOptions::new(servers));
        let both = |user: &str, password: &str| Credentials::UserPassword {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        for (servers, expected) in [
            ("nats://host:4222", Credentials::None),
            ("nats://exchange:s3cret@host", both("exchange", "s3cret")),
            ("nats://ex%40change:p%2Fa%3As%25s@host", both("ex@change", "p/a:s%s")),
            ("nats://plain:4222, tls://u:gr%C3%BCn@host", both("u", "grün")),
            ("nats://u:50%off@host", both("u", "50%off")),
            ("nats://s3cret%21@host", Credentials::Token("s3cret!".to_owned())),
        ] {
            assert_eq!(named(servers), expected, "{servers}");
        }
        let given = NatsOptions { credentials: both("a", "b"), ..NatsOptions::new("nats://c:d@host") };
        assert_eq!(in_force(&given), both("a", "b"));
    }

    #[test]
    fn no_text_that_may_be_a_password_is_shown() {
        for (servers, expected) in [
            ("nats://user:secret@host:4222", "host:4222"),
            ("nats://host:4222, tls://[::1]:4223", "nats://host:4222, tls://[::1]:4223"),
            ("nats://user:sec,ret@host:4222", "nats://user:…, host:4222"),
            ("nats://user:secret127.0.0.1:4222", "nats://user:…"),
            ("nats://host:4222?password=secret", "nats://host:4222"),
        ] {
            assert_eq!(shown(servers), expected);
        }
        assert!(addresses("nats://host, ").is_err());
    }

    #[test]
    fn an_error_does_not_show_the_password_of_a_url() {
        let error = unreachable(&NatsOptions::new("nats://user:secret@host:4222"), "refused");
        assert_eq!(error.to_string(), "the bus cannot be reached: NATS at host:4222: refused");
    }
}
