//! The lane's writes to the write-once register: which are on the way, which wait for another, which were refused.
//!
//! Only what is *not* written yet is remembered: a key that is not pending here and was not refused is written, because
//! the core asks for a key's write no later than for the first delivery that waits for it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use bus::{BusError, Registered};
use bytes::Bytes;
use schemas::{NegotiationId, RegisterKey};
use tokio::time::Instant;

use crate::outbox::Gate;

/// Most writes in flight: enough to keep one fsync busy with the closings of a whole group commit, few enough that a
/// lane does not fill the bus's own buffers.
pub(crate) const WRITES_IN_FLIGHT_MAX: usize = 1024;
/// At this many pending writes the lane takes no further records in: eight times what can be in flight.
pub(crate) const WRITES_PENDING_MAX: usize = 8 * WRITES_IN_FLIGHT_MAX;
/// First and largest gap after a write whose outcome stayed unknown.
const RETRY_GAP_MIN: Duration = Duration::from_millis(100);
const RETRY_GAP_MAX: Duration = Duration::from_secs(5);
/// Most refused keys remembered. A refusal means two histories of one log: it pages, and there should be none.
const REFUSED_MAX: usize = 4096;

/// A write to hand to the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    /// Where.
    pub(crate) key: RegisterKey,
    /// What, in canonical form.
    pub(crate) value: Bytes,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The key has our value: what waits for it may leave.
    Written,
    /// The key has another value: what waits for it must never leave.
    Refused(NegotiationId),
    /// Unknown; the write is made again later.
    Retried,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Registrar {
    pending: HashMap<RegisterKey, Pending>,
    /// Writes that wait for the key.
    followers: HashMap<RegisterKey, Vec<RegisterKey>>,
    /// Writes that may start, in order.
    startable: VecDeque<RegisterKey>,
    /// Writes to make again, by no particular order; few, and only while the bus fails.
    retries: Vec<(Instant, RegisterKey)>,
    refused: BTreeSet<RegisterKey>,
    in_flight: usize,
}

#[derive(Debug)]
struct Pending {
    value: Bytes,
    failures: u32,
}

impl Registrar {
    pub(crate) fn new() -> Self {
        Self {
            pending: HashMap::new(),
            followers: HashMap::new(),
            startable: VecDeque::new(),
            retries: Vec::new(),
            refused: BTreeSet::new(),
            in_flight: 0,
        }
    }

    /// Writes not yet answered.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether the lane should take no further records in for now.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= WRITES_PENDING_MAX
    }

    /// Takes a write in. It starts once `after` is no longer pending.
    pub(crate) fn add(&mut self, write: Write, after: Option<RegisterKey>) {
        let Write { key, value } = write;
        if self.refused.contains(&key) || self.pending.contains_key(&key) {
            return;
        }
        self.pending.insert(key.clone(), Pending { value, failures: 0 });
        match after.filter(|after| self.pending.contains_key(after)) {
            Some(after) => self.followers.entry(after).or_default().push(key),
            None => self.startable.push_back(key),
        }
    }

    /// Notes that another value stands under a key.
    pub(crate) fn refuse(&mut self, key: RegisterKey) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.insert(key);
        }
    }

    /// Whether a key lets out what waits for it.
    pub(crate) fn gate(&self, after: Option<&RegisterKey>) -> Gate {
        match after {
            Some(key) if self.refused.contains(key) => Gate::Refused,
            Some(key) if self.pending.contains_key(key) => Gate::Shut(key.clone()),
            Some(_) | None => Gate::Open,
        }
    }

    /// The next write to hand to the bus, as long as not too many are in flight.
    pub(crate) fn poll_write(&mut self, now: Instant) -> Option<Write> {
        if self.in_flight >= WRITES_IN_FLIGHT_MAX {
            return None;
        }
        if let Some(due) = self.retries.iter().position(|(at, _)| *at <= now) {
            self.startable.push_back(self.retries.swap_remove(due).1);
        }
        let key = self.startable.pop_front()?;
        let value = self.pending.get(&key)?.value.clone();
        self.in_flight += 1;
        Some(Write { key, value })
    }

    /// When a write is due again.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.retries.iter().map(|(at, _)| *at).min()
    }

    /// The bus answered a write. A refused key still lets later *writes* go on, since it does hold a value.
    pub(crate) fn handle_answer(
        &mut self,
        key: &RegisterKey,
        answer: &Result<Registered, BusError>,
        now: Instant,
    ) -> Answer {
        self.in_flight = self.in_flight.saturating_sub(1);
        match answer {
            Ok(Registered::Written | Registered::Same) => {
                self.finish(key);
                Answer::Written
            }
            Ok(Registered::Different(_)) => {
                self.refuse(key.clone());
                self.finish(key);
                Answer::Refused(key.negotiation().clone())
            }
            Err(_) => {
                if let Some(pending) = self.pending.get_mut(key) {
                    let gap = RETRY_GAP_MIN.saturating_mul(1 << pending.failures.min(10)).min(RETRY_GAP_MAX);
                    pending.failures += 1;
                    self.retries.push((now + gap, key.clone()));
                }
                Answer::Retried
            }
        }
    }

    fn finish(&mut self, key: &RegisterKey) {
        self.pending.remove(key);
        self.startable.extend(self.followers.remove(key).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use schemas::{AwardNo, Lot};

    use super::*;

    #[test]
    fn a_write_starts_after_the_one_it_follows_and_opens_its_gate_when_answered() {
        let (mut registrar, now) = (Registrar::new(), Instant::now());
        let (award, end) = (award(1), end(1));
        registrar.add(write(&award), None);
        registrar.add(write(&end), Some(award.clone()));
        assert_eq!(registrar.gate(Some(&end)), Gate::Shut(end.clone()));
        assert_eq!(registrar.poll_write(now), Some(write(&award)));
        assert_eq!(registrar.poll_write(now), None, "the end waits for the award");
        assert_eq!(registrar.handle_answer(&award, &Ok(Registered::Same), now), Answer::Written);
        assert_eq!(registrar.gate(Some(&award)), Gate::Open);
        assert_eq!(registrar.poll_write(now), Some(write(&end)));
        assert_eq!(registrar.handle_answer(&end, &Ok(Registered::Written), now), Answer::Written);
        assert_eq!((registrar.len(), registrar.gate(Some(&end))), (0, Gate::Open));
    }

    #[test]
    fn another_value_refuses_the_gate_for_good() {
        let (mut registrar, now) = (Registrar::new(), Instant::now());
        registrar.add(write(&award(1)), None);
        registrar.poll_write(now);
        let answer = registrar.handle_answer(&award(1), &Ok(Registered::Different(Bytes::new())), now);
        assert_eq!(answer, Answer::Refused(negotiation()));
        assert_eq!(registrar.gate(Some(&award(1))), Gate::Refused);
        registrar.add(write(&award(1)), None);
        assert_eq!(registrar.poll_write(now), None, "a refused key is not written again");
    }

    #[test]
    fn an_unknown_outcome_keeps_the_gate_shut_and_is_tried_again_at_growing_gaps() {
        let (mut registrar, mut now) = (Registrar::new(), Instant::now());
        registrar.add(write(&award(1)), None);
        let mut gap = RETRY_GAP_MIN;
        for _ in 0..8 {
            assert_eq!(registrar.poll_write(now), Some(write(&award(1))));
            let answer = registrar.handle_answer(&award(1), &Err(BusError::Unknown("no leader".into())), now);
            assert_eq!(answer, Answer::Retried);
            assert_eq!(registrar.gate(Some(&award(1))), Gate::Shut(award(1)));
            assert_eq!(registrar.poll_write(now), None);
            assert_eq!(registrar.wake_at(), Some(now + gap));
            now += gap;
            gap = (gap * 2).min(RETRY_GAP_MAX);
        }
    }

    #[test]
    fn no_more_than_the_bound_is_in_flight() {
        let (mut registrar, now) = (Registrar::new(), Instant::now());
        for number in 0..=u32::try_from(WRITES_IN_FLIGHT_MAX).unwrap() {
            registrar.add(write(&award(number)), None);
        }
        let started = std::iter::from_fn(|| registrar.poll_write(now)).count();
        assert_eq!(started, WRITES_IN_FLIGHT_MAX);
        registrar.handle_answer(&award(0), &Ok(Registered::Written), now);
        assert!(registrar.poll_write(now).is_some());
    }

    fn negotiation() -> NegotiationId {
        NegotiationId::try_new("alice~job").unwrap()
    }

    fn award(number: u32) -> RegisterKey {
        RegisterKey::Award(negotiation(), Lot(0), AwardNo(number))
    }

    fn end(number: u32) -> RegisterKey {
        RegisterKey::AwardEnd(negotiation(), Lot(0), AwardNo(number))
    }

    fn write(key: &RegisterKey) -> Write {
        Write { key: key.clone(), value: Bytes::from(key.to_string()) }
    }
}
