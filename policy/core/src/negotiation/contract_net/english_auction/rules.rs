//! Which rules an input meets: the auction's own while bids are taken, and the contract net's.

use std::sync::Arc;

use schemas::delivery::CloseReason;
use schemas::protocols::{Phase, Protocol};
use schemas::{Act, AgentId, AwardNo, DeliveryId, Payload, RegisterKey, Timestamp, WireTime};

use super::{Auction, AuctionAction, AuctionView, BIDDING, LeadingBid, MESSAGES_SPARE, MESSAGES_TIMES, QUIET};
use crate::acceptance::gate::GateFault;
use crate::limits::Limits;
use crate::negotiation::contract_net::SessionState;
use crate::negotiation::contract_net::rules::{ContractNetAction, Speaker};
use crate::negotiation::disposition::{Incoming, ProtocolRules, header_and_phase};
use crate::negotiation::misunderstanding::ActSet;
use crate::negotiation::protocols::{ProtocolEnd, ProtocolView, Timer, TimerKind};
use crate::negotiation::tombstone::Tombstone;
use crate::negotiation::view::NegotiationView;
use crate::negotiation::{Header, InputContext, Party, Refusal, Ruling, delivery_id};
use crate::policy::PinnedPolicy;

impl ProtocolRules for Auction {
    type Speaker = Speaker;
    type Action = AuctionAction;

    const PROTOCOL: Protocol = Protocol::EnglishAuction;
    const STRIKE: AuctionAction = AuctionAction::Strike;

    header_and_phase!(net);

    fn view(&self, viewer: &AgentId, now: Timestamp) -> Option<NegotiationView> {
        let mut view = self.net.view(viewer, now)?;
        if self.phase() == Phase::Collecting && *viewer == self.net.initiator.agent {
            // Whoever leads is told nobody, whatever the policy says of offers.
            view.offers.clear();
        }
        let leader = self.standing.map(|standing| &self.net.sessions[standing.by].party.agent);
        let protocol = ProtocolView::Auction(Box::new(AuctionView {
            rules: self.rules.clone(),
            bids: self.bids,
            price: self.price(),
            leads: leader == Some(viewer),
            bidders: self.bidders(),
            latest_by: WireTime(self.latest_by),
        }));
        Some(NegotiationView { protocol: Some(protocol), ..view })
    }

    fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.net.handle_abort(code, context);
    }

    fn handle_hard_deadline(&mut self, context: &mut InputContext<'_>) {
        self.net.handle_hard_deadline(context);
    }

    fn next_timer(&self) -> Option<Timer> {
        if self.phase() != Phase::Collecting {
            return self.net.next_timer();
        }
        let (hard, end) = ((self.net.header.ends_by, TimerKind::HARD), (self.net.collection.reply_by(), BIDDING));
        let quiet = self.quiet_at.map(|at| (at, QUIET));
        quiet.into_iter().fold(hard.min(end), std::cmp::min).into()
    }

    fn fire(&mut self, timer: TimerKind, context: &mut InputContext<'_>) {
        match timer {
            BIDDING => self.close(CloseReason::Deadline, context),
            QUIET => self.close(CloseReason::Window, context),
            timer => self.net.fire(timer, context),
        }
    }

    fn tombstone(&self, limits: &Limits) -> Tombstone {
        let mut tombstone = self.net.tombstone(limits);
        tombstone.end = ProtocolEnd::Auction(self.net.awards.past());
        tombstone
    }

    fn header_and_parties(&mut self) -> (&mut Header, Vec<&mut Party>) {
        self.net.header_and_parties()
    }

    fn check(&self) -> Result<(), &'static str> {
        let is_leading =
            |standing: LeadingBid| self.net.sessions.get(standing.by).is_some_and(|one| one.offer.is_some());
        if self.standing.is_some_and(|standing| standing.by >= self.invited()) {
            return Err("a standing bid is nobody's");
        }
        if self.phase() == Phase::Collecting && !self.standing.is_none_or(is_leading) {
            return Err("a standing bid has no bidder");
        }
        self.net.check()
    }

    fn speaker(&self, agent: &AgentId) -> Option<Speaker> {
        self.net.speaker(agent)
    }

    fn party(&self, speaker: Speaker) -> &Party {
        self.net.party(speaker)
    }

    fn party_mut(&mut self, speaker: Speaker) -> &mut Party {
        self.net.party_mut(speaker)
    }

    fn invited(&self) -> usize {
        self.net.invited()
    }

    fn messages_max(&self, limits: &Limits) -> usize {
        limits.messages_per_party_max.saturating_mul(MESSAGES_TIMES)
    }

    fn leaves(&self, speaker: Speaker, payload: &Payload) -> bool {
        let others = self.party(speaker).seen.iter().filter(|seen| seen.act != Act::Offer).count();
        !matches!(payload, Payload::Offer(_)) && others < MESSAGES_SPARE
    }

    fn gate_code(&self, fault: GateFault) -> String {
        self.net.gate_code(fault)
    }

    fn hear(&mut self, speaker: Speaker, context: &InputContext<'_>) {
        self.net.hear(speaker, context);
    }

    fn judge(
        &self,
        speaker: Speaker,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<Ruling<AuctionAction>, Refusal> {
        match (speaker, &incoming.payload) {
            (Speaker::Contractor(index), Payload::Offer(offer)) => self.judge_bid(index, offer, context),
            (Speaker::Contractor(index), payload) if self.phase() == Phase::Collecting => {
                self.judge_leaving(index, payload)
            }
            (_, _) => self.net.judge(speaker, incoming, context).map(|ruling| {
                let Ruling { disposition, reply, action, score } = ruling;
                Ruling { disposition, reply, action: AuctionAction::Net(action), score }
            }),
        }
    }

    fn expected_acts(&self, speaker: Speaker) -> ActSet {
        match speaker {
            Speaker::Contractor(index) if self.phase() == Phase::Collecting => self.legal_acts(index),
            Speaker::Contractor(_) | Speaker::Initiator | Speaker::Lead(_) => self.net.expected_acts(speaker),
        }
    }

    fn register(
        &mut self,
        action: &AuctionAction,
        context: &mut InputContext<'_>,
    ) -> Option<(AwardNo, Option<RegisterKey>)> {
        if let AuctionAction::Net(action) = action { self.net.register(action, context) } else { None }
    }

    fn commitment_key(&self, award_no: AwardNo) -> Option<RegisterKey> {
        self.net.commitment_key(award_no)
    }

    fn follow(&mut self, speaker: Speaker, action: AuctionAction, context: &mut InputContext<'_>) {
        match (speaker, action) {
            (_, AuctionAction::Net(action)) => self.net.follow(speaker, action, context),
            (Speaker::Contractor(index), AuctionAction::Strike) if self.phase() == Phase::Collecting => {
                self.strike(index, context);
            }
            (_, AuctionAction::Strike) => self.net.follow(speaker, ContractNetAction::Strike, context),
            (Speaker::Contractor(index), AuctionAction::Bid(offer, price)) => {
                self.record_bid(index, offer, price, context);
            }
            (Speaker::Contractor(index), AuctionAction::Leave(state)) => self.leave(index, state, context),
            (_, _) => {}
        }
    }

    fn policies(&self) -> Vec<&Arc<PinnedPolicy>> {
        self.net.policies()
    }

    fn handle_delivery_failure(
        &mut self,
        delivery: DeliveryId,
        to: &AgentId,
        may_answer: bool,
        context: &mut InputContext<'_>,
    ) {
        if self.phase() != Phase::Collecting {
            return self.net.handle_delivery_failure(delivery, to, may_answer, context);
        }
        let Some(index) = self.net.session_of(to) else { return };
        if let Some((position, ordinal)) = self.net.unanswered_call(index)
            && delivery_id(context.lane, &self.net.header.id, position, ordinal, to) == delivery
        {
            self.leave(index, if may_answer { SessionState::Undelivered } else { SessionState::Failed }, context);
        }
    }
}
