//! What plain clients call for, and how they answer each delivery.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Contractors of a large net.
const MANY: usize = 12;
/// How long answers to a call are waited for, in milliseconds.
const REPLY_WITHIN_MS: u64 = 20_000;
/// An auction ends when nobody has bid for so long, in milliseconds.
const QUIET_MS: u64 = 200;
/// The least that a bidder asks, in micro-units.
const PRICE_MIN: i64 = 50_000_000;

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Workload {
    /// A contract net with one contractor.
    NetOfOne,
    /// A contract net with twelve.
    NetOfTwelve,
    /// An English auction of two bidders, of whom each beats the other down to a limit.
    Auction,
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
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// How many contractors are called.
    pub(super) fn contractors(self) -> usize {
        match self {
            Self::NetOfOne | Self::Bargain | Self::Team => 1,
            Self::Auction | Self::Panel => 2,
            Self::NetOfTwelve => MANY,
        }
    }

    /// The payload of the call.
    pub(super) fn call(self) -> Value {
        match self {
            Self::NetOfOne | Self::NetOfTwelve => {
                json!({"act": "cfp", "policy": "high", "reply_within_ms": REPLY_WITHIN_MS})
            }
            Self::Auction => json!({"act": "cfp", "policy": "high", "reply_within_ms": REPLY_WITHIN_MS,
                "auction": {"direction": "descending", "start": 60_000_000, "step": 5_000_000, "quiet_ms": QUIET_MS}}),
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

/// Bids the next price, down to a limit.
fn bid<'a>(price: Option<&Value>) -> PlainAnswer<'a> {
    let price = price.and_then(Value::as_i64).filter(|price| *price >= PRICE_MIN);
    price.map_or(PlainAnswer::Nothing, |price| PlainAnswer::Say(json!({"act": "offer", "terms": {"price": price}})))
}

/// How an agent answers what it is told in a negotiation.
pub(super) fn answer<'a>(agent: &str, negotiation: &str, told: &'a Value) -> PlainAnswer<'a> {
    let text = |name: &str| told.get(name).and_then(Value::as_str);
    let is_caller = negotiation.split('~').next() == Some(agent);
    match text("act") {
        Some("cfp") if told.get("bargain").is_some() || told.get("team").is_some() || told.get("panel").is_some() => {
            PlainAnswer::Say(json!({"act": "join"}))
        }
        Some("cfp") if told.get("auction").is_some() => bid(told.pointer("/auction/rules/start")),
        Some("inform") if text("kind") == Some("bid") && told.get("leads") == Some(&json!(false)) && !is_caller => {
            bid(told.get("next_price"))
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
