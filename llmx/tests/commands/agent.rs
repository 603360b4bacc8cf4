//! `llmx agent`.

use serde_json::json;

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_listed_by_topic_and_capability_over_all_pages() {
    let rig = Rig::start().await;
    for number in 0..205 {
        rig.register(&format!("many-{number:03}"), "many", "wait").await;
    }
    rig.register("bob", "courier", "bicycle").await;

    let many = rig.run(&["agent", "list", "--topic", "many", "--json"]).await;
    assert_eq!(many.code, Some(0), "{many:?}");
    let document = many.document();
    let agents = document["agents"].as_array().unwrap();
    assert_eq!((agents.len(), &document["cut"]), (205, &json!(false)));
    assert_eq!((&agents[0]["agent"], &agents[204]["agent"]), (&json!("many-000"), &json!("many-204")));
    let cut = rig.run(&["agent", "list", "--capability", "wait", "--limit", "203", "--json"]).await.document();
    assert_eq!((cut["agents"].as_array().unwrap().len(), &cut["cut"]), (203, &json!(true)));

    let bob = rig.run(&["agent", "list", "--topic", "courier", "--capability", "bicycle"]).await;
    let lines: Vec<Vec<&str>> = bob.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["AGENT", "PRESENT", "CAPABILITIES", "TOPICS", "DESCRIPTION"]);
    assert_eq!((lines[1][0], lines[1][2], lines[1][3]), ("bob", "bicycle", "courier"));
    assert_eq!(bob.stdout.lines().last(), Some("1 agent"));
    let nobody = rig.run(&["agent", "list", "--topic", "nothing"]).await;
    assert_eq!((nobody.code, nobody.stdout.lines().last()), (Some(0), Some("0 agents")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_sees_its_consent_others_do_not_and_only_its_own_token_removes_it() {
    let rig = Rig::start().await;
    rig.register("bob", "courier", "bicycle").await;
    let own = rig.run(&["agent", "show", "bob", "--json"]).await.document();
    assert_eq!((&own["agent"], &own["consent"]["default"]), (&json!("bob"), &json!("allow")));
    let (ann, bob) = (rig.token("ann"), rig.token("bob"));
    let others = rig.run(&["agent", "show", "bob", "--token", &ann, "--json"]).await.document();
    assert_eq!((&others["agent"], others.get("consent")), (&json!("bob"), None));
    let text = rig.run(&["agent", "show", "bob", "--token", &ann]).await.stdout;
    assert!(text.lines().any(|line| line.split_whitespace().eq(["capabilities", "bicycle"])), "{text}");

    let refused = rig.run(&["agent", "remove", "bob", "--token", &ann]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(refused.stderr.contains("unauthorized: "), "{refused:?}");
    let removed = rig.run(&["agent", "remove", "bob", "--token", &bob, "--json"]).await;
    assert_eq!((removed.code, removed.document()), (Some(0), json!({"agent": "bob", "removed": true})));
    let again = rig.run(&["agent", "remove", "bob"]).await;
    assert!(again.code == Some(1) && again.stderr.contains("not_found: "), "{again:?}");
}
