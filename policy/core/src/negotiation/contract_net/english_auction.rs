//! The English auction: contractors bid against each other in the open, and the leader is awarded (docs/spec/english-auction.md).
//!
//! It is a contract net that collects in another way: until bidding ends the rules are its own; what the award leads to is the
//! contract net's. `rules.rs` says which of the two a message, a timer or a delivery meets.

mod rules;

use std::sync::Arc;

use schemas::bargain::Conditions;
use schemas::delivery::{CloseReason, Disposition, Notification, Outcome, ProgressReport, RejectReason};
use schemas::english_auction::{AuctionCall, AuctionRules, AuctionSpec, BIDDERS_MAX, StandingBid};
use schemas::payload::Offer;
use schemas::policy::{Decider, Payment};
use schemas::protocols::{Phase, Protocol};
use schemas::{Act, AgentId, Digest, Payload, Timestamp, WireTime};
use serde::{Deserialize, Serialize};

use super::rules::{ContractNetAction, Rules, price_of};
use super::session::CollectedOffer;
use super::{ContractNet, SessionState};
use crate::acceptance::decision::Cause;
use crate::acceptance::gate::{BidFault, GateFault};
use crate::negotiation::alternating_offers::Sealed;
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::misunderstanding::{ActSet, NotUnderstoodReason};
use crate::negotiation::protocols::TimerKind;
use crate::negotiation::{FollowUp, InputContext, Opening, Refusal, Ruling};
use crate::policy::{PinnedPolicy, PolicyFault};

/// Bidding ends.
const BIDDING: TimerKind = TimerKind::of(Protocol::EnglishAuction, 40);
/// Nobody has bid for `quiet_ms`.
const QUIET: TimerKind = TimerKind::of(Protocol::EnglishAuction, 41);

/// As many times the messages that others may send are taken of a bidder: most bids lose a race to another.
const MESSAGES_TIMES: usize = 4;
/// Messages of one party other than bids that are taken beyond, so that whoever has bid to the limit can confirm and report.
const MESSAGES_SPARE: usize = 64;

/// One open auction.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Auction<P = Arc<PinnedPolicy>> {
    /// The contract net that it becomes; while it collects, it is not asked what an answer leads to.
    net: ContractNet<P>,
    #[serde(with = "schemas::text::json")]
    rules: AuctionRules,
    reserve: Sealed<Option<i64>>,
    /// Bidding ends then at the latest.
    latest_by: Timestamp,
    /// When it ends unless somebody bids.
    quiet_at: Option<Timestamp>,
    standing: Option<LeadingBid>,
    bids: u32,
}

/// The bid that leads.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct LeadingBid {
    /// Session of its bidder.
    by: usize,
    /// Micro-units.
    price: i64,
}

/// What becomes of a message of a bidder, or why it is not followed.
type JudgedBid = Result<Ruling<AuctionAction>, Refusal>;

/// What follows from a message.
#[derive(Debug, Default)]
pub(crate) enum AuctionAction {
    #[default]
    Nothing,
    Strike,
    Bid(Box<CollectedOffer>, i64),
    Leave(SessionState),
    /// What the contract net does.
    Net(ContractNetAction),
}

/// How an auction stands, for its participants.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuctionView {
    /// The rules.
    pub rules: AuctionRules,
    /// Bids that counted.
    pub bids: u32,
    /// The standing price, in micro-units.
    pub price: Option<i64>,
    /// Whether the viewer leads.
    pub leads: bool,
    /// Bidders that have not left.
    pub bidders: u32,
    /// Bidding ends then at the latest.
    pub latest_by: WireTime,
}

/// Opens the auction and calls the bidders; `share` gives the shared form of an agent's name.
///
/// # Errors
/// Why the call cannot be followed; nothing is stored then.
pub(crate) fn open(
    opening: Opening<'_>,
    spec: &AuctionSpec,
    context: &mut InputContext<'_>,
    share: impl FnMut(&AgentId) -> AgentId,
) -> Result<Auction, Refusal> {
    let others = [
        (opening.cfp.panel.is_some(), "/payload/panel"),
        (opening.cfp.bargain.is_some(), "/payload/bargain"),
        (opening.cfp.team.is_some(), "/payload/team"),
        (opening.cfp.mandate.is_some(), "/payload/mandate"),
    ];
    if let Some((_, pointer)) = others.into_iter().find(|(is_there, _)| *is_there) {
        return Err(Refusal::malformed(NotUnderstoodReason::InvalidAuction, pointer));
    }
    if check_policy(&opening.policy.policy).is_err() {
        return Err(Refusal::malformed(NotUnderstoodReason::InvalidPolicy, "/payload/policy"));
    }
    Refusal::check_invited(opening.invited().len(), 0..=BIDDERS_MAX)?;
    let confirm_ms = opening.policy.policy.timers_ms.confirm;
    let latest = spec.rules.extend.map(|extend| context.now.plus_ms(extend.latest_within_ms));
    let net = opening.open_as(context, share, |call| {
        let latest_by = latest.unwrap_or(call.reply_by.0);
        // What is awarded must have its time to be confirmed.
        let is_too_late = latest_by.plus_ms(confirm_ms) > call.ends_by.0;
        if latest_by < call.reply_by.0 || is_too_late {
            let pointer = "/payload/auction/extend/latest_within_ms";
            let extended = Refusal::malformed(NotUnderstoodReason::BadDeadline, pointer);
            return Err(if latest.is_some() { extended } else { Refusal::unfit(NotUnderstoodReason::BadDeadline) });
        }
        let (rules, latest_by) = (spec.rules.clone(), WireTime(latest_by));
        call.auction = Some(Box::new(AuctionCall { rules, latest_by }));
        Ok(())
    })?;
    // It is not called again: whoever leaves is out.
    let net = ContractNet { call: None, ..net };
    Ok(Auction {
        latest_by: latest.unwrap_or(net.collection.reply_by()),
        net,
        rules: spec.rules.clone(),
        reserve: Sealed(spec.reserve),
        quiet_at: None,
        standing: None,
        bids: 0,
    })
}

/// What an auction asks of its policy: the leader is awarded one lot, at its own bid, by the exchange.
///
/// # Errors
/// The member that says otherwise.
pub fn check_policy(policy: &schemas::Policy) -> Result<(), PolicyFault> {
    let faults = [
        (policy.awards != 1, "/awards", "must be 1: an English auction has one lot"),
        (!policy.award, "/award", "must be true: an English auction awards its leader"),
        (policy.decider != Decider::Engine, "/decider", "must be `engine`: the highest bid decides an English auction"),
        (policy.eps_band != 0, "/eps_band", "must be 0: bids of an English auction are ranked by their price alone"),
        (policy.payment != Payment::FirstPrice, "/payment", "must be `first_price`: a leader pays its own bid"),
    ];
    let fault = faults.into_iter().find(|(is_fault, ..)| *is_fault);
    fault.map_or(Ok(()), |(_, pointer, detail)| {
        Err(PolicyFault { pointer: pointer.to_owned(), detail: detail.to_owned() })
    })
}

impl Auction<Digest> {
    /// What a snapshot holds, under the policy whose digest it names; absent where there is none.
    pub(crate) fn under(self, policy: impl FnOnce(Digest) -> Option<Arc<PinnedPolicy>>) -> Option<Auction> {
        let Self { net, rules, reserve, latest_by, quiet_at, standing, bids } = self;
        Some(Auction { net: net.under(policy)?, rules, reserve, latest_by, quiet_at, standing, bids })
    }
}

impl Auction {
    /// The standing price, in micro-units.
    fn price(&self) -> Option<i64> {
        self.standing.map(|standing| standing.price)
    }

    fn leads(&self, index: usize) -> bool {
        self.standing.is_some_and(|standing| standing.by == index)
    }

    /// Whether a bidder has not left.
    fn is_in(&self, index: usize) -> bool {
        let state = self.net.sessions[index].state;
        state.may_answer() || state == SessionState::Offered
    }

    /// Bidders that have not left.
    fn bidders(&self) -> u32 {
        let bidders = (0..self.invited()).filter(|&index| self.is_in(index)).count();
        u32::try_from(bidders).unwrap_or(u32::MAX)
    }

    /// What a bidder may say while bids are taken.
    fn legal_acts(&self, index: usize) -> ActSet {
        if self.is_in(index) && !self.leads(index) {
            ActSet::of(&[Act::Offer, Act::Refuse, Act::NotUnderstood, Act::Failure])
        } else {
            ActSet::NONE
        }
    }

    /// A bid (docs/spec/english-auction.md#ea-4).
    fn judge_bid(&self, index: usize, bid: &Offer, context: &InputContext<'_>) -> JudgedBid {
        Refusal::check_round(bid.round, self.net.round)?;
        if matches!(bid.conditions, Some(Conditions::Predicates(_))) {
            return Err(Refusal::malformed(NotUnderstoodReason::Condition, "/payload/conditions"));
        }
        let validity = [
            (bid.valid_for_ms.is_some(), "/payload/valid_for_ms"),
            (bid.valid_until.is_some(), "/payload/valid_until"),
        ];
        if let Some((_, pointer)) = validity.into_iter().find(|(is_there, _)| *is_there) {
            return Err(Refusal::malformed(NotUnderstoodReason::Validity, pointer));
        }
        if self.phase() != Phase::Collecting {
            return Ok(Ruling::refused(Disposition::Late, FollowUp::Late));
        }
        if self.leads(index) {
            return Err(Refusal::out_of_turn(NotUnderstoodReason::OutOfTurn));
        }
        if !self.is_in(index) {
            return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn));
        }
        let rules = Rules::new(&self.net, context);
        match rules.score(index, bid).and_then(|_| self.check_price(bid)) {
            Ok(price) => {
                let bid_no = self.bids + 1;
                let offer = Box::new(rules.collected(bid, bid_no));
                Ok(Ruling { score: Some(bid_no), ..Ruling::ok(AuctionAction::Bid(offer, price)) })
            }
            Err(fault) => Ok(Ruling::refused(Disposition::PolicyReject, FollowUp::Policy(fault))),
        }
    }

    fn check_price(&self, bid: &Offer) -> Result<i64, GateFault> {
        let price = price_of(bid).ok_or(GateFault::Bid(BidFault::Required))?;
        let fault = if self.standing.is_some() { BidFault::Step } else { BidFault::Start };
        if self.rules.is_bid(price, self.price()) { Ok(price) } else { Err(GateFault::Bid(fault)) }
    }

    /// Any act but a bid (docs/spec/english-auction.md#ea-8).
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other act is out of turn")]
    fn judge_leaving(&self, index: usize, payload: &Payload) -> JudgedBid {
        Refusal::check_round(payload.round(), self.net.round)?;
        let state = match payload.act() {
            Act::Refuse => SessionState::Refused,
            Act::NotUnderstood => SessionState::NotUnderstood,
            Act::Failure => SessionState::Failed,
            _ => return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
        };
        if self.leads(index) || !self.is_in(index) {
            return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn));
        }
        Ok(Ruling::ok(AuctionAction::Leave(state)))
    }

    /// The bid stands, and everybody who is in is told (docs/spec/english-auction.md#ea-5).
    fn record_bid(&mut self, index: usize, offer: Box<CollectedOffer>, price: i64, context: &mut InputContext<'_>) {
        debug_assert!(self.rules.is_bid(price, self.price()), "a bid beats the standing one by a step");
        debug_assert!(!self.leads(index), "nobody bids against its own bid");
        self.net.replace_offer(index, offer, context);
        self.net.collection.forget_tally();
        self.bids += 1;
        self.standing = Some(LeadingBid { by: index, price });
        self.quiet_at = self.rules.quiet_ms.map(|ms| context.now.plus_ms(ms));
        if let Some(extend) = self.rules.extend {
            let end = context.now.plus_ms(extend.ms).min(self.latest_by);
            self.net.collection.put_off(end);
        }
        self.tell_standing(index, price, context);
        self.evaluate(context);
    }

    fn tell_standing(&self, leader: usize, price: i64, context: &mut InputContext<'_>) {
        let standing = |leads| StandingBid {
            bid_no: self.bids,
            price,
            leads,
            bidders: self.bidders(),
            next_price: self.rules.next_price(Some(price)),
            reply_by: WireTime(self.net.collection.reply_by()),
        };
        let told = |leads| Notification::Inform(ProgressReport::Bid(Box::new(standing(leads))));
        let (leads, follows) = (Arc::new(told(true)), Arc::new(told(false)));
        for index in (0..self.invited()).filter(|&index| self.is_in(index)) {
            let told = Arc::clone(if index == leader { &leads } else { &follows });
            let delivery = self.net.header.delivery(context, &self.net.sessions[index].party.agent, told);
            context.deliver(delivery);
        }
        self.net.report(context, told(false), None);
    }

    /// The bidder is out; its bid leaves the running (docs/spec/english-auction.md#ea-8).
    fn leave(&mut self, index: usize, state: SessionState, context: &mut InputContext<'_>) {
        self.net.reject(index, RejectReason::Withdrawn, state, context);
        self.evaluate(context);
    }

    /// Strikes out. A standing bid binds: whoever leads stays.
    fn strike(&mut self, index: usize, context: &mut InputContext<'_>) {
        if self.net.count_strike(index) && !self.leads(index) && self.net.drop_session(index, context) {
            self.evaluate(context);
        }
    }

    /// Bidding ends when nobody is left that could bid.
    fn evaluate(&mut self, context: &mut InputContext<'_>) {
        let may_bid = |index: &usize| {
            let is_waited_for = self.net.sessions[*index].state != SessionState::Undelivered;
            self.is_in(*index) && is_waited_for && !self.leads(*index)
        };
        let is_last = self.standing.is_some() && self.rules.next_price(self.price()).is_none();
        if is_last || (0..self.invited()).find(may_bid).is_none() {
            self.close(CloseReason::AllResponded, context);
        }
    }

    /// Bidding is over (docs/spec/english-auction.md#ea-10).
    fn close(&mut self, reason: CloseReason, context: &mut InputContext<'_>) {
        debug_assert!(self.phase() == Phase::Collecting, "bidding ends once");
        self.quiet_at = None;
        self.net.end_collection(reason, context);
        let Some(standing) = self.standing else { return self.net.end(Outcome::NoOffers, None, context) };
        let meets = |price: i64| self.reserve.0.is_none_or(|reserve| self.rules.reaches(price, reserve));
        if !meets(standing.price) {
            return self.net.end(Outcome::ReserveNotMet, None, context);
        }
        // Nobody is awarded at a price that the reserve forbids, a runner-up no more than the leader.
        let below: Vec<usize> = (0..self.invited())
            .filter(|&index| self.net.sessions[index].state == SessionState::Offered)
            .filter(|&index| {
                !self.net.sessions[index].offer.as_ref().and_then(|offer| offer.price()).is_some_and(meets)
            })
            .collect();
        for index in below {
            self.net.reject(index, RejectReason::Outscored, SessionState::Rejected, context);
        }
        self.net.decide(None, Cause::Score, context);
    }
}
