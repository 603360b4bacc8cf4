//! A model behind an OpenAI-compatible endpoint: one POST.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response};

use super::answer::{BODY_BYTES_MAX, read_response};
use super::config::ModelConfig;
use super::{Completion, CompletionError, CompletionRequest, Model};
use crate::control::{self, cause};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What limits an answer, as endpoints have it, and as OpenAI's models have it that think first: they refuse the other.
const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];
/// Says to the endpoint the how manieth call of a question this is, 0 first.
pub const RETRY_HEADER: &str = "x-retry-count";

/// An endpoint. The key goes to its address and nowhere else: redirects are not followed, no proxy is used, and neither
/// `Debug` nor an error shows it.
#[derive(Clone)]
pub struct HttpModel {
    client: Client,
    url: Arc<str>,
    name: Arc<str>,
    timeout: Duration,
    authorization: Option<HeaderValue>,
    /// Whether it takes the second of [`LIMITS`].
    is_second_limit: Arc<AtomicBool>,
}

/// An endpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HttpModelError {
    /// No HTTP client can be made (no certificates for `https`).
    #[error("no HTTP client: {0}")]
    Client(String),
    /// The key is none that a header can hold; it is not shown.
    #[error("the key has characters that no header may hold; see that the variable holds the key alone")]
    Key,
}

impl HttpModel {
    /// The endpoint of a configuration, with the key its `key_env` names, where there is one.
    ///
    /// # Errors
    /// [`HttpModelError`].
    pub fn try_new(config: &ModelConfig, key: Option<&str>) -> Result<Self, HttpModelError> {
        let client =
            control::direct(&config.url, CONNECT_TIMEOUT).map_err(|error| HttpModelError::Client(error.to_string()))?;
        let header = |key: &str| {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(|_| HttpModelError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        };
        let authorization = key.filter(|key| !key.trim().is_empty()).map(header).transpose()?;
        let url = format!("{}/chat/completions", config.url.trim_end_matches('/')).into();
        let timeout = Duration::from_millis(config.timeout_ms);
        let name = config.name.as_str().into();
        Ok(Self { client, url, name, timeout, authorization, is_second_limit: Arc::default() })
    }
}

impl fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_key = self.authorization.is_some();
        f.debug_struct("HttpModel")
            .field("url", &self.url)
            .field("name", &self.name)
            .field("has_key", &has_key)
            .finish()
    }
}

/// What an endpoint has sent.
struct Answered {
    status: u16,
    retry_after_ms: Option<u64>,
    body: Result<Vec<u8>, CompletionError>,
}

impl HttpModel {
    async fn post(&self, request: &CompletionRequest, limit: &str) -> Result<Answered, CompletionError> {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers.insert(RETRY_HEADER, request.retry.into());
        let post = self.client.post(&*self.url).headers(headers).body(request.to_body(&self.name, limit));
        let response = post.timeout(self.timeout).send().await.map_err(lost)?;
        let (status, retry_after_ms) = (response.status().as_u16(), retry_after_ms(response.headers()));
        Ok(Answered { status, retry_after_ms, body: body(response).await })
    }
}

impl Answered {
    /// Whether the endpoint wants the answer limited by this member.
    fn asks_for(&self, limit: &str) -> bool {
        let Ok(body) = &self.body else { return false };
        self.status == 400 && body.windows(limit.len()).any(|part| part == limit.as_bytes())
    }
}

impl Model for HttpModel {
    fn complete(&self, request: CompletionRequest) -> BoxFuture<'static, Result<Completion, CompletionError>> {
        let model = self.clone();
        async move {
            let [first, second] = LIMITS;
            let is_second = model.is_second_limit.load(Ordering::Relaxed);
            let mut answered = model.post(&request, if is_second { second } else { first }).await?;
            if !is_second && answered.asks_for(second) {
                model.is_second_limit.store(true, Ordering::Relaxed);
                answered = model.post(&request, second).await?;
            }
            read_response(answered.status, answered.retry_after_ms, request.form, answered.body)
        }
        .boxed()
    }
}

/// The wait an endpoint asks for: in milliseconds as OpenAI says it, or in seconds. A date counts as none.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| number("retry-after"))?;
    let wait = Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(wait.as_micros().div_ceil(1000)).ok()
}

async fn body(response: Response) -> Result<Vec<u8>, CompletionError> {
    let announced = response.content_length().unwrap_or(0);
    if announced > BODY_BYTES_MAX as u64 {
        return Err(CompletionError::TooLarge);
    }
    let (body, is_whole) = control::body(response, BODY_BYTES_MAX).await;
    if is_whole.map_err(lost)? { Ok(body) } else { Err(CompletionError::TooLarge) }
}

#[allow(clippy::needless_pass_by_value, reason = "the signature `map_err` wants")]
fn lost(error: reqwest::Error) -> CompletionError {
    // A connection that takes too long is none either.
    if error.is_connect() {
        return CompletionError::NotConnected(cause(&error));
    }
    if error.is_timeout() {
        return CompletionError::TimedOut;
    }
    CompletionError::Unreachable("the connection was lost".to_owned())
}

#[cfg(test)]
mod tests;
