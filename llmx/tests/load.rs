//! Contractors and generators as processes of their own, against a gateway and an engine on a real nats-server: what their
//! health ports say, and that two generators do not disturb each other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bus::nats::server::{LocalServer, LocalServerOptions};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

const LLMX: &str = env!("CARGO_BIN_EXE_llmx");
/// Longest a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_generators_call_the_same_contractors_and_all_of_them_tell_how_they_are() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (nats, folder) = (server.url(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys");
    let made = Command::new(LLMX).arg("keys").arg("--out").arg(&keys).output().await.unwrap();
    assert!(made.status.success(), "{made:?}");
    let jwks = keys.join("jwks.json");
    let jwks = jwks.to_str().unwrap();

    let mut engine = Process::start(&["engine", "--nats", &nats]);
    engine.says("engine: ").await;
    let mut gateway = Process::start(&[
        "gateway",
        "--nats",
        &nats,
        "--listen",
        "127.0.0.1:0",
        "--jwks",
        jwks,
        "--issuer",
        "llmx-local",
    ]);
    let gateway_url = gateway.says("gateway: ").await;

    let mut agents = Process::remote(&["contractors", "--count", "3", "--listen", "127.0.0.1:0"], &gateway_url, &keys);
    let agents_url = agents.says("health: ").await;
    agents.says("contractors: 3 connected").await;
    let (status, body) = ask(&agents_url, "/readyz").await;
    assert_eq!((status, &body["state"]["connected"]), (200, &3.into()), "{body}");

    let mut generators = Vec::new();
    for name in ["ann", "ben"] {
        let args =
            ["traffic", "--json", "--initiator", name, "--rate", "20", "--duration", "4", "--listen", "127.0.0.1:0"];
        let mut generator = Process::remote(&args, &gateway_url, &keys);
        let url = generator.complains("health: ").await;
        generators.push((name, generator, url));
    }
    for (_, _, url) in &generators {
        until_ready(url).await;
        let metrics = metrics(url).await;
        for line in [
            "trafficgen_phase{phase=\"running\"} 1",
            "trafficgen_target_rate 20",
            "agent_connected{strategy=\"initiator\"} 1",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
        }
    }
    for (name, generator, _) in generators {
        let (code, summary) = generator.end_by_itself().await;
        let summary: Value = serde_json::from_str(&summary).unwrap();
        assert_eq!((code, &summary["initiator"]), (Some(0), &name.into()), "{summary}");
        let rounds = summary["rounds"].as_u64().unwrap();
        // Had they shared an id, the calls of one would have been refused or merged with the other's.
        assert!(rounds > 20 && summary["cfps"] == rounds, "{summary}");
        assert_eq!((&summary["rejected"], &summary["lost"]), (&serde_json::json!({}), &0.into()), "{summary}");
    }
    let metrics = metrics(&agents_url).await;
    let offers = "agent_messages_total{act=\"offer\",outcome=\"accepted\"} ";
    let offers = metrics.lines().find_map(|line| line.strip_prefix(offers)).unwrap();
    assert!(offers.parse::<u64>().unwrap() > 0, "{offers}");
    assert!(metrics.contains("agent_connected{strategy=\"contractor\"} 3\n"), "{metrics}");
    for mut process in [agents, gateway, engine] {
        assert_eq!(process.end().await, Some(0));
    }
}

struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
    complained: BufReader<ChildStderr>,
}

impl Process {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(LLMX);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let complained = BufReader::new(child.stderr.take().unwrap());
        Self { child, said, complained }
    }

    fn remote(args: &[&str], gateway: &str, keys: &Path) -> Self {
        let key = keys.join("signing-key.pem");
        Self::start(&[args, &["--gateway", gateway, "--key", key.to_str().unwrap()]].concat())
    }

    /// The rest of the first line on stdout that begins so.
    async fn says(&mut self, beginning: &str) -> String {
        line_after(&mut self.said, beginning).await
    }

    /// The same on stderr.
    async fn complains(&mut self, beginning: &str) -> String {
        line_after(&mut self.complained, beginning).await
    }

    /// Its exit code and all it says until then.
    async fn end_by_itself(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        tokio::time::timeout(PATIENCE, self.said.read_to_string(&mut said)).await.unwrap().unwrap();
        (tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().code(), said)
    }

    /// Asks it to end, and gives its exit code.
    async fn end(&mut self) -> Option<i32> {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().code()
    }
}

async fn line_after(from: &mut BufReader<impl AsyncRead + Unpin>, beginning: &str) -> String {
    loop {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, from.read_line(&mut line)).await.unwrap().unwrap();
        assert!(read > 0, "it ended without `{beginning}`");
        if let Some((_, rest)) = line.split_once(beginning) {
            return rest.trim().to_owned();
        }
    }
}

async fn ask(url: &str, path: &str) -> (u16, Value) {
    let response = reqwest::get(format!("{url}{path}")).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn metrics(url: &str) -> String {
    reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap()
}

async fn until_ready(url: &str) {
    let began = Instant::now();
    loop {
        let (status, body) = ask(url, "/readyz").await;
        if status == 200 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{status}: {body}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
