//! The facts of one negotiation that are kept: the first ones, the last ones, and of those in between what matters most.

use std::collections::VecDeque;

use schemas::Timestamp;
use schemas::journal::{Gap, HAPPENED_MAX};

use super::Fact;

/// Facts kept from the beginning: the call, and the first answers of a few dozen contractors.
pub(super) const FIRST_MAX: usize = 256;
/// Facts kept that lie between the first and the last and are not routine.
const BETWEEN_MAX: usize = 64;
/// Facts kept from the end.
pub(super) const LAST_MAX: usize = HAPPENED_MAX - FIRST_MAX - BETWEEN_MAX;

/// See the module.
#[derive(Default)]
pub(super) struct FactLog {
    first: Vec<(Timestamp, Fact)>,
    between: Vec<(Timestamp, Fact)>,
    last: VecDeque<(Timestamp, Fact)>,
    left_out: u64,
    weight: usize,
    waiting: i64,
}

impl FactLog {
    /// Takes a fact in; what is routine and neither among the first nor among the last is left out.
    pub(super) fn push(&mut self, at: Timestamp, fact: Fact) {
        self.weight += fact.weight();
        self.waiting += fact.waiting();
        if self.first.len() < FIRST_MAX {
            return self.first.push((at, fact));
        }
        self.last.push_back((at, fact));
        if self.last.len() > LAST_MAX
            && let Some((at, oldest)) = self.last.pop_front()
        {
            if !oldest.is_routine() && self.between.len() < BETWEEN_MAX {
                self.between.push((at, oldest));
            } else {
                self.leave_out(&oldest);
            }
        }
    }

    /// Every fact that is kept, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Timestamp, Fact)> {
        self.first.iter().chain(&self.between).chain(&self.last)
    }

    /// How many were left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Where they were left out, by the indices of what is kept.
    pub(super) fn gap(&self) -> Option<Gap> {
        let index = |index: usize| u64::try_from(index).unwrap_or(u64::MAX);
        let (from, to) = (index(self.first.len()), index(self.first.len() + self.between.len()));
        (self.left_out > 0).then_some(Gap { from, to })
    }

    /// Deliveries that wait for an acknowledgement, among all facts.
    pub(super) fn waiting(&self) -> u64 {
        u64::try_from(self.waiting).unwrap_or(0)
    }

    /// How much memory it takes, in facts.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.first.capacity() + self.between.capacity() + self.last.capacity()
    }

    fn leave_out(&mut self, fact: &Fact) {
        self.weight -= fact.weight();
        self.left_out = self.left_out.saturating_add(1);
        // What was sent came before what became of it, so it is among the first, or left out as well.
        let Some(gone) = fact.settles() else { return };
        for (_, fact) in &mut self.first {
            if let Fact::Sent { delivery, settled, .. } = fact
                && *delivery == gone
            {
                *settled = true;
                return;
            }
        }
    }
}
