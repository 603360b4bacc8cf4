//! Many panels on a running exchange: scripted panelists of different accuracy, with questions, rules and seats that differ.

mod summary;

use std::sync::Arc;

use agents::CallRequest;
use agents::panel::stub::{AnswerStyle, Rating};
use agents::panel::{StubPanelist, StubProfile, StubQuestion, StubQuestions};
use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use schemas::ids::DomainName;
use schemas::panel::{Asking, PanelSpec};
use schemas::payload::Cfp;
use schemas::{Address, AgentId, NegotiationId};
use tokio::time::Instant;

use super::PlayedPanel;
use super::population::{PanelCast, PanelError, PanelPopulation};
use super::tally::PanelTally;
use crate::live::{Access, INITIATOR, LiveError};
use crate::load::{Ledger, LoadScenario, ProtocolLoad, RunningLoad};
use crate::recorder::observed;

pub use summary::PanelSummary;

/// Seats of a panel, as far as there are as many agents.
const SEATS: [usize; 4] = [4, 4, 7, 12];
/// Different questions.
const QUESTIONS: u64 = 64;
/// Time to answer an ask, in milliseconds, unless a scenario says otherwise: few are silent, and a panel waits for them; but what is
/// sent again comes in time, on a machine too that has other work for seconds.
const ANSWER_MS_DEFAULT: u64 = 5_000;

/// What only scenarios of panels say.
#[derive(Debug, Clone, Copy)]
pub struct Panels {
    /// Time to answer an ask, in milliseconds.
    pub answer_ms: u64,
}

/// What is to be run.
pub type PanelScenario = LoadScenario<Panels>;

impl Default for Panels {
    fn default() -> Self {
        Self { answer_ms: ANSWER_MS_DEFAULT }
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
    /// How a panelist behaves: one in eight is a liar, one in eight rates against what it thinks.
    pub fn profile(&self, number: u32) -> StubProfile {
        let mut random = self.random(u64::MAX - u64::from(number));
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
    pub fn panel(&self, number: u64) -> DrawnPanel {
        let mut random = self.random(number);
        let question = random.random_range(0..QUESTIONS);
        let asked = SEATS[random.random_range(0..SEATS.len())];
        let rules = rules(&mut random, self.protocol.answer_ms);
        let seats = self.draw_agents(&mut random, asked.min(self.agents as usize));
        DrawnPanel { question, seats, rules }
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

/// Watches every agent of a run of panels.
pub type PanelLedger = Ledger<PanelTally>;

impl ProtocolLoad for Panels {
    const AGENT: &'static str = "panelist";
    const INITIATOR: Option<&'static str> = Some(INITIATOR);
    /// The smallest panel has as many seats.
    const AGENTS_MIN: u32 = 4;
    type State = PanelTally;
    type Agents = PanelPopulation;

    fn state(&self) -> PanelTally {
        PanelTally::default()
    }

    async fn start(
        access: &Access<'_>,
        scenario: &PanelScenario,
        ledger: &Arc<PanelLedger>,
    ) -> Result<PanelPopulation, LiveError> {
        let initiator = scenario.share.calls().then(|| scenario.name(INITIATOR));
        let cast = PanelCast { members: members(scenario), initiator, own_ranker: None };
        PanelPopulation::start(access, cast, &observed(&scenario.options, Some(ledger.recorder()))).await
    }

    /// Calls a panel and waits for its end.
    async fn open(load: &RunningLoad<Self>, number: u64, intended: Instant) -> Result<(), LiveError> {
        let (scenario, ledger) = (&load.scenario, &load.ledger);
        let drawn = scenario.panel(number);
        let (task, question) = question(drawn.question);
        let own_id = format!("{}-{number}", scenario.run);
        let to = drawn.seats.iter().map(|&seat| Address::Agent(scenario.agent_name(seat))).collect();
        let cfp = Cfp { task: Some(task), panel: Some(Box::new(drawn.rules)), ..Cfp::default() };
        if let Ok(negotiation) = NegotiationId::form(&scenario.name(INITIATOR), &own_id) {
            ledger.recorder().call_due(negotiation, intended);
        }
        match load.agents.ask(CallRequest::new(own_id, to, cfp)).await {
            Ok(end) => ledger.lock().add(&PlayedPanel::of(Some(&question), end)),
            Err(PanelError::Live(error)) => return Err(error),
            // A panel that was not opened is counted by the recorder.
            Err(error) => tracing::warn!(%error, "a panel has no end"),
        }
        Ok(())
    }

    async fn stop(agents: PanelPopulation) -> Result<(), LiveError> {
        agents.stop().await
    }
}

fn members(scenario: &PanelScenario) -> Vec<(AgentId, StubPanelist)> {
    let questions: Arc<StubQuestions> = Arc::new((0..QUESTIONS).map(question).collect());
    let member = |number| {
        let name = scenario.agent_name(number);
        let stub = StubPanelist::new(name.clone(), scenario.profile(number), Arc::clone(&questions), scenario.seed);
        (name, stub)
    };
    scenario.own_numbers().map(member).collect()
}

#[cfg(test)]
mod tests;
