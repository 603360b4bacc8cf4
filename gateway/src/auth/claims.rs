//! What a token's header and claims may say.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use schemas::{Code, Refusal};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::key_set::VerifyingKey;
use crate::clock::now_s;
use crate::config::AuthConfig;

/// Longest `kid` that is looked up, in bytes.
const KID_BYTES_MAX: usize = 128;
/// Token types accepted (RFC 7519 section 5.1, RFC 9068 section 2.1), compared without regard to case. A prefix
/// `application/` may be left out (RFC 7515 section 4.1.9).
const TYPES: [&str; 4] = ["JWT", "application/jwt", "at+jwt", "application/at+jwt"];

/// The header of a token, as far as it may decide anything.
pub(super) struct TokenHeader {
    pub(super) alg: String,
    pub(super) kid: String,
}

#[derive(Deserialize)]
struct RawHeader {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    typ: Option<String>,
    #[serde(default)]
    jwk: Option<IgnoredAny>,
    #[serde(default)]
    jku: Option<IgnoredAny>,
    #[serde(default)]
    x5u: Option<IgnoredAny>,
    #[serde(default)]
    x5c: Option<IgnoredAny>,
    #[serde(default)]
    crit: Option<IgnoredAny>,
    #[serde(default)]
    b64: Option<IgnoredAny>,
    #[serde(default)]
    enc: Option<IgnoredAny>,
    #[serde(default)]
    zip: Option<IgnoredAny>,
    #[serde(default)]
    cty: Option<IgnoredAny>,
}

/// The claims that are read. A claim that stands twice is an error of the decoder.
#[derive(Deserialize)]
pub(super) struct TokenClaims {
    pub(super) sub: String,
    pub(super) exp: u64,
    #[serde(rename = "iss")]
    _iss: String,
    #[serde(default)]
    iat: Option<u64>,
    #[serde(default)]
    scope: Option<String>,
}

impl TokenHeader {
    /// Reads the header of a compact JWS without verifying anything.
    pub(super) fn parse(token: &str) -> Result<Self, Refusal> {
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
    pub(super) fn has_scope(&self, wanted: &str) -> bool {
        self.scope.as_ref().is_some_and(|scope| scope.split(' ').any(|held| held == wanted))
    }
}

/// Verifies signature and claims of a token whose key is known.
pub(super) fn verify_claims(token: &str, key: &VerifyingKey, config: &AuthConfig) -> Result<TokenClaims, Refusal> {
    let decoded = jsonwebtoken::decode::<TokenClaims>(token, key.decoding(), key.validation());
    let claims = decoded.map_err(|error| refusal_of(error.kind()))?.claims;
    let now = now_s();
    if claims.iat.is_some_and(|iat| iat > now.saturating_add(config.leeway_s)) {
        return Err(not_yet_valid("the token's `iat` lies in the future"));
    }
    let begins = claims.iat.unwrap_or(now);
    if claims.exp.saturating_sub(begins) > config.lifetime_s_max {
        let expected = format!("at most {} s from `iat` to `exp`", config.lifetime_s_max);
        return Err(refusal("the token lives longer than this gateway accepts").expecting(expected));
    }
    Ok(claims)
}

fn not_yet_valid(detail: &str) -> Refusal {
    Refusal::new(Code::TokenNotYetValid, detail)
        .expecting("a time that has come; the clocks of issuer and gateway may differ by the leeway")
}

/// A refusal that says what is wrong with the form, never what the token holds.
pub(super) fn refusal(detail: &str) -> Refusal {
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
            .expecting("`iss`, `sub` texts; `aud` text or list; `exp`, `iat`, `nbf` integers; each once");
    }
    refusal("the token's signature does not verify")
}
