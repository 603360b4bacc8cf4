//! Where a document can be had. A `data:` source holds the document itself, in the two forms that the package
//! `agora-protocol` reads and in the one that it writes.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use schemas::{Code, Refusal};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::document::DOCUMENT_BYTES_MAX;

/// Sources of one document; whoever has more is asked for the first of them.
pub const SOURCES_MAX: usize = 8;
/// Bytes of a `data:` source: each byte of a document takes at most three.
const DATA_BYTES_MAX: usize = 3 * DOCUMENT_BYTES_MAX + 64;
/// Bytes of a URL, as common servers limit it.
const URL_BYTES_MAX: usize = 2048;

const BASE64_PREFIX: &str = "data:text/plain;charset=utf-8;base64,";
const PERCENT_PREFIX: &str = "data:text/plain;charset=utf-8,";
/// What Python's `urllib.parse.quote` leaves as it is, `/` included.
const QUOTED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-').remove(b'~').remove(b'/');

/// Where a document can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentSource {
    /// The text itself.
    Data(String),
    /// An address to fetch it from; which ones may be fetched is not said here.
    Url(String),
}

impl DocumentSource {
    /// Reads a source.
    ///
    /// # Errors
    /// [`Code::TooLarge`]; [`Code::BadFormat`] for a `data:` source in another form, [`Code::NotAllowed`] for another
    /// scheme than `data`, `http` and `https`.
    pub fn try_new(text: &str) -> Result<Self, Refusal> {
        if let Some(encoded) = text.strip_prefix(BASE64_PREFIX) {
            check_length(text, DATA_BYTES_MAX)?;
            let bytes = STANDARD.decode(encoded).map_err(|_| unreadable_data())?;
            return String::from_utf8(bytes).map(Self::Data).map_err(|_| unreadable_data());
        }
        if let Some(encoded) = text.strip_prefix(PERCENT_PREFIX) {
            check_length(text, DATA_BYTES_MAX)?;
            let decoded = percent_decode_str(encoded).decode_utf8().map_err(|_| unreadable_data())?;
            return Ok(Self::Data(decoded.into_owned()));
        }
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
        match scheme.as_str() {
            "data" => Err(unreadable_data()),
            "http" | "https" => {
                check_length(text, URL_BYTES_MAX)?;
                Ok(Self::Url(text.to_owned()))
            }
            _ => Err(Refusal::new(Code::NotAllowed, "the source is of a scheme that is not read")
                .expecting("data:, https: or http:")),
        }
    }

    /// The source that holds a text itself.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self::Data(text.to_owned())
    }
}

fn check_length(text: &str, bytes_max: usize) -> Result<(), Refusal> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    Err(Refusal::new(Code::TooLarge, "the source is too long").expecting(format!("at most {bytes_max} bytes")))
}

fn unreadable_data() -> Refusal {
    Refusal::new(Code::BadFormat, "the data source is not readable as text").expecting(format!(
        "{PERCENT_PREFIX}<percent-encoded UTF-8>, or {BASE64_PREFIX}<standard base64 of UTF-8>; the charset may not be left out"
    ))
}

impl fmt::Display for DocumentSource {
    /// A text is written in the percent form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(text) => write!(f, "{PERCENT_PREFIX}{}", utf8_percent_encode(text, QUOTED)),
            Self::Url(url) => f.write_str(url),
        }
    }
}

impl Serialize for DocumentSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DocumentSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::try_new(&text).map_err(serde::de::Error::custom)
    }
}
