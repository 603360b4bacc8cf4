//! What a bidder says of each standing bid.

use schemas::english_auction::{Extension, PriceDirection, Step};
use serde_json::json;

use super::*;
use crate::contractor::{ContractorConfig, Distribution};
use crate::strategy::Strategy;

const START_MS: u64 = 1_000_000;

fn told(payload: &serde_json::Value) -> Delivery {
    let envelope = json!({"msg_id": "0".repeat(32), "ts": "2026-01-01T00:00:00Z", "from": "exchange://llmx",
        "to": ["agent://bob"], "negotiation": "alice~sale"});
    serde_json::from_value(json!({"envelope": envelope, "payload": payload})).unwrap()
}

fn call(rules: &AuctionRules) -> Delivery {
    let at = |ms| schemas::WireTime(Timestamp::from_ms(START_MS + ms));
    told(&json!({"act": "cfp", "round": 1, "reply_by": at(2_000), "ends_by": at(60_000), "policy": "medium@1",
        "policy_digest": schemas::Digest([0; 32]), "lots": 1, "currency": "EUR",
        "auction": {"rules": rules, "latest_by": at(2_000)}}))
}

fn standing(bid_no: u32, price: i64, leads: bool) -> Delivery {
    let reply_by = schemas::WireTime(Timestamp::from_ms(START_MS + 2_000));
    told(
        &json!({"act": "inform", "kind": "bid", "bid_no": bid_no, "price": price, "leads": leads, "bidders": 2, "reply_by": reply_by}),
    )
}

fn rules(direction: PriceDirection) -> AuctionRules {
    let extend = Some(Extension { ms: 1, latest_within_ms: 9_000 });
    AuctionRules { direction, start: 100, step: Step::Fixed(10), quiet_ms: Some(300), extend }
}

fn bidder(bidding: Bidding, limit: i64) -> Contractor {
    let attr = |name| schemas::ids::AttrName::try_new(name).unwrap();
    let terms = [(attr("price"), Distribution::Constant(limit)), (attr("grade"), Distribution::Constant(7))];
    let reply_delay_ms = Distribution::Constant(5);
    let config = ContractorConfig { terms: terms.into(), reply_delay_ms, bidding, ..ContractorConfig::default() };
    Contractor::try_new(&schemas::AgentId::try_new("bob").unwrap(), config).unwrap()
}

/// What it is about to bid, and after how many milliseconds; nothing where it says nothing.
fn bids(actions: &[Action]) -> Option<(i64, u128)> {
    actions.iter().find_map(|action| {
        let Action::Send(outgoing) = action else { return None };
        let Payload::Offer(offer) = &outgoing.payload else { return None };
        assert_eq!((offer.terms.len(), offer.currency.as_deref(), offer.valid_for_ms), (2, Some("EUR"), None));
        let (_, price) = offer.terms.iter().find(|(name, _)| name.as_str() == "price").unwrap();
        let AttrValue::Int(price) = price else { panic!("a price") };
        Some((*price, outgoing.delay.as_millis()))
    })
}

fn refuses(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::Send(outgoing) if outgoing.payload.act() == schemas::Act::Refuse))
}

#[test]
fn a_bidder_bids_within_its_limit_while_it_does_not_lead() {
    use PriceDirection::{Ascending, Descending};
    let now = Timestamp::from_ms(START_MS);
    for (bidding, direction, limit, first, then) in [
        (Bidding::Truthful, Ascending, 150, Some((100, 5)), Some((120, 5))),
        (Bidding::Truthful, Ascending, 119, Some((100, 5)), None),
        (Bidding::Truthful, Descending, 50, Some((100, 5)), Some((100, 5))),
        (Bidding::Truthful, Descending, 101, None, None),
        (Bidding::Jump, Ascending, 200, Some((150, 5)), Some((160, 5))),
        (Bidding::Sniper, Ascending, 200, Some((100, 1_900)), Some((120, 200))),
    ] {
        let mut bob = bidder(bidding, limit);
        let said = bob.handle(now, &call(&rules(direction)));
        assert_eq!(bids(&said), first, "{bidding:?} {direction:?} {limit}");
        assert_eq!(refuses(&said), first.is_none(), "who cannot bid at all leaves");
        assert_eq!(bids(&bob.handle(now, &standing(1, 110, true))), None, "it leads");
        let said = bob.handle(now, &standing(2, 110, false));
        assert_eq!(bids(&said), then, "{bidding:?} {direction:?} {limit}");
        assert!(!refuses(&said), "whoever has bid stays: its bid may still be awarded");
        assert_eq!(bids(&bob.handle(now, &standing(1, 110, false))), None, "told before");
    }
}

#[test]
fn what_it_was_about_to_bid_is_beaten_by_another_bid() {
    let now = Timestamp::from_ms(START_MS);
    let mut bob = bidder(Bidding::Truthful, 500);
    bob.handle(now, &call(&rules(PriceDirection::Ascending)));
    let said = bob.handle(now, &standing(1, 100, false));
    assert!(matches!(said.first(), Some(Action::Unschedule(_))), "{said:?}");
    assert_eq!(bids(&said), Some((110, 5)));
}

#[test]
fn whoever_is_outbid_beyond_its_limit_before_it_has_bid_leaves() {
    let now = Timestamp::from_ms(START_MS);
    let later = Timestamp::from_ms(START_MS + 5);
    for (at, leaves) in [(now, true), (later, false)] {
        let mut bob = bidder(Bidding::Truthful, 120);
        assert_eq!(bids(&bob.handle(now, &call(&rules(PriceDirection::Ascending)))), Some((100, 5)));
        assert_eq!(refuses(&bob.handle(at, &standing(1, 200, false))), leaves, "its bid left after 5 ms");
    }
}

#[test]
fn a_standing_bid_that_is_told_before_its_call_counts() {
    let now = Timestamp::from_ms(START_MS);
    let mut bob = bidder(Bidding::Truthful, 500);
    assert!(bob.handle(now, &standing(3, 150, false)).is_empty());
    assert_eq!(bids(&bob.handle(now, &call(&rules(PriceDirection::Ascending)))), Some((160, 5)));
}
