//! Signing keys and tokens: for `llmx keys` and `llmx token`, for the demo and for tests. A gateway itself holds
//! public keys only.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use data_encoding::HEXLOWER;
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use pem::{EncodeConfig, LineEnding, Pem};
use schemas::text::RECORD_KEY_PURPOSE;
use schemas::{AgentId, Digest};
use serde::{Deserialize, Serialize};

use crate::auth::install_crypto;
pub use crate::auth::read_key_set;
use crate::error::KeyError;

/// The algorithm of a signing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// Ed25519: small, fast, the default.
    EdDsa,
    /// ECDSA on P-256.
    Es256,
    /// RSA with 2048 bits: only for issuers that can do nothing else.
    Rs256,
}

/// A private key that signs tokens, with the `kid` derived from its public half.
#[derive(Clone)]
pub struct SigningKey {
    algorithm: KeyAlgorithm,
    pem: String,
    encoding: EncodingKey,
    jwk: Jwk,
    kid: String,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Issuer.
    pub iss: String,
    /// The agent.
    pub sub: String,
    /// The exchange.
    pub aud: String,
    /// Issued at, in seconds since the epoch.
    pub iat: u64,
    /// Expires at, in seconds since the epoch.
    pub exp: u64,
    /// Space-separated scopes (RFC 8693 section 4.2), for example [`crate::ADMIN_SCOPE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

impl Claims {
    /// Claims for `agent`, valid from now for `lifetime_s` seconds.
    pub fn new(agent: &AgentId, issuer: &str, audience: &str, lifetime_s: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            iss: issuer.to_owned(),
            sub: agent.to_string(),
            aud: audience.to_owned(),
            iat: now,
            exp: now.saturating_add(lifetime_s),
            scope: None,
        }
    }

    /// Adds the scope that lets the agent put policies and groups.
    pub fn admin(mut self) -> Self {
        self.scope = Some(crate::ADMIN_SCOPE.to_owned());
        self
    }
}

impl SigningKey {
    /// Draws a new key from the system's randomness.
    ///
    /// # Errors
    /// [`KeyError::Unfit`] when the system gives none.
    pub fn generate(algorithm: KeyAlgorithm) -> Result<Self, KeyError> {
        let rng = SystemRandom::new();
        let drawn = match algorithm {
            KeyAlgorithm::EdDsa => Ed25519KeyPair::generate_pkcs8v1(&rng).map(|document| document.as_ref().to_vec()),
            KeyAlgorithm::Es256 => EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng)
                .map(|document| document.as_ref().to_vec()),
            KeyAlgorithm::Rs256 => RsaKeyPair::generate(KeySize::Rsa2048)
                .and_then(|pair| pair.as_der())
                .map(|document: aws_lc_rs::encoding::Pkcs8V1Der<'static>| document.as_ref().to_vec()),
        };
        let pkcs8 = drawn.map_err(|_| unfit("the system gave no randomness"))?;
        let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
        Self::from_pem(&pem::encode_config(&Pem::new("PRIVATE KEY", pkcs8), config))
    }

    /// Reads a private key in PEM (`BEGIN PRIVATE KEY`, PKCS#8): Ed25519, P-256 or RSA.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] for anything else.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let bytes = pem.as_bytes();
        if let Ok(key) = EncodingKey::from_ed_pem(bytes) {
            return Self::new(KeyAlgorithm::EdDsa, key, pem.to_owned());
        }
        if let Ok(key) = EncodingKey::from_ec_pem(bytes) {
            return Self::new(KeyAlgorithm::Es256, key, pem.to_owned());
        }
        match EncodingKey::from_rsa_pem(bytes) {
            Ok(key) => Self::new(KeyAlgorithm::Rs256, key, pem.to_owned()),
            Err(_) => Err(KeyError::Malformed("not a PKCS#8 private key in PEM: Ed25519, P-256 or RSA".to_owned())),
        }
    }

    fn new(algorithm: KeyAlgorithm, encoding: EncodingKey, pem: String) -> Result<Self, KeyError> {
        install_crypto();
        let mut jwk = Jwk::from_encoding_key(&encoding, algorithm.into()).map_err(|error| unfit(&error.to_string()))?;
        let public = serde_json::to_vec(&jwk.algorithm).map_err(|error| unfit(&error.to_string()))?;
        let kid = if pem.starts_with(RECORD_KEY_PURPOSE) {
            jwk.thumbprint(ThumbprintHash::SHA256).map_err(|error| unfit(&error.to_string()))?
        } else {
            HEXLOWER.encode(&Digest::of_bytes(&public).0[..8])
        };
        jwk.common.key_id = Some(kid.clone());
        jwk.common.public_key_use = Some(jsonwebtoken::jwk::PublicKeyUse::Signature);
        Ok(Self { algorithm, pem, encoding, jwk, kid })
    }

    /// The key as PEM (PKCS#8). Whoever reads it can be any agent: keep it where only the issuer reads.
    pub fn to_pem(&self) -> &str {
        &self.pem
    }

    /// The name tokens call the key by: the first 16 hexadecimal digits of the digest of its public half. Of a key that is for
    /// records, as [`RECORD_KEY_PURPOSE`] says above its PEM, its RFC 7638 thumbprint.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// Signs any claims with the usual header. The caller chooses what they say; a gateway decides whether it suffices.
    ///
    /// # Errors
    /// [`KeyError::Unfit`] when the claims cannot be written as JSON.
    pub fn sign<T: Serialize>(&self, claims: &T) -> Result<String, KeyError> {
        let mut header = Header::new(self.algorithm.into());
        header.kid = Some(self.kid.clone());
        self.sign_with_header(&header, claims)
    }

    /// Signs with a header of the caller's: for tests of what gateways refuse.
    ///
    /// # Errors
    /// [`KeyError::Unfit`] when the header's algorithm is not the key's, or the claims cannot be written.
    pub fn sign_with_header<T: Serialize>(&self, header: &Header, claims: &T) -> Result<String, KeyError> {
        install_crypto();
        jsonwebtoken::encode(header, claims, &self.encoding).map_err(|error| unfit(&error.to_string()))
    }
}

/// The JSON Web Key Set that verifies what these keys sign.
pub fn key_set(keys: &[&SigningKey]) -> String {
    let keys: Vec<&Jwk> = keys.iter().map(|key| &key.jwk).collect();
    serde_json::json!({ "keys": keys }).to_string()
}

impl From<KeyAlgorithm> for Algorithm {
    fn from(algorithm: KeyAlgorithm) -> Self {
        match algorithm {
            KeyAlgorithm::EdDsa => Self::EdDSA,
            KeyAlgorithm::Es256 => Self::ES256,
            KeyAlgorithm::Rs256 => Self::RS256,
        }
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.algorithm).field("kid", &self.kid).finish_non_exhaustive()
    }
}

fn unfit(fault: &str) -> KeyError {
    KeyError::Unfit { kid: "new".to_owned(), fault: fault.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_pem_with_the_same_kid() {
        for algorithm in [KeyAlgorithm::EdDsa, KeyAlgorithm::Es256, KeyAlgorithm::Rs256] {
            let key = SigningKey::generate(algorithm).unwrap();
            let read = SigningKey::from_pem(key.to_pem()).unwrap();
            assert_eq!((read.kid(), read.algorithm()), (key.kid(), algorithm));
        }
        assert!(SigningKey::from_pem("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").is_err());
    }

    #[test]
    fn a_key_for_records_is_called_by_its_thumbprint_and_says_what_it_is_for() {
        let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
        let marked = SigningKey::from_pem(&format!("{RECORD_KEY_PURPOSE}\n{}", key.to_pem())).unwrap();
        assert_eq!(marked.kid(), key.jwk.thumbprint(ThumbprintHash::SHA256).unwrap());
        assert_ne!(marked.kid(), key.kid());
        assert!(marked.to_pem().starts_with(RECORD_KEY_PURPOSE));
    }

    #[test]
    fn a_key_set_holds_no_private_member() {
        for algorithm in [KeyAlgorithm::EdDsa, KeyAlgorithm::Es256, KeyAlgorithm::Rs256] {
            let key = SigningKey::generate(algorithm).unwrap();
            let set: serde_json::Value = serde_json::from_str(&key_set(&[&key])).unwrap();
            let members = set["keys"][0].as_object().unwrap();
            assert!(["d", "p", "q", "k"].iter().all(|name| !members.contains_key(*name)), "{members:?}");
        }
    }
}
