use agents::Identity;
use agents::team::{Speaker as _, TeamPlanner as _, TeamView};
use schemas::control::AgentKind;
use schemas::delivery::Call;
use schemas::team::{TeamCall, TeamState};
use schemas::{Timestamp, WireTime};
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
    settle(&hub, "alice", "m", (Act::Join, Refusal::new(Code::NotFound, "no such team")));
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
fn the_chats_of_an_agent_that_has_ended_end_and_leave_room_for_its_next_ones() {
    let (hub, at) = (hub(), Instant::now());
    let opened = (0..CHATS_OF_LEAD_MAX).map(|number| {
        hub.open((team(&format!("led-{number}")), agent("bob"), TeamRules::default()), None, at).unwrap()
    });
    let mut opened: Vec<_> = opened.collect();
    deliver(&hub, "alice", at, "dave~n", call());
    deliver(&hub, "bob", at, "dave~n", call());
    hub.handle_gone(&agent("bob"));
    assert_eq!(open_count(&hub), 1, "alice hears of hers");
    assert!(
        opened
            .iter_mut()
            .all(|formed| formed.try_recv().is_err_and(|gone| gone == oneshot::error::TryRecvError::Closed))
    );
    assert!(hub.open((team("next"), agent("bob"), TeamRules::default()), None, at).is_ok());
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
    let call_to = |called: &str, id: &str| {
        deliver(&hub, called, at, id, call());
        let answer = HubClient(Arc::clone(&hub), agent(called)).join(&team(id), "", &team_call()).map(|_| ());
        if answer.is_ok() {
            transmit(&hub, called, id, Act::Join);
        }
        answer
    };
    let wish = |lead: &str, id: &str, at: Instant| {
        let rules = TeamRules { ends_within_ms: ENDS_WITHIN_MS, ..TeamRules::default() };
        hub.open((team(&format!("{lead}~{id}")), agent(lead), rules), None, at).map(|_| ())
    };
    let of_lead = format!("{CHATS_OF_LEAD_MAX} teams of one lead are open: no further one may be");
    let of_strangers = format!("{CHATS_OF_STRANGERS_MAX} teams of unregistered leads are open: no further one may be");
    // Agents of others together take no more than a share, and each of them less.
    for lead in ["carol", "dave"] {
        for number in 0..CHATS_OF_LEAD_MAX {
            assert_eq!(call_to("alice", &format!("{lead}~n{number}")), Ok(()));
        }
    }
    assert_eq!(call_to("alice", "carol~further"), Err(of_lead.clone()));
    assert_eq!(call_to("alice", "erin~n"), Err(of_strangers.clone()));
    // Another of the owner's agents is welcome where the chat is open.
    assert_eq!(call_to("bob", "carol~n0"), Ok(()));
    // A client that has never registered counts among them; one that has finds room.
    let refused = |refusal: Refusal| (refusal.code, refusal.detail);
    assert_eq!(refused(wish("bob", "n", at).unwrap_err()), (Code::Overloaded, of_strangers));
    for lead in ["alice", "bob"] {
        hub.note_info(&agent(lead), ClientInfo { name: lead.to_owned(), kind: AgentKind::Thing, desc: String::new() });
        for number in 0..CHATS_OF_LEAD_MAX {
            assert_eq!(wish(lead, &format!("n{number}"), at), Ok(()));
        }
    }
    assert_eq!(open_count(&hub), CHATS_OPEN_MAX);
    assert_eq!(wish("bob", "further", at).unwrap_err().detail, "256 teams in all are open: no further one may be");
    // Once the time of the teams is over there is room, whatever was heard of them.
    let later = at + Duration::from_millis(ENDS_WITHIN_MS) + LATENESS_MAX * 2;
    assert_eq!((wish("bob", "further", later).is_ok(), open_count(&hub)), (true, 1));
    for number in 1..CHATS_OF_LEAD_MAX {
        assert_eq!(wish("bob", &format!("m{number}"), later), Ok(()));
    }
    assert_eq!(refused(wish("bob", "m", later).unwrap_err()), (Code::Overloaded, of_lead));
}

#[test]
fn a_client_that_has_lost_its_socket_for_good_is_called_to_no_more_teams_until_it_opens_another() {
    let (hub, at) = (Arc::new(hub()), Instant::now());
    let is_welcome = |called: &str, at: Instant, id: &str| {
        deliver(&hub, called, at, id, call());
        HubClient(Arc::clone(&hub), agent(called)).join(&team(id), "", &team_call()).is_ok()
    };
    let (number, _frames) = hub.connect(&agent("alice"));
    hub.disconnect(&agent("alice"), number);
    // It has time to open another: it does not register again.
    assert!(is_welcome("alice", at + ABSENCE_MAX, "a"));
    assert!(!is_welcome("alice", at + ABSENCE_MAX * 2, "b"));
    // One that never had a socket is called like any other.
    assert!(is_welcome("bob", at + ABSENCE_MAX * 2, "b"));
    let (replaced, _frames) = hub.connect(&agent("alice"));
    let (_number, _frames) = hub.connect(&agent("alice"));
    hub.disconnect(&agent("alice"), replaced);
    assert!(is_welcome("alice", at + ABSENCE_MAX * 3, "c"));
}

#[test]
fn a_client_is_told_why_an_act_of_its_changed_nothing_whoever_says_so() {
    type Refuse = fn(&Hub, Instant);
    let refused = |reason: &str| format!("Your message was refused: {reason}");
    let cases: [(Refuse, Option<String>); 5] = [
        (
            |hub, at| {
                deliver(hub, "alice", at, "n", receipt("alice-say", "malformed"));
                let why = json!({"act": "not_understood", "reason": "unknown_member", "expected": ["say"],
                    "pointer": "/payload/next"});
                deliver(hub, "alice", at, "n", why);
            },
            Some(refused("unknown_member at /payload/next")),
        ),
        (|hub, at| deliver(hub, "alice", at, "n", receipt("alice-say", "stale_round")), Some(refused("stale_round"))),
        (
            |hub, _| {
                let refusal = Refusal::new(Code::OutOfRange, "too long").at("/payload/text");
                settle(hub, "alice", "n", (Act::Say, refusal));
            },
            Some(refused("out_of_range at /payload/text: too long")),
        ),
        // The agent makes it again by itself.
        (|hub, _| settle(hub, "alice", "n", (Act::Say, Refusal::new(Code::Overloaded, "no room"))), None),
        (|hub, at| deliver(hub, "alice", at, "n", receipt("other", "ok")), None),
    ];
    for (refuse, expected) in cases {
        let (hub, at) = (hub(), Instant::now());
        let (_, mut frames) = hub.connect(&agent("alice"));
        deliver(&hub, "alice", at, "n", call());
        transmit(&hub, "alice", "n", Act::Join);
        let floor = json!({"act": "floor", "step": 1, "turn": 1, "turns_left": 10, "state": "discussing", "speaker": "alice",
            "members": ["carol", "alice"], "ends_by": WireTime(Timestamp::from_ms(ENDS_WITHIN_MS))});
        deliver(&hub, "alice", at, "n", floor);
        let comm_id = hub.state.lock().open[&team("n")].chat.comm_id().to_owned();
        let frame = json!({"content": "words", "sender": "Trip Planner", "comm_id": comm_id, "state": 1, "type": 4});
        hub.handle_text(&agent("alice"), &frame.to_string()).unwrap();
        let (msg_id, document) =
            (MsgId::try_new("alice-say").unwrap(), json!({"payload": {"act": "say", "text": "words"}}));
        let (negotiation, document) = (&team("n"), &document.to_string().into());
        let sent = Observed::Transmitted { negotiation, msg_id: &msg_id, act: Act::Say, attempt: 1, document };
        hub.handle(&agent("alice"), at, sent);
        refuse(&hub, at);
        let told = frames.try_recv().ok().map(|text| serde_json::from_str::<Value>(&text).unwrap());
        let content = told.as_ref().map(|told| told["content"].as_str().unwrap().to_owned());
        assert_eq!(content, expected);
        assert!(told.is_none_or(|told| told["sender"] == "exchange"));
    }
}

#[test]
fn an_agent_keeps_the_floor_for_a_client_whose_act_was_refused_and_passes_where_that_is_refused_too() {
    let mut client = HubClient(Arc::new(hub()), agent("alice"));
    let mut view = TeamView::new(team("n"), agent("alice"), String::new(), agent("carol"), TeamRules::default());
    view.turn = 7;
    let why = ActRefusal::new("repeated");
    let kept = client.refused(&view, &TeamMove::say("words"), &why).unwrap();
    assert_eq!(kept, TeamMove::Say { text: "refused, turn 7".to_owned(), next: Some(agent("alice")) });
    assert_eq!(client.refused(&view, &kept, &why), None);
    view.state = TeamState::Concluding;
    assert_eq!(client.refused(&view, &TeamMove::Conclude { text: "the end".to_owned() }, &why), None);
}

fn open_count(hub: &Hub) -> usize {
    hub.state.lock().open.len()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

/// The team of this id, carol's where it does not say whose.
fn team(id: &str) -> NegotiationId {
    let id = if id.contains('~') { id.to_owned() } else { format!("carol~{id}") };
    NegotiationId::try_new(&id).unwrap()
}

fn team_call() -> TeamCall {
    let Notification::Cfp(Call { team, .. }) = serde_json::from_value(call()).unwrap() else { panic!("no call") };
    *team.unwrap()
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

fn settle(hub: &Hub, by: &str, id: &str, (act, refusal): (Act, Refusal)) {
    let msg_id = MsgId::try_new("m1").unwrap();
    let outcome = SendOutcome::Refused(refusal);
    let sent = &Sent { negotiation: team(id), msg_id, act, outcome, way: Default::default() };
    hub.handle(&agent(by), Instant::now(), Observed::Settled { sent, took: Duration::ZERO });
}
