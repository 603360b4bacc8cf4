//! Many panels on a running exchange, open-loop: scripted panelists of different accuracy, questions, rules and seats drawn from
//! the seed and the panel alone.

mod summary;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agents::panel::stub::{AnswerStyle, Rating};
use agents::panel::{StubPanelist, StubProfile, StubQuestion, StubQuestions};
use agents::{AgentOptions, CallRequest};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::ids::DomainName;
use schemas::panel::{Asking, PanelSpec};
use schemas::payload::Cfp;
use schemas::{Address, AgentId, NegotiationId};
use telemetry::Tracer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::PlayedPanel;
use super::population::{PanelCast, PanelEnd, PanelError, PanelMembers, PanelPopulation};
use super::tally::PanelTally;
use crate::arrivals::{PoissonArrivals, pace};
use crate::live::{Access, AgentShare, INITIATOR, LiveError, OPEN_MAX, settle};
use crate::recorder::{Recorder, observed};

pub use summary::PanelSummary;

/// Fewest panelists: the smallest panel has as many seats.
pub const AGENTS_MIN: u32 = 4;
/// Seats of a panel, as far as there are as many agents.
const SEATS: [usize; 4] = [4, 4, 7, 12];
/// Different questions.
const QUESTIONS: u64 = 64;
/// Time to answer an ask, in milliseconds, unless a scenario says otherwise: few are silent, and a panel waits for them; but what is
/// sent again comes in time, on a machine too that has other work for seconds.
const ANSWER_MS_DEFAULT: u64 = 5_000;

/// What is to be run.
#[derive(Debug, Clone)]
pub struct PanelScenario {
    /// Panelists, [`AGENTS_MIN`] at least.
    pub agents: u32,
    /// Panels called per second.
    pub rate: f64,
    /// How long panels are called.
    pub duration: Duration,
    /// Seed of arrivals, panelists, questions, rules and answers.
    pub seed: u64,
    /// Time to answer an ask, in milliseconds.
    pub answer_ms: u64,
    /// Begins every panel's id.
    pub run: String,
    /// How long to wait for open panels after the last was called.
    pub drain: Duration,
    /// How agents run; the recorder is added to its observer.
    pub options: AgentOptions,
    /// Begins the names of agents, where they share an exchange with others. One that makes no id is left out.
    pub prefix: String,
    /// The panelists that this process runs.
    pub share: AgentShare,
}

impl Default for PanelScenario {
    fn default() -> Self {
        Self {
            agents: 12,
            rate: 10.0,
            duration: Duration::from_secs(20),
            seed: 1,
            answer_ms: ANSWER_MS_DEFAULT,
            run: "run".to_owned(),
            drain: Duration::from_secs(60),
            options: AgentOptions::default(),
            prefix: String::new(),
            share: AgentShare::WHOLE,
        }
    }
}

/// One panel to be called.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnPanel {
    /// The number of its question.
    pub question: u64,
    /// Who has a seat, as numbers of agents.
    pub seats: Vec<u32>,
    /// Its rules.
    pub rules: PanelSpec,
}

impl PanelScenario {
    /// The name of a panelist.
    #[must_use]
    pub fn agent_name(&self, number: u32) -> AgentId {
        self.name(&format!("panelist-{number}"))
    }

    /// Who calls.
    #[must_use]
    pub fn initiator(&self) -> AgentId {
        self.name(INITIATOR)
    }

    /// The same, whose agents' spans go to `tracer`.
    #[must_use]
    pub fn traced(mut self, tracer: Tracer) -> Self {
        self.options.tracer = tracer;
        self
    }

    /// How a panelist behaves: one in eight is a liar, one in eight rates against what it thinks.
    #[must_use]
    pub fn profile(&self, number: u32) -> StubProfile {
        let mut random = ChaCha12Rng::seed_from_u64(self.seed);
        random.set_stream(u64::MAX - u64::from(number));
        let accuracy = random.random_range(0.5..0.95);
        let discernment = random.random_range(0.6..0.95);
        StubProfile {
            accuracy: [(domain(), accuracy)].into(),
            discernment,
            answers: if number % 8 == 7 { AnswerStyle::Liar } else { AnswerStyle::Debate },
            rates: if number % 8 == 3 { Rating::Inverse } else { Rating::Honest },
            silent: 0.01,
            ..StubProfile::default()
        }
    }

    /// The `number`-th panel: question, seats and rules.
    #[must_use]
    pub fn panel(&self, number: u64) -> DrawnPanel {
        let mut random = ChaCha12Rng::seed_from_u64(self.seed);
        random.set_stream(number);
        let question = random.random_range(0..QUESTIONS);
        let asked = SEATS[random.random_range(0..SEATS.len())];
        let rules = rules(&mut random, self.answer_ms);
        let mut agents: Vec<u32> = (0..self.agents).collect();
        let (seats, _) = agents.partial_shuffle(&mut random, asked.min(self.agents as usize));
        DrawnPanel { question, seats: seats.to_vec(), rules }
    }

    fn name(&self, name: &str) -> AgentId {
        let plain = || AgentId::try_new(name).expect("letters, a hyphen and a number make a name");
        AgentId::try_new(&format!("{}{name}", self.prefix)).unwrap_or_else(|_| plain())
    }
}

/// Rules of a panel: in half of them two seats go on after the second round, chosen in one of three ways.
fn rules(random: &mut ChaCha12Rng, answer_ms: u64) -> PanelSpec {
    let ranker = ["support", "rating", "hash"][random.random_range(0..3)];
    let select = serde_json::json!({"after_round": 2, "keep": 2, "ranker": {"kind": ranker}});
    let plain = serde_json::json!({"domain": domain(), "answer": {"kind": "number"}, "answer_ms": answer_ms});
    let mut rules: PanelSpec = serde_json::from_value(plain).expect("a domain and a kind are rules");
    if random.random_bool(0.5) {
        rules.select = serde_json::from_value(select).expect("a round, a number and a ranker are a selection");
    }
    if random.random_bool(0.25) {
        rules.asking = Asking::All;
    }
    rules
}

fn domain() -> DomainName {
    DomainName::try_new("arithmetic").expect("letters are a name")
}

/// A question: a sum, and three that are not.
fn question(number: u64) -> (String, StubQuestion) {
    let (one, other) = (11 + number, 17 + 3 * number);
    let wrong = [1, 10, 11].map(|off| (one + other + off).to_string()).to_vec();
    (format!("What is {one} + {other}?"), StubQuestion { domain: domain(), right: (one + other).to_string(), wrong })
}

/// What panels have come to so far.
#[derive(Debug, Default)]
pub struct PanelLedger(Mutex<PanelTally>);

impl PanelLedger {
    /// A copy of it.
    #[must_use]
    pub fn tally(&self) -> PanelTally {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, played: &PlayedPanel) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(played);
    }
}

/// Registers and connects who calls and the process's share of the panelists; what they see goes to the recorder.
///
/// # Errors
/// [`LiveError`].
pub async fn start(
    access: &Access<'_>,
    scenario: &PanelScenario,
    recorder: &Arc<Recorder>,
) -> Result<PanelPopulation, LiveError> {
    let cast = PanelCast { members: members(scenario), initiator: scenario.initiator(), own_ranker: None };
    PanelPopulation::start(access, cast, &observed(&scenario.options, Some(recorder))).await
}

/// Registers and connects the process's share of the panelists, which another process calls.
///
/// # Errors
/// [`LiveError`].
pub async fn start_members(access: &Access<'_>, scenario: &PanelScenario) -> Result<PanelMembers, LiveError> {
    PanelMembers::start(access, members(scenario), &scenario.options).await
}

fn members(scenario: &PanelScenario) -> Vec<(AgentId, StubPanelist)> {
    let questions: Arc<StubQuestions> = Arc::new((0..QUESTIONS).map(question).collect());
    let member = |number| {
        let name = scenario.agent_name(number);
        let stub = StubPanelist::new(name.clone(), scenario.profile(number), Arc::clone(&questions), scenario.seed);
        (name, stub)
    };
    (0..scenario.agents).filter(|number| scenario.share.has(*number)).map(member).collect()
}

/// Calls panels as they fall due until the scenario's duration, or `cancel`, ends it; then waits for what is open. Returns how
/// many were not called because [`OPEN_MAX`] were open.
///
/// # Errors
/// [`LiveError`].
pub async fn run(
    population: &PanelPopulation,
    scenario: &PanelScenario,
    (recorder, ledger): (&Recorder, &PanelLedger),
    started: Instant,
    cancel: &CancellationToken,
) -> Result<u64, LiveError> {
    let arrivals = PoissonArrivals::try_new(scenario.rate, scenario.seed)?;
    let mut due = pace(started.into_std(), arrivals, scenario.duration);
    let (mut open, mut shed, mut is_over) = (FuturesUnordered::new(), 0, false);
    while !is_over {
        tokio::select! {
            next = due.recv() => match next {
                None => is_over = true,
                Some(_) if open.len() >= OPEN_MAX => shed += 1,
                Some((number, intended)) => {
                    let panel = Box::pin(call(population, scenario, recorder, number as u64, Instant::from_std(intended)));
                    open.push(panel);
                }
            },
            Some(ended) = open.next(), if !open.is_empty() => note(ledger, ended)?,
            () = cancel.cancelled() => is_over = true,
        }
    }
    let drained = async {
        while let Some(ended) = open.next().await {
            note(ledger, ended)?;
        }
        Ok::<(), LiveError>(())
    };
    // What has not ended by then is judged by who watches.
    tokio::time::timeout(scenario.drain, drained).await.unwrap_or(Ok(()))?;
    settle(recorder, scenario.drain).await;
    Ok(shed)
}

async fn call(
    population: &PanelPopulation,
    scenario: &PanelScenario,
    recorder: &Recorder,
    number: u64,
    intended: Instant,
) -> Result<(StubQuestion, PanelEnd), PanelError> {
    let drawn = scenario.panel(number);
    let (task, question) = question(drawn.question);
    let own_id = format!("{}-{number}", scenario.run);
    let to = drawn.seats.iter().map(|&seat| Address::Agent(scenario.agent_name(seat))).collect();
    let cfp = Cfp { task: Some(task), panel: Some(Box::new(drawn.rules)), ..Cfp::default() };
    if let Ok(negotiation) = NegotiationId::form(&scenario.initiator(), &own_id) {
        recorder.call_due(negotiation, intended);
    }
    Ok((question, population.ask(CallRequest::new(own_id, to, cfp)).await?))
}

/// A panel that was not opened is counted by the recorder.
fn note(ledger: &PanelLedger, ended: Result<(StubQuestion, PanelEnd), PanelError>) -> Result<(), LiveError> {
    match ended {
        Ok((question, end)) => ledger.add(&PlayedPanel::of(Some(&question), end)),
        Err(PanelError::Live(error)) => return Err(error),
        Err(error) => tracing::warn!(%error, "a panel has no end"),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
