//! Over HTTP and server-sent events, against a fake gateway on a real socket.

use std::process::{Child, Command};

use agents::transport::TransportError;
use agents::transport::http::HttpTransport;
use agents::{Agent, Contractor, ContractorConfig};
use schemas::control::Registration;
use schemas::delivery::{Delivery, Disposition};
use schemas::{Code, Refusal};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::fake::{agent, call, delivery, delivery_id, identity, in_time, receipt};

#[tokio::test]
async fn an_agent_negotiates_over_http_and_server_sent_events() {
    let gateway = FakeGateway::start().await;
    let contractor = Contractor::try_new(&agent("bob"), ContractorConfig::default()).unwrap();
    let handle = Agent::new(gateway.transport(), identity("bob"), contractor).spawn(CancellationToken::new());

    let mut inbox = gateway.request().await;
    assert_eq!((inbox.line.as_str(), inbox.header("accept")), ("GET /v1/inbox", "text/event-stream"));
    assert_eq!(inbox.header("authorization"), "Bearer token");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    inbox.write(&format!("{head}: keep-alive\n\n{}", event(&call(1, "n1")))).await;

    let mut lines = Vec::new();
    for _ in 0..2 {
        let mut request = gateway.request().await;
        assert_eq!(request.header("content-type"), "application/json");
        match request.line.as_str() {
            "POST /v1/acks" => {
                assert_eq!(request.body, json!({"delivery_ids": [delivery_id(1)]}));
                request.respond(204, &Value::Null).await;
            }
            "POST /v1/messages" => {
                assert_eq!(request.body["payload"]["act"], "offer");
                let msg_id = request.body["envelope"]["msg_id"].clone();
                request.respond(202, &json!({"seq": 4, "msg_id": msg_id, "negotiation": "alice~n1"})).await;
            }
            other => panic!("{other}"),
        }
        lines.push(request.line);
    }
    lines.sort();
    assert_eq!(lines, ["POST /v1/acks", "POST /v1/messages"]);
    let summary = handle.shutdown().await.unwrap();
    assert_eq!((summary.accepted, summary.transmitted, summary.acks_lost), (1, 1, 0));
}

#[tokio::test]
async fn an_agent_registers_and_a_refusal_says_why() {
    let gateway = FakeGateway::start().await;
    let (transport, bob) = (gateway.transport(), identity("bob"));
    let registration = Registration { description: Some("courier".to_owned()), ..Registration::default() };
    let answer = async {
        let mut request = gateway.request().await;
        assert_eq!(request.line, "PUT /v1/agents/bob");
        assert_eq!(request.body["description"], "courier");
        request.respond(200, &json!({})).await;
        let mut request = gateway.request().await;
        request.respond(403, &json!({"code": "unauthorized", "detail": "not yours"})).await;
    };
    let register = async {
        transport.register(&bob, &registration).await.unwrap();
        transport.register(&bob, &registration).await.unwrap_err()
    };
    let (error, ()) = in_time(async { tokio::join!(register, answer) }).await;
    assert!(matches!(error, TransportError::Refused(Refusal { code: Code::Unauthorized, .. })), "{error:?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_token() {
    let gateway = FakeGateway::start().await;
    let (transport, bob) = (gateway.transport(), identity("bob"));
    let answer = async {
        let mut request = gateway.request().await;
        let elsewhere = gateway.listener.local_addr().unwrap();
        let head = format!("HTTP/1.1 307 X\r\nlocation: http://{elsewhere}/steal\r\ncontent-length: 0\r\n\r\n");
        request.write(&head).await;
        // A client that follows asks here, and is never answered.
        gateway.listener.accept().await
    };
    let registration = Registration::default();
    let register = transport.register(&bob, &registration);
    tokio::select! {
        registered = register => assert!(matches!(registered, Err(TransportError::Refused(_))), "{registered:?}"),
        _ = answer => panic!("the redirect was followed"),
    }
}

#[tokio::test]
async fn the_python_example_negotiates() {
    let gateway = FakeGateway::start().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/python/contractor.py");
    let url = format!("http://{}", gateway.listener.local_addr().unwrap());
    let _python = Ended(Command::new("python3").args([script, url.as_str(), "bob", "token"]).spawn().unwrap());

    let mut search = gateway.request().await;
    assert_eq!(search.line, "GET /healthz");
    let has_token = search.headers.iter().any(|(name, _)| name == "authorization");
    assert!(!has_token, "what answers there may be no gateway");
    search.respond(200, &json!({})).await;
    gateway.registration().await;
    let mut inbox = gateway.request().await;
    assert_eq!(inbox.line, "GET /v1/inbox");
    inbox.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").await;
    // What ended an earlier stream may have taken the registration away.
    gateway.registration().await;

    inbox.write(&event(&still_open(1, "n1"))).await;
    let offer = gateway.message().await;
    assert_eq!(offer["payload"]["act"], "offer");
    assert_eq!(gateway.acks().await, json!([delivery_id(1)]));
    let award = json!({"act": "accept", "offer_id": "o1-0", "lot": 0, "award_no": 1,
        "terms": offer["payload"]["terms"], "terms_digest": "0".repeat(64), "confirm_by": "2026-11-20T00:00:00Z"});
    inbox.write(&event(&delivery(2, "n1", serde_json::from_value(award).unwrap()))).await;
    let confirm = gateway.message().await;
    assert_eq!(confirm["payload"], json!({"act": "confirm", "award_no": 1}));
    assert_eq!(gateway.acks().await, json!([delivery_id(2)]));
    // A repeat is acknowledged and not answered; the next delivery is.
    inbox.write(&event(&still_open(1, "n1"))).await;
    assert_eq!(gateway.acks().await, json!([delivery_id(1)]));
    let committed = receipt(confirm["envelope"]["msg_id"].as_str().unwrap(), Disposition::Committed, None);
    let mut committed = json!(delivery(3, "n1", committed));
    committed["payload"]["award_no"] = json!(1);
    inbox.write(&event(&serde_json::from_value(committed).unwrap())).await;
    let inform = gateway.message().await;
    assert_eq!(inform["payload"]["kind"], "done");
    assert!(inform["envelope"]["seq"].as_u64() > confirm["envelope"]["seq"].as_u64());
    assert_eq!(gateway.acks().await, json!([delivery_id(3)]));
    // Alternating offers are another protocol.
    let rules = json!({"issues": [{"name": "price", "min": 1, "max": 9}], "rounds": 3});
    let mut bargain = json!(still_open(4, "n2"));
    bargain["payload"]["bargain"] = json!({"parties": ["alice", "bob"], "rules": rules});
    inbox.write(&event(&serde_json::from_value(bargain).unwrap())).await;
    let refusal = gateway.message().await;
    assert_eq!(refusal["payload"], json!({"act": "refuse", "reason": "takes part in contract nets only"}));
}

/// A call whose deadline is far away: the example leaves late ones alone.
fn still_open(number: u8, negotiation: &str) -> Delivery {
    let mut call = json!(call(number, negotiation));
    call["payload"]["reply_by"] = json!("2126-11-20T00:00:00Z");
    serde_json::from_value(call).unwrap()
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn event(delivery: &Delivery) -> String {
    format!("id: {}\nevent: delivery\ndata: {}\n\n", delivery.envelope.msg_id, json!(delivery))
}

struct FakeGateway {
    listener: TcpListener,
}

/// One request on a connection of its own.
struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: Value,
    socket: BufReader<TcpStream>,
}

impl FakeGateway {
    async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    fn transport(&self) -> HttpTransport {
        HttpTransport::try_new(&format!("http://{}/", self.listener.local_addr().unwrap())).unwrap()
    }

    /// The next request, which must be a message that passes the published schemas; it is accepted.
    async fn message(&self) -> Value {
        let mut request = self.request().await;
        assert_eq!(request.line, "POST /v1/messages");
        schemas::validate::check_message(request.body.to_string().as_bytes()).unwrap();
        let msg_id = request.body["envelope"]["msg_id"].clone();
        request.respond(202, &json!({"seq": 4, "msg_id": msg_id, "negotiation": "alice~n1"})).await;
        request.body
    }

    /// Answers the next request, which must be bob's registration.
    async fn registration(&self) {
        let mut request = self.request().await;
        assert_eq!(request.line, "PUT /v1/agents/bob");
        schemas::validate::check_registration(request.body.to_string().as_bytes()).unwrap();
        request.respond(200, &json!({})).await;
    }

    /// The next request, which must be an acknowledgement.
    async fn acks(&self) -> Value {
        let mut request = self.request().await;
        assert_eq!(request.line, "POST /v1/acks");
        request.respond(204, &Value::Null).await;
        request.body["delivery_ids"].clone()
    }

    async fn request(&self) -> Request {
        let (socket, _) = in_time(self.listener.accept()).await.unwrap();
        let mut socket = BufReader::new(socket);
        let line = read_line(&mut socket).await.rsplit_once(' ').unwrap().0.to_owned();
        let mut headers = Vec::new();
        loop {
            let header = read_line(&mut socket).await;
            let Some((name, value)) = header.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut request = Request { line, headers, body: Value::Null, socket };
        let length = request.headers.iter().find(|(name, _)| name == "content-length");
        if let Some(length) = length.map(|(_, value)| value.parse().unwrap()) {
            let mut body = vec![0; length];
            request.socket.read_exact(&mut body).await.unwrap();
            request.body = serde_json::from_slice(&body).unwrap();
        }
        request
    }
}

impl Request {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    async fn write(&mut self, text: &str) {
        self.socket.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    async fn respond(&mut self, status: u16, body: &Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        self.write(&format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"))
            .await;
    }
}

async fn read_line(socket: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    in_time(socket.read_line(&mut line)).await.unwrap();
    line.trim_end().to_owned()
}
