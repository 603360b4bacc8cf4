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

mod calls;

use std::time::Duration;

use schemas::delivery::{
    AwardReport, Closing, ContractorFailure, ContractorReport, Disposition, Misunderstanding, OffersReport,
};
use schemas::envelope::{ConsentMode, Scope};
use schemas::ids::{Capability, IdError};
use schemas::payload::{Accept, Cfp, Reasoned};
use schemas::{Address, AgentId, NegotiationId, OfferId, Payload, Refusal, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, AgentError, AgentHandle, AgentOptions, Summary};
use crate::identity::Identity;
use crate::strategy::{Action, CallAddress, Outgoing};
use crate::transport::Transport;

use calls::{Calls, Counters};

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
    /// The negotiation ended. The last event.
    Closed(Closing),
}

impl CallReport {
    /// Whether nothing comes after it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        match self {
            Self::Refused(_) | Self::TurnedDown(_) | Self::Unanswered | Self::Closed(_) => true,
            Self::Accepted { .. }
            | Self::Opened { .. }
            | Self::Misunderstood(_)
            | Self::Offers(_)
            | Self::Awarded(_)
            | Self::Committed(_)
            | Self::Done(_)
            | Self::Stopped(_)
            | Self::Failed(_) => false,
        }
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
    counters: Counters,
}

impl Initiator {
    /// Starts the agent in a task of its own.
    #[must_use]
    pub fn spawn(transport: impl Transport + 'static, identity: Identity, options: AgentOptions) -> Self {
        let calls = Calls::new();
        let counters = calls.counters();
        let handle = Agent::new(transport, identity, calls).with_options(options).spawn(CancellationToken::new());
        Self { handle, counters }
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
        self.counters.open_count()
    }

    /// Number of events dropped because their receiver was full or gone.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.counters.dropped_events()
    }

    /// Ends the agent. Calls go on in the exchange.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub async fn shutdown(self) -> Result<Summary, AgentError> {
        self.handle.shutdown().await
    }

    async fn say(&self, negotiation: NegotiationId, payload: Payload) -> Result<(), AgentError> {
        let say = move |calls: &mut Calls, _now: Timestamp| {
            let traceparent = calls.traceparent(&negotiation);
            vec![Outgoing { traceparent, ..Outgoing::new(negotiation, payload) }.into()]
        };
        self.handle.command(say).await
    }
}
