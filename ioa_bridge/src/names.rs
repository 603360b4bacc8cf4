//! Which agent of the exchange a free name is.

use std::collections::BTreeMap;
use std::fmt;

use agents::{Identity, Token};
use schemas::AgentId;
use serde::Deserialize;

use crate::wire::NAME_LEN_MAX;

/// Most names of one bridge.
pub const NAMES_MAX: usize = 256;

/// One name of the owner's document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedAgent {
    /// The name that the client uses.
    pub name: String,
    /// The agent of the exchange.
    pub agent: AgentId,
    /// File that holds its token.
    pub token_file: String,
}

/// What is wrong with an owner's names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameBookError {
    /// A name that no client can have.
    #[error("the name of agent {0} has no character, more than {NAME_LEN_MAX}, or a control character")]
    Name(AgentId),
    /// A name or agent twice, or a name that is the id of another agent.
    #[error("`{0}` stands twice: each name is one agent, and each agent has one name")]
    Twice(String),
    /// None, or too many.
    #[error("{0} names; there may be 1 to {NAMES_MAX}")]
    Count(usize),
}

/// The agents of an owner by name, and how each proves who it is.
#[derive(Clone, Default)]
pub struct NameBook {
    agents_by_name: BTreeMap<String, AgentId>,
    names_by_agent: BTreeMap<AgentId, String>,
    tokens_by_agent: BTreeMap<AgentId, Token>,
}

impl NameBook {
    /// The names, each with its agent and the token of that.
    ///
    /// # Errors
    /// [`NameBookError`].
    pub fn try_new(named: impl IntoIterator<Item = (String, Identity)>) -> Result<Self, NameBookError> {
        let mut book = Self::default();
        for (name, Identity { agent, token }) in named {
            if name.is_empty() || name.chars().count() > NAME_LEN_MAX || name.chars().any(char::is_control) {
                return Err(NameBookError::Name(agent));
            }
            let is_known_agent = book.names_by_agent.insert(agent.clone(), name.clone()).is_some();
            if is_known_agent || book.agents_by_name.insert(name.clone(), agent.clone()).is_some() {
                return Err(NameBookError::Twice(name));
            }
            book.tokens_by_agent.insert(agent, token);
        }
        let is_id_of_another =
            |(name, agent): &(&String, &AgentId)| name.as_str() != agent.as_str() && book.is_of_an_agent(name);
        if let Some((name, _)) = book.agents_by_name.iter().find(is_id_of_another) {
            return Err(NameBookError::Twice(name.clone()));
        }
        match book.agents_by_name.len() {
            1..=NAMES_MAX => Ok(book),
            count => Err(NameBookError::Count(count)),
        }
    }

    fn is_of_an_agent(&self, name: &str) -> bool {
        AgentId::try_new(name).is_ok_and(|agent| self.names_by_agent.contains_key(&agent))
    }

    /// The owner's agent of this name.
    #[must_use]
    pub fn own(&self, name: &str) -> Option<&AgentId> {
        self.agents_by_name.get(name)
    }

    /// The agent of this name: the owner's, or the agent of the exchange whose id it is.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<AgentId> {
        self.own(name).cloned().or_else(|| AgentId::try_new(name).ok())
    }

    /// The name of an agent: the owner's name for it, or its id.
    #[must_use]
    pub fn name(&self, agent: &AgentId) -> String {
        self.names_by_agent.get(agent).cloned().unwrap_or_else(|| agent.to_string())
    }

    /// Whether an agent is one of the owner's.
    #[must_use]
    pub fn is_own(&self, agent: &AgentId) -> bool {
        self.names_by_agent.contains_key(agent)
    }

    /// How one of the owner's agents proves who it is.
    #[must_use]
    pub fn identity(&self, agent: &AgentId) -> Option<Identity> {
        let token = self.tokens_by_agent.get(agent)?.clone();
        Some(Identity { agent: agent.clone(), token })
    }
}

impl fmt::Debug for NameBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NameBook").field(&self.agents_by_name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(names: &[(&str, &str)]) -> Result<NameBook, NameBookError> {
        let identity = |id: &str| Identity { agent: AgentId::try_new(id).unwrap(), token: "token".into() };
        NameBook::try_new(names.iter().map(|(name, id)| ((*name).to_owned(), identity(id))))
    }

    #[test]
    fn a_name_is_the_owners_agent_and_any_other_is_an_id() {
        let names = book(&[("Weather Man", "alice"), ("bob", "bob")]).unwrap();
        let alice = AgentId::try_new("alice").unwrap();
        assert_eq!((names.own("Weather Man"), names.own("alice")), (Some(&alice), None));
        assert_eq!(names.agent("carol").map(|agent| names.name(&agent)).as_deref(), Some("carol"));
        assert_eq!((names.name(&alice).as_str(), names.agent("not an id")), ("Weather Man", None));
        assert!(names.identity(&AgentId::try_new("carol").unwrap()).is_none());
    }

    #[test]
    fn names_that_could_be_mistaken_are_refused() {
        assert_eq!(book(&[]).unwrap_err(), NameBookError::Count(0));
        for names in
            [[("A", "alice"), ("A", "bob")], [("A", "alice"), ("B", "alice")], [("bob", "alice"), ("B", "bob")]]
        {
            assert!(matches!(book(&names).unwrap_err(), NameBookError::Twice(_)), "{names:?}");
        }
        for name in ["", "a\nb", &"x".repeat(NAME_LEN_MAX + 1)] {
            assert!(matches!(book(&[(name, "alice")]).unwrap_err(), NameBookError::Name(_)));
        }
    }
}
