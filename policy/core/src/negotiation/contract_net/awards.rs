//! The awards of a contract net. One is live per lot at most; each is registered before its ACCEPT leaves, its end before
//! the lot's next award.

use schemas::register::AwardEnd;
use schemas::{AwardNo, DeliveryId, Digest, DocumentHash, Lot, OfferId, RegisterKey, RegisterValue, Timestamp};
use serde::{Deserialize, Serialize};

use super::session::ContractorSession;
use super::{CANCEL, CONFIRM, PERFORM};
use crate::acceptance::decision::AwardLoss;
use crate::negotiation::Header;
use crate::negotiation::InputContext;
use crate::negotiation::lazy_box::HasEmpty;
use crate::negotiation::protocols::Timer;
use crate::negotiation::tombstone::PastAward;
use crate::negotiation::view::AwardView;

/// The lots, the live award of each, and the awards that were taken back.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Awards {
    lots: Vec<LotState>,
    /// Awards made so far, over all lots and rounds: the number of the last.
    made: u32,
    revoked: Vec<RevokedAward>,
    /// The last key written, which the end's entry follows.
    last_key: Option<RegisterKey>,
    /// When contractors that were asked to stop must have answered.
    cancel_by: Option<Timestamp>,
}

/// One lot.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct LotState {
    /// ACCEPTs sent so far.
    tries: u32,
    /// The award that is live or was completed.
    award: Option<LiveAward>,
    /// The last award's number and whether its end is registered.
    registered: Option<(AwardNo, bool)>,
}

/// An award that has not been taken back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LiveAward {
    pub(super) award_no: AwardNo,
    pub(super) session: usize,
    pub(super) stage: AwardStage,
    /// `confirm_by`, then `perform_by`.
    pub(super) deadline: Timestamp,
    /// The ACCEPT's delivery, and the lane's input count when it was made.
    pub(super) accept: (DeliveryId, u64),
    /// The protocol document it pins; an INFORM names no other.
    pub(super) document: Option<DocumentHash>,
}

/// How far a live award has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum AwardStage {
    /// Waits for CONFIRM.
    Awarded,
    /// Bound.
    Committed,
    /// Performed.
    Done,
    /// Called off; waits for the contractor's answer.
    CancelPending,
}

/// An award that was taken back: a CONFIRM for it is answered `revoked`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct RevokedAward {
    award_no: AwardNo,
    session: usize,
    lot: usize,
}

impl HasEmpty for Awards {
    fn empty() -> &'static Self {
        static EMPTY: Awards =
            Awards { lots: Vec::new(), made: 0, revoked: Vec::new(), last_key: None, cancel_by: None };
        &EMPTY
    }

    fn is_empty(&self) -> bool {
        let Self { lots, made, revoked, last_key, cancel_by } = self;
        lots.is_empty() && *made == 0 && revoked.is_empty() && last_key.is_none() && cancel_by.is_none()
    }
}

impl Awards {
    pub(super) fn made(&self) -> u32 {
        self.made
    }

    /// Makes the lots at the first award; their counts of tries survive a new round.
    pub(super) fn ensure_lots(&mut self, lots: u32) -> usize {
        self.lots.resize_with(usize::try_from(lots).unwrap_or(usize::MAX), LotState::default);
        self.lots.len()
    }

    pub(super) fn lots(&self) -> usize {
        self.lots.len()
    }

    /// ACCEPTs sent for a lot so far.
    pub(super) fn tries(&self, lot: usize) -> u32 {
        self.lots[lot].tries
    }

    /// No lot has an award any longer: another round begins.
    pub(super) fn reset_round(&mut self) {
        self.lots.iter_mut().for_each(|lot| lot.award = None);
    }

    pub(super) fn live(&self, lot: usize) -> Option<&LiveAward> {
        self.lots[lot].award.as_ref()
    }

    /// The lot a session has a live award for, and the award.
    pub(super) fn of_session(&self, session: usize) -> Option<(usize, &LiveAward)> {
        let awards = self.lots.iter().enumerate().filter_map(|(lot, state)| Some((lot, state.award.as_ref()?)));
        awards.into_iter().find(|(_, award)| award.session == session)
    }

    /// The lot an award, live or taken back, is or was for.
    pub(super) fn lot_of(&self, award_no: AwardNo) -> Option<usize> {
        let is_it = |award: &LiveAward| award.award_no == award_no;
        let live = self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(is_it));
        live.or_else(|| self.revoked.iter().find(|past| past.award_no == award_no).map(|past| past.lot))
    }

    /// The session of a live award at this stage.
    pub(super) fn session_at(&self, stage: AwardStage) -> Option<usize> {
        let awards = self.lots.iter().filter_map(|lot| lot.award.as_ref());
        awards.into_iter().find(|award| award.stage == stage).map(|award| award.session)
    }

    /// The lot of an award that is committed.
    pub(super) fn committed_lot(&self, award_no: AwardNo) -> Option<usize> {
        let is_it = |award: &LiveAward| award.award_no == award_no && award.stage == AwardStage::Committed;
        self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(is_it))
    }

    /// The session that an award binds: one that is committed, or was when it was called off.
    pub(super) fn bound_session(&self) -> Option<usize> {
        let is_bound = |award: &&LiveAward| match award.stage {
            AwardStage::Committed => true,
            AwardStage::CancelPending => !self.is_revoked(award.award_no, award.session),
            AwardStage::Awarded | AwardStage::Done => false,
        };
        self.lots.iter().filter_map(|lot| lot.award.as_ref()).find(is_bound).map(|award| award.session)
    }

    pub(super) fn has_stage(&self, stage: AwardStage) -> bool {
        self.lots.iter().any(|lot| lot.award.as_ref().is_some_and(|award| award.stage == stage))
    }

    pub(super) fn is_revoked(&self, award_no: AwardNo, session: usize) -> bool {
        self.revoked.iter().any(|past| past.award_no == award_no && past.session == session)
    }

    pub(super) fn timers(&self) -> impl Iterator<Item = Timer> {
        let lots = (0..).zip(&self.lots).filter_map(|(index, lot)| {
            let award = lot.award.as_ref()?;
            match award.stage {
                AwardStage::Awarded => Some((award.deadline, CONFIRM.of_lot(index))),
                AwardStage::Committed => Some((award.deadline, PERFORM.of_lot(index))),
                AwardStage::Done | AwardStage::CancelPending => None,
            }
        });
        lots.chain(self.cancel_by.map(|at| (at, CANCEL)))
    }

    /// Registers the next award of a lot, after what is registered of the one before.
    pub(super) fn register(
        &mut self,
        lot: usize,
        offer_id: OfferId,
        decision: Digest,
        header: &Header,
        context: &mut InputContext<'_>,
    ) -> (AwardNo, RegisterKey) {
        self.made += 1;
        let award_no = AwardNo(self.made);
        let state = &mut self.lots[lot];
        debug_assert!(state.registered.is_none_or(|(_, has_ended)| has_ended), "an award before the last one's end");
        let before = state.registered.map(|(earlier, _)| end_key(header, lot, earlier));
        let key = award_key(header, lot, award_no);
        let value = RegisterValue::Award { decision, offer_id, chain: header.chain };
        context.register(key.clone(), value, before);
        state.tries += 1;
        state.registered = Some((award_no, false));
        self.last_key = Some(key.clone());
        (award_no, key)
    }

    /// Registers how an award ended, after the award itself.
    fn register_end(
        &mut self,
        lot: usize,
        award_no: AwardNo,
        end: AwardEnd,
        header: &Header,
        context: &mut InputContext<'_>,
    ) -> RegisterKey {
        let key = end_key(header, lot, award_no);
        let value = RegisterValue::AwardEnd { end, chain: header.chain };
        context.register(key.clone(), value, Some(award_key(header, lot, award_no)));
        self.lots[lot].registered = Some((award_no, true));
        self.last_key = Some(key.clone());
        key
    }

    /// Registers that a lot's live award is committed; gives its number and key.
    pub(super) fn register_commitment(
        &mut self,
        lot: usize,
        header: &Header,
        context: &mut InputContext<'_>,
    ) -> Option<(AwardNo, RegisterKey)> {
        let award_no = self.live(lot)?.award_no;
        Some((award_no, self.register_end(lot, award_no, AwardEnd::Committed, header, context)))
    }

    /// An award is live: its ACCEPT has been made.
    pub(super) fn begin(&mut self, lot: usize, award: LiveAward) {
        debug_assert!(self.lots[lot].award.is_none(), "a lot has one live award");
        self.lots[lot].award = Some(award);
    }

    /// A live award is bound; gives its number and session.
    pub(super) fn bind(&mut self, lot: usize, perform_by: Timestamp) -> Option<(AwardNo, usize)> {
        let award = self.lots[lot].award.as_mut()?;
        debug_assert_eq!(award.stage, AwardStage::Awarded, "only an award that waits for its CONFIRM is bound");
        (award.stage, award.deadline) = (AwardStage::Committed, perform_by);
        Some((award.award_no, award.session))
    }

    /// The work for a lot is done; gives the award's session.
    pub(super) fn finish(&mut self, lot: usize) -> Option<usize> {
        let award = self.lots[lot].award.as_mut()?;
        debug_assert_eq!(award.stage, AwardStage::Committed, "only a bound contractor performs");
        award.stage = AwardStage::Done;
        Some(award.session)
    }

    /// The contractor of a lot that was called off has answered.
    pub(super) fn drop_called_off(&mut self, lot: usize) {
        let award = self.lots[lot].award.take();
        debug_assert!(award.is_none_or(|award| award.stage == AwardStage::CancelPending), "it was not called off");
    }

    /// Contractors that were asked to stop have until then to answer.
    pub(super) fn wait_until(&mut self, cancel_by: Timestamp) {
        self.cancel_by = Some(cancel_by);
    }

    /// Takes a live award back; gives it as it was.
    pub(super) fn revoke(
        &mut self,
        lot: usize,
        loss: AwardLoss,
        header: &Header,
        context: &mut InputContext<'_>,
    ) -> Option<LiveAward> {
        let award = self.lots[lot].award.take()?;
        // An aborted negotiation may be one whose register entry is refused: nothing may wait for it.
        if award.stage == AwardStage::Awarded && loss != AwardLoss::Aborted {
            self.register_end(lot, award.award_no, AwardEnd::Revoked, header, context);
        }
        // One that was called off before it bound is taken back already.
        if !self.is_revoked(award.award_no, award.session) {
            self.revoked.push(RevokedAward { award_no: award.award_no, session: award.session, lot });
        }
        Some(award)
    }

    /// A live award is called off, unless it is done or called off already; gives its number and session.
    pub(super) fn call_off(
        &mut self,
        lot: usize,
        header: &Header,
        context: &mut InputContext<'_>,
    ) -> Option<(AwardNo, usize)> {
        let award = self.lots[lot].award.as_mut()?;
        let (award_no, session) = (award.award_no, award.session);
        match std::mem::replace(&mut award.stage, AwardStage::CancelPending) {
            AwardStage::Done => {
                award.stage = AwardStage::Done;
                return None;
            }
            AwardStage::CancelPending => return None,
            AwardStage::Awarded => {
                self.register_end(lot, award_no, AwardEnd::Revoked, header, context);
                self.revoked.push(RevokedAward { award_no, session, lot });
            }
            AwardStage::Committed => {}
        }
        Some((award_no, session))
    }

    /// The key the end's entry follows.
    pub(super) fn take_last_key(&mut self) -> Option<RegisterKey> {
        self.last_key.take()
    }

    /// The awards of one session, or of all, each once: one that was called off stands with those that are live until its
    /// contractor has answered.
    pub(super) fn shown(&self, sessions: &[ContractorSession], of: Option<usize>) -> Vec<AwardView> {
        let shown = |award_no, lot, session: usize, state, document| {
            let contractor = sessions[session].party.agent.clone();
            let award = AwardView { award_no, lot: Some(lot_number(lot)), contractor, state, document };
            of.is_none_or(|of| of == session).then_some(award)
        };
        let is_over = |past: &&RevokedAward| {
            self.of_session(past.session).is_none_or(|(_, award)| award.award_no != past.award_no)
        };
        let past = self.revoked.iter().filter(is_over);
        let past = past.filter_map(|past| shown(past.award_no, past.lot, past.session, "revoked", None));
        let live = self.lots.iter().enumerate().filter_map(|(lot, state)| {
            let LiveAward { award_no, session, stage, document, .. } = *state.award.as_ref()?;
            shown(award_no, lot, session, stage.into(), document)
        });
        let mut awards: Vec<_> = past.chain(live).collect();
        awards.sort_by_key(|award| award.award_no);
        awards
    }

    /// What is remembered of the awards after the end.
    pub(super) fn past(&self) -> Box<[PastAward]> {
        let party = |session: usize| u16::try_from(session + 1).expect("fewer contractors than parties are numbered");
        let past = |award_no, session, is_revoked| PastAward { award_no, party: party(session), is_revoked };
        let kept = self.lots.iter().filter_map(|lot| lot.award.as_ref());
        let kept = kept.filter(|award| award.stage == AwardStage::Done);
        let revoked = self.revoked.iter().map(|award| past(award.award_no, award.session, true));
        revoked.chain(kept.map(|award| past(award.award_no, award.session, false))).collect()
    }

    /// What is wrong with awards that were read from a snapshot.
    pub(super) fn check(&self, sessions: usize, lots_max: usize) -> Result<(), &'static str> {
        let is_known = |past: &RevokedAward| past.session < sessions && past.lot < self.lots.len();
        if self.lots.len() > lots_max {
            Err("a negotiation has too many lots")
        } else if self.lots.iter().filter_map(|lot| lot.award.as_ref()).any(|award| award.session >= sessions) {
            Err("an award is nobody's")
        } else if !self.revoked.iter().all(is_known) {
            Err("a past award is nobody's")
        } else {
            Ok(())
        }
    }

    /// Room that holds no award.
    #[cfg(test)]
    pub(super) fn spare(&self) -> usize {
        self.lots.capacity() - self.lots.len() + self.revoked.capacity() - self.revoked.len()
    }
}

fn award_key(header: &Header, lot: usize, award_no: AwardNo) -> RegisterKey {
    RegisterKey::Award(header.id.clone(), lot_number(lot), award_no)
}

pub(super) fn end_key(header: &Header, lot: usize, award_no: AwardNo) -> RegisterKey {
    RegisterKey::AwardEnd(header.id.clone(), lot_number(lot), award_no)
}

/// The number of a lot. Policies have at most [`schemas::policy::STEPS_MAX`] of them.
pub(super) fn lot_number(index: usize) -> Lot {
    Lot(u32::try_from(index).expect("a policy has few lots"))
}
