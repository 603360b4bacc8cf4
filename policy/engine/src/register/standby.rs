//! What the owner of a lane says of its writes, what the others make of it, and what a checkpoint keeps.

use schemas::{NegotiationId, RegisterKey};

use super::{Pending, PendingWrite, Refusal, Registrar, STALE_SLACK, Write};

impl Registrar {
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
            let Pending { value, after, order, is_contested, .. } = self.pending.get(key)?;
            let write = Write { key: key.clone(), value: value.clone() };
            Some(PendingWrite { write, after: after.clone(), seq: order.0, is_contested: *is_contested })
        });
        let refused = self.refused.iter().filter_map(|(key, refusal)| {
            let write = Write { key: key.clone(), value: refusal.value.clone()? };
            (!refusal.is_logged).then_some(PendingWrite { write, after: None, seq: refusal.seq, is_contested: true })
        });
        let mut all: Vec<_> = refused.chain(pending).collect();
        all.sort_by_key(|pending| pending.seq);
        all
    }

    /// The refused keys that are not in [`Registrar::pending`]: for a checkpoint.
    pub(crate) fn refused(&self) -> Vec<RegisterKey> {
        let is_final = |refusal: &Refusal| refusal.is_logged || refusal.value.is_none();
        self.refused.iter().filter(|(_, refusal)| is_final(refusal)).map(|(key, _)| key.clone()).collect()
    }
}
