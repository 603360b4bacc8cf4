use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;

const TOKEN: &str = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl";

#[test]
fn a_line_of_json_carries_message_negotiation_trace_and_fields() {
    let lines = written(Format::Json, None, || {
        tracing::warn!(negotiation = %"alice~1", trace_id = "0af7", attempts = 3, ok = false, ratio = 0.5, "dead letter");
    });
    let line: Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["target"], "telemetry::log::tests");
    assert_eq!(
        (&line["message"], &line["negotiation"], &line["trace_id"]),
        (&json!("dead letter"), &json!("alice~1"), &json!("0af7"))
    );
    assert_eq!(line["fields"], json!({"attempts": 3, "ok": false, "ratio": 0.5}));
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(lines.matches('\n').count(), 1);
}

#[test]
fn no_secret_is_written_in_either_format() {
    for format in [Format::Text, Format::Json] {
        let lines = written(format, None, || {
            let (token, reservation_value, mandate) = ("s3cret-a", 77_123_u64, Some("s3cret-b"));
            tracing::warn!(token, reservation_value, ?mandate, "kept");
            tracing::warn!(header = %format_args!("Bearer {TOKEN}"), "refused {TOKEN}");
            tracing::error!(error = ?std::io::Error::other(TOKEN), payload = true);
            tracing::warn!(authorization = 1.5, terms = -4_i64);
        });
        for secret in ["s3cret", "77123", "77_123", "c2lnbmF0dXJl", "eyJ", "true", "1.5", "-4"] {
            assert!(!lines.contains(secret), "{secret} is in {lines}");
        }
        assert_eq!(lines.lines().count(), 4, "{lines}");
        assert!(lines.contains("[redacted]") && lines.contains("kept") && lines.contains("refused"), "{lines}");
    }
}

#[test]
fn text_is_for_a_person() {
    let lines = written(Format::Text, None, || tracing::warn!(lane = 2, "the lane stops"));
    assert!(lines.trim_end().ends_with("WARN telemetry::log::tests: the lane stops lane=2"), "{lines}");
    let lines = written(Format::Text, None, || tracing::warn!(name = %"a\n\x1b[31mERROR", "a name"));
    assert!(lines.ends_with("a name name=a\\n\\u{1b}[31mERROR\n"), "{lines}");
}

#[test]
fn warnings_and_refusals_are_logged_unless_more_is_asked_for() {
    let log = || {
        tracing::info!("an info");
        tracing::info!(target: "llmx::audit", "a refusal");
        tracing::info!(target: "llmx::takeover", "a take-over");
        tracing::info!(target: "hyper::proto", "of a carrier");
        tracing::error!(target: "opentelemetry_sdk", "of the exporter");
    };
    let messages = |asked| {
        let lines = written(Format::Json, asked, log);
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["message"].to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(messages(None), ["\"a refusal\"", "\"a take-over\""]);
    assert_eq!(messages(Some("a filter that is none=[")), ["\"a refusal\"", "\"a take-over\""]);
    assert_eq!(messages(Some("debug")), ["\"an info\"", "\"a refusal\"", "\"a take-over\""]);
    assert_eq!(messages(Some("error,hyper=info")), ["\"of a carrier\""]);
}

#[test]
fn a_warning_that_comes_without_end_has_twenty_lines_a_minute_and_a_count_and_leaves_room_for_others() {
    let limit = LineLimit::default();
    let lines = written_within(Format::Text, Some("info"), limit.clone(), || {
        for minute in 0..2 {
            for number in 0..1000 {
                tracing::warn!(number, "full in minute {minute}");
            }
            tracing::error!("once");
            (0..100).for_each(|_| tracing::info!("an info"));
            limit.end_period();
        }
    });
    let count = |words: &str| lines.lines().filter(|line| line.contains(words)).count();
    assert_eq!((count("full in minute 0 number"), count("full in minute 1 number")), (20, 20));
    assert_eq!((count(": once"), count("an info")), (2, 200), "{lines}");
    let said = "came too often in a minute unwritten=980 place=\"telemetry/src/log/tests.rs:";
    assert_eq!(count(said), 2, "{lines}");
}

#[test]
fn libraries_need_not_ask_below_the_level_that_is_logged() {
    for (asked, expected) in
        [(None, LevelFilter::INFO), (Some("error"), LevelFilter::WARN), (Some("trace"), LevelFilter::TRACE)]
    {
        let subscriber = subscriber(asked, Format::Json, io::sink, LineLimit::default());
        assert_eq!(subscriber.max_level_hint(), Some(expected), "{asked:?}");
    }
}

#[test]
fn what_would_log_whole_messages_may_only_warn() {
    for asked in ["trace", "debug", "async_nats=trace", "tungstenite=trace", "tungstenite::protocol=trace"] {
        let lines = written(Format::Json, Some(asked), || {
            tracing::trace!(target: "tungstenite::protocol", "Received message {{}}");
            tracing::debug!(target: "tokio_tungstenite", "a handshake");
            tracing::debug!(target: "async_nats::jetstream::context", "JetStream request response");
            tracing::trace!(target: "async_nats::connection", "a handshake of NATS");
            tracing::warn!(target: "tungstenite::handshake", "a warning");
        });
        let may_not = ["Received", "a handshake", "JetStream"];
        assert!(may_not.iter().all(|words| !lines.contains(words)), "{asked}: {lines}");
    }
}

#[test]
fn the_format_is_what_is_asked_for_or_what_fits() {
    assert_eq!(Format::read(None, true), Ok(Format::Text));
    assert_eq!(Format::read(Some(" "), false), Ok(Format::Json));
    assert_eq!(Format::read(Some("text"), false), Ok(Format::Text));
    assert_eq!(Format::read(Some("json"), true), Ok(Format::Json));
    assert!(Format::read(Some("xml"), true).is_err());
}

/// What is written while `log` runs.
fn written(format: Format, asked: Option<&str>, log: impl FnOnce()) -> String {
    written_within(format, asked, LineLimit::default(), log)
}

fn written_within(format: Format, asked: Option<&str>, limit: LineLimit, log: impl FnOnce()) -> String {
    let buffer = Buffer::default();
    let kept = buffer.clone();
    tracing::subscriber::with_default(subscriber(asked, format, move || kept.clone(), limit), log);
    let bytes = buffer.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
