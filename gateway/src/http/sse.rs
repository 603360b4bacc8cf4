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
use bus::Received;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use schemas::DeliveryId;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::streams::{StreamLifetime, StreamPermit, open_inbox};
use super::{Caller, HttpResult, PeerConnection, RouteSpec, Site};
use crate::metrics::{CloseReason, GatewayMetrics, StreamKind, StreamResult};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/inbox", &["get"], get(open))]
}

/// Between two comments that keep proxies from closing a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Opens the stream.
async fn open(State(site): State<Arc<Site>>, caller: Caller, request: Request) -> HttpResult {
    let identity = caller.0;
    let permit = site.open_stream(&identity.agent)?;
    let deliveries = open_inbox(&site.pub_sub, &identity.agent).await?;
    site.metrics.serving.stream_connections.of(StreamKind::Sse).inc();
    let inbox = SseStream {
        deliveries,
        lifetime: StreamLifetime::new(&site, Arc::new(identity), Some(&permit)),
        metrics: site.metrics.clone(),
        ended: CloseReason::Client,
        _permit: permit,
        _connection: request.extensions().get::<PeerConnection>().cloned(),
    };
    Ok(Sse::new(events(inbox)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// One open stream. Dropped when the client goes, or when it ends by itself.
struct SseStream {
    deliveries: BoxStream<'static, Received>,
    lifetime: StreamLifetime,
    metrics: Arc<GatewayMetrics>,
    ended: CloseReason,
    _permit: StreamPermit,
    _connection: Option<PeerConnection>,
}

impl Drop for SseStream {
    fn drop(&mut self) {
        self.metrics.serving.stream_ended(StreamKind::Sse, self.ended);
    }
}

impl SseStream {
    /// The next bus message, or the reason why there is none.
    async fn next(&mut self) -> Result<Received, CloseReason> {
        tokio::select! {
            received = self.deliveries.next() => received.ok_or(CloseReason::Bus),
            reason = self.lifetime.over() => Err(reason),
        }
    }

    /// The last event: why the stream ends.
    fn end(&mut self, reason: CloseReason) -> Vec<Result<Event, Infallible>> {
        self.ended = reason;
        let data = |detail| json!({ "reason": <&str>::from(reason), "detail": detail }).to_string();
        reason.farewell().map(|detail| Ok(Event::default().event("closing").data(data(detail)))).into_iter().collect()
    }

    fn events_of(&self, received: &Received) -> Vec<Result<Event, Infallible>> {
        let deliveries = serde_json::from_slice::<Vec<&RawValue>>(&received.payload).unwrap_or_default();
        let events: Vec<_> = deliveries
            .iter()
            .filter_map(|delivery| {
                let id = delivery_id(delivery)?;
                Some(Ok(Event::default().event("delivery").id(id.to_string()).data(delivery.get())))
            })
            .collect();
        let unreadable = if deliveries.is_empty() { 1 } else { deliveries.len() - events.len() };
        self.metrics.serving.delivered(StreamKind::Sse, StreamResult::Unreadable, unreadable);
        self.metrics.serving.delivered(StreamKind::Sse, StreamResult::Sent, events.len());
        events
    }
}

fn events(inbox: SseStream) -> impl Stream<Item = Result<Event, Infallible>> {
    let hello = stream::once(std::future::ready(Ok(Event::default().comment("open"))));
    let batches = stream::unfold(Some(inbox), |inbox| async move {
        let mut inbox = inbox?;
        match inbox.next().await {
            Ok(received) => Some((stream::iter(inbox.events_of(&received)), Some(inbox))),
            Err(reason) => Some((stream::iter(inbox.end(reason)), None)),
        }
    });
    hello.chain(batches.flatten())
}

/// The id of a delivery, without decoding the rest.
fn delivery_id(delivery: &RawValue) -> Option<DeliveryId> {
    #[derive(Deserialize)]
    struct Peeked {
        envelope: PeekedEnvelope,
    }
    #[derive(Deserialize)]
    struct PeekedEnvelope {
        msg_id: DeliveryId,
    }
    serde_json::from_str::<Peeked>(delivery.get()).ok().map(|peeked| peeked.envelope.msg_id)
}
