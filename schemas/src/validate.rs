//! From bytes to typed documents: strict JSON, JSON Schema 2020-12, typed decode, canonical form.
//!
//! The schemas in `schemas/json` are the contract: what they accept is accepted, what they refuse is refused, and no
//! document passes its schema and then fails the typed decode (a property test holds the two together). Validators
//! are compiled once, offline; no `$ref` leaves the bundle.
//!
//! | module | refuses |
//! |---|---|
//! | [`strict_json`](crate::strict_json) | what is no JSON text, names a member twice, nests too deep, is too large |
//! | `number` | keeps a number that is no integer from becoming one |
//! | `bundle` | what its schema does not allow |
//! | `fault` | turns the validator's errors into one [`Refusal`] |
//! | `message` | puts these together for messages, and normalises the paper's spellings |
//!
//! Numbers: one whose decimal text is exactly an integer is an integer however it is written (`5`, `5.0`, `8.5e7`, `-0`), as
//! JSON Schema and RFC 8785 have it, and is kept as an integer from the parser on. No other is rounded to one: where an
//! integer is meant, `99999999.999999999999` and `1e-400` are [`Code::WrongType`](crate::Code::WrongType), and an integer beyond
//! 2^53-1 is [`Code::OutOfRange`](crate::Code::OutOfRange), since doubles keep no such integer exact. Nothing here repeats an
//! offending value.

mod bundle;
mod fault;
mod message;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use crate::payload::is_integer;
pub use crate::strict_json::{DEPTH_MAX, MEMBERS_MAX, parse_within};
pub use bundle::{Kind, SCHEMA_BASE, Schema, published};
pub use message::{Checked, check_canonical_offer, check_message};

use crate::code::Refusal;
use crate::control::{Group, Registration};
use crate::policy::Policy;
use crate::search::SearchRequest;

/// Largest body that is read, in bytes. An offer takes about 500; 64 KiB leaves room for 1024 addresses or a
/// 4096-character task in any script, and fits a log record four times.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Largest document [`check_document`] reads, in bytes: a delivery that reveals all offers is larger than any body.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Parses a body strictly: RFC 8259 in UTF-8 without a byte order mark, no member named twice, no lone surrogate, no
/// number beyond the range of a double, at most [`BODY_BYTES_MAX`] bytes, [`DEPTH_MAX`] levels and [`MEMBERS_MAX`]
/// members.
///
/// # Errors
/// [`Code::TooLarge`], [`Code::MalformedJson`], [`Code::DuplicateKey`], [`Code::TooDeep`], [`Code::OutOfRange`].
///
/// [`Code::TooLarge`]: crate::Code::TooLarge
/// [`Code::MalformedJson`]: crate::Code::MalformedJson
/// [`Code::DuplicateKey`]: crate::Code::DuplicateKey
/// [`Code::TooDeep`]: crate::Code::TooDeep
/// [`Code::OutOfRange`]: crate::Code::OutOfRange
pub fn parse(bytes: &[u8]) -> Result<Value, Refusal> {
    parse_within(bytes, BODY_BYTES_MAX)
}

/// Checks and decodes a policy document. That it does not contradict itself is checked by the policy core.
///
/// # Errors
/// As [`parse`], or where the document departs from `policy.json`.
pub fn check_policy(bytes: &[u8]) -> Result<Policy, Refusal> {
    check(Kind::Policy, bytes)
}

/// Checks and decodes an agent's registration.
///
/// # Errors
/// As [`parse`], or where the document departs from `registration.json`.
pub fn check_registration(bytes: &[u8]) -> Result<Registration, Refusal> {
    check(Kind::Registration, bytes)
}

/// Checks and decodes a group.
///
/// # Errors
/// As [`parse`], or where the document departs from `group.json`.
pub fn check_group(bytes: &[u8]) -> Result<Group, Refusal> {
    check(Kind::Group, bytes)
}

/// Checks and decodes a search for agents.
///
/// # Errors
/// As [`parse`], or where the document departs from `search.json`.
pub fn check_search(bytes: &[u8]) -> Result<SearchRequest, Refusal> {
    check(Kind::Search, bytes)
}

/// Checks a document of any published kind, without decoding it.
///
/// # Errors
/// As [`parse`], but for [`DOCUMENT_BYTES_MAX`]; or where the document departs from its schema.
pub fn check_document(kind: Kind, bytes: &[u8]) -> Result<(), Refusal> {
    bundle::check(kind, &parse_within(bytes, DOCUMENT_BYTES_MAX)?)
}

fn check<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, Refusal> {
    let document = parse(bytes)?;
    bundle::check(kind, &document)?;
    T::deserialize(document).map_err(|_| fault::disagreement(""))
}
