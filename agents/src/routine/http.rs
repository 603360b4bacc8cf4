//! A service of the contractor's own as a routine: one POST of the request's text, answered with the result's.
//!
//! The service is chosen by the contractor's owner and may be anywhere, this machine included. Redirects are not followed
//! and no proxy is used, so a request goes where the owner said and nowhere else.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use schemas::document::RoutineKind;

use super::{RESULT_CHARS_MAX, Routine, RoutineFault, RoutineRequest};
use crate::control::{body, direct};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer: every character of the longest result can have four.
pub const BODY_BYTES_MAX: usize = 4 * RESULT_CHARS_MAX;
/// Says to the service under which document the request is.
pub const DOCUMENT_HEADER: &str = "x-protocol-document";
/// Says to the service to which negotiation the request belongs: the same award is asked for once, but a connection that is
/// lost leaves its outcome open.
pub const NEGOTIATION_HEADER: &str = "x-negotiation";

/// A service at an address of the owner's choice, which is asked by POST and answers with a text.
#[derive(Clone)]
pub struct HttpService {
    client: Client,
    url: Url,
}

/// A service that carries requests out.
#[derive(Debug, Clone)]
pub struct HttpRoutine {
    service: HttpService,
}

/// A service that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HttpRoutineError {
    /// The address is no URL of HTTP, or holds a user or password.
    #[error("`{0}` is no address of a service: an http:// or https:// URL without user and password is expected")]
    Url(String),
    /// No HTTP client can be made (no certificates for `https`).
    #[error("no HTTP client: {0}")]
    Client(String),
}

impl HttpService {
    /// The service at this URL.
    ///
    /// # Errors
    /// [`HttpRoutineError`].
    pub fn try_new(url: &str) -> Result<Self, HttpRoutineError> {
        let fault = || HttpRoutineError::Url(url.to_owned());
        let url = Url::parse(url).map_err(|_| fault())?;
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        if !matches!(url.scheme(), "http" | "https") || has_credentials {
            return Err(fault());
        }
        let client =
            direct(url.as_str(), CONNECT_TIMEOUT).map_err(|error| HttpRoutineError::Client(error.to_string()))?;
        Ok(Self { client, url })
    }

    /// Posts a body; the answer is a text of at most [`BODY_BYTES_MAX`] bytes. Whoever waits limits the time.
    ///
    /// # Errors
    /// [`RoutineFault`], also for every status but 200.
    pub fn post(&self, headers: HeaderMap, body: String) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let post = self.client.post(self.url.clone()).headers(headers).body(body);
        async move { read(post.send().await.map_err(lost)?).await }.boxed()
    }
}

impl HttpRoutine {
    /// The service at this URL.
    ///
    /// # Errors
    /// [`HttpRoutineError`].
    pub fn try_new(url: &str) -> Result<Self, HttpRoutineError> {
        HttpService::try_new(url).map(|service| Self { service })
    }
}

impl Routine for HttpRoutine {
    fn kind(&self) -> RoutineKind {
        RoutineKind::Http
    }

    fn run(&self, request: RoutineRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let document = request.document.map(|document| document.to_string());
        for (name, value) in
            [(DOCUMENT_HEADER, document), (NEGOTIATION_HEADER, Some(request.negotiation.as_str().to_owned()))]
        {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(name, value);
            }
        }
        self.service.post(headers, request.text)
    }
}

async fn read(response: Response) -> Result<String, RoutineFault> {
    if response.status() != StatusCode::OK {
        return Err(RoutineFault::Unavailable(format!("the service answers {}", response.status().as_u16())));
    }
    let (body, is_whole) = body(response, BODY_BYTES_MAX).await;
    if !is_whole.map_err(lost)? {
        return Err(RoutineFault::TooLong);
    }
    String::from_utf8(body).map_err(|_| RoutineFault::Unreadable)
}

#[allow(clippy::needless_pass_by_value, reason = "the signature `map_err` wants")]
fn lost(error: reqwest::Error) -> RoutineFault {
    let kind = if error.is_connect() { "cannot connect" } else { "the connection was lost" };
    RoutineFault::Unavailable(kind.to_owned())
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
