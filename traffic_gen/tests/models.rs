//! Agents that ask a model, on a whole exchange: a bargain of theirs, and what leaves them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agents::bargain::{
    BargainEvent, BargainOutcome, BargainReport, BargainRequest, Bargainer, Domain, DomainPlanner, StrategyKind,
};
use agents::control::ControlClient;
use agents::metrics::{AgentMetrics, AgentRole};
use agents::model::metrics::ModelMetrics;
use agents::model::party::{PartyTable, spawn};
use agents::model::shape::decimal;
use agents::model::stub::{StubScript, StubValue};
use agents::model::{Consultant, KeptPrompts, ModelAgentConfig, ModelDecider, StubModel};
use agents::observer::{Observed, Observer};
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::{Agent, AgentOptions, Identity};
use bus::memory::{self, MemoryOptions};
use parking_lot::Mutex;
use prometheus::{IntGauge, Registry};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::policy::Decider;
use schemas::{Act, Address, AgentId, NegotiationId};
use serde_json::Value;
use telemetry::{Span, Spans, TraceContext, Tracer};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::MakeWriter;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::{self, Access, CallScenario, ModelPopulation, Population, SharedModel};
use traffic_gen::recorder::Recorder;

const DOMAIN: &str = include_str!("../../domains/ecommerce.json");
/// Longest wait for the end of a bargain.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_party_with_a_model_plays_a_whole_bargain_and_what_it_offers_is_the_models() {
    let exchange = Exchange::start(memory::open(MemoryOptions::default()), ExchangeOptions::default()).await.unwrap();
    let domain = Domain::parse(DOMAIN).unwrap();
    let model = Arc::new(Consultant::new(StubModel::new(party_script(), 7), config().model));
    let outcome = bargain(&exchange, &domain, &model, AgentOptions::default()).await;
    exchange.shutdown().await;
    let preferences = domain.preferences(0).unwrap();
    let agreed = outcome.agreed.expect("the shop concedes until it agrees");
    assert!(preferences.is_acceptable(agreed), "{outcome:?}");
    let own: Vec<usize> = outcome.offers.iter().filter(|offer| offer.party == 0).map(|offer| offer.outcome).collect();
    assert!(!own.is_empty() && outcome.offers.len() > own.len(), "{outcome:?}");
    for offered in &own {
        let terms = serde_json::to_value(domain.space.terms(*offered)).unwrap();
        let price = terms["price"].as_i64().unwrap();
        assert!((78..=82).contains(&price), "only the model offers this price: {terms}");
        assert_eq!((&terms["delivery_days"], &terms["return_days"]), (&2.into(), &30.into()));
    }
    let totals = model.totals();
    assert!(totals.calls >= own.len() as u64 && totals.answers == totals.calls, "{totals:?}");
}

/// What the contractors' owner takes at least, in micro-units.
const RESERVE: &str = "61713377";
/// What the initiator's owner pays at most.
const LIMIT: &str = "97531864";
/// What no agreement is worth to the bargaining party, in parts per million.
const RESERVATION: &str = "312737";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_bids_stand_in_no_prompt_message_log_line_metric_or_span_they_do_not_belong_to() {
    let watched = Arc::new(Watched::default());
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(LogTarget(watched.clone())).init();
    let (tracer, registry) = (Tracer::new(1.0, watched.clone()), Registry::new());
    let folder = tempfile::tempdir().unwrap();
    let kept = Arc::new(KeptPrompts::create(&folder.path().join("prompts")).unwrap());
    let metrics = ModelMetrics::try_new(&registry).unwrap();
    let ask = |script: StubScript, config: &ModelAgentConfig| {
        let consultant = Consultant::new(StubModel::new(script, 3), config.model.clone());
        Arc::new(consultant.traced(tracer.clone()).counted(metrics.clone()).keeping(kept.clone()))
    };

    let mut policy = policy_core::preset("high").unwrap();
    (policy.id, policy.decider) = ("chosen@1".to_owned(), Decider::Initiator);
    let options = ExchangeOptions { policies: vec![policy], tracer: tracer.clone(), ..ExchangeOptions::default() };
    let exchange = Exchange::start(memory::open(MemoryOptions::default()), options).await.unwrap();
    let agents = AgentMetrics::try_new(&registry).unwrap();
    let watchers: Vec<Arc<dyn Observer>> = vec![agents.observer(AgentRole::Contractor), watched.clone()];
    let options =
        AgentOptions { observer: Some(Arc::new(watchers)), tracer: tracer.clone(), ..AgentOptions::default() };

    let config = Arc::new(config());
    let bids = StubScript {
        answer: [("price".to_owned(), StubValue::Drawn { lo: 62_000_000, hi: 96_000_000 })].into(),
        ..StubScript::default()
    };
    let scenario = CallScenario {
        contractors: 3,
        policy: Some("chosen".to_owned()),
        rate: 8.0,
        duration: Duration::from_secs(1),
        model: Some(ModelPopulation {
            share: 1.0,
            model: SharedModel { config: config.clone(), consultant: ask(bids, &config), marker_seed: 5 },
        }),
        decider: Some(Arc::new(ModelDecider::new(config.clone(), ask(StubScript::default(), &config), 5))),
        options: options.clone(),
        ..CallScenario::default()
    };
    call(&exchange, &scenario).await;
    let decider = scenario.decider.as_ref().unwrap().counts();
    assert!(decider.chosen > 3 && decider.fallbacks == 0, "{decider:?}");
    let mut domain = Domain::parse(DOMAIN).unwrap();
    domain.parties[0].reservation = RESERVATION.parse::<f64>().unwrap() / 1e6;
    bargain(&exchange, &domain, &ask(party_script(), &config), options).await;
    let exposition = telemetry::metrics::to_text(&exchange.registry).unwrap();
    exchange.shutdown().await;

    let seen = Surfaces::of(&watched, &kept, exposition + &telemetry::metrics::to_text(&registry).unwrap());
    seen.check_that_all_were_watched();
    assert_eq!(seen.places(RESERVE, |_| false), [""; 0], "a contractor's reserve");
    // The exchange is told what it must keep, by whoever wants it kept, and nobody else is told anything.
    let is_told_by = |agent: &'static str| move |place: &Place<'_>| place.surface == "messages" && place.agent == agent;
    assert_eq!(seen.places(LIMIT, is_told_by(live::INITIATOR)), [""; 0], "an initiator's limit");
    assert_eq!(seen.places(RESERVATION, is_told_by("customer")), [""; 0], "a party's reservation value");
    assert!(!seen.places(LIMIT, |_| false).is_empty() && !seen.places(RESERVATION, |_| false).is_empty());
    let bids = seen.bids();
    assert!(bids.len() > 9, "{bids:?}");
    for (contractor, price) in &bids {
        let belongs = |place: &Place<'_>| {
            let is_own = place.agent == contractor && matches!(place.surface, "messages" | "deliveries");
            let is_shown = place.agent == live::INITIATOR && matches!(place.surface, "prompts" | "deliveries");
            is_own || is_shown
        };
        assert_eq!(seen.places(price, belongs), [""; 0], "{contractor} offered {price}");
    }
    assert!(bids.iter().any(|(_, price)| seen.places(price, |_| false).contains(&"prompts")));
    check_that_what_is_planted_is_found(&watched, &tracer);
}

/// What stands in a log line, a span or a metric would be found.
fn check_that_what_is_planted_is_found(watched: &Watched, tracer: &Tracer) {
    let (logged, spanned, counted) = ("90817263", "90817264", "90817265");
    tracing::debug!(limit = 90_817_263, "planted");
    let context = TraceContext::of(None, &NegotiationId::try_new("alice~planted").unwrap());
    tracer.record(context.trace, false, || {
        let id = telemetry::SpanId::of(&NegotiationId::try_new("alice~planted").unwrap());
        let now = std::time::SystemTime::now();
        Span::new("planted".to_owned(), telemetry::Kind::Client, context, id, now).with("limit", 90_817_264_i64)
    });
    let (registry, gauge) = (Registry::new(), IntGauge::new("planted", "planted").unwrap());
    gauge.set(90_817_265);
    registry.register(Box::new(gauge)).unwrap();
    let logs = String::from_utf8(watched.logs.lock().clone()).unwrap();
    assert!(stands_in(&logs, logged));
    let spans = watched.spans.lock();
    assert!(spans.iter().any(|span| stands_in(&format!("{span:?}"), spanned)));
    assert!(stands_in(&telemetry::metrics::to_text(&registry).unwrap(), counted));
}

fn config() -> ModelAgentConfig {
    let text = format!(
        "[model]\nname = \"stub\"\n\
         [contractor]\ninstructions = \"Carry parcels.\"\n\
         [contractor.terms.price]\nabout = \"micro-units\"\nmin = {RESERVE}\n\
         [contractor.script]\n\
         [initiator]\ninstructions = \"The cheapest.\"\n\
         [initiator.terms.price]\nabout = \"micro-units\"\nmax = {LIMIT}\n"
    );
    let mut config: ModelAgentConfig = toml::from_str(&text).unwrap();
    config.model.calls_per_negotiation = 1000;
    config.model.tokens_per_negotiation = 1_000_000;
    config
}

/// Offers that suit both, once the shop has conceded.
fn party_script() -> StubScript {
    let answer = [
        ("act", StubValue::Text("offer".to_owned())),
        ("price", StubValue::Drawn { lo: 78, hi: 82 }),
        ("delivery_days", StubValue::Number(2)),
        ("return_days", StubValue::Number(30)),
    ];
    let answer = answer.map(|(name, value)| (name.to_owned(), value)).into();
    StubScript { answer, ..StubScript::default() }
}

/// A bargain of a customer that asks a model with a shop that concedes linearly.
async fn bargain(
    exchange: &Exchange,
    domain: &Domain,
    model: &Arc<Consultant>,
    options: AgentOptions,
) -> BargainOutcome {
    let mut config = ModelAgentConfig::default();
    config.model.calls_per_negotiation = 1000;
    let control = ControlClient::try_new(exchange.url()).unwrap();
    let planner = |party| DomainPlanner::try_new(domain, party, StrategyKind::Linear, 1).unwrap();
    let transport = || -> Arc<dyn Transport> { Arc::new(BusTransport::new(&exchange.bus)) };
    let identities = ["customer", "shop"].map(|name| exchange.identity(&AgentId::try_new(name).unwrap()).unwrap());
    let [customer, shop] = identities;
    for identity in [&customer, &shop] {
        let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
        let registration = Registration { consent, ..Registration::default() };
        control.register(&identity.agent, &identity.token.current(), &registration).await.unwrap();
    }
    let (sender, _of_shop) = mpsc::channel(64);
    let bargainer = Bargainer::new(shop.agent.clone(), planner(1), sender);
    let shop = Agent::new(transport(), shop, bargainer).with_options(options.clone()).spawn(CancellationToken::new());
    let (sender, mut events) = mpsc::channel::<BargainEvent>(64);
    let table = PartyTable {
        space: domain.space.clone(),
        preferences: domain.preferences(0).unwrap(),
        config: Arc::new(config),
        marker_seed: 5,
    };
    let way = (transport(), customer, options);
    let customer = spawn((table, planner(0)), Arc::clone(model), sender, way, CancellationToken::new());
    shop.connected().await.unwrap();
    customer.connected().await.unwrap();
    let negotiation = NegotiationId::form(customer.agent(), "b1").unwrap();
    let to = vec![Address::Agent(shop.agent().clone())];
    let request = BargainRequest::new("b1", to, domain.bargain(), planner(0).plan_for(&negotiation));
    customer.bargain(request).await.unwrap();
    let ended = async {
        loop {
            let event = events.recv().await.expect("the bargain has an end");
            if let BargainReport::Ended(outcome) = event.report {
                return *outcome;
            }
            assert!(!event.report.is_last(), "{event:?}");
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, ended).await.unwrap();
    customer.shutdown().await.unwrap();
    shop.shutdown().await.unwrap();
    outcome
}

/// Calls to contractors of a scenario.
async fn call(exchange: &Exchange, scenario: &CallScenario) {
    let control = ControlClient::try_new(exchange.url()).unwrap();
    let bus = exchange.bus.clone();
    let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
    let identity = |name: &AgentId| -> Identity { exchange.identity(name).unwrap() };
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let recorder = Arc::new(Recorder::start(Instant::now(), true, None));
    let population = Population::start(&access, scenario, Some(&recorder)).await.unwrap();
    live::call(&access, scenario, &recorder, &CancellationToken::new()).await.unwrap();
    population.stop().await.unwrap();
    let (counts, verdict) = recorder.finish().unwrap();
    assert!(counts.rounds > 3 && verdict.violated() == 0, "{counts:?} {verdict:?}");
}

/// Texts, each with the agent it is of.
type Texts = Vec<(String, String)>;

/// Everything that could tell somebody something.
struct Surfaces {
    prompts: Texts,
    deliveries: Texts,
    messages: Texts,
    logs: Texts,
    metrics: Texts,
    spans: Texts,
}

/// A text in which something was found.
struct Place<'a> {
    surface: &'static str,
    agent: &'a str,
}

impl Surfaces {
    fn of(watched: &Watched, kept: &KeptPrompts, metrics: String) -> Self {
        let prompts = std::fs::read_to_string(kept.path()).unwrap();
        let prompts = prompts.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let prompts = prompts.map(|line| (line["agent"].as_str().unwrap().to_owned(), line["messages"].to_string()));
        Self {
            prompts: prompts.collect(),
            deliveries: watched.deliveries.lock().clone(),
            messages: watched.messages.lock().clone(),
            logs: vec![(String::new(), String::from_utf8(watched.logs.lock().clone()).unwrap())],
            metrics: vec![(String::new(), metrics)],
            spans: watched.spans.lock().iter().map(|span| (String::new(), format!("{span:?}"))).collect(),
        }
    }

    fn all(&self) -> [(&'static str, &Texts); 6] {
        let Self { prompts, deliveries, messages, logs, metrics, spans } = self;
        [
            ("prompts", prompts),
            ("deliveries", deliveries),
            ("messages", messages),
            ("logs", logs),
            ("metrics", metrics),
            ("spans", spans),
        ]
    }

    /// Where a number stands, but for where it belongs.
    fn places(&self, number: &str, belongs: impl Fn(&Place<'_>) -> bool) -> Vec<&'static str> {
        let mut found = Vec::new();
        for (surface, texts) in self.all() {
            let holding = texts.iter().filter(|(_, text)| stands_in(text, number));
            let holding = holding.map(|(agent, _)| Place { surface, agent });
            found.extend(holding.filter(|place| !belongs(place)).map(|place| place.surface));
        }
        found
    }

    /// Contractors with the prices of their offers.
    fn bids(&self) -> Vec<(String, String)> {
        let of = |(agent, text): &(String, String)| {
            let document: Value = serde_json::from_str(text).unwrap();
            let price = document["payload"]["terms"]["price"].as_i64().filter(|price| *price > 1_000_000)?;
            (document["payload"]["act"] == <&str>::from(Act::Offer)).then(|| (agent.clone(), price.to_string()))
        };
        self.messages.iter().filter_map(of).collect()
    }

    fn check_that_all_were_watched(&self) {
        for (surface, texts) in self.all() {
            assert!(texts.iter().map(|(_, text)| text.len()).sum::<usize>() > 1000, "{surface}");
        }
        for agent in ["model-contractor-0", "model-contractor-2", live::INITIATOR, "customer"] {
            assert!(self.prompts.iter().any(|(of, _)| of == agent), "{agent} asked nothing");
            assert!(self.deliveries.iter().any(|(of, _)| of == agent), "{agent} was told nothing");
        }
    }
}

/// Whether a number stands in a text as a number of its own, in micro-units or as models read it.
fn stands_in(text: &str, number: &str) -> bool {
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    [number.to_owned(), decimal(number.parse().unwrap(), 6)].iter().any(|number| {
        text.match_indices(number).any(|(at, _)| {
            !is_digit(text[..at].chars().next_back()) && !is_digit(text[at + number.len()..].chars().next())
        })
    })
}

/// Keeps what agents say and hear, what is logged, and spans.
#[derive(Default)]
struct Watched {
    deliveries: Mutex<Texts>,
    messages: Mutex<Texts>,
    logs: Mutex<Vec<u8>>,
    spans: Mutex<Vec<Span>>,
}

impl Observer for Watched {
    fn handle(&self, agent: &AgentId, _: Instant, event: Observed<'_>) {
        match event {
            Observed::Delivered { delivery, .. } => {
                let text = serde_json::to_string(delivery).unwrap();
                self.deliveries.lock().push((agent.to_string(), text));
            }
            Observed::Transmitted { document, .. } => {
                let text = String::from_utf8(document.to_vec()).unwrap();
                self.messages.lock().push((agent.to_string(), text));
            }
            Observed::Connected
            | Observed::Disconnected
            | Observed::Settled { .. }
            | Observed::Deferred { .. }
            | Observed::Decided { .. } => {}
        }
    }
}

impl Spans for Watched {
    fn take(&self, span: Span) {
        self.spans.lock().push(span);
    }
}

/// Writes to what is watched.
struct LogWriter(Arc<Watched>);

impl io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.logs.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogTarget {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        LogWriter(Arc::clone(&self.0))
    }
}

/// Where log lines go.
struct LogTarget(Arc<Watched>);
