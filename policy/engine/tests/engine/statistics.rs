//! What an engine tells people who look: statistics and journals.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError};
use bytes::Bytes;
use futures_util::StreamExt;
use policy_engine::{Engine, EngineConfig, EngineMetrics};
use prometheus::Registry;
use schemas::journal::{Happened, Journal, JournalRequest};
use schemas::record::Qos;
use schemas::statistics::Statistics;
use schemas::{Act, subject};

use crate::bargain::{bargain, join_and_accept_anything};
use crate::exchange::{
    LANE, Probe, append, award_no, call, config, confirm, document, done, message, metrics, negotiation, offer,
    offer_under_document, open_bus, policy, sample, start,
};

#[tokio::test(start_paused = true)]
async fn a_journal_tells_a_round_from_the_call_to_its_end_and_no_terms() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    round(&bus, "job", 4_711).await;
    let journal = journal(&bus, "job").await.expect("it is remembered");
    assert_eq!((journal.negotiation.as_str(), journal.engine.as_str()), ("alice~job", "engine-1"));
    assert_eq!(journal.left_out, 0);
    let told: Vec<String> = journal.entries.iter().map(|entry| line(&entry.what)).collect();
    let expected = [
        "called contract_net low@1 1",
        "sent bob cfp",
        "acknowledged bob cfp 1",
        "bob offer ok",
        "closed k_valid",
        "decided score",
        "moved collecting awarding",
        "registered award.alice~job.0.1 written",
        "sent bob accept",
        "acknowledged bob accept 1",
        "bob confirm committed",
        "committed bob",
        "bob inform ok",
        "ended completed",
        "sent bob closed",
        "reported bob",
        "acknowledged bob closed 1",
    ];
    let mut rest = told.iter();
    for line in expected {
        assert!(rest.any(|told| told == line), "`{line}` in its place: {told:#?}");
    }
    let decided = journal.entries.iter().find_map(|entry| {
        let Happened::Decided { cause, ranked, winners, documents } = &entry.what else { return None };
        Some((cause.as_str(), ranked.len(), winners[0].as_str(), documents.as_slice()))
    });
    assert_eq!(decided, Some(("score", 1, "bob", &[document()][..])));
    let text = serde_json::to_string(&journal).unwrap();
    assert!(!text.contains("4711") && !text.contains("price"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_given_up_stands_in_the_journal_with_its_reason() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    append(&bus, vec![call("job", policy("high"), &["nobody"], Qos::AtLeastOnce)]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let journal = journal(&bus, "job").await.unwrap();
    let told: Vec<String> = journal.entries.iter().map(|entry| line(&entry.what)).collect();
    assert!(told.contains(&"given up nobody cfp attempts".to_owned()), "{told:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_journal_of_a_bargain_has_its_rules_and_an_agreement_that_never_stood_and_nothing_of_a_mandate() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let (mut alice, mut bob) = (Probe::connect(&bus, "alice").await, Probe::connect(&bus, "bob").await);
    append(&bus, vec![bargain("deal")]).await;
    bob.until(Act::Cfp).await;
    append(&bus, vec![join_and_accept_anything("bob", "deal", "m2", 123_457)]).await;
    alice.until(Act::Turn).await;
    append(&bus, vec![message("alice", "deal", "m3", offer(7))]).await;
    alice.until(Act::Closed).await;
    let journal = journal(&bus, "deal").await.unwrap();
    let told: Vec<String> = journal.entries.iter().map(|entry| line(&entry.what)).collect();
    assert!(told.contains(&"rules 2 1".to_owned()), "{told:#?}");
    assert!(told.contains(&"agreed alice 2".to_owned()), "{told:#?}");
    assert!(!told.iter().any(|line| line.starts_with("proposed")), "nobody was told that it stands: {told:#?}");
    let text = serde_json::to_string(&journal).unwrap();
    assert!(!text.contains("123457") && !text.contains("bargain-low"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_negotiation_and_nonsense_have_no_journal() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    assert_eq!(journal(&bus, "job").await, None);
    assert_eq!(ask(&bus, b"nonsense").await.unwrap(), serde_json::json!({"not_found": true}));
}

#[tokio::test(start_paused = true)]
async fn only_what_the_owner_did_live_is_told_and_its_successor_goes_on() {
    let bus = open_bus();
    append(&bus, vec![call("early", policy("high"), &["bob", "carol"], Qos::AtLeastOnce)]).await;
    let (mut bob, mut carol) = (Probe::connect(&bus, "bob").await, Probe::connect(&bus, "carol").await);
    let owner = start(&bus, "engine-1").await;
    bob.until(Act::Cfp).await;
    carol.until(Act::Cfp).await;
    assert_eq!(journal(&bus, "early").await, None, "called before the lane was owned");
    append(&bus, vec![message("bob", "early", "b1", offer(3))]).await;
    bob.until(Act::Ack).await;
    let told = journal(&bus, "early").await.expect("it goes on under this owner").entries;
    assert_eq!(line(&told[0].what), "bob offer ok");
    let statistics = statistics(&bus, "engine-1").await;
    assert_eq!((statistics.open, statistics.started, statistics.offers), (1, 1, 1), "nobody else has counted the call");
    let newest = &statistics.newest[0];
    assert_eq!((newest.protocol.as_str(), newest.phase.as_str()), ("contract_net", "collecting"));
    assert_eq!((newest.policy.as_str(), newest.invited, newest.offers), ("high@1", 2, 1));
    owner.shutdown().await;
    let _next = start(&bus, "engine-2").await;
    assert_eq!(journal(&bus, "early").await, None, "nothing survives its owner");
}

#[tokio::test(start_paused = true)]
async fn statistics_count_what_ended_and_name_the_newest() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    for number in 0..3 {
        round(&bus, &format!("job-{number}"), 5).await;
    }
    let mut carol = Probe::connect(&bus, "carol").await;
    append(&bus, vec![call("open", policy("high"), &["carol"], Qos::AtLeastOnce)]).await;
    carol.until(Act::Cfp).await;
    let told = statistics(&bus, "engine-1").await;
    assert_eq!((told.owned.as_slice(), told.open, told.started), (&[LANE][..], 1, 4));
    assert_eq!(told.ended, [("completed".to_owned(), 3)].into());
    assert_eq!((told.awards, told.offers, told.round.count), (3, 3, 3));
    assert!(told.unacknowledged > 0, "alice acknowledges nothing");
    assert_eq!(told.newest.iter().map(|open| open.negotiation.as_str()).collect::<Vec<_>>(), ["alice~open"]);
    let latest: Vec<_> = told.latest.iter().map(|ended| ended.negotiation.as_str()).collect();
    assert_eq!(latest, ["alice~job-2", "alice~job-1", "alice~job-0"]);
    assert_eq!((told.latest[0].outcome.as_str(), told.latest[0].awards, told.latest[0].offers), ("completed", 1, 1));
    tokio::time::sleep(Duration::from_secs(62)).await;
    let told = statistics(&bus, "engine-1").await;
    assert_eq!((told.round.count, told.open), (1, 0), "a minute later only the one that ran into its deadline");
    let mut statistics = bus.pub_sub.subscribe(subject::ALL_STATISTICS.to_owned(), None).await.unwrap();
    engine.shutdown().await;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(5), statistics.next()).await {}
    assert!(tokio::time::timeout(Duration::from_secs(60), statistics.next()).await.is_err(), "it ends with the engine");
}

#[tokio::test(start_paused = true)]
async fn what_ends_while_no_engine_runs_is_counted_once_by_the_next() {
    let bus = open_bus();
    let first = start(&bus, "engine-1").await;
    round(&bus, "seen", 5).await;
    first.shutdown().await;
    append(&bus, vec![call("unseen", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    // Deadlines pass as of the records' times: this one shows that they are over.
    append(&bus, vec![call("later", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let registry = Registry::new();
    let counted = Arc::new(EngineMetrics::new(&registry).unwrap());
    let second = Engine::start(bus.clone(), config("engine-2"), counted, None).await.unwrap();
    let told = statistics(&bus, "engine-2").await;
    assert_eq!(told.ended, [("no_offers".to_owned(), 1)].into(), "and not what the first one saw");
    assert_eq!(sample(&registry, "exchange_negotiations_closed_total", "no_offers"), 1.0);
    assert_eq!(sample(&registry, "exchange_negotiations_closed_total", "completed"), 0.0);
    assert_eq!(told.started, 2);
    second.shutdown().await;
    let _third = start(&bus, "engine-3").await;
    let told = statistics(&bus, "engine-3").await;
    assert!(told.ended.is_empty(), "the second one has counted it: {:?}", told.ended);
}

#[tokio::test(start_paused = true)]
async fn a_standby_owns_nothing_in_its_statistics_and_answers_for_nothing() {
    let bus = open_bus();
    let first = start(&bus, "engine-1").await;
    let second = start(&bus, "engine-2").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    round(&bus, "job", 5).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let statistics = [statistics(&bus, "engine-1").await, statistics(&bus, "engine-2").await];
    let owned: Vec<usize> = statistics.iter().map(|statistics| statistics.owned.len()).collect();
    assert_eq!(owned.iter().sum::<usize>(), 1);
    let standby = &statistics[usize::from(owned[1] == 0)];
    assert_eq!((standby.started, standby.open, standby.newest.len()), (0, 0, 0));
    assert!(journal(&bus, "job").await.is_some());
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_tells_nobody_publishes_no_statistics_and_answers_no_journal() {
    let bus = open_bus();
    let config = EngineConfig { statistics_ms: 0, ..config("engine-1") };
    let _engine = Engine::start(bus.clone(), config, metrics(), None).await.unwrap();
    let mut statistics = bus.pub_sub.subscribe(subject::ALL_STATISTICS.to_owned(), None).await.unwrap();
    round(&bus, "job", 5).await;
    assert!(tokio::time::timeout(Duration::from_secs(60), statistics.next()).await.is_err());
    assert!(matches!(ask(&bus, b"{}").await, Err(BusError::NoResponder(_))));
}

/// A whole round of bob, who acknowledges everything.
async fn round(bus: &Bus, own: &str, price: i64) {
    let mut bob = Probe::connect(bus, "bob").await;
    append(bus, vec![call(own, policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    append(bus, vec![message("bob", own, "b1", offer_under_document(price))]).await;
    let accept = bob.until(Act::Accept).await;
    append(bus, vec![message("bob", own, "b2", confirm(award_no(&accept)))]).await;
    bob.until(Act::Ack).await;
    append(bus, vec![message("bob", own, "b3", done())]).await;
    bob.until(Act::Closed).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn ask(bus: &Bus, request: &[u8]) -> Result<serde_json::Value, BusError> {
    let request = Bytes::copy_from_slice(request);
    let answer = bus.pub_sub.request(subject::journal(LANE), None, request, Duration::from_secs(1)).await?;
    Ok(serde_json::from_slice(&answer).unwrap())
}

async fn journal(bus: &Bus, own: &str) -> Option<Journal> {
    let request = serde_json::to_vec(&JournalRequest { negotiation: negotiation(own) }).unwrap();
    let mut answer = ask(bus, &request).await.unwrap();
    let found = answer.get_mut("found").map(serde_json::Value::take);
    assert_eq!(found.is_none(), answer == serde_json::json!({"not_found": true}));
    found.map(|journal| serde_json::from_value(journal).unwrap())
}

async fn statistics(bus: &Bus, engine: &str) -> Statistics {
    let mut published = bus.pub_sub.subscribe(subject::statistics(engine), None).await.unwrap();
    let mut latest = None;
    for _ in 0..2 {
        let received =
            tokio::time::timeout(Duration::from_secs(3), published.next()).await.expect("statistics in time");
        latest = Some(serde_json::from_slice(&received.unwrap().payload).unwrap());
    }
    latest.unwrap()
}

fn line(what: &Happened) -> String {
    match what {
        Happened::Called { protocol, policy, invited, .. } => format!("called {protocol} {policy} {invited}"),
        Happened::Message { from, act, disposition, .. } => format!("{from} {act} {disposition}"),
        Happened::Proposed { by, step, .. } => format!("proposed {by} {step}"),
        Happened::Bid { by, bid_no, price } => format!("bid {by} {bid_no} {price}"),
        Happened::Rules { parties, issues } => format!("rules {} {}", parties.len(), issues.len()),
        Happened::Agreed { by, step, .. } => format!("agreed {by} {step}"),
        Happened::Floor(floor) => format!("floor {} {}", floor.step, <&str>::from(floor.state)),
        Happened::Concluded(conclusion) => format!("concluded {}", conclusion.by),
        Happened::Asked { round, kind } => format!("asked {round} {kind}"),
        Happened::Found(finding) => format!("found {} of {}", finding.agreed, finding.of),
        Happened::Moved { from, to } => format!("moved {from} {to}"),
        Happened::Closed { reason, .. } => format!("closed {reason}"),
        Happened::Decided { cause, .. } => format!("decided {cause}"),
        Happened::Registered { key, result } => format!("registered {key} {result}"),
        Happened::Sent { to, act, .. } => format!("sent {to} {act}"),
        Happened::Acknowledged { by, act, attempts, .. } => format!("acknowledged {by} {act} {attempts}"),
        Happened::GivenUp { to, act, reason, .. } => format!("given up {to} {act} {reason}"),
        Happened::Committed { contractor, .. } => format!("committed {contractor}"),
        Happened::Reported { contractor, .. } => format!("reported {contractor}"),
        Happened::AwardLost { loss, .. } => format!("lost {loss}"),
        Happened::Ended { outcome, .. } => format!("ended {outcome}"),
    }
}
