use schemas::payload::Terms;
use schemas::{Digest, WireTime};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::bargain::{BargainPlan, Bargainer};
use crate::contractor::{Contractor, ContractorConfig};
use crate::panel::{AskReply, PanelMember, Panelist};
use crate::team::{TeamAgent, WillingPlanner};

const T0: Timestamp = Timestamp::from_ms(1_760_000_000_000);

/// Answers every ask.
struct Seat;

impl Panelist for Seat {
    fn answer(&mut self, _panel: &NegotiationId, ask: &schemas::delivery::Ask) -> AskReply {
        AskReply::answer(ask, Some("42".to_owned()))
    }

    fn refused(&mut self, _: &NegotiationId, _: &ActRefusal, _: Option<&schemas::delivery::Ask>) -> AskReply {
        AskReply::Silence
    }
}

#[test]
fn every_kind_of_agent_refuses_at_once_what_it_takes_no_part_in() {
    let agent = schemas::AgentId::try_new("bob").unwrap();
    let (events, _events) = mpsc::channel(64);
    let (jobs, _jobs) = mpsc::channel(64);
    let none = |_: &NegotiationId, _: &schemas::delivery::BargainCall, _: usize| Err::<BargainPlan, _>("no".to_owned());
    let planner = WillingPlanner { joins_with: Terms::new(), offers: Terms::new() };
    let agents: [(&str, Box<dyn Strategy>, [Act; 4]); 4] = [
        (
            "contractor",
            Box::new(Contractor::try_new(&agent, ContractorConfig::default()).unwrap()),
            [Act::Offer, Act::Refuse, Act::Refuse, Act::Refuse],
        ),
        ("bargainer", Box::new(Bargainer::new(agent.clone(), none, events)), [Act::Refuse; 4]),
        (
            "member of teams",
            Box::new(TeamAgent::new(agent.clone(), planner, jobs)),
            [Act::Refuse, Act::Refuse, Act::Join, Act::Refuse],
        ),
        ("panelist", Box::new(PanelMember::new(Seat)), [Act::Refuse, Act::Refuse, Act::Refuse, Act::Answer]),
    ];
    let bargain =
        json!({"parties": ["alice", "bob"], "rules": {"issues": [{"name": "price", "min": 1, "max": 9}], "rounds": 3}});
    let told = [
        call(json!({})),
        call(json!({"bargain": bargain})),
        call(json!({"team": {"lead": "alice", "rules": {}, "depth_left": 1}})),
        json!({"act": "ask", "round": 1, "task": "Which?", "answer": {"kind": "exact"}, "answer_by": WireTime(T0.plus_ms(9_000)),
            "ends_by": WireTime(T0.plus_ms(60_000))}),
    ];
    for (kind, mut agent, acts) in agents {
        for ((number, told), act) in (0..).zip(&told).zip(acts) {
            let actions = agent.handle(T0, &delivery(number, told));
            let [Action::Send(said)] = &actions[..] else { panic!("{kind}: {told}: {actions:?}") };
            assert_eq!((said.payload.act(), said.delay), (act, Duration::ZERO), "{kind}: {told}");
        }
    }
}

fn call(members: Value) -> Value {
    let mut call = json!({"act": "cfp", "task": "anything", "round": 1, "reply_by": WireTime(T0.plus_ms(500)),
        "ends_by": WireTime(T0.plus_ms(60_000)), "policy": "high", "policy_digest": Digest([0; 32]), "lots": 1});
    call.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    call
}

fn delivery(number: u8, payload: &Value) -> Delivery {
    let envelope = json!({"msg_id": format!("{number:032x}"), "ts": WireTime(T0), "from": "exchange://llmx",
        "to": ["agent://bob"], "negotiation": format!("alice~n{number}")});
    serde_json::from_value(json!({"envelope": envelope, "payload": payload})).unwrap()
}
