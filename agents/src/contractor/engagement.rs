//! What a contractor remembers of the negotiations it made an offer in.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::Call;
use schemas::document::DocumentHash;
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
    /// The call's task, where a routine carries awards out.
    pub task: Option<String>,
    /// The document that the award pins.
    pub document: Option<DocumentHash>,
    /// Whether the call requires that one is followed.
    pub requires_document: bool,
    /// The negotiation ends then at the latest.
    pub ends_by: Timestamp,
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
pub struct Engagements {
    by_negotiation: BTreeMap<NegotiationId, Engagement>,
    by_expiry: BTreeSet<(Timestamp, NegotiationId)>,
    len_max: usize,
}

impl Engagements {
    /// Room for so many.
    #[must_use]
    pub fn new(len_max: usize) -> Self {
        Self { by_negotiation: BTreeMap::new(), by_expiry: BTreeSet::new(), len_max }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_negotiation.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_negotiation.len()
    }

    /// The engagement in a negotiation.
    #[must_use]
    pub fn value(&self, negotiation: &NegotiationId) -> Option<&Engagement> {
        self.by_negotiation.get(negotiation)
    }

    /// Notes an offer, with the call's task where `keeps_task`; false when there is no room. A later round replaces an
    /// earlier one.
    pub fn begin(&mut self, negotiation: &NegotiationId, call: &Call, offered: Vec<Terms>, keeps_task: bool) -> bool {
        self.end(negotiation);
        if self.by_negotiation.len() >= self.len_max {
            return false;
        }
        let ends_by = call.ends_by.0;
        let expires = ends_by.plus_ms(GRACE_MS);
        self.by_expiry.insert((expires, negotiation.clone()));
        let engagement = Engagement {
            round: call.round,
            offered,
            stage: EngagementStage::Offered,
            task: call.task.clone().filter(|_| keeps_task),
            document: None,
            requires_document: call.documents.as_ref().is_some_and(|documents| documents.require),
            ends_by,
            expires,
        };
        self.by_negotiation.insert(negotiation.clone(), engagement);
        true
    }

    /// Notes an award that is about to be confirmed, with the document it pins.
    pub fn confirm(&mut self, negotiation: &NegotiationId, award_no: AwardNo, document: Option<DocumentHash>) {
        if let Some(engagement) = self.by_negotiation.get_mut(negotiation) {
            engagement.stage = EngagementStage::Confirming(award_no);
            engagement.document = document;
        }
    }

    /// Notes that an award has become binding.
    pub fn commit(&mut self, negotiation: &NegotiationId, award_no: AwardNo) {
        if let Some(engagement) = self.by_negotiation.get_mut(negotiation) {
            engagement.stage = EngagementStage::Committed(award_no);
        }
    }

    /// Forgets one.
    pub fn end(&mut self, negotiation: &NegotiationId) {
        if let Some(engagement) = self.by_negotiation.remove(negotiation) {
            self.by_expiry.remove(&(engagement.expires, negotiation.clone()));
        }
    }

    /// Forgets the engagements whose time is over.
    pub fn expire(&mut self, now: Timestamp) {
        while self.by_expiry.first().is_some_and(|&(expires, _)| expires < now)
            && let Some((_, negotiation)) = self.by_expiry.pop_first()
        {
            self.by_negotiation.remove(&negotiation);
        }
    }
}
