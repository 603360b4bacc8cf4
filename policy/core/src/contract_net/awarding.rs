//! AWARDING: the decision, ACCEPT, CONFIRM, and re-awards (rows 6, 9 to 12).

use schemas::delivery::{
    Award, AwardNews, Cancellation, ContractorFailure, ContractorNews, News, Outcome, RejectReason, Told,
};
use schemas::payload::Failure;
use schemas::policy::{HoldUntil, Payment, TieBreak};
use schemas::register::AwardEnd;
use schemas::{AwardNo, Digest, RegisterKey, RegisterValue, Timestamp, WireTime};

use crate::acceptance::decision::{Cause, Decision, Placement, RankedOffer};
use crate::acceptance::payment;
use crate::acceptance::tie_break::{self, Candidate};
use crate::contract_net::admission::said;
use crate::contract_net::deciding::terms_of;
use crate::contract_net::state::{Phase, SessionState};
use crate::effect::{AwardLoss, Deliver, Event, Invariant};
use crate::negotiation::{Negotiation, lot_number};
use crate::session::{AwardStage, LiveAward, PastAward};
use crate::step::Step;

impl Negotiation {
    /// Row 6: ranks the valid offers, awards the lots, holds the runners-up, rejects the rest. `first` is the initiator's
    /// choice.
    pub(super) fn decide(&mut self, first: Option<usize>, cause: Cause, step: &mut Step<'_>) {
        let ranked = self.ranking(first, step);
        self.ensure_lots();
        let winners = self.lots.len().min(ranked.len());
        self.set_payments(&ranked, winners);
        let placements = (0..winners).map(|lot| (lot, ranked[lot].session)).collect::<Vec<_>>();
        let decision = self.decision(&ranked, &placements, cause, step);
        let held = usize::try_from(self.policy().standby).unwrap_or(usize::MAX).min(ranked.len() - winners);
        self.standby = ranked[winners..winners + held].iter().map(|candidate| candidate.session).collect();
        self.decide_by = None;
        self.enter(Phase::Awarding, step);
        for (lot, session) in placements {
            self.award(lot, session, decision, step);
        }
        for index in self.standby.clone() {
            self.set_state(index, SessionState::Standby);
        }
        for candidate in &ranked[winners + held..] {
            self.reject(candidate.session, RejectReason::Outscored, SessionState::Rejected, step);
        }
        self.settle(step);
    }

    fn ranking(&self, first: Option<usize>, step: &Step<'_>) -> Vec<Candidate> {
        let closing = self.close.map_or(step.position, |close| close.position);
        let remembers = self.policy().tie_break == TieBreak::LeastRecentWinner;
        let mut ranked: Vec<Candidate> = (0..self.sessions.len())
            .filter(|&index| self.sessions[index].state == SessionState::Offered)
            .filter_map(|index| self.candidate(index, remembers, step))
            .collect();
        tie_break::rank(self.policy(), &self.id, closing, &mut ranked);
        ranked.sort_by_key(|candidate| Some(candidate.session) != first);
        ranked
    }

    fn candidate(&self, index: usize, remembers: bool, step: &Step<'_>) -> Option<Candidate> {
        let session = &self.sessions[index];
        let offer = session.offer.as_ref()?;
        Some(Candidate {
            session: index,
            contractor: session.party.agent.clone(),
            offer_id: offer.id,
            score: offer.score,
            last_win: if remembers { step.winners.last_win(&session.party.agent) } else { None },
        })
    }

    /// What each offer is paid at its rank: winners against the best offer that wins nothing, runners-up against the next
    /// in rank.
    fn set_payments(&mut self, ranked: &[Candidate], winners: usize) {
        let pinned = std::sync::Arc::clone(&self.pinned);
        for (rank, candidate) in ranked.iter().enumerate() {
            let rival = if rank < winners { winners } else { rank + 1 };
            let losing = ranked[rival.min(ranked.len())..].iter().map(|rival| rival.score).max();
            let Some(offer) = self.sessions[candidate.session].offer.as_mut() else { continue };
            offer.payment = match pinned.policy.payment {
                Payment::FirstPrice => offer.price,
                Payment::SecondPrice => {
                    let terms = terms_of(offer);
                    offer.price.map(|own| payment::payment(&pinned.policy, &terms, own, losing))
                }
            };
        }
    }

    /// Makes the decision record and remembers its digest.
    fn decision(
        &mut self,
        ranked: &[Candidate],
        placements: &[(usize, usize)],
        cause: Cause,
        step: &mut Step<'_>,
    ) -> Digest {
        let Some(close) = self.close else { return self.chain };
        let awards = (1..)
            .zip(placements)
            .filter_map(|(nth, &(lot, session))| {
                let offer_id = self.sessions[session].offer.as_ref()?.id;
                Some(Placement { lot: lot_number(lot), award_no: AwardNo(self.awards + nth), offer_id })
            })
            .collect();
        let decision = Decision {
            negotiation: self.id.clone(),
            policy: self.pinned.digest,
            round: self.round,
            position: step.position,
            at: step.now,
            cause,
            closed: close.reason,
            complete: close.complete,
            responded: close.responded,
            expected: close.expected,
            offers: ranked.iter().filter_map(|candidate| self.ranked_offer(candidate)).collect(),
            awards,
            chain: self.chain,
            previous: close.decision,
        };
        let digest = decision.digest();
        self.close = Some(crate::negotiation::CloseFacts { decision: Some(digest), ..close });
        step.event(Event::Decided(std::sync::Arc::new(decision)));
        digest
    }

    fn ranked_offer(&self, candidate: &Candidate) -> Option<RankedOffer> {
        let offer = self.sessions[candidate.session].offer.as_ref()?;
        Some(RankedOffer {
            offer_id: offer.id,
            contractor: candidate.contractor.clone(),
            terms: Digest::of_bytes(offer.terms.as_bytes()),
            score: offer.score,
            price: offer.price,
            payment: offer.payment,
            valid_until: (offer.valid_until != Timestamp::MAX).then_some(offer.valid_until),
            last_win: candidate.last_win,
        })
    }

    /// Registers one award and accepts its offer. Without `require_confirm` it is committed at once.
    fn award(&mut self, lot: usize, session: usize, decision: Digest, step: &mut Step<'_>) {
        self.check_award(lot, session, step);
        let Some(offer) = self.sessions[session].offer.as_ref() else { return };
        let offer_id = offer.id;
        self.awards += 1;
        let award_no = AwardNo(self.awards);
        let before = self.lots[lot].registered.map(|(earlier, _)| self.end_key(lot, earlier));
        let key = self.award_key(lot, award_no);
        step.register(key.clone(), RegisterValue::Award { decision, offer_id, chain: self.chain }, before);
        self.last_key = Some(key.clone());
        self.lots[lot].tries += 1;
        self.lots[lot].registered = Some((award_no, false));
        let deadline = step.clock.plus_ms(self.policy().timers_ms.confirm).min(self.ends_by);
        let binds_at_once = !self.policy().require_confirm;
        let accept = self.accept(lot, session, award_no, deadline, step);
        self.lots[lot].award = Some(LiveAward {
            award_no,
            session,
            stage: AwardStage::Awarded,
            deadline,
            accept: (accept.id, step.input),
        });
        self.set_state(session, SessionState::Awarded);
        step.winners.note(&self.sessions[session].party.agent, step.position, award_no, step.limits.winners_max);
        let after = if binds_at_once { self.register_commitment(lot, step).map(|(_, end)| end) } else { None };
        step.post(Deliver { after: after.or_else(|| Some(key.clone())), ..accept });
        self.report_award(lot, session, award_no, decision, key, step);
        if binds_at_once {
            self.bind(lot, step);
        }
    }

    /// Invariants one-award and no-late-winner, checked where they could break.
    fn check_award(&self, lot: usize, session: usize, step: &mut Step<'_>) {
        let offer = self.sessions[session].offer.as_ref();
        let is_doubled = self.lots[lot].award.is_some() || self.lot_of(session).is_some();
        let is_late = !offer.is_some_and(|offer| offer.is_valid(step.now));
        for (is_broken, invariant) in [(is_doubled, Invariant::OneAward), (is_late, Invariant::NoLateWinner)] {
            if is_broken {
                let (negotiation, offer) = (self.id.clone(), offer.map(|offer| offer.id));
                step.event(Event::InvariantViolated { negotiation, invariant, offer });
            }
        }
    }

    fn accept(
        &self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        confirm_by: Timestamp,
        step: &mut Step<'_>,
    ) -> Deliver {
        let session = &self.sessions[session];
        let offer = session.offer.as_ref().expect("only sessions with an offer are awarded");
        let told = Told::Accept(Award {
            offer_id: offer.id,
            lot: lot_number(lot),
            award_no,
            terms: terms_of(offer),
            terms_digest: Digest::of_bytes(offer.terms.as_bytes()),
            payment: offer.payment,
            confirm_by: WireTime(confirm_by),
        });
        let letter = self.letter(step, &session.party.agent, told);
        let expires = if self.policy().require_confirm { confirm_by } else { letter.expires };
        Deliver { in_reply_to: Some(offer.msg_id.clone()), expires, ..letter }
    }

    fn report_award(
        &self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        decision: Digest,
        key: RegisterKey,
        step: &mut Step<'_>,
    ) {
        let session = &self.sessions[session];
        let (Some(offer), Some(close)) = (&session.offer, self.close) else { return };
        let news = News::Awarded(AwardNews {
            offer_id: offer.id,
            contractor: session.party.agent.clone(),
            lot: lot_number(lot),
            award_no,
            terms: terms_of(offer),
            payment: offer.payment,
            score: offer.score,
            reason: close.reason,
            complete: close.complete,
            offers: close.offers,
            decision,
        });
        self.report(step, Told::Inform(news), Some(key));
    }

    /// Writes the end entry `committed` of a lot's live award; gives its number and key.
    pub(super) fn register_commitment(&mut self, lot: usize, step: &mut Step<'_>) -> Option<(AwardNo, RegisterKey)> {
        let award_no = self.lots[lot].award.as_ref()?.award_no;
        let end = self.register_end(lot, award_no, AwardEnd::Committed, step);
        Some((award_no, end))
    }

    /// Writes how an award ended, after the award itself.
    pub(super) fn register_end(
        &mut self,
        lot: usize,
        award_no: AwardNo,
        end: AwardEnd,
        step: &mut Step<'_>,
    ) -> RegisterKey {
        let key = self.end_key(lot, award_no);
        let before = self.award_key(lot, award_no);
        step.register(key.clone(), RegisterValue::AwardEnd { end, chain: self.chain }, Some(before));
        self.lots[lot].registered = Some((award_no, true));
        self.last_key = Some(key.clone());
        key
    }

    /// Row 9: the contractor is bound. Its end entry is registered already.
    pub(super) fn commit(&mut self, lot: usize, step: &mut Step<'_>) {
        self.bind(lot, step);
        self.settle(step);
    }

    fn bind(&mut self, lot: usize, step: &mut Step<'_>) {
        let perform_by = step.clock.plus_ms(self.policy().timers_ms.perform).min(self.ends_by);
        let Some(award) = self.lots[lot].award.as_mut() else { return };
        (award.stage, award.deadline) = (AwardStage::Committed, perform_by);
        let (session, award_no) = (award.session, award.award_no);
        self.set_state(session, SessionState::Committed);
        self.sessions[session].is_owed_closed = true;
        let contractor = self.sessions[session].party.agent.clone();
        let news = ContractorNews { contractor: contractor.clone(), award_no, lot: lot_number(lot), result: None };
        let after = Some(self.end_key(lot, award_no));
        self.report(step, Told::Inform(News::Committed(news)), after);
        step.event(Event::Committed {
            negotiation: self.id.clone(),
            lot: lot_number(lot),
            award_no,
            contractor,
            elapsed_us: step.now.since_us(self.started_at),
        });
    }

    /// Row 11: `T_confirm`.
    pub(crate) fn handle_confirm_timeout(&mut self, lot: usize, step: &mut Step<'_>) {
        self.lose_award(lot, AwardLoss::ConfirmTimeout, said("confirm_timeout"), step);
    }

    /// Row 15: `T_perform`.
    pub(crate) fn handle_perform_timeout(&mut self, lot: usize, step: &mut Step<'_>) {
        self.lose_award(lot, AwardLoss::PerformTimeout, said("perform_timeout"), step);
    }

    /// Rows 10, 11, 15, 18a: the award is taken back, the initiator told, the next runner-up tried.
    pub(crate) fn lose_award(&mut self, lot: usize, loss: AwardLoss, failure: Failure, step: &mut Step<'_>) {
        let Some((award_no, session)) = self.take_back(lot, loss, step) else { return };
        let state = if loss == AwardLoss::ConfirmTimeout { SessionState::Lapsed } else { SessionState::Failed };
        self.set_state(session, state);
        let contractor = self.sessions[session].party.agent.clone();
        let told = Told::Failure(ContractorFailure { contractor, award_no, failure });
        let after = Some(self.end_key(lot, award_no));
        self.report(step, told, after);
        self.award_next(lot, loss, step);
        self.settle(step);
    }

    /// Ends a live award: the register learns that it never bound, the contractor gets its CANCEL. After the contractor's
    /// own FAILURE while bound there is no CANCEL: the CLOSED at the end is then its final notice.
    pub(super) fn take_back(&mut self, lot: usize, loss: AwardLoss, step: &mut Step<'_>) -> Option<(AwardNo, usize)> {
        let award = self.lots[lot].award.take()?;
        let (award_no, session) = (award.award_no, award.session);
        // An aborted negotiation may be one whose register entry is refused: nothing may wait for it.
        if award.stage == AwardStage::Awarded && loss != AwardLoss::Aborted {
            self.register_end(lot, award_no, AwardEnd::Revoked, step);
        }
        self.past_awards.push(PastAward { award_no, session, lot });
        let contractor = self.sessions[session].party.agent.clone();
        if loss != AwardLoss::PerformFailed && award.stage != AwardStage::CancelPending {
            self.cancel_award(lot, session, award_no, loss, step);
        }
        step.event(Event::AwardLost { negotiation: self.id.clone(), lot: lot_number(lot), award_no, contractor, loss });
        Some((award_no, session))
    }

    /// CANCEL after an ACCEPT: the final notice of the award's offer.
    pub(super) fn cancel_award(
        &mut self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        loss: AwardLoss,
        step: &mut Step<'_>,
    ) {
        let reason = match loss {
            AwardLoss::ConfirmTimeout => "confirm_timeout",
            AwardLoss::PerformTimeout => "perform_timeout",
            AwardLoss::Cancelled => "cancelled",
            AwardLoss::Timeout => "timeout",
            AwardLoss::Aborted => "aborted",
            AwardLoss::Refused | AwardLoss::Failed | AwardLoss::PerformFailed | AwardLoss::Undelivered => "revoked",
        };
        let told = Told::Cancel(Cancellation { award_no, reason: reason.to_owned() });
        let letter = self.letter(step, &self.sessions[session].party.agent, told);
        let after = (loss != AwardLoss::Aborted).then(|| self.end_key(lot, award_no));
        step.post(Deliver { after, ..letter });
        let session = &mut self.sessions[session];
        self.finals += u32::from(session.offer.take().is_some());
        session.is_owed_closed = false;
    }

    /// Row 12a: the next runner-up whose offer stands long enough to be confirmed.
    fn award_next(&mut self, lot: usize, loss: AwardLoss, step: &mut Step<'_>) {
        let needed_until = step.clock.plus_ms(self.policy().timers_ms.confirm);
        while self.lots[lot].tries < self.policy().max_awards && !self.standby.is_empty() {
            let session = self.standby.remove(0);
            let stands = self.sessions[session].offer.as_ref().is_some_and(|offer| offer.is_valid(needed_until));
            if !stands {
                self.reject(session, RejectReason::Expired, SessionState::Rejected, step);
                continue;
            }
            let held: Vec<Candidate> = std::iter::once(&session)
                .chain(&self.standby)
                .filter_map(|&index| self.candidate(index, false, step))
                .collect();
            let decision = self.decision(&held, &[(lot, session)], Cause::ReAward(loss), step);
            return self.award(lot, session, decision, step);
        }
    }

    /// After every change of a lot: where the negotiation stands now (rows 12b, 12c, 14; several lots).
    pub(super) fn settle(&mut self, step: &mut Step<'_>) {
        if matches!(self.phase, Phase::Ended | Phase::Cancelling | Phase::Collecting) {
            return;
        }
        let (awarded, committed) = (self.has_stage(AwardStage::Awarded), self.has_stage(AwardStage::Committed));
        if awarded {
            return self.enter(Phase::Awarding, step);
        }
        if committed {
            if self.policy().hold_until == HoldUntil::Confirm {
                self.release_standby(step);
            }
            return self.enter(Phase::Performing, step);
        }
        if self.has_stage(AwardStage::Done) {
            return self.end(Outcome::Completed, None, step);
        }
        // 12b: everyone but those who failed or lapsed is called again.
        let called: Vec<usize> = (0..self.sessions.len())
            .filter(|&index| {
                let state = self.sessions[index].state;
                !matches!(state, SessionState::Failed | SessionState::Lapsed | SessionState::Excluded)
            })
            .collect();
        if !self.begin_round(&called, step) {
            self.end(Outcome::NoCandidate, None, step);
        }
    }

    /// Row 9: the runners-up are let go.
    fn release_standby(&mut self, step: &mut Step<'_>) {
        for index in std::mem::take(&mut self.standby) {
            self.reject(index, RejectReason::Awarded, SessionState::Rejected, step);
        }
    }
}
