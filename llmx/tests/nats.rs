//! The command line on a nats-server that is kept: runs after each other, what a plain client sees, streams that do not fit.

use std::collections::BTreeSet;
use std::process::Output;
use std::time::Duration;

use async_nats::jetstream;
use bus::nats::REGISTER_STREAM;
use futures_util::StreamExt;
use nats_server::{LocalServer, LocalServerOptions};
use serde_json::Value;

const LLMX: &str = env!("CARGO_BIN_EXE_llmx");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_joins_an_exchange_only_where_it_is_typed_and_then_under_names_of_its_own() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let (url, folder) = (server.url(), tempfile::tempdir().unwrap());
    let demo = ["demo", "--json", "--agents", "3", "--duration", "1"];
    let mut command = tokio::process::Command::new(LLMX);
    let beside = command.args(demo).env("LLMX_NATS", &url).kill_on_drop(true).output();
    let beside = tokio::time::timeout(Duration::from_secs(60), beside).await.unwrap().unwrap();
    let summary: Value = serde_json::from_slice(&beside.stdout).unwrap();
    assert_eq!((beside.status.code(), &summary["bus"]), (Some(0), &"memory".into()), "{summary}");

    for protocol in ["contract-net", "alternating"] {
        let export = folder.path().join(protocol);
        let typed = ["--nats", &url, "--protocol", protocol, "--export", export.to_str().unwrap()];
        let output = llmx(&[&demo[..], &typed].concat()).await;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let log = std::fs::read_to_string(folder.path().join("alternating")).unwrap();
    let names: BTreeSet<&str> = log.split("agent://").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 6 && names.iter().all(|name| name.starts_with("demo-")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_demos_on_one_kept_nats_work_and_a_plain_client_sees_their_traffic() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let url = server.url();
    let plain = async_nats::connect(&url).await.unwrap();
    let mut all = Vec::new();
    for subject in ["agent.*.inbox", "topic.*", "ack.>"] {
        all.push(plain.subscribe(subject).await.unwrap());
    }
    plain.flush().await.unwrap();
    let mut seen = futures_util::stream::select_all(all);
    let listening = tokio::spawn(async move {
        let mut kinds = BTreeSet::new();
        while kinds.len() < 3 {
            let subject = seen.next().await.unwrap().subject;
            kinds.insert(subject.split('.').next().unwrap().to_owned());
        }
        kinds.into_iter().collect::<Vec<_>>()
    });

    // Other sizes and policies than before: agents come back, and one that is gone stays registered.
    let mut awards = 0;
    for (agents, policy) in [("5", "high"), ("7", "low")] {
        let args = ["demo", "--json", "--nats", &url, "--agents", agents, "--policy", policy, "--duration", "1.5"];
        let output = llmx(&args).await;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&summary["bus"], &summary["invariant_violations"]["total"]), (&"nats".into(), &0.into()));
        assert!(summary["rounds"].as_u64().unwrap() > 0 && summary["rounds"] == summary["cfps"], "{summary}");
        awards += summary["awards"].as_u64().unwrap();
    }
    let seen = tokio::time::timeout(Duration::from_secs(60), listening).await.unwrap().unwrap();
    assert_eq!(seen, ["ack", "agent", "topic"]);

    let output = llmx(&["replay", "--json", "--nats", &url]).await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["decisions"], &report["first_difference"]), (&awards.into(), &Value::Null));

    let folder = tempfile::tempdir().unwrap();
    let (file, archive) = (folder.path().join("llmx.toml"), folder.path().join("archive"));
    std::fs::write(&file, format!("[nats]\nurl = \"{url}\"\n")).unwrap();
    let (file, archive) = (file.to_str().unwrap(), archive.to_str().unwrap());
    let output = llmx(&["replay", "--json", "--config", file]).await;
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), report, "the file names the same log");
    let output = llmx(&["archive", "--json", "--config", file, "--to", archive, "--once"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let output = llmx(&["demo", "--json", "--config", file, "--agents", "1", "--duration", "1"]).await;
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &summary["bus"]), (Some(0), &"nats".into()), "{summary}");

    // The log was made with four lanes.
    let output = llmx(&["demo", "--nats", &url, "--lanes", "8", "--duration", "1"]).await;
    refused(&output, &["llmx-lanes: found 4, needed 8, "]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_does_not_start_beside_a_gateway_that_would_refuse_its_agents() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let url = server.url();
    let gateway = async_nats::connect(&url).await.unwrap();
    let mut requests = gateway.queue_subscribe("gw.in.*", "gateways".to_owned()).await.unwrap();
    gateway.flush().await.unwrap();
    let answering = tokio::spawn(async move {
        let request = requests.next().await.unwrap();
        gateway.publish(request.reply.unwrap(), "{}".into()).await.unwrap();
        gateway.flush().await.unwrap();
        drop(requests);
        gateway.flush().await.unwrap();
    });
    let demo = ["demo", "--nats", &url, "--agents", "1", "--duration", "1"];
    refused(&llmx(&demo).await, &["a gateway serves this NATS already", "llmx traffic"]);
    answering.await.unwrap();
    assert_eq!(llmx(&demo).await.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_watches_every_subject_is_no_gateway_to_a_demo() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let url = server.url();
    let watching = async_nats::connect(&url).await.unwrap();
    let mut everything = watching.subscribe(">").await.unwrap();
    watching.flush().await.unwrap();
    let seen = tokio::spawn(async move { while everything.next().await.is_some() {} });
    for protocol in ["contract-net", "alternating", "team", "panel"] {
        let output = llmx(&["demo", "--nats", &url, "--protocol", protocol, "--duration", "1", "--json"]).await;
        assert_eq!(output.status.code(), Some(0), "{protocol}: {}", String::from_utf8_lossy(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["invariant_violations"]["total"], 0, "{protocol}: {summary}");
    }
    seen.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_does_not_fit_is_refused_with_difference_and_remedy_by_every_role() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let url = server.url();
    let foreign = jetstream::stream::Config {
        name: REGISTER_STREAM.to_owned(),
        subjects: vec!["award.>".to_owned(), "closed.*".to_owned()],
        ..Default::default()
    };
    jetstream::new(async_nats::connect(&url).await.unwrap()).create_stream(foreign).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let key_set = keys.join("jwks.json");
    assert_eq!(llmx(&["keys", "--out", keys.to_str().unwrap()]).await.status.code(), Some(0));
    let gateway = ["gateway", "--listen", "127.0.0.1:0", "--issuer", "anyone", "--jwks", key_set.to_str().unwrap()];
    for args in [&["demo", "--duration", "1"][..], &["engine"], &gateway, &["replay"]] {
        let output = llmx(&[args, &["--nats", &url]].concat()).await;
        refused(&output, &["stream LLMX_REGISTER max_msgs_per_subject: found unlimited, needed 1, "]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_default_policy_nobody_stored_ends_and_names_setting_and_policies() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (keys, file) = (folder.path().join("keys"), folder.path().join("llmx.toml"));
    let key_set = keys.join("jwks.json");
    assert_eq!(llmx(&["keys", "--out", keys.to_str().unwrap()]).await.status.code(), Some(0));
    std::fs::write(&file, "[gateway]\ndefault_policy = \"hihg\"\n").unwrap();
    let by_file = format!("{}:2:18: `gateway.default_policy`: ", file.to_str().unwrap());
    let rest = "; there are agora, bargain-high, bargain-low";
    for (args, differences) in [
        (
            ["--default-policy", "nope"],
            ["--default-policy: `gateway.default_policy`: the exchange has no policy `nope`", rest],
        ),
        (["--config", file.to_str().unwrap()], [by_file.as_str(), "nearest to that: high"]),
        (["--default-policy", "bargain-low"], ["--default-policy: ", "`bargain-low` scores no offers"]),
    ] {
        let gateway = ["gateway", "--listen", "127.0.0.1:0", "--jwks", key_set.to_str().unwrap(), "--nats"];
        let output = llmx(&[&gateway, &[server.url().as_str()][..], &args].concat()).await;
        refused(&output, &differences);
        assert!(output.stdout.is_empty(), "it is not ready: {}", String::from_utf8_lossy(&output.stdout));
    }
}

fn refused(output: &Output, differences: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    for difference in differences {
        let (_, remedy) = told.split_once(difference).unwrap_or_else(|| panic!("no `{difference}` in {told}"));
        assert!(!remedy.trim().is_empty(), "{told}");
    }
}

async fn llmx(args: &[&str]) -> Output {
    let mut command = assert_cmd::Command::new(LLMX);
    command.args(args).timeout(Duration::from_secs(120));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}
