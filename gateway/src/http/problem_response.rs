//! Answers. [`Refused`] is the one place where a code becomes an HTTP response.

use std::any::Any;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::{Code, Refusal};
use serde::Serialize;

use crate::problem::{MEDIA_TYPE, Problem};

/// A refusal on its way out (RFC 9457).
#[derive(Debug, Clone)]
pub(crate) struct Refused(pub(crate) Refusal);

/// What handlers return.
pub(crate) type HttpResult = Result<Response, Refused>;

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
        // What arrived too late, or not whole, leaves the connection in no known state.
        if matches!(refusal.code, Code::RequestTimeout | Code::TooLarge) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// A document as an answer.
pub(crate) fn document<T: Serialize>(document: &T) -> HttpResult {
    Ok(Json(document).into_response())
}

/// The answer when a handler panicked: a fault of ours, told as such, and the connection lives on.
pub(crate) fn panicked(payload: Box<dyn Any + Send + 'static>) -> Response {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = text, "a request handler panicked");
    Refused(Refusal::new(Code::Internal, "a fault of the exchange; it has been recorded")).into_response()
}
