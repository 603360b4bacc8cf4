//! `llmx team goal` and `llmx ioa bridge`.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::rig::{PATIENCE, Ran, Rig, signal};

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
async fn the_bridge_serves_the_names_of_its_file_until_it_is_asked_to_end() {
    let rig = Rig::start().await;
    std::fs::write(rig.path("alice.token"), rig.token("alice")).unwrap();
    let names = rig.path("names.toml");
    let named = "[[agent]]\nname = \"Trip Planner\"\nagent = \"alice\"\ntoken_file = \"alice.token\"\n";
    std::fs::write(&names, named).unwrap();
    let mut bridge = rig.spawn(&["ioa", "bridge", "--listen", "127.0.0.1:0", "--agents", names.to_str().unwrap()]);
    let mut lines = BufReader::new(bridge.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let address = line.strip_prefix("bridge: ").unwrap().split(' ').next().unwrap().to_owned();
    let ask = async |path: &str, question: serde_json::Value| {
        let asking = reqwest::Client::new().post(format!("{address}{path}")).json(&question).send();
        let answer = tokio::time::timeout(Duration::from_secs(20), asking).await.unwrap().unwrap();
        answer.json::<serde_json::Value>().await.unwrap()
    };
    let info = json!({"name": "Trip Planner", "type": "Human Assistant", "desc": "plans trips"});
    assert_eq!(ask("/register", info.clone()).await, json!(null));
    assert_eq!(ask("/query_assistant", json!({"name": "Trip Planner"})).await, info);
    let found = rig.run(&["search", "plans trips", "--json"]).await.document();
    assert_eq!((&found["hits"][0]["agent"], &found["hits"][0]["kind"]), (&json!("alice"), &json!("human")));
    let other = json!({"name": "Mallory", "type": "Thing Assistant", "desc": ""});
    assert_eq!(ask("/register", other).await["code"], "unauthorized");
    signal(&bridge, "-INT");
    let ended = Ran::of(bridge.wait_with_output()).await;
    assert!(ended.code == Some(0) && ended.stderr.contains("unreadable 0"), "{ended:?}");

    for (file, said) in [("agent = 1", "names.toml"), (&*named.replace("alice.token", "nowhere"), "nowhere")] {
        std::fs::write(&names, file).unwrap();
        let refused = rig.run(&["ioa", "bridge", "--agents", names.to_str().unwrap()]).await;
        assert!(refused.code == Some(2) && refused.stderr.contains(said), "{refused:?}");
    }
}
