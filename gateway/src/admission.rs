//! Admission: the one function every way in goes through, with the same checks in the same order and the same codes.
//!
//! size → token → rate → parse and schema → `from` = `sub` → scope → recipients and consent → duplicates → log.
//! A message is accepted when, and only when, the record that carries it is stored.

mod bargain_pin;
mod duplicates;
mod english_auction;
mod invite;
mod lane_answers;
mod log;
mod opening;
mod panel_pin;
mod policy_pin;
mod spans;
mod team_pin;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bus::Bus;
use bytes::Bytes;
use schemas::control::ReceiptPreference;
use schemas::payload::Cfp;
use schemas::protocols::Protocol;
use schemas::record::{AdmittedMessage, Entry, Pinned};
use schemas::validate::{BODY_BYTES_MAX, Checked, check_message};
use schemas::{Act, AgentId, Code, MsgId, NegotiationId, Payload, Position, Refusal};
use serde::Serialize;

use crate::Transport;
use crate::audit::AuditLog;
use crate::auth::{Authenticator, Identity};
use crate::config::GatewayConfig;
use crate::metrics::{Document, GatewayMetrics, Stage};
use crate::rate_limit::{Peer, RateLimits};
use crate::registry::{PresenceSignal, Registry, RequestNotes};

use duplicates::Duplicates;
use log::AdmissionLog;
use opening::JudgedOpening;
use spans::AdmissionSpans;

/// Who sends, as far as the way in knows.
#[derive(Debug, Clone, Copy)]
pub enum Credentials<'a> {
    /// A token, or nothing.
    Token(Option<&'a str>),
    /// A bearer whose token was verified when its stream began.
    Verified(&'a Identity),
}

/// A message on its way in.
#[derive(Debug, Clone)]
pub struct Ingress<'a> {
    /// The way it came.
    pub transport: Transport,
    /// Who sends it.
    pub credentials: Credentials<'a>,
    /// Whom the address names as sender (`gw.in.<agent>`), where it names one: must be the token's subject.
    pub named_sender: Option<&'a AgentId>,
    /// The peer's network address, where there is one.
    pub peer: Option<IpAddr>,
    /// `{"envelope": …, "payload": …}`.
    pub bytes: Bytes,
}

impl Ingress<'_> {
    /// Who is charged for the verification of its token.
    fn charged(&self) -> Peer {
        match (self.peer, self.named_sender) {
            (Some(address), _) => Peer::Address(address),
            (None, Some(agent)) => Peer::OnBus(agent.clone()),
            (None, None) => Peer::Unknown,
        }
    }
}

/// The message is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// Sequence of its record.
    pub seq: u64,
    /// Its place in the record, counted from 0.
    pub index: u32,
    /// Its id.
    pub msg_id: MsgId,
    /// Its negotiation, as the exchange names it.
    pub negotiation: NegotiationId,
    /// Of a call for offers: the policy that decides it. Absent for all else, and for a repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// The way into the exchange. Clones are handles to one gateway.
#[derive(Clone)]
pub struct Admission(Arc<Parts>);

struct Parts {
    auth: Arc<Authenticator>,
    limits: Arc<RateLimits>,
    registry: Arc<Registry>,
    log: AdmissionLog,
    notes: RequestNotes,
    metrics: Arc<GatewayMetrics>,
    spans: AdmissionSpans,
    duplicates: Duplicates,
    audit: Arc<AuditLog>,
}

impl Admission {
    pub(crate) fn new(
        bus: &Bus,
        config: &GatewayConfig,
        auth: Arc<Authenticator>,
        limits: Arc<RateLimits>,
        registry: Arc<Registry>,
        notes: RequestNotes,
        metrics: Arc<GatewayMetrics>,
    ) -> Self {
        let log = AdmissionLog::new(&bus.log, config, metrics.clone());
        let spans = AdmissionSpans::new(config.tracer.clone(), &config.id, bus.log.lanes());
        let (duplicates, audit) = (Duplicates::new(), Arc::new(AuditLog::new()));
        Self(Arc::new(Parts { auth, limits, registry, log, notes, metrics, spans, duplicates, audit }))
    }

    /// Admits one message.
    ///
    /// Everything up to the log happens before the future first waits, except for a token that was not verified
    /// before: messages handed in one after another by a verified bearer reach the log in that order.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was stored, except that after [`Code::LogUnavailable`] it may have been.
    pub async fn admit(&self, ingress: Ingress<'_>) -> Result<Accepted, Refusal> {
        self.admit_known(ingress, Known::default()).await
    }

    /// The same for a message of which something is known already.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub(crate) async fn admit_known(&self, ingress: Ingress<'_>, known: Known) -> Result<Accepted, Refusal> {
        let mut context = AdmissionContext::begin(ingress.transport, ingress.bytes.len(), self.0.spans.is_on());
        context.peer = ingress.peer;
        let outcome = self.admit_along(&ingress, known, &mut context).await;
        if outcome.is_ok() {
            context.agent.iter().for_each(|agent| self.0.registry.note_presence(agent, PresenceSignal::Here));
            self.0
                .metrics
                .messages
                .ingest_duration
                .of(ingress.transport)
                .observe(context.began.elapsed().as_secs_f64());
        }
        // What is certainly not stored opens nothing.
        if outcome.as_ref().is_err_and(|refusal| refusal.code != Code::LogUnavailable) {
            self.give_back(&mut context);
        }
        self.answered(&context, outcome.as_ref().err());
        outcome
    }

    /// Verifies a token, tells whose it is, and charges that agent for one request: what every request of the control plane begins
    /// with.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`], [`Code::TokenExpired`], [`Code::RateLimited`], [`Code::Overloaded`].
    pub async fn identify(
        &self,
        token: Option<&str>,
        peer: Option<IpAddr>,
        tell: impl FnOnce(&AgentId),
    ) -> Result<Identity, Refusal> {
        let identity = self.authenticate(token, &peer.map_or(Peer::Unknown, Peer::Address)).await?;
        tell(&identity.agent);
        self.0.limits.charge_agent(&identity.agent, 0)?;
        Ok(identity)
    }

    /// Charges a verified bearer for a request that is no message.
    ///
    /// # Errors
    /// [`Code::TokenExpired`], [`Code::Unauthenticated`], [`Code::RateLimited`], [`Code::Overloaded`].
    pub(crate) fn charge(&self, identity: &Identity) -> Result<(), Refusal> {
        self.0.auth.still_valid(identity)?;
        self.0.limits.charge_agent(&identity.agent, 0)
    }

    /// Charges an agent for so many requests more than the one it made.
    ///
    /// # Errors
    /// [`Code::RateLimited`], [`Code::Overloaded`].
    pub(crate) fn charge_further(&self, agent: &AgentId, requests: NonZeroU32) -> Result<(), Refusal> {
        self.0.limits.charge_requests(agent, requests)
    }

    /// Charges an agent for what an answer has cost: its bytes, and the profiles that were looked at for it.
    pub(crate) fn charge_answer(&self, agent: &AgentId, bytes: usize, profiles: usize) {
        self.0.limits.charge_answer(agent, bytes, profiles);
    }

    /// Where refusals are written.
    pub(crate) fn audit(&self) -> &Arc<AuditLog> {
        &self.0.audit
    }

    pub(crate) fn auth(&self) -> &Arc<Authenticator> {
        &self.0.auth
    }

    /// Counts and records a refusal that came before there was a message to admit: of a frame, of a body.
    pub(crate) fn refused_before(
        &self,
        transport: Transport,
        agent: Option<&AgentId>,
        peer: Option<IpAddr>,
        refusal: &Refusal,
    ) {
        let mut context = AdmissionContext::begin(transport, 0, self.0.spans.is_on());
        (context.agent, context.peer) = (agent.cloned(), peer);
        self.answered(&context, Some(refusal));
    }

    /// Counts and records what became of a message.
    fn answered(&self, context: &AdmissionContext, refused: Option<&Refusal>) {
        let code = refused.map(|refusal| refusal.code);
        self.0.metrics.messages.answered(context.transport, context.act, code);
        let trace = self.0.spans.record(context, code);
        if let Some(refusal) = refused {
            let (agent, negotiation) = (context.agent.as_ref(), context.negotiation());
            self.0.audit.refused(context.transport, agent, context.peer, negotiation, trace, refusal);
        }
    }

    /// Messages waiting for the log.
    pub(crate) fn queued(&self) -> usize {
        self.0.log.queued()
    }

    /// What the log does not do for this gateway at present, each with its remedy.
    pub(crate) fn log_faults(&self, now: tokio::time::Instant) -> Vec<String> {
        self.0.log.faults(now)
    }

    async fn admit_along(
        &self,
        ingress: &Ingress<'_>,
        known: Known,
        context: &mut AdmissionContext,
    ) -> Result<Accepted, Refusal> {
        let metrics = &self.0.metrics;
        check_size(&ingress.bytes)?;
        context.passed(metrics, Stage::Size);

        let agent = match ingress.credentials {
            Credentials::Verified(identity) => {
                self.0.auth.still_valid(identity)?;
                identity.agent.clone()
            }
            Credentials::Token(token) => self.authenticate(token, &ingress.charged()).await?.agent,
        };
        context.agent = Some(agent.clone());
        if let Some(named) = ingress.named_sender.filter(|named| **named != agent) {
            return Err(Refusal::new(Code::Unauthorized, "the subject names another agent than the token")
                .expecting(format!("a token of {named}; this one is of {agent}")));
        }
        context.passed(metrics, Stage::Auth);

        if known.judged.is_none() {
            self.0.limits.charge_agent(&agent, ingress.bytes.len())?;
        }
        context.passed(metrics, Stage::Rate);

        context.judged = match known.judged {
            None if known.checked.is_none() => {
                let opening = self.unread_opening(&agent, &ingress.bytes);
                opening.map(|opening| self.judge_named(&agent, opening, context)).transpose()?
            }
            judged => judged,
        };
        let checked = known.checked.map_or_else(|| check_message(&ingress.bytes), |checked| Ok(*checked));
        let mut checked = metrics.control.checked(Document::Message, checked)?;
        context.act = Some(checked.act);
        let envelope = &mut checked.message.envelope;
        let (message, traceparent) = (envelope.msg_id.clone(), envelope.traceparent.take());
        context.named = Some(MessageIdentity { message, traceparent, negotiation: None });
        metrics.messages.read(checked.act, u32::try_from(ingress.bytes.len()).unwrap_or(u32::MAX));
        context.passed(metrics, Stage::Schema);

        let negotiation = check_envelope(&agent, &checked)?;
        context.belongs_to(&negotiation);
        if checked.act == Act::Cfp {
            self.judge_read(&agent, &negotiation, &checked.message.envelope.msg_id, context)?;
        }
        let pinned = policy_pin::pin(&self.0.registry, &self.0.notes, metrics, (&agent, &negotiation), &checked)?;
        context.passed(metrics, Stage::Policy);

        let policy = pinned.as_ref().filter(|_| is_call_for_offers(&checked)).map(|pinned| pinned.policy.id.clone());
        let mut accepted = self.store(agent, negotiation, checked, pinned, context).await?;
        // What a repeat would be pinned to now is not what its first sending was.
        accepted.policy = policy.filter(|_| !context.is_repeat);
        context.passed(metrics, Stage::Publish);
        Ok(accepted)
    }

    async fn authenticate(&self, token: Option<&str>, peer: &Peer) -> Result<Identity, Refusal> {
        let metrics = &self.0.metrics;
        let Some(token) = token else {
            metrics.access.decided(Some(Code::Unauthenticated));
            let expected = "Authorization: Bearer <token>; over NATS, the header Llmx-Token";
            return Err(Refusal::new(Code::Unauthenticated, "no token").expecting(expected));
        };
        let outcome = self.0.auth.identify(token, || self.0.limits.charge_peer(peer)).await?;
        metrics.access.decided(outcome.as_ref().err().map(|refusal| refusal.code));
        outcome
    }

    /// Whether an agent's registration asks for every receipt at once.
    fn asks_for_all_receipts(&self, agent: &AgentId) -> bool {
        let tables = self.0.registry.read();
        let registration = tables.agents.registration(agent);
        registration.is_some_and(|registration| registration.receipts == ReceiptPreference::All)
    }

    async fn store(
        &self,
        from: AgentId,
        negotiation: NegotiationId,
        checked: Checked,
        pinned: Option<Arc<Pinned>>,
        context: &mut AdmissionContext,
    ) -> Result<Accepted, Refusal> {
        let capabilities = policy_pin::capabilities_of(&self.0.registry, &from, &checked);
        let msg_id = checked.message.envelope.msg_id;
        // A repeat of a call is answered whatever the lane: it may be in the log.
        let taken = self.0.duplicates.take(&from, &negotiation, &msg_id, checked.digest)?;
        context.passed(&self.0.metrics, Stage::Duplicate);
        if taken.is_repeat {
            context.is_repeat = true;
            self.0.metrics.messages.repeats.of(context.transport).inc();
        }

        context.publishes();
        let (act, digest, body) = (checked.act, checked.digest, checked.body);
        let receipts_all = self.asks_for_all_receipts(&from);
        let negotiation_id = negotiation.clone();
        let admitted = AdmittedMessage {
            from,
            negotiation: negotiation_id,
            act,
            digest,
            body,
            pinned,
            receipts_all,
            capabilities,
        };
        let entry = Entry::Message(admitted);
        match self.0.log.append(&negotiation, &entry).await {
            Ok(Position { seq, index }) => Ok(Accepted { seq, index, msg_id, negotiation, policy: None }),
            Err(refusal) => {
                // What is certainly not stored must not stand in the way of another body.
                if refusal.code != Code::LogUnavailable {
                    self.0.duplicates.give_back(&taken);
                }
                Err(refusal)
            }
        }
    }
}

/// A bargain is decided by its parties, and which policy accepts for one of them is that party's own matter.
fn is_call_for_offers(checked: &Checked) -> bool {
    matches!(&checked.message.payload, Payload::Cfp(cfp) if Protocol::of_call(cfp) == Protocol::ContractNet)
}

/// What is known of a message before it is admitted.
#[derive(Default)]
pub(crate) struct Known {
    /// What it is, where its frame could be read only with it.
    pub(crate) checked: Option<Box<Checked>>,
    /// What it opens, where it is an opening act that was charged and judged ([`Admission::judge`]).
    pub(crate) judged: Option<JudgedOpening>,
}

/// What is known of a message so far.
struct AdmissionContext {
    transport: Transport,
    /// Its size in bytes; 0 for what was refused before it was whole.
    bytes: usize,
    /// The sender, once its token is verified.
    agent: Option<AgentId>,
    /// The address it came from, where there is one.
    peer: Option<IpAddr>,
    /// Its act, once it is decoded.
    act: Option<Act>,
    /// What its envelope says, once it is decoded.
    named: Option<MessageIdentity>,
    /// The opening act it is, once it was let in.
    judged: Option<JudgedOpening>,
    /// Whether this gateway took the same message before.
    is_repeat: bool,
    /// When it was handed to the log.
    publishing: Option<Instant>,
    /// When it came.
    began: Instant,
    /// The same by the machine's clock; only where spans are made.
    arrived: Option<SystemTime>,
    clock: Instant,
}

/// What an envelope says about where a message belongs.
struct MessageIdentity {
    message: MsgId,
    traceparent: Option<String>,
    /// The negotiation, once it is known to have a well-formed id.
    negotiation: Option<NegotiationId>,
}

impl AdmissionContext {
    fn begin(transport: Transport, bytes: usize, is_traced: bool) -> Self {
        let now = Instant::now();
        Self {
            transport,
            bytes,
            agent: None,
            peer: None,
            act: None,
            named: None,
            judged: None,
            is_repeat: false,
            publishing: None,
            began: now,
            arrived: is_traced.then(SystemTime::now),
            clock: now,
        }
    }

    /// The message passed a stage.
    fn passed(&mut self, metrics: &GatewayMetrics, stage: Stage) {
        let now = Instant::now();
        metrics.messages.stage_duration.of(stage).observe(now.duration_since(self.clock).as_secs_f64());
        self.clock = now;
    }

    /// The message is handed to the log now: when the stage before ended.
    fn publishes(&mut self) {
        self.publishing = Some(self.clock);
    }

    /// The message belongs to this negotiation.
    fn belongs_to(&mut self, negotiation: &NegotiationId) {
        if let Some(named) = &mut self.named {
            named.negotiation = Some(negotiation.clone());
        }
    }

    /// Sender and id of the message, once both are known.
    fn message(&self) -> Option<(&AgentId, &MsgId)> {
        Some((self.agent.as_ref()?, &self.named.as_ref()?.message))
    }

    fn negotiation(&self) -> Option<&NegotiationId> {
        self.named.as_ref()?.negotiation.as_ref()
    }
}

fn check_size(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.len() > BODY_BYTES_MAX {
        return Err(Refusal::new(Code::TooLarge, "the message is larger than this gateway reads")
            .expecting(format!("at most {BODY_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// The sender is the token's subject, and the negotiation has a well-formed id. (That the scope has time left the schema
/// has checked: its `ttl` is at least 1.)
fn check_envelope(agent: &AgentId, checked: &Checked) -> Result<NegotiationId, Refusal> {
    let envelope = &checked.message.envelope;
    if envelope.sender() != Some(agent) {
        return Err(Refusal::new(Code::Unauthorized, "the envelope names another sender than the token")
            .at("/envelope/from")
            .expecting(format!("agent://{agent}, whose token this is")));
    }
    let malformed = |expected: &str| {
        Refusal::new(Code::BadFormat, "not a negotiation id").at("/envelope/negotiation").expecting(expected)
    };
    if let Payload::Cfp(Cfp { team: Some(team), .. }) = &checked.message.payload
        && let Some(of) = &team.of
    {
        team_pin::check_sub_team(envelope)?;
        return of.task.sub_team(of.award_no).ok_or_else(|| {
            Refusal::new(Code::BadFormat, "no sub-team may stand below this task")
                .at("/payload/team/of")
                .expecting("an award of a task above the last level")
        });
    }
    if checked.act == Act::Cfp {
        let own = envelope.negotiation.as_deref().unwrap_or(envelope.msg_id.as_str());
        return NegotiationId::form(agent, own)
            .map_err(|_| malformed("your own id: 1 to 64 characters of A-Z a-z 0-9 _ -"));
    }
    let full = envelope.negotiation.as_deref().ok_or_else(|| {
        Refusal::new(Code::MissingField, "the message does not say which negotiation it belongs to")
            .at("/envelope/negotiation")
            .expecting("<initiator>~<id>, as the exchange names it")
    })?;
    NegotiationId::try_new(full).map_err(|_| malformed("<initiator>~<id>, as the exchange names it"))
}
