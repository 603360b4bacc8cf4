//! An initiator: calls for offers on the topic `courier`, follows the call to its end, and prints what came of it.
//! `cargo run -p agents --example initiator -- http://127.0.0.1:8080 ann "$(llmx token ann)"`.

use std::process::ExitCode;

use agents::transport::websocket::WebSocketTransport;
use agents::{AgentOptions, CallReport, CallRequest, Identity, Initiator};
use schemas::delivery::Outcome;
use schemas::payload::Cfp;
use schemas::{Address, AgentId, TopicName};
use serde_json::json;
use tokio::sync::mpsc;

/// Events of the call that wait to be printed.
const EVENTS_MAX: usize = 64;

#[tokio::main]
#[allow(clippy::print_stderr, reason = "an example says how it is used")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Ok([url, agent, token]) = <[String; 3]>::try_from(std::env::args().skip(1).collect::<Vec<_>>()) else {
        eprintln!("usage: initiator <gateway url> <agent id> <token>");
        return Ok(ExitCode::from(2));
    };
    let identity = Identity { agent: AgentId::try_new(&agent)?, token: token.into() };
    let initiator = Initiator::spawn(WebSocketTransport::new(&url), identity, AgentOptions::default());
    initiator.connected().await?;

    let cfp = Cfp { task: Some("deliver one parcel".into()), reply_within_ms: Some(2_000), ..Cfp::default() };
    let to = vec![Address::Topic(TopicName::try_new("courier")?)];
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let own_id = format!("parcel-{}", std::process::id());
    let negotiation = initiator.call(CallRequest::new(own_id, to, cfp), sender).await?;
    let mut outcome = None;
    while let Some(event) = events.recv().await {
        outcome = print(&event.report).or(outcome);
        if event.report.is_last() {
            break;
        }
    }
    initiator.shutdown().await?;
    match outcome {
        Some(Outcome::Completed) => Ok(ExitCode::SUCCESS),
        other => Err(format!("{negotiation} ended without a completed award: {other:?}").into()),
    }
}

/// Prints one event; gives the outcome with the last one.
#[allow(clippy::print_stdout, reason = "an example shows what happens")]
fn print(news: &CallReport) -> Option<Outcome> {
    match news {
        CallReport::Opened { invited, .. } => println!("called {invited} agents"),
        CallReport::Awarded(award) => {
            let terms = json!(award.terms);
            println!("award {} to {}: {terms}, best of {} offers", award.award_no, award.contractor, award.offers);
        }
        CallReport::Committed(done) => println!("{} is bound", done.contractor),
        CallReport::Done(done) => println!("{} is done: {}", done.contractor, done.result.as_deref().unwrap_or("-")),
        CallReport::Refused(refusal) => println!("{refusal}"),
        CallReport::Closed(closing) => {
            println!("closed: {}", closing.outcome.as_str());
            return Some(closing.outcome);
        }
        CallReport::Accepted { .. }
        | CallReport::TurnedDown(_)
        | CallReport::Unanswered
        | CallReport::Misunderstood(_)
        | CallReport::Offers(_)
        | CallReport::Stopped(_)
        | CallReport::Failed(_)
        | CallReport::Found(_)
        | CallReport::Bid(_) => {}
    }
    None
}
