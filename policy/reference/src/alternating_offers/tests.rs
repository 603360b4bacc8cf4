//! The reference by itself, against what docs/spec/alternating-offers.md says in words.

use std::sync::Arc;

use policy_core::{Limits, preset};
use schemas::bargain::Concession;
use schemas::digest::canonical;
use schemas::payload::Terms;
use schemas::policy::BargainRule;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, Qos, Record};
use schemas::{Act, AgentId, Digest, NegotiationId, Policy, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::mandate::conceded;
use crate::Reference;

const BEGIN: Timestamp = Timestamp(1_000_000_000);

#[test]
fn two_parties_rotate_until_one_accepts_what_the_other_offered() {
    let mut table = Table::of(&["ben"], json!({"rounds": 3}));
    assert!(table.says("ben", Act::Offer, &price(5)).contains(&"OutOfTurn".to_owned()));
    let first = table.offer("ann", 9);
    assert!(table.says("ann", Act::Offer, &price(8)).contains(&"OutOfTurn".to_owned()));
    let second = table.offer("ben", 2);
    assert!(table.says("ann", Act::Accept, &accept(&first, 9)).contains(&"standing".to_owned()));
    table.says("ann", Act::Accept, &accept(&second, 2));
    assert!(table.last.iter().any(|fact| fact.contains("agrees on")));
    assert_eq!(table.ends(), "Agreement");
}

#[test]
fn nothing_is_agreed_once_the_rounds_are_over() {
    let mut table = Table::of(&["ben", "cat"], json!({"rounds": 1}));
    table.offer("ann", 9);
    table.offer("ben", 2);
    table.offer("cat", 5);
    assert_eq!(table.ends(), "NoAgreement");
}

#[test]
fn an_offer_that_ran_out_stands_no_more_and_the_turn_stays() {
    let mut table = Table::of(&["ben"], json!({"rounds": 3}));
    let mut brief = price(9);
    brief["valid_for_ms"] = json!(50);
    let offer = table.says("ann", Act::Offer, &brief);
    let offer = id_in(&offer);
    table.now = table.now.plus_ms(51);
    assert!(table.says("ben", Act::Accept, &accept(&offer, 9)).contains(&"Expired".to_owned()));
    table.offer("ben", 4);
}

#[test]
fn who_speaks_out_of_turn_too_often_has_ended_the_bargain() {
    let mut table = Table::of(&["ben"], json!({"rounds": 3, "max_strikes": 2}));
    table.says("ben", Act::Offer, &price(1));
    table.says("ben", Act::Offer, &price(2));
    assert_eq!(table.ends(), "Ended");
}

#[test]
fn a_mandate_is_kept_by_the_exchange_and_its_policy_accepts() {
    let mut table = Table::empty();
    table.call(&["ben"], &json!({"rounds": 9}), &Value::Null);
    let mandate = json!({"policy": "delegate", "reservation": 500_000,
        "utility": {"linear": [{"issue": "price", "weight": 1000, "at_min": 1_000_000, "at_max": 0}]}});
    table.policy = Some(BargainRule::Any);
    table.says("ben", Act::Join, &json!({"mandate": mandate}));
    table.offer("ann", 9);
    let outside = table.says("ben", Act::Offer, &price(6));
    assert!(outside.contains(&"MandateViolation".to_owned()), "{outside:?}");
    table.offer("ben", 3);
    table.says("ann", Act::Offer, &price(5));
    assert_eq!(table.ends(), "Agreement");
}

#[test]
fn a_late_withdrawal_is_refused_and_an_early_one_leaves_the_turn() {
    let mut table = Table::of(&["ben", "cat"], json!({"rounds": 2}));
    table.offer("ann", 9);
    assert!(table.says("ann", Act::Withdraw, &json!({})).contains(&"Ok".to_owned()));
    let offer = table.offer("ben", 2);
    table.says("cat", Act::Accept, &accept(&offer, 2));
    assert!(table.says("ben", Act::Withdraw, &json!({})).contains(&"OutOfTurn".to_owned()));
    table.says("ann", Act::Accept, &accept(&offer, 2));
    assert_eq!(table.ends(), "Agreement");
}

#[test]
fn an_agreement_that_is_not_confirmed_by_all_is_none() {
    let mut table = Table::of(&["ben"], json!({"rounds": 2, "confirm_ms": 1000}));
    let offer = table.offer("ann", 9);
    table.says("ben", Act::Accept, &accept(&offer, 9));
    table.says("ben", Act::Confirm, &json!({"award_no": 1}));
    table.now = table.now.plus_ms(1001);
    table.fold(Entry::Tick);
    assert_eq!(table.ends(), "NoAgreement");
}

#[test]
fn on_a_lane_of_earlier_rules_there_are_no_bargains() {
    let mut table = Table::empty();
    table.fold(Entry::Engine { epoch: 1, event: EngineEvent::Rules { version: 0 } });
    table.call(&["ben"], &json!({"rounds": 1}), &Value::Null);
    assert!(table.last.iter().any(|fact| fact.contains("unsupported_rules")));
    assert_eq!(table.reference.counts(), (0, 0));
}

#[test]
fn what_is_conceded_is_rounded_down() {
    let cases = [
        (500_000, Concession::Linear, 500_000),
        (500_000, Concession::Boulware(2), 250_000),
        (333_333, Concession::Boulware(3), 37_036),
        (250_000, Concession::Conceder(2), 500_000),
        (500_000, Concession::Conceder(2), 707_106),
        (999_999, Concession::Boulware(8), 999_992),
        (1_000_000, Concession::Conceder(8), 1_000_000),
        (0, Concession::Conceder(8), 0),
    ];
    for (t, concession, expected) in cases {
        assert_eq!(conceded(t, concession), expected, "{t} {concession:?}");
    }
}

/// A lane with one bargain over a price of 0 to 10; ann calls.
struct Table {
    reference: Reference,
    seq: u64,
    now: Timestamp,
    last: Vec<String>,
    policy: Option<BargainRule>,
}

impl Table {
    fn empty() -> Self {
        let mut table =
            Self { reference: Reference::new(&Limits::default()), seq: 0, now: BEGIN, last: Vec::new(), policy: None };
        table.fold(Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } });
        table
    }

    /// Everybody has joined.
    fn of(invited: &[&str], rules: Value) -> Self {
        let mut table = Self::empty();
        table.call(invited, &rules, &Value::Null);
        for name in invited {
            table.says(name, Act::Join, &json!({}));
        }
        assert!(table.last.iter().any(|fact| fact.contains("Turn {")), "{:?}", table.last);
        table
    }

    fn call(&mut self, invited: &[&str], rules: &Value, mandate: &Value) {
        let mut bargain = json!({"issues": [{"name": "price", "min": 0, "max": 10}]});
        bargain.as_object_mut().unwrap().extend(rules.as_object().unwrap().clone());
        let mut payload = json!({"bargain": bargain, "reply_within_ms": 1000});
        if !mandate.is_null() {
            payload["mandate"] = mandate.clone();
        }
        let mut message = self.message("ann", Act::Cfp, &payload);
        let invited = invited
            .iter()
            .map(|name| Invitation { agent: agent(name), qos: Qos::AtLeastOnce, durable: false, reputation: None })
            .collect();
        message.pinned = Some(Arc::new(pinned(None, invited)));
        self.fold(Entry::Message(message));
    }

    /// The words of what follows.
    fn says(&mut self, name: &str, act: Act, payload: &Value) -> Vec<String> {
        let mut message = self.message(name, act, payload);
        message.pinned = self.policy.clone().map(|rule| Arc::new(pinned(Some(rule), Vec::new())));
        self.fold(Entry::Message(message));
        self.last.iter().flat_map(|fact| fact.split(' ')).map(str::to_owned).collect()
    }

    /// An offer that is taken; its id.
    fn offer(&mut self, name: &str, of: i64) -> String {
        let words = self.says(name, Act::Offer, &price(of));
        assert!(words.contains(&"Ok".to_owned()), "{words:?}");
        id_in(&words)
    }

    fn ends(&self) -> &str {
        let end = self.last.iter().find_map(|fact| fact.split(" ends ").nth(1));
        end.and_then(|end| end.split(' ').next()).unwrap_or_default()
    }

    fn message(&self, name: &str, act: Act, payload: &Value) -> AdmittedMessage {
        let mut payload = payload.clone();
        payload["act"] = json!(act);
        let envelope = json!({"msg_id": format!("m{}", self.seq), "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{name}")});
        let body = canonical(&json!({"envelope": envelope, "payload": payload})).expect("integers and texts");
        AdmittedMessage {
            from: agent(name),
            negotiation: NegotiationId::try_new("ann~job").expect("an id"),
            act,
            digest: Digest::of_bytes(&body),
            body: RawValue::from_string(String::from_utf8(body).expect("JSON")).expect("JSON").into(),
            pinned: None,
            receipts_all: true,
            capabilities: Vec::new(),
        }
    }

    fn fold(&mut self, entry: Entry) {
        self.seq += 1;
        self.now = self.now.plus_ms(1);
        self.last = self.reference.fold(self.seq, self.now, &Record::new("test", vec![entry]));
    }
}

fn pinned(rule: Option<BargainRule>, invited: Vec<Invitation>) -> Pinned {
    let medium = preset("medium").expect("a preset");
    let policy = Policy { id: "delegate@1".to_owned(), bargain: rule, ..medium };
    Pinned {
        policy_digest: policy.digest().expect("integers"),
        policy: Arc::new(policy),
        invited,
        left_out: 0,
        task_policy: None,
        panel: None,
    }
}

fn price(of: i64) -> Value {
    json!({"terms": {"price": of}})
}

fn accept(offer: &str, of: i64) -> Value {
    let terms: Terms = serde_json::from_value(json!({"price": of})).expect("terms");
    json!({"offer_id": offer, "terms_digest": Digest::of(&terms).expect("terms")})
}

/// The offer id a receipt names, as `Some(OfferId(Position { seq: S, index: I }))` in words.
fn id_in(words: &[String]) -> String {
    let after = |word: &str| {
        let at = words.iter().position(|one| one == word).expect("a receipt of an offer");
        words[at + 1].chars().filter(char::is_ascii_digit).collect::<String>()
    };
    format!("o{}-{}", after("seq:"), after("index:"))
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).expect("a name")
}
