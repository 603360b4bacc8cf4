//! Log entries as gateways write them.

use std::sync::Arc;

use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, Invitation, Pinned, Qos};
use schemas::{Act, AgentId, Digest, MsgId, NegotiationId, Policy};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The parts of a message.
pub(crate) struct Draft<'a> {
    pub(crate) from: &'a AgentId,
    pub(crate) negotiation: &'a NegotiationId,
    pub(crate) msg_id: &'a str,
    pub(crate) seq: Option<u64>,
    pub(crate) act: Act,
    pub(crate) payload: Value,
    /// Merged into the envelope.
    pub(crate) envelope: Value,
}

impl Draft<'_> {
    pub(crate) fn admit(mut self) -> AdmittedMessage {
        let mut envelope = json!({
            "msg_id": self.msg_id,
            "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{}", self.from),
        });
        if let Some(seq) = self.seq {
            envelope["seq"] = json!(seq);
        }
        if let Value::Object(members) = self.envelope {
            for (name, value) in members {
                envelope[name] = value;
            }
        }
        self.payload["act"] = json!(self.act);
        let document = json!({"envelope": envelope, "payload": self.payload});
        admitted(self.from, self.negotiation, self.act, &document)
    }
}

/// The message whose whole document is given.
pub(crate) fn admitted(from: &AgentId, negotiation: &NegotiationId, act: Act, document: &Value) -> AdmittedMessage {
    let body = String::from_utf8(canonical(document).expect("integers and texts")).expect("JSON is UTF-8");
    AdmittedMessage {
        from: from.clone(),
        negotiation: negotiation.clone(),
        act,
        digest: Digest::of_bytes(body.as_bytes()),
        body: Arc::from(RawValue::from_string(body).expect("JSON")),
        pinned: None,
        // So that a ledger sees each; `Run::asking` has some of them wait.
        receipts_all: true,
        capabilities: Vec::new(),
    }
}

/// What a gateway pins to a call.
pub(crate) fn pinned(policy: &Policy, invited: &[AgentId]) -> Pinned {
    let reputation = |number: usize| [None, Some(1_300_000), Some(750_000), Some(550_000)][number % 4];
    let weighs = policy.reputation.is_some();
    let invited = invited.iter().enumerate().map(|(number, agent)| Invitation {
        agent: agent.clone(),
        qos: Qos::AtLeastOnce,
        durable: false,
        reputation: reputation(number).filter(|_| weighs),
    });
    Pinned {
        policy: Arc::new(policy.clone()),
        policy_digest: policy.digest().expect("integers and texts"),
        invited: invited.collect(),
        left_out: 1,
        task_policy: None,
        panel: None,
    }
}

/// The document of a message.
pub(crate) fn document(message: &AdmittedMessage) -> Value {
    serde_json::from_str(message.body.get()).expect("bodies are JSON")
}

pub(crate) fn msg_id(message: &AdmittedMessage) -> MsgId {
    serde_json::from_value(document(message)["envelope"]["msg_id"].clone()).expect("every message of a case has an id")
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).expect("a name")
}
