//! A protocol document: its text, its names, what it says of itself.

use schemas::{Code, Digest, Refusal};
use serde::{Deserialize, Serialize};

use crate::{DocumentHash, FrontMatter};

/// Bytes of a document. Those that models write have one to four thousand, and one of this length fits into a request
/// however it is escaped.
pub const DOCUMENT_BYTES_MAX: usize = 32 * 1024;

/// Whose document it is: ours must say everything of themselves, others' are completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Put by an agent of this exchange.
    Own,
    /// Received from elsewhere.
    Foreign,
}

/// A document that has been read. Its text never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolDocument {
    text: String,
    hash: DocumentHash,
    sha256: Digest,
    front_matter: FrontMatter,
}

/// What is said of a document without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentSummary {
    /// The name on the wire.
    pub hash: DocumentHash,
    /// What the name stands for once it is pinned.
    pub sha256: Digest,
    /// Its title.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// Whether it takes more than one round.
    pub multiround: bool,
    /// Length of its text.
    pub bytes: usize,
}

impl From<&ProtocolDocument> for DocumentSummary {
    fn from(document: &ProtocolDocument) -> Self {
        let FrontMatter { name, description, multiround, .. } = document.front_matter();
        Self {
            hash: document.hash,
            sha256: document.sha256,
            name: name.clone(),
            description: description.clone(),
            multiround: *multiround,
            bytes: document.text.len(),
        }
    }
}

impl ProtocolDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// [`Refusal`] at `/document`: too large, or a front matter that [`FrontMatter::of_text`] refuses.
    pub fn try_new(text: &str, origin: Origin) -> Result<Self, Refusal> {
        if text.len() > DOCUMENT_BYTES_MAX {
            return Err(Refusal::new(Code::TooLarge, "the document is too long")
                .at("/document")
                .expecting(format!("at most {DOCUMENT_BYTES_MAX} bytes of UTF-8")));
        }
        let front_matter = FrontMatter::of_text(text, origin)?;
        let (hash, sha256) = (DocumentHash::of_bytes(text.as_bytes()), Digest::of_bytes(text.as_bytes()));
        Ok(Self { text: text.to_owned(), hash, sha256, front_matter })
    }

    /// Reads the document that is wanted under a hash.
    ///
    /// # Errors
    /// [`Code::NotAllowed`] at `/hash` for a text of another hash; as [`ProtocolDocument::try_new`].
    pub fn verified(text: &str, wanted: DocumentHash, origin: Origin) -> Result<Self, Refusal> {
        let document = Self::try_new(text, origin)?;
        if document.hash == wanted {
            return Ok(document);
        }
        Err(Refusal::new(Code::NotAllowed, "the text is another document than the hash names")
            .at("/hash")
            .expecting(format!("{}, the SHA-1 of the UTF-8 text in base64", document.hash)))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name on the wire.
    #[must_use]
    pub fn hash(&self) -> DocumentHash {
        self.hash
    }

    /// What the name stands for once it is pinned.
    #[must_use]
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// What the document says of itself.
    #[must_use]
    pub fn front_matter(&self) -> &FrontMatter {
        &self.front_matter
    }
}
