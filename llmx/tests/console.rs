//! The console of a demo, as its page reads it: real numbers, a real journal, and who may see them.

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_of_a_panel_tells_its_rounds_and_its_finding_and_answers_to_administrators_only() {
    let demo = Demo::start(&["--protocol", "panel", "--console", "open"]).await;
    let (told, withheld) = demo.journals("consensus", "found").await;
    let place = |what: &str| told.iter().position(|entry| entry["what"] == what);
    let order = ["called", "asked", "message", "ended", "found"].map(place);
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?} in {told:?}");
    let asked: Vec<&Value> = told.iter().filter(|entry| entry["what"] == "asked").collect();
    assert_eq!((&asked[0]["round"], &asked[0]["kind"]), (&json!(1), &json!("answer")));
    let found = |entries: &[Value]| entries.iter().find(|entry| entry["what"] == "found").unwrap().clone();
    let (seen, hidden) = (found(&told), found(&withheld));
    let asks = told.iter().filter(|entry| entry["what"] == "sent" && entry["act"] == "ask").count() as u64;
    let calls = |of: &str| seen["calls"][of].as_u64().unwrap();
    assert_eq!(asks, calls("answers") + calls("ranks") + calls("reviews"), "{seen}");
    let seats = seen["panelists"].as_array().unwrap();
    assert!(seats.len() >= 4 && seats.iter().all(|seat| seat["total_e12"].is_u64()), "{seen}");
    assert_ne!(seen["answer"], "");
    // Everybody else learns that there was an answer, and who agreed.
    assert_eq!((&hidden["answer"], &hidden["agreed"], &hidden["key"]), (&json!(""), &seen["agreed"], &Value::Null));
    let texts = hidden["panelists"].as_array().unwrap().iter().filter_map(|seat| seat["answer"].as_str());
    assert!(texts.collect::<String>().is_empty(), "{hidden}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_of_a_team_tells_its_steps_and_its_conclusion_and_texts_to_administrators_only() {
    let demo = Demo::start(&["--protocol", "team", "--console", "open"]).await;
    let (told, withheld) = demo.journals("concluded", "concluded").await;
    let steps: Vec<u64> = told.iter().filter_map(|entry| entry["step"].as_u64()).collect();
    assert!(steps.len() > 3 && steps.iter().copied().eq(1..=steps.len() as u64), "{steps:?} in {told:?}");
    let texts = |entries: &[Value]| -> Vec<String> {
        let text = |entry: &Value| entry["said"]["text"].as_str().or_else(|| entry["text"].as_str()).map(str::to_owned);
        entries.iter().filter_map(text).collect()
    };
    let (seen, hidden) = (texts(&told), texts(&withheld));
    assert!(seen.len() > 2 && seen.iter().all(|text| !text.is_empty()), "{seen:?}");
    assert_eq!(hidden, vec![String::new(); seen.len()]);
    let concluded = |entries: &[Value]| entries.iter().find(|entry| entry["what"] == "concluded").cloned();
    assert_eq!(concluded(&told).unwrap()["by"], concluded(&withheld).unwrap()["by"]);
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
            .args(["demo", "--listen", "127.0.0.1:0", "--duration", "120", "--agents", "5", "--json"])
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

    /// The entries of a negotiation that ended so, once what came of it has been told: as administrators are shown them, and as
    /// everybody is.
    async fn journals(&self, outcome: &str, told: &str) -> (Vec<Value>, Vec<Value>) {
        let ended = self.until(|seen| {
            let ended = seen["named"]["ended"].as_array()?.iter().find(|one| one["outcome"] == outcome)?;
            ended["negotiation"].as_str().map(str::to_owned)
        });
        let path = format!("/v1/console/negotiations/{}", ended.await);
        let entries = async |token| {
            let (status, journal) = self.ask(&path, token).await;
            assert_eq!(status, 200, "{journal}");
            journal["entries"].as_array().unwrap().clone()
        };
        let seen = async {
            loop {
                let seen = entries(Some(self.token.as_str())).await;
                if seen.iter().any(|entry| entry["what"] == told) {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        (tokio::time::timeout(PATIENCE, seen).await.unwrap(), entries(None).await)
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
