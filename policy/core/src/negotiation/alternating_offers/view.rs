//! What a party may see of its bargain: the same as every other, and its own messages.

use schemas::delivery::{self, Agreement, Disposition, Turn};
use schemas::{AgentId, Timestamp, WireTime};
use serde::Serialize;

use super::{Bargain, BargainEnd, BargainParty};
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::protocols::ProtocolView;
use crate::negotiation::tombstone::PastParty;
use crate::negotiation::view::{NegotiationView, Role, messages};
use schemas::protocols::Phase;

/// How a bargain stands, or ended. Nothing of a mandate is in it.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BargainView {
    /// Who takes part, in the order of their turns.
    pub parties: Vec<AgentId>,
    /// Who of them has joined; while it is open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<AgentId>,
    /// Who of them has confirmed the agreement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<AgentId>,
    /// Whose turn it is, and the standing offer; once all have joined, and before they agree.
    pub turn: Option<Turn>,
    /// What all have accepted: agreed on, or still waiting for confirmation.
    pub agreement: Option<Agreement>,
    /// Once it has ended: why there is no agreement, or who ended it.
    pub detail: Option<String>,
}

/// What a party may see of an open bargain at an instant of log time; absent when the viewer takes no part.
pub(super) fn view_of(open: &Bargain, viewer: &AgentId, now: Timestamp) -> Option<NegotiationView> {
    let index = open.speaker(viewer)?;
    let named = |is_shown: fn(&BargainParty) -> bool| {
        open.parties.iter().filter(|one| is_shown(one)).map(|one| one.party.agent.clone()).collect()
    };
    let bargain = BargainView {
        parties: named(|_| true),
        joined: named(|one| one.has_joined),
        confirmed: named(|one| one.has_confirmed),
        turn: (open.phase == Phase::Bargaining).then(|| turn_notice(open, now)),
        agreement: (open.phase == Phase::Confirming).then(|| open.agreement()).flatten(),
        detail: None,
    };
    let role = if index == 0 { Role::Initiator } else { Role::Party };
    let messages = messages(open.party(index), |disposition| disposition == Disposition::Ok);
    let at = (open.phase, open.rounds_begun());
    Some(NegotiationView {
        reply_by: (open.phase == Phase::Joining).then_some(WireTime(open.join_by)),
        invited: (index == 0).then(|| u32::try_from(open.invited()).unwrap_or(u32::MAX)),
        protocol: Some(ProtocolView::Bargain(Box::new(bargain))),
        ..NegotiationView::plain(&open.header.id, role, at, open.header.ends_by, messages)
    })
}

/// The standing offer as parties are told it.
fn standing_notice(bargain: &Bargain) -> Option<delivery::Standing> {
    let standing = bargain.standing.as_deref()?;
    Some(delivery::Standing {
        offer_id: standing.id,
        by: bargain.agent(standing.by).clone(),
        terms: standing.terms.clone(),
        terms_digest: standing.digest,
        valid_from: standing.valid_from.map(WireTime),
        valid_until: Some(standing.valid_until).filter(|until| *until < Timestamp::MAX).map(WireTime),
        conditions: standing.conditions.clone(),
        accepted_by: standing.accepted.iter().map(|index| bargain.agent(*index).clone()).collect(),
    })
}

/// How it stands, as parties are told.
pub(super) fn turn_notice(bargain: &Bargain, now: Timestamp) -> delivery::Turn {
    delivery::Turn {
        party: bargain.agent(bargain.turn()).clone(),
        round: bargain.round(),
        step: bargain.steps,
        act_by: WireTime(bargain.act_by()),
        ends_by: WireTime(bargain.header.ends_by),
        t_ppm: bargain.t_ppm(now),
        standing: standing_notice(bargain),
    }
}

impl BargainEnd {
    pub(crate) fn view(&self, parties: &[PastParty]) -> BargainView {
        BargainView {
            parties: parties.iter().map(|known| known.agent.clone()).collect(),
            joined: Vec::new(),
            confirmed: Vec::new(),
            turn: None,
            agreement: self.agreement.as_deref().cloned(),
            detail: self.detail.as_deref().map(str::to_owned),
        }
    }
}
