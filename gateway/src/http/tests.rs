//! The descriptions of the interface hold what the routes are, and a handler that panics is a fault of ours.

use std::collections::{BTreeMap, BTreeSet};

use axum::routing::get;
use schemas::acknowledgement::COLLECTED_IDS_MAX;
use schemas::presence::REPORT_AGENTS_MAX;
use schemas::protocols::Protocol;
use schemas::{DeliveryId, GatewayId, GroupId, Lane, TopicName, subject};
use serde_json::Value;

use super::*;

#[test]
fn the_openapi_document_describes_exactly_the_routes() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
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
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let listed = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    assert_eq!(*listed, serde_json::to_value(Code::ALL).unwrap());
}

#[test]
fn the_asyncapi_document_describes_the_subjects_that_the_code_spells() {
    let document: Value = serde_json::from_str(ASYNCAPI).unwrap();
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
    let gateway = &GatewayId::try_new("bob").unwrap();
    let spelt = [
        ("gatewayIn", subject::gateway_in(bob)),
        ("inbox", subject::inbox(bob)),
        ("acks", subject::ack(bob, delivery)),
        ("collectedAcks", subject::collected_acks("bob")),
        ("topic", subject::topic(&TopicName::try_new("bob").unwrap())),
        ("group", subject::group(&GroupId::try_new("bob").unwrap())),
        ("hello", subject::hello(bob)),
        ("presence", subject::presence("bob")),
        ("streams", subject::streams(gateway)),
        ("gatewayDeliveries", subject::gateway_deliveries(gateway)),
        ("backlog", subject::backlog("bob")),
    ];
    assert_eq!(described, spelt.map(|(name, subject)| (name.to_owned(), subject)).into());
    for channel in ["presence", "streams", "backlog"] {
        let message = document["channels"][channel]["messages"]["agents"]["$ref"].as_str().unwrap();
        let payload = &document.pointer(message.trim_start_matches('#')).unwrap()["payload"];
        assert_eq!((&payload["type"], &payload["maxItems"]), (&"array".into(), &REPORT_AGENTS_MAX.into()));
    }
    let collected = &document["components"]["messages"]["collected"]["payload"];
    assert_eq!(collected["maxItems"], COLLECTED_IDS_MAX);
}

#[test]
fn every_reference_inside_the_descriptions_leads_somewhere() {
    for text in [OPENAPI, ASYNCAPI] {
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
                    let openapi: Value = serde_json::from_str(OPENAPI).unwrap();
                    openapi.pointer(fragment.trim_start_matches('#')).is_some()
                }
                (None, None) => document.pointer(reference.trim_start_matches('#')).is_some(),
            };
            assert!(leads, "{reference}");
        }
    }
}

#[test]
fn a_list_of_protocols_names_every_one_and_each_component_is_of_use() {
    let mut lists = Vec::new();
    for text in [OPENAPI, ASYNCAPI].into_iter().chain(schemas::validate::published().iter().map(|(_, text)| *text)) {
        let document: Value = serde_json::from_str(text).unwrap();
        collect(&document, "enum", &mut lists);
        for name in document["components"]["schemas"].as_object().into_iter().flat_map(|schemas| schemas.keys()) {
            assert!(text.contains(&format!("#/components/schemas/{name}\"")), "{name}");
        }
    }
    let of_protocols = |list: &&Value| list.to_string().contains("\"contract_net\"");
    let names = |list: &Value| -> BTreeSet<_> { list.as_array().unwrap().iter().map(Value::to_string).collect() };
    let every = names(&serde_json::json!(Protocol::ALL));
    let lists: Vec<_> = lists.iter().filter(of_protocols).map(names).collect();
    assert!(!lists.is_empty() && lists.iter().all(|list| *list == every), "{lists:?}");
}

#[tokio::test]
async fn a_panic_in_a_handler_is_told_as_a_fault_of_ours() {
    async fn broken() -> Response {
        panic!("deliberately, for a test");
    }
    let router = Router::new().route("/", get(broken)).layer(CatchPanicLayer::custom(panicked));
    let request = Request::new(axum::body::Body::empty());
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    assert_eq!(response.status().as_u16(), 500);
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    let problem: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["code"], "internal");
    assert!(!problem.to_string().contains("deliberately"), "what panicked stays in our own log");
}

fn collect_references(value: &Value, found: &mut Vec<String>) {
    let mut references = Vec::new();
    collect(value, "$ref", &mut references);
    found.extend(references.iter().filter_map(|reference| reference.as_str().map(str::to_owned)));
}

/// The members of this name, anywhere.
fn collect(value: &Value, name: &str, found: &mut Vec<Value>) {
    found.extend(value.get(name).cloned());
    let members = value.as_object().into_iter().flat_map(|object| object.values());
    let items = value.as_array().into_iter().flatten();
    members.chain(items).for_each(|child| collect(child, name, found));
}
