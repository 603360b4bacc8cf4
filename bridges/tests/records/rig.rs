//! Golden logs of the core as archives, a key, and what is exported with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use archive::audit::read_bus;
use archive::{ArchiveOptions, run};
use bridges::records::{ExportOptions, Exported, RecordKey, RecordKeySet, RecordsError, export};
use bus::Bus;
use bus::memory::{self, MemoryOptions};
use policy_core::Limits;
use policy_core::replay::Replay;
use schemas::digest::canonical;
use schemas::text::RECORD_KEY_PURPOSE;
use schemas::{Lane, RegisterValue, Timestamp};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The key of RFC 8037 appendix A: its thumbprint is published.
pub(crate) const KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";
/// Its thumbprint there.
pub(crate) const KID: &str = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k";
/// Who signs.
pub(crate) const ISSUER: &str = "https://exchange.example";

/// Its public half.
pub(crate) const PUBLIC: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

pub(crate) fn key() -> RecordKey {
    RecordKey::from_pem(&format!("{RECORD_KEY_PURPOSE}\n{KEY}")).unwrap()
}

pub(crate) fn keys() -> RecordKeySet {
    let key = json!({"alg": "EdDSA", "crv": "Ed25519", "kid": KID, "kty": "OKP", "use": "sig", "x": PUBLIC});
    RecordKeySet::parse(&json!({ "keys": [key] }).to_string()).unwrap()
}

/// A line of a golden log that holds a record.
#[derive(Deserialize)]
struct LoggedLine<'a> {
    time: u64,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// The golden logs of a protocol, by name.
pub(crate) fn golden_logs(prefix: &str) -> Vec<String> {
    let folder = golden_folder();
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    assert!(!names.is_empty(), "{}", folder.display());
    names
}

fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../policy/core/golden/rules-1")
}

/// A log with one lane, and its archive.
pub(crate) struct Rig {
    pub(crate) bus: Bus,
    now: Arc<AtomicU64>,
    folder: TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&now);
        let clock = Arc::new(move || Timestamp(clock.load(Ordering::SeqCst)));
        let options = MemoryOptions { lanes: 1, clock, log_bytes_max: usize::MAX };
        Self { bus: memory::open(options), now, folder: tempfile::tempdir().unwrap() }
    }

    /// A golden log, archived.
    pub(crate) async fn of(name: &str) -> Self {
        let rig = Self::new();
        rig.append_golden(name, 0..usize::MAX).await;
        rig.archive(u64::MAX).await;
        rig
    }

    /// Appends records of a golden log.
    pub(crate) async fn append_golden(&self, name: &str, range: std::ops::Range<usize>) {
        let text = fs::read_to_string(golden_folder().join(name)).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("{\"seq\""));
        for line in lines.skip(range.start).take(range.len()) {
            let LoggedLine { time, record } = serde_json::from_str(line).unwrap();
            self.append(time, record.get()).await;
        }
    }

    pub(crate) async fn append(&self, time: u64, record: &str) {
        self.now.store(time, Ordering::SeqCst);
        self.bus.log.append(Lane(0), record.to_owned().into()).await.unwrap();
    }

    /// What the log leads to, as engines register it.
    pub(crate) async fn registered(&self) -> BTreeMap<String, RegisterValue> {
        let mut replay = Replay::new(Limits::default());
        for logged in &read_bus(&self.bus).await.unwrap().records {
            replay.handle_record(logged.lane, logged.seq, logged.time, &logged.record);
        }
        replay.writes().iter().map(|found| (found.write.key.to_string(), found.write.value.clone())).collect()
    }

    /// Registers everything, and archives up to the present end.
    pub(crate) async fn archive(&self, segment_bytes: u64) {
        for (key, value) in self.registered().await {
            let key = schemas::RegisterKey::parse(&key).unwrap();
            self.bus.register.write(key, canonical(&value).unwrap().into()).await.unwrap();
        }
        let options = ArchiveOptions { folder: self.path("archive"), segment_bytes, keep_bytes: None, once: true };
        run(self.bus.clone(), options, Arc::default(), CancellationToken::new()).await.unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The files of the archive's lane, ascending.
    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("archive/lane-0")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some()).collect();
        files.sort();
        files
    }

    pub(crate) fn options(&self, out: &str) -> ExportOptions {
        ExportOptions {
            archive: self.path("archive"),
            issuer: ISSUER.to_owned(),
            negotiation: None,
            agent: None,
            after: None,
            out: self.path(out),
        }
    }

    pub(crate) fn try_export(&self, options: &ExportOptions) -> Result<Exported, RecordsError> {
        export(options, &key())
    }

    /// Everything exported to a folder.
    pub(crate) fn export(&self, out: &str) -> BTreeMap<String, String> {
        let exported = self.try_export(&self.options(out)).unwrap();
        let files = files(&self.path(out));
        assert_eq!((exported.records, exported.left_out), (files.len() as u64, 0));
        files
    }
}

/// Records by the names of their files.
pub(crate) fn files(out: &Path) -> BTreeMap<String, String> {
    let list = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    };
    let found = list(out).into_iter().flat_map(|folder| list(&folder));
    let name = |path: &Path| path.strip_prefix(out).unwrap().to_str().unwrap().to_owned();
    found.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}
