//! Acceptance policies as data: the presets, and the consistency a JSON Schema cannot express
//! (docs/spec/contract-net.md#cn-66).

use std::sync::Arc;

use schemas::Digest;
use schemas::bargain::{PPM, ROUNDS_MAX};
use schemas::digest::canonical;
use schemas::evidence::{EVIDENCE_AGENTS_MAX, EvidenceSource, RUNS_MAX};
use schemas::payload::INTEGER_MAX;
use schemas::policy::{
    BargainRule, Decider, EXPONENT_MAX, GATE_TEXTS_MAX, GATES_MAX, Gate, OnIncomplete, Payment, Policy, ReputationRule,
    SCORE_MAX, STEPS_MAX, STRIKES_MAX, TIMER_MS_MAX, Threshold, TieBreak, WEIGHT_SUM, WEIGHTS_MAX, Weight,
};
use serde::{Serialize, Serializer};

/// The attribute that money stands in.
pub(crate) const PRICE: &str = "price";
/// The attribute that a policy with the section `reputation` knows of every offer.
pub(crate) const REPUTATION: &str = "reputation";

/// What the negotiation runs under; shared between all that run under the same document.
#[derive(Debug)]
pub(crate) struct PinnedPolicy {
    pub(crate) policy: Policy,
    pub(crate) digest: Digest,
    pub(crate) id: Arc<str>,
}

impl PinnedPolicy {
    /// Absent when the document contradicts itself.
    pub(crate) fn try_new(policy: Policy, digest: Digest) -> Option<Arc<Self>> {
        check(&policy).ok()?;
        let id = Arc::from(policy.id.as_str());
        Some(Arc::new(Self { policy, digest, id }))
    }

    /// As [`Self::try_new`], of a canonical document.
    pub(crate) fn of_document(document: &str) -> Option<Arc<Self>> {
        Self::try_new(Policy::decode(document.as_bytes()).ok()?, Digest::of_bytes(document.as_bytes()))
    }

    /// The canonical document.
    pub(crate) fn document(&self) -> String {
        let document = canonical(&self.policy).ok().and_then(|document| String::from_utf8(document).ok());
        document.expect("a pinned policy had a canonical form when its digest was checked")
    }
}

/// A snapshot names the policy of a negotiation, and holds each document once.
impl Serialize for PinnedPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.digest.serialize(serializer)
    }
}

const PRESETS: [&str; 15] = [
    include_str!("../presets/low.json"),
    include_str!("../presets/medium.json"),
    include_str!("../presets/high.json"),
    include_str!("../presets/high-strict.json"),
    include_str!("../presets/threshold.json"),
    include_str!("../presets/paper41-low.json"),
    include_str!("../presets/paper41-medium.json"),
    include_str!("../presets/paper41-high.json"),
    include_str!("../presets/agora.json"),
    include_str!("../presets/patient.json"),
    include_str!("../presets/bargain-low.json"),
    include_str!("../presets/bargain-medium.json"),
    include_str!("../presets/bargain-high.json"),
    include_str!("../presets/team-task.json"),
    include_str!("../presets/team-seats.json"),
];

/// What makes a policy document contradict itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct PolicyFault {
    /// JSON pointer (RFC 6901) to the fault.
    pub pointer: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

/// Every policy that comes with the exchange.
#[must_use]
pub fn presets() -> Vec<Policy> {
    PRESETS
        .iter()
        .map(|json| Policy::decode(json.as_bytes()).expect("they are compiled in, and a test reads each of them"))
        .collect()
}

/// A preset by its name (`medium`) or its id (`medium@1`).
#[must_use]
pub fn preset(name: &str) -> Option<Policy> {
    presets().into_iter().find(|policy| policy.name() == name || policy.id == name)
}

/// Checks what the fold relies on: ranges, sums, and members that exclude each other.
///
/// # Errors
/// The first [`PolicyFault`], in the order of the document.
pub fn check(policy: &Policy) -> Result<(), PolicyFault> {
    check_id(&policy.id)?;
    check_close(policy)?;
    check_incomplete(policy.on_incomplete)?;
    at_most("/gates", policy.gates.len(), GATES_MAX)?;
    for (index, gate) in policy.gates.iter().enumerate() {
        check_gate(&format!("/gates/{index}"), gate)?;
    }
    // A policy that only accepts in bargains scores nothing.
    if policy.bargain.is_none() || !policy.weights.is_empty() {
        check_weights(&policy.weights)?;
    }
    in_range("/eps_band", u64::from(policy.eps_band), 0, u64::from(SCORE_MAX))?;
    if let TieBreak::Lottery { seed } = policy.tie_break {
        in_range("/tie_break/lottery/seed", seed, 0, INTEGER_MAX.unsigned_abs())?;
    }
    if policy.payment == Payment::SecondPrice && !policy.weights.iter().any(|weight| weight.attr.as_str() == PRICE) {
        return fault("/payment", "second_price needs a weight on `price`: without one no price equals a score");
    }
    in_range("/awards", u64::from(policy.awards), 1, u64::from(STEPS_MAX))?;
    in_range("/standby", u64::from(policy.standby), 0, u64::from(STEPS_MAX))?;
    in_range("/max_awards", u64::from(policy.max_awards), 1, u64::from(STEPS_MAX))?;
    in_range("/max_rounds", u64::from(policy.max_rounds), 1, u64::from(STEPS_MAX))?;
    if policy.decider == Decider::Initiator && policy.awards != 1 {
        return fault("/awards", "must be 1 under `decider: initiator`, whose ACCEPT names one offer");
    }
    in_range("/decide_ms", policy.decide_ms, 1, TIMER_MS_MAX)?;
    check_timers(policy)?;
    in_range("/max_strikes", u64::from(policy.max_strikes), 1, u64::from(STRIKES_MAX))?;
    policy.bargain.as_ref().map_or(Ok(()), check_bargain)?;
    policy.reputation.as_ref().map_or_else(|| check_unweighed(policy), check_reputation)
}

/// Without the section the exchange fills in no reputation, and whoever offers would say what its own is.
fn check_unweighed(policy: &Policy) -> Result<(), PolicyFault> {
    let gates = policy.gates.iter().map(|gate| &gate.attr).enumerate().map(|(index, attr)| ("gates", index, attr));
    let weights = policy.weights.iter().map(|weight| &weight.attr).enumerate();
    let weights = weights.map(|(index, attr)| ("weights", index, attr));
    for (member, index, attr) in gates.chain(weights) {
        if attr.as_str() == REPUTATION {
            let pointer = format!("/{member}/{index}/attr");
            return fault(&pointer, "names `reputation`, which only a policy with the section `reputation` knows");
        }
    }
    Ok(())
}

fn check_reputation(rule: &ReputationRule) -> Result<(), PolicyFault> {
    if let EvidenceSource::Agents(agents) = &rule.from {
        at_most("/reputation/from/agents", agents.len(), EVIDENCE_AGENTS_MAX)?;
        if agents.is_empty() {
            return fault("/reputation/from/agents", "must name at least one initiator");
        }
    }
    in_range("/reputation/min_runs", u64::from(rule.min_runs), 1, u64::from(RUNS_MAX))?;
    in_range("/reputation/prior_runs", u64::from(rule.prior_runs), 0, u64::from(RUNS_MAX))
}

fn check_bargain(rule: &BargainRule) -> Result<(), PolicyFault> {
    match *rule {
        BargainRule::Any => Ok(()),
        BargainRule::Next { any_from_round } => {
            in_range("/bargain/next/any_from_round", u64::from(any_from_round), 1, u64::from(ROUNDS_MAX))
        }
        BargainRule::Combi { late_ppm, window_ppm } => {
            in_range("/bargain/combi/late_ppm", u64::from(late_ppm), 0, u64::from(PPM))?;
            in_range("/bargain/combi/window_ppm", u64::from(window_ppm), 0, u64::from(PPM))
        }
    }
}

fn check_id(id: &str) -> Result<(), PolicyFault> {
    let is_part = |part: &str| {
        (1..=64).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    match id.split_once('@') {
        Some((name, version)) if is_part(name) && is_part(version) => Ok(()),
        Some(_) | None => fault("/id", "must be `name@version`, each 1 to 64 characters of A-Z a-z 0-9 _ -"),
    }
}

fn check_close(policy: &Policy) -> Result<(), PolicyFault> {
    let close = &policy.close;
    in_range("/close/min_valid", u64::from(close.min_valid), 1, u64::from(u32::MAX))?;
    if let Some(k) = close.k_valid {
        in_range("/close/k_valid", u64::from(k), 1, u64::from(u32::MAX))?;
    }
    if let Some(window) = close.window_ms {
        in_range("/close/window_ms", window, 1, TIMER_MS_MAX)?;
    }
    match close.score_at_least {
        None => Ok(()),
        Some(Threshold::Constant(score)) => {
            in_range("/close/score_at_least", u64::from(score), 0, u64::from(SCORE_MAX))
        }
        Some(Threshold::Falling(falling)) => {
            in_range("/close/score_at_least/start", u64::from(falling.start), 0, u64::from(SCORE_MAX))?;
            in_range("/close/score_at_least/end", u64::from(falling.end), 0, u64::from(falling.start))?;
            in_range("/close/score_at_least/exponent", u64::from(falling.exponent), 1, u64::from(EXPONENT_MAX))
        }
    }
}

fn check_incomplete(on_incomplete: OnIncomplete) -> Result<(), PolicyFault> {
    match on_incomplete {
        OnIncomplete::Decide | OnIncomplete::Fail => Ok(()),
        OnIncomplete::Extend { ms, max } => {
            in_range("/on_incomplete/extend/ms", ms, 1, TIMER_MS_MAX)?;
            in_range("/on_incomplete/extend/max", u64::from(max), 1, u64::from(STEPS_MAX))
        }
    }
}

fn check_gate(pointer: &str, gate: &Gate) -> Result<(), PolicyFault> {
    for (name, bound) in [("min", gate.min), ("max", gate.max)] {
        if let Some(bound) = bound {
            in_range(&format!("{pointer}/{name}"), bound.unsigned_abs(), 0, INTEGER_MAX.unsigned_abs())?;
        }
    }
    if let (Some(min), Some(max)) = (gate.min, gate.max)
        && min > max
    {
        return fault(&format!("{pointer}/max"), "must not lie below `min`: no offer could pass");
    }
    if let Some(texts) = &gate.one_of {
        at_most(&format!("{pointer}/enum"), texts.len(), GATE_TEXTS_MAX)?;
        if texts.is_empty() {
            return fault(&format!("{pointer}/enum"), "must allow at least one text: no offer could pass");
        }
        if gate.min.is_some() || gate.max.is_some() {
            return fault(
                &format!("{pointer}/enum"),
                "cannot stand beside `min` or `max`: a value is a text or a number",
            );
        }
    }
    if gate.min.is_none() && gate.max.is_none() && gate.one_of.is_none() && !gate.required {
        return fault(pointer, "must demand something: `min`, `max`, `enum` or `required: true`");
    }
    Ok(())
}

fn check_weights(weights: &[Weight]) -> Result<(), PolicyFault> {
    at_most("/weights", weights.len(), WEIGHTS_MAX)?;
    for (index, weight) in weights.iter().enumerate() {
        for (name, bound) in [("lo", weight.lo), ("hi", weight.hi)] {
            let pointer = format!("/weights/{index}/{name}");
            in_range(&pointer, bound.unsigned_abs(), 0, INTEGER_MAX.unsigned_abs())?;
        }
        if weight.lo >= weight.hi {
            return fault(&format!("/weights/{index}/hi"), "must lie above `lo`");
        }
        if weights[..index].iter().any(|earlier| earlier.attr == weight.attr) {
            return fault(&format!("/weights/{index}/attr"), "is weighted twice");
        }
    }
    let sum: u64 = weights.iter().map(|weight| u64::from(weight.w)).sum();
    if sum == u64::from(WEIGHT_SUM) {
        Ok(())
    } else {
        fault("/weights", &format!("must add up to {WEIGHT_SUM}, they add up to {sum}"))
    }
}

fn check_timers(policy: &Policy) -> Result<(), PolicyFault> {
    let timers = &policy.timers_ms;
    let named = [
        ("collect", timers.collect),
        ("confirm", timers.confirm),
        ("perform", timers.perform),
        ("cancel", timers.cancel),
        ("hard", timers.hard),
    ];
    for (name, ms) in named {
        in_range(&format!("/timers_ms/{name}"), ms, 1, TIMER_MS_MAX)?;
    }
    if timers.collect > timers.hard {
        return fault("/timers_ms/collect", "must not exceed `hard`: a call without a deadline could never open");
    }
    Ok(())
}

fn in_range(pointer: &str, value: u64, min: u64, max: u64) -> Result<(), PolicyFault> {
    if (min..=max).contains(&value) { Ok(()) } else { fault(pointer, &format!("must lie in {min} to {max}")) }
}

fn at_most(pointer: &str, len: usize, max: usize) -> Result<(), PolicyFault> {
    if len <= max { Ok(()) } else { fault(pointer, &format!("must have at most {max} items")) }
}

fn fault(pointer: &str, detail: &str) -> Result<(), PolicyFault> {
    Err(PolicyFault { pointer: pointer.to_owned(), detail: detail.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_consistent_and_found_by_name_and_by_id() {
        let names = [
            "low",
            "medium",
            "high",
            "high-strict",
            "threshold",
            "paper41-low",
            "paper41-medium",
            "paper41-high",
            "agora",
            "patient",
            "bargain-low",
            "bargain-medium",
            "bargain-high",
            "team-task",
            "team-seats",
        ];
        assert_eq!(presets().iter().map(Policy::name).collect::<Vec<_>>(), names);
        for name in names {
            let policy = preset(name).expect("listed");
            assert_eq!(check(&policy), Ok(()));
            assert_eq!(preset(&policy.id), Some(policy));
        }
        assert_eq!(preset("unheard-of"), None);
    }

    #[test]
    fn each_contradiction_is_found_where_it_stands() {
        type Spoil = fn(&mut Policy);
        let cases: [(&str, Spoil); 19] = [
            ("/id", |p| p.id = "medium".to_owned()),
            ("/close/min_valid", |p| p.close.min_valid = 0),
            ("/close/k_valid", |p| p.close.k_valid = Some(0)),
            ("/close/window_ms", |p| p.close.window_ms = Some(0)),
            ("/close/score_at_least", |p| p.close.score_at_least = Some(Threshold::Constant(SCORE_MAX + 1))),
            ("/on_incomplete/extend/ms", |p| p.on_incomplete = OnIncomplete::Extend { ms: 0, max: 1 }),
            ("/gates/0/max", |p| p.gates[0].min = p.gates[0].max.map(|max| max + 1)),
            ("/gates/0/enum", |p| p.gates[0].one_of = Some(vec!["x".to_owned()])),
            ("/gates/0", |p| (p.gates[0].min, p.gates[0].max, p.gates[0].required) = (None, None, false)),
            ("/weights/0/hi", |p| p.weights[0].hi = p.weights[0].lo),
            ("/weights/1/attr", |p| p.weights[1].attr = p.weights[0].attr.clone()),
            ("/weights", |p| p.weights[0].w += 1),
            ("/payment", |p| {
                p.payment = Payment::SecondPrice;
                p.weights.remove(0);
                p.weights[0].w = WEIGHT_SUM;
            }),
            ("/awards", |p| (p.decider, p.awards) = (Decider::Initiator, 2)),
            ("/timers_ms/collect", |p| p.timers_ms.collect = p.timers_ms.hard + 1),
            ("/max_strikes", |p| p.max_strikes = 0),
            ("/bargain/next/any_from_round", |p| p.bargain = Some(BargainRule::Next { any_from_round: 0 })),
            ("/bargain/combi/late_ppm", |p| {
                p.bargain = Some(BargainRule::Combi { late_ppm: PPM + 1, window_ppm: 0 });
            }),
            ("/weights", |p| (p.bargain, p.weights[0].w) = (Some(BargainRule::Any), 0)),
        ];
        for (pointer, spoil) in cases {
            let mut policy = preset("medium").expect("listed");
            spoil(&mut policy);
            assert_eq!(check(&policy).expect_err(pointer).pointer, pointer);
        }
    }
}
