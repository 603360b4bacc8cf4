//! Agents of three kinds in one panel and in one team: in Python with its standard library alone, over a WebSocket, and over NATS.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use agents::panel::{AskReply, PanelMember, Panelist};
use agents::team::{
    FunctionWorker, MemberPlan, Speaker, TaskPlan, TeamAgent, TeamHands, TeamMove, TeamPlanner, TeamView, WorkRunner,
};
use agents::transport::bus::BusTransport;
use agents::transport::http::HttpTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::{Agent, AgentHandle, AgentOptions, Identity, Transport};
use bus::nats::NatsOptions;
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::delivery::Ask;
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Terms};
use schemas::team::{Brief, Spoken, TeamCall};
use schemas::{AgentId, NegotiationId};
use tokio_util::sync::CancellationToken;

use crate::process::{Process, Site, key, token};

/// The folder of the examples in Python.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/python");
/// What `lead.py` asks its members about has so many words.
const COUNTED: &str = "6 words";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_in_python_over_a_websocket_and_over_nats_take_part_in_one_panel_and_its_finding_counts_all_three() {
    let ways = Ways::start().await;
    let mut pat = ways.python("panelist.py", "pat", &["42"]).await;
    pat.says("is registered").await;
    let asked = Arc::new(AtomicU32::new(0));
    let answerer = |opinion| Answerer { opinion, asked: Arc::clone(&asked) };
    let wanda = ways.panelist("wanda", ways.web_socket.clone(), answerer("42")).await;
    // In the first round it says something else, so that there is a second with peers to be rated.
    let nick = ways.panelist("nick", ways.nats.clone(), answerer("41")).await;
    let mut asker = ways.python("panelist.py", "ann", &["42", "pat", "wanda", "nick"]).await;
    assert_eq!(asker.says("~panel-").await.split_once(": ").unwrap().1, "42, 3 of 3 agree in round 2");
    let mut importance = 0.0;
    for name in ["nick", "pat", "wanda"] {
        let seat = asker.says(&format!("  {name}: ")).await;
        let (answer, share) = seat.split_once(", importance ").unwrap();
        let share: f64 = share.parse().unwrap();
        assert!(answer == "42" && share > 0.0, "{name}: {seat}");
        importance += share;
    }
    assert!((importance - 2.0).abs() < 0.01, "1 in each of two rounds: {importance}");
    assert_eq!(asker.end_by_itself().await.0, Some(0));
    assert_eq!(asked.load(Ordering::Relaxed), 4, "two agents, two rounds");
    for round in ["round 1: 42", "round 2: 42"] {
        pat.says(round).await;
    }
    assert_eq!(pat.end().await, Some(0));
    for member in [wanda, nick] {
        member.shutdown().await.unwrap();
    }
    ways.site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_in_python_over_a_websocket_and_over_nats_work_in_one_team_and_vote_for_its_conclusion() {
    let ways = Ways::start().await;
    let mut pat = ways.python("teammate.py", "pat", &["1"]).await;
    pat.says("is registered").await;
    let wanda = ways.teammate("wanda", Arc::new(ways.web_socket.clone())).await;
    let nick = ways.teammate("nick", Arc::new(ways.nats.clone())).await;
    let mut lead = ways.python("lead.py", "ann", &["pat", "wanda", "nick"]).await;
    let mut speakers = Vec::new();
    for _ in 0..3 {
        lead.says("ann: say: ").await;
        let said = lead.says("").await;
        let (speaker, text) = said.split_once(": ").unwrap();
        assert_eq!(text, COUNTED);
        speakers.push(speaker.to_owned());
    }
    speakers.sort_unstable();
    assert_eq!(speakers, ["nick", "pat", "wanda"]);
    let done = lead.says("task 1: done ").await;
    let (owner, result) = done.split_once(' ').unwrap();
    assert!(speakers.iter().any(|speaker| speaker == owner) && result == "THE END", "{done}");
    // All have to be for it: one vote that is lost would leave the team without a conclusion.
    assert_eq!(lead.says("closed: concluded ").await, "the sentence has 6 words: THE END");
    assert_eq!(lead.end_by_itself().await.0, Some(0));
    assert_eq!(pat.end_by_itself().await.0, Some(0));
    for member in [wanda, nick] {
        member.shutdown().await.unwrap();
    }
    ways.site.end().await;
}

/// An exchange of real processes, and the ways into it.
struct Ways {
    site: Site,
    web_socket: WebSocketTransport,
    nats: BusTransport,
}

impl Ways {
    async fn start() -> Self {
        let site = Site::start().await;
        let bus = bus::nats::open(NatsOptions::new(site.nats_url())).await.unwrap();
        Self { web_socket: WebSocketTransport::new(&site.gateway_url), nats: BusTransport::new(&bus), site }
    }

    /// An example in Python.
    async fn python(&self, program: &str, name: &str, more: &[&str]) -> Process {
        let (path, token) = (format!("{PYTHON}/{program}"), token(name, &key(&self.site.keys)).await);
        let args = ["-u", &path, &self.site.gateway_url, name, &token];
        Process::start_program("python3", &[&args[..], more].concat())
    }

    async fn panelist(
        &self,
        name: &str,
        way: impl Transport + 'static,
        answerer: Answerer,
    ) -> AgentHandle<PanelMember<Answerer>> {
        let member = Agent::new(way, self.registered(name).await, PanelMember::new(answerer));
        let member = member.spawn(CancellationToken::new());
        member.connected().await.unwrap();
        member
    }

    async fn teammate(&self, name: &str, way: Arc<dyn Transport>) -> AgentHandle<TeamAgent> {
        let worker = FunctionWorker::new(|task| Ok(behind_colon(&task.text).to_uppercase()));
        let way = (way, self.registered(name).await, AgentOptions::default());
        let member = TeamAgent::spawn(Willing, TeamHands::new(WorkRunner::new(worker)), way, CancellationToken::new());
        member.connected().await.unwrap();
        member
    }

    async fn registered(&self, name: &str) -> Identity {
        let token = token(name, &key(&self.site.keys)).await;
        let identity = Identity { agent: AgentId::try_new(name).unwrap(), token: token.into() };
        let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
        let control = HttpTransport::try_new(&self.site.gateway_url).unwrap();
        control.register(&identity, &Registration { consent, ..Registration::default() }).await.unwrap();
        identity
    }
}

/// Says its opinion in the first round, and 42 from then on.
struct Answerer {
    opinion: &'static str,
    asked: Arc<AtomicU32>,
}

impl Panelist for Answerer {
    fn answer(&mut self, _panel: &NegotiationId, ask: &Ask) -> AskReply {
        self.asked.fetch_add(1, Ordering::Relaxed);
        AskReply::answer(ask, Some(if ask.round == 1 { self.opinion } else { "42" }.to_owned()))
    }
}

/// Counts the words of what the lead says.
struct Counter;

impl Speaker for Counter {
    fn speak(&mut self, view: &TeamView) -> TeamMove {
        let asked = view.recap.values().rev().find(|remark| remark.by == view.lead).map(|remark| &remark.said);
        let Some(Spoken::Text { text }) = asked else { panic!("the lead has asked: {view:?}") };
        let text = format!("{} words", behind_colon(text).split_whitespace().count());
        TeamMove::Say { text, next: Some(view.lead.clone()) }
    }

    fn vote(&mut self, _view: &TeamView, conclusion: &str) -> bool {
        conclusion.contains(COUNTED)
    }
}

fn behind_colon(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, behind)| behind.trim())
}

/// Joins every team, offers for every task, and takes every task.
struct Willing;

impl TeamPlanner for Willing {
    fn join(&mut self, _team: &NegotiationId, _goal: &str, _call: &TeamCall) -> Result<MemberPlan, String> {
        Ok(MemberPlan { terms: Terms::new(), speaker: Box::new(Counter) })
    }

    fn offer(&mut self, _brief: &Brief) -> Result<Terms, String> {
        let offered = [("fit", 700_000), ("delivery_ms", 1_000)];
        Ok(offered.map(|(name, value)| (AttrName::try_new(name).unwrap(), AttrValue::Int(value))).into_iter().collect())
    }

    fn take(&mut self, _brief: &Brief) -> Result<TaskPlan, String> {
        Ok(TaskPlan::Alone)
    }
}
