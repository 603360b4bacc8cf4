//! What the exchange needs of a server and its streams, and how what it finds differs.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::ServerInfo;
use async_nats::jetstream::stream::{Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType};
use schemas::record::RECORD_BYTES_MAX;
use schemas::subject;

use super::version::Version;
use super::{LOG_STREAM, NatsOptions, REGISTER_STREAM, Storage};
use crate::{Bucket, BusError, LANES_DEFAULT};

/// Metadata key of the log's number of lanes, fixed when the log is created.
const LANES_KEY: &str = "llmx-lanes";
/// Metadata key of the version of how the streams are used.
const FORMAT_KEY: &str = "llmx-format";
/// The version of how the streams are used.
const FORMAT: &str = "1";
/// Largest value of a register key or a bucket: documents are far smaller, and this bounds what a fault can store.
const VALUE_BYTES_MAX: usize = 256 * 1024;
/// Duplicate window of the streams. Nothing relies on it; short, because the server remembers ids that long.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(1);

/// How a difference reads, for the operator.
pub(super) fn difference(name: &str, found: &str, needed: &str, remedy: &str) -> String {
    format!("{name}: found {found}, needed {needed}, {remedy}")
}

/// Refuses a server the exchange cannot rely on.
pub(super) fn check_server(info: &ServerInfo) -> Result<(), BusError> {
    let mut mismatches = Mismatches::default();
    mismatches.0.extend(Version::difference(&info.version));
    if !info.jetstream {
        let remedy = "start nats-server with a `jetstream` block or `--jetstream`";
        mismatches.0.push(difference("JetStream", "off", "on", remedy));
    }
    if info.max_payload < RECORD_BYTES_MAX {
        let (found, needed) = (info.max_payload.to_string(), format!("at least {RECORD_BYTES_MAX}"));
        mismatches.0.push(difference(
            "max_payload",
            &found,
            &needed,
            "raise `max_payload` in the server configuration",
        ));
    }
    mismatches.into_result()
}

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
    config.deny_delete = true;
    config.deny_purge = true;
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

/// A setting that is compared: its name, how it reads, what to do when it differs.
struct Setting {
    name: &'static str,
    show: fn(&Config) -> String,
    remedy: &'static str,
}

const EDIT: &str = "set it with `nats stream edit`";
const RECREATE: &str = "it cannot be changed: back up, delete and let it be created anew";

const SETTINGS: &[Setting] = &[
    Setting { name: "subjects", show: |config| sorted(&config.subjects), remedy: EDIT },
    Setting { name: "storage", show: |config| format!("{:?}", config.storage), remedy: RECREATE },
    Setting {
        name: "replicas",
        show: |config| config.num_replicas.max(1).to_string(),
        remedy: "set it with `nats stream edit --replicas`, or change the configured number of replicas",
    },
    Setting { name: "retention", show: |config| format!("{:?}", config.retention), remedy: RECREATE },
    Setting { name: "discard", show: |config| format!("{:?}", config.discard), remedy: EDIT },
    Setting {
        name: "discard_new_per_subject",
        show: |config| config.discard_new_per_subject.to_string(),
        remedy: EDIT,
    },
    Setting { name: "max_msgs_per_subject", show: |config| limit(config.max_messages_per_subject), remedy: EDIT },
    Setting { name: "max_msgs", show: |config| limit(config.max_messages), remedy: EDIT },
    Setting {
        name: "max_bytes",
        show: |config| limit(config.max_bytes),
        remedy: "set it with `nats stream edit --max-bytes`, or change the configured size of the log",
    },
    Setting { name: "max_age", show: |config| format!("{:?}", config.max_age), remedy: EDIT },
    Setting { name: "max_msg_size", show: |config| limit(config.max_message_size.into()), remedy: EDIT },
    Setting { name: "max_consumers", show: |config| limit(config.max_consumers.into()), remedy: RECREATE },
    Setting { name: "deny_delete", show: |config| config.deny_delete.to_string(), remedy: RECREATE },
    Setting { name: "deny_purge", show: |config| config.deny_purge.to_string(), remedy: RECREATE },
    Setting { name: "allow_rollup", show: |config| config.allow_rollup.to_string(), remedy: EDIT },
    Setting { name: "allow_msg_ttl", show: |config| config.allow_message_ttl.to_string(), remedy: RECREATE },
    Setting { name: "no_ack", show: |config| config.no_ack.to_string(), remedy: EDIT },
    Setting { name: "sealed", show: |config| config.sealed.to_string(), remedy: RECREATE },
    Setting { name: "mirror", show: |config| config.mirror.is_some().to_string(), remedy: RECREATE },
    Setting {
        name: "sources",
        show: |config| config.sources.as_ref().is_some_and(|sources| !sources.is_empty()).to_string(),
        remedy: EDIT,
    },
    Setting { name: "subject_transform", show: |config| config.subject_transform.is_some().to_string(), remedy: EDIT },
    Setting {
        name: "persist_mode",
        show: |config| format!("{:?}", config.persist_mode.unwrap_or(PersistenceMode::Default)),
        remedy: RECREATE,
    },
    Setting {
        name: "metadata llmx-format",
        show: |config| metadata(config, FORMAT_KEY),
        remedy: "use the version of llmx that created it",
    },
    Setting {
        name: "metadata llmx-lanes",
        show: |config| metadata(config, LANES_KEY),
        remedy: "the number of lanes is fixed when the log is created: configure that number",
    },
];

/// Every difference found, each with its remedy.
#[derive(Debug, Default)]
pub(super) struct Mismatches(Vec<String>);

impl Mismatches {
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
        self.0.extend(SETTINGS.iter().filter_map(|setting| {
            let (is, ought) = ((setting.show)(found), (setting.show)(needed));
            let name = format!("stream {} {}", needed.name, setting.name);
            (is != ought).then(|| difference(&name, &is, &ought, setting.remedy))
        }));
    }

    pub(super) fn into_result(self) -> Result<(), BusError> {
        if self.0.is_empty() { Ok(()) } else { Err(BusError::Mismatch(self.0.join("; "))) }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_everything_it_lacks_at_once() {
        let info = ServerInfo { version: "2.9.10".to_owned(), max_payload: 1024, ..ServerInfo::default() };
        let BusError::Mismatch(told) = check_server(&info).unwrap_err() else { panic!("another error") };
        for name in ["nats-server version", "JetStream", "max_payload"] {
            assert!(told.contains(&format!("{name}: found ")), "{name} in {told}");
        }
    }

    #[test]
    fn a_log_takes_from_the_live_stream_what_the_options_leave_open() {
        let created = NatsOptions { lanes: Some(7), log_bytes_max: Some(1 << 30), ..NatsOptions::new("") };
        let live = log(&created);
        let mut mismatches = Mismatches::default();
        assert_eq!(mismatches.check_log(&live, &NatsOptions::new("")), 7);
        assert!(mismatches.into_result().is_ok());
    }

    #[test]
    fn every_setting_that_differs_is_named_with_both_values() {
        let options = NatsOptions::new("");
        let needed = register(&options);
        let mut found = needed.clone();
        found.discard_new_per_subject = false;
        found.max_messages_per_subject = -1;
        found.max_age = Duration::from_secs(60);
        found.persist_mode = Some(PersistenceMode::Async);
        let mut mismatches = Mismatches::default();
        mismatches.check_stream(&found, &needed);
        let expected = [
            "stream LLMX_REGISTER discard_new_per_subject: found false, needed true",
            "stream LLMX_REGISTER max_msgs_per_subject: found unlimited, needed 1",
            "stream LLMX_REGISTER max_age: found 60s, needed 0ns",
            "stream LLMX_REGISTER persist_mode: found Async, needed Default",
        ];
        assert_eq!(mismatches.0.len(), expected.len());
        for (told, expected) in mismatches.0.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
