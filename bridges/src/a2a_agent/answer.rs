//! What an A2A agent answers → what is said. Pure.

use ::a2a::{JsonRpcResponse, Message, Part, PartContent, Task, TaskState};
use schemas::delivery::Notification;
use schemas::payload::{Failure, FailurePhase, Inform, InformKind, Reasoned, TEXT_LEN_MAX};
use schemas::validate::{check_message, parse_within};
use schemas::{Payload, Refusal};
use serde_json::{Value, json};

use super::A2aQuestion;
use crate::memory::todo::tool_of;

/// Largest answer that is read, in bytes.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Longest id of a task that is kept, in bytes.
const ID_BYTES_MAX: usize = 256;

/// What an agent is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum A2aStep {
    /// An act: to a call an offer, to an award a confirmation.
    Act,
    /// To carry the award out.
    Perform,
    /// To stop.
    Stop,
    /// Nothing: it is told the end.
    Close,
}

impl A2aStep {
    /// Whether its task is of no use any more.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Stop | Self::Close)
    }

    /// What is said where the agent does not do it, for a reason in a word. Nothing where others go on without it.
    pub fn decline(self, told: &Notification, code: impl ToString) -> Option<Payload> {
        match (self, told) {
            (Self::Act, Notification::Cfp(_) | Notification::Accept(_)) => Some(Payload::Refuse(reason(code))),
            (Self::Act, Notification::Turn(_)) => Some(Payload::End(reason(code))),
            (Self::Perform, _) => Some(failure(FailurePhase::Perform, code)),
            (Self::Stop, _) => Some(failure(FailurePhase::CannotCancel, code)),
            (Self::Act | Self::Close, _) => None,
        }
    }
}

/// Why there is no answer. Its text is the code that the exchange is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum A2aFault {
    /// No connection; an error of JSON-RPC; or a status, type, size or form that is not read.
    #[error("unavailable")]
    Unavailable,
    /// It did not come in time.
    #[error("timeout")]
    Timeout,
}

/// A task that takes further messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTask {
    /// Its id, as the agent named it.
    pub id: String,
    /// Artifacts it has: the next answer is what comes behind them.
    pub artifacts: usize,
}

/// What an agent has said: the parts of artifacts that are new, or of its message where none is.
pub struct A2aReply {
    /// Its task; none where that is over, or the answer a message alone.
    pub task: Option<OpenTask>,
    state: TaskState,
    parts: Vec<Part>,
}

impl A2aReply {
    /// Reads the answer to SendMessage, GetTask and CancelTask; so many artifacts of the task are known.
    ///
    /// # Errors
    /// [`A2aFault::Unavailable`] where it holds neither a task nor a message.
    pub fn read(body: &[u8], known: usize) -> Result<Self, A2aFault> {
        let document = parse_within(body, ANSWER_BYTES_MAX).map_err(|_| A2aFault::Unavailable)?;
        let unusable = |_| A2aFault::Unavailable;
        let response: JsonRpcResponse = serde_json::from_value(document).map_err(unusable)?;
        let mut result = response.result.filter(|_| response.error.is_none()).ok_or(A2aFault::Unavailable)?;
        if let Some(message) = result.get_mut("message") {
            let Message { parts, .. } = serde_json::from_value(message.take()).map_err(unusable)?;
            return Ok(Self { task: None, state: TaskState::Completed, parts });
        }
        let task = result.get_mut("task").map(Value::take).unwrap_or(result);
        let Task { id, status, artifacts, .. } = serde_json::from_value(task).map_err(unusable)?;
        if id.len() > ID_BYTES_MAX {
            return Err(A2aFault::Unavailable);
        }
        let artifacts = artifacts.unwrap_or_default();
        let task = OpenTask { id, artifacts: artifacts.len() };
        let mut parts: Vec<Part> = artifacts.into_iter().skip(known).flat_map(|artifact| artifact.parts).collect();
        if parts.is_empty() {
            parts = status.message.map(|message| message.parts).unwrap_or_default();
        }
        Ok(Self { task: Some(task).filter(|_| !status.state.is_terminal()), state: status.state, parts })
    }

    /// Whether the agent works on, and has not said yet what it was asked for.
    pub fn is_open(&self, step: A2aStep) -> bool {
        let works = matches!(self.state, TaskState::Submitted | TaskState::Working | TaskState::Unspecified);
        works && (step == A2aStep::Perform || self.data().next().is_none())
    }

    /// What it comes to as the answer to a question. Nothing where others go on without it.
    pub fn payload(&self, A2aQuestion { about: told, step, tools, .. }: &A2aQuestion) -> Option<Payload> {
        let state = json!(self.state).to_string().trim_matches('"').replace("TASK_STATE_", "").to_lowercase();
        let is_given_up = self.state.is_terminal() && self.state != TaskState::Completed;
        match (step, &self.state) {
            (A2aStep::Perform, TaskState::Completed) => self.result().or_else(|| step.decline(told, "not_understood")),
            (A2aStep::Stop, TaskState::Canceled) => Some(inform(InformKind::Cancelled, None)),
            (A2aStep::Act, _) if !is_given_up => match (self.act(tools), told) {
                (Ok(payload), _) => Some(payload),
                (Err(why), Notification::Cfp(_) | Notification::Accept(_)) => Some(Payload::NotUnderstood(reason(why))),
                (Err(why), _) => step.decline(told, why),
            },
            (_, _) => step.decline(told, state),
        }
    }

    /// What work came to, unless it is an act that is no result of it; data without one are the result.
    fn result(&self) -> Option<Payload> {
        let is_act = self.data().any(|data| data.get("payload").unwrap_or(data).get("act").is_some());
        match self.act(&["report"]) {
            Ok(Payload::Inform(report)) if matches!(report.kind, InformKind::Done | InformKind::Result) => {
                Some(Payload::Inform(report))
            }
            Ok(Payload::Failure(failure)) if failure.phase == FailurePhase::Perform => Some(Payload::Failure(failure)),
            Err(_) if !is_act => Some(inform(InformKind::Done, self.text())),
            Ok(_) | Err(_) => None,
        }
    }

    /// The payload that its one data part is, or has as its member `payload`, where one of these tools makes it.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    fn act(&self, tools: &[&str]) -> Result<Payload, String> {
        let mut all = self.data();
        let data = all.next().filter(|_| all.next().is_none()).ok_or("missing_field at /parts: one data part")?;
        let envelope = json!({"msg_id": "a", "negotiation": "a~a", "from": "agent://a", "ts": "1970-01-01T00:00:00Z"});
        let document = json!({"envelope": envelope, "payload": data.get("payload").unwrap_or(data)});
        let fault = |refusal: Refusal| {
            let pointer = refusal.pointer.unwrap_or_default();
            format!("{} at {}", refusal.code, pointer.strip_prefix("/payload").unwrap_or(&pointer))
        };
        let checked = check_message(document.to_string().as_bytes()).map_err(fault)?;
        let is_asked_for = tool_of(checked.act).is_some_and(|tool| tools.contains(&tool));
        Some(checked.message.payload).filter(|_| is_asked_for).ok_or("not_allowed at /act".to_owned())
    }

    /// Its texts, else its data as JSON, cut to [`TEXT_LEN_MAX`] characters.
    fn text(&self) -> Option<String> {
        let texts: Vec<&str> = self.parts.iter().filter_map(Part::as_text).collect();
        let text = if texts.is_empty() { self.data().map(Value::to_string).collect() } else { texts.join("\n") };
        Some(text.chars().take(TEXT_LEN_MAX).collect()).filter(|text: &String| !text.is_empty())
    }

    fn data(&self) -> impl Iterator<Item = &Value> {
        self.parts.iter().filter_map(|part| if let PartContent::Data(data) = &part.content { Some(data) } else { None })
    }
}

fn reason(why: impl ToString) -> Reasoned {
    Reasoned { reason: Some(why.to_string()), round: None }
}

/// That something is not done.
pub fn failure(phase: FailurePhase, code: impl ToString) -> Payload {
    Payload::Failure(Failure { phase, code: code.to_string(), retryable: false, penalty: None })
}

/// A report.
pub fn inform(kind: InformKind, result: Option<String>) -> Payload {
    Payload::Inform(Inform { kind, result, routine: None })
}
