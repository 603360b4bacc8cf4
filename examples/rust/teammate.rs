//! A member of teams: `cargo run -p agents --example teammate -- http://127.0.0.1:8080 bob "$(llmx token bob)"`.
//!
//! It joins every team that it is called to, says one sentence when it holds the floor, takes every task, and works on it with a
//! function: it counts words. `examples/python/lead.py` calls it.

use std::process::ExitCode;
use std::sync::Arc;

use agents::team::{
    FunctionWorker, MemberPlan, Speaker, TaskPlan, TeamAgent, TeamHands, TeamMove, TeamPlanner, TeamView, WorkRequest,
    WorkRunner,
};
use agents::transport::{http::HttpTransport, websocket::WebSocketTransport};
use agents::{AgentOptions, Identity};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::payload::Terms;
use schemas::team::{Brief, TeamCall};
use schemas::{AgentId, NegotiationId};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Passes the floor back to the lead.
struct Sentence;

impl Speaker for Sentence {
    fn speak(&mut self, view: &TeamView) -> TeamMove {
        TeamMove::Say { text: format!("I count words. Goal: {}", view.goal), next: Some(view.lead.clone()) }
    }
}

/// Joins every team and takes every task.
struct Willing;

impl TeamPlanner for Willing {
    fn join(&mut self, team: &NegotiationId, goal: &str, call: &TeamCall) -> Result<MemberPlan, String> {
        show(&format!("{team}: {} calls to {goal:?}: join", call.lead));
        Ok(MemberPlan { terms: Terms::new(), speaker: Box::new(Sentence) })
    }

    fn offer(&mut self, _brief: &Brief) -> Result<Terms, String> {
        Ok(Terms::new())
    }

    fn take(&mut self, brief: &Brief) -> Result<TaskPlan, String> {
        show(&format!("{}: task {} ({}): confirm", brief.team, brief.task, brief.title));
        Ok(TaskPlan::Alone)
    }
}

fn count_words(request: &WorkRequest) -> Result<String, String> {
    let result = format!("{} words", request.text.split_whitespace().count());
    show(&format!("{}: done: {result}", request.task));
    Ok(result)
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
    let hands = TeamHands::new(WorkRunner::new(FunctionWorker::new(count_words)));
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
