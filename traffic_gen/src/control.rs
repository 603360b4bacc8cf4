//! A small client of the gateway's control plane: registrations, groups, policies.

use std::time::Duration;

use schemas::control::{Group, Registration};
use schemas::{AgentId, Policy, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The gateway refused.
    #[error("{0}")]
    Refused(Refusal),
    /// It answered something else.
    #[error("the gateway answered {status}: {body}")]
    Unexpected {
        /// HTTP status.
        status: u16,
        /// The first characters of the body.
        body: String,
    },
    /// It could not be reached.
    #[error("the gateway cannot be reached: {0}")]
    Unreachable(#[from] reqwest::Error),
}

/// Characters of an unexpected body that are kept.
const BODY_CHARS_MAX: usize = 500;

/// Talks to one gateway.
#[derive(Debug, Clone)]
pub struct ControlClient {
    base: String,
    http: reqwest::Client,
}

impl ControlClient {
    /// A client of the gateway at `base`, for example `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// [`ControlError::Unreachable`] when the HTTP client cannot be set up.
    pub fn try_new(base: impl Into<String>) -> Result<Self, ControlError> {
        let base = base.into().trim_end_matches('/').to_owned();
        Ok(Self { base, http: reqwest::Client::builder().timeout(TIMEOUT).build()? })
    }

    /// Registers an agent under its own token.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn register(&self, agent: &AgentId, token: &str, document: &Registration) -> Result<(), ControlError> {
        self.put(&format!("/v1/agents/{agent}"), token, document).await
    }

    /// Puts a group.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn put_group(&self, token: &str, group: &Group) -> Result<(), ControlError> {
        self.put(&format!("/v1/groups/{}", group.id), token, group).await
    }

    /// Puts a policy.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn put_policy(&self, token: &str, policy: &Policy) -> Result<(), ControlError> {
        self.put(&format!("/v1/policies/{}", policy.id), token, policy).await
    }

    /// Sends a document with PUT.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn put(&self, path: &str, token: &str, document: &impl Serialize) -> Result<(), ControlError> {
        let request = self.http.put(format!("{}{path}", self.base)).bearer_auth(token).json(document);
        let response = request.send().await?;
        if response.status().is_success() { Ok(()) } else { Err(refused(response).await) }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn read<T: DeserializeOwned>(&self, path: &str, token: &str) -> Result<T, ControlError> {
        let response = self.http.get(format!("{}{path}", self.base)).bearer_auth(token).send().await?;
        if response.status().is_success() { Ok(response.json().await?) } else { Err(refused(response).await) }
    }
}

async fn refused(response: reqwest::Response) -> ControlError {
    let status = response.status().as_u16();
    let body = match response.text().await {
        Ok(body) => body,
        Err(error) => return ControlError::Unreachable(error),
    };
    match serde_json::from_str::<Refusal>(&body) {
        Ok(refusal) => ControlError::Refused(refusal),
        Err(_) => ControlError::Unexpected { status, body: body.chars().take(BODY_CHARS_MAX).collect() },
    }
}
