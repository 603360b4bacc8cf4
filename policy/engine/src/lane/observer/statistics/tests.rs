//! How the parts of lanes add up.

use std::sync::Arc;

use policy_core::{AwardLoss, Cause, Decision, Event, Placement, Protocol, RankedOffer};
use schemas::delivery::{CloseReason, Outcome};
use schemas::statistics::NAMED_MAX;
use schemas::{AgentId, AwardNo, Digest, Lane, Lot, NegotiationId, OfferId, Position, Timestamp};

use super::{LaneCounters, LaneStatistics, OpenNegotiation, Totals, sum};

#[test]
fn parts_of_lanes_add_up_and_only_owned_ones_have_something_open() {
    let owned = LaneStatistics {
        owned: Some(Lane(2)),
        open: 3,
        unacknowledged: 5,
        newest: vec![open(1), open(4)],
        counted: counted(2),
    };
    let lost = LaneStatistics {
        owned: None,
        open: 7,
        newest: vec![open(9)],
        counted: counted(1),
        ..LaneStatistics::default()
    };
    let other = LaneStatistics { owned: Some(Lane(3)), open: 1, newest: vec![open(3)], ..LaneStatistics::default() };
    let statistics = sum("engine-1", Timestamp(7), [owned, lost, other].into_iter());
    assert_eq!((statistics.owned, statistics.open, statistics.unacknowledged), (vec![Lane(2), Lane(3)], 4, 5));
    assert_eq!(statistics.ended, [("agreement".to_owned(), 3)].into());
    assert_eq!((statistics.awards, statistics.binding, statistics.round.count), (3, 3, 3));
    assert_eq!((statistics.durations.spread(), statistics.policies[0].ended), (statistics.round, 3));
    let newest: Vec<u64> = statistics.newest.iter().map(|open| open.called_at.0).collect();
    assert_eq!(newest, [4, 3, 1], "newest first, whichever lane");
    assert_eq!(statistics.latest.len(), 3);
}

#[test]
fn awards_are_counted_as_they_are_made_and_apart_as_they_bind() {
    let mut counters = LaneCounters::default();
    let at = Timestamp(7);
    counters.count(&decided(1, &["bob", "carol"], Cause::Score), at);
    counters.count(&decided(2, &["carol"], Cause::ReAward(AwardLoss::Refused)), at);
    counters.count(&committed("carol"), at);
    let part = LaneStatistics { counted: counters.counted(at), ..LaneStatistics::default() };
    let statistics = sum("engine-1", at, [part].into_iter());
    assert_eq!(
        (statistics.awards, statistics.binding),
        (2, 1),
        "the award that was refused counts as one that was made"
    );
    let of = |name: &str| statistics.agents.iter().find(|one| one.agent.as_str() == name).unwrap();
    assert_eq!((of("bob").awards, of("bob").fair_ppm), (1, 500_000));
    assert_eq!((of("carol").awards, of("carol").fair_ppm), (1, 1_500_000), "alone, it would have been drawn for sure");
}

#[test]
fn no_more_are_named_than_a_reader_expects() {
    let many = || (0..).take(NAMED_MAX).map(open).collect();
    let part = |lane| LaneStatistics {
        owned: Some(Lane(lane)),
        newest: many(),
        counted: counted(200),
        ..LaneStatistics::default()
    };
    let statistics = sum("engine-1", Timestamp(7), (0..4).map(part));
    assert_eq!((statistics.newest.len(), statistics.latest.len()), (NAMED_MAX, NAMED_MAX));
    assert_eq!(statistics.ended["agreement"], 800);
    assert!(serde_json::to_vec(&statistics).unwrap().len() < 64 * 1024);
}

/// An award to the first of these contractors.
fn decided(award_no: u32, contractors: &[&str], cause: Cause) -> Event {
    let offer_id = |nth: usize| OfferId(Position { seq: nth as u64, index: 0 });
    let offers = contractors.iter().enumerate().map(|(nth, contractor)| RankedOffer {
        offer_id: offer_id(nth),
        contractor: AgentId::try_new(contractor).unwrap(),
        terms: Digest::of_bytes(b"terms"),
        score: 1,
        price: None,
        reputation: None,
        payment: None,
        valid_until: None,
        last_win: None,
    });
    Event::Decided(Arc::new(Decision {
        negotiation: NegotiationId::try_new("alice~job").unwrap(),
        policy: Digest::of_bytes(b"policy"),
        round: 1,
        position: Position { seq: 9, index: 0 },
        at: Timestamp(7),
        cause,
        closed: CloseReason::AllResponded,
        complete: true,
        responded: 2,
        expected: 2,
        offers: offers.collect(),
        awards: vec![Placement { lot: Lot(0), award_no: AwardNo(award_no), document: None, offer_id: offer_id(0) }],
        chain: Digest::of_bytes(b"chain"),
        previous: None,
        seats: None,
    }))
}

fn committed(contractor: &str) -> Event {
    let negotiation = NegotiationId::try_new("alice~job").unwrap();
    let contractor = AgentId::try_new(contractor).unwrap();
    Event::Committed { negotiation, lot: Lot(0), award_no: AwardNo(2), contractor, elapsed_us: 3 }
}

fn counted(ends: u64) -> Totals {
    let mut counters = LaneCounters::default();
    for number in 0..ends {
        let event = Event::Ended {
            negotiation: NegotiationId::try_new(&format!("alice~{number}")).unwrap(),
            protocol: Protocol::AlternatingOffers,
            policy: "alternating_offers".into(),
            invited: 1,
            outcome: Outcome::Agreement,
            rounds: 1,
            offers: 2,
            awards: 1,
            at: Timestamp(number),
            elapsed_us: 100,
        };
        counters.count(&event, Timestamp(number));
    }
    counters.counted(Timestamp(ends))
}

fn open(called_at: u64) -> OpenNegotiation {
    OpenNegotiation {
        negotiation: NegotiationId::try_new("alice~job").unwrap(),
        protocol: "contract_net".to_owned(),
        phase: "collecting".to_owned(),
        policy: "low".to_owned(),
        called_at: Timestamp(called_at),
        invited: 1,
        offers: 0,
    }
}
