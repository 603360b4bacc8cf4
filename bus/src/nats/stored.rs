//! Publishing into a stream and reading back from its leader: what the log, the register and the buckets share.

use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, RawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, HeaderMap, Request};
use bytes::Bytes;

use super::NotStored;
use crate::BusError;

/// Publishes and waits for the stream's acknowledgement; returns the sequence.
///
/// The client's own `Context::publish` hides the error code of a refusal behind kinds that change between versions and
/// between one server and a cluster, so the answer is read here.
pub(super) async fn publish(
    client: &Client,
    subject: String,
    payload: Bytes,
    timeout: Duration,
) -> Result<u64, NotStored> {
    publish_with(client, subject, HeaderMap::new(), payload, timeout).await
}

/// [`publish`] with headers, which may set conditions.
pub(super) async fn publish_with(
    client: &Client,
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
    timeout: Duration,
) -> Result<u64, NotStored> {
    let mut request = Request::new().payload(payload);
    if !headers.is_empty() {
        request = request.headers(headers);
    }
    // The client's own timeout starts when the request is queued, which takes long while it is disconnected.
    let request = client.send_request(subject, request.timeout(None));
    let answer = match tokio::time::timeout(timeout, request).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(request_failed(client, &error)),
        Err(_) => return Err(NotStored::Unknown(format!("no acknowledgement in {timeout:?}"))),
    };
    match serde_json::from_slice::<Response<PublishAck>>(&answer.payload) {
        Ok(Response::Ok(ack)) => Ok(ack.sequence),
        Ok(Response::Err { error }) => Err(NotStored::Refused(error.error_code(), error.to_string())),
        Err(error) => Err(NotStored::Unknown(format!("the acknowledgement cannot be read: {error}"))),
    }
}

fn request_failed(client: &Client, error: &async_nats::client::RequestError) -> NotStored {
    match error.kind() {
        RequestErrorKind::MaxPayloadExceeded => NotStored::TooLarge(client.max_payload()),
        // While a cluster changes its leader nobody listens for a moment.
        RequestErrorKind::NoResponders => NotStored::Unknown("no stream listens on the subject".to_owned()),
        RequestErrorKind::TimedOut | RequestErrorKind::InvalidSubject | RequestErrorKind::Other => {
            NotStored::Unknown(error.to_string())
        }
    }
}

/// Whether a refusal says that the store has no room.
pub(super) fn is_full(code: ErrorCode) -> bool {
    is_stream_full(code)
        || [
            ErrorCode::INSUFFICIENT_RESOURCES,
            ErrorCode::STORAGE_RESOURCES_EXCEEDED,
            ErrorCode::MEMORY_RESOURCES_EXCEEDED,
            ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED,
            ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
        ]
        .contains(&code)
}

/// Whether it is the stream's own limit that is reached, not the server's or the account's.
fn is_stream_full(code: ErrorCode) -> bool {
    code == ErrorCode::STREAM_STORE_FAILED
}

/// What an operator can do about a full store.
pub(super) fn full(stream_name: &str, code: ErrorCode, reason: &str) -> BusError {
    let raise = if is_stream_full(code) {
        format!("`nats stream edit {stream_name} --max-bytes`")
    } else {
        "`max_file_store` of the server, or the account's limit, with a disk that has the room".to_owned()
    };
    BusError::Full(format!(
        "{stream_name}: {reason}. Free space: the log is trimmed below what engines have in a checkpoint and `llmx archive` \
         has archived, so see that both run. Or raise the limit: {raise}"
    ))
}

fn is_gone(refusal: &jetstream::Error) -> bool {
    refusal.error_code() == ErrorCode::STREAM_NOT_FOUND
}

fn gone(stream_name: &str) -> BusError {
    BusError::Unreachable(format!("stream {stream_name} is gone"))
}

/// A handle of a stream that [`super::open`] has found or created.
pub(super) async fn stream(context: &Context, name: &str) -> Result<Stream<()>, BusError> {
    context.get_stream_no_info(name).await.map_err(|error| BusError::Unknown(format!("stream {name}: {error}")))
}

/// The last message on a subject, asked of the stream's leader: a replica could answer with an older one.
pub(super) async fn last_on(
    context: &Context,
    stream_name: &str,
    subject: &str,
) -> Result<Option<StreamMessage>, BusError> {
    match stream(context, stream_name).await?.get_last_raw_message_by_subject(subject).await {
        Ok(message) => Ok(Some(message)),
        Err(error) => match error.kind() {
            LastRawMessageErrorKind::NoMessageFound => Ok(None),
            LastRawMessageErrorKind::InvalidSubject => Err(BusError::Invalid(subject.to_owned())),
            LastRawMessageErrorKind::JetStream(refusal) if is_gone(&refusal) => Err(gone(stream_name)),
            LastRawMessageErrorKind::JetStream(_) | LastRawMessageErrorKind::Other => {
                Err(BusError::Unknown(format!("`{subject}` cannot be read: {error}")))
            }
        },
    }
}

/// The message with this sequence, whatever its subject, asked of the stream's leader.
pub(super) async fn at(context: &Context, stream_name: &str, seq: u64) -> Result<Option<StreamMessage>, BusError> {
    match stream(context, stream_name).await?.get_raw_message(seq).await {
        Ok(message) => Ok(Some(message)),
        Err(error) => match error.kind() {
            RawMessageErrorKind::NoMessageFound => Ok(None),
            RawMessageErrorKind::JetStream(refusal) if is_gone(&refusal) => Err(gone(stream_name)),
            RawMessageErrorKind::InvalidSubject | RawMessageErrorKind::JetStream(_) | RawMessageErrorKind::Other => {
                Err(BusError::Unknown(format!("message {seq} of {stream_name} cannot be read: {error}")))
            }
        },
    }
}

/// Removes the messages on a subject, all of them or those below a sequence.
pub(super) async fn purge(
    context: &Context,
    stream_name: &str,
    subject: &str,
    below_seq: Option<u64>,
) -> Result<(), BusError> {
    let purge = stream(context, stream_name).await?.purge().filter(subject);
    let outcome = match below_seq {
        Some(seq) => purge.sequence(seq).await,
        None => purge.await,
    };
    let unknown = |error: String| BusError::Unknown(format!("`{subject}` is not known to be purged: {error}"));
    match outcome {
        Ok(answer) if answer.success => Ok(()),
        Ok(_) => Err(unknown("the server refused".to_owned())),
        Err(error) => Err(unknown(error.to_string())),
    }
}
