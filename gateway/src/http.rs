//! The HTTP interface: routes, and what all of them share.
//!
//! | file | answers |
//! |---|---|
//! | `server` | connections: timeouts, bounds, upgrades, shutdown |
//! | `problem_response` | refusals as problem documents: the one place where codes become HTTP |
//! | `request` | who calls, and what body came |
//! | `messages`, `websocket`, `sse` | messages in, deliveries out, acknowledgements |
//! | `stream_limit`, `stream_lifetime` | how many streams an agent has, how long they last, who ends them |
//! | `agents`, `consent`, `groups`, `policies` | the control plane |
//! | `negotiations` | what an engine says of one negotiation |
//! | `documents`, `health` | descriptions, readiness, metrics |
//! | `console` | the page for people, and what it reads |

mod agents;
mod consent;
mod console;
mod documents;
mod groups;
mod health;
mod messages;
mod negotiations;
mod policies;
mod problem_response;
mod request;
pub mod server;
mod sse;
mod stream_lifetime;
mod stream_limit;
mod streams;
mod websocket;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, post};
use bus::PubSub;
use bus::health::HealthProbe;
use schemas::{AgentId, Code, Refusal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_http::catch_panic::CatchPanicLayer;

use crate::admission::{Admission, Audited, audit};
use crate::config::GatewayConfig;
use crate::console::Console;
use crate::metrics::GatewayMetrics;
use crate::registry::Registry;
use crate::transport::Transport;
use problem_response::Refused;
pub(crate) use stream_limit::StreamLimit;
pub(crate) use streams::drive as drive_stream_ends;

/// What every handler can reach.
pub(crate) struct Site {
    pub(crate) admission: Admission,
    pub(crate) registry: Arc<Registry>,
    pub(crate) pub_sub: Arc<dyn PubSub>,
    pub(crate) health: Arc<HealthProbe>,
    pub(crate) lanes: u8,
    pub(crate) config: Arc<GatewayConfig>,
    pub(crate) metrics: Arc<GatewayMetrics>,
    pub(crate) stream_limit: StreamLimit,
    pub(crate) console: Arc<Console>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// Where messages are posted; admission records what it refuses itself.
const MESSAGES: &str = "/v1/messages";

/// One path, the methods it offers, and what answers them.
type RouteSpec = (&'static str, &'static [&'static str], MethodRouter<Arc<Site>>);

/// Every route. The OpenAPI document describes exactly these (a test compares them).
fn routes() -> [RouteSpec; 28] {
    [
        ("/", &["get"], get(console::page)),
        ("/console/{asset}", &["get"], get(console::asset)),
        ("/v1/console", &["get"], get(console::snapshot)),
        ("/v1/console/events", &["get"], get(console::events)),
        ("/v1/console/negotiations/{id}", &["get"], get(console::journal)),
        (MESSAGES, &["post"], post(messages::post_message)),
        ("/v1/ws", &["get"], get(websocket::open)),
        ("/v1/inbox", &["get"], get(sse::open)),
        ("/v1/acks", &["post"], post(messages::post_acks)),
        ("/v1/whoami", &["get"], get(agents::whoami)),
        ("/v1/agents", &["get"], get(agents::list)),
        ("/v1/agents/{id}", &["get", "put", "delete"], get(agents::show).put(agents::register).delete(agents::remove)),
        ("/v1/agents/{id}/streams", &["delete"], delete(streams::end)),
        ("/v1/agents/{id}/consent", &["get", "put"], get(consent::show).put(consent::replace)),
        ("/v1/agents/{id}/consent/requests", &["get"], get(consent::requests)),
        ("/v1/groups", &["get"], get(groups::list)),
        ("/v1/groups/{id}", &["get", "put", "delete"], get(groups::show).put(groups::replace).delete(groups::remove)),
        ("/v1/policies", &["get"], get(policies::list)),
        ("/v1/policies/default", &["get", "put"], get(policies::show_default).put(policies::switch_default)),
        ("/v1/policies/{id}", &["get", "put"], get(policies::show).put(policies::store)),
        ("/v1/negotiations/{id}", &["get"], get(negotiations::show)),
        ("/healthz", &["get"], get(health::alive)),
        ("/readyz", &["get"], get(health::ready)),
        ("/metrics", &["get"], get(health::metrics)),
        ("/openapi.json", &["get"], get(documents::openapi)),
        ("/asyncapi.json", &["get"], get(documents::asyncapi)),
        ("/schemas", &["get"], get(documents::schemas)),
        ("/schemas/{name}", &["get"], get(documents::schema)),
    ]
}

/// Every route's path and methods, for whoever counts requests.
pub(crate) fn paths() -> Vec<(&'static str, &'static [&'static str])> {
    routes().into_iter().map(|(path, methods, _)| (path, methods)).collect()
}

/// The whole interface.
pub(crate) fn router(site: Arc<Site>) -> Router {
    let empty = Router::new();
    let routed = routes().into_iter().fold(empty, |router, (path, _, methods)| router.route(path, methods));
    routed
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_path)
        .layer(CatchPanicLayer::custom(problem_response::panicked))
        .layer(middleware::from_fn_with_state(site.clone(), observe))
        .with_state(site)
}

async fn no_such_method() -> Refused {
    Refused(Refusal::new(Code::MethodNotAllowed, "this path does not offer the method; see /openapi.json"))
}

async fn no_such_path() -> Refused {
    Refused(Refusal::new(Code::NotFound, "there is nothing under this path; see /openapi.json"))
}

/// Whom a request turned out to come from: set once its token is verified, read when it is refused.
#[derive(Clone, Default)]
struct Bearer(pub(crate) Arc<OnceLock<AgentId>>);

/// Exactly one Host (RFC 9112 section 3.2). HTTP/1.0 knows none.
fn check_host(request: &Request) -> Result<(), Refusal> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    if hosts == 1 || (hosts == 0 && request.version() == Version::HTTP_10) {
        return Ok(());
    }
    let detail = if hosts == 0 { "the request names no Host" } else { "the request names more than one Host" };
    Err(Refusal::new(Code::MalformedRequest, detail).expecting("exactly one Host header"))
}

/// Counts refusals that come before there is a request to route, for whoever serves the router.
pub(crate) fn count_early_refusals(metrics: Arc<GatewayMetrics>) -> server::OnEarlyRefusal {
    Arc::new(move |code| metrics.http.refused_early(code.http_status()))
}

/// Counts every request under its route, never under its path, and records every refusal that admission has not.
async fn observe(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map(MatchedPath::as_str);
    let bearer = Bearer::default();
    request.extensions_mut().insert(bearer.clone());
    let answering = site.metrics.http.began(route, request.method().as_str());
    let response = match check_host(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => Refused(refusal).into_response(),
    };
    if let Some(Refused(refusal)) = response.extensions().get()
        && route != Some(MESSAGES)
    {
        let audited = Audited { transport: Transport::Http, agent: bearer.0.get(), negotiation: None, trace: None };
        audit(&audited, refusal);
    }
    site.metrics.http.ended(answering, response.status().as_u16(), began.elapsed());
    response
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use schemas::presence::REPORT_AGENTS_MAX;
    use schemas::{DeliveryId, GroupId, Lane, TopicName, subject};
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_openapi_document_describes_exactly_the_routes() {
        let document: Value = serde_json::from_str(documents::OPENAPI).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeMap<&str, BTreeSet<&str>> = paths
            .iter()
            .map(|(path, methods)| (path.as_str(), methods.as_object().unwrap().keys().map(String::as_str).collect()))
            .collect();
        let routed: BTreeMap<&str, BTreeSet<&str>> =
            routes().into_iter().map(|(path, methods, _)| (path, methods.iter().copied().collect())).collect();
        assert_eq!(described, routed);
    }

    #[test]
    fn the_openapi_document_lists_exactly_the_codes() {
        let document: Value = serde_json::from_str(documents::OPENAPI).unwrap();
        let listed = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
        assert_eq!(*listed, serde_json::to_value(Code::ALL).unwrap());
    }

    #[test]
    fn the_asyncapi_document_describes_the_subjects_that_the_code_spells() {
        let document: Value = serde_json::from_str(documents::ASYNCAPI).unwrap();
        let channels = document["channels"].as_object().unwrap().iter();
        let delivery = DeliveryId::new(Lane(0), [7; 16]);
        let is_on_nats = |channel: &Value| channel["servers"][0]["$ref"] == "#/servers/nats";
        let described: BTreeMap<String, String> = channels
            .filter(|(_, channel)| is_on_nats(channel))
            .map(|(name, channel)| {
                let parameters = channel["parameters"].as_object().unwrap().keys();
                let address = channel["address"].as_str().unwrap().to_owned();
                let filled = parameters.fold(address, |address, parameter| {
                    let value = if parameter == "delivery_id" { delivery.to_string() } else { "bob".to_owned() };
                    address.replace(&format!("{{{parameter}}}"), &value)
                });
                (name.clone(), filled)
            })
            .collect();
        let bob = &AgentId::try_new("bob").unwrap();
        let spelt = [
            ("gatewayIn", subject::gateway_in(bob)),
            ("inbox", subject::inbox(bob)),
            ("acks", subject::ack(bob, delivery)),
            ("topic", subject::topic(&TopicName::try_new("bob").unwrap())),
            ("group", subject::group(&GroupId::try_new("bob").unwrap())),
            ("hello", subject::hello(bob)),
            ("presence", subject::presence("bob")),
            ("backlog", subject::backlog("bob")),
        ];
        assert_eq!(described, spelt.map(|(name, subject)| (name.to_owned(), subject)).into());
        for channel in ["presence", "backlog"] {
            let message = document["channels"][channel]["messages"]["agents"]["$ref"].as_str().unwrap();
            let payload = &document.pointer(message.trim_start_matches('#')).unwrap()["payload"];
            assert_eq!((&payload["type"], &payload["maxItems"]), (&"array".into(), &REPORT_AGENTS_MAX.into()));
        }
    }

    #[test]
    fn every_reference_inside_the_descriptions_leads_somewhere() {
        for text in [documents::OPENAPI, documents::ASYNCAPI] {
            let document: Value = serde_json::from_str(text).unwrap();
            let mut references = Vec::new();
            collect_references(&document, &mut references);
            assert!(!references.is_empty());
            for reference in references {
                let leads = match (reference.strip_prefix("/schemas/"), reference.strip_prefix("/openapi.json")) {
                    (Some(reference), _) => {
                        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
                        let has = |text| serde_json::from_str::<Value>(text).unwrap().pointer(fragment).is_some();
                        let schemas = schemas::validate::published();
                        schemas.iter().any(|(name, text)| format!("{name}.json") == file && has(text))
                    }
                    (None, Some(fragment)) => {
                        let openapi: Value = serde_json::from_str(documents::OPENAPI).unwrap();
                        openapi.pointer(fragment.trim_start_matches('#')).is_some()
                    }
                    (None, None) => document.pointer(reference.trim_start_matches('#')).is_some(),
                };
                assert!(leads, "{reference}");
            }
        }
    }

    #[tokio::test]
    async fn a_panic_in_a_handler_is_told_as_a_fault_of_ours() {
        async fn broken() -> Response {
            panic!("deliberately, for a test");
        }
        let router = Router::new().route("/", get(broken)).layer(CatchPanicLayer::custom(problem_response::panicked));
        let request = Request::new(axum::body::Body::empty());
        let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
        assert_eq!(response.status().as_u16(), 500);
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["code"], "internal");
        assert!(!problem.to_string().contains("deliberately"), "what panicked stays in our own log");
    }

    fn collect_references(value: &Value, found: &mut Vec<String>) {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            found.push(reference.to_owned());
        }
        let members = value.as_object().into_iter().flat_map(|object| object.values());
        let items = value.as_array().into_iter().flatten();
        members.chain(items).for_each(|child| collect_references(child, found));
    }
}
