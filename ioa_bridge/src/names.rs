//! Which agent of the exchange a free name is.

use std::collections::BTreeMap;
use std::fmt;

use agents::{Identity, Token};
use schemas::AgentId;
use serde::Deserialize;

use crate::wire::NAME_LEN_MAX;

/// Most names of one bridge.
pub const NAMES_MAX: usize = 256;
/// The bridge's own name: it says what no member says. No client has it, and no other agent is shown under it.
pub const EXCHANGE_NAME: &str = "exchange";
/// Begins the name of an agent whose id is taken by the name of a client or by [`EXCHANGE_NAME`]. No client's name begins so.
pub const NATIVE_PREFIX: &str = "agent:";

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
    /// A name that is the bridge's own, or that it gives to agents of others.
    #[error(
        "`{0}` is no name for a client: `{EXCHANGE_NAME}` is the bridge's, and `{NATIVE_PREFIX}` begins those of other agents"
    )]
    Reserved(String),
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
            let lower = name.to_ascii_lowercase();
            if lower == EXCHANGE_NAME || lower.starts_with(NATIVE_PREFIX) {
                return Err(NameBookError::Reserved(name));
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
    pub fn own(&self, name: &str) -> Option<&AgentId> {
        self.agents_by_name.get(name)
    }

    /// The agent of this name: the owner's, or the agent of the exchange whose id it is, with [`NATIVE_PREFIX`] or, where no
    /// client's name is the same but for the case of letters, without.
    pub fn agent(&self, name: &str) -> Option<AgentId> {
        let id = || name.strip_prefix(NATIVE_PREFIX).or_else(|| (!self.is_taken(name)).then_some(name));
        self.own(name).cloned().or_else(|| AgentId::try_new(id()?).ok())
    }

    /// The name of an agent: the owner's name for it, or its id, behind [`NATIVE_PREFIX`] where that could be mistaken for a
    /// client's name or the bridge's. No two agents have the same.
    pub fn name(&self, agent: &AgentId) -> String {
        let prefix = || if self.is_taken(agent.as_str()) { NATIVE_PREFIX } else { "" };
        self.names_by_agent.get(agent).cloned().unwrap_or_else(|| format!("{}{agent}", prefix()))
    }

    fn is_taken(&self, id: &str) -> bool {
        let is_it = |name: &String| name.eq_ignore_ascii_case(id);
        id.eq_ignore_ascii_case(EXCHANGE_NAME) || self.agents_by_name.keys().any(is_it)
    }

    /// Whether an agent is one of the owner's.
    pub fn is_own(&self, agent: &AgentId) -> bool {
        self.names_by_agent.contains_key(agent)
    }

    /// How one of the owner's agents proves who it is.
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
    use std::sync::atomic::{AtomicU64, Ordering};

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
    fn a_token_that_is_renewed_is_asked_for_whenever_it_is_used() {
        let (asked, agent) = (AtomicU64::new(0), AgentId::try_new("alice").unwrap());
        let token = Token::renewed(move || format!("token {}", asked.fetch_add(1, Ordering::Relaxed)));
        let names = NameBook::try_new([("A".to_owned(), Identity { agent: agent.clone(), token })]).unwrap();
        let current = || names.identity(&agent).unwrap().token.current();
        assert_eq!((current(), current()), ("token 0".to_owned(), "token 1".to_owned()));
    }

    #[test]
    fn an_agent_whose_id_is_a_clients_name_or_the_bridges_is_shown_under_another_that_leads_back_to_it() {
        let names = book(&[("Weather", "alice"), ("Trip Planner", "planner")]).unwrap();
        for (id, shown) in [
            ("Weather", "agent:Weather"),
            ("weather", "agent:weather"),
            ("exchange", "agent:exchange"),
            ("EXCHANGE", "agent:EXCHANGE"),
            ("carol", "carol"),
            ("alice", "Weather"),
        ] {
            let agent = AgentId::try_new(id).unwrap();
            assert_eq!(names.name(&agent), shown);
            assert_eq!(names.agent(shown), Some(agent), "{shown}");
        }
        assert_eq!(names.agent("Weather").map(|agent| agent.to_string()).as_deref(), Some("alice"));
        assert_eq!((names.agent("exchange"), names.agent("weather"), names.agent("agent:a b")), (None, None, None));
        for name in ["exchange", "Exchange", "agent:weather", "Agent:x"] {
            assert_eq!(book(&[(name, "alice")]).unwrap_err(), NameBookError::Reserved(name.to_owned()));
        }
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
