//! `/v1/documents`: protocol documents; `/agora/{agent}`: which of them an agent supports.
//!
//! Any agent may put a document, and thereby says that it supports it. Texts never change. One that nobody supports
//! any more stays until another needs its room.

use std::collections::BTreeMap;
use std::sync::Arc;

use agora::registry::PutResult;
use agora::source::SOURCES_MAX;
use agora::{DocumentHash, DocumentSource, DocumentSummary, Origin, ProtocolDocument};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::get;
use schemas::control::Registration;
use schemas::validate::parse;
use schemas::{AgentId, Code, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::agents::not_registered;
use super::transactions::TransactionCaller;
use super::{
    Caller, HttpResult, JsonBody, PathText, QueryOf, RouteSpec, Site, document, identifier, query, segment, stored,
};
use crate::registry::Tables;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![
        ("/v1/documents", &["get", "put"], get(list).put(store)),
        ("/v1/documents/{hash}", &["get", "delete"], get(show).delete(withdraw)),
        ("/agora/{agent}/.wellknown", &["get"], get(well_known)),
        ("/agora/{agent}/wellknown", &["get"], get(well_known_of_the_demo)),
    ]
}

/// Documents on one page of the list.
const PAGE_MAX: usize = 100;
/// Agents named beside one document.
const SUPPORTERS_MAX: usize = 200;

/// A document with its text, and who supports it.
#[derive(Serialize)]
struct WholeDocument<'a> {
    #[serde(flatten)]
    summary: DocumentSummary,
    document: &'a str,
    /// The first of those that the caller may be told of, by id.
    agents: Vec<&'a AgentId>,
    /// How many there are.
    supporters: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentQuery {
    agent: Option<AgentId>,
    after: Option<DocumentHash>,
    limit: Option<usize>,
}

/// Documents in the order of their hashes, a page at a time.
async fn list(State(site): State<Arc<Site>>, caller: Caller, wanted: QueryOf<DocumentQuery>) -> HttpResult {
    let wanted = query(wanted)?;
    let limit = wanted.limit.unwrap_or(PAGE_MAX);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Refusal::new(Code::OutOfRange, "a page of that size is not offered").expecting("1 to 100").into());
    }
    let tables = site.registry.read();
    let table = site.documents.read();
    let mut following: Vec<&ProtocolDocument> = match &wanted.agent {
        Some(agent) if !is_told(&tables, &caller.0.agent, agent) => Vec::new(),
        Some(agent) => {
            let supported = table.supported_by(agent).map(|(document, _)| &**document);
            supported.filter(|document| wanted.after.is_none_or(|after| document.hash() > after)).collect()
        }
        None => table.following(wanted.after).take(limit + 1).map(|document| &**document).collect(),
    };
    let is_cut = following.len() > limit;
    following.truncate(limit);
    let next = following.last().filter(|_| is_cut).map(|last| last.hash());
    let page: Vec<_> = following.into_iter().map(DocumentSummary::from).collect();
    document(&json!({ "documents": page, "next": next }))
}

/// One document, by any spelling of its hash.
async fn show(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let hash = DocumentHash::try_new(&segment(path)?)?;
    let tables = site.registry.read();
    let table = site.documents.read();
    let found = table.document(hash).ok_or_else(not_held)?;
    let shown = || table.supporters(hash).filter(|agent| tables.agents.shows(agent, &caller.0.agent));
    document(&WholeDocument {
        summary: DocumentSummary::from(&**found),
        document: found.text(),
        agents: shown().take(SUPPORTERS_MAX).collect(),
        supporters: shown().count(),
    })
}

/// Stores a document that the caller supports.
async fn store(State(site): State<Arc<Site>>, caller: Caller, JsonBody(bytes): JsonBody) -> HttpResult {
    let (text, sources) = read_put(parse(&bytes)?)?;
    let put = ProtocolDocument::try_new(&text, Origin::Own)?;
    let result = site.documents.put(&caller.0.agent, &put, &sources).await?;
    stored(result == PutResult::New, &DocumentSummary::from(&put))
}

/// `{"document": "<text>", "sources": ["<source>", ...]}`; the sources may be left out.
fn read_put(body: Value) -> Result<(String, Vec<DocumentSource>), Refusal> {
    let expected = r#"{"document": "<text>", "sources": ["https://...", ...]}"#;
    let fault = |code, detail: &str, pointer: String| Err(Refusal::new(code, detail).at(pointer).expecting(expected));
    let Value::Object(members) = body else {
        return fault(Code::WrongType, "the body is no object", String::new());
    };
    let (mut text, mut sources) = (None, Vec::new());
    for (name, value) in members {
        match (name.as_str(), value) {
            ("document", Value::String(value)) => text = Some(value),
            ("sources", Value::Array(values)) => {
                if values.len() > SOURCES_MAX {
                    return fault(Code::OutOfRange, "more sources than a document may have", "/sources".to_owned());
                }
                for (index, value) in values.iter().enumerate() {
                    let pointer = format!("/sources/{index}");
                    let Some(source) = value.as_str() else {
                        return fault(Code::WrongType, "a source is a text", pointer);
                    };
                    sources.push(DocumentSource::try_new(source).map_err(|refusal| refusal.at(pointer))?);
                }
            }
            ("document" | "sources", _) => return fault(Code::WrongType, "of another type", format!("/{name}")),
            _ => return fault(Code::UnknownField, "the body has a member that is not known", String::new()),
        }
    }
    let Some(text) = text else { return fault(Code::MissingField, "there is no document", "/document".to_owned()) };
    // A source that holds the text itself adds nothing to the text.
    sources.retain(|source| matches!(source, DocumentSource::Url(_)));
    Ok((text, sources))
}

/// The caller supports the document no more.
async fn withdraw(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let hash = DocumentHash::try_new(&segment(path)?)?;
    site.documents.withdraw(&caller.0.agent, hash).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The documents that an agent supports, as the paper and the specification write them: sources by hash.
async fn well_known(State(site): State<Arc<Site>>, caller: TransactionCaller, path: PathText) -> HttpResult {
    document(&supported(&site, &caller, &identifier(path, AgentId::try_new)?)?)
}

/// The same as the paper's demo writes it.
async fn well_known_of_the_demo(
    State(site): State<Arc<Site>>,
    caller: TransactionCaller,
    path: PathText,
) -> HttpResult {
    let protocols = supported(&site, &caller, &identifier(path, AgentId::try_new)?)?;
    document(&json!({ "status": "success", "protocols": protocols }))
}

/// Sources by hash, to whoever finds the agent or may call it. The text itself comes last: it is always there, and the longest.
fn supported(
    site: &Site,
    caller: &TransactionCaller,
    agent: &AgentId,
) -> Result<BTreeMap<String, Vec<String>>, Refusal> {
    let tables = site.registry.read();
    if !is_told(&tables, &caller.identity.agent, agent) {
        return Err(not_registered());
    }
    let table = site.documents.read();
    let supported: BTreeMap<_, _> = table
        .supported_by(agent)
        .map(|(document, sources)| {
            let text = DocumentSource::of_text(document.text());
            (document.hash().to_string(), sources.iter().chain([&text]).map(ToString::to_string).collect())
        })
        .collect();
    if supported.is_empty() && tables.agents.registration(agent).is_none() {
        return Err(not_registered());
    }
    Ok(supported)
}

/// Whether what an agent supports is told to this caller: to whoever finds the agent, or may call it.
fn is_told(tables: &Tables, caller: &AgentId, agent: &AgentId) -> bool {
    let is_callable = |known: &Registration| known.consent.shows_to(caller);
    tables.agents.shows(agent, caller) || tables.agents.registration(agent).is_some_and(|known| is_callable(known))
}

fn not_held() -> Refusal {
    Refusal::new(Code::NotFound, "the exchange holds no document of this hash")
}
