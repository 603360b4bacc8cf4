//! `llmx-lab team goal` and `llmx-lab team play` on an exchange that runs.

use serde_json::{Value, json};

use crate::process::{Process, Site};
use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goal_that_nobody_fits_goes_to_the_worker_and_without_one_says_what_to_do() {
    let rig = Rig::start().await;
    let nobody = rig.run(&["team", "goal", "build a zeppelin"]).await;
    assert_eq!((nobody.code, nobody.stdout.as_str()), (Some(1), ""), "{nobody:?}");
    assert!(nobody.stderr.contains("--worker PROGRAM"), "{nobody:?}");
    let worked = rig.run(&["team", "goal", "build a zeppelin", "--worker", "/bin/cat"]).await;
    assert_eq!((worked.code, worked.stdout.as_str()), (Some(0), "build a zeppelin\n"), "{worked:?}");
    let document = rig.run(&["team", "goal", "build a zeppelin", "--worker", "/bin/cat", "--json"]).await.document();
    assert_eq!((&document["end"], &document["result"]), (&json!("alone"), &json!("build a zeppelin")));
    let failed = rig.run(&["team", "goal", "build a zeppelin", "--worker", "/bin/false"]).await;
    assert_eq!(failed.code, Some(1), "{failed:?}");
    for (args, said) in [
        (vec!["--contacts", "key.pem"], "key.pem"),
        (vec!["--model", "nowhere.toml"], "nowhere.toml"),
        (vec!["--members", "1"], "--members"),
    ] {
        let args: Vec<String> = args.iter().map(|arg| arg.replace("key.pem", rig.key().to_str().unwrap())).collect();
        let all: Vec<&str> = ["team", "goal", "x"].into_iter().chain(args.iter().map(String::as_str)).collect();
        let refused = rig.run(&all).await;
        assert!(refused.code == Some(2) && refused.stderr.contains(said), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_plays_on_an_exchange_that_runs_as_it_does_on_one_of_its_own_and_may_be_played_again() {
    let site = Site::start().await;
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../domains/teams/evening.json");
    let played = async |process: Process| {
        let (code, report) = process.end_by_itself().await;
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!((code, &report["invariant_violations"]["total"]), (Some(0), &json!(0)), "{report}");
        report["digest"].clone()
    };
    let own = played(Process::start(&["team", "play", scenario, "--json"])).await;
    for _ in 0..2 {
        assert_eq!(played(site.remote(&["team", "play", scenario, "--json", "--running"])).await, own);
    }
    site.end().await;
}
