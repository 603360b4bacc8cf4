//! `llmx top`, where there is no terminal. What it draws is tested beside the page.

use agents::ContractorConfig;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_over_a_pipe_shows_rounds_latency_lanes_engines_gateways_and_agents() {
    let rig = Rig::start().await;
    let population = rig.population(3, ContractorConfig::default()).await;
    for _ in 0..3 {
        assert_eq!(rig.run(&["call", "carry a parcel"]).await.code, Some(0));
    }
    // Engines tell their numbers once a second.
    let document = loop {
        let seen = rig.run(&["top", "--json"]).await.document();
        if seen["console"]["totals"]["ended"] == json!(3) {
            break seen;
        }
    };
    assert_eq!(
        document["gateways"],
        json!([{"url": rig.exchange.url(), "state": "ready", "answer_ms": document["gateways"][0]["answer_ms"]}])
    );
    let page = rig.run(&["top", "--once"]).await;
    assert_eq!(page.code, Some(0), "{page:?}");
    for part in ["rounds/s", "call to end p50", "4 of 4 owned", "engine-", "ready", "contractor-0", rig.exchange.url()]
    {
        assert!(page.stdout.contains(part), "{part}: {}", page.stdout);
    }
    assert!(!page.stdout.contains('\u{1b}'), "no control sequences: {}", page.stdout);

    // Whoever has no administrator's token sees counts.
    let counts = rig.run(&["top", "--once", "--token", &rig.token("ann")]).await;
    assert!(counts.code == Some(0) && counts.stdout.contains("counts only"), "{counts:?}");
    assert!(!counts.stdout.contains("contractor-0"), "{counts:?}");
    population.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_exchange_shows_counts_and_a_token_of_another_is_refused() {
    let (rig, other) = (Rig::start().await, Rig::start().await);
    let key = other.key();
    let counts = rig.run(&["top", "--once", "--key", key.to_str().unwrap()]).await;
    assert!(counts.code == Some(0) && counts.stdout.contains("counts only"), "{counts:?}");
    let refused = rig.run(&["top", "--once", "--token", &other.token("operator")]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(refused.stderr.contains("unauthenticated: "), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_degraded_is_shown_as_such_with_the_first_fault() {
    let faults = ["overloaded: the register of lane 0 waits 31 ms, 640 openings/s", "the store is full"];
    let router = Router::new()
        .route("/readyz", get(async move || Json(json!({"status": "degraded", "faults": faults}))))
        .route("/v1/console", get(async || Json(json!({"sight": "totals"}))));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let rig = Rig::start().await;
    let document = rig.run(&["top", "--json", "--gateway", &url]).await.document();
    let gateway = &document["gateways"][0];
    assert_eq!((&gateway["state"], &gateway["fault"]), (&json!("degraded"), &json!(faults[0])));
    let page = rig.run(&["top", "--once", "--gateway", &url]).await;
    assert!(page.code == Some(0) && page.stdout.contains(&format!("{url} is degraded: {}", faults[0])), "{page:?}");
}
