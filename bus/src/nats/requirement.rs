//! What the exchange needs of a server and its streams, and how what it finds differs.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::ServerInfo;
use async_nats::jetstream::stream::{Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType};
use schemas::record::RECORD_BYTES_MAX;
use schemas::subject;
use semver::Version;

use super::{DOCUMENT_BUCKET, DOCUMENT_STREAM, LOG_STREAM, NatsOptions, REGISTER_STREAM, Storage};
use crate::{Bucket, BusError, LANES_DEFAULT};

/// Metadata key of the log's number of lanes, fixed when the log is created.
const LANES_KEY: &str = "llmx-lanes";
/// Metadata key of the version of how the streams are used.
const FORMAT_KEY: &str = "llmx-format";

/// How a difference reads, for the operator.
pub(super) fn difference(name: &str, found: &str, needed: &str, remedy: &str) -> String {
    format!("{name}: found {found}, needed {needed}, {remedy}")
}

/// Every difference found, each with its remedy.
#[derive(Debug, Default)]
pub(super) struct Mismatches(Vec<String>);

impl Mismatches {
    /// Adds differences found elsewhere.
    pub(super) fn extend(&mut self, differences: impl IntoIterator<Item = String>) {
        self.0.extend(differences);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks for what the exchange cannot rely on in a server. JetStream may also be that of another server, behind it.
    pub(super) fn check_server(&mut self, info: &ServerInfo, has_jetstream: bool) {
        self.0.extend(version_difference(&info.version));
        if !has_jetstream {
            let remedy = "start nats-server with a `jetstream` block or `--jetstream`; on a leaf node, give the hub's \
                          block a `domain` and set `default_js_domain` to it";
            self.0.push(difference("JetStream", "off", "on", remedy));
        }
        if info.max_payload < RECORD_BYTES_MAX {
            let (found, needed) = (info.max_payload.to_string(), format!("at least {RECORD_BYTES_MAX}"));
            let remedy = "raise `max_payload` in the server configuration";
            self.0.push(difference("max_payload", &found, &needed, remedy));
        }
    }

    /// Compares the log, taking from it what the options leave open, and returns its number of lanes.
    pub(super) fn check_log(&mut self, found: &Config, options: &NatsOptions) -> u8 {
        let mut needed = log(options);
        let lanes = found.metadata.get(LANES_KEY).and_then(|lanes| lanes.parse().ok()).filter(|&lanes: &u8| lanes > 0);
        if let (None, Some(lanes)) = (options.lanes, lanes) {
            needed.metadata.insert(LANES_KEY.to_owned(), lanes.to_string());
        }
        if options.log_bytes_max.is_none() {
            needed.max_bytes = found.max_bytes;
        }
        self.check_stream(found, &needed);
        lanes.unwrap_or(LANES_DEFAULT)
    }

    /// Compares a stream.
    pub(super) fn check_stream(&mut self, found: &Config, needed: &Config) {
        self.0.extend(SETTINGS.iter().filter_map(|(name, show, remedy)| {
            let (is, ought) = (show(found), show(needed));
            let name = format!("stream {} {name}", needed.name);
            (is != ought).then(|| difference(&name, &is, &ought, remedy))
        }));
    }

    pub(super) fn into_result(self) -> Result<(), BusError> {
        if self.0.is_empty() { Ok(()) } else { Err(BusError::Mismatch(self.0.join("; "))) }
    }
}

/// A setting that is compared: its name, how it reads, what to do when it differs.
type Setting = (&'static str, fn(&Config) -> String, &'static str);

const EDIT: &str = "set it with `nats stream edit`";
const RECREATE: &str = "it cannot be changed: back up, delete and let it be created anew";

const SETTINGS: &[Setting] = &[
    ("subjects", |config| sorted(&config.subjects), EDIT),
    ("storage", |config| format!("{:?}", config.storage), RECREATE),
    (
        "replicas",
        |config| config.num_replicas.max(1).to_string(),
        "set it with `nats stream edit --replicas`, or change the configured number of replicas",
    ),
    ("retention", |config| format!("{:?}", config.retention), RECREATE),
    ("discard", |config| format!("{:?}", config.discard), EDIT),
    ("discard_new_per_subject", |config| config.discard_new_per_subject.to_string(), EDIT),
    ("max_msgs_per_subject", |config| limit(config.max_messages_per_subject), EDIT),
    ("max_msgs", |config| limit(config.max_messages), EDIT),
    (
        "max_bytes",
        |config| limit(config.max_bytes),
        "set it with `nats stream edit --max-bytes`, or change the configured size of the log",
    ),
    ("max_age", |config| format!("{:?}", config.max_age), EDIT),
    ("max_msg_size", |config| limit(config.max_message_size.into()), EDIT),
    ("max_consumers", |config| limit(config.max_consumers.into()), RECREATE),
    ("deny_delete", |config| config.deny_delete.to_string(), RECREATE),
    ("deny_purge", |config| config.deny_purge.to_string(), RECREATE),
    ("allow_rollup", |config| config.allow_rollup.to_string(), EDIT),
    (
        "allow_msg_ttl",
        |config| config.allow_message_ttl.to_string(),
        "turn it on with `nats stream edit --allow-msg-ttl`; a stream that has it cannot lose it: back up, delete and \
         let it be created anew",
    ),
    ("no_ack", |config| config.no_ack.to_string(), EDIT),
    ("sealed", |config| config.sealed.to_string(), RECREATE),
    ("mirror", |config| config.mirror.is_some().to_string(), RECREATE),
    ("sources", |config| config.sources.as_ref().is_some_and(|sources| !sources.is_empty()).to_string(), EDIT),
    ("subject_transform", |config| config.subject_transform.is_some().to_string(), EDIT),
    ("persist_mode", |config| format!("{:?}", config.persist_mode.unwrap_or(PersistenceMode::Default)), RECREATE),
    ("metadata llmx-format", |config| metadata(config, FORMAT_KEY), "use the version of llmx that created it"),
    (
        "metadata llmx-lanes",
        |config| metadata(config, LANES_KEY),
        "the number of lanes is fixed when the log is created: configure that number",
    ),
];

/// The server writes "no limit" as -1, a client may leave it at 0.
fn limit(value: i64) -> String {
    if value <= 0 { "unlimited".to_owned() } else { value.to_string() }
}

fn metadata(config: &Config, key: &str) -> String {
    config.metadata.get(key).cloned().unwrap_or_else(|| "none".to_owned())
}

fn sorted(subjects: &[String]) -> String {
    let mut subjects = subjects.to_vec();
    subjects.sort();
    subjects.join(" ")
}

/// The version of how the streams are used.
const FORMAT: &str = "1";
/// Largest value of a register key or a bucket: documents are far smaller, and this bounds what a fault can store.
const VALUE_BYTES_MAX: usize = 256 * 1024;
/// Duplicate window of the streams. Nothing relies on it; short, because the server remembers ids that long.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(1);

/// The log's stream.
pub(super) fn log(options: &NatsOptions) -> Config {
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
pub(super) fn register(options: &NatsOptions) -> Config {
    let mut config = base(REGISTER_STREAM, options);
    config.subjects = subject::ALL_REGISTER.map(str::to_owned).to_vec();
    config.max_messages_per_subject = 1;
    config.discard_new_per_subject = true;
    // Single messages stay; what is archived goes by a purge of its subject (docs/spec/log.md#lg-42).
    config.deny_delete = true;
    config
}

/// A bucket's stream, laid out as NATS key-value stores are (ADR-8).
pub(super) fn bucket(bucket: Bucket, options: &NatsOptions) -> Config {
    let name = bucket.as_str();
    let mut config = base(&format!("KV_{name}"), options);
    config.subjects = vec![format!("$KV.{name}.>")];
    config.max_messages_per_subject = 1;
    config.deny_delete = true;
    config.allow_rollup = true;
    config.allow_direct = true;
    config.allow_message_ttl = true;
    config
}

/// The stream of large documents, laid out as NATS object stores are (ADR-20).
pub(super) fn documents(options: &NatsOptions) -> Config {
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

/// Oldest server: before it a replicated write-once stream could differ between its copies (nats-server #7607).
const VERSION_MIN: Version = Version::new(2, 12, 3);

/// What is wrong with a server of this version, or of a text that is no version; none when it is new enough. A pre-release
/// (`2.12.3-RC.1`) comes before its version.
#[must_use]
pub fn version_difference(version: &str) -> Option<String> {
    match Version::parse(version.strip_prefix('v').unwrap_or(version)) {
        Ok(found) if found >= VERSION_MIN => None,
        Ok(_) | Err(_) => {
            let needed = format!("{VERSION_MIN} or newer");
            Some(difference("nats-server version", version, &needed, "run scripts/nats-server, or upgrade the server"))
        }
    }
}

#[cfg(test)]
mod version_tests {
    use super::*;

    #[test]
    fn servers_older_than_the_write_once_fix_are_refused() {
        for (text, is_fine) in [
            ("2.12.3", true),
            ("v2.12.3", true),
            ("2.12.4", true),
            ("2.13.0", true),
            ("2.15.1", true),
            ("3.0.0", true),
            ("2.12.4-RC.1", true),
            ("2.12.3-RC.2", false),
            ("2.12.2", false),
            ("2.9.10", false),
            ("1.99.99", false),
            ("", false),
            ("2.15", false),
            ("2.15.1.1", false),
            ("two", false),
        ] {
            assert_eq!(version_difference(text).is_none(), is_fine, "{text:?}");
        }
        let told = version_difference("2.9.10").unwrap();
        assert!(told.starts_with("nats-server version: found 2.9.10, needed 2.12.3 or newer, run "), "{told}");
    }
}
