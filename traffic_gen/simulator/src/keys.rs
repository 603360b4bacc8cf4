//! One key and one token per agent, made once for the whole process: what they are does not show in any trace.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use gateway::AuthConfig;
use gateway::KeySource;
use gateway::keys::{Claims, KeyAlgorithm, SigningKey, key_set};
use schemas::AgentId;

use super::scenario::{CONTRACTORS, INITIATORS, agent};

const ISSUER: &str = "llmx-simulator";
/// Lifetime of a token, in seconds: the longest a gateway can be made to take, longer than any batch of runs.
const LIFETIME_S: u64 = 30 * 86_400;

struct Keys {
    key_set: String,
    tokens: BTreeMap<AgentId, String>,
}

fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let key = SigningKey::generate(KeyAlgorithm::EdDsa).expect("the system gives randomness");
        let names = INITIATORS.iter().chain(&CONTRACTORS).map(|name| agent(name));
        let signed = names.map(|id| {
            let token = key.sign(&Claims::new(&id, ISSUER, "llmx", LIFETIME_S)).expect("claims can be signed");
            (id, token)
        });
        Keys { tokens: signed.collect(), key_set: key_set(&[&key]) }
    })
}

/// An agent's token.
pub(super) fn token(agent: &AgentId) -> String {
    keys().tokens.get(agent).cloned().unwrap_or_default()
}

/// How gateways verify it.
pub(super) fn auth() -> AuthConfig {
    let mut auth = AuthConfig::new(KeySource::Inline(keys().key_set.clone()), ISSUER);
    auth.lifetime_s_max = LIFETIME_S;
    auth
}
