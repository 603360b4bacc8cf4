//! Who is asking: tokens (RFC 7519), verified against a set of public keys.
//!
//! What it refuses to do: take an algorithm, a key or an address from a token. The algorithm is pinned to the key, the
//! key comes from the configured set by `kid`, and headers that carry keys or point to them (`jwk`, `jku`, `x5u`,
//! `x5c`) or change the meaning of the token (`crit`, `b64`, `enc`, `zip`, `cty`) end the conversation.

mod claims;
mod key_set;
mod source;

use std::sync::{Arc, Once};
use std::time::Instant;

use schemas::{AgentId, Code, Digest, Refusal};
use tokio::sync::watch;

pub(crate) use key_set::DEV_SECRET_KID;
use key_set::KeyMark;

use crate::clock::now_s;
use crate::config::AuthConfig;
use crate::error::KeyError;
use crate::metrics::GatewayMetrics;
use crate::shared_recent::SharedRecent;
use claims::{TokenHeader, refusal, verify_claims};
use source::LiveKeys;

/// Longest token that is looked at, in bytes. RS256 tokens with every claim we read stay below 1 KiB.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Verified tokens remembered: several for each of the 10,000 agents a gateway is built for. About 8 MiB.
const VERIFIED_MAX: usize = 65_536;

/// A verified token's bearer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The agent: the token's `sub`.
    pub agent: AgentId,
    /// The token's `exp`, in seconds since the epoch.
    pub expires_s: u64,
    /// Whether it may put policies and groups.
    pub is_admin: bool,
    /// The key that verified the token.
    key: KeyMark,
}

/// Verifies tokens and remembers those it has verified.
pub(crate) struct Authenticator {
    config: AuthConfig,
    keys: LiveKeys,
    verified: SharedRecent<[u8; 32], Remembered>,
    metrics: Arc<GatewayMetrics>,
}

#[derive(Clone)]
struct Remembered {
    identity: Identity,
    generation: u64,
}

impl Authenticator {
    /// Loads the keys for the first time.
    ///
    /// # Errors
    /// [`KeyError`] when they cannot be used.
    pub(crate) async fn load(config: AuthConfig, metrics: Arc<GatewayMetrics>) -> Result<Self, KeyError> {
        install_crypto();
        let keys = LiveKeys::load(&config, metrics.clone()).await?;
        Ok(Self { config, keys, verified: SharedRecent::new(VERIFIED_MAX), metrics })
    }

    /// The answer for a token that was verified before with the keys in force, if it is still remembered.
    pub(crate) fn remembered(&self, token: &str) -> Option<Result<Identity, Refusal>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let remembered = self.verified.value(&Digest::of_bytes(token.as_bytes()).0)?;
        if remembered.generation != self.keys.current().generation() {
            return None;
        }
        Some(self.still_valid(&remembered.identity).map(|()| remembered.identity))
    }

    /// Verifies a token from scratch.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`], [`Code::TokenExpired`] or [`Code::TokenNotYetValid`].
    pub(crate) async fn verify(&self, token: &str) -> Result<Identity, Refusal> {
        let began = Instant::now();
        let outcome = self.verify_now(token).await;
        self.metrics.access.verified(began.elapsed());
        outcome
    }

    /// Refuses an identity whose token has run out, or whose key has gone, since it was verified.
    ///
    /// # Errors
    /// [`Code::TokenExpired`], [`Code::Unauthenticated`].
    pub(crate) fn still_valid(&self, identity: &Identity) -> Result<(), Refusal> {
        if now_s() > identity.expires_s.saturating_add(self.config.leeway_s) {
            return Err(Refusal::new(Code::TokenExpired, "the token has expired; present a new one"));
        }
        if !self.is_key_in_force(identity) {
            return Err(refusal("the key that signed the token is trusted no longer; present a new token"));
        }
        Ok(())
    }

    /// Whether the key that verified an identity's token is still in the set.
    pub(crate) fn is_key_in_force(&self, identity: &Identity) -> bool {
        self.keys.current().holds(&identity.key)
    }

    /// Follows changes of the key set.
    pub(crate) fn key_changes(&self) -> watch::Receiver<u64> {
        self.keys.changes()
    }

    /// Reads the keys again at intervals until the gateway stops.
    pub(crate) async fn drive_refresh(self: Arc<Self>, stop: tokio_util::sync::CancellationToken) {
        self.keys.drive_refresh(stop).await;
    }

    async fn verify_now(&self, token: &str) -> Result<Identity, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refusal("the token is longer than any this gateway reads").expecting("at most 4096 bytes"));
        }
        let header = TokenHeader::parse(token)?;
        let keys = self.keys.holding(&header.kid).await;
        let key = keys.key(&header.kid).ok_or_else(|| refusal("the token names a key this gateway does not know"))?;
        if header.alg != key.algorithm_name() {
            return Err(refusal("the token's `alg` is not the one its key is for"));
        }
        let claims = verify_claims(token, key, &self.config)?;
        let identity = Identity {
            agent: AgentId::try_new(&claims.sub).map_err(|_| {
                refusal("the token's `sub` is no agent id").expecting("1 to 64 characters of A-Z a-z 0-9 _ -")
            })?,
            expires_s: claims.exp,
            is_admin: claims.has_scope(crate::ADMIN_SCOPE),
            key: KeyMark { kid: header.kid, material: key.material() },
        };
        let remembered = Remembered { identity: identity.clone(), generation: keys.generation() };
        self.verified.put(Digest::of_bytes(token.as_bytes()).0, remembered);
        Ok(identity)
    }
}

/// Chooses the process's cryptography once. Without it `jsonwebtoken` panics when another crate enables a second one.
pub(crate) fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that someone installed a provider before: then that one is used.
        let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    });
}
