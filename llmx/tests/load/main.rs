//! Contractors and generators as processes of their own, against a gateway and an engine on a real nats-server: what their
//! health ports say, that two generators do not disturb each other, whom calls reach, who is invited no more, and what an
//! engine says that stood still.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod backlog;
mod examples;
mod frozen;
mod kinds;
mod presence;
mod process;
#[path = "../common/program.rs"]
mod program;
mod reach;

use std::time::{Duration, Instant};

use serde_json::Value;

use process::{PATIENCE, Site};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_generators_call_the_same_contractors_and_all_of_them_tell_how_they_are() {
    let site = Site::start().await;
    let mut agents = site.remote(&["contractors", "--count", "3", "--listen", "127.0.0.1:0"]);
    let agents_url = agents.says("health: ").await.replace("/readyz", "");
    agents.says("contractors: 3 connected").await;
    let (status, body) = ask(&agents_url, "/readyz").await;
    assert_eq!((status, &body["state"]["connected"]), (200, &3.into()), "{body}");

    let mut generators = Vec::new();
    for name in ["ann", "ben"] {
        let args =
            ["traffic", "--json", "--initiator", name, "--rate", "20", "--duration", "4", "--listen", "127.0.0.1:0"];
        let mut generator = site.remote(&args);
        let url = generator.complains("health: ").await.replace("/readyz", "");
        generators.push((name, generator, url));
    }
    for (_, _, url) in &generators {
        until_ready(url).await;
        let metrics = metrics(url).await;
        for line in [
            "trafficgen_phase{phase=\"running\"} 1",
            "trafficgen_target_rate 20",
            "agent_connected{strategy=\"initiator\"} 1",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
        }
    }
    for (name, generator, _) in generators {
        let (code, summary) = generator.end_by_itself().await;
        let summary: Value = serde_json::from_str(&summary).unwrap();
        assert_eq!((code, &summary["initiator"]), (Some(0), &name.into()), "{summary}");
        let rounds = summary["rounds"].as_u64().unwrap();
        // Had they shared an id, the calls of one would have been refused or merged with the other's.
        assert!(rounds > 20 && summary["cfps"] == rounds, "{summary}");
        assert_eq!((&summary["rejected"], &summary["lost"]), (&serde_json::json!({}), &0.into()), "{summary}");
    }
    let metrics = metrics(&agents_url).await;
    let offers = "agent_messages_total{act=\"offer\",outcome=\"accepted\"} ";
    let offers = metrics.lines().find_map(|line| line.strip_prefix(offers)).unwrap();
    assert!(offers.parse::<u64>().unwrap() > 0, "{offers}");
    assert!(metrics.contains("agent_connected{strategy=\"contractor\"} 3\n"), "{metrics}");
    assert_eq!(agents.end().await, Some(0));
    site.end().await;
}

async fn ask(url: &str, path: &str) -> (u16, Value) {
    let response = reqwest::get(format!("{url}{path}")).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn metrics(url: &str) -> String {
    reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap()
}

async fn until_ready(url: &str) {
    let began = Instant::now();
    loop {
        let (status, body) = ask(url, "/readyz").await;
        if status == 200 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{status}: {body}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
