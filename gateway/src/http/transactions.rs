//! `POST /agora/{agent}`: transactions of Agora (docs/spec/agora.md#ag-40).
//!
//! What is wrong with the caller's access, or with a request that is no JSON document, is refused as everywhere, and so is
//! what a full or unready exchange cannot take now. Whatever else becomes of a transaction is an answer with status 200,
//! because clients read no other.

mod agent_call;
mod kept_body;

use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;

use agora::Selection;
use agora::document::DOCUMENT_BYTES_MAX;
use agora::transaction::{ConversationTicket, TransactionReply, TransactionRequest, TransactionStatus, body_of};
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::routing::{delete, post};
use bytes::Bytes;
use schemas::validate::{BODY_BYTES_MAX, parse_within};
use schemas::{AgentId, Code, Refusal};
use serde_json::json;
use tokio::time::Instant;

use self::agent_call::{AgentCall, MessagePlace};
use super::{Caller, HttpResult, PathText, Refused, RouteSpec, Site, document, identifier, json_body, visitors};
use crate::agora_token::{self, is_privileged};
use crate::auth::{Identity, now_s};
use crate::conversations::{CONVERSATION_S, Conversation, ConversationId};

pub(super) fn routes() -> Vec<RouteSpec> {
    let mut routes = vec![
        ("/agora/{agent}", &["post"] as &[_], post(begin)),
        ("/agora/{agent}/conversations/{id}", &["delete", "post"], delete(end).post(follow)),
    ];
    routes.extend(kept_body::routes());
    routes
}

/// Who begins a transaction: the bearer of the request's token or, where it has none, of the token that the gateway holds for
/// such requests. Clients of the package `agora-protocol` send none.
pub(super) struct TransactionCaller {
    pub(super) identity: Identity,
    /// Whether the request came without a token.
    is_visitor: bool,
}

impl FromRequestParts<Arc<Site>> for TransactionCaller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refused> {
        let file = site.config.agora_token_file.as_deref();
        let Some(file) = file.filter(|_| !parts.headers.contains_key(header::AUTHORIZATION)) else {
            let Caller(identity) = Caller::from_request_parts(parts, site).await?;
            return Ok(Self { identity, is_visitor: false });
        };
        visitors::check(&parts.headers, &site.config.visitor_hosts)?;
        let authorization = authorization(file).await.map_err(|error| token_fault(file, &error.to_string()))?;
        parts.headers.insert(header::AUTHORIZATION, authorization);
        match Caller::from_request_parts(parts, site).await {
            Ok(Caller(identity)) if is_privileged(&identity, &site.config) => {
                Err(token_fault(file, "it is an administrator's"))
            }
            Ok(Caller(identity)) => Ok(Self { identity, is_visitor: true }),
            // The client has sent no token: it is the gateway's that is no longer taken.
            Err(Refused(refusal)) if refusal.code.http_status() == 401 => Err(token_fault(file, &refusal.detail)),
            Err(refused) => Err(refused),
        }
    }
}

/// The header that a token file stands for.
async fn authorization(file: &FilePath) -> io::Result<HeaderValue> {
    let token = agora_token::read(file).await?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(io::Error::other)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The gateway's own token is of no use: what is wrong with it is for its operator.
fn token_fault(file: &FilePath, fault: &str) -> Refused {
    tracing::error!(
        fault, file = %file.display(), "the token of transactions without one cannot be used; put another into the file"
    );
    let detail = "the gateway's token for requests without one cannot be used";
    Refusal::new(Code::Unavailable, detail)
        .expecting("a token of the client's own, or a new one in the gateway's `agora_token_file`")
        .retry_after_ms(1000)
        .into()
}

/// A request of a transaction: it holds a document of [`DOCUMENT_BYTES_MAX`] in its longest form, beside what any other body
/// may hold.
struct TransactionBody(Bytes);

/// Largest body of a transaction, in bytes. Percent-encoded, each byte of a document takes three.
const TRANSACTION_BYTES_MAX: usize = 3 * DOCUMENT_BYTES_MAX + BODY_BYTES_MAX;

impl FromRequest<Arc<Site>> for TransactionBody {
    type Rejection = Refused;

    async fn from_request(request: Request, site: &Arc<Site>) -> Result<Self, Refused> {
        json_body(request, site, TRANSACTION_BYTES_MAX).await.map(Self)
    }
}

/// A request as it is routed: clients that are given a target with a slash at its end post there, and append
/// `/conversations/<id>` to it.
pub(super) fn without_empty_segments(mut request: Request) -> Request {
    let path = request.uri().path();
    if !path.starts_with("/agora/") || !(path.contains("//") || path.ends_with('/')) {
        return request;
    }
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut wanted: String = segments.flat_map(|segment| ["/", segment]).collect();
    if let Some(query) = request.uri().query() {
        wanted.push('?');
        wanted.push_str(query);
    }
    // Segments of a path make a path.
    if let Ok(uri) = wanted.parse() {
        *request.uri_mut() = uri;
    }
    request
}

/// The first message of a conversation, or the only message of a transaction.
async fn begin(
    State(site): State<Arc<Site>>,
    caller: TransactionCaller,
    path: PathText,
    TransactionBody(bytes): TransactionBody,
) -> HttpResult {
    let asked = parse_within(&bytes, TRANSACTION_BYTES_MAX)?;
    let began = Instant::now();
    let id = ConversationId::draw()?;
    let outcome = async {
        let agent = identifier(path, AgentId::try_new)?;
        let request = TransactionRequest::try_new(&asked)?;
        opened(&site, &id, &caller.identity, agent, request)?.carry_out(&site, &caller.identity).await
    };
    let mut reply = reply_or_refusal(outcome.await, &caller)?;
    if TransactionRequest::is_multiround(&asked) {
        let expires_s = Some(now_s().saturating_add(CONVERSATION_S));
        reply.conversation = Some(ConversationTicket { id: id.to_string(), expires_s });
    }
    told(&site, &reply, began)
}

/// The call that a request becomes.
fn opened(
    site: &Site,
    id: &ConversationId,
    caller: &Identity,
    agent: AgentId,
    request: TransactionRequest,
) -> Result<AgentCall, Refusal> {
    let TransactionRequest { selection, body, multiround } = request;
    if !multiround {
        return Ok(AgentCall { agent, own_id: id.to_string(), selection, body, place: None });
    }
    let kept = match &selection {
        // The text is known to the exchange once the first message has been followed.
        Selection::Document { hash, .. } => Selection::Document { hash: *hash, sources: Vec::new() },
        Selection::Language | Selection::Negotiation => selection.clone(),
    };
    let conversation = Conversation { caller: caller.agent.clone(), agent: agent.clone(), selection: kept };
    let number = site.conversations.open(id, conversation, now_s())?;
    let place = MessagePlace { conversation: id.to_string(), number };
    Ok(AgentCall { agent, own_id: place.own_id(), selection, body, place: Some(place) })
}

/// A further message of a conversation: of what is posted only the body is read.
async fn follow(
    State(site): State<Arc<Site>>,
    caller: TransactionCaller,
    path: PathText<(String, String)>,
    TransactionBody(bytes): TransactionBody,
) -> HttpResult {
    let asked = parse_within(&bytes, TRANSACTION_BYTES_MAX)?;
    let began = Instant::now();
    let outcome = async {
        let nothing = || Refusal::new(Code::NotFound, "there is nothing under this name");
        let Path((agent, conversation)) = path.map_err(|_| nothing())?;
        let agent = AgentId::try_new(&agent).map_err(|_| nothing())?;
        let body = body_of(&asked)?;
        let (selection, number) = site.conversations.next(&conversation, &caller.identity.agent, &agent, now_s())?;
        let place = MessagePlace { conversation, number };
        let call = AgentCall { agent, own_id: place.own_id(), selection, body, place: Some(place) };
        call.carry_out(&site, &caller.identity).await
    };
    let reply = reply_or_refusal(outcome.await, &caller)?;
    told(&site, &reply, began)
}

/// The end of a conversation: the answer is the same whether there was one.
async fn end(State(site): State<Arc<Site>>, caller: TransactionCaller, path: PathText<(String, String)>) -> HttpResult {
    if let Ok(Path((agent, conversation))) = path
        && let Ok(agent) = AgentId::try_new(&agent)
    {
        site.conversations.end(&conversation, &caller.identity.agent, &agent);
        site.metrics.transactions.holds(site.conversations.len());
    }
    document(&json!({ "status": TransactionStatus::Success.as_str() }))
}

/// What a client reads, unless the refusal speaks of the caller's access or of the exchange's state: then it may try again.
fn reply_or_refusal(
    outcome: Result<TransactionReply, Refusal>,
    caller: &TransactionCaller,
) -> Result<TransactionReply, Refused> {
    match outcome {
        Ok(reply) => Ok(reply),
        // Who is registered, such as agents of similar names, is told to nobody without a token of its own.
        Err(refusal) if caller.is_visitor && refusal.code == Code::NoRecipient => {
            Ok(TransactionReply::refused(&Refusal { expected: None, ..refusal }))
        }
        Err(refusal) if matches!(refusal.code.http_status(), 401 | 429 | 500..) => Err(Refused(refusal)),
        Err(refusal) => Ok(TransactionReply::refused(&refusal)),
    }
}

fn told(site: &Site, reply: &TransactionReply, began: Instant) -> HttpResult {
    site.metrics.transactions.ended(reply.status, began.elapsed());
    site.metrics.transactions.holds(site.conversations.len());
    document(&reply.to_json())
}
