//! A client of Agora: asks any responder, of this exchange or a foreign one, and reads what it answers in any dialect.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Client, Method, Url, redirect};
use schemas::Refusal;
use schemas::text::is_loopback;
use serde_json::{Value, json};

use crate::Selection;
use crate::transaction::{TransactionReply, TransactionRequest, is_conversation_id};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Characters of an answer that are told where it is no reply.
const TOLD_CHARS_MAX: usize = 200;

/// Why a responder gave no reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The target is no http or https address.
    #[error("the target is not an http or https address: {0}")]
    Target(String),
    /// The id cannot stand in a path.
    #[error("this names no conversation: {0}")]
    Conversation(String),
    /// The responder cannot be reached, or stopped in the middle.
    #[error("the responder cannot be reached: {0}")]
    Transport(#[from] reqwest::Error),
    /// The responder answered with another status than 200.
    #[error("the responder answered {status}: {body}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The beginning of what it said.
        body: String,
    },
    /// The answer is no reply.
    #[error("the responder's answer is no reply: {0}")]
    Unreadable(Refusal),
    /// The answer is no JSON document, or too long.
    #[error("the responder's answer is no JSON document of at most {ANSWER_BYTES_MAX} bytes: {0}")]
    NotJson(String),
}

/// Asks one responder.
#[derive(Debug, Clone)]
pub struct AgoraClient {
    http: Client,
    target: Url,
    token: Option<String>,
}

impl AgoraClient {
    /// A client for a target, with a bearer token where the responder asks for one. Each question may take `timeout`;
    /// redirects are not followed.
    ///
    /// # Errors
    /// [`ClientError::Target`]; [`ClientError::Transport`] for want of what TLS needs.
    pub fn try_new(target: &str, token: Option<String>, timeout: Duration) -> Result<Self, ClientError> {
        let refuse = || ClientError::Target(target.to_owned());
        let parsed = Url::parse(target).map_err(|_| refuse())?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(refuse());
        }
        let http = Client::builder().timeout(timeout).redirect(redirect::Policy::none());
        let is_own = parsed.host_str().is_some_and(is_loopback);
        let http = if is_own { http.no_proxy() } else { http }.build()?;
        Ok(Self { http, target: parsed, token })
    }

    /// The first message of a conversation, or the only one of a transaction.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn begin(&self, request: &TransactionRequest) -> Result<TransactionReply, ClientError> {
        self.ask(Method::POST, self.target.clone(), Some(&request.to_json())).await
    }

    /// A further message of a conversation.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn follow(&self, conversation: &str, body: &str) -> Result<TransactionReply, ClientError> {
        let (hash, sources) = Selection::Language.members();
        let request = json!({ "protocolHash": hash, "protocolSources": sources, "body": body, "multiround": true });
        self.ask(Method::POST, self.conversation(conversation)?, Some(&request)).await
    }

    /// Ends a conversation.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn end(&self, conversation: &str) -> Result<TransactionReply, ClientError> {
        self.ask(Method::DELETE, self.conversation(conversation)?, None).await
    }

    fn conversation(&self, id: &str) -> Result<Url, ClientError> {
        let refuse = || ClientError::Conversation(id.to_owned());
        if !is_conversation_id(id) {
            return Err(refuse());
        }
        let mut url = self.target.clone();
        url.path_segments_mut().map_err(|()| refuse())?.pop_if_empty().extend(["conversations", id]);
        Ok(url)
    }

    async fn ask(&self, method: Method, url: Url, body: Option<&Value>) -> Result<TransactionReply, ClientError> {
        let mut request = self.http.request(method, url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let mut bytes = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            bytes.extend_from_slice(&chunk?);
            if bytes.len() > ANSWER_BYTES_MAX {
                break;
            }
        }
        let told = || String::from_utf8_lossy(&bytes).chars().take(TOLD_CHARS_MAX).collect::<String>();
        if status != 200 {
            return Err(ClientError::Status { status, body: told() });
        }
        let document = (bytes.len() <= ANSWER_BYTES_MAX).then(|| serde_json::from_slice(&bytes).ok()).flatten();
        let document: Value = document.ok_or_else(|| ClientError::NotJson(told()))?;
        TransactionReply::try_new(&document).map_err(ClientError::Unreadable)
    }
}
