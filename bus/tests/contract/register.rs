//! The register keeps the first value of a key, whoever writes how often at the same time.

use bus::{RegisterSize, Registered};
use bytes::Bytes;
use futures_util::future;
use schemas::{AwardNo, Lot, NegotiationId, RegisterKey};

use crate::{Backend, contract};

contract!(
    the_first_value_stays_and_later_writers_learn_it,
    of_eight_writers_at_once_exactly_one_wins_and_all_learn_its_value,
    the_same_value_is_no_conflict_however_many_write_it,
    every_entry_is_listed,
    entries_are_read_in_the_order_they_were_written_and_in_parts,
    a_removed_entry_is_gone_and_nothing_else_is,
    an_entry_that_was_written_again_is_not_removed_in_the_place_of_an_earlier_one,
    the_register_tells_its_size,
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

async fn entries_are_read_in_the_order_they_were_written_and_in_parts(backend: Backend) {
    let opened = backend.open().await;
    let register = &opened.bus.register;
    assert_eq!(register.entries_from(1, 10).await.unwrap(), []);
    for no in 0..10 {
        register.write(award(no), value(&no.to_string())).await.unwrap();
    }
    let all = register.entries_from(0, 100).await.unwrap();
    let keys: Vec<_> = all.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
    assert_eq!(keys, (0..10).map(|no| (award(no), value(&no.to_string()))).collect::<Vec<_>>());
    assert!(all.is_sorted_by(|one, next| one.seq < next.seq && one.written_at <= next.written_at), "{all:?}");
    assert!(all[0].written_at.0 > 0);
    assert_eq!(register.entries_from(1, 4).await.unwrap(), all[..4]);
    assert_eq!(register.entries_from(all[3].seq + 1, 4).await.unwrap(), all[4..8]);
    assert_eq!(register.entries_from(all[8].seq + 1, 4).await.unwrap(), all[9..]);
    assert_eq!(register.entries_from(all[9].seq + 1, 4).await.unwrap(), []);
}

async fn a_removed_entry_is_gone_and_nothing_else_is(backend: Backend) {
    let opened = backend.open().await;
    let register = &opened.bus.register;
    let end = RegisterKey::AwardEnd(negotiation(), Lot(0), AwardNo(1));
    for key in [award(1), end.clone(), award(2), RegisterKey::Closed(negotiation())] {
        register.write(key, value("x")).await.unwrap();
    }
    let all = register.entries_from(1, 10).await.unwrap();
    for _ in 0..2 {
        register.remove(award(1), all[0].seq).await.unwrap();
        assert_eq!(register.value(award(1)).await.unwrap(), None);
        assert_eq!(register.entries_from(1, 10).await.unwrap(), all[1..]);
    }
    register.remove(award(3), u64::MAX).await.unwrap();
    assert_eq!(register.value(end).await.unwrap(), Some(value("x")), "the end of an award is a key of its own");
    assert_eq!(register.write(award(2), value("y")).await.unwrap(), Registered::Different(value("x")));
}

async fn an_entry_that_was_written_again_is_not_removed_in_the_place_of_an_earlier_one(backend: Backend) {
    let opened = backend.open().await;
    let register = &opened.bus.register;
    register.write(award(1), value("first")).await.unwrap();
    let first = register.entries_from(1, 1).await.unwrap()[0].seq;
    register.remove(award(1), first).await.unwrap();
    assert_eq!(register.write(award(1), value("second")).await.unwrap(), Registered::Written);
    register.remove(award(1), first).await.unwrap();
    assert_eq!(register.value(award(1)).await.unwrap(), Some(value("second")));
    let second = register.entries_from(1, 1).await.unwrap()[0].seq;
    assert!(second > first);
    register.remove(award(1), second).await.unwrap();
    assert_eq!(register.value(award(1)).await.unwrap(), None);
}

async fn the_register_tells_its_size(backend: Backend) {
    let opened = backend.open().await;
    let register = &opened.bus.register;
    assert_eq!(register.size().await.unwrap(), RegisterSize::default());
    for no in 1..=5 {
        register.write(award(no), value("12345678")).await.unwrap();
    }
    let full = register.size().await.unwrap();
    assert!(full.entries == 5 && full.bytes >= 5 * 8, "{full:?}");
    for entry in register.entries_from(1, 4).await.unwrap() {
        register.remove(entry.key, entry.seq).await.unwrap();
    }
    let left = register.size().await.unwrap();
    assert!(left.entries == 1 && left.bytes < full.bytes, "{left:?}");
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
