//! Who an agent is, and how it proves it.

use std::fmt;
use std::sync::Arc;

use schemas::AgentId;

/// An agent and its token.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The agent: the `sub` of its token.
    pub agent: AgentId,
    /// Its token.
    pub token: Token,
}

/// A source of the agent's JWT: asked at every connection (and, on the bus, at every message), so that a token can
/// be renewed while the agent runs. Never shown by `Debug`.
#[derive(Clone)]
pub struct Token {
    source: Arc<dyn Fn() -> String + Send + Sync>,
    is_renewed: bool,
}

impl Token {
    /// A token that stays the same.
    #[must_use]
    pub fn fixed(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { source: Arc::new(move || text.clone()), is_renewed: false }
    }

    /// A token that is renewed: `source` returns the one to use now. It must not block. An agent whose token is refused, because
    /// it has expired or its key was taken out of the key set, asks again at its next attempt to connect; one that was never accepted
    /// ends with the refusal.
    #[must_use]
    pub fn renewed(source: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { source: Arc::new(source), is_renewed: true }
    }

    /// The token to use now.
    #[must_use]
    pub fn current(&self) -> String {
        (self.source)()
    }

    /// Whether another token may come: then one that is refused is no reason to give up.
    pub(crate) const fn is_renewed(&self) -> bool {
        self.is_renewed
    }
}

impl From<String> for Token {
    fn from(text: String) -> Self {
        Self::fixed(text)
    }
}

impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self::fixed(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let identity = Identity { agent: AgentId::try_new("alice").unwrap(), token: "secret".into() };
        assert!(!format!("{identity:?}").contains("secret"));
        assert_eq!(identity.token.current(), "secret");
    }
}
