//! An A2A agent whose card names the extension: an act of its own at every turn of every protocol.

use bridges::a2a::card::EXTENSION;
use bridges::a2a_agent::A2aQuestion;
use bridges::a2a_agent::answer::{A2aFault, A2aReply, A2aStep};

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
    A2aContractor::new(AgentId::try_new("bob").unwrap(), false, true)
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

fn bid(bid_no: u32, leads: bool) -> Value {
    json!({"act": "inform", "kind": "bid", "bid_no": bid_no, "price": 50, "leads": leads, "bidders": 2, "next_price": 60, "reply_by": BY})
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
        ("a bargain, no data", bargain(), text.clone(), Some(vec![unfit(one)])),
        ("a call, no data", json!(call("carry", 20_000).payload), text.clone(), Some(vec![unfit(one)])),
        ("its turn", turn("bob"), data(&offered), Some(vec![with(&offered, "round")])),
        ("its turn, no data", turn("bob"), text.clone(), Some(ended(one))),
        ("its turn, another act", turn("bob"), data(&say), Some(ended("not_allowed at /act"))),
        ("another's turn", turn("alice"), data(&offered), None),
        ("its floor", floor("discussing", json!("bob"), Value::Null), data(&say), Some(vec![with(&say, "turn")])),
        ("its floor, no data", floor("discussing", json!("bob"), Value::Null), text.clone(), Some(vec![])),
        ("another's floor", floor("discussing", json!("alice"), Value::Null), data(&say), None),
        ("a question", ask.clone(), data(&answer), Some(vec![answer])),
        ("a question, refused", ask.clone(), data(&refuse), Some(vec![with(&refuse, "round")])),
        ("a question, no data", ask, text.clone(), Some(vec![])),
        ("outbid", bid(2, false), data(&offered), Some(vec![offered.clone()])),
        ("outbid, no data", bid(2, false), text, Some(vec![])),
        ("it leads", bid(2, true), data(&offered), None),
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

/// The same, of the first turn or round.
fn with(payload: &Value, member: &str) -> Value {
    let mut payload = payload.clone();
    payload[member] = json!(1);
    payload
}

/// A contractor that was told this, and the questions it then asks.
fn asked(contractor: &mut A2aContractor, n: u8, told: Value) -> Vec<A2aQuestion> {
    contractor.handle(NOW, &delivery(n, told));
    std::iter::from_fn(|| contractor.poll_question()).collect()
}

/// What is said when this is answered in a task that goes on, and what is asked next.
fn answer(contractor: &mut A2aContractor, question: &A2aQuestion, payload: &Value) -> (Vec<Value>, Vec<A2aStep>) {
    let body = rpc(&task("INPUT_REQUIRED", data(payload), &[]));
    let actions = contractor.take_answer(NOW, question, A2aReply::read(body.as_bytes(), 0));
    (payloads(actions), std::iter::from_fn(|| contractor.poll_question()).map(|next| next.step).collect())
}

fn offer_of(price: i64) -> Value {
    json!({"act": "offer", "terms": {"price": price}})
}

#[test]
fn one_question_waits_and_what_is_due_behind_it_is_asked_once_it_is_answered() {
    let mut bob = bob();
    let cfp = asked(&mut bob, 1, json!(call("carry", 20_000).payload)).remove(0);
    for n in [2, 3] {
        assert!(asked(&mut bob, n, bid(u32::from(n), false)).is_empty(), "the call is not answered yet");
    }
    let (said, next) = answer(&mut bob, &cfp, &offer_of(40));
    assert_eq!((&said[0]["terms"]["price"], next.len()), (&json!(40), 0), "it may lead by that");
    let next = asked(&mut bob, 4, json!({"act": "reject", "reason": "policy"})).remove(0);
    assert_eq!(
        next.delivery.envelope.msg_id.to_string(),
        format!("{:032x}", 3),
        "the newest, since the bid is too low"
    );
    assert!(asked(&mut bob, 5, bid(5, true)).is_empty());
    assert!(answer(&mut bob, &next, &offer_of(70)).0.is_empty(), "it leads meanwhile");
    // The floor told again in the same turn is the same turn.
    let mut bob = self::bob();
    let floor = |turn: u32| {
        let mut floor = floor("discussing", json!("bob"), Value::Null);
        floor["turn"] = json!(turn);
        floor
    };
    let first = asked(&mut bob, 1, floor(1)).remove(0);
    assert!(asked(&mut bob, 2, floor(1)).is_empty());
    let (said, next) = answer(&mut bob, &first, &json!({"act": "say", "text": "the sea"}));
    assert_eq!((said[0]["turn"].as_u64(), next.len()), (Some(1), 0));
    let [lapsed] = &asked(&mut bob, 3, floor(2))[..] else { panic!("one question") };
    assert_eq!((lapsed.task.as_ref().unwrap().id.as_str(), lapsed.before.len()), ("t-1", 1), "told with the next one");
    assert!(payloads(bob.take_answer(NOW, lapsed, Err(A2aFault::Timeout))).is_empty(), "its turn lapses");
    assert!(bob.poll_question().is_some_and(|question| question.step == A2aStep::Stop));
    let [next] = &asked(&mut bob, 4, floor(3))[..] else { panic!("one question") };
    assert_eq!(next.delivery.envelope.msg_id.to_string(), format!("{:032x}", 4));
    assert!(next.task.is_none(), "a task that was cancelled is asked nothing more");
}

#[test]
fn an_act_that_the_exchange_does_not_understand_is_asked_for_again_twice() {
    let refused = |reason: &str, expected: &[&str]| json!({"act": "not_understood", "ack_of": "m", "reason": reason, "expected": expected});
    let why = refused("out_of_space", &["offer", "end"]);
    let mut bob = bob();
    let mut question = asked(&mut bob, 1, turn("bob")).remove(0);
    for n in [2, 3] {
        answer(&mut bob, &question, &offer_of(7));
        question = asked(&mut bob, n, why.clone()).remove(0);
        assert_eq!((question.tools.clone(), question.step), (vec!["offer", "leave"], A2aStep::Act));
    }
    assert_eq!(answer(&mut bob, &question, &offer_of(7)).0[0]["round"], 1, "of the turn it was first asked about");
    assert!(asked(&mut bob, 9, refused("out_of_turn", &["end"])).is_empty(), "leaving alone is not asked for");
    assert!(asked(&mut bob, 4, why.clone()).is_empty());
    // Asked to end while it is asked again.
    let mut bob = self::bob();
    let question = asked(&mut bob, 1, turn("bob")).remove(0);
    answer(&mut bob, &question, &offer_of(7));
    asked(&mut bob, 2, why);
    assert_eq!(payloads(bob.give_up().0), [json!({"act": "end", "reason": "shutting_down"})]);
}

#[test]
fn a_bid_that_came_late_does_not_forfeit_the_award_of_the_one_that_stands() {
    let mut bob = bob();
    let question = asked(&mut bob, 1, json!(call("carry", 20_000).payload)).remove(0);
    answer(&mut bob, &question, &offer_of(40));
    let question = asked(&mut bob, 2, bid(2, false)).remove(0);
    answer(&mut bob, &question, &offer_of(60));
    assert!(asked(&mut bob, 3, json!({"act": "reject", "reason": "late"})).is_empty());
    let question = asked(&mut bob, 4, json!(award(4, 40).payload)).remove(0);
    assert_eq!(json!(question.offered), json!({"price": 40, "delivery_ms": 2000}), "the terms that are awarded");
}

#[test]
fn an_award_that_comes_while_a_bid_is_asked_for_keeps_the_task() {
    let mut bob = bob();
    let question = asked(&mut bob, 1, json!(call("carry", 20_000).payload)).remove(0);
    answer(&mut bob, &question, &offer_of(40));
    let outbid = asked(&mut bob, 2, bid(2, false)).remove(0);
    let awarded = asked(&mut bob, 3, json!(award(3, 40).payload)).remove(0);
    assert_eq!(answer(&mut bob, &outbid, &offer_of(60)), (vec![], vec![]), "too late, and its task is the award's");
    let (said, _) = answer(&mut bob, &awarded, &json!({"act": "confirm", "award_no": 7}));
    assert_eq!(said[0]["act"], "confirm");
}

#[test]
fn who_opens_tasks_that_nobody_waits_for_is_asked_again_in_the_turn_of_the_receipt() {
    let mut bob = bob();
    let question = asked(&mut bob, 1, floor("discussing", json!("bob"), Value::Null)).remove(0);
    let tasks = json!([{"title": "weather", "text": "how is it?", "owner": "alice"}]);
    answer(&mut bob, &question, &json!({"act": "assign", "mode": "async", "tasks": tasks}));
    let receipt = |turn: u32| json!({"act": "ack", "ack_of": "m", "disposition": "ok", "step": turn, "turn": turn});
    let again = asked(&mut bob, 2, receipt(2)).remove(0);
    let (said, _) = answer(&mut bob, &again, &json!({"act": "say", "text": "the sea"}));
    assert_eq!(said[0]["turn"], 2);
    assert!(asked(&mut bob, 3, receipt(3)).is_empty(), "after SAY another has the floor");
}

#[tokio::test]
async fn an_agent_that_knows_the_extension_is_told_the_end_and_its_task_cancelled() {
    let stranger = knowing(|_| data(&json!({"act": "offer", "terms": {"price": 7}}))).await;
    let (client, mut contractor) = (stranger.client().await, bob());
    said(&mut contractor, &client, &delivery(1, turn("bob"))).await;
    let closed = json!({"act": "closed", "outcome": "agreement", "digest": "0".repeat(64)});
    assert!(said(&mut contractor, &client, &delivery(2, closed)).await.is_empty());
    let heard = stranger.heard();
    let [_, _, (_, told), (_, cancelled)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(told["params"]["message"]["parts"][1]["data"]["payload"]["outcome"], "agreement");
    assert_eq!((&told["params"]["message"]["taskId"], &cancelled["method"]), (&json!("t-1"), &json!("CancelTask")));
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
        "closed" => json!({"act": "refuse"}),
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
