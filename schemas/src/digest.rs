//! SHA-256 over the RFC 8785 canonical form: the identity of a document, whatever its white space and member order.

use std::cell::Cell;
use std::{fmt, io};

use data_encoding::HEXLOWER;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use sha2::{Digest as _, Sha256};

use crate::text::{hexadecimal, text};

/// A SHA-256 digest; 64 lower-case hexadecimal digits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

text!(
    Digest,
    |digest: &Self, serializer: S| digest.with_text(|text| serializer.serialize_str(text)),
    Self::try_new,
    [u8; 32] = |digest: Self| digest.0,
    Self
);

/// The FNV-1a hash of nothing.
pub const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues an FNV-1a hash of 64 bits with further bytes: quick and the same everywhere, no defence against chosen bytes.
#[must_use]
pub fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal digits")]
pub struct DigestError;

/// A value that has no canonical form (a number that is not finite).
#[derive(Debug, thiserror::Error)]
#[error("the value has no RFC 8785 canonical form: {0}")]
pub struct CanonicalError(#[from] serde_json::Error);

impl Digest {
    /// Digest of raw bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Digest of the concatenation of parts, each preceded by its length, so that parts cannot run into each other.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Digest of a value's canonical form.
    ///
    /// # Errors
    /// [`CanonicalError`] when the value cannot be written as canonical JSON.
    pub fn of<T: Serialize>(value: &T) -> Result<Self, CanonicalError> {
        Ok(Self::of_bytes(&canonical(value)?))
    }

    /// Digest of a value's canonical form, which [`canonical_ordered`] writes.
    ///
    /// # Errors
    /// [`CanonicalError`] when the value cannot be written as JSON.
    pub fn of_ordered<T: Serialize>(value: &T) -> Result<Self, CanonicalError> {
        Ok(Self::of_bytes(&canonical_ordered(value)?))
    }

    /// Parses 64 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// [`DigestError`] for anything else.
    pub fn try_new(text: &str) -> Result<Self, DigestError> {
        hexadecimal(text).map(Self).ok_or(DigestError)
    }

    fn with_text<T>(&self, write: impl FnOnce(&str) -> T) -> T {
        let mut digits = [0; 64];
        HEXLOWER.encode_mut(&self.0, &mut digits);
        write(std::str::from_utf8(&digits).expect("hexadecimal digits are ASCII"))
    }

    /// The first 16 bytes.
    #[must_use]
    pub fn short(&self) -> [u8; 16] {
        let mut short = [0; 16];
        short.copy_from_slice(&self.0[..16]);
        short
    }
}

/// RFC 8785 canonical form.
///
/// # Errors
/// [`CanonicalError`] when the value cannot be written as canonical JSON.
pub fn canonical<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    Ok(serde_json_canonicalizer::to_vec(value)?)
}

/// RFC 8785 canonical form of a value that serialises its members in the order of their names and names them in ASCII: then
/// compact JSON is that form, but for numbers beyond 2^53-1 and fractions, and takes a tenth of the time. Debug builds compare
/// the two.
///
/// # Errors
/// [`CanonicalError`] when the value cannot be written as canonical JSON.
pub fn canonical_ordered<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    let (mut compact, has_others) = (Vec::with_capacity(1024), Cell::new(false));
    value.serialize(&mut Serializer::with_formatter(&mut compact, NoticingNumbers { has_others: &has_others }))?;
    if has_others.get() {
        return canonical(value);
    }
    debug_assert_eq!(Some(&compact), canonical(value).ok().as_ref(), "members are out of order");
    Ok(compact)
}

/// Writes compact JSON, and notes numbers whose canonical form may be another than their digits.
struct NoticingNumbers<'a> {
    has_others: &'a Cell<bool>,
}

/// The largest integer below which every one is a double.
const INTEGER_MAX: u64 = (1 << 53) - 1;

impl Formatter for NoticingNumbers<'_> {
    fn write_i64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        self.has_others.set(self.has_others.get() || value.unsigned_abs() > INTEGER_MAX);
        CompactFormatter.write_i64(writer, value)
    }

    fn write_u64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        self.has_others.set(self.has_others.get() || value > INTEGER_MAX);
        CompactFormatter.write_u64(writer, value)
    }

    fn write_i128<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i128) -> io::Result<()> {
        self.has_others.set(true);
        CompactFormatter.write_i128(writer, value)
    }

    fn write_u128<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u128) -> io::Result<()> {
        self.has_others.set(true);
        CompactFormatter.write_u128(writer, value)
    }

    fn write_f32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        self.has_others.set(true);
        CompactFormatter.write_f32(writer, value)
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        self.has_others.set(true);
        CompactFormatter.write_f64(writer, value)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

crate::debug_as_shown!(Digest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_order_and_white_space_do_not_change_the_digest() {
        let left: serde_json::Value = serde_json::from_str(r#"{"b": 1, "a": [1.0, "x"]}"#).unwrap();
        let right: serde_json::Value = serde_json::from_str(r#"{"a":[1,"x"],"b":1}"#).unwrap();
        assert_eq!(Digest::of(&left).unwrap(), Digest::of(&right).unwrap());
        assert_eq!(canonical(&left).unwrap(), br#"{"a":[1,"x"],"b":1}"#);
    }

    #[test]
    fn the_quick_form_is_the_canonical_one_for_every_number() {
        #[derive(Serialize)]
        struct Ordered {
            float: f64,
            large: u64,
            least: i64,
            list: Vec<i64>,
            text: &'static str,
        }
        let numbers = [0, 1, INTEGER_MAX - 1, INTEGER_MAX, INTEGER_MAX + 1, INTEGER_MAX + 2, u64::MAX];
        for large in numbers {
            let least = i64::try_from(large).map_or(i64::MIN, |number| -number);
            for float in [0.0, -0.0, 1e21, 1.5] {
                let value = Ordered { float, large, least, list: vec![least, 7], text: "\u{7f}\n\"\u{1f600}" };
                assert_eq!(canonical_ordered(&value).unwrap(), canonical(&value).unwrap());
                let integers = (large, [least], value.text);
                assert_eq!(canonical_ordered(&integers).unwrap(), canonical(&integers).unwrap());
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of order")]
    #[cfg(debug_assertions)]
    fn members_out_of_order_are_noticed() {
        #[derive(Serialize)]
        struct Unordered {
            b: u8,
            a: u8,
        }
        let _ = canonical_ordered(&Unordered { b: 1, a: 2 });
    }

    #[test]
    fn parts_cannot_run_into_each_other() {
        assert_ne!(Digest::of_parts(&[b"ab", b"c"]), Digest::of_parts(&[b"a", b"bc"]));
    }
}
