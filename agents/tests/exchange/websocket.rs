//! Over WebSocket, against a fake gateway on a real socket.

use std::sync::Arc;

use agents::session::SessionLimits;
use agents::transport::Transport;
use agents::transport::failover::FailoverTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::{Agent, AgentError, AgentOptions, Contractor, ContractorConfig};
use futures_util::{FutureExt, SinkExt, StreamExt};
use schemas::Code;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};
use tokio_util::sync::CancellationToken;

use crate::fake::{agent, call, delivery_id, identity, in_time};

#[tokio::test]
async fn an_agent_negotiates_over_websocket_and_carries_on_after_a_lost_connection() {
    let (listener, url) = listen().await;
    // Only the new connection can make it repeat: the gap between repeats outlasts the test.
    let limits = SessionLimits { retry_base_ms: 3_600_000, retry_max_ms: 3_600_000, ..SessionLimits::default() };
    let options = AgentOptions { limits, ..AgentOptions::default() };
    let handle = contractor(&url).with_options(options).spawn(CancellationToken::new());

    let mut gateway = accept(&listener).await;
    send(&mut gateway, &json!({"type": "hello", "agent": "bob"})).await;
    send(&mut gateway, &json!({"type": "delivery", "delivery": call(1, "n1")})).await;
    let offer = next(&mut gateway).await;
    assert_eq!(offer["message"]["payload"]["act"], "offer");
    let Some(Some(Ok(ack))) = gateway.next().now_or_never() else { panic!("not in the same write") };
    assert_eq!(serde_json::from_str::<Value>(ack.to_text().unwrap()).unwrap()["delivery_ids"], json!([delivery_id(1)]));
    // The gateway dies before it answers.
    drop(gateway);

    let mut gateway = accept(&listener).await;
    let again = next(&mut gateway).await;
    assert_eq!(again["message"], offer["message"]);
    let envelope = &again["message"]["envelope"];
    let accepted = json!({"type": "accepted", "id": again["id"], "seq": 5, "msg_id": envelope["msg_id"],
        "negotiation": "alice~n1"});
    send(&mut gateway, &accepted).await;
    send(&mut gateway, &json!({"type": "delivery", "delivery": call(1, "n1")})).await;
    assert_eq!(next(&mut gateway).await["type"], "ack", "the repeat is acknowledged and not answered");
    let summary = handle.shutdown().await.unwrap();
    assert_eq!((summary.connections, summary.accepted, summary.deliveries, summary.repeats), (2, 1, 1, 1));
}

/// Takes as long as the SDK lets a connection be silent after a message: some six seconds.
#[tokio::test]
async fn an_agent_leaves_a_gateway_that_has_fallen_silent_and_repeats_its_message_to_another() {
    let (first, first_url) = listen().await;
    let (second, second_url) = listen().await;
    let way = |url: &str| Arc::new(WebSocketTransport::new(url)) as Arc<dyn Transport>;
    let transport = FailoverTransport::try_new(vec![way(&first_url), way(&second_url)]).unwrap();
    let handle = Agent::new(transport, identity("bob"), bob()).spawn(CancellationToken::new());

    let (mut silent, other) = tokio::select! {
        gateway = accept(&first) => (gateway, &second),
        gateway = accept(&second) => (gateway, &first),
    };
    send(&mut silent, &json!({"type": "delivery", "delivery": call(1, "n1")})).await;
    // From here on the first gateway neither reads nor writes, and its socket stays open.
    let mut gateway = accept(other).await;
    let offer = next(&mut gateway).await;
    assert_eq!(offer["message"]["payload"]["act"], "offer");
    drop(silent);
    drop(handle);
}

#[tokio::test]
async fn a_refused_token_ends_the_agent_with_the_gateways_reason() {
    let (listener, url) = listen().await;
    let refuse = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let read = socket.read(&mut request).await.unwrap();
        assert!(String::from_utf8_lossy(&request[..read]).to_lowercase().contains("authorization: bearer token"));
        let body = json!({"code": "token_expired", "detail": "renew it"}).to_string();
        let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n", body.len());
        socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        socket
    };
    let running = contractor(&url).run(CancellationToken::new());
    let (ended, _socket) = in_time(async { tokio::join!(running, refuse) }).await;
    assert!(matches!(&ended, Err(AgentError::Refused(refusal)) if refusal.code == Code::TokenExpired), "{ended:?}");
}

#[tokio::test]
async fn an_address_that_is_none_ends_the_agent_at_once() {
    let ended = in_time(contractor("no address").run(CancellationToken::new())).await;
    assert!(matches!(ended, Err(AgentError::Unusable(_))), "{ended:?}");
}

fn contractor(url: &str) -> Agent<Contractor> {
    Agent::new(WebSocketTransport::new(url), identity("bob"), bob())
}

fn bob() -> Contractor {
    Contractor::try_new(&agent("bob"), ContractorConfig::default()).unwrap()
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (socket, _) = in_time(listener.accept()).await.unwrap();
    #[allow(clippy::result_large_err, reason = "the signature the handshake wants")]
    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        assert_eq!(request.uri().path(), "/v1/ws");
        assert_eq!(request.headers()["authorization"], "Bearer token");
        Ok(response)
    };
    accept_hdr_async(socket, check).await.unwrap()
}

async fn send(gateway: &mut WebSocketStream<TcpStream>, frame: &Value) {
    gateway.send(Message::text(frame.to_string())).await.unwrap();
}

async fn next(gateway: &mut WebSocketStream<TcpStream>) -> Value {
    let frame = in_time(gateway.next()).await.unwrap().unwrap();
    serde_json::from_str(frame.to_text().unwrap()).unwrap()
}
