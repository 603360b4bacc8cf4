//! `GET /v1/console/events`: the snapshot as a server-sent event, each second, and as soon as the default policy changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, Sse};
use futures_util::{Stream, stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::super::Site;
use super::super::problem_response::HttpResult;
use super::super::request::PeerConnection;
use super::super::stream_lifetime::StreamLifetime;
use super::Visitor;
use crate::console::{LOOK, Sight};

/// Between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest life of a stream: the page opens the next one by itself, with the token it has then.
const LIFETIME_MAX: Duration = Duration::from_secs(600);

/// Opens the stream.
pub(in super::super) async fn open(State(site): State<Arc<Site>>, visitor: Visitor, request: Request) -> HttpResult {
    let place = site.console.stream_place(visitor.is_admin)?;
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let lifetime = visitor.identity.map(|identity| StreamLifetime::ended_by(&site, identity, CancellationToken::new()));
    let view = ConsoleStream {
        lifetime,
        site,
        sight: visitor.sight,
        looks,
        due: Instant::now(),
        default_policy: String::new(),
        ends: Instant::now() + LIFETIME_MAX,
        _place: place,
        _connection: request.extensions().get::<PeerConnection>().cloned(),
    };
    Ok(Sse::new(events(view)).into_response())
}

/// One open stream. Dropped when the visitor goes, or when it ends by itself.
struct ConsoleStream {
    site: Arc<Site>,
    /// Absent for a visitor without a token.
    lifetime: Option<StreamLifetime>,
    sight: Sight,
    looks: Interval,
    /// When the next snapshot is due, if nothing changes before.
    due: Instant,
    /// The default policy of the last snapshot.
    default_policy: String,
    ends: Instant,
    _place: OwnedSemaphorePermit,
    _connection: Option<PeerConnection>,
}

fn events(view: ConsoleStream) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(view, |mut view| async move {
        loop {
            tokio::select! {
                biased;
                () = view.site.stop.cancelled() => return None,
                () = tokio::time::sleep_until(view.ends) => return None,
                _ = over(view.lifetime.as_mut()) => return None,
                _ = view.looks.tick() => {}
            }
            let default_policy = view.site.console.default_policy();
            if Instant::now() >= view.due || default_policy != view.default_policy {
                view.default_policy = default_policy;
                // Half a look early: due at the look that ends the second, not the one after.
                view.due = Instant::now() + PERIOD - LOOK / 2;
                break;
            }
        }
        let text = view.site.console.snapshot(view.sight).ok()?;
        Some((Ok(Event::default().event("snapshot").data(&*text)), view))
    })
}

/// Waits for the end of a visitor's token; for ever without one.
async fn over(lifetime: Option<&mut StreamLifetime>) {
    match lifetime {
        Some(lifetime) => {
            lifetime.over().await;
        }
        None => std::future::pending().await,
    }
}
