//! A stranger's A2A agent as a contractor: a scripted one on loopback, asked by the client alone and in an exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agents::agent::AgentHandle;
use agents::asking::{Answers as _, Asking, Asks as _, spawn};
use agents::initiator::{CallReport, CallRequest, Initiator};
use agents::transport::http::HttpTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::{Action, AgentOptions, Strategy as _};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::any;
use bridges::a2a_agent::{A2aClient, A2aContractor};
use bus::nats::{self, NatsOptions};
use nats_server::{LocalServer, LocalServerOptions};
use parking_lot::Mutex;
use schemas::control::Registration;
use schemas::delivery::Delivery;
use schemas::payload::Cfp;
use schemas::{Address, AgentId, Timestamp, TopicName};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};

#[path = "a2a_agent/extension.rs"]
mod extension;

/// The time of every delivery here, in microseconds: 2026-11-29T12:00:00Z.
const NOW: Timestamp = Timestamp(1_795_953_600_000_000);
/// Bytes of an answer that nobody reads to its end.
const HUGE: usize = 10 * 1024 * 1024;

/// What an agent answers to a method with these parameters.
type Script = dyn Fn(&str, &Value) -> Response + Send + Sync;

/// A scripted A2A agent, and what it was asked.
struct Stranger {
    url: String,
    heard: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    serving: JoinHandle<()>,
}

impl Stranger {
    /// An agent whose card names an interface of its own.
    async fn start(script: impl Fn(&str, &Value) -> Response + Send + Sync + 'static) -> Self {
        Self::with_card(None, json!({}), script).await
    }

    async fn with_card(
        interface: Option<String>,
        capabilities: Value,
        script: impl Fn(&str, &Value) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard: Arc<Mutex<Vec<(HeaderMap, Value)>>> = Arc::default();
        let (script, log, interface): (Arc<Script>, _, _) =
            (Arc::new(script), Arc::clone(&heard), interface.unwrap_or_else(|| format!("{url}/rpc")));
        let answer = move |request: Request| {
            let (script, log) = (Arc::clone(&script), Arc::clone(&log));
            let mut card = card(&interface);
            card["capabilities"].clone_from(&capabilities);
            async move {
                let (head, body) = request.into_parts();
                if head.uri.path() == "/card" {
                    log.lock().push((head.headers, json!({"method": "card"})));
                    return answered(&card.to_string());
                }
                let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
                let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
                log.lock().push((head.headers, asked.clone()));
                let asked_late = asked["params"]["message"]["parts"][1]["data"]["payload"]["task"] == "be late";
                if asked_late {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                }
                script(asked["method"].as_str().unwrap_or_default(), &asked["params"])
            }
        };
        let router = Router::new().fallback(any(answer));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, heard, serving }
    }

    async fn client(&self) -> A2aClient {
        let header = ("authorization".parse().unwrap(), "Bearer secret".parse().unwrap());
        A2aClient::open(&format!("{}/card", self.url), Some(header)).await.unwrap()
    }

    /// Ends it, until nobody listens any more.
    async fn die(&self) {
        self.serving.abort();
        while tokio::net::TcpStream::connect(self.url.trim_start_matches("http://")).await.is_ok() {}
    }

    fn heard(&self) -> Vec<(HeaderMap, Value)> {
        self.heard.lock().clone()
    }

    /// How often it was asked, beside for its card and to stop.
    fn asked(&self) -> usize {
        self.heard().iter().filter(|(_, asked)| asked["method"] != "card" && asked["method"] != "CancelTask").count()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn card(interface: &str) -> Value {
    json!({
        "name": "van", "description": "carries parcels", "version": "1",
        "supportedInterfaces": [
            {"url": "https://nowhere.invalid", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": "https://nowhere.invalid", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": interface, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        ],
        "capabilities": {}, "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
    })
}

/// A response with this body, as JSON.
fn answered(body: &str) -> Response {
    Response::builder().header("content-type", "application/json").body(Body::from(body.to_owned())).unwrap()
}

fn result(result: &Value) -> Response {
    answered(&json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string())
}

/// A task in this state, whose status says these parts and which has these artifacts.
fn task(state: &str, said: Value, artifacts: &[Value]) -> Value {
    let artifacts: Vec<_> =
        artifacts.iter().enumerate().map(|(n, parts)| json!({"artifactId": n.to_string(), "parts": parts})).collect();
    let message = json!({"messageId": "s", "role": "ROLE_AGENT", "parts": said});
    json!({"id": "t-1", "contextId": "c", "status": {"state": format!("TASK_STATE_{state}"), "message": message}, "artifacts": artifacts})
}

/// A task as the answer to a message.
fn told(state: &str, said: Value, artifacts: &[Value]) -> Response {
    result(&json!({"task": task(state, said, artifacts)}))
}

fn message(parts: Value) -> Response {
    result(&json!({"message": {"messageId": "s", "role": "ROLE_AGENT", "parts": parts}}))
}

fn offer() -> Value {
    json!([{"data": {"act": "offer", "terms": {"price": 85_000_000, "delivery_ms": 2000}}}])
}

/// What is told to bob in `alice~parcel`.
fn delivery(n: u8, payload: Value) -> Delivery {
    let envelope = json!({"msg_id": format!("{n:032x}"), "ts": "2026-11-29T12:00:00.000Z", "from": "exchange://llmx",
        "to": ["agent://bob"], "negotiation": "alice~parcel"});
    serde_json::from_value(json!({"envelope": envelope, "payload": payload})).unwrap()
}

/// A call that collects until so many milliseconds later.
fn call(task: &str, reply_within_ms: u64) -> Delivery {
    let time = |ms: u64| format!("2026-11-29T12:00:{:02}.{:03}Z", ms / 1000, ms % 1000);
    let call = json!({"act": "cfp", "task": task, "round": 2, "reply_by": time(reply_within_ms), "ends_by": time(50_000),
        "policy": "high@1", "policy_digest": "0".repeat(64), "lots": 1, "currency": "EUR"});
    delivery(1, call)
}

fn award(n: u8, price: i64) -> Delivery {
    let award = json!({"act": "accept", "offer_id": "o1-0", "lot": 0, "award_no": 7, "terms_digest": "0".repeat(64),
        "terms": {"price": price, "delivery_ms": 2000}, "confirm_by": "2026-11-29T12:00:05.000Z"});
    delivery(n, award)
}

fn committed() -> Delivery {
    delivery(3, json!({"act": "ack", "ack_of": "m", "disposition": "committed", "award_no": 7}))
}

fn cancel(reason: &str) -> Delivery {
    delivery(4, json!({"act": "cancel", "award_no": 7, "reason": reason}))
}

/// What the contractor says to a delivery, in the end.
async fn said(contractor: &mut A2aContractor, client: &A2aClient, delivery: &Delivery) -> Vec<Value> {
    let mut actions = contractor.handle(NOW, delivery);
    while let Some(question) = contractor.poll_question() {
        let answer = client.answer(&question).await;
        actions.extend(contractor.take_answer(NOW, &question, answer));
    }
    payloads(actions)
}

fn payloads(actions: Vec<Action>) -> Vec<Value> {
    let payload = |action| if let Action::Send(said) = action { Some(json!(said.payload)) } else { None };
    actions.into_iter().filter_map(payload).collect()
}

/// What is said to a call that this agent is asked about.
async fn said_to_call(stranger: &Stranger, call: &Delivery) -> Value {
    let client = stranger.client().await;
    let said = said(&mut plain(false), &client, call).await;
    assert_eq!(said.len(), 1, "{said:?}");
    said[0].clone()
}

/// One whose agent knows no extension.
fn plain(confirms: bool) -> A2aContractor {
    A2aContractor::new(AgentId::try_new("bob").unwrap(), confirms, false)
}

fn refused(reason: &str) -> Value {
    json!({"act": "refuse", "reason": reason})
}

fn unfit(reason: &str) -> Value {
    json!({"act": "not_understood", "reason": reason})
}

#[tokio::test]
async fn what_an_agent_answers_to_a_call_is_an_offer_a_refusal_or_not_understood_at_its_pointer() {
    let offered =
        json!({"act": "offer", "currency": "EUR", "round": 2, "terms": {"price": 85_000_000, "delivery_ms": 2000}});
    let price = |price: &str| {
        let part = r#"{"data":{"act":"offer","terms":{"price":PRICE,"delivery_ms":2000.0}}}"#.replace("PRICE", price);
        let task = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED"},"artifacts":[{"artifactId":"a","parts":[PART]}]}"#;
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"task":{}}}}}"#, task.replace("PART", &part))
    };
    let two = json!([offer()[0], offer()[0]]);
    let text = json!([{"text": "gladly, for 85"}]);
    let wrapped = json!([{"text": "here:"}, {"data": {"payload": offer()[0]["data"]}}]);
    let url = json!([{"url": "http://127.0.0.1:9/offer.json", "mediaType": "application/json"}]);
    let refuse = json!([{"data": {"act": "refuse", "reason": "no van"}}]);
    let confirm = json!([{"data": {"act": "confirm", "award_no": 1}}]);
    let open = json!([{"data": {"act": "offer", "terms": {}, "colour": "red"}}]);
    let array = json!([{"data": [1]}]);
    let one = "missing_field at /parts: one data part";
    let body = |text: &str| text.to_owned();
    let table: Vec<(&str, String, Value)> = vec![
        ("input required", rpc(&task("INPUT_REQUIRED", offer(), &[])), offered.clone()),
        ("artifact of a task that is over", rpc(&task("COMPLETED", json!([]), &[offer()])), offered.clone()),
        ("working, with an offer", rpc(&task("WORKING", offer(), &[])), offered.clone()),
        ("numbers as doubles", price("85000000.0"), offered.clone()),
        ("no integer", price("85000000.5"), unfit("wrong_type at /terms/price")),
        ("more than a double", price("1e400"), refused("unavailable")),
        ("a key twice", price("1,\"price\":2"), refused("unavailable")),
        ("member of the extension's form", rpc(&task("INPUT_REQUIRED", wrapped, &[])), offered.clone()),
        ("rejected", rpc(&task("REJECTED", offer(), &[])), refused("rejected")),
        ("failed", rpc(&task("FAILED", json!([]), &[])), refused("failed")),
        ("refuse", rpc(&task("COMPLETED", refuse, &[])), refused("no van")),
        ("text alone", rpc(&task("INPUT_REQUIRED", text, &[])), unfit(one)),
        ("address alone", rpc(&task("INPUT_REQUIRED", url, &[])), unfit(one)),
        ("two data parts", rpc(&task("INPUT_REQUIRED", two, &[])), unfit(one)),
        ("another act", rpc(&task("INPUT_REQUIRED", confirm, &[])), unfit("not_allowed at /act")),
        ("unknown member", rpc(&task("INPUT_REQUIRED", open, &[])), unfit("unknown_field at /colour")),
        ("no object", rpc(&task("INPUT_REQUIRED", array, &[])), unfit("wrong_type at ")),
        ("no task", body(r#"{"jsonrpc":"2.0","id":1,"result":{"id":7}}"#), refused("unavailable")),
        ("error", body(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}"#), refused("unavailable")),
        (
            "result beside an error",
            body(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}"#),
            refused("unavailable"),
        ),
        ("no JSON", body("<html>"), refused("unavailable")),
        ("nothing", body(""), refused("unavailable")),
        ("too large", "x".repeat(HUGE), refused("unavailable")),
    ];
    for (name, body, expected) in table {
        let stranger = Stranger::start(move |_, _| answered(&body)).await;
        assert_eq!(said_to_call(&stranger, &call("carry", 20_000)).await, expected, "{name}");
        assert_eq!(stranger.asked(), 1, "{name}: nothing is asked twice");
    }
    let stranger = Stranger::start(|_, _| message(offer())).await;
    assert_eq!(said_to_call(&stranger, &call("carry", 20_000)).await, offered, "a message without a task");
}

/// The answer that holds this task.
fn rpc(task: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "result": {"task": task}}).to_string()
}

/// Spaces without an end.
fn endless(pause_ms: u64) -> Response {
    let pieces = futures_util::stream::unfold((), move |()| async move {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        Some((Ok::<_, std::io::Error>(vec![b' '; 4096]), ()))
    });
    Response::builder().header("content-type", "application/json").body(Body::from_stream(pieces)).unwrap()
}

/// A good offer under this status, of this type, which leads elsewhere.
fn offer_as(status: u16, media_type: &str) -> Response {
    let head = Response::builder().status(status).header("content-type", media_type);
    let good = rpc(&task("INPUT_REQUIRED", offer(), &[]));
    head.header("location", "http://127.0.0.1:9/").body(Body::from(good)).unwrap()
}

#[tokio::test]
async fn what_is_no_answer_in_form_size_or_time_is_a_refusal() {
    let working = |method: &str, _: &Value| {
        let working = task("WORKING", json!([]), &[]);
        if method == "GetTask" { result(&working) } else { answered(&rpc(&working)) }
    };
    let table: [(&str, Box<Script>, &str, &str); 9] = [
        ("endless and fast", Box::new(|_, _| endless(0)), "carry", "unavailable"),
        ("endless and slow", Box::new(|_, _| endless(50)), "carry", "timeout"),
        ("late", Box::new(|_, _| offer_as(200, "application/json")), "be late", "timeout"),
        ("works for ever", Box::new(working), "carry", "timeout"),
        ("text", Box::new(|_, _| offer_as(200, "text/plain")), "carry", "unavailable"),
        ("events", Box::new(|_, _| offer_as(200, "text/event-stream")), "carry", "unavailable"),
        ("a fault", Box::new(|_, _| offer_as(500, "application/json")), "carry", "unavailable"),
        ("no entry", Box::new(|_, _| offer_as(401, "application/json")), "carry", "unavailable"),
        ("elsewhere", Box::new(|_, _| offer_as(307, "application/json")), "carry", "unavailable"),
    ];
    for (name, script, wanted, reason) in table {
        let stranger = Stranger::start(script).await;
        let begun = std::time::Instant::now();
        // Of use for 700 ms.
        assert_eq!(said_to_call(&stranger, &call(wanted, 1200)).await, refused(reason), "{name}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{name}");
    }
    assert_eq!(
        said_to_call(
            &Stranger::start(|_, _| offer_as(200, "application/json; charset=utf-8")).await,
            &call("carry", 1200)
        )
        .await["act"],
        "offer"
    );
    let stranger = Stranger::start(|_, _| told("INPUT_REQUIRED", offer(), &[])).await;
    let client = stranger.client().await;
    stranger.die().await;
    let said = said(&mut plain(false), &client, &call("carry", 20_000)).await;
    assert_eq!(said, [refused("unavailable")], "nobody there");
}

#[tokio::test]
async fn the_owners_header_goes_to_the_origin_of_the_card_and_nowhere_else() {
    let good = || told("INPUT_REQUIRED", offer(), &[]);
    let key = |stranger: &Stranger| -> Vec<bool> {
        stranger.heard().iter().map(|(headers, _)| headers.contains_key("authorization")).collect()
    };
    let own = Stranger::start(move |_, _| good()).await;
    said_to_call(&own, &call("carry", 20_000)).await;
    assert_eq!(key(&own), [true, true], "card and interface of one origin");
    let other = Stranger::start(move |_, _| good()).await;
    let carded = Stranger::with_card(Some(format!("{}/rpc", other.url)), json!({}), move |_, _| good()).await;
    said_to_call(&carded, &call("carry", 20_000)).await;
    assert_eq!((key(&carded), key(&other)), (vec![true], vec![false]), "an interface of another origin");
    let elsewhere = format!("{}/rpc", other.url);
    let leading = Stranger::start(move |_, _| {
        Response::builder().status(307).header("location", &elsewhere).body(Body::empty()).unwrap()
    })
    .await;
    let before = other.heard().len();
    assert_eq!(said_to_call(&leading, &call("carry", 20_000)).await, refused("unavailable"));
    assert_eq!(other.heard().len(), before, "a redirect is not followed");
}

#[tokio::test]
async fn a_card_that_cannot_be_read_or_asked_is_an_error() {
    let stranger = Stranger::start(|_, _| answered(&card("/relative").to_string())).await;
    let page = Stranger::start(|_, _| offer_as(404, "text/html")).await;
    let empty = Stranger::start(|_, _| answered("{}")).await;
    let [other, page, empty] = [&stranger, &page, &empty].map(|stranger| format!("{}/other", stranger.url));
    for (url, fault) in [
        (other.as_str(), "its card names no JSON-RPC interface of A2A 1.0"),
        (&empty, "no agent card: missing field"),
        (&page, "status 404 Not Found, content type `text/html`"),
        ("http://127.0.0.1:9/card", "Connection refused"),
        ("nonsense", "relative URL without a base"),
    ] {
        let opened = A2aClient::open(url, None).await.unwrap_err();
        assert!(opened.contains(fault), "{url}: {opened}");
    }
}

#[tokio::test]
async fn an_agent_is_asked_under_the_delivery_s_id_in_one_context_and_its_own_task() {
    let stranger = Stranger::start(|method, params| {
        let of = params["message"]["parts"][1]["data"]["payload"]["act"].clone();
        match (method, of.as_str()) {
            (_, Some("cfp")) => told("INPUT_REQUIRED", offer(), &[]),
            (_, Some("accept")) => told("INPUT_REQUIRED", json!([{"data": {"act": "confirm", "award_no": 7}}]), &[]),
            _ => told("COMPLETED", json!([{"text": "left with the neighbour"}]), &[]),
        }
    })
    .await;
    let client = stranger.client().await;
    let mut contractor = plain(false);
    said(&mut contractor, &client, &call("carry\u{202e}", 20_000)).await;
    assert_eq!(said(&mut contractor, &client, &award(2, 85_000_000)).await, [json!({"act": "confirm", "award_no": 7})]);
    let done = json!({"act": "inform", "kind": "done", "result": "left with the neighbour"});
    assert_eq!(said(&mut contractor, &client, &committed()).await, [done]);
    assert!(
        said(
            &mut contractor,
            &client,
            &delivery(5, json!({"act": "closed", "outcome": "completed", "digest": "0".repeat(64)}))
        )
        .await
        .is_empty()
    );
    let heard: Vec<_> = stranger.heard().into_iter().skip(1).collect();
    assert_eq!(heard.len(), 3, "a task that is over is not cancelled");
    for (n, (headers, asked)) in heard.iter().enumerate() {
        assert_eq!((&headers["a2a-version"], &asked["method"]), (&"1.0".parse().unwrap(), &json!("SendMessage")));
        let message = &asked["params"]["message"];
        assert_eq!(message["messageId"], format!("{:032x}", n + 1));
        assert_eq!(message["contextId"], heard[0].1["params"]["message"]["contextId"]);
        assert_eq!(message["contextId"].as_str().unwrap().len(), 40);
        assert_eq!(message["taskId"], if n == 0 { Value::Null } else { json!("t-1") });
        assert_eq!(message["role"], "ROLE_USER");
    }
    let terms = &heard[2].1["params"]["message"]["parts"][1]["data"]["payload"]["terms"];
    assert_eq!(terms, &json!({"price": 85_000_000, "delivery_ms": 2000}), "work is for the terms that were offered");
    let parts = &heard[0].1["params"]["message"]["parts"];
    assert_eq!(parts[1]["data"]["payload"]["task"], "carry\\u{202e}", "what hides is written out");
    assert!(parts[0]["text"].as_str().unwrap().contains("carry\\\\u{202e}"), "{parts}");
}

#[tokio::test]
async fn an_award_is_confirmed_by_the_agent_or_unasked_where_the_terms_are_those_offered() {
    let confirm = |award_no: u32| json!([{"data": {"act": "confirm", "award_no": award_no}}]);
    let confirmed = json!({"act": "confirm", "award_no": 7});
    let table = [
        ("confirm", told("INPUT_REQUIRED", confirm(7), &[]), false, 85_000_000, confirmed.clone(), 2),
        (
            "refuse",
            told("INPUT_REQUIRED", json!([{"data": {"act": "refuse"}}]), &[]),
            false,
            85_000_000,
            json!({"act": "refuse"}),
            2,
        ),
        ("rejected", told("REJECTED", confirm(7), &[]), false, 85_000_000, refused("rejected"), 2),
        (
            "text",
            told("INPUT_REQUIRED", json!([{"text": "yes"}]), &[]),
            false,
            85_000_000,
            unfit("missing_field at /parts: one data part"),
            2,
        ),
        ("unasked", told("FAILED", json!([]), &[]), true, 85_000_000, confirmed.clone(), 1),
        ("other terms", told("FAILED", json!([]), &[]), true, 84_000_000, refused("failed"), 2),
    ];
    for (name, answer, confirms, price, expected, asked) in table {
        let answers = Mutex::new(vec![answer, told("INPUT_REQUIRED", offer(), &[])]);
        let over = || result(&task("CANCELED", json!([]), &[]));
        let stranger = Stranger::start(move |_, _| answers.lock().pop().unwrap_or_else(over)).await;
        let (client, mut contractor) = (stranger.client().await, plain(confirms));
        said(&mut contractor, &client, &call("carry", 20_000)).await;
        assert_eq!(said(&mut contractor, &client, &award(2, price)).await, [expected], "{name}");
        assert_eq!(stranger.asked(), asked, "{name}");
    }
    let stranger = Stranger::start(|_, _| told("FAILED", json!([]), &[])).await;
    let said = said(&mut plain(true), &stranger.client().await, &award(2, 1)).await;
    assert_eq!((said, stranger.asked()), (vec![refused("no such offer")], 0), "an award of nothing offered");
}

#[tokio::test]
async fn what_a_completed_task_says_anew_is_the_result_and_any_other_end_a_failure() {
    let done = |text: &str| json!({"act": "inform", "kind": "done", "result": text});
    let failed = |code: &str| json!({"act": "failure", "phase": "perform", "code": code, "retryable": false});
    let text = |text: &str| json!([{"text": text}]);
    let own = json!([{"data": {"act": "failure", "phase": "perform", "code": "no_van", "retryable": true}}]);
    let (refuse, half) = (|| json!([{"data": {"act": "refuse"}}]), json!([{"data": {"payload": {"act": "failure"}}}]));
    let stopped = json!([{"data": {"act": "inform", "kind": "cancelled"}}]);
    let table = [
        ("message", told("COMPLETED", text("left"), &[offer()]), done("left")),
        ("artifacts", told("COMPLETED", text("done!"), &[offer(), text("left"), text("signed")]), done("left\nsigned")),
        ("data", told("COMPLETED", json!([{"data": {"at": 5}}]), &[offer()]), done(r#"{"at":5}"#)),
        ("no words", told("COMPLETED", json!([]), &[offer()]), json!({"act": "inform", "kind": "done"})),
        ("many", told("COMPLETED", text(&"é".repeat(5000)), &[offer()]), done(&"é".repeat(4096))),
        ("without a task", message(text("left")), done("left")),
        (
            "failure payload",
            told("COMPLETED", own, &[offer()]),
            json!({"act": "failure", "phase": "perform", "code": "no_van", "retryable": true}),
        ),
        ("an act that is no result", told("COMPLETED", refuse(), &[offer()]), failed("not_understood")),
        ("a report of another kind", told("COMPLETED", stopped, &[offer()]), failed("not_understood")),
        ("half a failure", told("COMPLETED", half, &[offer()]), failed("not_understood")),
        ("failed", told("FAILED", text("alas"), &[offer()]), failed("failed")),
        ("canceled", told("CANCELED", json!([]), &[offer()]), failed("canceled")),
        ("a question", told("INPUT_REQUIRED", text("which door?"), &[offer()]), failed("input_required")),
    ];
    for (name, answer, expected) in table {
        let answers = Mutex::new(vec![answer, told("INPUT_REQUIRED", json!([]), &[offer()])]);
        let stranger = Stranger::start(move |_, _| answers.lock().pop().unwrap()).await;
        let (client, mut contractor) = (stranger.client().await, plain(true));
        said(&mut contractor, &client, &call("carry", 20_000)).await;
        said(&mut contractor, &client, &award(2, 85_000_000)).await;
        assert_eq!(said(&mut contractor, &client, &committed()).await, [expected], "{name}");
        assert!(said(&mut contractor, &client, &committed()).await.is_empty(), "{name}: performed once");
    }
}

#[tokio::test]
async fn a_task_that_is_worked_on_is_looked_at_until_it_ends_and_given_up_when_the_agent_is_gone() {
    let looks = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&looks);
    let stranger = Stranger::start(move |method, params| match method {
        "GetTask" if params["id"] != "t-1" => result(&json!({})),
        "GetTask" if seen.fetch_add(1, Ordering::Relaxed) == 0 => answered("not now"),
        "GetTask" => result(&task("COMPLETED", json!([{"text": "left"}]), &[])),
        _ if params["message"]["taskId"].is_null() => told("INPUT_REQUIRED", offer(), &[]),
        _ => told("WORKING", json!([]), &[]),
    })
    .await;
    let (client, mut contractor) = (stranger.client().await, plain(true));
    said(&mut contractor, &client, &call("carry", 20_000)).await;
    said(&mut contractor, &client, &award(2, 85_000_000)).await;
    let done = json!({"act": "inform", "kind": "done", "result": "left"});
    assert_eq!(said(&mut contractor, &client, &committed()).await, [done]);
    assert_eq!(looks.load(Ordering::Relaxed), 2);
    // One that dies after the award.
    let stranger = Stranger::start(|_, _| told("INPUT_REQUIRED", offer(), &[])).await;
    let (client, mut contractor) = (stranger.client().await, plain(true));
    said(&mut contractor, &client, &call("carry", 20_000)).await;
    said(&mut contractor, &client, &award(2, 85_000_000)).await;
    stranger.die().await;
    let failed = json!({"act": "failure", "phase": "perform", "code": "unavailable", "retryable": false});
    assert_eq!(said(&mut contractor, &client, &committed()).await, [failed]);
}

#[tokio::test]
async fn a_cancelled_award_is_a_cancelled_task_or_cannot_be_cancelled() {
    let cannot = |code: &str| json!({"act": "failure", "phase": "cannot_cancel", "code": code, "retryable": false});
    let cancelled = json!({"act": "inform", "kind": "cancelled"});
    let refusal = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no"}}"#;
    let table = [
        ("stopped", result(&task("CANCELED", json!([]), &[])), "cancelled", vec![cancelled]),
        ("too late", result(&task("COMPLETED", json!([]), &[])), "cancelled", vec![cannot("completed")]),
        ("refused", answered(refusal), "cancelled", vec![cannot("unavailable")]),
        ("taken back by the exchange", answered(refusal), "perform_timeout", vec![]),
    ];
    for (name, answer, reason, expected) in table {
        let answers = Mutex::new(vec![answer, told("INPUT_REQUIRED", offer(), &[])]);
        let stranger = Stranger::start(move |_, _| answers.lock().pop().unwrap()).await;
        let (client, mut contractor) = (stranger.client().await, plain(true));
        said(&mut contractor, &client, &call("carry", 20_000)).await;
        said(&mut contractor, &client, &award(2, 85_000_000)).await;
        // It works, and its answer is not awaited here.
        contractor.handle(NOW, &committed());
        let performing = contractor.poll_question().unwrap();
        assert_eq!(said(&mut contractor, &client, &cancel(reason)).await, expected, "{name}");
        let (_, asked) = stranger.heard().pop().unwrap();
        assert_eq!((&asked["method"], &asked["params"]), (&json!("CancelTask"), &json!({"id": "t-1"})), "{name}");
        let late = client.turn_away(&performing);
        assert!(contractor.take_answer(NOW, &performing, late).is_empty(), "{name}: its answer says nothing more");
    }
    // Nothing names a task: what runs cannot be stopped, what does not run is.
    let stranger = Stranger::start(|_, _| message(offer())).await;
    for (begins, expected) in [(true, cannot("no_task")), (false, json!({"act": "inform", "kind": "cancelled"}))] {
        let (client, mut contractor) = (stranger.client().await, plain(true));
        said(&mut contractor, &client, &call("carry", 20_000)).await;
        said(&mut contractor, &client, &award(2, 85_000_000)).await;
        if begins {
            contractor.handle(NOW, &committed());
            contractor.poll_question().unwrap();
        }
        assert_eq!(said(&mut contractor, &client, &cancel("cancelled")).await, [expected]);
    }
}

#[tokio::test]
async fn who_is_asked_to_end_gives_up_what_is_in_hand_and_cancels_its_tasks() {
    let failed = json!({"act": "failure", "phase": "perform", "code": "shutting_down", "retryable": false});
    let award_in_hand = vec![award(2, 85_000_000)];
    let table = [
        ("asked for an offer", vec![], vec![refused("shutting_down")], 0),
        ("its offer waits", vec![], vec![], 1),
        ("asked to confirm", award_in_hand.clone(), vec![refused("shutting_down")], 1),
        ("at work", [award_in_hand, vec![committed()]].concat(), vec![failed], 1),
    ];
    for (name, deliveries, expected, tasks) in table {
        let stranger = Stranger::start(|_, _| told("INPUT_REQUIRED", offer(), &[])).await;
        let (client, mut contractor) = (stranger.client().await, plain(name == "at work"));
        contractor.handle(NOW, &call("carry", 20_000));
        let question = contractor.poll_question().unwrap();
        if name != "asked for an offer" {
            let answer = client.answer(&question).await;
            contractor.take_answer(NOW, &question, answer);
        }
        for delivery in &deliveries {
            contractor.handle(NOW, delivery);
            while contractor.poll_question().is_some() {}
        }
        let (actions, stops) = contractor.give_up();
        assert_eq!((payloads(actions), stops.len()), (expected, tasks), "{name}");
        assert_eq!(contractor.give_up().0.len(), 0, "{name}: once");
        let later = payloads(contractor.handle(NOW, &call("carry", 20_000)));
        assert_eq!(later, [refused("busy")], "{name}: nothing further");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_id_has_not_come_when_it_is_asked_to_end_is_cancelled_once_it_has() {
    let (go, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let stranger = Stranger::start(move |method, _| match method {
        "CancelTask" => result(&task("CANCELED", json!([]), &[])),
        _ => {
            held.lock().recv().unwrap();
            told("WORKING", json!([]), &[])
        }
    })
    .await;
    let (client, mut contractor) = (stranger.client().await, plain(false));
    contractor.handle(NOW, &call("carry", 20_000));
    let question = contractor.poll_question().unwrap();
    let ending = async {
        while stranger.asked() == 0 {
            tokio::task::yield_now().await;
        }
        let ended = client.end(contractor.give_up().1);
        go.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(5), ended).await.unwrap();
        assert_eq!(stranger.heard().last().unwrap().1["method"], "CancelTask");
    };
    let (answer, ()) = tokio::join!(client.answer(&question), ending);
    assert!(answer.is_err());
}

#[tokio::test]
async fn an_offer_that_lost_and_a_call_s_next_round_cancel_the_task_and_other_protocols_are_refused() {
    let stranger = Stranger::start(|method, _| match method {
        "CancelTask" => result(&task("CANCELED", json!([]), &[])),
        _ => told("INPUT_REQUIRED", offer(), &[]),
    })
    .await;
    let methods =
        || stranger.heard().iter().map(|(_, asked)| asked["method"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let (client, mut contractor) = (stranger.client().await, plain(true));
    said(&mut contractor, &client, &call("carry", 20_000)).await;
    let again = said(&mut contractor, &client, &call("carry", 20_000)).await;
    assert_eq!((again.len(), &again[0]["act"]), (1, &json!("offer")));
    for reason in ["outscored", "policy"] {
        let lost = delivery(6, json!({"act": "reject", "reason": reason}));
        assert!(said(&mut contractor, &client, &lost).await.is_empty());
        said(&mut contractor, &client, &call("carry", 20_000)).await;
    }
    assert_eq!(
        methods().join(" "),
        "card SendMessage CancelTask SendMessage CancelTask SendMessage CancelTask SendMessage"
    );
    let mut bargain = json!(call("rent", 20_000).payload);
    bargain["bargain"] =
        json!({"parties": ["alice", "bob"], "rules": {"issues": [{"name": "price", "min": 0, "max": 9}], "rounds": 3}});
    let ask = json!({"act": "ask", "round": 1, "answer_by": "2026-11-29T12:00:05.000Z", "ends_by": "2026-11-29T12:00:09.000Z"});
    for (payload, reason) in [(bargain, "does not bargain"), (ask, "sits on no panel")] {
        assert_eq!(said(&mut contractor, &client, &delivery(7, payload)).await, [refused(reason)]);
    }
    assert_eq!(methods()[8..], ["CancelTask"], "the agent is asked nothing more");
}

fn couriers() -> Vec<Address> {
    vec![Address::Topic(TopicName::try_new("courier").unwrap())]
}

type Market = (LocalServer, Exchange, AgentHandle<Asking<A2aContractor>>, Initiator);

/// An exchange in which bob asks this agent, and alice calls.
async fn market(stranger: &Stranger) -> Market {
    market_of(stranger, false).await
}

async fn market_of(stranger: &Stranger, confirms: bool) -> Market {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let exchange = Exchange::start(bus, ExchangeOptions::default()).await.unwrap();
    let identity = |name: &str| exchange.identity(&AgentId::try_new(name).unwrap()).unwrap();
    let registration =
        Registration { topics: vec![TopicName::try_new("courier").unwrap()], ..Registration::open_to_all() };
    HttpTransport::try_new(exchange.url()).unwrap().register(&identity("bob"), &registration).await.unwrap();
    let way = (Arc::new(WebSocketTransport::new(exchange.url())) as _, identity("bob"), AgentOptions::default());
    let asked = Arc::new(stranger.client().await);
    let bob = spawn(plain(confirms), asked, way, CancellationToken::new());
    bob.connected().await.unwrap();
    let transport = WebSocketTransport::new(exchange.url());
    let alice = Initiator::spawn(transport, identity("alice"), AgentOptions::default());
    (server, exchange, bob, alice)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_long_work_in_hand_still_offers_confirms_and_stops() {
    const AT_WORK: usize = agents::agent::ASKED_MAX + 1;
    let stranger = Stranger::start(|method, params| {
        let payload = &params["message"]["parts"][1]["data"]["payload"];
        match (method, payload["act"].as_str()) {
            (_, Some("cfp")) => told("INPUT_REQUIRED", offer(), &[]),
            ("CancelTask", _) => result(&task("CANCELED", json!([]), &[])),
            ("GetTask", _) => result(&task("WORKING", json!([]), &[])),
            _ => told("WORKING", json!([]), &[]),
        }
    })
    .await;
    let (_server, exchange, bob, alice) = market_of(&stranger, true).await;
    let (events, mut heard) = tokio::sync::mpsc::channel(4096);
    for number in 0..=AT_WORK {
        let cfp = Cfp { task: Some("carry".to_owned()), policy: Some("high".to_owned()), ..Cfp::default() };
        alice.call(CallRequest::new(format!("parcel-{number}"), couriers(), cfp), events.clone()).await.unwrap();
    }
    let mut committed = 0;
    let mut stopped = None;
    while stopped.is_none() {
        let event = heard.recv().await.unwrap();
        if let CallReport::Closed(closing) = &event.report {
            panic!("{closing:?} of {}, {committed} committed", event.negotiation);
        } else if let CallReport::Stopped(report) = &event.report {
            stopped = Some(report.clone());
        } else if let CallReport::Committed(_) = &event.report {
            committed += 1;
            if committed == AT_WORK + 1 {
                alice.cancel(event.negotiation, None).await.unwrap();
            }
        }
    }
    alice.shutdown().await.unwrap();
    bob.shutdown().await.unwrap();
    exchange.shutdown().await;
}

#[tokio::test]
async fn a_task_left_open_by_a_refusal_or_by_looks_in_vain_is_cancelled() {
    for (name, answered_by) in [("refuses", "refuse"), ("not to be looked at", "work")] {
        let stranger = Stranger::start(move |method, _| match (method, answered_by) {
            ("CancelTask", _) => result(&task("CANCELED", json!([]), &[])),
            ("GetTask", _) => answered("not now"),
            (_, "refuse") => told("INPUT_REQUIRED", json!([{"data": {"act": "refuse"}}]), &[]),
            _ => told("WORKING", json!([]), &[]),
        })
        .await;
        assert_eq!(said_to_call(&stranger, &call("carry", 20_000)).await["act"], "refuse", "{name}");
        assert_eq!(stranger.heard().last().unwrap().1["method"], "CancelTask", "{name}");
    }
}

#[tokio::test]
async fn a_task_that_is_heard_of_after_the_negotiation_is_over_is_cancelled() {
    let stranger = Stranger::start(|method, _| match method {
        "CancelTask" => result(&task("CANCELED", json!([]), &[])),
        _ => told("INPUT_REQUIRED", offer(), &[]),
    })
    .await;
    let (client, mut contractor) = (stranger.client().await, plain(false));
    let called = call("carry", 20_000);
    contractor.handle(NOW, &called);
    let question = contractor.poll_question().unwrap();
    let answer = client.answer(&question).await;
    let closed = json!({"act": "closed", "outcome": "cancelled", "digest": "0".repeat(64)});
    assert!(said(&mut contractor, &client, &delivery(5, closed)).await.is_empty());
    assert_eq!(contractor.take_answer(NOW, &question, answer), [], "nobody wants the offer");
    client.answer(&contractor.poll_question().unwrap()).await.ok();
    assert_eq!(stranger.heard().last().unwrap().1["method"], "CancelTask");
    assert!(contractor.poll_question().is_none());
}

#[tokio::test]
async fn a_task_that_comes_to_nothing_in_time_is_cancelled_even_if_it_is_heard_of_late() {
    for (name, pause_ms) in [("works for ever", 0), ("answers late", 900)] {
        let stranger = Stranger::start(move |method, _| {
            // The answer to a message comes after the 700 ms for which it is of use.
            std::thread::sleep(Duration::from_millis(if method == "SendMessage" { pause_ms } else { 0 }));
            match method {
                "CancelTask" => result(&task("CANCELED", json!([]), &[])),
                "GetTask" => result(&task("WORKING", json!([]), &[])),
                _ => told("WORKING", json!([]), &[]),
            }
        })
        .await;
        assert_eq!(said_to_call(&stranger, &call("carry", 1200)).await, refused("timeout"), "{name}");
        let is_cancelled = || stranger.heard().iter().any(|(_, asked)| asked["method"] == "CancelTask");
        let waited = tokio::time::timeout(Duration::from_secs(10), async {
            while !is_cancelled() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(waited.await.is_ok(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_a2a_agent_wins_an_award_confirms_it_and_its_text_is_the_result() {
    let stranger = Stranger::start(|_, params| {
        let payload = &params["message"]["parts"][1]["data"]["payload"];
        match payload["act"].as_str() {
            Some("cfp") => told("INPUT_REQUIRED", offer(), &[]),
            Some("accept") => {
                told("INPUT_REQUIRED", json!([{"data": {"act": "confirm", "award_no": payload["award_no"]}}]), &[])
            }
            _ => told("COMPLETED", json!([]), &[json!([{"text": "left with the neighbour"}])]),
        }
    })
    .await;
    let (_server, exchange, bob, alice) = market(&stranger).await;
    let cfp = Cfp { task: Some("carry a parcel".to_owned()), policy: Some("high".to_owned()), ..Cfp::default() };
    let events = alice.call_to_end(CallRequest::new("parcel", couriers(), cfp)).await.unwrap();
    let done =
        events.iter().find_map(|event| if let CallReport::Done(done) = &event.report { Some(done) } else { None });
    assert_eq!(done.and_then(|done| done.result.as_deref()), Some("left with the neighbour"), "{events:?}");
    let Some(CallReport::Closed(closing)) = events.last().map(|event| &event.report) else { panic!("{events:?}") };
    assert_eq!(closing.outcome.as_str(), "completed");
    assert_eq!(stranger.asked(), 3);
    alice.shutdown().await.unwrap();
    bob.shutdown().await.unwrap();
    exchange.shutdown().await;
}
