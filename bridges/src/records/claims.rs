//! What a record says, and how it follows from what an archive holds of a negotiation that ended.

use archive::Closed;
use schemas::delivery::{Agreement, AwardReport, Notification, ProgressReport};
use schemas::digest::canonical;
use schemas::ids::FamilyPlace;
use schemas::payload::{Currency, Terms};
use schemas::{
    AgentId, AwardNo, Digest, Lane, Lot, NegotiationId, OfferId, Position, RegisterKey, RegisterValue, Timestamp,
    WireTime,
};
use serde::{Deserialize, Serialize};

use super::RECORD_VERSION;

schemas::words! {
    /// What was decided.
    pub enum RecordKind {
        /// An award of a contract net, a task of a team among them.
        Award,
        /// The agreement of a bargain.
        Agreement,
    }
}

schemas::words! {
    /// How it ended.
    pub enum RecordState {
        /// The work was reported done; of an agreement: it was made.
        Done,
        /// It was taken back, or ended before its work was reported done.
        Revoked,
    }
}

/// The claims of a record (`award_record.json`). Members stand in the order of RFC 8785.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwardRecord {
    /// The number of the award in its negotiation, from 1.
    pub award_no: AwardNo,
    /// When it was decided, log time.
    pub awarded_at: WireTime,
    /// Of an agreement: whose offer it was.
    pub by: Option<AgentId>,
    /// Head of the negotiation's hash chain when it was decided, as registered.
    pub chain: Digest,
    /// When the negotiation ended, log time.
    pub closed_at: WireTime,
    /// Of an award: whose offer it was.
    pub contractor: Option<AgentId>,
    /// Currency of its prices: the offer's, else the call's.
    pub currency: Option<Currency>,
    /// Of an award: digest of the decision record, as registered.
    pub decision: Option<Digest>,
    /// The end in whole seconds since 1970: `closed_at`, rounded down.
    pub iat: u64,
    /// Who called; of a team's task, who assigned it.
    pub initiator: AgentId,
    /// Who signs, as export was told.
    pub iss: String,
    /// `<negotiation>/<lot>/<award_no>`.
    pub jti: String,
    /// The lane of the log.
    pub lane: Lane,
    /// The lot, from 0.
    pub lot: Lot,
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The offer, by its place in the lane.
    pub offer_id: OfferId,
    /// How the negotiation ended: a word of [`Outcome`](schemas::delivery::Outcome), or of a later version.
    pub outcome: String,
    /// Of an agreement: everybody bound, in the order of their turns.
    pub parties: Option<Vec<AgentId>>,
    /// Of an award: what is paid, in micro-units, where the terms have a price.
    pub payment: Option<i64>,
    /// Of an award: the policy that decided.
    pub policy: Option<String>,
    /// Of an award: digest of that policy's document.
    pub policy_digest: Option<Digest>,
    /// What was decided.
    pub record: RecordKind,
    /// Of an agreement: the round of the last acceptance, from 1.
    pub round: Option<u32>,
    /// How it ended: a [`RecordState`], or a word of a later version, which means "not done".
    pub state: String,
    /// Of an agreement: turns taken, the last acceptance included.
    pub step: Option<u32>,
    /// The terms.
    pub terms: Terms,
    /// Digest of the terms.
    pub terms_digest: Digest,
    /// Version of these claims: 1.
    pub v: u32,
}

impl AwardRecord {
    /// The payload that is signed: RFC 8785.
    pub fn canonical(&self) -> Vec<u8> {
        canonical(self).expect("integers, texts and digests always have a canonical form")
    }

    /// Whether an agent called, offered or is bound.
    pub fn concerns(&self, agent: &AgentId) -> bool {
        let others = self.contractor.iter().chain(self.parties.iter().flatten());
        self.initiator == *agent || others.into_iter().any(|other| other == agent)
    }
}

/// The records of one negotiation.
#[derive(Debug, Default)]
pub struct RecordsOfOne {
    /// In the order of the register.
    pub records: Vec<AwardRecord>,
    /// Awards that cannot be told: a bounded archive has removed their call or offer.
    pub left_out: u64,
}

/// The records of a negotiation that ended, as [`archive::hear`] tells it. One that was aborted because the register holds
/// another value has none: what it awarded was told to nobody.
pub fn records_of(closed: &Closed, lane: Lane, issuer: &str) -> RecordsOfOne {
    let mut found = RecordsOfOne::default();
    let ended = Ended { closed, lane, issuer };
    for entry in closed.register.iter().filter(|_| !closed.course.is_conflict) {
        let Some(RegisterKey::Award(_, lot, award_no)) = RegisterKey::parse(&entry.key) else { continue };
        let record = match entry.value {
            RegisterValue::Award { chain, decision, offer_id } => {
                ended.award((lot, award_no), offer_id, (chain, decision))
            }
            RegisterValue::Agreement { chain, offer_id, terms_digest } => {
                ended.agreement((lot, award_no), offer_id, (chain, terms_digest))
            }
            RegisterValue::AwardEnd { .. }
            | RegisterValue::Formed { .. }
            | RegisterValue::Finding { .. }
            | RegisterValue::Closed { .. } => continue,
        };
        match record {
            Some(record) => found.records.push(record),
            None => found.left_out += 1,
        }
    }
    found
}

/// Of a decision record, what its award says.
#[derive(Deserialize)]
struct DecisionFacts {
    at: Timestamp,
    policy: Digest,
}

/// Of the body of a call or offer, its currency.
#[derive(Deserialize)]
struct PricedBody {
    payload: PricedPayload,
}

#[derive(Deserialize)]
struct PricedPayload {
    currency: Option<Currency>,
}

/// A negotiation that ended.
#[derive(Clone, Copy)]
struct Ended<'a> {
    closed: &'a Closed,
    lane: Lane,
    issuer: &'a str,
}

impl Ended<'_> {
    fn award(
        self,
        (lot, award_no): (Lot, AwardNo),
        offer_id: OfferId,
        (chain, decision): (Digest, Digest),
    ) -> Option<AwardRecord> {
        let (initiator, report) = self.report(lot, award_no)?;
        let decided = self.closed.decisions.iter().find(|text| Digest::of_bytes(text.get().as_bytes()) == decision)?;
        let DecisionFacts { at, policy } = serde_json::from_str(decided.get()).ok()?;
        Some(AwardRecord {
            awarded_at: WireTime(at),
            contractor: Some(report.contractor.clone()),
            currency: self.currency(offer_id, &report.terms)?,
            decision: Some(decision),
            payment: report.payment,
            policy: Some(self.closed.course.policy.clone()),
            policy_digest: Some(policy),
            state: if self.is_done(award_no) { RecordState::Done } else { RecordState::Revoked }.to_string(),
            terms_digest: Digest::of(&report.terms).ok()?,
            terms: report.terms.clone(),
            ..self.common(RecordKind::Award, (lot, award_no), (offer_id, chain), initiator.clone())
        })
    }

    fn agreement(
        self,
        place: (Lot, AwardNo),
        offer_id: OfferId,
        (chain, terms_digest): (Digest, Digest),
    ) -> Option<AwardRecord> {
        let (parties, agreed): (Vec<AgentId>, Vec<&Agreement>) = self.agreed().unzip();
        let agreed = *agreed.first()?;
        let initiator = AgentId::try_new(self.closed.negotiation.initiator()).ok()?;
        Some(AwardRecord {
            by: Some(agreed.by.clone()),
            currency: self.currency(offer_id, &agreed.terms)?,
            parties: Some(parties),
            round: Some(agreed.round),
            step: Some(agreed.step),
            terms: agreed.terms.clone(),
            terms_digest,
            ..self.common(RecordKind::Agreement, place, (offer_id, chain), initiator)
        })
    }

    /// What every record says, and nothing of its own: decided at the end, done, no terms.
    fn common(
        self,
        record: RecordKind,
        (lot, award_no): (Lot, AwardNo),
        (offer_id, chain): (OfferId, Digest),
        initiator: AgentId,
    ) -> AwardRecord {
        let Closed { negotiation, at, outcome, .. } = self.closed;
        AwardRecord {
            award_no,
            awarded_at: WireTime(*at),
            by: None,
            chain,
            closed_at: WireTime(*at),
            contractor: None,
            currency: None,
            decision: None,
            iat: at.0 / 1_000_000,
            initiator,
            iss: self.issuer.to_owned(),
            jti: format!("{negotiation}/{lot}/{award_no}"),
            lane: self.lane,
            lot,
            negotiation: negotiation.clone(),
            offer_id,
            outcome: outcome.to_string(),
            parties: None,
            payment: None,
            policy: None,
            policy_digest: None,
            record,
            round: None,
            state: RecordState::Done.to_string(),
            step: None,
            terms: Terms::new(),
            terms_digest: chain,
            v: RECORD_VERSION,
        }
    }

    /// What the initiator was told of an award, and who that is.
    fn report(&self, lot: Lot, award_no: AwardNo) -> Option<(&AgentId, &AwardReport)> {
        self.closed.course.told.iter().find_map(|(to, told)| {
            let Notification::Inform(ProgressReport::Awarded(report)) = &**told else { return None };
            (report.award_no == award_no && report.lot == lot).then_some((to, report))
        })
    }

    /// Whether the initiator was told that the work of an award is done.
    fn is_done(&self, award_no: AwardNo) -> bool {
        self.closed.course.told.iter().any(|(_, told)| {
            matches!(&**told, Notification::Inform(ProgressReport::Done(report) | ProgressReport::Result(report))
                if report.award_no == award_no)
        })
    }

    /// What each party was told that was agreed on, in the order of their turns.
    fn agreed(&self) -> impl Iterator<Item = (AgentId, &Agreement)> {
        self.closed.course.told.iter().filter_map(|(to, told)| {
            let Notification::Closed(closing) = &**told else { return None };
            Some((to.clone(), closing.agreement.as_deref()?))
        })
    }

    /// The offer's currency, else the call's; absent where one of the two bodies is not there. A task of a team has no call of
    /// its own, and one whose owner was named has no offer either, and no terms.
    fn currency(&self, offer_id: OfferId, terms: &Terms) -> Option<Option<Currency>> {
        let first = self.closed.inputs.first()?;
        let priced = |place: OfferId| -> Option<PricedPayload> {
            let body = self.closed.course.bodies.get(&place)?;
            Some(serde_json::from_str::<PricedBody>(body.get()).ok()?.payload)
        };
        let (call, offer) = (priced(OfferId(Position { seq: first.seq, index: first.index })), priced(offer_id));
        let is_task = matches!(self.closed.negotiation.place(), FamilyPlace::Task(_));
        let is_whole = (call.is_some() || is_task) && (offer.is_some() || (is_task && terms.is_empty()));
        let currency = |said: Option<PricedPayload>| said.and_then(|said| said.currency);
        is_whole.then(|| currency(offer).or_else(|| currency(call)))
    }
}
