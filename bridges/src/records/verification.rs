//! Whether a text is a record: by its key set alone, and against an archive.

use std::path::Path;

use archive::comparison::first_difference;
use archive::{Positions, VerifyOptions};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use schemas::Digest;
use schemas::digest::canonical;
use schemas::validate::{Kind, check_document, parse};
use serde_json::{Map, Value};

use super::{AwardRecord, RECORD_BYTES_MAX, RECORD_TYPE, RecordKeySet, RecordsError, records_of};

schemas::words! {
    /// Why a text is no record that can be relied on, in the order in which it is checked.
    pub enum RecordFault {
        /// It is not one compact JWS, or its header says how it is to be verified.
        Malformed,
        /// Its `typ` is another: a token, for example.
        WrongType,
        /// Its `alg` is not `EdDSA`.
        WrongAlg,
        /// The key set has no key for records of its `kid`.
        UnknownKey,
        /// The signature is not that of this key over these bytes.
        BadSignature,
        /// The claims are not those of a record, or contradict each other; or the issuer is another.
        BadClaims,
        /// The payload is not in RFC 8785 form.
        NotCanonical,
        /// `terms_digest` is not the digest of the terms.
        TermsMismatch,
        /// No such award ended in the archive.
        NotInArchive,
        /// The archive proves something else, or does not verify.
        DiffersFromArchive,
    }
}

/// A record that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct RecordRefusal {
    /// Why.
    pub code: RecordFault,
    /// The same in words.
    pub detail: String,
}

fn refuse(code: RecordFault, detail: impl ToString) -> RecordRefusal {
    RecordRefusal { code, detail: detail.to_string() }
}

/// Verifies a record by a key set alone; gives what it says. White space around it does not matter.
///
/// # Errors
/// The first fault, in the order of [`RecordFault`], up to `terms_mismatch`.
pub fn verify(text: &str, keys: &RecordKeySet, issuer: Option<&str>) -> Result<AwardRecord, RecordRefusal> {
    let malformed = |what: &str| refuse(RecordFault::Malformed, what);
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.len() > RECORD_BYTES_MAX {
        return Err(malformed("it is longer than any record"));
    }
    let mut parts = text.split('.');
    let (Some(header), Some(payload), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed("it is no compact JWS of three parts"));
    };
    let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed("a part is no base64url"));
    let (header, claims) = (decode(header)?, decode(payload)?);
    decode(signature)?;
    let kid = check_header(&header)?;
    let signed = &text.as_bytes()[..text.len() - signature.len() - 1];
    let is_signed = keys.verifies(&kid, signature, signed);
    let no_key = || refuse(RecordFault::UnknownKey, format_args!("no key for records is called `{kid}`"));
    if !is_signed.ok_or_else(no_key)? {
        return Err(refuse(RecordFault::BadSignature, "the signature is not that of the key over these bytes"));
    }
    check_claims(&claims, issuer)
}

/// The name of the key, of a header that says nothing it must not.
fn check_header(bytes: &[u8]) -> Result<String, RecordRefusal> {
    let malformed = |what: &dyn std::fmt::Display| refuse(RecordFault::Malformed, format_args!("the header: {what}"));
    let header: Map<String, Value> = match parse(bytes) {
        Ok(Value::Object(header)) => header,
        Ok(_) => return Err(malformed(&"no object")),
        Err(fault) => return Err(malformed(&fault)),
    };
    let said = |name: &str| header.get(name).and_then(Value::as_str);
    if said("typ") != Some(RECORD_TYPE) {
        return Err(refuse(RecordFault::WrongType, format_args!("`typ` is not `{RECORD_TYPE}`")));
    }
    if said("alg") != Some("EdDSA") {
        return Err(refuse(RecordFault::WrongAlg, "`alg` is not `EdDSA`"));
    }
    let is_refused = |name: &&String| ["crit", "jwk", "jku"].contains(&name.as_str()) || name.starts_with("x5");
    if let Some(name) = header.keys().find(is_refused) {
        return Err(malformed(&format_args!("`{name}` has no place in it")));
    }
    said("kid").map(str::to_owned).ok_or_else(|| refuse(RecordFault::UnknownKey, "it names no key"))
}

/// What a payload says, if that is what a record can say.
fn check_claims(bytes: &[u8], issuer: Option<&str>) -> Result<AwardRecord, RecordRefusal> {
    let bad = |what: String| refuse(RecordFault::BadClaims, what);
    check_document(Kind::AwardRecord, bytes).map_err(|fault| {
        let pointer = fault.pointer.as_deref().unwrap_or_default();
        bad(format!("{fault} at `{pointer}`"))
    })?;
    let document = parse(bytes).map_err(|fault| bad(fault.to_string()))?;
    let record: AwardRecord = serde_json::from_value(document.clone()).map_err(|error| bad(error.to_string()))?;
    let AwardRecord { negotiation, lot, award_no, .. } = &record;
    if record.jti != format!("{negotiation}/{lot}/{award_no}") || record.iat != record.closed_at.0.0 / 1_000_000 {
        return Err(bad("`jti` or `iat` says something else than the other claims".to_owned()));
    }
    if let Some(issuer) = issuer.filter(|issuer| record.iss != *issuer) {
        return Err(bad(format!("its issuer is `{}`, not `{issuer}`", record.iss)));
    }
    if canonical(&document).ok().as_deref() != Some(bytes) {
        return Err(refuse(RecordFault::NotCanonical, "the payload is not in RFC 8785 form"));
    }
    if Digest::of(&record.terms).ok() != Some(record.terms_digest) {
        return Err(refuse(RecordFault::TermsMismatch, "`terms_digest` is not the digest of the terms"));
    }
    Ok(record)
}

/// Compares a record with what an archive proves: its award is decided anew, from the log. The archive may still be written.
///
/// # Errors
/// [`RecordsError::Archive`] when the archive cannot be read. The inner result is the answer: `not_in_archive` or
/// `differs_from_archive`.
pub fn compare(record: &AwardRecord, archive: &Path) -> Result<Result<(), RecordRefusal>, RecordsError> {
    let (mut is_same, mut other) = (false, None);
    let options = VerifyOptions { allow_open_end: true, ..VerifyOptions::default() };
    let report = archive::hear(archive, &options, &mut Positions::default(), &mut |lane, closed| {
        if closed.negotiation == record.negotiation {
            let proved = records_of(closed, lane, &record.iss).records;
            for proved in proved.into_iter().filter(|proved| proved.jti == record.jti) {
                is_same |= proved == *record;
                other = Some(proved);
            }
        }
    })?;
    let differs = |what: String| Err(refuse(RecordFault::DiffersFromArchive, what));
    let foreign = report.foreign.into_iter().next();
    Ok(match (report.first_difference.or(foreign), other) {
        (Some(difference), _) => differs(format!("the archive does not verify: {difference}")),
        (None, Some(_)) if is_same => Ok(()),
        (None, Some(proved)) => {
            let text = |record: &AwardRecord| String::from_utf8_lossy(&record.canonical()).into_owned();
            differs(first_difference(&text(&proved), &text(record)))
        }
        (None, None) => {
            let what = format_args!("the archive holds no award {} that ended", record.jti);
            Err(refuse(RecordFault::NotInArchive, what))
        }
    })
}
