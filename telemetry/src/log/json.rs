//! One event as one line of JSON.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::redact::{REDACTED, is_secret, scrub};
use crate::terminal;

/// Fields that stand beside the message, where tools that join logs and traces look for them.
const LIFTED: [&str; 3] = ["message", "negotiation", "trace_id"];

pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), time.into());
        line.insert("level".to_owned(), metadata.level().as_str().into());
        line.insert("target".to_owned(), metadata.target().into());
        for name in LIFTED {
            if let Some(value) = fields.0.remove(name) {
                line.insert(name.to_owned(), value);
            }
        }
        if !fields.0.is_empty() {
            line.insert("fields".to_owned(), Value::Object(fields.0));
        }
        writeln!(writer, "{}", terminal::json(&Value::Object(line).to_string()))
    }
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, field: &Field, value: impl FnOnce() -> Value) {
        let value = if is_secret(field.name()) { REDACTED.into() } else { value() };
        self.0.insert(field.name().trim_start_matches("r#").to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, || value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, || value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, || value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, || value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, || scrub(value).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, || scrub(&format!("{value:?}")).into());
    }
}
