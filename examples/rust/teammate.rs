//! A member of teams: `cargo run -p agents --example teammate -- http://127.0.0.1:8080 bob "$(llmx token bob)"`.
//!
//! It joins every team that it is called to, counts the words of what the lead asks when it holds the floor, writes in capitals
//! what a task says, and votes against a conclusion without its number. `examples/python/lead.py` calls it.

use std::process::ExitCode;
use std::sync::Arc;

use agents::team::{
    FunctionWorker, MemberPlan, Speaker, TaskPlan, TeamAgent, TeamHands, TeamMove, TeamPlanner, TeamView, WorkRunner,
};
use agents::transport::{http::HttpTransport, websocket::WebSocketTransport};
use agents::{AgentOptions, Identity};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Terms};
use schemas::team::{Brief, Spoken, TeamCall};
use schemas::{AgentId, NegotiationId};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Counts the words of what the lead said last, and passes the floor back to it.
#[derive(Default)]
struct Counter {
    counted: Option<String>,
}

impl Speaker for Counter {
    fn speak(&mut self, view: &TeamView) -> TeamMove {
        let asked = view.recap.values().rev().find(|remark| remark.by == view.lead).map(|remark| &remark.said);
        let counted = words(if let Some(Spoken::Text { text }) = asked { text } else { &view.goal });
        show(&format!("{}: say {counted}", view.team));
        self.counted = Some(counted.clone());
        TeamMove::Say { text: counted, next: Some(view.lead.clone()) }
    }

    fn vote(&mut self, view: &TeamView, conclusion: &str) -> bool {
        let is_for = self.counted.as_ref().is_none_or(|counted| conclusion.contains(counted));
        show(&format!("{}: {} {conclusion:?}", view.team, if is_for { "for" } else { "against" }));
        is_for
    }
}

/// The number of words behind the first colon, if there is one.
fn words(text: &str) -> String {
    format!("{} words", behind_colon(text).split_whitespace().count())
}

fn behind_colon(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, behind)| behind.trim())
}

/// Joins every team, and takes every task.
struct Willing;

impl TeamPlanner for Willing {
    fn join(&mut self, team: &NegotiationId, goal: &str, call: &TeamCall) -> Result<MemberPlan, String> {
        show(&format!("{team}: {} calls to {goal:?}: join", call.lead));
        Ok(MemberPlan { terms: Terms::new(), speaker: Box::new(Counter::default()) })
    }

    fn offer(&mut self, _brief: &Brief) -> Result<Terms, String> {
        // How well it can do a task, in millionths, and in what time: what the policy of tasks weighs.
        let offered = [("fit", 700_000), ("delivery_ms", 1_000)];
        let terms = offered.map(|(name, value)| AttrName::try_new(name).map(|name| (name, AttrValue::Int(value))));
        terms.into_iter().collect::<Result<Terms, _>>().map_err(|error| error.to_string())
    }

    fn take(&mut self, brief: &Brief) -> Result<TaskPlan, String> {
        show(&format!("task {:?}: {:?}", brief.title, brief.text));
        Ok(TaskPlan::Alone)
    }
}

/// A line for each thing that happens.
#[allow(clippy::print_stdout, reason = "an example shows what happens")]
fn show(line: &str) {
    println!("{line}");
}

#[tokio::main]
#[allow(clippy::print_stderr, reason = "an example says how it is used")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Ok([url, agent, token]) = <[String; 3]>::try_from(std::env::args().skip(1).collect::<Vec<_>>()) else {
        eprintln!("usage: teammate <gateway url> <agent id> <token>");
        return Ok(ExitCode::from(2));
    };
    let identity = Identity { agent: AgentId::try_new(&agent)?, token: token.into() };
    let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
    let description = Some("counts words".to_owned());
    let control = HttpTransport::try_new(&url)?;
    control.register(&identity, &Registration { consent, description, ..Registration::default() }).await?;
    let hands =
        TeamHands::new(WorkRunner::new(FunctionWorker::new(|task| Ok(behind_colon(&task.text).to_uppercase()))));
    let way = (Arc::new(WebSocketTransport::new(&url)) as _, identity.clone(), AgentOptions::default());
    let running = TeamAgent::spawn(Willing, hands, way, CancellationToken::new());
    running.connected().await?;
    show(&format!("{agent} is registered"));
    asked_to_end().await;
    // Before it goes, so that nobody calls it any more.
    control.deregister(&identity).await?;
    running.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}

/// Ctrl-C, or what a service manager sends.
async fn asked_to_end() {
    let mut terminated = signal(SignalKind::terminate()).expect("a signal can be listened for");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}
