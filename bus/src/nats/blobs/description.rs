//! What an object store says of a document (ADR-20): where its content is, how much there is of it, and its digest.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use bytes::Bytes;
use schemas::{Digest, Timestamp, WireTime};
use serde_json::{Value, json};

use crate::BusError;
use crate::nats::DOCUMENT_BUCKET;

/// Largest document. A checkpoint of 100 000 open negotiations has a quarter of it; whoever reads one holds it whole.
pub(super) const DOCUMENT_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;
/// Content is stored in chunks of this size, as the client does.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;
/// Member of a description's metadata that holds the version.
const VERSION_KEY: &str = "llmx-version";

/// A document as it is described; the content is under [`Self::chunks_subject`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) version: u64,
    /// Names the chunks: `<name>.<version>.<random>`. An object store takes any unique id here; this one lets a later
    /// writer find, and remove, what interrupted ones have left.
    pub(super) id: String,
    pub(super) size: usize,
    pub(super) chunks: usize,
    pub(super) digest: Digest,
}

impl Description {
    pub(super) fn new(name: &str, version: u64, value: &Bytes, digest: Digest) -> Self {
        Self {
            name: name.to_owned(),
            version,
            id: format!("{name}.{version}.{:016x}", rand::random::<u64>()),
            size: value.len(),
            chunks: value.len().div_ceil(CHUNK_BYTES),
            digest,
        }
    }

    pub(super) fn chunks_subject(&self) -> String {
        chunks_subject(&self.id)
    }

    pub(super) fn encode(&self, modified: Timestamp) -> Bytes {
        let document = json!({
            "name": self.name,
            "bucket": DOCUMENT_BUCKET,
            "nuid": self.id,
            "size": self.size,
            "chunks": self.chunks,
            "mtime": WireTime(modified).to_string(),
            "digest": digest_text(self.digest),
            "metadata": { VERSION_KEY: self.version.to_string() },
            "options": { "max_chunk_size": CHUNK_BYTES },
        });
        Bytes::from(document.to_string())
    }

    /// Reads a description that [`Self::encode`] wrote, or says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BusError> {
        let fault = |what: &str| BusError::Unknown(format!("the description of a document has no {what}"));
        let document: Value = serde_json::from_slice(bytes).map_err(|_| fault("JSON"))?;
        let text = |member: &str| document[member].as_str().map(str::to_owned).ok_or_else(|| fault(member));
        let number = |member: &str| {
            let number = document[member].as_u64().and_then(|number| usize::try_from(number).ok());
            number.filter(|&number| number <= DOCUMENT_BYTES_MAX).ok_or_else(|| fault(member))
        };
        let version = document["metadata"][VERSION_KEY].as_str().and_then(|version| version.parse().ok());
        Ok(Self {
            name: text("name")?,
            version: version.ok_or_else(|| fault(VERSION_KEY))?,
            id: text("nuid")?,
            size: number("size")?,
            chunks: number("chunks")?,
            digest: parse_digest(&text("digest")?).ok_or_else(|| fault("digest"))?,
        })
    }
}

/// Where the chunks with this id are.
pub(super) fn chunks_subject(id: &str) -> String {
    format!("$O.{DOCUMENT_BUCKET}.C.{id}")
}

/// The chunks of every version of a document.
pub(super) fn all_chunks_subject(name: &str) -> String {
    format!("$O.{DOCUMENT_BUCKET}.C.{name}.>")
}

/// The version that chunks under this subject belong to.
pub(super) fn version_of(subject: &str) -> Option<u64> {
    let mut tokens = subject.rsplit('.');
    let _random = tokens.next()?;
    tokens.next()?.parse().ok()
}

/// Where a document's description is.
pub(super) fn description_subject(name: &str) -> String {
    format!("$O.{DOCUMENT_BUCKET}.M.{}", URL_SAFE.encode(name))
}

fn digest_text(digest: Digest) -> String {
    format!("SHA-256={}", URL_SAFE.encode(digest.0))
}

fn parse_digest(text: &str) -> Option<Digest> {
    let bytes = URL_SAFE.decode(text.strip_prefix("SHA-256=")?).ok()?;
    Some(Digest(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_reads_as_it_was_written() {
        let value = Bytes::from(vec![7; CHUNK_BYTES + 1]);
        let written = Description::new("checkpoint-0", 42, &value, Digest::of_bytes(&value));
        assert_eq!((written.size, written.chunks), (CHUNK_BYTES + 1, 2));
        assert_eq!(Description::decode(&written.encode(Timestamp(1))).unwrap(), written);
        assert_eq!(version_of(&written.chunks_subject()), Some(42));
    }

    #[test]
    fn a_description_that_lacks_something_is_refused_by_its_name() {
        let whole = Description::new("a", 1, &Bytes::new(), Digest::of_bytes(b"")).encode(Timestamp(1));
        for member in ["nuid", "size", "chunks", "digest", "metadata", "name"] {
            let mut document: Value = serde_json::from_slice(&whole).unwrap();
            document[member] = Value::Null;
            let told = Description::decode(document.to_string().as_bytes()).unwrap_err().to_string();
            let expected = if member == "metadata" { VERSION_KEY } else { member };
            assert!(told.contains(expected), "{member}: {told}");
        }
        assert!(Description::decode(b"{").is_err());
    }
}
