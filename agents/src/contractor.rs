//! A scripted contractor: what it asks, how long it takes and how it fails is drawn from a seed.
//!
//! Every draw depends on (seed, agent, negotiation, stage) only, never on what happened before or elsewhere, so the
//! same negotiation meets the same behaviour in whatever order deliveries arrive, on every transport, after a restart.
//!
//! The contractor's side of the contract net (docs/spec/contract-net.md#what-is-legal):
//!
//! | it hears | it does |
//! |---|---|
//! | CFP | OFFER, or REFUSE, or nothing; a new round is a new call |
//! | CFP with an auction, INFORM{bid} | OFFER, until the next price is beyond its limit; REFUSE where the first one is |
//! | CFP with a bargain, CFP with a team, ASK of a panel | REFUSE: [`crate::bargain::Bargainer`], [`crate::team::TeamAgent`] and [`crate::panel::PanelMember`] take part |
//! | ACCEPT of terms it offered | CONFIRM (the same one each time), or REFUSE, or nothing |
//! | ACCEPT of anything else | REFUSE: it commits to nothing it does not know |
//! | ACK{committed} | performs, then INFORM{done} or FAILURE, or nothing |
//! | CANCEL by the initiator | stops; INFORM{cancelled}, or FAILURE{cannot_cancel} |
//! | CANCEL for another reason, REJECT, CLOSED | stops and forgets |
//!
//! With a table of routines ([`Contractor::with_routines`]) performing is a [`RoutineRun`], which leaves by
//! [`Asks::poll_question`]; its result comes back by [`Asks::take_answer`] and is what the INFORM carries; without one it says FAILURE.
//!
//! It holds one small [`Engagement`] per negotiation it made an offer in, at most [`ContractorConfig::engagements_max`],
//! released by the final notice and at the latest when the negotiation must have ended. With no room left it refuses.

mod config;
mod distribution;
mod engagement;
mod english_auction;
pub mod performing;

use std::collections::VecDeque;

use schemas::delivery::{
    Award, Call, Cancellation, Delivery, Disposition, Notification, ProgressReport, Receipt, RejectReason,
};
use schemas::english_auction::StandingBid;
use schemas::payload::{Confirm, Failure, FailurePhase, Inform, InformKind, Offer, Reasoned, Terms};
use schemas::{AgentId, AwardNo, NegotiationId, Payload, Timestamp};

use self::distribution::Draws;
use crate::asking::Asks;
use crate::open::OpenNegotiations;
use crate::routine::{RoutineAnswer, RoutineTable};
use crate::strategy::{Action, Outgoing, Strategy};
use distribution::Script;

pub use config::{ConfigError, ContractorConfig};
pub use distribution::Distribution;
pub use engagement::{Engagement, EngagementStage};
pub use english_auction::Bidding;
pub use performing::{PerformingContractor, RoutineRun};

/// `reason` of the CANCEL that an initiator asked for: the only one that awaits an answer.
const CANCELLED_BY_INITIATOR: &str = "cancelled";
/// Code of every scripted failure.
const FAILURE_CODE: &str = "scripted";
/// Standing bids that wait for their calls, at most.
const EARLY_BIDS_MAX: usize = 1024;
/// Reason of a call that is refused for no other.
pub const NOT_INTERESTED: &str = "not interested";

/// A scripted contractor.
pub struct Contractor {
    agent: AgentId,
    config: ContractorConfig,
    script: Script,
    engagements: OpenNegotiations<Engagement>,
    auctions: OpenNegotiations<english_auction::Auction>,
    /// Standing bids that were told before their calls.
    early_bids: OpenNegotiations<StandingBid>,
    counts: ContractorCounts,
    routines: Option<RoutineTable>,
    runs: VecDeque<RoutineRun>,
}

/// What a contractor did, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContractorCounts {
    /// Calls heard.
    pub calls: u64,
    /// Offers made, revisions included.
    pub offers: u64,
    /// Calls refused.
    pub refusals: u64,
    /// Calls left without an answer.
    pub silences: u64,
    /// Awards heard, repeats included.
    pub awards: u64,
    /// Awards refused because their terms are none it offered.
    pub unknown_awards: u64,
    /// Awards that became binding.
    pub commitments: u64,
    /// Performances begun that end in INFORM{done}.
    pub done: u64,
    /// Performances begun that end in FAILURE.
    pub failures: u64,
}

impl Contractor {
    /// A contractor. `agent` is part of the seed: two contractors with one configuration behave differently.
    ///
    /// # Errors
    /// [`ConfigError`] names the first parameter that makes no sense.
    pub fn try_new(agent: &AgentId, config: ContractorConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let script = Script::new(config.seed, agent);
        let engagements = OpenNegotiations::new(config.engagements_max);
        let auctions = OpenNegotiations::new(config.engagements_max);
        let early_bids = OpenNegotiations::new(EARLY_BIDS_MAX);
        let (counts, runs) = (ContractorCounts::default(), VecDeque::new());
        Ok(Self {
            agent: agent.clone(),
            config,
            script,
            engagements,
            auctions,
            early_bids,
            counts,
            routines: None,
            runs,
        })
    }

    /// The same, whose awards are carried out by routines: its offers name those of a call's documents that have one, and a
    /// binding award becomes a [`RoutineRun`] instead of a report.
    #[must_use]
    pub fn with_routines(mut self, table: RoutineTable) -> Self {
        self.routines = Some(table);
        self
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> ContractorCounts {
        self.counts
    }

    fn handle_call(&mut self, now: Timestamp, delivery: &Delivery, call: &Call) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        self.counts.calls += 1;
        if let Some(reason) = other_protocol(call).filter(|_| call.auction.is_none()) {
            self.counts.refusals += 1;
            return vec![Action::refuse(delivery, reason)];
        }
        let plan = CallPlan::draw(&self.config, &mut self.script.draws(negotiation, "call", call.round));
        if plan.is_silent {
            self.counts.silences += 1;
            return Vec::new();
        }
        if call.auction.is_some() {
            return self.join_auction(now, delivery, call, plan);
        }
        let until_deadline_ms = call.reply_by.0.since_us(now).div_ceil(1000);
        let delay_ms = plan.late_by_ms.map_or(plan.reply_delay_ms, |late_ms| until_deadline_ms + late_ms.max(1));
        self.answer_call(delivery, call, plan, delay_ms)
    }

    /// Offers these terms at once instead of drawing an answer: somebody else has decided. What follows is scripted.
    pub fn offer(&mut self, delivery: &Delivery, call: &Call, terms: Terms) -> Vec<Action> {
        self.counts.calls += 1;
        self.answer_call(delivery, call, CallPlan { terms, ..CallPlan::default() }, 0)
    }

    /// Refuses a call at once, as [`Contractor::offer`] offers.
    pub fn refuse(&mut self, delivery: &Delivery, round: u32, reason: &str) -> Vec<Action> {
        self.counts.calls += 1;
        self.counts.refusals += 1;
        vec![refuse_call(delivery, round, reason, 0)]
    }

    fn answer_call(&mut self, delivery: &Delivery, call: &Call, plan: CallPlan, delay_ms: u64) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let offered: Vec<Terms> = std::iter::once(plan.terms).chain(plan.revised_terms).collect();
        let has_room = plan.is_refusal || self.engage(negotiation, call, offered.clone());
        if plan.is_refusal || !has_room {
            self.counts.refusals += 1;
            let reason = if has_room { NOT_INTERESTED } else { "busy" };
            return vec![refuse_call(delivery, call.round, reason, delay_ms)];
        }
        let documents = self.routines.as_ref().map(|table| table.offered(call)).unwrap_or_default();
        let mut actions = Vec::new();
        for (revision, terms) in (0_u32..).zip(offered) {
            self.counts.offers += 1;
            let after_ms = delay_ms + u64::from(revision) * plan.revise_after_ms;
            let offer = Payload::Offer(Offer {
                terms,
                currency: call.currency.clone(),
                valid_for_ms: self.config.valid_for_ms,
                documents: documents.clone(),
                round: Some(call.round),
                ..Offer::default()
            });
            // Two numbers per round: the offer and its revision.
            let number = call.round.saturating_mul(2).saturating_add(revision);
            actions.push(Outgoing::reply(delivery, offer).after_ms(after_ms).once(number).into());
        }
        if let Some(withdraw_after_ms) = plan.withdraw_after_ms {
            let withdrawal = Payload::Withdraw(Reasoned { reason: None, round: Some(call.round) });
            let after_ms = delay_ms + withdraw_after_ms;
            actions.push(Outgoing::reply(delivery, withdrawal).after_ms(after_ms).once(call.round).into());
        }
        actions
    }

    /// Notes an offer; false when there is no room. A later round replaces an earlier one.
    fn engage(&mut self, negotiation: &NegotiationId, call: &Call, offered: Vec<Terms>) -> bool {
        self.engagements.remove(negotiation);
        let has_room = self.engagements.has_room();
        if has_room {
            let engagement = Engagement::new(call, offered, self.routines.is_some());
            self.engagements.insert(negotiation, engagement, call.ends_by.0);
        }
        has_room
    }

    fn handle_award(&mut self, delivery: &Delivery, award: &Award) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        self.counts.awards += 1;
        let award_no = award.award_no;
        let is_known = self.engagements.part(negotiation).is_some_and(|known| known.offered.contains(&award.terms));
        if !is_known {
            self.counts.unknown_awards += 1;
            return vec![refuse_award(delivery, award_no, "no such offer")];
        }
        let config = &self.config;
        let mut draws = self.script.draws(negotiation, "award", award_no.0);
        let (is_declined, is_ignored) = (draws.comes_true(config.decline), draws.comes_true(config.ignore_award));
        let delay_ms = draws.sample_ms(&config.confirm_delay_ms);
        if is_declined {
            self.engagements.remove(negotiation);
            return vec![refuse_award(delivery, award_no, "changed its mind")];
        }
        if is_ignored {
            return Vec::new();
        }
        // A repeat must not take a commitment back to its beginning.
        let is_open = |known: &&mut Engagement| known.stage != EngagementStage::Committed(award_no);
        if let Some(known) = self.engagements.part(negotiation).filter(is_open) {
            (known.stage, known.document) = (EngagementStage::Confirming(award_no), award.document);
        }
        let confirm = Payload::Confirm(Confirm { award_no, terms_digest: None });
        vec![Outgoing::reply(delivery, confirm).after_ms(delay_ms).once(award_no.0).into()]
    }

    fn handle_receipt(&mut self, now: Timestamp, delivery: &Delivery, receipt: &Receipt) -> Vec<Action> {
        let said = receipt.first.unwrap_or(receipt.disposition);
        match (said, receipt.award_no) {
            (Disposition::Committed, Some(award_no)) => self.handle_commitment(now, delivery, award_no),
            // Anything else changes nothing: a refusal of one message is followed by the notice that matters.
            (_, _) => Vec::new(),
        }
    }

    fn handle_commitment(&mut self, now: Timestamp, delivery: &Delivery, award_no: AwardNo) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        // Heard once, or for an award it never confirmed: not a reason to perform.
        let is_confirming = |known: &&mut Engagement| known.stage == EngagementStage::Confirming(award_no);
        let Some(known) = self.engagements.part(negotiation).filter(is_confirming) else { return Vec::new() };
        known.stage = EngagementStage::Committed(award_no);
        let engagement = known.clone();
        self.counts.commitments += 1;
        let config = &self.config;
        let mut draws = self.script.draws(negotiation, "perform", award_no.0);
        let (fails, stalls) = (draws.comes_true(config.fail), draws.comes_true(config.stall));
        let perform_ms = draws.sample_ms(&config.perform_ms);
        if stalls {
            return Vec::new();
        }
        let report = if fails {
            self.counts.failures += 1;
            scripted_failure(FailurePhase::Perform)
        } else if self.routines.is_some() {
            self.runs.push_back(RoutineRun::new((now, &self.agent, delivery), award_no, engagement, perform_ms));
            return vec![Action::Defer];
        } else {
            self.counts.done += 1;
            Payload::Inform(Inform { kind: InformKind::Done, result: None, routine: None })
        };
        vec![Outgoing::reply(delivery, report).after_ms(perform_ms).once(award_no.0).into()]
    }

    fn handle_cancel(&mut self, delivery: &Delivery, cancellation: &Cancellation) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        self.engagements.remove(negotiation);
        if cancellation.reason != CANCELLED_BY_INITIATOR {
            return vec![Action::Release(negotiation.clone())];
        }
        let mut draws = self.script.draws(negotiation, "cancel", cancellation.award_no.0);
        let answer = if draws.comes_true(self.config.cannot_cancel) {
            scripted_failure(FailurePhase::CannotCancel)
        } else {
            Payload::Inform(Inform { kind: InformKind::Cancelled, result: None, routine: None })
        };
        // Apart from the award numbers, under which this act may have been used before.
        let number = u32::MAX - cancellation.award_no.0;
        vec![Action::Unschedule(negotiation.clone()), Outgoing::reply(delivery, answer).once(number).into()]
    }

    fn has_revised(&mut self, negotiation: &NegotiationId) -> bool {
        self.engagements.part(negotiation).is_some_and(|known| known.offered.len() > 1)
    }

    fn release(&mut self, negotiation: &NegotiationId) -> Vec<Action> {
        self.engagements.remove(negotiation);
        self.auctions.remove(negotiation);
        vec![Action::Release(negotiation.clone())]
    }
}

impl Asks for Contractor {
    type Question = RoutineRun;
    type Answer = Option<RoutineAnswer>;

    fn poll_question(&mut self) -> Option<RoutineRun> {
        self.runs.pop_front()
    }

    fn take_answer(&mut self, _now: Timestamp, run: &RoutineRun, answer: Option<RoutineAnswer>) -> Vec<Action> {
        let known = self.engagements.part(&run.request().negotiation);
        if known.is_none_or(|known| known.stage != EngagementStage::Committed(run.award_no())) {
            // Cancelled in the meantime, or over.
            return Vec::new();
        }
        let answer = run.usable(answer);
        *(if answer.is_some() { &mut self.counts.done } else { &mut self.counts.failures }) += 1;
        vec![run.report(answer)]
    }
}

impl Strategy for Contractor {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        self.engagements.expire(now);
        self.auctions.expire(now);
        self.early_bids.expire(now);
        match &delivery.payload {
            Notification::Cfp(call) => self.handle_call(now, delivery, call),
            Notification::Accept(award) => self.handle_award(delivery, award),
            Notification::Reject(rejection) => {
                let id = &delivery.envelope.negotiation;
                // The revision came too late; the offer before it may stand, or be awarded already.
                let is_late_revision = rejection.reason == RejectReason::Late && self.has_revised(id);
                if rejection.reason.goes_on() || is_late_revision { Vec::new() } else { self.release(id) }
            }
            Notification::Ack(receipt) => self.handle_receipt(now, delivery, receipt),
            Notification::Inform(ProgressReport::Bid(standing)) => self.handle_standing(now, delivery, standing),
            Notification::Cancel(cancellation) => self.handle_cancel(delivery, cancellation),
            Notification::Closed(_) if self.config.offers_after_close => {
                // What is scheduled still goes out, to be answered `late`: the experiments count such offers.
                self.engagements.remove(&delivery.envelope.negotiation);
                Vec::new()
            }
            Notification::Closed(_) => self.release(&delivery.envelope.negotiation),
            Notification::Ask(_) => {
                self.counts.refusals += 1;
                vec![Action::refuse(delivery, "sits on no panel")]
            }
            _ => Vec::new(),
        }
    }
}

/// Why a contractor that only offers refuses a call of another protocol.
#[must_use]
pub fn other_protocol(call: &Call) -> Option<&'static str> {
    match (&call.bargain, &call.team, &call.auction) {
        (Some(_), ..) => Some("does not bargain"),
        (None, Some(_), _) => Some("joins no team"),
        (None, None, Some(_)) => Some("bids in no auction"),
        (None, None, None) => None,
    }
}

fn scripted_failure(phase: FailurePhase) -> Payload {
    Payload::Failure(Failure { phase, code: FAILURE_CODE.to_owned(), retryable: false, penalty: None })
}

fn refuse_call(delivery: &Delivery, round: u32, reason: &str, delay_ms: u64) -> Action {
    let refusal = Payload::Refuse(Reasoned { reason: Some(reason.to_owned()), round: Some(round) });
    Outgoing::reply(delivery, refusal).after_ms(delay_ms).once(round).into()
}

fn refuse_award(delivery: &Delivery, award_no: AwardNo, reason: &str) -> Action {
    let refusal = Payload::Refuse(Reasoned { reason: Some(reason.to_owned()), round: None });
    // Apart from the rounds, which number the refusals of calls.
    Outgoing::reply(delivery, refusal).once(u32::MAX - award_no.0).into()
}

/// Everything that is drawn when a call comes. Each draw is made whether or not it matters, so that changing one
/// parameter of a configuration changes nothing else.
#[derive(Default)]
struct CallPlan {
    is_silent: bool,
    is_refusal: bool,
    reply_delay_ms: u64,
    late_by_ms: Option<u64>,
    terms: Terms,
    revised_terms: Option<Terms>,
    revise_after_ms: u64,
    withdraw_after_ms: Option<u64>,
}

impl CallPlan {
    fn draw(config: &ContractorConfig, draws: &mut Draws) -> Self {
        let is_silent = draws.comes_true(config.silent);
        let is_refusal = draws.comes_true(config.refuse);
        let is_late = draws.comes_true(config.late);
        let is_revised = draws.comes_true(config.revise);
        let is_withdrawn = draws.comes_true(config.withdraw);
        let reply_delay_ms = draws.sample_ms(&config.reply_delay_ms);
        let late_by_ms = draws.sample_ms(&config.late_by_ms);
        let revise_after_ms = draws.sample_ms(&config.revise_after_ms);
        let withdraw_after_ms = draws.sample_ms(&config.withdraw_after_ms);
        let terms = draws.terms(&config.terms);
        let revised_terms = draws.terms(&config.terms);
        Self {
            is_silent,
            is_refusal,
            reply_delay_ms,
            late_by_ms: is_late.then_some(late_by_ms),
            terms,
            revised_terms: is_revised.then_some(revised_terms),
            revise_after_ms,
            withdraw_after_ms: is_withdrawn.then_some(withdraw_after_ms),
        }
    }
}

#[cfg(test)]
mod tests;
