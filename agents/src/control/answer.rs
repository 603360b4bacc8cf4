//! Answers of a gateway, or of whatever else stands at its address: bounded, and from there only.

use std::time::Duration;

use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use schemas::Refusal;
use schemas::text::is_loopback;
use serde::de::DeserializeOwned;

use super::ControlError;

/// Most bytes of a document that are read: several times a page of the longest registrations, or a negotiation's offers.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// Characters of an unexpected body that are kept.
const BODY_CHARS_MAX: usize = 500;

/// A client of these addresses that stays where it is sent. Where all are this machine's own, no proxy that the environment
/// names stands before them.
///
/// # Errors
/// The library's, for want of what TLS needs.
pub fn client<'a>(timeout: Duration, urls: impl IntoIterator<Item = &'a str>) -> reqwest::Result<Client> {
    let builder = Client::builder().timeout(timeout).redirect(Policy::none());
    let builder = if urls.into_iter().all(is_own) { builder.no_proxy() } else { builder };
    builder.build()
}

/// A client of this address alone: it goes through no proxy, and no redirect takes a token elsewhere.
///
/// # Errors
/// The library's, for want of what TLS needs.
pub(crate) fn direct(url: &str, connect_timeout: Duration) -> reqwest::Result<Client> {
    let builder = Client::builder().connect_timeout(connect_timeout).redirect(Policy::none()).no_proxy();
    // Without TLS no certificates are needed, and a machine without any must not fail.
    let builder = if url.starts_with("https://") { builder } else { builder.tls_certs_only([]) };
    builder.build()
}

fn is_own(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(is_loopback))
}

/// The variable of the environment that names a proxy for this address, unless `NO_PROXY` excepts it.
pub fn proxy_variable(url: &str, variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let of_scheme = match url.split_once("://") {
        Some(("http", _)) => ["http_proxy", "HTTP_PROXY"],
        Some(("https", _)) => ["https_proxy", "HTTPS_PROXY"],
        Some(_) | None => return None,
    };
    let mut names = of_scheme.into_iter().chain(["all_proxy", "ALL_PROXY"]);
    names.find(|name| !is_own(url) && variable(name).is_some_and(|proxy| !proxy.is_empty()))
}

/// An answer that grants what was asked.
///
/// # Errors
/// What it says instead.
pub(super) async fn accepted(response: Response) -> Result<Response, ControlError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    if let Some(location) = response.headers().get(LOCATION).filter(|_| status.is_redirection()) {
        let location = shortened(&String::from_utf8_lossy(location.as_bytes()));
        return Err(ControlError::Redirected { url: url(&response), status: status.as_u16(), location });
    }
    let (body, is_whole) = body(response, REFUSAL_BYTES_MAX).await;
    is_whole?;
    Err(match serde_json::from_slice::<Refusal>(&body) {
        Ok(refusal) => ControlError::Refused(refusal),
        Err(_) => {
            ControlError::Unexpected { status: status.as_u16(), body: shortened(&String::from_utf8_lossy(&body)) }
        }
    })
}

/// The document an answer holds.
///
/// # Errors
/// It is larger than any of a gateway's, or none of the kind.
pub(super) async fn read<T: DeserializeOwned>(response: Response) -> Result<T, ControlError> {
    let url = url(&response);
    let (body, is_whole) = body(response, ANSWER_BYTES_MAX).await;
    let read = if is_whole? {
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    } else {
        Err(format!("it is larger than {ANSWER_BYTES_MAX} bytes"))
    };
    read.map_err(|what| ControlError::Unreadable { url, what })
}

/// The first bytes of a body, and whether they are all, or why no more came.
pub(crate) async fn body(mut response: Response, bytes_max: usize) -> (Vec<u8>, reqwest::Result<bool>) {
    let mut body = Vec::new();
    loop {
        let piece = match response.chunk().await {
            Ok(Some(piece)) => piece,
            end => return (body, end.map(|_| true)),
        };
        let room = bytes_max - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            return (body, Ok(false));
        }
    }
}

fn url(response: &Response) -> String {
    let mut url = response.url().clone();
    // A name and password in an address are a secret.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.to_string()
}

fn shortened(text: &str) -> String {
    text.chars().take(BODY_CHARS_MAX).collect()
}

/// The last error in a chain: `Connection refused`, where the first says only that a request failed.
#[must_use]
pub fn cause(error: &reqwest::Error) -> String {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    chain.last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_of_the_environment_stands_before_no_address_of_this_machine() {
        let named =
            |url: &str, set: &str| proxy_variable(url, |name| (name == set).then(|| "http://proxy:3128".to_owned()));
        for url in ["http://127.0.0.1:8080/readyz", "http://127.1.2.3", "http://localhost:1", "http://[::1]:8080"] {
            assert_eq!(named(url, "http_proxy"), None, "{url}");
        }
        assert_eq!(named("http://gateway:8080", "http_proxy"), Some("http_proxy"));
        assert_eq!(named("https://gateway", "http_proxy"), None);
        assert_eq!(named("https://gateway", "HTTPS_PROXY"), Some("HTTPS_PROXY"));
        assert_eq!(named("https://gateway", "ALL_PROXY"), Some("ALL_PROXY"));
        assert_eq!(proxy_variable("http://gateway", |_| Some(String::new())), None, "set to nothing");
    }
}
