//! The health port of an engine, as an orchestrator sees it: a real process on a real nats-server that comes and goes.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use nats_server::{LocalServer, LocalServerOptions};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const LLMX: &str = env!("CARGO_BIN_EXE_llmx");
/// Longest a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_ready_while_nats_answers_and_says_what_is_wrong_while_it_does_not() {
    let mut server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let mut engine = Engine::start(&server.url()).await;
    let healthy = healthcheck(&engine.url("/readyz")).await;
    assert_eq!(healthy.status.code(), Some(0), "{}", String::from_utf8_lossy(&healthy.stderr));
    let (status, body) = engine.ask("/readyz").await;
    assert_eq!((status, &body["state"]["engine"]), (200, &Value::from("engine-1")));
    let lanes = engine.ask("/status").await.1["state"]["lanes"].clone();
    assert_eq!(lanes.as_array().unwrap().len(), 4);
    assert!(lanes.as_array().unwrap().iter().all(|lane| lane["phase"] == "owner"), "{lanes}");
    let metrics = reqwest::get(engine.url("/metrics")).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("llmx_engine_") && metrics.contains("process_cpu_seconds_total"), "{metrics}");

    server.kill();
    let body = engine.until(503).await;
    assert_eq!(body["code"], "unavailable");
    assert!(body["faults"].to_string().contains("check that nats-server runs"), "{body}");
    assert_eq!(engine.ask("/healthz").await.0, 200, "it lives");
    let failing = healthcheck(&engine.url("/readyz")).await;
    assert_eq!(failing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failing.stderr).contains("check that nats-server runs"));

    server.resume().await.unwrap();
    engine.until(200).await;
    assert_eq!(engine.end().await, Some(0));
}

#[tokio::test]
async fn no_proxy_of_the_environment_stands_before_this_machine_and_another_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("http://{}/readyz", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let _ = socket.read(&mut request).await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    });
    // Nobody listens at this port.
    let asking = async |url: &str, proxy: &str| {
        let mut command = Command::new(LLMX);
        command
            .args(["healthcheck", url])
            .env(proxy, "http://127.0.0.1:9")
            .env_remove("NO_PROXY")
            .env_remove("no_proxy");
        command.output().await.unwrap()
    };
    let healthy = asking(&own, "http_proxy").await;
    assert_eq!(healthy.status.code(), Some(0), "{}", String::from_utf8_lossy(&healthy.stderr));
    for proxy in ["http_proxy", "ALL_PROXY"] {
        let failed = asking("http://exchange.invalid:8080", proxy).await;
        let told = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("(through the proxy of {proxy},")), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_proxy_of_the_environment_stands_before_a_key_set_of_this_machine() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let issuer = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let keys = format!("http://{}/jwks.json", issuer.local_addr().unwrap());
    let mut gateway = Command::new(LLMX);
    gateway.args(["gateway", "--nats", &server.url(), "--listen", "127.0.0.1:0", "--jwks", &keys]);
    gateway.env("http_proxy", "http://127.0.0.1:9").env_remove("NO_PROXY").env_remove("no_proxy");
    let gateway = gateway.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    tokio::select! {
        asked = issuer.accept() => drop(asked.unwrap()),
        ended = gateway.wait_with_output() => panic!("{ended:?}"),
    }
}

/// `llmx engine` with a health port.
struct Engine {
    child: Child,
    address: String,
    _said: Lines<BufReader<ChildStdout>>,
}

impl Engine {
    /// Returns when it has said that it serves.
    async fn start(nats: &str) -> Self {
        let mut command = Command::new(LLMX);
        command.args(["engine", "--id", "engine-1", "--listen", "127.0.0.1:0", "--nats", nats]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = async || tokio::time::timeout(PATIENCE, said.next_line()).await.unwrap().unwrap().unwrap();
        let address = next().await.strip_prefix("health: ").unwrap().strip_suffix("/readyz").unwrap().to_owned();
        assert!(next().await.starts_with("engine: engine-1, 4 lanes"));
        Self { child, address, _said: said }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    async fn ask(&self, path: &str) -> (u16, Value) {
        let response = reqwest::get(self.url(path)).await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Waits until readiness is answered so.
    async fn until(&self, wanted: u16) -> Value {
        let began = Instant::now();
        loop {
            let (status, body) = self.ask("/readyz").await;
            if status == wanted {
                return body;
            }
            assert!(began.elapsed() < PATIENCE, "{status}: {body}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asks it to end, and gives its exit code.
    async fn end(&mut self) -> Option<i32> {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().code()
    }
}

async fn healthcheck(url: &str) -> Output {
    Command::new(LLMX).args(["healthcheck", url]).output().await.unwrap()
}
