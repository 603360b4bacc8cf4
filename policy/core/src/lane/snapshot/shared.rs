//! What is stored once and shared again: names of agents and policies in the whole lane, message ids and the id of the
//! negotiation within one negotiation. At its first mention a thing gets the next number, and its text follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::digest::canonical;
use schemas::{AgentId, Digest, MsgId, NegotiationId, Policy};

use super::codec::{Fault, Reader, Stored, Writer};
use crate::policy::PinnedPolicy;
use crate::policy::check;

/// The numbers given while writing.
#[derive(Default)]
pub(super) struct Numbered {
    agents: BTreeMap<AgentId, u64>,
    policies: BTreeMap<Digest, u64>,
    messages: BTreeMap<MsgId, u64>,
    negotiations: BTreeMap<NegotiationId, u64>,
}

/// The things read so far, by their number.
#[derive(Default)]
pub(super) struct Given {
    agents: Vec<AgentId>,
    policies: Vec<Arc<PinnedPolicy>>,
    messages: Vec<MsgId>,
    negotiations: Vec<NegotiationId>,
}

impl Numbered {
    /// Another negotiation begins: ids of messages count within one.
    pub(super) fn begin_negotiation(&mut self) {
        self.messages.clear();
        self.negotiations.clear();
    }
}

impl Given {
    /// As [`Numbered::begin_negotiation`].
    pub(super) fn begin_negotiation(&mut self) {
        self.messages.clear();
        self.negotiations.clear();
    }

    /// Every agent that was mentioned.
    pub(super) fn take_agents(&mut self) -> Vec<AgentId> {
        std::mem::take(&mut self.agents)
    }
}

macro_rules! shared_names {
    ($($type:ident in $table:ident),+ $(,)?) => {$(
        impl Stored for $type {
            fn write(&self, out: &mut Writer) {
                if let Some(&number) = out.numbered.$table.get(self) {
                    return out.number(number);
                }
                let number = next(&out.numbered.$table);
                out.numbered.$table.insert(self.clone(), number);
                out.number(number);
                out.text(self.as_str());
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
                let number = input.number()?;
                if let Some(known) = known(&input.given.$table, number, input)? {
                    return Ok(known);
                }
                let name = $type::try_new(input.text()?)
                    .map_err(|_| input.fault(concat!("a text is no ", stringify!($type))))?;
                input.given.$table.push(name.clone());
                Ok(name)
            }
        }
    )+};
}

shared_names!(AgentId in agents, MsgId in messages, NegotiationId in negotiations);

/// A policy stands as its canonical document, which is checked again: its digest, and that it is consistent.
impl Stored for Arc<PinnedPolicy> {
    fn write(&self, out: &mut Writer) {
        if let Some(&number) = out.numbered.policies.get(&self.digest) {
            return out.number(number);
        }
        let number = next(&out.numbered.policies);
        out.numbered.policies.insert(self.digest, number);
        out.number(number);
        self.digest.write(out);
        let document =
            canonical(&self.policy).expect("a pinned policy had a canonical form when its digest was checked");
        out.length(document.len());
        out.raw(&document);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let number = input.number()?;
        if let Some(known) = known(&input.given.policies, number, input)? {
            return Ok(known);
        }
        let digest = Digest::read(input)?;
        let document = input.text()?;
        let policy: Policy = serde_json::from_str(document).map_err(|_| input.fault("a policy cannot be read"))?;
        if Digest::of_bytes(document.as_bytes()) != digest || check(&policy).is_err() {
            return Err(input.fault("a policy is not the one whose digest is pinned, or contradicts itself"));
        }
        let id = Arc::from(policy.id.as_str());
        let pinned = Self::new(PinnedPolicy { policy, digest, id });
        input.given.policies.push(Self::clone(&pinned));
        Ok(pinned)
    }
}

fn next<T>(numbered: &BTreeMap<T, u64>) -> u64 {
    u64::try_from(numbered.len()).unwrap_or(u64::MAX)
}

/// What has a number already; absent when the number is the next one, and the thing itself follows.
fn known<T: Clone>(given: &[T], number: u64, input: &Reader<'_>) -> Result<Option<T>, Fault> {
    let index = usize::try_from(number).ok().filter(|index| *index <= given.len());
    let index = index.ok_or_else(|| input.fault("a number refers to what comes later"))?;
    Ok(given.get(index).cloned())
}
