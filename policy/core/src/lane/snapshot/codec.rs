//! The shapes of a snapshot: numbers in LEB128, texts and lists behind their length, one byte for a word of an
//! enumeration. What is read is bounded by the bytes there are.

use schemas::AgentId;

use super::shared::{Given, Numbered};

/// Elements a list reserves room for before they are read. A longer list grows as its elements are found, so that a
/// length alone reserves no more than this.
const RESERVED_MAX: usize = 1024;

/// A part of the state that can be written and read back.
pub(crate) trait Stored: Sized {
    /// Appends it.
    fn write(&self, out: &mut Writer);

    /// Reads it.
    ///
    /// # Errors
    /// [`Fault`] when the bytes make no such part.
    fn read(input: &mut Reader<'_>) -> Result<Self, Fault>;
}

/// Why bytes make no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where, in bytes from the begin of the state.
    pub(super) offset: usize,
    pub(super) what: &'static str,
}

/// Bytes being written, and what stands in them already.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    pub(super) numbered: Numbered,
}

impl Writer {
    /// Continues after some bytes.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, numbered: Numbered::default() }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(0x80 | number.to_le_bytes()[0]);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.raw(text.as_bytes());
    }

    pub(super) fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).unwrap_or(u64::MAX));
    }
}

/// Bytes being read, and what was read of them that is shared.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
    pub(super) given: Given,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len(), given: Given::default() }
    }

    /// A fault at the byte that comes next.
    pub(super) fn fault(&self, what: &'static str) -> Fault {
        Fault { offset: self.len - self.rest.len(), what }
    }

    /// Every agent that was mentioned.
    pub(super) fn take_agents(&mut self) -> Vec<AgentId> {
        self.given.take_agents()
    }

    /// Bytes not read yet.
    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Nothing may be left.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.fault("bytes are left over")) }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        self.raw::<1>().map(|[byte]| byte)
    }

    pub(super) fn raw<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (raw, rest) = self.rest.split_first_chunk().ok_or_else(|| self.fault("the state ends here"))?;
        self.rest = rest;
        Ok(*raw)
    }

    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.fault("a number exceeds 64 bits"))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        let length = self.count()?;
        let (text, rest) = self.rest.split_at(length);
        let text = std::str::from_utf8(text).map_err(|_| self.fault("a text is not UTF-8"))?;
        self.rest = rest;
        Ok(text)
    }

    /// The length of a text or list: at most as many as there are bytes left.
    pub(super) fn count(&mut self) -> Result<usize, Fault> {
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= self.rest.len());
        count.ok_or_else(|| self.fault("a length exceeds the state"))
    }
}

impl<T: Stored> Stored for Option<T> {
    fn write(&self, out: &mut Writer) {
        out.byte(u8::from(self.is_some()));
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        if bool::read(input)? { T::read(input).map(Some) } else { Ok(None) }
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn write(&self, out: &mut Writer) {
        out.length(self.len());
        for item in self {
            item.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let count = input.count()?;
        let mut list = Self::with_capacity(count.min(RESERVED_MAX));
        for _ in 0..count {
            list.push(T::read(input)?);
        }
        list.shrink_to_fit();
        Ok(list)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok((A::read(input)?, B::read(input)?))
    }
}
