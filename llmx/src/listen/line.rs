//! A delivery in one line, for people.

use schemas::WireTime;
use schemas::delivery::{
    Ask, Award, Call, Closing, Delivery, Misunderstanding, Notification, ProgressReport, Receipt, Rejection, Turn,
};
use schemas::payload::{AttrValue, Terms};
use schemas::team::{Floor, Spoken, TeamTask};

use crate::arguments::units;
use crate::english_auction;
use crate::output::one_line;

/// Characters of a task or result that are shown.
const TEXT_SHOWN_MAX: usize = 120;
/// The attribute that is money.
const PRICE: &str = "price";

/// Time, act, negotiation, and what it says.
pub fn line(delivery: &Delivery) -> String {
    let envelope = &delivery.envelope;
    let said = match &delivery.payload {
        Notification::Cfp(call) => called(call, &cut(envelope.from.trim_start_matches("agent://"))),
        Notification::Accept(award) => awarded(award),
        Notification::Reject(rejection) => rejected(rejection),
        Notification::Cancel(cancellation) => format!("award {}: {}", cancellation.award_no, cut(&cancellation.reason)),
        Notification::Inform(news) => news_text(news),
        Notification::Failure(failure) => {
            let (contractor, award_no, code) = (&failure.contractor, failure.award_no, &failure.failure.code);
            format!("{contractor} failed award {award_no}: {}", cut(code))
        }
        Notification::NotUnderstood(misunderstanding) => misunderstood(misunderstanding),
        Notification::Closed(closing) => closed(closing),
        Notification::Ack(receipt) => received(receipt),
        Notification::Turn(turn) => turned(turn),
        Notification::Ask(ask) => asked(ask),
        Notification::Floor(floor) => floor_text(floor),
    };
    let act = delivery.payload.act();
    one_line(&format!("{}  {:<14} {}  {said}", clock(envelope.ts), act.as_str(), envelope.negotiation))
}

/// Terms as `price 85, delivery_ms 2000`, the price first and in units.
pub fn terms(terms: &Terms) -> String {
    let (price, others): (Vec<_>, Vec<_>) = terms.iter().partition(|(name, _)| name.as_str() == PRICE);
    let told = price.into_iter().chain(others).map(|(name, value)| match value {
        AttrValue::Int(micros) if name.as_str() == PRICE => format!("{name} {}", units(*micros)),
        AttrValue::Int(number) => format!("{name} {number}"),
        AttrValue::Text(text) => format!("{name} {}", cut(text)),
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "no terms".to_owned() } else { told.join(", ") }
}

/// The time of day in UTC, to the millisecond.
fn clock(time: WireTime) -> String {
    time.to_string().chars().skip(11).take(12).collect()
}

/// A text of an agent: short, and without control characters, which would reach the terminal.
pub fn cut(text: &str) -> String {
    let mut shown: String = one_line(text).chars().take(TEXT_SHOWN_MAX).collect();
    if text.chars().nth(TEXT_SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

fn called(call: &Call, from: &str) -> String {
    let task =
        call.task.as_deref().map_or_else(|| "a call without a task".to_owned(), |task| format!("\"{}\"", cut(task)));
    let mut said = format!("{from} calls: {task}, policy {}, reply by {}", cut(&call.policy), clock(call.reply_by));
    if call.round > 1 {
        said.push_str(&format!(", round {}", call.round));
    }
    if call.lots > 1 {
        said.push_str(&format!(", {} lots", call.lots));
    }
    if let Some(bargain) = &call.bargain {
        let parties: Vec<&str> = bargain.parties.iter().map(schemas::AgentId::as_str).collect();
        said.push_str(&format!(", a bargain of {}", parties.join(", ")));
    }
    if let Some(auction) = &call.auction {
        said.push_str(&format!(", {}", english_auction::called(&auction.rules)));
    }
    said
}

fn awarded(award: &Award) -> String {
    let Award { award_no, offer_id, confirm_by, .. } = award;
    format!("award {award_no} for offer {offer_id}: {}; confirm by {}", terms(&award.terms), clock(*confirm_by))
}

fn rejected(rejection: &Rejection) -> String {
    let reason = serde_json::to_value(rejection.reason).ok();
    let reason = reason.as_ref().and_then(serde_json::Value::as_str).unwrap_or("rejected").to_owned();
    let code = rejection.code.as_ref().map(|code| format!(" {}", cut(code))).unwrap_or_default();
    let offer = rejection.offer_id.map(|offer| format!(" (offer {offer})")).unwrap_or_default();
    format!("{reason}{code}{offer}")
}

fn news_text(news: &ProgressReport) -> String {
    match news {
        ProgressReport::Awarded(award) => {
            let (contractor, award_no, offers) = (&award.contractor, award.award_no, award.offers);
            format!("award {award_no} to {contractor}: {}, of {offers} offers", terms(&award.terms))
        }
        ProgressReport::Offers(offers) => {
            format!("{} offers; choose by {}", offers.offers.len(), clock(offers.decide_by))
        }
        ProgressReport::Committed(report) => format!("{} confirmed award {}", report.contractor, report.award_no),
        ProgressReport::Done(report) | ProgressReport::Result(report) => {
            let result = report.result.as_deref().map(|result| format!(": \"{}\"", cut(result))).unwrap_or_default();
            format!("{} is done with award {}{result}", report.contractor, report.award_no)
        }
        ProgressReport::Cancelled(report) => format!("{} stopped award {}", report.contractor, report.award_no),
        ProgressReport::Finding(finding) => {
            let (agreed, of, round) = (finding.agreed, finding.of, finding.round);
            format!("\"{}\", {} of {agreed} of {of} in round {round}", cut(&finding.answer), finding.outcome.as_str())
        }
        ProgressReport::Bid(bid) => english_auction::standing(bid),
    }
}

fn asked(ask: &Ask) -> String {
    let what = match (&ask.rank, ask.review) {
        (Some(rank), _) => format!("rank {} answers, keep {}", ask.peers.as_ref().map_or(0, Vec::len), rank.keep),
        (None, true) => format!("review {} answers", ask.peers.as_ref().map_or(0, Vec::len)),
        (None, false) => ask.task.as_deref().map(cut).unwrap_or_default(),
    };
    format!("round {}, answer by {}: {what}", ask.round, clock(ask.answer_by))
}

/// How a team stands, and what was said last.
fn floor_text(floor: &Floor) -> String {
    let state: &str = floor.state.into();
    let speaker = floor.speaker.as_ref().map(|speaker| format!(", {speaker} speaks")).unwrap_or_default();
    let said = match (&floor.by, &floor.said) {
        (Some(by), Some(Spoken::Text { text })) => format!("; {by}: \"{}\"", cut(text)),
        (Some(by), Some(Spoken::Repeats { repeats })) => format!("; {by} repeats step {repeats}"),
        (_, _) => String::new(),
    };
    let task = |task: &TeamTask| {
        let status: &str = task.status.into();
        format!("; task {} is {status}", task.task)
    };
    let tasks: String = floor.tasks.iter().map(task).collect();
    format!("step {}, turn {}: {state}{speaker}{said}{tasks}", floor.step, floor.turn)
}

fn misunderstood(misunderstanding: &Misunderstanding) -> String {
    let acts: Vec<&str> = misunderstanding.expected.iter().map(|act| act.as_str()).collect();
    let expected = if acts.is_empty() { String::new() } else { format!("; expected {}", acts.join(", ")) };
    let at = misunderstanding.pointer.as_ref().map(|pointer| format!(" at {}", cut(pointer))).unwrap_or_default();
    format!("{}{at}{expected}", cut(&misunderstanding.reason))
}

fn closed(closing: &Closing) -> String {
    let detail = closing.detail.as_deref().map(|detail| format!(" ({})", cut(detail))).unwrap_or_default();
    let agreed = closing.agreement.as_ref().map(|agreement| format!(": {}", terms(&agreement.terms)));
    format!("{}{detail}{}", closing.outcome.as_str(), agreed.unwrap_or_default())
}

fn received(receipt: &Receipt) -> String {
    let mut said = format!("{}: {}", receipt.ack_of, receipt.disposition.as_str());
    if let Some(first) = receipt.first {
        said.push_str(&format!(", first {}", first.as_str()));
    }
    if let Some(offer) = receipt.offer_id {
        said.push_str(&format!(", offer {offer}"));
    }
    if let Some(invited) = receipt.invited {
        said.push_str(&format!(", {invited} invited, {} left out", receipt.left_out.unwrap_or(0)));
    }
    if let Some(award_no) = receipt.award_no {
        said.push_str(&format!(", award {award_no}"));
    }
    said
}

fn turned(turn: &Turn) -> String {
    let Turn { party, round, step, act_by, .. } = turn;
    let standing = turn.standing.as_ref().map(|offer| format!("; {} offers {}", offer.by, terms(&offer.terms)));
    format!("{party}'s turn until {}, round {round}, step {step}{}", clock(*act_by), standing.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_amount_reads_in_units() {
        for (micros, text) in [(85_000_000, "85"), (500_000, "0.5"), (-1_250_000, "-1.25"), (0, "0"), (1, "0.000001")] {
            assert_eq!(units(micros), text);
        }
    }

    #[test]
    fn each_act_says_in_a_line_what_an_agent_would_act_upon() {
        let digest = "0".repeat(64);
        for (payload, said) in [
            (
                json!({"act": "cfp", "task": "a\u{1b}parcel", "round": 1, "reply_by": "2026-11-20T22:55:52.830Z",
                    "ends_by": "2026-11-20T22:56:52.830Z", "policy": "high@1", "policy_digest": digest, "lots": 2}),
                "cfp            alice~parcel-1  alice calls: \"a parcel\", policy high@1, reply by 22:55:52.830, 2 lots",
            ),
            (
                json!({"act": "accept", "offer_id": "o6-0", "lot": 0, "award_no": 1, "terms": {"delivery_ms": 2000, "price": 85_000_000},
                    "terms_digest": digest, "payment": 85_000_000, "confirm_by": "2026-11-20T22:55:03.098Z"}),
                "accept         alice~parcel-1  award 1 for offer o6-0: price 85, delivery_ms 2000; confirm by 22:55:03.098",
            ),
            (
                json!({"act": "reject", "offer_id": "o6-0", "reason": "policy", "code": "price.max"}),
                "reject         alice~parcel-1  policy price.max (offer o6-0)",
            ),
            (
                json!({"act": "closed", "outcome": "completed", "digest": digest}),
                "closed         alice~parcel-1  completed",
            ),
            (
                json!({"act": "ack", "ack_of": "call-1", "disposition": "ok", "invited": 3, "left_out": 1}),
                "ack            alice~parcel-1  call-1: ok, 3 invited, 1 left out",
            ),
            (
                json!({"act": "not_understood", "reason": "mandate_violation", "expected": ["offer", "end"], "pointer": "/payload/terms/price"}),
                "not_understood alice~parcel-1  mandate_violation at /payload/terms/price; expected offer, end",
            ),
        ] {
            assert_eq!(line(&delivery(payload)), format!("22:54:52.830  {said}"));
        }
    }

    #[test]
    fn no_text_of_a_delivery_reaches_the_terminal_as_it_is() {
        let digest = "0".repeat(64);
        let hostile = "h\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\n\r";
        for payload in [
            json!({"act": "cfp", "task": hostile, "round": 1, "reply_by": "2026-11-20T22:55:52.830Z",
                "ends_by": "2026-11-20T22:56:52.830Z", "policy": hostile, "policy_digest": digest, "lots": 1}),
            json!({"act": "cancel", "award_no": 1, "reason": hostile}),
            json!({"act": "reject", "reason": "policy", "code": hostile}),
            json!({"act": "not_understood", "reason": hostile, "expected": [], "pointer": hostile}),
            json!({"act": "closed", "outcome": "completed", "digest": digest, "detail": hostile}),
        ] {
            let line = line(&delivery(payload.clone()));
            assert!(line.contains("h ]0;x  2J"), "{payload}: {line:?}");
            assert_eq!(line.chars().find(|&letter| telemetry::terminal::is_control(letter)), None, "{line:?}");
        }
    }

    fn delivery(payload: Value) -> Delivery {
        let envelope = json!({"msg_id": "034577465c4dc39902f306665683616b", "ts": "2026-11-20T22:54:52.830717Z",
            "from": "agent://alice", "to": ["agent://bob"], "negotiation": "alice~parcel-1"});
        serde_json::from_value(json!({ "envelope": envelope, "payload": payload })).unwrap()
    }
}
