//! The client of Agora against servers that answer in every way.

#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

use agora::Selection;
use agora::client::{AgoraClient, ClientError};
use agora::transaction::{TransactionRequest, TransactionStatus};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A server that gives one answer, and what it is asked: first line and body.
async fn server(status: &str, body: &str) -> (String, mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    let (asked, heard) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut chunk).await {
                request.extend_from_slice(&chunk[..read]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head
                    .lines()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
                if body.len() >= length.unwrap_or(0) {
                    let _ = asked.send((head.lines().next().unwrap().to_owned(), body.to_owned())).await;
                    let _ = stream.write_all(answer.as_bytes()).await;
                    break;
                }
            }
        }
    });
    (url, heard)
}

fn client(target: &str) -> AgoraClient {
    AgoraClient::try_new(target, None, Duration::from_secs(10)).unwrap()
}

fn question() -> TransactionRequest {
    TransactionRequest { selection: Selection::Language, body: "How warm?".to_owned(), multiround: true }
}

#[tokio::test]
async fn a_target_is_asked_as_it_stands_and_conversations_below_it() {
    let (url, mut heard) = server("200 OK", r#"{"status":"success","body":"25","conversationId":"c-1"}"#).await;
    for (target, base) in [("", "/"), ("/", "/"), ("/agora/bob", "/agora/bob"), ("/agora/bob/", "/agora/bob/")] {
        let client = client(&format!("{url}{target}"));
        let reply = client.begin(&question()).await.unwrap();
        assert_eq!((reply.status, reply.body.as_str()), (TransactionStatus::Success, "25"));
        assert_eq!(reply.conversation.unwrap().id, "c-1");
        let (line, body) = heard.recv().await.unwrap();
        assert_eq!(line, format!("POST {base} HTTP/1.1"));
        let expected = json!({ "protocolHash": null, "protocolSources": [], "body": "How warm?", "multiround": true });
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
        client.follow("c-1", "And now?").await.unwrap();
        client.end("c-1").await.unwrap();
        let below = format!("{}/conversations/c-1 HTTP/1.1", base.trim_end_matches('/'));
        let (line, body) = heard.recv().await.unwrap();
        assert_eq!(line, format!("POST {below}"));
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["body"], "And now?");
        assert_eq!(heard.recv().await.unwrap(), (format!("DELETE {below}"), String::new()));
    }
}

#[tokio::test]
async fn what_is_no_reply_is_told_as_what_it_is() {
    let long = format!(r#"{{"status":"success","body":"{}"}}"#, "x".repeat(1024 * 1024));
    let ask = async |status: &str, body: &str| {
        let (url, _heard) = server(status, body).await;
        client(&url).begin(&question()).await.unwrap_err()
    };
    assert!(
        matches!(ask("404 Not Found", "nothing").await, ClientError::Status { status: 404, body } if body == "nothing")
    );
    assert!(matches!(ask("500 Oops", "").await, ClientError::Status { status: 500, .. }));
    let redirect = ask("302 Found\r\nlocation: http://127.0.0.1:1/", "").await;
    assert!(matches!(redirect, ClientError::Status { status: 302, .. }), "not followed");
    assert!(matches!(ask("200 OK", "<html>").await, ClientError::NotJson(told) if told == "<html>"));
    assert!(matches!(ask("200 OK", &long).await, ClientError::NotJson(told) if told.len() == 200));
    assert!(matches!(ask("200 OK", r#"{"status":"maybe"}"#).await, ClientError::Unreadable(_)));
    assert!(matches!(client("http://127.0.0.1:1/").begin(&question()).await, Err(ClientError::Transport(_))));
}

#[tokio::test]
async fn a_target_or_an_id_that_is_none_is_refused_before_anything_is_sent() {
    for target in ["", "nonsense", "ftp://a.example/", "data:x", "http://"] {
        let refused = AgoraClient::try_new(target, None, Duration::from_secs(1));
        assert!(matches!(refused, Err(ClientError::Target(_))), "{target}");
    }
    let (url, mut heard) = server("200 OK", r#"{"status":"success"}"#).await;
    for id in ["", "..", "a/b", "a?b", "a b", "é"] {
        assert!(matches!(client(&url).follow(id, "x").await, Err(ClientError::Conversation(_))), "{id}");
        assert!(matches!(client(&url).end(id).await, Err(ClientError::Conversation(_))), "{id}");
    }
    assert!(heard.try_recv().is_err());
}
