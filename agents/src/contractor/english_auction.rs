//! How a contractor bids in an English auction (docs/spec/english-auction.md). The price it draws for the call is its limit: what
//! the work costs it where prices fall, what the lot is worth to it where they rise.

use schemas::delivery::{Call, Delivery};
use schemas::english_auction::{AuctionRules, StandingBid};
use schemas::payload::{AttrValue, Currency, Offer, Terms};
use schemas::{Payload, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CallPlan, Contractor, EngagementStage, NOT_INTERESTED, refuse_call};
use crate::strategy::{Action, Outgoing};

/// How long before bidding would end a sniper bids, in milliseconds.
const SNIPE_MS: u64 = 100;
/// The term that is bid.
const PRICE: &str = "price";

/// How a contractor bids while it does not lead and the next price is within its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bidding {
    /// The next price. Dominant where each bidder knows what the lot is worth to it.
    #[default]
    Truthful,
    /// The price halfway from the next one to its limit.
    Jump,
    /// The next price, shortly before bidding would end.
    Sniper,
}

/// An auction in which it takes part.
#[derive(Debug)]
pub(super) struct Auction {
    rules: AuctionRules,
    round: u32,
    currency: Option<Currency>,
    /// What a bid offers, but for the price.
    terms: Terms,
    /// Micro-units.
    limit: i64,
    delay_ms: u64,
    ends_at: Timestamp,
    standing: Option<StandingBid>,
    /// Bids decided on; numbers them.
    bids: u32,
    /// When the last of them leaves, unless another's is told before.
    leaves_at: Option<Timestamp>,
    /// Whether one has left.
    has_bid: bool,
}

impl Bidding {
    /// What to bid at a next price within the limit.
    fn price(self, next: i64, limit: i64) -> i64 {
        match self {
            Self::Truthful | Self::Sniper => next,
            Self::Jump => next.midpoint(limit),
        }
    }
}

impl Auction {
    /// What to bid now; nothing for who leads, or where the next price is beyond the limit.
    fn next_bid(&self, bidding: Bidding) -> Option<i64> {
        if self.standing.as_ref().is_some_and(|standing| standing.leads) {
            return None;
        }
        let next = self.rules.next_price(self.standing.as_ref().map(|standing| standing.price))?;
        self.rules.reaches(self.limit, next).then(|| bidding.price(next, self.limit))
    }

    /// How long to wait before the bid, in milliseconds.
    fn delay_ms(&self, bidding: Bidding, now: Timestamp) -> u64 {
        if bidding != Bidding::Sniper {
            return self.delay_ms;
        }
        let quiet_at = self.rules.quiet_ms.filter(|_| self.standing.is_some()).map(|ms| now.plus_ms(ms));
        let end = quiet_at.map_or(self.ends_at, |quiet_at| quiet_at.min(self.ends_at));
        (end.since_us(now) / 1000).saturating_sub(SNIPE_MS)
    }
}

impl Contractor {
    /// Takes part in an auction it is called to.
    pub(super) fn join_auction(
        &mut self,
        now: Timestamp,
        delivery: &Delivery,
        call: &Call,
        plan: CallPlan,
    ) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let price = plan.terms.iter().find(|(name, _)| name.as_str() == PRICE).map(|(_, value)| value);
        let (Some(rules), Some(AttrValue::Int(limit)), false) = (&call.auction, price, plan.is_refusal) else {
            self.counts.refusals += 1;
            return vec![refuse_call(delivery, call.round, NOT_INTERESTED, plan.reply_delay_ms)];
        };
        if !self.engage(negotiation, call, Vec::new()) {
            self.counts.refusals += 1;
            return vec![refuse_call(delivery, call.round, "busy", plan.reply_delay_ms)];
        }
        let standing = self.early_bids.remove(negotiation);
        let auction = Auction {
            rules: rules.rules.clone(),
            round: call.round,
            currency: call.currency.clone(),
            limit: *limit,
            terms: plan.terms,
            delay_ms: plan.reply_delay_ms,
            ends_at: call.reply_by.0,
            has_bid: standing.as_ref().is_some_and(|standing| standing.leads),
            standing,
            bids: 0,
            leaves_at: None,
        };
        self.auctions.insert(negotiation, auction, call.ends_by.0);
        self.bid(now, delivery)
    }

    /// Hears how an auction stands, and bids again or not. What it was about to bid is beaten.
    pub(super) fn handle_standing(
        &mut self,
        now: Timestamp,
        delivery: &Delivery,
        standing: &StandingBid,
    ) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        if !self.auctions.contains(negotiation) && self.early_bids.has_room() {
            // Deliveries have no order: the call may still be under way.
            self.early_bids.insert(negotiation, standing.clone(), standing.reply_by.0);
        }
        let is_bidding = self.engagements.part(negotiation).is_some_and(|part| part.stage == EngagementStage::Offered);
        let Some(auction) = self.auctions.part(negotiation).filter(|_| is_bidding) else { return Vec::new() };
        if auction.standing.as_ref().is_some_and(|known| known.bid_no >= standing.bid_no) {
            return Vec::new();
        }
        auction.has_bid |= standing.leads || auction.leaves_at.take().is_some_and(|at| at <= now);
        auction.ends_at = standing.reply_by.0;
        auction.standing = Some(standing.clone());
        let mut actions = vec![Action::Unschedule(negotiation.clone())];
        actions.extend(self.bid(now, delivery));
        actions
    }

    fn bid(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let bidding = self.config.bidding;
        let Some(auction) = self.auctions.part(negotiation) else { return Vec::new() };
        let Some(price) = auction.next_bid(bidding) else {
            // Whoever has bid stays: its bid may still be awarded.
            if auction.has_bid {
                return Vec::new();
            }
            let (round, delay_ms) = (auction.round, auction.delay_ms);
            self.counts.refusals += 1;
            self.release(negotiation);
            return vec![refuse_call(delivery, round, "beyond its limit", delay_ms)];
        };
        auction.bids += 1;
        let mut terms = auction.terms.clone();
        for (_, value) in terms.iter_mut().filter(|(name, _)| name.as_str() == PRICE) {
            *value = AttrValue::Int(price);
        }
        let (currency, round, number) = (auction.currency.clone(), Some(auction.round), auction.bids);
        let delay_ms = auction.delay_ms(bidding, now);
        auction.leaves_at = Some(now.plus_ms(delay_ms));
        if let Some(engagement) = self.engagements.part(negotiation) {
            engagement.offered.push(terms.clone());
        }
        self.counts.offers += 1;
        let offer = Payload::Offer(Offer { terms, currency, round, ..Offer::default() });
        vec![Outgoing::reply(delivery, offer).after_ms(delay_ms).once(number).into()]
    }
}

#[cfg(test)]
mod tests;
