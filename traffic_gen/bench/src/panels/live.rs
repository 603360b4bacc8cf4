//! Panels through everything: token, schema, consent, log, core, outbox, acknowledgements, and panelists that answer at once.
//! No two of a panel say the same, so each takes three rounds of four answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agents::observer::{Observed, Observer};
use agents::panel::stub::{AnswerScript, AnswerStyle};
use agents::panel::{StubPanelist, StubProfile, StubQuestions};
use agents::{AgentOptions, CallRequest};
use bus::Bus;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use schemas::delivery::{Notification, Outcome};
use schemas::panel::{PanelSpec, RATING_MAX};
use schemas::payload::Cfp;
use schemas::{Act, Address, AgentId, NegotiationId};
use serde_json::json;
use tokio::time::Instant;

use super::folded::{ROUNDS, SEATS, answer};
use crate::rounds::{self, BenchError, stuck};
use traffic_gen::arrivals::{PoissonArrivals, pace};
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::latency::Latency;
use traffic_gen::live::{Access, initiator_name};
use traffic_gen::panel::population::{PanelCast, PanelPopulation};

/// Panelists that seats are taken from, in turn.
const AGENTS: u32 = 12;
/// Characters of an answer.
const ANSWER_LEN: usize = 64;
/// Time to answer, in milliseconds: far longer than anybody takes.
const ANSWER_MS: u64 = 20_000;
/// Longest wait for a panel's end.
const DRAIN: Duration = Duration::from_secs(90);
/// Seed of when panels are called.
const SEED: u64 = 1;

/// Answers per second through everything: `open` panels are kept open for `duration`. `run` begins their ids.
///
/// # Errors
/// [`BenchError`].
pub async fn answers_per_s(bus: Bus, open: usize, duration: Duration, run: &str) -> Result<f64, BenchError> {
    let rig = PanelRig::start(bus, run).await?;
    let answers_per_s = rig.keep_open(open, duration).await;
    rig.stop().await?;
    answers_per_s
}

/// From sending the last answer of a round until each seat has the ask of the next: `rate` panels are called per second for
/// `duration`.
///
/// # Errors
/// [`BenchError`].
pub async fn to_next_ask(bus: Bus, rate: f64, duration: Duration, run: &str) -> Result<Latency, BenchError> {
    let rig = PanelRig::start(bus, run).await?;
    let waited = rig.call_at_rate(rate, duration).await;
    rig.stop().await?;
    waited
}

/// An exchange with panelists, and who calls them.
struct PanelRig {
    exchange: Exchange,
    population: PanelPopulation,
    watch: Arc<RoundWatch>,
    rules: PanelSpec,
    run: String,
}

impl PanelRig {
    async fn start(bus: Bus, run: &str) -> Result<Self, BenchError> {
        let exchange = rounds::unlimited(bus, ExchangeOptions::default()).await?;
        let names = (0..AGENTS).map(agent).chain([initiator_name()]);
        let watch = Arc::new(RoundWatch::default());
        let options =
            AgentOptions { observer: Some(Arc::clone(&watch) as Arc<dyn Observer>), ..AgentOptions::default() };
        let members = (0..AGENTS).map(|number| (agent(number), panelist(number))).collect();
        let cast = PanelCast { members, initiator: Some(initiator_name()), own_ranker: None };
        let starting = async |access: &Access<'_>| Ok(PanelPopulation::start(access, cast, &options).await?);
        let population = exchange.with_access::<_, BenchError>(names, starting).await?;
        let rules = json!({"domain": "bench", "rounds": ROUNDS, "answer_ms": ANSWER_MS, "asking": "all"});
        let rules = serde_json::from_value(rules).map_err(stuck)?;
        Ok(Self { exchange, population, watch, rules, run: run.to_owned() })
    }

    async fn keep_open(&self, open: usize, duration: Duration) -> Result<f64, BenchError> {
        let (mut panels, mut number) = (FuturesUnordered::new(), 0);
        let started = Instant::now();
        while started.elapsed() < duration {
            while panels.len() < open {
                panels.push(Box::pin(self.ask(number)));
                number += 1;
            }
            ended(&mut panels).await?;
        }
        let answers_per_s = self.watch.0.lock().answers as f64 / started.elapsed().as_secs_f64().max(f64::EPSILON);
        while !panels.is_empty() {
            ended(&mut panels).await?;
        }
        Ok(answers_per_s)
    }

    async fn call_at_rate(&self, rate: f64, duration: Duration) -> Result<Latency, BenchError> {
        let arrivals = PoissonArrivals::try_new(rate, SEED).map_err(stuck)?;
        let mut due = pace(std::time::Instant::now(), arrivals, duration);
        let mut panels = FuturesUnordered::new();
        loop {
            tokio::select! {
                next = due.recv() => match next {
                    Some((number, _)) => panels.push(Box::pin(self.ask(number as u64))),
                    None => break,
                },
                ended = ended(&mut panels), if !panels.is_empty() => ended?,
            }
        }
        while !panels.is_empty() {
            ended(&mut panels).await?;
        }
        Ok(self.watch.0.lock().to_next_ask.clone())
    }

    /// Calls a panel and waits for its end.
    async fn ask(&self, number: u64) -> Result<(), BenchError> {
        let seat = |seat: u32| (number % u64::from(AGENTS)) as u32 * SEATS % AGENTS + seat;
        let to = (0..SEATS).map(|number| Address::Agent(agent(seat(number) % AGENTS))).collect();
        let panel = Some(Box::new(self.rules.clone()));
        let cfp = Cfp { task: Some("which?".to_owned()), panel, ..Cfp::default() };
        let call = CallRequest::new(format!("{}-{number}", self.run), to, cfp);
        let end = self.population.ask(call).await.map_err(stuck)?;
        let (outcome, asks) = (end.closing.outcome, end.asks.total());
        if outcome == Outcome::Plurality && asks == SEATS * ROUNDS {
            Ok(())
        } else {
            Err(stuck(format!("a panel ended with {} after {asks} asks", outcome.as_str())))
        }
    }

    async fn stop(self) -> Result<(), BenchError> {
        self.population.stop().await?;
        self.exchange.shutdown().await;
        Ok(())
    }
}

/// Waits for the end of a panel.
async fn ended<F: Future<Output = Result<(), BenchError>> + Unpin>(
    panels: &mut FuturesUnordered<F>,
) -> Result<(), BenchError> {
    match tokio::time::timeout(DRAIN, panels.next()).await {
        Ok(ended) => ended.unwrap_or(Ok(())),
        Err(_) => Err(stuck(format!("{} panels do not end", panels.len()))),
    }
}

/// Says what nobody else says, and rates the others.
fn panelist(number: u32) -> StubPanelist {
    let ratings = (0..AGENTS).map(|other| (answer(other, ANSWER_LEN), 1 + other % RATING_MAX)).collect();
    let said = AnswerScript { answer: Some(answer(number, ANSWER_LEN)), ratings, ..AnswerScript::default() };
    let profile = StubProfile { answers: AnswerStyle::Script, script: vec![said], ..StubProfile::default() };
    StubPanelist::new(agent(number), profile, Arc::new(StubQuestions::default()), SEED)
}

fn agent(number: u32) -> AgentId {
    AgentId::try_new(&format!("panelist-{number}")).expect("a number makes a name")
}

/// Sees when answers leave, and when the asks of the next round arrive.
#[derive(Default)]
struct RoundWatch(Mutex<RoundsSeen>);

#[derive(Default)]
struct RoundsSeen {
    panels: BTreeMap<NegotiationId, WatchedPanel>,
    /// Answers of rounds that are over.
    answers: u64,
    to_next_ask: Latency,
}

/// A panel that goes on.
#[derive(Default)]
struct WatchedPanel {
    /// In which round an agent was asked last.
    round_of: BTreeMap<AgentId, u32>,
    /// By round: when its last answer left, and how many of its answers are not counted yet.
    left: BTreeMap<u32, (Instant, u64)>,
}

impl RoundsSeen {
    fn note_answer(&mut self, panel: &NegotiationId, agent: &AgentId, at: Instant) {
        let Some(seen) = self.panels.get_mut(panel) else { return };
        let Some(round) = seen.round_of.get(agent) else { return };
        let (last, count) = seen.left.entry(*round).or_insert((at, 0));
        *last = at.max(*last);
        *count += 1;
    }

    fn note_ask(&mut self, panel: &NegotiationId, agent: &AgentId, round: u32, at: Instant) {
        let seen = self.panels.entry(panel.clone()).or_default();
        seen.round_of.insert(agent.clone(), round);
        if let Some((last, count)) = seen.left.get_mut(&round.saturating_sub(1)) {
            self.to_next_ask.record(at.saturating_duration_since(*last));
            self.answers += std::mem::take(count);
        }
    }

    fn note_end(&mut self, panel: &NegotiationId) {
        let left = self.panels.remove(panel).into_iter().flat_map(|seen| seen.left);
        self.answers += left.map(|(_, (_, count))| count).sum::<u64>();
    }
}

impl Observer for RoundWatch {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        if let Observed::Transmitted { negotiation, act: Act::Answer, attempt: 1, .. } = event {
            self.0.lock().note_answer(negotiation, agent, at);
        } else if let Observed::Delivered { delivery, is_repeat: false } = event {
            let panel = &delivery.envelope.negotiation;
            if let Notification::Ask(ask) = &delivery.payload {
                self.0.lock().note_ask(panel, agent, ask.round, at);
            } else if matches!(delivery.payload, Notification::Closed(_)) && panel.initiator() == agent.as_str() {
                self.0.lock().note_end(panel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bus::memory::MemoryOptions;

    use super::*;

    #[test]
    fn an_ask_is_waited_for_since_the_last_answer_of_the_round_before() {
        let (mut seen, began) = (RoundsSeen::default(), Instant::now());
        let (panel, [one, other]) = (NegotiationId::form(&initiator_name(), "p").unwrap(), [0, 1].map(agent));
        let after = |ms| began + Duration::from_millis(ms);
        seen.note_ask(&panel, &one, 1, after(0));
        seen.note_ask(&panel, &other, 1, after(5));
        seen.note_answer(&panel, &one, after(10));
        seen.note_answer(&panel, &other, after(20));
        assert_eq!((seen.answers, seen.to_next_ask.count()), (0, 0), "the round goes on");
        seen.note_ask(&panel, &one, 2, after(30));
        seen.note_answer(&panel, &one, after(31));
        seen.note_ask(&panel, &other, 2, after(60));
        assert_eq!((seen.answers, seen.to_next_ask.count()), (2, 2));
        let waited = seen.to_next_ask.quantiles();
        assert!((waited.p50 - 10.0).abs() < 0.1 && (waited.max - 40.0).abs() < 0.1, "{waited:?}");
        seen.note_end(&panel);
        assert_eq!((seen.answers, seen.panels.len()), (3, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn panels_are_kept_open_and_called_at_a_rate_and_every_answer_counts() {
        let memory = || bus::memory::open(MemoryOptions::default());
        let answers_per_s = answers_per_s(memory(), 2, Duration::from_millis(300), "kept").await.unwrap();
        assert!(answers_per_s > 0.0);
        let waited = to_next_ask(memory(), 20.0, Duration::from_millis(300), "called").await.unwrap();
        assert!(waited.count() > 0 && waited.count() % u64::from(SEATS * (ROUNDS - 1)) == 0, "{}", waited.count());
    }
}
