//! Contractors that ask a language model, in a demo and beside one.

use std::time::{Duration, Instant};

use agents::ContractorConfig;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::process::{PATIENCE, Process};
use crate::rig::Rig;

/// The folder of the examples.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");

/// A stub of which 30 of 100 answers are faulty, at once.
const REPEATABLE: &str = "[shares]\ngood = 65\nno_usage = 5\njunk = 5\ntruncated = 5\nwrong_type = 5\noutside_schema = 5\n\
    other_act = 5\nempty = 5\n[answer]\nprice = { lo = 60000000, hi = 90000000 }\ndelivery_ms = 2000\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_with_a_faulty_model_violates_nothing_and_says_the_same_for_the_same_seed() {
    let mut stub = stub("model-stub-faulty.toml").await;
    // Faults without waits: how near a call comes to its deadline is the machine's, and no part of what repeats.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("stub.toml");
    std::fs::write(&script, REPEATABLE).unwrap();
    let mut repeatable = stub_of(script.to_str().unwrap()).await;
    let args = ["--policy", "high", "--rate", "4", "--duration", "4", "--model-share", "0.5", "--seed", "7", "--json"];
    let mut runs = Vec::new();
    for config in [&stub.config, &repeatable.config, &repeatable.config] {
        let demo = Process::start(&[&["demo", "--contractor-model", config][..], &args].concat());
        let (code, summary) = demo.end_by_itself().await;
        assert_eq!(code, Some(0), "{summary}");
        let run: Value = serde_json::from_str(&summary).unwrap();
        assert_eq!((&run["invariant_violations"]["total"], &run["model_source"]), (&0.into(), &"stub".into()), "{run}");
        runs.push(run);
    }
    for run in &mut runs {
        let times = run["model"].as_object_mut().unwrap().remove("times").unwrap();
        assert!(times["p95_ms"].as_u64() >= times["p50_ms"].as_u64(), "{times}");
    }
    let run = &runs[0];
    let model = &run["model"];
    let count = |name: &str| model[name].as_u64().unwrap();
    assert_eq!((count("agents"), count("questions")), (6, run["cfps"].as_u64().unwrap() * 6), "{model}");
    assert_eq!(run["rejected"], serde_json::json!({}), "what agents send is well formed and in time");
    for name in ["repairs", "fallbacks", "input_tokens", "output_tokens", "cost_micro_units", "estimated_calls"] {
        assert!(count(name) > 0, "{name}: {model}");
    }
    assert!(count("calls") >= count("questions") + count("repairs"), "{model}");
    for member in ["cfps", "rounds", "offers", "awards", "confirms", "completion", "outcomes", "rejected", "model"] {
        assert_eq!(runs[1][member], runs[2][member], "{member} of two runs of one seed");
    }
    for stub in [&mut stub, &mut repeatable] {
        assert_eq!(stub.process.end().await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contractors_that_ask_a_model_join_a_demo_under_names_of_their_own() {
    let mut stub = stub("model-stub.toml").await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.pem");
    let key = key.to_str().unwrap();
    let args = ["demo", "--listen", "127.0.0.1:0", "--rate", "4", "--duration", "60", "--policy", "high", "--key", key];
    let mut demo = Process::start(&[&args[..], &["--agents", "2"]].concat());
    let way_in = demo.complains("agents of your own: ").await;
    let url = way_in.split_once(" at ").unwrap().1.split(';').next().unwrap();
    let args = ["contractors", "--gateway", url, "--key", key, "--count", "2", "--model", &stub.config];
    let mut contractors = Process::start(&[&args[..], &["--listen", "127.0.0.1:0"]].concat());
    let health_url = contractors.says("health: ").await.replace("/readyz", "");
    contractors.says("contractors: 2 connected").await;
    let began = Instant::now();
    let seen = loop {
        let metrics = metrics(&health_url).await;
        let completed = "agent_deliveries_total{act=\"closed\",result=\"first\"} ";
        let completed = metrics.lines().find_map(|line| line.strip_prefix(completed)).unwrap();
        if completed.parse::<u64>().unwrap() >= 4 {
            break metrics;
        }
        assert!(began.elapsed() < PATIENCE, "{metrics}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let silences = "agent_decisions_total{action=\"silence\",strategy=\"contractor\"} 0\n";
    assert!(seen.contains(silences), "a question that is put to a model is no silence: {seen}");
    assert_eq!(contractors.end().await, Some(0));
    demo.interrupt().await;
    let (code, summary) = demo.end_by_itself().await;
    assert_eq!(code, Some(0), "{summary}");
    assert!(summary.contains("0 violations"), "{summary}");
    assert_eq!(stub.process.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contractor_that_asks_a_model_leaves_the_payloads_in_the_log_that_a_scripted_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let terms = |price: &str, delivery: &str| format!("price = {price}\ndelivery_ms = {delivery}\n");
    std::fs::write(path("stub.toml"), format!("[answer]\n{}", terms("85000000", "2000"))).unwrap();
    let scripted = r#"{"terms":{"price":{"constant":85000000},"delivery_ms":{"constant":2000}}}"#;
    std::fs::write(path("scripted.json"), scripted).unwrap();
    let mut stub = stub_of(&path("stub.toml")).await;
    let (scripted, asked, log) = (path("scripted.json"), stub.config.clone(), path("log.jsonl"));
    let mut logs = Vec::new();
    for option in [["--contractor", &scripted], ["--contractor-model", &asked]] {
        let args = ["demo", "--policy", "high", "--agents", "2", "--rate", "4", "--duration", "3", "--export", &log];
        let (code, summary) = Process::start(&[&args[..], &option].concat()).end_by_itself().await;
        assert_eq!(code, Some(0), "{summary}");
        logs.push(payloads(&log));
    }
    assert!(logs[0].len() > 10, "offers, confirmations, reports: {:?}", logs[0]);
    assert_eq!(logs[0], logs[1]);
    assert_eq!(stub.process.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_population_of_a_plan_asks_a_model_and_the_cell_says_what_it_asked_and_who_decided() {
    let mut stub = stub("model-stub.toml").await;
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let text = format!(
        "name = \"mixed\"\ntext = \"Half of them ask a model\"\n[[grid]]\ncontractors = [4]\npolicy = [\"high\"]\n\
         rate = [4]\nduration = [\"2s\"]\nwarm_up = 0\n\
         [[grid.population]]\nname = \"asking\"\nshare = 0.5\nmodel = {:?}\n",
        stub.config
    );
    std::fs::write(&plan, text).unwrap();
    let run = folder.path().join("run");
    let args = ["experiment", "run", plan.to_str().unwrap(), "--out", run.to_str().unwrap()];
    let (code, said) = Process::start(&args).end_by_itself().await;
    assert_eq!(code, Some(0), "{said}");
    let read = |name: &str| std::fs::read_to_string(run.join(name)).unwrap();
    let cell: Value = serde_json::from_str(&read("cells/high-n4-s1/cell.json")).unwrap();
    assert_eq!((&cell["deciders"], &cell["violations"]), (&"stub".into(), &serde_json::json!({})), "{cell}");
    let [asking, rest] = cell["populations"].as_array().unwrap().as_slice() else { panic!("{cell}") };
    let rounds = cell["rounds"].as_u64().unwrap();
    assert_eq!(
        (&asking["model"]["agents"], &asking["model"]["questions"]),
        (&2.into(), &(2 * rounds).into()),
        "{cell}"
    );
    assert!(rounds > 0 && asking["model"]["input_tokens"].as_u64().unwrap() > 100 * rounds, "{cell}");
    assert!(rest.get("model").is_none(), "{cell}");
    let report = read("report.md");
    assert!(report.contains("| asking | stub (stub) | ") && !report.contains("| rest | stub"), "{report}");
    let resolved: Value = serde_json::from_str(&read("experiment.json")).unwrap();
    let model = &resolved["cells"][0]["populations"][0]["model"];
    assert_eq!(model["contractor"]["terms"]["price"]["min"], 1_000_000, "a plan holds the model's file: {model}");
    assert_eq!(stub.process.end().await, Some(0));
}

/// What contractors said in an exported log, in order, by negotiation. Which of two equal offers wins is the exchange's
/// draw by name, so who said it is left out.
fn payloads(log: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(log).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut said: Vec<(String, String)> = records
        .flat_map(|line| line["line"]["record"]["record"]["entries"].as_array().cloned().unwrap_or_default())
        .map(|entry| entry["message"].clone())
        .filter(|message| message["from"].as_str().is_some_and(|from| from.contains("contractor")))
        .map(|message| (message["negotiation"].as_str().unwrap().to_owned(), message["body"]["payload"].to_string()))
        .collect();
    said.sort();
    said
}

/// A stub that runs, and the configuration of agents that ask it.
struct Stub {
    process: Process,
    config: String,
    _folder: tempfile::TempDir,
}

async fn stub(example: &str) -> Stub {
    stub_of(&format!("{EXAMPLES}/{example}")).await
}

async fn stub_of(script: &str) -> Stub {
    let mut process = Process::start(&["model-stub", "--listen", "127.0.0.1:0", "--script", script]);
    let url = process.says("model stub: ").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.toml");
    let example = std::fs::read_to_string(format!("{EXAMPLES}/model.toml")).unwrap();
    let config = example.replace("http://127.0.0.1:9090/v1", &url);
    assert_ne!(config, example, "the example names the stub's address");
    std::fs::write(&path, config).unwrap();
    Stub { process, config: path.to_str().unwrap().to_owned(), _folder: folder }
}

/// Contractors that ask for one price and take so long to confirm: runners-up are held until then, and can be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_chooses_among_the_offers_where_the_policy_leaves_that_to_the_initiator() {
    let rig = Rig::start().await;
    let mut chosen = policy_core::preset("high").unwrap();
    (chosen.id, chosen.decider) = ("chosen@1".to_owned(), schemas::policy::Decider::Initiator);
    let (policy, script, model) = (rig.path("chosen.json"), rig.path("stub.toml"), rig.path("model.toml"));
    std::fs::write(&policy, serde_json::to_vec(&chosen).unwrap()).unwrap();
    assert_eq!(rig.run(&["policy", "put", policy.to_str().unwrap()]).await.code, Some(0));
    std::fs::write(&script, "prefer = \"delivery_ms\"").unwrap();
    let mut stub = rig.spawn(&["model-stub", "--listen", "127.0.0.1:0", "--script", script.to_str().unwrap()]);
    let mut lines = BufReader::new(stub.stdout.take().unwrap()).lines();
    let said = lines.next_line().await.unwrap().unwrap();
    let url = said.strip_prefix("model stub: ").unwrap();
    let terms = "[initiator.terms.price]\nmax = 149000000\n[initiator.terms.delivery_ms]\n";
    std::fs::write(&model, format!("[model]\nurl = \"{url}\"\n[initiator]\n{terms}")).unwrap();
    let population = rig.population(8, ContractorConfig::default()).await;
    let args = ["call", "carry a parcel", "--json", "--initiator-model", model.to_str().unwrap(), "--policy"];
    for own_id in ["a", "b", "c"] {
        let ran = rig.run(&[&args[..], &["chosen", "--id", own_id]].concat()).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let document = ran.document();
        let offers = document["offers"].as_array().unwrap();
        let soonest = offers.iter().min_by_key(|offer| offer["terms"]["delivery_ms"].as_i64()).unwrap();
        assert!(offers.len() >= 2, "{document}");
        assert_eq!(document["awards"][0]["offer_id"], soonest["offer_id"], "{document}");
        assert!(
            offers.iter().all(|offer| offer["terms"]["price"].as_i64() <= Some(149_000_000)),
            "the limit is a gate"
        );
        assert!(ran.stderr.contains("model stub: 1 choices, 0 by score instead; 1 calls"), "{ran:?}");
    }
    let unasked = rig.run(&[&args[..], &["high", "--id", "d"]].concat()).await;
    assert!(unasked.code == Some(0) && unasked.stderr.contains("not asked"), "{unasked:?}");
    population.stop().await.unwrap();
}

async fn metrics(url: &str) -> String {
    reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap()
}
