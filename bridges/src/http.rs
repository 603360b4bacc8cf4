//! The bridge over HTTP, for the bearer of each request: MCP at `/mcp`, A2A at `/a2a`, and what a client reads before it has a
//! token.

mod participants;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::header::{
    ALLOW, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, request};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::future::BoxFuture;
use http_body_util::LengthLimitError;
use reqwest::Url;
use rmcp::model::Extensions;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use schemas::validate::BODY_BYTES_MAX;
use schemas::{Code, Refusal};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use participants::{Bearer, BridgeOptions, Participants};

use crate::a2a::card::{self, Card};
use crate::a2a::{self, request as a2a_request};
use crate::mcp::{McpServer, Services, strict};
use crate::metrics::ForeignProtocol;
use crate::records::{RecordKey, RecordsError};
use crate::service::ToolService;

/// Longest wait for the body of a message.
const BODY_MAX: Duration = Duration::from_secs(10);
/// Where MCP is.
const MCP: &str = "/mcp";
/// Where A2A is; some clients put a slash behind it.
const A2A: [&str; 2] = ["/a2a", "/a2a/"];
/// Where RFC 9728 has the metadata of a protected resource.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// What the routes share.
#[derive(Clone)]
struct BridgeState {
    participants: Arc<Participants>,
    public_url: Arc<str>,
    authorization_server: Option<Arc<str>>,
    text_to: Arc<[String]>,
    names: Arc<AllowedHosts>,
}

/// Under which names a bridge may be asked. A page of others that a browser resolves to its address is refused (DNS rebinding).
struct AllowedHosts {
    hosts: Vec<Authority>,
    public: Option<Url>,
}

/// Where a bridge is found, and by whom its users are known.
#[derive(Debug, Clone)]
pub struct PublicAddress {
    /// The address clients use, without a path, for example `https://exchange.example`.
    pub url: String,
    /// Further names it is asked under, such as the address it listens on.
    pub hosts: Vec<String>,
    /// The authorization server that issues tokens, where there is one.
    pub authorization_server: Option<String>,
    /// Signs the agent card, where there is one.
    pub card_key: Option<RecordKey>,
    /// Recipients of a call over A2A that is a text alone; none: such a call is refused.
    pub text_to: Vec<String>,
}

/// The services of the bearers that [`authenticated`] has put into requests.
struct ServiceOfRequest(Arc<Participants>);

impl Services for ServiceOfRequest {
    fn service(&self, extensions: &Extensions) -> BoxFuture<'_, Result<Arc<ToolService>, Refusal>> {
        let bearer = extensions.get::<request::Parts>().and_then(|parts| parts.extensions.get::<Bearer>()).cloned();
        Box::pin(async move {
            let bearer = bearer.ok_or_else(|| Refusal::new(Code::Unauthenticated, "no token"))?;
            self.0.service_of(&bearer)
        })
    }
}

/// The routes of a bridge. Requests of MCP end with `stop`, streams of A2A with their participant.
///
/// # Errors
/// [`RecordsError`] when the agent card cannot be signed.
pub fn router(
    participants: Arc<Participants>,
    address: PublicAddress,
    version: &'static str,
    stop: CancellationToken,
) -> Result<Router, RecordsError> {
    let sets = participants.sets().to_vec();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        .disable_allowed_hosts()
        .with_cancellation_token(stop);
    let (metrics, served) = (participants.metrics().clone(), Arc::clone(&participants));
    let server = move || {
        let services = ServiceOfRequest(Arc::clone(&served));
        Ok(McpServer::new(services, sets.clone(), version).counted(metrics.clone()))
    };
    let mcp = StreamableHttpService::new(server, Arc::new(NeverSessionManager::default()), config);
    let url = address.url.trim_end_matches('/');
    let card = Card::try_new(url, version, address.authorization_server.as_deref(), address.card_key.as_ref())?;
    let site = BridgeState {
        participants,
        public_url: Arc::from(url),
        authorization_server: address.authorization_server.map(Arc::from),
        text_to: address.text_to.into(),
        names: Arc::new(AllowedHosts {
            hosts: address.hosts.iter().filter_map(|host| host.parse().ok()).collect(),
            public: Url::parse(url).ok(),
        }),
    };
    let routes = Router::new()
        .route_service(MCP, mcp)
        .layer(from_fn(strictly))
        .route(A2A[0], post(tasks))
        .route(A2A[1], post(tasks))
        .layer(from_fn_with_state(site.clone(), authenticated))
        .route(card::PATH, get(card::show).with_state(card))
        .route(METADATA, get(metadata))
        .route(&format!("{METADATA}{MCP}"), get(metadata))
        .fallback(async || refused(&Refusal::new(Code::NotFound, "this bridge has no such path"), HeaderMap::new()))
        .with_state(site);
    Ok(routes)
}

/// Lets a request with a good token pass, its body read.
async fn authenticated(State(site): State<BridgeState>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        let allowed = HeaderMap::from_iter([(ALLOW, HeaderValue::from_static("POST"))]);
        return refused(&Refusal::new(Code::MethodNotAllowed, "only POST is offered here"), allowed);
    }
    if request.headers().contains_key(CONTENT_ENCODING) {
        let refusal = Refusal::new(Code::UnsupportedMediaType, "a body is expected as it is, not compressed");
        return refused(&refusal, HeaderMap::new());
    }
    if !site.names.hold(&request) {
        let detail = "`Host` or `Origin` is another's: --public-url says under which name this bridge is asked";
        return refused(&Refusal::new(Code::Unauthorized, detail), HeaderMap::new());
    }
    let bearer = match token(request.headers()) {
        Ok(token) => site.participants.bearer(token).await,
        Err(refusal) => Err(refusal),
    };
    let bearer = match bearer {
        Ok(bearer) => bearer,
        Err(refusal) => return refused(&refusal, site.challenge(request.headers(), &refusal)),
    };
    let (mut parts, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_MAX, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return refused(&body_fault(&error), HeaderMap::new()),
        Err(_) => {
            let refusal = Refusal::new(Code::RequestTimeout, "the body did not come in time");
            return refused(&refusal, HeaderMap::new());
        }
    };
    parts.extensions.insert(bearer);
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// Lets a message of MCP pass that is read strictly, written anew.
async fn strictly(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => return refused(&body_fault(&error), HeaderMap::new()),
    };
    match strict(&body) {
        Ok(body) => {
            parts.headers.remove(CONTENT_LENGTH);
            next.run(Request::from_parts(parts, Body::from(body))).await
        }
        Err(answer) => (StatusCode::BAD_REQUEST, Json(answer)).into_response(),
    }
}

/// Answers a request of A2A.
async fn tasks(
    State(site): State<BridgeState>,
    Extension(bearer): Extension<Bearer>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let started = Instant::now();
    let request = match a2a_request::read(&headers, &body) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    let (id, method) = (request.id.clone(), request.method);
    let answer = a2a::answer(|| site.participants.service_of(&bearer), request, &site.text_to).await;
    site.participants.metrics().called(ForeignProtocol::A2a, method, answer.is_ok(), started.elapsed());
    let answer = answer.or_else(|fault| a2a_request::refused(id, fault));
    let mut response = answer.unwrap_or_else(|refusal| refused(&refusal, site.challenge(&headers, &refusal)));
    response.headers_mut().insert("a2a-extensions", HeaderValue::from_static(card::EXTENSION));
    response
}

/// The one bearer token of a request.
fn token(headers: &HeaderMap) -> Result<&str, Refusal> {
    let expected = || Refusal::new(Code::Unauthenticated, "one bearer token is expected");
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(one), None) = (given.next(), given.next()) else { return Err(expected()) };
    let (scheme, token) = one.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(expected)?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() { Ok(token) } else { Err(expected()) }
}

fn body_fault(error: &axum::Error) -> Refusal {
    let is_too_large = std::error::Error::source(error).is_some_and(|source| source.is::<LengthLimitError>());
    if is_too_large {
        return Refusal::new(Code::TooLarge, format!("a message has at most {BODY_BYTES_MAX} bytes"));
    }
    Refusal::new(Code::MalformedRequest, "the body has not come whole")
}

impl BridgeState {
    /// Where a client without a good token reads how to get one.
    fn challenge(&self, request: &HeaderMap, refusal: &Refusal) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if refusal.code.http_status() == 401 {
            let fault = if request.contains_key(AUTHORIZATION) { "error=\"invalid_token\", " } else { "" };
            let challenge = format!("Bearer {fault}resource_metadata=\"{}{METADATA}{MCP}\"", self.public_url);
            headers.extend(HeaderValue::from_str(&challenge).ok().map(|value| (WWW_AUTHENTICATE, value)));
        }
        headers
    }
}

/// Metadata of this resource (RFC 9728).
async fn metadata(State(site): State<BridgeState>) -> Json<Value> {
    let mut document = json!({"resource": format!("{}{MCP}", site.public_url), "bearer_methods_supported": ["header"]});
    if let Some(server) = &site.authorization_server {
        document["authorization_servers"] = json!([server]);
    }
    Json(document)
}

/// A refusal as a problem document (RFC 9457).
fn refused(refusal: &Refusal, mut headers: HeaderMap) -> Response {
    let status = StatusCode::from_u16(refusal.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut document = json!(refusal);
    document["status"] = json!(status.as_u16());
    document["type"] = json!(format!("urn:llmx:problem:{}", refusal.code));
    document["title"] = json!(status.canonical_reason());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(wait) = refusal.retry_after_ms {
        let seconds = Duration::from_millis(wait).as_secs_f64().ceil();
        headers.extend(HeaderValue::from_str(&format!("{seconds}")).ok().map(|value| (RETRY_AFTER, value)));
    }
    (status, headers, document.to_string()).into_response()
}

impl AllowedHosts {
    /// Whether a request is for this bridge, and of one of its own pages where a page has sent it.
    fn hold(&self, request: &Request) -> bool {
        let headers = request.headers();
        let host = headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let host = host.or_else(|| request.uri().authority().cloned());
        let public = self.public.as_ref().and_then(Url::host_str);
        let is_public = |host: &Authority| public.is_some_and(|name| name.eq_ignore_ascii_case(host.host()));
        let is_asked = host.is_some_and(|host| self.is_listed(&host) || is_public(&host));
        is_asked && headers.get_all(ORIGIN).iter().all(|origin| self.holds_page(origin))
    }

    fn is_listed(&self, host: &Authority) -> bool {
        let is_same = |own: &Authority| own.host().eq_ignore_ascii_case(host.host());
        self.hosts.iter().any(|own| is_same(own) && own.port_u16().is_none_or(|port| host.port_u16() == Some(port)))
    }

    fn holds_page(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok());
        let is_public = |origin: &Url| self.public.as_ref().is_some_and(|public| public.origin() == origin.origin());
        let is_listed = |origin: &Url| origin.authority().parse().is_ok_and(|host| self.is_listed(&host));
        origin.is_some_and(|origin| is_public(&origin) || origin.scheme() == "http" && is_listed(&origin))
    }
}
