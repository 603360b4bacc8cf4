//! `GET /v1/console/events`: the snapshot each second as a server-sent event.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, Sse};
use futures_util::{Stream, stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::super::Site;
use super::super::answer::Answer;
use super::super::request::Connection;
use super::Visitor;
use crate::auth::now_s;
use crate::console::Sight;

/// Between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest life of a stream: the page opens the next one by itself, with the token it has then.
const LIFETIME_MAX: Duration = Duration::from_secs(600);

/// Opens the stream.
pub(in super::super) async fn open(State(site): State<Arc<Site>>, visitor: Visitor, request: Request) -> Answer {
    let place = site.console.stream_place(visitor.is_admin)?;
    let left = visitor.expires_s.map(|expires_s| Duration::from_secs(expires_s.saturating_sub(now_s())));
    let mut period = tokio::time::interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let view = View {
        site,
        sight: visitor.sight,
        period,
        ends: Instant::now() + left.map_or(LIFETIME_MAX, |left| left.min(LIFETIME_MAX)),
        _place: place,
        _connection: request.extensions().get::<Connection>().cloned(),
    };
    Ok(Sse::new(events(view)).into_response())
}

/// One open stream. Dropped when the visitor goes, or when it ends by itself.
struct View {
    site: Arc<Site>,
    sight: Sight,
    period: Interval,
    ends: Instant,
    _place: OwnedSemaphorePermit,
    _connection: Option<Connection>,
}

fn events(view: View) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(view, |mut view| async move {
        tokio::select! {
            biased;
            () = view.site.stop.cancelled() => return None,
            () = tokio::time::sleep_until(view.ends) => return None,
            _ = view.period.tick() => {}
        }
        let text = view.site.console.snapshot(view.sight).ok()?;
        Some((Ok(Event::default().event("snapshot").data(&*text)), view))
    })
}
