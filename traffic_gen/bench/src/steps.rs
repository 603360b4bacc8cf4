//! Steps of bargains: a party acts, it is folded, the other party is told.
//!
//! The ceiling is the bare request-reply pattern: a step is one message from one party to the other, without a check, a
//! log or a fold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agents::bargain::{BargainRules, Domain, StrategyKind};
use bus::{Bus, PubSub, Received};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use schemas::bargain::{Issue, IssueValues};
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Offer};
use schemas::{AgentId, Payload};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bare::{payload, received};
use super::fold::as_read;
use super::rounds::{BenchError, keep_called, stuck, sum, unlimited, until_none};
use scripted::bargain::in_memory::{InMemoryExchange, admitted};
use scripted::bargain::mandate_fuzz::rules;
use scripted::bargain::session::BargainSession;
use traffic_gen::bargain::load::{BargainScenario, Bargains, Catalog};
use traffic_gen::bargain::matchup::SessionParty;
use traffic_gen::exchange::ExchangeOptions;
use traffic_gen::latency::Latency;
use traffic_gen::load::{ProtocolLoad as _, RunningLoad};
use traffic_gen::recorder::Recorder;

/// Rounds of a bargain in the closed loop; two Boulwares agree after five sixths of them.
const ROUNDS: u32 = 50;
/// The same where moves are waited for: as many moves as a panel of the benchmarks has answers.
const ROUNDS_FEW: u32 = 7;
/// Moves of such a bargain, about.
pub(super) const MOVES: u32 = 12;
/// Longest wait for the open bargains after the measured time.
const DRAIN: Duration = Duration::from_secs(20);

/// Steps per second of the core alone: `bargains` between two parties, open at once, each `rounds` rounds of offers.
///
/// # Errors
/// [`BenchError::Stuck`] when the log cannot be made up, or the bargains do not all end.
pub fn core(bargains: usize, rounds: u32) -> Result<f64, BenchError> {
    let price = AttrName::try_new("price").expect("the constant is a name");
    let issue = Issue { name: price.clone(), values: IssueValues::Range { min: 0, max: 1_000 } };
    let rules = rules(issue, rounds);
    let parties = ["ann", "bob"].map(|name| SessionParty::new(AgentId::try_new(name).expect("the constant is a name")));
    let mut exchange = InMemoryExchange::default();
    let mut negotiations = Vec::with_capacity(bargains);
    for number in 0..bargains {
        let opened = BargainSession::open(&mut exchange, &format!("bench-{number}"), &parties, &rules);
        negotiations.push(opened.map_err(stuck)?.negotiation().clone());
    }
    let mut records = Vec::with_capacity(bargains * rounds as usize * parties.len());
    for round in 0..rounds {
        for (party, from) in parties.iter().map(|party| &party.agent).enumerate() {
            for negotiation in &negotiations {
                let asked = AttrValue::Int(i64::from(round) + party as i64);
                let offer = Offer { terms: [(price.clone(), asked)].into_iter().collect(), ..Offer::default() };
                let msg_id = format!("offer-{round}");
                let message = admitted(from, negotiation, (&msg_id, None), Payload::Offer(offer));
                records.push(as_read(message.map_err(stuck)?)?);
            }
        }
    }
    let started = Instant::now();
    for record in &records {
        exchange.fold_record(record);
    }
    let elapsed_s = started.elapsed().as_secs_f64();
    match exchange.lane_state().open_count() {
        0 => Ok(records.len() as f64 / elapsed_s.max(f64::EPSILON)),
        open => Err(stuck(format!("{open} of {bargains} bargains did not end"))),
    }
}

/// Steps per second through everything: token, schema, consent, log, core, outbox, acknowledgements, and the parties' own
/// strategies. `open` bargains between two are kept open for `duration`.
///
/// # Errors
/// [`BenchError`].
pub async fn closed_loop(bus: Bus, open: usize, duration: Duration, run: &str) -> Result<f64, BenchError> {
    let scenario = BargainScenario { run: run.to_owned(), ..BargainScenario::default() };
    among_bargainers(bus, scenario, ROUNDS, async |load| keep_open(load, open, duration).await).await
}

/// Measures the time from sending a move until the other party receives it, while `rate` bargains of about twelve moves open
/// per second for `duration`.
///
/// # Errors
/// [`BenchError`].
pub async fn move_latency(bus: Bus, rate: f64, duration: Duration) -> Result<Latency, BenchError> {
    let scenario = BargainScenario { rate, duration, ..BargainScenario::default() };
    among_bargainers(bus, scenario, ROUNDS_FEW, async |load| {
        load.drive(tokio::time::Instant::now(), &CancellationToken::new()).await?;
        Ok(load.ledger.traded().step)
    })
    .await
}

/// Runs `load` on an exchange with agents that bargain as a scenario says, in so many rounds.
async fn among_bargainers<T>(
    bus: Bus,
    scenario: BargainScenario,
    rounds: u32,
    drive: impl AsyncFnOnce(&RunningLoad<Bargains>) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let exchange = unlimited(bus, ExchangeOptions::default()).await?;
    let catalog = Catalog::try_new(vec![domain(rounds)?]).map_err(stuck)?;
    let strategies = vec![StrategyKind::Boulware];
    let protocol = Bargains { catalog: Arc::new(catalog), policy: None, strategies };
    let scenario = BargainScenario { protocol, ..scenario };
    let recorder = Recorder::start(tokio::time::Instant::now(), false, None);
    let load = RunningLoad::start_on::<BenchError>(&exchange, scenario, recorder).await?;
    let result = drive(&load).await;
    load.stop().await?;
    exchange.shutdown().await;
    result
}

async fn keep_open(load: &RunningLoad<Bargains>, open: usize, duration: Duration) -> Result<f64, BenchError> {
    let (ledger, started) = (&load.ledger, Instant::now());
    let call = async |number| -> Result<(), BenchError> {
        Ok(Bargains::open(load, number, tokio::time::Instant::now()).await?)
    };
    keep_called(ledger.recorder(), open, duration, call).await?;
    let steps_per_s = ledger.traded().step.count() as f64 / started.elapsed().as_secs_f64().max(f64::EPSILON);
    let left = || ledger.recorder().open() as u64;
    until_none(DRAIN, left, |left| format!("{left} bargains do not end")).await?;
    Ok(steps_per_s)
}

/// What the benchmarks bargain about: a hundred and one values, worth as much to one party as they cost the other.
fn domain(rounds: u32) -> Result<Domain, BenchError> {
    let rising: Vec<f64> = (0..=100).map(|value| f64::from(value) / 100.0).collect();
    let falling = rising.iter().rev().copied().collect();
    Domain::tabular("bench", &[rising.len()], vec![(rising, 0.0), (falling, 0.0)], BargainRules::with_rounds(rounds))
        .map_err(stuck)
}

/// Messages per second between `pairs` of parties that answer each other on the bare bus.
///
/// # Errors
/// [`BenchError::Bus`] when the bus cannot be reached, or lost a message.
pub async fn bare(pub_sub: Arc<dyn PubSub>, pairs: usize, duration: Duration) -> Result<f64, BenchError> {
    let mut echoes = JoinSet::new();
    let mut callers = JoinSet::new();
    for pair in 0..pairs {
        let (ours, theirs) = (format!("bare.party.{pair}.a"), format!("bare.party.{pair}.b"));
        let inbox = pub_sub.subscribe(theirs.clone(), None).await?;
        echoes.spawn(echo(Arc::clone(&pub_sub), inbox, ours.clone()));
        let inbox = pub_sub.subscribe(ours, None).await?;
        callers.spawn(call(Arc::clone(&pub_sub), inbox, theirs, duration));
    }
    let started = Instant::now();
    Ok(sum(callers).await? as f64 / started.elapsed().as_secs_f64().max(f64::EPSILON))
}

async fn echo(pub_sub: Arc<dyn PubSub>, mut inbox: BoxStream<'static, Received>, to: String) {
    while let Some(message) = inbox.next().await {
        if pub_sub.publish(to.clone(), message.payload).await.is_err() {
            return;
        }
    }
}

async fn call(
    pub_sub: Arc<dyn PubSub>,
    mut inbox: BoxStream<'static, Received>,
    to: String,
    duration: Duration,
) -> Result<u64, BenchError> {
    let payload = payload("");
    let until = Instant::now() + duration;
    let mut messages = 0;
    while Instant::now() < until {
        pub_sub.publish(to.clone(), payload.clone()).await?;
        received(&mut inbox).await?;
        messages += 2;
    }
    Ok(messages)
}
