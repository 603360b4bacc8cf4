//! Calls an agent's owner should decide about: consent rules that say `ask`.

use schemas::{AgentId, TopicName};
use serde::{Deserialize, Serialize};

/// Requests kept per agent; the oldest make room. Repeats of one counterpart and topic count once.
pub(crate) const REQUESTS_PER_AGENT_MAX: usize = 64;
/// Ends the key under which an agent's requests are stored. No agent id contains `~`.
const SUFFIX: &str = "~ask";

/// Somebody called, and the agent's rules say that its owner is to be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConsentRequest {
    /// Who called.
    pub(crate) counterpart: AgentId,
    /// Through which topic, if through one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<TopicName>,
    /// When it was first noted, in seconds since the epoch, by the clock of the gateway that noted it.
    pub(crate) since_s: u64,
}

impl ConsentRequest {
    /// Whether this is about the same counterpart and topic.
    pub(crate) fn is_about(&self, counterpart: &AgentId, topic: Option<&TopicName>) -> bool {
        self.counterpart == *counterpart && self.topic.as_ref() == topic
    }
}

/// The bucket's key for an agent's requests.
pub(crate) fn requests_key(agent: &AgentId) -> String {
    format!("{agent}{SUFFIX}")
}

/// Whose requests a key holds, if it holds requests.
pub(super) fn owner_of_requests(key: &str) -> Option<AgentId> {
    AgentId::try_new(key.strip_suffix(SUFFIX)?).ok()
}
