//! What bidders of English auctions say.

use schemas::Payload;
use schemas::delivery::{Call, Delivery};
use schemas::english_auction::{AuctionCall, StandingBid};
use schemas::payload::{AttrValue, Offer, Terms};

use super::{AgentContext, NO_OFFER};
use crate::faults::AgentFault;
use crate::points::Point;
use crate::scenario::attr_name;

/// How often a bidder that was told of another's bid bids again, in per mille.
const BIDS_AGAIN: u32 = 600;
/// Longest a bid takes, in milliseconds.
const BID_MS: u64 = 150;

/// Begins to bid, leaves, or says nothing.
pub(super) fn answer_call(context: &mut AgentContext, delivery: &Delivery, call: &Call, auction: &AuctionCall) {
    if context.errs(AgentFault::Ignore) {
        return;
    }
    let window_ms = (call.reply_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
    bid(context, delivery, Some(auction.rules.start), window_ms);
}

/// Bids again, or leaves it at that.
pub(super) fn answer_standing(context: &mut AgentContext, delivery: &Delivery, standing: &StandingBid) {
    context.reached(Point::BidStood);
    let window_ms = (standing.reply_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
    // Whoever leads has nothing to say; some do all the same.
    if standing.leads && !context.errs(AgentFault::SpeakUnasked) {
        return;
    }
    if context.happens(BIDS_AGAIN) {
        let is_unfit = context.errs(AgentFault::OfferUnfit);
        bid(context, delivery, if is_unfit { Some(standing.price) } else { standing.next_price }, window_ms);
    }
}

fn bid(context: &mut AgentContext, delivery: &Delivery, price: Option<i64>, window_ms: u64) {
    let is_late = context.errs(AgentFault::OfferLate);
    let after_ms = if is_late { window_ms + context.draw(0..100) } else { context.draw(0..window_ms.min(BID_MS)) };
    if context.errs(AgentFault::Decline) {
        let payload = context.decline(&NO_OFFER);
        return context.reply(after_ms, delivery, payload);
    }
    let terms = price.map(|price| (attr_name("price"), AttrValue::Int(price))).into_iter().collect::<Terms>();
    let valid_for_ms = context.errs(AgentFault::OfferBrief).then_some(100);
    context.reply(after_ms, delivery, Payload::Offer(Offer { terms, valid_for_ms, ..Offer::default() }));
}
