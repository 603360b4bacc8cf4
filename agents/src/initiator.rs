//! Opening calls and hearing how they go.
//!
//! ```no_run
//! # async fn example(transport: agents::transport::http::HttpTransport, identity: agents::Identity) -> anyhow_free::R {
//! use agents::{CallRequest, Initiator};
//! use schemas::payload::Cfp;
//! use schemas::{Address, TopicName};
//!
//! let initiator = Initiator::spawn(transport, identity, agents::AgentOptions::default());
//! initiator.connected().await?;
//! let couriers = Address::Topic(TopicName::try_new("courier")?);
//! let cfp = Cfp { task: Some("a parcel from A to B".into()), reply_within_ms: Some(2000), ..Cfp::default() };
//! let report = initiator.call_to_end(CallRequest::new("parcel-17", vec![couriers], cfp)).await?;
//! println!("{:?}", report.last().map(|event| &event.report));
//! # Ok(()) }
//! # mod anyhow_free { pub type R = Result<(), Box<dyn std::error::Error>>; }
//! ```

mod deciding;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ahash::HashMap;
use schemas::delivery::{
    AwardReport, Closing, ContractorFailure, ContractorReport, Delivery, Disposition, Finding, Misunderstanding,
    Notification, OffersReport, ProgressReport, Receipt,
};
use schemas::english_auction::StandingBid;
use schemas::envelope::{ConsentMode, Scope};
use schemas::ids::{Capability, IdError};
use schemas::panel::SeatChoice;
use schemas::payload::{Accept, Cfp, Reasoned};
use schemas::{Act, Address, AgentId, Code, NegotiationId, OfferId, Payload, Refusal, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, AgentError, AgentHandle, AgentOptions, Summary};
use crate::identity::Identity;
use crate::panel::Panelist;
use crate::panel::member::reply;
use crate::strategy::{Action, CallAddress, Outgoing, SendOutcome, Sent, Strategy};
use crate::transport::Transport;

pub use deciding::{OfferChooser, OpenDecision};

/// Events of one call waiting for [`Initiator::call_to_end`]: several times what the longest negotiation gives.
const EVENTS_PER_CALL_MAX: usize = 256;

/// A call to be opened.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The initiator's own id for the negotiation, 1 to 64 characters of `A-Z a-z 0-9 _ -`, never used before.
    pub own_id: String,
    /// Whom it addresses.
    pub to: Vec<Address>,
    /// An agent must share one of these to be invited (empty: any).
    pub capabilities: Vec<Capability>,
    /// Lifetime of the negotiation in seconds (absent: the policy's hard timer alone).
    pub ttl_s: Option<u64>,
    /// Whether topics and groups reach absent agents as well.
    pub absent: bool,
    /// The call itself.
    pub cfp: Cfp,
    /// When it is to leave (absent, or past: at once). Absolute, so that delays before the call do not add up.
    pub start_at: Option<Instant>,
    /// W3C trace context of the caller (absent: the trace is the negotiation's own).
    pub traceparent: Option<String>,
}

impl CallRequest {
    /// A call that leaves at once.
    #[must_use]
    pub fn new(own_id: impl Into<String>, to: Vec<Address>, cfp: Cfp) -> Self {
        let own_id = own_id.into();
        Self {
            own_id,
            to,
            capabilities: Vec::new(),
            ttl_s: None,
            absent: false,
            cfp,
            start_at: None,
            traceparent: None,
        }
    }
}

/// Something that happened to a call.
#[derive(Debug, Clone)]
pub struct CallEvent {
    /// The call.
    pub negotiation: NegotiationId,
    /// Local time at which the initiator learned it.
    pub at: Instant,
    /// Log time of the record that caused it. Of a message of our own: the log time as far as we can tell.
    pub log_time: Timestamp,
    /// What happened.
    pub report: CallReport,
}

/// What happened to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallReport {
    /// The call is in the log; the sequence of its record, unless only a receipt told us.
    Accepted {
        /// Sequence of the record.
        seq: Option<u64>,
    },
    /// The call was refused and does not exist. The last event.
    Refused(Refusal),
    /// The call is in the log, but the exchange did not open it. The last event.
    TurnedDown(Disposition),
    /// Nobody answered: the call may or may not exist. The last event.
    Unanswered,
    /// The call is open.
    Opened {
        /// How many are invited.
        invited: u32,
        /// How many were left out ([`Pinned::left_out`](schemas::record::Pinned::left_out)).
        left_out: u32,
        /// Of a panel that chooses its seats: whether by evidence, or everybody on trial.
        seats: Option<SeatChoice>,
    },
    /// The exchange could not follow the call, or an act of ours.
    Misunderstood(Misunderstanding),
    /// `decider: initiator`: answer with [`Initiator::accept`] in time.
    Offers(OffersReport),
    /// An award is registered.
    Awarded(Box<AwardReport>),
    /// The contractor confirmed.
    Committed(ContractorReport),
    /// The contractor is done, perhaps with a result.
    Done(ContractorReport),
    /// The contractor stopped after a cancellation.
    Stopped(ContractorReport),
    /// A contractor failed.
    Failed(ContractorFailure),
    /// A panel has come to a result, which is registered.
    Found(Box<Finding>),
    /// An auction has a new standing bid.
    Bid(Box<StandingBid>),
    /// The negotiation ended. The last event.
    Closed(Closing),
}

impl CallReport {
    /// Whether nothing comes after it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::TurnedDown(_) | Self::Unanswered | Self::Closed(_))
    }
}

/// Why a call was not opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The id cannot be used.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The initiator has ended.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// An agent that opens calls. Events of a call go to the sender given with it, in order; the sender must be read: when
/// it is full, events are dropped and counted ([`Initiator::dropped_events`]).
pub struct Initiator {
    handle: AgentHandle<Calls>,
    counts: Arc<Counts>,
}

impl Initiator {
    /// Starts the agent in a task of its own.
    #[must_use]
    pub fn spawn(transport: impl Transport + 'static, identity: Identity, options: AgentOptions) -> Self {
        Self::spawn_calls(transport, identity, options, Calls::default())
    }

    /// Starts an initiator that ranks the answers of the panels whose calls name itself as the ranker.
    #[must_use]
    pub fn spawn_ranking(
        transport: impl Transport + 'static,
        identity: Identity,
        options: AgentOptions,
        panelist: impl Panelist + 'static,
    ) -> Self {
        let calls = Calls { panelist: Some(Box::new(panelist)), ..Calls::default() };
        Self::spawn_calls(transport, identity, options, calls)
    }

    fn spawn_calls(
        transport: impl Transport + 'static,
        identity: Identity,
        options: AgentOptions,
        calls: Calls,
    ) -> Self {
        let counts = Arc::clone(&calls.counts);
        let handle = Agent::new(transport, identity, calls).with_options(options).spawn(CancellationToken::new());
        Self { handle, counts }
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        self.handle.agent()
    }

    /// Waits until it is connected.
    ///
    /// # Errors
    /// [`AgentError::Ended`] when it ends instead.
    pub async fn connected(&self) -> Result<(), AgentError> {
        self.handle.connected().await
    }

    /// Opens a call. Its events go to `events`, which may be shared by many calls. Returns at once with the id of the
    /// negotiation; that the call is accepted, refused or closed is an event.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(&self, call: CallRequest, events: mpsc::Sender<CallEvent>) -> Result<NegotiationId, CallError> {
        let negotiation = NegotiationId::form(self.agent(), &call.own_id)?;
        let CallRequest { to, capabilities, ttl_s, absent, cfp, start_at, traceparent, own_id: _ } = call;
        let scope = Some(Scope { consent: ConsentMode::OptIn, ttl: ttl_s, absent });
        let mut outgoing = Outgoing::new(negotiation.clone(), Payload::Cfp(cfp));
        outgoing.call_to = Some(Box::new(CallAddress { to, capabilities, scope }));
        outgoing.traceparent = traceparent;
        let open = move |calls: &mut Calls, now: Timestamp| {
            if !calls.open(now, &outgoing.negotiation, events, outgoing.traceparent.as_deref()) {
                return Vec::new();
            }
            outgoing.delay =
                start_at.map_or(Duration::ZERO, |start_at| start_at.saturating_duration_since(Instant::now()));
            vec![Action::from(outgoing)]
        };
        self.handle.command(open).await?;
        Ok(negotiation)
    }

    /// Opens a call and waits for its end.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_to_end(&self, call: CallRequest) -> Result<Vec<CallEvent>, CallError> {
        let (sender, mut receiver) = mpsc::channel(EVENTS_PER_CALL_MAX);
        self.call(call, sender).await?;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        if events.last().is_some_and(|event| event.report.is_last()) {
            Ok(events)
        } else {
            Err(AgentError::Ended.into())
        }
    }

    /// Chooses an offer, under `decider: initiator`.
    ///
    /// # Errors
    /// [`AgentError::Ended`] when the initiator has ended.
    pub async fn accept(&self, negotiation: NegotiationId, offer_id: OfferId) -> Result<(), AgentError> {
        self.say(negotiation, Payload::Accept(Accept { offer_id, terms_digest: None })).await
    }

    /// Calls a negotiation off.
    ///
    /// # Errors
    /// [`AgentError::Ended`] when the initiator has ended.
    pub async fn cancel(&self, negotiation: NegotiationId, reason: Option<String>) -> Result<(), AgentError> {
        self.say(negotiation, Payload::Cancel(Reasoned { reason, round: None })).await
    }

    /// Listens to a call no longer, which goes on in the exchange: for one whose end will not be heard of any more.
    ///
    /// # Errors
    /// [`AgentError::Ended`] when the initiator has ended.
    pub async fn forget(&self, negotiation: NegotiationId) -> Result<(), AgentError> {
        self.handle.command(move |calls: &mut Calls, _now| calls.forget(&negotiation)).await
    }

    /// Number of calls that have not ended.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// Number of events dropped because their receiver was full or gone.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.counts.dropped_events.load(Ordering::Relaxed)
    }

    /// Ends the agent. Calls go on in the exchange.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub async fn shutdown(self) -> Result<Summary, AgentError> {
        self.handle.shutdown().await
    }

    async fn say(&self, negotiation: NegotiationId, payload: Payload) -> Result<(), AgentError> {
        self.handle.command(move |calls: &mut Calls, _now| calls.say(negotiation, payload)).await
    }
}

/// Most calls open at a time. The exchange ends each by its hard deadline, so more mean that it is gone; a call takes
/// some 200 bytes here.
const CALLS_OPEN_MAX: usize = 1_048_576;

/// How long behind the receipt of a malformed call its reason is waited for, in milliseconds.
const EXPLAINED_MS: u64 = 2_000;
/// Why an initiator takes no part in a call of others.
const CALLS_ONLY: &str = "calls others only";

/// Calls that have not ended.
#[derive(Default)]
struct Calls {
    calls_by_negotiation: HashMap<NegotiationId, OpenCall>,
    counts: Arc<Counts>,
    /// Where offers go of which one is to be chosen, and who chooses.
    decisions: Option<(AgentId, mpsc::Sender<OpenDecision>)>,
    /// What answers the asks of panels that the initiator itself is to rank.
    panelist: Option<Box<dyn Panelist>>,
    /// Calls that are malformed, and until when the reason is waited for: an engine that cannot read a call gives none.
    unexplained: VecDeque<(Timestamp, NegotiationId)>,
}

struct OpenCall {
    listener: mpsc::Sender<CallEvent>,
    /// The receipt of the call itself has come; every later receipt is for something else.
    has_receipt: bool,
    /// Why it is malformed has been told.
    is_explained: bool,
    /// The trace the caller gave it: what is said later in the call belongs to it too.
    traceparent: Option<Box<str>>,
}

/// What the handle reads.
#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    dropped_events: AtomicU64,
}

impl Counts {
    /// Time is read here, where the report leaves the pure part: what it means has been decided without it.
    fn tell(
        &self,
        listener: &mpsc::Sender<CallEvent>,
        negotiation: &NegotiationId,
        log_time: Timestamp,
        report: CallReport,
    ) {
        let event = CallEvent { negotiation: negotiation.clone(), at: Instant::now(), log_time, report };
        if listener.try_send(event).is_err() {
            self.dropped_events.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Calls {
    /// Listens to a call from now on. A call that cannot be opened is told so, and false is returned.
    fn open(
        &mut self,
        now: Timestamp,
        negotiation: &NegotiationId,
        listener: mpsc::Sender<CallEvent>,
        traceparent: Option<&str>,
    ) -> bool {
        let refusal = if self.calls_by_negotiation.contains_key(negotiation) {
            Refusal::new(Code::Conflict, "a call with this id is still open; choose another id")
        } else if self.calls_by_negotiation.len() >= CALLS_OPEN_MAX {
            Refusal::new(Code::Overloaded, "too many calls are open; wait for some to end")
        } else {
            let call = OpenCall {
                listener,
                has_receipt: false,
                is_explained: false,
                traceparent: traceparent.map(Into::into),
            };
            self.calls_by_negotiation.insert(negotiation.clone(), call);
            self.count_open();
            return true;
        };
        self.counts.tell(&listener, negotiation, now, CallReport::Refused(refusal));
        false
    }

    /// Says something, of an open call in the trace its caller gave it.
    fn say(&self, negotiation: NegotiationId, payload: Payload) -> Vec<Action> {
        let call = self.calls_by_negotiation.get(&negotiation);
        let traceparent = call.and_then(|call| call.traceparent.as_deref().map(str::to_owned));
        vec![Outgoing { traceparent, ..Outgoing::new(negotiation, payload) }.into()]
    }

    /// Tells the call's listener; after the last report nobody listens any more.
    fn tell(&mut self, negotiation: &NegotiationId, log_time: Timestamp, report: CallReport) -> Vec<Action> {
        let Some(call) = self.calls_by_negotiation.get(negotiation) else { return Vec::new() };
        let is_last = report.is_last();
        self.counts.tell(&call.listener, negotiation, log_time, report);
        if is_last { self.forget(negotiation) } else { Vec::new() }
    }

    /// Listens to a call no longer.
    fn forget(&mut self, negotiation: &NegotiationId) -> Vec<Action> {
        self.calls_by_negotiation.remove(negotiation);
        self.count_open();
        vec![Action::Release(negotiation.clone())]
    }

    fn report_of_receipt(
        &mut self,
        negotiation: &NegotiationId,
        now: Timestamp,
        receipt: &Receipt,
    ) -> Option<CallReport> {
        let call = self.calls_by_negotiation.get_mut(negotiation).filter(|call| !call.has_receipt)?;
        let disposition = receipt.first.unwrap_or(receipt.disposition);
        if disposition != Disposition::Ok {
            call.has_receipt = true;
            if disposition == Disposition::Malformed && !call.is_explained {
                self.unexplained.push_back((now.plus_ms(EXPLAINED_MS), negotiation.clone()));
                return None;
            }
            return Some(CallReport::TurnedDown(disposition));
        }
        // Only the receipt of a call counts invitations.
        let invited = receipt.invited?;
        call.has_receipt = true;
        Some(CallReport::Opened { invited, left_out: receipt.left_out.unwrap_or(0), seats: receipt.seats })
    }

    /// Tells why a message could not be followed; of the call itself that is the end.
    fn tell_misunderstood(
        &mut self,
        negotiation: &NegotiationId,
        now: Timestamp,
        why: &Misunderstanding,
    ) -> Vec<Action> {
        let actions = self.tell(negotiation, now, CallReport::Misunderstood(why.clone()));
        let Some(call) = self.calls_by_negotiation.get_mut(negotiation) else { return actions };
        call.is_explained = true;
        let waiting = self.unexplained.iter().position(|(_, waiting)| waiting == negotiation);
        if waiting.and_then(|place| self.unexplained.remove(place)).is_some() {
            return self.tell(negotiation, now, CallReport::TurnedDown(Disposition::Malformed));
        }
        actions
    }

    /// Hands offers to whoever chooses. With no room left there the exchange decides.
    fn pass_on(&self, now: Timestamp, delivery: &Delivery, offers: &OffersReport) {
        let Some((agent, decisions)) = &self.decisions else { return };
        let envelope = &delivery.envelope;
        let decision = OpenDecision {
            agent: agent.clone(),
            negotiation: envelope.negotiation.clone(),
            traceparent: envelope.traceparent.clone(),
            closed_at: now,
            report: offers.clone(),
        };
        if decisions.try_send(decision).is_err() {
            tracing::debug!(negotiation = %envelope.negotiation, "too many decisions wait: the score decides");
        }
    }

    fn count_open(&self) {
        self.counts.open.store(self.calls_by_negotiation.len(), Ordering::Relaxed);
    }
}

impl Strategy for Calls {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let report = match &delivery.payload {
            Notification::Inform(ProgressReport::Awarded(award)) => Some(CallReport::Awarded(Box::new(award.clone()))),
            Notification::Inform(ProgressReport::Offers(offers)) => {
                self.pass_on(now, delivery, offers);
                Some(CallReport::Offers(offers.clone()))
            }
            Notification::Inform(ProgressReport::Committed(report)) => Some(CallReport::Committed(report.clone())),
            Notification::Inform(ProgressReport::Done(report) | ProgressReport::Result(report)) => {
                Some(CallReport::Done(report.clone()))
            }
            Notification::Inform(ProgressReport::Cancelled(report)) => Some(CallReport::Stopped(report.clone())),
            Notification::Failure(failure) => Some(CallReport::Failed(failure.clone())),
            Notification::Closed(closing) => Some(CallReport::Closed(closing.clone())),
            Notification::NotUnderstood(misunderstanding) => {
                return self.tell_misunderstood(negotiation, now, misunderstanding);
            }
            Notification::Ack(receipt) => self.report_of_receipt(negotiation, now, receipt),
            Notification::Inform(ProgressReport::Finding(finding)) => Some(CallReport::Found(finding.clone())),
            Notification::Inform(ProgressReport::Bid(standing)) => Some(CallReport::Bid(standing.clone())),
            Notification::Ask(ask) => {
                return match self.panelist.as_mut() {
                    Some(panelist) => reply(panelist.as_mut(), delivery, ask),
                    None => vec![Action::refuse(delivery, CALLS_ONLY)],
                };
            }
            Notification::Cfp(_) => return vec![Action::refuse(delivery, CALLS_ONLY)],
            _ => None,
        };
        report.map_or_else(Vec::new, |report| self.tell(negotiation, now, report))
    }

    fn poll_timer(&self) -> Option<Timestamp> {
        self.unexplained.front().map(|(until, _)| *until)
    }

    fn handle_timer(&mut self, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((_, negotiation)) = self.unexplained.pop_front_if(|(until, _)| *until <= now) {
            actions.extend(self.tell(&negotiation, now, CallReport::TurnedDown(Disposition::Malformed)));
        }
        actions
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        report_of_sent(sent).map_or_else(Vec::new, |report| self.tell(&sent.negotiation, now, report))
    }
}

fn report_of_sent(sent: &Sent) -> Option<CallReport> {
    match (&sent.outcome, sent.act) {
        (SendOutcome::Accepted { seq, .. }, Act::Cfp) => Some(CallReport::Accepted { seq: *seq }),
        (SendOutcome::Refused(refusal), Act::Cfp) => Some(CallReport::Refused(refusal.clone())),
        (SendOutcome::Unanswered, Act::Cfp) => Some(CallReport::Unanswered),
        // What is said later in a call does not end it.
        (SendOutcome::Accepted { .. } | SendOutcome::Refused(_) | SendOutcome::Unanswered, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use schemas::Digest;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_initiator_that_is_called_or_asked_refuses_at_once() {
        let times = json!({"act": "cfp", "round": 1, "reply_by": "2025-10-09T08:53:30Z", "ends_by": "2025-10-09T08:55:00Z",
            "policy": "high", "policy_digest": Digest([0; 32]), "lots": 1});
        let ask =
            json!({"act": "ask", "round": 1, "answer_by": "2025-10-09T08:53:30Z", "ends_by": "2025-10-09T08:55:00Z"});
        for payload in [times, ask] {
            let envelope = json!({"msg_id": "0".repeat(32), "ts": "2025-10-09T08:53:20Z", "from": "exchange://llmx",
                "to": ["agent://bob"], "negotiation": "alice~n1"});
            let told: Delivery = serde_json::from_value(json!({"envelope": envelope, "payload": payload})).unwrap();
            let actions = Calls::default().handle(Timestamp(0), &told);
            assert_eq!(actions, [Action::refuse(&told, CALLS_ONLY)], "{payload}");
        }
    }
}
