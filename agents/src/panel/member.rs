//! An agent that takes part in panels on the exchange.
//!
//! | it hears | it does |
//! |---|---|
//! | ASK | ANSWER or REFUSE, as its [`Panelist`] decides, or nothing |
//! | NOT_UNDERSTOOD, or a gateway refuses the answer | tells its [`Panelist`] why, and sends what that says instead |
//! | ACK of an answer that came too late | tells its [`Panelist`] |
//! | CFP | REFUSE: panels are not joined, they ask |
//! | CLOSED | forgets the panel |

use schemas::delivery::{Ask, Delivery, Disposition, Notification, Receipt};
use schemas::{Act, NegotiationId, Payload, Timestamp};

use super::{AskReply, Panelist};
use crate::open::OpenNegotiations;
use crate::strategy::{ActRefusal, Action, Outgoing, SendOutcome, Sent, Strategy};

/// Most asks kept until their answer counts, so that it can be corrected. An ask is a few kilobytes, at most some hundred.
const ASKS_MAX: usize = 1024;
/// Times an answer to one ask is corrected: each counts among the 64 messages of a party.
const CORRECTIONS_MAX: u32 = 2;
/// Reasons of NOT_UNDERSTOOD that another answer to the same ask can do away with.
const CORRECTABLE: [&str; 4] = ["bad_answer", "bad_ratings", "bad_order", "bad_reviews"];

/// What is said of an answer that does not count, and that no NOT_UNDERSTOOD explains.
const UNEXPLAINED: [Disposition; 8] = [
    Disposition::Late,
    Disposition::Expired,
    Disposition::StaleRound,
    Disposition::StaleSeq,
    Disposition::Closed,
    Disposition::Conflict,
    Disposition::Unauthorized,
    Disposition::RateLimited,
];

/// See the module.
#[derive(Debug)]
pub struct PanelMember<P> {
    panelist: P,
    /// The last ask of each panel, until its answer counts.
    asks: OpenNegotiations<OpenAsk>,
}

#[derive(Debug)]
struct OpenAsk {
    ask: Box<Ask>,
    /// Log time of the ask: what the exchange says of an answer to it is of no earlier time.
    asked_at: Timestamp,
    corrections: u32,
}

impl<P: Panelist> PanelMember<P> {
    /// An agent that answers as its panelist does.
    #[must_use]
    pub fn new(panelist: P) -> Self {
        Self { panelist, asks: OpenNegotiations::new(ASKS_MAX) }
    }

    /// Its panelist.
    pub fn panelist_mut(&mut self) -> &mut P {
        &mut self.panelist
    }

    /// Hears an ask, and says this to it whatever its panelist would.
    pub fn answer_with(&mut self, now: Timestamp, delivery: &Delivery, reply: AskReply) -> Vec<Action> {
        let Notification::Ask(ask) = &delivery.payload else { return Vec::new() };
        delivery.receipts_told().for_each(|receipt| self.handle_receipt(now, delivery, receipt));
        self.note_ask(now, delivery, ask);
        say(delivery, ask, reply)
    }

    fn note_ask(&mut self, now: Timestamp, delivery: &Delivery, ask: &Ask) {
        self.asks.expire(now);
        let panel = &delivery.envelope.negotiation;
        self.asks.remove(panel);
        if self.asks.has_room() {
            let open = OpenAsk { ask: Box::new(ask.clone()), asked_at: delivery.envelope.ts.0, corrections: 0 };
            self.asks.insert(panel, open, ask.ends_by.0);
        }
    }

    fn handle_receipt(&mut self, now: Timestamp, delivery: &Delivery, receipt: &Receipt) {
        let panel = &delivery.envelope.negotiation;
        if receipt.disposition == Disposition::Ok && self.is_of_open_ask(delivery) {
            self.asks.remove(panel);
        } else if UNEXPLAINED.contains(&receipt.disposition) {
            let refusal = ActRefusal::new(receipt.disposition.as_str());
            self.handle_refusal(now, panel, &refusal, false);
        }
    }

    /// Whether what the exchange says of an answer is said of the last ask's.
    fn is_of_open_ask(&mut self, delivery: &Delivery) -> bool {
        let said_at = delivery.envelope.ts.0;
        self.asks.part(&delivery.envelope.negotiation).is_some_and(|open| open.asked_at <= said_at)
    }

    /// Tells the panelist, and gives what it says instead where that can still count.
    fn handle_refusal(
        &mut self,
        now: Timestamp,
        panel: &NegotiationId,
        refusal: &ActRefusal,
        is_correctable: bool,
    ) -> Option<Payload> {
        let may_be_corrected = |open: &&mut OpenAsk| open.corrections < CORRECTIONS_MAX && now <= open.ask.answer_by.0;
        let Some(open) = self.asks.part(panel).filter(|_| is_correctable).filter(may_be_corrected) else {
            tracing::debug!(%panel, %refusal, "an answer does not count");
            self.panelist.refused(panel, refusal, None);
            return None;
        };
        tracing::warn!(%panel, %refusal, "an answer does not count, and may be corrected");
        open.corrections += 1;
        self.panelist.refused(panel, refusal, Some(&open.ask)).payload()
    }
}

impl<P: Panelist> Strategy for PanelMember<P> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let negotiation: &NegotiationId = &delivery.envelope.negotiation;
        delivery.receipts_told().for_each(|receipt| self.handle_receipt(now, delivery, receipt));
        match &delivery.payload {
            Notification::Ask(ask) => {
                self.note_ask(now, delivery, ask);
                reply(&mut self.panelist, delivery, ask)
            }
            Notification::Cfp(_) => vec![Action::refuse(delivery, "takes part in panels only")],
            Notification::NotUnderstood(why) => {
                let is_correctable = CORRECTABLE.contains(&why.reason.as_str()) && self.is_of_open_ask(delivery);
                let instead = self.handle_refusal(now, negotiation, &why.into(), is_correctable);
                instead.map(|payload| Action::reply(delivery, payload)).into_iter().collect()
            }
            Notification::Closed(_) => {
                self.asks.remove(negotiation);
                vec![Action::Release(negotiation.clone())]
            }
            // A receipt is heard above.
            _ => Vec::new(),
        }
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let (Act::Answer, SendOutcome::Refused(refusal)) = (sent.act, &sent.outcome) else { return Vec::new() };
        let instead = self.handle_refusal(now, &sent.negotiation, &refusal.into(), true);
        instead.map(|payload| Outgoing::new(sent.negotiation.clone(), payload).into()).into_iter().collect()
    }
}

/// What a panelist says to an ask.
pub fn reply(panelist: &mut (impl Panelist + ?Sized), delivery: &Delivery, ask: &Ask) -> Vec<Action> {
    say(delivery, ask, panelist.reply(&delivery.envelope.negotiation, ask))
}

/// One answer to each ask: told again, the same bytes leave.
fn say(delivery: &Delivery, ask: &Ask, reply: AskReply) -> Vec<Action> {
    let number = if matches!(reply, AskReply::Answer(_)) { ask.round } else { 0 };
    let message = reply.payload().map(|payload| Outgoing::reply(delivery, payload).once(number).into());
    message.into_iter().collect()
}
