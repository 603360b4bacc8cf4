//! The documents of an exchange on its bus: followed, so that reads never leave the process, and written so that the first
//! text under a hash stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::{Bucket, BusError, Change, KeyValue};
use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use schemas::{AgentId, Code, NegotiationId, Refusal};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::body::{BODY_BYTES_MAX, BodyTable, StoredBody, body_key, negotiation_of};
use crate::table::{DocumentTable, StoredDocument, StoredSupport, TableFault, document_key, read_stored, support_key};
use crate::{DocumentHash, DocumentSource, ProtocolDocument};

/// Pause before a watch that ended is begun again.
const WATCH_PAUSE: Duration = Duration::from_millis(200);
/// Attempts to store under a key that is there and gone again.
const ATTEMPTS_MAX: usize = 3;

/// Operations on the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StoreOperation {
    /// Stored.
    Put,
    /// Stored unless something stands there.
    Create,
    /// Read.
    Value,
    /// Removed.
    Delete,
}

/// What became of a document that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PutResult {
    /// It was not there before.
    New,
    /// It stood there already.
    Known,
    /// Another text stands under its hash.
    Collision,
    /// It was not taken, or the store did not answer.
    Refused,
}

/// Who counts what a registry does.
pub trait RegistryObserver: Send + Sync {
    /// The store answered, or did not.
    fn operated(&self, operation: StoreOperation, is_done: bool, time: Duration);
    /// A document was put.
    fn put(&self, result: PutResult);
    /// An entry that was followed was left out because another text is pinned under its hash.
    fn collided(&self);
    /// An agent's support ended, because it held more than the agent whose document took its room.
    fn gave_up(&self);
    /// So many documents are held now.
    fn holds(&self, documents: usize);
}

/// Counts nothing: what is wrong with entries is logged all the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl RegistryObserver for Unobserved {
    fn operated(&self, _: StoreOperation, _: bool, _: Duration) {}
    fn put(&self, _: PutResult) {}
    fn collided(&self) {}
    fn gave_up(&self) {}
    fn holds(&self, _: usize) {}
}

/// See the module.
pub struct DocumentRegistry {
    key_value: Arc<dyn KeyValue>,
    table: RwLock<DocumentTable>,
    bodies: Mutex<BodyTable>,
    /// Whether the bucket has been read whole once: before that nobody knows how much it holds.
    is_read: AtomicBool,
    /// Rises with every change.
    changes: watch::Sender<u64>,
    observer: Arc<dyn RegistryObserver>,
}

impl DocumentRegistry {
    /// An empty registry; [`DocumentRegistry::drive`] fills it.
    pub fn new(key_value: Arc<dyn KeyValue>, observer: Arc<dyn RegistryObserver>) -> Self {
        let (is_read, changes) = (AtomicBool::new(false), watch::Sender::new(0));
        Self { key_value, table: RwLock::default(), bodies: Mutex::default(), is_read, changes, observer }
    }

    /// The documents, for as long as no `await` stands between.
    pub fn read(&self) -> RwLockReadGuard<'_, DocumentTable> {
        self.table.read()
    }

    /// The bodies of transactions, for as long as no `await` stands between.
    pub fn bodies(&self) -> MutexGuard<'_, BodyTable> {
        self.bodies.lock()
    }

    /// Waits until the bucket has been read whole, and then until this holds of the documents.
    pub async fn until(&self, holds: impl Fn(&DocumentTable) -> bool) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if self.is_read.load(Ordering::Acquire) && holds(&self.read()) {
                return;
            }
            if changes.changed().await.is_err() {
                // The sender lives in `self`: it cannot be gone while this borrow lasts.
                return;
            }
        }
    }

    /// Follows the bucket for as long as it is polled.
    pub async fn drive(&self) {
        loop {
            if let Err(error) = self.follow().await {
                tracing::warn!(%error, "the documents cannot be followed; trying again");
            }
            tokio::time::sleep(WATCH_PAUSE).await;
        }
    }

    /// Reads the bucket and follows it until the stream ends. Texts never change, so what was read before the watch stays;
    /// what was removed or withdrawn meanwhile is reported as a deletion.
    async fn follow(&self) -> Result<(), BusError> {
        let mut changes = self.key_value.watch(Bucket::Documents).await?;
        while let Some(change) = changes.next().await {
            match change {
                Change::Put(key, value) => self.apply(&key, Some(&value)),
                Change::Deleted(key) => self.apply(&key, None),
                Change::CaughtUp => {
                    self.is_read.store(true, Ordering::Release);
                    self.changes.send_modify(|count| *count += 1);
                }
            }
        }
        Ok(())
    }

    fn apply(&self, key: &str, value: Option<&[u8]>) {
        match negotiation_of(key) {
            Some(Ok(negotiation)) if value.is_some() => return self.bodies().note(negotiation, Instant::now()),
            Some(Ok(negotiation)) => return self.bodies().forget(&negotiation),
            Some(Err(fault)) => return tracing::error!(key, fault, "a stored body is left out"),
            None => {}
        }
        let (applied, held) = {
            let mut table = self.table.write();
            (table.apply(key, value), table.len())
        };
        self.changes.send_modify(|count| *count += 1);
        self.observer.holds(held);
        match applied {
            Ok(()) => {}
            Err(fault @ TableFault::Unreadable(_)) => tracing::error!(key, %fault, "a stored entry is left out"),
            Err(fault @ TableFault::Collision(_)) => {
                self.observer.collided();
                tracing::error!(key, %fault, "a stored document is left out; the one that was read first stays");
            }
        }
    }

    /// Stores a document that an agent supports, and where else it can be had. Where the exchange is full, documents that
    /// nobody supports give way to it; where supported ones fill their part of it, supports of whoever holds most of that end
    /// ([`DocumentTable::giving_up_for`]).
    ///
    /// # Errors
    /// [`Code::Conflict`] when another text stands under its hash, [`Code::Overloaded`] when the agent supports as many as it
    /// may or nobody holds more than it would, [`Code::Unavailable`] when the store does not answer, or has not been read yet.
    pub async fn put(
        &self,
        agent: &AgentId,
        document: &ProtocolDocument,
        sources: &[DocumentSource],
    ) -> Result<PutResult, Refusal> {
        let putting = async {
            self.read().check_support(agent, document.hash())?;
            self.make_room_for(agent, document).await?;
            let result = self.store_making_room(document).await?;
            let (key, support) = (support_key(document.hash(), agent), StoredSupport { sources: sources.to_vec() });
            let value = encode(&support)?;
            let putting = self.key_value.put(Bucket::Documents, key.clone(), value.clone());
            self.observed(StoreOperation::Put, putting).await?;
            self.apply(&key, Some(&value));
            Ok(result)
        };
        self.counted(putting).await
    }

    /// Stores a document that somebody has used and no agent need support. Where the exchange is full, other documents that
    /// nobody supports give way to it.
    ///
    /// # Errors
    /// As [`DocumentRegistry::put`].
    pub async fn put_unsupported(&self, document: &ProtocolDocument) -> Result<PutResult, Refusal> {
        self.counted(self.store_making_room(document)).await
    }

    /// Stores a document of another exchange where there is room for it beside all others. None gives way to it: two full
    /// exchanges would displace each other's documents without end.
    ///
    /// # Errors
    /// As [`DocumentRegistry::put`].
    pub async fn adopt(&self, document: &ProtocolDocument) -> Result<PutResult, Refusal> {
        let adopting = async {
            self.read().check_space(document)?;
            self.store(document).await
        };
        self.counted(adopting).await
    }

    /// Puts a document once the others have been read, and counts what came of it.
    async fn counted(&self, putting: impl Future<Output = Result<PutResult, Refusal>>) -> Result<PutResult, Refusal> {
        let outcome = match self.check_read() {
            Ok(()) => putting.await,
            Err(unread) => Err(unread),
        };
        let result = match &outcome {
            Ok(result) => *result,
            Err(refusal) if refusal.code == Code::Conflict => PutResult::Collision,
            Err(_) => PutResult::Refused,
        };
        self.observer.put(result);
        outcome
    }

    /// Ends the supports that an agent's document takes the room of. Their texts stay until another needs that.
    async fn make_room_for(&self, agent: &AgentId, document: &ProtocolDocument) -> Result<(), Refusal> {
        let ending = self.read().giving_up_for(agent, document)?;
        for (hash, holder) in ending {
            if self.remove(support_key(hash, &holder)).await? {
                self.observer.gave_up();
                tracing::info!(%hash, agent = %holder, to = %agent, "the agent's support ended: it holds most, and another needs the room");
            }
        }
        Ok(())
    }

    fn check_read(&self) -> Result<(), Refusal> {
        if self.is_read.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Refusal::new(Code::Unavailable, "the documents have not been read yet; repeat the request")
            .retry_after_ms(1000))
    }

    /// Stores a document and then removes those that give way to it. Gateways that are asked at the same time can exceed the
    /// limits by what each has in hand; the next document that is stored makes up for it.
    async fn store_making_room(&self, document: &ProtocolDocument) -> Result<PutResult, Refusal> {
        let going = self.read().giving_way_to(document)?;
        let result = self.store(document).await?;
        for hash in going {
            // Requests that come at the same time choose the same ones.
            if self.remove(document_key(hash)).await? {
                tracing::info!(%hash, "a document that nobody supports gave way to another");
            }
        }
        Ok(result)
    }

    async fn store(&self, document: &ProtocolDocument) -> Result<PutResult, Refusal> {
        let key = document_key(document.hash());
        let stored = StoredDocument { document: document.text().to_owned(), sha256: document.sha256() };
        let value = encode(&stored)?;
        let result = self.pin(&key, value.clone(), document).await?;
        self.apply(&key, Some(&value));
        Ok(result)
    }

    /// Stores the text under its hash, unless one stands there, which must be the same.
    async fn pin(&self, key: &str, value: Bytes, document: &ProtocolDocument) -> Result<PutResult, Refusal> {
        let hash = document.hash();
        for _ in 0..ATTEMPTS_MAX {
            let creating = self.key_value.create(Bucket::Documents, key.to_owned(), value.clone());
            if self.observed(StoreOperation::Create, creating).await? {
                return Ok(PutResult::New);
            }
            let reading = self.key_value.value(Bucket::Documents, key.to_owned());
            let Some(standing) = self.observed(StoreOperation::Value, reading).await? else { continue };
            if read_stored(hash, &standing).is_ok_and(|standing| standing.sha256() == document.sha256()) {
                return Ok(PutResult::Known);
            }
            tracing::error!(%hash, sha256 = %document.sha256(), "a document was put whose hash stands for another text");
            return Err(Refusal::new(Code::Conflict, "another text stands under the hash of the document")
                .at("/document")
                .expecting("a text whose SHA-1 no other has: change a word of it"));
        }
        Err(unanswered())
    }

    /// The agent supports the document no more. The text stays until another needs its room.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store does not answer.
    pub async fn withdraw(&self, agent: &AgentId, hash: DocumentHash) -> Result<(), Refusal> {
        self.remove(support_key(hash, agent)).await.map(drop)
    }

    /// Removes an entry of the table; false when another removal has done so already.
    async fn remove(&self, key: String) -> Result<bool, Refusal> {
        let deleting = self.key_value.delete(Bucket::Documents, key.clone());
        let is_removed = self.observed(StoreOperation::Delete, deleting).await?;
        self.apply(&key, None);
        Ok(is_removed)
    }

    /// Keeps the body of a transaction for the agent that is called, until [`DocumentRegistry::remove_body`]. What gateways
    /// left behind that ended is removed first.
    ///
    /// # Errors
    /// [`Code::TooLarge`] beyond [`BODY_BYTES_MAX`]; [`Code::Overloaded`] where there are as many as there may be;
    /// [`Code::Unavailable`] when the store does not answer, or has not been read yet.
    pub async fn put_body(
        &self,
        (caller, negotiation): (&AgentId, &NegotiationId),
        to: &AgentId,
        body: &str,
    ) -> Result<(), Refusal> {
        self.check_read()?;
        if body.len() > BODY_BYTES_MAX {
            return Err(Refusal::new(Code::TooLarge, "the body is too long")
                .at("/body")
                .expecting(format!("at most {BODY_BYTES_MAX} bytes")));
        }
        let left_behind = self.bodies().left_behind(Instant::now());
        for gone in left_behind {
            self.remove_body(&gone).await?;
        }
        self.bodies().check_room(caller)?;
        let (key, value) = (body_key(negotiation), encode(&StoredBody { to: to.clone(), body: body.to_owned() })?);
        let putting = self.key_value.put(Bucket::Documents, key, value);
        self.observed(StoreOperation::Put, putting).await?;
        self.bodies().note(negotiation.clone(), Instant::now());
        Ok(())
    }

    /// The body that is kept of a transaction, for the agent it is for; to others there is none.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store does not answer.
    pub async fn body(&self, negotiation: &NegotiationId, reader: &AgentId) -> Result<Option<String>, Refusal> {
        let reading = self.key_value.value(Bucket::Documents, body_key(negotiation));
        let stored = self.observed(StoreOperation::Value, reading).await?;
        let stored: Option<StoredBody> = stored.and_then(|value| serde_json::from_slice(&value).ok());
        Ok(stored.filter(|stored| stored.to == *reader).map(|stored| stored.body))
    }

    /// The body of a transaction is kept no longer.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store does not answer.
    pub async fn remove_body(&self, negotiation: &NegotiationId) -> Result<(), Refusal> {
        let deleting = self.key_value.delete(Bucket::Documents, body_key(negotiation));
        self.observed(StoreOperation::Delete, deleting).await?;
        self.bodies().forget(negotiation);
        Ok(())
    }

    async fn observed<T>(
        &self,
        operation: StoreOperation,
        doing: impl Future<Output = Result<T, BusError>>,
    ) -> Result<T, Refusal> {
        let began = Instant::now();
        let outcome = doing.await;
        self.observer.operated(operation, outcome.is_ok(), began.elapsed());
        outcome.map_err(|error| {
            tracing::warn!(%error, "the store of documents did not answer");
            unanswered()
        })
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Bytes, Refusal> {
    let bytes = serde_json::to_vec(value);
    bytes.map(Bytes::from).map_err(|_| Refusal::new(Code::Internal, "the document cannot be written"))
}

fn unanswered() -> Refusal {
    Refusal::new(Code::Unavailable, "the store did not answer; repeat the request").retry_after_ms(1000)
}
