//! A log made by hand on an embedded bus.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bus::Bus;
use bus::memory::{self, MemoryOptions};
use bytes::Bytes;
use futures_util::StreamExt;
use policy_core::lane::RULES_VERSION;
use policy_core::replay::Replay;
use policy_core::{Limits, preset};
use schemas::digest::canonical;
use schemas::record::{EngineEvent, Entry, Record};
use schemas::{Digest, DocumentHash, Lane, NegotiationId, RegisterKey, Timestamp};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::disk::{Disk, Watched};
use crate::ArchiveError;
use crate::audit::read_bus;
use crate::follow::{ArchiveOptions, run};
use crate::lane::archive_lane;
use crate::status::ArchiveStatus;

/// When the log begins, in microseconds.
const START_US: u64 = 1_800_000_000_000_000;

/// A bus with its clock.
pub(super) struct Lab {
    pub(super) bus: Bus,
    now: Arc<AtomicU64>,
    negotiations: u32,
    /// Whether an engine logs that it met another value in the register.
    aborts: bool,
}

impl Lab {
    pub(super) fn new(lanes: u8) -> Self {
        let now = Arc::new(AtomicU64::new(START_US));
        let clock = Arc::clone(&now);
        let clock = Arc::new(move || Timestamp(clock.load(Ordering::SeqCst)));
        Self {
            bus: memory::open(MemoryOptions { lanes, clock, ..MemoryOptions::default() }),
            now,
            negotiations: 0,
            aborts: false,
        }
    }

    /// Another handle on a bus; it only archives.
    pub(super) fn sharing(bus: &Bus) -> Self {
        Self { bus: bus.clone(), now: Arc::default(), negotiations: 0, aborts: false }
    }

    /// A bus with the same log, and its clock: as if the store had been copied.
    pub(super) async fn copied(&self) -> Self {
        let copy = Self { negotiations: self.negotiations, ..Self::new(self.bus.log.lanes()) };
        for lane in (0..self.bus.log.lanes()).map(Lane) {
            let (mut records, end) =
                (self.bus.log.read(lane, 1).await.unwrap(), self.bus.log.last_seq(lane).await.unwrap());
            while copy.bus.log.last_seq(lane).await.unwrap() < end {
                let record = records.next().await.unwrap().unwrap();
                copy.now.store(record.stamped.0, Ordering::SeqCst);
                assert_eq!(copy.bus.log.append(lane, record.bytes).await.unwrap(), record.seq);
            }
        }
        copy
    }

    /// Lets so many microseconds pass.
    pub(super) fn pass(&self, us: u64) {
        self.now.fetch_add(us, Ordering::SeqCst);
    }

    /// Somebody registers another winner before the engine does; whether the engine then logs it.
    pub(super) async fn contest(&mut self, is_logged: bool) {
        self.aborts = is_logged;
        let key = RegisterKey::parse("award.alice~job-1.0.1").unwrap();
        self.bus.register.write(key, Bytes::from_static(b"{\"award\":{}}")).await.unwrap();
    }

    async fn append(&self, lane: Lane, bytes: impl Into<Bytes>) -> u64 {
        self.now.fetch_add(1000, Ordering::SeqCst);
        self.bus.log.append(lane, bytes.into()).await.unwrap()
    }

    async fn append_entries(&self, lane: Lane, entries: Vec<Entry>) {
        self.append(lane, Record::new("lab", entries).encode().unwrap()).await;
    }

    /// One negotiation from its call to its end: completed when its number is even, otherwise expired after an award that
    /// nobody confirmed.
    pub(super) async fn negotiate(&mut self, lane: Lane) {
        self.negotiations += 1;
        let number = self.negotiations;
        let id = format!("alice~job-{number}");
        self.append_entries(lane, vec![call(&id)]).await;
        let documents = [document("second")];
        let offer = json!({"act": "offer", "terms": {"price": 1_000_000 + number}, "documents": documents});
        self.append_entries(lane, vec![message("bob", &id, 1, offer)]).await;
        if self.aborts {
            let event = EngineEvent::Abort {
                negotiation: NegotiationId::try_new(&id).unwrap(),
                code: "register_conflict".to_owned(),
            };
            self.append_entries(lane, vec![Entry::Engine { epoch: 0, event }]).await;
        } else if number.is_multiple_of(2) {
            let confirm = message("bob", &id, 2, json!({"act": "confirm", "award_no": 1}));
            let report = message("bob", &id, 3, json!({"act": "inform", "kind": "result", "result": "done"}));
            self.append_entries(lane, vec![confirm, Entry::Tick, report]).await;
        } else {
            self.now.fetch_add(3_600_000_000, Ordering::SeqCst);
            self.append_entries(lane, vec![Entry::Tick]).await;
        }
    }

    /// A panel of bob and cyd that agree at once.
    pub(super) async fn agree(&mut self, lane: Lane) {
        let rules = EngineEvent::Rules { version: RULES_VERSION };
        self.append_entries(lane, vec![Entry::Engine { epoch: 0, event: rules }]).await;
        let id = "alice~panel";
        let call = json!({"act": "cfp", "task": "Which is prime?", "panel": {"asking": "all"}});
        self.append_entries(lane, vec![entry("alice", id, 1, call, &pinned(&["bob", "cyd"]))]).await;
        for agent in ["bob", "cyd"] {
            let answer = json!({"act": "answer", "round": 1, "answer": "23"});
            self.append_entries(lane, vec![message(agent, id, 1, answer)]).await;
        }
        self.register_all().await;
    }

    /// Every kind of record: negotiations on every lane, a claim, a foreign writer's records.
    pub(super) async fn fill(&mut self, negotiations: u32) {
        let lanes = self.bus.log.lanes();
        let claim = EngineEvent::Claim { engine: "engine-1".to_owned() };
        self.append_entries(Lane(0), vec![Entry::Engine { epoch: 1, event: claim }]).await;
        for number in 0..negotiations {
            self.negotiate(Lane(u8::try_from(number % u32::from(lanes)).unwrap())).await;
        }
        self.append(Lane(0), &b"{\"no\": \"record\"}"[..]).await;
        self.append(Lane(0), &b"\xff\nnot even text"[..]).await;
        self.append_entries(Lane(0), vec![call("alice~open")]).await;
        self.register_all().await;
    }

    /// What engines do: everything the log leads to is registered.
    pub(super) async fn register_all(&self) {
        let ledger = read_bus(&self.bus).await.unwrap();
        let mut replay = Replay::new(Limits::default());
        for logged in &ledger.records {
            replay.handle_record(logged.lane, logged.seq, logged.time, &logged.record);
        }
        for recomputed in replay.writes() {
            let value = canonical(&recomputed.write.value).unwrap();
            self.bus.register.write(recomputed.write.key.clone(), value.into()).await.unwrap();
        }
    }

    /// An engine logs that the register is answered up to a record.
    pub(super) async fn log_answered(&self, registered: u64) {
        let event = EngineEvent::Delivered { ids: Vec::new(), registered };
        self.append_entries(Lane(0), vec![Entry::Engine { epoch: 1, event }]).await;
    }

    /// Archives to a folder up to the present end.
    pub(super) async fn archive_once(&self, folder: &std::path::Path, segment_bytes: u64) -> Result<(), ArchiveError> {
        self.archive_bounded(folder, segment_bytes, None).await
    }

    /// The same, and what it holds beyond `keep_bytes` is removed.
    pub(super) async fn archive_bounded(
        &self,
        folder: &std::path::Path,
        segment_bytes: u64,
        keep_bytes: Option<u64>,
    ) -> Result<(), ArchiveError> {
        let options = ArchiveOptions { folder: folder.to_path_buf(), segment_bytes, keep_bytes, once: true };
        run(self.bus.clone(), options, Arc::default(), CancellationToken::new()).await
    }

    /// Archives one lane to a disk.
    pub(super) async fn archive_to(&self, disk: &Disk, once: bool, cancel: CancellationToken) -> Archived {
        let status = Arc::new(ArchiveStatus::default());
        let options = ArchiveOptions { folder: PathBuf::new(), segment_bytes: SEGMENT_BYTES, keep_bytes: None, once };
        let bus = Bus {
            blobs: Arc::new(Watched { blobs: Arc::clone(&self.bus.blobs), disk: disk.clone() }),
            ..self.bus.clone()
        };
        let outcome = archive_lane(bus, Lane(0), disk.clone(), options, Arc::clone(&status), cancel).await;
        Archived { outcome, status }
    }
}

/// Small, so that a short log has many.
pub(super) const SEGMENT_BYTES: u64 = 6000;

pub(super) struct Archived {
    pub(super) outcome: Result<(), ArchiveError>,
    pub(super) status: Arc<ArchiveStatus>,
}

/// The protocol document of a name; calls ask for `first` or `second`, offers name `second`.
pub(super) fn document(name: &str) -> DocumentHash {
    DocumentHash::of_bytes(name.as_bytes())
}

/// What a gateway pins to a call to these agents.
fn pinned(invited: &[&str]) -> Value {
    let policy = preset("low").unwrap();
    let invited: Vec<Value> = invited.iter().map(|agent| json!({"agent": agent})).collect();
    json!({"policy": policy, "policy_digest": policy.digest().unwrap(), "invited": invited})
}

/// A call to bob.
fn call(id: &str) -> Entry {
    let pinned = pinned(&["bob"]);
    let documents = json!({"hashes": [document("first"), document("second")]});
    entry("alice", id, 1, json!({"act": "cfp", "task": "deliver", "documents": documents}), &pinned)
}

fn message(from: &str, id: &str, number: u32, payload: Value) -> Entry {
    entry(from, id, number, payload, &Value::Null)
}

fn entry(from: &str, id: &str, number: u32, payload: Value, pinned: &Value) -> Entry {
    let body = json!({
        "envelope": {
            "msg_id": format!("m{number}"), "ts": "2026-01-01T00:00:00Z", "from": format!("agent://{from}"),
            "negotiation": id, "seq": number,
        },
        "payload": payload,
    });
    let body = String::from_utf8(canonical(&body).unwrap()).unwrap();
    let digest = Digest::of_bytes(body.as_bytes());
    let document = format!(
        r#"{{"message":{{"from":"{from}","negotiation":"{id}","act":{},"digest":"{digest}","body":{body},"pinned":{pinned}}}}}"#,
        payload["act"]
    );
    serde_json::from_str(&document).unwrap()
}
