//! Registered agents, by id and by topic.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use schemas::control::Registration;
use schemas::{AgentId, TopicName};

use super::requests::{ConsentRequest, owner_of_requests};

/// The agents.
#[derive(Default)]
pub(crate) struct AgentTable {
    by_id: BTreeMap<AgentId, Arc<Registration>>,
    subscribers_by_topic: BTreeMap<TopicName, BTreeSet<AgentId>>,
    requests_by_agent: HashMap<AgentId, Arc<Vec<ConsentRequest>>>,
}

impl AgentTable {
    /// An agent's registration.
    pub(crate) fn registration(&self, agent: &AgentId) -> Option<&Arc<Registration>> {
        self.by_id.get(agent)
    }

    /// Who subscribes to a topic, in the order of the agent id.
    pub(crate) fn subscribers(&self, topic: &TopicName) -> impl Iterator<Item = &AgentId> {
        self.subscribers_by_topic.get(topic).into_iter().flatten()
    }

    /// Everybody after `after`, in the order of the agent id.
    pub(crate) fn following<'a>(
        &'a self,
        after: Option<&'a AgentId>,
    ) -> impl Iterator<Item = (&'a AgentId, &'a Arc<Registration>)> {
        use std::ops::Bound;
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((begin, Bound::Unbounded))
    }

    /// The agents whose ids stand around `agent` in alphabetical order, at most `each_max` on either side.
    pub(crate) fn ids_around(&self, agent: &AgentId, each_max: usize) -> impl Iterator<Item = &AgentId> {
        around(&self.by_id, agent, each_max).map(|(id, _)| id)
    }

    /// The topics around `topic` in alphabetical order with their subscribers, at most `each_max` on either side.
    pub(crate) fn topics_around(
        &self,
        topic: &TopicName,
        each_max: usize,
    ) -> impl Iterator<Item = (&TopicName, &BTreeSet<AgentId>)> {
        around(&self.subscribers_by_topic, topic, each_max)
    }

    /// Calls an agent's owner was to be asked about, oldest first.
    pub(crate) fn requests(&self, agent: &AgentId) -> Option<&Arc<Vec<ConsentRequest>>> {
        self.requests_by_agent.get(agent)
    }

    /// How many agents are registered.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn apply(&mut self, key: &str, value: Option<&Bytes>) -> Result<(), serde_json::Error> {
        if let Some(owner) = owner_of_requests(key) {
            match value {
                Some(value) => self.requests_by_agent.insert(owner, Arc::new(serde_json::from_slice(value)?)),
                None => self.requests_by_agent.remove(&owner),
            };
            return Ok(());
        }
        let Ok(agent) = AgentId::try_new(key) else { return Ok(()) };
        let registration = value.map(|value| serde_json::from_slice::<Registration>(value)).transpose()?;
        if let Some(old) = self.by_id.remove(&agent) {
            self.unsubscribe(&agent, &old);
        }
        if let Some(registration) = registration {
            for topic in &registration.topics {
                self.subscribers_by_topic.entry(topic.clone()).or_default().insert(agent.clone());
            }
            self.by_id.insert(agent, Arc::new(registration));
        }
        Ok(())
    }

    fn unsubscribe(&mut self, agent: &AgentId, registration: &Registration) {
        for topic in &registration.topics {
            if let Some(subscribers) = self.subscribers_by_topic.get_mut(topic) {
                subscribers.remove(agent);
                if subscribers.is_empty() {
                    self.subscribers_by_topic.remove(topic);
                }
            }
        }
    }
}

fn around<'a, K: Ord, V>(map: &'a BTreeMap<K, V>, key: &K, each_max: usize) -> impl Iterator<Item = (&'a K, &'a V)> {
    use std::ops::Bound::{Excluded, Unbounded};
    let before = map.range((Unbounded, Excluded(key))).rev().take(each_max);
    before.chain(map.range((Excluded(key), Unbounded)).take(each_max))
}
