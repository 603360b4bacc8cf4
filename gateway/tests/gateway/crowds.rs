//! More connections than there is room for: whom they hold up, and who is told what.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use gateway::keys::{KeyAlgorithm, SigningKey};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::admission::loop_until;
use crate::rig::{PATIENCE, Rig, code, config};

const CONNECTIONS_MAX: usize = 200;
const HEALTH: &str = "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
/// Its body never comes.
const UNFINISHED: &str =
    "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n";

/// A gateway that waits for its clients longer than any test.
async fn rig(connections_max: usize, trusted_proxies: &[&str]) -> Rig {
    let rig = Rig::with(|config| {
        config.policies.extend(policy_core::presets());
        config.limits.connections_max = connections_max;
        config.limits.client_timeout_ms = 600_000;
        config.trusted_proxies = trusted_proxies.iter().map(|&network| network.to_owned()).collect();
    });
    rig.await
}

/// A connection from 127.0.0.`host`.
async fn connected(to: SocketAddr, host: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0))).unwrap();
    socket.connect(to).await.unwrap()
}

/// Connections from there that have sent this.
async fn opened(to: SocketAddr, host: u8, count: usize, sent: &str) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connected(to, host).await;
        // The gateway may have closed it already.
        let _ = stream.write_all(sent.as_bytes()).await;
        streams.push(stream);
    }
    streams
}

/// What the gateway answers before it closes the connection.
async fn answer(rig: &Rig, host: u8, sent: impl AsRef<[u8]>) -> String {
    answer_of(rig.address(), host, sent).await
}

async fn answer_of(address: SocketAddr, host: u8, sent: impl AsRef<[u8]>) -> String {
    let mut stream = connected(address, host).await;
    stream.write_all(sent.as_ref()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

/// The code of a refusal.
fn refused(answer: &str) -> String {
    let problem: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    code(&problem).to_owned()
}

fn whoami(rig: &Rig, name: &str) -> String {
    let token = rig.token(name);
    format!("GET /v1/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n")
}

#[tokio::test]
async fn silent_connections_of_one_address_delay_neither_others_nor_readiness_and_give_way() {
    let rig = rig(CONNECTIONS_MAX, &[]).await;
    let _silent = opened(rig.address(), 1, 205, "").await;
    for (host, request) in [(1, HEALTH), (2, HEALTH), (2, &*whoami(&rig, "alice"))] {
        let answer = answer(&rig, host, request).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let served = || async { answer(&rig, 1, whoami(&rig, "bob")).await.starts_with("HTTP/1.1 200 ").then_some(()) };
    loop_until(served).await;
}

#[tokio::test]
async fn a_connection_without_a_request_ends_where_places_are_scarce_and_one_with_a_request_does_not() {
    let rig = rig(16, &[]).await;
    let held = opened(rig.address(), 1, 14, UNFINISHED).await;
    let mut idle = connected(rig.address(), 2).await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, idle.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection: close"), "{answer}");
    for stream in &held {
        assert_eq!(stream.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

#[tokio::test]
async fn requests_without_end_of_one_address_leave_room_for_another_and_for_questions_after_health() {
    let rig = rig(CONNECTIONS_MAX, &[]).await;
    let _held = opened(rig.address(), 1, 205, UNFINISHED).await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = answer(&rig, 1, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"), "{path}: {answer}");
    }
    let refusal = answer(&rig, 1, whoami(&rig, "alice")).await;
    assert!(refusal.starts_with("HTTP/1.1 503 ") && refusal.contains("retry-after: 1"), "{refusal}");
    assert_eq!(refused(&refusal), "overloaded");
    assert!(answer(&rig, 2, whoami(&rig, "alice")).await.starts_with("HTTP/1.1 200 "));
    // 178 places are eight times as many as the 22 that are left.
    let shed = rig.metric("exchange_admission_shed_total", &[("reason", "connections")]);
    assert_eq!(shed, 28.0, "27 of the first 205, and one");
}

#[tokio::test]
async fn held_transactions_of_one_token_leave_half_of_all_places_to_others() {
    let rig = rig(CONNECTIONS_MAX, &[]).await;
    rig.register("bob").await;
    let body = r#"{"protocolHash": null, "protocolSources": [], "body": "How warm is Oxford?"}"#;
    let transaction = format!(
        "POST /agora/bob HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        rig.token("alice"),
        body.len()
    );
    let mut held = Vec::new();
    for host in 1..6 {
        held.extend(opened(rig.address(), host, 41, &transaction).await);
    }
    let shed = || rig.metric("exchange_admission_shed_total", &[("reason", "requests")]);
    loop_until(|| async { (shed() >= 105.0).then_some(()) }).await;
    for (host, name) in [(1, "bob"), (9, "carol")] {
        assert!(answer(&rig, host, whoami(&rig, name)).await.starts_with("HTTP/1.1 200 "), "{name}");
    }
    let refusal = answer(&rig, 9, whoami(&rig, "alice")).await;
    assert!(refusal.starts_with("HTTP/1.1 429 ") && refusal.contains("retry-after: 1"), "{refusal}");
    assert_eq!((refused(&refusal), shed()), ("rate_limited".to_owned(), 106.0));
    drop(held);
    let again = || async { answer(&rig, 9, whoami(&rig, "alice")).await.starts_with("HTTP/1.1 200 ").then_some(()) };
    loop_until(again).await;
}

#[tokio::test]
async fn a_trusted_proxy_says_whom_a_connection_is_from_and_its_places_are_theirs() {
    let rig = rig(9, &["10.0.0.0/8", "127.0.0.3"]).await;
    let from = |client: &str, request: &str| format!("PROXY TCP4 {client} 10.0.0.9 4000 8080\r\n{request}");
    let _held = opened(rig.address(), 3, 8, &from("10.1.1.1", UNFINISHED)).await;
    loop_until(|| async {
        let answer = answer(&rig, 3, from("10.1.1.1", &whoami(&rig, "alice"))).await;
        answer.starts_with("HTTP/1.1 503 ").then_some(())
    })
    .await;
    let served = answer(&rig, 3, from("10.1.1.2", &whoami(&rig, "alice"))).await;
    assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
}

#[test]
fn a_trusted_proxy_is_an_address_or_a_network() {
    let mut config = config(&SigningKey::generate(KeyAlgorithm::EdDsa).unwrap());
    for (network, is_fit) in
        [("::1", true), ("10.0.0.0/8", true), ("10.0.0.0/33", false), ("proxy", false), ("", false)]
    {
        config.trusted_proxies = vec![network.to_owned()];
        assert_eq!(config.fault().map(|fault| fault.member), (!is_fit).then_some("trusted_proxies"), "{network}");
    }
}

#[tokio::test]
async fn a_proxy_header_is_read_from_trusted_proxies_which_must_send_one_and_from_nobody_else() {
    let rig = rig(CONNECTIONS_MAX, &["127.0.0.3/32"]).await;
    let second = |command: u8, address: &[u8]| {
        let start = b"\r\n\r\n\0\r\nQUIT\n";
        [&start[..], &[command, 0x11, 0, 12], address, HEALTH.as_bytes()].concat()
    };
    let address = [10, 1, 1, 1, 10, 0, 0, 9, 1, 2, 3, 4];
    let rows = [
        ("version 1", 3, format!("PROXY TCP4 10.1.1.1 10.0.0.9 4000 8080\r\n{HEALTH}").into_bytes(), 200),
        ("version 1, IPv6", 3, format!("PROXY TCP6 2001:db8::1 2001:db8::2 4000 8080\r\n{HEALTH}").into_bytes(), 200),
        ("version 1, unknown", 3, format!("PROXY UNKNOWN\r\n{HEALTH}").into_bytes(), 200),
        ("version 2", 3, second(0x21, &address), 200),
        ("version 2, of the proxy itself", 3, second(0x20, &address), 200),
        ("none", 3, HEALTH.into(), 400),
        ("malformed", 3, format!("PROXY TCP4 10.1.1.300 10.0.0.9 4000 8080\r\n{HEALTH}").into_bytes(), 400),
        ("malformed, version 2", 3, second(0x41, &address), 400),
        ("a stranger, version 1", 1, format!("PROXY TCP4 10.1.1.1 10.0.0.9 4000 8080\r\n{HEALTH}").into_bytes(), 400),
        ("a stranger, version 2", 1, second(0x21, &address), 400),
        ("a stranger, none", 1, HEALTH.into(), 200),
    ];
    for (name, host, sent, status) in rows {
        let answer = answer(&rig, host, sent).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
        assert!(status == 200 || answer.contains("trusted_proxies"), "{name}: the remedy is named: {answer}");
    }
}

/// HAProxy, as `deploy/haproxy.cfg` has it, in front of one gateway.
struct Proxy(Child, SocketAddr);

impl Proxy {
    /// Nothing where HAProxy is not installed.
    fn start(rig: &Rig, folder: &std::path::Path) -> Option<Self> {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = std::fs::read_to_string("../deploy/haproxy.cfg").unwrap();
        let config = config.replace("bind :8080", &format!("bind {address}"));
        let config = config.replace("gateway-1:8080", &rig.address().to_string());
        let lines = config.lines().filter(|line| !line.contains("gateway-2"));
        let file = folder.join("haproxy.cfg");
        std::fs::write(&file, lines.flat_map(|line| [line, "\n"]).collect::<String>()).unwrap();
        let haproxy = Command::new("haproxy").arg("-db").arg("-f").arg(&file).stdout(Stdio::null()).spawn();
        haproxy.ok().map(|child| Self(child, address))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn clients_behind_the_proxy_of_the_stack_have_shares_of_their_own() {
    let rig = rig(20, &["127.0.0.1"]).await;
    let folder = tempfile::tempdir().unwrap();
    let Some(Proxy(_, address)) = &Proxy::start(&rig, folder.path()) else {
        return eprintln!("NOT RUN: haproxy is not here");
    };
    let is_ready = || async {
        let is_open = TcpStream::connect(address).await.is_ok();
        (is_open && answer_of(*address, 2, HEALTH).await.starts_with("HTTP/1.1 200 ")).then_some(())
    };
    loop_until(is_ready).await;
    let _held = opened(*address, 2, 30, UNFINISHED).await;
    loop_until(|| async {
        answer_of(*address, 2, whoami(&rig, "alice")).await.contains("\"overloaded\"").then_some(())
    })
    .await;
    let served = answer_of(*address, 3, whoami(&rig, "alice")).await;
    assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
    assert!(answer_of(*address, 2, HEALTH).await.starts_with("HTTP/1.1 200 "));
}
