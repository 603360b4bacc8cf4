//! The fields of an event for a person.

use std::fmt;

use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use super::redact::{REDACTED, is_secret, scrub};
use crate::terminal::is_control;

/// `message` first as it stands, then `name=value`.
pub(super) fn fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
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
