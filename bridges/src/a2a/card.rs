//! The agent card: what the exchange says of itself to agents of the Agent2Agent protocol.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::records::{RecordKey, RecordsError};
use crate::tools::message::digits;

/// Where a card is looked for.
pub const PATH: &str = "/.well-known/agent-card.json";
/// The extension by which a data part holds a request of the exchange (schema `request`).
pub const EXTENSION: &str = "https://llmx.dev/extensions/negotiation/1";
/// Characters of a digest in the tag of a card.
const TAG_CHARS: usize = 16;
/// How long a card may be kept.
const CACHED: HeaderValue = HeaderValue::from_static("max-age=300");

/// A card, as it is served.
#[derive(Debug, Clone)]
pub struct Card {
    document: Value,
    tag: HeaderValue,
}

impl Card {
    /// The card of an exchange at this address, signed where there is a key.
    ///
    /// # Errors
    /// [`RecordsError`] when it cannot be signed.
    pub fn try_new(
        url: &str,
        version: &str,
        authorization_server: Option<&str>,
        key: Option<&RecordKey>,
    ) -> Result<Self, RecordsError> {
        let mut document: Value =
            serde_json::from_str(include_str!("../../card.json")).expect("card.json is a document: a test reads it");
        document["version"] = json!(version);
        document["supportedInterfaces"][0]["url"] = json!(format!("{url}/a2a"));
        document["capabilities"]["extensions"][0]["uri"] = json!(EXTENSION);
        if let Some(server) = authorization_server {
            let configuration = format!("{}/.well-known/openid-configuration", server.trim_end_matches('/'));
            let scheme = json!({"openIdConnectSecurityScheme": {"openIdConnectUrl": configuration}});
            document["securitySchemes"]["openIdConnect"] = scheme;
        }
        if let Some(key) = key {
            // Verifiers leave out what is empty before they compare.
            let signed = serde_json_canonicalizer::to_vec(&without_empty(document.clone()));
            let signed = signed.map_err(|error| RecordsError::Key(error.to_string()))?;
            let [protected, _, signature] = key.sign_as("JOSE", &signed)?;
            document["signatures"] = json!([{"protected": protected, "signature": signature}]);
        }
        let tag = HeaderValue::from_str(&format!("\"{}\"", digits(&document, TAG_CHARS)));
        Ok(Self { document, tag: tag.unwrap_or(HeaderValue::from_static("\"1\"")) })
    }

    /// The card itself.
    pub const fn document(&self) -> &Value {
        &self.document
    }
}

/// Serves a card, to anybody.
pub async fn show(State(card): State<Card>, asked: HeaderMap) -> Response {
    let headers = HeaderMap::from_iter([(ETAG, card.tag.clone()), (CACHE_CONTROL, CACHED)]);
    if asked.get(IF_NONE_MATCH) == Some(&card.tag) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, Json(card.document)).into_response()
}

/// A document without empty texts, lists and objects.
fn without_empty(document: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
    };
    match document {
        Value::Array(values) => values.into_iter().map(without_empty).filter(|value| !is_empty(value)).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, without_empty(value)));
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => document,
    }
}
