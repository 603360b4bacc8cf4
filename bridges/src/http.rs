//! The tools over HTTP, for the bearer of each request: MCP at `/mcp`, and what a client reads before it has a token.

mod participants;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, request};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::future::BoxFuture;
use http_body_util::LengthLimitError;
use rmcp::model::Extensions;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use schemas::validate::BODY_BYTES_MAX;
use schemas::{Code, Refusal};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use participants::{Bearer, BridgeOptions, Participants};

use crate::mcp::{McpServer, Services, strict};
use crate::service::ToolService;

/// Longest wait for the body of a message.
const BODY_MAX: Duration = Duration::from_secs(10);
/// Where MCP is.
const MCP: &str = "/mcp";
/// Where RFC 9728 has the metadata of a protected resource.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// What the routes share.
#[derive(Clone)]
struct BridgeState {
    participants: Arc<Participants>,
    public_url: Arc<str>,
    authorization_server: Option<Arc<str>>,
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

/// The routes of a bridge. Requests end with `stop`.
pub fn router(
    participants: Arc<Participants>,
    address: PublicAddress,
    version: &'static str,
    stop: CancellationToken,
) -> Router {
    let sets = participants.sets().to_vec();
    let hosts = address.hosts.iter().cloned().chain(authority(&address.url).map(ToOwned::to_owned));
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        .with_allowed_hosts(hosts)
        .enforce_origin_validation()
        .with_cancellation_token(stop);
    let (metrics, served) = (participants.metrics().clone(), Arc::clone(&participants));
    let server = move || {
        let services = ServiceOfRequest(Arc::clone(&served));
        Ok(McpServer::new(services, sets.clone(), version).counted(metrics.clone()))
    };
    let mcp = StreamableHttpService::new(server, Arc::new(NeverSessionManager::default()), config);
    let site = BridgeState {
        participants,
        public_url: Arc::from(address.url.trim_end_matches('/')),
        authorization_server: address.authorization_server.map(Arc::from),
    };
    Router::new()
        .route_service(MCP, mcp)
        .layer(from_fn_with_state(site.clone(), authenticated))
        .route(METADATA, get(metadata))
        .route(&format!("{METADATA}{MCP}"), get(metadata))
        .fallback(async || refused(&Refusal::new(Code::NotFound, "this bridge has no such path"), HeaderMap::new()))
        .with_state(site)
}

/// Lets a request with a good token pass, its body read strictly.
async fn authenticated(State(site): State<BridgeState>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        let allowed = HeaderMap::from_iter([(ALLOW, HeaderValue::from_static("POST"))]);
        return refused(&Refusal::new(Code::MethodNotAllowed, "only POST is offered here"), allowed);
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
    match strict(&body) {
        Ok(body) => {
            parts.headers.remove(CONTENT_LENGTH);
            parts.extensions.insert(bearer);
            next.run(Request::from_parts(parts, Body::from(Bytes::from(body)))).await
        }
        Err(answer) => (StatusCode::BAD_REQUEST, Json(answer)).into_response(),
    }
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

/// Host and port of an address of the web.
fn authority(url: &str) -> Option<&str> {
    url.split_once("://")?.1.split('/').next()
}
