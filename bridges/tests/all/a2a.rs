//! The exchange as an agent of the Agent2Agent protocol: tasks are negotiations, whichever bridge is asked.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bridges::a2a::card::{Card, EXTENSION};
use bridges::a2a::task::{context, task};
use bridges::records::{RecordKey, RecordKeySet};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use schemas::text::RECORD_KEY_PURPOSE;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::exchange::Site;
use crate::http::{answer, bridge, called};

const PATH: &str = "http://127.0.0.1:8090/a2a";
/// The key of RFC 8037 appendix A, and its public half.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";
const PUBLIC: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn request(token: Option<&str>, body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::post(PATH).header("content-type", "application/json").header("a2a-version", "1.0");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(body.into()).unwrap()
}

/// The same with another value of a header, or without it.
fn with(mut request: Request<Body>, header: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().remove(header);
    if !value.is_empty() {
        request.headers_mut().insert(header, value.parse().unwrap());
    }
    request
}

fn rpc(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

fn message(id: &str, data: Value) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "extensions": [EXTENSION],
        "parts": [{"mediaType": "application/json", "data": data}]}})
}

/// The same as a further message to this task.
fn in_task(mut message: Value, task: &str) -> Value {
    message["message"]["taskId"] = json!(task);
    message
}

fn call(policy: &str) -> Value {
    json!({"to": ["topic://courier"], "payload": {"act": "cfp", "task": "carry", "policy": policy, "reply_within_ms": 4000.0}})
}

async fn told(router: &Router, token: &str, method: &str, params: Value) -> Value {
    let (status, _, answer) = answer(router, request(Some(token), rpc(method, &params))).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

/// The task that a method answers with.
async fn done(router: &Router, token: &str, method: &str, params: Value) -> Value {
    let answer = told(router, token, method, params).await;
    let result = &answer["result"];
    if result["task"].is_null() { result.clone() } else { result["task"].clone() }
}

/// The task once it is in this state.
async fn until(router: &Router, token: &str, id: &Value, state: &str) -> Value {
    let mut task = json!({});
    for _ in 0..200 {
        task = done(router, token, "GetTask", json!({"id": id})).await;
        if task["status"]["state"] == state {
            return task;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never {state}: {task}");
}

/// Events of a stream, as the results they hold, until it ends.
struct Events(BodyDataStream, String);

impl Events {
    async fn open(router: &Router, token: &str, method: &str, params: Value) -> Self {
        let response = router.clone().oneshot(request(Some(token), rpc(method, &params))).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self(response.into_body().into_data_stream(), String::new())
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.1.split_once("\n\n") {
                let data = event.strip_prefix("data:").map(|data| serde_json::from_str::<Value>(data).unwrap());
                self.1 = rest.to_owned();
                match data {
                    Some(data) => return Some(data["result"].clone()),
                    None => continue,
                }
            }
            let more = tokio::time::timeout(Duration::from_secs(30), self.0.next()).await.unwrap()?.unwrap();
            self.1.push_str(std::str::from_utf8(&more).unwrap());
        }
    }
}

/// What a registered contractor is asked, as an item of its inbox.
async fn asked(router: &Router, token: &str, tool: &str, after: &mut Value) -> Value {
    for _ in 0..8 {
        let told = called(router, token, "inbox", json!({"after": after, "limit": 1})).await;
        *after = told["cursor"].clone();
        let asks = |item: &&Value| item["todo"][0]["tools"].as_array().unwrap().contains(&json!(tool));
        if let Some(item) = told["items"].as_array().unwrap().iter().find(asks) {
            return item.clone();
        }
    }
    panic!("never asked for {tool}");
}

async fn offered(router: &Router, token: &str, after: &mut Value) {
    let item = asked(router, token, "offer", after).await;
    let offer = json!({"negotiation": item["negotiation"], "terms": {"price": 85_000_000, "delivery_ms": 2000}});
    called(router, token, "offer", offer).await;
}

async fn worked(router: &Router, token: &str, after: &mut Value) {
    let item = asked(router, token, "report", after).await;
    let report = json!({"negotiation": item["negotiation"], "result": "left with the neighbour"});
    called(router, token, "report", report).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_streamed_to_its_award_and_result_and_the_other_bridge_tells_the_same_task() {
    let site = Site::start().await;
    let ((one, ones), (other, others)) = (bridge(&site, "bridge-1"), bridge(&site, "bridge-2"));
    let (alice, bob, mut after) = (site.token("alice"), site.token("bob"), json!(""));
    called(&one, &bob, "register", json!({"topics": ["courier"]})).await;
    let mut events = Events::open(&one, &alice, "SendStreamingMessage", message("call-1", call("high"))).await;
    let first = events.next().await.unwrap()["task"].clone();
    assert!(first["id"].as_str().unwrap().starts_with("alice~c"), "{first}");
    assert_eq!(context(first["id"].as_str().unwrap()), first["contextId"].as_str().unwrap());
    offered(&one, &bob, &mut after).await;
    worked(&one, &bob, &mut after).await;
    let (mut artifacts, mut states) = (Vec::new(), Vec::new());
    while let Some(event) = events.next().await {
        let state = &event["statusUpdate"]["status"]["state"];
        states.extend(state.as_str().map(ToOwned::to_owned));
        artifacts.extend(Some(event["artifactUpdate"]["artifact"].clone()).filter(|artifact| !artifact.is_null()));
    }
    assert_eq!(states.last().map(String::as_str), Some("TASK_STATE_COMPLETED"));
    assert_eq!(artifacts[0]["parts"][0]["data"]["terms"]["price"], 85_000_000, "{artifacts:?}");
    let names: Vec<&str> = artifacts.iter().map(|artifact| artifact["artifactId"].as_str().unwrap()).collect();
    assert!(names.contains(&"award-0-1") && names.contains(&"result-0-1"), "{names:?}");
    for router in [&one, &other] {
        let task = done(router, &alice, "GetTask", json!({"id": first["id"]})).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
        let artifact = |id: &str| {
            let mut all = task["artifacts"].as_array().unwrap().iter();
            all.find(|artifact| artifact["artifactId"] == id).unwrap_or_else(|| panic!("{task}"))["parts"][0].clone()
        };
        let award = &artifact("award-0-1")["data"];
        assert_eq!((&award["contractor"], &award["terms"]["price"]), (&json!("bob"), &json!(85_000_000)), "{award}");
        assert_eq!(artifact("result-0-1")["text"], "left with the neighbour");
        let again = done(router, &alice, "SendMessage", message("call-1", call("high"))).await;
        assert_eq!(again["id"], first["id"], "the same message is the same task, ended or not");
    }
    let changed = told(&one, &alice, "SendMessage", message("call-1", call("low"))).await;
    assert_eq!(changed["error"]["code"], -32602, "{changed}");
    assert_eq!(changed["error"]["data"][0]["reason"], "CONFLICT");
    let late = told(
        &one,
        &alice,
        "SendMessage",
        in_task(message("m-2", json!({"payload": {"act": "cancel"}})), first["id"].as_str().unwrap()),
    )
    .await;
    assert_eq!(late["error"]["code"], -32004);
    assert_eq!(told(&one, &alice, "CancelTask", json!({"id": first["id"]})).await["error"]["code"], -32002);
    assert_eq!(told(&one, &alice, "SubscribeToTask", json!({"id": first["id"]})).await["error"]["code"], -32004);
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let foreign = told(&one, &site.token("mallory"), method, json!({"id": first["id"]})).await;
        let absent = told(&one, &site.token("mallory"), method, json!({"id": "mallory~none"})).await;
        assert_eq!((&foreign["error"]["code"], &absent["error"]["code"]), (&json!(-32001), &json!(-32001)), "{method}");
    }
    ones.close().await;
    others.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_initiator_that_decides_is_asked_for_input_at_the_bridge_that_is_left_too_and_its_choice_is_a_further_message()
 {
    let site = Site::start().await;
    let ((one, ones), (router, participants)) = (bridge(&site, "b1"), bridge(&site, "b2"));
    let (alice, bob, mut after) = (site.token("alice"), site.token("bob"), json!(""));
    called(&router, &bob, "register", json!({"topics": ["courier"]})).await;
    let calling = tokio::spawn({
        let (router, alice) = (one.clone(), alice.clone());
        async move { done(&router, &alice, "SendMessage", message("call-1", call("chosen"))).await }
    });
    offered(&router, &bob, &mut after).await;
    let task = calling.await.unwrap();
    ones.close().await;
    let at_other = done(&router, &alice, "GetTask", json!({"id": task["id"]})).await;
    assert_eq!(
        at_other["status"]["state"], "TASK_STATE_INPUT_REQUIRED",
        "what asks was acknowledged at a bridge that is gone"
    );
    assert_eq!(
        at_other["status"]["message"]["parts"][0]["data"]["offers"]["offers"][0]["contractor"], "bob",
        "{at_other}"
    );
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let content = &task["status"]["message"]["parts"][0]["data"];
    assert_eq!(content["todo"][0]["tools"], json!(["accept", "cancel"]));
    let offer = content["offers"]["offers"][0]["offer_id"].clone();
    let id = task["id"].as_str().unwrap();
    let wrong = message("wrong", json!({"payload": {"act": "accept", "offer_id": "o999999-0"}}));
    let unchanged = done(&router, &alice, "SendMessage", in_task(wrong, id)).await;
    assert_eq!(unchanged["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "an offer that was not shown");
    assert!(unchanged["status"]["message"]["parts"][1]["data"]["code"].is_string(), "{unchanged}");
    let foreign = message("foreign", json!({"payload": {"act": "confirm", "award_no": 1}}));
    let refused = told(&router, &alice, "SendMessage", in_task(foreign, id)).await;
    assert_eq!(refused["error"]["data"][1]["fieldViolations"][0]["field"], "message.parts[0].data.payload.act");
    let mut accept = in_task(message("choice", json!({"payload": {"act": "accept", "offer_id": offer}})), id);
    accept["configuration"] = json!({"returnImmediately": true});
    let going_on = done(&router, &alice, "SendMessage", accept.clone()).await;
    assert_eq!(going_on["status"]["state"], "TASK_STATE_WORKING");
    worked(&router, &bob, &mut after).await;
    until(&router, &alice, &task["id"], "TASK_STATE_COMPLETED").await;
    let again = done(&router, &alice, "SendMessage", accept).await;
    assert_eq!(again["status"]["state"], "TASK_STATE_COMPLETED", "a repeat is answered by the task");
    participants.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_listed_by_pages_newest_first_and_cancelled() {
    let site = Site::start().await;
    let (router, participants) = bridge(&site, "b1");
    let (alice, bob) = (site.token("alice"), site.token("bob"));
    called(&router, &bob, "register", json!({"topics": ["courier"]})).await;
    let mut ids = Vec::new();
    for name in ["one", "two", "three"] {
        let mut calling = message(name, call("high"));
        calling["message"]["contextId"] = json!("errands");
        calling["configuration"] = json!({"returnImmediately": true});
        ids.push(done(&router, &alice, "SendMessage", calling).await["id"].clone());
    }
    for id in &ids {
        let cancelled = done(&router, &alice, "CancelTask", json!({"id": id})).await;
        assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED");
        assert!(id.as_str().unwrap().starts_with("alice~errands-"));
    }
    let first =
        told(&router, &alice, "ListTasks", json!({"pageSize": 2, "contextId": "errands"})).await["result"].clone();
    assert_eq!((&first["tasks"][0]["id"], &first["totalSize"]), (&ids[2], &json!(3)), "{first}");
    let token = first["nextPageToken"].as_str().unwrap();
    let page = |token: &str| json!({"pageSize": 2, "contextId": "errands", "pageToken": token});
    let second = told(&router, &alice, "ListTasks", page(token)).await["result"].clone();
    assert_eq!((&second["tasks"][0]["id"], &second["nextPageToken"]), (&ids[0], &json!("")));
    let filtered = json!({"status": "TASK_STATE_WORKING"});
    assert_eq!(told(&router, &alice, "ListTasks", filtered).await["result"]["totalSize"], 0);
    let altered = format!("{token}0");
    let table = [
        (&alice, page(&altered)),
        (&bob, page(token)),
        (&alice, json!({"pageToken": token})),
        (&alice, json!({"pageSize": 0})),
        (&alice, json!({"pageSize": 101})),
        (&alice, json!({"tenant": "other"})),
        (&alice, json!({"historyLength": -1})),
    ];
    for (token, params) in table {
        assert_eq!(told(&router, token, "ListTasks", params.clone()).await["error"]["code"], -32602, "{params}");
    }
    assert_eq!(
        told(&router, &bob, "ListTasks", json!({})).await["result"]["tasks"],
        json!([]),
        "a contractor sees none"
    );
    participants.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_at_two_bridges_a_hundred_times_is_one_negotiation() {
    let site = Site::start().await;
    let ((one, ones), (other, others)) = (bridge(&site, "bridge-1"), bridge(&site, "bridge-2"));
    let (alice, bob) = (site.token("alice"), site.token("bob"));
    called(&one, &bob, "register", json!({"topics": ["courier"]})).await;
    let mut calling = message("call-1", call("high"));
    calling["configuration"] = json!({"returnImmediately": true});
    let all = (0..100).map(|n| done([&one, &other][n % 2], &alice, "SendMessage", calling.clone()));
    let tasks = join_all(all).await;
    assert!(tasks.iter().all(|task| task["id"] == tasks[0]["id"] && task["id"].is_string()), "{tasks:?}");
    let heard = called(&one, &bob, "inbox", json!({"limit": 50})).await;
    assert_eq!(heard["items"].as_array().unwrap().len(), 1, "{heard}");
    ones.close().await;
    others.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_bargain_and_the_task_of_who_called_has_the_agreement() {
    let site = Site::start().await;
    let (router, participants) = bridge(&site, "b1");
    let (alice, bob, mut after) = (site.token("alice"), site.token("bob"), json!(""));
    called(&router, &bob, "register", json!({"topics": ["seller"]})).await;
    let issues = json!([{"name": "price", "min": 1_000_000, "max": 90_000_000}]);
    let rules = json!({"issues": issues, "rounds": 10});
    let request = json!({"to": ["agent://bob"], "payload": {"act": "cfp", "task": "a bicycle", "bargain": rules, "reply_within_ms": 20_000}});
    let mut calling = message("bargain-1", request);
    calling["configuration"] = json!({"returnImmediately": true});
    let task = done(&router, &alice, "SendMessage", calling).await;
    let item = asked(&router, &bob, "join", &mut after).await;
    called(&router, &bob, "join", json!({"negotiation": item["negotiation"]})).await;
    until(&router, &alice, &task["id"], "TASK_STATE_INPUT_REQUIRED").await;
    let (other, others) = bridge(&site, "b2");
    let mine = done(&other, &alice, "GetTask", json!({"id": task["id"]})).await;
    let turn = &mine["status"]["message"]["parts"][0]["data"]["turn"];
    assert_eq!(
        (&turn["party"], &mine["status"]["state"]),
        (&json!("alice"), &json!("TASK_STATE_INPUT_REQUIRED")),
        "{mine}"
    );
    others.close().await;
    let offer = json!({"payload": {"act": "offer", "terms": {"price": 50_000_000}, "round": turn["round"]}});
    let mut offering = in_task(message("offer-1", offer), task["id"].as_str().unwrap());
    offering["configuration"] = json!({"returnImmediately": true});
    done(&router, &alice, "SendMessage", offering).await;
    let item = asked(&router, &bob, "accept", &mut after).await;
    let standing = &item["payload"]["standing"];
    let accept = json!({"negotiation": item["negotiation"], "offer_id": standing["offer_id"], "terms_digest": standing["terms_digest"]});
    called(&router, &bob, "accept", accept).await;
    let task = until(&router, &alice, &task["id"], "TASK_STATE_COMPLETED").await;
    let agreement = &task["artifacts"][0];
    assert_eq!(
        (&agreement["artifactId"], &agreement["parts"][0]["data"]["terms"]["price"]),
        (&json!("agreement"), &json!(50_000_000))
    );
    participants.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leads_a_team_speaks_by_text_and_its_task_has_the_conclusion() {
    let site = Site::start().await;
    let (router, participants) = bridge(&site, "b1");
    let (alice, bob, mut after) = (site.token("alice"), site.token("bob"), json!(""));
    called(&router, &alice, "register", json!({"topics": ["travel"]})).await;
    called(&router, &bob, "register", json!({"topics": ["travel"]})).await;
    let team =
        json!({"act": "cfp", "task": "a day in Lisbon", "team": {"members": {"min": 2}}, "reply_within_ms": 20_000});
    let mut calling = message("team-1", json!({"to": ["agent://bob"], "payload": team}));
    calling["configuration"] = json!({"returnImmediately": true});
    let task = done(&router, &alice, "SendMessage", calling).await;
    let id = task["id"].as_str().unwrap().to_owned();
    let item = asked(&router, &bob, "join", &mut after).await;
    called(&router, &bob, "join", json!({"negotiation": item["negotiation"]})).await;
    let mine = until(&router, &alice, &task["id"], "TASK_STATE_INPUT_REQUIRED").await;
    assert_eq!(mine["status"]["message"]["parts"][0]["data"]["floor"]["speaker"], "alice", "{mine}");
    let text = |id: &str, text: &str| {
        json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"returnImmediately": true}})
    };
    done(&router, &alice, "SendMessage", in_task(text("say-1", "the sea?"), &id)).await;
    let refused = told(&router, &alice, "SendMessage", in_task(text("say-2", "and now?"), &id)).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let item = asked(&router, &bob, "say", &mut after).await;
    let again = done(&router, &alice, "SendMessage", in_task(text("say-1", "the sea?"), &id)).await;
    assert_eq!(again["id"], task["id"], "what was said is no new act once the floor has moved on");
    called(&router, &bob, "say", json!({"negotiation": item["negotiation"], "text": "the sea"})).await;
    let mine = until(&router, &alice, &task["id"], "TASK_STATE_INPUT_REQUIRED").await;
    let turn = &mine["status"]["message"]["parts"][0]["data"]["floor"]["turn"];
    let conclude = message("end", json!({"payload": {"act": "conclude", "text": "to the sea", "turn": turn}}));
    done(&router, &alice, "SendMessage", in_task(conclude, &id)).await;
    let task = until(&router, &alice, &task["id"], "TASK_STATE_COMPLETED").await;
    assert_eq!(task["artifacts"][0]["parts"][0]["data"]["text"], "to the sea", "{task}");
    participants.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panel_is_a_task_that_ends_with_a_finding() {
    let site = Site::start().await;
    let (router, participants) = bridge(&site, "b1");
    let alice = site.token("alice");
    let seats: Vec<String> = ["bob", "carol", "dave"].map(|name| site.token(name)).to_vec();
    let panel = json!({"answer": {"kind": "choice", "options": ["sea", "hills"]}, "answer_ms": 20_000});
    let to: Vec<String> = ["bob", "carol", "dave"].map(|name| format!("agent://{name}")).to_vec();
    for seat in &seats {
        called(&router, seat, "register", json!({"topics": ["travel"]})).await;
    }
    let payload = json!({"act": "cfp", "task": "where?", "panel": panel});
    let mut calling = message("panel-1", json!({"to": to, "payload": payload}));
    calling["configuration"] = json!({"returnImmediately": true});
    let task = done(&router, &alice, "SendMessage", calling).await;
    for seat in &seats {
        let item = asked(&router, seat, "answer", &mut json!("")).await;
        let answer = json!({"negotiation": item["negotiation"], "round": item["payload"]["round"], "answer": "sea"});
        called(&router, seat, "answer", answer).await;
    }
    let task = until(&router, &alice, &task["id"], "TASK_STATE_COMPLETED").await;
    assert_eq!(task["artifacts"][0]["artifactId"], "finding", "{task}");
    participants.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_gets_the_code_of_its_kind_and_applies_nothing() {
    let site = Site::start().await;
    let (router, participants) = bridge(&site, "b1");
    let alice = site.token("alice");
    let good = rpc("SendMessage", &message("call-1", call("high")));
    let ask = || request(Some(&alice), good.clone());
    let mut table = vec![
        ("no version", with(ask(), "a2a-version", ""), -32009),
        ("version 0.3", with(ask(), "a2a-version", "0.3"), -32009),
        ("version 99.0", with(ask(), "a2a-version", "99.0"), -32009),
        ("text/plain", with(ask(), "content-type", "text/plain"), -32005),
        ("no JSON", request(Some(&alice), "nonsense"), -32700),
        ("a batch", request(Some(&alice), format!("[{good}]")), -32600),
        ("positional members", request(Some(&alice), r#"["2.0",7,"GetTask",{"id":"alice~q"}]"#), -32600),
        (
            "positional parameters",
            request(Some(&alice), r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":["alice~q"]}"#),
            -32600,
        ),
        ("version 1.0.evil", with(ask(), "a2a-version", "1.0.evil"), -32009),
        ("another JSON-RPC", request(Some(&alice), good.replace("2.0", "1.0")), -32600),
    ];
    let bodies = bad_messages().into_iter().chain(bad_params());
    table.extend(bodies.map(|(what, body, code)| (what, request(Some(&alice), body), code)));
    for (what, request, code) in table {
        let (status, _, told) = answer(&router, request).await;
        assert_eq!((status, &told["error"]["code"]), (StatusCode::OK, &json!(code)), "{what}: {told}");
        assert!(told["error"]["data"].is_array(), "{what}: {told}");
    }
    let (_, _, refused) = answer(&router, request(Some(&alice), data(FRACTION))).await;
    let field = &refused["error"]["data"][1]["fieldViolations"][0]["field"];
    assert_eq!(field, "message.parts[0].data.payload.reply_within_ms");
    let query = Request::post(format!("{PATH}?token={alice}")).body(Body::from(good.clone())).unwrap();
    let table: Vec<(&str, Request<Body>, u16)> = vec![
        ("no token", request(None, good.clone()), 401),
        ("a token in the query", query, 401),
        ("gzip", with(ask(), "content-encoding", "gzip"), 415),
        ("too large", request(Some(&alice), vec![b' '; 66_000]), 413),
        ("GET", Request::get(PATH).body(Body::empty()).unwrap(), 405),
        ("version 1.0.1", with(request(Some(&alice), rpc("ListTasks", &json!({}))), "a2a-version", "1.0.1"), 200),
    ];
    for (what, request, expected) in table {
        assert_eq!(answer(&router, request).await.0.as_u16(), expected, "{what}");
    }
    let listed = told(&router, &alice, "ListTasks", json!({})).await;
    assert_eq!(listed["result"]["tasks"], json!([]), "nothing was applied");
    participants.close().await;
    site.stop([]).await;
}

const FRACTION: &str = r#"{"to":["agent://bob"],"payload":{"act":"cfp","task":"t","reply_within_ms":4000.5}}"#;

/// A message with this text as data part.
fn data(text: &str) -> String {
    rpc("SendMessage", &json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": "DATA"}]}}))
        .replace("\"DATA\"", text)
}

/// Bodies of messages whose parts are refused, with the code.
fn bad_messages() -> Vec<(&'static str, String, i64)> {
    let parts =
        |parts: Value| rpc("SendMessage", &json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}}));
    let one = json!({"data": call("high")});
    vec![
        ("no parts", parts(json!([])), -32602),
        ("two data parts", parts(json!([one, one])), -32602),
        ("data and url", parts(json!([one, {"url": "http://x.example"}])), -32005),
        ("raw bytes", parts(json!([{"raw": "AAAA"}])), -32005),
        ("data of another type", parts(json!([{"data": call("high"), "mediaType": "application/xml"}])), -32005),
        ("a text alone", parts(json!([{"text": "carry"}])), -32602),
        ("data that is an array", data("[]"), -32602),
        ("data with a sender", data(r#"{"from":"agent://bob","payload":{"act":"cfp"}}"#), -32602),
        ("an act to no task", data(r#"{"payload":{"act":"accept","offer_id":"o1-0"}}"#), -32602),
        ("a fraction", data(FRACTION), -32602),
        ("a number out of range", data(r#"{"payload":{"act":"cfp","reply_within_ms":1e400}}"#), -32700),
        ("a member twice", data(r#"{"payload":{"act":"cfp","act":"cfp"}}"#), -32700),
        ("nobody to call", rpc("SendMessage", &message("m", call("high"))), -32602),
    ]
}

/// Bodies of requests whose parameters are refused, with the code.
fn bad_params() -> Vec<(&'static str, String, i64)> {
    let named = |name: &str, value: &str| {
        let mut params = message("m", call("high"));
        params["message"][name] = json!(value);
        rpc("SendMessage", &params)
    };
    let beside = |name: &str, value: Value| {
        let mut params = message("m", call("high"));
        params[name] = value;
        rpc("SendMessage", &params)
    };
    let push = json!({"taskPushNotificationConfig": {"url": "http://x.example"}});
    vec![
        ("an unknown method", rpc("message/send", &json!({})), -32601),
        ("no message id", named("messageId", ""), -32602),
        ("an agent's role", named("role", "ROLE_AGENT"), -32602),
        ("a long context", named("contextId", &"c".repeat(41)), -32602),
        ("a path as context", named("contextId", "a/b"), -32602),
        ("a path as task", named("taskId", ".."), -32001),
        ("an escaped path as task", named("taskId", "alice~%2f"), -32001),
        ("a NUL in the task", named("taskId", "alice~a\0"), -32001),
        ("nobody's task", named("taskId", "alice~none"), -32001),
        ("another's task", named("taskId", "bob~none"), -32001),
        ("a push configuration", beside("configuration", push), -32003),
        ("push configurations", rpc("ListTaskPushNotificationConfigs", &json!({"taskId": "alice~a"})), -32003),
        ("a tenant", beside("tenant", json!("t")), -32602),
        ("a negative history", rpc("GetTask", &json!({"id": "alice~a", "historyLength": -1})), -32602),
        ("an extended card", rpc("GetExtendedAgentCard", &json!({})), -32004),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_card_is_told_to_anybody_and_once_to_who_has_it() {
    let site = Site::start().await;
    let (router, _) = bridge(&site, "b1");
    let url = "http://127.0.0.1:8090/.well-known/agent-card.json";
    let ask = |tag: Option<&str>| {
        let request = Request::get(url);
        let request = tag.into_iter().fold(request, |request, tag| request.header("if-none-match", tag));
        request.body(Body::empty()).unwrap()
    };
    let (status, headers, document) = answer(&router, ask(None)).await;
    assert_eq!((status, headers["cache-control"].to_str().unwrap()), (StatusCode::OK, "max-age=300"));
    let read: a2a::AgentCard = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(read.supported_interfaces[0].url, "https://exchange.example/a2a");
    assert_eq!(document["capabilities"]["extensions"][0]["uri"], EXTENSION);
    assert_eq!(
        document["securitySchemes"]["openIdConnect"]["openIdConnectSecurityScheme"]["openIdConnectUrl"],
        "https://login.example/.well-known/openid-configuration"
    );
    for skill in document["skills"].as_array().unwrap() {
        let example = skill["examples"][0].as_str().unwrap();
        schemas::validate::check_document(schemas::validate::Kind::Request, example.as_bytes()).unwrap();
    }
    let (status, _, _) = answer(&router, ask(headers["etag"].to_str().ok())).await;
    assert_eq!(status, StatusCode::NOT_MODIFIED);
    site.stop([]).await;
}

#[test]
fn a_signature_of_the_card_covers_all_of_it_but_what_is_empty() {
    let key = RecordKey::from_pem(&format!("{RECORD_KEY_PURPOSE}\n{KEY}")).unwrap();
    let card = Card::try_new("https://exchange.example", "1", None, Some(&key)).unwrap();
    let mut document = card.document().clone();
    let signature = document.as_object_mut().unwrap().remove("signatures").unwrap()[0].clone();
    // Requirements without scopes are empty throughout.
    document.as_object_mut().unwrap().remove("securityRequirements").unwrap();
    let public = json!({"alg": "EdDSA", "crv": "Ed25519", "kid": key.kid(), "kty": "OKP", "use": "sig", "x": PUBLIC});
    let set = RecordKeySet::parse(&json!({"keys": [public]}).to_string()).unwrap();
    let is_signed = |document: &Value| {
        let payload = BASE64_URL_SAFE_NO_PAD.encode(serde_json_canonicalizer::to_vec(document).unwrap());
        let signed = format!("{}.{payload}", signature["protected"].as_str().unwrap());
        set.verifies(key.kid(), signature["signature"].as_str().unwrap(), signed.as_bytes()).unwrap()
    };
    assert!(is_signed(&document));
    document["skills"][0]["name"] = json!("Call for offers!");
    assert!(!is_signed(&document));
}

#[test]
fn what_was_told_of_a_negotiation_is_a_task_in_the_state_its_client_can_act_on() {
    let item = |n: u64, act: &str, payload: Value| json!({"n": n, "act": act, "ts": "2026-11-22T10:00:00Z", "payload": payload});
    let closed = |outcome: &str, detail: &str| json!({"outcome": outcome, "news": [item(3, "closed", json!({"outcome": outcome, "detail": detail}))]});
    let offers = item(2, "inform", json!({"kind": "offers", "offers": []}));
    let table = [
        (json!({"state": "unknown"}), "TASK_STATE_SUBMITTED"),
        (json!({"state": "collecting", "view": {"state": "collecting"}}), "TASK_STATE_WORKING"),
        (
            json!({"state": "deciding", "news": [offers], "todo": [{"tools": ["accept"], "because": 2}]}),
            "TASK_STATE_INPUT_REQUIRED",
        ),
        (closed("completed", ""), "TASK_STATE_COMPLETED"),
        (closed("agreement", ""), "TASK_STATE_COMPLETED"),
        (closed("concluded", ""), "TASK_STATE_COMPLETED"),
        (closed("consensus", ""), "TASK_STATE_COMPLETED"),
        (closed("plurality", "rounds"), "TASK_STATE_COMPLETED"),
        (closed("cancelled", ""), "TASK_STATE_CANCELED"),
        (closed("ended", "alice"), "TASK_STATE_CANCELED"),
        (closed("ended", "bob"), "TASK_STATE_FAILED"),
        (closed("no_offers", ""), "TASK_STATE_FAILED"),
        (closed("timeout", ""), "TASK_STATE_FAILED"),
        (closed("no_agreement", "rounds"), "TASK_STATE_FAILED"),
        (closed("what_a_later_protocol_says", ""), "TASK_STATE_FAILED"),
        (json!({"outcome": "ended", "view": {"bargain": {"detail": "alice"}}}), "TASK_STATE_CANCELED"),
        (json!({"state": "unknown", "news": [item(1, "ack", json!({"disposition": "late"}))]}), "TASK_STATE_REJECTED"),
        (json!({"news": [item(1, "ack", json!({"disposition": "duplicate", "first": "ok"}))]}), "TASK_STATE_WORKING"),
    ];
    for (mut told, state) in table {
        told["negotiation"] = json!("alice~errands-0123456789012345678901");
        let told_as = task(&told).unwrap();
        assert_eq!(json!(told_as.status.state), state, "{told}");
        assert_eq!(told_as.context_id, "errands");
    }
    let report = |kind: &str, more: Value| {
        let mut report = json!({"kind": kind, "lot": 0, "award_no": 1, "contractor": "bob"});
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        item(4, "inform", report)
    };
    let awarded = report("awarded", json!({"terms": {"price": 5}}));
    let names = |news: Value, view: Value| {
        let told = json!({"negotiation": "alice~parcel-1", "news": news, "view": view});
        let artifacts = task(&told).unwrap().artifacts.unwrap_or_default();
        artifacts.into_iter().map(|artifact| artifact.artifact_id).collect::<Vec<_>>()
    };
    let committed = report("committed", json!({}));
    let result = report("done", json!({"result": "done"}));
    let shown = json!({"awards": [{"award_no": 1, "contractor": "bob", "state": "done"}], "offers": []});
    assert!(
        names(json!([awarded]), json!({"awards": [{"award_no": 1, "contractor": "bob", "state": "awarded"}]}))
            .is_empty()
    );
    assert_eq!(names(json!([awarded, committed]), Value::Null), ["award-0-1"]);
    assert_eq!(names(json!([awarded, committed, result]), shown.clone()), ["award-0-1", "result-0-1"]);
    assert_eq!(names(json!([]), shown.clone()), ["award-0-1"], "what was heard is forgotten before the view is");
    let of_lot = |payload: &Value, kind: &str| {
        let mut item = payload.clone();
        (item["payload"]["lot"], item["payload"]["kind"]) = (json!(1), json!(kind));
        item
    };
    let news = json!([of_lot(&awarded, "awarded"), of_lot(&awarded, "committed")]);
    assert_eq!(names(news, shown), ["award-1-1"], "an ended view names no lot");
    let lost = json!({"awards": [{"award_no": 1, "contractor": "bob", "state": "revoked"}], "offers": []});
    assert!(names(json!([]), lost).is_empty(), "perhaps it never was confirmed");
    assert_eq!(context("alice~550e8400-e29b-41d4-a716-446655440000"), "550e8400-e29b-41d4-a716-446655440000");
}
