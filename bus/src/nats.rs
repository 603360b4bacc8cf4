//! The NATS backend: a JetStream stream as the log, one with write-once subjects as the register, key-value buckets,
//! and core NATS for messages.
//!
//! | service | lives in | relies on |
//! |---|---|---|
//! | log | stream [`LOG_STREAM`] | an awaited acknowledgement means stored; ordered consumers resume without a gap |
//! | register | stream [`REGISTER_STREAM`] | `max_msgs_per_subject: 1` with `discard_new_per_subject` |
//! | buckets | streams `KV_<bucket>` | last value per subject |
//! | messages | no stream | nothing |
//!
//! [`open`] creates what is missing and refuses what differs: a stream with other settings would break promises that
//! the exchange makes, later and without a word. Use a server with `sync_interval: always` where an acknowledgement
//! must survive a power cut.

mod connection;
mod consumer;
mod key_value;
mod log;
mod place;
mod pub_sub;
mod register;
mod requirement;
pub mod server;
mod status;
mod stored;
mod version;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::{self, stream};
use tokio::time::Instant;

pub use status::{Counters, NatsStatus};

use self::connection::Connection;
use self::consumer::Source;
use self::requirement::Mismatches;
use crate::{Bucket, Bus, BusError};

/// The stream that holds the log.
pub const LOG_STREAM: &str = "LLMX_LOG";
/// The stream that holds the write-once register.
pub const REGISTER_STREAM: &str = "LLMX_REGISTER";
/// Default wait for one acknowledgement or answer of JetStream; a healthy server takes milliseconds.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// Default time in which the server must be reached and its streams found or created; a cluster elects in that time.
pub const OPEN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Pause between two attempts to open.
const OPEN_PAUSE: Duration = Duration::from_millis(200);

/// Where the server keeps the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// On disk.
    #[default]
    File,
    /// In memory: lost with the server. For measurements.
    Memory,
}

/// How to prove who connects.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Not at all, or in the URL.
    #[default]
    None,
    /// A `.creds` file (JWT and NKey seed).
    File(PathBuf),
    /// A user and a password.
    UserPassword {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::UserPassword { user, .. } => {
                f.debug_struct("UserPassword").field("user", user).finish_non_exhaustive()
            }
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

/// How to open a bus on NATS.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Server URLs, separated by commas: `nats://127.0.0.1:4222`.
    pub servers: String,
    /// Name of the connections, as the server's monitoring shows it.
    pub name: String,
    /// Who connects.
    pub credentials: Credentials,
    /// Number of lanes the log must have; none takes what the log has, or [`crate::LANES_DEFAULT`] for a new one.
    pub lanes: Option<u8>,
    /// Where the streams are kept.
    pub storage: Storage,
    /// Copies of each stream in a cluster, 1 to 5.
    pub replicas: usize,
    /// Size in bytes after which the log is full; none takes what the log has, or no limit for a new one.
    pub log_bytes_max: Option<u64>,
    /// Wait for one acknowledgement or answer.
    pub request_timeout: Duration,
    /// Time in which the server must be reached and its streams found or created.
    pub open_timeout: Duration,
    /// Counts what happens to the connections; keep a clone to read it.
    pub status: Arc<NatsStatus>,
}

impl NatsOptions {
    /// Options for a server, everything else as by default.
    #[must_use]
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            name: "llmx".to_owned(),
            credentials: Credentials::default(),
            lanes: None,
            storage: Storage::default(),
            replicas: 1,
            log_bytes_max: None,
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
            open_timeout: OPEN_TIMEOUT_DEFAULT,
            status: Arc::default(),
        }
    }
}

/// Connects, creates the streams that are missing and checks those that are not.
///
/// # Errors
/// [`BusError::Mismatch`] when the server or a stream is not what the exchange needs, naming each difference and its
/// remedy; [`BusError::Unreachable`] when no server answers in time or it refuses the credentials.
pub async fn open(options: NatsOptions) -> Result<Bus, BusError> {
    let deadline = Instant::now() + options.open_timeout;
    // Three connections: a client has one task for reading and writing, and neither the log nor a burst of deliveries
    // should wait for the other.
    let write = Connection::open(&options, "log", deadline).await?;
    let read = Connection::open(&options, "reader", deadline).await?;
    let messages = Connection::open(&options, "messages", deadline).await?;
    requirement::check_server(&write.client.server_info())?;

    let context = context(&write, &options);
    let lanes = loop {
        match ensure_streams(&context, &options).await {
            // A server that has just started answers before its streams do.
            Err(BusError::Unknown(_)) if Instant::now() + OPEN_PAUSE < deadline => tokio::time::sleep(OPEN_PAUSE).await,
            Err(BusError::Unknown(reason)) => return Err(BusError::Unreachable(reason)),
            outcome => break outcome?,
        }
    };
    let source = Source { context: self::context(&read, &options), connected: read.connected };
    let timeout = options.request_timeout;
    Ok(Bus {
        log: Arc::new(log::NatsLog::new(write.client.clone(), source.clone(), lanes, timeout)),
        register: Arc::new(register::NatsRegister::new(write.client, source.clone(), timeout)),
        key_value: Arc::new(key_value::NatsKeyValue::new(&context, source).await?),
        pub_sub: Arc::new(pub_sub::NatsPubSub::new(messages.client, timeout, options.status)),
    })
}

fn context(connection: &Connection, options: &NatsOptions) -> jetstream::Context {
    ContextBuilder::new().timeout(options.request_timeout).build(connection.client.clone())
}

/// Finds or creates every stream, and returns the log's number of lanes.
async fn ensure_streams(context: &jetstream::Context, options: &NatsOptions) -> Result<u8, BusError> {
    let mut mismatches = Mismatches::default();
    let log = ensure(context, requirement::log(options)).await?;
    let lanes = mismatches.check_log(&log, options);
    let register = requirement::register(options);
    mismatches.check_stream(&ensure(context, register.clone()).await?, &register);
    for bucket in Bucket::ALL {
        let needed = requirement::bucket(bucket, options);
        mismatches.check_stream(&ensure(context, needed.clone()).await?, &needed);
    }
    mismatches.into_result().map(|()| lanes)
}

/// The live configuration of a stream, created as `needed` when it did not exist.
async fn ensure(context: &jetstream::Context, needed: stream::Config) -> Result<stream::Config, BusError> {
    let name = needed.name.clone();
    if let Some(live) = find(context, &name).await? {
        return Ok(live);
    }
    match context.create_stream(needed).await {
        Ok(created) => Ok(created.cached_info().config.clone()),
        // Another process may have created it in the meantime; what stands there is checked all the same.
        Err(error) => match find(context, &name).await? {
            Some(live) => Ok(live),
            None => Err(BusError::Unknown(format!("stream {name} cannot be created: {error}"))),
        },
    }
}

async fn find(context: &jetstream::Context, name: &str) -> Result<Option<stream::Config>, BusError> {
    use jetstream::context::GetStreamErrorKind::{EmptyName, InvalidStreamName, JetStream, Request};
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().config.clone())),
        Err(error) => match error.kind() {
            JetStream(refusal) if refusal.error_code() == jetstream::ErrorCode::STREAM_NOT_FOUND => Ok(None),
            JetStream(_) | EmptyName | InvalidStreamName | Request => {
                Err(BusError::Unknown(format!("stream {name} cannot be looked up: {error}")))
            }
        },
    }
}
