//! What a participant may see of a negotiation, filtered by role (docs/spec/messages.md#ms-43).

use schemas::delivery::{Disposition, Outcome};
use schemas::payload::Terms;
use schemas::{Act, AgentId, AwardNo, Digest, DocumentHash, Lot, MsgId, NegotiationId, OfferId, Timestamp, WireTime};
use serde::Serialize;

use crate::negotiation::Party;
use crate::negotiation::contract_net::SessionState;
use crate::negotiation::protocols::ProtocolView;
use crate::negotiation::tombstone::Tombstone;
use schemas::protocols::Phase;

/// One participant's view. A contractor sees its own messages and the outcome; the initiator sees offers after the close
/// (before it too, where the policy is not sealed). Of an ended negotiation only the outcome and the awards remain.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NegotiationView {
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The viewer's part in it.
    pub role: Role,
    /// Its state.
    pub state: Phase,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// The round; of a bargain 0 before its first turn.
    pub round: u32,
    /// Collection ends then.
    pub reply_by: Option<WireTime>,
    /// The negotiation ends then at the latest.
    pub ends_by: WireTime,
    /// Policy id.
    pub policy: Option<String>,
    /// Contractors called in this round; the initiator only.
    pub invited: Option<u32>,
    /// The viewer's own session; contractors only.
    pub session: Option<SessionState>,
    /// The viewer's own messages.
    pub messages: Vec<MessageView>,
    /// The offers the viewer may see: a contractor its own, the initiator all after the close.
    pub offers: Vec<OfferView>,
    /// The awards the viewer may see.
    pub awards: Vec<AwardView>,
    /// What its protocol adds, under the protocol's name.
    #[serde(flatten)]
    pub protocol: Option<ProtocolView>,
    /// Head of the hash chain over the negotiation's inputs; once it has ended.
    pub digest: Option<Digest>,
}

/// A participant's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// It called.
    Initiator,
    /// It was called.
    Contractor,
    /// It was called to a bargain.
    Party,
    /// It has a seat in a panel.
    Panelist,
    /// It ranks the answers of a panel.
    Ranker,
    /// It reviews the answers of a panel.
    Reviewer,
    /// It was called to a team.
    Member,
}

/// One of the viewer's own messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageView {
    /// The message.
    pub msg_id: MsgId,
    /// Its act.
    pub act: Act,
    /// What became of it.
    pub disposition: Disposition,
    /// Its log time.
    pub at: WireTime,
    /// For an offer: its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer_id: Option<OfferId>,
}

/// An offer in the running, held, or awarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OfferView {
    /// The offer.
    pub offer_id: OfferId,
    /// Its contractor.
    pub contractor: AgentId,
    /// Its terms.
    pub terms: Terms,
    /// Its score; the initiator only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<u32>,
    /// Where its contractor's session stands.
    pub state: SessionState,
}

/// An award.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AwardView {
    /// The award.
    pub award_no: AwardNo,
    /// The lot; only while the negotiation is open.
    pub lot: Option<Lot>,
    /// Its contractor.
    pub contractor: AgentId,
    /// `awarded`, `committed`, `done`, `cancel_pending`, `revoked`.
    pub state: &'static str,
    /// The protocol document it pins; only while the negotiation is open and the award is not taken back.
    pub document: Option<DocumentHash>,
}

impl NegotiationView {
    /// Nothing but what is seen of every negotiation.
    pub(crate) fn plain(
        negotiation: &NegotiationId,
        role: Role,
        (state, round): (Phase, u32),
        ends_by: Timestamp,
        messages: Vec<MessageView>,
    ) -> Self {
        Self {
            negotiation: negotiation.clone(),
            role,
            state,
            outcome: None,
            round,
            reply_by: None,
            ends_by: WireTime(ends_by),
            policy: None,
            invited: None,
            session: None,
            messages,
            offers: Vec::new(),
            awards: Vec::new(),
            protocol: None,
            digest: None,
        }
    }

    /// Of an ended negotiation; absent when the viewer took no part, or no part to the end in a team that formed.
    pub(crate) fn of_ended(tombstone: &Tombstone, viewer: &AgentId) -> Option<Self> {
        let party = tombstone.party_of(viewer)?;
        let end = &tombstone.end;
        if !end.concerns(party) {
            return None;
        }
        let awards = tombstone
            .awards_of(party)
            .filter_map(|award| {
                Some(AwardView {
                    award_no: award.award_no,
                    lot: None,
                    contractor: tombstone.contractor(award)?.clone(),
                    state: if award.is_revoked { "revoked" } else { "done" },
                    document: None,
                })
            })
            .collect();
        let role = if party == 0 { Role::Initiator } else { end.role(party) };
        let at_end = (Phase::Ended, tombstone.round);
        Some(Self {
            outcome: Some(tombstone.outcome),
            awards,
            protocol: end.view(&tombstone.parties, party),
            digest: Some(tombstone.chain),
            ..Self::plain(&tombstone.id, role, at_end, tombstone.ends_by, Vec::new())
        })
    }
}

/// A party's own messages.
pub(crate) fn messages(party: &Party, is_numbered: fn(Disposition) -> bool) -> Vec<MessageView> {
    party
        .seen
        .iter()
        .map(|seen| MessageView {
            msg_id: seen.msg_id.clone(),
            act: seen.act,
            disposition: seen.disposition,
            at: WireTime(seen.at),
            offer_id: (seen.act == Act::Offer && is_numbered(seen.disposition)).then_some(OfferId(seen.position())),
        })
        .collect()
}
