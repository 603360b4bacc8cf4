//! One bargain at a [`InMemoryExchange`]: opened, joined, and then told act by act what to fold.

use agents::ActRefusal;
use policy_core::Deliver;
use schemas::bargain::{BargainSpec, Join};
use schemas::delivery::{Award, Closing, Disposition, Notification, Receipt, Standing, Turn};
use schemas::ids::IdError;
use schemas::payload::{Accept, Cfp, Confirm, Offer, Reasoned, Terms};
use schemas::record::Pinned;
use schemas::{AgentId, NegotiationId, Payload, Policy};

use traffic_gen::bargain::matchup::SessionParty;

use super::in_memory::{InMemoryError, InMemoryExchange, pinned};

/// How long the invited have to join, in milliseconds. In memory everybody joins at once.
const JOIN_MS: u64 = 1_000;

/// Why a bargain could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum BargainSessionError {
    /// A name or id is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A message cannot be written.
    #[error(transparent)]
    InMemory(#[from] InMemoryError),
    /// A mandate names a policy nobody has.
    #[error("there is no policy `{0}`")]
    Policy(String),
    /// The exchange refused a message everything else depends on.
    #[error("{agent}'s {act} was refused: {why}")]
    Refused {
        /// Whose.
        agent: AgentId,
        /// Which act.
        act: schemas::Act,
        /// Disposition and reason.
        why: String,
    },
    /// The exchange did not answer as the protocol says.
    #[error("the exchange did not say {0}")]
    Silent(&'static str),
}

/// What became of one act.
#[derive(Debug, Clone)]
pub struct TurnAnswer {
    /// The receipt.
    pub receipt: Receipt,
    /// Reason and pointer of the NOT_UNDERSTOOD that came with it.
    pub reason: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub struct BargainSession<'t> {
    exchange: &'t mut InMemoryExchange,
    negotiation: NegotiationId,
    parties: Vec<AgentId>,
    turn: Option<Turn>,
    /// What was agreed on and waits for confirmation.
    award: Option<Award>,
    closings: Vec<(AgentId, Closing)>,
}

impl<'t> BargainSession<'t> {
    /// Opens a bargain between these parties, the initiator first, and lets all join.
    ///
    /// # Errors
    /// [`BargainSessionError`].
    pub fn open(
        exchange: &'t mut InMemoryExchange,
        own_id: &str,
        members: &[SessionParty],
        rules: &BargainSpec,
    ) -> Result<Self, BargainSessionError> {
        let Some((initiator, invited)) = members.split_first() else {
            return Err(BargainSessionError::Silent("who bargains"));
        };
        let negotiation = NegotiationId::form(&initiator.agent, own_id)?;
        let names: Vec<AgentId> = invited.iter().map(|party| party.agent.clone()).collect();
        let mut parties = names.clone();
        parties.sort();
        parties.insert(0, initiator.agent.clone());
        let mut session = Self { exchange, negotiation, parties, turn: None, award: None, closings: Vec::new() };
        let cfp = Cfp {
            reply_within_ms: Some(JOIN_MS),
            bargain: Some(Box::new(rules.clone())),
            mandate: initiator.mandate.clone().map(Box::new),
            ..Cfp::default()
        };
        let under = delegate(initiator)?.map_or_else(default_policy, Ok)?;
        session.insist(&initiator.agent, Payload::Cfp(cfp), Some(pinned(&under, &names)))?;
        for party in invited {
            let join = Join { mandate: party.mandate.clone().map(Box::new), ..Join::default() };
            let pinned = delegate(party)?.map(|policy| pinned(&policy, &[]));
            session.insist(&party.agent, Payload::Join(join), pinned)?;
        }
        Ok(session)
    }

    /// The parties in the order of their turns.
    pub fn parties(&self) -> &[AgentId] {
        &self.parties
    }

    /// The bargain.
    pub fn negotiation(&self) -> &NegotiationId {
        &self.negotiation
    }

    /// Whose turn it is, and what stands; absent once all have accepted, or it has ended.
    pub fn turn(&self) -> Option<&Turn> {
        if self.closings.is_empty() && self.award.is_none() { self.turn.as_ref() } else { None }
    }

    /// The party whose turn it is, by its number.
    pub fn actor(&self) -> Option<usize> {
        let turn = self.turn()?;
        self.parties.iter().position(|party| *party == turn.party)
    }

    /// The end, once all are told one; each party's own copy.
    pub fn closings(&self) -> &[(AgentId, Closing)] {
        &self.closings
    }

    /// A party offers.
    ///
    /// # Errors
    /// [`BargainSessionError`].
    pub fn offer(&mut self, party: usize, terms: Terms) -> Result<TurnAnswer, BargainSessionError> {
        self.act(party, Payload::Offer(Offer { terms, ..Offer::default() }))
    }

    /// A party accepts what stands.
    ///
    /// # Errors
    /// [`BargainSessionError`].
    pub fn accept(&mut self, party: usize, standing: &Standing) -> Result<TurnAnswer, BargainSessionError> {
        let accept = Accept { offer_id: standing.offer_id, terms_digest: Some(standing.terms_digest) };
        self.act(party, Payload::Accept(accept))
    }

    /// A party leaves.
    ///
    /// # Errors
    /// [`BargainSessionError`].
    pub fn end(&mut self, party: usize) -> Result<TurnAnswer, BargainSessionError> {
        self.act(party, Payload::End(Reasoned::default()))
    }

    /// Every party confirms what was agreed on, where that is asked for.
    ///
    /// # Errors
    /// [`BargainSessionError`].
    pub fn confirm(&mut self) -> Result<(), BargainSessionError> {
        let Some(award) = self.award.clone() else { return Ok(()) };
        for party in 0..self.parties.len() {
            let confirm = Confirm { award_no: award.award_no, terms_digest: Some(award.terms_digest) };
            self.act(party, Payload::Confirm(confirm))?;
        }
        Ok(())
    }

    /// A party says anything.
    ///
    /// # Errors
    /// [`BargainSessionError`].
    ///
    /// # Panics
    /// When there is no such party.
    pub fn act(&mut self, party: usize, payload: Payload) -> Result<TurnAnswer, BargainSessionError> {
        let from = self.parties[party].clone();
        self.say(&from, payload, None)
    }

    fn insist(&mut self, from: &AgentId, payload: Payload, pinned: Option<Pinned>) -> Result<(), BargainSessionError> {
        let act = payload.act();
        let answer = self.say(from, payload, pinned)?;
        if answer.receipt.disposition == Disposition::Ok {
            return Ok(());
        }
        let reason = answer.reason.map(|reason| format!(", {reason}")).unwrap_or_default();
        let why = format!("{}{reason}", answer.receipt.disposition.as_str());
        Err(BargainSessionError::Refused { agent: from.clone(), act, why })
    }

    fn say(
        &mut self,
        from: &AgentId,
        payload: Payload,
        pinned: Option<Pinned>,
    ) -> Result<TurnAnswer, BargainSessionError> {
        let heard = self.exchange.say(from, &self.negotiation, payload, pinned)?;
        let own = heard.iter().filter(|heard| heard.to == *from);
        let (mut receipt, mut reason) = (None, None);
        for heard in own {
            if let Notification::Ack(told) = &*heard.told {
                receipt = Some(told.clone());
            }
            if let Notification::NotUnderstood(told) = &*heard.told {
                reason = Some(ActRefusal::from(told).to_string());
            }
        }
        self.hear(heard);
        let receipt = receipt.ok_or(BargainSessionError::Silent("what became of a message"))?;
        Ok(TurnAnswer { receipt, reason })
    }

    fn hear(&mut self, heard: Vec<Deliver>) {
        for heard in heard.into_iter().filter(|heard| heard.negotiation == self.negotiation) {
            if let Notification::Turn(turn) = &*heard.told {
                self.turn = Some(turn.clone());
            }
            if let Notification::Accept(award) = &*heard.told {
                self.award = Some(award.clone());
            }
            if let Notification::Closed(closing) = &*heard.told {
                self.closings.push((heard.to, closing.clone()));
            }
        }
    }
}

/// The policy that accepts for a party.
fn delegate(party: &SessionParty) -> Result<Option<Policy>, BargainSessionError> {
    let named = party.mandate.as_ref().and_then(|mandate| mandate.policy.as_deref());
    named.map(preset).transpose()
}

fn default_policy() -> Result<Policy, BargainSessionError> {
    preset("medium")
}

fn preset(name: &str) -> Result<Policy, BargainSessionError> {
    policy_core::preset(name).ok_or_else(|| BargainSessionError::Policy(name.to_owned()))
}
