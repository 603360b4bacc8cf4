//! Goals on an exchange in memory, with members that ask a model, as the lead does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
use std::collections::BTreeMap;
use std::sync::Arc;

use agents::control::ControlClient;
use agents::model::stub::{StubBehaviour, StubScript, StubValue};
use agents::model::{Consultant, ModelAdvisor, ModelAgentConfig, ModelConfig, ModelWorker, StubModel};
use agents::team::{TeamAgent, TeamHands, WillingPlanner, WorkRunner};
use agents::transport::bus::BusTransport;
use agents::{AgentHandle, AgentOptions, Identity, Transport};
use bus::memory::{self, MemoryOptions};
use gateway::LimitConfig;
use schemas::AgentId;
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::team::{Seats, TeamRules};
use scripted::team::contacts::ContactBook;
use scripted::team::goal::{ContactBookWithClock, GoalEnd, GoalHelp, GoalReport, GoalRequest, pursue};
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::{Access, SharedModel};

const TRADES: [&str; 8] = [
    "paints walls",
    "lays floors",
    "cooks dinners",
    "plays piano",
    "draws figures",
    "writes surveys",
    "finds papers",
    "fixes roofs",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_goals_end_concluded_or_alone_though_three_of_ten_answers_are_faulty() {
    let site = Site::start(&faulty).await;
    let mut ends = BTreeMap::<String, u32>::new();
    let mut called = 0;
    for number in 0..200 {
        let goal = format!("{}. {}; goal {number}", TRADES[number % 8], TRADES[(number / 8 + 1 + number) % 8]);
        let report = site.pursue(number, &goal, None).await;
        called += usize::from(report.team.is_some());
        let end = if let GoalEnd::Concluded { conclusion } = &report.end {
            assert!(!conclusion.is_empty());
            "concluded".to_owned()
        } else if matches!(report.end, GoalEnd::Alone { result: Some(_) }) {
            "alone".to_owned()
        } else {
            format!("{:?}", report.end)
        };
        *ends.entry(end).or_default() += 1;
    }
    println!("200 goals, of which {called} with a team: {ends:?}");
    let well = ["concluded", "alone"].map(|end| ends.get(end).copied().unwrap_or_default());
    assert_eq!(well.iter().sum::<u32>(), 200, "{ends:?}");
    assert!(well.iter().all(|count| *count >= 20), "both ways are taken: {ends:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goal_without_a_model_calls_who_fits_its_clauses_and_concludes_with_what_they_say() {
    let site = Site::start(&good).await;
    let access_goal = "Who paints walls? Who fixes roofs?";
    let mut kept = ContactBookWithClock { book: ContactBook::default(), now_ms: 5 };
    let report = site.scripted("no-model", access_goal, &mut kept).await;
    let names: Vec<String> = report.called.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["trade-0", "trade-7"]);
    let GoalEnd::Concluded { conclusion } = &report.end else { panic!("{report:?}") };
    assert_eq!(conclusion, "trade-0: stub\ntrade-7: stub");
    let met = &kept.book.contacts()[&AgentId::try_new("trade-0").unwrap()];
    assert_eq!((met.done, met.failed, met.seen_ms, met.text.as_str()), (1, 0, 5, "Who paints walls"));
    // Nobody fits, and there is nothing to work with.
    let nobody = site.scripted("nobody", "zeppelins", &mut kept).await;
    assert_eq!((nobody.team, nobody.end), (None, GoalEnd::Alone { result: None }));
    site.stop().await;
}

/// An answer of which three of ten are faulty.
fn faulty() -> StubScript {
    let behaviours = [
        (StubBehaviour::Good, 70),
        (StubBehaviour::Junk, 5),
        (StubBehaviour::Truncated, 5),
        (StubBehaviour::WrongType, 5),
        (StubBehaviour::OutsideSchema, 5),
        (StubBehaviour::OtherAct, 5),
        (StubBehaviour::Empty, 5),
    ];
    StubScript { shares: behaviours.into(), ..StubScript::default() }
}

/// Says `stub` in the discussion to the lead.
fn good() -> StubScript {
    let lead = StubValue::List(vec![StubValue::Text("lead".to_owned())]);
    let answer = [("message_type", StubValue::Text("discussion".to_owned())), ("next_people", lead)];
    StubScript { answer: answer.map(|(name, said)| (name.to_owned(), said)).into(), ..StubScript::default() }
}

fn consultant(script: StubScript, seed: u64) -> (Arc<ModelAgentConfig>, Arc<Consultant>) {
    let model = ModelConfig { calls_per_negotiation: 40, tokens_per_negotiation: 200_000, ..ModelConfig::default() };
    let config = ModelAgentConfig { model: model.clone(), ..ModelAgentConfig::default() };
    (Arc::new(config), Arc::new(Consultant::new(StubModel::new(script, seed), model)))
}

/// An exchange with an agent for each trade, which asks a model what to say.
struct Site {
    exchange: Exchange,
    control: ControlClient,
    model: (Arc<ModelAgentConfig>, Arc<Consultant>),
    agents: Vec<AgentHandle<TeamAgent>>,
    cancel: CancellationToken,
}

impl Site {
    async fn start(script: &dyn Fn() -> StubScript) -> Self {
        let limits = LimitConfig { requests_per_s: 100_000, burst: 100_000, ..LimitConfig::default() };
        let options = ExchangeOptions { limits, ..ExchangeOptions::default() };
        let exchange = Exchange::start(memory::open(MemoryOptions::default()), options).await.unwrap();
        let control = ControlClient::try_new(exchange.url()).unwrap();
        let (config, consultant) = consultant(script(), 1);
        let cancel = CancellationToken::new();
        let mut agents = Vec::new();
        for (number, trade) in TRADES.iter().enumerate() {
            let identity: Identity = exchange.identity(&AgentId::try_new(&format!("trade-{number}")).unwrap()).unwrap();
            let registration = Registration {
                description: Some((*trade).to_owned()),
                consent: Consent { default: ConsentEffect::Allow, rules: Vec::new() },
                ..Registration::default()
            };
            control.register(&identity.agent, &identity.token.current(), &registration).await.unwrap();
            let worker = WorkRunner::new(ModelWorker::new(Arc::clone(&consultant), "", 7));
            let advisor = ModelAdvisor::new(Arc::clone(&config), Arc::clone(&consultant), 7);
            let hands = TeamHands { advisor: Some(Arc::new(advisor)), ..TeamHands::new(worker) };
            let way: (Arc<dyn Transport>, _, _) =
                (Arc::new(BusTransport::new(&exchange.bus)), identity, AgentOptions::default());
            agents.push(TeamAgent::spawn(WillingPlanner::default(), hands, way, cancel.clone()));
        }
        for agent in &agents {
            agent.connected().await.unwrap();
        }
        Self { exchange, control, model: (config, consultant), agents, cancel }
    }

    async fn pursue(&self, number: usize, goal: &str, model: Option<SharedModel>) -> GoalReport {
        let (config, consultant) = self.model.clone();
        let model = model.unwrap_or(SharedModel { config, consultant, marker_seed: 7 });
        let help = GoalHelp { book: None, model: Some(model) };
        self.ask(&format!("goal-{number}"), goal, help).await
    }

    async fn scripted(&self, own_id: &str, goal: &str, kept: &mut ContactBookWithClock) -> GoalReport {
        self.ask(own_id, goal, GoalHelp { book: Some(kept), model: None }).await
    }

    async fn ask(&self, own_id: &str, goal: &str, help: GoalHelp<'_>) -> GoalReport {
        let transport = |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&self.exchange.bus)) };
        let identity = |name: &AgentId| self.exchange.identity(name).unwrap();
        let access = Access { control: &self.control, transport: &transport, identity: &identity };
        let request = GoalRequest {
            goal: goal.to_owned(),
            lead: AgentId::try_new("lead").unwrap(),
            own_id: own_id.to_owned(),
            profile: None,
            reply_within_ms: 5_000,
            rules: TeamRules { members: Seats { min: 2, max: 5 }, turns: 16, ..TeamRules::default() },
            options: AgentOptions::default(),
            worker: None,
        };
        pursue(&access, request, help).await.unwrap()
    }

    async fn stop(self) {
        self.cancel.cancel();
        for agent in self.agents {
            agent.join().await.unwrap();
        }
        self.exchange.shutdown().await;
    }
}
