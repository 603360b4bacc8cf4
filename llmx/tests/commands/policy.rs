//! `llmx policy` of a running exchange, and what is said of tokens that do not do.

use schemas::Policy;

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_put_and_switched_with_the_key_that_the_other_commands_sign_with() {
    let rig = Rig::start().await;
    let file = rig.path("mine.json");
    let mut mine: Policy = policy_core::preset("low").unwrap();
    mine.id = "mine@1".to_owned();
    std::fs::write(&file, serde_json::to_vec(&mine).unwrap()).unwrap();
    let put = rig.run(&["policy", "put", file.to_str().unwrap()]).await;
    assert_eq!(put.code, Some(0), "{put:?}");
    let switched = rig.run(&["policy", "default", "mine"]).await;
    assert_eq!(switched.code, Some(0), "{switched:?}");
    let listed = rig.run(&["policy", "list", "--gateway", rig.exchange.url()]).await;
    assert!(listed.stdout.contains("mine@1 (default)"), "{listed:?}");
    let misspelt = rig.run(&["policy", "default", "mime"]).await;
    assert_eq!(misspelt.code, Some(1), "{misspelt:?}");
    assert!(
        misspelt.stderr.contains("unknown_policy") && misspelt.stderr.contains("nearest to that: mine"),
        "{misspelt:?}"
    );
    let of_bob = rig.run(&["policy", "default", "mine", "--token", &rig.token("bob")]).await;
    assert!(of_bob.stderr.contains("unauthorized") && of_bob.stderr.contains("this one is of bob"), "{of_bob:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_token_is_answered_with_what_helps_against_its_fault() {
    let rig = Rig::start().await;
    let issuer = traffic_gen::exchange::Exchange::claims(&crate::rig::agent("bob")).iss;
    let long = rig.run(&["token", "bob", "--lifetime", "1000000", "--issuer", &issuer]).await;
    let long = rig.run(&["agent", "list", "--token", long.stdout.trim()]).await;
    assert!(long.stderr.contains("lives longer") && long.stderr.contains("at most 86400 s"), "{long:?}");
    assert!(!long.stderr.contains("--issuer"), "it is not the issuer: {long:?}");
    let foreign = rig.run(&["agent", "list", "--issuer", "somebody-else"]).await;
    assert!(foreign.stderr.contains("--key, --issuer and --audience, or --token"), "{foreign:?}");
    rig.register("bob", "courier", "bicycle").await;
    let of_ann = rig.run(&["agent", "remove", "bob", "--token", &rig.token("ann")]).await;
    assert!(of_ann.stderr.contains("a token of bob; this one is of ann"), "{of_ann:?}");
}
