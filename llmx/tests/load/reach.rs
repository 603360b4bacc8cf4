//! Whom calls reach: commands and examples meet without an option, and a call that reaches nobody says what is near.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::examples::CONTRACTOR;
use crate::process::{PATIENCE, Process, Site, key, token};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contractor_of_the_examples_hears_the_calls_of_traffic_without_an_option() {
    let site = Site::start().await;
    let carol = token("carol", &key(&site.keys)).await;
    let mut contractor = Process::start_program("python3", &["-u", CONTRACTOR, &site.gateway_url, "carol", &carol]);
    contractor.says("is registered for topic courier").await;
    let traffic = site.remote(&["traffic", "--rate", "10", "--duration", "2", "--json"]);
    let (code, summary) = traffic.end_by_itself().await;
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let calls = summary["cfps"].as_u64().unwrap();
    assert_eq!((code, &summary["awards"], &summary["rejected"]), (Some(0), &json!(calls), &json!({})), "{summary}");
    assert!(calls > 5, "{summary}");
    assert_eq!(summary["policies"], json!({ "medium@1": calls }), "calls name no policy, and the default applies");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_calls_reach_nobody_fails_and_names_what_is_near() {
    let site = Site::start().await;
    let contractors = ["contractors", "--count", "2", "--topic", "courier", "--capability", "bicycle,van"];
    let mut contractors = site.remote(&contractors);
    contractors.says("contractors: 2 connected").await;
    for (options, looked_for, near) in [
        (["--topic", "curier"], "topic://curier", "registered topics nearest to that: courier"),
        (["--to", "agent://contractor-7"], "agent://contractor-7", "nearest to that: contractor-0, contractor-1"),
        (["--capability", "bycicle"], "`bycicle`", "registered capabilities nearest to that: bicycle, van"),
    ] {
        let mut traffic = site.remote(&[&["traffic", "--rate", "20", "--duration", "0.5"][..], &options].concat());
        let said = traffic.complains("llmx: none of ").await;
        assert!(said.contains("calls was admitted: no_recipient: "), "{options:?}: {said}");
        assert!(said.contains(looked_for) && said.contains(near), "{options:?}: {said}");
        assert_eq!(traffic.end_by_itself().await.0, Some(1), "{options:?}");
    }
    let met =
        ["traffic", "--rate", "20", "--duration", "0.5", "--capability", "van", "--task", "move a piano", "--json"];
    let (code, summary) = site.remote(&met).end_by_itself().await;
    assert_eq!(code, Some(0), "{summary}");
    assert_eq!(contractors.end().await, Some(0));
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_of_the_default_policy_is_seen_in_the_line_of_the_demo_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("signing-key.pem");
    let args = ["demo", "--listen", "127.0.0.1:0", "--duration", "60", "--agents", "3", "--rate", "50", "--key"];
    let mut demo = Process::start(&[&args[..], &[key.to_str().unwrap()]].concat());
    let console = demo.complains("console: ").await;
    let (url, token) = console.split_once("/#token=").unwrap();
    demo.complains("policy medium@1").await;
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    for policy in ["low", "high"] {
        let switch = client.put(format!("{url}/v1/policies/default")).json(&json!({ "policy": policy }));
        assert!(switch.bearer_auth(token).send().await.unwrap().status().is_success());
        let switched = Instant::now();
        demo.complains(&format!("policy {policy}@1")).await;
        assert!(switched.elapsed() < Duration::from_secs(1), "{policy}: {:?}", switched.elapsed());
    }
    demo.interrupt().await;
    let (code, summary) = demo.end_by_itself().await;
    assert_eq!(code, Some(0), "{summary}");
    assert!(summary.starts_with("INTERRUPTED: "), "{summary}");
    assert!(summary.contains("\npolicies high@1 (") && summary.contains("medium@1 ("), "{summary}");
}
