//! What a contractor remembers of the negotiations it has an offer in.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::Call;
use schemas::payload::Terms;
use schemas::{AwardNo, NegotiationId, Timestamp};

/// How long after the negotiation must have ended its last notices are awaited, in milliseconds.
const GRACE_MS: u64 = 60_000;

/// One negotiation the contractor made an offer in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engagement {
    /// The round offered in.
    pub round: u32,
    /// The terms offered: the offer, and its revision.
    pub offered: Vec<Terms>,
    /// How far it went.
    pub stage: EngagementStage,
    /// It is forgotten after this time.
    expires: Timestamp,
}

/// How far an engagement went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngagementStage {
    /// An offer was made, or is about to be.
    Offered,
    /// CONFIRM was said.
    Confirming(AwardNo),
    /// The award is binding.
    Committed(AwardNo),
}

impl Engagement {
    /// Whether these are terms the contractor offered.
    #[must_use]
    pub fn has_offered(&self, terms: &Terms) -> bool {
        self.offered.contains(terms)
    }
}

/// All engagements, bounded.
#[derive(Debug)]
pub(super) struct Engagements {
    by_negotiation: BTreeMap<NegotiationId, Engagement>,
    by_expiry: BTreeSet<(Timestamp, NegotiationId)>,
    len_max: usize,
}

impl Engagements {
    pub(super) fn new(len_max: usize) -> Self {
        Self { by_negotiation: BTreeMap::new(), by_expiry: BTreeSet::new(), len_max }
    }

    pub(super) fn len(&self) -> usize {
        self.by_negotiation.len()
    }

    pub(super) fn value(&self, negotiation: &NegotiationId) -> Option<&Engagement> {
        self.by_negotiation.get(negotiation)
    }

    /// Notes an offer; false when there is no room. A later round replaces an earlier one.
    pub(super) fn begin(&mut self, negotiation: &NegotiationId, call: &Call, offered: Vec<Terms>) -> bool {
        self.end(negotiation);
        if self.by_negotiation.len() >= self.len_max {
            return false;
        }
        let expires = call.ends_by.0.plus_ms(GRACE_MS);
        self.by_expiry.insert((expires, negotiation.clone()));
        let engagement = Engagement { round: call.round, offered, stage: EngagementStage::Offered, expires };
        self.by_negotiation.insert(negotiation.clone(), engagement);
        true
    }

    pub(super) fn advance(&mut self, negotiation: &NegotiationId, stage: EngagementStage) {
        if let Some(engagement) = self.by_negotiation.get_mut(negotiation) {
            engagement.stage = stage;
        }
    }

    pub(super) fn end(&mut self, negotiation: &NegotiationId) {
        if let Some(engagement) = self.by_negotiation.remove(negotiation) {
            self.by_expiry.remove(&(engagement.expires, negotiation.clone()));
        }
    }

    /// Forgets the engagements whose time is over.
    pub(super) fn expire(&mut self, now: Timestamp) {
        while self.by_expiry.first().is_some_and(|&(expires, _)| expires < now)
            && let Some((_, negotiation)) = self.by_expiry.pop_first()
        {
            self.by_negotiation.remove(&negotiation);
        }
    }
}
