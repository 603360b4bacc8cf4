//! JSON-RPC → what is asked of a task, strictly: members named twice, parts of no known use and unknown versions are refused.

use a2a::error_code::{CONTENT_TYPE_NOT_SUPPORTED, INTERNAL_ERROR, INVALID_PARAMS, PARSE_ERROR, TASK_NOT_FOUND};
use a2a::{
    A2AError, FieldViolation, JsonRpcError, JsonRpcId, JsonRpcRequest, JsonRpcResponse, Message, Part, PartContent,
    Role, SVC_PARAM_VERSION, SendMessageRequest, TypedDetail, VERSION, methods,
};
use axum::Json;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use schemas::validate::{Kind, check_document, parse};
use schemas::{Code, Refusal};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::TaskFault;
use crate::tools::Arguments;

/// Domain of the exchange's own codes in errors.
const DOMAIN: &str = "llmx.dev";
/// Type of the detail that says when to ask again.
const RETRY_INFO_TYPE: &str = "type.googleapis.com/google.rpc.RetryInfo";
/// Most characters of a context's name.
const CONTEXT_CHARS_MAX: usize = 40;

/// A request as it was read.
#[derive(Debug)]
pub struct Request {
    /// Given back with the answer.
    pub id: JsonRpcId,
    /// Its method, one of [`METHODS`].
    pub method: &'static str,
    /// Its parameters.
    pub params: Value,
}

/// A message to a task.
#[derive(Debug)]
pub struct Incoming {
    /// Its id, the same when it is sent again.
    pub message_id: String,
    /// The context it names.
    pub context_id: Option<String>,
    /// The task it is to; none: it opens one.
    pub task_id: Option<String>,
    /// What it says.
    pub content: Content,
    /// Path of what says it.
    pub place: String,
}

/// What a message says.
#[derive(Debug)]
pub enum Content {
    /// A request by the extension: it fits the schema `request`.
    Act(Arguments),
    /// A text alone.
    Text(String),
}

/// Methods, by the names that a request and a metric give them.
pub const METHODS: [&str; 11] = [
    methods::SEND_MESSAGE,
    methods::SEND_STREAMING_MESSAGE,
    methods::GET_TASK,
    methods::LIST_TASKS,
    methods::CANCEL_TASK,
    methods::SUBSCRIBE_TO_TASK,
    methods::CREATE_PUSH_CONFIG,
    methods::GET_PUSH_CONFIG,
    methods::LIST_PUSH_CONFIGS,
    methods::DELETE_PUSH_CONFIG,
    methods::GET_EXTENDED_AGENT_CARD,
];

/// Reads a request.
///
/// # Errors
/// The JSON-RPC response that says what is wrong with it.
pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Request, Box<Response>> {
    let refuse = |id: &JsonRpcId, error: A2AError| Box::new(response(id.clone(), error.to_jsonrpc_error()));
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !is_json(text(CONTENT_TYPE.as_str())) {
        return Err(refuse(&JsonRpcId::Null, A2AError::content_type_not_supported()));
    }
    let unreadable = |refusal: Refusal| refuse(&JsonRpcId::Null, A2AError::new(PARSE_ERROR, refusal.detail));
    let document = parse(body).map_err(unreadable)?;
    let id = serde_json::from_value(document["id"].clone()).unwrap_or(JsonRpcId::Null);
    if !document.is_object() || document.get("params").is_some_and(|params| !params.is_object()) {
        return Err(refuse(
            &id,
            A2AError::invalid_request("one request is expected, an object with `params`, an object"),
        ));
    }
    let request: JsonRpcRequest =
        serde_json::from_value(document).map_err(|error| refuse(&id, A2AError::invalid_request(error.to_string())))?;
    if request.jsonrpc != "2.0" {
        return Err(refuse(&id, A2AError::invalid_request("`jsonrpc` is \"2.0\"")));
    }
    let version = text(SVC_PARAM_VERSION);
    let patch = version.strip_prefix(VERSION).map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    if !patch.is_some_and(|patch| patch.bytes().all(|digit| digit.is_ascii_digit())) {
        return Err(refuse(&id, A2AError::version_not_supported(if version.is_empty() { "0.3" } else { version })));
    }
    let Some(method) = METHODS.into_iter().find(|method| *method == request.method) else {
        return Err(refuse(
            &id,
            A2AError::method_not_found("it is none of A2A 1.0, which has SendMessage, GetTask, ListTasks"),
        ));
    };
    Ok(Request { id, method, params: request.params.unwrap_or_else(|| json!({})) })
}

/// The answer to a request that fails.
///
/// # Errors
/// The refusal of a token, of an act, or of too many requests, which an HTTP status says.
pub fn refused(id: JsonRpcId, fault: TaskFault) -> Result<Response, Refusal> {
    let error = match fault {
        TaskFault::Protocol(error) => error.to_jsonrpc_error(),
        TaskFault::Refused(refusal) => {
            let is_of_client = matches!(refusal.code.http_status(), 401 | 429) || refusal.code == Code::Unauthorized;
            if is_of_client {
                return Err(refusal);
            }
            error_of(&refusal)
        }
    };
    Ok(response(id, error))
}

fn response(id: JsonRpcId, error: JsonRpcError) -> Response {
    Json(JsonRpcResponse::error(id, error)).into_response()
}

/// A refusal of the exchange as an error of JSON-RPC.
fn error_of(refusal: &Refusal) -> JsonRpcError {
    let is_passing = refusal.code.http_status() == 503;
    let code = match refusal.code.http_status() {
        404 => TASK_NOT_FOUND,
        500 | 503 => INTERNAL_ERROR,
        _ => INVALID_PARAMS,
    };
    let reason = json!(refusal.code).as_str().unwrap_or_default().to_uppercase();
    let mut details = vec![TypedDetail::error_info(reason, DOMAIN, None)];
    if let Some(field) = refusal.pointer.clone() {
        let description = refusal.expected.clone().unwrap_or_else(|| refusal.detail.clone());
        details.push(TypedDetail::bad_request(vec![FieldViolation { field, description }]));
    }
    if is_passing {
        let delay = format!("{:.3}s", refusal.retry_after_ms.unwrap_or(1000) as f64 / 1000.0);
        details.push(TypedDetail::new(RETRY_INFO_TYPE, [("retryDelay".to_owned(), json!(delay))].into()));
    }
    JsonRpcError { code, message: refusal.detail.clone(), data: Some(json!(details)) }
}

/// The same fault, its pointer into a message of the exchange as a path below this one of the client's.
pub fn in_part(fault: TaskFault, place: &str) -> TaskFault {
    let TaskFault::Refused(mut refusal) = fault else { return fault };
    refusal.pointer = refusal.pointer.map(|pointer| {
        if pointer == "/envelope/msg_id" {
            return "message.messageId".to_owned();
        }
        if place.ends_with("text") {
            return place.to_owned();
        }
        let steps = pointer.strip_prefix("/envelope").unwrap_or(&pointer).split('/').skip(1);
        let steps = steps.map(|step| match step.parse::<usize>() {
            Ok(place) => format!("[{place}]"),
            Err(_) => format!(".{step}"),
        });
        format!("{place}{}", steps.collect::<String>())
    });
    refusal.into()
}

/// Reads the parameters of a method.
///
/// # Errors
/// Where they do not fit.
pub fn decode<T: DeserializeOwned>(params: Value) -> Result<T, A2AError> {
    serde_path_to_error::deserialize(params)
        .map_err(|error| invalid(&error.path().to_string(), &error.inner().to_string()))
}

/// An error of this member of the parameters.
pub fn invalid(field: &str, expected: &str) -> A2AError {
    let violation = FieldViolation { field: field.to_owned(), description: expected.to_owned() };
    A2AError::invalid_params(format!("{field}: {expected}"))
        .with_details(vec![TypedDetail::bad_request(vec![violation])])
}

/// Refuses a tenant, since there is one exchange behind an address, and a negative length.
///
/// # Errors
/// Where one is named.
pub fn check_common(tenant: Option<&str>, history_length: Option<i32>) -> Result<(), A2AError> {
    if tenant.is_some_and(|tenant| !tenant.is_empty()) {
        return Err(invalid("tenant", "none is known here"));
    }
    if history_length.is_some_and(|length| length < 0) {
        return Err(invalid("historyLength", "0 or more is expected"));
    }
    Ok(())
}

/// The message that is sent, checked against the schema `request` where it has a data part. `text_to` are the recipients of a
/// call that is a text alone.
///
/// # Errors
/// What is not offered, or does not fit, with its path.
pub fn incoming(sent: SendMessageRequest, text_to: &[String]) -> Result<Incoming, TaskFault> {
    let wanted = sent.configuration.as_ref();
    check_common(sent.tenant.as_deref(), wanted.and_then(|wanted| wanted.history_length))?;
    if wanted.is_some_and(|wanted| wanted.task_push_notification_config.is_some()) {
        return Err(A2AError::push_notification_not_supported().into());
    }
    let Message { message_id, context_id, task_id, role, parts, .. } = sent.message;
    if message_id.is_empty() {
        return Err(invalid("message.messageId", "an id, the same when the message is sent again").into());
    }
    if role == Role::Agent {
        return Err(invalid("message.role", "ROLE_USER is expected").into());
    }
    let context_id = context_id.filter(|context| !context.is_empty());
    if !context_id.as_deref().is_none_or(is_context) {
        let expected = format!("1 to {CONTEXT_CHARS_MAX} characters of A-Z a-z 0-9 _ - are expected");
        return Err(invalid("message.contextId", &expected).into());
    }
    let task_id = task_id.filter(|task| !task.is_empty());
    let (place, content) = match content(parts)? {
        (place, Content::Text(text)) if task_id.is_none() => (place, called(&text, text_to)?),
        content => content,
    };
    Ok(Incoming { message_id, context_id, task_id, content, place })
}

/// A call by a text alone.
fn called(text: &str, text_to: &[String]) -> Result<Content, A2AError> {
    if text_to.is_empty() {
        let expected = "one data part by the extension of the card is expected: no --text-to says whom a text calls";
        return Err(invalid("message.parts", expected));
    }
    Ok(Content::Act(Map::from_iter([
        ("to".to_owned(), json!(text_to)),
        ("payload".to_owned(), json!({"act": "cfp", "task": text})),
    ])))
}

/// The one data part, or the one text, with its path.
fn content(parts: Vec<Part>) -> Result<(String, Content), TaskFault> {
    let (mut data, mut texts) = (Vec::new(), Vec::new());
    for (place, part) in parts.into_iter().enumerate() {
        match part.content {
            PartContent::Data(value) if part.media_type.as_deref().is_none_or(is_json) => data.push((place, value)),
            PartContent::Text(text) => texts.push((place, text)),
            PartContent::Data(_) | PartContent::Raw(_) | PartContent::Url(_) => {
                return Err(A2AError::new(CONTENT_TYPE_NOT_SUPPORTED, "parts are JSON data, or text").into());
            }
        }
    }
    match (data.pop(), texts.pop()) {
        (Some((part, request)), _) if data.is_empty() => {
            let place = format!("message.parts[{part}].data");
            check_document(Kind::Request, request.to_string().as_bytes())
                .map_err(|refusal| in_part(refusal.into(), &place))?;
            let Value::Object(request) = request else { return Err(invalid(&place, "an object").into()) };
            Ok((place, Content::Act(request)))
        }
        (None, Some((part, text))) if texts.is_empty() => {
            Ok((format!("message.parts[{part}].text"), Content::Text(text)))
        }
        _ => Err(invalid("message.parts", "one data part, or one text, is expected").into()),
    }
}

/// Whether a media type is JSON, whatever its parameters.
pub fn is_json(media_type: &str) -> bool {
    media_type.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

fn is_context(text: &str) -> bool {
    text.len() <= CONTEXT_CHARS_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}
