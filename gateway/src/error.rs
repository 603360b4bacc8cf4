use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bus::BusError;

/// Why a gateway does not start. Once it runs, requests are answered with a [`schemas::Refusal`] instead.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The configuration contradicts itself; the text says which member and what it may be.
    #[error("the configuration is not usable: {0}")]
    Config(String),
    /// A member's value does not fit what the exchange holds. Correct it and start again.
    #[error("the configuration is not usable: `{}`: {}", .0.member, .0.expected)]
    Setting(ConfigFault),
    /// The verification keys cannot be used. Correct the key set and start again.
    #[error("the verification keys cannot be used: {0}")]
    Keys(#[from] KeyError),
    /// The address cannot be listened on. Choose another, or stop what holds it.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The bus failed during the start.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// Agents, groups and policies did not arrive from the bus in time.
    #[error("the control plane's documents did not arrive within {0:?}: is the bus reachable?")]
    NotCaughtUp(Duration),
    /// A metric is registered twice: give each gateway its own registry.
    #[error("the metrics cannot be registered: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A member whose value is out of range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// Its path.
    pub member: &'static str,
    /// What it must be.
    pub expected: String,
}

/// What is wrong with a set of keys, or with one of them. A secret refuses the whole set; any other key that cannot be used is
/// skipped, and named only where no key is left at the start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The file or URL cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The text is not a JSON Web Key Set, or not a PEM private key.
    #[error("cannot be parsed: {0}")]
    Malformed(String),
    /// The set has no key this gateway can verify with.
    #[error("holds no EdDSA, ES256 or RS256 key for signatures")]
    Empty,
    /// The set has more keys than any issuer rotates through.
    #[error("holds {found} keys, at most {limit} are read")]
    TooMany {
        /// Keys found.
        found: usize,
        /// Most that are read.
        limit: usize,
    },
    /// A key has no `kid`, so no token could name it.
    #[error("holds a key without `kid`")]
    MissingKid,
    /// Two different keys have the same `kid`: which one verifies would depend on their order, so neither does.
    #[error("holds two keys with kid `{0}`")]
    DuplicateKid(String),
    /// A symmetric or private key in a document meant to be public.
    #[error("key `{0}` is secret: a verification key set holds public keys only")]
    Secret(String),
    /// The key's `alg` contradicts its type, or it is not of a form the algorithm takes.
    #[error("key `{kid}` does not fit: {fault}")]
    Unfit {
        /// The key.
        kid: String,
        /// What does not fit.
        fault: String,
    },
}
