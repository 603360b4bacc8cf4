//! The console: who may see what, that it is bounded, and what a page is served with.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use gateway::ConsoleAccess;
use schemas::{Lane, subject};
use serde_json::{Value, json};

use crate::admission::loop_until;
use crate::rig::{Rig, code};

#[tokio::test]
async fn with_a_token_asked_for_strangers_see_counts_and_only_administrators_names() {
    let rig = heard(ConsoleAccess::Token).await;
    let bob = rig.token("bob");
    for token in [None, Some(bob.as_str())] {
        let (status, totals) = rig.call("GET", "/v1/console", token, None).await;
        assert_eq!((status, &totals["sight"], &totals["console"]), (200, &json!("totals"), &json!("token")));
        assert_eq!(
            (&totals["totals"]["open"], &totals["engines"], &totals["agents"]),
            (&json!(2), &json!(1), &json!(1))
        );
        let text = totals.to_string();
        for secret in ["named", "alice", "carol", "engine-1", "medium"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    let (status, all) = rig.call("GET", "/v1/console", Some(&rig.admin_token()), None).await;
    assert_eq!((status, &all["sight"]), (200, &json!("all")));
    assert_eq!(all["named"]["engines"][0]["engine"], "engine-1");
    assert_eq!(all["named"]["open"][0]["negotiation"], "alice~2", "the newest comes first");
    assert_eq!(all["named"]["open"][0]["age_us"], 40, "as of the moment its engine spoke");
    assert_eq!(all["named"]["agents"][0]["agent"], "carol");
    let default = all["named"]["policies"].as_array().unwrap().iter().find(|policy| policy["is_default"] == true);
    assert_eq!(default.unwrap()["id"], "medium@1");
}

#[tokio::test]
async fn a_token_that_is_shown_must_be_good_also_where_none_is_needed() {
    for access in [ConsoleAccess::Token, ConsoleAccess::Open] {
        let rig = heard(access).await;
        for path in ["/v1/console", "/v1/console/events", "/v1/console/negotiations/alice~1"] {
            let (status, body) = rig.call("GET", path, Some("nonsense"), None).await;
            assert_eq!((status, code(&body)), (401, "unauthenticated"), "{path}");
        }
    }
}

#[tokio::test]
async fn an_open_console_is_read_without_a_token_and_changed_only_with_an_administrators() {
    let rig = heard(ConsoleAccess::Open).await;
    let (_, all) = rig.call("GET", "/v1/console", None, None).await;
    assert_eq!((&all["sight"], &all["console"]), (&json!("all"), &json!("open")));
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example")] {
        for path in ["/v1/console", "/v1/console/events", "/v1/console/negotiations/alice~1"] {
            let (status, body) = crate::rig::answer(rig.request("GET", path).header(name, value)).await;
            assert_eq!((status, code(&body)), (403, "unauthorized"), "{path} {name}");
        }
    }
    let switch = json!({ "policy": "high" });
    let (status, body) = rig.call("PUT", "/v1/policies/default", None, Some(&switch)).await;
    assert_eq!((status, code(&body)), (401, "unauthenticated"));
    let (status, body) = rig.call("PUT", "/v1/policies/default", Some(&rig.token("bob")), Some(&switch)).await;
    assert_eq!((status, code(&body)), (403, "unauthorized"));
    let (status, _) = rig.call("PUT", "/v1/policies/default", Some(&rig.admin_token()), Some(&switch)).await;
    assert_eq!(status, 200);
    loop_until(|| async {
        let (_, all) = rig.call("GET", "/v1/console", None, None).await;
        (all["named"]["default_policy"] == "high").then_some(())
    })
    .await;
}

#[tokio::test]
async fn where_the_console_is_off_nothing_of_it_is_there_for_anybody() {
    let rig = Rig::with(|config| config.console = ConsoleAccess::Off).await;
    let admin = rig.admin_token();
    for path in ["/", "/console/console.js", "/v1/console", "/v1/console/events", "/v1/console/negotiations/alice~1"] {
        for token in [None, Some(admin.as_str()), Some("nonsense")] {
            let (status, body) = rig.call("GET", path, token, None).await;
            assert_eq!((status, code(&body)), (404, "not_found"), "{path}");
            assert!(body["detail"].as_str().unwrap().contains("switched off"), "{path}: {body}");
        }
    }
}

#[tokio::test]
async fn the_page_and_its_parts_allow_nothing_from_elsewhere_and_are_kept_until_they_change() {
    let rig = Rig::start().await;
    let parts = [
        ("/", "text/html"),
        ("/console/console.css", "text/css"),
        ("/console/console.js", "text/javascript"),
        ("/console/dom.js", "text/javascript"),
        ("/console/charts.js", "text/javascript"),
        ("/console/overview.js", "text/javascript"),
        ("/console/policies.js", "text/javascript"),
        ("/console/agents.js", "text/javascript"),
        ("/console/uplot.js", "text/javascript"),
        ("/console/uplot.css", "text/css"),
        ("/console/timeline.js", "text/javascript"),
        ("/console/icon.svg", "image/svg+xml"),
    ];
    for (path, media_type) in parts {
        let answer = rig.request("GET", path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let headers = answer.headers().clone();
        let has = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert!(has("content-type").starts_with(media_type), "{path}");
        let policy = has("content-security-policy");
        assert!(policy.starts_with("default-src 'self';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!((has("x-content-type-options"), has("cache-control")), ("nosniff".into(), "no-cache".into()));
        let again = rig.request("GET", path).header("if-none-match", has("etag")).send().await.unwrap();
        assert_eq!((again.status().as_u16(), again.bytes().await.unwrap().len()), (304, 0), "{path}");
    }
    for path in ["/console/", "/console/none.js", "/console/..%2fconsole.js", "/console/%ff", "/console/index.html%00"]
    {
        let (status, body) = rig.call("GET", path, None, None).await;
        assert_eq!((status, code(&body)), (404, "not_found"), "{path}");
    }
}

#[tokio::test]
async fn a_journal_is_for_administrators_and_is_what_the_engine_of_the_lane_tells() {
    let rig = heard(ConsoleAccess::Token).await;
    let (admin, path) = (rig.admin_token(), "/v1/console/negotiations/alice~1");
    let (status, body) = rig.call("GET", path, None, None).await;
    assert_eq!((status, code(&body)), (401, "unauthenticated"));
    let (status, body) = rig.call("GET", path, Some(&rig.token("alice")), None).await;
    assert_eq!((status, code(&body)), (403, "unauthorized"), "not even for the initiator: it holds every offer");
    let (status, body) = rig.call("GET", path, Some(&admin), None).await;
    assert_eq!((status, code(&body)), (503, "unavailable"), "no engine listens yet");
    answer_journals(&rig).await;
    let (status, body) = rig.call("GET", path, Some(&admin), None).await;
    assert_eq!((status, &body["entries"][0]["what"]), (200, &json!("called")), "{body}");
    for (unknown, status, expected) in [
        ("alice~gone", 404, "not_found"),
        ("alice~other", 404, "not_found"),
        ("alice~garbled", 500, "internal"),
        ("nobody", 404, "not_found"),
        ("%3Cimg%20src=x%20onerror=alert(1)%3E~1", 404, "not_found"),
        ("alice~..%2f..%2fhealthz", 404, "not_found"),
        ("alice~1.*", 404, "not_found"),
        ("%ff", 404, "not_found"),
    ] {
        let (found, body) = rig.call("GET", &format!("/v1/console/negotiations/{unknown}"), Some(&admin), None).await;
        assert_eq!((found, code(&body)), (status, expected), "{unknown}");
        assert!(!body.to_string().contains("<img"), "what was asked is not echoed");
    }
}

#[tokio::test]
async fn an_open_console_shows_what_agents_wrote_to_administrators_only() {
    let rig = heard(ConsoleAccess::Open).await;
    answer_journals(&rig).await;
    let path = "/v1/console/negotiations/alice~team";
    let (_, whole) = rig.call("GET", path, Some(&rig.admin_token()), None).await;
    let texts = ["RESCAN", "TITLE", "LEAKED", "WELL", "PROPOSED", "CONCLUDED"];
    for text in texts {
        assert!(whole.to_string().contains(text), "{text} in {whole}");
    }
    for token in [None, Some(rig.token("alice"))] {
        let (status, shown) = rig.call("GET", path, token.as_deref(), None).await;
        assert_eq!(status, 200, "{shown}");
        for text in texts {
            assert!(!shown.to_string().contains(text), "{text} in {shown}");
        }
        let entries = shown["entries"].as_array().unwrap();
        let kinds: Vec<_> = entries.iter().map(|entry| entry["what"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["reported", "floor", "concluded"]);
        let (said, task) = (&entries[1]["said"], &entries[1]["tasks"][0]);
        assert_eq!(
            (&entries[0]["contractor"], said, &task["status"]),
            (&json!("bob"), &json!({ "text": "" }), &json!("failed"))
        );
    }
}

#[tokio::test]
async fn a_journal_nobody_tells_in_time_is_refused_and_the_number_asked_for_at_once_is_bounded() {
    let rig = heard(ConsoleAccess::Open).await;
    let mut silent = Vec::new();
    for lane in 0..rig.bus.log.lanes() {
        silent.push(rig.bus.pub_sub.subscribe(subject::journal(Lane(lane)), None).await.unwrap());
    }
    let ask = || rig.call("GET", "/v1/console/negotiations/alice~1", None, None);
    let answers = futures_util::future::join_all((0..24).map(|_| ask())).await;
    let refused = |wanted: &str| answers.iter().filter(|(_, body)| code(body) == wanted).count();
    assert_eq!((refused("unavailable"), refused("overloaded")), (16, 8));
}

#[tokio::test]
async fn snapshots_come_as_events_and_nobody_else_can_take_the_places_of_administrators() {
    let rig = heard(ConsoleAccess::Token).await;
    let mut streams = Vec::new();
    for number in 0..32 {
        let request = rig.request("GET", "/v1/console/events");
        let is_agent = number % 2 == 0;
        let request = if is_agent { request.bearer_auth(rig.token("bob")) } else { request };
        let answer = request.send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        streams.push(answer);
    }
    let (status, body) = rig.call("GET", "/v1/console/events", None, None).await;
    assert_eq!((status, code(&body)), (503, "overloaded"));
    let admin = rig.request("GET", "/v1/console/events").bearer_auth(rig.admin_token()).send().await.unwrap();
    let mut events = admin.bytes_stream();
    let mut text = String::new();
    while text.matches("event: snapshot\n").count() < 2 || !text.ends_with("\n\n") {
        let chunk = tokio::time::timeout(Duration::from_secs(60), events.next()).await.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let data: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((&data[0]["sight"], &data[1]["sight"]), (&json!("all"), &json!("all")));
    assert!(data[1]["at"].as_u64() > data[0]["at"].as_u64());
    streams.clear();
    drop(events);
    loop_until(|| async {
        let again = rig.request("GET", "/v1/console/events").send().await.unwrap();
        (again.status() == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_switch_of_the_default_policy_is_in_the_stream_at_once() {
    let rig = heard(ConsoleAccess::Open).await;
    let mut events = rig.request("GET", "/v1/console/events").send().await.unwrap().bytes_stream();
    let mut text = String::new();
    for (policy, is_switched) in [("medium", false), ("high", true), ("medium", true)] {
        let at = std::time::Instant::now();
        if is_switched {
            let wanted = json!({ "policy": policy });
            let switched = rig.call("PUT", "/v1/policies/default", Some(&rig.admin_token()), Some(&wanted)).await;
            assert_eq!(switched.0, 200);
        }
        let seen = format!("\"default_policy\":\"{policy}\"");
        while !text.contains(&seen) {
            let chunk = tokio::time::timeout(Duration::from_secs(60), events.next()).await.unwrap().unwrap().unwrap();
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        let took = at.elapsed();
        assert!(
            took < Duration::from_millis(700),
            "{policy} after {took:?}: between two looks, not with the next second"
        );
        text.clear();
    }
    // What is named is put together apart from the stream.
    let is_named = async {
        loop {
            let (_, all) = rig.call("GET", "/v1/console", None, None).await;
            let switches = all["named"]["switches"].as_array().unwrap();
            if switches.iter().any(|switch| switch["from"] == "high" && switch["to"] == "medium") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_named).await.expect("the switch back is named");
}

#[tokio::test]
async fn what_happened_under_each_policy_and_what_agents_did_is_for_administrators() {
    let rig = heard(ConsoleAccess::Token).await;
    let (_, all) = rig.call("GET", "/v1/console", Some(&rig.admin_token()), None).await;
    assert_eq!((&all["totals"]["awards"], &all["totals"]["binding"]), (&json!(3), &json!(2)));
    assert_eq!(all["durations"], json!({ "100": 2, "300": 1 }));
    assert_eq!(all["round"]["p95_us"], 300, "computed from the histogram");
    let activity = &all["named"]["activity"];
    let policy = &activity["policies"][0];
    assert_eq!(
        (&policy["policy"], &policy["ended"], &policy["round"]["count"]),
        (&json!("medium@1"), &json!(3), &json!(3))
    );
    let agent = &activity["agents"][0];
    assert_eq!(
        (&agent["agent"], &agent["awards"], &agent["fair_ppm"]),
        (&json!("carol"), &json!(2), &json!(1_500_000))
    );
    assert_eq!(all["named"]["engines"][0]["faults"], json!(["lane 3 stopped"]));
    let about = all["named"]["policies"].as_array().unwrap().iter().find(|policy| policy["id"] == "medium@1").unwrap();
    assert!(about["about"].as_str().unwrap().contains("once everyone who was called has answered"), "{about}");
    let (_, totals) = rig.call("GET", "/v1/console", None, None).await;
    for secret in ["activity", "lane 3 stopped", "about", "switches"] {
        assert!(!totals.to_string().contains(secret), "{secret} in {totals}");
    }
}

#[tokio::test]
async fn a_stream_of_snapshots_ends_with_the_gateway() {
    let rig = heard(ConsoleAccess::Token).await;
    let mut events = rig.request("GET", "/v1/console/events").send().await.unwrap().bytes_stream();
    events.next().await.unwrap().unwrap();
    rig.handle.shutdown().await;
    let ended = async { while events.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
}

/// A gateway that has heard one engine, and knows one agent.
async fn heard(access: ConsoleAccess) -> Rig {
    let rig = Rig::with(|config| config.console = access).await;
    rig.register("carol").await;
    let open = |number: u64| {
        json!({ "negotiation": format!("alice~{number}"), "protocol": "contract_net", "phase": "collecting",
            "policy": "medium@1", "called_at": number, "invited": 12, "offers": 3 })
    };
    let pulse = json!({
        "engine": "engine-1", "at": 42, "owned": [0, 1, 2, 3], "open": 2, "started": 5, "ended": { "completed": 3 },
        "awards": 3, "offers": 20, "unacknowledged": 1,
        "round": { "count": 3, "p50_us": 100, "p95_us": 200, "p99_us": 300 },
        "binding": 2, "durations": { "100": 2, "300": 1 }, "faults": ["lane 3 stopped"],
        "policies": [{ "policy": "medium@1", "ended": 3, "awards": 3, "offers": 20, "durations": { "100": 2, "300": 1 } }],
        "agents": [{ "agent": "carol", "opened": 0, "calls": 3, "offers": 3, "awards": 2, "fair_ppm": 1_500_000,
            "acknowledged": { "count": 3, "p50_us": 1, "p95_us": 2, "p99_us": 2 } }],
        "newest": [open(1), open(2)], "latest": []
    });
    loop_until(|| async {
        let bytes = Bytes::from(pulse.to_string());
        rig.bus.pub_sub.publish(subject::statistics("engine-1"), bytes).await.unwrap();
        let (_, seen) = rig.call("GET", "/v1/console", None, None).await;
        (seen["engines"] == 1).then_some(())
    })
    .await;
    rig
}

/// Answers for every lane as an engine does, and for some ids as no engine should.
async fn answer_journals(rig: &Rig) {
    let pub_sub = rig.bus.pub_sub.clone();
    let mut questions = pub_sub.subscribe("journal.*".to_owned(), None).await.unwrap();
    tokio::spawn(async move {
        while let Some(question) = questions.next().await {
            let asked: Value = serde_json::from_slice(&question.payload).unwrap();
            let called = json!({ "at": 1, "what": "called", "protocol": "contract_net", "policy": "medium@1", "invited": 1, "left_out": 0 });
            let journal = json!({ "negotiation": "alice~1", "engine": "engine-1", "entries": [called], "left_out": 0 });
            let answer = match asked["negotiation"].as_str().unwrap() {
                "alice~1" | "alice~other" => json!({ "found": journal }).to_string(),
                "alice~team" => json!({ "found": journal_of_a_team() }).to_string(),
                "alice~garbled" => r#"{"found":{"negotiation":"<img>"}}"#.to_owned(),
                _ => r#"{"not_found":true}"#.to_owned(),
            };
            pub_sub.publish(question.reply.unwrap(), Bytes::from(answer)).await.unwrap();
        }
    });
}

/// A report, a step and a conclusion, each with what agents wrote.
fn journal_of_a_team() -> Value {
    let digest = "5c".repeat(32);
    let concluded = json!({
        "at": 3, "what": "concluded", "by": "bob", "offer_id": "o7-0", "text": "CONCLUDED", "digest": digest, "turn": 1,
    });
    let floor = json!({
        "at": 2, "what": "floor", "step": 1, "turn": 1, "turns_left": 5, "state": "voting",
        "ends_by": "2026-11-20T22:10:00.000Z", "by": "alice", "said": { "text": "WELL" },
        "tasks": [{ "task": 1, "status": "failed", "owner": "bob", "title": "TITLE", "result": "RESCAN", "code": "LEAKED" }],
        "conclusion": { "offer_id": "o7-0", "by": "bob", "text": "PROPOSED", "terms_digest": digest },
    });
    let reported = json!({ "at": 1, "what": "reported", "contractor": "bob", "award_no": 1, "result": "RESCAN" });
    json!({ "negotiation": "alice~team", "engine": "engine-1", "entries": [reported, floor, concluded], "left_out": 0 })
}
