//! A set of verification keys (RFC 7517), each pinned to one algorithm.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use schemas::Digest;
use serde_json::{Map, Value};

use crate::config::AuthConfig;
use crate::error::KeyError;

/// Kid under which the development secret verifies HS256 tokens.
pub(crate) const DEV_SECRET_KID: &str = "dev";
/// Largest key set document, in bytes.
pub(super) const KEY_SET_BYTES_MAX: usize = 256 * 1024;
/// Most keys in a set; issuers rotate through two or three.
const KEYS_MAX: usize = 64;
/// Shortest RSA modulus, in bits (NIST SP 800-131A).
const RSA_BITS_MIN: usize = 2048;
/// Longest RSA modulus the verifier takes, in bits.
const RSA_BITS_MAX: usize = 8192;
/// Smallest public exponent: 65537. Smaller ones have a history of forgeries.
const RSA_EXPONENT_MIN: u64 = 65_537;

/// One set of keys.
pub(crate) struct KeySet {
    keys: BTreeMap<String, VerifyingKey>,
    generation: u64,
}

/// Which key verified a token: its name, and what it is made of. Another key under the same name is another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyMark {
    pub(super) kid: String,
    pub(super) material: Digest,
}

/// One key and the only algorithm it verifies.
pub(crate) struct VerifyingKey {
    material: Digest,
    algorithm: Algorithm,
    decoding: DecodingKey,
    validation: Validation,
}

impl KeySet {
    /// Reads the first JSON Web Key Set: one without a key for signatures is a mistake.
    pub(crate) fn parse(document: &str, config: &AuthConfig) -> Result<Self, KeyError> {
        let set = Self::parse_renewed(document, config, 0)?;
        if set.keys.is_empty() { Err(KeyError::Empty) } else { Ok(set) }
    }

    /// Reads a JSON Web Key Set. Keys for other algorithms or uses are skipped, anything doubtful refuses the set. It may
    /// hold no key any more: whoever takes the last one out means it.
    pub(crate) fn parse_renewed(document: &str, config: &AuthConfig, generation: u64) -> Result<Self, KeyError> {
        let malformed = |text: &str| KeyError::Malformed(text.to_owned());
        let root: Value = serde_json::from_str(document).map_err(|error| KeyError::Malformed(error.to_string()))?;
        let listed = root.get("keys").and_then(Value::as_array).ok_or_else(|| malformed("no list `keys`"))?;
        if listed.len() > KEYS_MAX {
            return Err(KeyError::TooMany { found: listed.len(), limit: KEYS_MAX });
        }
        let mut keys = BTreeMap::new();
        if let Some(secret) = &config.allow_hs256_dev_secret {
            let decoding = DecodingKey::from_secret(secret.0.as_bytes());
            let material = Digest::of_bytes(secret.0.as_bytes());
            keys.insert(DEV_SECRET_KID.to_owned(), VerifyingKey::new(Algorithm::HS256, decoding, material, config));
        }
        let mut kids = std::collections::BTreeSet::new();
        for entry in listed {
            let entry = entry.as_object().ok_or_else(|| malformed("a key is not an object"))?;
            let kid = entry.get("kid").and_then(Value::as_str).ok_or(KeyError::MissingKid)?;
            if !kids.insert(kid) || keys.contains_key(kid) {
                return Err(KeyError::DuplicateKid(kid.to_owned()));
            }
            if let Some(key) = VerifyingKey::parse(kid, entry, config)? {
                keys.insert(kid.to_owned(), key);
            }
        }
        Ok(Self { keys, generation })
    }

    /// The key of this name.
    pub(crate) fn key(&self, kid: &str) -> Option<&VerifyingKey> {
        self.keys.get(kid)
    }

    /// Whether the key that verified a token is still in the set.
    pub(crate) fn holds(&self, mark: &KeyMark) -> bool {
        self.keys.get(&mark.kid).is_some_and(|key| key.material == mark.material)
    }

    /// Rises with every change of the set: what was verified with an older one is verified again.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many keys verify.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

impl VerifyingKey {
    fn new(algorithm: Algorithm, decoding: DecodingKey, material: Digest, config: &AuthConfig) -> Self {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.validate_nbf = true;
        validation.leeway = config.leeway_s;
        Self { material, algorithm, decoding, validation }
    }

    /// Reads one key; `None` when it is public but for something else.
    fn parse(kid: &str, entry: &Map<String, Value>, config: &AuthConfig) -> Result<Option<Self>, KeyError> {
        if ["d", "k", "p", "q"].iter().any(|name| entry.contains_key(*name)) || text(entry, "kty") == Some("oct") {
            return Err(KeyError::Secret(kid.to_owned()));
        }
        if text(entry, "use").is_some_and(|purpose| purpose != "sig") || !may_verify(entry) {
            return Ok(None);
        }
        let (algorithm, name) = match (text(entry, "kty"), text(entry, "crv")) {
            (Some("OKP"), Some("Ed25519")) => (Algorithm::EdDSA, "EdDSA"),
            (Some("EC"), Some("P-256")) => (Algorithm::ES256, "ES256"),
            (Some("RSA"), _) => (Algorithm::RS256, "RS256"),
            (_, _) => return Ok(None),
        };
        let unfit = |fault: &str| KeyError::Unfit { kid: kid.to_owned(), fault: fault.to_owned() };
        match (text(entry, "alg"), algorithm) {
            (None, _) => {}
            (Some(declared), _) if declared == name => {}
            // An RSA key may be for PS256 or for encryption: not ours, but no contradiction either.
            (Some(declared), Algorithm::RS256) if declared.starts_with("PS") || declared.starts_with("RS") => {
                return Ok(None);
            }
            (Some(_), _) => return Err(unfit("its `alg` contradicts its type")),
        }
        let member = |name: &str| -> Result<Vec<u8>, KeyError> {
            let value = text(entry, name).ok_or_else(|| unfit("a member of the public key is missing"))?;
            URL_SAFE_NO_PAD.decode(value).map_err(|_| unfit("a member of the public key is not base64url"))
        };
        let decoding = match text(entry, "kty") {
            Some("OKP") => ed25519(&member("x")?),
            Some("EC") => p256(&member("x")?, &member("y")?),
            Some(_) | None => rsa(&member("n")?, &member("e")?),
        };
        let parts = ["kty", "crv", "x", "y", "n", "e"].map(|name| text(entry, name).unwrap_or_default().as_bytes());
        let material = Digest::of_parts(&parts);
        Ok(Some(Self::new(algorithm, decoding.map_err(unfit)?, material, config)))
    }

    /// What identifies this key beyond its name.
    pub(super) fn material(&self) -> Digest {
        self.material
    }

    /// The `alg` a token signed by this key must name.
    pub(crate) fn algorithm_name(&self) -> &'static str {
        if self.algorithm == Algorithm::HS256 {
            "HS256"
        } else if self.algorithm == Algorithm::ES256 {
            "ES256"
        } else if self.algorithm == Algorithm::RS256 {
            "RS256"
        } else {
            "EdDSA"
        }
    }

    pub(super) fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }

    pub(super) fn validation(&self) -> &Validation {
        &self.validation
    }
}

fn text<'a>(entry: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    entry.get(name).and_then(Value::as_str)
}

fn may_verify(entry: &Map<String, Value>) -> bool {
    entry
        .get("key_ops")
        .and_then(Value::as_array)
        .is_none_or(|operations| operations.iter().any(|operation| operation.as_str() == Some("verify")))
}

fn ed25519(x: &[u8]) -> Result<DecodingKey, &'static str> {
    if x.len() == 32 { Ok(DecodingKey::from_ed_der(x)) } else { Err("an Ed25519 key has 32 bytes") }
}

fn p256(x: &[u8], y: &[u8]) -> Result<DecodingKey, &'static str> {
    if x.len() != 32 || y.len() != 32 {
        return Err("a P-256 coordinate has 32 bytes");
    }
    // The uncompressed point of SEC 1 section 2.3.3; whether it lies on the curve the verifier checks.
    let mut point = vec![4];
    point.extend_from_slice(x);
    point.extend_from_slice(y);
    Ok(DecodingKey::from_ec_der(&point))
}

fn rsa(n: &[u8], e: &[u8]) -> Result<DecodingKey, &'static str> {
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
        return Err("an RSA modulus must have 2048 to 8192 bits");
    }
    let exponent = (e.len() <= 8).then(|| e.iter().fold(0_u64, |value, byte| (value << 8) | u64::from(*byte)));
    match exponent {
        Some(value) if value >= RSA_EXPONENT_MIN && value % 2 == 1 => Ok(DecodingKey::from_rsa_raw_components(n, e)),
        Some(_) | None => Err("an RSA exponent must be odd and at least 65537"),
    }
}
