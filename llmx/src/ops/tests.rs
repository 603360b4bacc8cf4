use std::sync::atomic::{AtomicBool, Ordering};

use ::bus::memory::{self, MemoryOptions};
use prometheus::IntCounter;
use reqwest::Client;

use super::*;

#[tokio::test]
async fn a_process_that_starts_is_alive_and_not_ready() {
    let port = Port::open();
    assert_eq!(port.ask("/healthz").await, (200, json!({ "status": "alive" })));
    let (status, body) = port.ask("/readyz").await;
    assert_eq!((status, &body["code"]), (503, &json!("unavailable")));
    assert!(body["detail"].as_str().unwrap().contains("it starts"), "{body}");
    assert_eq!(port.ask("/status").await.1["is_ready"], false);
    assert_eq!(port.get("/nothing").await.status(), 404);
}

#[tokio::test]
async fn readiness_is_what_the_process_reports_at_that_moment() {
    let port = Port::open();
    let is_ready = Arc::new(AtomicBool::new(true));
    let read = Arc::clone(&is_ready);
    port.health.report(move || {
        let is_ready = read.load(Ordering::Relaxed);
        let faults = if is_ready { vec![] } else { vec!["the clock went back; check it".to_owned()] };
        HealthReport { is_ready, faults, state: json!({ "lanes": [{ "lane": 0 }] }) }
    });
    let (status, body) = port.ask("/readyz").await;
    assert_eq!((status, &body["state"]["lanes"][0]["lane"]), (200, &json!(0)));

    is_ready.store(false, Ordering::Relaxed);
    let response = port.get("/readyz").await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["faults"], json!(["the clock went back; check it"]));
    assert_eq!(body["detail"], "the clock went back; check it");
    assert_eq!(
        port.ask("/status").await,
        (200, json!({ "is_ready": false, "faults": body["faults"], "state": body["state"] }))
    );
}

#[tokio::test]
async fn metrics_are_served_as_prometheus_reads_them() {
    let port = Port::open();
    let counter = IntCounter::new("things_total", "Things.").unwrap();
    port.registry.register(Box::new(counter.clone())).unwrap();
    counter.inc_by(3);
    let response = port.get("/metrics").await;
    assert_eq!(response.headers()["content-type"], process_metrics::CONTENT_TYPE);
    let text = response.text().await.unwrap();
    assert!(text.contains("\nthings_total 3\n"), "{text}");
    for name in [
        "process_resident_memory_bytes",
        "exchange_build_info{",
        "exchange_tokio_workers",
        "exchange_trace_spans_total{",
    ] {
        assert!(text.contains(&format!("\n{name}")), "{name} is not in {text}");
    }
}

#[tokio::test]
async fn a_process_without_a_bus_is_ready_as_it_says() {
    let registry = registry().unwrap();
    assert!(open(None, None, &registry).unwrap().is_none());
    let health = open(Some(SocketAddr::from(([127, 0, 0, 1], 0))), None, &registry).unwrap().unwrap();
    health.report(|| HealthReport { is_ready: true, faults: vec![], state: json!({}) });
    let port = Port { health, registry, client: Client::builder().no_proxy().build().unwrap() };
    assert_eq!(port.ask("/readyz").await.0, 200);
}

#[tokio::test]
async fn a_taken_port_is_refused_and_a_closed_one_is_free_again() {
    let port = Port::open();
    let address = port.health.address();
    let bus = memory::open(MemoryOptions::default());
    assert!(open(Some(address), Some(&bus), &port.registry).is_err());
    port.health.close().await;
    let opened = open(Some(address), Some(&bus), &port.registry).unwrap();
    assert_eq!(opened.map(|health| health.address()), Some(address));
}

/// A port on the embedded bus.
struct Port {
    health: HealthPort,
    registry: Registry,
    client: Client,
}

impl Port {
    fn open() -> Self {
        let registry = registry().unwrap();
        let (address, bus) = (SocketAddr::from(([127, 0, 0, 1], 0)), memory::open(MemoryOptions::default()));
        let health = open(Some(address), Some(&bus), &registry).unwrap().unwrap();
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().unwrap();
        Self { health, registry, client }
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        self.client.get(format!("http://{}{path}", self.health.address())).send().await.unwrap()
    }

    async fn ask(&self, path: &str) -> (u16, Value) {
        let response = self.get(path).await;
        (response.status().as_u16(), response.json().await.unwrap())
    }
}
