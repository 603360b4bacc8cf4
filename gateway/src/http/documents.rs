//! Descriptions of the interface, for people and machines. No token is asked for them.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use schemas::validate::published;
use schemas::{Code, Refusal};
use serde_json::json;

use super::{ASYNCAPI, HttpResult, OPENAPI, PathText, RouteSpec, document, segment};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![
        ("/openapi.json", &["get"], get(openapi)),
        ("/asyncapi.json", &["get"], get(asyncapi)),
        ("/schemas", &["get"], get(schemas)),
        ("/schemas/{name}", &["get"], get(schema)),
    ]
}

/// The OpenAPI document.
async fn openapi() -> Response {
    json_text(OPENAPI, "application/json")
}

/// The AsyncAPI document.
async fn asyncapi() -> Response {
    json_text(ASYNCAPI, "application/json")
}

/// Names of the published schemas.
async fn schemas() -> HttpResult {
    let paths: Vec<_> = published().iter().map(|(name, _)| format!("/schemas/{name}.json")).collect();
    document(&json!({ "schemas": paths }))
}

/// One published schema, as `<name>.json`.
async fn schema(path: PathText) -> HttpResult {
    let file = segment(path)?;
    let wanted = file.strip_suffix(".json").unwrap_or(&file);
    let text = published().iter().find(|(name, _)| *name == wanted).map(|(_, text)| *text);
    let text = text.ok_or_else(|| Refusal::new(Code::NotFound, "no schema of this name; see /schemas"))?;
    Ok(json_text(text, "application/schema+json"))
}

fn json_text(text: &'static str, media_type: &'static str) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))], text).into_response()
}
