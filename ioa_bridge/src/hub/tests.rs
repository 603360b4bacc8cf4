use agents::Identity;
use agents::strategy::Sent;
use schemas::WireTime;
use schemas::delivery::Call;
use serde_json::{Value, json};

use super::*;

/// The hard end of the teams that `alice` and `bob` are called to here, in milliseconds from the call.
const ENDS_WITHIN_MS: u64 = 20_000;

#[test]
fn a_chat_ends_once_none_of_the_owners_agents_can_hear_more_of_its_team() {
    let (hub, at) = (hub(), Instant::now());
    // Both are called, join, and get no seat: the one hears that it is outscored, the other that it is late.
    for agent in ["alice", "bob"] {
        deliver(&hub, agent, at, "n", call());
        transmit(&hub, agent, "n", Act::Join);
    }
    assert_eq!(open_count(&hub), 1);
    deliver(&hub, "alice", at, "n", json!({"act": "reject", "reason": "outscored"}));
    assert_eq!(open_count(&hub), 1, "bob may get a seat");
    deliver(&hub, "bob", at, "n", receipt("other", "late"));
    assert_eq!(open_count(&hub), 1, "no receipt of its join");
    deliver(&hub, "bob", at, "n", receipt("bob-join", "late"));
    assert_eq!((open_count(&hub), hub.records().len()), (0, 0));

    // A join that is repeated, and was applied, goes on; one that no gateway takes does not.
    deliver(&hub, "alice", at, "m", call());
    transmit(&hub, "alice", "m", Act::Join);
    let mut repeated = receipt("alice-join", "duplicate");
    repeated["first"] = json!("ok");
    deliver(&hub, "alice", at, "m", repeated);
    assert_eq!(open_count(&hub), 1);
    settle(&hub, "alice", "m", Refusal::new(Code::NotFound, "no such team"));
    assert_eq!(open_count(&hub), 0);

    // A client that leads a team hears of it whoever else does not.
    let rules = TeamRules::default();
    let _formed = hub.open((team("led"), agent("bob"), rules), None, at).unwrap();
    deliver(&hub, "alice", at, "led", call());
    transmit(&hub, "alice", "led", Act::Join);
    deliver(&hub, "alice", at, "led", receipt("alice-join", "late"));
    assert_eq!(open_count(&hub), 1);
}

#[test]
fn a_chat_of_whose_end_nothing_was_heard_ends_by_the_hard_end_of_its_team() {
    let (hub, at) = (hub(), Instant::now());
    let (_, mut frames) = hub.connect(&agent("alice"));
    deliver(&hub, "alice", at, "n", call());
    transmit(&hub, "alice", "n", Act::Join);
    let members = ["carol", "alice"];
    let floor = json!({"act": "floor", "step": 1, "turn": 1, "turns_left": 10, "state": "discussing", "speaker": "carol",
        "members": members, "ends_by": WireTime(Timestamp::from_ms(ENDS_WITHIN_MS))});
    deliver(&hub, "alice", at, "n", floor);
    let rules = TeamRules { ends_within_ms: ENDS_WITHIN_MS, ..TeamRules::default() };
    let mut forming = hub.open((team("led"), agent("bob"), rules.clone()), None, at).unwrap();
    let end = at + Duration::from_millis(ENDS_WITHIN_MS) + LATENESS_MAX;
    deliver(&hub, "bob", end, "elsewhere", receipt("any", "ok"));
    assert_eq!((open_count(&hub), frames.try_recv().is_err()), (2, true), "not before");
    deliver(&hub, "bob", end + Duration::from_millis(1), "elsewhere", receipt("any", "ok"));
    assert_eq!((open_count(&hub), hub.records().len()), (0, 1));
    let told: Value = serde_json::from_str(&frames.try_recv().unwrap()).unwrap();
    assert_eq!((&told["type"], &told["sender"]), (&json!(11), &json!("exchange")));
    assert_eq!(forming.try_recv().unwrap().unwrap_err().code, Code::Unavailable);
}

#[test]
fn a_call_is_declined_while_as_many_chats_are_open_as_may_be() {
    let (hub, at) = (Arc::new(hub()), Instant::now());
    let mut planner = ClientPlanner(Arc::clone(&hub));
    let called: Call = {
        let Notification::Cfp(call) = serde_json::from_value(call()).unwrap() else { panic!("no call") };
        call
    };
    let called = called.team.unwrap();
    for number in 0..CHATS_OPEN_MAX {
        let id = format!("n{number}");
        deliver(&hub, "alice", at, &id, call());
        assert!(planner.join(&team(&id), "", &called).is_ok());
        transmit(&hub, "alice", &id, Act::Join);
    }
    deliver(&hub, "alice", at, "further", call());
    assert!(planner.join(&team("further"), "", &called).is_err());
    // Another of the owner's agents is welcome where the chat is open.
    deliver(&hub, "bob", at, "n0", call());
    assert!(planner.join(&team("n0"), "", &called).is_ok());
    let wish = |at: Instant| hub.open((team("led"), agent("bob"), TeamRules::default()), None, at).map(|_| ());
    assert_eq!(wish(at).unwrap_err().code, Code::Overloaded);
    // Once the time of the teams is over there is room, whatever was heard of them.
    let later = at + Duration::from_millis(ENDS_WITHIN_MS) + LATENESS_MAX * 2;
    assert_eq!((wish(later).is_ok(), open_count(&hub)), (true, 1));
}

fn open_count(hub: &Hub) -> usize {
    hub.state().open.len()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn team(id: &str) -> NegotiationId {
    NegotiationId::try_new(&format!("carol~{id}")).unwrap()
}

fn hub() -> Hub {
    let named = [("Trip Planner", "alice"), ("Weather Man", "bob")];
    let identity = |id: &str| Identity { agent: agent(id), token: "token".into() };
    Hub::new(Arc::new(NameBook::try_new(named.map(|(name, id)| (name.to_owned(), identity(id)))).unwrap()))
}

fn call() -> Value {
    let ends_by = WireTime(Timestamp::from_ms(ENDS_WITHIN_MS));
    json!({"act": "cfp", "round": 1, "reply_by": WireTime(Timestamp::from_ms(1000)), "ends_by": ends_by, "policy": "team",
        "policy_digest": "0".repeat(64), "lots": 1,
        "team": {"lead": "carol", "rules": TeamRules::default(), "depth_left": 0}})
}

fn receipt(of: &str, disposition: &str) -> Value {
    json!({"act": "ack", "ack_of": of, "disposition": disposition})
}

fn deliver(hub: &Hub, to: &str, at: Instant, id: &str, payload: Value) {
    let envelope = json!({"msg_id": "0".repeat(32), "ts": WireTime(Timestamp::from_ms(0)), "from": "exchange://llmx",
        "to": [format!("agent://{to}")], "negotiation": team(id)});
    let delivery = serde_json::from_value(json!({"envelope": envelope, "payload": payload})).unwrap();
    hub.handle(&agent(to), at, Observed::Delivered { delivery: &delivery, is_repeat: false });
}

fn transmit(hub: &Hub, by: &str, id: &str, act: Act) {
    let (negotiation, msg_id) = (&team(id), &MsgId::try_new(&format!("{by}-{}", act.as_str())).unwrap());
    let sent = Observed::Transmitted { negotiation, msg_id, act, attempt: 1, document: &Default::default() };
    hub.handle(&agent(by), Instant::now(), sent);
}

fn settle(hub: &Hub, by: &str, id: &str, refusal: Refusal) {
    let msg_id = MsgId::try_new("m1").unwrap();
    let outcome = SendOutcome::Refused(refusal);
    let sent = &Sent { negotiation: team(id), msg_id, act: Act::Join, outcome, way: Default::default() };
    hub.handle(&agent(by), Instant::now(), Observed::Settled { sent, took: Duration::ZERO });
}
