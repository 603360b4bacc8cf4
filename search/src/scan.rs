//! The order of hits by looking at every document: as plain as the rules, and what other indexes are compared with.

use std::collections::BTreeMap;

use schemas::AgentId;

use crate::document::{ProfileDocument, ProfileStanding};
use crate::leaders::Leaders;
use crate::ranking::{CollectionStatistics, Query};
use crate::{Hit, HitPlace, ProfileIndex};

/// Every document, by agent.
#[derive(Debug)]
pub struct ScanIndex<T> {
    by_agent: BTreeMap<AgentId, ScannedProfile<T>>,
}

#[derive(Debug)]
struct ScannedProfile<T> {
    document: ProfileDocument,
    standing: ProfileStanding,
    value: T,
}

impl<T> Default for ScanIndex<T> {
    fn default() -> Self {
        Self { by_agent: BTreeMap::new() }
    }
}

impl<T> ScanIndex<T> {
    /// In how many listed documents a token stands.
    fn documents_with(&self, token: &str) -> u64 {
        let has = |profile: &&ScannedProfile<T>| {
            profile.standing == ProfileStanding::Listed && profile.document.frequency(token) > 0
        };
        self.by_agent.values().filter(has).count() as u64
    }
}

impl<T: Clone> ProfileIndex<T> for ScanIndex<T> {
    fn put(&mut self, agent: &AgentId, document: ProfileDocument, standing: ProfileStanding, value: T) {
        self.by_agent.insert(agent.clone(), ScannedProfile { document, standing, value });
    }

    fn remove(&mut self, agent: &AgentId) {
        self.by_agent.remove(agent);
    }

    fn value(&self, agent: &AgentId) -> Option<&T> {
        self.by_agent.get(agent).map(|profile| &profile.value)
    }

    fn len(&self) -> usize {
        self.by_agent.len()
    }

    fn collection(&self) -> CollectionStatistics {
        let mut collection = CollectionStatistics::default();
        for profile in self.by_agent.values() {
            collection.add(profile.document.length(), profile.standing);
        }
        collection
    }

    fn search(
        &self,
        query: &Query,
        limit: usize,
        after: Option<&HitPlace>,
        admits: &dyn Fn(&AgentId, &T) -> bool,
    ) -> Vec<Hit<T>> {
        let collection = self.collection();
        let with: BTreeMap<&str, u64> = query.tokens().map(|token| (token, self.documents_with(token))).collect();
        let documents_with = |token: &str| with.get(token).copied().unwrap_or_default();
        let mut leaders = Leaders::new(limit, after);
        for (agent, profile) in &self.by_agent {
            let score = query.score(&profile.document, &collection, documents_with);
            leaders.offer(score, agent, &profile.value, || admits(agent, &profile.value));
        }
        leaders.into_hits()
    }
}
