//! The streams as they are created, and as they must be.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use schemas::record::RECORD_BYTES_MAX;
use schemas::subject;

use super::{FORMAT_KEY, LANES_KEY};
use crate::nats::{DOCUMENT_BUCKET, DOCUMENT_STREAM, LOG_STREAM, NatsOptions, REGISTER_STREAM, Storage};
use crate::{Bucket, LANES_DEFAULT};

/// The version of how the streams are used.
const FORMAT: &str = "1";
/// Largest value of a register key or a bucket: documents are far smaller, and this bounds what a fault can store.
const VALUE_BYTES_MAX: usize = 256 * 1024;
/// Duplicate window of the streams. Nothing relies on it; short, because the server remembers ids that long.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(1);

/// The log's stream.
pub(in crate::nats) fn log(options: &NatsOptions) -> Config {
    let lanes = options.lanes.unwrap_or(LANES_DEFAULT).max(1);
    let mut config = base(LOG_STREAM, options);
    config.subjects = vec![subject::ALL_LOG.to_owned()];
    config.max_bytes = options.log_bytes_max.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    config.metadata.insert(LANES_KEY.to_owned(), lanes.to_string());
    // Single messages stay; trimming below an archived position is a purge.
    config.deny_delete = true;
    config.max_message_size = i32::try_from(RECORD_BYTES_MAX).unwrap_or(i32::MAX);
    config
}

/// The register's stream.
pub(in crate::nats) fn register(options: &NatsOptions) -> Config {
    let mut config = base(REGISTER_STREAM, options);
    config.subjects = subject::ALL_REGISTER.map(str::to_owned).to_vec();
    config.max_messages_per_subject = 1;
    config.discard_new_per_subject = true;
    config.deny_delete = true;
    config.deny_purge = true;
    config
}

/// A bucket's stream, laid out as NATS key-value stores are (ADR-8).
pub(in crate::nats) fn bucket(bucket: Bucket, options: &NatsOptions) -> Config {
    let name = bucket.as_str();
    let mut config = base(&format!("KV_{name}"), options);
    config.subjects = vec![format!("$KV.{name}.>")];
    config.max_messages_per_subject = 1;
    config.deny_delete = true;
    config.allow_rollup = true;
    config.allow_direct = true;
    config
}

/// The stream of large documents, laid out as NATS object stores are (ADR-20).
pub(in crate::nats) fn documents(options: &NatsOptions) -> Config {
    let mut config = base(DOCUMENT_STREAM, options);
    config.subjects = vec![format!("$O.{DOCUMENT_BUCKET}.C.>"), format!("$O.{DOCUMENT_BUCKET}.M.>")];
    config.allow_rollup = true;
    config.allow_direct = true;
    config
}

/// What every stream has: nothing in it goes away by itself, and when it is full it says so.
fn base(name: &str, options: &NatsOptions) -> Config {
    Config {
        name: name.to_owned(),
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        storage: match options.storage {
            Storage::File => StorageType::File,
            Storage::Memory => StorageType::Memory,
        },
        num_replicas: options.replicas,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        max_message_size: i32::try_from(VALUE_BYTES_MAX).unwrap_or(i32::MAX),
        duplicate_window: DUPLICATE_WINDOW,
        metadata: HashMap::from([(FORMAT_KEY.to_owned(), FORMAT.to_owned())]),
        ..Config::default()
    }
}
