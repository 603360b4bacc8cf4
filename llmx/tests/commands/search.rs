//! `llmx search`.

use serde_json::json;

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_found_by_text_and_shown_with_their_scores() {
    let rig = Rig::start().await;
    for name in ["bob", "carol"] {
        rig.register(name, "courier", "bicycle").await;
    }
    rig.register("dave", "courier", "lorry").await;
    let found = rig.run(&["search", "BICYCLE!", "lorry bicycle", "--json"]).await;
    assert_eq!(found.code, Some(0), "{found:?}");
    let document = found.document();
    let hits: Vec<_> =
        document["hits"].as_array().unwrap().iter().map(|hit| (hit["agent"].clone(), hit["query"].clone())).collect();
    assert_eq!(hits, [(json!("bob"), json!(0)), (json!("carol"), json!(0)), (json!("dave"), json!(1))]);
    let text = rig.run(&["search", "bicycle", "--limit", "1"]).await.stdout;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["TEXT", "AGENT", "SCORE", "PRESENT", "REACHABLE", "DESCRIPTION"]);
    assert_eq!((lines[1][0], lines[1][1]), ("1", "bob"));
    let cursor = text.lines().last().unwrap().split_whitespace().nth(3).unwrap().to_owned();
    let second = rig.run(&["search", "bicycle", "--limit", "1", "--cursor", &cursor, "--json"]).await.document();
    assert_eq!((&second["hits"][0]["agent"], &second["next"]), (&json!("carol"), &json!(null)));
    let nobody = rig.run(&["search", "zeppelin"]).await;
    assert_eq!((nobody.code, nobody.stdout.lines().last()), (Some(0), Some("0 agents")));
    let refused = rig.run(&["search", "bicycle", "--cursor", "garbage"]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("bad_format"), "{refused:?}");
    assert_eq!(rig.run(&["search"]).await.code, Some(2));
}
