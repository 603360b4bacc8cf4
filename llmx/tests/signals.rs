//! Every wait ends: on a signal, and on its own time. Real processes, against exchanges that are not there or come late.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "common/program.rs"]
mod program;
mod serve;
#[path = "common/signalled.rs"]
mod signalled;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nats_server::{LocalServer, LocalServerOptions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use signalled::{PATIENCE, PROMPT, Process, heeding_every_signal};

const LLMX: &str = env!("CARGO_BIN_EXE_llmx");
/// Where nothing listens.
const DEAD: &str = "http://127.0.0.1:1";

#[tokio::test]
async fn who_finds_no_gateway_fails_in_time_and_names_address_and_remedy() {
    let keys = Keys::new();
    // `agents` is the old name of `contractors`.
    for command in ["traffic", "contractors", "agents"] {
        let process = Process::start(&[command, "--gateway", DEAD, "--key", keys.key(), "--wait", "1"]);
        let (code, said, complained) = process.end_by_itself().await;
        assert_eq!((code, said.as_str()), (Some(1), ""), "{command}: {complained}");
        for part in [DEAD, "start one (`llmx gateway`)", "--wait", "refused"] {
            assert!(complained.contains(part), "{command}: no {part} in {complained}");
        }
    }
}

#[tokio::test]
async fn who_waits_for_a_gateway_says_so_and_ends_on_a_signal() {
    let keys = Keys::new();
    for (command, signal) in [
        ("traffic", "INT"),
        ("traffic", "TERM"),
        ("contractors", "INT"),
        ("contractors", "TERM"),
        #[cfg(target_os = "linux")]
        ("contractors", "HUP"),
    ] {
        let mut process = Process::start(&[command, "--gateway", DEAD, "--key", keys.key()]);
        process.complains("waiting for a gateway at http://127.0.0.1:1 (Connection refused").await;
        let (code, complained) = process.ended_by(signal).await;
        assert_eq!(code, Some(1), "{command} {signal}: {complained}");
        assert!(complained.contains(&format!("ended by SIG{signal} before it was done")), "{complained}");
    }
}

#[tokio::test]
async fn who_waits_for_nats_says_so_again_and_again_and_ends_on_a_signal() {
    let keys = Keys::new();
    let gateway = ["gateway", "--listen", "127.0.0.1:0", "--jwks", keys.jwks()];
    let folder = keys.folder();
    let archive = ["archive", "--to", folder];
    for (command, signal) in [(&["engine"][..], "TERM"), (&gateway, "INT"), (&archive, "TERM"), (&["replay"], "INT")] {
        let began = Instant::now();
        let mut process = Process::start(&[command, &["--nats", "nats://user:secret@127.0.0.1:1"]].concat());
        for _ in 0..2 {
            process
                .complains("waiting for NATS at 127.0.0.1:1 (--nats, LLMX_NATS) (IO error: Connection refused")
                .await;
        }
        assert!(began.elapsed() >= Duration::from_secs(5), "once in five seconds is enough");
        let (code, complained) = process.ended_by(signal).await;
        assert_eq!(code, Some(1), "{command:?}: {complained}");
        assert!(!complained.contains("secret"), "{complained}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_health_check_that_waits_ends_well_once_the_gateway_is_ready() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (nats, keys) = (server.url(), Keys::new());
    let (check, address) = waiting_check("120").await;
    let gateway = ["gateway", "--nats", &nats, "--listen", &address, "--jwks", keys.jwks()];
    let mut gateway = Process::start(&gateway);
    gateway.says("gateway: ").await;
    let (code, said, complained) = check.end_by_itself().await;
    assert_eq!((code, said.as_str(), complained.as_str()), (Some(0), "", ""));
}

#[tokio::test]
async fn a_health_check_that_waits_fails_when_its_time_is_over_and_ends_on_a_signal() {
    let began = Instant::now();
    let (code, said, complained) = Process::start(&["healthcheck", "--wait", "1", DEAD]).end_by_itself().await;
    assert_eq!((code, said.as_str()), (Some(1), ""), "{complained}");
    assert!(complained.contains(&format!("no answer from {DEAD}")), "{complained}");
    assert!(began.elapsed() >= Duration::from_secs(1), "it asked for {:?}", began.elapsed());
    for signal in ["INT", "TERM"] {
        let (check, _) = waiting_check("120").await;
        let (code, complained) = check.ended_by(signal).await;
        assert_eq!(code, Some(1), "{signal}: {complained}");
        assert!(complained.contains(&format!("ended by SIG{signal} before it was done")), "{complained}");
    }
}

/// A check of so many seconds that has asked once, in vain, and the address it asks.
async fn waiting_check(seconds: &str) -> (Process, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let check = Process::start(&["healthcheck", "--wait", seconds, &format!("http://{address}/readyz")]);
    tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    (check, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_the_first_connection_is_no_latency_of_the_exchange() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (nats, keys) = (server.url(), Keys::new());
    let mut engine = Process::start(&["engine", "--nats", &nats]);
    engine.says("engine: ").await;
    let address = free_address();
    let url = format!("http://{address}");
    let began = Instant::now();
    let args = ["traffic", "--json", "--rate", "10", "--duration", "4", "--wait", "600"];
    let mut traffic = Process::start(&[&args[..], &["--gateway", &url, "--key", keys.key()]].concat());
    let contractor = ["contractors", "--count", "1", "--wait", "600", "--gateway", &url, "--key", keys.key()];
    let contractor = Process::start(&contractor);
    for _ in 0..2 {
        traffic.complains("waiting for a gateway").await;
    }
    let mut gateway = Process::start(&[
        "gateway",
        "--nats",
        &nats,
        "--listen",
        &address,
        "--jwks",
        keys.jwks(),
        "--issuer",
        "llmx-local",
    ]);
    gateway.says("gateway: ").await;
    let waited_ms = began.elapsed().as_secs_f64() * 1000.0;
    let (_, said, complained) = traffic.end_by_itself().await;
    let summary: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said} {complained}"));
    let round = summary["latency_ms"]["round"]["max"].as_f64().unwrap();
    assert!(summary["rounds"].as_u64().unwrap() > 0, "{summary}");
    assert!(round < waited_ms, "the longest round took {round} ms of the {waited_ms} ms waited: {summary}");
    assert!(
        summary["elapsed_s"].as_f64().unwrap() * 1000.0 < began.elapsed().as_secs_f64() * 1000.0 - 5000.0,
        "{summary}"
    );
    for mut process in [contractor, gateway, engine] {
        process.signal("TERM").await;
        assert_eq!(process.end_by_itself().await.0, Some(0));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_hang_up_that_is_ignored_from_the_start_stays_ignored() {
    let keys = Keys::new();
    let args = ["contractors", "--gateway", DEAD, "--key", keys.key()].map(str::to_owned).join(" ");
    let mut process = Process::of("sh", &["-c", &format!("trap '' HUP; exec {LLMX} {args}")]);
    process.complains("waiting for a gateway").await;
    process.signal("HUP").await;
    process.complains("waiting for a gateway").await;
    let (code, complained) = process.ended_by("TERM").await;
    assert!(code == Some(1) && complained.contains("ended by SIGTERM"), "{complained}");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_leaves_no_nats_server_and_no_folder_behind_however_it_ends() {
    for signal in ["HUP", "KILL"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = heeding_every_signal(LLMX);
        command.args(["demo", "--nats-local", "--agents", "2", "--rate", "5", "--duration", "600"]);
        command.env("TMPDIR", folder.path());
        let mut demo = Process::run(command);
        demo.complains("open").await;
        assert_eq!(servers_in(folder.path()).len(), 1, "a server runs there");
        demo.signal(signal).await;
        let (code, said, _) = demo.end_by_itself().await;
        assert_eq!(code, if signal == "HUP" { Some(0) } else { None }, "{said}");
        let began = Instant::now();
        while !servers_in(folder.path()).is_empty() || std::fs::read_dir(folder.path()).unwrap().count() > 0 {
            assert!(began.elapsed() < PROMPT, "SIG{signal} leaves {:?}", servers_in(folder.path()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Processes that are told of a file in this folder.
#[cfg(target_os = "linux")]
fn servers_in(folder: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(text(folder)) && line.contains("--config")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_without_its_bus_answers_and_commands_say_that_it_does() {
    let mut server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (nats, keys) = (server.url(), Keys::new());
    let mut gateway = Process::start(&["gateway", "--nats", &nats, "--listen", "127.0.0.1:0", "--jwks", keys.jwks()]);
    let url = gateway.says("gateway: ").await;
    server.kill();
    let mut traffic = Process::start(&["traffic", "--gateway", &url, "--key", keys.key(), "--wait", "600"]);
    let fault = format!("the first connection to {url} ({url} answers, but is not ready: ");
    let said = traffic.complains(&fault).await;
    assert!(said.contains("nats-server"), "{said}");
    assert_eq!(traffic.ended_by("TERM").await.0, Some(1));
    let call = Process::start(&["call", "carry a parcel", "--gateway", &url, "--key", keys.key()]);
    let (code, _, complained) = call.end_by_itself().await;
    assert_eq!(code, Some(1), "{complained}");
    assert!(
        complained.contains("unavailable: ") && complained.contains("the gateway answers, but what"),
        "{complained}"
    );
    assert!(!complained.contains("no gateway answers"), "{complained}");
    let check = Process::start(&["healthcheck", &url]);
    let (code, _, complained) = check.end_by_itself().await;
    assert_eq!(code, Some(1), "{complained}");
    assert!(complained.contains(&format!("{url}/readyz answered 503")) && !complained.contains('{'), "{complained}");
    assert!(complained.lines().count() >= 2, "a line for each fault: {complained}");
}

#[tokio::test]
async fn a_refused_token_ends_the_traffic_at_once_with_the_reason() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (nats, keys, others) = (server.url(), Keys::new(), Keys::new());
    let mut gateway = Process::start(&["gateway", "--nats", &nats, "--listen", "127.0.0.1:0", "--jwks", keys.jwks()]);
    let url = gateway.says("gateway: ").await;
    for command in ["traffic", "contractors"] {
        let process = Process::start(&[command, "--gateway", &url, "--key", others.key()]);
        let (code, _, complained) = process.end_by_itself().await;
        assert_eq!(code, Some(1), "{complained}");
        assert!(complained.contains("unauthenticated") && complained.contains(&url), "{command}: {complained}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_loses_its_gateway_says_so_at_once_and_when_it_is_back_and_names_it_where_calls_do_not_end() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (nats, keys, address) = (server.url(), Keys::new(), free_address());
    let url = format!("http://{address}");
    let mut engine = Process::start(&["engine", "--nats", &nats]);
    engine.says("engine: ").await;
    let gateway = ["gateway", "--nats", &nats, "--listen", &address, "--jwks", keys.jwks(), "--issuer", "llmx-local"];
    let mut first = Process::start(&gateway);
    first.says("gateway: ").await;
    let remote = ["--gateway", &url, "--key", keys.key()];
    let mut contractors = Process::start(&[&["contractors", "--count", "2"][..], &remote].concat());
    contractors.says("contractors: 2 connected").await;
    let mut traffic = Process::start(&[&["traffic", "--rate", "5", "--duration", "20"][..], &remote].concat());
    // No terminal watches it.
    traffic.complains(" 5 s   calls ").await;

    first.child.kill().await.unwrap();
    let killed = Instant::now();
    let (lost, again) = (format!("lost the connection to {url}: 0 of "), format!("connected to {url} again"));
    for process in [&mut traffic, &mut contractors] {
        process.complains(&lost).await;
    }
    assert!(killed.elapsed() < PROMPT, "{:?}", killed.elapsed());
    let mut second = Process::start(&gateway);
    second.says("gateway: ").await;
    for process in [&mut traffic, &mut contractors] {
        process.complains(&again).await;
    }
    let (code, complained) = contractors.ended_by("TERM").await;
    assert_eq!((code, complained.as_str()), (Some(0), ""), "its own end is no loss");

    second.child.kill().await.unwrap();
    traffic.complains(&lost).await;
    let (code, _, complained) = traffic.end_by_itself().await;
    assert_eq!(code, Some(1), "{complained}");
    let end = complained.lines().last().unwrap();
    assert!(end.contains(&format!("calls did not end: no connection to {url} since ")), "{complained}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_stderr_nobody_reads_answers_and_says_later_what_it_dropped() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (nats, keys) = (server.url(), Keys::new());
    let mut command = heeding_every_signal(LLMX);
    command.args(["gateway", "--nats", &nats, "--listen", "127.0.0.1:0", "--jwks", keys.jwks()]);
    command.env("LLMX_LOG", "trace,hyper=trace,hyper_util=trace");
    let mut gateway = Process::run(command);
    let url = gateway.says("gateway: ").await;
    let client = reqwest::Client::builder().no_proxy().timeout(PROMPT).build().unwrap();
    let dropped = async || -> u64 {
        let metrics = client.get(format!("{url}/metrics")).send().await.unwrap().text().await.unwrap();
        let count = metrics.lines().find_map(|line| line.strip_prefix("llmx_log_lines_dropped_total ")).unwrap();
        count.parse().unwrap()
    };
    let refused = async || {
        let request = client.post(format!("{url}/v1/messages")).header("content-type", "application/json");
        request.body("{}").send().await.unwrap().status()
    };
    let (began, address) = (std::time::Instant::now(), url.trim_start_matches("http://").to_owned());
    while dropped().await == 0 {
        // Refusals have ten lines a second; with everything traced, each connection has its own.
        for _ in 0..200 {
            drop(tokio::net::TcpStream::connect(&address).await.unwrap());
        }
        assert_eq!(refused().await, 401);
        assert!(began.elapsed() < PATIENCE, "the pipe and the buffer are full sooner");
    }
    assert_eq!(refused().await, 401, "it answers although its pipe is full");
    let said = gateway.complains("{\"fields\":{\"dropped\":").await;
    assert!(said.contains("lines of the log were dropped: nobody read stderr"), "{said}");
    // All that it still says is read from here on, so that it can end in order.
    let Process { mut child, mut complained, .. } = gateway;
    let rest = tokio::spawn(async move { tokio::io::copy(&mut complained, &mut tokio::io::sink()).await });
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert_eq!(tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(0));
    rest.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_stderr_nobody_reads_ends_and_one_that_fails_at_once_says_why() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut full = writer.try_clone().unwrap();
    // More than a pipe holds; it returns once the test reads.
    let filling = std::thread::spawn(move || std::io::Write::write_all(&mut full, &[b'x'; 1 << 20]));
    let mut command = heeding_every_signal(LLMX);
    command.args(["policy", "show", "no-such-policy"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    drop(command);
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it does not wait for a reader");
    assert_eq!(ended.unwrap().code(), Some(2));
    drop(reader);
    assert!(filling.join().unwrap().is_err(), "nobody has read");

    let (code, _, complained) = Process::start(&["policy", "show", "no-such-policy"]).end_by_itself().await;
    assert_eq!(code, Some(2));
    assert!(complained.contains("llmx: ") && complained.contains("no-such-policy"), "{complained}");
}

/// A signing key and its key set.
struct Keys {
    folder: TempDir,
    key: PathBuf,
    jwks: PathBuf,
}

impl Keys {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = std::process::Command::new(LLMX).arg("keys").arg("--out").arg(folder.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let (key, jwks) = (folder.path().join("signing-key.pem"), folder.path().join("jwks.json"));
        Self { folder, key, jwks }
    }

    fn key(&self) -> &str {
        text(&self.key)
    }

    fn jwks(&self) -> &str {
        text(&self.jwks)
    }

    fn folder(&self) -> &str {
        text(self.folder.path())
    }
}

/// An address that was free a moment ago.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
