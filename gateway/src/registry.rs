//! Agents, groups and policies as this gateway knows them: followed from the bus, so that all gateways agree.
//!
//! Reads never leave the process. A write goes to the bus and comes back by the watch; the writer waits for that, so
//! what it wrote is what it reads next, on this gateway.

mod consent_requests;
mod directory;
mod engine_reports;
mod evidence;
mod policies;
mod presence;
mod presence_reports;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use agora::registry::StoreOperation;
use ahash::HashMap;
use bus::{Bucket, BusError, Change, KeyValue};
use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use schemas::control::Group;
use schemas::{AgentId, Code, GroupId, Refusal};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::{GatewayMetrics, ShedReason};
use crate::openings::Openings;
use crate::problem::store_full;
use crate::until;

pub(crate) use self::{
    consent_requests::{NotedCall, RequestNotes},
    directory::Directory,
    engine_reports::Backlogs,
    evidence::{EvidenceFollower, EvidenceTable},
    policies::{DEFAULT_KEY, PinnedPolicy, PolicyTable, check_consistency, publish, scores_offers, seed},
    presence::{AgentTable, Audience, Member, PresenceSignal, PresenceView},
    presence_reports::PresenceReports,
};

/// How long a writer waits to see its own write. On one machine it takes well under a millisecond.
const OWN_WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a writer waits for its own write before it asks whether another writer has replaced it.
const REPLACED_AFTER: Duration = Duration::from_millis(100);
/// Pause before a watch that ended is begun again.
const WATCH_PAUSE: Duration = Duration::from_millis(200);
/// The buckets followed here; protocol documents are followed by [`agora::registry`], where HTTP is served.
pub(crate) const FOLLOWED: [Bucket; 3] = [Bucket::Agents, Bucket::Groups, Bucket::Policies];

/// What the clock shows at the start; 0 stands for never.
const CLOCK_BEGINS_MS: u64 = 1;

/// Groups by id.
type GroupTable = HashMap<GroupId, Arc<Group>>;

/// The control plane's documents.
pub(crate) struct Registry {
    key_value: Arc<dyn KeyValue>,
    tables: RwLock<Tables>,
    directory: Arc<Directory>,
    /// Held while an agent's change is followed in the tables and in the directory.
    following: Mutex<()>,
    /// Agents that are being registered and are not in the tables yet.
    arriving: AtomicUsize,
    /// Rises with every change seen.
    changes: watch::Sender<u64>,
    metrics: Arc<GatewayMetrics>,
    openings: Openings,
    /// Where this gateway's clock begins.
    began: Instant,
}

/// Everything followed. Updates are applied in place: registering one agent costs the same with ten as with 100,000.
pub(crate) struct Tables {
    pub(crate) agents: AgentTable,
    pub(crate) groups: GroupTable,
    pub(crate) policies: PolicyTable,
    pub(crate) backlogs: Backlogs,
    /// Who acknowledges, and has more to read than it keeps up with.
    pub(crate) behind: Backlogs,
    /// What panels have shown.
    pub(crate) evidence: EvidenceTable,
    /// The buckets that have been read whole.
    caught_up: BTreeSet<Bucket>,
}

impl Registry {
    /// An empty registry; [`Registry::drive`] fills it. `default_policy` applies until a default is stored.
    pub(crate) fn new(
        key_value: Arc<dyn KeyValue>,
        default_policy: &str,
        openings: Openings,
        metrics: Arc<GatewayMetrics>,
    ) -> Self {
        let tables = Tables::new(default_policy);
        let changes = watch::Sender::new(0);
        let arriving = AtomicUsize::new(0);
        let directory = Arc::new(Directory::default());
        let following = Mutex::new(());
        let tables = RwLock::new(tables);
        Self { key_value, tables, directory, following, arriving, changes, metrics, openings, began: Instant::now() }
    }

    /// This gateway's clock: milliseconds, for presence.
    pub(crate) fn now_ms(&self) -> u64 {
        let elapsed_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        elapsed_ms.saturating_add(CLOCK_BEGINS_MS)
    }

    /// An engine says which agents acknowledge too little.
    fn handle_backlog(&self, engine: &str, agents: Vec<AgentId>) {
        self.tables.write().backlogs.handle_report(engine, agents, self.now_ms());
    }

    /// An engine says which agents have more to read than they keep up with.
    fn handle_behind(&self, engine: &str, agents: Vec<AgentId>) {
        self.tables.write().behind.handle_report(engine, agents, self.now_ms());
    }

    /// The tables, for as long as no `await` stands between.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read()
    }

    /// Which opening acts are taken in.
    pub(crate) fn openings(&self) -> &Openings {
        &self.openings
    }

    /// The profiles of the agents, to be searched.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Whether every bucket has been read whole since its watch began.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.read().is_caught_up()
    }

    /// Waits until [`Registry::is_caught_up`].
    pub(crate) async fn caught_up(&self) {
        self.until(Tables::is_caught_up).await;
    }

    /// Follows one bucket until the gateway stops.
    pub(crate) async fn drive(self: Arc<Self>, bucket: Bucket, stop: CancellationToken) {
        let following = async {
            loop {
                if let Err(error) = self.follow(bucket).await {
                    tracing::warn!(%error, bucket = bucket.as_str(), "the watch could not begin; trying again");
                }
                self.change(|tables| tables.caught_up.retain(|&whole| whole != bucket));
                tokio::time::sleep(WATCH_PAUSE).await;
            }
        };
        until(&stop, following).await;
    }

    /// Waits, within a bound, until this gateway sees a write of its own.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when it does not in time.
    async fn until_own_write(&self, is_seen: impl Fn(&Tables) -> bool) -> Result<(), Refusal> {
        let seen = tokio::time::timeout(OWN_WRITE_TIMEOUT, self.until(is_seen)).await;
        // What the tables hold, searches find as well from now on.
        drop(self.following.lock());
        seen.map_err(|_| {
            Refusal::new(Code::Unavailable, "stored, but not yet seen by this gateway; repeat the request")
                .retry_after_ms(1000)
        })
    }

    async fn until(&self, holds: impl Fn(&Tables) -> bool) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if holds(&self.read()) {
                return;
            }
            if changes.changed().await.is_err() {
                // The sender lives in `self`: it cannot be gone while this borrow lasts.
                return;
            }
        }
    }

    /// Reads a bucket whole, then follows it until the stream ends. What was there before the watch and is no longer
    /// goes when the whole has been read.
    async fn follow(&self, bucket: Bucket) -> Result<(), BusError> {
        let mut changes = self.key_value.watch(bucket).await?;
        let mut first_reading = Some(Vec::new());
        while let Some(change) = changes.next().await {
            match (change, &mut first_reading) {
                (Change::CaughtUp, reading) => {
                    if let Some(entries) = reading.take() {
                        self.replace(bucket, entries).await;
                    }
                }
                (Change::Put(key, value), Some(entries)) => entries.push((key, Some(value))),
                (Change::Deleted(key), Some(entries)) => entries.push((key, None)),
                (Change::Put(key, value), None) => self.apply(bucket, &key, Some(&value)),
                (Change::Deleted(key), None) => self.apply(bucket, &key, None),
            }
        }
        Ok(())
    }

    async fn replace(&self, bucket: Bucket, entries: Vec<(String, Option<Bytes>)>) {
        let members = {
            let mut tables = self.tables.write();
            tables.clear(bucket);
            for (key, value) in &entries {
                self.follow_one(&mut tables, bucket, key, value.as_ref());
            }
            (bucket == Bucket::Agents).then(|| tables.agents.members())
        };
        if let Some(members) = members {
            self.directory.replace(members).await;
            self.metrics.control.searchable(self.directory.len());
        }
        self.change(|tables| _ = tables.caught_up.insert(bucket));
    }

    fn apply(&self, bucket: Bucket, key: &str, value: Option<&Bytes>) {
        if bucket == Bucket::Agents {
            let _following = self.following.lock();
            self.follow_one(&mut self.tables.write(), bucket, key, value);
            if let Ok(agent) = AgentId::try_new(key) {
                let member = self.read().agents.member(&agent).cloned();
                self.directory.follow(&agent, member);
                self.metrics.control.searchable(self.directory.len());
            }
        } else {
            self.follow_one(&mut self.tables.write(), bucket, key, value);
        }
        self.notify();
    }

    fn follow_one(&self, tables: &mut Tables, bucket: Bucket, key: &str, value: Option<&Bytes>) {
        let is_applied = tables.apply(bucket, key, value, self.now_ms());
        if bucket == Bucket::Policies {
            self.metrics.control.reloaded(is_applied);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Tables)) {
        change(&mut self.tables.write());
        self.notify();
    }

    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Tables {
    pub(crate) fn new(default_policy: &str) -> Self {
        Self {
            agents: AgentTable::new(CLOCK_BEGINS_MS),
            groups: GroupTable::default(),
            policies: PolicyTable::new(default_policy),
            backlogs: Backlogs::default(),
            behind: Backlogs::default(),
            evidence: EvidenceTable::default(),
            caught_up: BTreeSet::new(),
        }
    }

    fn is_caught_up(&self) -> bool {
        FOLLOWED.iter().all(|bucket| self.caught_up.contains(bucket))
    }

    fn clear(&mut self, bucket: Bucket) {
        match bucket {
            Bucket::Agents => self.agents.clear(),
            Bucket::Groups => self.groups.clear(),
            Bucket::Policies => self.policies.clear(),
            Bucket::Documents => {}
        }
    }

    /// False when the document is left out because it cannot be read.
    fn apply(&mut self, bucket: Bucket, key: &str, value: Option<&Bytes>, now_ms: u64) -> bool {
        let applied = match bucket {
            Bucket::Agents => self.agents.apply(key, value, now_ms),
            Bucket::Groups => apply_group(&mut self.groups, key, value),
            Bucket::Policies => self.policies.apply(key, value),
            Bucket::Documents => Ok(()),
        };
        if let Err(fault) = &applied {
            tracing::error!(bucket = bucket.as_str(), key, %fault, "a stored document is not readable; it is left out");
        }
        applied.is_ok()
    }
}

fn apply_group(groups: &mut GroupTable, key: &str, value: Option<&Bytes>) -> Result<(), serde_json::Error> {
    let Ok(id) = GroupId::try_new(key) else { return Ok(()) };
    match value {
        Some(value) => {
            groups.insert(id, Arc::new(serde_json::from_slice(value)?));
        }
        None => {
            groups.remove(&id);
        }
    }
    Ok(())
}

impl Registry {
    /// Stores a document and waits until this gateway sees it (`is_seen`), unless another writer replaces it before.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store is full, the bus does not answer, or the write is not seen in time.
    pub(crate) async fn put<T: Serialize + Sync>(
        &self,
        bucket: Bucket,
        key: String,
        document: &T,
        is_seen: impl Fn(&Tables) -> bool,
    ) -> Result<(), Refusal> {
        let document = encode(document)?;
        let writing = self.key_value.put(bucket, key.clone(), document.clone());
        self.timed(bucket, StoreOperation::Put, writing).await?;
        if tokio::time::timeout(REPLACED_AFTER, self.until_own_write(&is_seen)).await.is_ok_and(|seen| seen.is_ok()) {
            return Ok(());
        }
        // A watch need not report a document that another writer replaced meanwhile.
        if self.stored(bucket, key).await? != Some(document) {
            return Ok(());
        }
        self.until_own_write(is_seen).await
    }

    /// Stores a document unless the key has one; false when it has.
    ///
    /// # Errors
    /// As [`Registry::put`].
    async fn create<T: Serialize + Sync>(&self, bucket: Bucket, key: String, document: &T) -> Result<bool, Refusal> {
        let writing = self.key_value.create(bucket, key, encode(document)?);
        self.timed(bucket, StoreOperation::Create, writing).await
    }

    /// The stored bytes of a key, read from the bus.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the bus does not answer.
    pub(crate) async fn stored(&self, bucket: Bucket, key: String) -> Result<Option<Bytes>, Refusal> {
        self.timed(bucket, StoreOperation::Value, self.key_value.value(bucket, key)).await
    }

    /// Removes a key and waits until this gateway sees that it is gone.
    ///
    /// # Errors
    /// As [`Registry::put`].
    pub(crate) async fn delete(
        &self,
        bucket: Bucket,
        key: String,
        is_seen: impl Fn(&Tables) -> bool,
    ) -> Result<(), Refusal> {
        self.timed(bucket, StoreOperation::Delete, self.key_value.delete(bucket, key)).await?;
        self.until_own_write(is_seen).await
    }

    /// Counts and times an operation on the store.
    async fn timed<T>(
        &self,
        bucket: Bucket,
        operation: StoreOperation,
        doing: impl Future<Output = Result<T, BusError>>,
    ) -> Result<T, Refusal> {
        let began = std::time::Instant::now();
        let outcome = doing.await;
        self.metrics.control.stored(bucket, operation, outcome.is_ok(), began.elapsed());
        outcome.map_err(|error| {
            if matches!(error, BusError::Full(_)) {
                self.metrics.messages.shed.of(ShedReason::Store).inc();
            }
            not_stored(&error)
        })
    }
}

fn encode<T: Serialize>(document: &T) -> Result<Bytes, Refusal> {
    let bytes = serde_json::to_vec(document);
    bytes.map(Bytes::from).map_err(|_| Refusal::new(Code::Internal, "the document cannot be written"))
}

fn not_stored(error: &BusError) -> Refusal {
    if matches!(error, BusError::Full(_)) {
        tracing::error!(%error, "the control plane's store is full");
        return store_full();
    }
    tracing::warn!(%error, "the control plane's store did not answer");
    Refusal::new(Code::Unavailable, "the store did not answer; repeat the request").retry_after_ms(1000)
}

#[cfg(test)]
mod tests;
