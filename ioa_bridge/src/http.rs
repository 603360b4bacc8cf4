//! The routes of the published server.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{any, post};
use axum::{Json, Router};
use schemas::{AgentId, Code, Refusal};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Bridge;
use crate::wire::{ClientInfo, FRAME_BYTES_MAX, NameQuestion, OneOrMany, RecordQuestion, RetrieveQuestion, TeamUp};

/// Longest wait for a client to read a frame.
const SEND_MAX: Duration = Duration::from_secs(10);
/// Longest a request may take, from its header to its answer: time for an agent to connect and for a team to form.
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// What the routes share.
#[derive(Clone)]
struct BridgeSite {
    bridge: Arc<Bridge>,
    stop: CancellationToken,
}

/// The routes of a bridge. Its sockets end with `stop`.
pub fn router(bridge: Arc<Bridge>, stop: CancellationToken) -> Router {
    Router::new()
        .route("/register", post(register))
        .route("/retrieve_assistant", post(retrieve))
        .route("/query_assistant", post(query))
        .route("/teamup", post(team_up))
        .route("/fetch_chat_record", post(records))
        .route("/list_all_agents", post(list))
        .route("/health_check", post(async || Json("ok")))
        .route("/ws/{name}", any(connect))
        .fallback(async || Refused(Refusal::new(Code::NotFound, "the published server has no such route")))
        .method_not_allowed_fallback(async || Refused(Refusal::new(Code::MethodNotAllowed, "this route takes POST")))
        .layer(DefaultBodyLimit::max(FRAME_BYTES_MAX))
        .layer(from_fn(within_bounds))
        .with_state(BridgeSite { bridge, stop })
}

/// Refuses what takes longer than [`REQUEST_MAX`], and what a browser sends for a page of another machine: clients carry no
/// token, so such a page could speak for all of them.
async fn within_bounds(request: Request, next: Next) -> Response {
    if let Some(fault) = page_fault(request.headers()) {
        return Refused(fault).into_response();
    }
    tokio::time::timeout(REQUEST_MAX, next.run(request)).await.unwrap_or_else(|_| {
        let late = Refusal::new(Code::RequestTimeout, "the request did not arrive, or was not answered, in time");
        Refused(late.expecting(format!("within {} s", REQUEST_MAX.as_secs()))).into_response()
    })
}

/// A page says by `Origin` where it comes from; clients that are no browsers say nothing. A page whose name was pointed at this
/// machine says that name as `Host`. An address cannot be pointed elsewhere: any is taken, for the bridge may listen on several.
fn page_fault(headers: &HeaderMap) -> Option<Refusal> {
    let all = |name: HeaderName, is_fit: &dyn Fn(&str) -> bool| {
        headers.get_all(name).iter().all(|value| value.to_str().is_ok_and(is_fit))
    };
    let page = |origin: &str| origin.split_once("://").and_then(|(_, authority)| address_of(authority));
    let expected = if !all(ORIGIN, &|origin| page(origin).is_some_and(|address| address.is_loopback())) {
        "no `Origin`, or one on this machine"
    } else if !all(HOST, &|host| address_of(host).is_some()) {
        "an IP address or `localhost` as `Host`"
    } else {
        return None;
    };
    Some(Refusal::new(Code::Unauthorized, "the bridge serves no pages of other machines").expecting(expected))
}

/// The address of `HOST[:PORT]`; of a name other than `localhost` none.
fn address_of(authority: &str) -> Option<IpAddr> {
    let authority: Authority = authority.parse().ok()?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if host.eq_ignore_ascii_case("localhost") {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    host.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// A refusal as an answer: a problem document like those of a gateway (docs/spec/messages.md#ms-41).
struct Refused(Refusal);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl From<JsonRejection> for Refused {
    fn from(rejection: JsonRejection) -> Self {
        let code = match rejection.status() {
            StatusCode::UNPROCESSABLE_ENTITY => Code::WrongType,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
            StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
            _ => Code::MalformedJson,
        };
        Self(Refusal::new(code, rejection.body_text()))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (code, mut problem) = (self.0.code, json!(self.0));
        problem["type"] = json!(format!("urn:llmx:problem:{code}"));
        problem["title"] = json!(code.as_str().replace('_', " "));
        problem["status"] = json!(code.http_status());
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry = self.0.retry_after_ms.map(|ms| (RETRY_AFTER, ms.div_ceil(1000).max(1)));
        (status, AppendHeaders(retry), [(CONTENT_TYPE, "application/problem+json")], Json(problem)).into_response()
    }
}

type BridgeQuestion<T> = Result<Json<T>, JsonRejection>;
type BridgeAnswer = Result<Json<Value>, Refused>;

async fn register(State(site): State<BridgeSite>, asked: BridgeQuestion<ClientInfo>) -> BridgeAnswer {
    site.bridge.register(asked?.0).await?;
    Ok(Json(Value::Null))
}

async fn retrieve(State(site): State<BridgeSite>, asked: BridgeQuestion<RetrieveQuestion>) -> BridgeAnswer {
    let RetrieveQuestion { sender, capabilities } = asked?.0;
    Ok(Json(json!(site.bridge.retrieve(&sender, &capabilities).await?)))
}

async fn query(State(site): State<BridgeSite>, asked: BridgeQuestion<NameQuestion>) -> BridgeAnswer {
    Ok(Json(match &asked?.0.name {
        OneOrMany::One(name) => json!(site.bridge.query(&[name]).await?.into_iter().next().flatten()),
        OneOrMany::Many(names) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            json!(site.bridge.query(&names).await?)
        }
    }))
}

async fn team_up(State(site): State<BridgeSite>, asked: BridgeQuestion<TeamUp>) -> BridgeAnswer {
    Ok(Json(json!(site.bridge.team_up(asked?.0).await?)))
}

async fn records(State(site): State<BridgeSite>, asked: BridgeQuestion<RecordQuestion>) -> Result<Response, Refused> {
    let wanted = asked?.0.comm_id;
    let is_wanted = |comm_id: &str| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| one == comm_id));
    let records = site.bridge.hub().records().into_iter().filter(|record| is_wanted(&record.comm_id));
    let by_id: BTreeMap<_, _> = records.map(|record| (record.comm_id.clone(), record)).collect();
    Ok(Json(by_id).into_response())
}

async fn list(State(site): State<BridgeSite>) -> Json<Vec<ClientInfo>> {
    Json(site.bridge.hub().infos())
}

async fn connect(
    State(site): State<BridgeSite>,
    name: Result<Path<String>, PathRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refused> {
    let upgrade = upgrade.map_err(|_| Refusal::new(Code::BadFormat, "not a WebSocket handshake"))?;
    let agent = site.bridge.own(&name.map(|Path(name)| name).unwrap_or_default(), "/ws")?;
    let upgrade = upgrade.max_message_size(FRAME_BYTES_MAX).max_frame_size(FRAME_BYTES_MAX);
    // Open before the handshake is answered: a client that has its answer misses nothing that is told from then on.
    let (number, frames) = site.bridge.hub().connect(&agent);
    let open = OpenSocket { site, agent, number, frames };
    Ok(upgrade.on_upgrade(move |socket| open.serve(socket)))
}

/// A socket among those of the hub, until it is dropped.
struct OpenSocket {
    site: BridgeSite,
    agent: AgentId,
    number: u64,
    frames: mpsc::Receiver<String>,
}

impl OpenSocket {
    /// Serves it until either end closes it, another takes its place, or the client reads too slowly.
    async fn serve(mut self, mut socket: WebSocket) {
        loop {
            tokio::select! {
                () = self.site.stop.cancelled() => break,
                frame = self.frames.recv() => match frame {
                    Some(text) => {
                        let sending = tokio::time::timeout(SEND_MAX, socket.send(Message::Text(text.into())));
                        if !matches!(sending.await, Ok(Ok(()))) {
                            break;
                        }
                    }
                    None => break,
                },
                message = socket.recv() => match message {
                    Some(Ok(Message::Text(text))) => {
                        if let Err(fault) = self.site.bridge.hub().handle_text(&self.agent, text.as_str()) {
                            tracing::debug!(agent = %self.agent, %fault, "a frame is dropped");
                        }
                    }
                    Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => {}
                    // One that is too large ends the socket as well.
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                },
            }
        }
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.site.bridge.hub().disconnect(&self.agent, self.number);
    }
}
