//! The lane's writes to the write-once register: which are on the way, which wait for another, which were refused.
//!
//! Only what is *not* written yet is remembered: a key that is not pending here and was not refused is written, because
//! the core asks for a key's write no later than for the first delivery that waits for it.
//!
//! Every engine of a lane keeps these writes; only the owner makes them. It logs up to which record all of them are
//! answered ([`Registrar::registered_through`]), and the others then drop theirs ([`Registrar::settle_through`]). A
//! refusal counts as an answer only once the abort it leads to is in the log: an engine that took the lane over in
//! between would otherwise take the key for written, and send what must never leave.
//!
//! A refused key is remembered until the lane has forgotten its negotiation and nothing waits for it any more: forgotten
//! sooner, it would let out what must never leave. Where too many are to be remembered, the lane stops.
//!
//! A write that waits for a refused key is refused with it: it is the sequel of an entry the register does not hold, the
//! outcome of an agreement that was never registered, or the next award of a lot whose last award ended otherwise.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ahash::HashMap;
use bus::{BusError, Registered};
use bytes::Bytes;
use retry::Backoff;
use schemas::{NegotiationId, RegisterKey, Timestamp};
use tokio::time::Instant;

use super::{Gate, PendingWrite, WRITES_IN_FLIGHT_MAX, WRITES_PENDING_MAX, Write, WriteOutcome};

/// Gaps after writes whose outcome stayed unknown.
const RETRY_GAPS: Backoff = Backoff::exact(Duration::from_millis(100), Duration::from_secs(5));
/// Writes looked at for the oldest that has not failed.
const OLDEST_LOOKED_AT_MAX: usize = 64;
/// Keys of settled writes that may wait in the queue, beyond twice as many as are pending, before it is swept; keeps
/// sweeping linear in what is added.
const STALE_SLACK: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Registrar {
    pending: HashMap<RegisterKey, Pending>,
    /// What is pending, by the record that caused it.
    order: BTreeMap<Order, RegisterKey>,
    added: u64,
    /// Writes that wait for the key.
    followers: HashMap<RegisterKey, Vec<RegisterKey>>,
    /// Writes that may start, in order. May list some that are settled.
    startable: VecDeque<RegisterKey>,
    /// Writes to make again, by no particular order; few, and only while the bus fails.
    retries: Vec<(Instant, RegisterKey)>,
    refused: BTreeMap<RegisterKey, RefusedWrite>,
    in_flight: usize,
}

/// Sequence of the causing record, and a count that tells its writes apart.
type Order = (u64, u64);

#[derive(Debug)]
struct Pending {
    value: Bytes,
    after: Option<RegisterKey>,
    order: Order,
    /// Log time of the record that caused it.
    at: Timestamp,
    failures: u32,
    is_in_flight: bool,
    is_contested: bool,
    /// The log holds the abort that a refusal of it would lead to.
    is_abort_logged: bool,
}

#[derive(Debug)]
struct RefusedWrite {
    seq: u64,
    /// Our value, with the log time of the record; absent when there was none to write.
    value: Option<(Bytes, Timestamp)>,
    /// Whether the abort of the negotiation is in the log.
    is_logged: bool,
}

impl Registrar {
    /// Writes not yet answered.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether the lane should take no further records in for now.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= WRITES_PENDING_MAX
    }

    /// Refused keys that are remembered.
    pub(crate) fn refused_len(&self) -> usize {
        self.refused.len()
    }

    /// Forgets the refused keys that nothing will wait for any more.
    pub(crate) fn forget_refused(&mut self, is_needed: impl Fn(&RegisterKey) -> bool) {
        self.refused.retain(|key, refusal| !refusal.is_logged || is_needed(key));
    }

    /// Log time of the record that caused the oldest write that is not answered. One that failed waits for the bus, which
    /// fewer further ones would not mend.
    pub(crate) fn oldest_at(&self) -> Option<Timestamp> {
        let pending = self.order.values().filter_map(|key| self.pending.get(key)).take(OLDEST_LOOKED_AT_MAX);
        pending.filter(|pending| pending.is_in_flight && pending.failures == 0).map(|pending| pending.at).next()
    }

    /// Takes in a write that the record `seq` caused. It starts once `after` is no longer pending.
    ///
    /// Gives keys when another value is pending under this one: the log leads to two, of which the register can hold one.
    /// The key is refused then, whichever it will hold: what waits for it cannot tell which one it waits for.
    pub(crate) fn add(
        &mut self,
        write: Write,
        after: Option<RegisterKey>,
        seq: u64,
        at: Timestamp,
    ) -> Vec<RegisterKey> {
        if self.pending.get(&write.key).is_some_and(|pending| pending.value != write.value) {
            self.remove(&write.key);
            return self.refuse_with_followers(write.key, RefusedWrite { seq, value: None, is_logged: false });
        }
        self.restore(PendingWrite { write, after, seq, at, is_contested: false });
        Vec::new()
    }

    /// Takes in a write of a checkpoint.
    pub(crate) fn restore(&mut self, pending: PendingWrite) {
        let PendingWrite { write: Write { key, value }, after, seq, at, is_contested } = pending;
        if self.refused.contains_key(&key) || self.pending.contains_key(&key) {
            return;
        }
        if let Some(before) = after.as_ref().and_then(|after| self.refused.get(after)) {
            let is_logged = before.is_logged;
            self.refused.insert(key, RefusedWrite { seq, value: None, is_logged });
            return;
        }
        let order = (seq, self.added);
        self.added += 1;
        self.order.insert(order, key.clone());
        self.queue(key.clone(), after.as_ref());
        let (failures, is_in_flight, is_abort_logged) = (0, false, false);
        self.pending
            .insert(key, Pending { value, after, order, at, failures, is_in_flight, is_contested, is_abort_logged });
    }

    /// Notes that another value than the one the record `seq` asked for stands under a key, or that there is none to
    /// write. `is_logged`: the log holds the abort that this leads to, as it does of what a checkpoint says.
    pub(crate) fn refuse(&mut self, key: RegisterKey, seq: u64, is_logged: bool) {
        self.refused.insert(key, RefusedWrite { seq, value: None, is_logged });
    }

    /// Whether a key lets out what waits for it.
    pub(crate) fn gate(&self, after: Option<&RegisterKey>) -> Gate {
        match after {
            Some(key) if self.refused.contains_key(key) => Gate::Refused,
            Some(key) if self.pending.contains_key(key) => Gate::Shut(key.clone()),
            Some(_) | None => Gate::Open,
        }
    }

    /// The next write to hand to the bus, with the log time it is of, as long as not too many are in flight.
    pub(crate) fn poll_write(&mut self, now: Instant) -> Option<(Write, Timestamp)> {
        if self.in_flight >= WRITES_IN_FLIGHT_MAX {
            return None;
        }
        if let Some(due) = self.retries.iter().position(|(at, _)| *at <= now) {
            self.startable.push_back(self.retries.swap_remove(due).1);
        }
        while let Some(key) = self.startable.pop_front() {
            let Some(pending) = self.pending.get_mut(&key).filter(|pending| !pending.is_in_flight) else { continue };
            pending.is_in_flight = true;
            self.in_flight += 1;
            return Some((Write { key, value: pending.value.clone() }, pending.at));
        }
        None
    }

    /// When a write is due again.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.retries.iter().map(|(at, _)| *at).min()
    }

    /// The bus answered a write.
    pub(crate) fn handle_answer(
        &mut self,
        key: &RegisterKey,
        answer: &Result<Registered, BusError>,
        now: Instant,
    ) -> WriteOutcome {
        debug_assert!(self.in_flight > 0, "only what was started is answered");
        self.in_flight = self.in_flight.saturating_sub(1);
        match answer {
            Ok(Registered::Written | Registered::Same) => {
                self.finish(key);
                WriteOutcome::Written
            }
            Ok(Registered::Different(_)) => {
                let ours = self.remove(key);
                let is_logged = ours.as_ref().is_some_and(|ours| ours.is_abort_logged);
                let (seq, value) = ours.map_or((0, None), |ours| (ours.order.0, Some((ours.value, ours.at))));
                let keys = self.refuse_with_followers(key.clone(), RefusedWrite { seq, value, is_logged });
                if is_logged {
                    WriteOutcome::RefusedAgain(keys)
                } else {
                    WriteOutcome::Refused(key.negotiation().clone(), keys)
                }
            }
            Err(_) => {
                if let Some(pending) = self.pending.get_mut(key) {
                    pending.failures += 1;
                    pending.is_in_flight = false;
                    self.retries.push((now + RETRY_GAPS.ceiling(pending.failures), key.clone()));
                }
                WriteOutcome::Retried
            }
        }
    }

    /// A write came after entries of its time were removed: what it stands for has ended, elsewhere and long ago. What waits
    /// for it must never leave from here.
    pub(crate) fn handle_expired(&mut self, key: &RegisterKey) -> WriteOutcome {
        debug_assert!(self.in_flight > 0, "only what was started comes too late");
        self.in_flight = self.in_flight.saturating_sub(1);
        let seq = self.remove(key).map_or(0, |pending| pending.order.0);
        let refusal = RefusedWrite { seq, value: None, is_logged: true };
        WriteOutcome::RefusedAgain(self.refuse_with_followers(key.clone(), refusal))
    }

    /// Every write caused by records up to this sequence is answered, as far as the records up to `position` tell: what
    /// the owner logs. 0 says nothing.
    pub(crate) fn registered_through(&self, position: u64) -> u64 {
        let pending = self.order.keys().next().map(|(seq, _)| *seq);
        let unlogged = self.refused.values().filter(|refusal| !refusal.is_logged).map(|refusal| refusal.seq).min();
        pending.into_iter().chain(unlogged).min().map_or(position, |open| position.min(open.saturating_sub(1)))
    }

    /// The log says that every write caused by records up to `seq` is answered: an engine that has not made them itself
    /// need not. Contested ones stay.
    pub(crate) fn settle_through(&mut self, seq: u64) {
        let covered = self.order.range(..=(seq, u64::MAX)).map(|(_, key)| key);
        let is_settled = |key: &&RegisterKey| self.pending.get(*key).is_some_and(|pending| !pending.is_contested);
        for key in covered.filter(is_settled).cloned().collect::<Vec<_>>() {
            self.finish(&key);
        }
        if self.startable.len() > 2 * self.pending.len() + STALE_SLACK {
            self.startable.retain(|key| self.pending.contains_key(key));
        }
    }

    /// The log holds the abort of a negotiation: its refusals count as answered from now on. Those of its writes that are
    /// pending here stay until this engine has made them itself: any of them may have been refused to another engine,
    /// whatever the abort's reason.
    pub(crate) fn handle_abort_logged(&mut self, negotiation: &NegotiationId) {
        let ours = |key: &RegisterKey| key.negotiation() == negotiation;
        self.refused.iter_mut().filter(|(key, _)| ours(key)).for_each(|(_, refusal)| refusal.is_logged = true);
        for (_, pending) in self.pending.iter_mut().filter(|(key, _)| ours(key)) {
            (pending.is_contested, pending.is_abort_logged) = (true, true);
        }
    }

    /// The lane has another owner: nothing starts here any more. Writes in flight are still answered; all others can
    /// start at once should the lane come back.
    pub(crate) fn demote(&mut self) {
        self.followers.clear();
        self.startable.clear();
        self.retries.clear();
        for key in std::mem::take(&mut self.order).into_values() {
            let Some(pending) = self.pending.get_mut(&key) else { continue };
            pending.failures = 0;
            let (order, after, is_waiting) = (pending.order, pending.after.clone(), !pending.is_in_flight);
            if is_waiting {
                self.queue(key.clone(), after.as_ref());
            }
            self.order.insert(order, key);
        }
    }

    /// What is not known to be answered, in the order of the causing records: for a checkpoint. A refusal whose abort is
    /// not logged is among it: whoever restores the checkpoint is refused again, and asks for the abort again.
    pub(crate) fn pending(&self) -> Vec<PendingWrite> {
        let pending = self.order.values().filter_map(|key| {
            let Pending { value, after, order, at, is_contested, .. } = self.pending.get(key)?;
            let write = Write { key: key.clone(), value: value.clone() };
            Some(PendingWrite { write, after: after.clone(), seq: order.0, at: *at, is_contested: *is_contested })
        });
        let refused = self.refused.iter().filter_map(|(key, refusal)| {
            let (value, at) = refusal.value.clone().filter(|_| !refusal.is_logged)?;
            let write = Write { key: key.clone(), value };
            Some(PendingWrite { write, after: None, seq: refusal.seq, at, is_contested: true })
        });
        let mut all: Vec<_> = refused.chain(pending).collect();
        all.sort_by_key(|pending| pending.seq);
        all
    }

    /// The refused keys that are not in [`Registrar::pending`]: for a checkpoint.
    pub(crate) fn refused(&self) -> Vec<RegisterKey> {
        let is_final = |refusal: &RefusedWrite| refusal.is_logged || refusal.value.is_none();
        self.refused.iter().filter(|(_, refusal)| is_final(refusal)).map(|(key, _)| key.clone()).collect()
    }

    fn queue(&mut self, key: RegisterKey, after: Option<&RegisterKey>) {
        match after.filter(|after| self.pending.contains_key(after)) {
            Some(after) => self.followers.entry(after.clone()).or_default().push(key),
            None => self.startable.push_back(key),
        }
    }

    /// Notes a refusal, and that of every write that waits for the key; gives all their keys.
    fn refuse_with_followers(&mut self, key: RegisterKey, refusal: RefusedWrite) -> Vec<RegisterKey> {
        let is_logged = refusal.is_logged;
        self.refused.insert(key.clone(), refusal);
        let mut keys = vec![key];
        let mut looked_at = 0;
        while let Some(before) = keys.get(looked_at) {
            let followers = self.followers.remove(before).unwrap_or_default();
            looked_at += 1;
            for follower in followers {
                let Some(Pending { order: (seq, _), is_abort_logged, .. }) = self.remove(&follower) else { continue };
                let is_logged = is_logged || is_abort_logged;
                self.refused.insert(follower.clone(), RefusedWrite { seq, value: None, is_logged });
                keys.push(follower);
            }
        }
        keys
    }

    /// Settles a write: what waits for it may start.
    fn finish(&mut self, key: &RegisterKey) {
        self.startable.extend(self.followers.remove(key).unwrap_or_default());
        self.remove(key);
    }

    fn remove(&mut self, key: &RegisterKey) -> Option<Pending> {
        let pending = self.pending.remove(key)?;
        self.order.remove(&pending.order);
        Some(pending)
    }
}
