//! A run made by hand: alice calls bob and carl, carl is awarded, confirms and is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::LogRecord;
use bytes::Bytes;
use policy_core::{Deliver, Effect, LaneState, Limits, preset};
use schemas::delivery::{Delivery, DeliveryEnvelope, EXCHANGE};
use schemas::digest::canonical;
use schemas::evidence::EvidenceSource;
use schemas::ids::{AttrName, DomainName};
use schemas::payload::{AttrValue, Terms};
use schemas::policy::ReputationRule;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, Qos, Record};
use schemas::{Act, AgentId, Digest, DocumentHash, Lane, NegotiationId, Policy, Timestamp, WireTime};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::msg_id;
use crate::trace::{AnnouncedDigest, Answer, JournalEntry, Noted, QueueLoad, StoredLedger, Trace};

const BEGIN: Timestamp = Timestamp(1_000_000_000);

/// Carl offers less than bob, is awarded, confirms, and is done; everything is received and acknowledged.
pub(super) fn round() -> Trace {
    run(7)
}

/// The same up to bob's offer.
pub(super) fn unfinished_round() -> Trace {
    let mut trace = run(3);
    trace.is_liveness = false;
    trace
}

/// Alice, bob and carl bargain over a price; bob has a mandate. Alice offers 5, and both accept.
pub(super) fn bargain() -> Trace {
    let rules = json!({"issues": [{"name": "price", "min": 0, "max": 9}], "rounds": 3, "step_ms": 5000});
    let call = json!({"act": "cfp", "reply_within_ms": 5000, "bargain": rules});
    let limit = json!({"attr": "price", "op": "le", "value": 5});
    let offered = Terms::from([(AttrName::try_new("price").expect("a name"), AttrValue::Int(5))]);
    let terms_digest = Digest::of(&offered).expect("terms");
    let accept = json!({"act": "accept", "offer_id": "o5-0", "terms_digest": terms_digest});
    let mut making = Making::new(pinned(&["bob", "carl"], |_| ()));
    making.append(Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } });
    making.say(1, &agent("alice"), Act::Cfp, call);
    making.say(2, &agent("bob"), Act::Join, json!({"act": "join", "mandate": {"limits": [limit]}}));
    making.say(3, &agent("carl"), Act::Join, json!({"act": "join"}));
    making.say(4, &agent("alice"), Act::Offer, json!({"act": "offer", "terms": offered}));
    making.say(5, &agent("bob"), Act::Accept, accept.clone());
    making.say(6, &agent("carl"), Act::Accept, accept);
    making.append(Entry::Tick);
    making.trace
}

/// Alice asks bob, carl and dora, who answer A, B and C, then B alike, and rate each other.
pub(super) fn panel() -> Trace {
    panel_under(json!({}), pinned(&["bob", "carl", "dora"], |_| ()))
}

/// The same, with seats chosen among the three; the call pins this reputation of each.
pub(super) fn choosing_panel(ppm: Option<u64>) -> Trace {
    let pinned = pinned(&["bob", "carl", "dora"], |_| ());
    let invited = pinned.invited.into_iter().map(|one| Invitation { reputation: ppm, ..one }).collect();
    panel_under(json!({"choose": {"keep": 3, "min_runs": 1}}), Pinned { invited, ..pinned })
}

fn panel_under(further: Value, pinned: Pinned) -> Trace {
    let choice = json!({"kind": "choice", "options": ["A", "B", "C"]});
    let mut rules = json!({"rounds": 2, "asking": "all", "answer": choice});
    if let (Some(rules), Value::Object(further)) = (rules.as_object_mut(), further) {
        rules.extend(further);
    }
    let mut making = Making::new(pinned);
    making.append(Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } });
    making.say(1, &agent("alice"), Act::Cfp, json!({"act": "cfp", "task": "which?", "panel": rules}));
    let first = [("bob", "A"), ("carl", "B"), ("dora", "C")];
    for (number, (name, answer)) in (2..).zip(first) {
        making.say(number, &agent(name), Act::Answer, json!({"act": "answer", "round": 1, "answer": answer}));
    }
    for (number, (name, ratings)) in (5..).zip([("bob", [5, 1]), ("carl", [2, 4]), ("dora", [1, 3])]) {
        let answer = json!({"act": "answer", "round": 2, "answer": "B", "ratings": ratings});
        making.say(number, &agent(name), Act::Answer, answer);
    }
    making.append(Entry::Tick);
    let evidence = making.lane_state.evidence().published(making.seq);
    making.trace.ledgers.push(StoredLedger { lane: Lane(0), last_seq: making.seq, evidence });
    making.trace
}

/// The round under a policy that weighs reputation; the call pins this one of both.
pub(super) fn reputed_round(ppm: u64) -> Trace {
    let pinned = pinned(&["bob", "carl"], |policy| {
        let domain = DomainName::try_new("general").expect("a name");
        let rule = ReputationRule { domain, from: EvidenceSource::Own, min_runs: 1, prior_runs: 0 };
        policy.reputation = Some(rule);
    });
    let invited = pinned.invited.into_iter().map(|one| Invitation { reputation: Some(ppm), ..one }).collect();
    run_under(7, Pinned { invited, ..pinned })
}

pub(super) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).expect("a name")
}

pub(super) fn receipt(at: Timestamp, delivery: Delivery) -> JournalEntry {
    let digest = Digest::of(&delivery).expect("a delivery");
    let id = delivery.envelope.msg_id;
    JournalEntry { at, kind: Noted::Received { id, digest, is_repeat: false, delivery: Arc::new(delivery) } }
}

/// The first `length` records of the round, a tick at its end, and what they lead to.
fn run(length: usize) -> Trace {
    run_under(length, pinned(&["bob", "carl"], |_| ()))
}

fn run_under(length: usize, pinned: Pinned) -> Trace {
    let [first, second] = ["first", "second"].map(|name| DocumentHash::of_bytes(name.as_bytes()));
    let offer =
        |price: i64| json!({"act": "offer", "terms": {"price": price, "delivery_ms": 0}, "documents": [second, first]});
    let call =
        json!({"act": "cfp", "task": "a job", "reply_within_ms": 5000, "documents": {"hashes": [first, second]}});
    let done = json!({"act": "inform", "kind": "done", "routine": {"kind": "native", "hash": first}});
    let script: [(&str, Act, Value); 5] = [
        ("alice", Act::Cfp, call),
        ("bob", Act::Offer, offer(500)),
        ("carl", Act::Offer, offer(400)),
        ("carl", Act::Confirm, json!({"act": "confirm", "award_no": 1})),
        ("carl", Act::Inform, done),
    ];
    let mut making = Making::new(pinned);
    making.append(Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } });
    for (number, (from, act, payload)) in (1..).zip(script).take(length - 1) {
        making.say(number, &agent(from), act, payload);
    }
    making.append(Entry::Tick);
    making.trace
}

struct Making {
    trace: Trace,
    lane_state: LaneState,
    seq: u64,
    /// What a call is pinned to.
    pinned: Arc<Pinned>,
}

impl Making {
    fn new(pinned: Pinned) -> Self {
        let invited = pinned.invited.iter().map(|one| one.agent.clone());
        let journals = std::iter::once(agent("alice")).chain(invited).map(|agent| {
            let connected = JournalEntry { at: BEGIN, kind: Noted::Connected };
            (agent, vec![connected])
        });
        let trace = Trace {
            seed: 1,
            is_liveness: true,
            lanes: 1,
            journals: journals.collect(),
            loads: BTreeMap::from([(
                "engine-1 outbox".to_owned(),
                QueueLoad { seen_max: 3, limit: 10, is_asked_between_records: false },
            )]),
            ended_at: BEGIN.plus_ms(10_000),
            ..Trace::default()
        };
        let lane_state = LaneState::new(Lane(0), Limits::default());
        Self { trace, lane_state, seq: 0, pinned: Arc::new(pinned) }
    }

    /// A message is sent, logged, answered 202.
    fn say(&mut self, number: usize, from: &AgentId, act: Act, payload: Value) {
        let negotiation = NegotiationId::try_new("alice~job").expect("an id");
        let own = if act == Act::Cfp { "job" } else { "alice~job" };
        let envelope = json!({"msg_id": msg_id(number), "ts": "2026-01-01T00:00:00Z",
                              "from": format!("agent://{from}"), "negotiation": own});
        let body = canonical(&json!({"envelope": envelope, "payload": payload})).expect("integers and texts");
        let digest = Digest::of_bytes(&body);
        self.note(
            from,
            Noted::Sent {
                negotiation: negotiation.clone(),
                msg_id: msg_id(number),
                act,
                attempt: 1,
                digest,
                document: Bytes::from(body.clone()),
                token_of: from.clone(),
            },
        );
        let body = RawValue::from_string(String::from_utf8(body).expect("JSON")).expect("JSON");
        let pinned = (act == Act::Cfp).then(|| Arc::clone(&self.pinned));
        let message = AdmittedMessage {
            from: from.clone(),
            negotiation: negotiation.clone(),
            act,
            digest,
            body: body.into(),
            pinned,
            receipts_all: true,
            capabilities: Vec::new(),
        };
        self.append(Entry::Message(message));
        let answer = Answer::Accepted { seq: self.seq, index: 0 };
        self.note(from, Noted::Answered { negotiation, msg_id: msg_id(number), attempt: 1, answer });
    }

    /// A record is stored, folded, and does what it leads to.
    fn append(&mut self, entry: Entry) {
        self.seq += 1;
        let record = Record::new("test", vec![entry]);
        let time = BEGIN.plus_ms(self.seq * 10);
        let bytes = record.encode().expect("a record").into();
        self.trace.records.push(LogRecord { lane: Lane(0), seq: self.seq, time, stamped: time, bytes });
        self.lane_state.handle_record(self.seq, time, &record);
        while let Some(effect) = self.lane_state.poll_effect() {
            match effect {
                Effect::Deliver(deliver) => self.deliver(&deliver, time),
                Effect::Register(write) => {
                    let value = canonical(&write.value).expect("integers and texts").into();
                    self.trace.registered_at.insert(write.key.clone(), time);
                    self.trace.register.push((write.key, value));
                }
                Effect::Notice(_) | Effect::Event(_) => {}
            }
        }
        self.trace.digests.push(AnnouncedDigest {
            engine: "engine-1".to_owned(),
            lane: Lane(0),
            position: self.seq,
            digest: self.lane_state.digest().to_string(),
        });
    }

    fn deliver(&mut self, deliver: &Deliver, at: Timestamp) {
        let envelope = DeliveryEnvelope {
            msg_id: deliver.id,
            ts: WireTime(deliver.at),
            from: deliver.from.as_ref().map_or(EXCHANGE.to_owned(), |agent| format!("agent://{agent}")),
            to: [format!("agent://{}", deliver.to)],
            negotiation: deliver.negotiation.clone(),
            in_reply_to: deliver.in_reply_to.clone(),
            traceparent: None,
        };
        let received =
            receipt(at, Delivery { envelope, payload: (*deliver.told).clone(), receipts: deliver.receipts.to_vec() });
        self.trace.journals.get_mut(&deliver.to).expect("known").push(received);
        self.note(&deliver.to, Noted::Acknowledged { ids: vec![deliver.id] });
    }

    fn note(&mut self, agent: &AgentId, kind: Noted) {
        let at = BEGIN.plus_ms(self.seq * 10);
        self.trace.journals.get_mut(agent).expect("known").push(JournalEntry { at, kind });
    }
}

fn pinned(invited: &[&str], change: impl FnOnce(&mut Policy)) -> Pinned {
    let mut policy = preset("high").expect("a preset");
    change(&mut policy);
    let invited = invited.iter().map(|name| Invitation {
        agent: agent(name),
        qos: Qos::AtLeastOnce,
        durable: false,
        reputation: None,
    });
    Pinned {
        policy_digest: policy.digest().expect("integers and texts"),
        policy: Arc::new(policy),
        invited: invited.collect(),
        left_out: 0,
        task_policy: None,
        panel: None,
    }
}
