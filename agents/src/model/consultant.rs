//! Runs consultations: one model, shared by the agents of a process, with its accounts, metrics and spans.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use schemas::{AgentId, Digest, NegotiationId, Timestamp};
use strum::VariantArray;
use telemetry::{Kind, Span, SpanId, TraceContext, Tracer};
use tokio::time::Instant;

use super::accounts::{ModelAccounts, ModelTotals, PaidCall, Reservation, TokenUsage};
use super::config::ModelConfig;
use super::consultation::{Consultation, ConsultationStep, GaveUp, Question};
use super::kept::KeptPrompts;
#[cfg(feature = "metrics")]
use super::metrics::ModelMetrics;
use super::shape::{InvalidReason, Misfit};
use super::times::{AnswerTimes, ModelTimes, PendingAnswer, milliseconds, watch};
use super::{AnswerForm, Completion, CompletionError, CompletionRequest, Model};

/// Who asks, about what, and until when an answer is of use.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The agent.
    pub agent: AgentId,
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// Where in a trace the question arises.
    pub context: TraceContext,
    /// Log time at which it arises.
    pub asked_at: Timestamp,
    /// Log time at which the last answer is of use.
    pub deadline: Timestamp,
}

impl Subject {
    /// A question that arises in a negotiation, in the trace that `traceparent` carries on, else in the negotiation's own.
    #[must_use]
    pub fn new(
        agent: &AgentId,
        negotiation: &NegotiationId,
        traceparent: Option<&str>,
        (asked_at, deadline): (Timestamp, Timestamp),
    ) -> Self {
        let context = TraceContext::of(traceparent, negotiation);
        Self { agent: agent.clone(), negotiation: negotiation.clone(), context, asked_at, deadline }
    }
}

/// What one consultation took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsultationCost {
    /// Calls made.
    pub calls: u64,
    /// Their tokens, estimated where the endpoint did not count them.
    pub usage: TokenUsage,
}

impl ConsultationCost {
    fn add(&mut self, call: PaidCall) {
        self.calls += 1;
        self.usage.input = self.usage.input.saturating_add(call.usage.input);
        self.usage.output = self.usage.output.saturating_add(call.usage.output);
    }
}

/// A model with all that its use needs. Cheap to share as an `Arc`.
pub struct Consultant {
    model: Box<dyn Model>,
    config: ModelConfig,
    accounts: Mutex<ModelAccounts>,
    standing: Mutex<EndpointStanding>,
    times: Arc<Mutex<AnswerTimes>>,
    /// The strongest form the endpoint has not refused, as its place among them.
    form: AtomicU8,
    tracer: Tracer,
    kept: Option<Arc<KeptPrompts>>,
    #[cfg(feature = "metrics")]
    metrics: Option<ModelMetrics>,
}

/// What is known of the endpoint since it answered last.
#[derive(Default)]
struct EndpointStanding {
    /// Why answers did not fit, as the log has it.
    told: BTreeSet<InvalidReason>,
    /// Why it did not answer the latest call.
    fault: Option<String>,
    /// Whether the log says so.
    is_warned: bool,
}

impl EndpointStanding {
    /// Takes how a call ended. Returns what to warn of, where it is not known yet.
    fn handle_call(&mut self, url: &str, error: Option<&CompletionError>) -> Option<String> {
        self.fault = error.map(|error| {
            if let CompletionError::NotConnected(cause) = error {
                return format!("cannot connect to {url} ({cause})");
            }
            format!("{url}: {error}")
        });
        let is_lasting = matches!(
            error,
            Some(CompletionError::NotConnected(_) | CompletionError::Refused { .. } | CompletionError::Unreadable)
        );
        let is_new = is_lasting && !self.is_warned;
        self.is_warned = error.is_some() && (self.is_warned || is_lasting);
        self.fault.clone().filter(|_| is_new)
    }

    /// Takes why an answer does not fit. False: the log says so already.
    fn handle_misfit(&mut self, reason: InvalidReason) -> bool {
        self.told.insert(reason)
    }
}

impl Consultant {
    /// A consultant that asks this model.
    #[must_use]
    pub fn new(model: impl Model + 'static, config: ModelConfig) -> Self {
        Self {
            model: Box::new(model),
            accounts: Mutex::new(ModelAccounts::new(&config)),
            standing: Mutex::default(),
            times: Arc::default(),
            config,
            form: AtomicU8::new(0),
            tracer: Tracer::off(),
            kept: None,
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// The same, whose spans go to `tracer`.
    #[must_use]
    pub fn traced(mut self, tracer: Tracer) -> Self {
        self.tracer = tracer;
        self
    }

    /// The same, whose calls are kept.
    #[must_use]
    pub fn keeping(mut self, kept: Arc<KeptPrompts>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// The same, counted.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn counted(mut self, metrics: ModelMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Everything spent so far.
    #[must_use]
    pub fn totals(&self) -> ModelTotals {
        self.with_accounts(|accounts| accounts.totals())
    }

    /// What the model is called: its name, or its address where that is left to be the stub's, and it is none.
    #[must_use]
    pub fn label(&self) -> &str {
        let (ModelTotals { answers, stub_answers, .. }, usual) = (self.totals(), ModelConfig::default());
        let is_stub = if answers == 0 { self.config.url == usual.url } else { stub_answers == answers };
        if self.config.name == usual.name && !is_stub { &self.config.url } else { &self.config.name }
    }

    /// How long the model takes.
    #[must_use]
    pub fn times(&self) -> ModelTimes {
        self.times.lock().told()
    }

    /// Why there is no choice, in words for the agent's owner: the code, and what is at fault.
    #[must_use]
    pub fn explain(&self, reason: GaveUp) -> String {
        let fault = self.standing.lock().fault.clone();
        let why = match (reason, fault) {
            (GaveUp::Unavailable | GaveUp::Deadline, Some(fault)) => fault,
            (GaveUp::Unavailable, None) => format!("{} does not answer", self.config.url),
            (GaveUp::Deadline, None) => format!("no answer before the deadline; {}", self.times()),
            (GaveUp::Budget, _) => "a limit is reached; raise `calls_per_negotiation`, `tokens_per_negotiation` or \
                                    `budget` in the model's file"
                .to_owned(),
            (GaveUp::Output, _) => "no answer fits; --keep-prompts DIR keeps what was said".to_owned(),
        };
        format!("{}: {why}", reason.as_str())
    }

    /// Notes how a call ended. What is wrong with an endpoint for longer is a warning, once until it answers again.
    fn note_standing(&self, error: Option<&CompletionError>) {
        let warning = self.standing.lock().handle_call(&self.config.url, error);
        if let Some(fault) = warning {
            tracing::warn!(
                "the model gives no answer: {fault}. Its agents do without it until it answers; \
                 start it, or correct `url` in the model's file"
            );
        }
    }

    /// Notes why an answer cannot be used: a warning, once for each reason.
    fn note_misfit(&self, subject: &Subject, reason: InvalidReason, misfit: Option<&Misfit>) {
        let is_new = self.standing.lock().handle_misfit(reason);
        let (agent, negotiation, reason) = (&subject.agent, &subject.negotiation, <&str>::from(reason));
        let (pointer, expected) = misfit.map(|misfit| (misfit.pointer.as_str(), misfit.expected.as_str())).unzip();
        if is_new {
            tracing::warn!(
                %agent, %negotiation, reason, pointer, expected,
                "the model's answer does not fit; further ones for this reason are counted in agent_invalid_outputs_total"
            );
        } else {
            tracing::debug!(%agent, %negotiation, reason, pointer, expected, "the model's answer does not fit");
        }
    }

    /// Asks a question until it is answered or given up.
    ///
    /// # Errors
    /// [`GaveUp`] says why there is no choice.
    pub async fn consult<Q: Question>(&self, subject: &Subject, question: Q) -> Result<Q::Choice, GaveUp> {
        self.consult_counted(subject, question).await.0
    }

    /// As [`Self::consult`], and says what that took, whether there is a choice or not.
    pub async fn consult_counted<Q: Question>(
        &self,
        subject: &Subject,
        question: Q,
    ) -> (Result<Q::Choice, GaveUp>, ConsultationCost) {
        let began = Instant::now();
        let elapsed_us = || u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let now = || Timestamp(subject.asked_at.0.saturating_add(elapsed_us()));
        let seed = retry::hash(subject.negotiation.as_str(), retry::hash(subject.agent.as_str(), 0));
        let first_form = usize::from(self.form.load(Ordering::Relaxed));
        let first_form = AnswerForm::VARIANTS.get(first_form).copied().unwrap_or(AnswerForm::Plain);
        let mut consultation = Consultation::new(question, &self.config, first_form, subject.deadline, seed);
        let mut repairs = 0;
        let mut cost = ConsultationCost::default();
        if !self.times.lock().may_ask(Duration::from_micros(subject.deadline.since_us(subject.asked_at))) {
            consultation.give_up(GaveUp::Deadline);
        }
        loop {
            match consultation.poll(now()) {
                ConsultationStep::End => break,
                ConsultationStep::Wait(until) => {
                    tokio::time::sleep(Duration::from_micros(until.since_us(now()))).await;
                }
                ConsultationStep::Ask(request) => {
                    let Some((answer, call)) = self.ask(subject, now(), *request).await else {
                        consultation.give_up(GaveUp::Budget);
                        continue;
                    };
                    cost.add(call);
                    if consultation.repairs() > repairs {
                        repairs = consultation.repairs();
                        self.with_accounts(ModelAccounts::note_repair);
                    }
                    let is_answer = answer.is_ok();
                    let unusable = consultation.handle_completion(now(), answer);
                    if let Some(reason) = unusable {
                        self.note_misfit(subject, reason, consultation.misfit());
                        #[cfg(feature = "metrics")]
                        self.metrics.iter().for_each(|metrics| metrics.unusable(reason));
                    }
                    if is_answer {
                        // Later questions begin with the form that works.
                        self.form.fetch_max(consultation.form() as u8, Ordering::Relaxed);
                    }
                }
            }
        }
        let outcome = consultation.into_outcome().unwrap_or(Err(GaveUp::Deadline));
        #[cfg(feature = "metrics")]
        self.metrics.iter().for_each(|metrics| metrics.ended(outcome.as_ref().map(|_| ()).map_err(|reason| *reason)));
        (outcome, cost)
    }

    /// One call, if the accounts have room for it.
    async fn ask(
        &self,
        subject: &Subject,
        now: Timestamp,
        request: CompletionRequest,
    ) -> Option<(Result<Completion, CompletionError>, PaidCall)> {
        let Subject { agent, negotiation, .. } = subject;
        let input_bytes = request.messages.iter().map(|message| message.content.len()).sum();
        let sent = TokenUsage::estimated(input_bytes, 0);
        let most = TokenUsage { output: request.answer_tokens.into(), ..sent };
        let room = self.with_accounts(|accounts| accounts.reserve(now, agent, negotiation, most))?;
        let digest = self.tracer.is_on().then(|| Digest::of(&request.messages).ok()).flatten();
        let asked = (request.retry, request.form, digest);
        let (began, start) = (Instant::now(), SystemTime::now());
        let mut open = CallUnderWay { consultant: self, subject, room: Some(room), sent, asked, began, start };
        let timeout = request.timeout;
        let messages = self.kept.is_some().then(|| request.messages.clone());
        let retry = request.retry;
        let mut answering = self.model.complete(request);
        let answer = match tokio::time::timeout(timeout, &mut answering).await {
            Ok(answer) => {
                match answer {
                    Ok(_) => self.times.lock().note(began.elapsed()),
                    Err(CompletionError::TimedOut) => self.times.lock().note_none(timeout),
                    Err(_) => {}
                }
                answer
            }
            Err(_) => {
                // What is waited for all the same may come whole, and is to be paid.
                if self.watch(subject, answering, timeout) {
                    open.sent = most;
                }
                Err(CompletionError::TimedOut)
            }
        };
        if let (Some(kept), Some(messages)) = (&self.kept, &messages) {
            kept.keep(subject, (retry, messages), &answer);
        }
        let call = open.end(&answer)?;
        // That a form is unknown is an answer too.
        self.note_standing(answer.as_ref().err().filter(|error| **error != CompletionError::FormUnknown));
        if let Err(error) = &answer {
            tracing::debug!(%agent, %negotiation, retry, %error, "the model gives no answer");
        }
        Some((answer, call))
    }

    /// Tells of an answer that nobody waits for any more by how much it is too late. False: it is not waited for.
    fn watch(&self, subject: &Subject, answering: PendingAnswer, waited: Duration) -> bool {
        let Subject { agent, negotiation, .. } = subject.clone();
        #[cfg(feature = "metrics")]
        let metrics = self.metrics.clone();
        let tell = move |by: Duration, is_first: bool| {
            #[cfg(feature = "metrics")]
            metrics.iter().for_each(|metrics| metrics.late(by));
            let late_ms = milliseconds(by);
            if is_first {
                tracing::warn!(
                    %agent, %negotiation, late_ms,
                    "the model's answer came too late; give it more time (policy `patient`), or fewer questions at once"
                );
            } else {
                tracing::debug!(%agent, %negotiation, late_ms, "the model's answer came too late");
            }
        };
        watch(&self.times, answering, (waited, Duration::from_millis(self.config.timeout_ms)), tell)
    }

    fn with_accounts<T>(&self, does: impl FnOnce(&mut ModelAccounts) -> T) -> T {
        does(&mut self.accounts.lock())
    }

    /// The span of a call: `chat <model>`, in the conversation that is the negotiation. Prompts are in it by digest.
    fn record(
        &self,
        subject: &Subject,
        (retry, form, digest): (u32, AnswerForm, Option<Digest>),
        (start, took): (SystemTime, Duration),
        call: &PaidCall,
        error: Option<&CompletionError>,
    ) {
        if !self.tracer.is_on() {
            return;
        }
        let Subject { agent, negotiation, context, asked_at, .. } = subject;
        let make = || {
            let id = SpanId::asked(agent, negotiation, &format!("{}-{retry}", asked_at.0));
            let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
            Span::new(format!("chat {}", self.config.name), Kind::Client, *context, id, start)
                .with("gen_ai.operation.name", "chat")
                .with("gen_ai.request.model", self.config.name.clone())
                .with("gen_ai.request.max_tokens", self.config.answer_tokens)
                .with("gen_ai.conversation.id", negotiation.to_string())
                .with("gen_ai.usage.input_tokens", count(call.usage.input))
                .with("gen_ai.usage.output_tokens", count(call.usage.output))
                .with("llmx.agent", agent.to_string())
                .with("llmx.model.retry", retry)
                .with("llmx.model.form", <&str>::from(form))
                .with("llmx.model.cost_micro_units", count(call.cost))
                .with("llmx.model.estimated", i64::from(call.is_estimated))
                .with_some("llmx.model.prompt", digest.map(|digest| digest.to_string()))
                .failed(error.map(<&str>::from))
                .lasting(took)
        };
        self.tracer.record(context.trace, error.is_some(), make);
    }
}

/// A call under way. Dropped before its answer it is paid like one that is not answered in time.
struct CallUnderWay<'c> {
    consultant: &'c Consultant,
    subject: &'c Subject,
    /// Until it is paid.
    room: Option<Reservation>,
    sent: TokenUsage,
    asked: (u32, AnswerForm, Option<Digest>),
    began: Instant,
    start: SystemTime,
}

impl CallUnderWay<'_> {
    /// Pays and counts the call, once.
    fn end(&mut self, answer: &Result<Completion, CompletionError>) -> Option<PaidCall> {
        let Self { consultant, subject, sent, asked, .. } = *self;
        let (room, took) = (self.room.take()?, self.began.elapsed());
        let (counted, estimate) = tokens(answer, sent);
        let call = consultant.with_accounts(|accounts| {
            if let Ok(Completion { is_stub, .. }) = answer {
                accounts.note_answer(*is_stub);
            }
            accounts.settle(room, counted, estimate)
        });
        #[cfg(feature = "metrics")]
        consultant.metrics.iter().for_each(|metrics| metrics.called(took, answer.as_ref().err(), &call));
        consultant.record(subject, asked, (self.start, took), &call, answer.as_ref().err());
        Some(call)
    }
}

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        self.end(&Err(CompletionError::TimedOut));
    }
}

/// Tokens as counted, and an estimate where nobody counted: of a call that was cut short, what was sent; of one that was
/// turned away, nothing.
fn tokens(answer: &Result<Completion, CompletionError>, sent: TokenUsage) -> (Option<TokenUsage>, TokenUsage) {
    match answer {
        Ok(completion) => {
            let output = TokenUsage::estimated(0, completion.content.len()).output;
            (completion.usage, TokenUsage { output, ..sent })
        }
        Err(
            CompletionError::TimedOut
            | CompletionError::Unreachable(_)
            | CompletionError::TooLarge
            | CompletionError::Unreadable,
        ) => (None, sent),
        Err(
            CompletionError::RateLimited { .. }
            | CompletionError::Failed { .. }
            | CompletionError::NotConnected(_)
            | CompletionError::FormUnknown
            | CompletionError::Refused { .. },
        ) => (Some(TokenUsage::default()), sent),
    }
}

#[cfg(test)]
mod tests;
