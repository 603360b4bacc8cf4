//! A run told line by line: what was done to the exchange, what was logged, and what agents did and saw.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bus::LogRecord;
use schemas::delivery::Notification;
use schemas::record::{EngineEvent, Entry, Record};
use schemas::{AgentId, NegotiationId, Timestamp};

use crate::{Answer, Noted, Trace};
use traffic_gen::invariants::Verdict;

/// Most lines told: the beginning of a story is what leads to a violation.
const LINES_MAX: usize = 4_000;

/// Tells a run. With violations, only what concerns the negotiations they name, and what happened to everybody.
pub fn story(trace: &Trace, verdict: &Verdict) -> String {
    let named = named(trace, verdict);
    // What is wrong with a team may have happened in one of its tasks.
    let roots: BTreeSet<&str> = named.iter().map(NegotiationId::root).collect();
    let is_wanted = |negotiation: &NegotiationId| roots.is_empty() || roots.contains(negotiation.root());
    let mut lines: Vec<(Timestamp, String)> =
        trace.story.iter().map(|happening| (happening.at, format!("*** {}", happening.what))).collect();
    for record in &trace.records {
        lines.extend(logged(record, &is_wanted));
    }
    for (agent, entry) in trace.noted() {
        lines.extend(noted(agent, &entry.kind, &is_wanted).map(|line| (entry.at, line)));
    }
    // Stable: what stands under one instant keeps the order in which it was noted.
    lines.sort_by_key(|(at, _)| *at);
    let begin = lines.first().map_or(Timestamp(0), |(at, _)| *at);
    let mut told = String::new();
    for (at, line) in lines.iter().take(LINES_MAX) {
        // Writing to a text cannot fail.
        let _ = writeln!(told, "{:>10.3} s  {line}", at.since_us(begin) as f64 / 1e6);
    }
    if lines.len() > LINES_MAX {
        let _ = writeln!(told, "and {} lines more", lines.len() - LINES_MAX);
    }
    told
}

/// The negotiations that violations name.
fn named(trace: &Trace, verdict: &Verdict) -> BTreeSet<NegotiationId> {
    let mut known: BTreeSet<&NegotiationId> = BTreeSet::new();
    for entry in trace.journals.values().flatten() {
        if let Noted::Sent { negotiation, .. } = &entry.kind {
            known.insert(negotiation);
        }
    }
    let is_named = |negotiation: &&NegotiationId| {
        let name = negotiation.as_str();
        let continues =
            |rest: &str| rest.starts_with(|next: char| next.is_ascii_alphanumeric() || "_-~".contains(next));
        let names = |text: &String| text.match_indices(name).any(|(at, _)| !continues(&text[at + name.len()..]));
        verdict.examples.iter().any(names)
    };
    known.into_iter().filter(is_named).cloned().collect()
}

/// The lines of one record, at the time the log stamped it.
fn logged(found: &LogRecord, is_wanted: &impl Fn(&NegotiationId) -> bool) -> Vec<(Timestamp, String)> {
    let Ok(record) = Record::decode(&found.bytes) else {
        return vec![(found.stamped, format!("log {} cannot be read", found.seq))];
    };
    let mut lines = Vec::new();
    for (index, entry) in record.entries.iter().enumerate() {
        let what = match entry {
            Entry::Message(message) if is_wanted(&message.negotiation) => {
                let msg_id = message.message().map(|decoded| decoded.envelope.msg_id.to_string()).unwrap_or_default();
                format!("{} {:?} {msg_id} of {}", message.negotiation, message.act, message.from)
            }
            Entry::Message(_) => continue,
            Entry::Tick => "tick".to_owned(),
            Entry::Engine { epoch, event: EngineEvent::Delivered { ids, registered } } => {
                format!("delivered {} (registered up to {registered}), epoch {epoch}", ids.len())
            }
            Entry::Engine { epoch, event } => format!("{event:?}, epoch {epoch}"),
        };
        let back = if found.stamped < found.time { " (clock went back)" } else { "" };
        lines.push((found.stamped, format!("log {}.{} by {}: {what}{back}", found.seq, index, record.by)));
    }
    lines
}

fn noted(agent: &AgentId, kind: &Noted, is_wanted: &impl Fn(&NegotiationId) -> bool) -> Option<String> {
    match kind {
        Noted::Connected => Some(format!("{agent} connects")),
        Noted::Sent { negotiation, msg_id, act, attempt, token_of, .. } => is_wanted(negotiation).then(|| {
            let as_whom = if token_of == agent { String::new() } else { format!(" with the token of {token_of}") };
            format!("{agent} sends {negotiation} {act:?} {msg_id}, attempt {attempt}{as_whom}")
        }),
        Noted::Answered { negotiation, msg_id, attempt, answer } => is_wanted(negotiation).then(|| {
            let answer = match answer {
                Answer::Accepted { seq, index } => format!("202 at {seq}.{index}"),
                Answer::Refused(code) => format!("{code:?}"),
                Answer::None => "no answer".to_owned(),
            };
            format!("{agent} is answered {answer} for {negotiation} {msg_id}, attempt {attempt}")
        }),
        Noted::Received { id, is_repeat, delivery, .. } => is_wanted(&delivery.envelope.negotiation).then(|| {
            let again = if *is_repeat { " again" } else { "" };
            format!("{agent} receives{again} {} {id}: {}", delivery.envelope.negotiation, told(&delivery.payload))
        }),
        Noted::Acknowledged { ids } => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            Some(format!("{agent} acknowledges {}", ids.join(" ")))
        }
        Noted::Unreadable { bytes } => Some(format!("{agent} cannot read {}", String::from_utf8_lossy(bytes))),
        Noted::Notice { subject, payload } => {
            Some(format!("{agent} hears on {subject}: {}", String::from_utf8_lossy(payload)))
        }
    }
}

fn told(told: &Notification) -> String {
    match told {
        Notification::Ack(receipt) => format!("{:?} {} {:?}", receipt.disposition, receipt.ack_of, receipt.offer_id),
        Notification::Cfp(call) => format!("cfp round {}, reply by {}", call.round, call.reply_by.0.0),
        Notification::Accept(award) => format!("accept {} lot {} award {}", award.offer_id, award.lot, award.award_no),
        Notification::Reject(rejection) => format!("reject {:?} {:?}", rejection.reason, rejection.offer_id),
        Notification::Cancel(cancellation) => format!("cancel {} {}", cancellation.award_no, cancellation.reason),
        Notification::Inform(news) => format!("inform {news:?}"),
        Notification::Failure(failure) => format!("failure {failure:?}"),
        Notification::NotUnderstood(misunderstanding) => format!("not understood: {}", misunderstanding.reason),
        Notification::Closed(closing) => format!("closed {:?}", closing.outcome),
        Notification::Turn(turn) => format!("turn {} of {}", turn.step, turn.party),
        Notification::Ask(ask) => format!("ask of round {}, answer by {}", ask.round, ask.answer_by.0.0),
        Notification::Floor(floor) => format!("floor {} in turn {}: {:?}", floor.step, floor.turn, floor.state),
    }
}
