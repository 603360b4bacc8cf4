//! What the agents of a run sent, were told and received: all the checker knows of the exchange before it reads the log.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use agents::observer::{Observed, Observer};
use agents::strategy::SendOutcome;
use parking_lot::Mutex;
use schemas::delivery::{Delivery, Disposition, Notification, Outcome, ProgressReport, Receipt};
use schemas::{Act, AgentId, AwardNo, Lane, MsgId, NegotiationId, OfferId, Timestamp};
use tokio::time::Instant;

use traffic_gen::latency::Latency;
use traffic_gen::recorder::Recorder;

/// `reason` of the CANCEL that follows an award nobody confirmed in time.
const CONFIRM_TIMEOUT: &str = "confirm_timeout";

/// Hears a run: what its agents see, and when their calls are due.
pub trait RunObserver: Observer {
    /// A call is due at `intended`, and is about to be made.
    fn call_due(&self, negotiation: &NegotiationId, intended: Instant);
}

/// Turns the instants of this process into times that compare with those of the log: servers and agents of a run share
/// one machine's clock. Decides nothing but which figures are reported.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    started: Instant,
    started_at: Timestamp,
}

impl WallClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started_at = Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX));
        Self { started: Instant::now(), started_at }
    }

    /// A clock that shows `started_at` at `started`.
    #[cfg(test)]
    pub(crate) fn for_test(started: Instant, started_at: Timestamp) -> Self {
        Self { started, started_at }
    }

    /// The time at an instant.
    pub fn at(&self, instant: Instant) -> Timestamp {
        let since_start = instant.saturating_duration_since(self.started).as_micros();
        Timestamp(self.started_at.0.saturating_add(u64::try_from(since_start).unwrap_or(u64::MAX)))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }
}

/// A decision as an agent first heard of it: an ACCEPT, its news to the initiator, or the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionHeard {
    /// The lane.
    pub lane: Lane,
    /// Log time of the record that decided.
    pub made: Timestamp,
    /// When the agent heard it.
    pub heard: Timestamp,
}

/// An ACCEPT as its contractor heard it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwardHeard {
    /// The contractor.
    pub contractor: AgentId,
    /// Its offer.
    pub offer: OfferId,
    /// When.
    pub heard: Timestamp,
}

/// One negotiation, from what its parties saw.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// Its initiator was told that it is open.
    pub is_open: bool,
    /// Contractors that were told their offer is applied.
    pub offered: BTreeSet<AgentId>,
    /// Contractors that took an offer back, refused an award or failed.
    pub unwilling: BTreeSet<AgentId>,
    /// ACCEPTs heard, each for the first time.
    pub awards: BTreeMap<AwardNo, AwardHeard>,
    /// Whether parties take turns: their ACCEPT asks for confirmations only.
    pub is_bargain: bool,
    /// The offer that a bargain agreed on.
    pub agreed: Option<OfferId>,
    /// Awards told to be binding.
    pub committed: BTreeSet<AwardNo>,
    /// Awards cancelled because nobody confirmed them in time, and the log time of that.
    pub lapsed: BTreeMap<AwardNo, Timestamp>,
    /// How it ended, as its initiator was told.
    pub outcome: Option<Outcome>,
    /// The log time of that.
    pub ended: Option<Timestamp>,
    /// Of a team or a panel: its hard end, as whoever took part was told.
    pub ends_by: Option<Timestamp>,
}

impl Round {
    /// Whether some contractor's offer stood, and nothing that contractor did speaks against it.
    pub fn has_willing(&self) -> bool {
        self.offered.difference(&self.unwilling).next().is_some()
    }
}

/// Everything noted.
#[derive(Debug, Clone, Default)]
pub struct Notes {
    /// By negotiation.
    pub rounds: BTreeMap<NegotiationId, Round>,
    /// In the order heard.
    pub decisions: Vec<DecisionHeard>,
    /// When each message was answered 202, in order.
    pub admitted: Vec<Timestamp>,
    /// From a message's first departure to its 202, over all its repeats.
    pub admission: Latency,
    /// Messages that left, each counted once.
    pub sent: u64,
    /// Times a message left again.
    pub resent: u64,
    /// Deliveries heard for the first time.
    pub heard: u64,
    /// When each repeated delivery arrived; agents drop them.
    pub repeats: Vec<Timestamp>,
    /// Connections made.
    pub connections: u64,
    departures: HashMap<(AgentId, MsgId), Timestamp>,
}

/// Hears every agent.
pub struct AgentJournal {
    /// Counts and invariants.
    pub recorder: Recorder,
    /// The run's clock.
    pub clock: WallClock,
    notes: Mutex<Notes>,
}

impl AgentJournal {
    /// Starts with nothing noted.
    pub fn new(recorder: Recorder, clock: WallClock) -> Self {
        Self { recorder, clock, notes: Mutex::default() }
    }

    /// Takes what is noted, leaving nothing.
    pub fn take(&self) -> Notes {
        std::mem::take(&mut *self.notes.lock())
    }

    /// When the last decision was heard.
    pub fn last_decision(&self) -> Option<Timestamp> {
        self.notes.lock().decisions.last().map(|decision| decision.heard)
    }
}

impl Observer for AgentJournal {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        self.recorder.handle(agent, at, event);
        self.notes.lock().handle(agent, self.clock.at(at), event);
    }
}

impl RunObserver for AgentJournal {
    fn call_due(&self, negotiation: &NegotiationId, intended: Instant) {
        self.recorder.call_due(negotiation.clone(), intended);
    }
}

impl Notes {
    fn handle(&mut self, agent: &AgentId, at: Timestamp, event: Observed<'_>) {
        match event {
            Observed::Connected => self.connections += 1,
            Observed::Disconnected | Observed::Deferred { .. } | Observed::Decided { .. } => {}
            Observed::Transmitted { negotiation, msg_id, act, attempt: 1, .. } => {
                self.sent += 1;
                self.departures.insert((agent.clone(), msg_id.clone()), at);
                if matches!(act, Act::Withdraw | Act::Refuse | Act::Failure) {
                    self.round(negotiation).unwilling.insert(agent.clone());
                }
            }
            Observed::Transmitted { .. } => self.resent += 1,
            Observed::Settled { sent, .. } => {
                let departure = self.departures.remove(&(agent.clone(), sent.msg_id.clone()));
                if matches!(sent.outcome, SendOutcome::Accepted { .. }) {
                    self.admitted.push(at);
                    let took = departure.map_or(0, |departure| at.since_us(departure));
                    self.admission.record(std::time::Duration::from_micros(took));
                }
            }
            Observed::Delivered { is_repeat: true, .. } => self.repeats.push(at),
            Observed::Delivered { delivery, is_repeat: false } => {
                self.heard += 1;
                self.delivered(agent, at, delivery);
            }
        }
    }

    fn round(&mut self, negotiation: &NegotiationId) -> &mut Round {
        self.rounds.entry(negotiation.clone()).or_default()
    }

    fn delivered(&mut self, agent: &AgentId, at: Timestamp, delivery: &Delivery) {
        let negotiation = &delivery.envelope.negotiation;
        let (lane, made) = (delivery.envelope.msg_id.lane(), delivery.envelope.ts.0);
        let is_decision = matches!(
            delivery.payload,
            Notification::Accept(_) | Notification::Inform(ProgressReport::Awarded(_)) | Notification::Closed(_)
        );
        if is_decision {
            self.decisions.push(DecisionHeard { lane, made, heard: at });
        }
        let is_initiator = negotiation.initiator() == agent.as_str();
        let round = self.round(negotiation);
        delivery.receipts_told().for_each(|receipt| round.disposed(agent, receipt));
        if let Notification::Accept(award) = &delivery.payload {
            let heard = AwardHeard { contractor: agent.clone(), offer: award.offer_id, heard: at };
            round.awards.entry(award.award_no).or_insert(heard);
        } else if let Notification::Cancel(cancellation) = &delivery.payload
            && cancellation.reason == CONFIRM_TIMEOUT
        {
            round.lapsed.entry(cancellation.award_no).or_insert(made);
        } else if let Notification::Closed(closing) = &delivery.payload
            && is_initiator
        {
            round.outcome = Some(closing.outcome);
            round.agreed = closing.agreement.as_ref().map(|agreement| agreement.offer_id);
            round.ended = round.ended.or(Some(made));
        } else if matches!(delivery.payload, Notification::Turn(_)) {
            round.is_bargain = true;
        } else if let Notification::Floor(floor) = &delivery.payload {
            round.ends_by = Some(floor.ends_by.0);
        } else if let Notification::Ask(ask) = &delivery.payload {
            round.ends_by = Some(ask.ends_by.0);
        }
    }
}

impl Round {
    fn disposed(&mut self, agent: &AgentId, receipt: &Receipt) {
        self.is_open |= receipt.invited.is_some();
        match (receipt.disposition, receipt.offer_id, receipt.award_no) {
            (Disposition::Ok, Some(_), _) => {
                self.offered.insert(agent.clone());
            }
            (Disposition::Committed, _, Some(award_no)) => {
                self.committed.insert(award_no);
            }
            (_, _, _) => {}
        }
    }
}
