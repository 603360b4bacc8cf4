//! Offers as contractors make them, in terms of the policy they are made for.

use schemas::policy::Policy;
use schemas::{DocumentHash, Timestamp, WireTime};
use serde_json::{Value, json};

use crate::case::{OfferPlan, Price, Validity};
use crate::memory::Situation;

/// The calls' and offers' own currency.
pub(crate) const CURRENCY: &str = "EUR";

/// The payload of an offer.
pub(crate) fn payload(policy: &Policy, plan: &OfferPlan, round: Option<u32>, situation: Situation) -> Value {
    let Situation { now, deadline, .. } = situation;
    let mut payload = json!({"terms": terms(policy, plan)});
    match plan.validity {
        Validity::Always => {}
        Validity::ForMs(ms) => payload["valid_for_ms"] = json!(ms),
        Validity::UntilDeadline => payload["valid_until"] = json!(WireTime(deadline.unwrap_or(now))),
        Validity::Past => payload["valid_until"] = json!(WireTime(Timestamp(now.0 - 1))),
    }
    if let Some(is_the_calls) = plan.currency {
        payload["currency"] = json!(if is_the_calls { CURRENCY } else { "USD" });
    }
    if !plan.documents.is_empty() {
        payload["documents"] = json!(plan.documents.iter().copied().map(named).collect::<Vec<_>>());
    }
    if let Some(round) = round {
        payload["round"] = json!(round);
    }
    payload
}

/// The hash of the protocol document of a number.
pub(crate) fn named(number: u8) -> DocumentHash {
    DocumentHash::of_bytes(&[number])
}

fn terms(policy: &Policy, plan: &OfferPlan) -> Value {
    let (lo, hi) = price_range(policy);
    let mut terms = json!({"delivery_ms": plan.delivery_ms});
    match plan.price {
        Price::Tenths(tenths) => terms["price"] = json!(lo + (hi - lo) / 10 * tenths),
        Price::Off(by) => terms["price"] = json!(if by < 0 { lo + by } else { hi + by }),
        Price::Absent => {}
        Price::Text => terms["price"] = json!("cheap"),
    }
    if let Some(is_red) = plan.colour {
        terms["colour"] = json!(if is_red { "red" } else { "blue" });
    }
    // Now and then one claims a reputation: refused where the policy weighs it, an attribute like any other elsewhere.
    if plan.delivery_ms % 16 == 5 {
        terms["reputation"] = json!(1_000_000);
    }
    terms
}

fn price_range(policy: &Policy) -> (i64, i64) {
    let weight = policy.weights.iter().find(|weight| weight.attr.as_str() == "price");
    weight.map_or((0, 1000), |weight| (weight.lo, weight.hi))
}
