//! `llmx call`.

use std::time::Duration;

use agents::ContractorConfig;
use schemas::control::LEASE_MS_MIN;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::rig::{PATIENCE, Ran, Rig, signal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_followed_from_the_invitation_to_the_end_and_shows_the_offers() {
    let rig = Rig::start().await;
    let population = rig.population(3, contractors(85_000_000, 2000)).await;
    let ran = rig.run(&["call", "carry a parcel", "--max-price", "85", "--policy", "high"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let begins: Vec<&str> = lines.iter().map(|line| line.split_whitespace().next().unwrap()).collect();
    let expected = ["called", "invited", "offers", "offer", "offer", "offer", "awarded", "confirmed", "done", "ended"];
    assert_eq!(begins, expected, "{}", ran.stdout);
    assert!(lines[2].starts_with("offers by  20"), "when collection ends: {}", ran.stdout);
    assert!(lines[0].contains("caller~call-") && lines[1].contains("3 contractors"), "{}", ran.stdout);
    assert!(lines[6].contains("price 85") && lines[6].contains("of 3 offers"), "{}", ran.stdout);
    assert!(lines[9].ends_with("completed"), "{}", ran.stdout);

    let args = ["call", "carry a parcel", "--as", "ann", "--id", "job-1", "--policy", "high", "--json"];
    let ran = rig.run(&args).await;
    let document = ran.document();
    assert_eq!((ran.code, &document["negotiation"]), (Some(0), &json!("ann~job-1")), "{ran:?}");
    assert_eq!((&document["invited"], &document["outcome"]), (&json!(3), &json!("completed")));
    assert_eq!((&document["policy"], &document["to"]), (&json!("high@1"), &json!(["topic://courier"])));
    assert_eq!(document["offers"].as_array().unwrap().len(), 3, "{document}");
    let award = &document["awards"][0];
    assert_eq!(
        (&award["terms"]["price"], &award["is_committed"], &award["is_done"]),
        (&json!(85_000_000), &json!(true), &json!(true))
    );
    population.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_above_the_highest_price_does_not_win_and_the_call_says_so() {
    let rig = Rig::start().await;
    let population = rig.population(2, contractors(85_000_001, 0)).await;
    let args = ["call", "carry a parcel", "--max-price", "85", "--policy", "high", "--reply-within", "5", "--json"];
    let ran = rig.run(&args).await;
    let document = ran.document();
    assert_eq!(
        (ran.code, &document["outcome"], &document["awards"]),
        (Some(1), &json!("no_offers"), &json!([])),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("not completed: no_offers"), "{ran:?}");
    let told =
        rig.run(&["call", "carry a parcel", "--max-price", "85", "--policy", "high", "--reply-within", "5"]).await;
    assert!(told.stdout.contains("ended      no_offers: everybody refused or was silent"), "{told:?}");
    assert!(told.stdout.contains("invited    2 contractors\n"), "{told:?}");
    let dearer = rig.run(&["call", "carry a parcel", "--max-price", "85.000001", "--policy", "high"]).await;
    assert_eq!(dearer.code, Some(0), "{dearer:?}");
    population.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_printed_with_its_code_and_where_the_fault_is() {
    let rig = Rig::start().await;
    rig.register("bob", "courier", "bicycle").await;
    for (args, code, pointer) in [
        (vec!["--to", "nobody"], "no_recipient", "/envelope/to"),
        (vec!["--capability", "lorry"], "no_recipient", "/envelope/to"),
        (vec!["--policy", "unheard-of"], "unknown_policy", "/payload/policy"),
        (vec!["--currency", "euro"], "bad_format", "/payload/currency"),
    ] {
        let args = [vec!["call", "carry a parcel", "--json"], args].concat();
        let ran = rig.run(&args).await;
        let refused = &ran.document()["refused"];
        assert_eq!(
            (ran.code, &refused["code"], &refused["pointer"]),
            (Some(1), &json!(code), &json!(pointer)),
            "{ran:?}"
        );
        assert!(ran.stderr.contains(code) && ran.stderr.contains(&format!("(at {pointer})")), "{ran:?}");
    }
    let misspelt = rig.run(&["call", "carry a parcel", "--policy", "mediun"]).await;
    assert!(misspelt.stderr.contains("nearest to that: medium, "), "{misspelt:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_reaches_the_absent_when_it_is_asked_to_and_names_them_when_not() {
    let rig = Rig::start().await;
    rig.register_for("bob", "courier", "bicycle", LEASE_MS_MIN).await;
    let call = ["call", "carry a parcel", "--wait", "0.5", "--json"];
    // Nobody speaks for bob, so his lease ends.
    let began = Instant::now();
    let refused = loop {
        let ran = rig.run(&call).await;
        if let Some(refused) = ran.document().get("refused") {
            break refused.clone();
        }
        assert!(began.elapsed() < PATIENCE, "{ran:?}");
    };
    assert_eq!((&refused["code"], &refused["pointer"]), (&json!("no_recipient"), &json!("/envelope/to")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("1 registered but absent"), "{refused}");
    assert!(rig.run(&call).await.stderr.contains("`llmx call --absent`"), "the remedy here is a flag");
    let ran = rig.run(&[&call[..], &["--absent"]].concat()).await;
    let document = ran.document();
    assert_eq!((&document["invited"], &document["left_out"]), (&json!(1), &json!(0)), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_interrupted_is_called_off_and_one_that_lasts_is_left_after_its_wait() {
    let rig = Rig::start().await;
    rig.register("bob", "courier", "bicycle").await;
    let args = ["call", "carry a parcel", "--to", "bob", "--policy", "high", "--reply-within", "60", "--json"];
    let child = rig.spawn(&[&args[..], &["--id", "job-1"]].concat());
    // The call is bob's as soon as it is open.
    let seen = rig.run(&["listen", "bob", "--count", "1", "--for", "30"]).await;
    assert!(seen.stdout.contains("caller~job-1"), "{seen:?}");
    signal(&child, "-INT");
    let ended = Ran::of(child.wait_with_output()).await;
    assert_eq!((ended.code, &ended.document()["outcome"]), (Some(1), &json!("cancelled")), "{ended:?}");
    assert!(ended.stderr.contains("called off"), "{ended:?}");

    let began = tokio::time::Instant::now();
    let left = rig.run(&[&args[..], &["--wait", "1"]].concat()).await;
    assert_eq!((left.code, left.document().get("outcome")), (Some(1), None), "{left:?}");
    assert!(left.stderr.contains("no end within 1 s") && began.elapsed() < PATIENCE / 2, "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_interrupted_while_the_gateway_says_nothing_ends_within_five_seconds() {
    let rig = Rig::start().await;
    rig.register("bob", "courier", "bicycle").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let target = rig.exchange.url().trim_start_matches("http://").to_owned();
    let (mute, muted) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (target, mut muted) = (target.clone(), muted.clone());
            tokio::spawn(async move {
                let mut far = TcpStream::connect(target).await.unwrap();
                let muted = async { muted.wait_for(|&is_mute| is_mute).await.is_ok() };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    // The connections stay open, and nothing passes any more.
                    _ = muted => std::future::pending().await,
                }
            });
        }
    });
    let args = ["call", "carry a parcel", "--to", "bob", "--policy", "high", "--reply-within", "60", "--gateway", &url];
    let child = rig.spawn(&args);
    let seen = rig.run(&["listen", "bob", "--count", "1", "--for", "30"]).await;
    assert_eq!(seen.code, Some(0), "{seen:?}");
    mute.send_replace(true);
    let began = tokio::time::Instant::now();
    signal(&child, "-INT");
    let ended = Ran::of(child.wait_with_output()).await;
    assert!(ended.code == Some(1) && ended.stderr.contains("no end was told within 4 s"), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(6), "five and the load of this machine: {:?}", began.elapsed());
}

fn contractors(price: i64, confirm_delay_ms: i64) -> ContractorConfig {
    let mut document = serde_json::to_value(ContractorConfig::default()).unwrap();
    document["terms"]["price"] = json!({ "constant": price });
    document["confirm_delay_ms"] = json!({ "constant": confirm_delay_ms });
    serde_json::from_value(document).unwrap()
}
