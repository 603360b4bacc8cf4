//! An A2A agent whose card names the extension: an act of its own at every turn of every protocol.

use bridges::a2a::card::EXTENSION;

use super::*;
use crate::exchange::Site;

const BY: &str = "2026-11-29T12:00:30.000Z";

/// An agent that answers each message by the act that this is about it.
async fn knowing(act: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Stranger {
    let answer = move |method: &str, params: &Value| match (method, params["message"]["parts"].as_array()) {
        ("CancelTask", _) => result(&task("CANCELED", json!([]), &[])),
        (_, Some(parts)) => {
            let about = &parts.last().unwrap()["data"]["payload"];
            told(if about["act"] == "ack" { "COMPLETED" } else { "INPUT_REQUIRED" }, act(about), &[])
        }
        _ => answered("{}"),
    };
    let capabilities =
        json!({"extensions": [{"uri": "https://example/other/1"}, {"uri": EXTENSION, "required": false}]});
    Stranger::with_card(None, capabilities, answer).await
}

fn bob() -> A2aContractor {
    A2aContractor::new(false, Some(AgentId::try_new("bob").unwrap()))
}

fn data(payload: &Value) -> Value {
    json!([{"data": {"payload": payload}}])
}

fn called(member: &str, rules: Value) -> Value {
    let mut call = json!(call("trip", 20_000).payload);
    call[member] = rules;
    call
}

fn turn(party: &str) -> Value {
    json!({"act": "turn", "party": party, "round": 1, "step": 0, "act_by": BY, "ends_by": BY, "t_ppm": 0})
}

fn floor(state: &str, speaker: Value, said: Value) -> Value {
    json!({"act": "floor", "step": 1, "turn": 1, "turns_left": 3, "state": state, "speaker": speaker, "said": said, "act_by": BY, "ends_by": BY})
}

fn bid(leads: bool) -> Value {
    json!({"act": "inform", "kind": "bid", "bid_no": 2, "price": 50, "leads": leads, "bidders": 2, "next_price": 60, "reply_by": BY})
}

fn bargain() -> Value {
    let issues = json!([{"name": "price", "min": 0, "max": 9}]);
    called("bargain", json!({"parties": ["alice", "bob"], "rules": {"issues": issues, "rounds": 3}}))
}

#[tokio::test]
async fn an_agent_that_knows_the_extension_is_asked_for_its_act_and_a_useless_answer_ends_or_lapses() {
    let join = json!({"act": "join"});
    let offered = json!({"act": "offer", "terms": {"price": 7}});
    let ended = |reason: &str| vec![json!({"act": "end", "reason": reason})];
    let ask = json!({"act": "ask", "round": 1, "answer_by": BY, "ends_by": BY});
    let answer = json!({"act": "answer", "round": 1, "answer": "friday"});
    let say = json!({"act": "say", "text": "the sea"});
    let refuse = json!({"act": "refuse", "reason": "no"});
    let text = json!([{"text": "gladly"}]);
    let one = "missing_field at /parts: one data part";
    let table: Vec<(&str, Value, Value, Option<Vec<Value>>)> = vec![
        ("a bargain", bargain(), data(&join), Some(vec![join.clone()])),
        ("a bargain, no data", bargain(), text.clone(), Some(vec![refused(one)])),
        ("a call, no data", json!(call("carry", 20_000).payload), text.clone(), Some(vec![unfit(one)])),
        ("its turn", turn("bob"), data(&offered), Some(vec![offered.clone()])),
        ("its turn, no data", turn("bob"), text.clone(), Some(ended(one))),
        ("its turn, another act", turn("bob"), data(&say), Some(ended("not_allowed at /act"))),
        ("another's turn", turn("alice"), data(&offered), None),
        ("its floor", floor("discussing", json!("bob"), Value::Null), data(&say), Some(vec![say.clone()])),
        ("its floor, no data", floor("discussing", json!("bob"), Value::Null), text.clone(), Some(vec![])),
        ("another's floor", floor("discussing", json!("alice"), Value::Null), data(&say), None),
        ("a question", ask.clone(), data(&answer), Some(vec![answer])),
        ("a question, refused", ask.clone(), data(&refuse), Some(vec![refuse])),
        ("a question, no data", ask, text.clone(), Some(vec![refused(one)])),
        ("outbid", bid(false), data(&offered), Some(vec![offered.clone()])),
        ("outbid, no data", bid(false), text, Some(vec![])),
        ("it leads", bid(true), data(&offered), None),
    ];
    for (name, payload, answer, expected) in table {
        let stranger = knowing(move |_| answer.clone()).await;
        let (client, mut contractor) = (stranger.client().await, bob());
        assert!(client.is_extended(), "{name}");
        // Whoever is outbid has bid before.
        if payload["kind"] == "bid" {
            said(&mut contractor, &client, &call("carry", 20_000)).await;
        }
        let asked = stranger.asked();
        let heard = said(&mut contractor, &client, &delivery(8, payload)).await;
        assert_eq!((stranger.asked() > asked).then_some(heard), expected, "{name}");
    }
}

#[tokio::test]
async fn what_was_told_since_the_last_question_goes_with_the_next_one_by_the_extension() {
    let stranger = knowing(|_| data(&json!({"act": "say", "text": "the sea"}))).await;
    let (client, mut contractor) = (stranger.client().await, bob());
    for (n, words) in ["a museum", "the hills\u{202e}"].into_iter().enumerate() {
        let of_alice = floor("discussing", json!("alice"), json!({"text": words}));
        assert!(said(&mut contractor, &client, &delivery(10 + n as u8, of_alice)).await.is_empty());
    }
    for n in [12, 13] {
        said(&mut contractor, &client, &delivery(n, floor("discussing", json!("bob"), Value::Null))).await;
    }
    let heard = stranger.heard();
    let [_, (headers, first), (_, second)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(headers["a2a-extensions"], EXTENSION);
    assert_eq!(first["params"]["message"]["extensions"], json!([EXTENSION]));
    let parts = first["params"]["message"]["parts"].as_array().unwrap();
    let said: Vec<_> = parts[1..].iter().map(|part| part["data"]["payload"]["said"]["text"].as_str()).collect();
    assert_eq!(said, [Some("a museum"), Some("the hills\\u{202e}"), None]);
    assert_eq!(second["params"]["message"]["parts"].as_array().unwrap().len(), 2, "each is told once");
    assert_eq!(second["params"]["message"]["taskId"], "t-1");
}

/// What an agent does that agrees to everything.
fn agreeable(told: &Value) -> Value {
    let is = |member: &str| !told[member].is_null();
    data(&match told["act"].as_str().unwrap() {
        "cfp" if is("bargain") || is("team") => json!({"act": "join"}),
        "cfp" => json!({"act": "offer", "terms": {"price": told["auction"]["rules"]["start"]}}),
        "inform" => json!({"act": "offer", "terms": {"price": told["next_price"]}}),
        "turn" if told["standing"]["by"] == "alice" => {
            let standing = &told["standing"];
            json!({"act": "accept", "offer_id": standing["offer_id"], "terms_digest": standing["terms_digest"]})
        }
        "floor" => json!({"act": "say", "text": "the sea"}),
        "ask" => json!({"act": "answer", "round": told["round"], "answer": "friday"}),
        "accept" => json!({"act": "confirm", "award_no": told["award_no"]}),
        "ack" => json!({"act": "inform", "kind": "done", "result": "sun"}),
        act => panic!("asked about {act}"),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_a2a_agent_that_knows_the_extension_bargains_bids_answers_and_works_in_a_team() {
    let stranger = knowing(agreeable).await;
    let site = Site::start().await;
    let identity = site.exchange.identity(&AgentId::try_new("bob").unwrap()).unwrap();
    let registration =
        Registration { topics: vec![TopicName::try_new("travel").unwrap()], ..Registration::open_to_all() };
    HttpTransport::try_new(site.exchange.url()).unwrap().register(&identity, &registration).await.unwrap();
    let way = (Arc::new(WebSocketTransport::new(site.exchange.url())) as _, identity, AgentOptions::default());
    let agent = spawn(bob(), Arc::new(stranger.client().await), way, CancellationToken::new());
    agent.connected().await.unwrap();
    let alice = site.registered("alice", "nothing").await;
    let mut after = json!("");

    let issues = json!([{"name": "price", "min": 0, "max": 100}]);
    let rent = json!({"id": "rent", "task": "rent", "with": ["bob"], "rounds": 5, "issues": issues, "wait_ms": 0});
    let rent = alice.call("bargain", rent).await["negotiation"].clone();
    alice.asked_for("offer", &mut after).await;
    alice.call("offer", json!({"negotiation": rent, "terms": {"price": 30}})).await;
    assert_eq!(alice.follow(&rent).await["outcome"], "agreement");

    let question =
        json!({"id": "q", "question": "which day?", "to": ["bob"], "options": ["monday", "friday"], "wait_ms": 0});
    let question = alice.call("ask_panel", question).await["negotiation"].clone();
    let told = alice.follow(&question).await;
    let finding = told["news"].as_array().unwrap().iter().find(|item| item["payload"]["kind"] == "finding");
    assert_eq!(finding.unwrap()["payload"]["answer"], "friday");

    let trip = json!({"id": "trip", "goal": "a day in Lisbon", "to": ["bob"], "members_min": 2, "wait_ms": 0});
    let trip = alice.call("form_team", trip).await["negotiation"].clone();
    alice.asked_for("say", &mut after).await;
    let tasks = json!([{"title": "weather", "text": "how is the weather?", "owner": "bob"}]);
    alice.call("assign", json!({"negotiation": trip, "mode": "sync", "tasks": tasks})).await;
    alice.asked_for("say", &mut after).await;
    alice.call("say", json!({"negotiation": trip, "text": "to the sea?"})).await;
    alice.asked_for("conclude", &mut after).await;
    alice.call("conclude", json!({"negotiation": trip, "text": "to the sea"})).await;
    let told = alice.follow(&trip).await;
    assert_eq!((&told["outcome"], &told["view"]["team"]["tasks"][0]["status"]), (&json!("concluded"), &json!("done")));

    let initiator = Initiator::spawn(
        WebSocketTransport::new(site.exchange.url()),
        site.exchange.identity(&AgentId::try_new("carol").unwrap()).unwrap(),
        AgentOptions::default(),
    );
    let auction = json!({"task": "a bicycle", "policy": "high", "auction": {"direction": "ascending", "start": 40, "step": 10, "quiet_ms": 500}});
    let auction: Cfp = serde_json::from_value(auction).unwrap();
    let to = vec![Address::Agent(AgentId::try_new("bob").unwrap())];
    let events = initiator.call_to_end(CallRequest::new("bicycle", to, auction)).await.unwrap();
    let Some(CallReport::Closed(closing)) = events.last().map(|event| &event.report) else { panic!("{events:?}") };
    assert_eq!(closing.outcome.as_str(), "completed");

    initiator.shutdown().await.unwrap();
    agent.shutdown().await.unwrap();
    site.stop([alice]).await;
}
