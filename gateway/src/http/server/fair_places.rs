//! Places that holders share: none is held back while there is room, and some stay free for the others however many one asks for.
//!
//! A holder gets a further place while it has fewer than `multiple` times as many as are free (dynamic thresholds, Choudhury and
//! Hahne 1998): k holders that take all they get leave one place in 1 + k × `multiple` free.

use std::hash::Hash;
use std::sync::Arc;

use ahash::{HashMap, HashMapExt as _};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Places are scarce when fewer than one in so many is free.
const SCARCE_ONE_IN: usize = 8;

/// Places, and who holds them. Clones are handles to the same ones.
pub struct FairPlaces<K: Eq + Hash>(Arc<PlaceTable<K>>);

/// One place. Dropping it gives it back.
pub struct FairPlace<K: Eq + Hash> {
    table: Arc<PlaceTable<K>>,
    holder: K,
}

struct PlaceTable<K: Eq + Hash> {
    places: usize,
    multiple: usize,
    held: Mutex<HeldPlaces<K>>,
    is_scarce: watch::Sender<bool>,
}

struct HeldPlaces<K> {
    free: usize,
    /// As many entries as places are taken at most.
    by_holder: HashMap<K, usize>,
}

impl<K: Clone + Eq + Hash> FairPlaces<K> {
    /// So many places, of which a holder gets fewer than `multiple` times as many as are free.
    pub fn new(places: usize, multiple: usize) -> Self {
        let held = Mutex::new(HeldPlaces { free: places, by_holder: HashMap::new() });
        Self(Arc::new(PlaceTable { places, multiple, held, is_scarce: watch::Sender::new(false) }))
    }

    /// A place, unless none is free or the holder has its share.
    pub fn take(&self, holder: K) -> Option<FairPlace<K>> {
        let table = &self.0;
        let mut held = table.held.lock();
        let has = held.by_holder.get(&holder).copied().unwrap_or_default();
        if has >= held.free.saturating_mul(table.multiple) {
            return None;
        }
        held.free -= 1;
        held.by_holder.insert(holder.clone(), has + 1);
        table.tell(held.free);
        Some(FairPlace { table: table.clone(), holder })
    }

    /// Whether fewer than one place in eight is free.
    pub fn is_scarce(&self) -> bool {
        *self.0.is_scarce.borrow()
    }

    /// Waits until places are scarce.
    pub async fn scarce(&self) {
        // Nothing ends the wait but that: the sender is here.
        let _ = self.0.is_scarce.subscribe().wait_for(|is_scarce| *is_scarce).await;
    }
}

impl<K: Eq + Hash> PlaceTable<K> {
    fn tell(&self, free: usize) {
        let is_scarce = free.saturating_mul(SCARCE_ONE_IN) < self.places;
        self.is_scarce.send_if_modified(|told| std::mem::replace(told, is_scarce) != is_scarce);
    }
}

impl<K: Eq + Hash> Drop for FairPlace<K> {
    fn drop(&mut self) {
        let mut held = self.table.held.lock();
        held.free += 1;
        if let Some(has) = held.by_holder.get_mut(&self.holder) {
            *has -= 1;
            if *has == 0 {
                held.by_holder.remove(&self.holder);
            }
        }
        self.table.tell(held.free);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// How many places a holder gets that takes all it can.
    fn taken(places: &FairPlaces<&'static str>, holder: &'static str) -> Vec<FairPlace<&'static str>> {
        std::iter::from_fn(|| places.take(holder)).collect()
    }

    #[test]
    fn holders_that_take_all_they_get_have_equal_shares_and_leave_room_for_a_next_one() {
        let places = FairPlaces::new(200, 8);
        let first = taken(&places, "first");
        assert_eq!((first.len(), places.is_scarce()), (178, true), "eight ninths for one alone");
        let second = taken(&places, "second");
        assert!(!second.is_empty() && places.take("third").is_some(), "{} of 22", second.len());
        drop(first);
        assert!(!places.is_scarce() && places.take("first").is_some());
        let halves = FairPlaces::new(200, 1);
        let first = taken(&halves, "first");
        assert_eq!((first.len(), taken(&halves, "second").len()), (100, 50));
    }

    #[test]
    fn every_place_can_be_taken_and_what_is_given_back_leaves_nothing() {
        let places = FairPlaces::new(2, 8);
        let held = [places.take("first"), places.take("second")];
        assert!(held.iter().all(Option::is_some) && places.take("third").is_none());
        drop(held);
        assert!(places.0.held.lock().by_holder.is_empty() && places.0.held.lock().free == 2);
    }

    #[test]
    fn scarcity_is_heard_when_it_begins() {
        let places = FairPlaces::new(8, 8);
        assert!(places.scarce().now_or_never().is_none());
        let held: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|holder| places.take(holder)).into();
        assert!(places.scarce().now_or_never().is_some());
        drop(held);
        assert!(places.scarce().now_or_never().is_none());
    }
}
