//! `llmx serve` as a user meets it: real processes, ended and killed, on a folder that is kept.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::signalled::{PATIENCE, PROMPT, Process};
use crate::text;

/// A served exchange, and what it printed.
struct Served {
    process: Process,
    url: String,
}

impl Served {
    async fn start(folder: &Path, more: &[&str]) -> Self {
        let args = [&["serve", "--data", text(folder), "--listen", "127.0.0.1:0"], more].concat();
        let mut process = Process::start(&args);
        let url = process.says("exchange: ").await;
        let console = process.says("console: ").await;
        assert!(!console.contains("#token="), "no administrator's token in a log: {console}");
        process.says("an agent: ").await;
        Self { process, url }
    }

    /// The outcome of one negotiation with contractors that are there.
    async fn call(&self, folder: &Path, id: &str) -> Value {
        let key = folder.join("signing-key.pem");
        let args = ["call", "carry a parcel", "--json", "--id", id, "--gateway", &self.url, "--key", text(&key)];
        let (code, said, complained) = Process::start(&args).end_by_itself().await;
        assert_eq!(code, Some(0), "{said} {complained}");
        serde_json::from_str(&said).unwrap()
    }

    async fn contractors(&self, folder: &Path) -> Process {
        let key = folder.join("signing-key.pem");
        let args = ["contractors", "--count", "2", "--gateway", &self.url, "--key", text(&key)];
        let mut contractors = Process::start(&args);
        contractors.says("contractors: 2 connected").await;
        contractors
    }

    /// What its initiator sees of a negotiation.
    async fn negotiation(&self, folder: &Path, id: &str) -> Value {
        let signed = Process::start(&["token", "caller", "--key", text(&folder.join("signing-key.pem"))]);
        let (_, token, _) = signed.end_by_itself().await;
        let client = reqwest::Client::builder().no_proxy().timeout(PROMPT).build().unwrap();
        let url = format!("{}/v1/negotiations/{id}", self.url);
        let asked = client.get(url).bearer_auth(token.trim()).send().await.unwrap();
        assert_eq!(asked.status(), 200, "{id}");
        asked.json().await.unwrap()
    }
}

/// The process of the nats-server of a folder, none where it does not run.
fn nats_of(folder: &Path) -> Option<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().into_string().ok()).find(|process| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains("--config") && line.contains(text(folder))
    })
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_served_exchange_goes_on_where_it_was_however_it_ended() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut before: Option<Value> = None;
    for (run, signal) in ["TERM", "INT", "KILL", "KILL", "TERM"].into_iter().enumerate() {
        let served = Served::start(folder, &[]).await;
        if let Some(before) = &before {
            let after = served.negotiation(folder, &format!("caller~run-{}", run - 1)).await;
            assert_eq!(after["awards"], before["awards"], "{run}: {after}");
        }
        let contractors = served.contractors(folder).await;
        let id = format!("run-{run}");
        served.call(folder, &id).await;
        before = Some(served.negotiation(folder, &format!("caller~{id}")).await);
        assert_eq!(before.as_ref().unwrap()["awards"].as_array().unwrap().len(), 1, "{before:?}");
        assert_eq!(contractors.ended_by("TERM").await.0, Some(0));
        let (code, complained) = served.process.ended_by(signal).await;
        assert_eq!(code, if signal == "KILL" { None } else { Some(0) }, "{complained}");
        until("its nats-server ends with it", || nats_of(folder).is_none()).await;
        // What a start leaves that is cut short, or somebody removes.
        std::fs::write(folder.join("nats/users.conf"), "").unwrap();
        std::fs::write(folder.join("jwks.json"), "").unwrap();
        std::fs::remove_file(folder.join("lock")).unwrap();
    }
    for private in ["signing-key.pem", "nats-url", "nats/users.conf"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(folder.join(private)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{private}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nats_server_that_dies_is_started_again_and_the_exchange_goes_on() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut served = Served::start(folder, &[]).await;
    let _contractors = served.contractors(folder).await;
    served.call(folder, "before").await;
    let dead = nats_of(folder).unwrap();
    assert!(Command::new("kill").args(["-KILL", &dead]).status().await.unwrap().success());
    served.process.complains("it is started again").await;
    until("another one runs", || nats_of(folder).is_some_and(|process| process != dead)).await;
    until_ready(&served.url).await;
    served.call(folder, "after").await;

    let (users, dead) = (folder.join("nats/users.conf"), nats_of(folder).unwrap());
    let kept = std::fs::read_to_string(&users).unwrap();
    std::fs::write(&users, "users {").unwrap();
    assert!(Command::new("kill").args(["-KILL", &dead]).status().await.unwrap().success());
    let said = served.process.complains("nats-server did not start: ").await;
    assert!(said.contains("users.conf"), "what is wrong now, and nothing of earlier starts: {said}");
    std::fs::write(&users, kept).unwrap();
    until("it is started once it can be", || nats_of(folder).is_some()).await;
    until_ready(&served.url).await;
    served.call(folder, "repaired").await;
    assert_eq!(served.negotiation(folder, "caller~before").await["awards"].as_array().unwrap().len(), 1);
    assert_eq!(served.process.ended_by("TERM").await.0, Some(0));
    assert_eq!(nats_of(folder), None);
}

async fn until_ready(url: &str) {
    let (code, _, complained) = Process::start(&["healthcheck", "--wait", "30", url]).end_by_itself().await;
    assert_eq!(code, Some(0), "{complained}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_folder_is_served_once_and_an_exchange_in_memory_keeps_only_keys() {
    let folder = TempDir::new().unwrap();
    let served = Served::start(folder.path(), &["--ephemeral"]).await;
    let second = Process::start(&["serve", "--data", text(folder.path()), "--ephemeral"]);
    let (code, _, complained) = second.end_by_itself().await;
    let holder = format!("is held by llmx serve, process {}, or by", served.process.child.id().unwrap());
    assert!(code == Some(2) && complained.contains(&holder), "{complained}");
    assert_eq!(served.process.ended_by("TERM").await.0, Some(0));
    let mut kept: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    kept.sort();
    assert_eq!(kept, ["jwks.json", "lock", "signing-key.pem"]);
}

#[tokio::test]
async fn what_keeps_an_exchange_from_being_served_is_named_with_its_remedy() {
    let folder = TempDir::new().unwrap();
    let (file, old, taken) =
        (folder.path().join("file"), folder.path().join("old"), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    std::fs::write(&file, "").unwrap();
    std::fs::write(&old, "#!/bin/sh\necho nats-server: v2.9.0\n").unwrap();
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let hangs = folder.path().join("hangs");
    std::fs::write(&hangs, "#!/bin/sh\nexec sleep 100\n").unwrap();
    std::fs::set_permissions(&hangs, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let quoted = folder.path().join("a \"quote\"");
    let (data, port) = (folder.path().join("data"), taken.local_addr().unwrap().to_string());
    let data = ["--data", text(&data)];
    for (args, nats_server, code, parts) in [
        (vec!["--data", text(&file)], None, 2, vec!["cannot be used", "--data (LLMX_DATA)"]),
        (vec!["--data", "/proc/llmx"], None, 2, vec!["cannot be used", "--data (LLMX_DATA)"]),
        ([&data[..], &["--listen", &port]].concat(), None, 1, vec!["cannot listen on", "in use"]),
        (data.to_vec(), Some("/nowhere/nats-server"), 1, vec!["NATS_SERVER names /nowhere/nats-server"]),
        (vec!["--data", text(&quoted)], None, 2, vec!["without quotes", "--data (LLMX_DATA)"]),
        ([&data[..], &["--replicas", "3"]].concat(), None, 2, vec!["--replicas", "--nats of a cluster"]),
        (data.to_vec(), Some(text(&hangs)), 1, vec!["does not say its version", "NATS_SERVER"]),
        (data.to_vec(), Some(text(&old)), 2, vec!["2.9.0", "2.12.3"]),
        (
            [&data[..], &["--ephemeral", "--nats", "127.0.0.1"]].concat(),
            None,
            2,
            vec!["no setting of NATS goes with it"],
        ),
        ([&data[..], &["--policy", "no-such"]].concat(), None, 2, vec!["--policy: `gateway.default_policy`: "]),
    ] {
        let mut command = crate::heeding_every_signal(crate::LLMX);
        command.arg("serve").args(&args);
        if let Some(binary) = nats_server {
            command.env("NATS_SERVER", binary);
        }
        let (seen, said, complained) = Process::run(command).end_by_itself().await;
        assert_eq!((seen, said.as_str()), (Some(code), ""), "{args:?}: {complained}");
        for part in parts {
            assert!(complained.contains(part), "{args:?}: no {part} in {complained}");
        }
    }
}
