//! What is left of a closed negotiation until its last possible deadline has passed: enough to recognise duplicates and
//! to answer late offers, outdated confirmations and everything else (docs/spec/contract-net.md#cn-63).

use schemas::delivery::{Cancellation, Closing, Disposition, Notification, Outcome, Receipt, RejectReason, Rejection};
use schemas::digest::{FNV_START, fnv};
use schemas::{Act, AgentId, AwardNo, Digest, MsgId, NegotiationId, OfferId, Payload, RegisterKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::effect::{Deliver, Event};
use crate::limits::Limits;
use crate::negotiation::Header;
use crate::negotiation::InputContext;
use crate::negotiation::disposition::Incoming;
use crate::negotiation::protocols::ProtocolEnd;
use crate::negotiation::{Party, Refusal, Repeat, SeenMessage};

/// A closed negotiation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tombstone {
    pub(crate) id: NegotiationId,
    pub(crate) outcome: Outcome,
    pub(crate) chain: Digest,
    pub(crate) round: u32,
    pub(crate) ends_by: Timestamp,
    /// Dropped by the first record later than this.
    pub(crate) expires_at: Timestamp,
    /// The initiator, then the contractors in the order of their ids.
    pub(crate) parties: Box<[PastParty]>,
    /// Leads of the team whose task it was, that called it off and took no other part in it. They are numbered behind the
    /// parties.
    leads: Vec<PastParty>,
    pub(crate) seen: Vec<SeenDigest>,
    /// What else is known, by its protocol.
    pub(crate) end: ProtocolEnd,
}

/// A party.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PastParty {
    pub(crate) agent: AgentId,
    last_seq: Option<u64>,
}

/// A message, reduced to hashes. Both are only ever compared within one sender's own messages, so whoever makes them
/// collide confuses nobody else.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct SeenDigest {
    party: u16,
    disposition: Disposition,
    msg_id: u64,
    digest: u64,
}

/// An award and whether it was kept.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct PastAward {
    pub(crate) award_no: AwardNo,
    pub(crate) party: u16,
    pub(crate) is_revoked: bool,
}

impl Tombstone {
    /// Of a negotiation that has just ended in some round, with its parties (the initiator first, the others in the order
    /// of their ids).
    pub(crate) fn of(header: &Header, round: u32, parties: &[&Party], end: ProtocolEnd, limits: &Limits) -> Self {
        let seen = (0..)
            .zip(parties)
            .flat_map(|(index, party)| party.seen.iter().map(move |seen| SeenDigest::of(index, seen)))
            .collect();
        Self {
            id: header.id.clone(),
            outcome: header.outcome.unwrap_or(Outcome::Aborted),
            chain: header.chain,
            round,
            ends_by: header.ends_by,
            expires_at: header.remembered_until(limits),
            parties: parties.iter().map(|party| PastParty::of(party)).collect(),
            leads: Vec::new(),
            seen,
            end,
        }
    }

    /// Of a task, with the leads of its team that called it off.
    pub(crate) fn with_leads(mut self, leads: &[Party]) -> Self {
        let first = u16::try_from(self.parties.len()).unwrap_or(u16::MAX);
        let seen = (first..)
            .zip(leads)
            .flat_map(|(index, lead)| lead.seen.iter().map(move |seen| SeenDigest::of(index, seen)));
        self.seen.extend(seen);
        self.leads = leads.iter().map(PastParty::of).collect();
        self
    }

    /// Whether this agent led the team to its end.
    pub(crate) fn was_led_by(&self, agent: &AgentId) -> bool {
        self.end.lead().and_then(|lead| self.party(lead)).is_some_and(|lead| lead.agent == *agent)
    }

    /// Why no sub-team may be called for an award of a task that has ended.
    pub(crate) fn refuse_sub_team(&self, agent: &AgentId, award_no: AwardNo) -> Refusal {
        let contractor = self.party_of(agent).filter(|party| (1..self.parties.len()).contains(&usize::from(*party)));
        Refusal::silent(match contractor {
            None => Disposition::Unauthorized,
            Some(party) if self.is_revoked(party, award_no) => Disposition::Revoked,
            Some(_) => Disposition::Closed,
        })
    }

    /// Whether it was a team of which this agent was no member at the end.
    pub(crate) fn was_left_by(&self, agent: &AgentId) -> bool {
        self.party_of(agent).is_some_and(|party| !self.end.concerns(party))
    }

    fn party(&self, index: u16) -> Option<&PastParty> {
        self.parties.iter().chain(&self.leads).nth(usize::from(index))
    }

    /// What the answers rely on, and a snapshot might not keep.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match &*self.parties {
            [] => Err("an ended negotiation had no initiator"),
            [_, others @ ..] if others.is_sorted_by(|one, next| one.agent < next.agent) => Ok(()),
            [..] => Err("contractors are not in their order"),
        }
    }

    /// The index of a party, 0 for the initiator.
    pub(crate) fn party_of(&self, agent: &AgentId) -> Option<u16> {
        // Whoever does the task it has assigned is its contractor.
        let contractors = self.parties.get(1..)?;
        if let Ok(index) = contractors.binary_search_by(|known| known.agent.cmp(agent)) {
            return u16::try_from(index + 1).ok();
        }
        if self.parties.first().is_some_and(|initiator| initiator.agent == *agent) {
            return Some(0);
        }
        let lead = self.leads.iter().position(|lead| lead.agent == *agent)?;
        u16::try_from(self.parties.len() + lead).ok()
    }

    /// Awards of one party; all of them for the initiator.
    pub(crate) fn awards_of(&self, party: u16) -> impl Iterator<Item = &PastAward> {
        self.end.awards().iter().filter(move |award| party == 0 || award.party == party)
    }

    /// The contractor of an award.
    pub(crate) fn contractor(&self, award: &PastAward) -> Option<&AgentId> {
        self.parties.get(usize::from(award.party)).map(|known| &known.agent)
    }

    /// Answers one message. False when its sender took no part.
    pub(crate) fn handle_message(&mut self, incoming: &Incoming, context: &mut InputContext<'_>) -> bool {
        if incoming.leads && self.party_of(&incoming.from).is_none() {
            self.leads.push(PastParty { agent: incoming.from.clone(), last_seq: None });
        }
        let Some(party) = self.party_of(&incoming.from) else { return false };
        let digest = SeenDigest {
            party,
            disposition: Disposition::Closed,
            msg_id: hash(&incoming.msg_id),
            digest: prefix(incoming.digest.short()),
        };
        let earlier = self.seen.iter().find(|seen| seen.party == party && seen.msg_id == digest.msg_id).copied();
        let (disposition, first) = match earlier {
            Some(earlier) if earlier.digest == digest.digest => (Disposition::Duplicate, Some(earlier.disposition)),
            Some(earlier) => (Disposition::Conflict, Some(earlier.disposition)),
            None => (self.judge(party, incoming, context), None),
        };
        if first.is_none() {
            self.remember(party, SeenDigest { disposition, ..digest }, incoming.seq, context);
        }
        self.answer(incoming, disposition, first, context);
        true
    }

    fn remember(&mut self, party: u16, digest: SeenDigest, seq: Option<u64>, context: &InputContext<'_>) {
        let count = self.seen.iter().filter(|seen| seen.party == party).count();
        if count < context.limits.messages_per_party_max {
            self.seen.push(digest);
        }
        if let Some(known) = self.parties.iter_mut().chain(&mut self.leads).nth(usize::from(party)) {
            known.last_seq = known.last_seq.max(seq);
        }
    }

    fn judge(&self, party: u16, incoming: &Incoming, context: &InputContext<'_>) -> Disposition {
        let last_seq = self.party(party).and_then(|known| known.last_seq);
        if Party::order(last_seq, incoming.seq) == Repeat::Stale {
            return Disposition::StaleSeq;
        }
        match (&incoming.payload, party) {
            (Payload::Offer(offer), 1..) if self.end.takes_late_offers() && usize::from(party) < self.parties.len() => {
                if context.now > self.ends_by {
                    Disposition::Expired
                } else if offer.round.is_some_and(|round| round < self.round) {
                    Disposition::StaleRound
                } else {
                    Disposition::Late
                }
            }
            (Payload::Confirm(confirm), _) if self.is_revoked(party, confirm.award_no) => Disposition::Revoked,
            (_, _) => Disposition::Closed,
        }
    }

    fn is_revoked(&self, party: u16, award_no: AwardNo) -> bool {
        self.end.awards().iter().any(|award| award.is_revoked && award.party == party && award.award_no == award_no)
    }

    fn answer(
        &self,
        incoming: &Incoming,
        disposition: Disposition,
        first: Option<Disposition>,
        context: &mut InputContext<'_>,
    ) {
        let told_for = if disposition == Disposition::Duplicate { first.unwrap_or(disposition) } else { disposition };
        let award_no = if let Payload::Confirm(confirm) = &incoming.payload { Some(confirm.award_no) } else { None };
        // Only a late offer is rejected: a late answer of a panel is told no more than that.
        let is_late = told_for == Disposition::Late && self.end.takes_late_offers();
        let receipt = Receipt {
            first,
            offer_id: (is_late && first.is_none()).then_some(OfferId(context.position)),
            award_no: award_no.filter(|_| matches!(told_for, Disposition::Committed | Disposition::Revoked)),
            ..Receipt::new(incoming.msg_id.clone(), disposition)
        };
        self.send(incoming, Notification::Ack(receipt), false, context);
        let reply = match (told_for, award_no) {
            (Disposition::Late, _) if is_late => {
                let offer_id = first.is_none().then_some(OfferId(context.position));
                Some(Notification::Reject(Rejection { offer_id, reason: RejectReason::Late, code: None }))
            }
            (Disposition::Revoked, Some(award_no)) => {
                Some(Notification::Cancel(Cancellation { award_no, reason: "revoked".to_owned() }))
            }
            (Disposition::Closed, _) => Some(Notification::Closed(self.closing(incoming))),
            _ => None,
        };
        if let Some(told) = reply {
            self.send(incoming, told, !self.is_first(incoming, told_for), context);
        }
        context.event(Event::Disposed {
            negotiation: self.id.clone(),
            from: incoming.from.clone(),
            act: incoming.payload.act(),
            disposition,
            score: None,
            at: context.now,
        });
    }

    /// CLOSED as its party was told it before.
    fn closing(&self, incoming: &Incoming) -> Closing {
        let detail = self.end.detail().map(str::to_owned);
        let closing = Closing { detail, ..Closing::new(self.outcome, self.chain) };
        self.end.complete(self.party_of(&incoming.from), closing)
    }

    /// Whether it is the first message of its sender with this disposition. Of those that are not remembered, none is.
    fn is_first(&self, incoming: &Incoming, disposition: Disposition) -> bool {
        let (party, msg_id) = (self.party_of(&incoming.from), hash(&incoming.msg_id));
        let mut alike = self.seen.iter().filter(|seen| Some(seen.party) == party && seen.disposition == disposition);
        alike.next().is_some_and(|first| first.msg_id == msg_id)
    }

    fn send(&self, incoming: &Incoming, told: Notification, told_before: bool, context: &mut InputContext<'_>) {
        let after = self.awaited_key(&told);
        let delivery = context.delivery(&self.id, &incoming.from, told, self.expires_at);
        context.deliver(Deliver { in_reply_to: Some(incoming.msg_id.clone()), after, told_before, ..delivery });
    }

    /// What an end that binds waits for before anybody is told of it, late askers no less than others. After an abort nothing waits: the register may hold something else.
    fn awaited_key(&self, told: &Notification) -> Option<RegisterKey> {
        let binds = !self.end.takes_late_offers() && self.outcome != Outcome::Aborted && told.act() == Act::Closed;
        binds.then(|| RegisterKey::Closed(self.id.clone()))
    }
}

impl PastParty {
    fn of(party: &Party) -> Self {
        Self { agent: party.agent.clone(), last_seq: party.last_seq() }
    }
}

impl SeenDigest {
    fn of(party: u16, seen: &SeenMessage) -> Self {
        Self { party, disposition: seen.disposition, msg_id: hash(&seen.msg_id), digest: prefix(seen.digest) }
    }
}

fn hash(msg_id: &MsgId) -> u64 {
    fnv(FNV_START, msg_id.as_str().as_bytes())
}

fn prefix(digest: [u8; 16]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(bytes)
}
