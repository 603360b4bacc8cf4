//! A panel through an engine: asks, sealed rounds, the finding in the register before it is told, and the metrics.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, Received};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use policy_core::preset;
use policy_engine::{Engine, EngineMetrics};
use prometheus::Registry;
use schemas::delivery::{Ask, Notification, Outcome, ProgressReport};
use schemas::evidence::LaneEvidence;
use schemas::panel::{PanelAnswer, PanelSpec};
use schemas::payload::{Cfp, Payload};
use schemas::record::{AdmittedMessage, Entry, Qos};
use schemas::{Act, AwardNo, Lot, RegisterKey, subject};
use tokio::time::timeout;

use crate::exchange::{LANE, Probe, append, call, config, message, negotiation, open_bus, sample, start};

/// Who answers what in the first round, in the order of the worked example of docs/spec/panel-answers.md.
const FIRST: [(&str, &str); 4] = [("ann", "B"), ("bob", "C"), ("cyd", "B"), ("dan", "A")];
/// Ratings in the second round, by rater and rated.
const RATINGS: [(&str, [(&str, u32); 3]); 3] = [
    ("ann", [("bob", 2), ("cyd", 5), ("dan", 1)]),
    ("bob", [("ann", 5), ("cyd", 5), ("dan", 1)]),
    ("cyd", [("ann", 4), ("bob", 1), ("dan", 1)]),
];

#[tokio::test(start_paused = true)]
async fn a_panel_is_asked_in_rounds_registered_before_its_finding_and_counted_under_its_protocol() {
    let bus = open_bus();
    let registry = Registry::new();
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let _engine = Engine::start(bus.clone(), config("engine-1"), metrics, None).await.unwrap();
    let mut alice = Probe::connect(&bus, "alice").await;
    let mut seats = Vec::new();
    for (who, _) in FIRST {
        seats.push(Probe::connect(&bus, who).await);
    }

    append(&bus, vec![panel("question")]).await;
    for seat in &mut seats {
        let asked = ask(seat.until(Act::Ask).await.payload);
        assert_eq!((asked.round, asked.peers, asked.own), (1, None, None));
    }
    assert_eq!(sample(&registry, "exchange_negotiations_open", "asking"), 1.0);
    let first = FIRST.map(|(who, text)| answer(who, 1, text, None));
    append(&bus, first.to_vec()).await;
    let mut second = Vec::new();
    for ((who, given), seat) in RATINGS.into_iter().zip(&mut seats) {
        let asked = ask(seat.until(Act::Ask).await.payload);
        let rating = |by: &str| given.iter().find(|(rated, _)| by.ends_with(rated)).unwrap().1;
        let ratings = asked.peers.unwrap().iter().map(|peer| rating(peer.text.as_deref().unwrap())).collect();
        second.push(answer(who, 2, "B", Some(ratings)));
    }
    append(&bus, second).await;

    // Dan is silent: the engine ticks when his time is over.
    let told = alice.until(Act::Inform).await.payload;
    let Notification::Inform(ProgressReport::Finding(finding)) = told else { panic!("asked for a finding") };
    assert_eq!((finding.outcome, &*finding.answer, finding.agreed, finding.of), (Outcome::Consensus, "B", 3, 4));
    let shares: Vec<u64> = finding.panelists.iter().map(|one| one.importance_e12[0]).collect();
    assert_eq!(shares, [363_636_363_636, 187_500_000_000, 353_219_696_970, 95_643_939_394]);
    let key = RegisterKey::Award(negotiation("question"), Lot(0), AwardNo(1));
    let registered = bus.register.value(key).await.unwrap().expect("registered before it was told");
    assert!(String::from_utf8_lossy(&registered).contains(&finding.decision.to_string()));

    for seat in &mut seats {
        let Notification::Closed(closing) = seat.until(Act::Closed).await.payload else { panic!("asked for CLOSED") };
        assert_eq!((closing.outcome, closing.detail.as_deref()), (Outcome::Consensus, Some("answers")));
    }
    assert_eq!(sample(&registry, "exchange_negotiations_open", "asking"), 0.0);
    assert_eq!(sample(&registry, "exchange_negotiations_closed_total", "consensus"), 1.0);
    let asked = ["answer", "rank"].map(|kind| sample(&registry, "exchange_panel_calls_total", kind));
    assert_eq!(asked, [8.0, 0.0], "four seats in two rounds");
    let stopped = ["answers", "rounds"].map(|by| sample(&registry, "exchange_panel_stops_total", by));
    assert_eq!(stopped, [1.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn evidence_is_stored_told_and_counted_once_whoever_owns_the_lane() {
    let bus = open_bus();
    let mut told = bus.pub_sub.subscribe(subject::ALL_EVIDENCE.to_owned(), None).await.unwrap();
    let first = start(&bus, "engine-1").await;
    append(&bus, vec![panel("question")]).await;
    append(&bus, FIRST.map(|(who, _)| answer(who, 1, "B", None)).to_vec()).await;
    let published = shown(&bus, &mut told).await;
    let counts: Vec<_> = published.entries.iter().map(|one| (one.subject.agent.as_str(), one.counts.runs)).collect();
    assert_eq!(counts, FIRST.map(|(who, _)| (who, 1)));
    assert_eq!(published.entries.iter().map(|one| one.counts.total_e12).sum::<u64>(), 1_000_000_000_000);

    first.abort();
    let _second = start(&bus, "engine-2").await;
    let again = shown(&bus, &mut told).await;
    assert!(again.position > published.position, "with the records of the second engine");
    assert_eq!(again.entries, published.entries);
    assert!(
        !bus.blobs.put(subject::evidence_document(LANE), 1, bytes::Bytes::new()).await.unwrap(),
        "it never goes back"
    );
}

/// What is stored once that is told.
async fn shown(bus: &Bus, told: &mut BoxStream<'static, Received>) -> LaneEvidence {
    let notice = timeout(Duration::from_secs(3600), told.next()).await.expect("it is told").unwrap();
    assert_eq!(subject::evidence_lane_of(&notice.subject), Some(LANE));
    let document = bus.blobs.value(subject::evidence_document(LANE)).await.unwrap().expect("it is stored");
    let evidence: LaneEvidence = serde_json::from_slice(&document).unwrap();
    assert_eq!(evidence.position.to_string().as_bytes(), notice.payload);
    evidence
}

/// Alice asks four agents at once.
fn panel(own: &str) -> Entry {
    let rules: PanelSpec = serde_json::from_str(r#"{"asking": "all", "answer_ms": 5000}"#).unwrap();
    let cfp = Cfp { panel: Some(Box::new(rules)), ..Cfp::default() };
    let pinned = match call(own, preset("medium").unwrap(), &FIRST.map(|(who, _)| who), Qos::AtLeastOnce) {
        Entry::Message(AdmittedMessage { pinned, .. }) => pinned,
        Entry::Tick | Entry::Engine { .. } => None,
    };
    match message("alice", own, "m1", Payload::Cfp(cfp)) {
        Entry::Message(admitted) => Entry::Message(AdmittedMessage { pinned, ..admitted }),
        other @ (Entry::Tick | Entry::Engine { .. }) => other,
    }
}

fn answer(who: &str, round: u32, text: &str, ratings: Option<Vec<u32>>) -> Entry {
    let answer = Some(Some(text.to_owned()));
    let said = PanelAnswer { round, answer, text: Some(format!("by {who}")), ratings, ..PanelAnswer::default() };
    message(who, "question", &format!("{who}-{round}"), Payload::Answer(Box::new(said)))
}

fn ask(told: Notification) -> Ask {
    let Notification::Ask(ask) = told else { panic!("asked for ASK") };
    *ask
}
