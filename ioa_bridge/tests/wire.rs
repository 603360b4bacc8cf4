//! Scripted clients of the published wire, against the bridge and an exchange in memory, with a member of the exchange's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agents::control::{ControlClient, ControlError};
use agents::observer::{Observed, Observer};
use agents::team::{
    PassingSpeaker, Scenario, ScenarioPlanner, ScenarioWorker, TeamAgent, TeamHands, TeamRequest, WorkRunner,
};
use agents::transport::bus::BusTransport;
use agents::transport::{Connection, TransportError};
use agents::{AgentHandle, AgentOptions, Identity, Token, Transport};
use axum::body::Body;
use axum::http::Request;
use bus::memory::{self, MemoryOptions};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, SinkExt, StreamExt};
use ioa_bridge::FoundClient;
use ioa_bridge::hub::CHATS_OF_STRANGERS_MAX;
use ioa_bridge::wire::ClientInfo;
use ioa_bridge::{Bridge, BridgeOptions, ExchangeDirectory, NameBook};
use parking_lot::Mutex;
use schemas::control::{AgentKind, Consent, ConsentEffect, Registration, Tag};
use schemas::delivery::{Notification, Outcome};
use schemas::search::SearchRequest;
use schemas::team::{OnRepeat, Seats, TeamRules};
use schemas::{AgentId, Code, NegotiationId, Refusal};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use traffic_gen::exchange::{Exchange, ExchangeOptions};

/// Longest a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flat_team_of_two_clients_and_a_native_member_talks_and_concludes_as_the_golden_file_says() {
    let site =
        Site::start(json!({"moves": [{"act": "say", "text": "There is a train at nine.", "next": "alice"}]})).await;
    let mut golden = Golden::default();
    golden.answer("/register", site.register("Trip Planner", "plans trips").await);
    golden.answer("/register", site.register("Weather Man", "knows the weather forecast").await);
    for (path, question) in [
        ("/retrieve_assistant", json!({"sender": "Trip Planner", "capabilities": ["weather forecast", "trains"]})),
        ("/query_assistant", json!({"name": ["Weather Man", "carol", "Nobody Known"]})),
        ("/query_assistant", json!({"name": "Trip Planner"})),
        ("/health_check", json!({})),
        ("/list_all_agents", json!({})),
    ] {
        golden.answer(path, site.ask(path, &question).await);
    }
    let mut planner = site.connect("Trip Planner").await;
    let mut weather = site.connect("Weather Man").await;
    let wish = json!({"sender": "Trip Planner", "agent_names": ["Weather Man", "carol", "Nobody Known"], "team_name": "weekend"});
    let formed = site.ask("/teamup", &wish).await;
    let comm_id = formed.1["comm_id"].as_str().unwrap().to_owned();
    assert_eq!(comm_id.len(), 32);
    golden.answer("/teamup", formed);

    let members = json!([{"name": "Weather Man", "type": "Thing Assistant", "desc": "knows the weather forecast"},
        {"name": "Trip Planner", "type": "Thing Assistant", "desc": "plans trips"}]);
    let frame = |sender: &str, kind: u8, content: &str, next: Value| {
        json!({"content": content, "sender": sender, "comm_id": comm_id, "next_speaker": next, "state": 1, "type": kind,
            "goal": "a trip to the sea", "team_members": members, "max_turns": 20})
    };
    let script = [
        (0, frame("Trip Planner", 4, "How is the weather?", json!(["Weather Man", "carol"]))),
        (1, frame("Weather Man", 4, "Sun on Saturday.", json!(["carol"]))),
        (0, frame("Trip Planner", 10, "I conclude.", json!(["Trip Planner"]))),
        (0, frame("Trip Planner", 11, "To the sea on Saturday, by the train at nine.", json!(""))),
    ];
    // Frames that tell: what was said, what carol says behind the second, the announcement, the conclusion.
    for ((speaker, frame), told) in script.into_iter().zip([1, 2, 1, 1]) {
        let speaking = if speaker == 0 { &mut planner } else { &mut weather };
        speaking.say(&frame).await;
        for _ in 0..told {
            golden.frame("Trip Planner", planner.next().await);
            golden.frame("Weather Man", weather.next().await);
        }
    }
    golden.answer("/fetch_chat_record", site.ask("/fetch_chat_record", &json!({"comm_id": comm_id})).await);
    golden.compare(include_str!("data/flat.jsonl"));
    let dropped = site.bridge.hub().dropped();
    assert!(dropped.values().all(|count| *count == 0), "{dropped:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_assign_tasks_wait_for_them_and_pause_as_the_golden_file_says() {
    let site = Site::start(json!({})).await;
    site.register("Trip Planner", "").await;
    site.register("Weather Man", "").await;
    let (mut planner, mut weather) = (site.connect("Trip Planner").await, site.connect("Weather Man").await);
    let wish = json!({"sender": "Trip Planner", "agent_names": ["Weather Man", "carol"], "team_name": "weekend"});
    let comm_id = site.ask("/teamup", &wish).await.1["comm_id"].clone();
    let frame = |sender: &str, kind: u8, content: &str, next: Value| {
        json!({"content": content, "sender": sender, "comm_id": comm_id, "next_speaker": next, "state": 1, "type": kind,
            "goal": "a trip to the sea", "team_members": [{"name": "Weather Man"}, {"name": "carol"}]})
    };
    let report = |kind: u8, task_id: &str, next: &str| {
        let mut frame = frame("Weather Man", kind, "About the weather.", json!(next));
        frame["task_id"] = json!(task_id);
        frame["task_conclusion"] = json!(if kind == 7 { "Sun on Saturday." } else { "" });
        frame
    };
    let mut pause = frame("Trip Planner", 9, "I wait for the weather.", json!(""));
    pause["triggers"] = json!(["w2"]);
    let both = json!(["Weather Man", "carol"]);
    let script = [
        // What all are told behind the assignment is that carol, who is no client, is done.
        (0, frame("Trip Planner", 5, "find out\nweather and trains", both), 2),
        (1, report(7, "w1", "Trip Planner"), 1),
        (0, frame("Trip Planner", 6, "look again", json!(["Weather Man"])), 1),
        (1, report(8, "w2", "Trip Planner"), 1),
        (0, pause, 1),
        (1, report(7, "w2", ""), 1),
        (0, frame("Trip Planner", 11, "To the sea on Saturday.", json!("")), 1),
    ];
    let mut golden = Golden::default();
    for (speaker, frame, told) in script {
        let speaking = if speaker == 0 { &mut planner } else { &mut weather };
        speaking.say(&frame).await;
        for _ in 0..told {
            let frame = planner.next().await;
            assert_eq!(weather.next().await, frame);
            golden.frame("both", frame);
        }
    }
    golden.compare(include_str!("data/tasks.jsonl"));
    let dropped = site.bridge.hub().dropped();
    assert!(dropped.values().all(|count| *count == 0), "{dropped:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_turn_a_silent_member_has_let_lapse_is_told_so() {
    let site = Site::with(BridgeOptions { speak_ms: 300, ..Site::options() }, json!({})).await;
    site.register("Trip Planner", "").await;
    site.register("Weather Man", "").await;
    let mut planner = site.connect("Trip Planner").await;
    let wish = json!({"sender": "Trip Planner", "agent_names": ["Weather Man"], "team_name": "weekend"});
    let comm_id = site.ask("/teamup", &wish).await.1["comm_id"].clone();
    let say = json!({"content": "Hello?", "sender": "Trip Planner", "comm_id": comm_id, "next_speaker": "Weather Man",
        "state": 1, "type": 4});
    planner.say(&say).await;
    assert_eq!(planner.next().await["content"], "Hello?");
    // The other client has no socket: nobody speaks for it.
    let told = planner.next().await;
    assert_eq!((&told["sender"], &told["next_speaker"]), (&json!("exchange"), &json!(["Trip Planner"])));
    planner
        .say(&json!({"content": "Alone, then.", "sender": "Trip Planner", "comm_id": comm_id, "state": 1, "type": 11}))
        .await;
    let end = planner.next().await;
    assert_eq!((&end["type"], &end["content"]), (&json!(11), &json!("Alone, then.")));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_frame_is_dropped_and_counted_and_its_socket_stays_open() {
    let site = Site::start(json!({"moves": []})).await;
    site.register("Trip Planner", "").await;
    site.register("Weather Man", "").await;
    let (mut planner, mut weather) = (site.connect("Trip Planner").await, site.connect("Weather Man").await);
    let wish = json!({"sender": "Trip Planner", "agent_names": ["Weather Man"], "team_name": "weekend"});
    let comm_id = site.ask("/teamup", &wish).await.1["comm_id"].clone();
    let good =
        json!({"content": "x", "sender": "Weather Man", "comm_id": comm_id, "next_speaker": "", "state": 1, "type": 4});
    let with = |member: &str, value: Value| {
        let mut frame = good.clone();
        frame[member] = value;
        frame
    };
    for (frame, fault) in [
        (json!("no frame"), "unreadable"),
        (with("content", json!(["x"])), "unreadable"),
        (with("triggers", json!(vec!["x"; 257])), "unreadable"),
        (with("type", json!(3)), "kind"),
        (with("type", json!(255)), "kind"),
        (with("state", json!(0)), "kind"),
        (with("comm_id", json!("0".repeat(32))), "chat"),
        (with("sender", json!("Trip Planner")), "name"),
        (with("sender", json!("x".repeat(100_000))), "name"),
        // The planner has the floor.
        (good.clone(), "turn"),
        (with("type", json!(10)), "turn"),
        (with("type", json!(11)), "turn"),
        (with("type", json!(7)), "task"),
        (with("type", json!(8)), "task"),
    ] {
        let before = site.bridge.hub().dropped()[fault];
        weather.say(&frame).await;
        until(|| site.bridge.hub().dropped()[fault] == before + 1, &format!("{fault}: {frame}")).await;
    }
    weather.send(Message::binary(vec![0xff; 1000])).await.unwrap();
    weather.send(Message::text("{".repeat(100_000))).await.unwrap();
    until(|| site.bridge.hub().dropped()["unreadable"] == 4, "a frame of brackets").await;
    // Nothing of it was said, and both sockets serve.
    let mut say = good.clone();
    (say["sender"], say["next_speaker"]) = (json!("Trip Planner"), json!("Weather Man"));
    planner.say(&say).await;
    assert_eq!((&planner.next().await["content"], &weather.next().await["content"]), (&json!("x"), &json!("x")));
    // What is too large to be read ends the socket, and no other.
    let _ = weather.send(Message::text(format!("{:?}", "x".repeat(1 << 20)))).await;
    let end = tokio::time::timeout(PATIENCE, weather.0.next()).await.unwrap();
    assert!(matches!(end, None | Some(Err(_) | Ok(Message::Close(_)))), "{end:?}");
    let mut again = site.connect("Weather Man").await;
    again.say(&with("content", json!(""))).await;
    again.say(&with("type", json!(9))).await;
    until(|| site.bridge.hub().dropped()["empty"] == 1, "a frame without words").await;
    until(|| site.bridge.hub().dropped()["task"] == 3, "a pause that waits for nothing").await;
    again.say(&with("next_speaker", json!("Trip Planner"))).await;
    assert_eq!(planner.next().await["sender"], "Weather Man");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_request_is_refused_by_its_code_and_pointer() {
    let site = Site::start(json!({})).await;
    site.register("Trip Planner", "").await;
    let long = |length: usize| "x".repeat(length);
    let many = |length: usize| vec!["x"; length];
    for (path, question, code, pointer) in [
        ("/register", json!({"name": "Mallory", "type": "Thing Assistant", "desc": ""}), "unauthorized", "/name"),
        ("/register", json!({"name": long(257), "type": "Thing Assistant", "desc": ""}), "out_of_range", "/name"),
        (
            "/register",
            json!({"name": "Trip Planner", "type": "Thing Assistant", "desc": long(2049)}),
            "out_of_range",
            "/desc",
        ),
        ("/register", json!({"name": "Trip Planner", "type": "Robot", "desc": ""}), "wrong_type", ""),
        ("/register", json!({"name": "Trip Planner"}), "wrong_type", ""),
        ("/retrieve_assistant", json!({"sender": "Mallory", "capabilities": ["x"]}), "unauthorized", "/sender"),
        (
            "/retrieve_assistant",
            json!({"sender": "Trip Planner", "capabilities": many(33)}),
            "out_of_range",
            "/capabilities",
        ),
        ("/query_assistant", json!({"name": many(257)}), "out_of_range", "/name"),
        ("/teamup", json!({"sender": "carol", "agent_names": ["Trip Planner"]}), "unauthorized", "/sender"),
        ("/teamup", json!({"sender": "Trip Planner", "agent_names": []}), "no_recipient", "/agent_names"),
        (
            "/teamup",
            json!({"sender": "Trip Planner", "agent_names": ["Trip Planner", "a b"]}),
            "no_recipient",
            "/agent_names",
        ),
        ("/teamup", json!({"sender": "Trip Planner", "agent_names": many(257)}), "out_of_range", "/agent_names"),
        ("/fetch_chat_record", json!({"comm_id": 7}), "wrong_type", ""),
        ("/nowhere", json!({}), "not_found", ""),
        ("/register", json!(long(300_000)), "too_large", ""),
    ] {
        let (status, answer) = site.ask(path, &question).await;
        let found = answer["pointer"].as_str().unwrap_or_default();
        assert!(status >= 400, "{path} {answer}");
        assert_eq!((answer["code"].as_str(), found), (Some(code), pointer), "{path} {answer}");
    }
    // Nobody of that id is there: the exchange invites nobody, and no chat is left open.
    let wish = json!({"sender": "Trip Planner", "agent_names": ["dave"]});
    let (_, answer) = site.ask("/teamup", &wish).await;
    assert_eq!(answer["code"], "no_recipient", "{answer}");
    assert_eq!(site.ask("/fetch_chat_record", &json!({})).await, (200, json!({})));
    let refused = tokio_tungstenite::connect_async(format!("ws://{}/ws/Mallory", site.address)).await;
    assert!(refused.is_err());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_machine_is_refused_and_a_client_that_is_no_browser_is_served() {
    let site = Site::start(json!({})).await;
    site.register("Trip Planner", "").await;
    let port = site.address.port();
    for (host, origin, is_served) in [
        ("127.0.0.1", None, true),
        ("localhost:7788", None, true),
        ("[::1]:7788", Some("http://[::1]:3000"), true),
        // A bridge may listen on any address of its machine.
        ("192.0.2.7:7788", None, true),
        ("127.0.0.1", Some("http://localhost:5173"), true),
        ("127.0.0.1", Some("http://127.0.0.1"), true),
        ("127.0.0.1", Some("http://evil.example"), false),
        ("127.0.0.1", Some("https://127.0.0.1.evil.example"), false),
        ("127.0.0.1", Some("https://192.0.2.7"), false),
        ("127.0.0.1", Some("null"), false),
        ("127.0.0.1", Some(""), false),
        // A name that was pointed at this machine.
        ("evil.example:7788", None, false),
        ("evil.example", Some("http://evil.example"), false),
        ("localhost.evil.example", None, false),
        ("", None, false),
    ] {
        let client = reqwest::Client::new();
        let mut asking = client.post(format!("http://127.0.0.1:{port}/list_all_agents")).header("Host", host);
        asking = origin.into_iter().fold(asking, |asking, origin| asking.header("Origin", origin));
        let response = asking.send().await.unwrap();
        let status = response.status().as_u16();
        assert_eq!(status, if is_served { 200 } else { 403 }, "{host} {origin:?}");
        if !is_served {
            assert_eq!(response.json::<Value>().await.unwrap()["code"], "unauthorized");
        }
        let mut handshake = format!("ws://127.0.0.1:{port}/ws/Trip%20Planner").into_client_request().unwrap();
        handshake.headers_mut().insert("Host", host.parse().unwrap());
        if let Some(origin) = origin {
            handshake.headers_mut().insert("Origin", origin.parse().unwrap());
        }
        let connected = tokio_tungstenite::connect_async(handshake).await;
        assert_eq!(connected.is_ok(), is_served, "{host} {origin:?}");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_say_the_exchange_refuses_is_told_why_and_says_another_in_the_same_floor() {
    let site = Site::start(json!({})).await;
    site.register("Trip Planner", "").await;
    site.register("Weather Man", "").await;
    let (mut planner, mut weather) = (site.connect("Trip Planner").await, site.connect("Weather Man").await);
    let team = NegotiationId::form(site.native.agent(), "strict").unwrap();
    let members = Seats { min: 3, max: 3 };
    let rules = TeamRules { members, on_repeat: OnRepeat::Refuse, ..TeamRules::default() };
    site.call(team, rules, &["alice", "bob"]).await;
    // Carol leads and passes; who is next is a matter of seats.
    let first = planner.next().await;
    assert_eq!(weather.next().await, first);
    let (mut one, mut other) = ((&mut planner, "Trip Planner"), (&mut weather, "Weather Man"));
    if first["next_speaker"] == json!(["Weather Man"]) {
        (one, other) = (other, one);
    }
    let frame = |sender: &str, content: &str, next: &str| json!({"content": content, "sender": sender, "comm_id": first["comm_id"], "next_speaker": [next], "state": 1, "type": 4});
    let words = "There is a train to the sea at nine in the morning.";
    one.0.say(&frame(one.1, words, other.1)).await;
    assert_eq!((&one.0.next().await["content"], &other.0.next().await["content"]), (&json!(words), &json!(words)));
    other.0.say(&frame(other.1, words, one.1)).await;
    let shown = |frame: &Value| [frame["sender"].clone(), frame["content"].clone(), frame["next_speaker"].clone()];
    let told = other.0.next().await;
    assert_eq!(shown(&told), [json!("exchange"), json!("Your message was refused: repeated"), json!([])]);
    let told = other.0.next().await;
    assert_eq!(shown(&told), [json!("exchange"), json!("It is your turn again."), json!([other.1])]);
    let better = "Sun on Saturday, rain on Sunday.";
    other.0.say(&frame(other.1, better, one.1)).await;
    // Nobody has heard a pass in its name.
    for client in [one.0, other.0] {
        assert_eq!(shown(&client.next().await), [json!(other.1), json!(better), json!([one.1])]);
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_text_is_longer_than_the_exchange_takes_is_told_how_long_it_may_be() {
    let site = Site::start(json!({})).await;
    site.register("Trip Planner", "").await;
    site.register("Weather Man", "").await;
    let (mut planner, mut weather) = (site.connect("Trip Planner").await, site.connect("Weather Man").await);
    let wish = json!({"sender": "Trip Planner", "agent_names": ["Weather Man"], "team_name": "weekend"});
    let comm_id = site.ask("/teamup", &wish).await.1["comm_id"].clone();
    let say = json!({"content": "x".repeat(5000), "sender": "Trip Planner", "comm_id": comm_id,
        "next_speaker": "Weather Man", "state": 1, "type": 4});
    planner.say(&say).await;
    let told = planner.next().await;
    assert_eq!(told["content"], "Your text has 5000 characters: the exchange takes 4096, the rest is cut off");
    assert_eq!((&told["sender"], &told["next_speaker"]), (&json!("exchange"), &json!([])));
    let echo = planner.next().await;
    assert_eq!((echo["content"].as_str().map(str::len), weather.next().await), (Some(4096), echo));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_bridge_has_the_form_of_the_gateways() {
    let site = Site::start(json!({})).await;
    let (client, bridge) = (reqwest::Client::new(), format!("http://{}", site.address));
    let nobody = json!({"sender": "Mallory", "agent_names": []});
    for (request, status, code) in [
        (client.get(format!("{}/nowhere", site.exchange.url())), 404, "not_found"),
        (client.get(format!("{bridge}/nowhere")), 404, "not_found"),
        (client.get(format!("{bridge}/register")), 405, "method_not_allowed"),
        (client.post(format!("{bridge}/teamup")).json(&nobody), 403, "unauthorized"),
        (client.post(format!("{bridge}/teamup")).body("{}"), 415, "unsupported_media_type"),
        (client.get(format!("{bridge}/ws/%ff")), 422, "bad_format"),
        (client.post(format!("{bridge}/register")).header("Host", "evil.example"), 403, "unauthorized"),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{code}");
        let problem: Value = response.json().await.unwrap();
        assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(status)));
        assert_eq!(problem["type"], format!("urn:llmx:problem:{code}"));
        for member in ["title", "detail"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {problem}");
        }
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_a_native_member_is_declined_where_there_is_no_room_and_nobody_passes_in_a_clients_name() {
    let site = Site::start(json!({})).await;
    site.register("Trip Planner", "").await;
    let hub = site.bridge.hub();
    let lead = |number: usize| AgentId::try_new(&format!("lead-{number}")).unwrap();
    for number in 0..CHATS_OF_STRANGERS_MAX {
        let team = NegotiationId::form(&lead(number), "n").unwrap();
        hub.open((team, lead(number), TeamRules::default()), None, Instant::now()).unwrap();
    }
    let team = NegotiationId::form(site.native.agent(), "full").unwrap();
    let rules = TeamRules { members: Seats { min: 2, max: 2 }, ..TeamRules::default() };
    site.call(team, rules, &["alice"]).await;
    until(|| site.end.outcome().is_some(), "the team has ended").await;
    assert_eq!(site.end.outcome(), Some(Outcome::NotFormed));
    assert_eq!(hub.records().len(), CHATS_OF_STRANGERS_MAX);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_connect_holds_up_no_other() {
    let bus = memory::open(MemoryOptions::default());
    let bridge = bridge_of(move |agent: &AgentId| -> Arc<dyn Transport> {
        if agent.as_str() == "alice" { Arc::new(Unreached) } else { Arc::new(BusTransport::new(&bus)) }
    });
    let began = Instant::now();
    let took = async |name: &str| (bridge.register(info(name)).await.map_err(|refusal| refusal.code), began.elapsed());
    let (stuck, other) = tokio::join!(took("Trip Planner"), took("Weather Man"));
    assert_eq!(stuck, (Err(Code::Unavailable), Duration::from_secs(10)));
    assert!(other.0.is_ok() && other.1 < Duration::from_secs(1), "{other:?}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_has_ended_runs_again_once_its_client_registers() {
    let (bus, attempts) = (memory::open(MemoryOptions::default()), Arc::new(AtomicU32::new(0)));
    let transport = Arc::new(RefusedLater { bus: BusTransport::new(&bus), attempts: Arc::clone(&attempts) });
    let bridge = bridge_of(move |_: &AgentId| -> Arc<dyn Transport> { Arc::clone(&transport) as _ });
    for expected in [1, 2, 3] {
        assert_eq!(bridge.register(info("Trip Planner")).await, Ok(()));
        // Time to lose the connection, and to be refused another.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(attempts.load(Ordering::Relaxed), 2 * expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up_after_a_minute() {
    let bridge = Arc::new(bridge_of(|_: &AgentId| -> Arc<dyn Transport> { Arc::new(Unreached) }));
    let router = ioa_bridge::http::router(bridge, CancellationToken::new());
    let body = Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::post("/register").header("content-type", "application/json").body(body).unwrap();
    let answering = tokio::time::timeout(Duration::from_secs(61), router.oneshot(request));
    assert_eq!(answering.await.expect("it waits for ever").unwrap().status().as_u16(), 408);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_names_the_run_of_the_bridge_and_outlives_another_instance_that_ends() {
    let site = Site::start(json!({})).await;
    site.register("Trip Planner", "").await;
    let alice = site.bridge.hub().names().identity(&AgentId::try_new("alice").unwrap()).unwrap();
    let control = ControlClient::try_new(site.exchange.url()).unwrap();
    control.deregister(&alice.agent, &alice.token.current(), &Tag::try_new("old").unwrap()).await.unwrap();
    let stored: Value = control.read("/v1/agents/alice", &alice.token.current()).await.unwrap();
    assert_eq!(stored["instance"], "bridge-7");
    site.stop().await;
}

/// A bridge without an exchange, which takes every registration.
fn bridge_of(transport: impl Fn(&AgentId) -> Arc<dyn Transport> + Send + Sync + 'static) -> Bridge {
    let named = [("Trip Planner", "alice"), ("Weather Man", "bob")].map(|(name, agent)| {
        (name.to_owned(), Identity { agent: AgentId::try_new(agent).unwrap(), token: Token::fixed("t") })
    });
    Bridge::new(NameBook::try_new(named).unwrap(), Arc::new(EmptyDirectory), transport, Site::options())
}

fn info(name: &str) -> ClientInfo {
    ClientInfo { name: name.to_owned(), kind: AgentKind::default(), desc: String::new() }
}

/// Knows nobody.
struct EmptyDirectory;

impl ExchangeDirectory for EmptyDirectory {
    fn register(&self, _: AgentId, _: Registration) -> BoxFuture<'static, Result<(), Refusal>> {
        async { Ok(()) }.boxed()
    }

    fn search(&self, _: AgentId, _: Vec<String>) -> BoxFuture<'static, Result<Vec<FoundClient>, Refusal>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn show(&self, _: AgentId, _: AgentId) -> BoxFuture<'static, Result<Option<FoundClient>, Refusal>> {
        async { Ok(None) }.boxed()
    }
}

/// An exchange that answers nothing.
struct Unreached;

impl Transport for Unreached {
    fn connect<'a>(&'a self, _: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        std::future::pending().boxed()
    }
}

/// An exchange that closes each connection after a second, and refuses every second attempt for good.
struct RefusedLater {
    bus: BusTransport,
    attempts: Arc<AtomicU32>,
}

impl Transport for RefusedLater {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        async move {
            if self.attempts.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                return Err(TransportError::Unusable("the token cannot be sent".to_owned()));
            }
            let Connection { link, .. } = self.bus.connect(identity).await?;
            let inbox = futures_util::stream::once(tokio::time::sleep(Duration::from_secs(1)));
            Ok(Connection { link, inbox: inbox.filter_map(async |()| None).boxed() })
        }
        .boxed()
    }
}

/// What clients are answered and told.
#[derive(Default)]
struct Golden(Vec<Value>);

impl Golden {
    fn answer(&mut self, path: &str, (status, answer): (u16, Value)) {
        self.0.push(json!({"path": path, "status": status, "answer": answer}));
    }

    fn frame(&mut self, to: &str, frame: Value) {
        self.0.push(json!({"to": to, "frame": frame}));
    }

    fn compare(&self, file: &str) {
        let told: Vec<String> = self.0.iter().map(Value::to_string).collect();
        assert_eq!(told.join("\n"), file.trim_end(), "the frames have changed:\n{}\n", told.join("\n"));
    }
}

/// An exchange with a bridge before it.
struct Site {
    exchange: Exchange,
    bridge: Arc<Bridge>,
    address: SocketAddr,
    stop: CancellationToken,
    native: AgentHandle<TeamAgent>,
    end: Arc<End>,
}

impl Site {
    fn options() -> BridgeOptions {
        BridgeOptions { run: 7, ..BridgeOptions::default() }
    }

    async fn start(carol: Value) -> Self {
        Self::with(Self::options(), carol).await
    }

    /// `carol` is what the native member does.
    async fn with(options: BridgeOptions, carol: Value) -> Self {
        let exchange =
            Exchange::start(memory::open(MemoryOptions::default()), ExchangeOptions::default()).await.unwrap();
        let control = ControlClient::try_new(exchange.url()).unwrap();
        let identity = |name: &str| exchange.identity(&AgentId::try_new(name).unwrap()).unwrap();
        let scenario = json!({"name": "weekend", "agents": [{"name": "alice"}, {"name": "carol", "tasks": [{"title": "*", "result": "a ticket"}]}],
            "team": {"goal": "weekend", "lead": "alice", "invites": ["carol"], "members": {"carol": carol}}});
        let scenario = Arc::new(Scenario::parse(&scenario.to_string()).unwrap());
        let native = identity("carol");
        let registration = Registration {
            description: Some("knows trains".to_owned()),
            consent: Consent { default: ConsentEffect::Allow, rules: Vec::new() },
            ..Registration::default()
        };
        control.register(&native.agent, &native.token.current(), &registration).await.unwrap();
        let hands = TeamHands::new(WorkRunner::new(ScenarioWorker::new(Arc::clone(&scenario))));
        let (bus, end) = (exchange.bus.clone(), Arc::new(End::default()));
        let way: (Arc<dyn Transport>, _, _) = (
            Arc::new(BusTransport::new(&bus)),
            native.clone(),
            AgentOptions { observer: Some(Arc::clone(&end) as _), ..AgentOptions::default() },
        );
        let native =
            TeamAgent::spawn(ScenarioPlanner::new(scenario, native.agent), hands, way, CancellationToken::new());
        native.connected().await.unwrap();

        let named = [("Trip Planner", "alice"), ("Weather Man", "bob")];
        let names = NameBook::try_new(named.map(|(name, agent)| (name.to_owned(), identity(agent)))).unwrap();
        let directory = Arc::new(Directory { control, names: names.clone() });
        let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
        let bridge = Arc::new(Bridge::new(names, directory, transport, options));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let router = ioa_bridge::http::router(Arc::clone(&bridge), stop.clone());
        let stopped = stop.clone();
        tokio::spawn(
            async move { axum::serve(listener, router).with_graceful_shutdown(stopped.cancelled_owned()).await },
        );
        Self { exchange, bridge, address, stop, native, end }
    }

    /// The native member calls agents to a team, in which it passes.
    async fn call(&self, team: NegotiationId, rules: TeamRules, invites: &[&str]) {
        let request = TeamRequest {
            goal: "a trip".to_owned(),
            policy: None,
            reply_within_ms: 20_000,
            rules,
            invites: invites.iter().map(|agent| AgentId::try_new(agent).unwrap()).collect(),
            search: Vec::new(),
            speaker: Box::new(PassingSpeaker),
        };
        self.native.command(move |agent, now| agent.call(now, &team, request, None)).await.unwrap();
    }

    async fn register(&self, name: &str, description: &str) -> (u16, Value) {
        let answer =
            self.ask("/register", &json!({"name": name, "type": "Thing Assistant", "desc": description})).await;
        assert_eq!(answer, (200, Value::Null));
        answer
    }

    async fn ask(&self, path: &str, question: &Value) -> (u16, Value) {
        let url = format!("http://{}{path}", self.address);
        let response = reqwest::Client::new().post(url).json(question).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn connect(&self, name: &str) -> Client {
        let url = format!("ws://{}/ws/{}", self.address, name.replace(' ', "%20"));
        Client(tokio_tungstenite::connect_async(url).await.unwrap().0)
    }

    async fn stop(self) {
        self.stop.cancel();
        self.bridge.shutdown().await;
        self.exchange.shutdown().await;
    }
}

/// How the latest team of the native member has ended.
#[derive(Default)]
struct End(Mutex<Option<Outcome>>);

impl End {
    fn outcome(&self) -> Option<Outcome> {
        *self.0.lock()
    }
}

impl Observer for End {
    fn handle(&self, _agent: &AgentId, _at: Instant, event: Observed<'_>) {
        if let Observed::Delivered { delivery, .. } = event
            && let Notification::Closed(closing) = &delivery.payload
        {
            *self.0.lock() = Some(closing.outcome);
        }
    }
}

/// A client's socket.
struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    async fn send(&mut self, message: Message) -> Result<(), tokio_tungstenite::tungstenite::Error> {
        self.0.send(message).await
    }

    async fn say(&mut self, frame: &Value) {
        self.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("no frame came").unwrap().unwrap();
            if let Message::Text(text) = message {
                return serde_json::from_str(text.as_str()).unwrap();
            }
        }
    }
}

async fn until(holds: impl Fn() -> bool, what: &str) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("it never came to this: {what}"));
}

/// The control plane of the exchange.
struct Directory {
    control: ControlClient,
    names: NameBook,
}

impl Directory {
    fn ask<T: Send + 'static, F: Future<Output = Result<T, ControlError>> + Send + 'static>(
        &self,
        agent: &AgentId,
        ask: impl FnOnce(ControlClient, String) -> F + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Refusal>> {
        let asking = ask(self.control.clone(), self.names.identity(agent).unwrap().token.current());
        asking
            .map(|asked| {
                asked.map_err(|error| match error {
                    ControlError::Refused(refusal) => refusal,
                    other @ (ControlError::Unexpected { .. }
                    | ControlError::Redirected { .. }
                    | ControlError::Unreadable { .. }
                    | ControlError::Unusable(_)
                    | ControlError::Unreachable(_)) => Refusal::new(Code::Unavailable, other.to_string()),
                })
            })
            .boxed()
    }
}

impl ExchangeDirectory for Directory {
    fn register(&self, agent: AgentId, document: Registration) -> BoxFuture<'static, Result<(), Refusal>> {
        let id = agent.clone();
        self.ask(&agent, move |control, token| async move { control.register(&id, &token, &document).await })
    }

    fn search(&self, agent: AgentId, texts: Vec<String>) -> BoxFuture<'static, Result<Vec<FoundClient>, Refusal>> {
        let found = |hit: schemas::search::SearchHit| FoundClient {
            agent: hit.agent,
            kind: hit.kind,
            description: hit.description.unwrap_or_default(),
        };
        self.ask(&agent, move |control, token| async move {
            let answer = control.search(&token, &SearchRequest::of_texts(texts)).await?;
            Ok(answer.hits.into_iter().map(found).collect())
        })
    }

    fn show(&self, agent: AgentId, wanted: AgentId) -> BoxFuture<'static, Result<Option<FoundClient>, Refusal>> {
        self.ask(&agent, move |control, token| async move {
            let path = format!("/v1/agents/{wanted}");
            match control.read::<Value>(&path, &token).await {
                Ok(document) => Ok(Some(FoundClient {
                    agent: wanted,
                    kind: serde_json::from_value(document["kind"].clone()).unwrap_or_default(),
                    description: document["description"].as_str().unwrap_or_default().to_owned(),
                })),
                Err(ControlError::Refused(refusal)) if refusal.code == Code::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}
