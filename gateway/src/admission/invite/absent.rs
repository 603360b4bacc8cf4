//! Absent agents that a call does not reach: they are counted, and cost it next to nothing however many they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemas::{AgentId, TopicName};

use super::InviteCandidate;
use crate::registry::Audience;

/// Subscribers looked at so that one of several addressed topics counts once: some microseconds. Beyond it each topic counts
/// by itself.
const LOOKED_AT_MAX: usize = 64;

/// Those seen while the addresses of a call are gone through. Those on the lists of topics are not gone through.
#[derive(Default)]
pub(super) struct Absent<'a> {
    /// Seen one by one: members of groups, and agents whose lease has just ended.
    pub(super) agents: BTreeSet<&'a AgentId>,
    /// The addressed topics.
    pub(super) audiences: BTreeMap<&'a TopicName, &'a Audience>,
    /// Reached another way; each once.
    pub(super) reached: Vec<&'a AgentId>,
}

/// How many agents are absent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AbsentCount {
    /// The number, or an upper bound.
    pub(crate) agents: usize,
    /// Whether it is an upper bound: those that subscribe to several addressed topics count for each.
    pub(crate) is_upper_bound: bool,
}

impl fmt::Display for AbsentCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_upper_bound { "at most " } else { "" }, self.agents)
    }
}

impl Absent<'_> {
    /// How many are left out: exact where at most [`LOOKED_AT_MAX`] subscribe to the addressed topics beside the one with the
    /// most, and otherwise an upper bound.
    pub(super) fn count(&self, candidates: &BTreeMap<&AgentId, InviteCandidate<'_>>, from: &AgentId) -> AbsentCount {
        let mut lists: Vec<_> = self.audiences.values().map(|audience| &audience.absent).collect();
        lists.sort_by_key(|list| std::cmp::Reverse(list.len()));
        let lists_of = |agent: &AgentId| lists.iter().filter(|list| list.contains_key(agent)).count();
        let is_alone = |agent: &AgentId| agent != from && !candidates.contains_key(agent) && lists_of(agent) == 0;
        let alone = self.agents.iter().filter(|agent| is_alone(agent)).count();
        let of_lists: usize = lists.iter().map(|list| list.len()).sum();
        let smaller = lists.get(1..).unwrap_or_default();
        let is_upper_bound = smaller.iter().map(|list| list.len()).sum::<usize>() > LOOKED_AT_MAX;
        let counted_times = |agent| if is_upper_bound { lists_of(agent) } else { lists_of(agent).min(1) };
        let not_left_out: usize = self.reached.iter().copied().chain([from]).map(counted_times).sum();
        let again = |(index, list): (usize, &&BTreeMap<AgentId, _>)| {
            let is_on_larger = |agent: &&AgentId| lists[..=index].iter().any(|larger| larger.contains_key(*agent));
            list.keys().filter(is_on_larger).count()
        };
        let repeated: usize = if is_upper_bound { 0 } else { smaller.iter().enumerate().map(again).sum() };
        AbsentCount { agents: alone + of_lists - repeated - not_left_out, is_upper_bound }
    }
}
