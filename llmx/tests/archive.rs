//! The archive of a log on a real nats-server, as scripts use it: written under load, killed, verified without the server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bus::nats::NatsOptions;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::Lane;
use serde_json::Value;

const LLMX: &str = env!("CARGO_BIN_EXE_llmx");
/// Longest wait for something that must happen; hanging is failing.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archiver_killed_under_load_goes_on_and_its_archive_verifies_without_nats() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (url, folder) = (server.url(), tempfile::tempdir().unwrap());
    let archive = folder.path().join("archive");
    let archiver = || Archiver::start(&["--nats", &url, "--to", text(&archive), "--segment-bytes", "65536"]);
    let mut first = archiver();
    let demo = tokio::spawn({
        let url = url.clone();
        async move { llmx(&["demo", "--json", "--nats", &url, "--agents", "5", "--rate", "40", "--duration", "4"]).await }
    });
    // The lock is there first; a few segments later it dies.
    until(|| segments(&archive).len() > 6).await;
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let open = llmx(&["audit", "verify", "--json", text(&archive)]).await;
    assert_eq!(open.status.code(), Some(1), "{}", stderr(&open));
    let second = archiver();
    let demo = demo.await.unwrap();
    assert_eq!(demo.status.code(), Some(0), "{}", stderr(&demo));
    let ended = second.interrupt();
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    // What was logged between the last look and the stop.
    let once = llmx(&["archive", "--json", "--once", "--nats", &url, "--to", text(&archive)]).await;
    assert_eq!(once.status.code(), Some(0), "{}", stderr(&once));
    assert!(one_document(&once)["lanes"].as_array().unwrap().iter().all(|lane| lane["told"] == lane["position"]));
    let live = one_document(&llmx(&["replay", "--json", "--nats", &url]).await);
    drop(server);

    let report = one_document(&llmx(&["audit", "verify", "--json", text(&archive)]).await);
    assert_eq!(report["first_difference"], Value::Null, "{report}");
    let awards = &one_document(&demo)["awards"];
    for (name, value) in [("decisions", awards), ("records", &live["records"]), ("messages", &live["messages"])] {
        assert_eq!(&report[name], value, "{name}: {report}");
    }
    assert_eq!((&report["register_entries"], &report["unregistered"]), (&live["register_entries"], &Value::from(0)));
    let replayed = llmx(&["replay", text(&archive)]).await;
    assert_eq!(replayed.status.code(), Some(0), "{}", stderr(&replayed));
    let only = llmx(&["audit", "verify", text(&archive), "--negotiation", "alice~nobody-1"]).await;
    assert_eq!(only.status.code(), Some(1));
    assert!(stderr(&only).contains("no negotiation alice~nobody-1 ended"), "{}", stderr(&only));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_altered_archive_or_export_fails_and_its_line_is_named() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (url, folder) = (server.url(), tempfile::tempdir().unwrap());
    let (archive, export) = (folder.path().join("archive"), folder.path().join("run.jsonl"));
    let args = ["demo", "--json", "--nats", &url, "--agents", "3", "--duration", "1", "--export", text(&export)];
    assert_eq!(llmx(&args).await.status.code(), Some(0));
    let once = llmx(&["archive", "--once", "--nats", &url, "--to", text(&archive)]).await;
    assert_eq!(once.status.code(), Some(0), "{}", stderr(&once));
    assert!(String::from_utf8_lossy(&once.stdout).contains("lane 0: archived up to record "));

    for file in [segments(&archive).remove(0), export.clone()] {
        let path = if file == export { &export } else { &archive };
        let whole = llmx(&["audit", "verify", text(path)]).await;
        assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
        let original = std::fs::read(&file).unwrap();
        let at = original.len() / 2;
        let line = original[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let mut altered = original.clone();
        altered[at] ^= 1;
        std::fs::write(&file, altered).unwrap();
        let refused = llmx(&["audit", "verify", text(path)]).await;
        assert_eq!(refused.status.code(), Some(1));
        let told = stderr(&refused);
        assert!(told.contains(text(&file)) && told.contains(&format!("line {line}")), "byte {at}: {told}");
        std::fs::write(&file, original).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trimmed_log_is_replayed_from_its_archive_and_archived_by_no_other_folder() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (url, folder) = (server.url(), tempfile::tempdir().unwrap());
    let (archive, other) = (folder.path().join("archive"), folder.path().join("other"));
    let demo = llmx(&["demo", "--json", "--nats", &url, "--agents", "3", "--duration", "1"]).await;
    assert_eq!(demo.status.code(), Some(0), "{}", stderr(&demo));
    let args = ["archive", "--once", "--nats", &url, "--to"];
    assert_eq!(llmx(&[&args[..], &[text(&archive)]].concat()).await.status.code(), Some(0));
    let bus = bus::nats::open(NatsOptions::new(&url)).await.unwrap();
    bus.log.trim(Lane(0), u64::MAX).await.unwrap();

    let live = llmx(&["replay", "--nats", &url]).await;
    assert_eq!(live.status.code(), Some(2));
    assert!(stderr(&live).contains("replay the archive"), "{}", stderr(&live));
    // Who knows the archive need not know whether the log was trimmed, nor forget where NATS is.
    let either = llmx(&["replay", "--json", "--nats", &url, "--archive", text(&archive)]).await;
    assert_eq!(either.status.code(), Some(0), "{}", stderr(&either));
    assert!(stderr(&either).contains("its archive"), "{}", stderr(&either));
    let mut offline = Command::new(LLMX);
    offline.env("LLMX_NATS", &url).args(["replay", "--json", text(&archive)]);
    let offline = tokio::task::spawn_blocking(move || offline.output().unwrap()).await.unwrap();
    assert_eq!(one_document(&offline), one_document(&either), "{}", stderr(&offline));
    let replayed = one_document(&llmx(&["replay", "--json", text(&archive)]).await);
    assert_eq!((&replayed["decisions"], &replayed["first_difference"]), (&one_document(&demo)["awards"], &Value::Null));
    let refused = llmx(&[&args[..], &[text(&other)]].concat()).await;
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("Go on in the folder"), "{}", stderr(&refused));
    assert_eq!(llmx(&[&args[..], &[text(&archive)]].concat()).await.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_of_the_archive_is_named_and_fails_its_verification_and_no_replay() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (url, folder) = (server.url(), tempfile::tempdir().unwrap());
    let archive = folder.path().join("archive");
    let demo = llmx(&["demo", "--json", "--nats", &url, "--agents", "3", "--duration", "1"]).await;
    assert_eq!(demo.status.code(), Some(0), "{}", stderr(&demo));
    assert_eq!(llmx(&["archive", "--once", "--nats", &url, "--to", text(&archive)]).await.status.code(), Some(0));
    std::fs::write(archive.join("lane-0/resume.new"), "half").unwrap();
    let whole = llmx(&["audit", "verify", text(&archive)]).await;
    assert_eq!(whole.status.code(), Some(0), "what an archiver leaves is no fault: {}", stderr(&whole));
    assert!(String::from_utf8_lossy(&whole.stdout).contains("left over: "));

    let stray = archive.join("lane-0/00000000000000000001.jsonl.orig");
    std::fs::copy(&segments(&archive)[0], &stray).unwrap();
    let refused = llmx(&["audit", "verify", text(&archive)]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stdout).contains(&format!("not of the archive: {}", text(&stray))));
    assert!(stderr(&refused).contains(text(&stray)), "{}", stderr(&refused));
    let refused = llmx(&["audit", "verify", "--json", text(&archive)]).await;
    let report = one_document(&refused);
    assert_eq!((refused.status.code(), &report["first_difference"]), (Some(1), &Value::Null));
    assert_eq!(report["foreign"][0]["file"], text(&stray));
    // What the records lead to does not depend on what lies beside them.
    assert_eq!(llmx(&["replay", text(&archive)]).await.status.code(), Some(0));
}

/// A process that follows the log; it ends with the test.
struct Archiver {
    child: Child,
}

impl Archiver {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(LLMX);
        command.arg("archive").args(args).stdout(Stdio::null()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    fn interrupt(self) -> Output {
        let killed = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let mut this = std::mem::ManuallyDrop::new(self);
        let stderr = this.child.stderr.take();
        let status = this.child.wait().unwrap();
        let mut told = Vec::new();
        std::io::Read::read_to_end(&mut stderr.unwrap(), &mut told).unwrap();
        Output { status, stdout: Vec::new(), stderr: told }
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn segments(archive: &Path) -> Vec<PathBuf> {
    let folder = |path: &Path| std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = folder(archive).filter(|path| path.is_dir()).flat_map(|path| folder(&path)).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn llmx(args: &[&str]) -> Output {
    let mut command = assert_cmd::Command::new(LLMX);
    command.args(args).timeout(Duration::from_secs(120));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn one_document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
