//! Calls (docs/spec/contract-net.md#cn-1 to #cn-7).

use policy_core::{Phase, SessionState};
use schemas::delivery::{Disposition, Receipt};
use schemas::payload::Cfp;
use schemas::policy::WindowAnchor;
use schemas::record::{AdmittedMessage, Message, Pinned};
use schemas::{Address, AgentId, NegotiationId, Policy, Timestamp};

use crate::Moment;
use crate::contract_net::{ContractNet, Party, Session, Window, count};
use crate::fact;

/// Why a call or a JOIN cannot be followed, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotUnderstood {
    pub(crate) reason: &'static str,
    pub(crate) pointer: Option<String>,
}

impl From<&'static str> for NotUnderstood {
    fn from(reason: &'static str) -> Self {
        Self { reason, pointer: None }
    }
}

/// The negotiation of a call, or what its initiator is told.
pub(crate) fn open(
    message: &AdmittedMessage,
    decoded: &Message,
    cfp: &Cfp,
    pinned: &Pinned,
    moment: Moment,
) -> Result<ContractNet, NotUnderstood> {
    let policy = (*pinned.policy).clone();
    let ttl_ms = decoded.envelope.scope.as_ref().and_then(|scope| scope.ttl).map(|ttl| ttl * 1000);
    let (reply_by, ends_by) = deadlines(&policy, cfp, ttl_ms, moment.now).ok_or("bad_deadline")?;
    let agents = pinned.invited.iter().map(|invitation| invitation.agent.clone());
    let invited: Vec<AgentId> = agents.filter(|agent| *agent != message.from).collect();
    if invited.is_empty() {
        return Err("no_recipient".into());
    }
    let opened = Opened {
        id: message.negotiation.clone(),
        policy,
        initiator: message.from.clone(),
        invited: invited.clone(),
        reply_by,
        ends_by,
    };
    let mut one = self::opened(opened, moment);
    one.currency.clone_from(&cfp.currency);
    one.documents.clone_from(&cfp.documents);
    one.reputations = crate::scoring::reputations(pinned);
    one.is_public = decoded.envelope.to.iter().any(|address| !matches!(address, Address::Agent(_)));
    one.begin_window(WindowAnchor::Cfp, moment.now);
    acknowledge_call(&mut one, message, decoded);
    one.call(&invited);
    Ok(one)
}

/// What a contract net begins with.
pub(super) struct Opened {
    pub(super) id: NegotiationId,
    pub(super) policy: Policy,
    pub(super) initiator: AgentId,
    pub(super) invited: Vec<AgentId>,
    pub(super) reply_by: Timestamp,
    pub(super) ends_by: Timestamp,
}

/// A contract net in which nothing was said yet.
pub(super) fn opened(opened: Opened, moment: Moment) -> ContractNet {
    let Opened { id, policy, initiator, invited, reply_by, ends_by } = opened;
    let parties = invited.iter().chain([&initiator]).map(|agent| (agent.clone(), Party::default()));
    ContractNet {
        id,
        parties: parties.collect(),
        sessions: invited.iter().map(|agent| (agent.clone(), Session::invited())).collect(),
        initiator,
        currency: None,
        documents: None,
        reputations: std::collections::BTreeMap::new(),
        is_public: false,
        ends_by,
        phase: Phase::Collecting,
        outcome: None,
        round: 1,
        called_at: moment.now,
        period_us: reply_by.since_us(moment.now),
        reply_by,
        extensions: 0,
        window: Window::NotBegun,
        crossing: None,
        decide_by: None,
        cancel_by: None,
        closed_at: None,
        lots: Vec::new(),
        standby: Vec::new(),
        awards: 0,
        past: Vec::new(),
        offers: 0,
        task: None,
        auction: None,
        facts: Vec::new(),
        policy,
    }
}

fn acknowledge_call(one: &mut ContractNet, message: &AdmittedMessage, decoded: &Message) {
    let receipt = Receipt {
        invited: Some(count(one.sessions.len())),
        ..Receipt::new(decoded.envelope.msg_id.clone(), Disposition::Ok)
    };
    one.facts.push(fact::ack(&one.id, &one.initiator, &receipt));
    if one.is_public {
        one.facts.push(fact::notice_called(&one.id));
    }
    one.parties.get_mut(&message.from).expect("it calls").note_call(message, decoded);
}

impl Session {
    fn invited() -> Self {
        Self { state: SessionState::Invited, round: 1, strikes: 0, was_heard: false, was_bound: false, offer: None }
    }
}

/// The collection deadline and the hard one, if the call leaves time to reply.
fn deadlines(policy: &Policy, cfp: &Cfp, ttl_ms: Option<u64>, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
    let named = match (cfp.reply_within_ms, cfp.reply_by) {
        (Some(ms), _) => Some(now.plus_ms(ms)),
        (None, Some(reply_by)) => Some(reply_by.0),
        (None, None) => None,
    };
    // A lifetime that is already the collection deadline does not bound the negotiation once more.
    let bound_ms = ttl_ms.filter(|_| named.is_some());
    let ends_by = now.plus_ms(bound_ms.map_or(policy.timers_ms.hard, |bound| bound.min(policy.timers_ms.hard)));
    let reply_by = named.unwrap_or_else(|| now.plus_ms(ttl_ms.unwrap_or(policy.timers_ms.collect)));
    (reply_by > now && reply_by <= ends_by).then_some((reply_by, ends_by))
}
