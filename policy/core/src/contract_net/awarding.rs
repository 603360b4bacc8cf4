//! AWARDING: ACCEPT and CONFIRM. Every award is registered before its ACCEPT leaves, and its end before
//! `committed` does.

use schemas::delivery::{Award, AwardReport, ContractorReport, Notification, ProgressReport};
use schemas::register::AwardEnd;
use schemas::{AwardNo, Digest, RegisterKey, RegisterValue, Timestamp, WireTime};

use crate::contract_net::deciding::terms_of;
use crate::contract_net::state::SessionState;
use crate::contract_net::{ContractNet, lot_number};
use crate::effect::{Deliver, Event, Invariant};
use crate::negotiation::context::InputContext;
use crate::negotiation::party::{AwardStage, LiveAward};

impl ContractNet {
    /// Registers one award and accepts its offer. Without `require_confirm` it is committed at once.
    pub(super) fn award(&mut self, lot: usize, session: usize, decision: Digest, context: &mut InputContext<'_>) {
        self.check_award(lot, session, context);
        let Some(offer) = self.sessions[session].offer.as_ref() else { return };
        let offer_id = offer.id;
        self.awards += 1;
        let award_no = AwardNo(self.awards);
        let before = self.lots[lot].registered.map(|(earlier, _)| self.end_key(lot, earlier));
        let key = self.award_key(lot, award_no);
        context.register(key.clone(), RegisterValue::Award { decision, offer_id, chain: self.header.chain }, before);
        self.last_key = Some(key.clone());
        self.lots[lot].tries += 1;
        self.lots[lot].registered = Some((award_no, false));
        let deadline = context.clock.plus_ms(self.policy().timers_ms.confirm).min(self.header.ends_by);
        let binds_at_once = !self.policy().require_confirm;
        let accept = self.accept(lot, session, award_no, deadline, context);
        self.lots[lot].award = Some(LiveAward {
            award_no,
            session,
            stage: AwardStage::Awarded,
            deadline,
            accept: (accept.id, context.input),
        });
        self.set_state(session, SessionState::Awarded);
        context.winners.note(
            &self.sessions[session].party.agent,
            context.position,
            award_no,
            context.limits.winners_max,
        );
        let after = if binds_at_once { self.register_commitment(lot, context).map(|(_, end)| end) } else { None };
        context.deliver(Deliver { after: after.or_else(|| Some(key.clone())), ..accept });
        self.report_award(lot, session, award_no, decision, key, context);
        if binds_at_once {
            self.bind(lot, context);
        }
    }

    /// Invariants one-award and no-late-winner, checked where they could break.
    fn check_award(&self, lot: usize, session: usize, context: &mut InputContext<'_>) {
        let offer = self.sessions[session].offer.as_ref();
        let is_doubled = self.lots[lot].award.is_some() || self.lot_of(session).is_some();
        let is_late = !offer.is_some_and(|offer| offer.is_valid(context.now));
        for (is_broken, invariant) in [(is_doubled, Invariant::OneAward), (is_late, Invariant::NoLateWinner)] {
            if is_broken {
                let (negotiation, offer) = (self.header.id.clone(), offer.map(|offer| offer.id));
                context.event(Event::InvariantViolated { negotiation, invariant, offer });
            }
        }
    }

    fn accept(
        &self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        confirm_by: Timestamp,
        context: &mut InputContext<'_>,
    ) -> Deliver {
        let session = &self.sessions[session];
        let offer = session.offer.as_ref().expect("only sessions with an offer are awarded");
        let told = Notification::Accept(Award {
            offer_id: offer.id,
            lot: lot_number(lot),
            award_no,
            terms: terms_of(offer),
            terms_digest: Digest::of_bytes(offer.terms.as_bytes()),
            payment: offer.payment,
            confirm_by: WireTime(confirm_by),
        });
        let delivery = self.header.delivery(context, &session.party.agent, told);
        let expires = if self.policy().require_confirm { confirm_by } else { delivery.expires };
        Deliver { in_reply_to: Some(offer.msg_id.clone()), expires, ..delivery }
    }

    fn report_award(
        &self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        decision: Digest,
        key: RegisterKey,
        context: &mut InputContext<'_>,
    ) {
        let session = &self.sessions[session];
        let (Some(offer), Some(close)) = (&session.offer, self.close) else { return };
        let news = ProgressReport::Awarded(AwardReport {
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
        self.report(context, Notification::Inform(news), Some(key));
    }

    /// Writes the end entry `committed` of a lot's live award; gives its number and key.
    pub(super) fn register_commitment(
        &mut self,
        lot: usize,
        context: &mut InputContext<'_>,
    ) -> Option<(AwardNo, RegisterKey)> {
        let award_no = self.lots[lot].award.as_ref()?.award_no;
        let end = self.register_end(lot, award_no, AwardEnd::Committed, context);
        Some((award_no, end))
    }

    /// Writes how an award ended, after the award itself.
    pub(super) fn register_end(
        &mut self,
        lot: usize,
        award_no: AwardNo,
        end: AwardEnd,
        context: &mut InputContext<'_>,
    ) -> RegisterKey {
        let key = self.end_key(lot, award_no);
        let before = self.award_key(lot, award_no);
        context.register(key.clone(), RegisterValue::AwardEnd { end, chain: self.header.chain }, Some(before));
        self.lots[lot].registered = Some((award_no, true));
        self.last_key = Some(key.clone());
        key
    }

    /// The contractor is bound (docs/spec/contract-net.md#cn-41). Its end entry is registered already.
    pub(super) fn commit(&mut self, lot: usize, context: &mut InputContext<'_>) {
        self.bind(lot, context);
        self.settle(context);
    }

    fn bind(&mut self, lot: usize, context: &mut InputContext<'_>) {
        let perform_by = context.clock.plus_ms(self.policy().timers_ms.perform).min(self.header.ends_by);
        let Some(award) = self.lots[lot].award.as_mut() else { return };
        (award.stage, award.deadline) = (AwardStage::Committed, perform_by);
        let (session, award_no) = (award.session, award.award_no);
        self.set_state(session, SessionState::Committed);
        self.sessions[session].is_owed_closed = true;
        let contractor = self.sessions[session].party.agent.clone();
        let news = ContractorReport { contractor: contractor.clone(), award_no, lot: lot_number(lot), result: None };
        let after = Some(self.end_key(lot, award_no));
        self.report(context, Notification::Inform(ProgressReport::Committed(news)), after);
        context.event(Event::Committed {
            negotiation: self.header.id.clone(),
            lot: lot_number(lot),
            award_no,
            contractor,
            elapsed_us: context.now.since_us(self.header.started_at),
        });
    }
}
