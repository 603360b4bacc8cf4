//! How the parts of lanes add up.

use policy_core::{Event, Protocol};
use schemas::delivery::Outcome;
use schemas::pulse::NAMED_MAX;
use schemas::{Lane, NegotiationId, Timestamp};

use super::{Counted, LanePulse, OpenNegotiation, Tally, sum};

#[test]
fn parts_of_lanes_add_up_and_only_owned_ones_have_something_open() {
    let owned = LanePulse {
        owned: Some(Lane(2)),
        open: 3,
        unacknowledged: 5,
        newest: vec![open(1), open(4)],
        counted: counted(2),
    };
    let lost = LanePulse { owned: None, open: 7, newest: vec![open(9)], counted: counted(1), ..LanePulse::default() };
    let other = LanePulse { owned: Some(Lane(3)), open: 1, newest: vec![open(3)], ..LanePulse::default() };
    let pulse = sum("engine-1", Timestamp(7), [owned, lost, other].into_iter());
    assert_eq!((pulse.owned, pulse.open, pulse.unacknowledged), (vec![Lane(2), Lane(3)], 4, 5));
    assert_eq!(pulse.ended, [("agreement".to_owned(), 3)].into());
    assert_eq!((pulse.awards, pulse.round.count), (3, 3));
    let newest: Vec<u64> = pulse.newest.iter().map(|open| open.called_at.0).collect();
    assert_eq!(newest, [4, 3, 1], "newest first, whichever lane");
    assert_eq!(pulse.latest.len(), 3);
}

#[test]
fn no_more_are_named_than_a_reader_expects() {
    let many = || (0..).take(NAMED_MAX).map(open).collect();
    let part =
        |lane| LanePulse { owned: Some(Lane(lane)), newest: many(), counted: counted(200), ..LanePulse::default() };
    let pulse = sum("engine-1", Timestamp(7), (0..4).map(part));
    assert_eq!((pulse.newest.len(), pulse.latest.len()), (NAMED_MAX, NAMED_MAX));
    assert_eq!(pulse.ended["agreement"], 800);
    assert!(serde_json::to_vec(&pulse).unwrap().len() < 64 * 1024);
}

fn counted(ends: u64) -> Counted {
    let mut tally = Tally::default();
    for number in 0..ends {
        let event = Event::Ended {
            negotiation: NegotiationId::try_new(&format!("alice~{number}")).unwrap(),
            protocol: Protocol::AlternatingOffers,
            outcome: Outcome::Agreement,
            rounds: 1,
            offers: 2,
            awards: 1,
            at: Timestamp(number),
            elapsed_us: 100,
        };
        tally.count(&event, Timestamp(number));
    }
    tally.counted(Timestamp(ends))
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
