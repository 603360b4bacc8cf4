//! A disk that fails when told, and a bus that watches what the engines are told.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bus::{Blobs, BusError};
use bytes::Bytes;
use parking_lot::Mutex;
use schemas::{Lane, RegisterKey};
use serde_json::Value;

use crate::position_name;
use crate::scan::{Scan, Stop};
use crate::segment_store::{MEMO, Media};

/// A lane's segments in memory. It can lose power in the middle of a write, or be full for a while.
#[derive(Clone, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    segments: BTreeMap<u64, Vec<u8>>,
    /// Bytes it still takes; everything when absent.
    room: Option<usize>,
    error: Option<ErrorKind>,
    stores: u64,
    /// Documents beside the segments by name.
    documents: BTreeMap<String, Vec<u8>>,
    /// Segments read.
    read: Vec<u64>,
    /// Times the engines were told more than the disk held.
    lies: Vec<String>,
}

impl Disk {
    /// After `room` bytes, every write ends with `error`, having stored what there was room for.
    pub(super) fn fail_after(&self, room: usize, error: ErrorKind) {
        let mut state = self.0.lock();
        (state.room, state.error) = (Some(room), Some(error));
    }

    pub(super) fn heal(&self) {
        self.0.lock().room = None;
    }

    pub(super) fn contents(&self) -> BTreeMap<u64, Vec<u8>> {
        self.0.lock().segments.clone()
    }

    pub(super) fn replace(&self, segments: BTreeMap<u64, Vec<u8>>) {
        self.0.lock().segments = segments;
    }

    pub(super) fn replace_memo(&self, memo: Option<Vec<u8>>) {
        let documents = &mut self.0.lock().documents;
        match memo {
            Some(memo) => documents.insert(MEMO.to_owned(), memo),
            None => documents.remove(MEMO),
        };
    }

    /// The segments read since it was last asked.
    pub(super) fn take_read(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().read)
    }

    pub(super) fn stores(&self) -> u64 {
        self.0.lock().stores
    }

    pub(super) fn lies(&self) -> Vec<String> {
        self.0.lock().lies.clone()
    }

    /// The last record it holds with everything that is said about it, whatever follows it.
    pub(super) fn position(&self) -> u64 {
        let mut walk = Scan::new(Lane(0), 1);
        for (segment, bytes) in self.contents() {
            let read = walk.read_segment(segment, bytes.as_slice(), |_, _| {});
            assert!(matches!(read.stop, Stop::End | Stop::Torn | Stop::Garbled(_)), "{:?}", read.stop);
        }
        // While something is still to be said about the last record, only what lies before it is held.
        walk.position() - u64::from(!walk.take_owed().is_empty())
    }
}

impl Media for Disk {
    fn segments(&self) -> io::Result<Vec<u64>> {
        Ok(self.0.lock().segments.keys().copied().collect())
    }

    fn read(&self, segment: u64) -> io::Result<Box<dyn Read>> {
        let mut state = self.0.lock();
        state.read.push(segment);
        Ok(Box::new(io::Cursor::new(state.segments[&segment].clone())))
    }

    fn document(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().documents.get(name).cloned())
    }

    fn keep(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        if name == MEMO && state.room == Some(0) {
            return Err(ErrorKind::StorageFull.into());
        }
        state.documents.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn store(&mut self, segment: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        state.stores += 1;
        let taken = state.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if let Some(room) = &mut state.room {
            *room -= taken;
        }
        let file = state.segments.entry(segment).or_default();
        file.truncate(usize::try_from(at).unwrap());
        file.extend_from_slice(&bytes[..taken]);
        let error = state.error.filter(|_| taken < bytes.len() || state.room == Some(0));
        error.filter(|_| state.room.is_some()).map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.0.lock().segments.remove(&segment).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn size(&self, segment: u64) -> io::Result<u64> {
        Ok(self.0.lock().segments[&segment].len() as u64)
    }

    fn path(&self, segment: u64) -> PathBuf {
        PathBuf::from(segment.to_string())
    }
}

/// Notes when the engines are told more than the disk holds.
pub(super) struct Watched {
    pub(super) blobs: Arc<dyn Blobs>,
    pub(super) disk: Disk,
}

#[bus::async_trait]
impl Blobs for Watched {
    async fn put(&self, name: String, version: u64, value: Bytes) -> Result<bool, BusError> {
        assert_eq!(name, position_name(Lane(0)));
        let (told, held) =
            (serde_json::from_slice::<Value>(&value).unwrap()["position"].as_u64().unwrap(), self.disk.position());
        if told > held || told != version {
            self.disk.0.lock().lies.push(format!("told {told}, held {held}"));
        }
        self.blobs.put(name, version, value).await
    }

    async fn value(&self, name: String) -> Result<Option<Bytes>, BusError> {
        self.blobs.value(name).await
    }

    async fn version(&self, name: String) -> Result<Option<u64>, BusError> {
        self.blobs.version(name).await
    }
}

/// A register that answers only from the n-th question on.
pub(super) struct Late {
    pub(super) register: Arc<dyn bus::Register>,
    pub(super) unanswered: AtomicUsize,
}

#[bus::async_trait]
impl bus::Register for Late {
    async fn write(&self, key: RegisterKey, value: Bytes) -> Result<bus::Registered, BusError> {
        self.register.write(key, value).await
    }

    async fn value(&self, key: RegisterKey) -> Result<Option<Bytes>, BusError> {
        let spend = |left: usize| left.checked_sub(1);
        match self.unanswered.try_update(Ordering::SeqCst, Ordering::SeqCst, spend) {
            Ok(_) => Ok(None),
            Err(_) => self.register.value(key).await,
        }
    }

    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError> {
        self.register.entries().await
    }

    async fn entries_from(&self, seq: u64, max: usize) -> Result<Vec<bus::StandingEntry>, BusError> {
        self.register.entries_from(seq, max).await
    }

    async fn remove(&self, key: RegisterKey, seq: u64) -> Result<(), BusError> {
        self.register.remove(key, seq).await
    }

    async fn size(&self) -> Result<bus::RegisterSize, BusError> {
        self.register.size().await
    }
}
