//! An agent that bargains over a domain file:
//! `cargo run -p agents --example bargainer -- http://127.0.0.1:8080 shop "$TOKEN" domains/ecommerce.json shop boulware`.
//!
//! It joins every bargain over that domain as one of its parties, bound by that party's mandate, and says how each ended. With
//! the name of another agent as last argument it calls that agent to one bargain, and ends with it.

use std::process::ExitCode;
use std::sync::Arc;

use agents::bargain::{BargainReport, BargainRequest, Bargainer, Domain, DomainPlanner, StrategyKind};
use agents::transport::{http::HttpTransport, websocket::WebSocketTransport};
use agents::{Agent, Identity};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::{Address, AgentId, NegotiationId};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const USAGE: &str =
    "usage: bargainer <gateway url> <agent id> <token> <domain file> <party> <strategy> [<other agent>]";
/// Events that wait to be printed.
const EVENTS_MAX: usize = 1024;

#[tokio::main]
#[allow(clippy::print_stderr, reason = "an example says how it is used")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let other = if arguments.len() == 7 { arguments.pop() } else { None };
    let Ok([url, agent, token, file, party, strategy]) = <[String; 6]>::try_from(arguments) else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let domain = Arc::new(Domain::parse(&std::fs::read_to_string(&file)?)?);
    let party =
        domain.parties.iter().position(|known| known.name.as_str() == party).ok_or("no such party in the domain")?;
    let kind: StrategyKind = strategy.parse()?;
    let planner = DomainPlanner::try_new(&domain, party, kind, 0)?;

    let identity = Identity { agent: AgentId::try_new(&agent)?, token: token.into() };
    let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
    HttpTransport::try_new(&url)?.register(&identity, &Registration { consent, ..Registration::default() }).await?;
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let bargainer = Bargainer::new(identity.agent.clone(), planner.clone(), sender);
    let agent = Agent::new(WebSocketTransport::new(&url), identity, bargainer).spawn(CancellationToken::new());
    agent.connected().await?;
    if let Some(other) = &other {
        let own_id = format!("bargain-{}", std::process::id());
        let plan = planner.plan_for(&NegotiationId::form(agent.agent(), &own_id)?);
        let to = vec![Address::Agent(AgentId::try_new(other)?)];
        agent.bargain(BargainRequest::new(own_id, to, domain.bargain(), plan)).await?;
    }
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(event) = event else { break };
        print(&domain, &event.negotiation, &event.report);
        if other.is_some() && event.report.is_last() {
            break;
        }
    }
    agent.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}

#[allow(clippy::print_stdout, reason = "an example shows what happens")]
fn print(domain: &Domain, negotiation: &NegotiationId, news: &BargainReport) {
    let BargainReport::Ended(ended) = news else { return println!("{negotiation}: {news:?}") };
    let detail = ended.detail.as_deref().unwrap_or("-");
    println!("{negotiation}: {:?} ({detail}) after {} turns", ended.outcome, ended.steps);
    for offer in &ended.offers {
        let terms = json!(domain.space.terms(offer.outcome));
        println!("  round {}, party {}: {terms}", offer.round, offer.party);
    }
    if let (Some(agreement), Some(utility)) = (&ended.agreement, ended.utility) {
        println!("  agreed: {}, worth {utility:.3} to us", json!(agreement.terms));
    }
}
