//! What the members of a panel are asked, and shown: others' answers of closed rounds, without names, in an order of the
//! recipient's own (docs/spec/panel.md#pn-22).

use std::sync::Arc;

use schemas::delivery::{Ask, Notification, RankAsk, Rated, ShownAnswer};
use schemas::record::Qos;
use schemas::{Timestamp, WireTime};

use super::Panel;
use super::round::{MemberIndex, PanelRound, SeatReply};
use crate::effect::Deliver;
use crate::limits::CALL_ATTEMPTS_MAX;
use crate::negotiation::InputContext;
use crate::panel::ranker::showing;

/// The round whose answers are shown in the one that runs.
fn before(panel: &Panel) -> Option<&PanelRound> {
    panel.rounds.iter().rev().nth(1)
}

/// Whose answers of the round before a seat is shown beside its own, in the order it sees them: who replied there and goes
/// on.
pub(super) fn peers_of(panel: &Panel, recipient: MemberIndex) -> Vec<MemberIndex> {
    let replied = before(panel).into_iter().flat_map(PanelRound::replies).map(|(place, _)| place);
    let others = replied.filter(|place| *place != recipient && !panel.is_dropped(*place)).collect();
    let ended = before(panel).and_then(|round| round.closed_at);
    in_order(panel, recipient, others, ended)
}

/// These answers of the round that has just closed, in the order somebody sees them.
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
    let mut deliveries = Vec::with_capacity(wave.len());
    for place in wave {
        let peers = before(panel).map(|round| answers(round, &peers_of(panel, *place)));
        let is_rated = panel.rules.rate && peers.as_ref().is_some_and(|peers| !peers.is_empty());
        let ask = Ask {
            rounds: Some(panel.rules.rounds),
            answer: Some(Arc::clone(&kind)),
            rules_digest: Some(panel.rules_digest),
            own: before(panel).and_then(|round| round.reply_of(*place)).map(shown),
            peers,
            rate: is_rated.then_some(Rated::Peers),
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
    of.iter().filter_map(|place| round.reply_of(*place)).map(shown).collect()
}

fn shown(reply: &SeatReply) -> ShownAnswer {
    ShownAnswer { answer: reply.answer.clone(), text: reply.text.clone(), reviews: Vec::new() }
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
