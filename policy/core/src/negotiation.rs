//! What every negotiation has, whatever its protocol: its header, its parties and what is remembered of each, and the
//! context of one input on its way through it. The protocols are modules of this one.

pub mod alternating_offers;
mod chain;
pub(crate) mod contract_net;
pub(crate) mod disposition;
pub(crate) mod family;
pub(crate) mod lazy_box;
pub(crate) mod misunderstanding;
pub(crate) mod panel;
pub(crate) mod protocols;
mod stored;
pub(crate) mod team;
pub(crate) mod tombstone;
pub mod view;

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use nonmax::NonMaxU64;
use schemas::delivery::{Agreement, Call, Closing, Disposition, Misunderstanding, Notice, Notification, Outcome};
use schemas::envelope::{Envelope, Scope};
use schemas::ids::Position;
use schemas::payload::Cfp;
use schemas::protocols::Protocol;
use schemas::record::{AdmittedMessage, Invitation, Pinned, Qos};
use schemas::{
    Act, Address, AgentId, AwardNo, DeliveryId, Digest, Lane, MsgId, NegotiationId, RegisterKey, RegisterValue,
    Timestamp, WireTime,
};
use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use crate::acceptance::gate::GateFault;
use crate::acceptance::tie_break::Winners;
use crate::effect::{Deliver, Effect, Event, PublicNotice, RegisterWrite};
use crate::limits::Limits;
use crate::panel::evidence::EvidenceLedger;
use crate::policy::PinnedPolicy;

pub use chain::{CHAIN_START, ChainLink, chained};
use family::FamilyOrders;
use misunderstanding::{ActSet, NotUnderstoodReason};
use stored::StoredMessage;

/// Its names, its bounds in time, and the hash chain over its inputs. The chain's head stands in decisions, in the register
/// and in CLOSED, and whoever holds the inputs computes it again without the fold.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) id: NegotiationId,
    pub(crate) call_msg_id: MsgId,
    /// Addressed agents the gateway left out.
    left_out: u32,
    /// Topics and groups the call was addressed to.
    notices: Option<Arc<[Address]>>,
    pub(crate) traceparent: Option<Arc<str>>,
    started_at: Timestamp,
    /// The hard deadline.
    ends_by: Timestamp,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) chain: Digest,
}

/// An end, as everybody is told it.
struct NegotiationEnd<'a> {
    outcome: Outcome,
    detail: Option<&'a str>,
    agreement: Option<Agreement>,
    /// The entry of the register that comes before the end's.
    before: Option<RegisterKey>,
}

impl Header {
    /// Until when its deliveries are retried, and it is recognised after its end.
    fn remembered_until(&self, limits: &Limits) -> Timestamp {
        self.ends_by.plus_ms(limits.tombstone_grace_ms)
    }

    /// A delivery to a party, retried as long as the negotiation is remembered, and that long again when it comes late: a
    /// pause of the exchange must not take from anyone the notice of how it ended.
    fn delivery(&self, context: &mut InputContext<'_>, to: &AgentId, told: impl Into<Arc<Notification>>) -> Deliver {
        let grace_ms = context.limits.tombstone_grace_ms;
        let expires = self.remembered_until(context.limits).max(context.clock.plus_ms(grace_ms));
        Deliver { traceparent: self.traceparent.clone(), ..context.delivery(&self.id, to, told, expires) }
    }

    /// Tells the topics and groups of the call that it is out.
    fn announce(&self, invited: u32, reply_by: Timestamp, context: &mut InputContext<'_>) {
        if let Some(to) = &self.notices {
            let notice = Notice::Called { negotiation: self.id.clone(), invited, reply_by: WireTime(reply_by) };
            context.out.push_back(Effect::Notice(PublicNotice { to: Arc::clone(to), notice }));
        }
    }

    /// Registers the end, then tells it: to the initiator in answer to its call, to `others`, and to the call's topics.
    fn tell_closed<'a>(
        &mut self,
        end: NegotiationEnd<'_>,
        initiator: &AgentId,
        others: impl Iterator<Item = &'a AgentId>,
        context: &mut InputContext<'_>,
    ) {
        let NegotiationEnd { outcome, detail, agreement, before } = end;
        let after = self.register_end(outcome, before, context);
        let (detail, agreement) = (detail.map(str::to_owned), agreement.map(Box::new));
        let told = Arc::new(Notification::Closed(Closing { detail, agreement, ..Closing::new(outcome, self.chain) }));
        let delivery = self.delivery(context, initiator, Arc::clone(&told));
        context.deliver(Deliver { in_reply_to: Some(self.call_msg_id.clone()), after: after.clone(), ..delivery });
        for other in others {
            let delivery = self.delivery(context, other, Arc::clone(&told));
            context.deliver(Deliver { after: after.clone(), ..delivery });
        }
        self.announce_end(outcome, context);
    }

    /// Registers the end, behind an earlier entry where there is one; gives the key that what tells of it waits for.
    fn register_end(
        &self,
        outcome: Outcome,
        before: Option<RegisterKey>,
        context: &mut InputContext<'_>,
    ) -> Option<RegisterKey> {
        let key = RegisterKey::Closed(self.id.clone());
        // After an abort an earlier entry may have been refused: nothing may wait for it.
        let before = before.filter(|_| outcome != Outcome::Aborted);
        context.register(key.clone(), RegisterValue::Closed { outcome, chain: self.chain }, before);
        (outcome != Outcome::Aborted).then_some(key)
    }

    /// Tells the topics and groups of the call that it is over.
    fn announce_end(&self, outcome: Outcome, context: &mut InputContext<'_>) {
        if let Some(to) = &self.notices {
            let notice = Notice::Closed { negotiation: self.id.clone(), outcome };
            context.out.push_back(Effect::Notice(PublicNotice { to: Arc::clone(to), notice }));
        }
    }
}

/// The topics and groups among the addresses of a call.
fn public_addresses(to: &[Address]) -> Option<Arc<[Address]>> {
    let public: Vec<Address> = to
        .iter()
        .filter(|address| match address {
            Address::Topic(_) | Address::Group(_) => true,
            Address::Agent(_) => false,
        })
        .cloned()
        .collect();
    (!public.is_empty()).then(|| Arc::from(public))
}

/// Bytes of a message digest that are kept to tell a duplicate from a conflict: 128 bits leave no practical collision.
const DIGEST_KEPT: usize = 16;

/// What the sender of a message was answered beside its receipt; kept so that a duplicate is answered alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FollowUp {
    /// Nothing.
    None,
    /// REJECT{late}.
    Late,
    /// REJECT{policy}.
    Policy(GateFault),
    /// NOT_UNDERSTOOD.
    NotUnderstood(NotUnderstoodReason, ActSet),
    /// NOT_UNDERSTOOD, and where.
    Pointed(Box<Pointed>),
    /// CLOSED.
    Closed,
    /// CANCEL of an award taken back before.
    Revoked(AwardNo),
}

/// What could not be followed, and where in the message it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pointed {
    reason: NotUnderstoodReason,
    expected: ActSet,
    /// JSON pointer.
    pointer: Box<str>,
}

impl FollowUp {
    /// The award that is answered as taken back.
    fn revoked_award(&self) -> Option<AwardNo> {
        match self {
            Self::Revoked(award_no) => Some(*award_no),
            Self::None | Self::Late | Self::Policy(_) | Self::NotUnderstood(..) | Self::Pointed(_) | Self::Closed => {
                None
            }
        }
    }

    /// What could have been said instead, of a NOT_UNDERSTOOD.
    fn expected_mut(&mut self) -> Option<&mut ActSet> {
        match self {
            Self::NotUnderstood(_, expected) => Some(expected),
            Self::Pointed(pointed) => Some(&mut pointed.expected),
            Self::None | Self::Late | Self::Policy(_) | Self::Closed | Self::Revoked(_) => None,
        }
    }

    /// NOT_UNDERSTOOD as it is sent, if it is that.
    pub(crate) fn misunderstanding(&self) -> Option<Misunderstanding> {
        let (reason, expected, pointer) = match self {
            Self::NotUnderstood(reason, expected) => (reason, expected, None),
            Self::Pointed(pointed) => (&pointed.reason, &pointed.expected, Some(pointed.pointer.to_string())),
            Self::None | Self::Late | Self::Policy(_) | Self::Closed | Self::Revoked(_) => return None,
        };
        Some(Misunderstanding { reason: reason.as_str().to_owned(), expected: expected.to_vec(), pointer })
    }
}

/// Why a message is not followed, and what its sender is told beside the receipt.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) disposition: Disposition,
    /// Of a NOT_UNDERSTOOD: nothing is expected as long as [`Refusal::expecting`] was not asked.
    pub(crate) reply: FollowUp,
    is_strike: bool,
}

impl Refusal {
    fn answered(disposition: Disposition, reply: FollowUp) -> Self {
        Self { disposition, reply, is_strike: false }
    }

    /// The receipt says it all.
    pub(crate) fn silent(disposition: Disposition) -> Self {
        Self::answered(disposition, FollowUp::None)
    }

    /// NOT_UNDERSTOOD.
    fn plain(disposition: Disposition, reason: NotUnderstoodReason) -> Self {
        Self::answered(disposition, FollowUp::NotUnderstood(reason, ActSet::NONE))
    }

    /// NOT_UNDERSTOOD, and where.
    fn at(disposition: Disposition, reason: NotUnderstoodReason, pointer: impl Into<Box<str>>) -> Self {
        let pointed = Pointed { reason, expected: ActSet::NONE, pointer: pointer.into() };
        Self::answered(disposition, FollowUp::Pointed(Box::new(pointed)))
    }

    /// A member that is at fault.
    pub(crate) fn malformed(reason: NotUnderstoodReason, pointer: impl Into<Box<str>>) -> Self {
        Self::at(Disposition::Malformed, reason, pointer)
    }

    /// A call that cannot be followed as a whole.
    pub(crate) fn unfit(reason: NotUnderstoodReason) -> Self {
        Self::plain(Disposition::Malformed, reason)
    }

    /// An act that is not its sender's now.
    fn out_of_turn(reason: NotUnderstoodReason) -> Self {
        Self::plain(Disposition::OutOfTurn, reason)
    }

    /// The same, and it counts against its sender.
    fn strike(reason: NotUnderstoodReason) -> Self {
        Self { is_strike: true, ..Self::out_of_turn(reason) }
    }

    /// Compares the round that a message names with the one that runs. An earlier one is no fault: messages cross.
    fn check_round(named: Option<u32>, current: u32) -> Result<(), Self> {
        match named.map(|named| named.cmp(&current)) {
            Some(Ordering::Less) => Err(Self::silent(Disposition::StaleRound)),
            Some(Ordering::Greater) => Err(Self::out_of_turn(NotUnderstoodReason::BadRound)),
            Some(Ordering::Equal) | None => Ok(()),
        }
    }

    /// Compares how many are invited with how many may be.
    fn check_invited(invited: usize, allowed: RangeInclusive<usize>) -> Result<(), Self> {
        if invited < *allowed.start() {
            Err(Self::unfit(NotUnderstoodReason::NoRecipient))
        } else if invited > *allowed.end() {
            Err(Self::unfit(NotUnderstoodReason::TooManyParties))
        } else {
            Ok(())
        }
    }

    /// Says in a NOT_UNDERSTOOD what could have been said, unless it does already.
    pub(crate) fn expecting(mut self, acts: impl FnOnce() -> ActSet) -> Self {
        if let Some(expected) = self.reply.expected_mut().filter(|expected| **expected == ActSet::NONE) {
            *expected = acts();
        }
        self
    }
}

/// One message, as far as a duplicate of it needs to be recognised and answered: 64 bytes, since every message of every open
/// negotiation has one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "StoredMessage", into = "StoredMessage")]
pub(crate) struct SeenMessage {
    pub(crate) msg_id: MsgId,
    digest: [u8; DIGEST_KEPT],
    act: Act,
    disposition: Disposition,
    /// What few messages have.
    beside: Option<Box<BesideReceipt>>,
    /// Sequence and index of its position, which together would take four bytes more.
    seq: u64,
    index: u32,
    at: Timestamp,
}

/// What is kept of a message whose receipt is not all there is to say.
#[derive(Debug, Clone)]
struct BesideReceipt {
    reply: FollowUp,
    /// The award a CONFIRM was for.
    award_no: Option<AwardNo>,
}

impl SeenMessage {
    fn position(&self) -> Position {
        Position { seq: self.seq, index: self.index }
    }

    fn reply(&self) -> &FollowUp {
        self.beside.as_ref().map_or(&FollowUp::None, |beside| &beside.reply)
    }

    fn award_no(&self) -> Option<AwardNo> {
        self.beside.as_ref()?.award_no
    }
}

impl BesideReceipt {
    fn of(reply: FollowUp, award_no: Option<AwardNo>) -> Option<Box<Self>> {
        (reply != FollowUp::None || award_no.is_some()).then(|| Box::new(Self { reply, award_no }))
    }
}

/// One party of a negotiation: the initiator, or a contractor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Party {
    pub(crate) agent: AgentId,
    /// Highest `seq` folded; absent while the party numbers nothing.
    last_seq: Option<NonMaxU64>,
    pub(crate) seen: ThinVec<SeenMessage>,
    /// Of how many of the last messages in `seen` the receipt waits for the next delivery to the party
    /// (docs/spec/messages.md#ms-56).
    waiting: u32,
}

/// What a message is to what its sender sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Nothing alike: go on.
    New,
    /// The same message: index of the first.
    Duplicate(usize),
    /// The same id with another body: index of the first.
    Conflict(usize),
    /// Older than one folded already.
    Stale,
}

impl Party {
    fn new(agent: AgentId) -> Self {
        Self { agent, last_seq: None, seen: ThinVec::new(), waiting: 0 }
    }

    fn last_seq(&self) -> Option<u64> {
        self.last_seq.map(u64::from)
    }

    /// The messages whose receipts wait, in their order.
    fn waiting(&self) -> &[SeenMessage] {
        let count = usize::try_from(self.waiting).unwrap_or(usize::MAX);
        &self.seen[self.seen.len().saturating_sub(count)..]
    }

    /// What is relied on between the fields, and a snapshot might not keep.
    fn check(&self) -> Result<(), &'static str> {
        let is_followed = |seen: &SeenMessage| seen.disposition == Disposition::Ok && seen.award_no().is_none();
        let count = usize::try_from(self.waiting).unwrap_or(usize::MAX);
        if count <= self.seen.len() && self.waiting().iter().all(is_followed) {
            Ok(())
        } else {
            Err("a receipt waits that is none, or says more than ok")
        }
    }

    /// Repeats and order. A party that numbers nothing has no order to protect; once it has numbered a message, one
    /// without a number counts as older than every numbered one.
    fn repeat(&self, msg_id: &MsgId, digest: Digest, seq: Option<u64>) -> Repeat {
        if let Some(index) = self.seen.iter().position(|seen| seen.msg_id == *msg_id) {
            return if self.seen[index].digest == digest.short() {
                Repeat::Duplicate(index)
            } else {
                Repeat::Conflict(index)
            };
        }
        Self::order(self.last_seq(), seq)
    }

    /// Remembers a message. Most parties send one to three, and a vector's first growth is to four: it grows exactly while
    /// it is small.
    fn remember(&mut self, seen: SeenMessage, seq: Option<u64>) {
        self.last_seq = self.last_seq.max(seq.map(|seq| NonMaxU64::new(seq).unwrap_or(NonMaxU64::MAX)));
        if self.seen.len() < 4 {
            self.seen.reserve_exact(1);
        }
        self.seen.push(seen);
    }

    /// Whether a new message comes in its sender's order.
    fn order(last_seq: Option<u64>, seq: Option<u64>) -> Repeat {
        match (last_seq, seq) {
            (Some(last), Some(seq)) if seq <= last => Repeat::Stale,
            (Some(_), None) => Repeat::Stale,
            (Some(_) | None, Some(_)) | (None, None) => Repeat::New,
        }
    }
}

/// Ordinals of calls start here, plus the session's index, so that the delivery id of a call can be computed again when
/// its failure is reported. No input makes as many other deliveries.
const CALL_ORDINAL: u32 = 1 << 31;

/// What becomes of a message, and what follows from it.
pub(crate) struct Ruling<A> {
    disposition: Disposition,
    reply: FollowUp,
    action: A,
    score: Option<u32>,
}

impl<A> Ruling<A> {
    /// The message is followed.
    fn ok(action: A) -> Self {
        Self { disposition: Disposition::Ok, reply: FollowUp::None, action, score: None }
    }
}

impl<A: Default> Ruling<A> {
    /// The message is not followed; nothing happens.
    fn refused(disposition: Disposition, reply: FollowUp) -> Self {
        Self { disposition, reply, action: A::default(), score: None }
    }
}

/// The place of an agent among the initiator and, behind it, the others in the order of their ids.
fn place_of<T>(parties: &[T], agent: &AgentId, party: impl Fn(&T) -> &Party) -> Option<usize> {
    let (initiator, others) = parties.split_first()?;
    if party(initiator).agent == *agent {
        return Some(0);
    }
    others.binary_search_by(|one| party(one).agent.cmp(agent)).ok().map(|index| index + 1)
}

/// One of the invited, how sure its call is delivered, and how often that is tried at most.
type Called = (AgentId, Qos, Option<u32>);

/// A call on its way to becoming a negotiation.
pub(crate) struct Opening<'a> {
    admitted: &'a AdmittedMessage,
    initiator: AgentId,
    envelope: &'a Envelope,
    cfp: &'a Cfp,
    policy: Arc<PinnedPolicy>,
    /// Of a team: what its tasks are awarded under.
    task_policy: Option<Arc<PinnedPolicy>>,
    pinned: &'a Pinned,
}

impl<'a> Opening<'a> {
    /// The call of an admitted message, under the policy pinned with it.
    pub(crate) fn new(
        admitted: &'a AdmittedMessage,
        envelope: &'a Envelope,
        cfp: &'a Cfp,
        pinned: &'a Pinned,
        (policy, task_policy): (Arc<PinnedPolicy>, Option<Arc<PinnedPolicy>>),
        initiator: AgentId,
    ) -> Self {
        Self { admitted, initiator, envelope, cfp, policy, task_policy, pinned }
    }

    /// Who is invited, each once, in the order of their ids. The initiator cannot invite itself.
    fn invited(&self) -> Vec<&Invitation> {
        let mut invited: Vec<&Invitation> =
            self.pinned.invited.iter().filter(|invitation| invitation.agent != self.initiator).collect();
        invited.sort_by(|left, right| left.agent.cmp(&right.agent));
        invited.dedup_by(|left, right| left.agent == right.agent);
        invited
    }

    /// The call of the first round to its one lot, as the invited are told it.
    fn call(&self, policy: String, policy_digest: Digest, reply_by: Timestamp, ends_by: Timestamp) -> Call {
        Call {
            task: self.cfp.task.clone(),
            requires: self.cfp.requires.clone(),
            constraints: self.cfp.constraints.clone(),
            currency: self.cfp.currency.clone(),
            ..Call::new(WireTime(reply_by), WireTime(ends_by), policy, policy_digest)
        }
    }

    /// Calls the invited to join; the ids of the deliveries follow from `first_ordinal`.
    fn deliver_call(
        &self,
        header: &Header,
        call: Call,
        invited: &[Called],
        first_ordinal: u32,
        context: &mut InputContext<'_>,
    ) {
        let reply_by = call.reply_by.0;
        let told = Arc::new(Notification::Cfp(call));
        for ((agent, qos, attempts_max), ordinal) in invited.iter().zip(first_ordinal..) {
            let delivery = context.delivery_at(ordinal, &header.id, agent, Arc::clone(&told), reply_by);
            context.deliver(Deliver {
                from: Some(self.initiator.clone()),
                qos: *qos,
                attempts_max: *attempts_max,
                traceparent: header.traceparent.clone(),
                ..delivery
            });
        }
    }

    /// What the negotiation has, whatever its protocol.
    fn header(&self, ends_by: Timestamp, now: Timestamp) -> Header {
        Header {
            id: self.admitted.negotiation.clone(),
            call_msg_id: self.envelope.msg_id.clone(),
            left_out: self.pinned.left_out,
            notices: public_addresses(&self.envelope.to),
            traceparent: self.envelope.traceparent.as_deref().map(Arc::from),
            started_at: now,
            ends_by,
            outcome: None,
            chain: CHAIN_START,
        }
    }
}

/// When answers to a call are due: `reply_within_ms`, else `reply_by` (read against log time), else the scope's lifetime,
/// else `default_ms` from now.
fn reply_by(default_ms: u64, cfp: &Cfp, scope: Option<&Scope>, now: Timestamp) -> Timestamp {
    match (cfp.reply_within_ms, cfp.reply_by) {
        (Some(ms), _) => now.plus_ms(ms),
        (None, Some(reply_by)) => reply_by.0,
        (None, None) => now.plus_ms(lifetime_ms(scope).unwrap_or(default_ms)),
    }
}

fn lifetime_ms(scope: Option<&Scope>) -> Option<u64> {
    scope.and_then(|scope| scope.ttl).map(|seconds| seconds.saturating_mul(1000))
}

/// The context of one input.
pub(crate) struct InputContext<'a> {
    pub(crate) lane: Lane,
    pub(crate) limits: &'a Limits,
    /// Rules version of the lane.
    pub(crate) rules: u32,
    /// Where the input stands.
    pub(crate) position: Position,
    /// Protocol of the negotiation that handles it.
    pub(crate) protocol: Protocol,
    /// Number of the input in the lane's count.
    pub(crate) input: u64,
    /// The instant the input is evaluated at: a record's time, or a timer's deadline.
    pub(crate) now: Timestamp,
    /// The record's time: what new timers count from, so that a pause of the exchange costs agents nothing.
    pub(crate) clock: Timestamp,
    pub(crate) winners: &'a mut Winners,
    pub(crate) ledger: &'a mut EvidenceLedger,
    pub(crate) out: &'a mut VecDeque<Effect>,
    /// Deliveries made so far by this input.
    pub(crate) ordinal: u32,
    /// Where the inputs of negotiations are kept, if anywhere.
    pub(crate) links: Option<&'a mut Vec<ChainLink>>,
    /// What is done to others of the family.
    pub(crate) orders: FamilyOrders,
}

impl InputContext<'_> {
    /// A delivery with its id; nothing is queued yet.
    pub(crate) fn delivery(
        &mut self,
        negotiation: &NegotiationId,
        to: &AgentId,
        told: impl Into<Arc<Notification>>,
        expires: Timestamp,
    ) -> Deliver {
        let ordinal = self.ordinal;
        self.ordinal += 1;
        self.delivery_at(ordinal, negotiation, to, told, expires)
    }

    /// As [`Self::delivery`], at an ordinal the caller can find again.
    fn delivery_at(
        &self,
        ordinal: u32,
        negotiation: &NegotiationId,
        to: &AgentId,
        told: impl Into<Arc<Notification>>,
        expires: Timestamp,
    ) -> Deliver {
        Deliver {
            id: delivery_id(self.lane, negotiation, self.position, ordinal, to),
            to: to.clone(),
            negotiation: negotiation.clone(),
            from: None,
            in_reply_to: None,
            told: told.into(),
            receipts: Box::default(),
            at: self.clock,
            expires,
            qos: Qos::AtLeastOnce,
            attempts_max: None,
            after: None,
            told_before: false,
            traceparent: None,
        }
    }

    pub(crate) fn deliver(&mut self, delivery: Deliver) {
        self.out.push_back(Effect::Deliver(delivery));
    }

    fn register(&mut self, key: RegisterKey, value: RegisterValue, after: Option<RegisterKey>) {
        self.out.push_back(Effect::Register(RegisterWrite { key, value, after }));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.out.push_back(Effect::Event(event));
    }
}

/// The id of a delivery: see [`Deliver::id`].
fn delivery_id(lane: Lane, negotiation: &NegotiationId, position: Position, ordinal: u32, to: &AgentId) -> DeliveryId {
    let hash = Digest::of_parts(&[
        negotiation.as_str().as_bytes(),
        &position.seq.to_be_bytes(),
        &position.index.to_be_bytes(),
        &ordinal.to_be_bytes(),
        to.as_str().as_bytes(),
    ]);
    DeliveryId::new(lane, hash.short())
}
