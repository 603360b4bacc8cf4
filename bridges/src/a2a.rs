//! The exchange as an agent of the Agent2Agent protocol 1.0 (JSON-RPC binding): a task is a negotiation that its client called.
//!
//! | module | is |
//! |---|---|
//! | [`card`] | what the agent says of itself |
//! | [`request`] | JSON-RPC → what is asked, strictly |
//! | [`task`] | what was told of a negotiation → a task |
//!
//! The binding knows tasks by [`TaskSource`] alone, so that what serves the exchange can be tried against scripted tasks.

pub mod card;
pub mod request;
pub mod task;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use a2a::{
    A2AError, CancelTaskRequest, GetTaskRequest, JsonRpcId, JsonRpcResponse, ListTasksRequest, ListTasksResponse,
    SendMessageRequest, SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskArtifactUpdateEvent,
    TaskState, TaskStatusUpdateEvent, methods,
};
use agents::transport::can_pass;
use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;
use schemas::Refusal;
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

pub use request::{Content, Incoming, Request};

use crate::ToolFault;

/// Longest wait of a `SendMessage` for the end of its task, or for input.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest stream.
const STREAM_MAX: Duration = Duration::from_secs(600);
/// Pause between comments on a stream: some clients give up after five seconds without a byte.
const COMMENT_EVERY: Duration = Duration::from_secs(2);

/// What becomes of a message.
#[derive(Debug)]
pub enum Begun {
    /// It is taken: the task of this id goes on.
    Taken(String),
    /// The answer is this task, and the message has no further effect.
    Answered(Box<Task>),
}

/// Where the tasks of one client live.
pub trait TaskSource: Send + Sync + 'static {
    /// Opens a task, or acts in the one that the message names.
    fn send(&self, message: Incoming) -> impl Future<Output = Result<Begun, TaskFault>> + Send;
    /// The task as soon as it differs from what was seen, or at the deadline.
    fn follow(
        &self,
        task: &str,
        seen: Option<&Task>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Task, TaskFault>> + Send;
    /// Cancels a task.
    fn cancel(&self, task: &str) -> impl Future<Output = Result<Task, TaskFault>> + Send;
    /// Tasks that were seen, the newest status first.
    ///
    /// # Errors
    /// A page token that was not given out for this list.
    fn list(&self, wanted: &ListTasksRequest) -> Result<ListTasksResponse, TaskFault>;
    /// A place among the client's requests that wait.
    ///
    /// # Errors
    /// [`schemas::Code::Overloaded`] when all are taken.
    fn place(&self) -> Result<OwnedSemaphorePermit, TaskFault>;
}

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum TaskFault {
    /// By the protocol's own rules.
    #[error(transparent)]
    Protocol(#[from] A2AError),
    /// By the exchange's.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl From<ToolFault> for TaskFault {
    fn from(fault: ToolFault) -> Self {
        match fault {
            ToolFault::Refused(refusal) => Self::Refused(refusal),
            ToolFault::NotFollowed { .. } => Self::Protocol(A2AError::invalid_params(fault.to_string())),
        }
    }
}

/// Answers a request that [`request::read`] has taken, for the client whose tasks `source` has: it is opened for what needs tasks
/// alone. `text_to` are the recipients of a
/// call that is a text alone.
///
/// # Errors
/// [`TaskFault`], which [`request::refused`] writes.
pub async fn answer<S: TaskSource>(
    source: impl FnOnce() -> Result<Arc<S>, Refusal>,
    request: Request,
    text_to: &[String],
) -> Result<Response, TaskFault> {
    let Request { id, method, params } = request;
    match method {
        methods::SEND_MESSAGE => {
            let sent = request::decode::<SendMessageRequest>(params)?;
            let wanted = sent.configuration.as_ref().and_then(|wanted| wanted.return_immediately);
            let message = request::incoming(sent, text_to)?;
            let task = send(source()?.as_ref(), message, wanted != Some(true)).await?;
            Ok(result(id, SendMessageResponse::Task(task)))
        }
        methods::SEND_STREAMING_MESSAGE => {
            let message = request::incoming(request::decode::<SendMessageRequest>(params)?, text_to)?;
            let source = source()?;
            let place = source.place()?;
            let (task, until) = match source.send(message).await? {
                Begun::Taken(task) => (source.follow(&task, None, Instant::now()).await?, STREAM_MAX),
                Begun::Answered(task) => (*task, Duration::ZERO),
            };
            Ok(Following::new(source, id, task, (place, until)).response())
        }
        methods::SUBSCRIBE_TO_TASK => {
            let SubscribeToTaskRequest { id: task, tenant } = request::decode(params)?;
            request::check_common(tenant.as_deref(), None)?;
            let source = source()?;
            let place = source.place()?;
            let task = source.follow(&task, None, Instant::now()).await?;
            if task.status.state.is_terminal() {
                return Err(A2AError::unsupported_operation("the task has ended: nothing more comes of it").into());
            }
            Ok(Following::new(source, id, task, (place, STREAM_MAX)).response())
        }
        methods::GET_TASK => {
            let GetTaskRequest { id: task, history_length, tenant } = request::decode(params)?;
            request::check_common(tenant.as_deref(), history_length)?;
            Ok(result(id, source()?.follow(&task, None, Instant::now()).await?))
        }
        methods::LIST_TASKS => {
            let wanted = request::decode(params)?;
            Ok(result(id, source()?.list(&wanted)?))
        }
        methods::CANCEL_TASK => {
            let CancelTaskRequest { id: task, tenant, metadata: _ } = request::decode(params)?;
            request::check_common(tenant.as_deref(), None)?;
            Ok(result(id, source()?.cancel(&task).await?))
        }
        methods::GET_EXTENDED_AGENT_CARD => {
            Err(A2AError::unsupported_operation("there is no card but the public one").into())
        }
        _ => Err(A2AError::push_notification_not_supported().into()),
    }
}

/// Sends a message, and waits for the end of its task, or for input, where that is wanted.
async fn send<S: TaskSource>(source: &S, message: Incoming, waits: bool) -> Result<Task, TaskFault> {
    let _place = waits.then(|| source.place()).transpose()?;
    let deadline = Instant::now() + if waits { WAIT_MAX } else { Duration::ZERO };
    let id = match source.send(message).await? {
        Begun::Taken(id) => id,
        Begun::Answered(task) => return Ok(*task),
    };
    let mut task = source.follow(&id, None, Instant::now()).await?;
    while !is_settled(&task.status.state) && Instant::now() < deadline {
        task = source.follow(&id, Some(&task), deadline).await?;
    }
    Ok(task)
}

/// Nothing more happens before the client does something.
fn is_settled(state: &TaskState) -> bool {
    state.is_terminal() || *state == TaskState::InputRequired
}

fn result(id: JsonRpcId, result: impl Serialize) -> Response {
    Json(JsonRpcResponse::success(id, json!(result))).into_response()
}

/// A task as a stream of its events.
struct Following<S> {
    source: Arc<S>,
    id: JsonRpcId,
    task: Task,
    events: VecDeque<StreamResponse>,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

impl<S: TaskSource> Following<S> {
    fn new(source: Arc<S>, id: JsonRpcId, task: Task, (place, lasts): (OwnedSemaphorePermit, Duration)) -> Self {
        let events = VecDeque::from([StreamResponse::Task(task.clone())]);
        Self { source, id, task, events, until: Instant::now() + lasts, _place: place }
    }

    fn response(self) -> Response {
        let events = unfold(self, async |mut following| {
            let event = following.next().await?;
            let event = JsonRpcResponse::success(following.id.clone(), json!(event));
            let event = Event::default().data(json!(event).to_string());
            Some((Ok::<_, Infallible>(event), following))
        });
        Sse::new(Box::pin(events)).keep_alive(KeepAlive::new().interval(COMMENT_EVERY)).into_response()
    }

    /// The next event, until the task has ended, the client's token has, or ten minutes have passed.
    async fn next(&mut self) -> Option<StreamResponse> {
        while self.events.is_empty() {
            if self.task.status.state.is_terminal() || Instant::now() >= self.until {
                return None;
            }
            let task = match self.source.follow(&self.task.id, Some(&self.task), self.until).await {
                Ok(task) => task,
                Err(TaskFault::Refused(refusal)) if can_pass(refusal.code) => {
                    tokio::time::sleep(COMMENT_EVERY).await;
                    continue;
                }
                Err(_) => return None,
            };
            self.events.extend(changes(&self.task, &task));
            self.task = task;
        }
        self.events.pop_front()
    }
}

/// What has changed of a task: artifacts first, so that its last state is the last event.
fn changes(before: &Task, after: &Task) -> Vec<StreamResponse> {
    let (task_id, context_id) = (after.id.clone(), after.context_id.clone());
    // What a view tells of one later is less, and not told.
    let length = |artifact: &a2a::Artifact| json!(artifact).to_string().len();
    let is_new = |artifact: &&a2a::Artifact| {
        let mut known = before.artifacts.iter().flatten();
        !known.any(|known| known.artifact_id == artifact.artifact_id && length(known) >= length(artifact))
    };
    let artifacts = after.artifacts.iter().flatten().filter(is_new).map(|artifact| {
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: task_id.clone(),
            context_id: context_id.clone(),
            artifact: artifact.clone(),
            append: None,
            last_chunk: Some(true),
            metadata: None,
        })
    });
    let mut events: Vec<_> = artifacts.collect();
    if before.status != after.status {
        let status = after.status.clone();
        events.push(StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id,
            context_id,
            status,
            metadata: None,
        }));
    }
    events
}
