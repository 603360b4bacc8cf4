//! What no HTTP client library would send, over raw TCP.

use std::time::Duration;

use schemas::validate::BODY_BYTES_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::rig::{PATIENCE, Rig, code, offer};

#[tokio::test]
async fn bodies_that_are_compressed_or_not_declared_as_json_are_refused() {
    let rig = Rig::start().await;
    let message = offer("bob", "m1", "alice~job").to_string();
    let rows: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("47 gzip", vec![("content-type", "application/json"), ("content-encoding", "gzip")]),
        ("47 identity", vec![("content-type", "application/json"), ("content-encoding", "identity")]),
        ("48 none", vec![]),
        ("48 text", vec![("content-type", "text/plain")]),
        ("48 form", vec![("content-type", "application/x-www-form-urlencoded")]),
        ("48 almost", vec![("content-type", "application/jsonp")]),
        ("48 other charset", vec![("content-type", "application/json; charset=utf-16")]),
        ("48 two", vec![("content-type", "application/json"), ("content-type", "text/html")]),
    ];
    for (name, headers) in rows {
        let mut request = rig.request("POST", "/v1/messages").bearer_auth(rig.token("bob")).body(message.clone());
        for (header, value) in headers {
            request = request.header(header, value);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let body = response.json().await.unwrap();
        assert_eq!((status.as_u16(), code(&body)), (415, "unsupported_media_type"), "{name}");
    }
    let declared = rig.request("POST", "/v1/messages").bearer_auth(rig.token("bob")).body(message);
    let declared = declared.header("content-type", "Application/JSON; charset=UTF-8").send().await.unwrap();
    assert_eq!(declared.status(), 202);
    assert_eq!(rig.logged().await.len(), 1);
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_answered_and_its_connection_closed() {
    let rig = Rig::with(|config| config.limits.client_timeout_ms = 200).await;
    let head = head(&rig, "Content-Length: 100\r\n");
    let answer = exchange(&rig, &format!("{head}{{\"env")).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("\"code\":\"request_timeout\""), "{answer}");
    assert!(rig.logged().await.is_empty());
}

#[tokio::test]
async fn a_chunked_body_that_trickles_is_cut_off_too() {
    let rig = Rig::with(|config| config.limits.client_timeout_ms = 300).await;
    let mut stream = TcpStream::connect(rig.address()).await.unwrap();
    stream.write_all(head(&rig, "Transfer-Encoding: chunked\r\n").as_bytes()).await.unwrap();
    let trickle = async {
        while stream.write_all(b"1\r\n \r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut byte = [0; 4096];
            if let Ok(read) = stream.try_read(&mut byte) {
                return String::from_utf8_lossy(&byte[..read]).into_owned();
            }
        }
        String::new()
    };
    let answer = tokio::time::timeout(PATIENCE, trickle).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(rig.logged().await.is_empty());
}

#[tokio::test]
async fn a_header_that_never_ends_costs_its_connection_only() {
    let rig = Rig::with(|config| config.limits.client_timeout_ms = 200).await;
    let answer = exchange(&rig, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
    assert!(!answer.contains(" 200 ") && !answer.contains(" 202 "), "{answer}");
    assert_eq!(rig.call("GET", "/healthz", None, None).await.0, 200);
}

#[tokio::test]
async fn clients_that_read_nothing_lose_their_places() {
    let rig = Rig::with(|config| {
        config.limits.client_timeout_ms = 500;
        config.limits.connections_max = 2;
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(2048).unwrap();
        let mut stream = socket.connect(rig.address()).await.unwrap();
        // Far more is asked for than the buffers on both sides take.
        let request = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n";
        let _ =
            tokio::time::timeout(Duration::from_millis(500), stream.write_all(request.repeat(500).as_bytes())).await;
        idle.push(stream);
    }
    assert_eq!(rig.call("GET", "/healthz", None, None).await.0, 200, "there is room again");
}

#[tokio::test]
async fn headers_that_smuggle_another_are_refused() {
    let rig = Rig::start().await;
    let message = offer("bob", "m1", "alice~job").to_string();
    let length = message.len();
    let rows = [
        ("50 bare carriage return", format!("X-A: 1\rX-B: 2\r\nContent-Length: {length}\r\n")),
        ("50 NUL", format!("X-A: 1\0\r\nContent-Length: {length}\r\n")),
        ("50 folded line", format!("X-A: 1\r\n X-B: 2\r\nContent-Length: {length}\r\n")),
        ("50 space before the colon", format!("X-A : 1\r\nContent-Length: {length}\r\n")),
        ("51 two lengths", format!("Content-Length: {length}\r\nContent-Length: 3\r\n")),
        ("51 a signed length", format!("Content-Length: +{length}\r\n")),
        ("51 a list of lengths", format!("Content-Length: {length}, {length}\r\n")),
        ("51 chunked, hidden", "Transfer-Encoding: xchunked\r\n".to_owned()),
        ("51 chunked, not last", "Transfer-Encoding: chunked, identity\r\n".to_owned()),
        ("16 KiB of headers", format!("X-A: {}\r\nContent-Length: {length}\r\n", "a".repeat(20_000))),
    ];
    for (name, headers) in rows {
        let answer = exchange(&rig, &format!("{}{message}", head(&rig, &headers))).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{name}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer}");
    }
    assert!(rig.logged().await.is_empty());
}

#[tokio::test]
async fn what_is_refused_before_routing_is_a_problem_document_too_and_counts_by_its_status() {
    let rig = Rig::start().await;
    let get = "GET /healthz HTTP/1.1\r\n";
    let rows = [
        ("no request line", "hello\r\n\r\n".to_owned(), 400, "malformed_request"),
        ("another protocol", "GET / SPDY/3\r\nHost: x\r\n\r\n".to_owned(), 400, "malformed_request"),
        ("a header without a name", format!("{get}Host: x\r\n: y\r\n\r\n"), 400, "malformed_request"),
        ("no Host", format!("{get}\r\n"), 400, "malformed_request"),
        ("two Hosts", format!("{get}Host: x\r\nHost: x\r\n\r\n"), 400, "malformed_request"),
        ("a long header", format!("{get}Host: x\r\nX-A: {}\r\n\r\n", "a".repeat(17_000)), 431, "header_too_large"),
        ("many headers", format!("{get}Host: x\r\n{}\r\n", "X-A: b\r\n".repeat(70)), 431, "header_too_large"),
        ("a long address", format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(17_000)), 431, "header_too_large"),
    ];
    for (name, request, status, expected) in rows {
        let answer = exchange(&rig, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
        assert!(answer.contains("content-type: application/problem+json"), "{name}: {answer}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((code(&problem), problem["status"].as_u64()), (expected, Some(status)), "{name}: {answer}");
    }
    // Each once, whether a route refused it or none saw it.
    for (status, count) in [("400", 5.0), ("431", 3.0), ("200", 0.0), ("other", 0.0)] {
        let labels = [("http_response_status_code", status)];
        assert_eq!(rig.metric("exchange_http_responses_total", &labels), count, "{status}");
    }
    let old = exchange(&rig, "GET /healthz HTTP/1.0\r\n\r\n").await;
    assert!(old.contains(" 200 "), "HTTP/1.0 knows no Host: {old}");
}

#[tokio::test]
async fn a_handshake_of_another_websocket_version_is_told_which_one_is_spoken() {
    let rig = Rig::start().await;
    let token = rig.token("bob");
    for version in ["8", "14", "", "13, 8"] {
        let request = format!(
            "GET /v1/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Version: {version}\r\n\r\n"
        );
        let answer = exchange(&rig, &request).await;
        assert!(answer.starts_with("HTTP/1.1 426 "), "{version}: {answer}");
        assert!(answer.contains("sec-websocket-version: 13") && answer.contains("upgrade: websocket"), "{answer}");
        assert!(answer.contains("\"code\":\"upgrade_required\""), "{version}: {answer}");
    }
}

/// The server library does this (RFC 9112 section 6.1); the test holds it to that.
#[tokio::test]
async fn a_request_with_two_meanings_is_the_last_of_its_connection() {
    let rig = Rig::start().await;
    let message = offer("bob", "smuggled", "alice~job").to_string();
    let inner = format!("{}{message}", head(&rig, &format!("Content-Length: {}\r\n", message.len())));
    let outer_length = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    let answer = exchange(&rig, &format!("{}0\r\n\r\n{inner}", head(&rig, outer_length))).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "the second request was answered: {answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(rig.logged().await.is_empty());
}

#[tokio::test]
async fn a_body_is_refused_by_its_declared_length_before_it_is_read() {
    let rig = Rig::start().await;
    let answer = exchange(&rig, &head(&rig, &format!("Content-Length: {}\r\n", BODY_BYTES_MAX + 1))).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\"code\":\"too_large\""), "{answer}");
}

#[tokio::test]
async fn an_expectation_is_met_only_for_a_body_that_may_come() {
    let rig = Rig::start().await;
    let too_long = format!("Expect: 100-continue\r\nContent-Length: {}\r\n", BODY_BYTES_MAX + 1);
    let answer = exchange(&rig, &head(&rig, &too_long)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "no `100 Continue` comes first: {answer}");
}

#[tokio::test]
async fn a_connection_ends_with_a_body_that_was_not_read_and_goes_on_after_one_that_was() {
    let rig = Rig::start().await;
    let message = offer("bob", "m1", "alice~job").to_string();
    let length = message.len();
    let with = |method_and_path: &str, headers: &str| {
        format!("{method_and_path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n")
    };
    let token = format!("Authorization: Bearer {}\r\n", rig.token("bob"));
    let json = "Content-Type: application/json\r\n";
    let rows = [
        ("no token", with("POST /v1/acks", json), 401),
        ("a bad token", with("POST /v1/acks", &format!("Authorization: Bearer x\r\n{json}")), 401),
        ("no media type", with("POST /v1/messages", &token), 415),
        ("another path", with("POST /v2/messages", json), 404),
        ("another method", with("DELETE /v1/messages", json), 405),
        ("a body that no handler reads", with("GET /healthz", ""), 200),
        ("two Hosts", with("POST /v1/messages", "Host: y\r\n"), 400),
    ];
    for (name, head, status) in rows {
        let answer = exchange(&rig, &head).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{name}: {answer}");
    }
    let refused = format!("{}{{}}", head(&rig, "Content-Length: 2\r\n"));
    let read = format!("{}{message}", head(&rig, &format!("Content-Length: {length}\r\n")));
    let answer = exchange(&rig, &[refused, read, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()].concat()).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 3, "{answer}");
    assert!(answer.contains(" 422 ") && answer.contains(" 202 ") && !answer.contains("connection: close"), "{answer}");
}

/// The head of a message posted by `bob`, with further header lines.
fn head(rig: &Rig, headers: &str) -> String {
    let token = rig.token("bob");
    format!(
        "POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\n{headers}\r\n"
    )
}

/// Writes bytes and reads until the gateway closes the connection, or has answered and waits.
async fn exchange(rig: &Rig, bytes: &str) -> String {
    let mut stream = TcpStream::connect(rig.address()).await.unwrap();
    // The gateway may refuse and close before everything is written.
    let _ = stream.write_all(bytes.as_bytes()).await;
    let mut answer = Vec::new();
    let reading = async {
        let mut part = [0; 4096];
        loop {
            let quiet = if answer.is_empty() { PATIENCE } else { Duration::from_millis(300) };
            match tokio::time::timeout(quiet, stream.read(&mut part)).await {
                Ok(Ok(read)) if read > 0 => answer.extend_from_slice(&part[..read]),
                Ok(_) | Err(_) => break,
            }
        }
    };
    tokio::time::timeout(2 * PATIENCE, reading).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
