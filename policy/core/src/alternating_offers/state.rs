//! The state of one bargain, and what is read off it.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use schemas::bargain::{BargainRule, BargainSpec, MESSAGES_SPARE, Mandate, Predicate, ROUNDS_MAX};
use schemas::delivery::{self, Agreement};
use schemas::payload::Terms;
use schemas::{AgentId, AwardNo, Digest, Lot, OfferId, RegisterKey, Timestamp, WireTime};

use super::mandate::{self, relative_time_ppm};
use super::space::{OutcomeSpace, SpaceFault};
use crate::negotiation::header::Header;
use crate::negotiation::party::{DIGEST_KEPT, Party};
use crate::negotiation::phase::{Phase, Timer, TimerKind};
use crate::negotiation::tombstone::BargainEnd;

/// The award of a bargain: there is one.
pub(crate) const AWARD: AwardNo = AwardNo(1);

/// One open bargain.
#[derive(Debug)]
pub(crate) struct Bargain {
    pub(crate) header: Header,
    pub(crate) rules: Box<BargainSpec>,
    /// Currency of prices; offers may repeat it, and name no other.
    pub(crate) currency: Option<Box<str>>,
    /// In the order of their turns: the initiator, then the invited in the order of their ids.
    pub(crate) parties: Vec<BargainParty>,
    /// [`Phase::Joining`], [`Phase::Bargaining`], [`Phase::Confirming`] or [`Phase::Ended`].
    pub(crate) phase: Phase,
    /// Everybody must have joined by then.
    pub(crate) join_by: Timestamp,
    /// Log time of the first turn; of the call before it.
    pub(crate) began_at: Timestamp,
    /// Turns taken.
    pub(crate) steps: u32,
    /// The turn must be taken by then, whatever the deadline of the bargain.
    pub(crate) turn_by: Timestamp,
    pub(crate) standing: Option<Box<StandingOffer>>,
    /// The offer that stood last, where its validity ran out and none stands since.
    pub(crate) lapsed: Option<OfferId>,
    pub(crate) confirm_by: Timestamp,
    /// Offers with disposition `ok`.
    pub(crate) offers: u32,
    /// How it ended. Open bargains, which snapshots hold, have none.
    pub(crate) ended: Option<BargainEnd>,
}

/// One party.
#[derive(Debug)]
pub(crate) struct BargainParty {
    pub(crate) party: Party,
    pub(crate) has_joined: bool,
    pub(crate) has_confirmed: bool,
    pub(crate) strikes: u32,
    pub(crate) pledge: Option<Sealed<Pledge>>,
    /// Under `forbid_repeat`: digests of the terms it has offered and nobody has accepted. At most one per message of a
    /// party, of which there is a bound.
    pub(crate) offered: BTreeSet<[u8; DIGEST_KEPT]>,
}

/// What a party is bound to. Shown to nobody.
#[derive(Debug)]
pub(crate) struct Pledge {
    pub(crate) mandate: Box<Mandate>,
    /// How its policy accepts for it.
    pub(crate) rule: Option<BargainRule>,
    /// Its best outcome's utility. Follows from the mandate.
    pub(crate) best: u32,
    /// Where `rule` looks back: the best that others offered at each moment, as (relative time, utility), oldest first.
    pub(crate) window: VecDeque<(u32, u32)>,
}

/// Something no `Debug` output may show.
pub(crate) struct Sealed<T>(pub(crate) T);

impl<T> fmt::Debug for Sealed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed")
    }
}

/// The standing offer.
#[derive(Debug)]
pub(crate) struct StandingOffer {
    pub(crate) id: OfferId,
    /// Index of its proposer.
    pub(crate) by: usize,
    pub(crate) terms: Terms,
    pub(crate) digest: Digest,
    pub(crate) valid_from: Option<Timestamp>,
    /// [`Timestamp::MAX`] when it stands until it is replaced.
    pub(crate) valid_until: Timestamp,
    pub(crate) conditions: Vec<Predicate>,
    /// Who has accepted it, in the order they did.
    pub(crate) accepted: Vec<usize>,
}

impl BargainParty {
    pub(crate) fn new(agent: AgentId) -> Self {
        Self {
            party: Party::new(agent),
            has_joined: false,
            has_confirmed: false,
            strikes: 0,
            pledge: None,
            offered: BTreeSet::new(),
        }
    }

    /// Whether terms are inside its mandate, if it has one.
    pub(crate) fn allows(&self, space: OutcomeSpace<'_>, terms: &Terms) -> Result<(), SpaceFault> {
        self.pledge.as_ref().map_or(Ok(()), |Sealed(pledge)| mandate::inside(&pledge.mandate, space, terms))
    }
}

impl Bargain {
    pub(crate) fn space(&self) -> OutcomeSpace<'_> {
        OutcomeSpace::of_checked(&self.rules.issues)
    }

    /// The index of an agent.
    pub(crate) fn index_of(&self, agent: &AgentId) -> Option<usize> {
        if self.parties.first().is_some_and(|initiator| initiator.party.agent == *agent) {
            return Some(0);
        }
        let invited = self.parties.get(1..)?;
        invited.binary_search_by(|one| one.party.agent.cmp(agent)).ok().map(|index| index + 1)
    }

    pub(crate) fn agent(&self, index: usize) -> &AgentId {
        &self.parties[index].party.agent
    }

    /// Messages of one party that are remembered.
    pub(crate) fn messages_kept(&self) -> usize {
        let rounds = self.rules.rounds.unwrap_or(ROUNDS_MAX);
        usize::try_from(rounds).unwrap_or(usize::MAX).saturating_add(MESSAGES_SPARE)
    }

    /// Whose turn it is.
    pub(crate) fn turn(&self) -> usize {
        usize::try_from(self.steps).unwrap_or(usize::MAX) % self.parties.len().max(1)
    }

    /// The round, counted from 1.
    pub(crate) fn round(&self) -> u32 {
        let parties = u32::try_from(self.parties.len().max(1)).unwrap_or(u32::MAX);
        self.steps / parties + 1
    }

    /// Rounds in which a turn was begun: 0 while joining. What was agreed on, or ended, in the last turn of a round did not
    /// begin another.
    pub(crate) fn rounds_begun(&self) -> u32 {
        let parties = u32::try_from(self.parties.len().max(1)).unwrap_or(u32::MAX);
        if !self.parties.iter().all(|party| party.has_joined) {
            0
        } else if self.is_agreed() {
            self.steps.saturating_sub(1) / parties + 1
        } else {
            self.rules.rounds.map_or(self.round(), |rounds| self.round().min(rounds))
        }
    }

    /// Whether everybody but its proposer has accepted the standing offer.
    pub(crate) fn is_agreed(&self) -> bool {
        self.standing.as_ref().is_some_and(|standing| standing.accepted.len() + 1 >= self.parties.len())
    }

    /// When the rules' deadline is; absent without one, and before the first turn.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let deadline_ms = self.rules.deadline_ms.filter(|_| self.phase == Phase::Bargaining)?;
        Some(self.began_at.plus_ms(deadline_ms))
    }

    pub(crate) fn t_ppm(&self, now: Timestamp) -> u32 {
        relative_time_ppm(&self.rules, self.round(), now.since_us(self.began_at))
    }

    /// When the turn is over: its own time, or the bargain's.
    pub(crate) fn act_by(&self) -> Timestamp {
        let bounds = [Some(self.turn_by), self.deadline(), Some(self.header.ends_by)];
        bounds.into_iter().flatten().min().unwrap_or(self.turn_by)
    }

    /// The timer that is due first.
    pub(crate) fn next_timer(&self) -> Option<Timer> {
        let hard = Some((self.header.ends_by, TimerKind::Hard));
        let others = match self.phase {
            Phase::Joining => [Some((self.join_by, TimerKind::Join)), None, None],
            Phase::Bargaining => {
                let standing = self.standing.as_ref().map(|standing| standing.valid_until);
                let standing = standing.filter(|until| *until < Timestamp::MAX);
                [
                    self.deadline().map(|deadline| (deadline, TimerKind::Deadline)),
                    Some((self.turn_by, TimerKind::Turn)),
                    standing.map(|until| (until, TimerKind::Standing)),
                ]
            }
            Phase::Confirming => [Some((self.confirm_by, TimerKind::Agreement)), None, None],
            Phase::Ended
            | Phase::Collecting
            | Phase::Deciding
            | Phase::Awarding
            | Phase::Performing
            | Phase::Cancelling => return None,
        };
        hard.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// The standing offer as parties are told it.
    pub(crate) fn standing_told(&self) -> Option<delivery::Standing> {
        let standing = self.standing.as_deref()?;
        Some(delivery::Standing {
            offer_id: standing.id,
            by: self.agent(standing.by).clone(),
            terms: standing.terms.clone(),
            terms_digest: standing.digest,
            valid_from: standing.valid_from.map(WireTime),
            valid_until: Some(standing.valid_until).filter(|until| *until < Timestamp::MAX).map(WireTime),
            conditions: standing.conditions.clone(),
            accepted_by: standing.accepted.iter().map(|index| self.agent(*index).clone()).collect(),
        })
    }

    /// How it stands, as parties are told.
    pub(crate) fn turn_told(&self, now: Timestamp) -> delivery::Turn {
        delivery::Turn {
            party: self.agent(self.turn()).clone(),
            round: self.round(),
            step: self.steps,
            act_by: WireTime(self.act_by()),
            ends_by: WireTime(self.header.ends_by),
            t_ppm: self.t_ppm(now),
            standing: self.standing_told(),
        }
    }

    /// What was agreed on: the standing offer, once everybody has accepted it.
    pub(crate) fn agreement(&self) -> Option<Agreement> {
        let standing = self.standing.as_deref()?;
        Some(Agreement {
            offer_id: standing.id,
            by: self.agent(standing.by).clone(),
            terms: standing.terms.clone(),
            terms_digest: standing.digest,
            round: self.rounds_begun(),
            step: self.steps,
        })
    }

    pub(crate) fn agreement_key(&self) -> RegisterKey {
        RegisterKey::Award(self.header.id.clone(), Lot(0), AWARD)
    }
}
