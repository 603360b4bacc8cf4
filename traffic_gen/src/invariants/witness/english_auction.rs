//! English auctions: which bids stood, who led, and who was awarded (docs/spec/english-auction.md#ea-14).

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Delivery, Notification, ProgressReport};
use schemas::english_auction::{AuctionRules, AuctionSpec};
use schemas::{Act, AgentId, AwardNo, NegotiationId};
use serde::Deserialize;

use super::payload;
use crate::invariants::{Invariant, Verdict};

/// One auction, as its agents said and were told.
#[derive(Debug, Clone, Default)]
pub(super) struct AuctionSeen {
    rules: Option<AuctionRules>,
    /// Of the call, as its initiator sent it.
    reserve: Option<i64>,
    /// The prices that were told of each bid: one, if all were told alike.
    prices: BTreeMap<u32, BTreeSet<i64>>,
    /// Who was told that it leads by a bid.
    leaders: BTreeMap<u32, BTreeSet<AgentId>>,
    awards: BTreeMap<AwardNo, (AgentId, Option<i64>)>,
}

impl AuctionSeen {
    pub(super) fn sent(&mut self, act: Act, document: &[u8]) {
        #[derive(Deserialize)]
        struct SentCall {
            auction: AuctionSpec,
        }
        if act == Act::Cfp
            && let Some(SentCall { auction }) = payload(document)
        {
            self.reserve = auction.reserve;
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest says nothing of bids")]
    pub(super) fn told(&mut self, agent: &AgentId, delivery: &Delivery) {
        match &delivery.payload {
            Notification::Cfp(call) => {
                let auction = call.auction.as_deref();
                self.rules = self.rules.take().or_else(|| auction.map(|auction| auction.rules.clone()));
            }
            Notification::Inform(ProgressReport::Bid(bid)) => {
                self.prices.entry(bid.bid_no).or_default().insert(bid.price);
                if bid.leads {
                    self.leaders.entry(bid.bid_no).or_default().insert(agent.clone());
                }
            }
            Notification::Accept(award) => {
                self.awards.insert(award.award_no, (agent.clone(), award.payment));
            }
            _ => {}
        }
    }

    /// Who led by a bid, and at which price; nothing where its bidder was not told.
    fn bid(&self, bid_no: u32) -> Option<(&AgentId, i64)> {
        let price = self.prices.get(&bid_no)?.first()?;
        Some((self.leaders.get(&bid_no)?.first()?, *price))
    }

    /// What must hold at any time.
    pub(super) fn judge_bids(&self, id: &NegotiationId, verdict: &mut Verdict) {
        let Some(rules) = &self.rules else { return };
        for (bid_no, prices) in &self.prices {
            let leaders = self.leaders.get(bid_no).map_or(0, BTreeSet::len);
            verdict.check(Invariant::StandingBid, prices.len() == 1 && leaders <= 1, || {
                format!("bid {bid_no} of {id} was told at {prices:?}, and {leaders} agents that they lead by it")
            });
            let (Some((leader, price)), before) = (self.bid(*bid_no), self.bid(bid_no - 1)) else { continue };
            if *bid_no > 1 && before.is_none() {
                continue;
            }
            let is_next = rules.is_bid(price, before.map(|(_, price)| price));
            let is_anothers = before.is_none_or(|(earlier, _)| earlier != leader);
            verdict.check(Invariant::StandingBid, is_next && is_anothers, || {
                format!("{leader} bid {price} in {id} after {before:?}")
            });
        }
    }

    /// What must hold once everybody was told everything.
    pub(super) fn judge_awards(&self, id: &NegotiationId, verdict: &mut Verdict) {
        let Some(rules) = &self.rules else { return };
        let last = self.prices.last_key_value().and_then(|(bid_no, _)| self.bid(*bid_no));
        for (award_no, (agent, payment)) in &self.awards {
            let is_first_to_last = award_no.0 != 1 || last.is_none_or(|last| last == (agent, payment.unwrap_or(-1)));
            let reaches = self.reserve.is_none_or(|reserve| payment.is_some_and(|paid| rules.reaches(paid, reserve)));
            verdict.check(Invariant::StandingBid, is_first_to_last && reaches, || {
                format!("award {award_no} of {id} went to {agent} at {payment:?}, the last bid was {last:?}")
            });
        }
    }
}
