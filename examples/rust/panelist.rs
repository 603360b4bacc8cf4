//! A panelist in some twenty lines: `cargo run -p agents --example panelist -- http://127.0.0.1:8080 bob "$TOKEN" 42`.
//!
//! It answers every question alike, until most of the others say something else. It goes on until it is asked to end.

use std::process::ExitCode;

use agents::panel::{AskReply, PanelMember, Panelist};
use agents::transport::{http::HttpTransport, websocket::WebSocketTransport};
use agents::{ActRefusal, Agent, Identity};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::delivery::Ask;
use schemas::{AgentId, NegotiationId};
use tokio_util::sync::CancellationToken;

const USAGE: &str = "usage: panelist <gateway url> <agent id> <token> <answer>";

/// What it answers as long as most of the others say nothing else.
struct Opinion(String);

impl Panelist for Opinion {
    fn answer(&mut self, panel: &NegotiationId, ask: &Ask) -> AskReply {
        let said =
            |answer: &str| ask.peers.iter().flatten().filter(|peer| peer.answer.as_deref() == Some(answer)).count();
        let others = ask.peers.iter().flatten().filter_map(|peer| peer.answer.as_deref());
        let most = others.max_by_key(|other| said(other)).filter(|other| said(other) > 1);
        let answer = most.unwrap_or(&self.0).to_owned();
        show(&format!("{panel}: round {}: {answer}", ask.round));
        AskReply::answer(ask, Some(answer))
    }

    /// Such as `bad_answer` where a number is asked for and the opinion is none. Here it could be corrected.
    fn refused(&mut self, panel: &NegotiationId, refusal: &ActRefusal, _ask: Option<&Ask>) -> AskReply {
        show(&format!("{panel}: the answer does not count: {refusal}"));
        AskReply::Silence
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
    let Ok([url, agent, token, opinion]) = <[String; 4]>::try_from(std::env::args().skip(1).collect::<Vec<_>>()) else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let identity = Identity { agent: AgentId::try_new(&agent)?, token: token.into() };
    let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
    HttpTransport::try_new(&url)?.register(&identity, &Registration { consent, ..Registration::default() }).await?;
    let member = Agent::new(WebSocketTransport::new(&url), identity, PanelMember::new(Opinion(opinion)));
    let member = member.spawn(CancellationToken::new());
    member.connected().await?;
    show(&format!("{agent} is registered"));
    tokio::signal::ctrl_c().await?;
    member.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}
