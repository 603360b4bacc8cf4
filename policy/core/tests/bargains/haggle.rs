//! A bargain as a script: alice calls bob (and carol) over one price from 0 to 100, and everybody joins.

use std::sync::Arc;

use policy_core::lane::RULES_VERSION;
use policy_core::{Effect, preset};
use schemas::policy::BargainRule;
use schemas::record::{AdmittedMessage, EngineEvent, Entry};
use schemas::{Act, Digest, OfferId, Policy};
use serde_json::{Value, json};

use crate::script::{INITIATOR, Script, pinned};

/// Time one turn may take.
pub(crate) const STEP_MS: u64 = 1000;
/// Everybody has joined by then, and the bargain begins.
pub(crate) const BEGIN_MS: u64 = 10;

/// A lane with one bargain.
pub(crate) struct Haggle {
    pub(crate) script: Script,
}

/// An offer that was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    pub(crate) id: OfferId,
    pub(crate) digest: Digest,
}

/// Three rounds, unless `change` says otherwise.
pub(crate) fn rules(change: Value) -> Value {
    let mut rules = json!({
        "issues": [{"name": "price", "min": 0, "max": 100}], "rounds": 3, "step_ms": STEP_MS,
    });
    merge(&mut rules, change);
    rules
}

/// A policy that accepts by a rule, as gateways pin it.
pub(crate) fn delegate(rule: BargainRule) -> Policy {
    Policy { id: "delegate@1".to_owned(), bargain: Some(rule), ..preset("bargain-low").expect("a preset") }
}

impl Haggle {
    /// A lane that has its rules, and nothing else.
    pub(crate) fn empty() -> Self {
        let mut script = Script::empty();
        script.engine(0, 0, EngineEvent::Rules { version: RULES_VERSION });
        Self { script }
    }

    /// Between `parties`, the first of which is alice.
    pub(crate) fn between(parties: &[&str], change: Value) -> Self {
        Self::under(parties, change, |_| None)
    }

    /// As [`Self::between`], each party with the mandate (and pinned policy) `mandate` gives it.
    pub(crate) fn under(
        parties: &[&str],
        change: Value,
        mandate: impl Fn(&str) -> Option<(Value, Option<Policy>)>,
    ) -> Self {
        let mut haggle = Self::empty();
        haggle.call(&parties[1..], rules(change), mandate(INITIATOR));
        for party in &parties[1..] {
            haggle.join(BEGIN_MS, party, mandate(party));
        }
        haggle
    }

    pub(crate) fn call(
        &mut self,
        invited: &[&str],
        rules: Value,
        mandate: Option<(Value, Option<Policy>)>,
    ) -> Vec<String> {
        let mut payload = json!({"bargain": rules, "reply_within_ms": 100});
        let (mandate, policy) = mandate.map_or((None, None), |(mandate, policy)| (Some(mandate), policy));
        mandate.into_iter().for_each(|mandate| payload["mandate"] = mandate);
        self.script.call(0, policy.unwrap_or_else(|| preset("medium").expect("a preset")), invited, payload, json!({}))
    }

    pub(crate) fn join(&mut self, at_ms: u64, who: &str, mandate: Option<(Value, Option<Policy>)>) -> Vec<String> {
        let (payload, policy) = match mandate {
            Some((mandate, policy)) => (json!({"mandate": mandate}), policy),
            None => (json!({}), None),
        };
        let mut message = self.script.message(who, Act::Join, payload, json!({}));
        message.pinned = policy.map(|policy| Arc::new(pinned(policy, &[])));
        self.send(at_ms, message)
    }

    pub(crate) fn send(&mut self, at_ms: u64, message: AdmittedMessage) -> Vec<String> {
        self.script.fold(at_ms, vec![Entry::Message(message)])
    }

    pub(crate) fn say(&mut self, at_ms: u64, who: &str, act: Act, payload: Value) -> Vec<String> {
        self.script.say(at_ms, who, act, payload)
    }

    pub(crate) fn offer(&mut self, at_ms: u64, who: &str, price: i64) -> Vec<String> {
        self.offer_with(at_ms, who, price, json!({}))
    }

    pub(crate) fn offer_with(&mut self, at_ms: u64, who: &str, price: i64, change: Value) -> Vec<String> {
        let mut payload = json!({"terms": {"price": price}});
        merge(&mut payload, change);
        self.say(at_ms, who, Act::Offer, payload)
    }

    /// Makes an offer that must stand.
    pub(crate) fn made(&mut self, at_ms: u64, who: &str, price: i64) -> Made {
        self.made_with(at_ms, who, price, json!({}))
    }

    pub(crate) fn made_with(&mut self, at_ms: u64, who: &str, price: i64, change: Value) -> Made {
        let texts = self.offer_with(at_ms, who, price, change);
        assert_eq!(texts[0], format!("{who}<ack:ok"));
        Made { id: self.script.offer_id(who), digest: Digest::of(&json!({"price": price})).expect("canonical") }
    }

    pub(crate) fn accept(&mut self, at_ms: u64, who: &str, offer: Made) -> Vec<String> {
        self.say(at_ms, who, Act::Accept, json!({"offer_id": offer.id, "terms_digest": offer.digest}))
    }

    pub(crate) fn end(&mut self, at_ms: u64, who: &str) -> Vec<String> {
        self.say(at_ms, who, Act::End, json!({}))
    }

    pub(crate) fn withdraw(&mut self, at_ms: u64, who: &str) -> Vec<String> {
        self.say(at_ms, who, Act::Withdraw, json!({}))
    }

    /// What every effect so far would show to whoever prints it.
    pub(crate) fn everything_shown(&self) -> String {
        let effects: &[Effect] = &self.script.effects;
        format!("{effects:?}")
    }
}

pub(crate) fn merge(document: &mut Value, change: Value) {
    let Value::Object(change) = change else { panic!("members to merge") };
    for (name, value) in change {
        document[name] = value;
    }
}
