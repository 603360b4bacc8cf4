//! Protocol documents in negotiations: their names, which of them a call asks for, and what a routine under one reports
//! (docs/spec/agora.md#ag-29).

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use crate::code::{Code, Refusal};
use crate::text::text;

/// Most documents that a call or an offer names.
pub const DOCUMENTS_MAX: usize = 8;

/// Characters of the hexadecimal form.
const HEX_CHARS: usize = 40;
/// Reads both with and without the one `=` that pads 20 bytes.
const LENIENT_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD_FORM: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT_PADDING);
const URL_FORM: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT_PADDING);

/// The name of a document: the SHA-1 of its UTF-8 text. On the wire: standard base64 with padding, 28 characters
/// (docs/spec/agora.md#ag-1).
///
/// The hash is an identifier and no proof, because SHA-1 collisions can be made. What has to be trusted is compared by its
/// SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentHash([u8; 20]);

text!(
    DocumentHash,
    |hash: &Self, serializer: S| serializer.collect_str(hash),
    Self::try_new,
    [u8; 20] = |hash: Self| hash.0,
    Self
);

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
            HEXLOWER_PERMISSIVE.decode_mut(text.as_bytes(), &mut bytes).map_err(|_| malformed())?;
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

crate::shown!(DocumentHash = |Self(hash)| "{}", STANDARD.encode(hash));
crate::debug_as_shown!(DocumentHash);

crate::json_texts!(Option<Box<CallDocuments>>);

/// The documents a call names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallDocuments {
    /// Their hashes, the preferred first: 1 to [`DOCUMENTS_MAX`], none twice.
    pub hashes: Vec<DocumentHash>,
    /// Whether an offer that names none of them fails a gate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require: bool,
}

impl CallDocuments {
    /// The document that an award of an offer pins: the first of the call's that the offer names, whatever their order
    /// there (docs/spec/agora.md#ag-31).
    #[must_use]
    pub fn pinned(&self, offered: &[DocumentHash]) -> Option<DocumentHash> {
        self.hashes.iter().find(|hash| offered.contains(hash)).copied()
    }
}

crate::words! {
    /// What carried out an award.
    pub enum RoutineKind {
        /// A function of the contractor's program.
        Native,
        /// A service that the contractor asks over HTTP.
        Http,
        /// A WebAssembly module.
        Wasm,
        /// A language model that follows the pinned document.
        Model,
        /// Natural language, under no document.
        Language,
    }
}

/// What an INFORM says of the routine that carried the award out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoutineReport {
    /// The document it followed; of [`RoutineKind::Language`] none, of every other kind the pinned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<DocumentHash>,
    /// What carried it out.
    pub kind: RoutineKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_award_pins_the_calls_first_document_that_the_offer_names_in_any_order() {
        let hash = |name: &str| DocumentHash::of_bytes(name.as_bytes());
        let call = CallDocuments { hashes: ["a", "b", "c"].map(hash).to_vec(), require: false };
        for (offered, pinned) in [("cba", Some("a")), ("cb", Some("b")), ("xc", Some("c")), ("xy", None), ("", None)] {
            let offered: Vec<DocumentHash> = offered.chars().map(|name| hash(&name.to_string())).collect();
            assert_eq!(call.pinned(&offered), pinned.map(hash));
        }
    }
}
