//! `llmx ioa bridge`.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::rig::{PATIENCE, Ran, Rig, signal};

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
