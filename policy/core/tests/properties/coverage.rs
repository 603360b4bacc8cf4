//! What logs reach: schedules that never award, or never fail, would satisfy every invariant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use policy_core::{AwardLoss, Cause, Decision, Deliver, Effect, Event, RankedOffer, presets};
use schemas::delivery::{CloseReason, Disposition, Notification, Outcome, ProgressReport, RejectReason, Rejection};
use schemas::record::{EngineEvent, Entry, Record};
use schemas::{NegotiationId, Policy};

/// Names of everything that happened.
#[derive(Default)]
pub(crate) struct Reached {
    names: BTreeSet<String>,
    policies: BTreeMap<NegotiationId, Arc<Policy>>,
    /// Negotiations whose calls name documents.
    naming: BTreeSet<NegotiationId>,
}

impl Reached {
    /// Notes one record and what it led to.
    pub(crate) fn note(&mut self, record: &Record, effects: &[Effect]) {
        for entry in &record.entries {
            self.note_entry(entry);
        }
        for effect in effects {
            self.names.extend(name(effect));
            match effect {
                Effect::Deliver(Deliver { negotiation, told, .. }) => {
                    if matches!(&**told, Notification::Cfp(call) if call.documents.is_some()) {
                        self.naming.insert(negotiation.clone());
                    }
                }
                Effect::Event(Event::Decided(decision)) if !decision.awards.is_empty() => self.note_decision(decision),
                Effect::Event(Event::Ended { negotiation, .. }) => {
                    let id = self.policies.get(negotiation).map(|policy| format!("end under {}", policy.id));
                    self.names.extend(id);
                }
                Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => {}
            }
        }
    }

    /// Everything that happened.
    #[allow(dead_code, reason = "logs are chosen by it, and checked without")]
    pub(crate) fn names(self) -> BTreeSet<String> {
        self.names
    }

    /// What never happened.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut wanted = wanted();
        wanted.retain(|name| !self.names.contains(name));
        wanted
    }

    fn note_entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Message(message) => {
                if let Some(pinned) = &message.pinned {
                    self.policies.insert(message.negotiation.clone(), Arc::clone(&pinned.policy));
                }
            }
            Entry::Tick => drop(self.names.insert("tick".to_owned())),
            Entry::Engine { event, .. } => drop(self.names.insert(format!("engine {}", engine_word(event)))),
        }
    }

    fn note_decision(&mut self, decision: &Decision) {
        let Some(policy) = self.policies.get(&decision.negotiation) else { return };
        let words = [
            format!("award under {}", policy.id),
            format!("award by {}", word(&policy.tie_break)),
            format!("award at {}", word(&policy.payment)),
            format!("award held until {}", word(&policy.hold_until)),
            format!("award with confirm {}", policy.require_confirm),
            format!("award in round {}", if decision.round > 1 { "two or later" } else { "one" }),
        ];
        self.names.extend(words);
        if self.naming.contains(&decision.negotiation) {
            let pins = decision
                .awards
                .iter()
                .map(|award| if award.document.is_some() { "a document" } else { "none of the call's documents" });
            self.names.extend(pins.map(|pins| format!("award pinning {pins}")));
        }
        if decision.awards.len() > 1 {
            self.names.insert("award of several lots".to_owned());
        }
        let is_even = |pair: &[RankedOffer]| pair[0].score == pair[1].score && pair[0].last_win != pair[1].last_win;
        if decision.offers.windows(2).any(is_even) {
            self.names.insert("award between equals by last wins".to_owned());
        }
    }
}

/// Everything there is.
fn wanted() -> Vec<String> {
    let mut wanted: Vec<String> =
        ["exclusion", "another round", "tick", "gate documents", "report by routine", "report by language"]
            .map(str::to_owned)
            .to_vec();
    // Only parties of bargains have mandates.
    let dispositions = Disposition::ALL.iter().filter(|one| **one != Disposition::MandateViolation);
    wanted.extend(dispositions.map(|disposition| format!("disposition {disposition:?}")));
    wanted.extend(CLOSE_REASONS.iter().map(|reason| format!("close {reason:?}")));
    wanted.extend(CAUSES.iter().map(|cause| format!("decision {cause:?}")));
    wanted.extend(LOSSES.iter().map(|loss| format!("loss {loss:?}")));
    wanted.extend(OUTCOMES.iter().map(|outcome| format!("outcome {outcome:?}")));
    wanted.extend(REJECT_REASONS.iter().map(|reason| format!("reject {reason:?}")));
    wanted.extend(MISREADINGS.iter().map(|reason| format!("misread {reason}")));
    wanted.extend(ENGINE_EVENTS.iter().map(|event| format!("engine {event}")));
    wanted.extend(AWARDS.iter().map(|how| format!("award {how}")));
    let nets: Vec<Policy> = presets().into_iter().filter(|policy| policy.bargain.is_none()).collect();
    wanted.extend(nets.iter().map(|policy| format!("end under {}", policy.id)));
    let awarding = nets.into_iter().filter(|policy| policy.award);
    wanted.extend(awarding.map(|policy| format!("award under {}", policy.id)));
    wanted
}

/// The name of a policy's choice, without what it carries.
fn word(choice: &impl serde::Serialize) -> String {
    let choice = serde_json::to_value(choice).expect("a choice is JSON");
    let member = choice.as_object().and_then(|members| members.keys().next());
    member.map(String::as_str).or(choice.as_str()).unwrap_or_default().to_owned()
}

const fn engine_word(event: &EngineEvent) -> &'static str {
    match event {
        EngineEvent::Claim { .. } => "claim",
        EngineEvent::Delivered { .. } => "delivered",
        EngineEvent::DeliveryFailed { .. } => "delivery_failed",
        EngineEvent::Abort { .. } => "abort",
        EngineEvent::Rules { .. } => "rules",
    }
}

const ENGINE_EVENTS: [&str; 5] = ["claim", "delivered", "delivery_failed", "abort", "rules"];

const AWARDS: [&str; 16] = [
    "by hash",
    "by lottery",
    "by least_recent_winner",
    "by arrival",
    "at first_price",
    "at second_price",
    "held until confirm",
    "held until done",
    "with confirm true",
    "with confirm false",
    "in round one",
    "in round two or later",
    "of several lots",
    "between equals by last wins",
    "pinning a document",
    "pinning none of the call's documents",
];

fn name(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Event(Event::Disposed { disposition, .. }) => Some(format!("disposition {disposition:?}")),
        Effect::Event(Event::Closed { reason, .. }) => Some(format!("close {reason:?}")),
        Effect::Event(Event::Decided(decision)) => Some(format!("decision {:?}", decision.cause)),
        Effect::Event(Event::AwardLost { loss, .. }) => Some(format!("loss {loss:?}")),
        Effect::Event(Event::Ended { outcome, .. }) => Some(format!("outcome {outcome:?}")),
        Effect::Event(Event::Excluded { .. }) => Some("exclusion".to_owned()),
        Effect::Deliver(deliver) => match &*deliver.told {
            Notification::Reject(Rejection { code: Some(code), .. }) if code == "documents" => {
                Some("gate documents".to_owned())
            }
            Notification::Reject(rejection) => Some(format!("reject {:?}", rejection.reason)),
            Notification::Inform(ProgressReport::Done(report) | ProgressReport::Result(report)) => report
                .routine
                .map(|routine| format!("report by {}", if routine.hash.is_some() { "routine" } else { "language" })),
            Notification::Cfp(call) if call.round > 1 => Some("another round".to_owned()),
            Notification::NotUnderstood(misunderstanding) => Some(format!("misread {}", misunderstanding.reason)),
            Notification::Cfp(_)
            | Notification::Accept(_)
            | Notification::Cancel(_)
            | Notification::Inform(_)
            | Notification::Failure(_)
            | Notification::Closed(_)
            | Notification::Turn(_)
            | Notification::Ask(_)
            | Notification::Floor(_)
            | Notification::Ack(_) => None,
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

const CAUSES: [Cause; 7] = [
    Cause::Score,
    Cause::Initiator,
    Cause::InitiatorSilent,
    Cause::ReAward(AwardLoss::Refused),
    Cause::ReAward(AwardLoss::ConfirmTimeout),
    Cause::ReAward(AwardLoss::PerformTimeout),
    Cause::Direct,
];

/// An award that is called off is no lost award to the lane's state: its contractor may still answer that it is done.
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

const MISREADINGS: [&str; 6] =
    ["out_of_turn", "bad_round", "bad_deadline", "use_failure_decommit", "unknown_offer", "document"];
