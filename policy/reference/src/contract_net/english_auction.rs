//! A contract net that collects by an English auction (docs/spec/english-auction.md).

use policy_core::{Cause, Limits, Phase, SessionState};
use schemas::bargain::Conditions;
use schemas::delivery::{CloseReason, Disposition, Outcome, RejectReason, Rejection};
use schemas::english_auction::{AuctionSpec, BIDDERS_MAX, PriceDirection, StandingBid, Step};
use schemas::payload::{Cfp, INTEGER_MAX, Offer};
use schemas::policy::{Decider, Payment};
use schemas::record::{AdmittedMessage, Message, Pinned};
use schemas::{AgentId, OfferId, Payload, Policy, Timestamp, WireTime};

use super::messages::{NetAction, NetVerdict};
use super::opening::{self, NotUnderstood};
use super::{ContractNet, HeldOffer, count};
use crate::{Moment, Wins, fact, scoring};

/// What makes a contract net an auction.
#[derive(Debug)]
pub(crate) struct AuctionPart {
    spec: AuctionSpec,
    latest_by: Timestamp,
    pub(super) quiet_at: Option<Timestamp>,
    leader: Option<AgentId>,
    price: Option<i64>,
    bids: u32,
}

/// The auction of a call, or what its initiator is told.
pub(crate) fn open(
    message: &AdmittedMessage,
    decoded: &Message,
    (cfp, spec): (&Cfp, &AuctionSpec),
    pinned: &Pinned,
    moment: Moment,
) -> Result<ContractNet, NotUnderstood> {
    let at = |reason, pointer: &str| NotUnderstood { reason, pointer: Some(pointer.to_owned()) };
    for (is_there, pointer) in [
        (cfp.panel.is_some(), "/payload/panel"),
        (cfp.bargain.is_some(), "/payload/bargain"),
        (cfp.team.is_some(), "/payload/team"),
        (cfp.mandate.is_some(), "/payload/mandate"),
    ] {
        if is_there {
            return Err(at("invalid_auction", pointer));
        }
    }
    if !awards_the_leader(&pinned.policy) {
        return Err(at("invalid_policy", "/payload/policy"));
    }
    if pinned.invited.iter().filter(|invited| invited.agent != message.from).count() > BIDDERS_MAX {
        return Err("too_many_parties".into());
    }
    let mut net = opening::open(message, decoded, cfp, pinned, moment)?;
    let latest_by = spec.rules.extend.map_or(net.reply_by, |extend| moment.now.plus_ms(extend.latest_within_ms));
    if latest_by < net.reply_by || latest_by.plus_ms(net.policy.timers_ms.confirm) > net.ends_by {
        let extended = at("bad_deadline", "/payload/auction/extend/latest_within_ms");
        return Err(if spec.rules.extend.is_some() { extended } else { "bad_deadline".into() });
    }
    let spec = spec.clone();
    net.auction = Some(AuctionPart { spec, latest_by, quiet_at: None, leader: None, price: None, bids: 0 });
    net.policy.max_rounds = 1;
    Ok(net)
}

fn awards_the_leader(policy: &Policy) -> bool {
    let is_last_bid = policy.eps_band == 0 && policy.decider == Decider::Engine;
    is_last_bid && policy.awards == 1 && policy.award && policy.payment == Payment::FirstPrice
}

impl AuctionPart {
    fn rises(&self) -> bool {
        self.spec.rules.direction == PriceDirection::Ascending
    }

    /// The price that the next bid must reach, if there is such a one.
    fn next_price(&self) -> Option<i64> {
        let Some(standing) = self.price else { return Some(self.spec.rules.start) };
        let step = match self.spec.rules.step {
            Step::Fixed(step) => step,
            Step::Permille(permille) => {
                let whole = i128::from(standing) * i128::from(permille);
                i64::try_from(whole / 1000).ok()? + i64::from(whole % 1000 > 0)
            }
        };
        let step = step.max(1);
        let next = if self.rises() { standing.checked_add(step)? } else { standing.checked_sub(step)? };
        (0..=INTEGER_MAX).contains(&next).then_some(next)
    }

    fn is_as_good(&self, price: i64, bound: i64) -> bool {
        if self.rises() { price >= bound } else { price <= bound }
    }

    fn meets_reserve(&self, price: i64) -> bool {
        self.spec.reserve.is_none_or(|reserve| self.is_as_good(price, reserve))
    }

    /// Why a bid does not count.
    fn fault(&self, price: Option<i64>) -> Option<&'static str> {
        let Some(price) = price else { return Some("price.required") };
        let is_price = (0..=INTEGER_MAX).contains(&price);
        let counts = is_price && self.next_price().is_some_and(|next| self.is_as_good(price, next));
        let fault = if self.price.is_none() { "price.start" } else { "price.step" };
        (!counts).then_some(fault)
    }
}

fn part(net: &ContractNet) -> &AuctionPart {
    net.auction.as_ref().expect("it is an auction")
}

fn leads(net: &ContractNet, bidder: &AgentId) -> bool {
    part(net).leader.as_ref() == Some(bidder)
}

fn is_in(net: &ContractNet, bidder: &AgentId) -> bool {
    matches!(net.state(bidder), SessionState::Invited | SessionState::Undelivered | SessionState::Offered)
}

/// Whether bids are taken.
pub(crate) fn takes_bids(net: &ContractNet) -> bool {
    net.auction.is_some() && net.phase == Phase::Collecting
}

/// What a bidder says of an auction; nothing where the contract net's rules hold.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other act is out of turn")]
pub(super) fn judge_bidder(net: &ContractNet, from: &AgentId, payload: &Payload, moment: Moment) -> Option<NetVerdict> {
    net.auction.as_ref()?;
    match payload {
        Payload::Offer(bid) => Some(judge_bid(net, from, bid, moment)),
        _ if net.phase != Phase::Collecting => None,
        Payload::Refuse(_) => Some(judge_leaving(net, from, SessionState::Refused)),
        Payload::NotUnderstood(_) => Some(judge_leaving(net, from, SessionState::NotUnderstood)),
        Payload::Failure(_) => Some(judge_leaving(net, from, SessionState::Failed)),
        _ => Some(net.out_of_turn(from, "out_of_turn")),
    }
}

fn judge_leaving(net: &ContractNet, from: &AgentId, state: SessionState) -> NetVerdict {
    if is_in(net, from) && !leads(net, from) {
        NetVerdict::ok(NetAction::Answer(state, RejectReason::Withdrawn))
    } else {
        net.out_of_turn(from, "out_of_turn")
    }
}

fn judge_bid(net: &ContractNet, from: &AgentId, bid: &Offer, moment: Moment) -> NetVerdict {
    if matches!(bid.conditions, Some(Conditions::Predicates(_))) {
        return net.malformed(from, "condition", "/payload/conditions");
    }
    if bid.valid_for_ms.is_some() {
        return net.malformed(from, "validity", "/payload/valid_for_ms");
    }
    if bid.valid_until.is_some() {
        return net.malformed(from, "validity", "/payload/valid_until");
    }
    if net.phase != Phase::Collecting {
        return NetVerdict { reply: Some(net.late(from)), ..NetVerdict::of(Disposition::Late) };
    }
    if leads(net, from) {
        return NetVerdict { then: NetAction::Nothing, ..net.out_of_turn(from, "out_of_turn") };
    }
    if !is_in(net, from) {
        return net.out_of_turn(from, "out_of_turn");
    }
    let id = OfferId(moment.position);
    let weighed = scoring::with_reputation(&net.policy, net.reputations.get(from).copied(), bid);
    let (currency, asked) = (net.currency.as_deref(), net.documents.as_ref());
    let failed = match &weighed {
        Some(bid) => scoring::gate_failed(&net.policy, currency, bid, asked, Timestamp::MAX, moment.now),
        None => Some("reputation.reserved".to_owned()),
    };
    if let Some(code) = failed.or_else(|| part(net).fault(scoring::price(&bid.terms)).map(str::to_owned)) {
        let rejection = Rejection { offer_id: Some(id), reason: RejectReason::Policy, code: Some(code) };
        let reply = Some(fact::reject(&net.id, from, &rejection));
        return NetVerdict { reply, ..NetVerdict::of(Disposition::PolicyReject) };
    }
    let (terms, documents) = (bid.terms.clone(), bid.documents.clone());
    let score = part(net).bids + 1;
    let valid_until = Timestamp::MAX;
    NetVerdict::ok(NetAction::Record(HeldOffer { id, terms, score, payment: None, valid_until, documents }))
}

/// A bid stands: the next step, and everybody is told.
pub(super) fn record_bid(net: &mut ContractNet, bidder: &AgentId, now: Timestamp) {
    let price = net.sessions[bidder].offer.as_ref().and_then(|offer| scoring::price(&offer.terms));
    let reply_by = net.reply_by;
    let own = net.auction.as_mut().expect("it is an auction");
    (own.leader, own.price, own.bids) = (Some(bidder.clone()), price, own.bids + 1);
    own.quiet_at = own.spec.rules.quiet_ms.map(|ms| now.plus_ms(ms));
    let later = own.spec.rules.extend.map(|extend| now.plus_ms(extend.ms).min(own.latest_by));
    net.reply_by = later.map_or(reply_by, |later| later.max(reply_by));
    let bidders: Vec<AgentId> = net.sessions.keys().filter(|bidder| is_in(net, bidder)).cloned().collect();
    let own = part(net);
    let standing = |leads| StandingBid {
        bid_no: own.bids,
        price: price.expect("a bid has a price"),
        leads,
        bidders: count(bidders.len()),
        next_price: own.next_price(),
        reply_by: WireTime(net.reply_by),
    };
    let told = bidders.iter().map(|to| fact::whole(&net.id, to, &standing(to == bidder)));
    let told: Vec<String> = told.chain([fact::whole(&net.id, &net.initiator, &standing(false))]).collect();
    net.facts.extend(told);
}

/// Ends bidding when nobody else can bid.
pub(super) fn evaluate(net: &mut ContractNet, moment: Moment, wins: &mut Wins) {
    let states = [SessionState::Invited, SessionState::Offered];
    let is_last = part(net).price.is_some() && part(net).next_price().is_none();
    if is_last || net.contractors_in(&states, None).iter().all(|bidder| leads(net, bidder)) {
        close(net, CloseReason::AllResponded, moment, wins);
    }
}

pub(super) fn close(net: &mut ContractNet, reason: CloseReason, moment: Moment, wins: &mut Wins) {
    net.note_close(reason, moment);
    match part(net).price {
        None => net.end(Outcome::NoOffers, moment),
        Some(price) if !part(net).meets_reserve(price) => net.end(Outcome::ReserveNotMet, moment),
        Some(_) => {
            for bidder in net.contractors_in(&[SessionState::Offered], None) {
                let price = net.sessions[&bidder].offer.as_ref().and_then(|offer| scoring::price(&offer.terms));
                if !price.is_some_and(|price| part(net).meets_reserve(price)) {
                    net.reject(&bidder, RejectReason::Outscored);
                    net.session(&bidder).state = SessionState::Rejected;
                }
            }
            net.decide(None, Cause::Score, moment, wins);
        }
    }
}

/// Whether a party of an open auction has said too much: 4 times what others may say, and 64 messages more that are no bids.
pub(super) fn is_full(net: &ContractNet, from: &AgentId, is_bid_or_stale: bool, limits: &Limits) -> bool {
    let party = &net.parties[from];
    let spare = if is_bid_or_stale { 0 } else { 64_usize.saturating_sub(party.others) };
    party.said.len() >= 4 * limits.messages_per_party_max && spare == 0
}

/// Whether whoever strikes out stays: a standing bid binds.
pub(super) fn stays(net: &ContractNet, bidder: &AgentId) -> bool {
    takes_bids(net) && leads(net, bidder)
}
