//! `GET /v1/inbox`: deliveries as server-sent events.
//!
//! Each event's id is the delivery id. Delivery is at least once: what is not acknowledged comes again, on this stream
//! and on the next, so `Last-Event-ID` is welcome and changes nothing; drop what you know by its id. A stream that the
//! gateway ends says why in its last event, `closing`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use schemas::DeliveryId;
use serde::Deserialize;
use serde_json::json;

use super::streams::StreamLifetime;
use super::{Caller, HttpResult, PeerConnection, RouteSpec, Site};
use crate::metrics::{CloseReason, GatewayMetrics, StreamKind, StreamResult};
use crate::streams::{AgentStream, UnreadableInbox};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/inbox", &["get"], get(open))]
}

/// Between two comments that keep proxies from closing a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Opens the stream.
async fn open(State(site): State<Arc<Site>>, caller: Caller, request: Request) -> HttpResult {
    let identity = caller.0;
    let stream = site.streams.open(&identity.agent).await?;
    site.metrics.serving.stream_connections.of(StreamKind::Sse).inc();
    let inbox = SseStream {
        lifetime: StreamLifetime::new(&site, Arc::new(identity), Some(stream.ended())),
        stream,
        metrics: site.metrics.clone(),
        ended: CloseReason::Client,
        _connection: request.extensions().get::<PeerConnection>().cloned(),
    };
    Ok(Sse::new(events(inbox)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// One open stream. Dropped when the client goes, or when it ends by itself.
struct SseStream {
    stream: AgentStream,
    lifetime: StreamLifetime,
    metrics: Arc<GatewayMetrics>,
    ended: CloseReason,
    _connection: Option<PeerConnection>,
}

impl Drop for SseStream {
    fn drop(&mut self) {
        self.metrics.serving.stream_ended(StreamKind::Sse, self.ended);
    }
}

impl SseStream {
    /// The next delivery, or the reason why there is none.
    async fn next(&mut self) -> Result<Result<Bytes, UnreadableInbox>, CloseReason> {
        tokio::select! {
            delivery = self.stream.next() => delivery.ok_or(CloseReason::Bus),
            reason = self.lifetime.over() => Err(reason),
        }
    }

    /// The last event: why the stream ends.
    fn end(&mut self, reason: CloseReason) -> Vec<Result<Event, Infallible>> {
        self.ended = reason;
        let data = |detail| json!({ "reason": <&str>::from(reason), "detail": detail }).to_string();
        reason.farewell().map(|detail| Ok(Event::default().event("closing").data(data(detail)))).into_iter().collect()
    }

    fn event_of(&self, delivery: Result<Bytes, UnreadableInbox>) -> Option<Result<Event, Infallible>> {
        let event = delivery.ok().and_then(|delivery| delivery_event(&delivery));
        let result = if event.is_some() { StreamResult::Sent } else { StreamResult::Unreadable };
        self.metrics.serving.delivered(StreamKind::Sse, result, 1);
        event.map(Ok)
    }
}

fn events(inbox: SseStream) -> impl Stream<Item = Result<Event, Infallible>> {
    let hello = stream::once(std::future::ready(Ok(Event::default().comment("open"))));
    let batches = stream::unfold(Some(inbox), |inbox| async move {
        let mut inbox = inbox?;
        match inbox.next().await {
            Ok(delivery) => Some((stream::iter(inbox.event_of(delivery).into_iter().collect::<Vec<_>>()), Some(inbox))),
            Err(reason) => Some((stream::iter(inbox.end(reason)), None)),
        }
    });
    hello.chain(batches.flatten())
}

/// A delivery as an event; nothing where its id cannot be read. The rest is not decoded.
fn delivery_event(delivery: &[u8]) -> Option<Event> {
    #[derive(Deserialize)]
    struct Peeked {
        envelope: PeekedEnvelope,
    }
    #[derive(Deserialize)]
    struct PeekedEnvelope {
        msg_id: DeliveryId,
    }
    let delivery = std::str::from_utf8(delivery).ok()?;
    let id = serde_json::from_str::<Peeked>(delivery).ok()?.envelope.msg_id;
    Some(Event::default().event("delivery").id(id.to_string()).data(delivery))
}
