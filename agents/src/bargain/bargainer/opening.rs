//! Calling others to a bargain.

use std::time::Duration;

use schemas::bargain::BargainSpec;
use schemas::envelope::{ConsentMode, Scope};
use schemas::payload::{Cfp, Reasoned};
use schemas::{Address, Code, NegotiationId, Payload, Refusal, Timestamp};
use tokio::time::Instant;

use super::seat::{Seat, TurnRules};
use super::{BargainReport, Bargainer};
use crate::agent::AgentHandle;
use crate::bargain::plan::BargainPlan;
use crate::initiator::{CallError, CallRequest};
use crate::strategy::{Action, CallAddress, Outgoing};

/// The exchange lets no bargain last longer than a day, in milliseconds.
const BARGAIN_MS_MAX: u64 = 86_400_000;

/// A bargain to be opened.
pub struct BargainRequest {
    /// The call. Its `cfp` has the rules; the mandate is the plan's.
    pub call: CallRequest,
    /// How the initiator goes into it; it is party 0.
    pub plan: BargainPlan,
}

impl BargainRequest {
    /// A call to a bargain that leaves at once. `own_id` is the initiator's own id for it, never used before.
    #[must_use]
    pub fn new(own_id: impl Into<String>, to: Vec<Address>, rules: BargainSpec, plan: BargainPlan) -> Self {
        let cfp = Cfp { bargain: Some(Box::new(rules)), ..Cfp::default() };
        Self { call: CallRequest::new(own_id, to, cfp), plan }
    }
}

impl Bargainer {
    /// Opens a bargain. What becomes of it are events.
    pub fn open(&mut self, now: Timestamp, negotiation: &NegotiationId, request: BargainRequest) -> Vec<Action> {
        let BargainRequest {
            call: CallRequest { to, capabilities, ttl_s, absent, mut cfp, start_at, traceparent, .. },
            plan,
        } = request;
        let seat = if self.book.contains(negotiation) {
            Err(Refusal::new(Code::Conflict, "a bargain with this id is still open; choose another id"))
        } else if !self.book.has_room() {
            Err(Refusal::new(Code::Overloaded, "too many bargains are open; wait for some to end"))
        } else {
            self.own_seat(&mut cfp, plan)
        };
        let seat = match seat {
            Ok(seat) => seat,
            Err(refusal) => {
                self.reporter.tell(negotiation, now, BargainReport::Refused(refusal));
                return Vec::new();
            }
        };
        let delay = start_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(BARGAIN_MS_MAX);
        self.book.insert(negotiation, seat, now.plus_ms(delay_ms.saturating_add(BARGAIN_MS_MAX)));
        let mut message = Outgoing::new(negotiation.clone(), Payload::Cfp(cfp)).once(0);
        let scope = Some(Scope { consent: ConsentMode::OptIn, ttl: ttl_s, absent });
        message.call_to = Some(Box::new(CallAddress { to, capabilities, scope }));
        message.traceparent = traceparent;
        message.delay = delay;
        vec![message.into()]
    }

    /// The initiator's seat; its mandate goes into the call.
    fn own_seat(&self, cfp: &mut Cfp, plan: BargainPlan) -> Result<Seat, Refusal> {
        let invalid = |detail: String| Refusal::new(Code::OutOfRange, detail);
        let bargain = cfp.bargain.as_ref().ok_or_else(|| invalid("the call has no `bargain`".to_owned()))?;
        let rules = TurnRules::try_new(bargain)
            .map_err(|fault| invalid(format!("the agent cannot list the outcomes: {fault}")))?;
        if plan.preferences.utilities().len() != rules.space.len() {
            return Err(invalid("the plan has no utility for this outcome space".to_owned()));
        }
        cfp.mandate.clone_from(&plan.mandate);
        Ok(Seat::new(self.agent.clone(), 0, None, rules, plan))
    }

    /// Leaves a bargain, which ends it.
    #[must_use]
    pub fn end(&self, negotiation: &NegotiationId, reason: Option<String>) -> Vec<Action> {
        vec![Outgoing::new(negotiation.clone(), Payload::End(Reasoned { reason, round: None })).into()]
    }
}

impl AgentHandle<Bargainer> {
    /// Opens a bargain. Returns at once with the id of the negotiation; what becomes of it are events.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn bargain(&self, request: BargainRequest) -> Result<NegotiationId, CallError> {
        let negotiation = NegotiationId::form(self.agent(), &request.call.own_id)?;
        let id = negotiation.clone();
        self.command(move |bargainer, now| bargainer.open(now, &id, request)).await?;
        Ok(negotiation)
    }
}
