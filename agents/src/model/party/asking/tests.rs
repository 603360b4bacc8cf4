use schemas::{Digest, WireTime};
use serde_json::{Value, json};

use super::*;
use crate::bargain::{Domain, Space, StrategyKind};

const T0: Timestamp = Timestamp::from_ms(1_760_000_000_000);

#[test]
fn the_text_of_a_call_is_kept_while_its_bargain_is_open_and_of_other_calls_not_at_all() {
    let domain = Domain::parse(include_str!("../../../../../domains/ecommerce.json")).unwrap();
    let (mut asking, _events) = party(&domain);
    for own in ["n1", "n2", "n3"] {
        let refused = asking.handle(T0, &call(own, T0, &json!({"task": "carry a parcel"})));
        assert!(matches!(refused[..], [Action::Send(_)]), "{refused:?}");
    }
    assert!(asking.tasks.is_empty(), "{:?}", asking.tasks);
    let rules = json!({"task": "sell me one", "bargain": {"parties": ["alice", "bob"], "rules": domain.bargain()}});
    for (own, began) in [("b1", T0), ("b2", T0.plus_ms(10_000))] {
        asking.handle(began, &call(own, began, &rules));
    }
    assert_eq!(asking.tasks.len(), 2);
    // The first has ended unheard of, the second says so.
    asking.handle(T0.plus_ms(62_000), &call("n4", T0.plus_ms(62_000), &json!({})));
    assert_eq!(asking.tasks.keys().cloned().collect::<Vec<_>>(), [id("b2")]);
    asking.handle(
        T0.plus_ms(62_000),
        &told("b2", json!({"act": "closed", "outcome": "cancelled", "digest": Digest([0; 32])})),
    );
    assert!(asking.tasks.is_empty(), "{:?}", asking.tasks);
}

fn party(domain: &Domain) -> (ModelBargainer, mpsc::Receiver<BargainEvent>) {
    let (events_sender, events) = mpsc::channel(64);
    let planner = DomainPlanner::try_new(domain, 1, StrategyKind::Linear, 1).unwrap();
    let config = serde_json::from_value(json!({"model": {}, "party": {"instructions": "Buy."}})).unwrap();
    let space = Space::try_new(domain.bargain().issues).unwrap();
    let preferences = domain.preferences(1).unwrap();
    let agent = AgentId::try_new("bob").unwrap();
    let asking = ModelBargainer {
        agent: agent.clone(),
        bargainer: Bargainer::new(agent, planner.clone(), events_sender),
        table: PartyTable { space, preferences, config: Arc::new(config), marker_seed: 5 },
        planner,
        held: BTreeMap::new(),
        tasks: BTreeMap::new(),
        last_number: 0,
        questions: VecDeque::new(),
    };
    (asking, events)
}

/// A call that ends within a second.
fn call(own: &str, now: Timestamp, members: &Value) -> Delivery {
    let mut call = json!({"act": "cfp", "round": 1, "reply_by": WireTime(now.plus_ms(500)), "ends_by": WireTime(now.plus_ms(1_000)),
        "policy": "high", "policy_digest": Digest([0; 32]), "lots": 1});
    call.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    told(own, call)
}

fn told(own: &str, payload: Value) -> Delivery {
    let envelope = json!({"msg_id": format!("{:032x}", own.len()), "ts": WireTime(T0), "from": "exchange://llmx",
        "to": ["agent://bob"], "negotiation": id(own)});
    serde_json::from_value(json!({"envelope": envelope, "payload": payload})).unwrap()
}

fn id(own: &str) -> NegotiationId {
    NegotiationId::try_new(&format!("alice~{own}")).unwrap()
}
