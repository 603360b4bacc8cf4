//! What a party may see of its bargain: the same as every other, and its own messages.

use schemas::delivery::{self, Disposition};
use schemas::{AgentId, Timestamp, WireTime};

use super::{Bargain, BargainParty};
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::tombstone::{BargainEnd, Tombstone};
use crate::negotiation::view::{BargainView, NegotiationView, Role, messages};
use crate::protocol::Phase;

impl NegotiationView {
    /// Of an open bargain at an instant of log time; absent when the viewer takes no part.
    pub(crate) fn of_bargain(open: &Bargain, viewer: &AgentId, now: Timestamp) -> Option<Self> {
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
        Some(Self {
            reply_by: (open.phase == Phase::Joining).then_some(WireTime(open.join_by)),
            invited: (index == 0).then(|| u32::try_from(open.invited()).unwrap_or(u32::MAX)),
            bargain: Some(Box::new(bargain)),
            ..Self::plain(&open.header.id, role, at, open.header.ends_by, messages)
        })
    }
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

impl BargainView {
    /// Of a bargain that has ended.
    pub(crate) fn of_ended(tombstone: &Tombstone, end: &BargainEnd) -> Self {
        Self {
            parties: tombstone.parties.iter().map(|known| known.agent.clone()).collect(),
            joined: Vec::new(),
            confirmed: Vec::new(),
            turn: None,
            agreement: end.agreement.as_deref().cloned(),
            detail: end.detail.as_deref().map(str::to_owned),
        }
    }
}
