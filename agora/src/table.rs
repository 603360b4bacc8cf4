//! Every document an exchange holds, and which agents support which, as they stand in the bucket `documents`.
//!
//! | key of the bucket | value |
//! |---|---|
//! | `<hash>` | `{"document": "<text>", "sha256": "<digest>"}`; never changed; removed only to make room |
//! | `<hash>~<agent>` | `{"sources": [...]}`: this agent supports the document, and says where else it can be had |
//!
//! Hashes of keys are base64url. The SHA-256 that is read first under a hash is pinned: another text of the same hash is left
//! out, whoever stored it.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use schemas::{AgentId, Code, Refusal};
use serde::{Deserialize, Serialize};

use crate::{DocumentHash, DocumentSource, Origin, ProtocolDocument};

/// Documents of one exchange. The paper's network of 100 agents came to 14.
pub const DOCUMENTS_MAX: usize = 4096;
/// Bytes of all their texts: what each gateway keeps in memory.
pub const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Documents that one agent supports: one for each kind of task it takes part in.
pub const SUPPORTED_MAX: usize = 32;
/// Between the hash and the agent of a key. No agent's id contains it.
const SEPARATOR: char = '~';

/// A document as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredDocument {
    /// Its text.
    pub document: String,
    /// The SHA-256 of the text.
    pub sha256: schemas::Digest,
}

/// An agent's support of a document as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredSupport {
    /// Where the agent says that the document can be had.
    pub sources: Vec<DocumentSource>,
}

/// Why a stored entry is left out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableFault {
    /// The key or the value is not of this table's.
    #[error("not an entry of the documents: {0}")]
    Unreadable(String),
    /// The text is another than the one that is pinned under its hash.
    #[error("another text stands under the hash {0}: SHA-1 collision, or the store was written to by something else")]
    Collision(DocumentHash),
}

/// See the module.
#[derive(Debug, Default)]
pub struct DocumentTable {
    documents: BTreeMap<DocumentHash, Arc<ProtocolDocument>>,
    /// Bytes of the texts.
    bytes: usize,
    supported: BTreeMap<AgentId, BTreeMap<DocumentHash, Vec<DocumentSource>>>,
    /// How many agents support each of the documents that have any supporter.
    supporter_counts: BTreeMap<DocumentHash, usize>,
    /// The documents without a supporter, by when this table saw that they have none.
    unsupported: BTreeMap<u64, DocumentHash>,
    /// The places of these documents in `unsupported`.
    unsupported_since: BTreeMap<DocumentHash, u64>,
    /// The next place in `unsupported`.
    next_place: u64,
}

/// The key of a document.
#[must_use]
pub fn document_key(hash: DocumentHash) -> String {
    hash.key()
}

/// The key of an agent's support of a document.
#[must_use]
pub fn support_key(hash: DocumentHash, agent: &AgentId) -> String {
    format!("{}{SEPARATOR}{agent}", hash.key())
}

impl DocumentTable {
    /// Takes an entry as it is stored now, none where it was removed.
    ///
    /// # Errors
    /// [`TableFault`]: the entry is left out, and what stood there before stays.
    pub fn apply(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), TableFault> {
        let unreadable = |fault: String| TableFault::Unreadable(fault);
        let (name, agent) = key.split_once(SEPARATOR).map_or((key, None), |(name, agent)| (name, Some(agent)));
        let hash = DocumentHash::try_new(name).map_err(|refusal| unreadable(refusal.to_string()))?;
        match (agent, value) {
            (None, Some(value)) => self.pin(hash, value),
            (None, None) => {
                if let Some(gone) = self.documents.remove(&hash) {
                    self.bytes -= gone.text().len();
                }
                self.place(hash);
                Ok(())
            }
            (Some(agent), value) => {
                let agent = AgentId::try_new(agent).map_err(|fault| unreadable(fault.to_string()))?;
                let stored = value.map(serde_json::from_slice::<StoredSupport>).transpose();
                let stored = stored.map_err(|fault| unreadable(fault.to_string()))?;
                self.set_support(agent, hash, stored.map(|stored| stored.sources));
                Ok(())
            }
        }
    }

    /// Pins a text under a hash, unless one is.
    fn pin(&mut self, hash: DocumentHash, value: &[u8]) -> Result<(), TableFault> {
        let document = read_stored(hash, value)?;
        match self.documents.get(&hash) {
            Some(pinned) if pinned.sha256() == document.sha256() => Ok(()),
            Some(_) => Err(TableFault::Collision(hash)),
            None => {
                self.bytes += document.text().len();
                self.documents.insert(hash, Arc::new(document));
                self.place(hash);
                Ok(())
            }
        }
    }

    fn set_support(&mut self, agent: AgentId, hash: DocumentHash, sources: Option<Vec<DocumentSource>>) {
        if let Some(sources) = sources {
            if self.supported.entry(agent).or_default().insert(hash, sources).is_none() {
                *self.supporter_counts.entry(hash).or_default() += 1;
            }
        } else if let Some(supported) = self.supported.get_mut(&agent) {
            let is_gone = supported.remove(&hash).is_some();
            if supported.is_empty() {
                self.supported.remove(&agent);
            }
            if let Some(count) = self.supporter_counts.get_mut(&hash).filter(|_| is_gone) {
                *count -= 1;
                if *count == 0 {
                    self.supporter_counts.remove(&hash);
                }
            }
        }
        self.place(hash);
    }

    /// Gives a document that has no supporter a place behind the others that have none, unless it has a place; takes it from
    /// any other document.
    fn place(&mut self, hash: DocumentHash) {
        if self.documents.contains_key(&hash) && !self.supporter_counts.contains_key(&hash) {
            if !self.unsupported_since.contains_key(&hash) {
                self.unsupported_since.insert(hash, self.next_place);
                self.unsupported.insert(self.next_place, hash);
                self.next_place += 1;
            }
        } else if let Some(place) = self.unsupported_since.remove(&hash) {
            self.unsupported.remove(&place);
        }
    }

    /// Refuses a document that would be more than the agent may support. Gateways that are asked at the same time can exceed
    /// the limit by what each has in hand.
    ///
    /// # Errors
    /// [`Code::Overloaded`].
    pub fn check_support(&self, agent: &AgentId, hash: DocumentHash) -> Result<(), Refusal> {
        let supported = self.supported.get(agent);
        let is_further = !supported.is_some_and(|supported| supported.contains_key(&hash));
        if is_further && supported.map_or(0, BTreeMap::len) >= SUPPORTED_MAX {
            return Err(Refusal::new(Code::Overloaded, "the agent supports as many documents as an agent may")
                .expecting(format!("at most {SUPPORTED_MAX}: DELETE /v1/documents/<hash> first")));
        }
        Ok(())
    }

    /// Refuses a document that would be more than the exchange holds beside all others.
    ///
    /// # Errors
    /// [`Code::Overloaded`].
    pub fn check_space(&self, document: &ProtocolDocument) -> Result<(), Refusal> {
        let is_held = self.documents.contains_key(&document.hash());
        if is_held || fits(self.documents.len() + 1, self.bytes + document.text().len()) {
            return Ok(());
        }
        Err(full("DELETE /v1/documents/<hash> for those that nobody needs"))
    }

    /// The documents that give way to this one: as few as make room for it, those first that have been without a supporter
    /// for longest, as this table saw it. In a table that was just read, that is the order of the bucket.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when the documents that are supported leave no room.
    pub fn giving_way_to(&self, document: &ProtocolDocument) -> Result<Vec<DocumentHash>, Refusal> {
        let mut going = Vec::new();
        if self.documents.contains_key(&document.hash()) {
            return Ok(going);
        }
        let (mut count, mut bytes) = (self.documents.len() + 1, self.bytes + document.text().len());
        let mut unsupported = self.unsupported.values();
        while !fits(count, bytes) {
            let next = unsupported.next().and_then(|hash| Some((*hash, self.documents.get(hash)?)));
            let (hash, next) =
                next.ok_or_else(|| full("an agent that withdraws its support: DELETE /v1/documents/<hash>"))?;
            count -= 1;
            bytes -= next.text().len();
            going.push(hash);
        }
        Ok(going)
    }

    /// The document of a hash.
    #[must_use]
    pub fn document(&self, hash: DocumentHash) -> Option<&Arc<ProtocolDocument>> {
        self.documents.get(&hash)
    }

    /// Documents in the order of their hashes, those behind `after`.
    pub fn following(&self, after: Option<DocumentHash>) -> impl Iterator<Item = &Arc<ProtocolDocument>> {
        let from = after.map_or(Unbounded, Excluded);
        self.documents.range((from, Unbounded)).map(|(_, document)| document)
    }

    /// How many documents there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// The documents that an agent supports, with the sources it names.
    pub fn supported_by(&self, agent: &AgentId) -> impl Iterator<Item = (&Arc<ProtocolDocument>, &[DocumentSource])> {
        let supported = self.supported.get(agent).into_iter().flatten();
        supported.filter_map(|(hash, sources)| Some((self.documents.get(hash)?, sources.as_slice())))
    }

    /// Who supports a document, in the order of ids.
    pub fn supporters(&self, hash: DocumentHash) -> impl Iterator<Item = &AgentId> {
        self.supported.iter().filter(move |(_, supported)| supported.contains_key(&hash)).map(|(agent, _)| agent)
    }
}

/// Whether an exchange holds so many documents, of so many bytes together.
const fn fits(count: usize, bytes: usize) -> bool {
    count <= DOCUMENTS_MAX && bytes <= BYTES_MAX
}

fn full(remedy: &str) -> Refusal {
    Refusal::new(Code::Overloaded, "the exchange holds as many documents as it may")
        .expecting(format!("at most {DOCUMENTS_MAX} documents of {BYTES_MAX} bytes together; {remedy}"))
}

/// A stored document whose text has the hash of its key and the digest beside it.
///
/// # Errors
/// [`TableFault`] for anything else.
pub fn read_stored(hash: DocumentHash, value: &[u8]) -> Result<ProtocolDocument, TableFault> {
    let unreadable = |fault: String| TableFault::Unreadable(fault);
    let stored: StoredDocument = serde_json::from_slice(value).map_err(|fault| unreadable(fault.to_string()))?;
    let document = ProtocolDocument::try_new(&stored.document, Origin::Foreign);
    let document = document.map_err(|refusal| unreadable(refusal.to_string()))?;
    if document.hash() == hash && document.sha256() == stored.sha256 {
        return Ok(document);
    }
    Err(TableFault::Collision(hash))
}
