//! Which opening acts are let in, judged before they are read whole while others are refused.

use bytes::Bytes;
use schemas::admission::LaneQueue;
use schemas::{Act, AgentId, Code, MsgId, NegotiationId, Refusal};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Admission, AdmissionContext, MessageIdentity, check_size};
use crate::Transport;
use crate::auth::Identity;
use crate::metrics::ShedReason;
use crate::openings::Declined;

/// An opening act that was let in.
pub(crate) struct JudgedOpening {
    negotiation: NegotiationId,
    /// Whether it has taken a place: a repeat takes none.
    is_taken: bool,
}

/// An opening act, as far as it takes to refuse it.
pub(super) struct UnreadOpening {
    msg_id: MsgId,
    negotiation: NegotiationId,
}

impl Admission {
    /// Judges a message of a verified bearer before anything of it is prepared, where opening acts are being refused: what
    /// is refused then costs little. Tells what it opens, if it was judged.
    ///
    /// # Errors
    /// As [`Self::admit`], of an opening act; counted and recorded.
    pub(crate) fn judge(
        &self,
        transport: Transport,
        identity: &Identity,
        bytes: &Bytes,
    ) -> Result<Option<JudgedOpening>, Refusal> {
        let mut context = AdmissionContext::begin(transport, bytes.len(), self.0.spans.is_on());
        let agent = &identity.agent;
        let judged = check_size(bytes).and_then(|()| {
            let Some(opening) = self.unread_opening(agent, bytes) else { return Ok(None) };
            self.0.auth.still_valid(identity)?;
            self.0.limits.charge_agent(agent, bytes.len())?;
            self.judge_named(agent, opening, &mut context).map(Some)
        });
        judged.inspect_err(|refusal| {
            context.agent = Some(agent.clone());
            self.answered(&context, Some(refusal));
        })
    }

    /// The opening act in the bytes of a message, while openings are refused.
    pub(super) fn unread_opening(&self, agent: &AgentId, bytes: &[u8]) -> Option<UnreadOpening> {
        let is_refusing = self.0.registry.openings().is_refusing(tokio::time::Instant::now());
        is_refusing.then(|| UnreadOpening::of(agent, bytes)).flatten()
    }

    /// Judges it.
    ///
    /// # Errors
    /// [`Code::Overloaded`]; the context then names what was refused.
    pub(super) fn judge_named(
        &self,
        agent: &AgentId,
        opening: UnreadOpening,
        context: &mut AdmissionContext,
    ) -> Result<JudgedOpening, Refusal> {
        let UnreadOpening { msg_id: message, negotiation } = opening;
        self.judge_opening(agent, &negotiation, &message).inspect_err(|_| {
            context.act = Some(Act::Cfp);
            context.named =
                Some(MessageIdentity { message, traceparent: None, negotiation: Some(negotiation.clone()) });
        })
    }

    /// Judges an opening act that was read, unless it was judged for the same negotiation.
    ///
    /// # Errors
    /// [`Code::Overloaded`].
    pub(super) fn judge_read(
        &self,
        agent: &AgentId,
        negotiation: &NegotiationId,
        msg_id: &MsgId,
        context: &mut AdmissionContext,
    ) -> Result<(), Refusal> {
        if context.judged.as_ref().is_none_or(|judged| judged.negotiation != *negotiation) {
            self.give_back(context);
            context.judged = Some(self.judge_opening(agent, negotiation, msg_id)?);
        }
        Ok(())
    }

    /// Gives back the place that an opening act has taken, if it has.
    pub(super) fn give_back(&self, context: &mut AdmissionContext) {
        let taken = context.judged.take().filter(|judged| judged.is_taken);
        if let (Some(JudgedOpening { negotiation, .. }), Some(agent)) = (taken, &context.agent) {
            let (openings, lane) = (self.0.registry.openings(), self.0.log.lane(&negotiation));
            openings.give_back(agent, lane, tokio::time::Instant::now());
        }
    }

    /// Refuses what would open a negotiation that the exchange could not bring to its end. A repeat of what was taken in is
    /// answered all the same: it may be in the log.
    fn judge_opening(
        &self,
        agent: &AgentId,
        negotiation: &NegotiationId,
        msg_id: &MsgId,
    ) -> Result<JudgedOpening, Refusal> {
        let judged = |is_taken| JudgedOpening { negotiation: negotiation.clone(), is_taken };
        if self.0.duplicates.holds(agent, negotiation, msg_id) {
            return Ok(judged(false));
        }
        let (openings, lane) = (self.0.registry.openings(), self.0.log.lane(negotiation));
        let Err(declined) = openings.take(agent, lane, tokio::time::Instant::now()) else { return Ok(judged(true)) };
        // A log that takes nothing takes no claim of the lane either: the cause is told, not that no owner is heard.
        let log_refusal = declined.is_silent.then(|| self.0.log.refusal(tokio::time::Instant::now())).flatten();
        if let Some(refusal) = log_refusal {
            self.0.metrics.messages.shed.of(ShedReason::Store).inc();
            return Err(refusal);
        }
        self.0.metrics.messages.shed.of(ShedReason::Lane).inc();
        let detail = match declined {
            Declined { is_silent: true, .. } => "no engine is heard of that would decide; nothing is taken in for now",
            Declined { queue: Some(LaneQueue::Records), .. } => "the exchange has more to read than it keeps up with",
            Declined { queue: Some(LaneQueue::Register), .. } => {
                "the exchange has more to register than it keeps up with"
            }
            Declined { queue: None, .. } => "the exchange is asked for more than it has shown to keep up with",
        };
        let retry_after_ms = u64::try_from(declined.retry_after.as_millis()).unwrap_or(u64::MAX);
        Err(Refusal::new(Code::Overloaded, detail).retry_after_ms(retry_after_ms))
    }
}

impl UnreadOpening {
    /// Looks for it in the bytes of a message; nothing where they are no call, or one whose negotiation is not its own to name.
    fn of(agent: &AgentId, bytes: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct UnreadMessage<'a> {
            #[serde(borrow)]
            envelope: UnreadEnvelope<'a>,
            #[serde(borrow)]
            payload: UnreadPayload<'a>,
        }
        #[derive(Deserialize)]
        struct UnreadEnvelope<'a> {
            msg_id: &'a str,
            negotiation: Option<&'a str>,
        }
        #[derive(Deserialize)]
        struct UnreadPayload<'a> {
            act: &'a str,
            #[serde(borrow)]
            team: Option<&'a RawValue>,
        }
        let UnreadMessage { envelope, payload } = serde_json::from_slice(bytes).ok()?;
        if payload.act != Act::Cfp.as_str() || payload.team.is_some_and(|team| team.get().contains("\"of\"")) {
            return None;
        }
        let negotiation = NegotiationId::form(agent, envelope.negotiation.unwrap_or(envelope.msg_id)).ok()?;
        Some(Self { msg_id: MsgId::try_new(envelope.msg_id).ok()?, negotiation })
    }
}
