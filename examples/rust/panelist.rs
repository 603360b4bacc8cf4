//! A panelist in twenty lines: `cargo run -p agents --example panelist -- http://127.0.0.1:8080 bob "$TOKEN" 42`.
//!
//! It answers every question alike, until most of the others say something else. It goes on until it is asked to end.

use std::process::ExitCode;

use agents::panel::{AskReply, PanelMember};
use agents::transport::{http::HttpTransport, websocket::WebSocketTransport};
use agents::{Agent, Identity};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::delivery::Ask;
use schemas::{AgentId, NegotiationId};
use tokio_util::sync::CancellationToken;

const USAGE: &str = "usage: panelist <gateway url> <agent id> <token> <answer>";

#[tokio::main]
#[allow(clippy::print_stderr, clippy::print_stdout, reason = "an example says what it does")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Ok([url, agent, token, opinion]) = <[String; 4]>::try_from(std::env::args().skip(1).collect::<Vec<_>>()) else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let panelist = move |panel: &NegotiationId, ask: &Ask| {
        let said =
            |answer: &str| ask.peers.iter().flatten().filter(|peer| peer.answer.as_deref() == Some(answer)).count();
        let others = ask.peers.iter().flatten().filter_map(|peer| peer.answer.as_deref());
        let most = others.max_by_key(|other| said(other)).filter(|other| said(other) > 1);
        let answer = most.unwrap_or(&opinion).to_owned();
        println!("{panel}: round {}: {answer}", ask.round);
        AskReply::answer(ask, Some(answer))
    };
    let identity = Identity { agent: AgentId::try_new(&agent)?, token: token.into() };
    let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
    HttpTransport::try_new(&url)?.register(&identity, &Registration { consent, ..Registration::default() }).await?;
    let member = Agent::new(WebSocketTransport::new(&url), identity, PanelMember::new(panelist));
    let member = member.spawn(CancellationToken::new());
    member.connected().await?;
    println!("{agent} is registered");
    tokio::signal::ctrl_c().await?;
    member.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}
