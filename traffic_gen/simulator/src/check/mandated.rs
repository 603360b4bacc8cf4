//! Nothing of a mandate reaches anybody: not its texts, not the policy it names, not its reservation value; in no delivery,
//! no public notice, no entry of the register.

use std::collections::BTreeSet;

use schemas::Act;
use schemas::bargain::Mandate;
use serde::Deserialize;
use serde_json::Value;

use super::FoldedLog;
use crate::agents::{MARK, MARKED_MIN};
use crate::trace::{Noted, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// A message that may carry a mandate.
#[derive(Deserialize)]
struct MandateMessage {
    payload: MandatePayload,
}

#[derive(Deserialize)]
struct MandatePayload {
    mandate: Option<Mandate>,
}

/// Where a number may be anything: relative time.
const FREE_NUMBER: &str = "t_ppm";

/// Checks everything that the log leads to, and everything that arrived.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let secrets = Secrets::of(trace);
    if secrets.is_empty() {
        return;
    }
    let bargained = folded.deliveries.values().filter(|caused| folded.is_bargain(&caused.deliver.negotiation));
    for caused in bargained {
        let told = caused.deliver.told.encode().and_then(|told| serde_json::from_str(&told)).unwrap_or_default();
        let found = secrets.found_in(&told);
        verdict.check(Invariant::Sealed, found.is_none(), || {
            format!("{} is told {found:?} of a mandate in {}: {told}", caused.deliver.to, caused.deliver.negotiation)
        });
    }
    for (key, value) in trace.register.iter().filter(|(key, _)| folded.is_bargain(key.negotiation())) {
        let value = serde_json::from_slice(value).unwrap_or_default();
        let found = secrets.found_in(&value);
        verdict.check(Invariant::Sealed, found.is_none(), || format!("{key} holds {found:?} of a mandate: {value}"));
    }
    for entry in trace.journals.values().flatten() {
        if let Noted::Notice { payload, .. } = &entry.kind {
            let notice = serde_json::from_slice(payload).unwrap_or_default();
            let found = secrets.found_in(&notice);
            verdict.check(Invariant::Sealed, found.is_none(), || format!("a notice tells {found:?}: {notice}"));
        }
    }
}

/// What can be recognised of the mandates of a run.
struct Secrets {
    texts: BTreeSet<String>,
    numbers: BTreeSet<u64>,
}

impl Secrets {
    fn of(trace: &Trace) -> Self {
        let mut secrets = Self { texts: BTreeSet::new(), numbers: BTreeSet::new() };
        for entry in trace.journals.values().flatten() {
            if let Noted::Sent { act: Act::Cfp | Act::Join, document, .. } = &entry.kind
                && let Ok(MandateMessage { payload }) = serde_json::from_slice(document)
                && let Some(mandate) = payload.mandate
            {
                secrets.texts.insert(MARK.to_owned());
                secrets.texts.extend(mandate.policy);
                secrets.numbers.extend(Some(mandate.reservation).filter(|it| *it >= MARKED_MIN).map(u64::from));
            }
        }
        secrets
    }

    fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The first secret in a document.
    fn found_in(&self, document: &Value) -> Option<String> {
        match document {
            Value::Null | Value::Bool(_) => None,
            Value::Number(number) => {
                let number = number.as_u64().filter(|number| self.numbers.contains(number))?;
                Some(number.to_string())
            }
            Value::String(text) => self.texts.iter().find(|secret| text.contains(secret.as_str())).cloned(),
            Value::Array(items) => items.iter().find_map(|item| self.found_in(item)),
            Value::Object(members) => {
                let telling = members.iter().filter(|(name, _)| *name != FREE_NUMBER);
                telling.map(|(_, value)| value).find_map(|value| self.found_in(value))
            }
        }
    }
}
