//! The call to a bargain, and who joins.

use schemas::bargain::{BargainRule, BargainSpec as Rules, Mandate, PARTIES_MAX};
use schemas::delivery::{Disposition, Receipt};
use schemas::payload::Cfp;
use schemas::policy::{Policy, Timers};
use schemas::record::{AdmittedMessage, Message, Pinned};
use schemas::{Address, AgentId, Timestamp};

use super::{Bargain, Seat, mandate, space};
use crate::negotiation::{Party, Said, count};
use crate::{Moment, fact};

/// The longest bargain there is.
const DAY_MS: u64 = 86_400_000;

/// Why a call or a JOIN cannot be followed, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misread {
    pub(crate) reason: &'static str,
    pub(crate) pointer: Option<String>,
}

impl From<&'static str> for Misread {
    fn from(reason: &'static str) -> Self {
        Self { reason, pointer: None }
    }
}

impl Bargain {
    /// The bargain of a call, or what its initiator is told.
    pub(crate) fn open(
        message: &AdmittedMessage,
        decoded: &Message,
        cfp: &Cfp,
        pinned: &Pinned,
        moment: Moment,
    ) -> Result<Self, Misread> {
        let rules = (**cfp.bargain.as_ref().expect("a call to a bargain")).clone();
        if cfp.round.is_some_and(|round| round != 1) {
            return Err("bad_round".into());
        }
        if let Some(pointer) = space::fault(&rules) {
            return Err(Misread { reason: "invalid_bargain", pointer: Some(format!("/payload/bargain{pointer}")) });
        }
        let rule = delegated(cfp.mandate.as_deref(), &rules, Some(pinned))?;
        let mut invited: Vec<AgentId> = pinned.invited.iter().map(|one| one.agent.clone()).collect();
        invited.retain(|agent| *agent != message.from);
        invited.sort();
        invited.dedup();
        if invited.is_empty() {
            return Err("no_recipient".into());
        }
        if invited.len() + 1 > PARTIES_MAX {
            return Err("too_many_parties".into());
        }
        let ttl_ms = decoded.envelope.scope.as_ref().and_then(|scope| scope.ttl).map(|ttl| ttl * 1000);
        let join_by = join_by(cfp, ttl_ms, moment.now).ok_or("bad_deadline")?;
        let mut one = Self {
            id: message.negotiation.clone(),
            seats: std::iter::once(&message.from).chain(&invited).map(Seat::empty).collect(),
            rules,
            currency: cfp.currency.clone(),
            is_public: decoded.envelope.to.iter().any(|address| !matches!(address, Address::Agent(_))),
            join_by,
            ends_by: join_by,
            outcome: None,
            detail: None,
            begun_at: None,
            step: 0,
            act_by: Timestamp::MAX,
            offers: Vec::new(),
            standing: None,
            expired: None,
            confirm_by: None,
            facts: Vec::new(),
        };
        one.ends_by = one.end_after(join_by);
        if one.ends_by > moment.now.plus_ms(DAY_MS) {
            return Err("bad_deadline".into());
        }
        one.seats[0].has_joined = true;
        one.seats[0].mandate = cfp.mandate.as_deref().cloned();
        one.seats[0].rule = rule;
        one.call(message, decoded, &invited);
        Ok(one)
    }

    /// The last instant of a bargain whose turns begin at `begin`.
    pub(crate) fn end_after(&self, begin: Timestamp) -> Timestamp {
        let by_turns = self.rules.rounds.map(|rounds| {
            let turns = u64::from(rounds) * u64::from(self.parties());
            turns.saturating_mul(self.rules.step_ms)
        });
        let span_ms = [by_turns, self.rules.deadline_ms].into_iter().flatten().min().expect("one of them is given");
        begin.plus_ms(span_ms.saturating_add(self.rules.confirm_ms.unwrap_or(0)))
    }

    fn call(&mut self, message: &AdmittedMessage, decoded: &Message, invited: &[AgentId]) {
        let msg_id = decoded.envelope.msg_id.clone();
        let receipt = Receipt {
            ack_of: msg_id.clone(),
            disposition: Disposition::Ok,
            first: None,
            offer_id: None,
            invited: Some(count(invited.len())),
            left_out: None,
            award_no: None,
        };
        self.facts.push(fact::ack(&self.id, &message.from, &receipt));
        if self.is_public {
            self.facts.push(fact::notice_called(&self.id));
        }
        let parties: Vec<AgentId> = self.seats.iter().map(|seat| seat.agent.clone()).collect();
        for agent in invited {
            let call = fact::cfp(&self.id, agent, 1, self.join_by, self.ends_by);
            self.facts.push(fact::to_bargain(&call, &parties, &self.rules));
        }
        let party = &mut self.seats[0].party;
        party.last_seq = decoded.envelope.seq;
        party.said.push(Said { msg_id, digest: message.digest, disposition: Disposition::Ok, reply: None });
    }
}

impl Seat {
    fn empty(agent: &AgentId) -> Self {
        Self {
            agent: agent.clone(),
            party: Party::default(),
            has_joined: false,
            has_confirmed: false,
            strikes: 0,
            mandate: None,
            rule: None,
        }
    }
}

/// How a policy accepts under a mandate; an error when the mandate does not fit the bargain, or the pinned policy not it.
pub(crate) fn delegated(
    mandate: Option<&Mandate>,
    rules: &Rules,
    pinned: Option<&Pinned>,
) -> Result<Option<BargainRule>, Misread> {
    let Some(mandate) = mandate else { return Ok(None) };
    if let Some(pointer) = mandate::fault(mandate, rules) {
        return Err(Misread { reason: "invalid_mandate", pointer: Some(format!("/payload/mandate{pointer}")) });
    }
    let Some(named) = &mandate.policy else { return Ok(None) };
    let policy = pinned.map(|pinned| &*pinned.policy).filter(|policy| is_named(policy, named));
    match policy.and_then(|policy| policy.bargain.clone()) {
        Some(rule) => Ok(Some(rule)),
        None => Err(Misread { reason: "invalid_policy", pointer: Some("/payload/mandate/policy".to_owned()) }),
    }
}

fn is_named(policy: &Policy, named: &str) -> bool {
    policy.id == *named || policy.id.split('@').next() == Some(named)
}

/// Not by the pinned policy, which may be sealed in a mandate.
fn join_by(cfp: &Cfp, ttl_ms: Option<u64>, now: Timestamp) -> Option<Timestamp> {
    let join_by = match (cfp.reply_within_ms, cfp.reply_by) {
        (Some(ms), _) => now.plus_ms(ms),
        (None, Some(reply_by)) => reply_by.0,
        (None, None) => now.plus_ms(ttl_ms.unwrap_or(Timers::default().collect)),
    };
    (join_by > now && join_by <= now.plus_ms(DAY_MS)).then_some(join_by)
}
