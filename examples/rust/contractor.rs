//! A contractor: `cargo run -p agents --example contractor -- http://127.0.0.1:8080 bob "$(llmx token bob)"`.
//!
//! It takes calls on the topic `courier`, offers a fixed price, commits when it wins, and reports its work as done.

use std::process::ExitCode;

use agents::contractor::other_protocol;
use agents::transport::{http::HttpTransport, websocket::WebSocketTransport};
use agents::{Action, Identity};
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::delivery::{Delivery, Disposition, Notification};
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Confirm, Inform, InformKind, Offer, Payload, Reasoned, Terms};
use schemas::{AgentId, Timestamp, TopicName};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn answer(_now: Timestamp, delivery: &Delivery) -> Vec<Action> {
    show(delivery);
    let payload = match &delivery.payload {
        // Other protocols: see `bargainer.rs`, `teammate.rs` and `panelist.rs`. Refused at once, so that nobody waits.
        Notification::Cfp(call) if other_protocol(call).is_some() => refuse("offers only"),
        Notification::Ask(_) => refuse("sits on no panel"),
        Notification::Cfp(call) => {
            Payload::Offer(Offer { terms: my_terms(), round: Some(call.round), ..Offer::default() })
        }
        Notification::Accept(award) if award.terms == my_terms() => {
            Payload::Confirm(Confirm { award_no: award.award_no, terms_digest: None })
        }
        Notification::Ack(receipt) if receipt.disposition == Disposition::Committed => {
            Payload::Inform(Inform { kind: InformKind::Done, result: Some("delivered".into()), routine: None })
        }
        Notification::Cancel(cancel) if cancel.reason == "cancelled" => {
            Payload::Inform(Inform { kind: InformKind::Cancelled, result: None, routine: None })
        }
        Notification::Accept(_) | Notification::Ack(_) | Notification::Cancel(_) => return Vec::new(),
        Notification::Reject(_)
        | Notification::Closed(_)
        | Notification::Inform(_)
        | Notification::Failure(_)
        | Notification::NotUnderstood(_)
        | Notification::Turn(_)
        | Notification::Floor(_) => return Vec::new(),
    };
    vec![Action::reply(delivery, payload)]
}

fn refuse(reason: &str) -> Payload {
    Payload::Refuse(Reasoned { reason: Some(reason.to_owned()), round: None })
}

/// A line for each thing that happens.
#[allow(clippy::print_stdout, reason = "an example shows what happens")]
fn show(delivery: &Delivery) {
    let said = match &delivery.payload {
        Notification::Cfp(call) => format!("called to {}: offer", call.task.as_deref().unwrap_or("do something")),
        Notification::Accept(award) => format!("award {} offered: confirm", award.award_no),
        Notification::Ack(receipt) if receipt.disposition == Disposition::Ok => return,
        Notification::Ack(receipt) => receipt.disposition.as_str().to_owned(),
        Notification::Reject(rejection) => format!("reject: {:?}", rejection.reason).to_lowercase(),
        Notification::Cancel(cancel) => format!("cancel: {}", cancel.reason),
        Notification::Closed(_)
        | Notification::Inform(_)
        | Notification::Failure(_)
        | Notification::NotUnderstood(_)
        | Notification::Turn(_)
        | Notification::Ask(_)
        | Notification::Floor(_) => return,
    };
    println!("{}: {said}", delivery.envelope.negotiation);
}

#[tokio::main]
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what happens")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Ok([url, agent, token]) = <[String; 3]>::try_from(std::env::args().skip(1).collect::<Vec<_>>()) else {
        eprintln!("usage: contractor <gateway url> <agent id> <token>");
        return Ok(ExitCode::from(2));
    };
    let identity = Identity { agent: AgentId::try_new(&agent)?, token: token.into() };
    let consent = Consent { default: ConsentEffect::Allow, rules: Vec::new() };
    let topics = vec![TopicName::try_new("courier")?];
    let registration = Registration { topics, consent, ..Registration::default() };
    let control = HttpTransport::try_new(&url)?;
    control.register(&identity, &registration).await?;
    println!("{} is registered for topic courier", identity.agent);

    let cancel = CancellationToken::new();
    let transport = WebSocketTransport::new(&url);
    let running = agents::run(transport, identity.agent.clone(), identity.token.clone(), answer, cancel.clone());
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => drop(ended?),
        // Where another process of this agent takes its registration away.
        never = control.keep_registered(&identity, &registration) => match never? {},
        () = asked_to_end() => {
            // Before it goes, so that nobody calls it any more, and no call waits for it.
            control.deregister(&identity).await?;
            cancel.cancel();
            running.await?;
        }
    }
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

/// Prices are integers in micro-units: 1 000 000 is one.
fn my_terms() -> Terms {
    let name = |name| AttrName::try_new(name).expect("a valid attribute name");
    [(name("price"), AttrValue::Int(50_000_000)), (name("delivery_ms"), AttrValue::Int(2000))].into()
}
