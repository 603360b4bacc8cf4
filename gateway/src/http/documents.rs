//! Descriptions of the interface, for people and machines. No token is asked for them.
//!
//! The files refer to published schemas, and one to the other; what is served is complete in itself. Each schema that is
//! reached is a component under the name of its file, which begins with a small letter; those of the files begin with a capital.

use std::sync::LazyLock;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use schemas::validate::published;
use schemas::{Code, Refusal};
use serde_json::{Value, json};

use super::{ASYNCAPI, HttpResult, OPENAPI, PathText, RouteSpec, document, segment};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![
        ("/openapi.json", &["get"], get(|| async { json_text(&OPENAPI_WHOLE, "application/json") })),
        ("/asyncapi.json", &["get"], get(|| async { json_text(&ASYNCAPI_WHOLE, "application/json") })),
        ("/schemas", &["get"], get(schemas)),
        ("/schemas/{name}", &["get"], get(schema)),
    ]
}

/// Where schemas stand in either document.
const COMPONENTS: &str = "/components/schemas";

/// The OpenAPI document as it is served, made at the first request.
static OPENAPI_WHOLE: LazyLock<String> = LazyLock::new(|| whole(OPENAPI));
/// The AsyncAPI document as it is served, made at the first request.
static ASYNCAPI_WHOLE: LazyLock<String> = LazyLock::new(|| whole(ASYNCAPI));

/// A document with every schema that it reaches, so that no reference leaves it.
fn whole(file: &str) -> String {
    let mut document = parsed(file);
    let mut names = Vec::new();
    lead_inside(&mut document, "", &mut names);
    while let Some(name) = names.pop() {
        if document.pointer(&format!("{COMPONENTS}/{name}")).is_none() {
            let mut schema = component(&name);
            lead_inside(&mut schema, &format!("{COMPONENTS}/{name}"), &mut names);
            document["components"]["schemas"][name] = schema;
        }
    }
    document.to_string()
}

/// A published schema without what makes it a document of its own, or a component of the OpenAPI document.
fn component(name: &str) -> Value {
    let published = published().iter().find(|(published, _)| *published == name);
    let own = || parsed(OPENAPI)["components"]["schemas"][name].take();
    let mut schema = published.map_or_else(own, |(_, text)| parsed(text));
    for mark in ["$schema", "$id"] {
        schema.as_object_mut().and_then(|members| members.remove(mark));
    }
    schema
}

/// Rewrites the references of what stands at `own` in a document, and notes the components they lead to.
fn lead_inside(value: &mut Value, own: &str, names: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref") {
                let pointer = pointer(reference, own);
                let component = pointer.strip_prefix(COMPONENTS).and_then(|below| below.split('/').nth(1));
                names.extend(component.map(str::to_owned));
                *reference = format!("#{pointer}");
            }
            members.values_mut().for_each(|member| lead_inside(member, own, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| lead_inside(item, own, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Where a reference of what stands at `own` leads in the document.
fn pointer(reference: &str, own: &str) -> String {
    let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    match file.trim_start_matches("/schemas/").strip_suffix(".json") {
        None if !fragment.starts_with(COMPONENTS) => format!("{own}{fragment}"),
        None | Some("/openapi") => fragment.to_owned(),
        Some(name) => format!("{COMPONENTS}/{name}{fragment}"),
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("the descriptions and schemas are compiled in, and a test reads each of them")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_what_is_served_leads_somewhere_inside() {
        for served in [&OPENAPI_WHOLE, &ASYNCAPI_WHOLE] {
            let served = parsed(served);
            let found = references(&served);
            assert!(found.len() > 100, "{found:?}");
            for reference in found {
                assert!(reference.starts_with("#/"), "{reference} leaves the document");
                assert!(resolved(reference, &served).is_some(), "{reference} leads nowhere");
            }
        }
    }

    #[test]
    fn every_component_is_its_schema_and_all_else_is_the_file_but_for_references_which_lead_to_the_same() {
        for (served, file) in [(&OPENAPI_WHOLE, OPENAPI), (&ASYNCAPI_WHOLE, ASYNCAPI)] {
            let (served, file) = (parsed(served), parsed(file));
            let mut names = Vec::new();
            for (name, component) in served["components"]["schemas"].as_object().unwrap() {
                match published().iter().find(|(known, _)| known == name) {
                    None => {
                        let openapi = parsed(OPENAPI);
                        alike((component, &served), (&openapi["components"]["schemas"][name], &openapi), name);
                    }
                    Some((_, text)) => {
                        let mut schema = parsed(text);
                        for mark in ["$schema", "$id"] {
                            assert!(schema.as_object_mut().unwrap().remove(mark).is_some());
                        }
                        alike((component, &served), (&schema, &schema), name);
                        names.push(name.as_str());
                    }
                }
            }
            assert!(["message", "types", "cfp", "panel"].iter().all(|name| names.contains(name)), "{names:?}");
            let [mut rest, mut rest_of_file] = [served.clone(), file.clone()];
            for rest in [&mut rest, &mut rest_of_file] {
                rest["components"].as_object_mut().unwrap().remove("schemas");
            }
            alike((&rest, &served), (&rest_of_file, &file), "all else");
        }
    }

    /// Two values, each a part of a document, differ in nothing but references, and these lead to what is alike so far.
    fn alike((one, of_one): (&Value, &Value), (other, of_other): (&Value, &Value), what: &str) {
        assert!(blank(one) == blank(other), "{what} is served otherwise than it stands in its file");
        for (of_served, of_file) in references(one).into_iter().zip(references(other)) {
            let [served, file] = [resolved(of_served, of_one), resolved(of_file, of_other)];
            let [served, file] = [served.as_ref().map(blank), file.as_ref().map(blank)];
            assert!(served == file, "{of_served} is not what {of_file} is");
        }
    }

    /// What a reference in a document leads to, be it in another file.
    fn resolved(reference: &str, document: &Value) -> Option<Value> {
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let name = file.trim_start_matches("/schemas/").trim_end_matches(".json");
        let target = match name {
            "" => document.clone(),
            "/openapi" => parsed(OPENAPI),
            _ => parsed(published().iter().find(|(known, _)| *known == name)?.1),
        };
        target.pointer(fragment).cloned()
    }

    fn references(value: &Value) -> Vec<&str> {
        let mut found: Vec<&str> = value.get("$ref").and_then(Value::as_str).into_iter().collect();
        let members = value.as_object().into_iter().flat_map(|members| members.values());
        found.extend(members.chain(value.as_array().into_iter().flatten()).flat_map(references));
        found
    }

    /// The value without where its references lead, and without the marks of a document of its own.
    fn blank(value: &Value) -> Value {
        let is_mark = |name: &str, value: &Value| matches!(name, "$ref" | "$schema" | "$id") && value.is_string();
        match value {
            Value::Object(members) => members
                .iter()
                .filter(|(name, value)| !is_mark(name, value))
                .map(|(name, value)| (name.clone(), blank(value)))
                .collect(),
            Value::Array(items) => items.iter().map(blank).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
}
