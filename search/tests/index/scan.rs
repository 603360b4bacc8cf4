//! The order of hits by looking at every document: as plain as the rules, and what the index is compared with.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemas::AgentId;
use search::{CollectionStatistics, Hit, HitPlace, ProfileDocument, ProfileStanding, Query};

/// Every document, by agent, with a value of the caller's.
#[derive(Default)]
pub struct ScanIndex {
    by_agent: BTreeMap<AgentId, (ProfileDocument, ProfileStanding, usize)>,
}

impl ScanIndex {
    /// As that of the index.
    pub fn put(&mut self, agent: &AgentId, document: ProfileDocument, standing: ProfileStanding, value: usize) {
        self.by_agent.insert(agent.clone(), (document, standing, value));
    }

    /// As that of the index.
    pub fn remove(&mut self, agent: &AgentId) {
        self.by_agent.remove(agent);
    }

    /// As that of the index.
    pub fn len(&self) -> usize {
        self.by_agent.len()
    }

    /// As that of the index.
    pub fn collection(&self) -> CollectionStatistics {
        let mut collection = CollectionStatistics::default();
        for (document, standing, _) in self.by_agent.values() {
            collection.add(document.length(), *standing);
        }
        collection
    }

    /// The first hits, as the index gives them where it is asked for no later page.
    pub fn search(&self, query: &Query, limit: usize, admits: &dyn Fn(&AgentId, &usize) -> bool) -> Vec<Hit<usize>> {
        let collection = self.collection();
        let with: BTreeMap<&str, u64> = query.tokens().map(|token| (token, self.documents_with(token))).collect();
        let documents_with = |token: &str| with.get(token).copied().unwrap_or_default();
        let mut hits = Vec::new();
        for (agent, (document, _, value)) in &self.by_agent {
            let score = score(query, document, &collection, documents_with);
            if score > 0 && admits(agent, value) {
                hits.push(Hit { place: HitPlace { score, agent: agent.clone() }, value: *value });
            }
        }
        hits.sort_by_key(|hit| (Reverse(hit.place.score), hit.place.agent.clone()));
        hits.truncate(limit);
        hits
    }

    /// In how many listed documents a token stands.
    fn documents_with(&self, token: &str) -> u64 {
        let has = |(document, standing, _): &&(ProfileDocument, ProfileStanding, usize)| {
            *standing == ProfileStanding::Listed && document.frequency(token) > 0
        };
        self.by_agent.values().filter(has).count() as u64
    }
}

/// What a document scores, in millionths; 0 where it has none of the tokens. `documents_with` says in how many listed
/// documents a token stands.
fn score(
    query: &Query,
    document: &ProfileDocument,
    collection: &CollectionStatistics,
    documents_with: impl Fn(&str) -> u64,
) -> u64 {
    let found = query.tokens().filter(|token| document.frequency(token) > 0);
    found
        .map(|token| {
            let inverse_frequency = collection.inverse_frequency(documents_with(token));
            collection.part(inverse_frequency, document.frequency(token), document.length())
        })
        .sum()
}
