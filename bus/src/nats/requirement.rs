//! What the exchange needs of a server and its streams, and how what it finds differs.

mod settings;
mod streams;

use async_nats::ServerInfo;
use async_nats::jetstream::stream::Config;
use schemas::record::RECORD_BYTES_MAX;

use self::settings::SETTINGS;
pub(super) use self::streams::{bucket, documents, log, register};
use super::NatsOptions;
use super::version::Version;
use crate::{BusError, LANES_DEFAULT};

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
        self.0.extend(Version::difference(&info.version));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_nats::jetstream::stream::PersistenceMode;

    use super::*;

    #[test]
    fn a_server_is_told_everything_it_lacks_at_once() {
        let info = ServerInfo { version: "2.9.10".to_owned(), max_payload: 1024, ..ServerInfo::default() };
        let mut mismatches = Mismatches::default();
        mismatches.check_server(&info, false);
        let BusError::Mismatch(told) = mismatches.into_result().unwrap_err() else { panic!("another error") };
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
