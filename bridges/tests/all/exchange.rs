//! Agents that speak by tools alone, against an exchange in memory behind a real gateway.

use std::sync::Arc;

use agents::transport::failover::FailoverTransport;
use agents::transport::websocket::WebSocketTransport;
use bridges::tools::{Tool, ToolSet};
use bridges::{Gateways, Limits, Participant, ToolFault, ToolService};
use bus::memory::{self, MemoryOptions};
use schemas::AgentId;
use schemas::policy::Decider;
use serde_json::{Value, json};
use traffic_gen::exchange::{Exchange, ExchangeOptions};

/// Calls of `inbox` or `follow`, of four seconds each, within which something must happen.
const PATIENCE: usize = 8;

/// An exchange.
pub(crate) struct Site {
    pub(crate) exchange: Exchange,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let mut chosen = policy_core::policy::preset("high").unwrap();
        (chosen.id, chosen.decider) = ("chosen@1".to_owned(), Decider::Initiator);
        let listen = Some("127.0.0.1:0".parse().unwrap());
        let options = ExchangeOptions { listen, policies: vec![chosen], ..ExchangeOptions::default() };
        Self { exchange: Exchange::start(memory::open(MemoryOptions::default()), options).await.unwrap() }
    }

    /// A token of an agent.
    pub(crate) fn token(&self, agent: &str) -> String {
        self.token_for(agent, 600)
    }

    /// A token of an agent that is good for so many seconds.
    pub(crate) fn token_for(&self, agent: &str, lifetime_s: u64) -> String {
        let agent = AgentId::try_new(agent).unwrap();
        let mut claims = Exchange::claims(&agent);
        claims.exp = claims.iat + lifetime_s;
        self.exchange.signing_key().sign(&claims).unwrap()
    }

    fn user(&self, agent: &str) -> User {
        self.user_within(agent, Limits::default())
    }

    /// A user that is registered for this topic.
    pub(crate) async fn registered(&self, agent: &str, topic: &str) -> User {
        let user = self.user(agent);
        user.call("register", json!({"topics": [topic], "description": "bicycles"})).await;
        user
    }

    /// A user of a process of its own.
    fn user_within(&self, agent: &str, limits: Limits) -> User {
        let identity = self.exchange.identity(&AgentId::try_new(agent).unwrap()).unwrap();
        let ways = vec![Arc::new(WebSocketTransport::new(self.exchange.url())) as _];
        let transport = Arc::new(FailoverTransport::try_new(ways).unwrap());
        let participant = Participant::open(identity, transport, Arc::default());
        let gateways = Gateways::try_new(&[self.exchange.url().to_owned()]).unwrap();
        let service =
            ToolService::new(Arc::clone(&participant), gateways, ToolSet::ALL.to_vec(), limits, format!("{agent}-1"));
        User(service, participant)
    }

    pub(crate) async fn stop(self, users: impl IntoIterator<Item = User>) {
        for user in users {
            user.0.close().await;
        }
        self.exchange.shutdown().await;
    }
}

pub(crate) struct User(ToolService, Arc<Participant>);

impl User {
    async fn try_call(&self, tool: &str, arguments: Value) -> Result<Value, ToolFault> {
        self.0.call(Tool::named(tool).unwrap(), arguments.as_object().unwrap().clone()).await
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.try_call(tool, arguments.clone())
            .await
            .unwrap_or_else(|fault| panic!("{tool} {arguments}: {}", fault.to_value()))
    }

    /// Follows a negotiation until its end.
    pub(crate) async fn follow(&self, negotiation: &Value) -> Value {
        let mut after = json!("");
        for _ in 0..PATIENCE {
            let told = self.call("follow", json!({"negotiation": negotiation, "after": after})).await;
            if !told["outcome"].is_null() {
                return told;
            }
            after = told["cursor"].clone();
        }
        panic!("no end of {negotiation}");
    }

    /// The next item of the inbox after a cursor that asks for this tool; the cursor moves on.
    pub(crate) async fn asked_for(&self, tool: &str, after: &mut Value) -> Value {
        for _ in 0..PATIENCE {
            let told = self.call("inbox", json!({"after": after, "limit": 1})).await;
            *after = told["cursor"].clone();
            let asks =
                |item: &&Value| item["todo"][0]["tools"].as_array().is_some_and(|tools| tools.contains(&json!(tool)));
            if let Some(item) = told["items"].as_array().unwrap().iter().find(asks) {
                return item.clone();
            }
        }
        panic!("never asked for {tool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_for_offers_is_awarded_worked_on_and_reported_and_each_call_counts_once() {
    let site = Site::start().await;
    let (alice, bob) = (site.user("alice"), site.registered("bob", "courier").await);
    let found = alice.call("find_agents", json!({"topic": "courier"})).await;
    assert_eq!(found["agents"][0]["agent"], "bob");
    let found = alice.call("find_agents", json!({"query": "bicycles"})).await;
    assert_eq!(found["hits"][0]["agent"], "bob");
    let call = json!({"id": "parcel", "task": "carry", "to": ["topic://courier"], "policy": "high", "wait_ms": 0});
    let opened = alice.call("call_for_offers", call.clone()).await;
    let negotiation = opened["negotiation"].clone();
    assert_eq!((&negotiation, &opened["state"]), (&json!("alice~parcel"), &json!("collecting")));
    let mut after = json!("");
    let item = bob.asked_for("offer", &mut after).await;
    assert_eq!((&item["negotiation"], &item["payload"]["task"]), (&negotiation, &json!("carry")));
    let offer =
        json!({"negotiation": negotiation, "terms": {"price": 85_000_000, "delivery_ms": 2000}, "request_id": "o-1"});
    bob.call("offer", offer.clone()).await;
    let item = bob.asked_for("report", &mut after).await;
    assert_eq!(item["payload"]["disposition"], "committed");
    let report = json!({"negotiation": negotiation, "result": "left with the neighbour\u{202e}", "request_id": "r-1"});
    bob.call("report", report.clone()).await;
    let told = alice.follow(&negotiation).await;
    assert_eq!((&told["outcome"], &told["view"]["awards"][0]["contractor"]), (&json!("completed"), &json!("bob")));
    assert_eq!(told["results"][0]["text"], "left with the neighbour\\u{202e}");
    // Each again, at another process: nothing is new.
    let other = site.user("alice");
    let again = other.call("call_for_offers", call).await;
    assert_eq!((&again["outcome"], &again["negotiation"]), (&json!("completed"), &negotiation));
    for (tool, arguments) in [("offer", offer), ("report", report)] {
        bob.call(tool, arguments).await;
    }
    let conflict = json!({"id": "parcel", "task": "another", "to": ["topic://courier"], "policy": "high"});
    let fault = other.try_call("call_for_offers", conflict).await.unwrap_err();
    assert_eq!(fault.to_value()["code"], "conflict");
    site.stop([alice, bob, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_wants_to_be_asked_is_confirmed_by_the_tool() {
    let site = Site::start().await;
    let (alice, bob) = (site.user("alice"), site.registered("bob", "courier").await);
    let call = json!({"id": "parcel", "task": "carry", "to": ["bob"], "policy": "high", "wait_ms": 0});
    let negotiation = alice.call("call_for_offers", call).await["negotiation"].clone();
    let mut after = json!("");
    bob.asked_for("offer", &mut after).await;
    bob.call("offer", json!({"negotiation": negotiation, "terms": {"price": 5}, "confirm": "ask"})).await;
    let item = bob.asked_for("confirm", &mut after).await;
    let confirm = json!({"negotiation": negotiation, "award_no": item["payload"]["award_no"]});
    bob.call("confirm", confirm.clone()).await;
    bob.asked_for("report", &mut after).await;
    let again = bob.call("confirm", confirm).await;
    assert_eq!(again["todo"][0]["tools"], json!(["report"]), "a repeat answers nothing that is asked since");
    bob.call("report", json!({"negotiation": negotiation, "failed": "no_van"})).await;
    let told = alice.follow(&negotiation).await;
    assert_eq!(told["outcome"], "no_candidate");
    site.stop([alice, bob]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_bargain_to_an_agreement_one_of_them_under_a_mandate() {
    let site = Site::start().await;
    let (alice, bob) =
        (site.user("alice"), site.user_within("bob", Limits { requires_mandate: true, ..Limits::default() }));
    bob.call("register", json!({"topics": ["halls"]})).await;
    let bargain = json!({"id": "rent", "task": "rent", "with": ["bob"], "rounds": 5,
        "issues": [{"name": "price", "min": 0, "max": 100}, {"name": "day", "values": ["monday", "friday"]}], "wait_ms": 0});
    let negotiation = alice.call("bargain", bargain).await["negotiation"].clone();
    let (mut heard, mut after) = (json!(""), json!(""));
    bob.asked_for("join", &mut heard).await;
    let fault = bob.try_call("join", json!({"negotiation": negotiation})).await.unwrap_err();
    assert_eq!(fault.to_value()["code"], "not_allowed");
    let limits = json!([{"attr": "price", "op": "ge", "value": 40}, {"attr": "day", "op": "eq", "text": "friday"}]);
    bob.call("join", json!({"negotiation": negotiation, "mandate": {"limits": limits}})).await;
    alice.asked_for("offer", &mut after).await;
    alice.call("offer", json!({"negotiation": negotiation, "terms": {"price": 30, "day": "friday"}})).await;
    let turn = bob.asked_for("accept", &mut heard).await;
    let standing = turn["payload"]["standing"].clone();
    let accept = |standing: &Value| json!({"negotiation": negotiation, "offer_id": standing["offer_id"], "terms_digest": standing["terms_digest"]});
    let fault = bob.try_call("accept", accept(&standing)).await.unwrap_err();
    assert_eq!(fault.to_value()["code"], "mandate_violation");
    bob.call("offer", json!({"negotiation": negotiation, "terms": {"price": 50, "day": "friday"}})).await;
    let turn = alice.asked_for("accept", &mut after).await;
    alice.call("accept", accept(&turn["payload"]["standing"])).await;
    for user in [&alice, &bob] {
        let told = user.follow(&negotiation).await;
        assert_eq!(
            (&told["outcome"], &told["view"]["bargain"]["agreement"]["terms"]["price"]),
            (&json!("agreement"), &json!(50))
        );
    }
    site.stop([alice, bob]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_form_a_team_share_out_a_task_and_conclude() {
    let site = Site::start().await;
    let (bob, carol) = (site.registered("bob", "travel").await, site.registered("carol", "travel").await);
    let alice = site.registered("alice", "travel").await;
    let team = json!({"id": "trip", "goal": "a day in Lisbon", "to": ["bob", "carol"], "members_min": 3, "wait_ms": 0});
    let negotiation = alice.call("form_team", team).await["negotiation"].clone();
    let (mut lead, mut heard, mut carols) = (json!(""), json!(""), json!(""));
    for (user, after) in [(&bob, &mut heard), (&carol, &mut carols)] {
        user.asked_for("join", after).await;
        user.call("join", json!({"negotiation": negotiation})).await;
    }
    alice.asked_for("say", &mut lead).await;
    let tasks = json!([{"title": "weather", "text": "how is the weather?", "owner": "bob"}]);
    alice.call("assign", json!({"negotiation": negotiation, "mode": "sync", "tasks": tasks})).await;
    let task = bob.asked_for("confirm", &mut heard).await;
    bob.call("confirm", json!({"negotiation": task["negotiation"], "award_no": task["payload"]["award_no"]})).await;
    bob.asked_for("report", &mut heard).await;
    bob.call("report", json!({"negotiation": task["negotiation"], "result": "sun"})).await;
    for (user, after) in [(&alice, &mut lead), (&bob, &mut heard), (&carol, &mut carols)] {
        user.asked_for("say", after).await;
        user.call("say", json!({"negotiation": negotiation, "text": "the sea"})).await;
    }
    alice.asked_for("conclude", &mut lead).await;
    alice.call("conclude", json!({"negotiation": negotiation, "text": "to the sea"})).await;
    for user in [&alice, &bob, &carol] {
        let told = user.follow(&negotiation).await;
        assert_eq!(
            (&told["outcome"], &told["view"]["team"]["conclusion"]["text"]),
            (&json!("concluded"), &json!("to the sea"))
        );
    }
    site.stop([alice, bob, carol]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_answer_a_panel_to_a_finding() {
    let site = Site::start().await;
    let alice = site.user("alice");
    let mut seats = Vec::new();
    for seat in ["s1", "s2", "s3", "s4"] {
        seats.push(site.registered(seat, "oracle").await);
    }
    let panel = json!({"id": "q", "question": "which day?", "to": ["topic://oracle"], "options": ["monday", "friday"], "wait_ms": 0});
    let negotiation = alice.call("ask_panel", panel).await["negotiation"].clone();
    // Those that are asked, which are as many as a consensus takes.
    for seat in seats.iter().cycle().take(PATIENCE * seats.len()) {
        let told = seat.call("inbox", json!({"wait_ms": 200})).await;
        for ask in told["items"].as_array().unwrap() {
            let answer = json!({"negotiation": negotiation, "round": ask["payload"]["round"], "answer": "friday"});
            seat.call("answer", answer).await;
        }
        if !alice.call("follow", json!({"negotiation": negotiation, "wait_ms": 0})).await["outcome"].is_null() {
            break;
        }
    }
    let told = alice.follow(&negotiation).await;
    let finding = told["news"].as_array().unwrap().iter().find(|item| item["payload"]["kind"] == "finding");
    assert_eq!(told["outcome"], "consensus");
    assert_eq!(finding.unwrap()["payload"]["answer"], "friday");
    site.stop(seats.into_iter().chain([alice])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_initiator_chooses_where_the_policy_leaves_it_to_it() {
    let site = Site::start().await;
    let (alice, bob) = (site.user("alice"), site.registered("bob", "courier").await);
    let call = json!({"id": "p", "task": "carry", "to": ["bob"], "policy": "chosen", "wait_ms": 0});
    let negotiation = alice.call("call_for_offers", call).await["negotiation"].clone();
    let mut after = json!("");
    bob.asked_for("offer", &mut after).await;
    bob.call("offer", json!({"negotiation": negotiation, "terms": {"price": 5, "delivery_ms": 1}})).await;
    let offers = alice.asked_for("accept", &mut json!("")).await;
    let offer = &offers["payload"]["offers"][0];
    let fault = alice.try_call("accept", json!({"negotiation": negotiation, "offer_id": "o99-0"})).await.unwrap_err();
    assert_ne!(fault.to_value()["code"], "internal");
    alice.call("accept", json!({"negotiation": negotiation, "offer_id": offer["offer_id"]})).await;
    bob.asked_for("report", &mut after).await;
    site.stop([alice, bob]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_or_not_ones_own_is_refused_where_the_fault_is() {
    let site = Site::start().await;
    let (alice, mallory) = (site.user("alice"), site.registered("mallory", "courier").await);
    let table = [
        ("call_for_offers", json!({"id": "a", "task": "t", "to": ["nobody"]}), "no_recipient", "/to"),
        (
            "call_for_offers",
            json!({"id": "a", "task": "t", "to": ["bob"], "policy": "nope"}),
            "unknown_policy",
            "/policy",
        ),
        ("call_for_offers", json!({"id": "a", "task": "t", "to": ["x://bob"]}), "bad_format", "/to/0"),
        ("follow", json!({"negotiation": "alice~nothing"}), "not_found", ""),
        ("follow", json!({"negotiation": "../x~y"}), "bad_format", "/negotiation"),
        ("get_document", json!({"hash": "AAAAAAAAAAAAAAAAAAAAAAAAAAA"}), "not_found", ""),
        ("find_agents", json!({"topic": "a/b?c"}), "bad_format", "/topic"),
    ];
    for (tool, arguments, code, pointer) in table {
        let fault = alice.try_call(tool, arguments.clone()).await.unwrap_err().to_value();
        let told = (fault["code"].as_str().unwrap(), fault["pointer"].as_str().unwrap_or_default());
        assert_eq!(told, (code, pointer), "{tool} {arguments}: {fault}");
    }
    let call = json!({"id": "own", "task": "t", "to": ["mallory"], "wait_ms": 0});
    let negotiation = alice.call("call_for_offers", call).await["negotiation"].clone();
    mallory.call("refuse", json!({"negotiation": negotiation})).await;
    let fault = mallory.try_call("cancel", json!({"negotiation": negotiation})).await.unwrap_err().to_value();
    assert!(["unauthorized", "closed"].contains(&fault["code"].as_str().unwrap()), "{fault}");
    site.stop([alice, mallory]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_one_agent_eight_calls_wait_at_once() {
    let site = Site::start().await;
    let alice = site.user("alice");
    let places: Vec<_> = (0..8).map(|_| alice.1.wait_place().unwrap()).collect();
    let fault = alice.try_call("inbox", json!({"wait_ms": 1})).await.unwrap_err().to_value();
    assert_eq!((&fault["code"], &fault["retry_after_ms"]), (&json!("overloaded"), &json!(1000)));
    drop(places);
    alice.call("inbox", json!({"wait_ms": 0})).await;
    site.stop([alice]).await;
}
