//! The command line on a nats-server that is kept: runs after each other, what a plain client sees, streams that do not fit.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use async_nats::jetstream;
use bus::nats::REGISTER_STREAM;
use futures_util::StreamExt;
use nats_server::{LocalServer, LocalServerOptions};
use reqwest::Method;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

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

/// A process of the exchange as a user of nats.example.conf, and the first line it says that begins so.
async fn started(args: &[&str], mark: &str, log: &Path) -> (Child, String) {
    let mut command = tokio::process::Command::new(LLMX);
    command.args(args).env("LLMX_LOG", "info").stderr(std::fs::File::create(log).unwrap());
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = async {
        loop {
            let line = said.next_line().await.unwrap().unwrap_or_else(|| panic!("{}", text_of(log)));
            if let Some(told) = line.strip_prefix(mark) {
                return told.to_owned();
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    (child, told)
}

fn text_of(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_engine_and_archiver_need_no_more_rights_than_the_example_gives_each() {
    let extra_config = include_str!("../../nats.example.conf");
    let extra_config = extra_config[extra_config.find("authorization {").unwrap()..].to_owned();
    let server = LocalServer::start(LocalServerOptions { extra_config, ..Default::default() }).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let user = |name: &str| server.url().replacen("nats://", &format!("nats://{name}:change-me-{name}@"), 1);
    let (keys, jwks, key) = (path("keys"), path("keys/jwks.json"), path("keys/signing-key.pem"));
    assert!(llmx(&["keys", "--out", &keys]).await.status.success());
    let logs = ["engine", "gateway", "archive"].map(|name| folder.path().join(name));
    let (nats, archive) = (["engine", "gateway", "archive"].map(user), path("archived"));
    let engine = ["engine", "--id", "engine-1", "--nats", &nats[0], "--listen", "127.0.0.1:0"];
    let (_engine, health) = started(&engine, "health: ", &logs[0]).await;
    let gateway = ["gateway", "--jwks", &jwks, "--nats", &nats[1], "--listen", "127.0.0.1:0", "--console", "open"];
    let (_gateway, url) = started(&gateway, "gateway: ", &logs[1]).await;
    assert!(llmx(&["healthcheck", "--wait", "30", &format!("{url}/readyz")]).await.status.success());

    let there = ["--gateway", &url, "--key", &key];
    let contractors = [&["contractors", "--count", "3", "--transport", "websocket"][..], &there].concat();
    let (_contractors, _) = started(&contractors, "", &folder.path().join("contractors")).await;
    let traffic = ["traffic", "--json", "--rate", "150", "--duration", "6", "--policy", "high"];
    let traffic = llmx(&[&traffic[..], &there].concat()).await;
    let summary: Value = serde_json::from_slice(&traffic.stdout).unwrap();
    assert_eq!(traffic.status.code(), Some(0), "{summary}");
    // What gateways store, what they ask engines, and what ends streams.
    let policy = serde_json::to_string(&policy_core::policy::preset("high").unwrap()).unwrap();
    std::fs::write(path("own.json"), policy.replace("high@1", "own@1")).unwrap();
    std::fs::write(path("document.md"), "---\nname: weather\ndescription: the weather\nmultiround: false\n---\nAsk.\n")
        .unwrap();
    let call = ["call", "carry", "--id", "last", "--policy", "own", "--to", "topic://courier"];
    for command in
        [&["policy", "put", &path("own.json")][..], &["document", "put", &path("document.md"), "--as", "alice"], &call]
    {
        let output = llmx(&[command, &there].concat()).await;
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let client = reqwest::Client::new();
    for (method, agent, way) in [
        (Method::GET, "operator", "/v1/console"),
        (Method::GET, "caller", "/v1/negotiations/caller~last"),
        (Method::GET, "operator", "/v1/console/negotiations/caller~last"),
        (Method::DELETE, "operator", "/v1/agents/contractor-0/streams"),
    ] {
        let token = llmx(&["token", agent, "--admin", "--key", &key]).await.stdout;
        let token = String::from_utf8(token).unwrap();
        let request = client.request(method, format!("{url}{way}")).bearer_auth(token.trim());
        let status = request.send().await.unwrap().status();
        assert!(status.is_success(), "{way}: {status}");
    }
    let once = llmx(&["archive", "--json", "--once", "--nats", &nats[2], "--to", &archive]).await;
    // Some MB: beyond the window in which nats-server asks for a sign of life on `$JS.FC.`.
    let told = String::from_utf8_lossy(&once.stderr);
    assert!(once.status.success() && !told.to_lowercase().contains("permission"), "{told}");
    assert!(llmx(&["audit", "verify", &archive]).await.status.success());
    for address in [url.clone(), health.trim_end_matches("/readyz").to_owned()] {
        let ready: Value = reqwest::get(format!("{address}/readyz")).await.unwrap().json().await.unwrap();
        assert!(ready["status"] == "ready" && !ready["faults"].to_string().contains("let this"), "{ready}");
    }
    for log in &logs[..2] {
        assert!(!text_of(log).to_lowercase().contains("permission"), "{}", text_of(log));
    }
    refuse_what_others_do(&server).await;
}

/// An agent on NATS is answered, and nobody plays another's part.
async fn refuse_what_others_do(server: &LocalServer) {
    let bob = async_nats::ConnectOptions::with_user_and_password("bob".to_owned(), "change-me-too".to_owned());
    let bob = bob.custom_inbox_prefix("_INBOX_bob").connect(server.url()).await.unwrap();
    let answer: Value = serde_json::from_slice(&bob.request("gw.in.bob", "x".into()).await.unwrap().payload).unwrap();
    assert_eq!(answer["refused"]["code"], "unauthenticated", "{answer}");
    for (name, subject) in
        [("gateway", "award.a~b.0.1"), ("gateway", "engine.engine-1.heartbeat"), ("archive", "log.0")]
    {
        let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let options = async_nats::ConnectOptions::with_user_and_password(name.to_owned(), format!("change-me-{name}"));
        let options = options.event_callback(move |event| {
            events.send(event.to_string()).unwrap();
            async {}
        });
        let client = options.connect(server.url()).await.unwrap();
        client.publish(subject, "x".into()).await.unwrap();
        let refused = async { while !heard.recv().await.unwrap().to_lowercase().contains("permissions violation") {} };
        tokio::time::timeout(Duration::from_secs(60), refused)
            .await
            .unwrap_or_else(|_| panic!("{name} writes to {subject}"));
    }
}
