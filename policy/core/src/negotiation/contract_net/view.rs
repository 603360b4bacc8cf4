//! What a participant may see of an open contract net: a contractor its own session, the initiator the offers after the
//! close.

use schemas::{AgentId, WireTime};

use crate::negotiation::Party;
use crate::negotiation::contract_net::ContractNet;
use crate::negotiation::contract_net::session::ContractorSession;
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::view::{NegotiationView, OfferView, Role, messages};
use schemas::protocols::Phase;

/// What a participant may see of an open contract net; absent when the viewer takes no part.
pub(super) fn view_of(net: &ContractNet, viewer: &AgentId) -> Option<NegotiationView> {
    if *viewer == net.initiator.agent {
        let has_closed = net.phase != Phase::Collecting || !net.policy().sealed;
        let shown: &[ContractorSession] = if has_closed { &net.sessions } else { &[] };
        return Some(NegotiationView {
            invited: Some(net.collection.expected()),
            offers: shown.iter().filter_map(|session| offer_view(session, true)).collect(),
            ..base_view(net, Role::Initiator, net.party(net.speaker(viewer)?), None)
        });
    }
    let index = net.session_of(viewer)?;
    let session = &net.sessions[index];
    Some(NegotiationView {
        session: Some(session.state),
        offers: offer_view(session, false).into_iter().collect(),
        ..base_view(net, Role::Contractor, &session.party, Some(index))
    })
}

/// What every participant may see, with the awards of one session or of all.
fn base_view(net: &ContractNet, role: Role, party: &Party, session: Option<usize>) -> NegotiationView {
    let messages = messages(party, ContractNet::is_numbered);
    NegotiationView {
        reply_by: Some(WireTime(net.collection.reply_by())),
        policy: Some(net.policy().id.clone()),
        awards: net.awards.shown(&net.sessions, session),
        ..NegotiationView::plain(&net.header.id, role, (net.phase, net.round), net.header.ends_by, messages)
    }
}

fn offer_view(session: &ContractorSession, with_score: bool) -> Option<OfferView> {
    let offer = session.offer.as_ref()?;
    Some(OfferView {
        offer_id: offer.id,
        contractor: session.party.agent.clone(),
        terms: offer.terms(),
        score: with_score.then_some(offer.score),
        state: session.state,
    })
}
