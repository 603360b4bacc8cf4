//! Numbers, texts and the pointers around them.

use std::sync::Arc;

use schemas::Address;
use schemas::delivery::Call;
use schemas::ids::{AttrName, Capability};

use super::codec::{Fault, Reader, Stored, Writer};

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Stored for $type {
            fn write(&self, out: &mut Writer) {
                out.number(u64::try_from(*self).unwrap_or(u64::MAX));
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
                let number = input.number()?;
                Self::try_from(number).map_err(|_| input.fault(concat!("a number exceeds ", stringify!($type))))
            }
        }
    )+};
}

numbers!(u16, u32, u64, usize);

/// Zigzag: small numbers of either sign are short.
impl Stored for i64 {
    fn write(&self, out: &mut Writer) {
        out.number(((self << 1) ^ (self >> 63)).cast_unsigned());
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let number = input.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

impl Stored for bool {
    fn write(&self, out: &mut Writer) {
        out.byte(u8::from(*self));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(input.fault("the byte before is neither yes nor no")),
        }
    }
}

impl<const N: usize> Stored for [u8; N] {
    fn write(&self, out: &mut Writer) {
        out.raw(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        input.raw()
    }
}

macro_rules! texts {
    ($($type:ty),+) => {$(
        impl Stored for $type {
            fn write(&self, out: &mut Writer) {
                out.text(self);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
                input.text().map(Self::from)
            }
        }
    )+};
}

texts!(String, Box<str>, Arc<str>);

/// Texts that are stored where they stand: there are few of each.
macro_rules! names {
    ($($type:ident),+) => {$(
        impl Stored for $type {
            fn write(&self, out: &mut Writer) {
                out.text(&self.to_string());
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
                let text = input.text()?;
                Self::try_new(text).map_err(|_| input.fault(concat!("a text is no ", stringify!($type))))
            }
        }
    )+};
}

names!(Address, AttrName, Capability);

impl<T: Stored> Stored for Box<T> {
    fn write(&self, out: &mut Writer) {
        T::write(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        T::read(input).map(Self::new)
    }
}

impl<T: Stored> Stored for Box<[T]> {
    fn write(&self, out: &mut Writer) {
        list(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Vec::read(input).map(Vec::into_boxed_slice)
    }
}

/// The addresses of a call's notices.
impl Stored for Arc<[Address]> {
    fn write(&self, out: &mut Writer) {
        list(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Vec::read(input).map(Self::from)
    }
}

/// Each negotiation keeps a call of its own.
impl Stored for Arc<Call> {
    fn write(&self, out: &mut Writer) {
        Call::write(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Call::read(input).map(Self::new)
    }
}

fn list<T: Stored>(items: &[T], out: &mut Writer) {
    out.length(items.len());
    for item in items {
        item.write(out);
    }
}
