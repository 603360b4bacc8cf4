//! An agent that dies slows nobody once its lease has ended, and one that ends in order slows nobody at all.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{PATIENCE, Process, Site, key, token};

/// Where the examples are.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/python");
/// The contractor of the examples with the shortest lease there is.
const CONTRACTOR: &str = "
import functools, sys
sys.path.insert(0, sys.argv.pop(1))
import contractor
contractor.Exchange.register = functools.partialmethod(contractor.Exchange.register, lease_ms=10_000)
contractor.main()
";
const LEASE: Duration = Duration::from_secs(10);
/// How much slower calls may be than before the agent came.
const RATIO_MAX: f64 = 1.2;
/// What a busy machine adds to the median of some calls, in milliseconds; a wait for the dead takes hundreds.
const NOISE_MS: f64 = 5.0;
/// How often calls may be slower than that before they count as slow.
const TRIES_MAX: u32 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_lease_of_a_killed_contractor_calls_are_as_fast_as_before_it_came() {
    let site = Site::start().await;
    let mut contractors = site.remote(&["contractors", "--count", "3"]);
    contractors.says("contractors: 3 connected").await;
    let mut before = Vec::new();
    for policy in ["medium", "high"] {
        before.push(decision_ms(&site, policy).await);
    }
    let mut carol = start_carol(&site).await;
    let with_carol = decision_ms(&site, "medium").await;
    carol.kill().await;
    let killed = Instant::now();
    tokio::time::sleep_until((killed + LEASE).into()).await;
    for (policy, before) in ["medium", "high"].into_iter().zip(before) {
        let limit = before * RATIO_MAX + NOISE_MS;
        let after = fastest_ms(&site, policy, limit).await;
        eprintln!(
            "{policy}: decision p50 {before:.2} ms before, {after:.2} ms after; medium beside it {with_carol:.2} ms"
        );
        assert!(after <= limit, "{policy}: {before} ms before, {after} ms after the lease");
    }
    let page = agent(&site, "carol").await;
    assert_eq!(page["present"], false, "{page}");
    assert_eq!(contractors.end().await, Some(0));
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_end_in_order_are_registered_no_more() {
    let site = Site::start().await;
    let mut contractors = site.remote(&["contractors", "--count", "2"]);
    contractors.says("contractors: 2 connected").await;
    let mut carol = start_carol(&site).await;
    assert_eq!(agent(&site, "carol").await["present"], true);
    assert_eq!(contractors.end().await, Some(0));
    assert_eq!(carol.end().await, Some(0));
    for name in ["contractor-0", "contractor-1", "carol"] {
        assert_eq!(agent(&site, name).await["code"], "not_found", "{name}");
    }
    site.end().await;
}

async fn start_carol(site: &Site) -> Process {
    let carol = token("carol", &key(&site.keys)).await;
    let args = ["-u", "-c", CONTRACTOR, EXAMPLES, &site.gateway_url, "carol", &carol];
    let mut process = Process::start_program("python3", &args);
    process.says("is registered for topic courier").await;
    process
}

/// The same as [`decision_ms`], at best of several times: what waits for the dead waits every time, what a busy machine adds
/// comes and goes.
async fn fastest_ms(site: &Site, policy: &str, enough: f64) -> f64 {
    let mut fastest = f64::INFINITY;
    for _ in 0..TRIES_MAX {
        fastest = fastest.min(decision_ms(site, policy).await);
        if fastest <= enough {
            break;
        }
    }
    fastest
}

/// The median time to a decision of some calls under a policy.
async fn decision_ms(site: &Site, policy: &str) -> f64 {
    let traffic = site.remote(&["traffic", "--json", "--policy", policy, "--rate", "10", "--duration", "2"]);
    let (code, summary) = traffic.end_by_itself().await;
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert!(code == Some(0) && summary["awards"].as_u64().unwrap() > 5, "{summary}");
    summary["latency_ms"]["decision"]["p50"].as_f64().unwrap()
}

/// An agent as the gateway shows it, or the refusal.
async fn agent(site: &Site, name: &str) -> Value {
    let url = format!("{}/v1/agents/{name}", site.gateway_url);
    let token = token("alice", &key(&site.keys)).await;
    let asking = reqwest::Client::new().get(url).bearer_auth(token).timeout(PATIENCE).send();
    asking.await.unwrap().json().await.unwrap()
}
