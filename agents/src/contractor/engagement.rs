//! What a contractor remembers of the negotiations it made an offer in.

use schemas::delivery::Call;
use schemas::document::DocumentHash;
use schemas::payload::Terms;
use schemas::{AwardNo, Timestamp};

/// One negotiation the contractor made an offer in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engagement {
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
    /// An offer of these terms, with the call's task where `keeps_task`.
    #[must_use]
    pub fn new(call: &Call, offered: Vec<Terms>, keeps_task: bool) -> Self {
        Self {
            offered,
            stage: EngagementStage::Offered,
            task: call.task.clone().filter(|_| keeps_task),
            document: None,
            requires_document: call.documents.as_ref().is_some_and(|documents| documents.require),
            ends_by: call.ends_by.0,
        }
    }
}
