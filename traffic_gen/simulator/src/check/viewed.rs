//! Views against the log: each is what the log said at some moment between the question and the answer, and shows nobody
//! what is another's.

use schemas::{AgentId, Lane};
use serde_json::{Value, json};

use super::in_lane::InLane;
use super::{FoldedLog, NegotiationHistory};
use crate::trace::{AnsweredView, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// The answers about a lane while it is folded.
pub(super) struct Viewed<'a> {
    open: Vec<OpenView<'a>>,
}

/// An answer that the fold has not come to yet.
struct OpenView<'a> {
    view: &'a AnsweredView,
    answer: Value,
    /// What the log said at the moments it was compared with.
    expected: Vec<Value>,
}

impl<'a> Viewed<'a> {
    pub(super) fn of(trace: &'a Trace, lane: Lane) -> Self {
        let open = trace.views.iter().filter(|view| view.lane == lane).map(|view| OpenView {
            view,
            answer: serde_json::from_slice(&view.answer).unwrap_or_default(),
            expected: Vec::new(),
        });
        Self { open: open.collect() }
    }

    /// Compares with the state after a record; 0 stands for the state before the first.
    pub(super) fn compare(&mut self, seq: u64, lane: &InLane, verdict: &mut Verdict) {
        let is_due = |open: &OpenView<'_>| (open.view.from_seq..=open.view.to_seq).contains(&seq);
        for open in self.open.iter_mut().filter(|open| is_due(open)) {
            let found = lane.view(&open.view.negotiation, &open.view.viewer);
            open.expected.push(found.map_or_else(|| json!({"not_found": true}), |view| json!({"found": view})));
        }
        self.open.retain(|open| {
            let is_explained = open.expected.last() == Some(&open.answer);
            if is_explained {
                verdict.check(Invariant::Recomputable, true, String::new);
            }
            !is_explained
        });
    }

    /// What no moment explains.
    pub(super) fn finish(self, verdict: &mut Verdict) {
        for OpenView { view, answer, expected } in self.open {
            verdict.check(Invariant::Recomputable, false, || {
                let AnsweredView { negotiation, viewer, from_seq, to_seq, .. } = view;
                format!("{viewer}'s view of {negotiation}, records {from_seq} to {to_seq}, is {answer}; the log says {expected:?}")
            });
        }
    }
}

/// Checks that views keep what is sealed.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    for view in &trace.views {
        let Some(history) = folded.history(&view.negotiation).filter(|history| !history.is_bargain) else { continue };
        let answer: Value = serde_json::from_slice(&view.answer).unwrap_or_default();
        let Some(found) = answer.get("found") else { continue };
        if history.is_team {
            let is_shown = found.get("team").is_some_and(|team| !team.is_null());
            let may_see = view.negotiation.initiator() == view.viewer.as_str() || history.seats.contains(&view.viewer);
            verdict.check(Invariant::MembersOnly, !is_shown || may_see, || {
                format!("{} has no seat in {} and sees {found}", view.viewer, view.negotiation)
            });
            continue;
        }
        let fault = match found.get("role").and_then(Value::as_str) {
            Some("contractor") => names_another(found, &view.viewer, history),
            Some("initiator") => shows_too_early(found, history),
            Some(_) | None => Some(format!("no role is in {found}")),
        };
        verdict.check(Invariant::Sealed, fault.is_none(), || {
            format!("{}'s view of {}: {}", view.viewer, view.negotiation, fault.unwrap_or_default())
        });
    }
}

/// A contractor sees nobody's name but its own and the initiator's.
fn names_another(found: &Value, viewer: &AgentId, history: &NegotiationHistory) -> Option<String> {
    let text = found.to_string();
    let others = history.contractors.iter().filter(|contractor| *contractor != viewer);
    let named = others.map(|other| format!("\"{other}\"")).find(|name| text.contains(name.as_str()))?;
    Some(format!("{named} is in {text}"))
}

/// Under a sealed policy the initiator sees no offer before the close.
fn shows_too_early(found: &Value, history: &NegotiationHistory) -> Option<String> {
    let is_sealed = history.policy.as_ref().is_some_and(|policy| policy.sealed);
    let is_collecting = found.get("state").and_then(Value::as_str) == Some("collecting");
    let offers = found.get("offers").and_then(Value::as_array).map_or(0, Vec::len);
    (is_sealed && is_collecting && offers > 0).then(|| format!("{offers} offers are shown while they are collected"))
}
