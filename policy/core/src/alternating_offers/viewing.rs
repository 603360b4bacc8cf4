//! What a party may see of its bargain: the same as every other, and its own messages.

use schemas::delivery::Disposition;
use schemas::{AgentId, Timestamp, WireTime};

use super::state::{Bargain, BargainParty};
use crate::negotiation::phase::Phase;
use crate::negotiation::tombstone::{BargainEnd, Tombstone};
use crate::negotiation::view::{BargainView, NegotiationView, Role, messages};

impl Bargain {
    /// The view of one party at an instant of log time; absent when it takes no part.
    pub(crate) fn view(&self, viewer: &AgentId, now: Timestamp) -> Option<NegotiationView> {
        let index = self.index_of(viewer)?;
        let named = |is_shown: fn(&BargainParty) -> bool| {
            self.parties.iter().filter(|one| is_shown(one)).map(|one| one.party.agent.clone()).collect()
        };
        let bargain = BargainView {
            parties: named(|_| true),
            joined: named(|one| one.has_joined),
            confirmed: named(|one| one.has_confirmed),
            turn: (self.phase == Phase::Bargaining).then(|| self.turn_told(now)),
            agreement: (self.phase == Phase::Confirming).then(|| self.agreement()).flatten(),
            detail: None,
        };
        Some(NegotiationView {
            negotiation: self.header.id.clone(),
            role: if index == 0 { Role::Initiator } else { Role::Party },
            state: self.phase,
            outcome: self.header.outcome,
            round: self.rounds_begun(),
            reply_by: (self.phase == Phase::Joining).then_some(WireTime(self.join_by)),
            ends_by: WireTime(self.header.ends_by),
            policy: None,
            invited: (index == 0).then(|| u32::try_from(self.parties.len() - 1).unwrap_or(u32::MAX)),
            session: None,
            messages: messages(&self.parties[index].party, |disposition| disposition == Disposition::Ok),
            offers: Vec::new(),
            awards: Vec::new(),
            bargain: Some(Box::new(bargain)),
            digest: None,
        })
    }
}

impl Tombstone {
    /// How a bargain ended.
    pub(crate) fn bargain_view(&self, end: &BargainEnd) -> BargainView {
        BargainView {
            parties: self.parties.iter().map(|known| known.agent.clone()).collect(),
            joined: Vec::new(),
            confirmed: Vec::new(),
            turn: None,
            agreement: end.agreement.as_deref().cloned(),
            detail: end.detail.as_deref().map(str::to_owned),
        }
    }
}
