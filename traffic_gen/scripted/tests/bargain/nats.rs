//! The sample with every act as an envelope: agents, a gateway, a log on a real nats-server, an engine, deliveries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agents::bargain::{
    BargainEvent, BargainOutcome, BargainPlan, BargainReport, BargainRequest, Bargainer, OfferMade, Preferences,
    TurnView,
};
use agents::control::ControlClient;
use agents::transport::bus::BusTransport;
use agents::{Agent, AgentHandle};
use bus::nats::{self, NatsOptions};
use gateway::LimitConfig;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::delivery::{BargainCall, Outcome};
use schemas::{Address, NegotiationId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use traffic_gen::bargain::{BargainEnd, Played};
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::{Verdict, recompute};

use crate::vectors::{Vector, all, name};

/// Longest wait for the next news of any bargain; hanging is failing.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests per second that no agent of the test reaches: they answer as fast as they are told.
const UNLIMITED: u32 = 100_000;
/// Bargains open at once.
const OPEN_MAX: usize = 64;

/// The runs of the sample in one row: (domain, run).
type Runs = Arc<Vec<(usize, usize)>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_of_the_sample_is_repeated_through_a_gateway_and_nats() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let limits = LimitConfig { requests_per_s: UNLIMITED, burst: UNLIMITED, ..LimitConfig::default() };
    let exchange = Exchange::start(bus, ExchangeOptions { limits, ..ExchangeOptions::default() }).await.unwrap();
    let vectors = Arc::new(all());
    let runs: Runs = Arc::new(
        vectors.iter().enumerate().flat_map(|(at, vector)| (0..vector.runs.len()).map(move |run| (at, run))).collect(),
    );
    let (first, mut first_news) = party(&exchange, 0, &vectors, &runs).await;
    let (second, mut second_news) = party(&exchange, 1, &vectors, &runs).await;

    let mut ends: BTreeMap<usize, [Option<BargainOutcome>; 2]> = BTreeMap::new();
    let mut opened = 0;
    let mut ended = 0;
    while ended < runs.len() {
        if opened < runs.len() && opened - ended < OPEN_MAX {
            first.bargain(request(&vectors, &runs, opened)).await.unwrap();
            opened += 1;
            continue;
        }
        let news = async {
            tokio::select! {
                Some(news) = first_news.recv() => (0, news),
                Some(news) = second_news.recv() => (1, news),
            }
        };
        let (party, event) = tokio::time::timeout(PATIENCE, news).await.expect("the bargains go on");
        if let Some(outcome) = end_of(event.report) {
            let both = ends.entry(number(&event.negotiation)).or_default();
            both[party] = Some(outcome);
            ended += usize::from(both.iter().all(Option::is_some));
        }
    }
    let mut turns = 0;
    for (at, ends) in &ends {
        let (vector, run) = runs[*at];
        let played = played(ends);
        vectors[vector].compare(&vectors[vector].runs[run], &played);
        turns += played.steps;
    }
    println!("{} runs, {turns} turns", ends.len());
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
    let mut verdict = Verdict::default();
    recompute(&exchange.bus, &mut verdict).await.unwrap();
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    exchange.shutdown().await;
}

/// Registers and connects a party of all bargains.
async fn party(
    exchange: &Exchange,
    party: usize,
    vectors: &Arc<Vec<Vector>>,
    runs: &Runs,
) -> (AgentHandle<Bargainer>, mpsc::Receiver<BargainEvent>) {
    let agent = name(party);
    let identity = exchange.identity(&agent).unwrap();
    let registration = Registration {
        capabilities: Vec::new(),
        topics: Vec::new(),
        consent: Consent { default: ConsentEffect::Allow, rules: Vec::new() },
        ..Registration::default()
    };
    let control = ControlClient::try_new(exchange.url()).unwrap();
    control.register(&agent, &identity.token.current(), &registration).await.unwrap();
    let (vectors, runs) = (Arc::clone(vectors), Arc::clone(runs));
    let planner = move |negotiation: &NegotiationId, _: &BargainCall, party: usize| {
        Ok(plan(&vectors, &runs, number(negotiation), party))
    };
    let (events, news) = mpsc::channel(1024);
    let bargainer = Bargainer::new(agent, planner, events);
    let handle = Agent::new(BusTransport::new(&exchange.bus), identity, bargainer).spawn(CancellationToken::new());
    handle.connected().await.unwrap();
    (handle, news)
}

fn request(vectors: &[Vector], runs: &Runs, at: usize) -> BargainRequest {
    let (vector, run) = runs[at];
    let rules = vectors[vector].rules(&vectors[vector].runs[run]);
    BargainRequest::new(format!("run-{at}"), vec![Address::Agent(name(1))], rules, plan(vectors, runs, at, 0))
}

fn plan(vectors: &[Vector], runs: &Runs, at: usize, party: usize) -> BargainPlan {
    let (vector, run) = runs[at];
    let vector = &vectors[vector];
    let utilities = [&vector.u0, &vector.u1][party].clone();
    let preferences = Preferences::try_new(utilities, vector.reserved[party], |_| true).unwrap();
    BargainPlan::new(Arc::new(preferences), vector.strategies(&vector.runs[run]).swap_remove(party))
}

/// Which run of the row a negotiation is.
fn number(negotiation: &NegotiationId) -> usize {
    negotiation.as_str().rsplit_once("run-").unwrap().1.parse().unwrap()
}

fn end_of(news: BargainReport) -> Option<BargainOutcome> {
    match news {
        BargainReport::Ended(outcome) => Some(*outcome),
        BargainReport::Joined { .. } | BargainReport::Opened { .. } => None,
        other @ (BargainReport::Declined { .. }
        | BargainReport::Refused(_)
        | BargainReport::TurnedDown(_)
        | BargainReport::Unanswered
        | BargainReport::Misunderstood(_)
        | BargainReport::Lost) => panic!("{other:?}"),
    }
}

/// What both parties saw of one bargain: each knows its own offers, and those it was told of.
fn played(ends: &[Option<BargainOutcome>; 2]) -> Played {
    let [Some(first), Some(second)] = ends else { panic!("both were told the end") };
    assert_eq!(first.outcome, second.outcome);
    assert_eq!(first.agreement, second.agreement);
    let offers: BTreeMap<u32, OfferMade> =
        first.offers.iter().chain(&second.offers).map(|offer| (offer.step, *offer)).collect();
    for offer in first.offers.iter().chain(&second.offers) {
        assert_eq!(offers[&offer.step], *offer, "both saw the same offers");
    }
    let detail = first.detail.clone().unwrap_or_default();
    let end = match (first.outcome, first.agreed) {
        (Outcome::Agreement, Some(outcome)) => {
            BargainEnd::Agreement { outcome, by: offers.values().last().unwrap().party }
        }
        (Outcome::NoAgreement, None) => BargainEnd::NoAgreement { detail },
        (Outcome::Ended, None) => BargainEnd::Ended { by: detail },
        other => panic!("{other:?}"),
    };
    let rounds = first.round.max(second.round);
    Played {
        end,
        rounds,
        steps: first.steps.max(second.steps),
        relative_time: TurnView::relative_time(rounds, rounds),
        trace: offers.into_values().collect(),
    }
}
