//! The core alone as an exchange: records in memory, a clock that moves when it is told to. What is said at a [`InMemoryExchange`]
//! is folded at once, and what the fold has delivered is handed back.

use std::collections::BTreeSet;
use std::sync::Arc;

use policy_core::panel::decision::PanelDecision;
use policy_core::{Deliver, Effect, Event, LaneState, Limits};
use schemas::envelope::Envelope;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Message, Pinned, Qos, Record};
use schemas::{
    Address, AgentId, Digest, Lane, MsgId, NegotiationId, Payload, Policy, RegisterKey, Timestamp, WireTime,
};
use serde_json::value::RawValue;

/// Log time of the first record: some instant, the same in every run.
const START: Timestamp = Timestamp(1_795_204_800_000_000);
/// Log time from one record to the next, in microseconds.
const STEP_US: u64 = 1_000;
/// Name under which it appends what engines append.
const ENGINE: &str = "table";

/// What could not be folded: the message cannot be written down.
#[derive(Debug, thiserror::Error)]
#[error("a message cannot be written: {0}")]
pub struct InMemoryError(#[from] serde_json::Error);

/// See the module.
#[derive(Debug)]
pub struct InMemoryExchange {
    lane_state: LaneState,
    seq: u64,
    now: Timestamp,
    registered: BTreeSet<RegisterKey>,
    /// Whether every key a delivery waits for was written before.
    is_ordered: bool,
    /// The decision of the last panel that came to a result.
    found: Option<Arc<PanelDecision>>,
}

/// An empty lane state under the newest rules.
impl Default for InMemoryExchange {
    fn default() -> Self {
        let lane_state = LaneState::new(Lane(0), Limits::default());
        let mut exchange =
            Self { lane_state, seq: 0, now: START, registered: BTreeSet::new(), is_ordered: true, found: None };
        let claim = EngineEvent::Claim { engine: ENGINE.to_owned() };
        exchange.fold(vec![Entry::Engine { epoch: 1, event: claim }]);
        exchange
    }
}

impl InMemoryExchange {
    /// Log time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether every delivery that waits for a key came after the write of it.
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Takes the decision of the last panel that came to a result.
    pub fn take_found(&mut self) -> Option<Arc<PanelDecision>> {
        self.found.take()
    }

    /// The fold.
    pub fn lane_state(&self) -> &LaneState {
        &self.lane_state
    }

    /// Folds one message, its clock one step later, and gives what it led to.
    ///
    /// # Errors
    /// [`InMemoryError`].
    pub fn say(
        &mut self,
        from: &AgentId,
        negotiation: &NegotiationId,
        payload: Payload,
        pinned: Option<Pinned>,
    ) -> Result<Vec<Deliver>, InMemoryError> {
        let message = admitted(from, negotiation, (&format!("m{}", self.seq), None), payload)?;
        Ok(self.fold(vec![Entry::Message(AdmittedMessage { pinned: pinned.map(Arc::new), ..message })]))
    }

    /// Lets log time pass until just behind the next deadline, if there is one, and gives what that led to.
    pub fn wait(&mut self) -> Option<Vec<Deliver>> {
        let deadline = self.lane_state.poll_deadline()?;
        self.now = self.now.max(Timestamp(deadline.0 + 1));
        Some(self.fold(vec![Entry::Tick]))
    }

    /// Folds a record, its clock one step later, and gives what it led to.
    pub fn fold_record(&mut self, record: &Record) -> Vec<Deliver> {
        self.seq += 1;
        self.now = Timestamp(self.now.0 + STEP_US);
        self.lane_state.handle_record(self.seq, self.now, record);
        let mut heard = Vec::new();
        while let Some(effect) = self.lane_state.poll_effect() {
            match effect {
                Effect::Deliver(letter) if !letter.told_before => {
                    self.is_ordered &= letter.after.as_ref().is_none_or(|key| self.registered.contains(key));
                    heard.push(letter);
                }
                Effect::Register(write) => {
                    self.is_ordered &= write.after.is_none_or(|key| self.registered.contains(&key));
                    self.registered.insert(write.key);
                }
                Effect::Event(Event::Found(decision)) => self.found = Some(decision),
                Effect::Deliver(_) | Effect::Notice(_) | Effect::Event(_) => {}
            }
        }
        heard
    }

    fn fold(&mut self, entries: Vec<Entry>) -> Vec<Deliver> {
        self.fold_record(&Record::new(ENGINE, entries))
    }
}

/// A message as a gateway admits it, with an id and perhaps a sequence number, and nothing pinned.
///
/// # Errors
/// [`InMemoryError`].
pub fn admitted(
    from: &AgentId,
    negotiation: &NegotiationId,
    (msg_id, seq): (&str, Option<u64>),
    payload: Payload,
) -> Result<AdmittedMessage, InMemoryError> {
    let act = payload.act();
    let envelope = Envelope {
        msg_id: MsgId::try_new(msg_id).expect("a letter and a number make an id"),
        ts: WireTime(START),
        from: Address::Agent(from.clone()),
        to: Vec::new(),
        capabilities: Vec::new(),
        scope: None,
        negotiation: Some(negotiation.to_string()),
        seq,
        in_reply_to: None,
        traceparent: None,
        receipt: false,
    };
    let body = serde_json::to_string(&Message { envelope, payload })?;
    let digest = Digest::of_bytes(body.as_bytes());
    let body = RawValue::from_string(body)?.into();
    Ok(AdmittedMessage {
        from: from.clone(),
        negotiation: negotiation.clone(),
        act,
        digest,
        body,
        pinned: None,
        receipts_all: true,
        capabilities: Vec::new(),
    })
}

/// What a gateway pins: the policy, and whom it invites.
///
/// # Panics
/// When the policy has no canonical form, which one of this workspace always has.
pub fn pinned(policy: &Policy, invited: &[AgentId]) -> Pinned {
    let mut invited: Vec<AgentId> = invited.to_vec();
    invited.sort();
    Pinned {
        policy_digest: policy.digest().expect("a policy of integers and texts has a canonical form"),
        policy: Arc::new(policy.clone()),
        invited: invited
            .into_iter()
            .map(|agent| Invitation { agent, qos: Qos::AtLeastOnce, durable: false, reputation: None })
            .collect(),
        left_out: 0,
        task_policy: None,
        panel: None,
    }
}
