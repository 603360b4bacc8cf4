//! What a participant may see of a negotiation, filtered by role (docs/spec/messages.md#ms-43).

use schemas::delivery::{Agreement, Disposition, Outcome, Turn};
use schemas::panel::SeatChoice;
use schemas::payload::Terms;
use schemas::team::{Conclusion, Floor, TeamTask};
use schemas::{Act, AgentId, AwardNo, Digest, DocumentHash, Lot, MsgId, NegotiationId, OfferId, Timestamp, WireTime};
use serde::Serialize;

use crate::negotiation::Party;
use crate::negotiation::tombstone::{PanelEnd, ProtocolEnd, Tombstone};
use crate::protocol::{Phase, SessionState};

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
    /// How a bargain stands; the same for all its parties.
    pub bargain: Option<Box<BargainView>>,
    /// How a panel stands, or ended.
    pub panel: Option<Box<PanelView>>,
    /// How a team stands; the same for all its members, and nothing for others.
    pub team: Option<Box<TeamView>>,
    /// Head of the hash chain over the negotiation's inputs; once it has ended.
    pub digest: Option<Digest>,
}

/// A participant's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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

/// How a panel stands, or ended. Nothing of what was said is in it.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PanelView {
    /// Rounds of answers at most; 0 once it has ended.
    #[serde(skip_serializing_if = "is_zero")]
    pub rounds: u32,
    /// Where its seats were chosen: what that came to; the initiator only.
    pub seats: Option<SeatChoice>,
    /// Seats asked in this round; the initiator only.
    pub asked: Option<u32>,
    /// Seats that replied in this round; the initiator only.
    pub replied: Option<u32>,
    /// Once it has ended: what stopped it.
    pub detail: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

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

/// How a team stands, or ended.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TeamView {
    /// The members in the order of their seats; while it forms, who has joined.
    pub members: Vec<AgentId>,
    /// Members that get the floor no more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub muted: Vec<AgentId>,
    /// The floor, as members were told it last; once it has formed, and before it ends.
    pub floor: Option<Floor>,
    /// Its tasks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TeamTask>,
    /// What was said last, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recap: Vec<SaidView>,
    /// What it concluded.
    pub conclusion: Option<Conclusion>,
    /// Once it has ended: why there is no conclusion.
    pub detail: Option<String>,
}

/// Something a member of a team said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SaidView {
    /// The step.
    pub step: u32,
    /// The member.
    pub by: AgentId,
    /// The words.
    pub text: String,
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
            bargain: None,
            panel: None,
            team: None,
            digest: None,
        }
    }

    /// Of an ended negotiation; absent when the viewer took no part, or no part to the end in a team that formed.
    pub(crate) fn of_ended(tombstone: &Tombstone, viewer: &AgentId) -> Option<Self> {
        let party = tombstone.party_of(viewer)?;
        if let ProtocolEnd::Team(end) = &tombstone.end
            && !end.concerns(party)
        {
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
        let role = match (party, &tombstone.end) {
            (0, _) => Role::Initiator,
            (_, ProtocolEnd::Bargain(_)) => Role::Party,
            (_, ProtocolEnd::ContractNet(_)) => Role::Contractor,
            (_, ProtocolEnd::Panel(end)) if end.ranker == Some(party) => Role::Ranker,
            (_, ProtocolEnd::Panel(end)) if end.reviewers.contains(&party) => Role::Reviewer,
            (_, ProtocolEnd::Panel(_)) => Role::Panelist,
            (_, ProtocolEnd::Team(_)) => Role::Member,
        };
        let at_end = (Phase::Ended, tombstone.round);
        let mut view = Self {
            outcome: Some(tombstone.outcome),
            awards,
            digest: Some(tombstone.chain),
            ..Self::plain(&tombstone.id, role, at_end, tombstone.ends_by, Vec::new())
        };
        match &tombstone.end {
            ProtocolEnd::ContractNet(_) => {}
            ProtocolEnd::Bargain(end) => view.bargain = Some(Box::new(BargainView::of_ended(tombstone, end))),
            ProtocolEnd::Panel(end) => view.panel = Some(Box::new(PanelView::of_ended(end))),
            ProtocolEnd::Team(end) => view.team = TeamView::of_ended(tombstone, end, party).map(Box::new),
        }
        Some(view)
    }
}

impl PanelView {
    /// Of a panel that has ended.
    fn of_ended(end: &PanelEnd) -> Self {
        Self { rounds: 0, seats: None, asked: None, replied: None, detail: end.detail.as_deref().map(str::to_owned) }
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
