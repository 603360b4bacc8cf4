//! The name of a document: the SHA-1 of its UTF-8 text.
//!
//! The hash is an identifier and no proof, because SHA-1 collisions can be made. What has to be trusted is compared by its
//! SHA-256 ([`crate::ProtocolDocument::sha256`]).

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use schemas::{Code, Refusal};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha1::{Digest as _, Sha1};

/// Characters of the hexadecimal form.
const HEX_CHARS: usize = 40;
/// Reads both with and without the one `=` that pads 20 bytes.
const LENIENT_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD_FORM: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT_PADDING);
const URL_FORM: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT_PADDING);

/// The SHA-1 of a document's text. On the wire: standard base64 with padding, 28 characters (docs/spec/agora.md#ag-1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentHash([u8; 20]);

impl DocumentHash {
    /// The hash of these bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha1::digest(bytes).into())
    }

    /// Reads standard base64, base64url (either with or without padding), or 40 hexadecimal digits.
    ///
    /// # Errors
    /// [`Code::BadFormat`] for anything else, bits beyond the 160 included.
    pub fn try_new(text: &str) -> Result<Self, Refusal> {
        let mut bytes = [0; 20];
        if text.len() == HEX_CHARS {
            hex::decode_to_slice(text, &mut bytes).map_err(|_| malformed())?;
            return Ok(Self(bytes));
        }
        let decoded = STANDARD_FORM.decode(text).or_else(|_| URL_FORM.decode(text)).map_err(|_| malformed())?;
        decoded.try_into().map(Self).map_err(|_| malformed())
    }

    /// The hash in characters that keys, subjects, paths and file names allow: base64url without padding, 27 of them.
    #[must_use]
    pub fn key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

fn malformed() -> Refusal {
    Refusal::new(Code::BadFormat, "this is not the hash of a document")
        .expecting("the SHA-1 of its UTF-8 text: base64 (28 characters), base64url (27), or 40 hexadecimal digits")
}

impl fmt::Display for DocumentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for DocumentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DocumentHash({self})")
    }
}

impl Serialize for DocumentHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DocumentHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::try_new(&text).map_err(serde::de::Error::custom)
    }
}
