//! Gates: what an offer must satisfy to count at all (docs/spec/contract-net.md#cn-29). Checked when it arrives; an
//! offer that fails is never scored, never stored and never wins.

use schemas::Timestamp;
use schemas::document::CallDocuments;
use schemas::payload::{AttrValue, Offer, Terms};
use schemas::policy::{Gate, Policy};
use serde::{Deserialize, Serialize};

use crate::policy::{PRICE, REPUTATION};

/// The first condition an offer fails. Indices point into the policy's gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GateFault {
    /// Below `min`.
    Min(u16),
    /// Above `max`.
    Max(u16),
    /// Not one of the allowed texts.
    Enum(u16),
    /// The attribute is missing.
    Required(u16),
    /// Another currency than the call's.
    Currency,
    /// Its validity has run out before it arrived.
    Validity,
    /// None of the documents of a call that requires one.
    Documents,
    /// It names a reputation itself, where the exchange does.
    Reserved,
    /// It is no bid that counts.
    Bid(BidFault),
}

/// Why a bid of an auction does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum BidFault {
    /// It has no price.
    Required,
    /// The first bid does not reach the start.
    Start,
    /// It does not beat the standing bid by a step.
    Step,
}

impl GateFault {
    /// `code` of the REJECT: `<attribute>.<condition>`, `currency`, `documents`, `validity` or `reputation.reserved`; of a bid
    /// `price.required`, `price.start`, `price.step`.
    pub(crate) fn code(self, policy: &Policy) -> String {
        let (index, condition) = match self {
            Self::Min(index) => (index, "min"),
            Self::Max(index) => (index, "max"),
            Self::Enum(index) => (index, "enum"),
            Self::Required(index) => (index, "required"),
            Self::Currency => return "currency".to_owned(),
            Self::Validity => return "validity".to_owned(),
            Self::Documents => return "documents".to_owned(),
            Self::Reserved => return format!("{REPUTATION}.reserved"),
            Self::Bid(fault) => return format!("{PRICE}.{}", <&str>::from(fault)),
        };
        match policy.gates.get(usize::from(index)) {
            Some(gate) => format!("{}.{condition}", gate.attr),
            None => condition.to_owned(),
        }
    }
}

/// What a call asks of offers beside its policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallGates<'a> {
    pub(crate) currency: Option<&'a str>,
    pub(crate) documents: Option<&'a CallDocuments>,
}

/// Checks an offer and the terms the policy judges it by: the policy's gates in their order, then currency, then documents, then validity.
pub(crate) fn check(
    policy: &Policy,
    call: CallGates<'_>,
    (offer, terms): (&Offer, &Terms),
    valid_until: Timestamp,
    now: Timestamp,
) -> Result<(), GateFault> {
    for (index, gate) in policy.gates.iter().enumerate() {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        check_gate(gate, index, terms)?;
    }
    // An offer that names no currency is understood in the call's.
    if let (Some(wanted), Some(offered)) = (call.currency, offer.currency.as_deref())
        && wanted != offered
    {
        return Err(GateFault::Currency);
    }
    if call.documents.is_some_and(|documents| documents.require && documents.pinned(&offer.documents).is_none()) {
        return Err(GateFault::Documents);
    }
    if valid_until < now { Err(GateFault::Validity) } else { Ok(()) }
}

fn check_gate(gate: &Gate, index: u16, terms: &Terms) -> Result<(), GateFault> {
    let Some(value) = terms.get(&gate.attr) else {
        return Err(GateFault::Required(index));
    };
    // A text lies in no range, and a number is none of the texts.
    let (is_below, is_above, is_listed) = match value {
        AttrValue::Int(value) => {
            (gate.min.is_some_and(|min| *value < min), gate.max.is_some_and(|max| *value > max), false)
        }
        AttrValue::Text(text) => {
            let is_listed = gate.one_of.as_ref().is_some_and(|allowed| allowed.contains(text));
            (gate.min.is_some(), gate.max.is_some(), is_listed)
        }
    };
    if is_below {
        Err(GateFault::Min(index))
    } else if is_above {
        Err(GateFault::Max(index))
    } else if gate.one_of.is_some() && !is_listed {
        Err(GateFault::Enum(index))
    } else {
        Ok(())
    }
}
