//! The key that signs records, and the key set that verifies them. A key of tokens is none of records, nor the other way round:
//! the private half of a record key says so above its PEM, the public half by its name.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, crypto};
use schemas::strict_json::parse_within;
use schemas::text::RECORD_KEY_PURPOSE;
use serde_json::Value;

use super::{RECORD_TYPE, RecordsError};

/// Largest key set that is read, in bytes.
const SET_BYTES_MAX: usize = 256 * 1024;
/// Most keys of a set.
const KEYS_MAX: usize = 64;

/// A private key that signs records. Its name, `kid`, is its RFC 7638 thumbprint.
#[derive(Clone)]
pub struct RecordKey {
    encoding: EncodingKey,
    kid: String,
}

impl std::fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl RecordKey {
    /// Reads an Ed25519 private key (PKCS#8 PEM) preceded by the line [`RECORD_KEY_PURPOSE`].
    ///
    /// # Errors
    /// [`RecordsError::Key`] for anything else, including a key that signs tokens.
    pub fn from_pem(pem: &str) -> Result<Self, RecordsError> {
        if !pem.starts_with(RECORD_KEY_PURPOSE) {
            let what =
                format!("it is not said to be one; a key for tokens signs none (`{RECORD_KEY_PURPOSE}` above the PEM)");
            return Err(RecordsError::Key(what));
        }
        let unfit = |error| RecordsError::Key(format!("an Ed25519 key in PEM (PKCS#8) is expected: {error}"));
        let encoding = EncodingKey::from_ed_pem(pem.as_bytes()).map_err(unfit)?;
        let jwk = Jwk::from_encoding_key(&encoding, Algorithm::EdDSA).map_err(unfit)?;
        Ok(Self { kid: jwk.thumbprint(ThumbprintHash::SHA256).map_err(unfit)?, encoding })
    }

    /// Its name.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Signs a payload as a compact JWS. The same payload gives the same bytes.
    ///
    /// # Errors
    /// [`RecordsError::Key`] when the library cannot sign with it.
    pub fn sign(&self, payload: &[u8]) -> Result<String, RecordsError> {
        let [header, payload, signature] = self.sign_as(RECORD_TYPE, payload)?;
        Ok(format!("{header}.{payload}.{signature}"))
    }

    /// Signs a payload as a JWS of this `typ`: its header, payload and signature, in base64url.
    ///
    /// # Errors
    /// [`RecordsError::Key`] when the library cannot sign with it.
    pub fn sign_as(&self, typ: &str, payload: &[u8]) -> Result<[String; 3], RecordsError> {
        let header = format!(r#"{{"alg":"EdDSA","typ":"{typ}","kid":"{}"}}"#, self.kid);
        let [header, payload] = [header.as_bytes(), payload].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
        let signature = crypto::sign(format!("{header}.{payload}").as_bytes(), &self.encoding, Algorithm::EdDSA);
        Ok([header, payload, signature.map_err(|error| RecordsError::Key(error.to_string()))?])
    }
}

/// The public keys of records, by their names.
#[derive(Debug, Default)]
pub struct RecordKeySet(BTreeMap<String, DecodingKey>);

impl RecordKeySet {
    /// Reads a JSON Web Key Set of at most 64 keys and 256 KiB. Keys that are none of records are left out: other algorithms,
    /// and those whose `kid` is not their RFC 7638 thumbprint, as keys of tokens.
    ///
    /// # Errors
    /// [`RecordsError::Key`] when it is no key set, or holds a private key: that is no longer one.
    pub fn parse(document: &str) -> Result<Self, RecordsError> {
        let refuse = |what: &str| RecordsError::Key(format!("the key set {what}"));
        let root = parse_within(document.as_bytes(), SET_BYTES_MAX).map_err(|fault| refuse(&fault.to_string()))?;
        let listed = root.get("keys").and_then(Value::as_array).ok_or_else(|| refuse("has no list `keys`"))?;
        if listed.len() > KEYS_MAX {
            return Err(refuse("has too many keys"));
        }
        if listed.iter().any(|key| ["d", "k", "p", "q"].iter().any(|member| key.get(member).is_some())) {
            return Err(refuse("holds a private key: whoever has read it can sign; make another"));
        }
        Ok(Self(listed.iter().filter_map(public_key).collect()))
    }

    /// Whether the key of this name made a signature, in base64url; absent when there is no such key.
    pub fn verifies(&self, kid: &str, signature: &str, signed: &[u8]) -> Option<bool> {
        let key = self.0.get(kid)?;
        Some(crypto::verify(signature, signed, key, Algorithm::EdDSA).unwrap_or(false))
    }
}

/// A key of records with its name.
fn public_key(entry: &Value) -> Option<(String, DecodingKey)> {
    let member = |name: &str| entry.get(name).and_then(Value::as_str);
    let is_ed25519 = (member("kty"), member("crv")) == (Some("OKP"), Some("Ed25519"));
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(member("x")?).ok().filter(|bytes| is_ed25519 && bytes.len() == 32)?;
    let key = DecodingKey::from_ed_der(&bytes);
    let thumbprint = Jwk::from_decoding_key(&key, None).ok()?.thumbprint(ThumbprintHash::SHA256).ok()?;
    (member("kid") == Some(&thumbprint)).then_some((thumbprint, key))
}
