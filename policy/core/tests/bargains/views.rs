//! What parties may see of their bargain.

use policy_core::{BargainView, NegotiationView, Phase, ProtocolView};
use schemas::delivery::Outcome;
use serde_json::json;

use crate::haggle::{Haggle, rules};
use crate::script::agent;

#[test]
fn every_party_sees_the_same_turn_and_only_its_own_messages() {
    let mut haggle = Haggle::between(&["alice", "bob"], json!({}));
    let offer = haggle.made(20, "alice", 50);
    let view = |who: &str| haggle.script.lane_state.view(&haggle.script.negotiation, &agent(who));
    let (alice, bob) = (view("alice").unwrap(), view("bob").unwrap());
    assert_eq!((alice.state, alice.round, bargain(&alice)), (Phase::Bargaining, 1, bargain(&bob)));
    let turn = bargain(&alice).turn.as_ref().unwrap();
    assert_eq!((turn.party.as_str(), turn.step), ("bob", 1));
    assert_eq!(turn.standing.as_ref().map(|standing| standing.offer_id), Some(offer.id));
    assert_eq!((alice.messages.len(), bob.messages.len()), (2, 1));
    assert_eq!(alice.messages[1].offer_id, Some(offer.id));
    assert_eq!(serde_json::to_value(bob.role).unwrap(), "party");
    assert!(view("mallory").is_none());
}

#[test]
fn while_joining_a_view_shows_who_has_and_afterwards_how_it_ended() {
    let mut haggle = Haggle::empty();
    haggle.call(&["bob", "carol"], rules(json!({})), None);
    haggle.join(5, "carol", None);
    let view = |haggle: &Haggle| haggle.script.lane_state.view(&haggle.script.negotiation, &agent("bob")).unwrap();
    let joining = view(&haggle);
    let joined = bargain(&joining).joined.clone();
    assert_eq!((joining.state, joined), (Phase::Joining, vec![agent("alice"), agent("carol")]));
    haggle.end(6, "alice");
    let ended = view(&haggle);
    assert_eq!((ended.state, ended.outcome), (Phase::Ended, Some(Outcome::Ended)));
    assert_eq!(bargain(&ended).detail.as_deref(), Some("alice"));
}

#[test]
fn an_agreement_in_the_last_turn_of_a_round_begins_no_other_round() {
    for confirm_ms in [json!(null), json!(50)] {
        let mut haggle = Haggle::between(&["alice", "bob"], json!({"confirm_ms": confirm_ms}));
        let offer = haggle.made(20, "alice", 50);
        haggle.accept(21, "bob", offer);
        let view = haggle.script.lane_state.view(&haggle.script.negotiation, &agent("bob")).unwrap();
        let agreed = bargain(&view).agreement.as_ref().unwrap();
        assert_eq!((view.round, agreed.round, agreed.step), (1, 1, 2));
    }
}

fn bargain(view: &NegotiationView) -> &BargainView {
    let Some(ProtocolView::Bargain(bargain)) = &view.protocol else { panic!("a bargain") };
    bargain
}
