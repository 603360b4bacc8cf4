//! The lines of an archive.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemas::{Digest, Lane, NegotiationId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Version of the format this build writes.
pub(super) const FORMAT: u32 = 1;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line<'a> {
    /// The first of every segment.
    Begin(Begin),
    /// A record of the log.
    #[serde(borrow)]
    Record(LoggedLine<'a>),
    /// What a record ended: see [`super::history::Closed`].
    Closed(&'a RawValue),
    /// What the register held.
    Registered(RegisteredLine<'a>),
    /// A clean stop.
    End(SegmentEnd),
}

/// The head of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) format: u32,
    pub(super) lane: Lane,
    /// Lanes of the log.
    pub(super) lanes: u8,
    /// Number of the segment within the lane, from 0.
    pub(super) segment: u32,
    /// No record of the lane from this sequence on stands in an earlier segment; the name of the file.
    pub(super) from: u64,
    /// The chain after the last line of the segment before.
    pub(super) chain: Digest,
}

/// A record of the log: `record` or `base64`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LoggedLine<'a> {
    pub(super) seq: u64,
    pub(super) time: Timestamp,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) record: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
}

/// What the register held for a negotiation that the record `seq` ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RegisteredLine<'a> {
    pub(super) negotiation: NegotiationId,
    pub(super) seq: u64,
    #[serde(borrow)]
    pub(super) entries: Vec<RegisteredEntry<'a>>,
}

/// One key: `value`, or `base64`, or neither when the register had no answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RegisteredEntry<'a> {
    pub(super) key: String,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
}

/// A clean stop.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentEnd {
    /// The last record of the lane, 0 for none.
    pub(super) position: u64,
}

/// Bytes as they stand in a line: as they are when they are one JSON object on one line, otherwise in base64.
pub(super) fn as_content(bytes: &[u8]) -> (Option<&RawValue>, Option<String>) {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.starts_with('{') && !text.contains(['\n', '\r']));
    let json = text.and_then(|text| serde_json::from_str::<&RawValue>(text).ok().filter(|json| json.get() == text));
    let base64 = json.is_none().then(|| BASE64_STANDARD.encode(bytes));
    (json, base64)
}

/// The bytes of a line's content; none where nothing stands.
///
/// # Errors
/// When the base64 is none.
pub(super) fn as_bytes<'a>(json: Option<&'a RawValue>, base64: Option<&str>) -> Result<Option<Cow<'a, [u8]>>, String> {
    match (json, base64) {
        (Some(json), _) => Ok(Some(Cow::Borrowed(json.get().as_bytes()))),
        (None, Some(base64)) => {
            Ok(Some(Cow::Owned(BASE64_STANDARD.decode(base64).map_err(|error| format!("its base64: {error}"))?)))
        }
        (None, None) => Ok(None),
    }
}

/// A document of ours as one line of JSON.
pub(super) fn text(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("integers, texts and documents read before can all be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_their_line() {
        for bytes in [
            br#"{"v":1}"#.as_slice(),
            br#" {"v":1}"#,
            b"{\"v\":\n1}",
            br#"{"v":1"#,
            b"null",
            b"",
            &[0xff, 0x00],
            "{\"é\":\"\u{2028}\"}".as_bytes(),
        ] {
            let (record, base64) = as_content(bytes);
            let line = text(&Line::Record(LoggedLine { seq: 1, time: Timestamp(2), record, base64 }));
            assert!(!line.contains('\n'), "{line}");
            let Ok(Line::Record(read)) = serde_json::from_str(&line) else { panic!("{line}") };
            let found = as_bytes(read.record, read.base64.as_deref()).unwrap();
            assert_eq!(found.as_deref(), Some(bytes), "{line}");
        }
    }
}
