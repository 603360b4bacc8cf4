//! Logs: on stderr, as text for a person and as JSON for everything else, without what must not be told ([`redact`]).
//!
//! A line of JSON is one object: `timestamp`, `level`, `target`, `message`, where the event has them `negotiation` and
//! `trace_id` (written only by who knows them: the trace of a negotiation is that of its call's `traceparent`, which its id
//! does not tell), and all other fields under `fields`.

mod json;
mod limit;
pub mod redact;
pub mod stderr;

use std::fmt;

#[cfg(test)]
use tracing::Subscriber;
use tracing::field::Field;
use tracing::{Level, Metadata};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::writer::MakeWriterExt as _;
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use self::limit::LineLimit;
use crate::terminal::is_control;
use redact::{REDACTED, is_secret, scrub};

/// What is logged where nothing else is asked for: warnings, every refusal, and every lane that an engine takes over.
pub const FILTER_DEFAULT: &str = "warn,llmx::audit=info,llmx::takeover=info";

/// What carries the logs and spans of others: it is quiet unless it is named.
const CARRIERS: [(&str, &str); 7] = [
    ("hyper", "warn"),
    ("hyper_util", "warn"),
    ("reqwest", "warn"),
    ("h2", "warn"),
    ("rustls", "warn"),
    ("opentelemetry", "off"),
    ("opentelemetry_sdk", "off"),
];

/// What logs whole messages, tokens and mandates included, below these levels: it never may.
const TELLTALES: [(&str, Level); 4] = [
    ("tungstenite", Level::WARN),
    ("tokio_tungstenite", Level::WARN),
    ("async_nats", Level::WARN),
    ("rmcp", Level::ERROR),
];

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a person.
    Text,
    /// For everything else.
    Json,
}

impl Format {
    /// What is asked for; otherwise text on a terminal and JSON elsewhere.
    ///
    /// # Errors
    /// What is asked for and not known.
    pub fn read(asked: Option<&str>, is_terminal: bool) -> Result<Self, String> {
        match asked.map(str::trim).filter(|asked| !asked.is_empty()) {
            None if is_terminal => Ok(Self::Text),
            None => Ok(Self::Json),
            Some("text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some(other) => Err(format!("`{other}` is not known; text or json")),
        }
    }
}

/// Sends the logs of this process to stderr, by [`mod@stderr`]. `asked` is a filter as `RUST_LOG` has it; one that cannot be read, or none,
/// gives [`FILTER_DEFAULT`]. Of each warning and error there are 20 lines a minute, then a count. Only the first start counts.
pub fn start(asked: Option<&str>, format: Format) {
    let limit = LineLimit::default();
    let layer = layer(asked, format, stderr::stderr().clone(), limit.clone());
    // A second start can only come from tests in one process.
    if tracing_subscriber::registry().with(layer).try_init().is_ok() {
        limit.start();
    }
}

fn layer<W>(asked: Option<&str>, format: Format, writer: W, limit: LineLimit) -> impl Layer<Registry>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let writer = writer.with_filter(move |line| limit.admits(line));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        Format::Text => lines.with_ansi(false).fmt_fields(text_fields()).boxed(),
        Format::Json => lines.event_format(json::Json).boxed(),
    };
    // Without a hint of its own, this second filter would hide the first one's, and every `trace!` of every library would be
    // looked at.
    let discreet = filter_fn(may_be_told).with_max_level_hint(LevelFilter::TRACE);
    lines.with_filter(filter(asked).and(discreet))
}

/// The fields of an event for a person: `message` first as it stands, then `name=value`.
fn text_fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    debug_fn(|writer: &mut Writer<'_>, field: &Field, value| match field.name() {
        name if is_secret(name) => write!(writer, "{name}={REDACTED}"),
        "message" => write_plain(writer, &scrub(&format!("{value:?}"))),
        name => {
            write!(writer, "{name}=")?;
            write_plain(writer, &scrub(&format!("{value:?}")))
        }
    })
    .delimited(" ")
}

/// Control characters are spelled out: a name that holds a line feed must not look like another line.
fn write_plain(writer: &mut Writer<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|c| match c {
        c if is_control(c) => write!(writer, "{}", c.escape_default()),
        c => writer.write_char(c),
    })
}

fn may_be_told(event: &Metadata<'_>) -> bool {
    let origin = event.target().split("::").next().unwrap_or_default();
    TELLTALES.iter().all(|(name, least)| *name != origin || event.level() <= least)
}

fn filter(asked: Option<&str>) -> EnvFilter {
    let asked = asked.filter(|asked| !asked.trim().is_empty()).unwrap_or(FILTER_DEFAULT);
    let unnamed = CARRIERS.iter().filter(|(name, _)| !asked.contains(name));
    let quiet: String = unnamed.map(|(name, level)| format!(",{name}={level}")).collect();
    EnvFilter::try_new(format!("{asked}{quiet}")).unwrap_or_else(|_| EnvFilter::new(format!("{FILTER_DEFAULT}{quiet}")))
}

/// A subscriber that writes to `writer` and belongs to nobody yet.
#[cfg(test)]
fn subscriber<W>(asked: Option<&str>, format: Format, writer: W, limit: LineLimit) -> impl Subscriber
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::registry().with(layer(asked, format, writer, limit))
}

#[cfg(test)]
mod tests;
