//! An agent that takes part in panels on the exchange.
//!
//! | it hears | it does |
//! |---|---|
//! | ASK | ANSWER or REFUSE, as its [`Panelist`] decides, or nothing |
//! | CFP | REFUSE: panels are not joined, they ask |
//! | CLOSED | forgets the panel |

use schemas::NegotiationId;
use schemas::Payload;
use schemas::Timestamp;
use schemas::delivery::{Ask, Delivery, Notification};
use schemas::payload::Reasoned;

use super::{AskReply, Panelist};
use crate::strategy::{Action, Outgoing, Strategy};

/// See the module.
#[derive(Debug)]
pub struct PanelMember<P> {
    panelist: P,
}

impl<P: Panelist> PanelMember<P> {
    /// An agent that answers as its panelist does.
    #[must_use]
    pub fn new(panelist: P) -> Self {
        Self { panelist }
    }
}

impl<P: Panelist> Strategy for PanelMember<P> {
    fn handle(&mut self, _now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let negotiation: &NegotiationId = &delivery.envelope.negotiation;
        match &delivery.payload {
            Notification::Ask(ask) => reply(&mut self.panelist, delivery, ask),
            Notification::Cfp(_) => {
                let reason = Some("takes part in panels only".to_owned());
                vec![Outgoing::reply(delivery, Payload::Refuse(Reasoned { reason, round: None })).once(0).into()]
            }
            Notification::Closed(_) => vec![Action::Release(negotiation.clone())],
            // A receipt asks for nothing. Of what the exchange could not follow nothing counts, and the next ask comes all the
            // same. The rest is said in other protocols, or to initiators.
            Notification::Ack(_)
            | Notification::NotUnderstood(_)
            | Notification::Accept(_)
            | Notification::Reject(_)
            | Notification::Cancel(_)
            | Notification::Inform(_)
            | Notification::Failure(_)
            | Notification::Turn(_)
            | Notification::Floor(_) => Vec::new(),
        }
    }
}

/// What a panelist says to an ask. One answer to each: told again, the same bytes leave.
pub fn reply(panelist: &mut (impl Panelist + ?Sized), delivery: &Delivery, ask: &Ask) -> Vec<Action> {
    let message = match panelist.reply(&delivery.envelope.negotiation, ask) {
        AskReply::Answer(answer) => Outgoing::reply(delivery, Payload::Answer(answer)).once(ask.round),
        AskReply::Refuse(reason) => {
            Outgoing::reply(delivery, Payload::Refuse(Reasoned { reason: Some(reason), round: None })).once(0)
        }
        AskReply::Silence => return Vec::new(),
    };
    vec![message.into()]
}
