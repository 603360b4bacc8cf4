//! The register keeps the first value of a key, whoever writes how often at the same time.

use bus::Registered;
use bytes::Bytes;
use futures_util::future;
use schemas::{AwardNo, Lot, NegotiationId, RegisterKey};

use crate::{Backend, contract};

contract!(
    the_first_value_stays_and_later_writers_learn_it,
    of_eight_writers_at_once_exactly_one_wins_and_all_learn_its_value,
    the_same_value_is_no_conflict_however_many_write_it,
    every_entry_is_listed,
);

async fn the_first_value_stays_and_later_writers_learn_it(backend: Backend) {
    let opened = backend.open().await;
    let register = &opened.bus.register;
    assert_eq!(register.value(award(1)).await.unwrap(), None);
    assert_eq!(register.write(award(1), value("a")).await.unwrap(), Registered::Written);
    assert_eq!(register.write(award(1), value("a")).await.unwrap(), Registered::Same);
    assert_eq!(register.write(award(1), value("b")).await.unwrap(), Registered::Different(value("a")));
    assert_eq!(register.value(award(1)).await.unwrap(), Some(value("a")));
    assert_eq!(register.write(award(2), value("b")).await.unwrap(), Registered::Written, "another key");
}

async fn of_eight_writers_at_once_exactly_one_wins_and_all_learn_its_value(backend: Backend) {
    let opened = backend.open().await;
    for round in 0..50 {
        let writes = (0..8).map(|writer| {
            let register = opened.bus.register.clone();
            tokio::spawn(async move { register.write(award(round), value(&writer.to_string())).await.unwrap() })
        });
        let outcomes: Vec<_> = future::join_all(writes).await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<_> = (0..8).filter(|&writer| outcomes[writer] == Registered::Written).collect();
        assert_eq!(winners.len(), 1, "round {round}: {outcomes:?}");
        let standing = value(&winners[0].to_string());
        let losers = outcomes.iter().filter(|outcome| **outcome == Registered::Different(standing.clone()));
        assert_eq!(losers.count(), 7, "round {round}: {outcomes:?}");
        assert_eq!(opened.bus.register.value(award(round)).await.unwrap(), Some(standing));
    }
}

async fn the_same_value_is_no_conflict_however_many_write_it(backend: Backend) {
    let opened = backend.open().await;
    let writes = (0..8).map(|_| {
        let register = opened.bus.register.clone();
        tokio::spawn(async move { register.write(award(1), value("same")).await.unwrap() })
    });
    let outcomes: Vec<_> = future::join_all(writes).await.into_iter().map(Result::unwrap).collect();
    let count = |wanted: Registered| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!((count(Registered::Written), count(Registered::Same)), (1, 7), "{outcomes:?}");
}

async fn every_entry_is_listed(backend: Backend) {
    let opened = backend.open().await;
    let register = &opened.bus.register;
    assert_eq!(register.entries().await.unwrap(), []);
    let mut expected: Vec<(RegisterKey, Bytes)> = (0..300).map(|no| (award(no), value(&no.to_string()))).collect();
    expected.push((RegisterKey::AwardEnd(negotiation(), Lot(0), AwardNo(1)), value("end")));
    expected.push((RegisterKey::Closed(negotiation()), value("closed")));
    let writes = expected.iter().cloned().map(|(key, value)| register.write(key, value));
    assert!(future::join_all(writes).await.into_iter().all(|outcome| outcome.unwrap() == Registered::Written));
    let mut entries = register.entries().await.unwrap();
    entries.sort();
    expected.sort();
    assert_eq!(entries, expected);
}

fn award(no: u32) -> RegisterKey {
    RegisterKey::Award(negotiation(), Lot(0), AwardNo(no))
}

fn negotiation() -> NegotiationId {
    NegotiationId::try_new("alice~job-1").unwrap()
}

fn value(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
