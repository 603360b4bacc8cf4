//! Following the log: a task per lane, and nobody else in the folder.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bus::Bus;
use futures_util::future::BoxFuture;
use schemas::Lane;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ArchiveError;
use super::lane::archive_lane;
use super::segment_store::Folder;
use super::status::ArchiveStatus;

/// Bytes after which a segment is full, unless told otherwise: a few minutes of a busy lane, and small enough to be copied
/// or looked through.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// Segments a lane's share holds at least.
const SEGMENTS_MIN: u64 = 4;
/// The file an archiver holds locked while it writes.
pub(super) const LOCK: &str = "lock";

/// What is archived where.
#[derive(Debug, Clone)]
pub struct ArchiveOptions {
    /// The folder; created when it is missing.
    pub folder: PathBuf,
    /// Bytes after which a new segment begins.
    pub segment_bytes: u64,
    /// Bytes the segments of all lanes may take, in equal shares: beyond, a lane's oldest segments are removed. Nothing is
    /// removed when absent.
    pub keep_bytes: Option<u64>,
    /// Stop at the record that was the last when it began; a fault then ends it instead of being retried.
    pub once: bool,
}

impl ArchiveOptions {
    /// What one of so many lanes may keep, and the size of its segments: small enough that removing one leaves most.
    pub(super) fn for_lane(&self, lanes: u8) -> (Option<u64>, u64) {
        let share = self.keep_bytes.map(|keep| keep / u64::from(lanes.max(1)));
        let segment = share.map_or(self.segment_bytes, |share| self.segment_bytes.min(share / SEGMENTS_MIN).max(1));
        (share, segment)
    }
}

/// Archives every lane until `cancel`, or to the present end of the log.
///
/// # Errors
/// [`ArchiveError`]. Faults that may pass (a full disk, a bus that cannot be reached) are shown in `status` and retried,
/// unless it is to run once.
pub fn run(
    bus: Bus,
    options: ArchiveOptions,
    status: Arc<ArchiveStatus>,
    cancel: CancellationToken,
) -> BoxFuture<'static, Result<(), ArchiveError>> {
    // Boxed: every crate that awaits an `async fn` compiles it again.
    Box::pin(async move {
        let lock = lock(&options.folder)?;
        let cancel = cancel.child_token();
        let mut lanes = JoinSet::new();
        for lane in (0..bus.log.lanes()).map(Lane) {
            let media = Folder::new(&options.folder, lane);
            let (bus, options) = (bus.clone(), options.clone());
            let (status, cancel) = (Arc::clone(&status), cancel.clone());
            lanes.spawn(archive_lane(bus, lane, media, options, status, cancel));
        }
        let mut outcome = Ok(());
        while let Some(ended) = lanes.join_next().await {
            let ended = ended.unwrap_or_else(|panic| {
                let source = io::Error::other(panic);
                Err(ArchiveError::File { path: options.folder.clone(), source })
            });
            if ended.is_err() && outcome.is_ok() {
                // The others stop cleanly; the first fault is the one to tell.
                cancel.cancel();
                outcome = ended;
            }
        }
        drop(lock);
        outcome
    })
}

/// Keeps other archivers out of the folder as long as the file is open.
pub(super) fn lock(folder: &Path) -> Result<File, ArchiveError> {
    let path = folder.join(LOCK);
    let opened = fs::create_dir_all(folder).and_then(|()| File::create(&path));
    let file = opened.map_err(|source| ArchiveError::File { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ArchiveError::Busy(folder.to_path_buf())),
        Err(TryLockError::Error(source)) => Err(ArchiveError::File { path, source }),
    }
}
