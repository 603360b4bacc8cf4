//! Effects as short texts.
//!
//! | text | effect |
//! |---|---|
//! | `a<ack:ok`, `a<reject:late`, `a<accept:1`, `a<cancel:1:timeout`, `alice<inform:awarded:a:1` | delivery to an agent |
//! | `award.0.1`, `award.0.1.end=committed`, `closed=completed` | write to the register |
//! | `notice:called`, `notice:closed` | public notice |
//!
//! `+m2` behind a text: the receipt of m2 comes along; `@award.0.1`: it waits for that register key; `(told)`: it was told
//! before, and is not sent. Events have no text.

use policy_core::Effect;
use schemas::delivery::{Notice, Notification, ProgressReport};
use schemas::register::AwardEnd;
use schemas::{RegisterKey, RegisterValue};

/// The text of an effect; events have none.
pub fn text(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::Deliver(deliver) => {
            let along: String = deliver.receipts.iter().map(|receipt| format!("+{}", receipt.ack_of)).collect();
            let before = if deliver.told_before { "(told)" } else { "" };
            format!("{}<{}{along}{}{before}", deliver.to, told(&deliver.told), waits_for(deliver.after.as_ref()))
        }
        Effect::Register(write) => {
            let value = match &write.value {
                RegisterValue::Award { .. } => String::new(),
                RegisterValue::AwardEnd { end: AwardEnd::Committed, .. } => "=committed".to_owned(),
                RegisterValue::AwardEnd { end: AwardEnd::Revoked, .. } => "=revoked".to_owned(),
                RegisterValue::Formed { .. } => "=formed".to_owned(),
                RegisterValue::Finding { .. } => "=finding".to_owned(),
                RegisterValue::Agreement { offer_id, .. } => format!("={offer_id}"),
                RegisterValue::Closed { outcome, .. } => format!("={}", word(outcome)),
            };
            format!("{}{value}{}", key(&write.key), waits_for(write.after.as_ref()))
        }
        Effect::Notice(notice) => match notice.notice {
            Notice::Called { .. } => "notice:called".to_owned(),
            Notice::Closed { .. } => "notice:closed".to_owned(),
        },
        Effect::Event(_) => return None,
    })
}

fn told(told: &Notification) -> String {
    match told {
        Notification::Cfp(call) if call.round == 1 => "cfp".to_owned(),
        Notification::Cfp(call) => format!("cfp:{}", call.round),
        Notification::Accept(award) => format!("accept:{}", award.award_no),
        Notification::Reject(rejection) => match &rejection.code {
            Some(code) => format!("reject:{}:{code}", word(&rejection.reason)),
            None => format!("reject:{}", word(&rejection.reason)),
        },
        Notification::Cancel(cancellation) => format!("cancel:{}:{}", cancellation.award_no, cancellation.reason),
        Notification::Inform(news) => match news {
            ProgressReport::Awarded(news) => format!("inform:awarded:{}:{}", news.contractor, news.award_no),
            ProgressReport::Offers(news) => format!("inform:offers:{}", news.offers.len()),
            ProgressReport::Committed(news) => format!("inform:committed:{}:{}", news.contractor, news.award_no),
            ProgressReport::Done(news) => format!("inform:done:{}:{}", news.contractor, news.award_no),
            ProgressReport::Result(news) => format!("inform:result:{}:{}", news.contractor, news.award_no),
            ProgressReport::Cancelled(news) => format!("inform:cancelled:{}:{}", news.contractor, news.award_no),
            ProgressReport::Bid(bid) => {
                format!("inform:bid:{}:{}{}", bid.bid_no, bid.price, if bid.leads { ":leads" } else { "" })
            }
            ProgressReport::Finding(news) => {
                format!("inform:finding:{}:{}:{}/{}", word(&news.stopped), news.answer, news.agreed, news.of)
            }
        },
        Notification::Failure(failure) => {
            format!("failure:{}:{}:{}", failure.contractor, failure.award_no, failure.failure.code)
        }
        Notification::NotUnderstood(misunderstanding) => match &misunderstanding.pointer {
            Some(pointer) => format!("not_understood:{}:{pointer}", misunderstanding.reason),
            None => format!("not_understood:{}", misunderstanding.reason),
        },
        Notification::Closed(closing) => match &closing.detail {
            Some(detail) => format!("closed:{}:{detail}", word(&closing.outcome)),
            None => format!("closed:{}", word(&closing.outcome)),
        },
        Notification::Turn(turn) => match &turn.standing {
            Some(standing) => format!("turn:{}:{}", turn.party, standing.offer_id),
            None => format!("turn:{}", turn.party),
        },
        Notification::Ask(ask) => {
            let to = if ask.rank.is_some() { ":rank" } else { "" };
            let to = if ask.review { ":review" } else { to };
            format!("ask:{}{to}", ask.round)
        }
        Notification::Floor(floor) => {
            let state: &str = floor.state.into();
            let speaker = floor.speaker.as_ref().map(|speaker| format!(":{speaker}")).unwrap_or_default();
            format!("floor:{}:{}:{state}{speaker}", floor.step, floor.turn)
        }
        Notification::Ack(receipt) => match receipt.first {
            Some(first) => format!("ack:{}:{}", receipt.disposition.as_str(), first.as_str()),
            None => format!("ack:{}", receipt.disposition.as_str()),
        },
    }
}

fn waits_for(after: Option<&RegisterKey>) -> String {
    after.map(|after| format!("@{}", key(after))).unwrap_or_default()
}

/// A key without the negotiation.
fn key(key: &RegisterKey) -> String {
    match key {
        RegisterKey::Award(_, lot, award_no) => format!("award.{lot}.{award_no}"),
        RegisterKey::AwardEnd(_, lot, award_no) => format!("award.{lot}.{award_no}.end"),
        RegisterKey::Closed(_) => "closed".to_owned(),
    }
}

fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).expect("a word").as_str().expect("a text").to_owned()
}
