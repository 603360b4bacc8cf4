//! One question to a model, from first call to answer: what to ask next, after each answer or fault. Pure: time is an
//! argument, and asking is left to [`super::consultant`].
//!
//! | it is told | it does |
//! |---|---|
//! | an answer that fits | ends with the choice |
//! | an answer that does not fit | asks for a repair, with pointer and expectation, at most `repairs` times |
//! | a text without JSON that says what was asked for | ends with that, where its question reads texts |
//! | 429, 5xx, no connection, no answer in time | asks again after a wait, at most `attempts` times in all |
//! | that the form of the question is unknown | asks in the next weaker form |
//! | any other refusal of the endpoint | ends |
//! | an answer too large to be read | ends: a repair would be as large |
//!
//! Nothing is asked at or past the deadline, and no wait reaches beyond it.

use std::time::Duration;

use retry::{Backoff, draw};
use schemas::Timestamp;
use serde_json::Value;

use super::answer::{extract, said};
use super::config::ModelConfig;
use super::shape::{AnswerShape, InvalidReason, Misfit};
use super::{AnswerForm, ChatMessage, ChatRole, Completion, CompletionError, CompletionRequest};

/// Waits before a question is asked again, unless the endpoint says how long.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(10), jitter: 0.5 };
/// Of an answer that does not fit, a repair repeats so many characters.
const REPEATED_CHARS_MAX: usize = 4096;

const IN_ENVELOPE: &str =
    r#"Answer with one JSON object {"answer": {…}}: inside of it these members, in the order in which they are named."#;
const BY_SCHEMA: &str = "Answer with one JSON object that fits this JSON Schema, and with nothing else:";

/// What is asked, and which answers are legal now.
pub trait Question: Send + 'static {
    /// What an answer comes to.
    type Choice: Send + 'static;

    /// The conversation: the owner's words first.
    fn messages(&self) -> Vec<ChatMessage>;

    /// The form of an answer.
    fn shape(&self) -> AnswerShape;

    /// What an answer that has the form comes to: of an act its object, numbers as integers.
    ///
    /// # Errors
    /// Where it is not legal now, or beyond the owner's limits. `expected` goes to the model: it names no limit.
    fn judge(&self, answer: &Value) -> Result<Self::Choice, Misfit>;

    /// What an answer comes to that no repair has made fit: it is JSON, but has not the form, or is not legal now. None: it is
    /// no answer.
    fn salvage(&self, _answer: &Value) -> Option<Self::Choice> {
        None
    }

    /// What a text comes to that is no JSON, and says what was asked for all the same. `is_last`: no repair is left, so that a
    /// part of it is better than nothing.
    fn read(&self, _text: &str, _is_last: bool) -> Option<Self::Choice> {
        None
    }
}

/// Why a consultation ends without a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantNames)]
pub enum GaveUp {
    /// No answer fits, after every repair.
    #[strum(serialize = "model_output")]
    Output,
    /// The deadline is too near for another call.
    #[strum(serialize = "model_deadline")]
    Deadline,
    /// A limit of calls, tokens or cost is reached, or too many questions wait.
    #[strum(serialize = "model_budget")]
    Budget,
    /// The endpoint answers nothing, or refuses.
    #[strum(serialize = "model_unavailable")]
    Unavailable,
}

impl GaveUp {
    /// As it stands in a refusal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What a consultation wants next.
#[derive(Debug, PartialEq)]
pub enum ConsultationStep {
    /// That this is asked, and [`Consultation::handle_completion`] told the answer.
    Ask(Box<CompletionRequest>),
    /// Time, until this.
    Wait(Timestamp),
    /// Nothing: it has ended.
    End,
}

/// A question on its way.
#[derive(Debug)]
pub struct Consultation<Q: Question> {
    question: Q,
    shape: AnswerShape,
    first: Vec<ChatMessage>,
    repair: Vec<ChatMessage>,
    form: AnswerForm,
    answer_tokens: u32,
    timeout: Duration,
    deadline: Timestamp,
    seed: u64,
    calls: u32,
    repairs: u32,
    is_repair_due: bool,
    failures_left: u32,
    repairs_left: u32,
    not_before: Timestamp,
    misfit: Option<Misfit>,
    outcome: Option<Result<Q::Choice, GaveUp>>,
}

impl<Q: Question> Consultation<Q> {
    /// A question that is to be answered before `deadline`, first asked in `form`. `seed` varies the waits.
    #[must_use]
    pub fn new(question: Q, config: &ModelConfig, form: AnswerForm, deadline: Timestamp, seed: u64) -> Self {
        let shape = question.shape();
        Self {
            shape,
            first: question.messages(),
            question,
            repair: Vec::new(),
            form,
            answer_tokens: config.answer_tokens,
            timeout: Duration::from_millis(config.timeout_ms),
            deadline,
            seed,
            calls: 0,
            repairs: 0,
            is_repair_due: false,
            failures_left: config.attempts.saturating_sub(1),
            repairs_left: config.repairs,
            not_before: Timestamp(0),
            misfit: None,
            outcome: None,
        }
    }

    /// What it wants now.
    pub fn poll(&mut self, now: Timestamp) -> ConsultationStep {
        if self.outcome.is_none() && now.max(self.not_before) >= self.deadline {
            self.give_up(GaveUp::Deadline);
        }
        if self.outcome.is_some() {
            return ConsultationStep::End;
        }
        if now < self.not_before {
            return ConsultationStep::Wait(self.not_before);
        }
        let request = CompletionRequest {
            messages: self.messages(),
            form: self.form,
            schema: self.shape.to_schema(self.form),
            answer_tokens: self.answer_tokens,
            retry: self.calls,
            timeout: self.timeout.min(Duration::from_micros(self.deadline.since_us(now))),
        };
        self.calls += 1;
        self.repairs += u32::from(std::mem::take(&mut self.is_repair_due));
        ConsultationStep::Ask(Box::new(request))
    }

    /// Takes what came back. Returns why an answer cannot be used, where one came.
    pub fn handle_completion(
        &mut self,
        now: Timestamp,
        completion: Result<Completion, CompletionError>,
    ) -> Option<InvalidReason> {
        match completion {
            Ok(completion) => self.handle_answer(&completion),
            Err(CompletionError::TooLarge) => {
                self.give_up(GaveUp::Output);
                Some(InvalidReason::TooLarge)
            }
            Err(CompletionError::FormUnknown) => {
                match self.form.weaker() {
                    Some(weaker) => self.form = weaker,
                    None => self.give_up(GaveUp::Unavailable),
                }
                None
            }
            Err(CompletionError::RateLimited { retry_after_ms } | CompletionError::Failed { retry_after_ms, .. }) => {
                self.retry(now, retry_after_ms.unwrap_or(0))
            }
            Err(
                CompletionError::NotConnected(_)
                | CompletionError::Unreachable(_)
                | CompletionError::TimedOut
                | CompletionError::Unreadable,
            ) => self.retry(now, 0),
            Err(CompletionError::Refused { .. }) => {
                self.give_up(GaveUp::Unavailable);
                None
            }
        }
    }

    /// Ends it from outside.
    pub fn give_up(&mut self, reason: GaveUp) {
        self.outcome.get_or_insert(Err(reason));
    }

    /// The form its last question had.
    #[must_use]
    pub fn form(&self) -> AnswerForm {
        self.form
    }

    /// Calls made so far.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Runs it to its end on a virtual clock that begins at `now`. `ask` answers a request, and says how many microseconds
    /// that took; or nothing, where a limit forbids the call.
    ///
    /// # Errors
    /// [`GaveUp`] says why there is no choice.
    pub fn run(
        mut self,
        mut now: Timestamp,
        mut ask: impl FnMut(Timestamp, &CompletionRequest) -> Option<(Result<Completion, CompletionError>, u64)>,
    ) -> Result<Q::Choice, GaveUp> {
        loop {
            match self.poll(now) {
                ConsultationStep::End => return self.into_outcome().unwrap_or(Err(GaveUp::Deadline)),
                ConsultationStep::Wait(until) => now = until,
                ConsultationStep::Ask(request) => {
                    let Some((completion, took_us)) = ask(now, &request) else {
                        self.give_up(GaveUp::Budget);
                        continue;
                    };
                    now = Timestamp(now.0.saturating_add(took_us));
                    self.handle_completion(now, completion);
                }
            }
        }
    }

    /// Answers sent back to be repaired so far.
    #[must_use]
    pub fn repairs(&self) -> u32 {
        self.repairs
    }

    /// Where the last answer that did not fit departs, and what would fit.
    #[must_use]
    pub fn misfit(&self) -> Option<&Misfit> {
        self.misfit.as_ref()
    }

    /// How it ended, once it has.
    #[must_use]
    pub fn into_outcome(self) -> Option<Result<Q::Choice, GaveUp>> {
        self.outcome
    }

    fn handle_answer(&mut self, completion: &Completion) -> Option<InvalidReason> {
        let judged = extract(completion).and_then(|(said, text)| {
            let judged = self.shape.read(&said, text).and_then(|answer| self.question.judge(&answer));
            judged.map_err(|misfit| self.shape.placed(self.form, misfit))
        });
        match judged {
            Ok(choice) => {
                self.outcome.get_or_insert(Ok(choice));
                None
            }
            Err(misfit) => {
                let left = self.repairs_left.checked_sub(1);
                if let Some(choice) = self.made_out(completion, misfit.reason, left.is_none()) {
                    self.outcome.get_or_insert(Ok(choice));
                } else if let Some(left) = left {
                    self.repairs_left = left;
                    self.repair = repair(completion, &misfit);
                    self.is_repair_due = true;
                } else {
                    self.give_up(GaveUp::Output);
                }
                Some(self.misfit.insert(misfit).reason)
            }
        }
    }

    /// What an answer that does not fit comes to all the same.
    fn made_out(&self, completion: &Completion, reason: InvalidReason, is_last: bool) -> Option<Q::Choice> {
        match extract(completion) {
            Ok((said, _)) if is_last => self.question.salvage(self.shape.inside(&said).unwrap_or(&said)),
            Err(_) if reason == InvalidReason::NotJson => self.question.read(said(completion), is_last),
            Ok(_) | Err(_) => None,
        }
    }

    fn retry(&mut self, now: Timestamp, wait_ms: u64) -> Option<InvalidReason> {
        match self.failures_left.checked_sub(1) {
            Some(left) => {
                self.failures_left = left;
                let delay = BACKOFF.delay(self.calls, draw(self.seed ^ u64::from(self.calls)));
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                self.not_before = now.plus_ms(delay_ms.max(wait_ms));
            }
            None => self.give_up(GaveUp::Unavailable),
        }
        None
    }

    /// The first question, and behind it the last answer that did not fit with what is wrong with it.
    fn messages(&self) -> Vec<ChatMessage> {
        let mut messages = self.first.clone();
        let rule = match (self.form, &self.shape) {
            (AnswerForm::Alternatives, AnswerShape::Acts(_)) => IN_ENVELOPE.to_owned(),
            // Endpoints that are given the schema need not read it twice.
            (AnswerForm::Alternatives | AnswerForm::JsonSchema, _) => String::new(),
            (AnswerForm::JsonObject | AnswerForm::Plain, shape) => {
                format!("{BY_SCHEMA}\n{}", shape.to_schema(self.form))
            }
        };
        if let Some(first) = messages.first_mut().filter(|_| !rule.is_empty()) {
            first.content = format!("{}\n\n{rule}", first.content);
        }
        messages.extend(self.repair.iter().cloned());
        messages
    }
}

fn repair(completion: &Completion, misfit: &Misfit) -> Vec<ChatMessage> {
    let said: String = completion.content.chars().take(REPEATED_CHARS_MAX).collect();
    let place = if misfit.pointer.is_empty() { "as a whole" } else { &misfit.pointer };
    let fault = format!(
        "This answer does not fit.\nAt: {place}\nExpected: {}\nAnswer again with the whole JSON object and nothing else.",
        misfit.expected
    );
    vec![ChatMessage { role: ChatRole::Assistant, content: said }, ChatMessage { role: ChatRole::User, content: fault }]
}

#[cfg(test)]
mod tests;
