//! What the members of a panel are asked, and shown: others' answers of closed rounds, without names, in an order of the
//! recipient's own (docs/spec/panel.md#pn-22); and what they see of it.

use std::sync::Arc;

use schemas::delivery::{Ask, Notification, RankAsk, Rated, ShownAnswer};
use schemas::panel::SeatChoice;
use schemas::record::Qos;
use schemas::{AgentId, Timestamp, WireTime};
use serde::Serialize;

use super::reply::SeatReply;
use super::review::PanelReview;
use super::round::{MemberIndex, PanelRound};
use super::{MemberRole, Panel, PanelEnd};
use crate::effect::Deliver;
use crate::limits::CALL_ATTEMPTS_MAX;
use crate::negotiation::InputContext;
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::protocols::ProtocolView;
use crate::negotiation::view::{NegotiationView, Role, messages};
use crate::panel::ranker::showing;

/// The round whose answers are shown in the one that runs.
fn before(panel: &Panel) -> Option<&PanelRound> {
    panel.rounds.iter().rev().nth(1)
}

/// Whom a seat is shown of the round before, in the order in which it sees them.
pub(super) struct SeenBySeat {
    /// Whose answers, beside its own: who replied there and goes on.
    peers: Vec<MemberIndex>,
    /// Whose reviews.
    reviewers: Vec<MemberIndex>,
}

impl SeenBySeat {
    pub(super) fn of(panel: &Panel, seat: MemberIndex) -> Self {
        Self { peers: peers_of(panel, seat), reviewers: reviewers_of(panel, seat) }
    }

    /// Whom the ratings of its answer rate: the reviewers that replied, failing that its peers.
    pub(super) fn rated(&self) -> (Rated, &[MemberIndex]) {
        if self.reviewers.is_empty() { (Rated::Peers, &self.peers) } else { (Rated::Reviewers, &self.reviewers) }
    }
}

fn peers_of(panel: &Panel, recipient: MemberIndex) -> Vec<MemberIndex> {
    let replied = before(panel).into_iter().flat_map(PanelRound::replies).map(|(place, _)| place);
    let others = replied.filter(|place| *place != recipient && !panel.is_dropped(*place)).collect();
    let ended = before(panel).and_then(|round| round.closed_at);
    in_order(panel, recipient, others, ended)
}

fn reviewers_of(panel: &Panel, recipient: MemberIndex) -> Vec<MemberIndex> {
    let Some(before) = before(panel) else { return Vec::new() };
    let replied = panel.review_of(before.number).into_iter().flat_map(PanelReview::replies);
    in_order(panel, recipient, replied.map(|(place, _)| place).collect(), before.closed_at)
}

/// These answers of the round that has just closed, in the order in which somebody who has no seat sees them.
pub(super) fn shown_to(panel: &Panel, recipient: MemberIndex, shown: Vec<MemberIndex>) -> Vec<MemberIndex> {
    in_order(panel, recipient, shown, panel.round().closed_at)
}

fn in_order(
    panel: &Panel,
    recipient: MemberIndex,
    mut shown: Vec<MemberIndex>,
    ended: Option<schemas::Position>,
) -> Vec<MemberIndex> {
    let recipient = panel.agent(recipient);
    let ended = ended.unwrap_or(panel.called_at);
    shown.sort_by_cached_key(|place| showing(&panel.header.id, ended, recipient, panel.agent(*place)));
    shown
}

/// The asks of a wave.
pub(super) fn to_seats(
    panel: &Panel,
    wave: &[MemberIndex],
    answer_by: Timestamp,
    context: &mut InputContext<'_>,
) -> Vec<Deliver> {
    let kind = Arc::new(panel.rules.answer.clone());
    let review = before(panel).and_then(|round| panel.review_of(round.number));
    let mut deliveries = Vec::with_capacity(wave.len());
    for place in wave {
        let seen = SeenBySeat::of(panel, *place);
        let (rated, whom) = seen.rated();
        let is_rated = panel.rules.rate && !whom.is_empty();
        let shown = |author: MemberIndex| reviewed(before(panel)?, author, review, &seen.reviewers);
        let ask = Ask {
            rounds: Some(panel.rules.rounds),
            answer: Some(Arc::clone(&kind)),
            rules_digest: Some(panel.rules_digest),
            own: shown(*place),
            peers: before(panel).map(|_| seen.peers.iter().copied().filter_map(shown).collect()),
            rate: is_rated.then_some(rated),
            ..plain(panel, answer_by)
        };
        deliveries.push(delivery(panel, *place, ask, context));
    }
    deliveries
}

/// The ask of the ranker.
pub(super) fn to_ranker(
    panel: &Panel,
    ranker: MemberIndex,
    candidates: &[MemberIndex],
    rank_by: Timestamp,
    context: &mut InputContext<'_>,
) -> Deliver {
    let keep = panel.rules.select.as_ref().map_or(0, |select| select.keep);
    let ask =
        Ask { peers: Some(answers(panel.round(), candidates)), rank: Some(RankAsk { keep }), ..plain(panel, rank_by) };
    delivery(panel, ranker, ask, context)
}

/// The ask of a reviewer.
pub(super) fn to_reviewer(
    panel: &Panel,
    reviewer: MemberIndex,
    authors: &[MemberIndex],
    review_by: Timestamp,
    context: &mut InputContext<'_>,
) -> Deliver {
    let ask = Ask {
        peers: Some(answers(panel.round(), authors)),
        rate: panel.rules.rate.then_some(Rated::Peers),
        review: true,
        ..plain(panel, review_by)
    };
    delivery(panel, reviewer, ask, context)
}

/// What every ask says.
fn plain(panel: &Panel, answer_by: Timestamp) -> Ask {
    Ask {
        round: panel.round().number,
        rounds: None,
        task: panel.task.clone(),
        answer: None,
        answer_by: WireTime(answer_by),
        ends_by: WireTime(panel.header.ends_by),
        rules_digest: None,
        own: None,
        peers: None,
        rate: None,
        rank: None,
        review: false,
    }
}

fn answers(round: &PanelRound, of: &[MemberIndex]) -> Vec<ShownAnswer> {
    of.iter().filter_map(|place| round.reply_of(*place)).map(|reply| shown(reply, Vec::new())).collect()
}

/// An answer of a round, with what each of these reviewers said of it.
fn reviewed(
    round: &PanelRound,
    author: MemberIndex,
    review: Option<&PanelReview>,
    reviewers: &[MemberIndex],
) -> Option<ShownAnswer> {
    let said = |reviewer: &MemberIndex| review?.asked(*reviewer)?.reply.as_ref()?.text_of(author);
    Some(shown(round.reply_of(author)?, reviewers.iter().map(said).collect()))
}

fn shown(reply: &SeatReply, reviews: Vec<Option<Arc<str>>>) -> ShownAnswer {
    ShownAnswer { answer: reply.answer.clone(), text: reply.text.clone(), reviews }
}

/// Retried until the answer is due. Nobody waits long for one who is not there, unless it may be away for a while.
fn delivery(panel: &Panel, to: MemberIndex, ask: Ask, context: &mut InputContext<'_>) -> Deliver {
    let expires = ask.answer_by.0;
    let member = panel.member(to);
    let is_repeated = member.qos == Qos::AtLeastOnce && !member.is_durable;
    let told = Arc::new(Notification::Ask(Box::new(ask)));
    Deliver {
        qos: member.qos,
        attempts_max: is_repeated.then_some(CALL_ATTEMPTS_MAX),
        expires,
        ..panel.header.delivery(context, &member.party.agent, told)
    }
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

/// What a member may see of its panel (docs/spec/panel.md#pn-33): the initiator counts only, a seat its own messages; absent when the
/// viewer takes no part.
pub(super) fn view_of(panel: &Panel, viewer: &AgentId) -> Option<NegotiationView> {
    let member = panel.member(panel.speaker(viewer)?);
    let is_initiator = member.role == MemberRole::Initiator;
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let round = panel.round();
    let counts = PanelView {
        rounds: panel.rules.rounds,
        seats: panel.seat_choice(),
        asked: Some(count(round.asked.len())),
        replied: Some(count(round.replies().count())),
        detail: None,
    };
    let shown = if is_initiator { counts } else { PanelView { seats: None, asked: None, replied: None, ..counts } };
    let role = match member.role {
        MemberRole::Initiator => Role::Initiator,
        MemberRole::Seat => Role::Panelist,
        MemberRole::Ranker => Role::Ranker,
        MemberRole::Reviewer => Role::Reviewer,
    };
    let messages = messages(&member.party, |_| false);
    Some(NegotiationView {
        invited: is_initiator.then(|| count(panel.invited())),
        protocol: Some(ProtocolView::Panel(Box::new(shown))),
        ..NegotiationView::plain(&panel.header.id, role, (panel.phase, round.number), panel.header.ends_by, messages)
    })
}

impl PanelEnd {
    pub(crate) fn role(&self, party: u16) -> Role {
        if self.ranker == Some(party) {
            Role::Ranker
        } else if self.reviewers.contains(&party) {
            Role::Reviewer
        } else {
            Role::Panelist
        }
    }

    pub(crate) fn view(&self) -> PanelView {
        let detail = self.detail.as_deref().map(str::to_owned);
        PanelView { rounds: 0, seats: None, asked: None, replied: None, detail }
    }
}
