//! Refusals as clients read them: RFC 9457 problem documents, the same on every way in.

use schemas::{Code, Refusal};
use serde::Serialize;

/// Media type of a problem document over HTTP.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// When to come back to a full store, in milliseconds: trimming takes seconds, an operator minutes.
const FULL_RETRY_MS: u64 = 5000;
/// Names a refusal suggests.
const SUGGESTED_MAX: usize = 3;
/// Characters of a wanted name that are compared: more than any name has.
const WANTED_CHARS_MAX: usize = 256;
/// Names compared on either side of the one looked for, in alphabetical order. It bounds what a refusal costs.
pub(crate) const AROUND_MAX: usize = 128;

/// The refusal of everybody who finds the store full. The remedy is the operator's; senders lose nothing but time.
pub(crate) fn store_full() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "the store is full; nothing was stored. The operator has to make space: archive and checkpoint, so that the log is \
         trimmed, or raise the stream's max_bytes or the server's max_file_store, whichever is reached (the gateway's log \
         says which). Send the same again later: a message under the same msg_id",
    )
    .retry_after_ms(FULL_RETRY_MS)
}

/// The names that take the fewest changes of a letter to become the wanted one; of equals, the first in the alphabet.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted: String = wanted.chars().take(WANTED_CHARS_MAX).collect();
    let mut by_distance: Vec<_> =
        names.take(2 * AROUND_MAX).map(|name| (strsim::osa_distance(&wanted, name), name)).collect();
    by_distance.sort_unstable();
    by_distance.into_iter().take(SUGGESTED_MAX).map(|(_, name)| name).collect()
}

/// A problem document.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Problem<'a> {
    /// Names the kind of problem; stable, one per code.
    #[serde(rename = "type")]
    kind: String,
    /// The kind in words.
    title: &'static str,
    /// The HTTP status that goes with the code, also where no HTTP is spoken.
    status: u16,
    #[serde(flatten)]
    refusal: &'a Refusal,
}

impl<'a> From<&'a Refusal> for Problem<'a> {
    fn from(refusal: &'a Refusal) -> Self {
        let code = refusal.code;
        Self { kind: format!("urn:llmx:problem:{code}"), title: title(code), status: code.http_status(), refusal }
    }
}

const fn title(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => "The token is not accepted",
        Code::TokenExpired => "The token is valid no more",
        Code::TokenNotYetValid => "The token is not valid yet",
        Code::Unauthorized => "Not yours to do",
        Code::NoConsent => "Nobody addressed consents",
        Code::NoRecipient => "Nobody to reach",
        Code::Unresponsive => "Nobody addressed acknowledges",
        Code::RateLimited => "Too many requests",
        Code::TooLarge => "Too large",
        Code::UnsupportedMediaType => "Not application/json",
        Code::RequestTimeout => "The request took too long to arrive",
        Code::MalformedRequest => "Not an HTTP request",
        Code::HeaderTooLarge => "The header is too large",
        Code::UpgradeRequired => "Another WebSocket version",
        Code::MalformedJson => "Not JSON",
        Code::DuplicateKey => "A member stands twice",
        Code::TooDeep => "Nested too deep",
        Code::MissingField => "A member is missing",
        Code::UnknownField => "An unknown member",
        Code::WrongType => "A value of another type",
        Code::OutOfRange => "Out of range",
        Code::BadFormat => "Malformed text",
        Code::NotAllowed => "A value that is not allowed",
        Code::BadDeadline => "No time left",
        Code::UnknownPolicy => "Unknown policy",
        Code::InvalidPolicy => "The policy contradicts itself",
        Code::Conflict => "Something else stands there",
        Code::NotFound => "Not found",
        Code::MethodNotAllowed => "Method not offered here",
        Code::LogUnavailable => "Outcome unknown",
        Code::Unavailable => "Not ready",
        Code::Overloaded => "Overloaded",
        Code::Internal => "A fault of the exchange",
    }
}
