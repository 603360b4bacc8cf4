//! What the owner of a lane remembers of its newest negotiations, for people who look: the ground of `journal.<lane>` and
//! of the lane's part of the engine's statistics ([`crate::lane::observer::statistics`]).
//!
//! Nothing is decided by it and nothing survives it. Only what this process did or saw as the owner of a live lane is
//! noted. Nothing here holds mandates, reservation values, or the terms of a sealed offer: the facts have no place for them.
//! The rules of a bargain and the terms of its offers are here, as every party is told them, and so are the steps of a team
//! with the beginning of what was said, the beginning of a report's result, and the bids of an auction.
//!
//! Bounds, per lane: [`OPEN_MAX`] open and [`ENDED_MAX`] ended negotiations, [`HAPPENED_MAX`] facts of each, and
//! [`WEIGHT_MAX`] facts in all; the oldest negotiations go first. A fact takes 64 bytes, and a vector may be half empty, so
//! a lane's memory stays below 5 MiB, names that nobody else holds any more included below 8 MiB.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ahash::HashMap;
use policy_core::{AskKind, Event, LaneState, Phase, Protocol};
use schemas::delivery::{Ask, Closing, Notification, ProgressReport};
use schemas::journal::{Gap, HAPPENED_MAX, Journal, JournalEntry};
use schemas::statistics::{NAMED_MAX, OpenNegotiation};
use schemas::{AgentId, NegotiationId, OfferId, RegisterKey, Timestamp};

use super::Fact;
use crate::lane::{DeliveryEvent, DeliveryStep};
use crate::metrics::WriteResult;

/// Open negotiations remembered: five times what statistics name, so that one picked from it is still there.
const OPEN_MAX: usize = 256;
/// Ended negotiations remembered.
const ENDED_MAX: usize = 256;
/// Facts remembered in all: 64 of each negotiation, which is what a call of a dozen contractors leads to.
const WEIGHT_MAX: usize = 32_768;

/// See the module.
#[derive(Default)]
pub(crate) struct Journals {
    remembered: HashMap<NegotiationId, Remembered>,
    /// By their number, the oldest first.
    open: BTreeMap<u64, NegotiationId>,
    /// The first that ended first.
    ended: VecDeque<NegotiationId>,
    weight: usize,
    made: u64,
    /// Negotiations that were open when the lane was taken over, and of which nothing has been noted yet.
    adoptable: usize,
}

/// One negotiation.
struct Remembered {
    number: u64,
    about: About,
    offers: u32,
    noted: NotedOnce,
    is_ended: bool,
    facts: FactLog,
}

/// What has been noted of what is told to several: it is noted once.
#[derive(Default)]
struct NotedOnce {
    /// The rules of a bargain.
    rules: bool,
    /// The offer of a bargain that was noted last as the one that stands.
    proposed: Option<OfferId>,
    /// The bid of an auction that was noted last.
    bid: u32,
    /// What a bargain agreed on.
    agreement: bool,
    /// The step of a team that was noted last.
    step: u32,
    /// What a team concluded.
    conclusion: bool,
    /// What a panel was asked for that was noted last; its members are asked one by one.
    asked: Option<(u32, AskKind)>,
}

/// What is known of a negotiation from its beginning.
#[derive(Debug, Clone)]
struct About {
    protocol: Protocol,
    phase: Phase,
    policy: Arc<str>,
    called_at: Timestamp,
    invited: u32,
}

/// What an ask is for.
fn kind_of(ask: &Ask) -> AskKind {
    match (&ask.rank, ask.review) {
        (Some(_), _) => AskKind::Rank,
        (None, true) => AskKind::Review,
        (None, false) => AskKind::Answer,
    }
}

impl Journals {
    /// The lane is owned from now on, with so many open negotiations that others have begun.
    pub(crate) fn handle_takeover(&mut self, open: usize) {
        self.forget();
        self.adoptable = open;
    }

    /// The lane's state was given up, or has another owner: what was remembered is no longer how things stand.
    pub(crate) fn forget(&mut self) {
        self.remembered.clear();
        self.open.clear();
        self.ended.clear();
        (self.weight, self.adoptable) = (0, 0);
    }

    /// Takes note of a fact the core reports, of a negotiation of this state.
    pub(crate) fn note_event(&mut self, event: Event, state: &LaneState) {
        self.note_event_of(event, state.now(), |negotiation| adopted(state, negotiation));
    }

    /// `adopt` tells what is known of a negotiation that was begun under another owner; it is asked once for each.
    fn note_event_of(&mut self, event: Event, at: Timestamp, adopt: impl FnOnce(&NegotiationId) -> Option<About>) {
        let Some((negotiation, fact)) = Fact::of(event) else { return };
        if let Fact::Called { protocol, policy, invited, .. } = &fact {
            let (phase, policy) = (protocol.phases()[0], Arc::clone(policy));
            self.begin(&negotiation, About { protocol: *protocol, phase, policy, called_at: at, invited: *invited });
        } else if self.adoptable > 0 && fact.is_of_an_open_one() && !self.remembered.contains_key(&negotiation) {
            self.adoptable -= 1;
            if let Some(about) = adopt(&negotiation) {
                self.begin(&negotiation, about);
            }
        }
        self.note(&negotiation, at, fact);
    }

    /// Takes note of what became of a delivery.
    pub(crate) fn note_delivery(&mut self, event: &DeliveryEvent, at: Timestamp) {
        if let Some(told) = event.told.as_deref() {
            self.note_told(&event.negotiation, &event.to, told, at);
        }
        self.note(&event.negotiation, at, Fact::of_delivery_event(event));
    }

    /// Takes note of what every party of a bargain is told (its rules, the offer that stands, the agreement), of what every
    /// member of a team is told (each step, the conclusion), of what members of a panel are asked for, and of what an initiator is
    /// told of an award that is done or of what a panel found. Of a bid takes note as it is told its own bidder.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn note_told(&mut self, negotiation: &NegotiationId, to: &AgentId, told: &Notification, at: Timestamp) {
        let Some(Remembered { noted, .. }) = self.remembered.get_mut(negotiation) else { return };
        let fact = match told {
            Notification::Cfp(call) if !noted.rules => call.bargain.as_deref().map(|bargain| {
                noted.rules = true;
                Fact::rules(bargain)
            }),
            Notification::Turn(turn) => turn.standing.as_ref().and_then(|standing| {
                let is_new = noted.proposed.replace(standing.offer_id) != Some(standing.offer_id);
                is_new.then(|| Fact::proposed(turn, standing))
            }),
            Notification::Closed(Closing { agreement: Some(agreement), .. }) if !noted.agreement => {
                noted.agreement = true;
                Some(Fact::agreed(agreement))
            }
            Notification::Closed(Closing { conclusion: Some(conclusion), .. }) if !noted.conclusion => {
                noted.conclusion = true;
                Some(Fact::concluded(conclusion))
            }
            Notification::Floor(floor) if floor.step > noted.step => {
                noted.step = floor.step;
                Some(Fact::floor(floor))
            }
            Notification::Inform(ProgressReport::Result(report) | ProgressReport::Done(report)) => {
                Some(Fact::reported(report))
            }
            Notification::Inform(ProgressReport::Finding(finding)) => Some(Fact::found(finding)),
            Notification::Inform(ProgressReport::Bid(bid)) if bid.leads && bid.bid_no > noted.bid => {
                noted.bid = bid.bid_no;
                Some(Fact::Bid { by: to.clone(), bid_no: bid.bid_no, price: bid.price })
            }
            Notification::Ask(ask) => {
                let kind = kind_of(ask);
                let is_new = noted.asked.replace((ask.round, kind)) != Some((ask.round, kind));
                is_new.then_some(Fact::Asked { round: ask.round, kind })
            }
            _ => None,
        };
        if let Some(fact) = fact {
            self.note(negotiation, at, fact);
        }
    }

    /// Takes note of an answer of the register.
    pub(crate) fn note_registered(&mut self, key: &RegisterKey, result: WriteResult, at: Timestamp) {
        self.note(key.negotiation(), at, Fact::Registered { key: key.clone(), result });
    }

    /// Takes note of a fact of a negotiation that is remembered; of another it is dropped.
    fn note(&mut self, negotiation: &NegotiationId, at: Timestamp, fact: Fact) {
        let Some(remembered) = self.remembered.get_mut(negotiation) else { return };
        remembered.offers = remembered.offers.saturating_add(u32::from(fact.is_valid_offer()));
        if let Fact::Moved { to, .. } = &fact {
            remembered.about.phase = *to;
        }
        let has_ended = matches!(fact, Fact::Ended { .. }) && !std::mem::replace(&mut remembered.is_ended, true);
        self.weight -= remembered.facts.weight;
        remembered.facts.push(at, fact);
        self.weight += remembered.facts.weight;
        if has_ended {
            let number = remembered.number;
            self.open.remove(&number);
            self.ended.push_back(negotiation.clone());
        }
        self.keep_within_bounds();
    }

    /// What a negotiation that is remembered is conducted by.
    pub(crate) fn protocol(&self, negotiation: &NegotiationId) -> Option<Protocol> {
        Some(self.remembered.get(negotiation)?.about.protocol)
    }

    /// What happened in a negotiation, if it is remembered; `engine` is who says so.
    pub(crate) fn journal(&self, engine: &str, negotiation: &NegotiationId) -> Option<Journal> {
        let remembered = self.remembered.get(negotiation)?;
        Some(Journal {
            negotiation: negotiation.clone(),
            engine: engine.to_owned(),
            entries: remembered.facts.iter().map(|(at, fact)| JournalEntry { at: *at, what: fact.told() }).collect(),
            left_out: remembered.facts.left_out,
            gap: remembered.facts.gap(),
            unacknowledged: remembered.facts.waiting(),
        })
    }

    /// The newest open negotiations that are remembered, newest first.
    pub(crate) fn newest(&self) -> Vec<OpenNegotiation> {
        let newest = self.open.values().rev().take(NAMED_MAX);
        let newest = newest.filter_map(|negotiation| {
            let Remembered { about, offers, .. } = self.remembered.get(negotiation)?;
            Some(OpenNegotiation {
                negotiation: negotiation.clone(),
                protocol: about.protocol.as_str().to_owned(),
                phase: about.phase.as_str().to_owned(),
                policy: about.policy.to_string(),
                called_at: about.called_at,
                invited: about.invited,
                offers: *offers,
            })
        });
        newest.collect()
    }

    fn begin(&mut self, negotiation: &NegotiationId, about: About) {
        // An id can be opened again once its first negotiation is forgotten by the lane.
        self.drop(negotiation);
        self.made += 1;
        let number = self.made;
        let remembered = Remembered {
            number,
            about,
            offers: 0,
            noted: NotedOnce::default(),
            is_ended: false,
            facts: FactLog::default(),
        };
        self.remembered.insert(negotiation.clone(), remembered);
        self.open.insert(number, negotiation.clone());
    }

    fn keep_within_bounds(&mut self) {
        while self.open.len() > OPEN_MAX {
            let Some((_, oldest)) = self.open.pop_first() else { break };
            self.drop(&oldest);
        }
        while self.ended.len() > ENDED_MAX || (self.weight > WEIGHT_MAX && !self.ended.is_empty()) {
            let Some(oldest) = self.ended.pop_front() else { break };
            self.drop(&oldest);
        }
        while self.weight > WEIGHT_MAX {
            let Some((_, oldest)) = self.open.pop_first() else { break };
            self.drop(&oldest);
        }
    }

    fn drop(&mut self, negotiation: &NegotiationId) {
        let Some(Remembered { number, facts, is_ended, .. }) = self.remembered.remove(negotiation) else { return };
        self.weight -= facts.weight;
        self.open.remove(&number);
        if is_ended {
            self.ended.retain(|other| other != negotiation);
        }
    }
}

/// What the lane's state knows of a negotiation that another owner began.
fn adopted(lane_state: &LaneState, negotiation: &NegotiationId) -> Option<About> {
    let view = lane_state.view(negotiation, &AgentId::try_new(negotiation.initiator()).ok()?)?;
    // The initiator's first message is the call.
    let called_at = view.messages.first().map_or(lane_state.now(), |call| call.at.0);
    Some(About {
        protocol: lane_state.protocol(negotiation)?,
        phase: view.state,
        policy: Arc::from(view.policy.unwrap_or_default()),
        called_at,
        invited: view.invited.unwrap_or_default(),
    })
}

/// Facts kept from the beginning: the call, and the first answers of a few dozen contractors.
const FIRST_MAX: usize = 256;
/// Facts kept that lie between the first and the last and are not routine.
const BETWEEN_MAX: usize = 64;
/// Bids among them: the rest is for what there is little of, such as the end of bidding and the award.
const BIDS_BETWEEN_MAX: usize = 48;
/// Facts kept from the end.
const LAST_MAX: usize = HAPPENED_MAX - FIRST_MAX - BETWEEN_MAX;

/// The facts of one negotiation that are kept: the first ones, the last ones, and of those in between what matters most.
#[derive(Default)]
struct FactLog {
    first: Vec<(Timestamp, Fact)>,
    between: Vec<(Timestamp, Fact)>,
    last: VecDeque<(Timestamp, Fact)>,
    /// How many were left out.
    left_out: u64,
    /// How much memory it takes, in facts.
    weight: usize,
    waiting: i64,
}

impl FactLog {
    /// Takes a fact in; what is routine and neither among the first nor among the last is left out.
    fn push(&mut self, at: Timestamp, fact: Fact) {
        self.weight += fact.weight();
        self.waiting += fact.waiting();
        if self.first.len() < FIRST_MAX {
            return self.first.push((at, fact));
        }
        self.last.push_back((at, fact));
        if self.last.len() > LAST_MAX
            && let Some((at, oldest)) = self.last.pop_front()
        {
            if oldest.bid_no().is_some() && self.bids_between() == BIDS_BETWEEN_MAX {
                self.thin_out_bids();
            }
            if !oldest.is_routine() && self.between.len() < BETWEEN_MAX {
                self.between.push((at, oldest));
            } else {
                self.leave_out(&oldest);
            }
        }
    }

    /// Leaves half of the bids between the first facts and the last, at equal distances, so that all of its way is seen of the price.
    fn thin_out_bids(&mut self) {
        let mut distance = 2;
        while self.bids_between() > BIDS_BETWEEN_MAX / 2 {
            for (at, fact) in std::mem::take(&mut self.between) {
                if fact.bid_no().is_none_or(|bid_no| bid_no.is_multiple_of(distance)) {
                    self.between.push((at, fact));
                } else {
                    self.leave_out(&fact);
                }
            }
            distance *= 2;
        }
    }

    fn bids_between(&self) -> usize {
        self.between.iter().filter(|(_, fact)| fact.bid_no().is_some()).count()
    }

    /// Every fact that is kept, in order.
    fn iter(&self) -> impl Iterator<Item = &(Timestamp, Fact)> {
        self.first.iter().chain(&self.between).chain(&self.last)
    }

    /// Where they were left out, by the indices of what is kept.
    fn gap(&self) -> Option<Gap> {
        let index = |index: usize| u64::try_from(index).unwrap_or(u64::MAX);
        let (from, to) = (index(self.first.len()), index(self.first.len() + self.between.len()));
        (self.left_out > 0).then_some(Gap { from, to })
    }

    /// Deliveries that wait for an acknowledgement, among all facts.
    fn waiting(&self) -> u64 {
        u64::try_from(self.waiting).unwrap_or(0)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.iter().count()
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.first.capacity() + self.between.capacity() + self.last.capacity()
    }

    fn leave_out(&mut self, fact: &Fact) {
        self.weight -= fact.weight();
        self.left_out = self.left_out.saturating_add(1);
        // What was sent came before what became of it, so it is among the first, or left out as well.
        let Some(gone) = fact.settles() else { return };
        for (_, fact) in &mut self.first {
            if let Fact::Delivery { id, step: step @ DeliveryStep::Sent, .. } = fact
                && *id == gone
            {
                *step = DeliveryStep::SentOnce;
                return;
            }
        }
    }
}
