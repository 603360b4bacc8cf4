//! What plain clients call for, and how they answer each delivery.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Contractors of a large net.
const MANY: usize = 12;
/// How long answers to a call are waited for, in milliseconds.
const REPLY_WITHIN_MS: u64 = 20_000;

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Workload {
    /// A contract net with one contractor.
    NetOfOne,
    /// A contract net with twelve.
    NetOfTwelve,
    /// A bargain of two, which accept the first offer.
    Bargain,
    /// A team of two, whose lead concludes when it has the floor.
    Team,
    /// A panel of two, which agree at once.
    Panel,
}

/// What an agent does about a delivery, beside acknowledging it.
pub(super) enum PlainAnswer<'a> {
    /// Nothing.
    Nothing,
    /// Says this.
    Say(Value),
    /// Takes note of the end.
    Ended(&'a str),
}

impl Workload {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::NetOfOne, Self::NetOfTwelve, Self::Bargain, Self::Team, Self::Panel];

    /// How many contractors are called.
    pub(super) fn contractors(self) -> usize {
        match self {
            Self::NetOfOne | Self::Bargain | Self::Team => 1,
            Self::Panel => 2,
            Self::NetOfTwelve => MANY,
        }
    }

    /// The payload of the call.
    pub(super) fn call(self) -> Value {
        match self {
            Self::NetOfOne | Self::NetOfTwelve => {
                json!({"act": "cfp", "policy": "high", "reply_within_ms": REPLY_WITHIN_MS})
            }
            Self::Bargain => json!({"act": "cfp", "task": "a bicycle", "reply_within_ms": REPLY_WITHIN_MS,
                "bargain": {"issues": [{"name": "price", "min": 1, "max": 100}], "rounds": 4, "step_ms": REPLY_WITHIN_MS}}),
            Self::Team => json!({"act": "cfp", "task": "a survey", "reply_within_ms": REPLY_WITHIN_MS,
                "team": {"members": {"min": 2, "max": 2}, "turns": 4, "speak_ms": REPLY_WITHIN_MS}}),
            Self::Panel => json!({"act": "cfp", "task": "What is 2 + 2?", "reply_within_ms": REPLY_WITHIN_MS,
                "panel": {"rounds": 1, "rate": false, "answer_ms": REPLY_WITHIN_MS}}),
        }
    }

    /// Whether a negotiation that ends so has reached what it was for.
    pub(super) fn is_success(outcome: &str) -> bool {
        matches!(outcome, "completed" | "agreement" | "concluded" | "consensus")
    }
}

/// How an agent answers what it is told in a negotiation.
pub(super) fn answer<'a>(agent: &str, negotiation: &str, told: &'a Value) -> PlainAnswer<'a> {
    let text = |name: &str| told.get(name).and_then(Value::as_str);
    let is_caller = negotiation.split('~').next() == Some(agent);
    match text("act") {
        Some("cfp") if told.get("bargain").is_some() || told.get("team").is_some() || told.get("panel").is_some() => {
            PlainAnswer::Say(json!({"act": "join"}))
        }
        Some("cfp") => PlainAnswer::Say(
            json!({"act": "offer", "terms": {"price": 50_000_000, "delivery_ms": 2000}, "round": told.get("round")}),
        ),
        Some("accept") => PlainAnswer::Say(json!({"act": "confirm", "award_no": told.get("award_no")})),
        Some("ack") if text("disposition") == Some("committed") => {
            PlainAnswer::Say(json!({"act": "inform", "kind": "done", "result": "delivered"}))
        }
        Some("turn") if text("party") == Some(agent) => match told.get("standing") {
            Some(standing) => PlainAnswer::Say(json!({"act": "accept", "offer_id": standing.get("offer_id"),
                "terms_digest": standing.get("terms_digest")})),
            None => PlainAnswer::Say(json!({"act": "offer", "terms": {"price": 50}})),
        },
        Some("floor") if is_caller && text("speaker") == Some(agent) => {
            PlainAnswer::Say(json!({"act": "conclude", "turn": told.get("turn"), "text": "done"}))
        }
        Some("ask") => PlainAnswer::Say(json!({"act": "answer", "round": told.get("round"), "answer": "4"})),
        Some("closed") => text("outcome").map_or(PlainAnswer::Nothing, PlainAnswer::Ended),
        _ => PlainAnswer::Nothing,
    }
}
