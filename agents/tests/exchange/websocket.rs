//! Over WebSocket, against a fake gateway on a real socket.

use std::sync::Arc;

use agents::session::SessionLimits;
use agents::transport::failover::FailoverTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::transport::{Connection, SendReply, Transport, TransportError};
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

#[tokio::test]
async fn an_agent_that_may_not_stay_leaves_a_shared_connection_alone_and_comes_back_by_it() {
    let (listener, url) = listen().await;
    let transport = WebSocketTransport::new(&url).shared_by(2);
    let connect = |name: &'static str| {
        let transport = transport.clone();
        tokio::spawn(async move { transport.connect(&identity(name)).await })
    };
    let (bob, carol) = (connect("bob"), connect("carol"));
    let mut gateway = accept(&listener).await;
    joined(&mut gateway).await;
    joined(&mut gateway).await;
    let (mut bob, carol) = (bob.await.unwrap().unwrap(), carol.await.unwrap().unwrap());
    let closing = json!({"type": "closing", "agent": "bob", "reason": "expired", "detail": "the token has expired"});
    send(&mut gateway, &closing).await;
    assert!(in_time(bob.inbox.next()).await.is_none());
    drop(bob);
    let bob = connect("bob");
    joined(&mut gateway).await;
    let _bob = bob.await.unwrap().unwrap();
    carol.link.ack(vec![delivery_id(1)]).await.unwrap();
    assert_eq!(next(&mut gateway).await["agent"], json!("carol"));

    // One that is refused is alone in that, too.
    let eve = connect("eve");
    refuse(&mut accept(&listener).await, "unauthenticated").await;
    let refused = eve.await.unwrap().map(|_| ());
    assert!(matches!(refused, Err(TransportError::Refused(refusal)) if refusal.code == Code::Unauthenticated));
}

#[tokio::test]
async fn agents_of_a_shared_connection_come_and_go_and_move_on_together() {
    let (listener, url) = listen().await;
    let transport = WebSocketTransport::new(&url).shared_by(2);
    let connect = |name: &'static str| {
        let transport = transport.clone();
        tokio::spawn(async move { transport.connect(&identity(name)).await })
    };
    let to = |name: &str, number: u8| {
        let mut delivery = json!(call(number, "n1"));
        delivery["envelope"]["to"] = json!([format!("agent://{name}")]);
        json!({"type": "delivery", "delivery": delivery})
    };
    let heard = async |connection: &mut Connection| -> Vec<String> {
        let message = in_time(connection.inbox.next()).await.unwrap();
        let mut ids: Vec<_> = message.deliveries.iter().map(|delivery| delivery.envelope.msg_id.to_string()).collect();
        ids.resize(ids.len() + message.unreadable as usize, "unreadable".to_owned());
        ids
    };

    let (bob, carol) = (connect("bob"), connect("carol"));
    let mut gateway = accept(&listener).await;
    let joins = [joined(&mut gateway).await, joined(&mut gateway).await];
    assert!(joins.iter().all(|join| join["token"] == "token" && join.get("agent").is_none()), "{joins:?}");
    let (mut bob, mut carol) = (bob.await.unwrap().unwrap(), carol.await.unwrap().unwrap());

    // To each its own, and to nobody what is for somebody else.
    let mut unreadable = to("carol", 4);
    unreadable["delivery"]["payload"] = json!({"act": "telepathy"});
    for frame in [to("bob", 1), to("dan", 2), to("carol", 3), unreadable] {
        send(&mut gateway, &frame).await;
    }
    assert_eq!(heard(&mut bob).await, [delivery_id(1).to_string()]);
    let mut told = heard(&mut carol).await;
    if told.len() == 1 {
        told.extend(heard(&mut carol).await);
    }
    assert_eq!(told, [delivery_id(3).to_string(), "unreadable".to_owned()]);

    // Each speaks in its own name, and is answered alone.
    let sent = carol.link.send(bytes::Bytes::from_static(b"{}"));
    let answering = async {
        let frame = refuse(&mut gateway, "no_consent").await;
        assert_eq!((&frame["type"], &frame["agent"]), (&json!("message"), &json!("carol")));
    };
    let (answer, ()) = tokio::join!(sent, answering);
    assert!(matches!(answer, SendReply::Refused(refusal) if refusal.code == Code::NoConsent));
    bob.link.ack(vec![delivery_id(1)]).await.unwrap();
    assert_eq!(next(&mut gateway).await, json!({"type": "ack", "agent": "bob", "delivery_ids": [delivery_id(1)]}));

    // A third has no room here; one that has left makes some, and may come again.
    let dan = connect("dan");
    let mut second = accept(&listener).await;
    joined(&mut second).await;
    let dan = dan.await.unwrap().unwrap();
    let acknowledging = bob.link.ack(vec![delivery_id(2)]);
    drop(bob);
    assert_eq!(next(&mut gateway).await["delivery_ids"], json!([delivery_id(2)]), "what it has said leaves before it");
    assert_eq!(next(&mut gateway).await, json!({"type": "leave", "agent": "bob"}));
    acknowledging.await.unwrap();
    let bob = connect("bob");
    joined(&mut gateway).await;
    let mut bob = bob.await.unwrap().unwrap();
    for (connection, name, number) in [(&mut bob, "bob", 5), (&mut carol, "carol", 6)] {
        send(&mut gateway, &to(name, number)).await;
        assert_eq!(heard(connection).await, [delivery_id(number).to_string()]);
    }

    drop(dan);
    assert_eq!(next(&mut second).await, json!({"type": "leave", "agent": "dan"}));
    assert!(matches!(in_time(second.next()).await, None | Some(Ok(Message::Close(_)) | Err(_))), "nobody is left");

    // With the connection everybody loses it, and they meet on the next.
    drop(gateway);
    assert!(in_time(bob.inbox.next()).await.is_none() && in_time(carol.inbox.next()).await.is_none());
    let (bob, carol) = (connect("bob"), connect("carol"));
    let mut gateway = accept(&listener).await;
    joined(&mut gateway).await;
    joined(&mut gateway).await;
    assert!(bob.await.unwrap().is_ok() && carol.await.unwrap().is_ok());
}

/// Refuses what comes next.
async fn refuse(gateway: &mut WebSocketStream<TcpStream>, code: &str) -> Value {
    let frame = next(gateway).await;
    let problem = json!({"code": code, "detail": "no"});
    send(gateway, &json!({"type": "refused", "id": frame["id"], "problem": problem})).await;
    frame
}

/// Lets the next agent join.
async fn joined(gateway: &mut WebSocketStream<TcpStream>) -> Value {
    let join = next(gateway).await;
    assert_eq!(join["type"], "join");
    send(gateway, &json!({"type": "joined", "id": join["id"]})).await;
    join
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
