//! `llmx award` and `llmx keys --purpose records`, as scripts use them: an archive, its records, and their codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use archive::audit::read_bus;
use bus::memory::{self, MemoryOptions};
use policy_core::Limits;
use policy_core::replay::Replay;
use schemas::digest::canonical;
use schemas::{Lane, Timestamp};
use serde_json::Value;
use tempfile::TempDir;

const LLMX: &str = env!("CARGO_BIN_EXE_llmx");
/// A golden log of contract nets; one award was done, one taken back.
const LOG: &str = "log-07.jsonl";

/// A folder with an archive of a golden log, and keys.
struct Rig {
    folder: TempDir,
}

impl Rig {
    async fn new() -> Self {
        let rig = Self { folder: tempfile::tempdir().unwrap() };
        rig.archive(LOG, "archive").await;
        for purpose in ["tokens", "records"] {
            let made = rig.run(&["keys", "--purpose", purpose, "--out", "keys", "--json"]);
            assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        }
        rig
    }

    async fn archive(&self, log: &str, folder: &str) {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policy/core/golden/rules-1").join(log);
        let now = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&now);
        let clock = Arc::new(move || Timestamp(clock.load(Ordering::SeqCst)));
        let bus = memory::open(MemoryOptions { lanes: 1, clock, ..MemoryOptions::default() });
        let text = fs::read_to_string(text).unwrap();
        for line in text.lines().filter(|line| line.starts_with("{\"seq\"")) {
            let line: Value = serde_json::from_str(line).unwrap();
            now.store(line["time"].as_u64().unwrap(), Ordering::SeqCst);
            bus.log.append(Lane(0), line["record"].to_string().into()).await.unwrap();
        }
        let mut replay = Replay::new(Limits::default());
        for logged in &read_bus(&bus).await.unwrap().records {
            replay.handle_record(logged.lane, logged.seq, logged.time, &logged.record);
        }
        for found in replay.writes() {
            let value = canonical(&found.write.value).unwrap();
            bus.register.write(found.write.key.clone(), value.into()).await.unwrap();
        }
        let segment_bytes = archive::SEGMENT_BYTES_DEFAULT;
        let folder = self.path(folder);
        let options = archive::ArchiveOptions { folder, segment_bytes, keep_bytes: None, once: true };
        archive::run(bus, options, Arc::default(), tokio_util::sync::CancellationToken::new()).await.unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(LLMX);
        command.current_dir(self.folder.path()).env_remove("LLMX_ISSUER").env_remove("LLMX_SIGNING_KEY");
        command.args(args).output().unwrap()
    }

    fn export(&self, args: &[&str]) -> Output {
        let usual = ["award", "export", "--archive", "archive", "--record-key", "keys/record-key.pem", "--out", "out"];
        self.run(&[&usual[..], args].concat())
    }

    fn verify(&self, args: &[&str]) -> Output {
        self.run(&[&["award", "verify", "--jwks", "keys/record-jwks.json"][..], args].concat())
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

const DONE: &str = "out/i1~job/0-1.jws";
const REVOKED: &str = "out/i2~job/0-1.jws";

#[tokio::test]
async fn records_are_exported_and_verify_by_the_key_set_and_the_archive() {
    let rig = Rig::new().await;
    let exported = rig.export(&["--json", "--after", "positions.json"]);
    assert_eq!(exported.status.code(), Some(0), "{}", stderr(&exported));
    assert_eq!((&document(&exported)["records"], &document(&exported)["left_out"]), (&2.into(), &0.into()));
    assert_eq!(document(&rig.export(&["--json", "--after", "positions.json"]))["read"], 0, "nothing is new");
    for (file, state) in [(DONE, "done"), (REVOKED, "revoked")] {
        let verified = rig.verify(&[file, "--issuer", "llmx-local", "--archive", "archive", "--json"]);
        assert_eq!(verified.status.code(), Some(0), "{}", stderr(&verified));
        let verdict = document(&verified);
        assert_eq!((&verdict["valid"], &verdict["record"]["state"]), (&true.into(), &state.into()));
        let words = rig.verify(&[file]);
        assert!(String::from_utf8_lossy(&words.stdout).contains(state), "{words:?}");
    }
}

#[tokio::test]
async fn a_record_that_is_none_ends_with_1_and_its_code_and_a_mistake_of_the_command_line_with_2() {
    let rig = Rig::new().await;
    assert_eq!(rig.export(&[]).status.code(), Some(0));
    rig.archive("bargain-03.jsonl", "other").await;
    let record = fs::read_to_string(rig.path(DONE)).unwrap();
    fs::write(rig.path("bytes"), [0xff, 0xfe]).unwrap();
    fs::write(rig.path("unsigned"), record.rsplit_once('.').unwrap().0).unwrap();
    let token = rig.run(&["token", "alice", "--key", "keys/signing-key.pem"]);
    fs::write(rig.path("token"), &token.stdout).unwrap();
    let private =
        fs::read_to_string(rig.path("keys/record-jwks.json")).unwrap().replace("\"kty\"", "\"d\":\"x\",\"kty\"");
    fs::write(rig.path("private.json"), private).unwrap();
    let rows: [(&[&str], i32, &str); 10] = [
        (&["bytes"], 1, "malformed"),
        (&["unsigned"], 1, "malformed"),
        (&["token"], 1, "wrong_type"),
        (&[DONE, "--issuer", "https://other.example"], 1, "bad_claims"),
        (&[DONE, "--archive", "other"], 1, "not_in_archive"),
        (&["nothing"], 2, "cannot open nothing"),
        (&[DONE, "--archive", "nothing"], 2, "nothing"),
        (&[DONE, "--jwks", "nothing.json"], 2, "cannot be used multiple times"),
        (&["--jwks", "x"], 2, "cannot be used multiple times"),
        (&[], 2, "<FILE>"),
    ];
    for (args, code, says) in rows {
        let ran = rig.verify(args);
        assert_eq!(ran.status.code(), Some(code), "{args:?}: {}", stderr(&ran));
        assert!(stderr(&ran).contains(says), "{args:?}: {}", stderr(&ran));
    }
    for (set, code, says) in [
        ("nothing.json", 2, "cannot be read"),
        ("private.json", 2, "holds a private key"),
        (DONE, 2, "the key set"),
        ("http://exchange.example/jwks.json", 2, "fetched over https"),
        ("keys/jwks.json", 1, "unknown_key"),
    ] {
        let ran = rig.run(&["award", "verify", DONE, "--jwks", set]);
        assert_eq!(ran.status.code(), Some(code), "{set}: {}", stderr(&ran));
        assert!(stderr(&ran).contains(says), "{set}: {}", stderr(&ran));
    }
    let refused = rig.verify(&["token", "--json"]);
    assert_eq!(document(&refused)["code"], "wrong_type");
}

#[tokio::test]
async fn an_altered_archive_exports_nothing_and_its_old_record_differs() {
    let rig = Rig::new().await;
    assert_eq!(rig.export(&[]).status.code(), Some(0));
    let segment = rig.path("archive/lane-0/00000000000000000001.jsonl");
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let refused = rig.export(&["--out", "again", "--after", "positions.json"]);
    assert_eq!(refused.status.code(), Some(2), "an option twice");
    let args = ["award", "export", "--archive", "archive", "--record-key", "keys/record-key.pem", "--out", "again"];
    let refused = rig.run(&args);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("nothing is exported"), "{}", stderr(&refused));
    assert!(!rig.path("again").exists());
    let differs = rig.verify(&[DONE, "--archive", "archive"]);
    assert_eq!(differs.status.code(), Some(1));
    assert!(stderr(&differs).contains("differs_from_archive"), "{}", stderr(&differs));
}

#[tokio::test]
async fn a_key_of_tokens_signs_no_records_and_a_key_of_records_no_tokens() {
    let rig = Rig::new().await;
    let args = ["award", "export", "--archive", "archive", "--out", "out", "--record-key"];
    let refused = rig.run(&[&args[..], &["keys/signing-key.pem"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("`llmx keys --purpose records` makes one"), "{}", stderr(&refused));
    let refused = rig.run(&["token", "alice", "--key", "keys/record-key.pem"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("no tokens"), "{}", stderr(&refused));
    let refused = rig.run(&["keys", "--purpose", "records", "--algorithm", "es256", "--out", "other"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(!rig.path("other").exists());
}

#[tokio::test]
async fn a_record_key_is_kept_and_rotated_like_another() {
    let rig = Rig::new().await;
    let keys = |args: &[&str]| {
        document(&rig.run(&[&["keys", "--purpose", "records", "--out", "keys", "--json"][..], args].concat()))
    };
    let (kept, added) = (keys(&["--keep"]), keys(&["--add"]));
    let set: Value = serde_json::from_slice(&fs::read(rig.path("keys/record-jwks.json")).unwrap()).unwrap();
    assert_eq!((&set["keys"][0]["kid"], &set["keys"][1]["kid"]), (&kept["kid"], &added["kid"]));
    assert_eq!(kept["kid"].as_str().unwrap().len(), 43, "a thumbprint");
    let key = format!("keys/record-key-{}.pem", added["kid"].as_str().unwrap());
    let args = ["award", "export", "--archive", "archive", "--record-key", &key, "--out", "out"];
    assert_eq!(rig.run(&args).status.code(), Some(0));
    assert_eq!(rig.verify(&[DONE]).status.code(), Some(0), "the new key verifies by the set");
    let nobody = rig.export(&["--negotiation", "alice~nobody"]);
    assert_eq!(nobody.status.code(), Some(1), "{}", stderr(&nobody));
}
