//! The console of a demo, as its page reads it: real numbers, a real journal, and who may see them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// Longest a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_that_listens_prints_its_console_and_tells_each_negotiation_from_call_to_end() {
    let demo = Demo::start(&[]).await;
    let ended = demo.until(|seen| seen["named"]["ended"][0]["negotiation"].as_str().map(str::to_owned)).await;
    let (_, totals) = demo.ask("/v1/console", None).await;
    assert_eq!(
        (&totals["sight"], &totals["engines"], &totals["lanes_owned"]),
        (&json!("totals"), &json!(1), &json!(4))
    );
    assert!(totals["totals"]["awards"].as_u64() > Some(0), "{totals}");
    assert!(!totals.to_string().contains("alice"), "{totals}");

    let path = format!("/v1/console/negotiations/{ended}");
    assert_eq!(demo.ask(&path, None).await.0, 401);
    let (status, journal) = demo.ask(&path, Some(&demo.token)).await;
    assert_eq!((status, &journal["negotiation"]), (200, &json!(ended)));
    let entries = journal["entries"].as_array().unwrap();
    let place = |what: &str| {
        let found = entries.iter().position(|entry| entry["what"] == what);
        found.unwrap_or_else(|| panic!("nothing {what} in {journal}"))
    };
    let order = ["called", "message", "closed", "decided", "committed", "ended"].map(place);
    assert!(order.is_sorted(), "{order:?}");
    let (called, ending) = (&entries[place("called")], &entries[place("ended")]);
    let elapsed = ending["at"].as_u64().unwrap() - called["at"].as_u64().unwrap();
    assert_eq!(ending["elapsed_us"], elapsed, "both are microseconds of log time");
    assert_eq!(entries[place("decided")]["winners"][0], entries[place("committed")]["contractor"]);
    assert!(!journal.to_string().contains("price"), "terms stay where they are");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_with_an_open_console_names_without_a_token_and_switches_only_with_one() {
    let demo = Demo::start(&["--console", "open"]).await;
    let (_, seen) = demo.ask("/v1/console", None).await;
    assert_eq!((&seen["sight"], &seen["named"]["default_policy"]), (&json!("all"), &json!("medium")));
    assert_eq!(demo.switch("high", None).await, 401);
    assert_eq!(demo.switch("no-such-policy", Some(&demo.token)).await, 422);
    assert_eq!(demo.switch("high", Some(&demo.token)).await, 200);
    demo.until(|seen| (seen["named"]["default_policy"] == "high").then_some(())).await;
}

/// `llmx demo` with a console.
struct Demo {
    url: String,
    token: String,
    client: reqwest::Client,
    _keys: tempfile::TempDir,
    _child: Child,
    _said: Lines<BufReader<ChildStderr>>,
}

impl Demo {
    /// Returns when it has said where its console is.
    async fn start(arguments: &[&str]) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmx"));
        command
            .args(["demo", "--listen", "127.0.0.1:0", "--duration", "120", "--agents", "4", "--json"])
            .arg("--key")
            .arg(keys.path().join("signing-key.pem"))
            .args(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = tokio::time::timeout(PATIENCE, said.next_line()).await.unwrap().unwrap().unwrap();
            if let Some(address) = line.strip_prefix("console: ") {
                break address.to_owned();
            }
        };
        let (url, token) = address.split_once("/#token=").unwrap();
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
        Self { url: url.to_owned(), token: token.to_owned(), client, _keys: keys, _child: child, _said: said }
    }

    async fn ask(&self, path: &str, token: Option<&str>) -> (u16, Value) {
        let mut request = self.client.get(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }

    async fn switch(&self, policy: &str, token: Option<&str>) -> u16 {
        let url = format!("{}/v1/policies/default", self.url);
        let mut request = self.client.put(url).json(&json!({ "policy": policy }));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap().status().as_u16()
    }

    /// Looks again until there is something.
    async fn until<T>(&self, look: impl Fn(&Value) -> Option<T>) -> T {
        let looking = async {
            loop {
                if let Some(found) = look(&self.ask("/v1/console", Some(&self.token)).await.1) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.unwrap()
    }
}
