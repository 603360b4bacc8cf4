//! What a request says: who calls, and which body came.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use schemas::ids::IdError;
use schemas::validate::BODY_BYTES_MAX;
use schemas::{AgentId, Code, Refusal};
use tokio::sync::OwnedSemaphorePermit;

use super::problem_response::Refused;
use super::{Bearer, Site};
use crate::auth::Identity;

/// The connection a request came on.
#[derive(Clone)]
pub(crate) struct PeerConnection {
    /// The peer's address.
    pub(crate) peer: IpAddr,
    /// Its place among the bounded number of connections; a stream keeps it after the upgrade.
    pub(crate) _place: Arc<OwnedSemaphorePermit>,
}

/// The verified and charged bearer of the request's token.
pub(crate) struct Caller(pub(crate) Identity);

impl FromRequestParts<Arc<Site>> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refused> {
        let token = bearer(&parts.headers)?;
        let peer = parts.extensions.get::<PeerConnection>().map(|connection| connection.peer);
        let identity = site.admission.identify(token, peer).await?;
        if let Some(Bearer(bearer)) = parts.extensions.get() {
            // Only one token is read per request: nobody has set it before.
            let _ = bearer.set(identity.agent.clone());
        }
        Ok(Self(identity))
    }
}

impl Caller {
    /// Refuses callers other than the agent itself.
    ///
    /// # Errors
    /// [`Code::Unauthorized`].
    pub(crate) fn must_be(&self, agent: &AgentId) -> Result<(), Refusal> {
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
    pub(crate) fn must_be_admin(&self, site: &Site) -> Result<(), Refusal> {
        if self.0.is_admin || site.config.admins.contains(&self.0.agent) {
            return Ok(());
        }
        Err(Refusal::new(Code::Unauthorized, "only an administrator may do this").expecting(format!(
            "a token with the scope {} (`llmx token NAME --admin`), or of an agent among `admins`; this one is of {}",
            crate::ADMIN_SCOPE,
            self.0.agent
        )))
    }
}

/// The token of `Authorization: Bearer`, if there is one.
///
/// # Errors
/// [`Code::Unauthenticated`] for two such headers, or another scheme.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
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
pub(crate) struct JsonBody(pub(crate) Bytes);

impl FromRequest<Arc<Site>> for JsonBody {
    type Rejection = Refused;

    async fn from_request(request: Request, site: &Arc<Site>) -> Result<Self, Refused> {
        check_media_type(request.headers())?;
        check_length(request.headers())?;
        let timeout = Duration::from_millis(site.config.limits.client_timeout_ms);
        let read = tokio::time::timeout(timeout, to_bytes(request.into_body(), BODY_BYTES_MAX)).await;
        match read {
            Ok(Ok(bytes)) => Ok(Self(bytes)),
            Ok(Err(error)) if is_too_long(&error) => Err(too_large().into()),
            Ok(Err(_)) => Err(Refusal::new(Code::MalformedJson, "the body ended early or is not framed").into()),
            Err(_) => Err(Refusal::new(Code::RequestTimeout, "the body did not arrive in time")
                .expecting(format!("within {} ms", site.config.limits.client_timeout_ms))
                .into()),
        }
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

fn check_length(headers: &HeaderMap) -> Result<(), Refusal> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > BODY_BYTES_MAX as u64) { Err(too_large()) } else { Ok(()) }
}

fn too_large() -> Refusal {
    Refusal::new(Code::TooLarge, "the body is larger than this gateway reads")
        .expecting(format!("at most {BODY_BYTES_MAX} bytes"))
}

/// Whether reading stopped at the limit, and not for want of the rest.
fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The identifier in a path: one that is not well formed names nothing.
///
/// # Errors
/// [`Code::NotFound`].
pub(crate) fn identifier<T>(
    path: Result<Path<String>, PathRejection>,
    parse: impl Fn(&str) -> Result<T, IdError>,
) -> Result<T, Refusal> {
    let not_found = || Refusal::new(Code::NotFound, "there is nothing under this name");
    parse(&segment(path)?).map_err(|_| not_found())
}

/// The variable part of a path.
///
/// # Errors
/// [`Code::NotFound`] when it is not text.
pub(crate) fn segment(path: Result<Path<String>, PathRejection>) -> Result<String, Refusal> {
    path.map(|Path(text)| text).map_err(|_| Refusal::new(Code::NotFound, "there is nothing under this name"))
}

/// The query of a request.
///
/// # Errors
/// [`Code::BadFormat`].
pub(crate) fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    query
        .map(|Query(value)| value)
        .map_err(|_| Refusal::new(Code::BadFormat, "the query is not readable; see /openapi.json"))
}
