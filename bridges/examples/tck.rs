//! The A2A binding over scripted tasks, for the compatibility suite of the A2A project: what a message does follows from how its id
//! begins, by the suite's scenarios. `scripts/check-bridges a2a` runs it against the suite where `A2A_TCK` names a checkout.
//!
//!     cargo run -p bridges --example tck -- 127.0.0.1:9999

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use a2a::{A2AError, ListTasksRequest, ListTasksResponse, Task};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bridges::a2a::card::{self, Card};
use bridges::a2a::request::{self, invalid};
use bridges::a2a::{self as binding, Begun, Incoming, TaskFault, TaskSource};
use parking_lot::Mutex;
use schemas::{Timestamp, WireTime};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};

/// How long a task works that is to be seen working.
const DELAY: Duration = Duration::from_secs(2);
const PAGE: usize = 50;

/// Tasks by number, oldest first.
struct ScriptedTasks {
    tasks: Mutex<BTreeMap<usize, Task>>,
    next: AtomicUsize,
    changes: watch::Sender<u64>,
    places: Arc<Semaphore>,
}

/// State, words of its status, and the one part of its artifact.
type Scene = (&'static str, Option<&'static str>, Option<Value>);

/// What a message with this id brings a task to.
fn scene(message_id: &str) -> Scene {
    let file = |content: Value| {
        let mut part = json!({"filename": "output.txt", "mediaType": "text/plain"});
        part.as_object_mut().into_iter().for_each(|part| part.extend(content.as_object().cloned().unwrap_or_default()));
        ("COMPLETED", None, Some(part))
    };
    let begins = |with: &str| message_id.starts_with(with);
    match () {
        () if begins("tck-artifact-text") => ("COMPLETED", None, Some(json!({"text": "Generated text content"}))),
        () if begins("tck-artifact-file-url") => file(json!({"url": "https://example.com/output.txt"})),
        () if begins("tck-artifact-file") => file(json!({"raw": "b3V0cHV0"})),
        () if begins("tck-artifact-data") => ("COMPLETED", None, Some(json!({"data": {"key": "value", "count": 42}}))),
        () if begins("tck-delayed-complete") => ("WORKING", None, None),
        () if begins("tck-input-required") => ("INPUT_REQUIRED", None, None),
        () if begins("tck-reject-task") => ("REJECTED", Some("rejected"), None),
        () => ("COMPLETED", Some("Hello from TCK"), None),
    }
}

impl ScriptedTasks {
    fn number(&self, task: &str) -> Result<usize, TaskFault> {
        let number = task.strip_prefix("task-").and_then(|number| number.parse().ok());
        let known = number.filter(|number| self.tasks.lock().contains_key(number));
        known.ok_or_else(|| A2AError::task_not_found(task).into())
    }

    fn put(&self, number: usize, context: &str, (state, words, part): Scene) -> Result<Task, TaskFault> {
        let now_ms = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        let now = WireTime(Timestamp::from_ms(u64::try_from(now_ms).unwrap_or(u64::MAX)));
        let mut status = json!({"state": format!("TASK_STATE_{state}"), "timestamp": now});
        if let Some(words) = words {
            let parts = json!([{"text": words}]);
            status["message"] = json!({"messageId": format!("status-{number}"), "role": "ROLE_AGENT", "parts": parts});
        }
        let mut task = json!({"id": format!("task-{number}"), "contextId": context, "status": status});
        if let Some(part) = part {
            task["artifacts"] = json!([{"artifactId": "artifact-1", "parts": [part]}]);
        }
        let task: Task = serde_json::from_value(task).map_err(|error| A2AError::internal(error.to_string()))?;
        self.tasks.lock().insert(number, task.clone());
        self.changes.send_modify(|changes| *changes += 1);
        Ok(task)
    }
}

/// What one client sees: everything.
#[derive(Clone)]
struct Everything(Arc<ScriptedTasks>);

impl TaskSource for Everything {
    async fn send(&self, message: Incoming) -> Result<Begun, TaskFault> {
        let (tasks, scene) = (&self.0, scene(&message.message_id));
        let (number, context) = match &message.task_id {
            None => (tasks.next.fetch_add(1, Ordering::Relaxed), message.context_id.clone()),
            Some(id) => {
                let number = tasks.number(id)?;
                let known = tasks.tasks.lock()[&number].clone();
                if known.status.state.is_terminal() {
                    return Err(A2AError::unsupported_operation("the task has ended").into());
                }
                if message.context_id.as_ref().is_some_and(|context| *context != known.context_id) {
                    return Err(invalid("message.contextId", "that of the task is expected").into());
                }
                (number, Some(known.context_id))
            }
        };
        let context = context.unwrap_or_else(|| format!("context-{number}"));
        let is_working = scene.0 == "WORKING";
        let task = tasks.put(number, &context, scene)?;
        if is_working {
            let source = self.clone();
            tokio::spawn(async move {
                sleep(DELAY).await;
                if !source.0.tasks.lock()[&number].status.state.is_terminal() {
                    source.0.put(number, &context, ("COMPLETED", Some("Done after delay"), None))?;
                }
                Ok::<_, TaskFault>(())
            });
        }
        Ok(Begun::Taken(task.id))
    }

    async fn follow(&self, task: &str, seen: Option<&Task>, deadline: Instant) -> Result<Task, TaskFault> {
        let number = self.0.number(task)?;
        let mut changes = self.0.changes.subscribe();
        loop {
            let task = self.0.tasks.lock()[&number].clone();
            if seen != Some(&task) || timeout_at(deadline, changes.changed()).await.is_err() {
                return Ok(task);
            }
        }
    }

    async fn cancel(&self, task: &str) -> Result<Task, TaskFault> {
        let number = self.0.number(task)?;
        let known = self.0.tasks.lock()[&number].clone();
        if known.status.state.is_terminal() {
            return Err(A2AError::task_not_cancelable(task).into());
        }
        self.0.put(number, &known.context_id, ("CANCELED", None, None))
    }

    fn list(&self, wanted: &ListTasksRequest) -> Result<ListTasksResponse, TaskFault> {
        let is_wanted = |task: &Task| {
            wanted.context_id.as_ref().is_none_or(|context| *context == task.context_id)
                && wanted.status.as_ref().is_none_or(|state| *state == task.status.state)
                && wanted.status_timestamp_after.is_none_or(|after| task.status.timestamp >= Some(after))
        };
        let token = wanted.page_token.as_deref().filter(|token| !token.is_empty()).unwrap_or("0");
        let from: usize = token.parse().map_err(|_| invalid("pageToken", "one that was given out is expected"))?;
        let size = usize::try_from(wanted.page_size.unwrap_or_default()).unwrap_or_default();
        let size = if size == 0 { PAGE } else { size.min(100) };
        let mut tasks: Vec<Task> = self.0.tasks.lock().values().rev().filter(|task| is_wanted(task)).cloned().collect();
        let total = tasks.len();
        tasks = tasks.into_iter().skip(from).take(size).collect();
        if wanted.include_artifacts != Some(true) {
            tasks.iter_mut().for_each(|task| task.artifacts = None);
        }
        let until = from + tasks.len();
        let [page_size, total_size] = [tasks.len(), total].map(|count| i32::try_from(count).unwrap_or(i32::MAX));
        let next_page_token = if until < total { until.to_string() } else { String::new() };
        Ok(ListTasksResponse { tasks, next_page_token, page_size, total_size })
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, TaskFault> {
        let place = Arc::clone(&self.0.places).try_acquire_owned();
        place.map_err(|_| A2AError::internal("all places are taken").into())
    }
}

async fn tasks(State(source): State<Everything>, headers: HeaderMap, body: Bytes) -> Response {
    let request = match request::read(&headers, &body) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    let id = request.id.clone();
    let answer = binding::answer(|| Ok(Arc::new(source)), request, &["tck".to_owned()]).await;
    let answer = answer.or_else(|fault| request::refused(id, fault));
    answer.unwrap_or_else(|refusal| refusal.to_string().into_response())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9999".to_owned());
    let card = Card::try_new(&format!("http://{address}"), "1.0.0", None, None)?;
    let (changes, places) = (watch::Sender::new(0), Arc::new(Semaphore::new(1024)));
    let source =
        Everything(Arc::new(ScriptedTasks { tasks: Mutex::default(), next: AtomicUsize::new(0), changes, places }));
    let router = Router::new().route("/a2a", post(tasks)).route("/a2a/", post(tasks)).with_state(source);
    let router = router.merge(Router::new().route("/.well-known/agent-card.json", get(card::show)).with_state(card));
    Ok(axum::serve(TcpListener::bind(address).await?, router).await?)
}
