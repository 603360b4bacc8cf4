//! Makes a [`RoundRecord`] of everything the agents of a cell send and receive.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use agents::observer::{Observed, Observer};
use agents::strategy::{Action, Outgoing, SendOutcome, Sent};
use parking_lot::Mutex;
use schemas::delivery::{Delivery, Disposition, Notification, ProgressReport, Receipt};
use schemas::terms::{AttrValue, Terms};
use schemas::{Act, AgentId, MsgId, NegotiationId, Payload};
use tokio::time::Instant;

use crate::record::{AwardRecord, BargainRecord, BidRecord, MessageCount, RoundRecord};

/// How long after its last event a round that has ended is complete: repeats, receipts and notices have come by then.
const QUIET: Duration = Duration::from_secs(2);
/// How long an offer whose script still waits holds its round open.
const WAITING_MAX: Duration = Duration::from_secs(120);
/// Micro-units of one unit of cost.
const MICROS: f64 = 1e6;
/// The attribute that is the cost of an offer.
const PRICE: &str = "price";

/// Observes every agent of a cell. One lock: agents' loops hold it for microseconds per event.
pub struct RoundObserver {
    /// When the cell began.
    zero: Instant,
    markups: Markups,
    rounds: Mutex<Rounds>,
}

/// What contractors add to their own cost, as a share of it.
#[derive(Debug, Clone, Default)]
pub struct Markups {
    /// Of everybody else.
    pub usual: f64,
    /// Of these.
    pub by_contractor: BTreeMap<AgentId, f64>,
}

#[derive(Default)]
struct Rounds {
    open: BTreeMap<NegotiationId, OpenRound>,
    begun: u64,
    is_warm_up: bool,
    /// Complete, and not yet taken.
    complete: Vec<RoundRecord>,
    ended: u64,
}

/// A round that may still receive events.
struct OpenRound {
    record: RoundRecord,
    /// Places in [`RoundRecord::offers`].
    offers_by_id: BTreeMap<MsgId, usize>,
    /// Offers that were decided and have not left, by contractor.
    waiting: BTreeMap<AgentId, VecDeque<DecidedOffer>>,
    last_event: Instant,
}

struct DecidedOffer {
    cost: f64,
    delay_us: u64,
}

impl RoundObserver {
    /// Observes from now on.
    pub fn new(zero: Instant, markups: Markups) -> Self {
        Self { zero, markups, rounds: Mutex::default() }
    }

    fn since_zero(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.zero).as_micros()).unwrap_or(u64::MAX)
    }

    /// Whether calls from now on belong to the warm-up.
    pub fn set_warm_up(&self, is_warm_up: bool) {
        self.rounds.lock().is_warm_up = is_warm_up;
    }

    /// A call is due: its round begins.
    pub fn call_due(&self, negotiation: &NegotiationId, intended: Instant) {
        let mut rounds = self.rounds.lock();
        let record = RoundRecord {
            is_warm_up: rounds.is_warm_up,
            ..RoundRecord::of_call(rounds.begun, negotiation, self.since_zero(intended))
        };
        rounds.begun += 1;
        let open =
            OpenRound { record, offers_by_id: BTreeMap::new(), waiting: BTreeMap::new(), last_event: Instant::now() };
        rounds.open.insert(negotiation.clone(), open);
    }

    /// A bargain has ended.
    pub fn bargained(&self, negotiation: &NegotiationId, bargain: BargainRecord) {
        if let Some(open) = self.rounds.lock().open.get_mut(negotiation) {
            open.record.bargain = Some(bargain);
        }
    }

    /// Rounds begun and rounds ended.
    pub fn counts(&self) -> (u64, u64) {
        let rounds = self.rounds.lock();
        (rounds.begun, rounds.ended)
    }

    /// Whether offers that were decided have neither left nor been taken back.
    pub fn awaits_offers(&self) -> bool {
        self.rounds.lock().open.values().any(|open| !open.waiting.is_empty())
    }

    /// The rounds that became complete since the last time.
    pub fn take_complete(&self, now: Instant) -> Vec<RoundRecord> {
        let mut rounds = self.rounds.lock();
        let complete = rounds.open.extract_if(.., |_, open| open.is_complete(now));
        let complete: Vec<_> = complete.map(|(_, open)| open.record).collect();
        rounds.complete.extend(complete);
        let mut taken = std::mem::take(&mut rounds.complete);
        taken.sort_by_key(|record| record.round);
        taken
    }

    /// Every round that was not taken, complete or not.
    pub fn take_rest(&self) -> Vec<RoundRecord> {
        let mut rounds = self.rounds.lock();
        let mut rest = std::mem::take(&mut rounds.complete);
        rest.extend(std::mem::take(&mut rounds.open).into_values().map(|open| open.record));
        rest.sort_by_key(|record| record.round);
        rest
    }

    fn decided(&self, agent: &AgentId, at: Instant, actions: &[Action]) {
        if actions.is_empty() {
            return;
        }
        let mut rounds = self.rounds.lock();
        for action in actions {
            match action {
                Action::Send(outgoing) => {
                    if let (Some(open), Payload::Offer(offer)) =
                        (rounds.open.get_mut(&outgoing.negotiation), &outgoing.payload)
                    {
                        open.decided(agent, outgoing, &offer.terms);
                        open.last_event = at;
                    }
                }
                Action::Unschedule(negotiation) | Action::Release(negotiation) => {
                    if let Some(open) = rounds.open.get_mut(negotiation) {
                        open.waiting.remove(agent);
                    }
                }
                Action::Defer | Action::Stop => {}
            }
        }
    }

    fn settled(&self, at: Instant, sent: &Sent) {
        let at_us = self.since_zero(at);
        let mut rounds = self.rounds.lock();
        let Some(open) = rounds.open.get_mut(&sent.negotiation) else { return };
        open.last_event = at;
        let record = &mut open.record;
        let offer = open.offers_by_id.get(&sent.msg_id).and_then(|&place| record.offers.get_mut(place));
        match (&sent.outcome, sent.act, offer) {
            (SendOutcome::Accepted { .. }, Act::Cfp, _) => record.stored_us = Some(at_us),
            (SendOutcome::Accepted { .. }, _, Some(offer)) => offer.stored_us = Some(at_us),
            (SendOutcome::Refused(refusal), Act::Cfp, _) => {
                record.refusal = Some(refusal.code.to_string());
                record.negotiation = None;
                record.ended_us = Some(at_us);
                rounds.ended += 1;
            }
            (SendOutcome::Refused(refusal), _, Some(offer)) => offer.disposition = refusal.code.to_string(),
            (SendOutcome::Unanswered, _, Some(offer)) => "unanswered".clone_into(&mut offer.disposition),
            (SendOutcome::Accepted { .. } | SendOutcome::Refused(_) | SendOutcome::Unanswered, _, _) => {}
        }
    }

    fn delivered(&self, at: Instant, delivery: &Delivery, is_repeat: bool) {
        let bytes = serde_json::to_vec(delivery).map_or(0, |document| document.len() as u64);
        let at_us = self.since_zero(at);
        let negotiation = &delivery.envelope.negotiation;
        let mut rounds = self.rounds.lock();
        let Some(open) = rounds.open.get_mut(negotiation) else { return };
        open.last_event = at;
        if is_repeat {
            open.record.duplicates += 1;
            return;
        }
        count(&mut open.record.delivered, delivery.payload.act(), bytes);
        for receipt in delivery.receipts_told() {
            open.told(receipt);
        }
        let had_ended = open.record.ended_us.is_some();
        let is_for_initiator = delivery.envelope.to[0].strip_prefix("agent://") == Some(negotiation.initiator());
        if is_for_initiator {
            open.reported(at_us, &delivery.payload);
        }
        let has_ended = open.record.ended_us.is_some();
        rounds.ended += u64::from(has_ended && !had_ended);
    }
}

impl Observer for RoundObserver {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        match event {
            Observed::Connected | Observed::Disconnected | Observed::Deferred { .. } => {}
            Observed::Transmitted { negotiation, msg_id, act, attempt, document } => {
                let at_us = self.since_zero(at);
                let mut rounds = self.rounds.lock();
                let Some(open) = rounds.open.get_mut(negotiation) else { return };
                open.last_event = at;
                if attempt > 1 {
                    open.record.retries += 1;
                    return;
                }
                count(&mut open.record.sent, act, document.len() as u64);
                if act == Act::Cfp {
                    open.record.sent_us = at_us;
                } else if act == Act::Offer {
                    let markup = self.markups.by_contractor.get(agent).unwrap_or(&self.markups.usual);
                    open.offered(agent, msg_id, at_us, *markup);
                } else if act == Act::Refuse {
                    *open.record.refusals.entry(agent.as_str().to_owned()).or_default() += 1;
                }
            }
            Observed::Settled { sent, .. } => self.settled(at, sent),
            Observed::Delivered { delivery, is_repeat } => self.delivered(at, delivery, is_repeat),
            Observed::Decided { actions, .. } => self.decided(agent, at, actions),
        }
    }
}

impl OpenRound {
    fn is_complete(&self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.last_event);
        self.record.ended_us.is_some() && quiet >= if self.waiting.is_empty() { QUIET } else { WAITING_MAX }
    }

    fn decided(&mut self, agent: &AgentId, outgoing: &Outgoing, terms: &Terms) {
        let delay_us = u64::try_from(outgoing.delay.as_micros()).unwrap_or(u64::MAX);
        let waiting = self.waiting.entry(agent.clone()).or_default();
        // They leave in the order of their delays.
        let place = waiting.partition_point(|earlier| earlier.delay_us <= delay_us);
        waiting.insert(place, DecidedOffer { cost: cost(terms), delay_us });
    }

    fn offered(&mut self, agent: &AgentId, msg_id: &MsgId, sent_us: u64, markup: f64) {
        let Some(waiting) = self.waiting.get_mut(agent) else { return };
        let Some(DecidedOffer { cost, delay_us }) = waiting.pop_front() else { return };
        if waiting.is_empty() {
            self.waiting.remove(agent);
        }
        self.offers_by_id.insert(msg_id.clone(), self.record.offers.len());
        self.record.offers.push(BidRecord {
            from: agent.as_str().to_owned(),
            cost,
            own_cost: (cost < f64::MAX).then_some(cost / (1.0 + markup)),
            delay_us: Some(delay_us),
            sent_us,
            disposition: Disposition::Ok.as_str().to_owned(),
            ..BidRecord::default()
        });
    }

    /// A receipt says what became of a message. One that says no more than `ok` may never be told.
    fn told(&mut self, receipt: &Receipt) {
        if let Some(invited) = receipt.invited {
            self.record.invited = invited;
        }
        let disposition = receipt.disposition;
        if disposition == Disposition::Ok {
            return;
        }
        *self.record.dispositions.entry(disposition.as_str().to_owned()).or_default() += 1;
        let place = self.offers_by_id.get(&receipt.ack_of);
        if let Some(offer) = place.and_then(|&place| self.record.offers.get_mut(place))
            && disposition != Disposition::Duplicate
        {
            disposition.as_str().clone_into(&mut offer.disposition);
        }
    }

    /// The initiator learns how its call goes.
    fn reported(&mut self, at_us: u64, payload: &Notification) {
        let record = &mut self.record;
        if let Notification::Inform(ProgressReport::Awarded(news)) = payload {
            record.decided_us.get_or_insert(at_us);
            let to = news.contractor.as_str().to_owned();
            record.awards.push(AwardRecord { to, at_us, is_bound: false });
        } else if let Notification::Inform(ProgressReport::Committed(news)) = payload {
            record.confirmed_us.get_or_insert(at_us);
            let bound = record.awards.iter_mut().rev().find(|award| award.to == news.contractor.as_str());
            bound.into_iter().for_each(|award| award.is_bound = true);
        } else if let Notification::Inform(ProgressReport::Offers(report)) = payload {
            for (position, news) in (0..).zip(&report.offers) {
                let mut latest = record.offers.iter_mut().rev();
                let offer = latest.find(|offer| offer.from == news.contractor.as_str());
                offer.into_iter().for_each(|offer| offer.position = Some(position));
            }
        } else if let Notification::Closed(closing) = payload {
            record.decided_us.get_or_insert(at_us);
            record.ended_us.get_or_insert(at_us);
            record.outcome.get_or_insert_with(|| closing.outcome.as_str().to_owned());
        } else if let Notification::Ack(receipt) = payload
            && receipt.disposition != Disposition::Ok
            && record.invited == 0
        {
            // The call opened nothing.
            record.refusal.get_or_insert_with(|| receipt.disposition.as_str().to_owned());
            record.ended_us.get_or_insert(at_us);
        }
    }
}

/// The cost that terms ask for, in units; without a price none is lower.
fn cost(terms: &Terms) -> f64 {
    let price = terms.iter().find(|(name, _)| name.as_str() == PRICE).map(|(_, value)| value);
    match price {
        Some(AttrValue::Int(micros)) => *micros as f64 / MICROS,
        Some(AttrValue::Text(_)) | None => f64::MAX,
    }
}

fn count(by_act: &mut BTreeMap<String, MessageCount>, act: Act, bytes: u64) {
    let name: &'static str = act.into();
    let counted = by_act.entry(name.to_owned()).or_default();
    counted.messages += 1;
    counted.bytes += bytes;
}
