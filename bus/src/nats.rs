//! The NATS backend: a JetStream stream as the log, one with write-once subjects as the register, key-value buckets,
//! and core NATS for messages.
//!
//! | service | lives in | relies on |
//! |---|---|---|
//! | log | stream [`LOG_STREAM`] | an awaited acknowledgement means stored; ordered consumers resume without a gap |
//! | register | stream [`REGISTER_STREAM`] | `max_msgs_per_subject: 1` with `discard_new_per_subject` |
//! | buckets | streams `KV_<bucket>` | last value per subject; lifetimes of markers |
//! | documents | object store [`DOCUMENT_BUCKET`] | a conditional write of the description, after the content |
//! | messages | no stream | nothing |
//!
//! [`open`] creates what is missing and refuses what differs: a stream with other settings would break promises that
//! the exchange makes, later and without a word. Use servers with `sync_interval: always` where an acknowledgement must
//! survive a power cut, and say so in [`NatsOptions::sync`]; docs/durability.md has the guarantees.

mod blobs;
mod connection;
mod consumer;
mod key_value;
mod log;
mod monitor;
mod pub_sub;
mod register;
mod requirement;
mod status;
mod stored;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use async_nats::Client;
use async_nats::Message;
use async_nats::datetime::DateTime;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::{self, Context, ErrorCode, stream};
use futures_util::future::BoxFuture;
use schemas::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::monitor::{Monitor, ServerInfo, SyncMode};
pub use self::requirement::version_difference;
pub use status::{Counters, NatsEvent, NatsStatus};

use self::requirement::Mismatches;
use crate::{Bucket, Bus, BusError, LANES_DEFAULT, retry_until};

/// The stream that holds the log.
pub const LOG_STREAM: &str = "LLMX_LOG";
/// The stream that holds the write-once register.
pub const REGISTER_STREAM: &str = "LLMX_REGISTER";
/// The object store that holds large documents; `nats object ls llmx` lists them.
pub const DOCUMENT_BUCKET: &str = "llmx";
/// The stream below it.
pub const DOCUMENT_STREAM: &str = "OBJ_llmx";
/// Default wait for one acknowledgement or answer of JetStream; a healthy server takes milliseconds.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// Default time in which the server must be reached and its streams found, created and answering: two elections of a
/// cluster, which take up to 9 s each.
pub const OPEN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);
/// Pause between two attempts to open.
const OPEN_PAUSE: Duration = Duration::from_millis(200);
/// Looks for JetStream behind a server that has none itself: a leaf node makes its link within a second.
const LEAF_LOOKS_MAX: u32 = 10;

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

/// Files in PEM for connections over TLS, which a URL with `tls://` or the server asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities whose servers are trusted, in the place of the system's.
    pub authorities: Option<PathBuf>,
    /// A certificate and its private key, for servers that ask who connects.
    pub identity: Option<(PathBuf, PathBuf)>,
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
    /// Whom to trust, and what to show, over TLS.
    pub tls: TlsFiles,
    /// Number of lanes the log must have; none takes what the log has, or [`crate::LANES_DEFAULT`] for a new one.
    pub lanes: Option<u8>,
    /// Where the streams are kept.
    pub storage: Storage,
    /// Copies of each stream in a cluster, 1 to 5.
    pub replicas: usize,
    /// Size in bytes after which the log is full; none takes what the log has, or no limit for a new one.
    pub log_bytes_max: Option<u64>,
    /// What an acknowledgement must mean on every server; none takes what they do.
    pub sync: Option<SyncMode>,
    /// URLs of the servers' monitoring ports, separated by commas: `http://127.0.0.1:8222`. How a server keeps what it
    /// acknowledges can only be seen there.
    pub monitor: Option<String>,
    /// Wait for one acknowledgement or answer.
    pub request_timeout: Duration,
    /// Time in which the server must be reached and its streams found or created; and in which a reader of the log must
    /// be given.
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
            tls: TlsFiles::default(),
            lanes: None,
            storage: Storage::default(),
            replicas: 1,
            log_bytes_max: None,
            sync: None,
            monitor: None,
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
            open_timeout: OPEN_TIMEOUT_DEFAULT,
            status: Arc::default(),
        }
    }
}

/// Checks a list of server URLs, as [`NatsOptions::servers`] takes it.
///
/// # Errors
/// [`BusError::Unusable`] naming the one that is no URL of a NATS server.
pub fn check_servers(servers: &str) -> Result<(), BusError> {
    connection::addresses(servers).map(drop)
}

/// A list of server URLs without what may be secret in them.
#[must_use]
pub fn shown(servers: &str) -> String {
    let host = |url: &str| {
        if let Some((_, host)) = url.rsplit_once('@') {
            return host.trim().to_owned();
        }
        let url = url.trim().split(['?', '#']).next().unwrap_or_default();
        let begin = url.find("://").map_or(0, |place| place + 3);
        // Without `@` what stands for a port may be a password, or its beginning.
        match url[begin..].split_once(':') {
            Some((name, port)) if !name.starts_with('[') && !port.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("{}{name}:…", &url[..begin])
            }
            _ => url.to_owned(),
        }
    };
    servers.split(',').map(host).collect::<Vec<_>>().join(", ")
}

/// Connects a client that is no part of the exchange, such as a service beside it.
///
/// # Errors
/// As [`open`], except those of streams.
pub async fn connect(options: &NatsOptions) -> Result<Client, BusError> {
    let deadline = Instant::now() + options.open_timeout;
    Ok(NatsConnection::open(options, "service", deadline).await?.client)
}

/// Connects, creates the streams that are missing and checks those that are not.
///
/// # Errors
/// [`BusError::Mismatch`] when the server or a stream is not what the exchange needs, naming each difference and its
/// remedy; [`BusError::Unusable`] when a URL or a file is none; [`BusError::Unreachable`] when no server
/// answers in time, or at once where it refuses the credentials or TLS does not come about.
pub fn open(options: NatsOptions) -> BoxFuture<'static, Result<Bus, BusError>> {
    // Boxed: every crate that awaits an `async fn` compiles it again.
    Box::pin(async move {
        let deadline = Instant::now() + options.open_timeout;
        // Four connections: a client has one task for reading and writing, and neither the log nor a burst of deliveries
        // nor a large document should wait for the others.
        let write = NatsConnection::open(&options, "log", deadline).await?;
        let read = NatsConnection::open(&options, "reader", deadline).await?;
        let messages = NatsConnection::open(&options, "messages", deadline).await?;
        let documents = NatsConnection::open(&options, "documents", deadline).await?;
        let context = context(&write, &options);
        let mut mismatches = Mismatches::default();
        let info = write.client.server_info();
        mismatches.check_server(&info, info.jetstream || answers_behind(&context).await);
        // A leaf node keeps no streams: how it would flush says nothing.
        mismatches.extend(monitor::check(&options, info.jetstream.then_some(info.server_id.as_str())).await?);
        let (lanes, keeps_register) = Box::pin(ensure_streams(&context, &options, mismatches, deadline)).await?;
        let source = StreamSource { context: self::context(&read, &options), connected: read.connected };
        let timeout = options.request_timeout;
        let documents = StreamSource { context: self::context(&documents, &options), connected: documents.connected };
        let key_value = retry_until(deadline, || key_value::NatsKeyValue::new(&context, source.clone())).await?;
        let blobs = Arc::new(blobs::NatsBlobs::new(documents, timeout, deadline).await);
        Ok(Bus {
            log: Arc::new(log::NatsLog::new(write.client.clone(), source.clone(), Arc::clone(&blobs), lanes, &options)),
            register: Arc::new(register::NatsRegister::new(write.client, source.clone(), timeout, keeps_register)),
            key_value: Arc::new(key_value),
            pub_sub: Arc::new(pub_sub::NatsPubSub::new(messages.client, timeout, options.status)),
            blobs,
        })
    })
}

fn context(connection: &NatsConnection, options: &NatsOptions) -> jetstream::Context {
    ContextBuilder::new().timeout(options.request_timeout).build(connection.client.clone())
}

/// Whether JetStream answers though the server has none itself: a leaf node passes questions on, once it has its link.
async fn answers_behind(context: &jetstream::Context) -> bool {
    for _ in 0..LEAF_LOOKS_MAX {
        if context.query_account().await.is_ok() {
            return true;
        }
        tokio::time::sleep(OPEN_PAUSE).await;
    }
    false
}

/// Finds or creates every stream, and returns the log's number of lanes, and whether the register keeps everything: one that
/// was created with `deny_purge` cannot be changed. Creates none where something does not fit.
async fn ensure_streams(
    context: &jetstream::Context,
    options: &NatsOptions,
    mut mismatches: Mismatches,
    deadline: Instant,
) -> Result<(u8, bool), BusError> {
    let may_create = mismatches.is_empty();
    let streams = match retry_until(deadline, || ensure_all(context, options, may_create)).await {
        Ok(streams) => streams,
        Err(BusError::Unknown(reason)) if may_create => return Err(BusError::Unreachable(reason)),
        // What is wrong with the server is the better answer.
        Err(_) => Vec::new(),
    };
    let (mut lanes, mut keeps_register) = (LANES_DEFAULT, false);
    for (found, needed) in &streams {
        match needed.name.as_str() {
            LOG_STREAM => lanes = mismatches.check_log(found, options),
            REGISTER_STREAM => {
                keeps_register = found.deny_purge;
                mismatches.check_stream(found, &stream::Config { deny_purge: keeps_register, ..needed.clone() });
            }
            _ => mismatches.check_stream(found, needed),
        }
    }
    mismatches.into_result()?;
    for (_, needed) in streams {
        retry_until(deadline, || check_leader_answers(context, &needed.name)).await?;
    }
    Ok((lanes, keeps_register))
}

/// Asks the leader of a stream: another process may have created it a moment ago.
async fn check_leader_answers(context: &jetstream::Context, stream_name: &str) -> Result<(), BusError> {
    stored::at(context, stream_name, 1).await.map(drop)
}

/// Every stream there is, as it is and as it must be.
async fn ensure_all(
    context: &jetstream::Context,
    options: &NatsOptions,
    may_create: bool,
) -> Result<Vec<(stream::Config, stream::Config)>, BusError> {
    let buckets = Bucket::ALL.map(|bucket| requirement::bucket(bucket, options));
    let needed = [requirement::log(options), requirement::register(options), requirement::documents(options)];
    let mut streams = Vec::new();
    for needed in needed.into_iter().chain(buckets) {
        let live =
            if may_create { Some(ensure(context, needed.clone()).await?) } else { find(context, &needed.name).await? };
        streams.extend(live.map(|live| (live, needed)));
    }
    Ok(streams)
}

/// The live configuration of a stream, created as `needed` when it did not exist. One of an earlier build is given the
/// lifetimes of messages that it lacks.
async fn ensure(context: &jetstream::Context, needed: stream::Config) -> Result<stream::Config, BusError> {
    let name = needed.name.clone();
    if let Some(live) = find(context, &name).await? {
        if live.allow_message_ttl || !needed.allow_message_ttl {
            return Ok(live);
        }
        let extended = stream::Config { allow_message_ttl: true, ..live.clone() };
        // Where that is not allowed, the comparison says what to do.
        return Ok(context.update_stream(extended).await.map_or(live, |updated| updated.config));
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

/// A connection, and the news that it was made.
struct NatsConnection {
    client: Client,
    /// Changes after every connection, the first one too.
    connected: watch::Receiver<u64>,
}

/// What readers read from: a connection, and the news that it was made again.
#[derive(Debug, Clone)]
struct StreamSource {
    context: Context,
    /// Changes after every connection.
    connected: watch::Receiver<u64>,
}

/// Which messages a reader is for.
#[derive(Debug, Clone)]
struct Selection {
    stream: String,
    /// Filter subject.
    subject: String,
    from: DeliverPolicy,
}

/// A message and its position in the stream.
#[derive(Debug)]
struct StoredMessage {
    message: Message,
    seq: u64,
    /// Never goes back from one message to the next, though a new leader's clock may.
    time: Timestamp,
    /// The time as the server stamped it.
    stamped: Timestamp,
    /// Messages that were waiting behind it when it was sent.
    pending: u64,
}

/// What a reader comes across.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "almost every one is a message, and a box for each would cost more")]
enum ConsumerEvent {
    /// The next message.
    Message(StoredMessage),
    /// A new consumer has taken the place of a lost one, and begins behind the last message given. Whether that message
    /// still stands in the stream is for those to check who rely on it.
    Resumed {
        /// Messages that wait.
        waiting: u64,
    },
    /// The server may have held messages back until now, because those before were not taken.
    Held,
}

/// Why a message is not known to be stored.
#[derive(Debug)]
enum NotStored {
    /// The stream refused it.
    Refused(ErrorCode, String),
    /// Larger than the connection takes; the limit in bytes.
    TooLarge(usize),
    /// No answer, or none of a stream: it may or may not be stored.
    Unknown(String),
}

impl NotStored {
    /// The same of a message of so many bytes for this stream.
    fn into_error(self, stream_name: &str, bytes: usize) -> BusError {
        match self {
            Self::Refused(code, reason) if stored::is_full(code) => stored::full(stream_name, code, &reason),
            Self::Refused(_, reason) | Self::Unknown(reason) => BusError::Unknown(reason),
            Self::TooLarge(limit) => BusError::TooLarge { bytes, limit },
        }
    }
}

/// When a stream's leader took a message.
fn to_timestamp(time: DateTime) -> Timestamp {
    Timestamp(u64::try_from(time.unix_timestamp_nanos() / 1000).unwrap_or_default())
}
