//! What the cases reach: schedules that never award, or never fail, would satisfy every invariant.

use std::collections::BTreeSet;

use policy_core::{AwardLoss, Cause, Effect, Event};
use schemas::delivery::{CloseReason, Disposition, Outcome, RejectReason, Told};

use crate::world::Run;

/// Names of everything that happened.
#[derive(Default)]
pub(crate) struct Reached(BTreeSet<String>);

impl Reached {
    pub(crate) fn note(&mut self, run: &Run) {
        self.0.extend(run.effects().filter_map(name));
    }

    /// What never happened.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut wanted: Vec<String> = vec!["exclusion".to_owned(), "another round".to_owned()];
        wanted.extend(Disposition::ALL.iter().map(|disposition| format!("disposition {disposition:?}")));
        wanted.extend(CLOSE_REASONS.iter().map(|reason| format!("close {reason:?}")));
        wanted.extend(CAUSES.iter().map(|cause| format!("decision {cause:?}")));
        wanted.extend(LOSSES.iter().map(|loss| format!("loss {loss:?}")));
        wanted.extend(OUTCOMES.iter().map(|outcome| format!("outcome {outcome:?}")));
        wanted.extend(REJECT_REASONS.iter().map(|reason| format!("reject {reason:?}")));
        wanted.extend(MISREADINGS.iter().map(|reason| format!("misread {reason}")));
        wanted.retain(|name| !self.0.contains(name));
        wanted
    }
}

fn name(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Event(Event::Disposed { disposition, .. }) => Some(format!("disposition {disposition:?}")),
        Effect::Event(Event::Closed { reason, .. }) => Some(format!("close {reason:?}")),
        Effect::Event(Event::Decided(decision)) => Some(format!("decision {:?}", decision.cause)),
        Effect::Event(Event::AwardLost { loss, .. }) => Some(format!("loss {loss:?}")),
        Effect::Event(Event::Ended { outcome, .. }) => Some(format!("outcome {outcome:?}")),
        Effect::Event(Event::Excluded { .. }) => Some("exclusion".to_owned()),
        Effect::Deliver(deliver) => match &*deliver.told {
            Told::Reject(rejection) => Some(format!("reject {:?}", rejection.reason)),
            Told::Cfp(call) if call.round > 1 => Some("another round".to_owned()),
            Told::NotUnderstood(misunderstanding) => Some(format!("misread {}", misunderstanding.reason)),
            Told::Cfp(_)
            | Told::Accept(_)
            | Told::Cancel(_)
            | Told::Inform(_)
            | Told::Failure(_)
            | Told::Closed(_)
            | Told::Ack(_) => None,
        },
        Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => None,
    }
}

const CLOSE_REASONS: [CloseReason; 5] = [
    CloseReason::ScoreAtLeast,
    CloseReason::KValid,
    CloseReason::AllResponded,
    CloseReason::Window,
    CloseReason::Deadline,
];

const CAUSES: [Cause; 6] = [
    Cause::Score,
    Cause::Initiator,
    Cause::InitiatorSilent,
    Cause::ReAward(AwardLoss::Refused),
    Cause::ReAward(AwardLoss::ConfirmTimeout),
    Cause::ReAward(AwardLoss::PerformTimeout),
];

/// An award that is called off is no lost award to the book: its contractor may still answer that it is done.
const LOSSES: [AwardLoss; 8] = [
    AwardLoss::Refused,
    AwardLoss::Failed,
    AwardLoss::ConfirmTimeout,
    AwardLoss::PerformFailed,
    AwardLoss::PerformTimeout,
    AwardLoss::Undelivered,
    AwardLoss::Timeout,
    AwardLoss::Aborted,
];

const OUTCOMES: [Outcome; 7] = [
    Outcome::Completed,
    Outcome::NoOffers,
    Outcome::Incomplete,
    Outcome::NoCandidate,
    Outcome::Timeout,
    Outcome::Cancelled,
    Outcome::Aborted,
];

const REJECT_REASONS: [RejectReason; 9] = [
    RejectReason::Outscored,
    RejectReason::Late,
    RejectReason::Replaced,
    RejectReason::Expired,
    RejectReason::Policy,
    RejectReason::Cancelled,
    RejectReason::Awarded,
    RejectReason::Round,
    RejectReason::Withdrawn,
];

const MISREADINGS: [&str; 5] = ["out_of_turn", "bad_round", "bad_deadline", "use_failure_decommit", "unknown_offer"];
