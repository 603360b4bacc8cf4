//! Answers of a gateway, or of whatever else stands at its address: bounded, and from there only.

use std::time::Duration;

use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use schemas::Refusal;
use serde::de::DeserializeOwned;

use super::ControlError;

/// Most bytes of a document that are read: several times a page of the longest registrations, or a negotiation's offers.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// Characters of an unexpected body that are kept.
const BODY_CHARS_MAX: usize = 500;

/// A client that stays where it is sent.
pub(super) fn client(timeout: Duration) -> Result<Client, ControlError> {
    Ok(Client::builder().timeout(timeout).redirect(Policy::none()).build()?)
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
    let (body, _) = body(response, REFUSAL_BYTES_MAX).await?;
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
    let (body, is_whole) = body(response, ANSWER_BYTES_MAX).await?;
    let read = if is_whole {
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    } else {
        Err(format!("it is larger than {ANSWER_BYTES_MAX} bytes"))
    };
    read.map_err(|what| ControlError::Unreadable { url, what })
}

/// The first bytes of a body, and whether they are all.
async fn body(mut response: Response, bytes_max: usize) -> Result<(Vec<u8>, bool), ControlError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        let room = bytes_max - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            return Ok((body, false));
        }
    }
    Ok((body, true))
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
