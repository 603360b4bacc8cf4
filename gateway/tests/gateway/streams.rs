//! WebSocket, SSE and the bus: messages in, deliveries out, acknowledgements back.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use schemas::acknowledgement::{AgentAcks, decode_collected};
use schemas::{DeliveryId, Lane, subject};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::rig::{PATIENCE, Rig, agent, claims, code, metric, offer};

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

#[tokio::test]
async fn a_websocket_carries_messages_answers_deliveries_and_acknowledgements() {
    let rig = Rig::start().await;
    let mut hellos = subscribe(&rig, "hello.bob").await;
    let mut acks = subscribe(&rig, "acks.*").await;
    let mut socket = connect(&rig, &rig.token("bob")).await.unwrap();
    assert_eq!(frame(&mut socket).await, json!({ "type": "hello", "agent": "bob" }));
    assert_eq!(hellos.next().await.unwrap().subject, "hello.bob");

    send(&mut socket, json!({ "type": "message", "id": "ref-1", "message": offer("bob", "m1", "alice~job") })).await;
    let accepted = frame(&mut socket).await;
    assert_eq!((&accepted["type"], &accepted["id"]), (&json!("accepted"), &json!("ref-1")));
    assert_eq!((&accepted["msg_id"], &accepted["negotiation"]), (&json!("m1"), &json!("alice~job")));
    send(&mut socket, json!({ "type": "message", "id": "ref-2", "message": offer("carol", "m2", "alice~job") })).await;
    let refused = frame(&mut socket).await;
    assert_eq!((&refused["type"], &refused["id"]), (&json!("refused"), &json!("ref-2")));
    assert_eq!(code(&refused["problem"]), "unauthorized");
    assert_eq!(rig.logged().await.len(), 1);

    let ids = [delivery(1), delivery(2)];
    publish_inbox(&rig, "bob", &ids).await;
    for id in ids {
        let delivered = frame(&mut socket).await;
        assert_eq!(
            (&delivered["type"], &delivered["delivery"]["envelope"]["msg_id"]),
            (&json!("delivery"), &json!(id))
        );
    }
    send(&mut socket, json!({ "type": "ack", "delivery_ids": ids })).await;
    assert_eq!(collected(&mut acks).await, [(agent("bob"), ids.to_vec())]);
}

#[tokio::test]
async fn the_bytes_of_a_frame_are_checked_as_strictly_as_a_body() {
    let rig = Rig::start().await;
    let mut socket = opened(&rig, "bob").await;
    let good = offer("bob", "m1", "alice~job").to_string();
    let twice = good.replacen(r#""act":"#, r#""act":"offer","act":"#, 1);
    let big = format!("{}{}", good.trim_end_matches('}'), format_args!("{}}}}}}}", " ".repeat(65_536)));
    let rows = [
        (r#"{"type":"message"}"#.to_owned(), "wrong_type"),
        (r#"{"type":"shout","message":{}}"#.to_owned(), "wrong_type"),
        ("[]".to_owned(), "wrong_type"),
        (r#"{"type":"ack","type":"ack","delivery_ids":[]}"#.to_owned(), "duplicate_key"),
        (format!("{}{}", "[".repeat(30_000), "]".repeat(30_000)), "too_deep"),
        (format!("[]{}", " ".repeat(70_000)), "too_large"),
        ("hello".to_owned(), "malformed_json"),
        (r#"{"type":"ack","delivery_ids":["xyz"]}"#.to_owned(), "wrong_type"),
        (r#"{"type":"ack","delivery_ids":[]}"#.to_owned(), "out_of_range"),
        (format!(r#"{{"type":"message","message":{twice}}}"#), "duplicate_key"),
        (format!(r#"{{"type":"message","message":{big}}}"#), "too_large"),
        (format!(r#"{{"type":"message","message":{}{}}}"#, "[".repeat(100), "]".repeat(100)), "too_deep"),
    ];
    for (text, expected) in rows {
        let shown: String = text.chars().take(80).collect();
        socket.send(Message::text(text)).await.unwrap();
        let refused = frame(&mut socket).await;
        assert_eq!((&refused["type"], code(&refused["problem"])), (&json!("refused"), expected), "{shown}");
    }
    assert!(rig.logged().await.is_empty());
}

/// An offer is cut out of a frame as the SDKs write it; a space behind the frame makes the gateway read it.
#[tokio::test]
async fn a_frame_that_may_be_cut_is_answered_like_one_that_is_read() {
    let rig = Rig::start().await;
    let mut socket = opened(&rig, "bob").await;
    let good = offer("bob", "m1", "alice~job");
    let rows = [
        (format!(r#""1","message":{good}"#), ""),
        (format!(r#""1","message": {good} "#), ""),
        (format!(r#""1","message":{good},"delivery_ids":null"#), ""),
        (format!(r#""1","message":{good},"delivery_ids":[]"#), "wrong_type"),
        (format!(r#""1","message":{good},"id":"2""#), "duplicate_key"),
        (format!(r#""1","message":{good},"later":1"#), "wrong_type"),
        (format!(r#""1","message":{good}"#).replace("500", "1e400"), "malformed_json"),
        (format!(r#""1","message":{}{good}"#, " ".repeat(65_536)), ""),
        (r#""1","message":{"a":1,"a":2},"later":1"#.to_owned(), "duplicate_key"),
        (format!(r#""1","message":{}"#, "x".repeat(70_000)), "too_large"),
        (r#""1","message":null"#.to_owned(), "wrong_type"),
        (r#""1","message":{}"#.to_owned(), "missing_field"),
        (r#""1","message":"#.to_owned(), "malformed_json"),
        (r#""1","message":no"#.to_owned(), "malformed_json"),
        ("\"1\u{1}\",\"message\":{}".to_owned(), "malformed_json"),
        (r#""a\"b","message":{}"#.to_owned(), "missing_field"),
        (format!(r#""{}","message":{{}}"#, "x".repeat(129)), "out_of_range"),
    ];
    for (rest, expected) in rows {
        let mut answers = Vec::new();
        for end in ["}", "} "] {
            socket.send(Message::text(format!(r#"{{"type":"message","id":{rest}{end}"#))).await.unwrap();
            let mut answer = frame(&mut socket).await;
            answer.as_object_mut().unwrap().remove("seq");
            answers.push(answer);
        }
        let code = answers[0]["problem"]["code"].as_str().unwrap_or_default();
        assert_eq!((&answers[0], code), (&answers[1], expected), "{rest}");
    }
}

#[tokio::test]
async fn answers_and_rejections_wait_for_other_frames_where_the_client_lets_them() {
    let rig = Rig::start().await;
    let mut socket = connect_to(&rig, "/v1/ws?linger_ms=100", &rig.token("bob")).await.unwrap();
    assert_eq!(frame(&mut socket).await["type"], "hello", "at once");
    let send_offer = async |socket: &mut Socket, number: usize| {
        let message = offer("bob", &format!("m{number}"), "alice~job");
        send(socket, json!({ "type": "message", "message": message })).await;
        crate::admission::loop_until(|| async { (rig.logged().await.len() == number).then_some(()) }).await;
    };
    send_offer(&mut socket, 1).await;
    assert_eq!(frame(&mut socket).await["type"], "accepted", "alone in the end");
    // A machine that is busy may let the time pass.
    for number in 2..20 {
        send_offer(&mut socket, number).await;
        for act in ["reject", "accept"] {
            let delivery =
                json!([{ "envelope": { "msg_id": delivery(1) }, "payload": { "act": act, "offer_id": "o1-0" } }]);
            rig.bus.pub_sub.publish(subject::inbox(&agent("bob")), delivery.to_string().into()).await.unwrap();
        }
        assert_eq!(frame(&mut socket).await["type"], "accepted");
        let rejected = frame(&mut socket).now_or_never();
        let awarded = frame(&mut socket).now_or_never();
        if let (Some(rejected), Some(awarded)) = (&rejected, &awarded) {
            let act = |frame: &Value| frame["delivery"]["payload"]["act"].clone();
            assert_eq!((act(rejected), act(awarded)), (json!("reject"), json!("accept")));
            return;
        }
        for read in [rejected, awarded] {
            if read.is_none() {
                frame(&mut socket).await;
            }
        }
    }
    panic!("never in one write");
}

#[tokio::test]
async fn a_stream_lingers_for_so_long_only_and_knows_no_other_wish() {
    let rig = Rig::start().await;
    for (query, status) in [("linger_ms=101", 422), ("linger_ms=-1", 422), ("linger=1", 422)] {
        match connect_to(&rig, &format!("/v1/ws?{query}"), &rig.token("bob")).await {
            Err(Error::Http(response)) => assert_eq!(response.status(), status, "{query}"),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{query} opened a stream"),
        }
    }
}

#[tokio::test]
async fn messages_of_one_connection_reach_the_log_in_the_order_they_came() {
    let rig = Rig::start().await;
    let mut socket = opened(&rig, "bob").await;
    let count = 200;
    for number in 0..count {
        let message = json!({ "type": "message", "message": offer("bob", &format!("m{number}"), "alice~job") });
        socket.feed(Message::text(message.to_string())).await.unwrap();
    }
    socket.flush().await.unwrap();
    for _ in 0..count {
        assert_eq!(frame(&mut socket).await["type"], "accepted");
    }
    let order: Vec<String> =
        rig.logged().await.iter().map(|entry| entry.message().unwrap().envelope.msg_id.to_string()).collect();
    assert_eq!(order, (0..count).map(|number| format!("m{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_with_the_gateway_and_says_why() {
    let rig = Rig::with(|config| config.auth.leeway_s = 0).await;
    let mut short = claims("bob");
    short.exp = short.iat + 1;
    let mut socket = connect(&rig, &rig.key.sign(&short).unwrap()).await.unwrap();
    frame(&mut socket).await;
    assert_eq!(closed(&mut socket).await, (CloseCode::Policy, "the token has expired".to_owned()));
    let mut socket = opened(&rig, "carol").await;
    let (registry, handle) = (rig.registry, rig.handle);
    handle.shutdown().await;
    assert_eq!(closed(&mut socket).await, (CloseCode::Away, "the gateway stops".to_owned()));
    let reasons = |reason| metric(&registry, "exchange_stream_closed_total", &[("reason", reason)]);
    assert_eq!((reasons("expired"), reasons("shutdown")), (1.0, 1.0));
}

#[tokio::test]
async fn a_stream_opened_within_the_leeway_lasts_as_long_as_the_token_is_taken_for_anything_else() {
    let rig = Rig::with(|config| config.auth.leeway_s = 3).await;
    let mut late = claims("bob");
    (late.iat, late.exp) = (late.iat - 60, late.iat - 1);
    let token = rig.key.sign(&late).unwrap();
    let mut socket = connect(&rig, &token).await.unwrap();
    frame(&mut socket).await;
    let began = std::time::Instant::now();
    assert_eq!(closed(&mut socket).await, (CloseCode::Policy, "the token has expired".to_owned()));
    assert!(began.elapsed().as_millis() > 500, "{:?}", began.elapsed());
    match connect(&rig, &token).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 401),
        other => panic!("let in again, to be ended at once: {:?}", other.map(|_| ())),
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_as_slow_and_others_are_not_held_up() {
    let rig = Rig::with(|config| config.limits.client_timeout_ms = 300).await;
    let _deaf = opened(&rig, "deaf").await;
    let mut bob = opened(&rig, "bob").await;
    // More than the sockets' buffers on loopback hold.
    let id = delivery(1);
    let text = "x".repeat(100_000);
    let large = json!([{ "envelope": { "msg_id": id }, "payload": { "act": "closed", "text": text } }]).to_string();
    for _ in 0..500 {
        let subject = subject::inbox(&agent("deaf"));
        rig.bus.pub_sub.publish(subject, Bytes::from(large.clone())).await.unwrap();
    }
    publish_inbox(&rig, "bob", &[id]).await;
    assert_eq!(frame(&mut bob).await["type"], "delivery");
    crate::admission::loop_until(|| async {
        let closed = rig.metric("exchange_stream_closed_total", &[("transport", "ws"), ("reason", "slow")]);
        (closed == 1.0).then_some(())
    })
    .await;
    let late = rig.metric("exchange_stream_events_total", &[("transport", "ws"), ("result", "timeout")]);
    let sent = rig.metric("exchange_stream_events_total", &[("transport", "ws"), ("result", "sent")]);
    assert!(late >= 1.0 && late + sent <= 501.0, "{late} {sent}");
}

#[tokio::test]
async fn a_binary_frame_ends_the_stream() {
    let rig = Rig::start().await;
    let mut socket = opened(&rig, "bob").await;
    socket.send(Message::binary(Bytes::from_static(b"{}"))).await.unwrap();
    assert_eq!(closed(&mut socket).await.0, CloseCode::Unsupported);
}

#[tokio::test]
async fn an_agent_has_only_so_many_streams_and_gets_the_place_of_a_closed_one() {
    let rig = Rig::with(|config| config.limits.streams_per_agent_max = 1).await;
    let mut first = opened(&rig, "bob").await;
    match connect(&rig, &rig.token("bob")).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 429),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a second stream was opened"),
    }
    opened(&rig, "carol").await;
    first.close(None).await.unwrap();
    crate::admission::loop_until(|| async { connect(&rig, &rig.token("bob")).await.ok() }).await;
}

#[tokio::test]
async fn a_websocket_without_a_token_is_not_opened() {
    let rig = Rig::start().await;
    match connect(&rig, "nonsense").await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 401),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("opened"),
    }
}

#[tokio::test]
async fn server_sent_events_carry_deliveries_under_their_ids_and_acknowledgements_go_by_post() {
    let rig = Rig::start().await;
    let mut hellos = subscribe(&rig, "hello.bob").await;
    let mut acks = subscribe(&rig, "acks.*").await;
    let request = rig.request("GET", "/v1/inbox").bearer_auth(rig.token("bob")).header("last-event-id", "whatever");
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut chunks = response.bytes_stream();
    assert_eq!(hellos.next().await.unwrap().subject, "hello.bob");
    let ids = [delivery(1), delivery(2)];
    publish_inbox(&rig, "bob", &ids).await;
    let mut text = String::new();
    while text.matches("event: delivery").count() < 2 {
        let chunk = tokio::time::timeout(PATIENCE, chunks.next()).await.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(ids.iter().all(|id| text.contains(&format!("id: {id}\n"))), "{text}");
    let data: Value = serde_json::from_str(text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap()).unwrap();
    assert_eq!(data["envelope"]["msg_id"], json!(ids[0]));

    let (status, _) =
        rig.call("POST", "/v1/acks", Some(&rig.token("bob")), Some(&json!({ "delivery_ids": [ids[0]] }))).await;
    assert_eq!(status, 204);
    assert_eq!(collected(&mut acks).await, [(agent("bob"), vec![ids[0]])]);
    for wrong in
        [json!({}), json!({ "delivery_ids": "x" }), json!({ "delivery_ids": ["x"] }), json!({ "delivery_ids": [] })]
    {
        let (status, _) = rig.call("POST", "/v1/acks", Some(&rig.token("bob")), Some(&wrong)).await;
        assert_eq!(status, 422, "{wrong}");
    }
}

#[tokio::test]
async fn acknowledgements_of_many_agents_over_every_way_in_leave_in_few_messages_and_none_is_lost_when_it_stops() {
    let rig = Rig::start().await;
    let mut acks = subscribe(&rig, "acks.*").await;
    let mut single = subscribe(&rig, "ack.*.*").await;
    let names: Vec<String> = (0..6).map(|number| format!("agent-{number}")).collect();
    let mut sockets = Vec::new();
    for name in &names {
        sockets.push(opened(&rig, name).await);
    }
    let mut expected = Vec::new();
    for number in 0..20 {
        for (place, name) in names.iter().enumerate() {
            let id = DeliveryId::new(Lane(number % 4), [number; 16]);
            expected.push((agent(name), id));
            if place == 0 {
                let (token, body) = (rig.token(name), json!({ "delivery_ids": [id] }));
                assert_eq!(rig.call("POST", "/v1/acks", Some(&token), Some(&body)).await.0, 204);
            } else {
                send(&mut sockets[place], json!({ "type": "ack", "delivery_ids": [id] })).await;
            }
        }
    }
    // Whoever has been answered has been read.
    for socket in &mut sockets {
        send(socket, json!([])).await;
        assert_eq!(frame(socket).await["type"], "refused");
    }
    let registry = rig.registry.clone();
    rig.handle.shutdown().await;
    let mut messages = 0;
    let mut found = Vec::new();
    while let Some(Some(message)) = acks.next().now_or_never() {
        messages += 1;
        for (agent, ids) in decode_collected(&message.payload).unwrap() {
            found.extend(ids.into_iter().map(|id| (agent.clone(), id)));
        }
    }
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(single.next().now_or_never().is_none(), "agents' own subjects carry none of them");
    let counted = |name, labels: &[(&str, &str)]| metric(&registry, name, labels);
    assert_eq!(counted("exchange_acks_total", &[("result", "sent")]), 120.0);
    assert_eq!(counted("exchange_ack_messages_total", &[]), f64::from(messages));
}

#[tokio::test]
async fn an_agent_on_the_bus_is_admitted_under_its_own_subject_only() {
    let rig = Rig::start().await;
    let ask = |sender: &'static str, token: Option<String>, message: Value| {
        let pub_sub = rig.bus.pub_sub.clone();
        async move {
            let subject = subject::gateway_in(&agent(sender));
            let reply = pub_sub.request(subject, token, Bytes::from(message.to_string()), PATIENCE).await.unwrap();
            serde_json::from_slice::<Value>(&reply).unwrap()
        }
    };
    let bob = rig.token("bob");
    let accepted = ask("bob", Some(bob.clone()), offer("bob", "m1", "alice~job")).await;
    assert_eq!(accepted["accepted"]["negotiation"], "alice~job");
    let rows = [
        ("no token", "bob", None, offer("bob", "m2", "alice~job"), "unauthenticated"),
        ("a bad token", "bob", Some("x.y.z".to_owned()), offer("bob", "m2", "alice~job"), "unauthenticated"),
        ("another's subject", "carol", Some(bob.clone()), offer("bob", "m2", "alice~job"), "unauthorized"),
        ("another's name", "bob", Some(bob.clone()), offer("carol", "m2", "alice~job"), "unauthorized"),
        ("not a message", "bob", Some(bob), json!([]), "wrong_type"),
    ];
    for (name, sender, token, message, expected) in rows {
        let reply = ask(sender, token, message).await;
        assert_eq!(code(&reply["refused"]), expected, "{name}: {reply}");
    }
    assert_eq!(rig.logged().await.len(), 1);
}

#[tokio::test]
async fn two_gateways_share_the_messages_from_the_bus() {
    let bus = bus::memory::open(bus::memory::MemoryOptions::default());
    let key = gateway::keys::SigningKey::generate(gateway::keys::KeyAlgorithm::EdDsa).unwrap();
    let one = Rig::on(bus.clone(), key.clone(), |_| {}).await;
    let two = Rig::on(bus.clone(), key, |_| {}).await;
    for number in 0..20 {
        let message = offer("bob", &format!("m{number}"), "alice~job").to_string();
        let subject = subject::gateway_in(&agent("bob"));
        bus.pub_sub.request(subject, Some(one.token("bob")), Bytes::from(message), PATIENCE).await.unwrap();
    }
    assert_eq!(one.logged().await.len(), 20, "each is admitted once");
    let by = |rig: &Rig| rig.metric("exchange_messages_total", &[("transport", "nats"), ("outcome", "accepted")]);
    assert_eq!(by(&one) + by(&two), 20.0);
    assert!(by(&one) > 0.0 && by(&two) > 0.0);
}

pub(crate) async fn connect(rig: &Rig, token: &str) -> Result<Socket, Error> {
    connect_to(rig, "/v1/ws", token).await
}

pub(crate) async fn connect_to(rig: &Rig, path: &str, token: &str) -> Result<Socket, Error> {
    let mut request = format!("ws://{}{path}", rig.address()).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    connect_async(request).await.map(|(socket, _)| socket)
}

/// A connection that has said hello.
pub(crate) async fn opened(rig: &Rig, name: &str) -> Socket {
    let mut socket = connect(rig, &rig.token(name)).await.unwrap();
    assert_eq!(frame(&mut socket).await["type"], "hello");
    socket
}

pub(crate) async fn send(socket: &mut Socket, frame: Value) {
    socket.send(Message::text(frame.to_string())).await.unwrap();
}

pub(crate) async fn frame(socket: &mut Socket) -> Value {
    let next = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
    serde_json::from_str(next.to_text().unwrap()).unwrap()
}

/// Reads until the gateway closes the stream.
pub(crate) async fn closed(socket: &mut Socket) -> (CloseCode, String) {
    let reading = async {
        loop {
            if let Message::Close(Some(close)) = socket.next().await.unwrap().unwrap() {
                return (close.code, close.reason.to_string());
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap()
}

/// The next message of collected acknowledgements.
pub(crate) async fn collected(acks: &mut BoxStream<'static, bus::Received>) -> Vec<AgentAcks> {
    let message = tokio::time::timeout(PATIENCE, acks.next()).await.unwrap().unwrap();
    decode_collected(&message.payload).unwrap()
}

pub(crate) async fn subscribe(rig: &Rig, subject: &str) -> BoxStream<'static, bus::Received> {
    rig.bus.pub_sub.subscribe(subject.to_owned(), None).await.unwrap()
}

pub(crate) async fn publish_inbox(rig: &Rig, name: &str, ids: &[DeliveryId]) {
    let deliveries: Vec<Value> =
        ids.iter().map(|id| json!({ "envelope": { "msg_id": id }, "payload": { "act": "closed" } })).collect();
    let payload = Bytes::from(serde_json::to_vec(&deliveries).unwrap());
    rig.bus.pub_sub.publish(subject::inbox(&agent(name)), payload).await.unwrap();
}

pub(crate) fn delivery(number: u8) -> DeliveryId {
    DeliveryId::new(Lane(0), [number; 16])
}
