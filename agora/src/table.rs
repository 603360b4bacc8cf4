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
/// Documents that agents support, of [`DOCUMENTS_MAX`]: a quarter is left to those that come with requests.
pub const SUPPORTED_DOCUMENTS_MAX: usize = DOCUMENTS_MAX / 4 * 3;
/// Bytes of their texts, of [`BYTES_MAX`].
pub const SUPPORTED_BYTES_MAX: usize = BYTES_MAX / 4 * 3;
/// Bytes that a document counts for at least in an agent's share: so many documents of that size fill both limits at once.
const SHARE_BYTES_MIN: usize = BYTES_MAX / DOCUMENTS_MAX;
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
    supported: BTreeMap<AgentId, BTreeMap<DocumentHash, Support>>,
    /// How many agents support each of the documents that have any supporter.
    supporter_counts: BTreeMap<DocumentHash, usize>,
    /// The documents without a supporter and their bytes, by when this table saw that they have none.
    unsupported: BTreeMap<u64, (DocumentHash, usize)>,
    /// All these bytes.
    unsupported_bytes: usize,
    /// The places of these documents in `unsupported`.
    unsupported_since: BTreeMap<DocumentHash, u64>,
    /// The next place in `unsupported`, and of a support.
    next_place: u64,
}

/// One agent's support of one document.
#[derive(Debug)]
struct Support {
    sources: Vec<DocumentSource>,
    /// Rises with the order in which this table saw supports begin.
    place: u64,
}

/// The documents that are held and supported, and how the room they take is shared by those who support them.
struct SharedRoom<'a> {
    documents: BTreeMap<DocumentHash, SharedDocument<'a>>,
    bytes: usize,
    /// Bytes: of each document that an agent supports its part, which supporters bear equally.
    shares: BTreeMap<&'a AgentId, usize>,
}

/// A supported document.
struct SharedDocument<'a> {
    bytes: usize,
    /// Who supports it, with the place of the support.
    supporters: BTreeMap<&'a AgentId, u64>,
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
            let supported = self.supported.entry(agent).or_default();
            if let Some(support) = supported.get_mut(&hash) {
                support.sources = sources;
            } else {
                supported.insert(hash, Support { sources, place: self.next_place });
                self.next_place += 1;
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
        let unsupported = self.documents.get(&hash).filter(|_| !self.supporter_counts.contains_key(&hash));
        if let Some(document) = unsupported {
            if !self.unsupported_since.contains_key(&hash) {
                let bytes = document.text().len();
                self.unsupported_since.insert(hash, self.next_place);
                self.unsupported.insert(self.next_place, (hash, bytes));
                self.unsupported_bytes += bytes;
                self.next_place += 1;
            }
        } else if let Some(place) = self.unsupported_since.remove(&hash)
            && let Some((_, bytes)) = self.unsupported.remove(&place)
        {
            self.unsupported_bytes -= bytes;
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

    /// The supports that end so that an agent can support a document, each with its agent: none while the supported documents
    /// take no more than [`SUPPORTED_DOCUMENTS_MAX`] and [`SUPPORTED_BYTES_MAX`]. Otherwise whoever holds the largest share of
    /// that room supports one document less, as often as it takes: the one that has the fewest supporters, and of these the one
    /// that the agent has supported for longest. Nobody gives way who holds no more than this agent would.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when nobody holds more.
    pub fn giving_up_for(
        &self,
        agent: &AgentId,
        document: &ProtocolDocument,
    ) -> Result<Vec<(DocumentHash, AgentId)>, Refusal> {
        let (hash, bytes) = (document.hash(), document.text().len());
        let (held, held_bytes) = (self.documents.len() - self.unsupported.len(), self.bytes - self.unsupported_bytes);
        let is_supported = self.documents.contains_key(&hash) && self.supporter_counts.contains_key(&hash);
        if is_supported || fits_supported(held + 1, held_bytes + bytes) {
            return Ok(Vec::new());
        }
        let mut room = SharedRoom::of(self);
        let mut ending = Vec::new();
        while !fits_supported(room.documents.len() + 1, room.bytes + bytes) {
            let wanted = room.share(agent) + weight(bytes);
            let largest = room.largest().filter(|(_, share)| *share > wanted);
            let given_up = largest.and_then(|(holder, _)| room.first_to_give_up(holder));
            let given_up = given_up.ok_or_else(|| {
                Refusal::new(
                    Code::Overloaded,
                    "the documents that agents support leave no room for another of this agent's",
                )
                .expecting("a shorter document, or fewer of this agent's: DELETE /v1/documents/<hash>")
            })?;
            ending.extend(room.remove(given_up).into_iter().map(|supporter| (given_up, supporter.clone())));
        }
        Ok(ending)
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
            let next = unsupported.next();
            let (hash, freed) =
                next.ok_or_else(|| full("an agent that withdraws its support: DELETE /v1/documents/<hash>"))?;
            count -= 1;
            bytes -= freed;
            going.push(*hash);
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
        supported.filter_map(|(hash, support)| Some((self.documents.get(hash)?, support.sources.as_slice())))
    }

    /// Who supports a document, in the order of ids.
    pub fn supporters(&self, hash: DocumentHash) -> impl Iterator<Item = &AgentId> {
        self.supported.iter().filter(move |(_, supported)| supported.contains_key(&hash)).map(|(agent, _)| agent)
    }
}

impl<'a> SharedRoom<'a> {
    fn of(table: &'a DocumentTable) -> Self {
        let mut room = Self { documents: BTreeMap::new(), bytes: 0, shares: BTreeMap::new() };
        for (agent, supported) in &table.supported {
            for (hash, support) in supported {
                let Some(document) = table.documents.get(hash) else { continue };
                let bytes = document.text().len();
                let shared = room.documents.entry(*hash);
                let shared = shared.or_insert_with(|| SharedDocument { bytes, supporters: BTreeMap::new() });
                shared.supporters.insert(agent, support.place);
            }
        }
        for shared in room.documents.values() {
            room.bytes += shared.bytes;
            for supporter in shared.supporters.keys() {
                *room.shares.entry(*supporter).or_default() += shared.part();
            }
        }
        room
    }

    fn share(&self, agent: &AgentId) -> usize {
        self.shares.get(agent).copied().unwrap_or_default()
    }

    /// Who holds the largest share: of equal ones the last by id.
    fn largest(&self) -> Option<(&'a AgentId, usize)> {
        self.shares.iter().map(|(agent, share)| (*agent, *share)).max_by_key(|(_, share)| *share)
    }

    fn first_to_give_up(&self, agent: &AgentId) -> Option<DocumentHash> {
        let own = self.documents.iter().filter_map(|(hash, shared)| {
            let place = shared.supporters.get(agent)?;
            Some(((shared.supporters.len(), *place), *hash))
        });
        own.min().map(|(_, hash)| hash)
    }

    /// A document is supported no longer; who did.
    fn remove(&mut self, hash: DocumentHash) -> Vec<&'a AgentId> {
        let Some(shared) = self.documents.remove(&hash) else { return Vec::new() };
        self.bytes -= shared.bytes;
        for supporter in shared.supporters.keys() {
            if let Some(share) = self.shares.get_mut(supporter) {
                *share -= shared.part();
            }
        }
        shared.supporters.into_keys().collect()
    }
}

impl SharedDocument<'_> {
    /// What each supporter bears of it.
    fn part(&self) -> usize {
        weight(self.bytes) / self.supporters.len().max(1)
    }
}

/// What a text of so many bytes counts for in a share.
fn weight(bytes: usize) -> usize {
    bytes.max(SHARE_BYTES_MIN)
}

/// Whether an exchange holds so many documents, of so many bytes together.
const fn fits(count: usize, bytes: usize) -> bool {
    count <= DOCUMENTS_MAX && bytes <= BYTES_MAX
}

/// Whether agents support so many documents, of so many bytes together.
const fn fits_supported(count: usize, bytes: usize) -> bool {
    count <= SUPPORTED_DOCUMENTS_MAX && bytes <= SUPPORTED_BYTES_MAX
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
