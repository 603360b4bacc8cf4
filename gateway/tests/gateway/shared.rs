//! Agents that share one WebSocket connection.

use bytes::Bytes;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use schemas::presence::Hello;
use schemas::{AgentId, GatewayId, routed, subject};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::rig::{Rig, agent, claims, code, offer};
use crate::streams::{Socket, closed, connect_to, delivery, frame, opened, publish_inbox, send, subscribe};

#[tokio::test]
async fn agents_share_a_connection_and_each_speaks_under_its_own_token() {
    let rig = Rig::with(|config| "gate-one".clone_into(&mut config.id)).await;
    let mut acks = subscribe(&rig, "acks.*").await;
    let mut hellos = subscribe(&rig, "hello.*").await;
    let mut socket = shared(&rig, "host").await;
    assert!(hellos.next().now_or_never().is_none(), "whoever opens it has no stream by that");
    for name in ["bob", "carol"] {
        join(&rig, &mut socket, name).await;
        let hello = hellos.next().await.unwrap();
        let connected = Hello::Connected(Some(GatewayId::try_new("gate-one").unwrap()));
        assert_eq!((hello.subject, Hello::parse(&hello.payload)), (format!("hello.{name}"), connected));
    }

    for (name, msg_id) in [("bob", "m1"), ("carol", "m2")] {
        let message = offer(name, msg_id, "alice~job");
        // As the SDKs write it, to be cut out, and otherwise.
        let whole = format!(r#"{{"type":"message","agent":"{name}","id":"1","message":{message}}}"#);
        for text in [whole.clone(), format!("{whole} ")] {
            socket.send(Message::text(text)).await.unwrap();
            let accepted = frame(&mut socket).await;
            let said = (&accepted["type"], &accepted["agent"], &accepted["msg_id"]);
            assert_eq!(said, (&json!("accepted"), &json!(name), &json!(msg_id)));
        }
    }
    let message = offer("carol", "m3", "alice~job");
    send(&mut socket, json!({"type": "message", "agent": "bob", "id": "2", "message": message})).await;
    let refused = frame(&mut socket).await;
    let said = (&refused["id"], &refused["agent"], code(&refused["problem"]));
    assert_eq!(said, (&json!("2"), &json!("bob"), "unauthorized"));

    // Sent to the gateway for several, and to an inbox.
    let mut message = Vec::new();
    for (name, number) in [("carol", 1), ("bob", 2)] {
        let document =
            json!({"envelope": {"msg_id": delivery(number), "to": [format!("agent://{name}")]}, "payload": {}});
        routed::push_line(&mut message, &agent(name), document.to_string().as_bytes());
    }
    rig.bus.pub_sub.publish("deliver.gate-one".to_owned(), message.into()).await.unwrap();
    for (name, number) in [("carol", 1), ("bob", 2)] {
        let envelope = frame(&mut socket).await["delivery"]["envelope"].clone();
        assert_eq!(
            (&envelope["msg_id"], &envelope["to"][0]),
            (&json!(delivery(number)), &json!(format!("agent://{name}")))
        );
    }
    publish_inbox(&rig, "bob", &[delivery(3)]).await;
    assert_eq!(frame(&mut socket).await["delivery"]["envelope"]["msg_id"], json!(delivery(3)));
    send(&mut socket, json!({"type": "ack", "agent": "carol", "delivery_ids": [delivery(1)]})).await;
    assert_eq!(crate::streams::collected(&mut acks).await, [(agent("carol"), vec![delivery(1)])]);

    send(&mut socket, json!({"type": "leave", "agent": "bob"})).await;
    let gone = hellos.next().await.unwrap();
    assert_eq!(
        (gone.subject.as_str(), Hello::parse(&gone.payload)),
        ("hello.bob", Hello::Closed(GatewayId::try_new("gate-one").unwrap()))
    );
    publish_inbox(&rig, "bob", &[delivery(4)]).await;
    publish_inbox(&rig, "carol", &[delivery(5)]).await;
    assert_eq!(frame(&mut socket).await["delivery"]["envelope"]["msg_id"], json!(delivery(5)), "of carol alone");
    join(&rig, &mut socket, "bob").await;
}

#[tokio::test]
async fn a_shared_connection_takes_no_frame_of_an_agent_that_has_not_joined() {
    let rig = Rig::start().await;
    let mut socket = shared(&rig, "host").await;
    join(&rig, &mut socket, "bob").await;
    let of = |name: &str| offer(name, "m1", "alice~job");
    let other = rig.token("carol");
    let mut late = claims("bob");
    // Beyond the leeway.
    late.exp = late.iat - 35;
    let expired = rig.key.sign(&late).unwrap();
    let rows = [
        (json!({"type": "message", "id": "1", "message": of("bob")}), "wrong_type", Some("1")),
        (json!({"type": "message", "agent": "carol", "id": "2", "message": of("carol")}), "unauthorized", Some("2")),
        (json!({"type": "message", "agent": "host", "id": "3", "message": of("host")}), "unauthorized", Some("3")),
        (json!({"type": "message", "agent": "no name", "id": "4", "message": of("bob")}), "wrong_type", None),
        (json!({"type": "ack", "delivery_ids": [delivery(1)]}), "wrong_type", None),
        (json!({"type": "ack", "agent": "carol", "delivery_ids": [delivery(1)]}), "unauthorized", None),
        (json!({"type": "join", "id": "5", "token": "no token"}), "unauthenticated", Some("5")),
        (json!({"type": "join", "id": "6", "token": expired}), "token_expired", Some("6")),
        (json!({"type": "join", "id": "7", "token": other, "agent": "carol"}), "wrong_type", None),
        (json!({"type": "join", "id": "8"}), "wrong_type", None),
        (json!({"type": "leave"}), "wrong_type", None),
        (json!({"type": "leave", "agent": "bob", "id": "9", "message": {}}), "wrong_type", None),
    ];
    for (sent, expected, id) in rows {
        send(&mut socket, sent.clone()).await;
        let refused = frame(&mut socket).await;
        assert_eq!((&refused["type"], code(&refused["problem"])), (&json!("refused"), expected), "{sent}");
        assert_eq!(refused["id"].as_str(), id, "{sent}");
        let named =
            AgentId::try_new(sent["agent"].as_str().unwrap_or_default()).ok().filter(|_| expected == "unauthorized");
        assert_eq!(refused["agent"].as_str(), named.as_ref().map(AgentId::as_str), "{sent}");
    }
    // Of whoever is not there nothing changes.
    send(&mut socket, json!({"type": "leave", "agent": "carol"})).await;
    assert!(rig.logged().await.is_empty());
    send(&mut socket, json!({"type": "message", "agent": "bob", "message": of("bob")})).await;
    assert_eq!(frame(&mut socket).await["type"], "accepted");

    let mut own = opened(&rig, "dan").await;
    for sent in [
        json!({"type": "message", "agent": "dan", "message": of("dan")}),
        json!({"type": "ack", "agent": "dan", "delivery_ids": [delivery(1)]}),
        json!({"type": "join", "token": rig.token("dan")}),
        json!({"type": "leave", "agent": "dan"}),
    ] {
        send(&mut own, sent.clone()).await;
        assert_eq!(code(&frame(&mut own).await["problem"]), "wrong_type", "{sent}");
    }
}

#[tokio::test]
async fn an_agent_whose_token_is_taken_no_longer_leaves_a_shared_connection_alone() {
    let rig = Rig::with(|config| config.auth.leeway_s = 0).await;
    let expiring = |name: &str| {
        let mut short = claims(name);
        short.exp = short.iat + 1;
        rig.key.sign(&short).unwrap()
    };
    let closing = |name: &str, reason: &str, detail: &str| json!({"type": "closing", "agent": name, "reason": reason, "detail": detail});
    let mut socket = shared(&rig, "host").await;
    join(&rig, &mut socket, "bob").await;
    send(&mut socket, json!({"type": "join", "token": expiring("carol")})).await;
    assert_eq!(frame(&mut socket).await["agent"], "carol");
    assert_eq!(frame(&mut socket).await, closing("carol", "expired", "the token has expired"));
    let labels = [("transport", "ws"), ("reason", "expired")];
    assert_eq!(rig.metric("exchange_stream_closed_total", &labels), 1.0);
    send(&mut socket, json!({"type": "message", "agent": "carol", "message": offer("carol", "m1", "alice~job")})).await;
    assert_eq!(code(&frame(&mut socket).await["problem"]), "unauthorized");
    speak(&mut socket, "bob", "m1").await;

    // It comes back by the same connection, and one that renews its token in time never leaves it.
    join(&rig, &mut socket, "carol").await;
    send(&mut socket, json!({"type": "join", "token": expiring("dan")})).await;
    assert_eq!(frame(&mut socket).await["agent"], "dan");
    join(&rig, &mut socket, "dan").await;
    tokio::time::sleep(std::time::Duration::from_millis(2200)).await;
    speak(&mut socket, "dan", "m1").await;

    // An administrator ends the stream of one agent; that of an agent that has left is none.
    let end =
        async |name: &str| rig.bus.pub_sub.publish(subject::stream_end(&agent(name)), Bytes::new()).await.unwrap();
    send(&mut socket, json!({"type": "leave", "agent": "carol"})).await;
    speak(&mut socket, "bob", "m2").await;
    end("carol").await;
    end("dan").await;
    assert_eq!(frame(&mut socket).await, closing("dan", "ended", "an administrator ended the agent's streams"));
    speak(&mut socket, "bob", "m3").await;
}

#[tokio::test]
async fn a_shared_connection_outlasts_the_token_of_its_request_while_agents_take_part() {
    let rig = Rig::with(|config| config.auth.leeway_s = 0).await;
    let open = async || {
        let mut short = claims("host");
        short.exp = short.iat + 1;
        let mut socket = connect_to(&rig, "/v1/ws?shared=true", &rig.key.sign(&short).unwrap()).await.unwrap();
        frame(&mut socket).await;
        socket
    };
    let expired = (CloseCode::Policy, "the token has expired".to_owned());
    let mut empty = open().await;
    let mut socket = open().await;
    join(&rig, &mut socket, "bob").await;
    assert_eq!(closed(&mut empty).await, expired);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    speak(&mut socket, "bob", "m1").await;
    join(&rig, &mut socket, "carol").await;
    send(&mut socket, json!({"type": "join", "token": "none"})).await;
    assert_eq!(code(&frame(&mut socket).await["problem"]), "unauthenticated", "of the token that was shown");
    for name in ["bob", "carol"] {
        send(&mut socket, json!({"type": "leave", "agent": name})).await;
    }
    assert_eq!(closed(&mut socket).await, expired);
}

/// As a client does that gives up on a join which takes long, and tries again.
#[tokio::test]
async fn who_comes_and_goes_does_so_in_the_order_in_which_it_was_said() {
    let rig = Rig::start().await;
    let mut socket = shared(&rig, "host").await;
    let join = |id: &str| json!({"type": "join", "id": id, "token": rig.token("bob")}).to_string();
    let leave = json!({"type": "leave", "agent": "bob"}).to_string();
    for text in [join("1"), leave.clone(), join("2"), join("3")] {
        socket.feed(Message::text(text)).await.unwrap();
    }
    socket.flush().await.unwrap();
    for id in ["1", "2", "3"] {
        assert_eq!(frame(&mut socket).await, json!({"type": "joined", "id": id, "agent": "bob"}));
    }
    // It is there once, and hears everything once.
    publish_inbox(&rig, "bob", &[delivery(1), delivery(2)]).await;
    for number in [1, 2] {
        assert_eq!(frame(&mut socket).await["delivery"]["envelope"]["msg_id"], json!(delivery(number)));
    }
    for text in [join("4"), leave] {
        socket.feed(Message::text(text)).await.unwrap();
    }
    socket.flush().await.unwrap();
    assert_eq!(frame(&mut socket).await["id"], "4");
    crate::admission::loop_until(|| async { (rig.metric("exchange_agents_connected", &[]) == 0.0).then_some(()) })
        .await;
}

#[tokio::test]
async fn a_stream_of_a_shared_connection_is_ended_at_once_however_many_have_left_it() {
    let rig = Rig::start().await;
    let mut socket = shared(&rig, "host").await;
    for number in 0..40 {
        join(&rig, &mut socket, &format!("agent-{number}")).await;
    }
    for number in 1..40 {
        send(&mut socket, json!({"type": "leave", "agent": format!("agent-{number}")})).await;
    }
    let message = offer("agent-0", "m1", "alice~job");
    send(&mut socket, json!({"type": "message", "agent": "agent-0", "message": message})).await;
    assert_eq!(frame(&mut socket).await["type"], "accepted");
    let began = std::time::Instant::now();
    rig.bus.pub_sub.publish(subject::stream_end(&agent("agent-0")), Bytes::new()).await.unwrap();
    assert_eq!(frame(&mut socket).await["reason"], "ended");
    // A ping that would wake the connection comes every 20 s.
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
}

#[tokio::test]
async fn an_agent_opens_only_so_many_shared_connections() {
    let rig = Rig::start().await;
    let mut sockets = Vec::new();
    for _ in 0..8 {
        sockets.push(shared(&rig, "host").await);
    }
    match connect_to(&rig, "/v1/ws?shared=true", &rig.token("host")).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 429),
        other => panic!("{:?}", other.map(|_| ())),
    }
    drop(sockets.pop());
    crate::admission::loop_until(|| async {
        connect_to(&rig, "/v1/ws?shared=true", &rig.token("host")).await.ok().map(|_| ())
    })
    .await;
}

#[tokio::test]
async fn who_leaves_has_left_though_the_rate_is_used_up() {
    let rig = Rig::with(|config| (config.limits.requests_per_s, config.limits.burst) = (1, 1)).await;
    let mut socket = shared(&rig, "host").await;
    join(&rig, &mut socket, "bob").await;
    let mut hellos = subscribe(&rig, "hello.*").await;
    send(&mut socket, json!({"type": "leave", "agent": "bob"})).await;
    assert_eq!(code(&frame(&mut socket).await["problem"]), "rate_limited");
    let gone = hellos.next().await.unwrap();
    assert_eq!(gone.subject, "hello.bob");
    assert!(matches!(Hello::parse(&gone.payload), Hello::Closed(_)));
}

#[tokio::test]
async fn only_so_many_agents_share_a_connection() {
    let rig = Rig::with(|config| {
        config.limits.requests_per_s = 1_000_000;
        config.limits.burst = 1_000_000;
    })
    .await;
    let mut socket = shared(&rig, "host").await;
    for number in 0..257 {
        let token = rig.token(&format!("agent-{number}"));
        send(&mut socket, json!({"type": "join", "id": number.to_string(), "token": token})).await;
    }
    let mut answers: Vec<Value> = Vec::new();
    while answers.len() < 257 {
        answers.push(frame(&mut socket).await);
    }
    let refused: Vec<_> = answers.iter().filter(|answer| answer["type"] == "refused").collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((&refused[0]["id"], code(&refused[0]["problem"])), (&json!("256"), "rate_limited"));
    // Whoever is there renews its token all the same.
    join(&rig, &mut socket, "agent-255").await;
}

#[tokio::test]
async fn an_agent_with_as_many_streams_as_it_may_have_renews_its_token_on_a_shared_connection() {
    let rig = Rig::with(|config| config.limits.streams_per_agent_max = 1).await;
    let mut socket = shared(&rig, "host").await;
    join(&rig, &mut socket, "bob").await;
    join(&rig, &mut socket, "bob").await;
    let mut other = shared(&rig, "other").await;
    send(&mut other, json!({"type": "join", "id": "1", "token": rig.token("bob")})).await;
    assert_eq!(code(&frame(&mut other).await["problem"]), "rate_limited", "elsewhere it would have a second stream");
}

/// Has a message of an agent taken in.
async fn speak(socket: &mut Socket, name: &str, msg_id: &str) {
    send(socket, json!({"type": "message", "agent": name, "message": offer(name, msg_id, "alice~job")})).await;
    assert_eq!(frame(socket).await["type"], "accepted");
}

async fn shared(rig: &Rig, opener: &str) -> Socket {
    let mut socket = connect_to(rig, "/v1/ws?shared=true", &rig.token(opener)).await.unwrap();
    assert_eq!(frame(&mut socket).await, json!({"type": "hello", "agent": opener}));
    socket
}

async fn join(rig: &Rig, socket: &mut Socket, name: &str) {
    send(socket, json!({"type": "join", "id": "j", "token": rig.token(name)})).await;
    assert_eq!(frame(socket).await, json!({"type": "joined", "id": "j", "agent": name}));
}
