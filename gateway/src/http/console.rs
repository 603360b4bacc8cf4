//! The console: a page at `/`, and what it reads.
//!
//! | path | for |
//! |---|---|
//! | `/`, `/console/{asset}` | the page, embedded in the binary |
//! | `/v1/console`, `/v1/console/events` | the snapshot, once or every second |
//! | `/v1/console/negotiations/{id}` | the journal of one negotiation |
//!
//! The page holds nothing worth hiding and is served to everybody; what it reads depends on [`ConsoleAccess`] and the
//! token. It changes nothing but the default policy, through `PUT /v1/policies/default` like everybody.

mod assets;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bus::BusError;
use bytes::Bytes;
use futures_util::{Stream, stream};
use schemas::journal::{Journal, JournalRequest};
use schemas::{Code, NegotiationId, Refusal, subject};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::streams::StreamLifetime;
use super::{
    Caller, HttpResult, PathText, PeerConnection, Refused, RouteSpec, Site, bearer, document, identifier, visitors,
};
use crate::auth::Identity;
use crate::config::ConsoleAccess;
use crate::console::{LOOK, Sight};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![
        ("/", &["get"], get(assets::page)),
        ("/console/{asset}", &["get"], get(assets::asset)),
        ("/v1/console", &["get"], get(snapshot)),
        ("/v1/console/events", &["get"], get(events)),
        ("/v1/console/negotiations/{id}", &["get"], get(journal)),
    ]
}

/// How long an engine may take to tell a journal.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Whoever looks at the console.
struct Visitor {
    sight: Sight,
    /// Whether it showed an administrator's token.
    is_admin: bool,
    /// Whose token it showed; absent without a token.
    identity: Option<Arc<Identity>>,
}

impl FromRequestParts<Arc<Site>> for Visitor {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refused> {
        must_be_on(site)?;
        let is_open = site.config.console == ConsoleAccess::Open;
        // A token that is shown must be good, also where none is needed: its bearer would think that it counts.
        let caller = match bearer(&parts.headers)? {
            Some(_) => Some(Caller::from_request_parts(parts, site).await?),
            None if is_open => {
                visitors::check(&parts.headers, &site.config.visitor_hosts)?;
                None
            }
            None => None,
        };
        let is_admin = caller.as_ref().is_some_and(|caller| caller.must_be_admin(site).is_ok());
        let sight = if is_open || is_admin { Sight::All } else { Sight::Totals };
        Ok(Self { sight, is_admin, identity: caller.map(|caller| Arc::new(caller.0)) })
    }
}

impl Visitor {
    /// Refuses whoever may see totals only.
    fn must_see_all(&self) -> Result<(), Refusal> {
        match (self.sight, &self.identity) {
            (Sight::All, _) => Ok(()),
            (Sight::Totals, None) => Err(Refusal::new(Code::Unauthenticated, "an administrator's token is needed")),
            (Sight::Totals, Some(_)) => Err(Refusal::new(Code::Unauthorized, "only an administrator may see this")),
        }
    }
}

/// Refuses everybody where the console is off.
fn must_be_on(site: &Site) -> Result<(), Refusal> {
    if site.config.console == ConsoleAccess::Off {
        return Err(Refusal::new(Code::NotFound, "the console of this gateway is switched off")
            .expecting("a gateway with `console` set to `token` or `open`"));
    }
    Ok(())
}

/// The snapshot, as much of it as the visitor may see.
async fn snapshot(State(site): State<Arc<Site>>, visitor: Visitor) -> HttpResult {
    let text = site.console.snapshot(visitor.sight)?;
    Ok(json(text.to_string()))
}

/// What the engine of its lane remembers of one negotiation; what agents wrote for each other only for administrators.
async fn journal(State(site): State<Arc<Site>>, visitor: Visitor, path: PathText) -> HttpResult {
    visitor.must_see_all()?;
    let negotiation = identifier(path, NegotiationId::try_new)?;
    let _place = site.console.journal_place()?;
    let lane = negotiation.lane(site.lanes);
    let question = serde_json::to_vec(&JournalRequest { negotiation: negotiation.clone() })
        .map_err(|_| Refusal::new(Code::Internal, "the question cannot be written"))?;
    let asked = site.pub_sub.request(subject::journal(lane), None, Bytes::from(question), JOURNAL_TIMEOUT).await;
    let answer = asked.map_err(|error| no_answer(&error))?;
    let found = Journal::decode_answer(&answer)
        .map_err(|_| Refusal::new(Code::Internal, "the engine's answer is not readable"))?;
    let mut journal = found.filter(|journal| journal.negotiation == negotiation).ok_or_else(|| {
        Refusal::new(Code::NotFound, "no engine remembers this negotiation")
            .expecting("one that an engine has served since it owns the lane; older ones stand in the log")
    })?;
    if !visitor.is_admin {
        journal.withhold_texts();
    }
    let mut response = document(&journal)?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn no_answer(error: &BusError) -> Refusal {
    tracing::warn!(%error, "no engine told a journal");
    Refusal::new(Code::Unavailable, "no engine answers for this negotiation now; try again").retry_after_ms(1000)
}

fn json(text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, text).into_response()
}

/// Between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest life of a stream: the page opens the next one by itself, with the token it has then.
const LIFETIME_MAX: Duration = Duration::from_secs(600);

/// Opens the stream: the snapshot as a server-sent event, each second, and as soon as the default policy changes.
async fn events(State(site): State<Arc<Site>>, visitor: Visitor, request: Request) -> HttpResult {
    let place = site.console.stream_place(visitor.is_admin)?;
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let lifetime = visitor.identity.map(|identity| StreamLifetime::new(&site, identity, None));
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
    Ok(Sse::new(event_stream(view)).into_response())
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

fn event_stream(view: ConsoleStream) -> impl Stream<Item = Result<Event, Infallible>> {
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
