//! Whom an agent has met: found by a search, or in a team. A document that its owner keeps in a file.

use std::collections::BTreeMap;

use schemas::AgentId;
use serde::{Deserialize, Serialize};

/// Agents that are remembered; of more, those not seen for longest are forgotten.
pub const CONTACTS_MAX: usize = 1024;

/// One agent that was met.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contact {
    /// When it was met last, in milliseconds since 1970.
    pub seen_ms: u64,
    /// What it was last found for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Its score then, in millionths.
    #[serde(default)]
    pub score: u64,
    /// Teams with it that have concluded, and its tasks that were done.
    #[serde(default)]
    pub done: u64,
    /// Teams with it that have not, and its tasks that failed.
    #[serde(default)]
    pub failed: u64,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContactBook {
    contacts: BTreeMap<AgentId, Contact>,
}

impl ContactBook {
    /// The agents by id.
    pub fn contacts(&self) -> &BTreeMap<AgentId, Contact> {
        &self.contacts
    }

    /// Known agents that were last found for this text.
    pub fn found_for(&self, text: &str) -> impl Iterator<Item = (&AgentId, &Contact)> {
        self.contacts.iter().filter(move |(_, contact)| contact.text == text)
    }

    /// A search for a text has found an agent.
    pub fn note_found(&mut self, agent: &AgentId, text: &str, score: u64, now_ms: u64) {
        let contact = self.meet(agent, now_ms);
        text.clone_into(&mut contact.text);
        contact.score = score;
        self.forget();
    }

    /// Something with an agent has come to its end, well or not.
    pub fn note_outcome(&mut self, agent: &AgentId, is_done: bool, now_ms: u64) {
        let contact = self.meet(agent, now_ms);
        let count = if is_done { &mut contact.done } else { &mut contact.failed };
        *count = count.saturating_add(1);
        self.forget();
    }

    /// Keeps those that were seen last, also of a document that holds more.
    pub fn forget(&mut self) {
        while self.contacts.len() > CONTACTS_MAX {
            let oldest = self.contacts.iter().min_by_key(|(agent, contact)| (contact.seen_ms, *agent));
            let Some(oldest) = oldest.map(|(agent, _)| agent.clone()) else { return };
            self.contacts.remove(&oldest);
        }
    }

    fn meet(&mut self, agent: &AgentId, now_ms: u64) -> &mut Contact {
        let contact = self.contacts.entry(agent.clone()).or_default();
        contact.seen_ms = contact.seen_ms.max(now_ms);
        contact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_not_seen_for_longest_are_forgotten() {
        let mut book = ContactBook::default();
        let agent = |number: u64| AgentId::try_new(&format!("agent-{number}")).unwrap();
        for number in 0..=CONTACTS_MAX as u64 {
            book.note_found(&agent(number), "walls", number, number);
        }
        assert_eq!(book.contacts().len(), CONTACTS_MAX);
        assert!(!book.contacts().contains_key(&agent(0)));
        // Whoever is met again stays.
        book.note_outcome(&agent(1), true, 5000);
        book.note_outcome(&agent(1), false, 4000);
        book.note_found(&agent(9999), "floors", 1, 6000);
        assert!(!book.contacts().contains_key(&agent(2)));
        let met = &book.contacts()[&agent(1)];
        assert_eq!((met.done, met.failed, met.seen_ms, met.score), (1, 1, 5000, 1));
        assert_eq!(book.found_for("floors").count(), 1);
    }

    #[test]
    fn a_book_reads_what_it_writes_and_nothing_else() {
        let mut book = ContactBook::default();
        book.note_found(&AgentId::try_new("bob").unwrap(), "walls", 3, 7);
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<ContactBook>(&text).unwrap(), book);
        serde_json::from_str::<ContactBook>(r#"{"contacts": {}, "more": 1}"#).unwrap_err();
        serde_json::from_str::<ContactBook>(r#"{"contacts": {"no agent": {"seen_ms": 1}}}"#).unwrap_err();
    }
}
