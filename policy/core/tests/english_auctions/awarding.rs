//! docs/spec/english-auction.md#ea-13: the award, as in the contract net.

use policy_core::{Effect, Event};
use schemas::Act;
use schemas::delivery::Notification;
use serde_json::json;

use crate::script::{Script, agent};
use crate::{auction, bid, rising};

fn paid(script: &Script, to: &str) -> Option<i64> {
    let Notification::Accept(award) = &*script.last(to, Act::Accept).told else { panic!("an award") };
    award.payment
}

fn sold() -> Script {
    let mut script = auction(rising(json!({"reserve": 105})), &["a", "b", "c"]);
    bid(&mut script, 1, "c", 100);
    bid(&mut script, 2, "a", 110);
    bid(&mut script, 3, "b", 130);
    script.tick(501);
    script
}

#[test]
fn the_leader_is_awarded_at_its_bid_and_completes_as_in_a_contract_net() {
    let mut script = sold();
    assert_eq!(paid(&script, "b"), Some(130));
    script.confirm(502, "b", 1);
    let effects = script.done(503, "b");
    assert!(effects.contains(&"closed=completed@award.0.1.end".to_owned()), "{effects:?}");
    script.assert_sound();
}

#[test]
fn a_leader_that_refuses_fails_or_is_silent_loses_the_lot_to_the_next_best() {
    let losses: [fn(&mut Script) -> Vec<String>; 3] = [
        |script| script.say(502, "b", Act::Refuse, json!({})),
        |script| script.fail(502, "b", "perform"),
        |script| script.tick(602),
    ];
    for lose in losses {
        let mut script = sold();
        let effects = lose(&mut script);
        assert!(effects.contains(&"a<accept:2@award.0.2".to_owned()), "{effects:?}");
        assert_eq!(paid(&script, "a"), Some(110));
        script.assert_sound();
    }
}

#[test]
fn no_runner_up_below_the_reserve_is_awarded_and_the_end_is_no_candidate() {
    let mut script = sold();
    script.say(502, "b", Act::Refuse, json!({}));
    let effects = script.say(503, "a", Act::Refuse, json!({}));
    assert!(effects.iter().any(|text| text.starts_with("closed=no_candidate")), "{effects:?}");
    assert!(!script.deliveries.iter().any(|told| told.to == agent("c") && told.told.act() == Act::Accept));
}

#[test]
fn events_say_english_auction_from_the_start_to_the_end() {
    let mut script = sold();
    script.confirm(502, "b", 1);
    script.done(503, "b");
    let protocols: Vec<_> = script
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Event(
                Event::Started { protocol, .. }
                | Event::Transition { protocol, .. }
                | Event::Closed { protocol, .. }
                | Event::Ended { protocol, .. },
            ) => Some(protocol.as_str()),
            _ => None,
        })
        .collect();
    assert!(protocols.len() >= 6 && protocols.iter().all(|protocol| *protocol == "english_auction"), "{protocols:?}");
    assert_eq!(
        script.lane_state.protocol(&script.negotiation).map(|protocol| protocol.as_str()),
        Some("english_auction")
    );
}
