//! `llmx panel ask` and `llmx panel answer`, with a stub in a model's place; `llmx-lab panel evidence` and `llmx-lab panel choose`, at a
//! gateway and from an export.

use std::path::PathBuf;

use bytes::Bytes;
use schemas::{Lane, subject};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::rig::{PATIENCE, Ran, Rig, signal};

/// Three answers of ten are of no use as they are.
const FAULTY: &str =
    "[shares]\ngood = 70\njunk = 10\ntruncated = 10\nwrong_type = 10\n[answer]\nanswer = \"B\"\ntext = \"why\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_goes_to_panelists_that_ask_a_model_of_which_three_answers_in_ten_are_faulty() {
    let rig = Rig::start().await;
    let (stub, model) = stub(&rig, FAULTY).await;
    let model = model.to_str().unwrap();
    let asked = ["panel", "ask", "Which is prime? (A) 21 (B) 23", "--options", "A,B", "--model", model];
    let shown = rig.run(&asked).await;
    assert_eq!((shown.code, shown.stdout.as_str()), (Some(0), "B\n"), "{shown:?}");
    for said in ["4 seats", "consensus: ", "PANELIST", "model stub: ", " questions, "] {
        assert!(shown.stderr.contains(said), "{said} in {shown:?}");
    }
    let more = ["--panelists", "5", "--domain", "primes", "--keep", "2", "--answer-ms", "20000", "--json"];
    let found = rig.run(&[&asked[..], &more].concat()).await.document();
    assert_eq!((&found["seats"], &found["invited"]), (&json!("trial"), &json!(5)), "{found}");
    let finding = &found["finding"];
    assert_eq!(
        (&finding["answer"], &finding["outcome"], &finding["of"]),
        (&json!("B"), &json!("consensus"), &json!(5))
    );
    assert!(is_counted(&shown), "{shown:?}");
    let usage = &finding["usage"];
    assert!(usage["calls"].as_u64() >= finding["calls"]["answered"].as_u64() && usage["prompt_tokens"] != 0, "{usage}");
    signal(&stub, "-INT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_ask_a_model_answer_rank_and_review_until_they_are_asked_to_end() {
    let rig = Rig::start().await;
    let (stub, model) = stub(&rig, "").await;
    let names = "ann,bob,cyd,dan,rex,rob";
    let mut answering = rig.spawn(&["panel", "answer", "--as", names, "--model", model.to_str().unwrap()]);
    let mut lines = BufReader::new(answering.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
    assert_eq!(line.as_deref(), Some("panel: 6 agents connected"));
    let rules = rig.path("rules.json");
    let select = json!({"after_round": 1, "keep": 2, "ranker": {"kind": "agent", "agent": "rex"}});
    let review = json!({"by": ["rob"]});
    let document = json!({"consensus_from": 0, "rounds": 2, "select": select, "review": review});
    std::fs::write(&rules, document.to_string()).unwrap();
    let asked = ["panel", "ask", "Which?", "--options", "A,B", "--to", "ann,bob,cyd,dan", "--json", "--rules"];
    let found = rig.run(&[&asked[..], &[rules.to_str().unwrap()]].concat()).await.document();
    let calls = &found["finding"]["calls"];
    assert_eq!(calls, &json!({"answers": 6, "ranks": 1, "reviews": 1, "answered": 8}), "{found}");
    assert_eq!(found["finding"]["reviewers"][0]["agent"], "rob");
    signal(&answering, "-INT");
    let ended = Ran::of(answering.wait_with_output()).await;
    assert!(ended.code == Some(0) && ended.stderr.contains("0 without the model"), "{ended:?}");
    let gone = rig.run(&asked[..asked.len() - 1]).await;
    assert!(gone.code == Some(1) && gone.stderr.contains("no_recipient"), "{gone:?}");
    signal(&stub, "-INT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_model_that_answers_a_panel_ends_without_a_result_and_bad_usage_exits_2() {
    let rig = Rig::start().await;
    let (stub, model) = stub(&rig, "[shares]\nrefusal = 1\n").await;
    let model = model.to_str().unwrap();
    let nothing = rig.run(&["panel", "ask", "Which?", "--options", "A,B", "--model", model]).await;
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(1), ""), "{nothing:?}");
    assert!(nothing.stderr.contains("no_answer") && nothing.stderr.contains("0 answers"), "{nothing:?}");
    let rules = rig.path("rules.json");
    std::fs::write(&rules, "{\"rounds\": 9}").unwrap();
    let rules = rules.to_str().unwrap();
    for (args, said) in [
        (vec!["x"], "nobody is asked"),
        (vec!["x", "--to", "ann", "--rules", rules], "/rounds"),
        (vec!["x", "--to", "ann", "--rules", "nowhere.json"], "nowhere.json"),
        (vec!["x", "--to", "ann", "--options", "A,a"], "/answer/options/1"),
        (vec!["x", "--to", "ann", "--answer", "poem"], "--answer"),
        (vec!["x", "--model", "nowhere.toml"], "nowhere.toml"),
        (vec!["x", "--to", "ann", "--panelists", "3"], "--model"),
    ] {
        let refused = rig.run(&[vec!["panel", "ask"], args].concat()).await;
        assert!(refused.code == Some(2) && refused.stderr.contains(said), "{said} in {refused:?}");
    }
    signal(&stub, "-INT");
}

/// Whether what the model was asked is told, three questions at least, each with its answer or without.
fn is_counted(shown: &Ran) -> bool {
    let told = shown.stderr.lines().find_map(|line| line.strip_prefix("model stub: ")).unwrap_or_default();
    let numbers: Vec<u64> = told.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    numbers.first().is_some_and(|questions| *questions >= 3 && numbers[1] + numbers[2] == *questions)
}

/// A stub with this script, and the file of a model that names it.
async fn stub(rig: &Rig, script: &str) -> (Child, PathBuf) {
    let (stub_script, model) = (rig.path("stub.toml"), rig.path("model.toml"));
    std::fs::write(&stub_script, script).unwrap();
    let mut stub = rig.spawn(&["model-stub", "--listen", "127.0.0.1:0", "--script", stub_script.to_str().unwrap()]);
    let mut lines = BufReader::new(stub.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let url = line.strip_prefix("model stub: ").unwrap();
    let config = format!("[model]\nurl = \"{url}\"\ncalls_per_negotiation = 40\ntokens_per_negotiation = 400000\n");
    std::fs::write(&model, config).unwrap();
    (stub, model)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_is_shown_to_administrators_whole_and_to_others_as_far_as_it_concerns_them() {
    let rig = known().await;
    let shown = rig.run(&["panel", "evidence", "--domain", "algebra"]).await;
    let lines: Vec<Vec<&str>> = shown.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..4], ["AGENT", "ROLE", "INITIATOR", "PANELS"], "{shown:?}");
    assert_eq!(lines[1], ["ann", "panelist", "alice", "20", "20", "20", "20", "1.500000", "0", "0"]);
    assert_eq!((lines.len(), lines[5].join(" ")), (6, "4 entries of algebra".to_owned()), "{shown:?}");
    for (filters, expected) in [
        (&["--as", "ann"][..], vec![("ann", "alice"), ("ann", "dora")]),
        (&["--as", "dora"], vec![("ann", "dora")]),
        (&["--agent", "bob"], vec![("bob", "alice")]),
        (&["--initiator", "alice"], vec![("ann", "alice"), ("bob", "alice"), ("cyd", "alice")]),
        (&["--as", "eve"], vec![]),
    ] {
        let found = rig.run(&[&["panel", "evidence", "--domain", "algebra", "--json"], filters].concat()).await;
        assert_eq!((found.code, pairs(&found)), (Some(0), expected), "{filters:?}");
    }
    let token = rig.token("ann");
    let partly = rig.run(&["panel", "evidence", "--domain", "algebra", "--token", &token]).await;
    assert!(partly.code == Some(0) && partly.stderr.contains("the token is of ann, no administrator"), "{partly:?}");
    assert_eq!(rig.run(&["panel", "evidence", "--domain", "a.b"]).await.code, Some(2));
    assert_eq!(rig.run(&["panel", "evidence"]).await.code, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_evidence_recommends_is_printed_or_stored_as_a_group() {
    let rig = known().await;
    let choose = async |more: &[&str]| rig.run(&[&["panel", "choose", "--domain", "algebra"], more].concat()).await;
    let own = ["--initiator", "alice", "--keep", "1", "--newcomers", "0"];
    let chosen = choose(&[&own[..], &["--json"]].concat()).await.document();
    assert_eq!((&chosen["seats"], &chosen["agents"]), (&json!("chosen"), &json!(["bob"])));
    let candidates = json!([{"agent": "ann", "reputation": 1_333_333}, {"agent": "bob", "reputation": 1_666_666},
        {"agent": "cyd", "reputation": null}]);
    assert_eq!(chosen["candidates"], candidates);
    let text = choose(&own).await.stdout;
    assert!(text.contains("bob    1.666666    yes") && text.ends_with("1 agent chosen\n"), "{text}");
    let trial = choose(&["--initiator", "alice", "--keep", "3"]).await.stdout;
    assert!(trial.ends_with("a trial of 3 agents: fewer than 3 have a reputation\n"), "{trial}");
    let among = choose(&["--initiator", "alice", "--keep", "1", "--among", "ann,eve", "--json"]).await.document();
    assert_eq!(among["agents"], json!(["ann", "eve"]), "eve is a newcomer");
    let doras = choose(&["--from", "dora", "--min-runs", "5", "--keep", "1", "--newcomers", "0", "--json"]).await;
    assert_eq!(doras.document()["agents"], json!(["ann"]));

    let stored = choose(&[&own[..], &["--group", "algebraists"]].concat()).await;
    assert!(stored.code == Some(0) && stored.stderr.contains("group algebraists now has 1 agent"), "{stored:?}");
    let group: Value = rig.control.read("/v1/groups/algebraists", &rig.token("alice")).await.unwrap();
    assert_eq!(group["members"], json!(["bob"]));

    for (bad, code, says) in [
        (&["--keep", "1"][..], 2, "--initiator"),
        (&["--keep", "0", "--from", "all"], 2, "--keep"),
        (&["--keep", "33", "--from", "all"], 2, "--keep"),
        (&["--keep", "1", "--from", "a b"], 2, "own, all or agents' ids"),
        (&["--keep", "1", "--from", "all", "--min-runs", "0"], 2, "--min-runs"),
    ] {
        let refused = choose(bad).await;
        assert!(refused.code == Some(code) && refused.stderr.contains(says), "{bad:?}: {refused:?}");
    }
    let nobody = rig.run(&["panel", "choose", "--domain", "zoology", "--keep", "1", "--from", "all"]).await;
    assert!(nobody.code == Some(1) && nobody.stderr.contains("--among"), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_replayed_for_its_evidence_and_refused_where_it_was_altered() {
    let rig = Rig::start().await;
    let export = rig.path("run.jsonl");
    let file = export.to_str().unwrap();
    let demo = ["demo", "--protocol", "panel", "--rate", "20", "--duration", "3", "--export", file];
    let ran = rig.run(&demo).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let shown = rig.run(&["panel", "evidence", "--domain", "arithmetic", "--json", file]).await;
    let entries = shown.document()["entries"].as_array().unwrap().clone();
    assert!(!entries.is_empty() && entries.iter().all(|one| one["domain"] == "arithmetic"), "{shown:?}");
    let sums = |member: &str| entries.iter().map(|one| one[member].as_u64().unwrap()).sum::<u64>();
    assert!(sums("replied") > 0 && sums("asked") >= sums("replied"));
    let choose = ["panel", "choose", "--domain", "arithmetic", "--keep", "1", "--from", "all", "--json", file];
    let chosen = rig.run(&choose).await;
    assert!(!chosen.document()["agents"].as_array().unwrap().is_empty());

    let written = std::fs::read_to_string(&export).unwrap();
    let altered =
        written.replacen("agreed\":true", "agreed\":false", 1).replacen("agreed\\\":true", "agreed\\\":false", 1);
    assert_ne!(altered, written);
    std::fs::write(&export, altered).unwrap();
    let refused = rig.run(&["panel", "evidence", "--domain", "arithmetic", file]).await;
    assert!(refused.code == Some(1) && refused.stdout.is_empty(), "{refused:?}");
    assert_eq!(rig.run(&["panel", "evidence", "--domain", "arithmetic", "nowhere.jsonl"]).await.code, Some(2));
}

/// An exchange at which alice's and dora's panels have shown something.
async fn known() -> Rig {
    let rig = Rig::start().await;
    rig.register("alice", "courses", "algebra").await;
    let entries = [
        entry("ann", "alice", 20, 30),
        entry("ann", "dora", 5, 5),
        entry("bob", "alice", 20, 40),
        entry("cyd", "alice", 9, 9),
    ];
    let document = json!({ "position": 1, "entries": entries }).to_string();
    let name = subject::evidence_document(Lane(0));
    assert!(rig.exchange.bus.blobs.put(name, 1, Bytes::from(document)).await.unwrap());
    rig.exchange.bus.pub_sub.publish(subject::evidence(Lane(0)), Bytes::from("1")).await.unwrap();
    let known =
        async { while pairs(&rig.run(&["panel", "evidence", "--domain", "algebra", "--json"]).await).is_empty() {} };
    tokio::time::timeout(PATIENCE, known).await.expect("the gateway reads what is stored");
    rig
}

fn entry(agent: &str, initiator: &str, runs: u64, total: u64) -> Value {
    json!({ "domain": "algebra", "agent": agent, "role": "panelist", "initiator": initiator, "runs": runs, "asked": runs,
        "replied": runs, "agreed": runs, "layers": runs, "total_e12": total, "fair_e12": runs,
        "usage": { "calls": 0, "prompt_tokens": 0, "completion_tokens": 0 } })
}

/// About whom, and from whose panels.
fn pairs(ran: &Ran) -> Vec<(&'static str, &'static str)> {
    let names = ["alice", "ann", "bob", "cyd", "dora"];
    let name = |value: &Value| names.into_iter().find(|name| *value == **name).unwrap_or("?");
    let document = ran.document();
    let entries = document["entries"].as_array().unwrap();
    entries.iter().map(|one| (name(&one["agent"]), name(&one["initiator"]))).collect()
}
