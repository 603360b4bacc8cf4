//! Answers `journal.<lane>`: what happened in one negotiation.
//!
//! Request `{"negotiation": <id>}` ([`JournalRequest`]); answer `{"found": <journal>}` or `{"not_found": true}`. It holds
//! every message and decision, so gateways pass it on to those only who may see it.

use std::sync::Arc;

use bytes::Bytes;
use policy_core::LaneState;
use schemas::journal::{Journal, JournalEntry, JournalRequest};
use schemas::{AgentId, NegotiationId};
use serde::Serialize;

use super::{About, Memory};

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Found(Journal),
    NotFound(bool),
}

/// The answer to a request; an unreadable request finds nothing.
pub(crate) fn answer(memory: &Memory, engine: &str, request: &[u8]) -> Bytes {
    let asked = serde_json::from_slice::<JournalRequest>(request).ok();
    let journal = asked.and_then(|asked| memory.journal(engine, &asked.negotiation));
    let answer = journal.map_or(Answer::NotFound(true), Answer::Found);
    // A journal is texts and integers, which always have an encoding.
    serde_json::to_vec(&answer).map_or_else(|_| Bytes::from_static(b"{\"not_found\":true}"), Bytes::from)
}

impl Memory {
    pub(super) fn journal(&self, engine: &str, negotiation: &NegotiationId) -> Option<Journal> {
        let remembered = self.remembered.get(negotiation)?;
        Some(Journal {
            negotiation: negotiation.clone(),
            engine: engine.to_owned(),
            entries: remembered.facts.iter().map(|(at, fact)| JournalEntry { at: *at, what: fact.told() }).collect(),
            left_out: remembered.facts.left_out(),
            gap: remembered.facts.gap(),
            unacknowledged: remembered.facts.waiting(),
        })
    }
}

/// What the lane's state knows of a negotiation that another owner began.
pub(crate) fn adopted(lane_state: &LaneState, negotiation: &NegotiationId) -> Option<About> {
    let view = lane_state.view(negotiation, &AgentId::try_new(negotiation.initiator()).ok()?)?;
    // The initiator's first message is the call.
    let called_at = view.messages.first().map_or(lane_state.now(), |call| call.at.0);
    Some(About {
        protocol: lane_state.protocol(negotiation)?,
        phase: view.state,
        policy: Arc::from(view.policy.unwrap_or_default()),
        called_at,
        invited: view.invited.unwrap_or_default(),
    })
}
