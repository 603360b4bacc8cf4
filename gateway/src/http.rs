//! The HTTP interface: what all routes share. [`Refused`] is the one place where a code becomes an HTTP response, [`Caller`]
//! says who asks, [`JsonBody`] which body came. Each file lists its routes.
//!
//! | file | answers |
//! |---|---|
//! | `server` | connections: timeouts, bounds, upgrades, shutdown |
//! | `messages`, `websocket`, `sse` | messages in, deliveries out, acknowledgements |
//! | `streams` | how many streams an agent has, how long they last, who ends them |
//! | `agents`, `consent`, `groups`, `policies` | the control plane |
//! | `search` | agents by what they say of themselves |
//! | `protocol_documents` | protocol documents, and which an agent supports |
//! | `transactions` | transactions of Agora, as calls to one agent |
//! | `visitors` | which requests may enter without a token |
//! | `negotiations` | what an engine says of one negotiation |
//! | `documents`, `health` | descriptions, readiness, metrics |
//! | `console` | the page for people, and what it reads |

mod agents;
mod consent;
mod console;
mod documents;
mod groups;
mod health;
mod messages;
mod negotiations;
mod policies;
mod protocol_documents;
mod search;
pub mod server;
mod sse;
mod streams;
mod transactions;
mod visitors;
mod websocket;

use std::any::Any;
use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agora::fetch::SourceFetcher;
use agora::registry::DocumentRegistry;
use axum::body::{HttpBody as _, to_bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use axum::{Json, Router};
use bus::health::HealthProbe;
use bus::{Bus, PubSub};
use bytes::Bytes;
use schemas::ids::IdError;
use schemas::validate::BODY_BYTES_MAX;
use schemas::{AgentId, Code, Refusal};
use serde::Serialize;
use telemetry::metrics::ScrapeCache;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;

use self::server::{FairPlace, FairPlaces};

use crate::acknowledgements::Acknowledgements;
use crate::admission::Admission;
use crate::auth::Identity;
use crate::config::{ConsoleAccess, GatewayConfig};
use crate::console::Console;
use crate::conversations::Conversations;
use crate::error::GatewayError;
use crate::metrics::{GatewayMetrics, ShedReason};
use crate::problem::{MEDIA_TYPE, Problem};
use crate::registry::Registry;
use crate::streams::AgentStreams;
use crate::transactions::Transactions;
use crate::{GatewayHandle, Transport, until};

/// What every handler can reach.
struct Site {
    admission: Admission,
    acknowledgements: Acknowledgements,
    registry: Arc<Registry>,
    documents: Arc<DocumentRegistry>,
    pub_sub: Arc<dyn PubSub>,
    health: Arc<HealthProbe>,
    lanes: u8,
    config: Arc<GatewayConfig>,
    metrics: Arc<GatewayMetrics>,
    streams: AgentStreams,
    /// Connections whose requests are under way, by the agents whose they are.
    under_way: FairPlaces<AgentId>,
    transactions: Transactions,
    conversations: Conversations,
    fetcher: SourceFetcher,
    searches: search::Searches,
    scrapes: ScrapeCache,
    console: Arc<Console>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl GatewayHandle {
    /// Serves HTTP where the configuration says so.
    ///
    /// # Errors
    /// [`GatewayError::Listen`], or the bus's.
    pub(crate) async fn serve_http(
        mut self,
        bus: Bus,
        config: GatewayConfig,
        metrics: Arc<GatewayMetrics>,
    ) -> Result<Self, GatewayError> {
        let Some(address) = config.listen else { return Ok(self) };
        let refused = |source| GatewayError::Listen { address, source };
        let listener = server::bind(address).map_err(refused)?;
        self.local_addr = Some(listener.local_addr().map_err(refused)?);
        let client_timeout = Duration::from_millis(config.limits.client_timeout_ms);
        let options = server::ServerOptions {
            trusted_proxies: config.proxies().unwrap_or_default(),
            on_early_refusal: count_early_refusals(metrics.clone()),
            ..server::ServerOptions::new(config.limits.connections_max, client_timeout)
        };
        let health = Arc::new(HealthProbe::new());
        self.health = Some(health.clone());
        let console = Arc::new(Console::new(&config.id, bus.log.lanes(), config.console, self.registry.clone()));
        if config.console != ConsoleAccess::Off {
            self.tasks.spawn(console.clone().drive(bus.pub_sub.clone(), self.stop.clone()));
        }
        let site = Arc::new(Site::new(&self, &bus, config, metrics, health.clone(), console));
        let (documents, stop) = (site.documents.clone(), self.stop.clone());
        self.tasks.spawn(async move { until(&stop, documents.drive()).await });
        let router = router(site);
        let stop = self.stop.clone();
        self.tasks.spawn(async move { until(&stop, health.drive(&bus)).await });
        self.tasks.spawn(server::drive(listener, router, options, self.tasks.clone(), self.stop.clone()));
        Ok(self)
    }
}

impl Site {
    fn new(
        gateway: &GatewayHandle,
        bus: &Bus,
        config: GatewayConfig,
        metrics: Arc<GatewayMetrics>,
        health: Arc<HealthProbe>,
        console: Arc<Console>,
    ) -> Self {
        let fetcher = SourceFetcher::new(config.document_hosts.iter().cloned());
        Self {
            admission: gateway.admission.clone(),
            acknowledgements: gateway.acknowledgements.clone(),
            registry: gateway.registry.clone(),
            documents: Arc::new(DocumentRegistry::new(bus.key_value.clone(), metrics.clone())),
            pub_sub: bus.pub_sub.clone(),
            health,
            lanes: bus.log.lanes(),
            under_way: FairPlaces::new(config.limits.connections_max, AGENT_MULTIPLE),
            config: Arc::new(config),
            metrics,
            streams: gateway.streams.clone(),
            transactions: Transactions::new(
                gateway.streams.clone(),
                gateway.acknowledgements.clone(),
                gateway.tasks.clone(),
                gateway.stop.clone(),
            ),
            conversations: Conversations::default(),
            fetcher,
            searches: search::Searches::default(),
            scrapes: ScrapeCache::default(),
            console,
            stop: gateway.stop.clone(),
            tasks: gateway.tasks.clone(),
        }
    }
}

/// An agent gets as many connections as are left for requests of the others: half of all alone.
const AGENT_MULTIPLE: usize = 1;
/// Where messages are posted; admission records what it refuses itself.
const MESSAGES: &str = "/v1/messages";

/// The HTTP interface (OpenAPI 3.1).
const OPENAPI: &str = include_str!("../openapi.json");
/// The bus and the WebSocket (AsyncAPI 3.0).
const ASYNCAPI: &str = include_str!("../asyncapi.json");

/// One path, the methods it offers, and what answers them.
type RouteSpec = (&'static str, &'static [&'static str], MethodRouter<Arc<Site>>);

/// Every route. The OpenAPI document describes exactly these (a test compares them).
fn routes() -> Vec<RouteSpec> {
    let of_each = [
        console::routes(),
        messages::routes(),
        websocket::routes(),
        sse::routes(),
        agents::routes(),
        search::routes(),
        streams::routes(),
        consent::routes(),
        groups::routes(),
        policies::routes(),
        protocol_documents::routes(),
        transactions::routes(),
        negotiations::routes(),
        health::routes(),
        documents::routes(),
    ];
    of_each.into_iter().flatten().collect()
}

/// Every route's path and methods, for whoever counts requests.
pub(crate) fn paths() -> Vec<(&'static str, &'static [&'static str])> {
    routes().into_iter().map(|(path, methods, _)| (path, methods)).collect()
}

/// The whole interface.
fn router(site: Arc<Site>) -> Router {
    let empty = Router::new();
    let routed = routes().into_iter().fold(empty, |router, (path, _, methods)| router.route(path, methods));
    let routed = routed
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_path)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(site.clone(), observe))
        .with_state(site);
    // Before there is a route to match.
    Router::new().fallback_service(routed.map_request(transactions::without_empty_segments))
}

async fn no_such_method() -> Refused {
    Refused(Refusal::new(Code::MethodNotAllowed, "this path does not offer the method; see /openapi.json"))
}

async fn no_such_path() -> Refused {
    Refused(Refusal::new(Code::NotFound, "there is nothing under this path; see /openapi.json"))
}

/// What is found out about a request while it is handled, for when it is answered.
#[derive(Clone, Default)]
struct Findings(Arc<FoundOut>);

#[derive(Default)]
struct FoundOut {
    /// Whom it comes from: set once its token is verified.
    bearer: OnceLock<AgentId>,
    /// Its place among those under way.
    place: OnceLock<FairPlace<AgentId>>,
    /// Its body has been read to its end.
    is_read: AtomicBool,
}

/// Exactly one Host (RFC 9112 section 3.2). HTTP/1.0 knows none.
fn check_host(request: &Request) -> Result<(), Refusal> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    if hosts == 1 || (hosts == 0 && request.version() == Version::HTTP_10) {
        return Ok(());
    }
    let detail = if hosts == 0 { "the request names no Host" } else { "the request names more than one Host" };
    Err(Refusal::new(Code::MalformedRequest, detail).expecting("exactly one Host header"))
}

/// Counts refusals that come before there is a request to route, for whoever serves the router.
fn count_early_refusals(metrics: Arc<GatewayMetrics>) -> server::OnEarlyRefusal {
    Arc::new(move |code| {
        metrics.http.refused_early(code.http_status());
        if code == Code::Overloaded {
            metrics.messages.shed.of(ShedReason::Connections).inc();
        }
    })
}

/// Counts every request under its route, never under its path, and records every refusal that admission has not.
async fn observe(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map(MatchedPath::as_str);
    let peer = peer(request.extensions());
    let Findings(found) = Findings::default();
    found.is_read.store(request.body().is_end_stream(), Ordering::Relaxed);
    request.extensions_mut().insert(Findings(found.clone()));
    let answering = site.metrics.http.began(route, request.method().as_str());
    let mut response = match check_host(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => Refused(refusal).into_response(),
    };
    // Streams, which have no length yet, are bounded by what is sent to them.
    if let (Some(agent), Some(bytes)) = (found.bearer.get(), response.body().size_hint().exact()) {
        site.admission.charge_answer(agent, usize::try_from(bytes).unwrap_or(usize::MAX), 0);
    }
    if let Some(Refused(refusal)) = response.extensions().get()
        && route != Some(MESSAGES)
    {
        site.admission.audit().refused(Transport::Http, found.bearer.get(), peer, None, None, refusal);
    }
    // What is left of a body would be taken for the next request: the connection ends, and the client is told so
    // (RFC 9112 section 9.6).
    if !found.is_read.load(Ordering::Relaxed) {
        response.headers_mut().entry(header::CONNECTION).or_insert(HeaderValue::from_static("close"));
    }
    site.metrics.http.ended(answering, response.status().as_u16(), began.elapsed());
    response
}

/// The connection a request came on.
#[derive(Clone)]
struct PeerConnection {
    /// The peer's address.
    peer: IpAddr,
    /// Its place among the bounded number of connections; a stream keeps it after the upgrade.
    _place: Arc<FairPlace<IpAddr>>,
}

/// Where a request comes from.
fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<PeerConnection>().map(|connection| connection.peer)
}

/// The verified and charged bearer of the request's token.
struct Caller(Identity);

impl FromRequestParts<Arc<Site>> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refused> {
        let token = bearer(&parts.headers)?;
        let found = parts.extensions.get().map(|Findings(found)| Arc::clone(found));
        // Only one token is read per request: nobody has set it before.
        let tell = |agent: &AgentId| _ = found.as_ref().map(|found| found.bearer.set(agent.clone()));
        let identity = site.admission.identify(token, peer(&parts.extensions), tell).await?;
        if let Some(found) = &found {
            let place = site.under_way.take(identity.agent.clone()).ok_or_else(|| too_many_under_way(site))?;
            let _ = found.place.set(place);
        }
        Ok(Self(identity))
    }
}

fn too_many_under_way(site: &Site) -> Refusal {
    site.metrics.messages.shed.of(ShedReason::Requests).inc();
    Refusal::new(Code::RateLimited, "this agent has too many requests under way")
        .expecting("no more than there is room for besides, of `connections_max`; wait for an answer")
        .retry_after_ms(1000)
}

impl Caller {
    /// Refuses callers other than the agent itself.
    ///
    /// # Errors
    /// [`Code::Unauthorized`].
    fn must_be(&self, agent: &AgentId) -> Result<(), Refusal> {
        if self.0.agent == *agent {
            return Ok(());
        }
        Err(Refusal::new(Code::Unauthorized, "only the agent itself may do this")
            .expecting(format!("a token of {agent}; this one is of {}", self.0.agent)))
    }

    /// Refuses callers that may not put policies and groups.
    ///
    /// # Errors
    /// [`Code::Unauthorized`].
    fn must_be_admin(&self, site: &Site) -> Result<(), Refusal> {
        if self.is_admin(site) {
            return Ok(());
        }
        Err(Refusal::new(Code::Unauthorized, "only an administrator may do this").expecting(format!(
            "a token with the scope {} (`llmx token NAME --admin`), or of an agent among `admins`; this one is of {}",
            crate::ADMIN_SCOPE,
            self.0.agent
        )))
    }

    /// Whether the bearer administers the exchange.
    fn is_admin(&self, site: &Site) -> bool {
        self.0.is_admin || site.config.admins.contains(&self.0.agent)
    }
}

/// The token of `Authorization: Bearer`, if there is one.
///
/// # Errors
/// [`Code::Unauthenticated`] for two such headers, or another scheme.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let token = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match (token, values.next()) {
        (Some((_, token)), None) => Ok(Some(token)),
        (_, _) => Err(Refusal::new(Code::Unauthenticated, "the Authorization header is not one bearer token")
            .expecting("Authorization: Bearer <token>")),
    }
}

/// A JSON body within the limits; not yet parsed.
struct JsonBody(Bytes);

impl FromRequest<Arc<Site>> for JsonBody {
    type Rejection = Refused;

    async fn from_request(request: Request, site: &Arc<Site>) -> Result<Self, Refused> {
        json_body(request, site, BODY_BYTES_MAX).await.map(Self)
    }
}

/// A JSON body of at most this many bytes; not yet parsed.
///
/// # Errors
/// [`Code::UnsupportedMediaType`], [`Code::TooLarge`], [`Code::MalformedJson`], [`Code::RequestTimeout`].
async fn json_body(request: Request, site: &Site, bytes_max: usize) -> Result<Bytes, Refused> {
    check_media_type(request.headers())?;
    check_length(request.headers(), bytes_max)?;
    let timeout = Duration::from_millis(site.config.limits.client_timeout_ms);
    let findings = request.extensions().get::<Findings>().cloned();
    let read = tokio::time::timeout(timeout, to_bytes(request.into_body(), bytes_max)).await;
    match read {
        Ok(Ok(bytes)) => {
            if let Some(Findings(found)) = findings {
                found.is_read.store(true, Ordering::Relaxed);
            }
            Ok(bytes)
        }
        Ok(Err(error)) if is_too_long(&error) => Err(too_large(bytes_max).into()),
        Ok(Err(_)) => Err(Refusal::new(Code::MalformedJson, "the body ended early or is not framed").into()),
        Err(_) => Err(Refusal::new(Code::RequestTimeout, "the body did not arrive in time")
            .expecting(format!("within {} ms", site.config.limits.client_timeout_ms))
            .into()),
    }
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |detail: &str| {
        Err(Refusal::new(Code::UnsupportedMediaType, detail)
            .expecting("Content-Type: application/json, without Content-Encoding"))
    };
    if headers.contains_key(header::CONTENT_ENCODING) {
        return refuse("a compressed body is not read");
    }
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return refuse("the body must be declared once");
    };
    let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
    let (essence, parameters) = text.split_once(';').map_or((text.as_str(), ""), |(essence, rest)| (essence, rest));
    let is_utf8 = matches!(parameters.trim(), "" | "charset=utf-8" | "charset=\"utf-8\"");
    if essence.trim() == "application/json" && is_utf8 { Ok(()) } else { refuse("the body is not declared as JSON") }
}

fn check_length(headers: &HeaderMap, bytes_max: usize) -> Result<(), Refusal> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > bytes_max as u64) { Err(too_large(bytes_max)) } else { Ok(()) }
}

fn too_large(bytes_max: usize) -> Refusal {
    Refusal::new(Code::TooLarge, "the body is larger than this gateway reads")
        .expecting(format!("at most {bytes_max} bytes"))
}

/// Whether reading stopped at the limit, and not for want of the rest.
fn is_too_long(error: &axum::Error) -> bool {
    causes(error).any(|cause| cause.is::<http_body_util::LengthLimitError>())
}

/// An error, and what caused it in turn.
fn causes(error: &axum::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(Some(error as &(dyn Error + 'static)), |&cause| cause.source())
}

/// The variable part of a path, unless it is not text.
type PathText<T = String> = Result<Path<T>, PathRejection>;
/// The query of a request, unless it is not readable.
type QueryOf<T> = Result<Query<T>, QueryRejection>;

/// The identifier in a path: one that is not well formed names nothing.
///
/// # Errors
/// [`Code::NotFound`].
fn identifier<T>(path: PathText, parse: impl Fn(&str) -> Result<T, IdError>) -> Result<T, Refusal> {
    let not_found = || Refusal::new(Code::NotFound, "there is nothing under this name");
    parse(&segment(path)?).map_err(|_| not_found())
}

/// The variable part of a path.
///
/// # Errors
/// [`Code::NotFound`] when it is not text.
fn segment(path: PathText) -> Result<String, Refusal> {
    path.map(|Path(text)| text).map_err(|_| Refusal::new(Code::NotFound, "there is nothing under this name"))
}

/// The query of a request.
///
/// # Errors
/// [`Code::BadFormat`].
fn query<T>(query: QueryOf<T>) -> Result<T, Refusal> {
    query
        .map(|Query(value)| value)
        .map_err(|_| Refusal::new(Code::BadFormat, "the query is not readable; see /openapi.json"))
}

/// A refusal on its way out (RFC 9457).
#[derive(Debug, Clone)]
struct Refused(Refusal);

/// What handlers return.
type HttpResult = Result<Response, Refused>;

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let refusal = &self.0;
        let status = StatusCode::from_u16(refusal.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(Problem::from(refusal))).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(ms) = refusal.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).max(1)));
        }
        if refusal.code == Code::UpgradeRequired {
            // RFC 9110 section 15.5.22, RFC 6455 section 4.4: what the client has to ask for instead.
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// A document as an answer.
fn document<T: Serialize>(document: &T) -> HttpResult {
    Ok(Json(document).into_response())
}

/// A document that was stored as an answer: 201 where it is new.
fn stored<T: Serialize>(is_new: bool, stored: &T) -> HttpResult {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, document(stored)?).into_response())
}

/// The answer when a handler panicked: a fault of ours, told as such, and the connection lives on.
fn panicked(payload: Box<dyn Any + Send + 'static>) -> Response {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = text, "a request handler panicked");
    Refused(Refusal::new(Code::Internal, "a fault of the exchange; it has been recorded")).into_response()
}

#[cfg(test)]
mod tests;
