//! What a member may see of its panel: the initiator counts only, a seat its own messages (docs/spec/panel.md#pn-33).

use schemas::{AgentId, WireTime};

use super::{MemberRole, Panel};
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::view::{NegotiationView, PanelView, Role, messages};

/// Of an open panel; absent when the viewer takes no part.
pub(crate) fn of_panel(open: &Panel, viewer: &AgentId) -> Option<NegotiationView> {
    let place = open.speaker(viewer)?;
    let member = open.member(place);
    let is_initiator = member.role == MemberRole::Initiator;
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let round = open.round();
    let counts = PanelView {
        rounds: open.rules.rounds,
        seats: open.seat_choice(),
        asked: Some(count(round.asked.len())),
        replied: Some(count(round.replies().count())),
        detail: None,
    };
    let panel = if is_initiator { counts } else { PanelView { seats: None, asked: None, replied: None, ..counts } };
    Some(NegotiationView {
        negotiation: open.header.id.clone(),
        role: match member.role {
            MemberRole::Initiator => Role::Initiator,
            MemberRole::Seat => Role::Panelist,
            MemberRole::Ranker => Role::Ranker,
            MemberRole::Reviewer => Role::Reviewer,
        },
        state: open.phase,
        outcome: open.header.outcome,
        round: round.number,
        reply_by: None,
        ends_by: WireTime(open.header.ends_by),
        policy: None,
        invited: is_initiator.then(|| count(open.seats().count())),
        session: None,
        messages: messages(&member.party, |_| false),
        offers: Vec::new(),
        awards: Vec::new(),
        bargain: None,
        team: None,
        panel: Some(Box::new(panel)),
        digest: None,
    })
}
