use std::time::Duration;

use schemas::document::DocumentHash;
use schemas::{AgentId, NegotiationId, Timestamp};
use telemetry::TraceContext;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;

/// Serves one answer to each connection, and passes on what it is asked.
async fn serve(answer: Vec<u8>) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/parcels", listener.local_addr().unwrap());
    let (sender, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"1250") {
                let mut piece = [0; 4096];
                match socket.read(&mut piece).await {
                    Ok(0) | Err(_) => break,
                    Ok(length) => request.extend_from_slice(&piece[..length]),
                }
            }
            let _ = sender.send(String::from_utf8_lossy(&request).into_owned());
            let _ = socket.write_all(&answer).await;
        }
    });
    (url, heard)
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut answer =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n").into_bytes();
    answer.extend_from_slice(body);
    answer
}

async fn ask(url: &str) -> Result<String, RoutineFault> {
    let negotiation = NegotiationId::try_new("alice~n1").unwrap();
    let request = RoutineRequest {
        agent: AgentId::try_new("bob").unwrap(),
        context: TraceContext::of(None, &negotiation),
        negotiation,
        asked_at: Timestamp::from_ms(1_000),
        deadline: Timestamp::from_ms(60_000),
        document: Some(DocumentHash::of_bytes(b"a document")),
        text: "1250".to_owned(),
    };
    let running = HttpRoutine::try_new(url).unwrap().run(request);
    tokio::time::timeout(Duration::from_secs(60), running).await.unwrap()
}

#[tokio::test]
async fn a_service_is_posted_the_request_and_answers_with_the_result() {
    let (url, mut heard) = serve(answer("200 OK", "", "575".as_bytes())).await;
    assert_eq!(ask(&url).await.as_deref(), Ok("575"));
    let heard = heard.recv().await.unwrap().to_lowercase();
    assert!(heard.starts_with("post /parcels http/1.1\r\n"), "{heard}");
    let hash = DocumentHash::of_bytes(b"a document").to_string().to_lowercase();
    for header in
        [&format!("x-protocol-document: {hash}"), "x-negotiation: alice~n1", "content-type: text/plain; charset=utf-8"]
    {
        assert!(heard.contains(&format!("\r\n{header}\r\n")), "{header}: {heard}");
    }
}

#[tokio::test]
async fn every_other_answer_is_a_fault() {
    let (elsewhere, mut visited) = serve(answer("200 OK", "", "575".as_bytes())).await;
    let status = |status: &str| RoutineFault::Unavailable(format!("the service answers {status}"));
    for (answer, fault) in [
        (answer("404 Not Found", "", b""), status("404")),
        (answer("204 No Content", "", b""), status("204")),
        (answer("500 Internal Server Error", "", b"575"), status("500")),
        (answer("302 Found", &format!("location: {elsewhere}\r\n"), b""), status("302")),
        (answer("200 OK", "", &[0xff, 0xfe]), RoutineFault::Unreadable),
        (answer("200 OK", "", &vec![b'x'; BODY_BYTES_MAX + 1]), RoutineFault::TooLong),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec(),
            RoutineFault::Unavailable("the connection was lost".to_owned()),
        ),
        (b"no HTTP at all\r\n\r\n".to_vec(), RoutineFault::Unavailable("the connection was lost".to_owned())),
    ] {
        let (url, _heard) = serve(answer).await;
        assert_eq!(ask(&url).await, Err(fault));
    }
    assert!(visited.try_recv().is_err(), "a redirect is not followed");
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_eq!(ask(&format!("http://{free}/")).await, Err(RoutineFault::Unavailable("cannot connect".to_owned())));
}

#[test]
fn an_address_that_is_none_of_a_service_is_named() {
    for url in
        ["", "parcels", "ftp://127.0.0.1/", "http://bob:secret@127.0.0.1/", "https://bob@host/", "file:///etc/passwd"]
    {
        let error = HttpRoutine::try_new(url).unwrap_err();
        assert!(matches!(error, HttpRoutineError::Url(_)), "{url}: {error}");
    }
}
