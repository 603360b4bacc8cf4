//! What is wrong with a document that a person wrote, and where.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use schemas::bargain::space::SpaceFault;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

/// What is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", if pointer.is_empty() { "the document" } else { pointer })]
pub struct DocumentFault {
    /// JSON pointer (RFC 6901) to the member at fault; empty for the document itself.
    pub pointer: String,
    /// What is wrong, or what would be right.
    pub detail: String,
}

impl From<SpaceFault> for DocumentFault {
    fn from(fault: SpaceFault) -> Self {
        Self::at(fault.pointer, fault.reason)
    }
}

impl DocumentFault {
    /// A fault at a pointer.
    #[must_use]
    pub fn at(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }

    /// The same fault, seen from a document this one stands in.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        Self { pointer: format!("{prefix}{}", self.pointer), ..self }
    }
}

/// Whether a text has a length, in characters, and nothing in it that steers a terminal: texts are printed as they are.
///
/// # Errors
/// A [`DocumentFault`] at the text itself.
pub fn check_text(text: &str, range: RangeInclusive<usize>) -> Result<(), DocumentFault> {
    if !range.contains(&text.chars().count()) {
        return Err(DocumentFault::at("", format!("{} to {} characters", range.start(), range.end())));
    }
    let is_plain = !text.chars().any(|letter| letter.is_control() && letter != '\n');
    if is_plain { Ok(()) } else { Err(DocumentFault::at("", "has control characters")) }
}

/// Whether numbers lie within their ranges: each by its pointer, absent or not, with the least and the most.
///
/// # Errors
/// A [`DocumentFault`] at the first that does not.
pub fn check_ranges<'a>(
    numbers: impl IntoIterator<Item = (&'a str, Option<u64>, u64, u64)>,
) -> Result<(), DocumentFault> {
    let is_outside = |(_, number, least, most): &(&str, Option<u64>, u64, u64)| {
        number.is_some_and(|number| !(*least..=*most).contains(&number))
    };
    numbers
        .into_iter()
        .find(is_outside)
        .map_or(Ok(()), |(pointer, _, least, most)| Err(DocumentFault::at(pointer, format!("{least} to {most}"))))
}

/// Reads a JSON document that holds nothing else.
///
/// # Errors
/// A [`DocumentFault`] at the first member that does not fit.
pub fn read_json<T: DeserializeOwned>(json: &str) -> Result<T, DocumentFault> {
    let mut source = serde_json::Deserializer::from_str(json);
    let document: T = serde_path_to_error::deserialize(&mut source)
        .map_err(|error| DocumentFault::at(pointer(error.path()), error.inner().to_string()))?;
    source.end().map_err(|error| DocumentFault::at("", error.to_string()))?;
    Ok(document)
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        // Writing to a string cannot fail.
        let _written = match segment {
            Segment::Seq { index } => write!(pointer, "/{index}"),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                write!(pointer, "/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Segment::Unknown => Ok(()),
        };
    }
    pointer
}
