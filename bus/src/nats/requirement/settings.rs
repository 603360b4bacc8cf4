//! The settings of a stream that are compared, how each reads, and what to do when it differs.

use async_nats::jetstream::stream::{Config, PersistenceMode};

use super::{FORMAT_KEY, LANES_KEY};

/// A setting that is compared: its name, how it reads, what to do when it differs.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) show: fn(&Config) -> String,
    pub(super) remedy: &'static str,
}

const EDIT: &str = "set it with `nats stream edit`";
const RECREATE: &str = "it cannot be changed: back up, delete and let it be created anew";

pub(super) const SETTINGS: &[Setting] = &[
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
