//! Who is asking: tokens (RFC 7519), verified against a set of public keys.
//!
//! What it refuses to do: take an algorithm, a key or an address from a token. The algorithm is pinned to the key, the
//! key comes from the configured set by `kid`, and headers that carry keys or point to them (`jwk`, `jku`, `x5u`,
//! `x5c`) or change the meaning of the token (`crit`, `b64`, `enc`, `zip`, `cty`) end the conversation.

mod key_set;

use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime, TryFromFloatSecsError, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use retry::SharedRecentMap;
use schemas::{AgentId, Code, Digest, Refusal};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::watch;

use crate::config::AuthConfig;
use crate::error::KeyError;
use crate::metrics::GatewayMetrics;
pub use key_set::read_key_set;
use key_set::{KeyMark, LiveKeys};

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
    verified: SharedRecentMap<[u8; 32], Remembered>,
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
        Ok(Self { config, keys, verified: SharedRecentMap::new(VERIFIED_MAX), metrics })
    }

    /// Answers for a token: from memory, or by verifying it once `charge` lets it.
    ///
    /// # Errors
    /// What `charge` refuses. The inner result is the answer: [`Code::Unauthenticated`], [`Code::TokenExpired`] or
    /// [`Code::TokenNotYetValid`].
    pub(crate) async fn identify(
        &self,
        token: &str,
        charge: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<Result<Identity, Refusal>, Refusal> {
        if let Some(outcome) = self.remembered(token) {
            return Ok(outcome);
        }
        charge()?;
        let began = Instant::now();
        let outcome = self.verify(token).await;
        self.metrics.access.auth_duration.observe(began.elapsed().as_secs_f64());
        Ok(outcome)
    }

    /// The answer for a token that was verified before with the keys in force, if it is still remembered.
    fn remembered(&self, token: &str) -> Option<Result<Identity, Refusal>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let remembered = self.verified.renew(&Digest::of_bytes(token.as_bytes()).0)?;
        if remembered.generation != self.keys.current().generation() {
            return None;
        }
        Some(self.still_valid(&remembered.identity).map(|()| remembered.identity))
    }

    /// Refuses an identity whose token has run out, or whose key has gone, since it was verified.
    ///
    /// # Errors
    /// [`Code::TokenExpired`], [`Code::Unauthenticated`].
    pub(crate) fn still_valid(&self, identity: &Identity) -> Result<(), Refusal> {
        if self.remaining(identity).is_zero() {
            return Err(Refusal::new(Code::TokenExpired, "the token has expired; present a new one"));
        }
        if !self.is_key_in_force(identity) {
            return Err(refusal("the key that signed the token is trusted no longer; present a new token"));
        }
        Ok(())
    }

    /// How long an identity's token is still taken, for whatever it is shown: through the second of its `exp`, and the leeway.
    pub(crate) fn remaining(&self, identity: &Identity) -> Duration {
        let last_s = identity.expires_s.saturating_add(self.config.leeway_s);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Duration::from_secs(last_s.saturating_add(1)).saturating_sub(now)
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

    /// Verifies a token from scratch.
    async fn verify(&self, token: &str) -> Result<Identity, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refusal("the token is longer than any this gateway reads").expecting("at most 4096 bytes"));
        }
        let header = TokenHeader::parse(token)?;
        let keys = self.keys.holding(&header.kid).await;
        let (claims, key) = keys.verify::<TokenClaims>(token, header)?;
        check_times(&claims, &self.config)?;
        let identity = Identity {
            agent: AgentId::try_new(&claims.sub).map_err(|_| {
                refusal("the token's `sub` is no agent id").expecting("1 to 64 characters of A-Z a-z 0-9 _ -")
            })?,
            expires_s: claims.exp.0,
            is_admin: claims.has_scope(crate::ADMIN_SCOPE),
            key,
        };
        self.still_valid(&identity)?;
        let remembered = Remembered { identity: identity.clone(), generation: keys.generation() };
        self.verified.insert(Digest::of_bytes(token.as_bytes()).0, remembered);
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

/// Longest `kid` that is looked up, in bytes.
const KID_BYTES_MAX: usize = 128;
/// Token types accepted (RFC 7519 section 5.1, RFC 9068 section 2.1), compared without regard to case. A prefix
/// `application/` may be left out (RFC 7515 section 4.1.9).
const TYPES: [&str; 4] = ["JWT", "application/jwt", "at+jwt", "application/at+jwt"];

/// The header of a token, as far as it may decide anything.
struct TokenHeader {
    alg: String,
    kid: String,
}

#[derive(Deserialize)]
struct RawHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    jwk: Option<IgnoredAny>,
    jku: Option<IgnoredAny>,
    x5u: Option<IgnoredAny>,
    x5c: Option<IgnoredAny>,
    crit: Option<IgnoredAny>,
    b64: Option<IgnoredAny>,
    enc: Option<IgnoredAny>,
    zip: Option<IgnoredAny>,
    cty: Option<IgnoredAny>,
}

/// The claims that are read. A claim that stands twice is an error of the decoder.
#[derive(Deserialize)]
struct TokenClaims {
    sub: String,
    exp: NumericDate,
    #[serde(rename = "iss")]
    _iss: String,
    iat: Option<NumericDate>,
    scope: Option<String>,
}

/// A time of RFC 7519, section 2, in whole seconds since the epoch: a fraction is cut off.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct NumericDate(u64);

impl TryFrom<f64> for NumericDate {
    type Error = TryFromFloatSecsError;

    fn try_from(seconds: f64) -> Result<Self, TryFromFloatSecsError> {
        Duration::try_from_secs_f64(seconds).map(|since| Self(since.as_secs()))
    }
}

impl TokenHeader {
    /// Reads the header of a compact JWS without verifying anything.
    fn parse(token: &str) -> Result<Self, Refusal> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refusal("the token does not have three parts"));
        };
        if header.is_empty() || payload.is_empty() || signature.is_empty() {
            return Err(refusal("a part of the token is empty"));
        }
        let json = URL_SAFE_NO_PAD.decode(header).map_err(|_| refusal("the token's header is not base64url"))?;
        let raw: RawHeader =
            serde_json::from_slice(&json).map_err(|_| refusal("the token's header is not a JWS header"))?;
        raw.refuse_what_decides_nothing_here()?;
        match raw.kid {
            Some(kid) if (1..=KID_BYTES_MAX).contains(&kid.len()) => Ok(Self { alg: raw.alg, kid }),
            Some(_) | None => Err(refusal("the token's header has no usable `kid`").expecting("1 to 128 bytes")),
        }
    }
}

impl RawHeader {
    fn refuse_what_decides_nothing_here(&self) -> Result<(), Refusal> {
        let refused = [
            ("jwk", &self.jwk),
            ("jku", &self.jku),
            ("x5u", &self.x5u),
            ("x5c", &self.x5c),
            ("crit", &self.crit),
            ("b64", &self.b64),
            ("enc", &self.enc),
            ("zip", &self.zip),
            ("cty", &self.cty),
        ];
        if let Some((name, _)) = refused.into_iter().find(|(_, member)| member.is_some()) {
            return Err(refusal(&format!("the token's header carries `{name}`, which this gateway does not follow")));
        }
        let is_known = self.typ.as_ref().is_some_and(|typ| TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known)));
        if !is_known {
            return Err(
                refusal("the token is of another kind").expecting("`typ` JWT or at+jwt, with or without application/")
            );
        }
        Ok(())
    }
}

impl TokenClaims {
    /// Whether the space-separated `scope` claim holds this scope.
    fn has_scope(&self, wanted: &str) -> bool {
        self.scope.as_ref().is_some_and(|scope| scope.split(' ').any(|held| held == wanted))
    }
}

/// Refuses claims that begin in the future, or stretch over more time than this gateway accepts.
fn check_times(claims: &TokenClaims, config: &AuthConfig) -> Result<(), Refusal> {
    let now = now_s();
    if claims.iat.is_some_and(|iat| iat.0 > now.saturating_add(config.leeway_s)) {
        return Err(not_yet_valid("the token's `iat` lies in the future"));
    }
    let begins = claims.iat.map_or(now, |iat| iat.0);
    if claims.exp.0.saturating_sub(begins) > config.lifetime_s_max {
        let expected = format!("at most {} s from `iat` to `exp`", config.lifetime_s_max);
        return Err(refusal("the token lives longer than this gateway accepts").expecting(expected));
    }
    Ok(())
}

/// Seconds since the epoch by this machine's clock: what `exp` is compared with. Nowhere else does the gateway read the wall
/// clock for a decision.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn not_yet_valid(detail: &str) -> Refusal {
    Refusal::new(Code::TokenNotYetValid, detail)
        .expecting("a time that has come; the clocks of issuer and gateway may differ by the leeway")
}

/// A refusal that says what is wrong with the form, never what the token holds.
fn refusal(detail: &str) -> Refusal {
    Refusal::new(Code::Unauthenticated, detail)
}

fn refusal_of(kind: &ErrorKind) -> Refusal {
    if matches!(kind, ErrorKind::ExpiredSignature) {
        return Refusal::new(Code::TokenExpired, "the token has expired; present a new one");
    }
    if matches!(kind, ErrorKind::ImmatureSignature) {
        return not_yet_valid("the token's `nbf` lies in the future");
    }
    if matches!(kind, ErrorKind::InvalidIssuer) {
        return refusal("the token's `iss` is not the issuer this gateway trusts");
    }
    if matches!(kind, ErrorKind::InvalidAudience) {
        return refusal("the token is for another service (`aud`)");
    }
    if matches!(kind, ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) | ErrorKind::Json(_)) {
        return refusal("a claim is missing, stands twice, or has another form")
            .expecting("`iss`, `sub` texts; `aud` text or list; `exp`, `iat`, `nbf` numbers; each once");
    }
    refusal("the token's signature does not verify")
}
