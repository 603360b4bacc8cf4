//! Gates, scores, ranking, payments and the falling threshold, written naively from
//! docs/spec/contract-net.md#cn-25 and #cn-29 to #cn-33. Nothing here is shared with `src/acceptance`; where that
//! searches, this counts through.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use schemas::document::CallDocuments;
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Offer, Terms};
use schemas::policy::{Direction, Gate, Payment, Policy, Threshold, TieBreak, Weight};
use schemas::record::Pinned;
use schemas::{AgentId, Digest, NegotiationId, OfferId, Position, Timestamp};

/// The offer with what the call pinned for its sender; nothing where it names a reputation itself.
#[must_use]
pub fn with_reputation(policy: &Policy, pinned: Option<u64>, offer: &Offer) -> Option<Offer> {
    let mut offer = offer.clone();
    if policy.reputation.is_none() {
        return Some(offer);
    }
    let value = AttrValue::Int(i64::try_from(pinned.unwrap_or(1_000_000)).expect("it fits"));
    let earlier = offer.terms.insert(AttrName::try_new("reputation").expect("a name"), value);
    earlier.is_none().then_some(offer)
}

/// The reputations that a call pins.
pub(crate) fn reputations(pinned: &Pinned) -> BTreeMap<AgentId, u64> {
    let invited = pinned.invited.iter();
    invited.filter_map(|invitation| Some((invitation.agent.clone(), invitation.reputation?))).collect()
}

/// The first gate an offer fails, as the REJECT names it.
pub fn gate_failed(
    policy: &Policy,
    currency: Option<&str>,
    offer: &Offer,
    documents: Option<&CallDocuments>,
    valid_until: Timestamp,
    now: Timestamp,
) -> Option<String> {
    for gate in &policy.gates {
        if let Some(condition) = condition_failed(gate, offer.terms.get(&gate.attr)) {
            return Some(format!("{}.{condition}", gate.attr));
        }
    }
    if currency.is_some() && offer.currency.is_some() && currency != offer.currency.as_deref() {
        return Some("currency".to_owned());
    }
    if documents.is_some_and(|call| call.require && !call.hashes.iter().any(|hash| offer.documents.contains(hash))) {
        return Some("documents".to_owned());
    }
    (valid_until < now).then(|| "validity".to_owned())
}

fn condition_failed(gate: &Gate, value: Option<&AttrValue>) -> Option<&'static str> {
    let Some(value) = value else { return Some("required") };
    let (number, text) = match value {
        AttrValue::Int(number) => (Some(*number), None),
        AttrValue::Text(text) => (None, Some(text)),
    };
    if gate.min.is_some_and(|min| number.is_none_or(|number| number < min)) {
        Some("min")
    } else if gate.max.is_some_and(|max| number.is_none_or(|number| number > max)) {
        Some("max")
    } else if gate.one_of.as_ref().is_some_and(|texts| text.is_none_or(|text| !texts.contains(text))) {
        Some("enum")
    } else {
        None
    }
}

/// `floor(sum w * n / 1000)`.
pub fn score(policy: &Policy, terms: &Terms) -> u32 {
    let sum: i128 = policy.weights.iter().map(|weight| i128::from(weight.w) * normal(weight, terms)).sum();
    u32::try_from(sum / 1000).expect("at most a million")
}

/// `n`, 0 to a million; nothing for what is absent.
fn normal(weight: &Weight, terms: &Terms) -> i128 {
    let Some(AttrValue::Int(value)) = terms.get(&weight.attr) else { return 0 };
    let (lo, hi, value) = (i128::from(weight.lo), i128::from(weight.hi), i128::from(*value));
    let part = match weight.dir {
        Direction::Higher => value - lo,
        Direction::Lower => hi - value,
    };
    // A truncated negative quotient is clamped like any other, so truncation and floor agree here.
    (part * 1_000_000 / (hi - lo)).clamp(0, 1_000_000)
}

/// The price of an offer, if it names a number.
pub fn price(terms: &Terms) -> Option<i64> {
    terms.iter().find_map(|(name, value)| match value {
        AttrValue::Int(price) if name.as_str() == "price" => Some(*price),
        AttrValue::Int(_) | AttrValue::Text(_) => None,
    })
}

/// One offer in a ranking.
#[derive(Debug, Clone)]
pub(crate) struct Ranked {
    pub(crate) contractor: AgentId,
    pub(crate) offer: OfferId,
    pub(crate) score: u32,
    pub(crate) last_win: Option<Position>,
}

/// Best first: repeatedly takes the one nobody beats.
pub(crate) fn rank(
    policy: &Policy,
    negotiation: &NegotiationId,
    closing: Position,
    mut offers: Vec<Ranked>,
) -> Vec<Ranked> {
    let best = offers.iter().map(|offer| offer.score).max().unwrap_or(0);
    let level = |offer: &Ranked| if best - offer.score < policy.eps_band { best } else { offer.score };
    let beats = |one: &Ranked, other: &Ranked| match level(one).cmp(&level(other)) {
        Ordering::Greater => true,
        Ordering::Less => false,
        Ordering::Equal => wins_tie(policy.tie_break, negotiation, closing, one, other),
    };
    let mut ranked = Vec::new();
    while !offers.is_empty() {
        let first = (0..offers.len()).find(|&index| {
            offers.iter().all(|other| other.offer == offers[index].offer || beats(&offers[index], other))
        });
        ranked.push(offers.remove(first.expect("no two contractors tie for good")));
    }
    ranked
}

fn wins_tie(tie_break: TieBreak, negotiation: &NegotiationId, closing: Position, one: &Ranked, other: &Ranked) -> bool {
    let closing = closing.to_string();
    let hash = |seed: Option<u64>, ranked: &Ranked| {
        let seed = seed.map(u64::to_be_bytes);
        let named = [negotiation.as_str().as_bytes(), ranked.contractor.as_str().as_bytes(), closing.as_bytes()];
        Digest::of_parts(&seed.iter().map(|seed| &seed[..]).chain(named).collect::<Vec<_>>())
    };
    let is_less = |seed| hash(seed, one) < hash(seed, other);
    match tie_break {
        TieBreak::Hash => is_less(None),
        TieBreak::Lottery { seed } => is_less(Some(seed)),
        TieBreak::LeastRecentWinner if one.last_win == other.last_win => is_less(None),
        TieBreak::LeastRecentWinner => one.last_win < other.last_win,
        TieBreak::Arrival => one.offer < other.offer,
    }
}

/// What an offer is paid, when `losing` is the best score among those it is measured against.
pub(crate) fn payment(policy: &Policy, terms: &Terms, losing: Option<u32>) -> Option<i64> {
    let own = price(terms)?;
    if policy.payment == Payment::FirstPrice {
        return Some(own);
    }
    let weight = policy.weights.iter().find(|weight| weight.attr.as_str() == "price").expect("second price needs it");
    let step = if weight.dir == Direction::Lower { 1 } else { -1 };
    let reserve = reserve(policy, step);
    let Some(losing) = losing else { return Some(reserve.unwrap_or(own)) };
    let end = reserve.unwrap_or(if step > 0 { weight.hi } else { weight.lo });
    let mut paid = own;
    while (end - paid) * step > 0 && score(policy, &at_price(terms, paid + step)) >= losing {
        paid += step;
    }
    // An offer that lies within the band of a better one already scores less than it: it is paid its own price.
    Some(if score(policy, terms) >= losing { paid } else { own })
}

/// The strictest price gate on the side a payment moves to.
fn reserve(policy: &Policy, step: i64) -> Option<i64> {
    let gates = policy.gates.iter().filter(|gate| gate.attr.as_str() == "price");
    if step > 0 { gates.filter_map(|gate| gate.max).min() } else { gates.filter_map(|gate| gate.min).max() }
}

fn at_price(terms: &Terms, price: i64) -> Terms {
    let mut terms = terms.clone();
    for (name, value) in &mut terms {
        if name.as_str() == "price" {
            *value = AttrValue::Int(price);
        }
    }
    terms
}

/// Whether a score suffices `elapsed_us` after the call, `length_us` being the collection period:
/// `score >= end + (start - end) * (1 - (elapsed / length)^e)`, multiplied by `length^e`.
pub(crate) fn suffices(threshold: Threshold, length_us: u64, elapsed_us: u64, score: u32) -> bool {
    let falling = match threshold {
        Threshold::Constant(required) => return score >= required,
        Threshold::Falling(falling) => falling,
    };
    let elapsed_us = elapsed_us.min(length_us);
    let power = |base: u64| (0..falling.exponent).fold(Big::of(1), |power, _| power.times(base));
    let (whole, passed) = (power(length_us), power(elapsed_us));
    let fallen = passed.times(u64::from(falling.start - falling.end));
    let have = whole.times(u64::from(score)).plus(&fallen);
    have.is_at_least(&whole.times(u64::from(falling.start)))
}

/// A natural number in digits of base 2^32, least first, without leading zeros.
#[derive(Debug, Clone)]
pub(crate) struct Big(Vec<u32>);

impl Big {
    pub(crate) fn of(number: u64) -> Self {
        Self(vec![1]).times(number)
    }

    pub(crate) fn times(&self, factor: u64) -> Self {
        let mut digits = Vec::new();
        let mut carry: u128 = 0;
        for digit in &self.0 {
            carry += u128::from(*digit) * u128::from(factor);
            digits.push((carry & 0xffff_ffff) as u32);
            carry >>= 32;
        }
        while carry > 0 {
            digits.push((carry & 0xffff_ffff) as u32);
            carry >>= 32;
        }
        Self(digits).trimmed()
    }

    fn plus(&self, other: &Self) -> Self {
        let mut digits = Vec::new();
        let mut carry: u64 = 0;
        for index in 0..=self.0.len().max(other.0.len()) {
            let digit = |number: &Self| u64::from(number.0.get(index).copied().unwrap_or(0));
            carry += digit(self) + digit(other);
            digits.push((carry & 0xffff_ffff) as u32);
            carry >>= 32;
        }
        Self(digits).trimmed()
    }

    pub(crate) fn is_at_least(&self, other: &Self) -> bool {
        let by_digit = || self.0.iter().rev().cmp(other.0.iter().rev());
        self.0.len().cmp(&other.0.len()).then_with(by_digit).is_ge()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }
}
